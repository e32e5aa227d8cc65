"""Ctrl-C: answered in a sentence that says what is on disk, and within seconds even where Python
cannot answer itself.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

SECONDS = 2.0
_WATCHER = """
import os, select, sys, time
seconds, pid, message = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
while (byte := os.read(0, 1)) and byte != b"\\x02":
    pass
end = time.monotonic() + seconds
while byte and (left := end - time.monotonic()) > 0:
    if select.select([0], [], [], left)[0]:
        byte = os.read(0, 64)
if byte:
    os.kill(pid, 9)
    print(message, file=sys.stderr)
"""


@contextmanager
def answering(on_disk: str) -> Generator[None]:
    """In the block, Ctrl-C ends the program with `on_disk`, a sentence; at the latest after
    `SECONDS`.

    A call into compiled code may hold Python for minutes, and then no handler of it can run. So a
    small process waits beside the program, hears of the signal through a pipe, and kills the
    program where the block is not left in time. Files are written whole or not at all, so that
    nothing is damaged by that.
    """
    with _watched(f"neuromanifold: interrupted; {on_disk}"):
        try:
            yield
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(str(stop) or on_disk) from None


@contextmanager
def _watched(message: str) -> Generator[None]:
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [sys.executable, "-I", "-S", "-c", _WATCHER, str(SECONDS), str(os.getpid()), message]
    watcher = subprocess.Popen(
        command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True
    )
    os.close(reading)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)  # which the watcher takes as a sign that all is well
        watcher.wait()
