"""Work in spawned processes: in order, with its errors, and ended by whoever stops listening."""

import multiprocessing
import os
import time

import pytest

from neuromanifold.runtime.processes import in_processes


def test_results_come_in_order_and_from_elsewhere_and_an_error_as_it_was() -> None:
    rows = [(2, 3), (3, 2), (0, -1), (5, 1)]
    found = in_processes(pow, rows, 2)
    assert [next(found), next(found)] == [8, 9]
    with pytest.raises(ZeroDivisionError, match="cannot be raised to a negative power"):
        next(found)
    assert not multiprocessing.active_children()


def test_who_stops_listening_ends_the_work() -> None:
    found = in_processes(time.sleep, [(0,), (600,)], 2)
    next(found)
    start = time.monotonic()
    found.close()
    assert time.monotonic() - start < 30
    assert not multiprocessing.active_children()


def test_a_killed_process_is_told_and_not_waited_for() -> None:
    with pytest.raises(
        RuntimeError, match="one of 1 `workers` was killed, perhaps for want of memory; pass fewer"
    ):
        list(in_processes(os._exit, [(1,)], 1))


def test_nothing_to_do_starts_nothing_and_no_workers_are_refused() -> None:
    assert list(in_processes(pow, [], 2)) == []
    with pytest.raises(ValueError, match="`workers` is 0; pass a number of processes, 1 or more"):
        list(in_processes(pow, [(1, 1)], 0))
