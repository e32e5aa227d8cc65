"""The singular locus of a one-dimensional neuromanifold by three routes: smaller architectures,
tuples and ranks, nearby tangents.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.assignment import Atom, factorisations
from neuromanifold.functionspace.roots import projective_roots
from neuromanifold.functionspace.search import join, split
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold_papers.riemann.statements.exact import integer_filters

_STEP, _FINE = 1e-6, 1e-5
_FULL = 1e-11
"""A second-order rank, about _FINE² relative to the largest singular value, is told from
rounding.
"""
_APART = 1e-2


def span_of(net: LinearConvNet) -> int:
    """The dimension of the linear span of M: the number of exponents that products of monomials
    reach.
    """
    degrees = product(*(range(k) for (k,) in net.filter_shapes))
    return len(
        {sum(i * t for i, (t,) in zip(index, net.dilations, strict=True)) for index in degrees}
    )


def whole_space(net: LinearConvNet) -> bool:
    """Whether M = ℝ^k by degrees: strides one and at most one filter of even size, that is of odd
    degree.

    A real polynomial of degree n is a product of real quadratic factors and, for odd n, one linear
    factor; the factors can be dealt to layers whose degrees are even but for at most one.
    """
    return set(net.strides[:-1]) <= {(1,)} and sum(k % 2 == 0 for (k,) in net.filter_shapes) <= 1


def contained(sizes: tuple[int, int], stride: int) -> Iterator[tuple[int, int]]:
    """The sizes k' ≠ k with M_{k'} ⊂ M_k strictly, for two layers of the same stride, over the
    reals.

    Stride s > 1: k' = (k_1 − s·a, k_2 + a), where a degree-a factor of the second layer must move
    to the first; every real polynomial of degree k_2 − 1 + a has a real factor of degree a exactly
    when a·(k_2 − 1) is even. Stride 1: M_k is everything unless both degrees are odd, and then
    M_{k'} ⊂ M_k strictly when both k' are even and not both k are.
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
    """Whether v is 0 or lies in a strictly contained neuromanifold of the same strides (two
    layers).
    """
    (k1,), (k2,) = net.filter_shapes
    stride = net.strides[0][0]
    return not v.any() or any(_member(v, small, stride) for small in contained((k1, k2), stride))


def _member(v: np.ndarray, sizes: tuple[int, int], stride: int) -> bool:
    if sizes[0] == 1:
        return not any(v[i] for i in range(len(v)) if i % stride)
    return fs.fiber(LinearConvNet(sizes, (stride, 1)), v, starts=1).in_neuromanifold


def nearby(net: LinearConvNet, params: Any, directions: int = 6) -> Iterator[np.ndarray]:
    """Parameters near a tuple: in random directions, along single coordinates, and along the kernel
    of dμ.

    At a filter over which dμ drops rank, generic directions may all lead to one tangent space and
    special ones to another: at y⁸, sizes (3, 2, 2), strides (2, 2, 1), to x³y⁵ in the first case
    and to x⁶y² where w_1 has no middle entry.
    """
    rng, theta = np.random.default_rng(0), join(params)
    size = np.linalg.norm(theta)
    yield from (theta + _STEP * size * rng.normal(size=theta.shape) for _ in range(directions))
    _, spectrum, right = np.linalg.svd(fs.filter_jacobian(net, params))
    kernel = right[int((spectrum > 1e-7 * spectrum[0]).sum()) :]
    for direction in (*np.eye(theta.size), *kernel):
        yield from (theta + sign * _FINE * size * direction for sign in (1, -1))


def tangent_spread(net: LinearConvNet, v: np.ndarray) -> float:
    """The largest distance between tangent spaces of M at filters close to v; small where M is a C¹
    manifold.

    Near v the neuromanifold is the union of the images of neighbourhoods of the tuples over v.
    Where dμ has no full rank nearby either, it gives no tangent space and is left out.
    """
    projectors, dimension = [], fs.neuromanifold_dimension(net)
    for params in fs.fiber(net, v, 0.0).up_to_signs:
        for near in nearby(net, params):
            left, spectrum, _ = np.linalg.svd(fs.filter_jacobian(net, split(net, near)))
            if spectrum[dimension - 1] > _FULL * spectrum[0]:
                projectors.append(left[:, :dimension] @ left[:, :dimension].T)
    return max(
        (float(np.linalg.norm(P - Q)) for i, P in enumerate(projectors) for Q in projectors[:i]),
        default=0.0,
    )


def is_singular(net: LinearConvNet, v: np.ndarray) -> bool:
    """By nearby tangent spaces; 0, where all filters are near, by the cone argument."""
    return not whole_space(net) if not v.any() else tangent_spread(net, v) > _APART


def several_or_drop(net: LinearConvNet, params: Any) -> bool:
    """Several tuples over μ(θ), or a rank of dμ below dim M at θ: the second printed
    description.
    """
    several = fs.fiber(net, net.end_to_end(params), 0.0).factorisations > 1
    return several or exact_jacobian_rank(net, params) < fs.neuromanifold_dimension(net)


def planted(rng: np.random.Generator, draws: int, nets: Any) -> Iterator[Any]:
    """Integer tuples, generic and with factors q(z^s) inside a layer, so that singular and
    smooth filters both occur.
    """
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


def complex_tuples(sizes: tuple[int, ...], strides: tuple[int, ...], v: np.ndarray) -> int:
    """The number of complex filter tuples over v up to scalars: orbits of roots dealt to the
    layers in all ways.
    """
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
                layer.append(
                    Atom(tuple(t * (p == place) for p in range(places)), (1,), np.array(ends))
                )
        atoms.append(layer)
    return len(factorisations(available, atoms, [(k - 1,) for k in sizes], 10_000))
