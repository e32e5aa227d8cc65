"""`riemann`, Thm 13: parameters and kernels over (v, δ) for D-dimensional signals."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from math import isqrt
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.search import join, search_fiber
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements import exact, tensors
from neuromanifold_papers.riemann.statements.algebra import rescalings
from neuromanifold_papers.riemann.statements.strided import cor_6, kernel_check, not_smooth
from neuromanifold_papers.statement import control

FIRST_13 = (np.array([[0, 1], [1, 0]], object), np.array([[2, 0], [0, 2]], object))


def _thirteen(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """The exact counterexample, filters with entries −1, 0, 1, then every net with balanced and
    unbalanced δ.
    """
    yield tensors.SQUARE, FIRST_13, np.array([6.0])
    every = list(exact.signed_filters(tensors.SQUARE))
    for index in range(40):
        yield tensors.SQUARE, every[(37 * index) % len(every)], np.array([(0.0, 1.5)[index % 2]])
    nets = tensors.wide_nets()
    for index in range(2 * len(nets) + draws):
        net = nets[index % len(nets)]
        delta = np.zeros(net.depth - 1) if index < len(nets) else 2 * rng.normal(size=net.depth - 1)
        yield net, exact.integer_filters(net, rng, 9), delta


def _covered(case: Any) -> dict[str, Any]:
    return {"like_layers": tensors.orders(case[0]) > 1, "balanced": not np.any(case[2])}


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
    mate = exchanged_exactly(net, params) if net.depth == 2 and tensors.orders(net) > 1 else None
    if mate is None:
        found = search_fiber(net, net.end_to_end(params), delta, starts=40)
        return equal(len(found), rescalings(net.depth))
    tuples = [params, tuple(-w for w in params), mate, tuple(-w for w in mate)]
    good = {
        tuple(join(t).tolist())
        for t in tuples
        if not exact.differing(net.end_to_end(t), net.end_to_end(params))
        and fs.norm_differences(net, t)[0] == int(delta[0])
    }
    return equal(len(good), rescalings(net.depth))


of_13 = partial(exact.in_float64, draws=6)


@of_13(
    "Thm 13 (count)",
    _thirteen,
    control("a net with like layers", lambda: (tensors.SQUARE, FIRST_13, np.zeros(1))),
    confirm=_count_13_exactly,
)
def thm_13_count(case: Any, multiple: bool = False) -> Check:
    """D > 1, two sizes above 1 in every layer: over a smooth v and any δ lie exactly 2^{H−1} parameter
    tuples.
    """
    net, params, delta = case
    v = net.end_to_end(params)
    found, wanted = fs.fiber(net, v, delta), rescalings(net.depth)
    wanted *= tensors.orders(net) if multiple else 1
    return equal(len(found), wanted, drops=not_smooth(net, v), **_covered(case))


thm_13_count_amended = thm_13_count.amend(
    control(
        "a net with like layers, asked for 2^{H−1}",
        lambda: (tensors.SQUARE, FIRST_13, np.zeros(1)),
        multiple=False,
    ),
    multiple=True,
)(
    "Over a smooth v and any δ lie 2^{H−1} times as many tuples as there are permutations of "
    "layers with the same space."
)


def _kernel_13_exactly(case: Any) -> Check:
    net, params, _ = case
    mate = exchanged_exactly(net, params) or params
    return equal(exact.differing(fs.filter_kernel(net, params), fs.filter_kernel(net, mate)), 0)


def equal_norms(net: LinearConvNet, delta: np.ndarray) -> bool:
    """Whether Σ_{i=l}^{L−1} δ_i = 0 for every pair of layers with the same space."""
    pairs = [
        (l, m)
        for l, m in combinations(range(net.depth), 2)
        if tensors.space(net, l) == tensors.space(net, m)
    ]
    return all(
        abs(float(np.sum(delta[l:m]))) < 64 * exact.EPS * max(1.0, float(np.abs(delta).max()))
        for l, m in pairs
    )


EVERY_PAIR = "every pair of 2 × 2 filters over −1, 0, 1, up to sign"


def exchange_law(exchangeable: Callable[[LinearConvNet, np.ndarray], bool]) -> Check:
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
        law = exchangeable(tensors.SQUARE, np.array([norms[j] - norms[i]]))
        wrong += bool((before == after).all()) != law
    return equal(wrong, 0, cases=len(pairs), filters=EVERY_PAIR)


def amended_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """As printed, and with δ that is not zero but gives interchangeable filters equal norms."""
    yield from _thirteen(rng, draws)
    for net in tensors.wide_nets():
        squared = rng.uniform(1, 5, net.depth)
        for l, m in combinations(range(net.depth), 2):
            if tensors.space(net, l) == tensors.space(net, m):
                squared[m] = squared[l]
        yield net, exact.integer_filters(net, rng, 9), np.diff(squared)


@of_13(
    "Thm 13 (kernel)",
    _thirteen,
    control(
        "one size above 1: x²y + xy² in layers 3 × 1, 2 × 1",
        lambda: (tensors.LINE, tensors.LINE_CUBIC, np.zeros(1)),
    ),
    confirm=_kernel_13_exactly,
)
def thm_13_kernel(case: Any) -> Check:
    """D > 1, two sizes above 1 in every layer: all parameters over a smooth v and any δ have the same
    NTK.
    """
    return kernel_check(case, **_covered(case))


@thm_13_kernel.amend(
    control(
        "like layers, δ = 6, taken for filters of equal norm",
        lambda: (tensors.SQUARE, FIRST_13, np.array([6.0])),
        exchangeable=lambda net, delta: True,
    ),
    cases=lambda rng, draws: (EVERY_PAIR, *amended_cases(rng, draws)),
)
def kernel_law(
    case: Any, exchangeable: Callable[[LinearConvNet, np.ndarray], bool] = equal_norms
) -> Check:
    """They have the same NTK exactly when layers with the same space have filters of equal norm:
    Σ_{i=l}^{L−1} δ_i = 0.

    One kernel exactly when interchangeable filters have equal norms.
    """
    if case == EVERY_PAIR:
        return exchange_law(exchangeable)
    net, _, delta = case
    check = thm_13_kernel(case)
    if exchangeable(net, delta):
        return check
    return at_least(check.left, 1e-6, drops=check.drops, hypotheses=check.hypotheses)


thm_13_metric = of_13(
    "Thm 13 (metric)",
    _thirteen,
    control(
        "the sum over the fibre instead of the average",
        lambda: (tensors.SQUARE, FIRST_13, np.zeros(1)),
        factor=2.0,
    ),
    confirm=_kernel_13_exactly,
    says="D > 1, two sizes above 1 in every layer: for fixed δ the NTKs are a Riemannian metric, the pushforward from Θ_δ",
)(cor_6.measure)

thm_13_metric_amended = thm_13_metric.amend(
    control("like layers, δ = 6", lambda: (tensors.SQUARE, FIRST_13, np.array([6.0]))),
    cases=lambda rng, draws: (
        case for case in amended_cases(rng, draws) if equal_norms(case[0], case[2])
    ),
)(
    "for δ with Σ_{i=l}^{L−1} δ_i = 0 between layers of the same space, K⁻¹ is the pushforward of "
    "the metric of Θ_δ"
)
