"""`bottleneck`, interpolants of rank 1: Theorem 10.   [bottleneck, Thm 10]"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import Interpolant, folded_interpolant, polyline_interpolant
from neuromanifold.bottleneck.balance import balance
from neuromanifold_papers.bottleneck.statements.cases import compare, network, outputs
from neuromanifold_papers.check import Check, at_least
from neuromanifold_papers.statement import control, statement

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


@functools.cache
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
        yield (
            "polyline",
            2,
            factor,
            tuple(shrunk(polyline_interpolant(p, 8), factor) for p in points),
        )


def least_cost(n: int, dimension: int) -> float:
    """2(1 − 1/k*) log N."""
    return 2 * (1 - 1 / dimension) * math.log(n)


def path_length(y: np.ndarray) -> float:
    """What a path through all points cannot be shorter than: ½ Σ (d₁ + d₂) over nearest and
    second nearest, less the ends' share.
    """
    distances = np.linalg.norm(y[:, None] - y[None], axis=2)
    nearest = np.sort(distances, axis=1)[:, 1:3]
    return float(nearest.sum() / 2 - nearest[:, 1].max())


def _fits(found: Interpolant) -> bool:
    return bool(
        np.abs(outputs(found.net, found.params, found.x) - found.y).max()
        <= 1e-6 * np.abs(found.y).max()
    )


def kernel_bound(found: Interpolant) -> float:
    """log of c·N^{4−4/k*} with c the fourth power of ℓ/(N^{1−1/k*}·diam Ω), which scales with
    the target: 4 log(ℓ/diam Ω).
    """
    return 4 * math.log(path_length(found.y) / _diameter(found.x))


def _diameter(x: np.ndarray) -> float:
    return float(np.linalg.norm(x[:, None] - x[None], axis=2).max())


def _family_hypotheses(case: Family) -> dict[str, Any]:
    name, k, factor, found = case
    return {
        "interpolant": name,
        "k*": k,
        "size of targets": factor,
        "N": str([len(i.y) for i in found]),
    }


def confirm_least_cost(case: Family) -> Check:
    """The sums of squares of all weights and biases with `math.fsum`, and the fit itself."""
    _, k, _, found = case
    assert all(map(_fits, found))
    sides = []
    for i in found:
        squares = [
            w * w
            for p in i.params
            for w in [*np.ravel(p.weight).tolist(), *np.ravel(p.bias).tolist()]
        ]
        sides.append((math.fsum(squares) - len(i.params), least_cost(len(i.y), k)))
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return at_least(left, right, 1e-9)


def path_cost(found: Interpolant) -> float:
    """2 log(length of the shortest path / diameter of the sample)."""
    return 2 * math.log(path_length(found.y) / _diameter(found.x))


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


@statement(
    "Thm 10",
    paths,
    control(
        "the bound raised by ½ at a line of slope 4, where there is room for 0.02",
        lambda: ("line", 1, 4.0, (line(4.0, 60),)),
        bound=lambda found: kernel_bound(found) + 0.5,
    ),
    method="float64",
    show=_show_family,
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
    sides = [(math.log(i.trace / i.net.depth) + i.c1, bound(i)) for i in found]
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(
        left,
        ">=",
        right,
        1e-9 * (1 + abs(left)),
        hypotheses=_family_hypotheses(case),
        cases=len(found),
    )


@statement(
    "Thm 10 (c₁) amended",
    paths,
    control(
        "2.2 in place of 2, at f = 4x in 60 layers",
        lambda: ("line", 1, 4.0, (line(4.0, 60),)),
        bound=lambda found: 1.1 * path_cost(found),
    ),
    amends="Thm 10 (c₁)",
    method="float64",
    show=_show_family,
)
def path(case: Family, bound: Callable[[Interpolant], float] = path_cost) -> Check:
    """c₁ ≥ 2 log(ℓ/diam Ω) with ℓ the length of the shortest path through the targets, which is
    2(1 − 1/k*) log N up to a constant that depends on f* and Ω.

    c₁ against the path's cost, where it is closest.
    """
    found = case[3]
    sides = [(i.c1, bound(i)) for i in found]
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(
        left,
        ">=",
        right,
        1e-9 * (1 + abs(left)),
        hypotheses=_family_hypotheses(case),
        cases=len(found),
    )


@statement(
    "Thm 10 (c₁)",
    interpolants,
    control(
        "the exponent 2 − 2/k* raised by 30 at N = 64",
        lambda: ("folded", 2, 1.0, _folded(2, (3,), 1.0)),
        bound=lambda n, k: least_cost(n, k) + 30 * math.log(n),
    ),
    method="float64",
    show=_show_family,
    confirm=confirm_least_cost,
)
def cost(case: Family, bound: Callable[[int, int], float] = least_cost) -> Check:
    """Rank-1 interpolants of N points of a k*-dimensional target have c₁ = ‖θ‖² − L ≥ 2(1 − 1/k*)
    log N.

    c₁ against 2(1 − 1/k*) log N, where it is closest.
    """
    _, k, _, found = case
    sides = [(i.c1, bound(len(i.y), k)) for i in found]
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(
        left,
        ">=",
        right,
        1e-9 * (1 + abs(left)),
        hypotheses=_family_hypotheses(case),
        cases=len(found),
    )


STATEMENTS = (kernel, cost)
