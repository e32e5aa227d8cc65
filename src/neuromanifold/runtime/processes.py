"""Work in processes of their own: what Python's lock would otherwise do one after the other."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import jax


def in_processes(
    work: Callable[..., Any], rows: Sequence[Sequence[Any]], workers: int
) -> Generator[Any]:
    """`work(*row)` for every row, `workers` at a time, in spawned processes; the results in order,
    as soon as all before are there.

    `work` and what it takes and returns must survive pickling. The first error is raised as it
    came. Whoever stops listening, by an error or Ctrl-C, ends the processes at once; they end too
    when this process is killed.
    """
    if workers < 1:
        raise ValueError(f"`workers` is {workers}; pass a number of processes, 1 or more.")
    if not rows:
        return
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        min(workers, len(rows)), multiprocessing.get_context("spawn"), _begin
    )
    results = [pool.submit(work, *row) for row in rows]
    try:
        for result in results:
            yield result.result()
    except BrokenProcessPool:
        raise RuntimeError(
            f"one of {workers} `workers` was killed, perhaps for want of memory; pass fewer of "
            "them."
        ) from None
    finally:
        unfinished = not all(result.done() for result in results)
        for child in multiprocessing.active_children() if unfinished else ():
            if child not in others:
                child.terminate()
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Ctrl-C is the parent's to answer; and nobody is left who would want the results when it is
    gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


SECONDS = 20.0
_forked = False


def _note() -> None:
    global _forked
    _forked = True


if "register_at_fork" in dir(os):
    os.register_at_fork(after_in_child=_note)


def check_fork() -> None:
    """Nothing, except once after a fork: compile something small, and refuse to go on where that
    does not end.
    """
    global _forked
    if not _forked:
        return
    ended = threading.Event()
    threading.Thread(target=lambda: (_compile(), ended.set()), daemon=True).start()
    if not ended.wait(SECONDS):
        raise RuntimeError(
            "this process was forked from one in which JAX was already in use, where its "
            "computations never end; "
            'start processes by `multiprocessing.get_context("spawn")`, or fork before the first '
            "computation."
        )
    _forked = False


def _compile() -> None:
    jax.block_until_ready(jax.jit(lambda a: a + 1.0)(1.0))
