"""Arrays as they come from users, made plain: nothing masked, nothing wider than float64, the
machine's byte order.
"""

from typing import Any

import numpy as np

_LARGEST_EXACT = 2**53


def plain_array(a: Any, name: str) -> np.ndarray:
    """`a` as a NumPy array of a dtype that JAX knows, with the same values; refused where float64
    cannot hold them.

    >>> plain_array(np.arange(3, dtype=">i4"), "x").dtype.isnative
    True
    """
    if isinstance(a, np.ma.MaskedArray):
        masked = int(np.ma.count_masked(a))
        if masked:
            raise ValueError(
                f"`{name}` is a masked array with {masked} masked entries; drop or fill them: "
                "`a.filled(…)`."
            )
        a = a.data
    a = _as_array(a, name)
    if a.dtype.kind in "fc" and a.dtype.itemsize > (8 if a.dtype.kind == "f" else 16):
        return _narrow(a, name)
    if a.dtype.kind in "iu" and a.size and a.dtype.itemsize == 8:
        _check_exact(a, name)
    return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))


def _as_array(a: Any, name: str) -> np.ndarray:
    foreign = type(a).__module__.partition(".")[0] == "torch" and hasattr(a, "detach")
    try:
        found = np.asarray(a.detach().cpu() if foreign else a)
        if found.dtype.kind == "O" and not found.shape and a is not None:
            raise TypeError("NumPy holds it as one object")
        return found
    except Exception as error:  # what other libraries hold is refused in their own ways
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        remedy = "one array, or a tuple or dictionary of arrays for several inputs"
        if foreign:
            remedy = "`tensor.detach().float().cpu().numpy()`"
        raise TypeError(
            f"`{name}` is a {type(a).__name__} that is no array ({reason}); pass {remedy}."
        ) from None


def _narrow(a: np.ndarray, name: str) -> np.ndarray:
    """Long doubles as float64, where no digit is lost."""
    narrow = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    lost = (narrow.astype(a.dtype) != a) & ~np.isnan(a)
    if lost.any():
        where = _first(lost)
        raise ValueError(
            f"`{name}` is {a[where]!s} at {list(where)} in {a.dtype}, which float64 cannot hold "
            f"({lost.sum()} such entries); "
            "round it yourself: `a.astype('float64')`."
        )
    return narrow


def _check_exact(a: np.ndarray, name: str) -> None:
    """Beyond 2⁵³ only some whole numbers are floats; those that are not must not become their
    neighbours.
    """
    large = (
        (a > _LARGEST_EXACT) | (a < -_LARGEST_EXACT) if a.dtype.kind == "i" else a > _LARGEST_EXACT
    )
    if not large.any():
        return
    lost = np.zeros(a.shape, bool)
    lost[large] = [int(float(int(value))) != int(value) for value in a[large]]
    if lost.any():
        where = _first(lost)
        raise ValueError(
            f"`{name}` is {a[where]} at {list(where)}, which float64 cannot hold ({lost.sum()} "
            "such entries above 2^53); "
            "subtract or scale it first."
        )


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
