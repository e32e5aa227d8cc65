"""`bottleneck`, layer by layer: Theorem 6, the trace of the kernel, Theorem 7 and Corollary 8.
[bottleneck, Sec. 4]
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold.bottleneck import activation_bound, balance, ntk_trace_by_layer, planarity_bound
from neuromanifold.bottleneck.balance import balance_defect
from neuromanifold.bottleneck.frames import Frames, appendix_factors, frames_everywhere
from neuromanifold.bottleneck.kernel import PlanarityBound
from neuromanifold.bottleneck.passage import passage
from neuromanifold.models.mlp import MLP, Params
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, compare, network, worst
from neuromanifold_papers.bottleneck.statements.first import doubled, kept, networks
from neuromanifold_papers.bottleneck.statements.ranks import integer_networks
from neuromanifold_papers.check import Check, Drops, at_most, equal, inside, outside
from neuromanifold_papers.statement import control, statement

# Beyond this condition of Jf(x) on its rank, rounding decides the rank and the determinant.
_ILL = 1e8


def budget(frames: Frames) -> float:
    """c₁ − 2 log|Jf(x)|₊ with c₁ = ‖θ‖² − kL."""
    return frames.squared_norm - frames.rank * len(frames.residuals) - 2 * frames.log_determinant


def _frames(case: Case) -> list[Frames]:
    return frames_everywhere(passage(case.net, case.params, case.x), None)


Budget = Callable[[Frames], float]


def several_layers(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Two large equal layers, which nearly attain the bound; chains of one neuron with weights
    −1, 0, 1; random networks.
    """
    yield network([[[64.0]], [[64.0]]], [[1.0]], kind="nearly attained")
    yield from cases.lattice(((1, 1, 1), (1, 1, 1, 1)))
    yield from cases.random_networks(rng, 3 * draws)


def layer_share(total: float, m: int) -> float:
    """What the m-th largest of nonnegative numbers with that sum cannot exceed; with m = pL the
    statement's 1/(pL).
    """
    return total / m


Share = Callable[[float, int], float]


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
    most = max(float(np.linalg.norm(first + sign * last)) for sign in (1, -1))
    return case.squared_norm + 2 - 2 * most


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
    exact = [_rational(part) for part in (first, last)]
    slope = Fraction(case.slope).limit_denominator(1000)
    norm = sum(w * w for part in exact for w in part)
    budgets = []
    for point in (1, -1):
        slopes = [Fraction(1) if w * point > 0 else slope for w in exact[0]]
        J = abs(sum(v * d * w for v, d, w in zip(exact[1], slopes, exact[0], strict=True)))
        budgets.append(norm - 2 + 2 * (1 - J) / J if J else Fraction(10**6))
    return at_most(left, min(budgets), 1e-6)


def _rational(entries: np.ndarray) -> list[Fraction]:
    return [Fraction(float(w)).limit_denominator(1000) for w in np.ravel(entries)]


def nonnegative_slopes(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Chains that shrink and grow, every small network and random ones with slopes in [0, 1]."""
    yield cases.chain(0.5, 2, 1.0)
    yield doubled
    yield from cases.lattice(((1, 1), (1, 1, 1), (1, 2, 1)), (0.0, 0.5, 1.0))
    yield from cases.random_networks(rng, 2 * draws, slopes=(0.0, 0.25, 0.9, 1.0))


def appendix_cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Layers (1, 2, 1) of unit norm, then random networks."""
    units = ((1.0, 0.0), (0.8, 0.6), (0.6, 0.8))
    for u, v in itertools.product(units, repeat=2):
        yield network([np.array(u)[:, None], np.array(v)[None]], [[1.0]])
    yield from cases.random_networks(rng, draws, slopes=(0.0, 0.5))


def confirm_appendix(case: Case) -> Check:
    """(1, 2, 1) in fractions: the factors are W_2/|W_2| and W_1/|W_1|, and −2 log J ≤ 2(1 −
    J)/J.
    """
    u, v = (_rational(p.weight) for p in case.params)
    inner = sum(a * b for a, b in zip(u, v, strict=True))
    spent = 2 * (sum(a * a for a in u) + 1 - 2 * inner)
    return at_most(spent, 2 * (1 - inner) / inner)


def traced(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Networks with integer parameters and dyadic slopes: every small one, then all shapes of
    widths 1 to 3 with biases.
    """
    yield from cases.lattice(
        ((1, 1), (1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2)), values=(1.0, -1.0, 2.0)
    )
    yield from (replace(case, x=case.x + 0.25) for case in integer_networks(rng, draws))


def trace_formula(case: Case, bias: bool) -> np.ndarray:
    """Σ_l (‖α_{l-1}(x)‖² + [bias]) ‖J(α̃_l → f)(x)‖²_F, by the library."""
    return ntk_trace_by_layer(case.net, case.params, case.x, bias=bias).sum(axis=1)


def measure_trace(
    case: Case,
    bias: bool | None = None,
    formula: Callable[[Case, bool], np.ndarray] = trace_formula,
) -> Check:
    """Against Tr Θ(x, x) = Σ ‖∂f/∂θ_i‖² with the derivatives by moving one parameter at a time:
    exact in dyadic numbers.
    """
    if not cases.open_region(case):
        return equal(0, 0, drops=outside("a pre-activation is exactly zero: no derivative"))
    exact = np.sum(cases.parameter_gradients(case) ** 2, axis=(1, 2))
    found = formula(case, case.net.bias if bias is None else bias)
    at = int(np.argmax(np.abs(exact - found)))
    return equal(float(found[at]), float(exact[at]), comparisons=len(exact))


def confirm_trace(case: Case) -> Check:
    """The trace of `nm.ntk`, structured derivatives on the device."""
    from neuromanifold.tangent.kernel.ntk import ntk

    kernel = np.diag(np.asarray(ntk(case.net, case.params, case.x, trace=True)))
    found = trace_formula(case, False)
    at = int(np.argmax(np.abs(kernel - found)))
    return equal(float(found[at]), float(kernel[at]), 1e-9 * float(kernel[at]))


def biased_traces(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """One layer, three with a kink in the second, then integer networks with biases."""
    yield network([[[1.0]]], [[1.0]], biases=[[0.0]])
    yield network([[[1.0]]] * 3, [[1.0]], biases=[[0.0], [-1.0], [0.0]])
    yield from integer_networks(rng, 0)


def balanced_chains(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Balanced parameters: chains of every sign, random networks after balancing."""
    weights, slopes = (1.0, -1.0, 0.5, 2.0), (0.0, 0.5, -0.5, 1.0)
    for weight, depth, slope in itertools.product(weights, (1, 2, 3, 6), slopes):
        yield network([[[weight]]] * depth, [[1.0], [-1.0], [2.0]], slope=slope, kind="chain")
    yield from cases.random_networks(rng, draws, balanced=True)


def balanced_lattice(shapes: Iterable[tuple[int, ...]]) -> Iterator[Case]:
    """The networks with weights −1, 0, 1 that are balanced, but for zero."""
    found = (case for case in cases.lattice(shapes) if balance_defect(case.net, case.params) == 0.0)
    return (case for case in found if case.squared_norm > 0)


def _conditions(case: Case) -> tuple[list[int], list[float]]:
    """The rank k of Jf(x) at each point and its condition on its rank; infinite where Jf(x) = 0."""
    spectra = [kept(J) if J.any() else np.zeros(0) for J in cases.jacobians(case)]
    return [len(s) for s in spectra], [float(s[0] / s[-1]) if len(s) else math.inf for s in spectra]


_ILL_POSED = "the condition of Jf(x) is above 10⁸, where rounding decides its rank"


def measure_activations(case: Case, *, layers: bool = False, share: Share = layer_share) -> Check:
    """Both sides of Theorem 7 with c = Tr Θ(x, x)/L and c₁ = ‖θ‖² − kL; `layers` checks every
    fraction p of its second half.
    """
    ranks, conditions = _conditions(case)
    good = [condition < _ILL for condition in conditions]
    drops = outside("Jf(x) = 0, where the bound divides by k", parts=ranks.count(0))
    drops += inside(_ILL_POSED, parts=good.count(False) - ranks.count(0))
    if not any(good):
        return worst((), drops)
    found, condition = replace(case, x=case.x[good]), max(c for c in conditions if c < _ILL)
    sides = activation_bound(found.net, found.params, found.x)
    left, right = sides.left, np.minimum(sides.right, 1e300)
    rounding = 64 * EPS * case.net.depth * (1 + case.squared_norm) * condition
    ratios = left / right
    if layers:
        through = passage(found.net, found.params, found.x)
        sizes = -np.sort(-np.stack([np.sum(a**2, axis=1) for a in through.activations]), axis=0)
        ratios = sizes / [[share(r, m) for r in right] for m in range(1, len(sizes) + 1)]
    return at_most(float(np.max(ratios)), 1.0, rounding, comparisons=ratios.size, drops=drops)


Shifts = tuple[int, float, float]
"""L, and by what the hidden layers shift the input at that depth and at L + 1."""


def shifted(depth: int, shift: float) -> Case:
    """The identity at x = 1, 2, balanced, through the representation (1 + t²)^{(l/L − 1)/2}(x + t)."""
    step = (1 + shift**2) ** (1 / (2 * depth))
    first = step / math.sqrt(1 + shift**2)
    weights = [[[first]], *[[[step]]] * (depth - 1)]
    biases = [[first * shift], *[[0.0]] * (depth - 2), [-shift]]
    return network(weights, [[1.0], [2.0]], biases=biases, kind="shifted")


def _shifts(rng: np.random.Generator, draws: int) -> Iterator[Shifts]:
    """Depths of both kinds with one shift, and with none at every other depth."""
    for depth, shift in itertools.product((16, 64, 256), (1.0, 0.5)):
        yield depth, shift, shift
        yield depth, 0.0, shift


def _shown_shifts(case: Shifts) -> str:
    depth, *shifts = case
    return (
        "from neuromanifold_papers.bottleneck.statements.layers import shifted\n"
        f"both = shifted({depth}, {shifts[0]}), shifted({depth + 1}, {shifts[1]})"
    )


def confirm_shifts(case: Shifts) -> Check:
    """The representation in closed form, at half the depth and x = 1."""
    depth, *shifts = case
    powers = [(depth // 2) / (depth + more) - 1 for more in (0, 1)]
    before, after = (
        (1 + t**2) ** (power / 2) * (1 + t) for t, power in zip(shifts, powers, strict=True)
    )
    return at_most(abs(after - before), 4 / depth)


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
        net, noise = MLP(tuple(widths), cases.activation(slope), bias=bias), rng.uniform(-3, -0.3)
        params = balance(net, cases.nearly_isometric(rng, widths, k, 10.0**noise, bias))
        yield Case(net, params, np.abs(rng.normal(size=(8, widths[0]))), slope, "nearly isometric")
    for n in (16, 64, 256, 400, 1024):
        yield far_point(n, Fraction(1, math.isqrt(n)), 100.0)
    yield from balanced_lattice(((1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2)))


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
    return at_most(second, 4 * float(square) * (math.sqrt(A) + math.sqrt(0.5)) ** 2, 1e-6 * second)


_WELL_POSED = "points where Jf(x) has a condition below 10⁸"
_ONE_SMALLER = control(
    "c₁ one smaller, at x + 1 and, where there is room, at x/4 + 1",
    lambda: network(
        [[[1.0]], [[1.0]]], [[1.0], [-1.0]], slope=0.25, biases=[[0.0], [1.0]], kind="a bias"
    ),
    allowed=lambda frames: budget(frames) - 1,
)


def _one_direction_less(
    net: MLP, params: Params, x: np.ndarray, *, rank: int, averaged: bool
) -> PlanarityBound:
    """The values of one rank less, against the bound of this one."""
    found, less = (
        planarity_bound(net, params, x, rank=k, averaged=averaged) for k in (rank, rank - 1)
    )
    return replace(found, values=less.values)


def _show_far(case: Case) -> str:
    if case.kind != "one far point":
        return cases.show(case)
    square = round(1 / float(case.params[0].weight[1, 1]) ** 2)
    return (
        "from fractions import Fraction\n"
        "from neuromanifold_papers.bottleneck.statements.layers import far_point\n"
        f"case = far_point({len(case.x)}, Fraction(1, {square}), {float(case.x[0, 0])})"
    )


@cases.of_networks("Thm 6", networks, _ONE_SMALLER)
def thm6(case: Case, allowed: Budget = budget) -> Check:
    """‖θ‖² ≤ kL + c₁ and rank Jf(x) = k: some semi-orthogonal U_l, V_l have Σ ‖W_l −
    U_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ c₁ − 2 log|Jf(x)|₊.

    Σ ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² with the closest partial isometry of rank k in every
    layer, at each point.
    """
    found = _frames(case)
    spent = ((float(f.closest.sum() + f.bias_norms.sum()), f) for f in found)
    checks = (compare(size, "<=", allowed(f), f.rounding) for size, f in spent)
    return worst(checks, rank=max(f.rank for f in found))


@cases.of_networks(
    "Thm 6 (layers)",
    several_layers,
    control(
        "two thirds of the bound, at two layers of weight 4: it is passed by the second largest only",
        lambda: network([[[4.0]], [[4.0]]], [[1.0]]),
        share=lambda total, m: layer_share(total, m) / 1.5,
    ),
)
def thm6_layers(case: Case, share: Share = layer_share) -> Check:
    """For every p in (0, 1) at least (1 − p)L layers have ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ (c₁ − 2
    log|Jf(x)|₊)/(pL).

    For every p: at most pL layers lie above budget/(pL); equivalently the m-th largest is at
    most budget/m.
    """
    checks = []
    for f in _frames(case):
        sizes = np.sort(f.closest + f.bias_norms)[::-1]
        for m, size in enumerate(sizes, start=1):
            checks.append(compare(float(size), "<=", share(budget(f), m), f.rounding))
    return worst(checks)


@cases.of_networks("Thm 6 (shared V)", one_neuron_wide, _ONE_SMALLER, confirm=confirm_shared)
def shared(case: Case, allowed: Budget = budget) -> Check:
    """The main text's form with one semi-orthonormal V_l a layer, σ_a with a in (−1, 1): Σ ‖W_l −
    V_lV_{l-1}ᵀ‖² ≤ c₁ − 2 log|Jf(x)|₊.

    The best frames with one V_l a layer, at points where Jf(x) ≠ 0.
    """
    found = _frames(case)
    frames = [f for f in found if f.rank == 1]
    left, drops = shared_residual(case), _without_rank(len(found) - len(frames))
    return worst((compare(left, "<=", allowed(f), f.rounding) for f in frames), drops)


@shared.amend(cases=nonnegative_slopes)
def carried(case: Case, allowed: Budget = budget) -> Check:
    """With one V_l a layer, Σ ‖W_l − V_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ c₁ − 2 log|Jf(x)|₊ for slopes in
    [0, 1]: carry V_l forward from the row space of Jf(x).

    The library's frames, carried forward from the row space of Jf(x), one V_l a layer.
    """
    found = _frames(case)
    assert all(f.shared for f in found)
    return worst(compare(f.spent, "<=", allowed(f), f.rounding) for f in found)


@cases.of_networks(
    "Thm 6 (proof's factors)", appendix_cases, _ONE_SMALLER, confirm=confirm_appendix
)
def appendix(case: Case, allowed: Budget = budget) -> Check:
    """The appendix's U_l, V_{l-1}, from the SVD of W_l projected onto the row space of J(α̃_l →
    f) and the image of Jα_{l-1}, stay within the budget.

    Σ ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² with the factors of the SVD of the doubly projected W_l.
    """
    checks, found = [], _frames(case)
    for point, f in zip(case.x, found, strict=True):
        if f.rank:
            pairs = appendix_factors(case.net, case.params, point[None])
            gaps = (p.weight - U @ V.T for p, (U, V) in zip(case.params, pairs, strict=True))
            spent = sum(float(np.sum(gap**2)) for gap in gaps) + float(f.bias_norms.sum())
            checks.append(compare(spent, "<=", allowed(f), f.rounding))
    return worst(checks, _without_rank(len(found) - len(checks)))


forward = appendix.amend(
    cases=nonnegative_slopes,
    says="With factors carried forward from the row space of Jf(x), slopes in [0, 1], the sum stays "
    "within the budget",
)(carried.measure)
_TRACE = "Tr Θ(x, x) = Σ_l (‖α_{l-1}(x)‖² + [bias]) ‖J(α̃_l → f)(x)‖²_F"
_NO_BIASES = control(
    "without the biases' share: (1, 1), f = x",
    lambda: network([[[1.0]]], [[1.0]], biases=[[0.0]]),
    bias=False,
)
trace = statement("trace", traced, _NO_BIASES, show=cases.show, says=_TRACE)(measure_trace)


@statement(
    "trace (without biases)",
    biased_traces,
    control(
        "twice the sum: (1, 1) without biases, f = x",
        lambda: network([[[1.0]]], [[1.0]]),
        formula=lambda case, bias: 2 * trace_formula(case, bias),
    ),
    show=cases.show,
    confirm=confirm_trace,
)
def unbiased_trace(case: Any, formula: Any = trace_formula) -> Check:
    """Tr Θ(x, x) = Σ_l ‖α_{l-1}(x)‖² ‖J(α̃_l → f)(x)‖²_F, as the appendix prints it, for the
    networks of the setup, which have biases.
    """
    return measure_trace(case, bias=False, formula=formula)


biased_trace = unbiased_trace.amend(_NO_BIASES, says=_TRACE)(measure_trace)


thm7 = cases.of_networks(
    "Thm 7",
    lambda rng, draws: itertools.chain(balanced_lattice(cases.SMALL), balanced_chains(rng, draws)),
    control(
        "not balanced: f = x as 11/10 and then 10/11",
        lambda: network([[[1.1]], [[1 / 1.1]]], [[1.0]]),
    ),
    narrower=_WELL_POSED,
    says="balanced, ‖θ‖² ≤ kL + c₁, rank Jf(x) = k, Tr Θ(x, x) ≤ cL: Σ_l ‖α_{l-1}(x)‖² ≤ c·max{1, e^{c₁/k}} L/(k|Jf(x)|₊^{2/k})",
)(measure_activations)


@cases.of_networks(
    "Thm 7 (layers)",
    balanced_chains,
    control(
        "19/20 of the bound, at f = x in two layers",
        lambda: network([[[1.0]], [[1.0]]], [[1.0]]),
        share=lambda total, m: 0.95 * layer_share(total, m),
    ),
    narrower=_WELL_POSED,
)
def thm7_layers(case: Any, share: Any = layer_share) -> Check:
    """And for every p in (0, 1) at least (1 − p)L layers have ‖α_{l-1}(x)‖² ≤ c·max{1,
    e^{c₁/k}}/(p k|Jf(x)|₊^{2/k}).
    """
    return measure_activations(case, layers=True, share=share)


@cases.numeric(
    "Sec 4 (convergence)",
    _shifts,
    control("shifts that grow with the depth, beyond c₁", lambda: (1024, 1024.0, 1025.0)),
    show=_shown_shifts,
    confirm=confirm_shifts,
)
def representations(case: Shifts) -> Check:
    """Balanced, ‖θ‖² ≤ kL + c₁, rank Jf(x) = k, Tr Θ(x, x) ≤ cL: as L grows the representations of
    almost every layer converge.

    By how much that of the middle layer moves from one depth to the next, where c₁ = 2 and c = 12.
    """
    depth, *shifts = case
    nets = [shifted(depth + more, t) for more, t in enumerate(shifts)]
    before, after = (passage(n.net, n.params, n.x).activations[depth // 2] for n in nets)
    within = all(
        balance_defect(n.net, n.params) <= 1e-12
        and n.squared_norm <= n.net.depth + 2
        and trace_formula(n, True).max() <= 12 * n.net.depth
        for n in nets
    )
    drops = outside("not balanced, or above the bounds of norm or trace", when=not within)
    apart = float(np.abs(after - before).max())
    return at_most(apart, 4 / depth, drops=drops, depth=depth, shift=shifts[1])


@representations.amend(
    thm7_layers.control, cases=balanced_chains, show=cases.show, narrower=_WELL_POSED
)
def stay_bounded(case: Any, share: Any = layer_share) -> Check:
    """Under these hypotheses the representations of almost every layer stay bounded."""
    return measure_activations(case, layers=True, share=share)


@cases.numeric(
    "Cor 8",
    planar_cases,
    control(
        "s₂ instead of s₃, at the identity of the plane",
        lambda: network([np.eye(2)] * 2, np.eye(2) + 1.0),
        bound=_one_direction_less,
    ),
    draws=20,
    show=_show_far,
    narrower=_WELL_POSED,
    confirm=confirm_planarity,
)
def cor8(
    case: Case, bound: Callable[..., PlanarityBound] = planarity_bound, averaged: bool = True
) -> Check:
    """Balanced, (1/N) Tr Θ(X, X) ≤ cL, rank Jf(x_i) = k: for every p in (0, 1) at least (1 − p)L
    layers have s_{k+1}(α̃_l(X)/√N) ≤ √(c₁ − 2 log|Jf(x)|₊)·(√((1/N) Σ_i c·max{1,
    e^{c₁/k}}/(k|Jf(x_i)|₊^{2/k})) + √p)/(p√L); the x of the first factor, left open, is read
    as any of the x_i, as Thm 6 allows.

    The m-th largest s_{k+1}(α̃_l(X)/√N) against the bound at p = m/L for every m: all fractions p
    at once.
    """
    ranks, conditions = _conditions(case)
    k = int(np.bincount(ranks).argmax())
    points = list(zip(ranks, conditions, strict=True))
    good = [rank == k and condition < _ILL for rank, condition in points]
    other = len(ranks) - ranks.count(k)
    drops = (
        outside("rank Jf(x_i) ≠ k", parts=other)
        if k
        else outside("Jf(x) = 0, where the bound divides by k", parts=len(ranks))
    )
    drops += inside(_ILL_POSED, parts=(len(ranks) - other - sum(good)) * (k > 0))
    if not any(good):
        return worst((), drops, k=k)
    found = bound(case.net, case.params, case.x[good], rank=k, averaged=averaged)
    assert found.hypotheses["balanced"]
    layers = passage(case.net, case.params, case.x).preactivations
    size = max(float(np.abs(z).max()) for z in layers)
    rounding = 64 * EPS * case.net.depth * (1 + size) * (1 + case.squared_norm)
    values = enumerate(np.sort(found.values)[::-1], start=1)
    bounds = ((float(v), found.bound(m / len(found.values))) for m, v in values)
    return worst((compare(v, "<=", most, rounding) for v, most in bounds), drops, k=k)


pointwise = cor8.amend(
    control(
        "the averaged trace, with one far point of 1024",
        lambda: far_point(1024, Fraction(1, 32), 100.0),
        averaged=True,
    ),
    averaged=False,
    show=cases.show,
    narrower=_WELL_POSED,
)(
    "The same with the trace of each point in its own term, (1/N) Σ_i (Tr Θ(x_i, x_i)/L)·max{1, "
    "e^{c₁/k}}/(k|Jf(x_i)|₊^{2/k}), for every x among the x_i in the first factor."
)
