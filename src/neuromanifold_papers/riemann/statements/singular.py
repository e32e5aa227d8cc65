"""`riemann`, Sec 2 and 2.1: where the neuromanifold of a one-dimensional network is singular."""

from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.riemann.statements import exact, locus
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.strided import SMALLEST
from neuromanifold_papers.statement import control


def _exist_by_dimension(net: LinearConvNet) -> Check:
    """How many filters with entries −1, 0, 1 are outside M: none where M is the whole space,
    which has no singular point.
    """
    box = product((-1, 0, 1), repeat=net.end_to_end_shape[0])
    found = [fs.fiber(net, np.array(v), starts=1).in_neuromanifold for v in box if any(v)]
    return at_least(found.count(False), 1)


@exact.statement(
    "sing (existence)",
    lambda rng, draws: exact.all_nets((2, 3), (1, 2), (2, 3)),
    control("one layer, where M = ℝ³ is a linear space", lambda: LinearConvNet((3,), (1,))),
    confirm=_exist_by_dimension,
)
def sing_exist(net: LinearConvNet) -> Check:
    """D = 1: if H > 1, the neuromanifold has singular points.

    Whether 0 or one of some products of integer filters is singular: the printed conclusion
    asks for at least one.
    """
    rng = np.random.default_rng(0)
    tuples = [tuple(np.eye(k, dtype=object)[0] for k in exact.sizes_of(net))]
    tuples += [exact.integer_filters(net, rng, 1) for _ in range(6)]
    points = [np.zeros(net.end_to_end_shape, int), *map(net.end_to_end, tuples)]
    return at_least(int(not all(fs.is_smooth(net, v) for v in points)), 1)


@sing_exist.amend(
    control("strides of one", lambda: LinearConvNet((3, 2), (1, 1))),
    cases=lambda rng, draws: [
        *exact.all_nets((2, 3, 4, 5), (2, 3, 4), (2,)),
        *exact.all_nets((2, 3, 4), (2, 3), (3,)),
    ],
)
def exist_amended(net: LinearConvNet) -> Check:
    """D = 1: if H > 1 and s_1, …, s_{H−1} > 1, then 0 is a singular point of the neuromanifold.

    A cone that is a manifold at its apex is a linear space; M spans more than dim M
    dimensions, so 0 is singular.
    """
    return at_least(locus.span_of(net), fs.neuromanifold_dimension(net) + 1)


_TWO = [
    *exact.all_nets((2, 3), (2, 3), (2,)),
    *(LinearConvNet(k, (2, 1)) for k in ((4, 2), (4, 3), (5, 2), (5, 3))),
]
_THREE = [LinearConvNet(k, (2, 2, 1)) for k in ((2, 3, 2), (3, 2, 2), (3, 3, 2))]


def _signed_and_planted(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """All filters with entries −1, 0, 1 of the smallest nets, of which y⁸ at sizes (3, 2, 2) is one,
    then tuples with planted factors.
    """
    yield from ((net, params) for net in SMALLEST for params in exact.signed_filters(net))
    yield from locus.planted(rng, draws, [*_TWO, *_THREE])


_EVEN = LinearConvNet((5, 2), (2, 1)), (np.array([1, 0, 0, 0, 1]), np.array([1, 1]))


@exact.statement(
    "sing (locus), amended",
    _signed_and_planted,
    control(
        "real tuples instead of complex ones, over (x⁴ + y⁴)(x² + y²)", lambda: _EVEN, real=True
    ),
    amends=("sing (⊂)", "sing (⊃)"),
    draws=20,
)
def _amended(case: Any, real: bool = False) -> Check:
    """D = 1, s_1, …, s_{H−1} > 1, v ≠ 0, over ℂ: several tuples or a rank drop at v exactly when
    v lies in the complex neuromanifold of sizes (…, k_l − s_l, k_{l+1} + 1, …) for some l.
    """
    net, params = case
    v = net.end_to_end(params)
    sizes, strides = exact.sizes_of(net), tuple(s for (s,) in net.strides)
    moved = [
        (*sizes[:l], sizes[l] - strides[l], sizes[l + 1] + 1, *sizes[l + 2 :])
        for l in range(net.depth - 1)
        if sizes[l] > strides[l]
    ]
    smaller = any(locus.complex_tuples(other, strides, v) for other in moved)
    tuples = fs.fiber(net, v).factorisations if real else locus.complex_tuples(sizes, strides, v)
    singular = tuples > 1 or exact_jacobian_rank(net, params) < fs.neuromanifold_dimension(net)
    return equal(int(smaller), int(singular))


_EXAMPLE_16 = RUNNING, (np.array([1, 0, 2]), np.array([2, 1]))


Smaller = Callable[[LinearConvNet, np.ndarray], bool]


def _inside_exactly(case: Any) -> Check:
    net, params = case
    smaller = locus.in_smaller(net, net.end_to_end(params))
    return at_least(int(smaller), int(locus.several_or_drop(net, params)))


@exact.in_float64(
    "sing (⊂)",
    lambda rng, draws: chain([_EXAMPLE_16], locus.planted(rng, draws, _TWO)),
    control(
        "no neuromanifold taken for smaller",
        lambda: (LinearConvNet((3, 3), (2, 1)), (np.array([1, 0, 1]), np.array([0, 3, -2]))),
        smaller=lambda net, v: False,
    ),
    confirm=_inside_exactly,
    draws=20,
)
def sing_inside(case: Any, smaller: Smaller = locus.in_smaller) -> Check:
    """D = 1: a singular point of the neuromanifold is 0 or lies in a strictly smaller
    neuromanifold of the same strides.
    """
    net, params = case
    v = net.end_to_end(params)
    drops = outside("v is not singular", when=not locus.is_singular(net, v))
    return at_least(int(smaller(net, v)), 1, drops=drops)


def _outside_exactly(case: Any) -> Check:
    """M near v: everything (stride one), or one tuple of full rank, checked in exact arithmetic."""
    net, v = case
    if locus.whole_space(net):
        return at_least(len(v) - fs.neuromanifold_dimension(net), 1)
    tuples = fs.fiber(net, np.array(v), 0.0)
    rounded = tuple(np.round(w / np.abs(w).max(), 9).astype(int).astype(object) for w in tuples[0])
    dropped = fs.neuromanifold_dimension(net) - exact_jacobian_rank(net, rounded)
    return at_least(max(tuples.factorisations - 1, dropped), 1)


def _smaller_points(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    yield LinearConvNet((3, 3), (1, 1)), [1, 0, 0, 0, -1]
    yield LinearConvNet((5, 2), (2, 1)), [1, 0, 1, 0, 1, 0, 1]
    for k, s in (((3, 3), 1), ((5, 2), 2), ((3, 3), 2), ((5, 3), 2)):
        net = LinearConvNet(k, (s, 1))
        for small in locus.contained(k, s):
            for _ in range(3):
                if small[0] == 1:
                    v = np.zeros(net.end_to_end_shape, int)
                    v[::s] = rng.integers(-2, 3, len(v[::s]))
                else:
                    other = LinearConvNet(small, (s, 1))
                    v = np.array(other.end_to_end(exact.integer_filters(other, rng, 2)), int)
                yield net, v.tolist()


@exact.in_float64(
    "sing (⊃)",
    _smaller_points,
    control("a filter outside the smaller neuromanifold", lambda: (RUNNING, [1, 2, 3, 2, 2])),
    confirm=_outside_exactly,
    show=lambda case: f"nm.{case[0]!r}, np.array({case[1]})",
)
def sing_outside(case: Any) -> Check:
    """D = 1: every strictly smaller neuromanifold of the same strides consists of singular
    points.
    """
    net, v = case
    smooth = not locus.is_singular(net, np.array(v))
    drops = outside(
        "v lies in no smaller neuromanifold", when=not locus.in_smaller(net, np.array(v))
    )
    return at_most(int(smooth), 0, drops=drops)


@exact.in_float64(
    "sing (tuples)",
    _signed_and_planted,
    control(
        "stride one: three tuples over x²y + xy², where M = ℝ⁴",
        lambda: (LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 0]), np.array([1, 1]))),
    ),
    draws=20,
)
def sing_several(case: Any) -> Check:
    """D = 1, inner strides above one: v ≠ 0 is singular exactly when several tuples lie over it
    or dμ drops rank at the only one.
    """
    net, params = case
    v = net.end_to_end(params)
    return equal(int(locus.several_or_drop(net, params)), int(locus.is_singular(net, v)))


# Kernels of different tuples: far above rounding, about 1e-15.
_DISTINCT = 1e-4


@exact.in_float64(
    "sing (kernels)",
    lambda rng, draws: locus.planted(rng, draws, [*_TWO, *_THREE]),
    control(
        "the two orders of equal-sized filters at stride one, balanced",
        lambda: (LinearConvNet((2, 2), (1, 1)), (np.array([1, 2]), np.array([2, 1]))),
    ),
    draws=20,
)
def sing_kernels(case: Any) -> Check:
    """D = 1, inner strides above one: at a singular v ≠ 0 the NTK drops rank or, over several
    tuples, the balanced NTKs differ.
    """
    net, params = case
    over = fs.fiber(net, net.end_to_end(params), 0.0)
    full = exact_jacobian_rank(net, params) == fs.neuromanifold_dimension(net)
    if over.factorisations == 1:
        drops = exact.rank(fs.filter_kernel(net, params)) < fs.neuromanifold_dimension(net)
        return equal(int(drops), 1, drops=outside("v is not singular", when=full))
    return at_least(over.kernel_spread, _DISTINCT)
