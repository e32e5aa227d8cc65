"""Windows that slide over positions: their sizes, strides and paddings, shared by convolutions
and pooling.
"""

from typing import Any

import jax.numpy as jnp

from neuromanifold.models.layers.base import Shape

PADDINGS = ("SAME", "VALID", "CIRCULAR")


def per_axis(given: int | Shape, axes: int, name: str) -> Shape:
    """One number for each axis of positions."""
    values = (given,) * axes if isinstance(given, int) else tuple(given)
    if len(values) != axes:
        raise ValueError(
            f"`{name}` is {given!r} but the samples have {axes} axes of positions; give one "
            "number for each."
        )
    return values


def check_window(window: Any, strides: Any, padding: Any) -> None:
    """Refuse sizes that are not positive whole numbers and paddings that do not exist."""
    for name, given in (("window", window), ("strides", strides)):
        values = given if isinstance(given, tuple) else (given,)
        if not values or not all(isinstance(v, int) and v >= 1 for v in values):
            raise ValueError(
                f"`{name}` is {given!r}; pass a positive whole number, or a tuple of them."
            )
    if padding not in PADDINGS:
        raise ValueError(f"`padding` is {padding!r}; pass one of {', '.join(PADDINGS)}.")


def margins(size: int, window: int, stride: int, padding: str) -> tuple[int, int]:
    """What is added before and after an axis: nothing, or so much that there are ⌈size/stride⌉
    windows.

    >>> margins(6, 3, 1, "SAME"), margins(6, 3, 2, "SAME"), margins(6, 3, 1, "VALID")
    ((1, 1), (0, 1), (0, 0))
    """
    if padding == "VALID":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def windows_along(size: int, window: int, stride: int, padding: str) -> int:
    """How many windows fit."""
    count = (size + sum(margins(size, window, stride, padding)) - window) // stride + 1
    if count < 1:
        raise ValueError(
            f"`window` {window} does not fit into {size} positions; make it smaller, or pad with "
            "SAME."
        )
    return count


def slid_shape(shape: Shape, window: int | Shape, strides: int | Shape, padding: str) -> Shape:
    """The positions of the windows, for samples (*positions, channels)."""
    sizes, steps = (
        per_axis(g, len(shape) - 1, n) for g, n in ((window, "window"), (strides, "strides"))
    )
    return tuple(
        windows_along(n, k, s, padding) for n, k, s in zip(shape[:-1], sizes, steps, strict=True)
    )


def pad(x: Any, widths: list[tuple[int, int]], padding: str) -> Any:
    """The samples (n, *positions, channels) with margins of zeros, or of the other side."""
    if not any(map(sum, widths)):
        return x
    return jnp.pad(
        x, [(0, 0), *widths, (0, 0)], mode="wrap" if padding == "CIRCULAR" else "constant"
    )
