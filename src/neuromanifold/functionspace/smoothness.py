"""The smooth locus of a neuromanifold of linear convolutional networks."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from neuromanifold.functionspace.fiber import fiber
from neuromanifold.functionspace.kernel import filter_jacobian
from neuromanifold.functionspace.polynomial import multiply, primitive
from neuromanifold.functionspace.rescale import FilterLike, Filters
from neuromanifold.functionspace.roots import projective_roots
from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.rank import Rank
from neuromanifold.numerics.results import Array, Result

_SLACK = float(np.finfo(np.float64).eps) ** -0.5


@dataclass(frozen=True, repr=False)
class Smoothness(Result):
    """Whether the neuromanifold is an embedded manifold near v, and why.

    `factorisations` counts the real filter tuples over v up to scalars, up to swaps of layers that
    live in the same space, and (one dimension) up to factorisations inside runs of layers with
    stride one; `rank` is that of the differential there and `dimension` the neuromanifold's.
    """

    smooth: bool
    reason: str
    factorisations: int
    dimension: int
    rank: Rank | None = None

    def __bool__(self) -> bool:
        return self.smooth


def neuromanifold_dimension(net: LinearConvNet) -> int:
    """Return dim M = Σ_l size(w_l) − (H − 1): parameters less layer rescalings.   [riemann, Sec 2]

    >>> neuromanifold_dimension(LinearConvNet((3, 2), (2, 1)))
    4
    """
    return net.n_params - (net.depth - 1)


def jacobian_rank(net: LinearConvNet, params: Params) -> Rank:
    """The rank of dμ at θ, from singular values.

    Filters that come from a fibre over a double root are known to √eps only, so the threshold is
    that much wider.
    """
    spectrum = np.linalg.svd(filter_jacobian(net, params), compute_uv=False)
    threshold = (
        max(int(np.prod(net.end_to_end_shape)), net.n_params)
        * np.finfo(np.float64).eps
        * spectrum[0]
        * _SLACK
    )
    value = int((spectrum > threshold).sum())
    dropped = spectrum[value] if value < len(spectrum) else 0.0
    gap = spectrum[value - 1] / dropped if value and dropped else np.inf
    return Rank(np.int64(value), spectrum, np.float64(threshold), np.float64(gap))


def exact_jacobian_rank(net: LinearConvNet, params: Params) -> int:
    """The rank of dμ at rational filters, in exact arithmetic."""
    import flint

    from neuromanifold.functionspace.polynomial import exact

    J = filter_jacobian(net, tuple(exact(w) for w in params))
    return flint.fmpz_mat(J.shape[0], J.shape[1], primitive(J)).rank()


def is_smooth(net: LinearConvNet, v: FilterLike) -> Smoothness:
    """Return whether v is a smooth point of the neuromanifold M, as a subset of ℝ^k.
    [riemann, Sec 2.1, Thm 13]

    v is smooth exactly when it has one real filter tuple (up to scalars and swaps) at which dμ has
    rank dim M. In one dimension, layers joined by stride one are first merged into one layer; the
    merged filter must then be an interior point of the polynomials that factor, that is: have at
    least as many real roots of odd multiplicity as there are layers of even size. For D ≥ 2 every
    layer needs two sizes above 1 [riemann, Cor 10].

    >>> net = LinearConvNet((3, 2), (2, 1))                                       # [riemann, Ex 15, 16]
    >>> bool(is_smooth(net, np.array([1, 2, 3, 2, 2]))), bool(is_smooth(net, np.array([2, 0, 5, 0, 2])))
    (True, False)
    """
    if net.dimension > 1 and any(sum(k > 1 for k in shape) < 2 for shape in net.filter_shapes):
        raise ValueError(
            f"`net` has the filter shapes {net.filter_shapes}; for D ≥ 2 smoothness is decided "
            "when every layer has two sizes above 1: pass such filters."
        )
    over = fiber(net, v, 0.0)
    if not over.in_neuromanifold:
        raise ValueError(
            "`v` is not in the neuromanifold: the best fit found is at relative distance "
            f"{over.distance:.3g}; pass the end-to-end filter of some parameters."
        )
    if not over.v.any():
        return _at_zero(net)
    return (
        _one_dimension(net, over.up_to_signs)
        if net.dimension == 1
        else _higher(net, over.up_to_signs)
    )


def swappable(net: LinearConvNet, first: int, second: int) -> bool:
    """Return whether two layers' polynomials live in one space: equal shapes, equal dilations where
    a size exceeds 1.   [riemann, Obs 11]

    `first` and `second` are the numbers of the layers, from 0.
    """
    k, t, u = net.filter_shapes[first], net.dilations[first], net.dilations[second]
    return k == net.filter_shapes[second] and all(
        a == b for a, b, size in zip(t, u, k, strict=True) if size > 1
    )


def layer_permutations(net: LinearConvNet) -> Iterator[tuple[int, ...]]:
    """The permutations of the layers that leave every end-to-end filter in place."""
    for order in permutations(range(net.depth)):
        if all(swappable(net, l, target) for l, target in enumerate(order)):
            yield order


def stride_one_runs(net: LinearConvNet) -> list[list[int]]:
    """Layers of a one-dimensional net joined by stride one, in runs."""
    runs = [[0]]
    for l in range(1, net.depth):
        if net.strides[l - 1] == (1,):
            runs[-1].append(l)
        else:
            runs.append([l])
    return runs


def merge_layers(net: LinearConvNet) -> LinearConvNet:
    """The one-dimensional net with each run of stride-one layers made one layer."""
    runs = stride_one_runs(net)
    sizes = [1 + sum(net.filter_shapes[l][0] - 1 for l in run) for run in runs]
    return LinearConvNet(sizes, [net.strides[run[-1]][0] for run in runs])


def _at_zero(net: LinearConvNet) -> Smoothness:
    everything = (
        net.dimension == 1
        and len(stride_one_runs(net)) == 1
        and _even_layers(net, range(net.depth)) <= 1
    )
    if net.depth == 1 or everything:
        return Smoothness(
            True,
            "v is zero, but the neuromanifold is the whole space",
            1,
            neuromanifold_dimension(net),
        )
    return Smoothness(
        False,
        "v is zero, the apex of a cone that is not a linear space",
        1,
        neuromanifold_dimension(net),
    )


def _even_layers(net: LinearConvNet, layers: Any) -> int:
    return sum(net.filter_shapes[l][0] % 2 == 0 for l in layers)


def _one_dimension(net: LinearConvNet, tuples: tuple[Filters, ...]) -> Smoothness:
    runs, coarse = stride_one_runs(net), merge_layers(net)
    blocks = _distinct([tuple(_block(params, run) for run in runs) for params in tuples])
    if len(blocks) > 1:
        return Smoothness(
            False, "several filter tuples lie over v", len(blocks), neuromanifold_dimension(net)
        )
    rank = jacobian_rank(coarse, blocks[0])
    if int(rank) < neuromanifold_dimension(coarse):
        return Smoothness(
            False, "the differential drops rank", 1, neuromanifold_dimension(net), rank
        )
    for run, block in zip(runs, blocks[0], strict=True):
        if _odd_real_roots(block) < _even_layers(net, run):
            return Smoothness(
                False,
                f"layers {run} are at the boundary of what real factors give",
                1,
                neuromanifold_dimension(net),
                rank,
            )
    return Smoothness(True, "one filter tuple, full rank", 1, neuromanifold_dimension(net), rank)


def _block(params: Filters, run: list[int]) -> np.ndarray:
    block = params[run[0]]
    for l in run[1:]:
        block = multiply(block, params[l])
    return block


def _odd_real_roots(p: Array) -> int:
    zero, infinity, roots, powers = projective_roots(p)
    return (
        zero % 2
        + infinity % 2
        + sum(power % 2 for root, power in zip(roots, powers, strict=True) if root.imag == 0)
    )


def _higher(net: LinearConvNet, tuples: tuple[Filters, ...]) -> Smoothness:
    orders = list(layer_permutations(net))
    classes: list[Filters] = []
    for params in tuples:
        if not any(
            _same(tuple(params[o] for o in order), other) for other in classes for order in orders
        ):
            classes.append(params)
    if len(classes) > 1:
        return Smoothness(
            False, "several filter tuples lie over v", len(classes), neuromanifold_dimension(net)
        )
    rank = jacobian_rank(net, classes[0])
    if int(rank) < neuromanifold_dimension(net):
        return Smoothness(
            False, "the differential drops rank", 1, neuromanifold_dimension(net), rank
        )
    return Smoothness(True, "one filter tuple, full rank", 1, neuromanifold_dimension(net), rank)


def _distinct(tuples: list[Filters]) -> list[Filters]:
    kept: list[Filters] = []
    for params in tuples:
        if not any(_same(params, other) for other in kept):
            kept.append(params)
    return kept


def _same(first: Filters, second: Filters) -> bool:
    """Equal up to scalars, to the accuracy that a double root allows."""
    return all(
        1 - abs(np.vdot(a, b)) / (np.linalg.norm(a) * np.linalg.norm(b)) <= 1e-11
        for a, b in zip(first, second, strict=True)
    )
