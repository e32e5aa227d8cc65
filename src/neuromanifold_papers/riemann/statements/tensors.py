"""`riemann`, Cor 10, Obs 11: factorisations of filters on D-dimensional signals, and layers that
can be exchanged.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from math import factorial, prod
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.polynomial import factor_exactly
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, Drops, at_least, equal, outside
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.statement import control

SQUARE = LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1)))
THIN = LinearConvNet(((2, 2, 1), (2, 2, 1)), ((1, 1, 2), (1, 1, 1)))
LINE = LinearConvNet(((3, 1), (2, 1)), ((1, 1), (1, 1)))


def space(net: LinearConvNet, layer: int) -> frozenset[Any]:
    """The monomials of ℝ[(x, y)^{t_l}]_{k_l − 1}, as exponents of (x_1, y_1, …, x_D, y_D)."""
    axes = zip(net.filter_shapes[layer], net.dilations[layer], strict=True)
    return frozenset(product(*([(t * (k - 1 - i), t * i) for i in range(k)] for k, t in axes)))


def orders(net: LinearConvNet) -> int:
    """How many permutations of the layers exchange only layers of one space."""
    return prod(factorial(n) for n in Counter(space(net, l) for l in range(net.depth)).values())


def wide_nets() -> list[LinearConvNet]:
    """D = 2, 3, every layer with two sizes above 1: like and unlike layers, strides of one,
    above one, mixed.
    """
    return [
        *exact.all_nets([(2, 2), (3, 2)], [(1, 1), (2, 1), (2, 2)]),
        *exact.all_nets([(2, 2)], [(1, 1), (1, 2)], (3,)),
        *exact.all_nets([(2, 2, 1), (1, 2, 2)], [(1, 1, 1), (1, 1, 2)]),
        LinearConvNet(((2, 2), (3, 2), (2, 2)), ((1, 1),) * 3),
        LinearConvNet(((2, 2, 2), (2, 2, 2)), ((1, 1, 1),) * 2),
    ]


def _generic(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = wide_nets()
    for index in range(len(nets) + draws):
        net = nets[index % len(nets)]
        yield net, exact.integer_filters(net, rng, 10**4)


def not_generic(net: LinearConvNet, v: np.ndarray) -> Drops:
    """The drop of the rare v of which the filters are not the factors: almost every v is generic."""
    powers = [power for factor, power in factor_exactly(v) if factor.size > 1]
    reason = "the filters are not irreducible and different: v is not generic"
    return outside(reason, when=powers != [1] * net.depth)


LINE_CUBIC = (np.array([[0], [1], [0]], object), np.array([[1], [1]], object))
"""x²y + xy² in layers 3 × 1 and 2 × 1."""


@exact.statement(
    "Cor 10",
    _generic,
    control("one size above 1: x²y + xy² in layers 3 × 1 and 2 × 1", lambda: (LINE, LINE_CUBIC)),
    draws=20,
)
def cor_10(case: Any) -> Check:
    """D > 1, two sizes above 1 in every layer: almost every v in M has one factorisation up to
    scalars and reordering of layers.
    """
    net, params = case
    v, wanted = net.end_to_end(params), orders(net)
    found, drops = fs.fiber(net, v).factorisations, not_generic(net, v)
    return equal(found, wanted, drops=drops, like_layers=wanted > 1)


@exact.statement(
    "Obs 11 (a)",
    _generic,
    control(
        "filters that are not generic: (1 + y_1)(1 + y_2) in a layer",
        lambda: (
            LinearConvNet(((2, 2), (3, 2)), ((1, 1),) * 2),
            (np.array([[1, 1], [1, 1]], object), np.array([[1, 2], [3, 6], [2, 4]], object)),
        ),
    ),
    draws=0,
)
def obs_11_a(case: Any) -> Check:
    """In Cor 10 the order of the filters is not determined exactly when two layers have the same
    space of polynomials.
    """
    net, params = case
    several = fs.fiber(net, net.end_to_end(params)).factorisations > 1
    like = any(space(net, l) == space(net, m) for l, m in combinations(range(net.depth), 2))
    drops = not_generic(net, net.end_to_end(params))
    return equal(int(several), int(like), drops=drops, like_layers=like)


def _pairs(nets: Any) -> Iterator[Any]:
    for net in nets:
        yield from ((net, l, m) for l, m in combinations(range(net.depth), 2))


def swapped(params: Any, l: int, m: int) -> tuple[np.ndarray, ...]:
    """The filters with layers l and m exchanged."""
    exchanged = list(params)
    exchanged[l], exchanged[m] = exchanged[m], exchanged[l]
    return tuple(exchanged)


def _unlike(case: Any) -> Drops:
    net, l, m = case
    return outside("the two layers have different spaces", when=space(net, l) != space(net, m))


_UNLIKE = control("unlike layers", lambda: (LinearConvNet((2, 2), (2, 1)), 0, 1))


def _changed(case: Any) -> int:
    """Entries of μ that the exchange changes, as polynomials."""
    net, l, m = case
    params = exact.symbols(net.filter_shapes)
    return exact.differing(net.end_to_end(params), net.end_to_end(swapped(params, l, m)))


def _requires_by_product(case: Any) -> Check:
    """Of the pairs with t_l ≠ t_L none may be exchangeable."""
    net, l, m = case
    return at_least(_changed(case) if net.dilations[l] != net.dilations[m] else 1, 1)


_THREE = [
    *exact.all_nets(
        [(2, 2, 1), (1, 2, 2), (2, 2, 2)], [(1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 2, 2)]
    ),
    THIN,
]


@exact.statement(
    "Obs 11 (a, t)",
    lambda rng, draws: _pairs([*exact.all_nets([(2, 2), (3, 2)], [(1, 1), (2, 1)]), *_THREE]),
    _UNLIKE,
    confirm=_requires_by_product,
)
def obs_11_requires(case: Any, least: int = 1) -> Check:
    """Exchanging two layers' filters (11) requires t_l = t_L.

    Where the spaces coincide: is t_l = t_L, on the axes of at least that size?
    """
    net, l, m = case
    seen = [k >= least for k in net.filter_shapes[l]]
    same = np.equal(net.dilations[l], net.dilations[m])[seen].all()
    return equal(int(same), 1, drops=_unlike(case))


where_seen = obs_11_requires.amend(least=2)(
    "Exchanging two layers' filters requires t_l^(m) = t_L^(m) on the axes m where the size exceeds 1."
)


@exact.statement(
    "Obs 11 (a, D)",
    lambda rng, draws: _pairs(
        [*exact.all_nets((2, 3), (1, 2), (2, 3)), *exact.all_nets([(2, 2)], [(1, 1), (2, 1)])]
    ),
    control("three dimensions asked of two", lambda: (SQUARE, 0, 1), least=3),
    confirm=lambda case: at_least(_changed(case), 1),  # in one dimension it should change μ
)
def obs_11_line(case: Any, least: int = 2) -> Check:
    """t_l = t_L with l < L can only happen if D > 1."""
    net, l, m = case
    drops = outside("t_l ≠ t_L", when=net.dilations[l] != net.dilations[m])
    return at_least(net.dimension, least, drops=drops)


@obs_11_line.amend(
    control("stride one", lambda: (LinearConvNet((2, 2), (1, 1)), 0, 1)),
    cases=lambda rng, draws: _pairs(exact.all_nets((2, 3), (2, 3), (2, 3, 4))),
)
def strides_apart(case: Any) -> Check:
    """D = 1 and inner strides above one: t_l ≠ t_L for l < L."""
    net, l, m = case
    return equal(int(net.dilations[l] != net.dilations[m]), 1)


@exact.statement(
    "Obs 11 (b)",
    lambda rng, draws: (
        case
        for case in _pairs([*wide_nets(), THIN, *exact.all_nets((2, 3), (1, 2), (2, 3))])
        if space(case[0], case[1]) == space(case[0], case[2])
    ),
    control(
        "equal shapes, but stride 2 between them",
        lambda: (LinearConvNet(((2, 2), (2, 2)), ((2, 1), (1, 1))), 0, 1),
    ),
)
def obs_11_b(case: Any) -> Check:
    """Exchanging the filters of two layers with the same space changes neither μ nor the NTK.

    Entries of μ and of K that the exchange changes, as polynomials.
    """
    net, l, m = case
    params = exact.symbols(net.filter_shapes)
    other = swapped(params, l, m)
    wrong = exact.differing(net.end_to_end(params), net.end_to_end(other))
    wrong += exact.differing(fs.filter_kernel(net, params), fs.filter_kernel(net, other))
    return equal(wrong, 0)


def coincide(net: LinearConvNet, l: int, m: int) -> bool:
    """k_l = k_L, and the strides between them are one on every axis with a size above 1."""
    return _coincide(net, l, m, 2)


def _coincide(net: LinearConvNet, l: int, m: int, least: int) -> bool:
    shape = net.filter_shapes[l]
    between = np.array(net.strides[l:m])[:, np.array(shape) >= least]
    return shape == net.filter_shapes[m] and bool((between == 1).all())


def _all_shapes(D: int, largest: int) -> list[tuple[int, ...]]:
    return [shape for shape in product(range(1, largest + 1), repeat=D) if prod(shape) > 1]


@exact.statement(
    "Obs 11 (c)",
    lambda rng, draws: _pairs(
        [
            *exact.all_nets((2, 3, 4), (1, 2, 3), (2, 3)),
            *exact.all_nets(_all_shapes(2, 3), [(1, 1), (1, 2), (2, 1), (2, 2)]),
            *exact.all_nets(_all_shapes(3, 2), list(product((1, 2), repeat=3))),
        ]
    ),
    control(
        "the strides asked to be one on all axes",
        lambda: (THIN, 0, 1),
        rule=partial(_coincide, least=1),
    ),
)
def obs_11_c(case: Any, rule: Callable[[LinearConvNet, int, int], bool] = coincide) -> Check:
    """Two layers' spaces coincide exactly when k_l = k_L and, on axes with a size above 1, the
    strides between them are one.
    """
    net, l, m = case
    same = space(net, l) == space(net, m)
    wrong = int(same != rule(net, l, m)) + int(same != fs.swappable(net, l, m))
    return equal(wrong, 0, D=net.dimension, H=net.depth, coincide=same)
