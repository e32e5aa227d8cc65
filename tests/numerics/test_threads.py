"""Threads: results in order, errors as they came, Ctrl-C at once, BLAS limits that nest."""

import signal
import threading
import time

import pytest
from threadpoolctl import threadpool_info

from neuromanifold.runtime.threads import beside, one_blas_thread


def blas_threads() -> list[int]:
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_order(workers: int):
    def late(i: int) -> int:
        time.sleep(0.01 * (5 - i))
        return i * i

    assert beside(late, [(i,) for i in range(5)], workers) == [0, 1, 4, 9, 16]
    assert beside(late, [], workers) == []


def test_at_most_so_many_run_at_a_time():
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    beside(work, [()] * 12, 3)
    assert most == 3


def test_the_first_error_ends_the_rest():
    begun = []

    def work(i: int) -> None:
        begun.append(i)
        if i == 1:
            raise ArithmeticError("one")
        time.sleep(0.05)

    with pytest.raises(ArithmeticError, match="one"):
        beside(work, [(i,) for i in range(100)], 2)
    time.sleep(0.2)
    assert len(begun) < 10


def test_ctrl_c_does_not_wait_for_what_runs():
    """With Python's own handler, which a runner in the background may have switched off."""
    release, before = threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        beside(release.wait, [(30,)])
    assert time.monotonic() - began < 3
    release.set()
    signal.signal(signal.SIGINT, before)


def test_overlapping_limits_of_blas_leave_what_they_found():
    """The first block to begin ends first, as two trainings in two threads do."""
    import scipy.linalg  # noqa: F401

    before, first, second = blas_threads(), one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
