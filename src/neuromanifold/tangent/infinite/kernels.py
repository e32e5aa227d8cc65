"""Kernels of infinitely wide networks: the covariance of their outputs (NNGP) and their tangent
kernel.
"""

from dataclasses import replace
from typing import Any, NamedTuple, TypedDict, Unpack

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.arguments import Samples
from neuromanifold.numerics.precision import boundary, is_traced
from neuromanifold.numerics.results import named
from neuromanifold.numerics.validation import check_sample
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.tangent.infinite.blocked import Wanted, blocked_diagonals, blocked_kernels
from neuromanifold.tangent.infinite.deviations import deviations
from neuromanifold.tangent.infinite.program import Program, program
from neuromanifold.tangent.infinite.quadrature import Quadrature
from neuromanifold.tangent.infinite.traced import traced_kernels


class InfiniteKernels(NamedTuple):
    """The covariance of the outputs over initialisations, and the tangent kernel."""

    nngp: Any
    ntk: Any

    def __repr__(self) -> str:
        return named(self)


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
    net: Any, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]
) -> InfiniteKernels:
    """`nngp` and `infinite_ntk` in one pass: what ensembles of trained networks need. Options are
    `KernelOptions`.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> nngp, ntk = infinite_kernels(net, np.array([[1.0]]))
    >>> nngp.round(12).tolist(), ntk.round(12).tolist()
    ([[0.5]], [[1.0]])
    """
    return _infinite_kernels(Wanted(nngp=True, ntk=True), net, x1, x2, **options)


def infinite_ntk(
    net: Any, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]
) -> Any:
    """The tangent kernel of an infinitely wide network at initialisation, in float64.

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


def nngp(net: Any, x1: Samples, x2: Samples | None = None, **options: Unpack[KernelOptions]) -> Any:
    """The covariance of the outputs of an infinitely wide network over its initialisations, in
    float64.

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
    x1 = _checked_sample(it, x1, "x")
    x2 = None if x2 is None else _checked_sample(it, x2, "x2")
    if diagonal and x2 is not None:
        raise ValueError(
            "`diagonal` is True, which pairs each sample with itself, and `x2` is given; leave "
            "one of them out."
        )
    budget = memory_budget(memory)
    with boundary(x1, x2) as leave:
        if is_traced((x1, x2, weight_std, bias_std)):
            return InfiniteKernels(
                *traced_kernels(it, x1, x2, weight_std, bias_std, tangent=wanted.ntk)
            )
        spreads = deviations(it.layers, weight_std, bias_std)
        x1, x2 = (None if x is None else jnp.asarray(x, jnp.float64) for x in (x1, x2))
        if diagonal:
            return InfiniteKernels(*leave(blocked_diagonals(it, x1, spreads, budget, wanted)))
        return InfiniteKernels(*leave(blocked_kernels(it, x1, x2, spreads, budget, wanted)))


def _checked_sample(it: Program, x: Any, name: str) -> Any:
    x = check_sample(x, name)
    if np.shape(x)[1:] != it.shape:
        raise ValueError(
            f"`{name}` has shape {np.shape(x)}; the network takes (n, "
            f"{', '.join(map(str, it.shape))})."
        )
    return x
