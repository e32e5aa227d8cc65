"""`bottleneck`, layer by layer: Theorem 6, the trace of the kernel, Theorem 7 and Corollary 8.
[bottleneck, Sec. 4]
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from neuromanifold.bottleneck import activation_bound, balance, ntk_trace_by_layer, planarity_bound
from neuromanifold.bottleneck.balance import balance_defect
from neuromanifold.bottleneck.frames import Frames, appendix_factors, frames_everywhere
from neuromanifold.bottleneck.kernel import PlanarityBound
from neuromanifold.bottleneck.passage import passage
from neuromanifold.models.mlp import MLP
from neuromanifold_papers.bottleneck.statements.cases import (
    EPS,
    SMALL,
    Case,
    activation,
    compare,
    lattice,
    nearly_isometric,
    network,
    open_region,
    parameter_gradients,
    random_networks,
    worst,
)
from neuromanifold_papers.bottleneck.statements.first import kept
from neuromanifold_papers.bottleneck.statements.ranks import integer_networks
from neuromanifold_papers.check import Check, Drops, inside, outside

# Beyond this condition of Jf(x) on its rank, rounding decides the rank and the determinant.
_ILL = 1e8


def budget(frames: Frames) -> float:
    """c₁ − 2 log|Jf(x)|₊ with c₁ = ‖θ‖² − kL."""
    return frames.squared_norm - frames.rank * len(frames.residuals) - 2 * frames.log_determinant


def _frames(case: Case) -> list[Frames]:
    return frames_everywhere(passage(case.net, case.params, case.x), None)


Budget = Callable[[Frames], float]


def measure_closest(case: Case, allowed: Budget = budget) -> Check:
    """Σ ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² with the closest partial isometry of rank k in every
    layer, at each point.
    """
    found = _frames(case)
    return worst(
        (
            compare(float(f.closest.sum() + f.bias_norms.sum()), "<=", allowed(f), f.rounding)
            for f in found
        ),
        case.hypotheses | {"rank": max(f.rank for f in found)},
    )


def several_layers(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Two large equal layers, which nearly attain the bound; chains of one neuron with weights
    −1, 0, 1; random networks.
    """
    yield network([[[64.0]], [[64.0]]], [[1.0]], kind="nearly attained")
    yield from lattice(((1, 1, 1), (1, 1, 1, 1)))
    yield from random_networks(rng, 3 * draws)


def layer_share(total: float, m: int) -> float:
    """What the m-th largest of nonnegative numbers with that sum cannot exceed; with m = pL the
    statement's 1/(pL).
    """
    return total / m


Share = Callable[[float, int], float]


def measure_layer_count(case: Case, share: Share = layer_share) -> Check:
    """For every p: at most pL layers lie above budget/(pL); equivalently the m-th largest is at
    most budget/m.
    """
    checks = []
    for f in _frames(case):
        sizes = np.sort(f.closest + f.bias_norms)[::-1]
        allowed = [share(max(0.0, budget(f)), m) for m in range(1, len(sizes) + 1)]
        checks += [
            compare(float(size), "<=", a, f.rounding)
            for size, a in zip(sizes, allowed, strict=True)
        ]
    return worst(checks, case.hypotheses)


def one_neuron_wide(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Networks (1, w, 1), where the best shared V_1 is known in closed form, for slopes over
    (−1, 1).
    """
    units = ((0.8, 0.6), (0.8, -0.6), (1.0, 0.0), (0.6, 0.8))
    for slope, u, v in itertools.product((0.0, 0.5, -0.5, 0.9, -0.9), units, units):
        yield network([np.array(u)[:, None], np.array(v)[None]], [[1.0], [-1.0]], slope=slope)
    for _ in range(4 * draws):
        w = int(rng.integers(1, 6))
        slope = float(rng.uniform(-1, 1))
        weights = [rng.normal(size=(w, 1)) / math.sqrt(w), rng.normal(size=(1, w)) / math.sqrt(w)]
        yield network(weights, [[1.0], [-1.0]], slope=slope, kind="gaussian")


def shared_residual(case: Case) -> float:
    """min ‖W_1 − V_1V_0ᵀ‖² + ‖W_2 − V_2V_1ᵀ‖² over unit V_0, V_1, V_2: ‖θ‖² + 2 − 2 max‖W_1 ±
    W_2ᵀ‖.
    """
    first, last = (np.asarray(p.weight).ravel() for p in case.params)
    return (
        case.squared_norm
        + 2
        - 2 * max(float(np.linalg.norm(first + sign * last)) for sign in (1, -1))
    )


def measure_shared(case: Case, allowed: Budget = budget) -> Check:
    """The best frames with one V_l a layer, at points where Jf(x) ≠ 0."""
    found = _frames(case)
    frames = [f for f in found if f.rank == 1]
    left, drops = shared_residual(case), _without_rank(len(found) - len(frames))
    return worst(
        (compare(left, "<=", allowed(f), f.rounding) for f in frames), case.hypotheses, drops
    )


def _without_rank(points: int) -> Drops:
    """Where Jf(x) = 0 there is nothing to carry: k = 0, and U_l, V_l are empty."""
    return inside("Jf(x) = 0, where U_l and V_l are empty", parts=points)


def confirm_shared(case: Case) -> Check:
    """V_1 along a hundred thousand directions, against a budget in fractions: −2 log J ≤ 2(1 −
    J)/J.
    """
    first, last = (np.asarray(p.weight).ravel() for p in case.params)
    angles = np.linspace(0, 2 * np.pi, 100_001)
    frame = np.stack([np.cos(angles), np.sin(angles)])
    left = case.squared_norm + 2 - 2 * float(np.max(np.abs(first @ frame) + np.abs(last @ frame)))
    exact = [[Fraction(float(w)).limit_denominator(1000) for w in part] for part in (first, last)]
    slope = Fraction(case.slope).limit_denominator(1000)
    norm = sum(w * w for part in exact for w in part)
    budgets = []
    for point in (1, -1):
        slopes = [Fraction(1) if w * point > 0 else slope for w in exact[0]]
        J = abs(sum(v * d * w for v, d, w in zip(exact[1], slopes, exact[0], strict=True)))
        budgets.append(norm - 2 + 2 * (1 - J) / J if J else Fraction(10**6))
    return Check(left, min(budgets), "<=", 1e-6)


def nonnegative_slopes(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Every small network and random ones with slopes in [0, 1]."""
    yield from lattice(((1, 1), (1, 1, 1), (1, 2, 1)), (0.0, 0.5, 1.0))
    yield from random_networks(rng, 2 * draws, slopes=(0.0, 0.25, 0.9, 1.0))


def measure_carried(case: Case, allowed: Budget = budget) -> Check:
    """The library's frames, carried forward from the row space of Jf(x), one V_l a layer."""
    found = _frames(case)
    assert all(f.shared for f in found)
    return worst((compare(f.spent, "<=", allowed(f), f.rounding) for f in found), case.hypotheses)


def measure_appendix(case: Case, allowed: Budget = budget) -> Check:
    """Σ ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² with the factors of the SVD of the doubly projected W_l."""
    checks, found = [], _frames(case)
    for point, f in zip(case.x, found, strict=True):
        if f.rank:
            factors = appendix_factors(case.net, case.params, point[None])
            spent = sum(
                float(np.sum((p.weight - U @ V.T) ** 2))
                for p, (U, V) in zip(case.params, factors, strict=True)
            )
            checks.append(compare(spent + float(f.bias_norms.sum()), "<=", allowed(f), f.rounding))
    return worst(checks, case.hypotheses, _without_rank(len(found) - len(checks)))


def appendix_cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Layers (1, 2, 1) of unit norm, then random networks."""
    units = ((1.0, 0.0), (0.8, 0.6), (0.6, 0.8))
    for u, v in itertools.product(units, repeat=2):
        yield network([np.array(u)[:, None], np.array(v)[None]], [[1.0]])
    yield from random_networks(rng, draws, slopes=(0.0, 0.5))


def confirm_appendix(case: Case) -> Check:
    """(1, 2, 1) in fractions: the factors are W_2/|W_2| and W_1/|W_1|, and −2 log J ≤ 2(1 −
    J)/J.
    """
    u, v = (
        [Fraction(float(w)).limit_denominator(1000) for w in np.asarray(p.weight).ravel()]
        for p in case.params
    )
    inner = sum(a * b for a, b in zip(u, v, strict=True))
    spent = 2 * (sum(a * a for a in u) + 1 - 2 * inner)
    return Check(spent, 2 * (1 - inner) / inner, "<=")


def traced(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Networks with integer parameters and dyadic slopes: every small one, then all shapes of
    widths 1 to 3 with biases.
    """
    yield from lattice(
        values=(1.0, -1.0, 2.0), shapes=((1, 1), (1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2))
    )
    yield from (replace(case, x=case.x + 0.25) for case in integer_networks(rng, draws))


def trace_formula(case: Case, bias: bool) -> np.ndarray:
    """Σ_l (‖α_{l-1}(x)‖² + [bias]) ‖J(α̃_l → f)(x)‖²_F, by the library."""
    return ntk_trace_by_layer(case.net, case.params, case.x, bias=bias).sum(axis=1)


def measure_trace(
    case: Case,
    *,
    bias: bool | None = None,
    formula: Callable[[Case, bool], np.ndarray] = trace_formula,
) -> Check:
    """Against Tr Θ(x, x) = Σ ‖∂f/∂θ_i‖² with the derivatives by moving one parameter at a time:
    exact in dyadic numbers.
    """
    if not open_region(case):
        return Check(
            0,
            0,
            hypotheses=case.hypotheses,
            drops=outside("a pre-activation is exactly zero: no derivative"),
        )
    exact = np.sum(parameter_gradients(case) ** 2, axis=(1, 2))
    found = formula(case, case.net.bias if bias is None else bias)
    at = int(np.argmax(np.abs(exact - found)))
    return Check(
        float(found[at]), float(exact[at]), hypotheses=case.hypotheses, comparisons=len(exact)
    )


def confirm_trace(case: Case) -> Check:
    """The trace of `nm.ntk`, structured derivatives on the device."""
    from neuromanifold.tangent.kernel.ntk import ntk

    kernel = np.diag(np.asarray(ntk(case.net, case.params, case.x, trace=True)))
    found = trace_formula(case, False)
    at = int(np.argmax(np.abs(kernel - found)))
    return Check(float(found[at]), float(kernel[at]), tolerance=1e-9 * float(kernel[at]))


def biased_traces(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """One layer, three with a kink in the second, then integer networks with biases."""
    yield network([[[1.0]]], [[1.0]], biases=[[0.0]])
    yield network([[[1.0]]] * 3, [[1.0]], biases=[[0.0], [-1.0], [0.0]])
    yield from integer_networks(rng, 0)


def balanced_chains(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Balanced parameters: chains of every sign, random networks after balancing."""
    for weight, depth, slope in itertools.product(
        (1.0, -1.0, 0.5, 2.0), (1, 2, 3, 6), (0.0, 0.5, -0.5, 1.0)
    ):
        yield network([[[weight]]] * depth, [[1.0], [-1.0]], slope=slope, kind="chain")
    yield from random_networks(rng, draws, balanced=True)


def balanced_networks(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """The chains, the small lattice where it is balanced, random networks after balancing."""
    yield from balanced_lattice(SMALL)
    yield from balanced_chains(rng, draws)


def balanced_lattice(shapes: Iterable[tuple[int, ...]]) -> Iterator[Case]:
    """The networks with weights −1, 0, 1 that are balanced, but for zero."""
    found = lattice(shapes)
    return (
        case
        for case in found
        if balance_defect(case.net, case.params) == 0.0 and case.squared_norm > 0
    )


def _conditions(case: Case) -> tuple[list[int], list[float]]:
    """The rank k of Jf(x) at each point and its condition on its rank; infinite where Jf(x) = 0."""
    spectra = [
        kept(J) if J.any() else np.zeros(0)
        for J in passage(case.net, case.params, case.x).jacobian()
    ]
    return [len(s) for s in spectra], [float(s[0] / s[-1]) if len(s) else math.inf for s in spectra]


_ILL_POSED = "the condition of Jf(x) is above 10⁸, where rounding decides its rank"


def measure_activations(case: Case, *, layers: bool = False, share: Share = layer_share) -> Check:
    """Both sides of Theorem 7 with c = Tr Θ(x, x)/L and c₁ = ‖θ‖² − kL; `layers` checks every
    fraction p of its second half.
    """
    ranks, conditions = _conditions(case)
    good = [condition < _ILL for condition in conditions]
    drops = outside("Jf(x) = 0, where the bound divides by k", parts=ranks.count(0))
    drops += inside(
        _ILL_POSED, parts=sum(c >= _ILL and k > 0 for k, c in zip(ranks, conditions, strict=True))
    )
    if not any(good):
        return worst((), case.hypotheses, drops)
    found, condition = replace(case, x=case.x[good]), max(c for c in conditions if c < _ILL)
    sides = activation_bound(found.net, found.params, found.x)
    left, right = sides.left, np.minimum(sides.right, 1e300)
    rounding = 64 * EPS * case.net.depth * (1 + case.squared_norm) * condition
    if not layers:
        at = int(np.argmax(left / right))
        return Check(
            float(left[at] / right[at]),
            1.0,
            "<=",
            rounding,
            case.hypotheses,
            drops,
            comparisons=len(left),
        )
    through = passage(found.net, found.params, found.x)
    sizes = -np.sort(-np.stack([np.sum(a**2, axis=1) for a in through.activations]), axis=0)
    allowed = np.array([[share(r, m) for r in right] for m in range(1, len(sizes) + 1)])
    ratio = float(np.max(sizes / allowed))
    return Check(ratio, 1.0, "<=", rounding, case.hypotheses, drops, comparisons=sizes.size)


def far_point(n: int, eta_squared: Fraction, size: float) -> Case:
    """N − 1 points at (size, 0) and one at (0, size·√N/η) through f(x) = σ(x₁) + η²σ(x₂),
    balanced.
    """
    eta = math.sqrt(eta_squared)
    x = np.array([[size, -1e-3]] * (n - 1) + [[-1e-3, size * math.sqrt(n) / eta]])
    return network([np.diag([1.0, eta]), [[1.0, eta]]], x, kind="one far point")


def planar_cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Balanced networks that pass k neurons, samples with every Jf(x_i) of rank k; with one far
    point; with weights −1, 0, 1.
    """
    for index in range(draws):
        k, slope = 1 + index % 2, float(rng.choice((0.0, 0.5, -0.5, 1.0)))
        widths = [int(w) for w in rng.integers(3, 6, size=int(rng.integers(4, 9)))]
        widths[len(widths) // 2] = k
        bias = bool(index % 3)
        net = MLP(tuple(widths), activation(slope), bias=bias)
        params = balance(net, nearly_isometric(rng, widths, k, 10.0 ** rng.uniform(-3, -0.3), bias))
        yield Case(net, params, np.abs(rng.normal(size=(8, widths[0]))), slope, "nearly isometric")
    for n in (16, 64, 256, 400, 1024):
        yield far_point(n, Fraction(1, math.isqrt(n)), 100.0)
    yield from balanced_lattice(((1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2)))


def measure_planarity(
    case: Case, *, averaged: bool, bound: Callable[..., PlanarityBound] = planarity_bound
) -> Check:
    """The m-th largest s_{k+1}(α̃_l(X)/√N) against the bound at p = m/L for every m: all
    fractions p at once.
    """
    ranks, conditions = _conditions(case)
    k = int(np.bincount(ranks).argmax())
    good = [
        rank == k and condition < _ILL for rank, condition in zip(ranks, conditions, strict=True)
    ]
    hypotheses = case.hypotheses | {"k": k}
    drops = outside(
        "Jf(x) = 0, where the bound divides by k" if k == 0 else "rank Jf(x_i) ≠ k",
        parts=_other(ranks, k),
    )
    drops += inside(
        _ILL_POSED, parts=sum(r == k > 0 and not g for r, g in zip(ranks, good, strict=True))
    )
    if not any(good):
        return worst((), hypotheses, drops)
    found = bound(case.net, case.params, case.x[good], rank=k, averaged=averaged)
    assert found.hypotheses["balanced"]
    size = max(
        float(np.abs(z).max()) for z in passage(case.net, case.params, case.x).preactivations
    )
    rounding = 64 * EPS * case.net.depth * (1 + size) * (1 + case.squared_norm)
    values = np.sort(found.values)[::-1]
    return worst(
        (
            compare(float(v), "<=", found.bound(m / len(values)), rounding)
            for m, v in enumerate(values, start=1)
        ),
        hypotheses,
        drops,
    )


def _other(ranks: list[int], k: int) -> int:
    """How many points have another rank; all of them where k = 0."""
    return len(ranks) if k == 0 else len(ranks) - ranks.count(k)


def confirm_planarity(case: Case) -> Check:
    """By hand: Gram matrix of α̃_1(X) diagonal, s_2² = η²R²/N; bound² at p = ½ is 2·2η²·(√A +
    √½)² with e^{2η²} from above.
    """
    n, (_, eta) = len(case.x), np.asarray(case.params[1].weight).ravel()
    square = Fraction(eta**2).limit_denominator(10**6)
    near, far = float(case.x[0, 0]) ** 2, float(case.x[-1, 1]) ** 2 * float(square)
    second = min(near * (n - 1), far) / n
    c = near * (n - 1) / n + far / n
    inverse = Fraction(n - 1, n) + 1 / (square**2 * n)
    growth = float(sum((2 * square) ** j / math.factorial(j) for j in range(12))) + 1e-9
    A = c * growth * float(inverse)
    return Check(
        second, 4 * float(square) * (math.sqrt(A) + math.sqrt(0.5)) ** 2, "<=", 1e-6 * second
    )
