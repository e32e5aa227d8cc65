"""`riemann`, Sec 2 and 2.1: where the neuromanifold of a one-dimensional network is singular."""

from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, at_most, equal, outside
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.exact import (
    hypotheses,
    integer_filters,
    line_nets,
    rank,
    show_filters,
    signed_filters,
)
from neuromanifold_papers.riemann.statements.locus import (
    complex_tuples,
    contained,
    in_smaller,
    is_singular,
    planted,
    several_or_drop,
    span_of,
    whole_space,
)
from neuromanifold_papers.statement import control, statement


def _exist_by_dimension(net: LinearConvNet) -> Check:
    """How many filters with entries −1, 0, 1 are outside M: none where M is the whole space,
    which has no singular point.
    """
    missing = sum(
        not fs.fiber(net, np.array(v), starts=1).in_neuromanifold for v in _box(net) if any(v)
    )
    return at_least(missing, 1, hypotheses=hypotheses(net))


def _box(net: LinearConvNet) -> Iterator[tuple[int, ...]]:
    return product((-1, 0, 1), repeat=net.end_to_end_shape[0])


@statement(
    "sing (existence)",
    lambda rng, draws: line_nets((2, 3), (1, 2), (2, 3)),
    control("one layer, where M = ℝ³ is a linear space", lambda: LinearConvNet((3,), (1,))),
    confirm=_exist_by_dimension,
)
def sing_exist(net: LinearConvNet) -> Check:
    """D = 1: if H > 1, the neuromanifold has singular points.

    Whether 0 or one of some products of integer filters is singular: the printed conclusion
    asks for at least one.
    """
    rng = np.random.default_rng(0)
    special = [
        tuple(np.eye(1, k, 0, dtype=int).ravel().astype(object) for (k,) in net.filter_shapes)
    ]
    points = [np.zeros(net.end_to_end_shape, int)]
    points += [
        net.end_to_end(params)
        for params in (*special, *(integer_filters(net, rng, 1) for _ in range(6)))
    ]
    return at_least(
        int(not all(fs.is_smooth(net, v) for v in points)), 1, hypotheses=hypotheses(net)
    )


@statement(
    "sing (existence), amended",
    lambda rng, draws: [
        *line_nets((2, 3, 4, 5), (2, 3, 4), (2,)),
        *line_nets((2, 3, 4), (2, 3), (3,)),
    ],
    control("strides of one", lambda: LinearConvNet((3, 2), (1, 1))),
    amends="sing (existence)",
)
def exist_amended(net: LinearConvNet) -> Check:
    """D = 1: if H > 1 and s_1, …, s_{H−1} > 1, then 0 is a singular point of the neuromanifold.

    A cone that is a manifold at its apex is a linear space; M spans more than dim M
    dimensions, so 0 is singular.
    """
    return at_least(span_of(net), fs.neuromanifold_dimension(net) + 1, hypotheses=hypotheses(net))


_TWO = [
    *line_nets((2, 3), (2, 3), (2,)),
    *(LinearConvNet(k, (2, 1)) for k in ((4, 2), (4, 3), (5, 2), (5, 3))),
]
_THREE = [LinearConvNet(k, (2, 2, 1)) for k in ((2, 3, 2), (3, 2, 2), (3, 3, 2))]


def _every_sign() -> Iterator[Any]:
    """All filters with entries −1, 0, 1 of the smallest nets: y⁸ at sizes (3, 2, 2) is one."""
    nets = (LinearConvNet((2, 2), (2, 1)), RUNNING, LinearConvNet((3, 2, 2), (2, 2, 1)))
    return ((net, params) for net in nets for params in signed_filters(net))


def _signed_and_planted(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Filters with entries −1, 0, 1, then tuples with planted factors."""
    return chain(_every_sign(), planted(rng, draws, [*_TWO, *_THREE]))


_EVEN = LinearConvNet((5, 2), (2, 1)), (np.array([1, 0, 0, 0, 1]), np.array([1, 1]))


_LOCUS = """Sizes are at least 2. v is the product of w_l(x^{t_l}, y^{t_l}); with z = x^{t_l} and s = s_l, v lies in the
neuromanifold with k_l − s, k_{l+1} + 1 exactly when some tuple over v has a w_l with a factor q(z^s), q a linear form: it moves
between w_l and w_{l+1}. *If:* there u = q w_{l+1} has k_{l+1} ≥ 2 linear factors over ℂ. Were two of them different, each could
stay in w_l: two tuples. Else u = c q^k with k = k_{l+1}, and for a linear form p not parallel to q the tangent ẇ_l = (w_l/q)p,
ẇ_{l+1} = −p w_{l+1}/q is no scaling, yet ẇ_l w_{l+1} + w_l ẇ_{l+1} = 0: dμ drops rank. *Only if:* let no w_l have such a factor,
and v = w_1 u(x^s, y^s), s = s_1 > 1. For each q, q(x^s, y^s) is x^s, y^s, or a product of s different linear forms, and different q
share none. So the greatest m with q(x^s, y^s)^m | v is the multiplicity of q in u, since w_1 has no such factor: u of any other
tuple over v divides this one, and has its degree. So u and w_1 are determined up to scalars, and by induction all w_l: one tuple.
If dμ vanishes on (ẇ_l), then ẇ_1/w_1 is a quotient in (x^s, y^s); in lowest terms a/b, a and b are multiplied by one root of unity
when x is, so they share a power of x and of y, which is 1, and b = b'(x^s, y^s) divides w_1: b is constant, ẇ_1 a multiple of w_1,
and by induction all ẇ_l of w_l: dμ has full rank."""


@statement(
    "sing (locus), amended",
    _signed_and_planted,
    control(
        "real tuples instead of complex ones, over (x⁴ + y⁴)(x² + y²)", lambda: _EVEN, real=True
    ),
    amends=("sing (⊂)", "sing (⊃)"),
    show=show_filters,
    draws=20,
    proof=_LOCUS,
)
def _amended(case: Any, real: bool = False) -> Check:
    """D = 1, s_1, …, s_{H−1} > 1, v ≠ 0, over ℂ: several tuples or a rank drop at v exactly when
    v lies in the complex neuromanifold of sizes (…, k_l − s_l, k_{l+1} + 1, …) for some l.
    """
    net, params = case
    v = net.end_to_end(params)
    sizes, strides = tuple(k for (k,) in net.filter_shapes), tuple(s for (s,) in net.strides)
    smaller = any(
        complex_tuples(
            (*sizes[:l], sizes[l] - strides[l], sizes[l + 1] + 1, *sizes[l + 2 :]), strides, v
        )
        for l in range(net.depth - 1)
        if sizes[l] > strides[l]
    )
    tuples = fs.fiber(net, v).factorisations if real else complex_tuples(sizes, strides, v)
    singular = tuples > 1 or exact_jacobian_rank(net, params) < fs.neuromanifold_dimension(net)
    return equal(int(smaller), int(singular), hypotheses=hypotheses(net))


_EXAMPLE_16 = RUNNING, (np.array([1, 0, 2]), np.array([2, 1]))


Smaller = Callable[[LinearConvNet, np.ndarray], bool]


def _inside_exactly(case: Any) -> Check:
    net, params = case
    return at_least(int(in_smaller(net, net.end_to_end(params))), int(several_or_drop(net, params)))


@statement(
    "sing (⊂)",
    lambda rng, draws: chain([_EXAMPLE_16], planted(rng, draws, _TWO)),
    control(
        "no neuromanifold taken for smaller", lambda: _EXAMPLE_16, smaller=lambda net, v: False
    ),
    method="float64",
    confirm=_inside_exactly,
    show=show_filters,
    draws=20,
)
def sing_inside(case: Any, smaller: Smaller = in_smaller) -> Check:
    """D = 1: a singular point of the neuromanifold is 0 or lies in a strictly smaller
    neuromanifold of the same strides.
    """
    net, params = case
    v = net.end_to_end(params)
    drops = outside("v is not singular", when=not is_singular(net, v))
    return at_least(int(smaller(net, v)), 1, drops=drops, hypotheses=hypotheses(net))


def _outside_exactly(case: Any) -> Check:
    """M near v: everything (stride one), or one tuple of full rank, checked in exact arithmetic."""
    net, v = case
    if whole_space(net):
        return at_least(len(v) - fs.neuromanifold_dimension(net), 1)
    tuples = fs.fiber(net, np.array(v), 0.0)
    rounded = tuple(np.round(w / np.abs(w).max(), 9).astype(int).astype(object) for w in tuples[0])
    return at_least(
        max(
            tuples.factorisations - 1,
            fs.neuromanifold_dimension(net) - exact_jacobian_rank(net, rounded),
        ),
        1,
    )


def _smaller_points(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    yield LinearConvNet((3, 3), (1, 1)), [1, 0, 0, 0, -1]
    yield LinearConvNet((5, 2), (2, 1)), [1, 0, 1, 0, 1, 0, 1]
    for k, s in (((3, 3), 1), ((5, 2), 2), ((3, 3), 2), ((5, 3), 2)):
        net = LinearConvNet(k, (s, 1))
        for small in contained(k, s):
            for _ in range(3):
                if small[0] == 1:
                    v = np.zeros(net.end_to_end_shape, int)
                    v[::s] = rng.integers(-2, 3, len(v[::s]))
                else:
                    other = LinearConvNet(small, (s, 1))
                    v = np.array(other.end_to_end(integer_filters(other, rng, 2)), int)
                yield net, v.tolist()


@statement(
    "sing (⊃)",
    _smaller_points,
    control("a filter outside the smaller neuromanifold", lambda: (RUNNING, [1, 2, 3, 2, 2])),
    method="float64",
    confirm=_outside_exactly,
    show=lambda case: f"nm.{case[0]!r}, np.array({case[1]})",
)
def sing_outside(case: Any) -> Check:
    """D = 1: every strictly smaller neuromanifold of the same strides consists of singular
    points.
    """
    net, v = case
    smooth = not is_singular(net, np.array(v))
    drops = outside("v lies in no smaller neuromanifold", when=not in_smaller(net, np.array(v)))
    return at_most(int(smooth), 0, drops=drops, hypotheses=hypotheses(net))


@statement(
    "sing (tuples)",
    _signed_and_planted,
    control(
        "stride one: three tuples over x²y + xy², where M = ℝ⁴",
        lambda: (LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 0]), np.array([1, 1]))),
    ),
    method="float64",
    show=show_filters,
    draws=20,
)
def sing_several(case: Any) -> Check:
    """D = 1, inner strides above one: v ≠ 0 is singular exactly when several tuples lie over it
    or dμ drops rank at the only one.
    """
    net, params = case
    v = net.end_to_end(params)
    return equal(
        int(several_or_drop(net, params)), int(is_singular(net, v)), hypotheses=hypotheses(net)
    )


# Kernels of different tuples: far above rounding, about 1e-15.
_DISTINCT = 1e-4


@statement(
    "sing (kernels)",
    lambda rng, draws: planted(rng, draws, [*_TWO, *_THREE]),
    control(
        "the two orders of equal-sized filters at stride one, balanced",
        lambda: (LinearConvNet((2, 2), (1, 1)), (np.array([1, 2]), np.array([2, 1]))),
    ),
    method="float64",
    show=show_filters,
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
        drops = rank(fs.filter_kernel(net, params)) < fs.neuromanifold_dimension(net)
        return equal(
            int(drops), 1, drops=outside("v is not singular", when=full), hypotheses=hypotheses(net)
        )
    return at_least(over.kernel_spread, _DISTINCT, hypotheses=hypotheses(net))


GROUP = (sing_exist, sing_inside, sing_outside, sing_several, sing_kernels)
