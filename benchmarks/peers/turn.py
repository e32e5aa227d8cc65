"""One turn of a contestant, the same for ours and for a peer: short calls are repeated in it, for
what they cost when warm.

This module needs nothing but the standard library.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

LASTS = 0.2
"""Seconds, at least."""


def turn(function: Callable[[], Any]) -> tuple[float, Any]:
    """(median seconds of the calls that a turn has time for, one at least; the first result)."""
    seconds, result = once(function)
    calls = [seconds]
    while sum(calls) < LASTS:
        calls.append(once(function)[0])
    return statistics.median(calls), result


def once(function: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds of one call, its result)."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result
