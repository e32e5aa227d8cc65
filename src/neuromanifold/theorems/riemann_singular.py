"""`riemann`, Sec 2 and 2.1: where the neuromanifold of a one-dimensional network is singular."""

from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.assignment import Atom, factorisations
from neuromanifold.functionspace.roots import projective_roots
from neuromanifold.functionspace.search import join, split
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold.theorems.riemann_conserved import RUNNING
from neuromanifold.theorems.riemann_exact import hypotheses, integer_filters, line_nets, rank, show_filters
from neuromanifold.theorems.statement import Check, Control, Statement

_STEP = 1e-6
_APART = 1e-2


def span_of(net: LinearConvNet) -> int:
    """The dimension of the linear span of M: the number of exponents that products of monomials reach."""
    degrees = product(*(range(k) for (k,) in net.filter_shapes))
    return len({sum(i * t for i, (t,) in zip(index, net.dilations, strict=True)) for index in degrees})


def whole_space(net: LinearConvNet) -> bool:
    """Whether M = ℝ^k by degrees: strides one and at most one filter of even size, that is of odd degree.

    A real polynomial of degree n is a product of real quadratic factors and, for odd n, one linear factor; the factors
    can be dealt to layers whose degrees are even but for at most one.
    """
    return set(net.strides[:-1]) <= {(1,)} and sum(k % 2 == 0 for (k,) in net.filter_shapes) <= 1


def _exist(net: LinearConvNet) -> Check:
    """Singular points among 0 and products of integer filters: the printed conclusion asks for at least one."""
    rng = np.random.default_rng(0)
    special = [tuple(np.eye(1, k, 0, dtype=int).ravel().astype(object) for (k,) in net.filter_shapes)]
    points = [np.zeros(net.end_to_end_shape, int)]
    points += [net.end_to_end(params) for params in (*special, *(integer_filters(net, rng, 1) for _ in range(6)))]
    singular = sum(not fs.is_smooth(net, v) for v in points)
    return Check(singular, 1, ">=", hypotheses=hypotheses(net))


def _exist_by_dimension(net: LinearConvNet) -> Check:
    """How many filters with entries −1, 0, 1 are outside M: none where M is the whole space, which has no singular point."""
    missing = sum(not fs.fiber(net, np.array(v), starts=1).in_neuromanifold for v in _box(net) if any(v))
    return Check(missing, 1, ">=", hypotheses=hypotheses(net))


def _box(net: LinearConvNet) -> Iterator[tuple[int, ...]]:
    return product((-1, 0, 1), repeat=net.end_to_end_shape[0])


def _exist_amended(net: LinearConvNet) -> Check:
    """A cone that is a manifold at its apex is a linear space; M spans more than dim M dimensions, so 0 is singular."""
    return Check(span_of(net), fs.dimension(net) + 1, ">=", hypotheses=hypotheses(net))


SING_EXIST = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (existence)",
    says="D = 1: if H > 1, the neuromanifold has singular points",
    method="exact",
    cases=lambda rng, draws: line_nets((2, 3), (1, 2), (2, 3)),
    measure=_exist,
    control=Control("one layer, where M = ℝ³ is a linear space", lambda: _exist(LinearConvNet((3,), (1,)))),
    confirm=_exist_by_dimension,
    route="filters with entries −1, 0, 1 that are not in M (none: M is all of ℝ⁴)",
    worked="""Sizes (2, 3), stride one: μ multiplies a real linear and a real quadratic form in two variables. Every real binary cubic
    has a real linear factor (a cubic changes sign, or has the factor x), so M = ℝ⁴, a linear space: no point of it is singular.
    The paper says so itself for sizes (3, 2) in Example 19. Where all inner strides exceed 1, 0 is singular: M is a cone, a cone
    that is a manifold at its apex is a linear space, and M spans more than dim M dimensions.""",
    amended=Statement(
        paper="riemann",
        row="dim, sing",
        id="sing (existence), amended",
        says="D = 1: if H > 1 and s_1, …, s_{H−1} > 1, then 0 is a singular point of the neuromanifold",
        method="exact",
        cases=lambda rng, draws: [*line_nets((2, 3, 4, 5), (2, 3, 4), (2,)), *line_nets((2, 3, 4), (2, 3), (3,))],
        measure=_exist_amended,
        control=Control("strides of one", lambda: _exist_amended(LinearConvNet((3, 2), (1, 1)))),
        exhaustive="sizes 2–5, strides 2–4 (H = 2) and sizes 2–4, strides 2–3 (H = 3)",
    ),
)


def contained(sizes: tuple[int, int], stride: int) -> Iterator[tuple[int, int]]:
    """The sizes k' ≠ k with M_{k'} ⊂ M_k strictly, for two layers of the same stride, over the reals.

    Stride s > 1: k' = (k_1 − s·a, k_2 + a), where a degree-a factor of the second layer must move to the first; every real
    polynomial of degree k_2 − 1 + a has a real factor of degree a exactly when a·(k_2 − 1) is even. Stride 1: M_k is
    everything unless both degrees are odd, and then M_{k'} ⊂ M_k strictly when both k' are even and not both k are.
    """
    (k1, k2), total = sizes, sum(sizes)
    if stride == 1:
        for other in range(2, total - 1):
            if other % 2 == 0 and (total - other) % 2 == 0 and not (k1 % 2 == 0 and k2 % 2 == 0):
                yield other, total - other
        return
    for a in range(1, (k1 - 1) // stride + 1):
        if a * (k2 - 1) % 2 == 0:
            yield k1 - stride * a, k2 + a


def in_smaller(net: LinearConvNet, v: np.ndarray) -> bool:
    """Whether v is 0 or lies in a strictly contained neuromanifold of the same strides (two layers)."""
    (k1,), (k2,) = net.filter_shapes
    stride = net.strides[0][0]
    return not v.any() or any(_member(v, small, stride) for small in contained((k1, k2), stride))


def _member(v: np.ndarray, sizes: tuple[int, int], stride: int) -> bool:
    if sizes[0] == 1:
        return not any(v[i] for i in range(len(v)) if i % stride)
    return fs.fiber(LinearConvNet(sizes, (stride, 1)), v, starts=1).in_neuromanifold


def tangent_spread(net: LinearConvNet, v: np.ndarray, directions: int = 6) -> float:
    """The largest distance between tangent spaces of M at filters close to v; small exactly where M is a C¹ manifold.

    Near v the neuromanifold is the union of the images of neighbourhoods of the tuples over v.
    """
    rng, projectors, dimension = np.random.default_rng(0), [], fs.dimension(net)
    for params in fs.fiber(net, v, 0.0).up_to_signs:
        theta = join(params)
        for _ in range(directions):
            near = theta + _STEP * np.linalg.norm(theta) * rng.normal(size=theta.shape)
            basis = np.linalg.svd(fs.filter_jacobian(net, split(net, near)))[0][:, :dimension]
            projectors.append(basis @ basis.T)
    return max((float(np.linalg.norm(P - Q)) for i, P in enumerate(projectors) for Q in projectors[:i]), default=0.0)


def is_singular(net: LinearConvNet, v: np.ndarray) -> bool:
    """By nearby tangent spaces; 0, where all filters are near, by the cone argument."""
    return not whole_space(net) if not v.any() else tangent_spread(net, v) > _APART


def _locus(case: Any) -> Check:
    net, params = case
    v = net.end_to_end(params)
    return Check(int(in_smaller(net, v)), int(is_singular(net, v)), hypotheses=hypotheses(net))


def _locus_exactly(case: Any) -> Check:
    """The same, singular meaning: several tuples, or an exact rank below dim M (for strides > 1)."""
    net, params = case
    v = net.end_to_end(params)
    return Check(int(in_smaller(net, v)), int(several_or_drop(net, params)), hypotheses=hypotheses(net))


def several_or_drop(net: LinearConvNet, params: Any) -> bool:
    """Several tuples over μ(θ), or a rank of dμ below dim M at θ: the second printed description."""
    several = fs.fiber(net, net.end_to_end(params), 0.0).factorisations > 1
    return several or exact_jacobian_rank(net, params) < fs.dimension(net)


def _planted(rng: np.random.Generator, draws: int, nets: Any) -> Iterator[Any]:
    """Integer tuples, generic and with factors q(z^s) inside a layer, so that singular and smooth filters both occur."""
    for net in nets:
        for _ in range(3):
            yield net, integer_filters(net, rng, 3)
        yield from _with_inner_factor(net, rng, 4)
    for _ in range(draws):
        net = nets[rng.integers(len(nets))]
        yield net, integer_filters(net, rng, 6)
        yield from _with_inner_factor(net, rng, 1)


def _with_inner_factor(net: LinearConvNet, rng: np.random.Generator, count: int) -> Iterator[Any]:
    """Tuples whose l-th filter is divisible by a polynomial in z^{s_l}."""
    for _ in range(count):
        l = int(rng.integers(net.depth - 1))
        (k,), (s,) = net.filter_shapes[l], net.strides[l]
        most = (k - 1) // s
        if most < 1 or s == 1:
            continue
        params = list(integer_filters(net, rng, 3))
        a = int(rng.integers(1, most + 1))
        inner = rng.integers(-3, 4, a + 1).astype(object)
        inner[0], inner[-1] = 1 + inner[0] % 3, 1 + inner[-1] % 3
        rest = rng.integers(-3, 4, k - s * a).astype(object)
        rest[0] = 1
        params[l] = compose([rest, inner], ((1,), (s,)))
        yield net, tuple(params)


_TWO = [*line_nets((2, 3), (2, 3), (2,)), *(LinearConvNet(k, (2, 1)) for k in ((4, 2), (4, 3), (5, 2), (5, 3)))]
_THREE = [LinearConvNet(k, (2, 2, 1)) for k in ((2, 3, 2), (3, 2, 2), (3, 3, 2))]


def complex_tuples(sizes: tuple[int, ...], strides: tuple[int, ...], v: np.ndarray) -> int:
    """The number of complex filter tuples over v up to scalars: orbits of roots dealt to the layers in all ways."""
    zero, infinity, roots, powers = projective_roots(v)
    dilations = np.cumprod([1, *strides[: len(sizes) - 1]])
    places = len(roots) + 2
    available = (*powers, zero, infinity)
    atoms = []
    for t in dilations.tolist():
        layer, taken = [], set()
        for i, root in enumerate(roots):
            turned = root * np.exp(2j * np.pi * np.arange(t) / t)
            distance = np.abs(turned[:, None] - roots)
            orbit = sorted(set(distance.argmin(axis=1).tolist()))
            if i in taken or len(orbit) < t or distance.min(axis=1).max() > 1e-6 * abs(root):
                continue
            taken.update(orbit)
            counts = tuple(int(p in orbit) for p in range(places))
            layer.append(Atom(counts, (1,), np.array([-(root**t), 1.0])))
        for place, ends in ((places - 2, [0.0, 1.0]), (places - 1, [1.0, 0.0])):
            if available[place] >= t:
                layer.append(Atom(tuple(t * (p == place) for p in range(places)), (1,), np.array(ends)))
        atoms.append(layer)
    return len(factorisations(available, atoms, [(k - 1,) for k in sizes], 10_000))


_EVEN = LinearConvNet((5, 2), (2, 1)), (np.array([1, 0, 0, 0, 1]), np.array([1, 1]))


def _complex_locus(case: Any, real: bool = False) -> Check:
    net, params = case
    v = net.end_to_end(params)
    sizes, strides = tuple(k for (k,) in net.filter_shapes), tuple(s for (s,) in net.strides)
    smaller = any(
        complex_tuples((*sizes[:l], sizes[l] - strides[l], sizes[l + 1] + 1, *sizes[l + 2 :]), strides, v)
        for l in range(net.depth - 1)
        if sizes[l] > strides[l]
    )
    tuples = fs.fiber(net, v).factorisations if real else complex_tuples(sizes, strides, v)
    singular = tuples > 1 or exact_jacobian_rank(net, params) < fs.dimension(net)
    return Check(int(smaller), int(singular), hypotheses=hypotheses(net))


_AMENDED = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (locus), amended",
    says="D = 1, s_1, …, s_{H−1} > 1, v ≠ 0, over ℂ: several tuples or a rank drop at v exactly when v lies in the complex neuromanifold "
    "of sizes (…, k_l − s_l, k_{l+1} + 1, …) for some l",
    method="exact",
    cases=lambda rng, draws: _planted(rng, draws, [*_TWO, *_THREE]),
    measure=_complex_locus,
    control=Control("real tuples instead of complex ones, over (x⁴ + y⁴)(x² + y²)", lambda: _complex_locus(_EVEN, real=True)),
    show=show_filters,
    draws=20,
)


_EXAMPLE_16 = RUNNING, (np.array([1, 0, 2]), np.array([2, 1]))


def _inside(case: Any) -> Check:
    net, params = case
    v = net.end_to_end(params)
    singular = is_singular(net, v)
    return Check(
        int(in_smaller(net, v)), 1, ">=", hypotheses=hypotheses(net), vacuous=not singular
    )


def _inside_exactly(case: Any) -> Check:
    net, params = case
    return Check(int(in_smaller(net, net.end_to_end(params))), int(several_or_drop(net, params)), ">=")


SING_INSIDE = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (⊂)",
    says="D = 1: a singular point of the neuromanifold is 0 or lies in a strictly smaller neuromanifold of the same strides",
    method="float64",
    cases=lambda rng, draws: chain([_EXAMPLE_16], _planted(rng, draws, _TWO)),
    measure=_inside,
    control=Control(
        "a filter with two tuples, asked of the sizes (2, 2) that leave none smaller",
        lambda: Check(len(list(contained((2, 2), 2))), 1, ">="),
    ),
    confirm=_inside_exactly,
    route="singular by its tuples and an exact rank",
    worked="""The paper's own example: sizes (3, 2), strides (2, 1). v = (2, 0, 5, 0, 2) is (x² + 2y²)(2x² + y²), whose two factors can be exchanged:
    two tuples, tangent spaces apart, so v is singular (Example 16). The only other sizes of the same strides and total size are (1, 3), all
    (v_0, 0, v_2, 0, v_4). That neuromanifold is not contained in M: x⁴ + y⁴ is in it, but M asks for v_2² ≥ 4v_0v_4. So no
    neuromanifold of these strides is strictly contained in M, and v is singular all the same. The description is that of the complex variety.""",
    show=show_filters,
    amended=_AMENDED,
    narrower="two layers, inner stride above one",
    draws=20,
)


def _outside(case: Any) -> Check:
    net, v = case
    smooth = not is_singular(net, np.array(v))
    return Check(int(smooth), 0, "<=", hypotheses=hypotheses(net), vacuous=not in_smaller(net, np.array(v)))


def _outside_exactly(case: Any) -> Check:
    """M near v: everything (stride one), or one tuple of full rank, checked in exact arithmetic."""
    net, v = case
    if whole_space(net):
        return Check(len(v) - fs.dimension(net), 1, ">=")
    tuples = fs.fiber(net, np.array(v), 0.0)
    rounded = tuple(np.round(w / np.abs(w).max(), 9).astype(int).astype(object) for w in tuples[0])
    return Check(max(tuples.factorisations - 1, fs.dimension(net) - exact_jacobian_rank(net, rounded)), 1, ">=")


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


SING_OUTSIDE = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (⊃)",
    says="D = 1: every strictly smaller neuromanifold of the same strides consists of singular points",
    method="float64",
    cases=_smaller_points,
    measure=_outside,
    control=Control(
        "a filter outside the smaller neuromanifold", lambda: Check(int(not is_singular(RUNNING, np.array([1, 2, 3, 2, 2]))), 0, "<=")
    ),
    confirm=_outside_exactly,
    route="codimension of M, or further tuples and missing rank, exactly",
    worked="""Stride one: M of sizes (3, 3) is ℝ⁵, because every real quartic is a product of two real quadratics. M of sizes (2, 4), the quartics with
    a real root, is strictly contained in it and has the same strides; x⁴ − y⁴ = (x − y)(x³ + x²y + xy² + y³) is one of its points. But ℝ⁵ has no
    singular points.

    Strides above one: sizes (5, 2), strides (2, 1), v = (x⁴ + y⁴)(x² + y²) = (1, 0, 1, 0, 1, 0, 1). It is a cubic in (x², y²), so it lies in the
    neuromanifold of sizes (1, 4), which M contains because every real cubic has a real root. This cubic has one: over v lies one real
    tuple up to scalars, dμ has rank 6 = dim M there, and M is a manifold near v. Over ℂ there are three tuples.""",
    show=lambda case: f"{case[0]!r}, np.array({case[1]})",
    amended=_AMENDED,
)


def _several(case: Any) -> Check:
    net, params = case
    v = net.end_to_end(params)
    return Check(int(several_or_drop(net, params)), int(is_singular(net, v)), hypotheses=hypotheses(net))


SING_SEVERAL = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (tuples)",
    says="D = 1, inner strides above one: v ≠ 0 is singular exactly when several tuples lie over it or dμ drops rank at the only one",
    method="float64",
    cases=lambda rng, draws: _planted(rng, draws, [*_TWO, *_THREE]),
    measure=_several,
    control=Control(
        "stride one: three tuples over x²y + xy², where M = ℝ⁴",
        lambda: _several((LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 0]), np.array([1, 1])))),
    ),
    show=show_filters,
    draws=20,
)


def _kernels(case: Any) -> Check:
    net, params = case
    over = fs.fiber(net, net.end_to_end(params), 0.0)
    full = exact_jacobian_rank(net, params) == fs.dimension(net)
    if over.factorisations == 1:
        drops = rank(fs.filter_kernel(net, params)) < fs.dimension(net)
        return Check(int(drops), 1, hypotheses=hypotheses(net), vacuous=full)
    return Check(over.kernel_spread, _APART / 100, ">=", hypotheses=hypotheses(net))


SING_KERNELS = Statement(
    paper="riemann",
    row="dim, sing",
    id="sing (kernels)",
    says="D = 1, inner strides above one: at a singular v ≠ 0 the NTK drops rank or, over several tuples, the balanced NTKs differ",
    method="float64",
    cases=lambda rng, draws: _planted(rng, draws, [*_TWO, *_THREE]),
    measure=_kernels,
    control=Control(
        "the two orders of equal-sized filters at stride one, balanced",
        lambda: _kernels((LinearConvNet((2, 2), (1, 1)), (np.array([1, 2]), np.array([2, 1])))),
    ),
    show=show_filters,
    draws=20,
    narrower="the printed 'generally', at δ = 0",
)

GROUP = (SING_EXIST, SING_INSIDE, SING_OUTSIDE, SING_SEVERAL, SING_KERNELS)
