"""Infinite-width kernels of concrete samples, block by block within a memory budget."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.layers.branches import shapes_through
from neuromanifold.runtime.devices import in_halves
from neuromanifold.runtime.memory import blocks
from neuromanifold.tangent.infinite.deviations import Deviation
from neuromanifold.tangent.infinite.plan import first_orders, next_orders
from neuromanifold.tangent.infinite.program import (
    Program,
    diagonal_pass,
    largest_variances,
    own_pass,
    pair_pass,
)
from neuromanifold.tangent.kernel.contraction import all_finite

_ARRAYS_PER_PAIR = 16
# On a processor the arrays of one block stay in its cache.
_CACHE = 2**19

Own = tuple[Any, ...]


class Wanted(NamedTuple):
    """Which of the two kernels the caller asks for."""

    nngp: bool
    ntk: bool


def blocked_kernels(
    it: Program, x1: Any, x2: Any, spreads: tuple[Deviation, ...], budget: int, wanted: Wanted
) -> tuple[Any | None, Any | None]:
    """(NNGP, NTK), each where it is wanted, with as many nodes as the estimated errors ask for."""
    it = _started(it, [x for x in (x1, x2) if x is not None], spreads)
    settle = partial(_settled_kernels, it, x1, x2, spreads, wanted)
    return in_halves(settle, max(1, int(_pairs_at_once(it, budget) ** 0.5)), "samples")


def _settled_kernels(it: Program, x1: Any, x2: Any, spreads: Any, wanted: Wanted, size: int) -> Any:
    while True:
        sides, errors = _sides(it, x1, x2, spreads, size)
        more = next_orders(it, errors)
        if more is None:
            kernels, errors = _assembled(it, x1, x2, spreads, sides, size, wanted)
            more = next_orders(it, errors)
            if more is None:
                return _finite(it, x1, x2, spreads, kernels)
        it = it.with_orders(more)


def blocked_diagonals(
    it: Program, x: Any, spreads: tuple[Deviation, ...], budget: int, wanted: Wanted
) -> tuple[Any | None, Any | None]:
    """The diagonals of (NNGP, NTK), each where it is wanted."""
    it = _started(it, [x], spreads)
    return in_halves(
        partial(_settled_diagonals, it, x, spreads, wanted), _pairs_at_once(it, budget), "samples"
    )


def _settled_diagonals(it: Program, x: Any, spreads: Any, wanted: Wanted, size: int) -> Any:
    while True:
        found = [
            diagonal_pass(it, x[part], spreads, tangent=wanted.ntk) for part in _even(len(x), size)
        ]
        more = next_orders(it, _worst(it, [errors for *_, errors in found]))
        if more is None:
            nngp, ntk, _ = zip(*found, strict=True)
            kernels = (
                jnp.concatenate(nngp) if wanted.nngp else None,
                jnp.concatenate(ntk) if wanted.ntk else None,
            )
            return _finite(it, x, None, spreads, kernels)
        it = it.with_orders(more)


def _started(it: Program, samples: list[Any], spreads: tuple[Deviation, ...]) -> Program:
    """The program with the nodes that the size of the samples suggests."""
    return it.with_orders(
        first_orders(it, max(float((x**2).mean(axis=-1).max()) for x in samples), spreads)
    )


def _pairs_at_once(it: Program, budget: int) -> int:
    """How many pairs of samples a block may hold."""
    per_pair = 8 * it.entries_per_pair
    within = budget / (_ARRAYS_PER_PAIR * per_pair)
    cached = _CACHE / per_pair if jax.default_backend() == "cpu" else within
    return max(1, int(min(within, cached)))


def _even(n: int, size: int) -> list[slice]:
    """Blocks of at most that many samples, as equal as can be: fewer shapes to compile."""
    return list(blocks(n, -(-n // -(-n // size))))


def _sides(
    it: Program, x1: Any, x2: Any, spreads: Any, size: int
) -> tuple[list[list[Own]], np.ndarray]:
    """What the samples' own covariances tell, block by block of each side, and the errors
    estimated.
    """
    errors = np.zeros(len(it.activations))
    if not it.asks:
        return [[() for _ in _even(len(x), size)] for x in (x1, x2) if x is not None], errors
    sides = []
    for x in (x1, x2):
        if x is not None:
            found = [own_pass(it, x[part], spreads) for part in _even(len(x), size)]
            sides.append([own for own, _ in found])
            errors = np.maximum(errors, _worst(it, [e for _, e in found]))
    return sides, errors


def _assembled(
    it: Program, x1: Any, x2: Any, spreads: Any, sides: Any, size: int, wanted: Wanted
) -> tuple[tuple[Any | None, Any | None], np.ndarray]:
    """All blocks, put together where they were computed; of a symmetric kernel half of them."""
    symmetric = x2 is None
    columns = x1 if symmetric else x2
    places = _places(it)
    shape = (len(x1), *places, len(columns), *places)
    kernels, errors = [jnp.zeros(shape) if each else None for each in wanted], []
    for i, rows in enumerate(_even(len(x1), size)):
        for j, other in enumerate(_even(len(columns), size)):
            if symmetric and j < i:
                continue
            same = symmetric and i == j
            own = (sides[0][i], sides[-1][j])
            *found, error = pair_pass(
                it, x1[rows], columns[other], spreads, own, same=same, tangent=wanted.ntk
            )
            errors.append(error)
            for index, block in enumerate(found):
                if kernels[index] is not None:
                    kernels[index] = _placed(
                        kernels[index], block, rows.start, other.start, symmetric, same
                    )
            jax.block_until_ready(kernels)  # one block at a time in memory
    return tuple(kernels), _worst(it, errors)  # pyright: ignore[reportReturnType]


def _worst(it: Program, errors: list[tuple[Any, ...]]) -> np.ndarray:
    """The largest error of each activation over the blocks."""
    none = np.zeros(len(it.activations))
    return np.max([none, *(np.asarray(e, np.float64) for e in errors)], axis=0)


def _places(it: Program) -> tuple[int, ...]:
    return shapes_through(it.layers, it.shape)[-1][:-1] if it.keeps_positions else ()


@partial(jax.jit, donate_argnums=0, static_argnums=(4, 5))
def _placed(kernel: Any, block: Any, row: Any, column: Any, symmetric: bool, same: bool) -> Any:
    """The kernel with a block at its place and, where it is symmetric, at the mirrored one; on
    the diagonal the mean of both.
    """
    axes = block.ndim // 2
    mirrored = block.transpose(*range(axes, 2 * axes), *range(axes))
    if same:
        block = (block + mirrored) / 2
    behind = (0,) * (axes - 1)
    kernel = jax.lax.dynamic_update_slice(kernel, block, (row, *behind, column, *behind))
    if symmetric and not same:
        kernel = jax.lax.dynamic_update_slice(kernel, mirrored, (column, *behind, row, *behind))
    return kernel


def _finite(it: Program, x: Any, x2: Any, spreads: Any, kernels: Any) -> Any:
    if bool(all_finite(kernels)):
        return kernels
    found = [
        v for side in (x, x2) if side is not None for v in largest_variances(it, side, spreads)
    ]
    layer = min(
        (count for count, variance in found if not np.isfinite(variance)), default=len(spreads)
    )
    largest = max((variance for _, variance in found if np.isfinite(variance)), default=0.0)
    raise OverflowError(
        f"the kernel overflows float64 after weight layer {layer} (largest finite variance: "
        f"{largest:.3g}); "
        "scale `x` or `weight_std` down, or use fewer layers."
    )
