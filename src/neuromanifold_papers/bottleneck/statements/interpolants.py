"""`bottleneck`, interpolants of rank 1: Theorem 10.   [bottleneck, Thm 10]"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from neuromanifold.bottleneck import Interpolant, folded_interpolant, polyline_interpolant
from neuromanifold.bottleneck.balance import balance
from neuromanifold.bottleneck.passage import passage
from neuromanifold_papers.bottleneck.statements.cases import compare, missed, network, numeric
from neuromanifold_papers.check import Check, at_least
from neuromanifold_papers.statement import control

Family = tuple[str, int, float, tuple[Interpolant, ...]]


def shrunk(found: Interpolant, factor: float) -> Interpolant:
    """The same for targets `factor` times as large, the factor spread over all layers and
    balanced again.
    """
    root = factor ** (1 / found.net.depth)
    layers = []
    for index, layer in enumerate(found.params, start=1):
        layers.append(layer._replace(weight=layer.weight * root, bias=layer.bias * root**index))
    return replace(found, params=balance(found.net, tuple(layers)), y=found.y * factor)


@cache
def _folded(dimension: int, folds: tuple[int, ...], factor: float) -> tuple[Interpolant, ...]:
    found = tuple(folded_interpolant(dimension, q, 10) for q in folds)
    return found if factor == 1 else tuple(shrunk(i, factor) for i in found)


def interpolants(rng: np.random.Generator, draws: int) -> Iterator[Family]:
    """Folded curves through lattices of dimensions 2 and 3, and polylines through random points;
    targets of three sizes.
    """
    factors = (1.0, 0.01, 0.1)
    for (k, folds), factor in itertools.product(((2, (1, 2, 3)), (3, (1, 2))), factors):
        yield "folded", k, factor, _folded(k, folds, factor)
    for index in range(1 + draws // 20):
        points = [rng.uniform(0.1, 1, size=(n, 2)) for n in (6, 12, 24)]
        factor = factors[index % 3]
        found = tuple(shrunk(polyline_interpolant(p, 8), factor) for p in points)
        yield "polyline", 2, factor, found


def apart(y: np.ndarray) -> np.ndarray:
    """The distances between all pairs of points."""
    return np.linalg.norm(y[:, None] - y, axis=2)


def least_cost(n: int, dimension: int) -> float:
    """2(1 − 1/k*) log N."""
    return 2 * (1 - 1 / dimension) * math.log(n)


def _fits(found: Interpolant) -> bool:
    return missed(found, found.y) <= 1e-6 * np.abs(found.y).max()


def path_cost(found: Interpolant) -> float:
    """2 log(length of the shortest path / diameter of the sample).

    What a path through all points cannot be shorter than is ½ Σ (d₁ + d₂) over nearest and second
    nearest, less the ends' share.
    """
    nearest = np.sort(apart(found.y), axis=1)[:, 1:3]
    length = float(nearest.sum() / 2 - nearest[:, 1].max())
    return 2 * math.log(length / float(apart(found.x).max()))


def kernel_bound(found: Interpolant) -> float:
    """log of c·N^{4−4/k*} with c the fourth power of ℓ/(N^{1−1/k*}·diam Ω), which scales with
    the target: 4 log(ℓ/diam Ω).
    """
    return 2 * path_cost(found)


def _closest(sides: list[tuple[float, float]]) -> Check:
    """left ≥ right where they are closest."""
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(left, ">=", right, 1e-9 * (1 + abs(left)), cases=len(sides))


def confirm_least_cost(case: Family) -> Check:
    """The sums of squares of all weights and biases with `math.fsum`, and the fit itself."""
    _, k, _, found = case
    assert all(map(_fits, found))
    sides = []
    for i in found:
        entries = np.concatenate([np.ravel(part) for layer in i.params for part in layer])
        norm = math.fsum(w * w for w in entries.tolist())
        sides.append((norm - len(i.params), least_cost(len(i.y), k)))
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return at_least(left, right, 1e-9)


_IMPORT = (
    "from neuromanifold_papers.bottleneck.statements.interpolants import folded_interpolant, shrunk"
)


def _show_family(case: Family) -> str:
    name, k, factor, found = case
    if name == "line":
        return f"from {line.__module__} import line\nline({factor}, 60).trace"
    if name == "folded":
        costs = ", ".join(f"{i.c1:.6g}" for i in found)
        made = [
            f"shrunk(folded_interpolant({k}, {q}, 10), {factor})" for q in range(1, len(found) + 1)
        ]
        return (
            f"{_IMPORT}\n[i.c1 for i in ({', '.join(made)})]  # {costs} for N = "
            f"{[len(i.y) for i in found]}"
        )
    return (
        f"polylines through {[len(i.y) for i in found]} random points of the square, targets × "
        f"{factor}, depth 8"
    )


def line(factor: float, depth: int) -> Interpolant:
    """f = factor·x at 0, ½ and 1 through one neuron in every layer: a path as long as its ends
    are apart.
    """
    x = np.array([[0.0], [0.5], [1.0]])
    chain = network([[[factor ** (1 / depth)]]] * depth, x, biases=[[0.0]] * depth)
    return Interpolant(chain.net, chain.params, x, factor * x)


def paths(rng: np.random.Generator, draws: int) -> Iterator[Family]:
    """Straight lines, which nearly attain the bound, and then the interpolants."""
    yield from (("line", 1, factor, (line(factor, 60),)) for factor in (1.0, 4.0, 0.25))
    yield from interpolants(rng, draws)


of_families = partial(
    numeric,
    show=_show_family,
    covers=lambda case: {
        "interpolant": case[0],
        "k*": case[1],
        "size of targets": case[2],
        "N": str([len(i.y) for i in case[3]]),
    },
)
"""A statement whose cases are families of interpolants."""


@of_families(
    "Thm 10",
    paths,
    control(
        "the bound raised by ½ at a line of slope 4, where there is room for 0.02",
        lambda: ("line", 1, 4.0, (line(4.0, 60),)),
        bound=lambda found: kernel_bound(found) + 0.5,
    ),
)
def kernel(case: Family, bound: Callable[[Interpolant], float] = kernel_bound) -> Check:
    """Rank-1 interpolants of N points of a k*-dimensional target have Tr Θ(x, x) ≥
    c·L·e^{−c₁}·N^{4−4/k*} somewhere.

    log(max Tr Θ(x, x)/L) + c₁ over the training points, against log(c·N^{4−4/k*}), where it
    is closest.
    """
    found = case[3]
    assert all(map(_fits, found))
    assert all(min(i.net.widths) == 1 for i in found)
    return _closest([(math.log(i.trace / i.net.depth) + i.c1, bound(i)) for i in found])


@of_families(
    "Thm 10 (c₁)",
    interpolants,
    control(
        "the exponent 2 − 2/k* raised by 30 at N = 64",
        lambda: ("folded", 2, 1.0, _folded(2, (3,), 1.0)),
        bound=lambda n, k: least_cost(n, k) + 30 * math.log(n),
    ),
    confirm=confirm_least_cost,
)
def cost(case: Family, bound: Callable[[int, int], float] = least_cost) -> Check:
    """Rank-1 interpolants of N points of a k*-dimensional target have c₁ = ‖θ‖² − L ≥ 2(1 − 1/k*)
    log N.

    c₁ against 2(1 − 1/k*) log N, where it is closest.
    """
    _, k, _, found = case
    return _closest([(i.c1, bound(len(i.y), k)) for i in found])


@cost.amend(
    control(
        "2.2 in place of 2, at f = 4x in 60 layers",
        lambda: ("line", 1, 4.0, (line(4.0, 60),)),
        bound=lambda found: 1.1 * path_cost(found),
    ),
    cases=paths,
)
def path(case: Family, bound: Callable[[Interpolant], float] = path_cost) -> Check:
    """c₁ ≥ 2 log(ℓ/diam Ω) with ℓ the length of the shortest path through the targets, which is
    2(1 − 1/k*) log N up to a constant that depends on f* and Ω.

    c₁ against the path's cost, where it is closest.
    """
    return _closest([(i.c1, bound(i)) for i in case[3]])


@of_families(
    "Thm 19 (neighbours)",
    paths,
    control(
        "the distances a hundredth larger, on a line",
        lambda: ("line", 1, 1.0, (line(1.0, 60),)),
        factor=1.01,
    ),
)
def neighbours(case: Family, factor: float = 1.0) -> Check:
    """Neighbours stay apart in every layer: (‖W_l(z_i − z_{i−1})‖ + ‖W_l(z_i − z_{i+1})‖)/2 is at least
    e^{−(‖θ_{l+1:L}‖² − (L − l))/2}(d_{1,i} + d_{2,i})/2.

    The smallest ratio of both sides, over layers and points.
    """
    ratios = []
    for found in case[3]:
        squares = [float(np.sum(p.weight**2) + np.sum(p.bias**2)) for p in found.params]
        nearest = factor * np.sort(apart(found.y), axis=1)[1:-1, 1:3].sum(axis=1)
        layers = passage(found.net, found.params, found.x).preactivations
        for layer, z in enumerate(layers, start=1):
            step = np.linalg.norm(np.diff(z, axis=0), axis=1)
            rest = squares[layer:]
            ratio = np.log((step[1:] + step[:-1]) / nearest) + (sum(rest) - len(rest)) / 2
            ratios.append(float(ratio.min()))
    return at_least(math.exp(min(ratios)), 1.0, 1e-9)
