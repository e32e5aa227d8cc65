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
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements.algebra import rescalings
from neuromanifold_papers.riemann.statements.exact import (
    EPS,
    differing,
    hypotheses,
    integer_filters,
    show_filters,
    signed_filters,
)
from neuromanifold_papers.riemann.statements.strided import cor_6, kernel_check, not_smooth
from neuromanifold_papers.riemann.statements.tensors import (
    LINE,
    LINE_CUBIC,
    SQUARE,
    orders,
    space,
    wide_nets,
)
from neuromanifold_papers.statement import control, statement

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
    return equal(
        len(fs.fiber(net, v, delta)),
        wanted,
        drops=not_smooth(net, v),
        hypotheses=_covered(net, delta),
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
        return equal(
            len(search_fiber(net, net.end_to_end(params), delta, starts=40)), rescalings(net.depth)
        )
    tuples = [params, tuple(-w for w in params), mate, tuple(-w for w in mate)]
    good = {
        tuple(np.concatenate([w.ravel() for w in t]).tolist())
        for t in tuples
        if not differing(net.end_to_end(t), net.end_to_end(params))
        and fs.norm_differences(net, t)[0] == int(delta[0])
    }
    return equal(len(good), rescalings(net.depth))


_WORKED_13 = cleandoc("""Two 2 × 2 layers of stride one, δ = 6. The filters w_1 = y_1 + y_2, w_2 = 2 + 2y_1y_2 and w_1' = 1 + y_1y_2,
    w_2' = 2y_1 + 2y_2 have the product 2(y_1 + y_2)(1 + y_1y_2), and ‖w_2‖² − ‖w_1‖² = 8 − 2 = 6 in both cases.
    With the signs these are four tuples over (v, δ), not 2^{H−1} = 2. dμ has rank 7 = dim M at both, and up to the
    exchange of the layers there is one factorisation, so v is smooth. The first entry of the kernel is K[0,0] =
    w_1[0,0]² + w_2[0,0]² = 0 + 4 for the first and 1 + 0 for the second: the kernels differ.

    The proof takes the exchange of like layers to keep δ. It turns δ into −δ; scaling back to δ multiplies the
    filters by √(‖w_2‖²/‖w_1‖²) and its inverse, and the kernel changes unless the norms agree.""")

thm_13_count = statement(
    "Thm 13 (count)",
    _thirteen,
    control("a net with like layers", lambda: (SQUARE, FIRST_13, np.zeros(1))),
    method="float64",
    confirm=_count_13_exactly,
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    says="D > 1, two sizes above 1 in every layer: over a smooth v and any δ lie exactly 2^{H−1} parameter tuples",
)(_count_13)


@statement(
    "Thm 13 (count), amended",
    _thirteen,
    control(
        "a net with like layers, asked for 2^{H−1}",
        lambda: (SQUARE, FIRST_13, np.zeros(1)),
        multiple=False,
    ),
    amends="Thm 13 (count)",
    method="float64",
    show=show_filters,
    draws=6,
)
def thm_13_count_amended(case: Any, multiple: Any = True) -> Check:
    """Over a smooth v and any δ lie 2^{H−1} times as many tuples as there are permutations of
    layers with the same space.
    """
    return _count_13(case, multiple=multiple)


def _kernel_13(case: Any) -> Check:
    return kernel_check(case, _covered(case[0], case[2]))


def _kernel_13_exactly(case: Any) -> Check:
    net, params, _ = case
    mate = exchanged_exactly(net, params)
    if mate is None:
        return equal(0, 0)
    return equal(differing(fs.filter_kernel(net, params), fs.filter_kernel(net, mate)), 0)


def equal_norms(net: LinearConvNet, delta: np.ndarray) -> bool:
    """Whether Σ_{i=l}^{L−1} δ_i = 0 for every pair of layers with the same space."""
    pairs = [(l, m) for l, m in combinations(range(net.depth), 2) if space(net, l) == space(net, m)]
    return all(
        abs(float(np.sum(delta[l:m]))) < 64 * EPS * max(1.0, float(np.abs(delta).max()))
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
        wrong += bool((before == after).all()) != exchangeable(
            SQUARE, np.array([norms[j] - norms[i]])
        )
    return equal(wrong, 0, cases=len(pairs), filters=EVERY_PAIR)


def amended_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """As printed, and with δ that is not zero but gives interchangeable filters equal norms."""
    yield from _thirteen(rng, draws)
    for net in wide_nets():
        squared = rng.uniform(1, 5, net.depth)
        for l, m in combinations(range(net.depth), 2):
            if space(net, l) == space(net, m):
                squared[m] = squared[l]
        yield net, integer_filters(net, rng, 9), np.diff(squared)


thm_13_kernel = statement(
    "Thm 13 (kernel)",
    _thirteen,
    control(
        "one size above 1: x²y + xy² in layers 3 × 1, 2 × 1",
        lambda: (LINE, LINE_CUBIC, np.zeros(1)),
    ),
    method="float64",
    confirm=_kernel_13_exactly,
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    says="D > 1, two sizes above 1 in every layer: all parameters over a smooth v and any δ have the same NTK",
)(_kernel_13)


@statement(
    "Thm 13 (kernel), amended",
    lambda rng, draws: (EVERY_PAIR, *amended_cases(rng, draws)),
    control(
        "like layers, δ = 6, taken for filters of equal norm",
        lambda: (SQUARE, FIRST_13, np.array([6.0])),
        exchangeable=lambda net, delta: True,
    ),
    amends="Thm 13 (kernel)",
    method="float64",
    show=lambda case: case if case == EVERY_PAIR else show_filters(case),
    draws=6,
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
    check = _kernel_13(case)
    if exchangeable(net, delta):
        return check
    return at_least(check.left, 1e-6, drops=check.drops, hypotheses=check.hypotheses)


thm_13_metric = statement(
    "Thm 13 (metric)",
    _thirteen,
    control(
        "the sum over the fibre instead of the average",
        lambda: (SQUARE, FIRST_13, np.zeros(1)),
        factor=2.0,
    ),
    method="float64",
    confirm=_kernel_13_exactly,
    worked=_WORKED_13,
    show=show_filters,
    draws=6,
    says="D > 1, two sizes above 1 in every layer: for fixed δ the NTKs are a Riemannian metric, the pushforward from Θ_δ",
)(cor_6.measure)

thm_13_metric_amended = statement(
    "Thm 13 (metric), amended",
    lambda rng, draws: (
        case for case in amended_cases(rng, draws) if equal_norms(case[0], case[2])
    ),
    control("like layers, δ = 6", lambda: (SQUARE, FIRST_13, np.array([6.0]))),
    amends="Thm 13 (metric)",
    method="float64",
    show=show_filters,
    draws=6,
    says="for δ with Σ_{i=l}^{L−1} δ_i = 0 between layers of the same space, K⁻¹ is the pushforward of the metric of Θ_δ",
)(cor_6.measure)
GROUP = (thm_13_count, thm_13_kernel, thm_13_metric)
