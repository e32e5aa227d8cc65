"""The tangent kernel by layer, and the paper's statements about it, both sides each.
[bottleneck, Sec. 4]
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold.bottleneck.balance import balance_defect
from neuromanifold.bottleneck.frames import frames_everywhere
from neuromanifold.bottleneck.passage import Passage, passage, require_contraction
from neuromanifold.graph.graph import trace
from neuromanifold.models.arguments import Samples
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.regions.patterns import require_piecewise_linear


@follows
def ntk_trace_by_layer(
    net: MLP, params: Params, x: Samples, *, bias: bool | None = None
) -> Float[np.ndarray, "n L"]:
    """Return what each layer contributes to Tr Θ(x, x): (‖α_{l-1}(x)‖² + [bias])
    ‖J(α̃_l → f)(x)‖²_F.   [bottleneck, Thm 7]

    With the bias terms (the default for a network with biases) a row sums to the trace of the
    tangent kernel; without them (`bias=False`) to the sum that the paper's proofs use, which is
    smaller.

    >>> from neuromanifold.bottleneck import ntk_trace_by_layer
    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> params = (nm.Layer(np.array([[2.0]])), nm.Layer(np.array([[3.0]])))
    >>> ntk_trace_by_layer(net, params, np.array([[1.0]])).tolist()     # f = w₂w₁x: w₂² and w₁²
    [[9.0, 4.0]]
    """
    through = passage(net, params, x)
    return trace_by_layer(through, net.weight_scales, net.bias if bias is None else bias)


def trace_by_layer(
    through: Passage, scales: tuple[float, ...], bias: bool
) -> Float[np.ndarray, "n L"]:
    """The terms of the trace for a passage; `scales` are those of the weights (1/√fan_in in NTK
    scaling).
    """
    inputs = [
        np.sum((scale * a) ** 2, axis=1)
        for a, scale in zip(through.activations, scales, strict=True)
    ]
    slopes = [np.sum(B**2, axis=(1, 2)) for B in through.backward_jacobians()]
    return np.stack([(a + bias) * b for a, b in zip(inputs, slopes, strict=True)], axis=1)


@dataclass(frozen=True, repr=False)
class Sides(Result):
    """Two sides of an inequality at each point, `left ≤ right`, and whether its hypotheses hold
    there.
    """

    left: Float[Array, " n"]
    right: Float[Array, " n"]
    hypotheses: dict[str, bool]

    @property
    def holds(self) -> bool:
        """Whether left ≤ right everywhere, up to a relative error of 1e-12."""
        return bool(np.all(self.left <= self.right * (1 + 1e-12)))


@follows
def activation_bound(
    net: MLP, params: Params, x: Samples, *, rank: int | None = None, atol: float = 1e-8
) -> Sides:
    """Return both sides of  Σ_l ‖α_{l-1}(x)‖² ≤ Tr Θ(x, x) · max{1, e^{c₁/k}} /
    (k |Jf(x)|₊^{2/k}) for balanced parameters.   [bottleneck, Thm 7]

    c₁ = ‖θ‖² − kL, and Tr Θ is taken without bias terms, which makes the right side smaller than
    the paper's. For `rank` below the rank of Jf(x) the pseudo-determinant is the product of the k
    largest singular values; the proof covers it. Balanced means Σ_j W_{l,ij}² + b_{l,i}² = Σ_j
    W_{l+1,ji}²: to `atol`, relative to ‖θ‖²/L.

    >>> from neuromanifold.bottleneck import activation_bound
    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> balanced = (nm.Layer(np.array([[2.0]])), nm.Layer(np.array([[2.0]])))
    >>> sides = activation_bound(net, balanced, np.array([[1.0]]))
    >>> sides.left.item(), sides.right.item() / np.exp(6).item()         # 1 + 4 ≤ (4 + 4)·e⁶/4²
    (5.0, 0.5)
    """
    through = passage(net, params, x)
    require_contraction(through)
    traces = trace_by_layer(through, (1.0,) * through.depth, False).sum(axis=1)
    left = np.sum([np.sum(a**2, axis=1) for a in through.activations], axis=0)
    frames = frames_everywhere(through, rank)
    flat = [i for i, frame in enumerate(frames) if frame.rank == 0]
    if flat:
        raise ValueError(
            f"`x` has samples where the network's Jacobian is zero ({flat}); the theorem needs "
            "rank one or more, so leave them out."
        )
    right = traces * np.array(
        [_growth(f.c1, f.rank) * math.exp(-2 * f.log_determinant / f.rank) / f.rank for f in frames]
    )
    return Sides(left, right, {"balanced": balance_defect(net, params) <= atol})


def _growth(c1: float, k: int) -> float:
    return max(1.0, math.exp(min(c1 / k, 700.0)))


@dataclass(frozen=True, repr=False)
class PlanarityBound(Result):
    """The (k+1)-th singular value of α̃_l(X)/√N in every layer, and what Corollary 8 allows.

    The corollary: for every p in (0, 1), at least (1 − p)L layers stay below `bound(p)`. Sorted
    from the largest, the m-th value must then not exceed bound(m/L), for m = 1 … L, and conversely:
    that is all fractions p at once.
    """

    values: Float[Array, " L"]
    budget: float
    activation: float
    hypotheses: dict[str, bool]

    def bound(self, p: float) -> float:
        """√(c₁ − 2 log|Jf|₊) · (√A + √p) / (p√L)."""
        L = len(self.values)
        return (
            math.sqrt(self.budget)
            * (math.sqrt(self.activation) + math.sqrt(p))
            / (p * math.sqrt(L))
        )

    @property
    def ratios(self) -> Float[np.ndarray, " L"]:
        """The m-th largest value over bound(m/L)."""
        L = len(self.values)
        return np.sort(self.values)[::-1] / np.array([self.bound(m / L) for m in range(1, L + 1)])

    @property
    def holds(self) -> bool:
        """Whether the statement holds for every p."""
        return bool(np.all(self.ratios <= 1 + 1e-12))


@follows
def planarity_bound(
    net: MLP, params: Params, x: Samples, *, rank: int, averaged: bool = True, atol: float = 1e-8
) -> PlanarityBound:
    """Return both sides of Corollary 8 on a sample.   [bottleneck, Cor 8]

    A = (1/N) Σ_i c·max{1, e^{c₁/k}} / (k|Jf(x_i)|₊^{2/k}) with c = (1/N) Tr Θ(X, X)/L as printed
    (`averaged=True`), or with the trace of each point in its own term, which is what Theorem 7
    gives. The budget is the smallest over the sample.

    >>> from neuromanifold.bottleneck import planarity_bound
    >>> net = nm.MLP((2, 2, 2), bias=False)
    >>> params = (nm.Layer(np.eye(2)), nm.Layer(np.eye(2)))
    >>> planarity_bound(net, params, np.eye(2) + 1.0, rank=2).values.tolist()    # there is no third singular value
    [0.0, 0.0]
    """
    through = passage(net, params, x)
    require_contraction(through)
    n, k, L = len(through.activations[0]), rank, through.depth
    frames = frames_everywhere(through, k)
    inverse = np.array([math.exp(-2 * f.log_determinant / k) / k for f in frames])
    traces = trace_by_layer(through, (1.0,) * L, False).sum(axis=1) / L
    mean = traces.mean() * inverse.mean() if averaged else (traces * inverse).mean()
    spectra = [np.linalg.svd(z, compute_uv=False) / math.sqrt(n) for z in through.preactivations]
    return PlanarityBound(
        values=np.array([s[k] if len(s) > k else 0.0 for s in spectra]),
        budget=max(0.0, min(f.budget for f in frames)),
        activation=float(mean) * _growth(frames[0].c1, k),
        hypotheses={"balanced": balance_defect(net, params) <= atol},
    )


@dataclass(frozen=True, repr=False)
class KernelCurvature(Result):
    """‖∂²_{xy}Θ(x, x)‖_op at each point against c·‖Jf(x)‖^{2−2/L}_op, with the constant c
    printed (2L) and proved (L).
    """

    value: Float[Array, " n"]
    jacobian_power: Float[Array, " n"]
    depth: int

    @property
    def proved(self) -> Float[np.ndarray, " n"]:
        """L‖Jf(x)‖^{2−2/L}: what the proof gives, and it is attained."""
        return self.depth * self.jacobian_power

    @property
    def printed(self) -> Float[np.ndarray, " n"]:
        """2L‖Jf(x)‖^{2−2/L}: false, already for f(x) = x at every depth."""
        return 2 * self.depth * self.jacobian_power

    @property
    def constant(self) -> float:
        """The largest c for which value ≥ c·L‖Jf‖^{2−2/L} at every point: at least 1, and 2 if
        the printed one were true.
        """
        return float(np.min(self.value / self.proved))


@follows
def kernel_curvature(net: MLP, params: Params, x: Samples) -> KernelCurvature:
    """Return the mixed second derivative of the tangent kernel of a piecewise-linear network on the
    diagonal.   [bottleneck, P 9]

    ∂²_{xy}Θ(x, x) = Σ_l Jα_{l-1}(x)ᵀJα_{l-1}(x) ⊗ J(α̃_l → f)(x)J(α̃_l → f)(x)ᵀ, a matrix of order
    d_in·d_out. For ReLU its operator norm is at least L‖Jf(x)‖^{2−2/L}; the printed 2L is false,
    smallest counterexample f(x) = x with L = 1. For leaky ReLU, which the paper's setup admits, L
    is false too: the proof uses D² = D, and f(x) = ax, x < 0, in the layers (1, 1, 1) with weights
    1 and slope a has 2a² on the left and 2a on the right.

    >>> from neuromanifold.bottleneck import kernel_curvature
    >>> found = kernel_curvature(nm.MLP((1, 1), bias=False), (nm.Layer(np.ones((1, 1))),), np.ones((1, 1)))
    >>> found.value.tolist(), found.proved.tolist(), found.printed.tolist()
    ([1.0], [1.0], [2.0])
    """
    require_piecewise_linear(trace(net, params, x))
    through = passage(net, params, x)
    d, o, n = through.weights[0].shape[1], through.weights[-1].shape[0], len(through.activations[0])
    total = np.zeros((n, d * o, d * o))
    for A, B, scale in zip(
        through.forward_jacobians(), through.backward_jacobians(), net.weight_scales, strict=False
    ):
        G, H = scale**2 * A.transpose(0, 2, 1) @ A, B @ B.transpose(0, 2, 1)
        total += np.einsum("nij,nab->niajb", G, H).reshape(n, d * o, d * o)
    norms = np.linalg.norm(through.jacobian(), ord=2, axis=(1, 2))
    value = np.linalg.eigvalsh(total)[:, -1]
    return KernelCurvature(value, norms ** (2 - 2 / through.depth), through.depth)


@dataclass(frozen=True, repr=False)
class SegmentBound(Result):
    """The larger of ‖Θ(x,x)‖_op and ‖Θ(y,y)‖_op against (L/4)‖x−y‖²‖Jf(x)u‖^{2−2/L}, u =
    (y−x)/‖y−x‖; `one_region` is the hypothesis.
    """

    value: float
    bound: float
    one_region: bool


@follows
def segment_bound(net: MLP, params: Params, x: Samples) -> SegmentBound:
    """The kernel at one of two ends of a segment without a kink is large when f is steep along it.
    [bottleneck, P 9]

    g(t) = vᵀΘ(γ(t), γ(t))v is a nonnegative parabola with g″ ≥ 2L‖x−y‖²‖Jf(x)u‖^{2−2/L}, so the
    larger end is at least g″/8. `x` holds the two ends. Like the statement at a point, it is one
    about ReLU.

    >>> from neuromanifold.bottleneck import segment_bound
    >>> found = segment_bound(nm.MLP((1, 1), bias=False), (nm.Layer(np.ones((1, 1))),), np.array([[-0.5], [0.5]]))
    >>> found.value, found.bound                                # Θ(x, x) = x²: attained
    (0.25, 0.25)
    """
    require_piecewise_linear(trace(net, params, x))
    through = passage(net, params, x)
    points = through.activations[0]
    if len(points) != 2 or not np.any(points[0] != points[1]):
        raise ValueError(f"`x` has shape {points.shape}; pass the two different ends of a segment.")
    signs = [(z[0] > 0) == (z[1] > 0) for z in through.preactivations[:-1]]
    step = points[1] - points[0]
    length = float(np.linalg.norm(step))
    slope = float(np.linalg.norm(through.jacobian()[0] @ step)) / length
    kernels = np.zeros((2, through.weights[-1].shape[0], through.weights[-1].shape[0]))
    for a, B, scale in zip(
        through.activations, through.backward_jacobians(), net.weight_scales, strict=True
    ):
        factor = np.sum((scale * a) ** 2, axis=1) + net.bias
        kernels += factor[:, None, None] * (B @ B.transpose(0, 2, 1))
    value = float(np.linalg.eigvalsh(kernels)[:, -1].max())
    L = through.depth
    return SegmentBound(
        value, L / 4 * length**2 * slope ** (2 - 2 / L), all(bool(s.all()) for s in signs)
    )
