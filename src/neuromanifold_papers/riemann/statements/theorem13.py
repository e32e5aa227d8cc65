"""`riemann`, Thm 13: parameters and kernels over (v, δ) for D-dimensional signals."""

from collections.abc import Callable, Iterator
from inspect import cleandoc
from itertools import combinations, product
from math import isqrt
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import search_fiber
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold_papers.check import Check
from neuromanifold_papers.riemann.statements.algebra import rescalings
from neuromanifold_papers.riemann.statements.exact import (
    EPS,
    differing,
    hypotheses,
    integer_filters,
    show_filters,
    signed_filters,
)
from neuromanifold_papers.riemann.statements.strided import kernel_check, metric_gap, not_smooth
from neuromanifold_papers.riemann.statements.tensors import (
    LINE,
    LINE_CUBIC,
    SQUARE,
    orders,
    space,
    wide_nets,
)
from neuromanifold_papers.statement import Control, Statement

FIRST_13 = (np.array([[0, 1], [1, 0]], object), np.array([[2, 0], [0, 2]], object))


def _thirteen(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """The exact counterexample, filters with entries −1, 0, 1, then every net with balanced and
    unbalanced δ.
    """
    yield SQUARE, FIRST_13, np.array([6.0])
    every = list(signed_filters(SQUARE))
    for index in range(40):
        yield SQUARE, every[(37 * index) % len(every)], np.array([(0.0, 1.5)[index % 2]])
    nets = wide_nets()
    for index in range(2 * len(nets) + draws):
        net = nets[index % len(nets)]
        delta = np.zeros(net.depth - 1) if index < len(nets) else 2 * rng.normal(size=net.depth - 1)
        yield net, integer_filters(net, rng, 9), delta


def _covered(net: LinearConvNet, delta: np.ndarray) -> dict[str, Any]:
    return hypotheses(net, like_layers=orders(net) > 1, balanced=not np.any(delta))


def _count_13(case: Any, multiple: bool = False) -> Check:
    net, params, delta = case
    v = net.end_to_end(params)
    wanted = rescalings(net.depth) * (orders(net) if multiple else 1)
    return Check(
        len(fs.fiber(net, v, delta)),
        wanted,
        hypotheses=_covered(net, delta),
        drops=not_smooth(net, v),
    )


def exchanged_exactly(net: LinearConvNet, params: Any) -> tuple[np.ndarray, ...] | None:
    """The exchanged filters scaled back to the same δ, when the ratio of norms is rational:
    (w_2/c, c·w_1), c² = ‖w_2‖²/‖w_1‖².
    """
    first, second = (int((np.asarray(w, object) ** 2).sum()) for w in params)
    ratio = second // first if first and second % first == 0 else 0
    c = isqrt(ratio)
    divisible = c and c * c == ratio and not any(int(e) % c for e in np.ravel(params[1]))
    return (params[1] // c, c * params[0]) if divisible else None


def _count_13_exactly(case: Any) -> Check:
    """Tuples written down in integers, each with product v and invariant δ; else those that a
    search finds.
    """
    net, params, delta = case
    mate = exchanged_exactly(net, params) if net.depth == 2 and orders(net) > 1 else None
    if mate is None:
        return Check(
            len(search_fiber(net, net.end_to_end(params), delta, starts=40)), rescalings(net.depth)
        )
    tuples = [params, tuple(-w for w in params), mate, tuple(-w for w in mate)]
    good = {
        tuple(np.concatenate([w.ravel() for w in t]).tolist())
        for t in tuples
        if not differing(net.end_to_end(t), net.end_to_end(params))
        and fs.norm_differences(net, t)[0] == int(delta[0])
    }
    return Check(len(good), rescalings(net.depth))


_WORKED_13 = cleandoc("""Two 2 × 2 layers of stride one, δ = 6. The filters w_1 = y_1 + y_2, w_2 = 2 + 2y_1y_2 and w_1' = 1 + y_1y_2,
    w_2' = 2y_1 + 2y_2 have the product 2(y_1 + y_2)(1 + y_1y_2), and ‖w_2‖² − ‖w_1‖² = 8 − 2 = 6 in both cases.
    With the signs these are four tuples over (v, δ), not 2^{H−1} = 2. dμ has rank 7 = dim M at both, and up to the
    exchange of the layers there is one factorisation, so v is smooth. The first entry of the kernel is K[0,0] =
    w_1[0,0]² + w_2[0,0]² = 0 + 4 for the first and 1 + 0 for the second: the kernels differ.

    The proof takes the exchange of like layers to keep δ. It turns δ into −δ; scaling back to δ multiplies the
    filters by √(‖w_2‖²/‖w_1‖²) and its inverse, and the kernel changes unless the norms agree.""")

THM_13_COUNT = Statement(
    paper="riemann",
    row="Thm 13",
    id="Thm 13 (count)",
    says="D > 1, two sizes above 1 in every layer: over a smooth v and any δ lie exactly 2^{H−1} "
    "parameter tuples",
    method="float64",
    cases=_thirteen,
    measure=_count_13,
    control=Control("a net with like layers", case=lambda: (SQUARE, FIRST_13, np.zeros(1))),
    confirm=_count_13_exactly,
    route="tuples written down in integers",
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    amended=Statement(
        paper="riemann",
        row="Thm 13",
        id="Thm 13 (count), amended",
        says="over a smooth v and any δ lie 2^{H−1} times as many tuples as there are "
        "permutations of layers with the same space",
        method="float64",
        cases=_thirteen,
        measure=lambda case, multiple=True: _count_13(case, multiple=multiple),
        control=Control(
            "a net with like layers, asked for 2^{H−1}",
            case=lambda: (SQUARE, FIRST_13, np.zeros(1)),
            breaks={"multiple": False},
        ),
        show=show_filters,
        draws=6,
        proof="A smooth v has one tuple up to scalars and permutations of layers with the same "
        "space (proof of Theorem 13). Two "
        "permutations give the same tuple up to scalars only when two such layers have "
        "proportional filters; then dμ drops "
        "rank and v is singular. Each permuted tuple has 2^{H−1} rescalings over δ (Prop 12).",
    ),
)


def _kernel_13(case: Any) -> Check:
    return kernel_check(case, _covered(case[0], case[2]))


def _kernel_13_exactly(case: Any) -> Check:
    net, params, _ = case
    mate = exchanged_exactly(net, params)
    if mate is None:
        return Check(0, 0)
    return Check(differing(fs.filter_kernel(net, params), fs.filter_kernel(net, mate)), 0)


def equal_norms(net: LinearConvNet, delta: np.ndarray) -> bool:
    """Whether Σ_{i=l}^{L−1} δ_i = 0 for every pair of layers with the same space."""
    pairs = [(l, m) for l, m in combinations(range(net.depth), 2) if space(net, l) == space(net, m)]
    return all(
        abs(float(np.sum(delta[l:m]))) < 64 * EPS * max(1.0, float(np.abs(delta).max()))
        for l, m in pairs
    )


EVERY_PAIR = "every pair of 2 × 2 filters over −1, 0, 1, up to sign"


def exchange_law(equal: Callable[[LinearConvNet, np.ndarray], bool]) -> Check:
    """How many pairs contradict the law, exactly, over SQUARE.

    K(θ) = K_1 + K_2 with K_1 = M(w_2)M(w_2)ᵀ, M(w) the multiplication by w, and n_1n_2 K(θ') =
    n_2²K_2 + n_1²K_1 for the exchanged tuple, n_i = ‖w_i‖².
    """
    filters = [w for w in np.array(list(product((-1, 0, 1), repeat=4))) if tuple(w) > (0, 0, 0, 0)]
    units = [np.reshape(u, (2, 2)) for u in np.eye(4, dtype=int)]
    maps = [
        np.stack([compose((u, np.reshape(w, (2, 2))), ((1, 1),) * 2).ravel() for u in units], 1)
        for w in filters
    ]
    kernels, norms = [M @ M.T for M in maps], [int(w @ w) for w in filters]
    wrong, pairs = 0, list(combinations(range(len(filters)), 2))
    for i, j in pairs:
        before = norms[i] * norms[j] * (kernels[i] + kernels[j])
        after = norms[i] ** 2 * kernels[j] + norms[j] ** 2 * kernels[i]
        wrong += bool((before == after).all()) != equal(SQUARE, np.array([norms[j] - norms[i]]))
    return Check(wrong, 0, hypotheses={"filters": EVERY_PAIR}, cases=len(pairs))


def amended_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """As printed, and with δ that is not zero but gives interchangeable filters equal norms."""
    yield from _thirteen(rng, draws)
    for net in wide_nets():
        squared = rng.uniform(1, 5, net.depth)
        for l, m in combinations(range(net.depth), 2):
            if space(net, l) == space(net, m):
                squared[m] = squared[l]
        yield net, integer_filters(net, rng, 9), np.diff(squared)


def _kernel_law(
    case: Any, equal: Callable[[LinearConvNet, np.ndarray], bool] = equal_norms
) -> Check:
    """One kernel exactly when interchangeable filters have equal norms."""
    if case == EVERY_PAIR:
        return exchange_law(equal)
    net, _, delta = case
    check = _kernel_13(case)
    if equal(net, delta):
        return check
    return Check(check.left, 1e-6, ">=", hypotheses=check.hypotheses, drops=check.drops)


THM_13_KERNEL = Statement(
    paper="riemann",
    row="Thm 13",
    id="Thm 13 (kernel)",
    says="D > 1, two sizes above 1 in every layer: all parameters over a smooth v and any δ have "
    "the same NTK",
    method="float64",
    cases=_thirteen,
    measure=_kernel_13,
    control=Control(
        "one size above 1: x²y + xy² in layers 3 × 1, 2 × 1",
        case=lambda: (LINE, LINE_CUBIC, np.zeros(1)),
    ),
    confirm=_kernel_13_exactly,
    route="entries in which two integer kernels over the same (v, δ) differ",
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    amended=Statement(
        paper="riemann",
        row="Thm 13",
        id="Thm 13 (kernel), amended",
        says="they have the same NTK exactly when layers with the same space have filters of "
        "equal norm: Σ_{i=l}^{L−1} δ_i = 0",
        method="float64",
        cases=lambda rng, draws: (EVERY_PAIR, *amended_cases(rng, draws)),
        measure=_kernel_law,
        control=Control(
            "like layers, δ = 6, taken for filters of equal norm",
            case=lambda: (SQUARE, FIRST_13, np.array([6.0])),
            breaks={"equal": lambda net, delta: True},
        ),
        show=lambda case: case if case == EVERY_PAIR else show_filters(case),
        draws=6,
        proof="If: filters of equal norm can be exchanged without rescaling, which changes "
        "neither δ nor the NTK (Obs 11 b). "
        "Only if: let layers a, b have the space S and ρ = ‖w_a‖/‖w_b‖ ≠ 1. The tuple with ρw_b "
        "and w_a/ρ in their places lies over "
        "the same (v, δ). K_l = M(P_l)M(P_l)ᵀ with M(p): S_l → pS_l and P_l the product of the "
        "other filters, so K_l stays for l ≠ a, b, "
        "and K_a, K_b become ρ⁻²K_b, ρ²K_a: K' − K = (ρ² − 1)(K_a − ρ⁻²K_b). Were it 0, K_a and "
        "K_b had one image, w_bS = w_aS; as 1 "
        "is in S, each filter would be a multiple of the other, by constants, and then dμ drops "
        "rank and v is singular.",
    ),
)


THM_13_METRIC = Statement(
    paper="riemann",
    row="Thm 13",
    id="Thm 13 (metric)",
    says="D > 1, two sizes above 1 in every layer: for fixed δ the NTKs are a Riemannian metric, "
    "the pushforward from Θ_δ",
    method="float64",
    cases=_thirteen,
    measure=metric_gap,
    control=Control(
        "the sum over the fibre instead of the average",
        case=lambda: (SQUARE, FIRST_13, np.zeros(1)),
        breaks={"factor": 2.0},
    ),
    confirm=_kernel_13_exactly,
    route="entries in which two integer kernels over the same (v, δ) differ",
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    amended=Statement(
        paper="riemann",
        row="Thm 13",
        id="Thm 13 (metric), amended",
        says="for δ with Σ_{i=l}^{L−1} δ_i = 0 between layers of the same space, K⁻¹ is the "
        "pushforward of the metric of Θ_δ",
        method="float64",
        cases=lambda rng, draws: (
            case for case in amended_cases(rng, draws) if equal_norms(case[0], case[2])
        ),
        measure=metric_gap,
        control=Control("like layers, δ = 6", case=lambda: (SQUARE, FIRST_13, np.array([6.0]))),
        show=show_filters,
        draws=6,
        proof="All tuples over (v, δ) have one NTK by Thm 13 (kernel), amended, and at each K⁻¹ "
        "is the pushforward by Lem 5, as in Cor 6.",
    ),
)
GROUP = (THM_13_COUNT, THM_13_KERNEL, THM_13_METRIC)
