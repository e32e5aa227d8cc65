"""Infinite-width kernels of concrete samples, block by block within a memory budget."""

from typing import Any

import jax
import numpy as np

from neuromanifold.models.layers.branches import shapes_through
from neuromanifold.numerics.memory import blocks
from neuromanifold.tangent.infinite.deviations import Deviation
from neuromanifold.tangent.infinite.plan import first_orders, next_orders
from neuromanifold.tangent.infinite.program import Program, largest_variances, own_pass, pair_pass

_ARRAYS_PER_PAIR = 16
# On a processor the arrays of one block stay in its cache.
_CACHE = 2**21

Own = tuple[Any, ...]


def blocked_kernels(
    it: Program, x1: np.ndarray, x2: np.ndarray | None, spreads: tuple[Deviation, ...], budget: int, *, tangent: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """(NNGP, NTK or `None`), with as many nodes as the estimated errors ask for."""
    largest = max(float((x**2).mean(axis=-1).max()) for x in (x1, x2) if x is not None)
    it = it.with_orders(first_orders(it, largest, spreads))
    size = _block_size(it, budget)
    while True:
        sides, errors = _sides(it, x1, x2, spreads, size)
        more = next_orders(it, errors)
        if more is None:
            kernels, errors = _assembled(it, x1, x2, spreads, sides, size, tangent)
            more = next_orders(it, errors)
        if more is None:
            return _finite(it, x1, x2, spreads, kernels)
        it = it.with_orders(more)


def _block_size(it: Program, budget: int) -> int:
    per_pair = 8 * it.entries_per_pair
    within = budget / (_ARRAYS_PER_PAIR * per_pair)
    cached = _CACHE / per_pair if jax.default_backend() == "cpu" else within
    return max(1, int(min(within, cached) ** 0.5))


def _sides(it: Program, x1: Any, x2: Any, spreads: Any, size: int) -> tuple[list[list[Own]], np.ndarray]:
    """What the samples' own covariances tell, block by block of each side, and the errors estimated."""
    errors = np.zeros(len(it.activations))
    if not it.asks:
        return [[() for _ in blocks(len(x), size)] for x in (x1, x2) if x is not None], errors
    sides = []
    for x in (x1, x2):
        if x is not None:
            found = [own_pass(it, x[part], spreads) for part in blocks(len(x), size)]
            sides.append([own for own, _ in found])
            errors = np.maximum(errors, np.max([np.asarray(e, np.float64) for _, e in found], axis=0))
    return sides, errors


def _assembled(it, x1, x2, spreads, sides, size, tangent) -> tuple[tuple[np.ndarray, np.ndarray | None], np.ndarray]:
    symmetric = x2 is None
    columns = x1 if symmetric else x2
    places = _places(it)
    kernels = tuple(
        np.empty((len(x1), *places, len(columns), *places)) if wanted else None for wanted in (True, tangent)
    )
    errors = np.zeros(len(it.activations))
    for i, rows in enumerate(blocks(len(x1), size)):
        for j, other in enumerate(blocks(len(columns), size)):
            if symmetric and j < i:
                continue
            same = symmetric and i == j
            own = (sides[0][i], sides[-1][j])
            *found, error = pair_pass(it, x1[rows], columns[other], spreads, own, same=same, tangent=tangent)
            errors = np.maximum(errors, np.asarray(error, np.float64))
            for kernel, block in zip(kernels, found, strict=True):
                if kernel is not None:
                    _write(kernel, np.asarray(block), rows, other, len(places), symmetric)
    return kernels, errors  # pyright: ignore[reportReturnType]


def _places(it: Program) -> tuple[int, ...]:
    return shapes_through(it.layers, it.shape)[-1][:-1] if it.keeps_positions else ()


def _write(kernel: np.ndarray, block: np.ndarray, rows: slice, columns: slice, axes: int, symmetric: bool) -> None:
    """A block at its place and, in a symmetric kernel, at the mirrored one; on the diagonal the mean of both."""
    behind = (slice(None),) * axes
    mirrored = block.transpose(*range(axes + 1, 2 * axes + 2), *range(axes + 1))
    if symmetric and rows == columns:
        kernel[(rows, *behind, columns)] = (block + mirrored) / 2
        return
    kernel[(rows, *behind, columns)] = block
    if symmetric:
        kernel[(columns, *behind, rows)] = mirrored


def _finite(it: Program, x: np.ndarray, x2: np.ndarray | None, spreads: Any, kernels: Any) -> Any:
    if all(kernel is None or np.isfinite(kernel).all() for kernel in kernels):
        return kernels
    found = [v for side in (x, x2) if side is not None for v in largest_variances(it, side, spreads)]
    layer = min((count for count, variance in found if not np.isfinite(variance)), default=len(spreads))
    largest = max((variance for _, variance in found if np.isfinite(variance)), default=0.0)
    raise OverflowError(
        f"the kernel overflows float64 after weight layer {layer} (largest finite variance: {largest:.3g}); "
        "scale `x` or `weight_std` down, or use fewer layers."
    )
