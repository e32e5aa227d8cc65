"""Threads: work beside the caller, who hears Ctrl-C; one BLAS thread for as long as anyone wants
it; one caller of LAPACK.
"""

import atexit
import os
import queue
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_LOCK = threading.Lock()
_limits: list[Any] = []
_abandoned: list[threading.Thread] = []
_users = 0

lapack = threading.RLock()
"""Held by programs that call LAPACK: such a call occupies a thread of XLA's pool and waits for
others of it, so that two
programs at a time wait for each other for ever where the pool has two."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1


def pool_size() -> int:
    """The threads of XLA's pool on this host. Large products add in an order that depends on it;
    `NPROC` sets it.
    """
    given = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or ""
    return int(given) if given.isdigit() and int(given) > 0 else cores()


@contextmanager
def one_blas_thread() -> Generator[None]:
    """OpenBLAS on one thread in the block, and its own number again when the last of overlapping
    blocks is left.

    jaxlib spreads a batch of matrices over the cores already. Its threads wait by spinning, which
    made the singular values of a 100×361 matrix a hundred times slower on a busy machine, and they
    have been seen to return nan for a finite matrix (scipy 1.17's OpenBLAS called by jaxlib); and
    with one thread the digits do not depend on the number of cores.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _users
    import_module(
        "scipy.linalg"
    )  # jaxlib takes its LAPACK from scipy, and only what is loaded can be limited
    from threadpoolctl import threadpool_limits

    with _LOCK:
        _users += 1
        if _users == 1:
            _limits.append(threadpool_limits(limits=1, user_api="blas"))


def _leave() -> None:
    global _users
    with _LOCK:
        _users -= 1
        if _users == 0:
            _limits.pop().restore_original_limits()


def beside(work: Callable[..., Any], rows: Sequence[Sequence[Any]], workers: int = 1) -> list[Any]:
    """`work(*row)` for every row, `workers` at a time, in threads of their own; the results in
    order.

    The caller waits in Python and so hears Ctrl-C at once, which it would not inside a compiled
    program: what runs is then left to end by itself, what has not begun never does. The first error
    is raised as it came.

    >>> beside(pow, [(2, 3), (3, 2)], workers=2)
    [8, 9]
    """
    todo: Any = iter(enumerate(rows))
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    lock = threading.Lock()

    def loop() -> None:
        while True:
            with lock:
                index, row = next(todo, (None, ()))
            if index is None:
                return
            try:
                done.put((index, work(*row), None))
            except BaseException as error:
                done.put((index, None, error))
                return

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(min(workers, len(rows)))]
    for thread in threads:
        thread.start()
    results: dict[int, Any] = {}
    try:
        while len(results) < len(rows):
            index, value, error = _next(done)
            if error is not None:
                raise error
            results[index] = value
    finally:
        with lock:
            todo = iter(())
        _abandoned[:] = [thread for thread in (*_abandoned, *threads) if thread.is_alive()]
    return [results[index] for index in range(len(rows))]


def _next(done: queue.SimpleQueue[Any]) -> Any:
    """The next entry; looks up now and then, since a signal may have come to another thread than
    the one that waits.
    """
    while True:
        try:
            return done.get(timeout=0.2)
        except queue.Empty:
            continue


@atexit.register
def _end() -> None:
    """A thread inside a compiled program cannot be stopped, and Python aborts where one outlives
    it.
    """
    if (
        any(thread.is_alive() for thread in _abandoned)
        and getattr(sys, "last_type", None) is KeyboardInterrupt
    ):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    for thread in _abandoned:
        thread.join()
