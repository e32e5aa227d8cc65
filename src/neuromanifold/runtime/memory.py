"""The memory budget, and the cutting of an axis into blocks that respect it."""

import ctypes
import functools
import math
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

ENVIRONMENT_VARIABLE = "NEUROMANIFOLD_MEMORY"
_GIB = 2**30
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_budget(memory: int | float | str | None = None, *, device: bool = False) -> int:
    """Return the bytes that temporaries may take: `memory`, else `$NEUROMANIFOLD_MEMORY`, else
    min(2 GiB, a quarter of the machine).

    `device=True` is for temporaries of JAX: where its default device is an accelerator, half
    of that one's memory.

    >>> memory_budget("1.5G")
    1610612736
    """
    name, given = (
        ("memory", memory)
        if memory is not None
        else (ENVIRONMENT_VARIABLE, os.environ.get(ENVIRONMENT_VARIABLE))
    )
    if given is None:
        return (accelerator_memory() // 2 if device else 0) or min(2 * _GIB, machine_memory() // 4)
    if isinstance(given, bool) or not isinstance(given, str | numbers.Real):
        raise TypeError(
            f"`{name}` is {given!r}; pass a number of bytes, or a string such as '512M' or '2G'."
        )
    budget = _parse(given)
    if budget <= 0:
        raise ValueError(
            f"`{name}` is {given!r}; pass a positive number of bytes, or a string such as '512M' "
            "or '2G'."
        )
    return budget


def _parse(given: Any) -> int:
    if isinstance(given, numbers.Integral):
        return int(given)
    if isinstance(given, numbers.Real):
        return int(float(given)) if math.isfinite(given) else -1
    text = given.strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS and text else (text, "")
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        return -1


@functools.cache
def accelerator_memory() -> int:
    """Bytes of the default device that JAX may use; 0 when that is the host."""
    return int((jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 0))


@functools.cache
def machine_memory() -> int:
    """Bytes of memory this process may use: the control group's limit where there is one, else
    the machine's.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _read_limit(Path(p))
        for p in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    ]
    return min([physical, *(limit for limit in limits if limit is not None)])


def _read_limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def give_back() -> None:
    """Return to the system what was freed and the C library keeps (glibc's does: hundreds of
    megabytes after many small arrays).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def blocks(n: int, largest: int) -> Iterator[slice]:
    """Cut `range(n)` into the fewest slices of at most `largest` elements, of nearly equal length.

    At most two lengths occur, so that a jitted block function compiles at most twice.

    >>> list(blocks(10, 4))
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    """
    count = -(-n // max(1, largest))
    short, longer = divmod(n, count) if count else (0, 0)
    start = 0
    for index in range(count):
        stop = start + short + (index < longer)
        yield slice(start, stop)
        start = stop
