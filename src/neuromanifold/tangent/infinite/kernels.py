"""Kernels of infinitely wide networks: the covariance of their outputs (NNGP) and their tangent
kernel.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.models.activation import Activation, Mixed
from neuromanifold.models.arguments import Model, Samples
from neuromanifold.models.layers.attention import Attention
from neuromanifold.models.layers.base import AbstractLayer
from neuromanifold.models.layers.branches import Elementwise, Residual, Sum, shapes_through
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.numerics.precision import boundary, in_float64, is_traced
from neuromanifold.numerics.results import show_record
from neuromanifold.numerics.validation import check_sample
from neuromanifold.runtime.devices import in_halves
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.infinite.deviations import Deviation, deviations
from neuromanifold.tangent.infinite.program import (
    KernelProgram,
    diagonal_pass,
    largest_variances,
    own_pass,
    pair_pass,
    poison,
    program,
)
from neuromanifold.tangent.infinite.quadrature import Quadrature
from neuromanifold.tangent.infinite.series import settle_order
from neuromanifold.tangent.kernel.contraction import all_finite

_GRID = 12
_SMALLEST = 1e-3


def first_orders(
    it: KernelProgram, largest: float, deviations: tuple[Deviation, ...]
) -> tuple[int, ...]:
    """A guess at the nodes that each activation needs, from bounds on the variances; the passes
    check it.

    A weight layer maps a variance a to σ_w² a + σ_b², means over positions never raise the largest,
    sums add.
    """
    if not any(map(it.quadrature.needs_order, it.activations)):
        return tuple(it.quadrature.ladder[0] for _ in it.activations)
    bounds = _Bounds(
        it.quadrature, iter([Deviation(np.asarray(w), np.asarray(b)) for w, b in deviations]), []
    )
    bounds.through(it.random, largest)
    return tuple(bounds.orders)


@dataclass
class _Bounds:
    quadrature: Quadrature
    deviations: Any
    orders: list[int]

    def through(self, layers: tuple[AbstractLayer, ...], largest: float) -> float:
        for layer in layers:
            largest = self.step(layer, largest)
        return largest

    def step(self, layer: AbstractLayer, largest: float) -> float:
        match layer:
            case Dense() | Conv():
                spread = next(self.deviations).spread(1, layer.bias, "ntk")
                return float(spread.weight * largest + spread.bias)
            case Attention():
                spread = next(self.deviations).attention_spread((1, 1), layer.bias, "ntk")
                return float(spread.weight * largest + spread.bias)
            case Elementwise():
                return self.activation(layer.activation, largest)
            case LayerNorm():
                return 1.0
            case Residual():
                return largest + self.through(layer.layers, largest)
            case Sum():
                return sum(self.through(branch, largest) for branch in layer.branches)
        return largest

    def activation(self, entry: Activation | Mixed, largest: float) -> float:
        variances = np.geomspace(max(largest, 1e-300) * _SMALLEST, max(largest, 1e-300), _GRID)
        parts = (
            (entry,)
            if isinstance(entry, Activation)
            else tuple(activation for activation, _ in entry.parts)
        )
        ladder = self.quadrature.ladder
        found = [self._settle(activation, variances, ladder) for activation in parts]
        self.orders.append(max(order for order, _ in found))
        return max(float(np.nanmax(values)) for _, values in found)

    def _settle(
        self, activation: Activation, variances: np.ndarray, ladder: tuple[int, ...]
    ) -> tuple[int, np.ndarray]:
        if not self.quadrature.needs_order(activation):
            return ladder[0], np.asarray(
                self.quadrature.dual(activation, ladder[0]).own(variances).variance
            )
        if self.quadrature.kinks:
            return ladder[0], settle_order(activation, variances, (256,), 1.0)[1]
        return settle_order(activation, variances, ladder, self.quadrature.rtol)


def next_orders(it: KernelProgram, errors: Any) -> tuple[int, ...] | None:
    """More nodes where an error is too large; `None` where all are fine.

    >>> from neuromanifold.models.layers import Dense
    >>> wide = KernelProgram((Dense(1), Elementwise(nm.MLP((1, 1, 1), "tanh").activation[0])), (1,), "ntk", Quadrature(), (64,))
    >>> next_orders(wide, [1e-9]), next_orders(wide, [1e-13])
    ((128,), None)
    """
    ladder, orders = it.quadrature.ladder, list(it.orders)
    missed = [index for index, error in enumerate(errors) if not float(error) <= it.quadrature.rtol]
    if not missed:
        return None
    for index in missed:
        if not np.isfinite(float(errors[index])):
            return None
        if orders[index] == ladder[-1]:
            raise ArithmeticError(_refusal(it, index, float(errors[index])))
        orders[index] = ladder[ladder.index(orders[index]) + 1]
    return tuple(orders)


def _refusal(it: KernelProgram, index: int, error: float) -> str:
    entry, rule = it.activations[index], it.quadrature
    if rule.kinks:
        return (
            f"the quadrature for {entry} split at {rule.kinks} has not reached {rule.rtol:.0e} "
            f"(estimated error {error:.0e}); "
            "raise `rtol`, or name all its kinks."
        )
    return (
        f"the quadrature for {entry} has not reached {rule.rtol:.0e} with {it.orders[index]} "
        f"nodes (estimated error {error:.0e}); "
        "raise `rtol`, or name the points where the activation or a derivative of it jumps: "
        "quadrature=Quadrature(kinks=(…,))."
    )


_ARRAYS_PER_PAIR = 16
# On a processor the arrays of one block stay in its cache.
_CACHE = 2**19

Own = tuple[Any, ...]


class Wanted(NamedTuple):
    """Which of the two kernels the caller asks for."""

    nngp: bool
    ntk: bool


def compute_kernels(
    it: KernelProgram, x1: Any, x2: Any, spreads: tuple[Deviation, ...], budget: int, wanted: Wanted
) -> tuple[Any | None, Any | None]:
    """(NNGP, NTK), each where it is wanted, with as many nodes as the estimated errors ask for."""
    it = _start(it, [x for x in (x1, x2) if x is not None], spreads)
    settle = partial(_settle_kernels, it, x1, x2, spreads, wanted)
    return in_halves(settle, max(1, int(_pairs_at_once(it, budget) ** 0.5)), "samples")


def _settle_kernels(
    it: KernelProgram, x1: Any, x2: Any, spreads: Any, wanted: Wanted, size: int
) -> Any:
    while True:
        sides, errors = _sides(it, x1, x2, spreads, size)
        more = next_orders(it, errors)
        if more is None:
            kernels, errors = _assemble(it, x1, x2, spreads, sides, size, wanted)
            more = next_orders(it, errors)
            if more is None:
                return _finite(it, x1, x2, spreads, kernels)
        it = it.with_orders(more)


def compute_diagonals(
    it: KernelProgram, x: Any, spreads: tuple[Deviation, ...], budget: int, wanted: Wanted
) -> tuple[Any | None, Any | None]:
    """The diagonals of (NNGP, NTK), each where it is wanted."""
    it = _start(it, [x], spreads)
    return in_halves(
        partial(_settle_diagonals, it, x, spreads, wanted), _pairs_at_once(it, budget), "samples"
    )


def _settle_diagonals(it: KernelProgram, x: Any, spreads: Any, wanted: Wanted, size: int) -> Any:
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


def _start(it: KernelProgram, samples: list[Any], spreads: tuple[Deviation, ...]) -> KernelProgram:
    """The program with the nodes that the size of the samples suggests."""
    return it.with_orders(
        first_orders(it, max(float((x**2).mean(axis=-1).max()) for x in samples), spreads)
    )


def _pairs_at_once(it: KernelProgram, budget: int) -> int:
    """How many pairs of samples a block may hold."""
    per_pair = 8 * it.entries_per_pair
    within = budget / (_ARRAYS_PER_PAIR * per_pair)
    cached = _CACHE / per_pair if jax.default_backend() == "cpu" else within
    return max(1, int(min(within, cached)))


def _even(n: int, size: int) -> list[slice]:
    """Blocks of at most that many samples, as equal as can be: fewer shapes to compile."""
    return list(blocks(n, -(-n // -(-n // size))))


def _sides(
    it: KernelProgram, x1: Any, x2: Any, spreads: Any, size: int
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


def _assemble(
    it: KernelProgram, x1: Any, x2: Any, spreads: Any, sides: Any, size: int, wanted: Wanted
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
                    kernels[index] = _place(
                        kernels[index], block, rows.start, other.start, symmetric, same
                    )
            jax.block_until_ready(kernels)  # one block at a time in memory
    return tuple(kernels), _worst(it, errors)  # pyright: ignore[reportReturnType]


def _worst(it: KernelProgram, errors: list[tuple[Any, ...]]) -> np.ndarray:
    """The largest error of each activation over the blocks."""
    none = np.zeros(len(it.activations))
    return np.max([none, *(np.asarray(e, np.float64) for e in errors)], axis=0)


def _places(it: KernelProgram) -> tuple[int, ...]:
    return shapes_through(it.layers, it.shape)[-1][:-1] if it.keeps_positions else ()


@partial(jax.jit, donate_argnums=0, static_argnums=(4, 5))
def _place(kernel: Any, block: Any, row: Any, column: Any, symmetric: bool, same: bool) -> Any:
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


def _finite(it: KernelProgram, x: Any, x2: Any, spreads: Any, kernels: Any) -> Any:
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


def trace_kernels(
    it: KernelProgram, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool
) -> tuple[Any, Any | None]:
    """(NNGP, NTK or `None`) in float64, as float32 where the caller's JAX has no float64. Call
    inside `arithmetic`.
    """
    it = _settle(it, *jax.lax.stop_gradient((x1, x2, weight_std, bias_std)))
    return in_float64(
        lambda *arguments: _one_block(it, *arguments, tangent=tangent), x1, x2, weight_std, bias_std
    )


def _one_block(
    it: KernelProgram, x1: Any, x2: Any, weight_std: Any, bias_std: Any, *, tangent: bool
) -> tuple[Any, Any]:
    spreads = deviations(it.layers, weight_std, bias_std)
    same = x2 is None
    x2 = x1 if same else x2
    errors, own = [], ((), ())
    if it.diagonal:
        *kernels, pair_errors = diagonal_pass(it, x1, spreads, tangent=tangent)
        return tuple(poison(kernel, pair_errors, it.quadrature.rtol) for kernel in kernels)  # pyright: ignore[reportReturnType]
    if it.asks:
        first = own_pass(it, x1, spreads)
        second = first if same else own_pass(it, x2, spreads)
        errors += [*first[1], *second[1]]
        own = (first[0], second[0])
    *kernels, pair_errors = pair_pass(it, x1, x2, spreads, own, same=same, tangent=tangent)
    kernels = [poison(kernel, (*errors, *pair_errors), it.quadrature.rtol) for kernel in kernels]
    return kernels[0], kernels[1]


def _settle(it: KernelProgram, x1: Any, x2: Any, weight_std: Any, bias_std: Any) -> KernelProgram:
    """The numbers of nodes from the values, where only derivatives are being traced."""
    if is_traced((x1, x2, weight_std, bias_std)):
        return it.with_orders((it.quadrature.blind,) * len(it.activations))
    spreads = deviations(it.layers, weight_std, bias_std)
    samples = [np.asarray(x, np.float64) for x in (x1, x2) if x is not None]
    it = it.with_orders(
        first_orders(it, max(float((x**2).mean(axis=-1).max()) for x in samples), spreads)
    )
    while it.asks:
        errors = np.max(
            [np.asarray(own_pass(it, x, spreads)[1], np.float64) for x in samples], axis=0
        )
        more = next_orders(it, errors)
        if more is None:
            break
        it = it.with_orders(more)
    return it


class InfiniteKernels(NamedTuple):
    """The covariance of the outputs over initialisations, and the tangent kernel."""

    nngp: Float[Any, "*shape"]
    ntk: Float[Any, "*shape"]

    def __repr__(self) -> str:
        return show_record(self)


class KernelOptions(TypedDict, total=False):
    """What every infinite-width kernel can be told, by keyword.

    - `weight_std`, `bias_std`: instead of the layers' own standard deviations (1 for an `MLP`); one
      number, or one per weight layer.
    - `scaling`: `"ntk"` or `"standard"`, instead of the network's own. In standard scaling
      derivatives are by parameters that carry their deviations, and each layer's weights count
      fan_in times. The NNGP is the same in both.
    - `quadrature`: an `nm.infinite.Quadrature`, for activations without closed form.
    - `diagonal`: only K(x, x) for each sample (and position, where the output has any): shape (n,
      *positions), in the time and memory of n pairs, and without covariances between different
      positions where no layer needs them.
    - `memory`: bytes, or a string such as "1G".
    """

    weight_std: Any
    bias_std: Any
    scaling: str | None
    quadrature: Quadrature | None
    diagonal: bool
    memory: int | str | None


def infinite_kernels(
    net: Model, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]
) -> InfiniteKernels:
    """Compute `nngp` and `infinite_ntk` in one pass: what ensembles of trained networks need.
    Options are `KernelOptions`.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> nngp, ntk = infinite_kernels(net, np.array([[1.0]]))
    >>> nngp.round(12).tolist(), ntk.round(12).tolist()
    ([[0.5]], [[1.0]])
    """
    return _infinite_kernels(Wanted(nngp=True, ntk=True), net, x1, x2, **options)


def infinite_ntk(
    net: Model, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]
) -> Float[Any, "*shape"]:
    """Return the tangent kernel of an infinitely wide network at initialisation, in float64.

    Layers are z = σ_w W a/√fan_in + σ_b b with standard normal W, b, and derivatives are with
    respect to W and b (the conventions of neural-tangents; it is the limit of `nm.ntk` for
    `scaling="ntk"`):

    Θ¹ = Σ¹,   Θ^{l+1} = Σ^{l+1} + σ_w² Θ^l ∘ E[σ'(u)σ'(v)],   (u, v) ~ N(0, Σ^l).

    `net` is an `nm.MLP` or an `nm.Sequential`. Shape (n1, n2), for one output; outputs are
    independent, so that the kernel of o outputs is this one ⊗ I_o. (A network whose output has
    positions gives (n1, *positions, n2, *positions).) `weight_std`, `bias_std`, `scaling`,
    `quadrature`, `diagonal`, `memory`: see `KernelOptions`. Widths play no part, unless
    `scaling="standard"`, which is the default of a `Sequential` that says so, never that of an
    `MLP`.

    Closed forms for relu, leaky_relu, abs, identity, sign, polynomials, erf, gelu, sin, cos, exp;
    any other activation by `Quadrature`. Blocked to `memory` bytes. Under `jit` and `grad` it can
    be differentiated by the samples and the standard deviations; there it is computed in one block,
    still in float64, and leaves as float32 while JAX's x64 flag is off.

    >>> net = nm.MLP((1, 1, 1), bias=False, scaling="ntk")
    >>> infinite_ntk(net, np.array([[1.0]])).round(12).tolist()     # Σ² + Σ¹ E[σ'σ'] = 1/2 + 1·1/2
    [[1.0]]
    >>> infinite_ntk(net, np.array([[1.0], [2.0]]), diagonal=True).round(12).tolist()
    [1.0, 4.0]
    """
    return _infinite_kernels(Wanted(nngp=False, ntk=True), net, x1, x2, **options).ntk


def nngp(
    net: Model, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]
) -> Float[Any, "*shape"]:
    """Return the covariance of the outputs of an infinitely wide network over its initialisations,
    in float64.

    Σ¹ = σ_w² ⟨x, x'⟩/n_0 + σ_b²,   Σ^{l+1} = σ_w² E[σ(u)σ(v)] + σ_b²,   (u, v) ~ N(0, Σ^l);   see
    `infinite_ntk`.

    >>> net = nm.MLP((1, 1, 1), bias=False, scaling="ntk")
    >>> nngp(net, np.array([[1.0]]), np.array([[1.0], [-1.0]])).round(12).tolist()
    [[0.5, 0.0]]
    """
    return _infinite_kernels(Wanted(nngp=True, ntk=False), net, x1, x2, **options).nngp


def _infinite_kernels(
    wanted: Wanted,
    net: Any,
    x1: Any,
    x2: Any,
    *,
    weight_std: Any = None,
    bias_std: Any = None,
    scaling: str | None = None,
    quadrature: Quadrature | None = None,
    diagonal: bool = False,
    memory: int | str | None = None,
) -> InfiniteKernels:
    it = replace(program(net, scaling, quadrature), diagonal=diagonal)
    x1 = _check_sample(it, x1, "x")
    x2 = None if x2 is None else _check_sample(it, x2, "x2")
    if diagonal and x2 is not None:
        raise ValueError(
            "`diagonal` is True, which pairs each sample with itself, and `x2` is given; leave "
            "one of them out."
        )
    budget = memory_budget(memory)
    with boundary(x1, x2) as leave:
        if is_traced((x1, x2, weight_std, bias_std)):
            return InfiniteKernels(
                *trace_kernels(it, x1, x2, weight_std, bias_std, tangent=wanted.ntk)
            )
        spreads = deviations(it.layers, weight_std, bias_std)
        x1, x2 = (None if x is None else jnp.asarray(x, jnp.float64) for x in (x1, x2))
        if diagonal:
            return InfiniteKernels(*leave(compute_diagonals(it, x1, spreads, budget, wanted)))
        return InfiniteKernels(*leave(compute_kernels(it, x1, x2, spreads, budget, wanted)))


def _check_sample(it: KernelProgram, x: Any, name: str) -> Any:
    x = check_sample(x, name)
    if np.shape(x)[1:] != it.shape:
        raise ValueError(
            f"`{name}` has shape {np.shape(x)}; the network takes (n, "
            f"{', '.join(map(str, it.shape))})."
        )
    return x
