"""`bottleneck`, the identity on a domain, and two points: P 5 and P 13.
[bottleneck, Sec. 3.3, App. A.2]
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import balance, linear_construction
from neuromanifold.bottleneck.passage import passage
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, compare, network, worst
from neuromanifold_papers.bottleneck.statements.cost import linear_cost
from neuromanifold_papers.bottleneck.statements.first import first_bound, kept
from neuromanifold_papers.check import Check, at_least, outside
from neuromanifold_papers.statement import control, named

Domain = tuple[np.ndarray, int]


def planar_domains(rng: np.random.Generator, draws: int) -> Iterator[Domain]:
    """(generators of a planar completely positive cone, depth): rays, acute and right angles, in
    up to four dimensions.
    """
    angles = (0.0, 0.3, math.pi / 4, math.pi / 2)
    for d, angle, depth in itertools.product((2, 3), angles, (2, 3, 9)):
        first, second = np.eye(d)[:2]
        both = math.cos(angle) * first + math.sin(angle) * second
        yield np.stack([math.cos(angle) * first, both]), depth
    for _ in range(draws):
        frame = np.linalg.qr(rng.normal(size=(int(rng.integers(2, 5)), 2)))[0]
        yield rng.uniform(size=(int(rng.integers(1, 4)), 2)) @ frame.T, int(rng.integers(2, 30))


def signed_gap(radius: float, slope: float) -> float:
    """What R⁽¹⁾ of the identity on [−r, r] exceeds: log min{1 + r², 2/(1 + a²)}, the least of
    `first_layer_excess`.
    """
    return math.log(min(1 + radius**2, 2 / (1 + slope**2)))


def first_layer_excess(w: np.ndarray, b: np.ndarray, radius: float, slope: float) -> float:
    """‖W_1‖² + ‖b_1‖² − 1 − log of the mean of ‖D_1W_1‖² over both ends of [−r, r], from inside:
    what any network must spend.
    """
    ends = [np.where(w * end * (1 - 1e-12) + b > 0, 1.0, slope) * w for end in (radius, -radius)]
    mean = sum(float(v @ v) for v in ends) / 2
    return float(w @ w + b @ b) - 1 - (math.log(mean) if mean > 0 else -math.inf)


def bent_gap(angle: float) -> float:
    """What R⁽¹⁾ of the identity on two segments at that angle exceeds: 2 log(cos φ/2 + sin φ/2),
    the least of `last_layer_excess`.
    """
    return 2 * math.log(math.cos(angle / 2) + math.sin(angle / 2))


def last_layer_excess(tangents: np.ndarray, ends: np.ndarray) -> float:
    """‖W_L‖² − 1 + Σ log‖v_i‖²/2 with the least W_L that takes the tangents v_i of both segments
    to their directions (in rows).
    """
    W = np.linalg.pinv(tangents) @ ends
    return float(np.sum(W**2)) - 1 + float(np.sum(np.log(np.sum(tangents**2, axis=1)))) / 2


Identity = tuple[str, float, float, int, float]


def unplanar_domains(rng: np.random.Generator, draws: int) -> Iterator[Identity]:
    """(domain, size, slope, depth, first weight): [−r, r], planar but of both signs, and two
    segments at an angle, not planar.
    """
    for r, slope, depth in itertools.product((1.0, 0.5, 2.0), (0.0, 0.5, -0.5), (2, 6, 20)):
        yield "signed", r, slope, depth, 0.7
    for angle, depth in itertools.product((math.pi / 2, 0.3, 2.8), (3, 8, 20)):
        yield "bent", angle, 0.0, depth, 0.7
    for index in range(draws):
        weight, depth = float(np.exp(0.5 * rng.normal())), int(rng.integers(3, 20))
        if index % 2:
            yield "signed", float(rng.uniform(0.1, 3)), float(rng.uniform(-1, 1)), depth, weight
        else:
            yield "bent", float(rng.uniform(0.1, 3.0)), 0.0, depth, weight


def identity_on(case: Identity) -> Case:
    """A network that is the identity on the domain: shifted onto one positive line, carried, and
    taken apart in the last layers.
    """
    domain, size, slope, depth, first = case
    if domain == "signed":
        hidden = first ** (-1 / max(1, depth - 2))
        last = 1 / (first * hidden ** (depth - 2))
        weights = [[[first]], *[[[hidden]]] * (depth - 2), [[last]]]
        biases = [[first * size], *[[0.0]] * (depth - 2), [-size]]
        return network(weights, [[size], [-size], [size / 3], [0.0]], slope=slope, biases=biases)
    ends, middle = _directions(size), depth - 3
    functional = first * np.linalg.solve(ends, np.array([1.0, -1.0]))
    weights = [functional[None], *[[[1.0]]] * middle, [[1 / first], [-1 / first]], ends.T]
    biases = [[first], *[[0.0]] * middle, [-1.0, 1.0], [0.0, 0.0]]
    x = np.concatenate([t * ends for t in (1.0, 0.5, 0.0)])
    found = network(weights, x, biases=biases)
    return replace(found, params=balance(found.net, found.params))


def _directions(angle: float) -> np.ndarray:
    """Unit vectors at that angle, in rows."""
    return np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])


def layers_of(case: Identity) -> tuple[list[float], list[float]]:
    """What first (or last) layers spend: the two (or one) that attain the least, and all of two
    neurons over −1, 0, 1 and random ones.
    """
    domain, size, slope, depth, first = case
    rng = np.random.default_rng([depth, round(1e6 * size), round(1e6 * first)])
    drawn = [*itertools.product((-1.0, 0.0, 1.0), repeat=4), *rng.normal(size=(32, 4))]
    frames = [np.reshape(d, (2, 2)) for d in drawn]
    if domain == "signed":
        root = math.sqrt(1 + size**2)
        best = np.array([[[1 / root], [size / root]], [[1.0], [0.0]]])
        attained = [first_layer_excess(w, b, size, slope) for w, b in best]
        return attained, [first_layer_excess(w, b, size, slope) for w, b in frames if w.any()]
    straight = abs(math.cos(size)) <= 1e-9
    inner = math.pi / 2 if straight else math.acos((1 - math.sin(size)) / math.cos(size))
    best, ends = math.sqrt(1 + math.sin(size)) * _directions(inner), _directions(size)
    others = [last_layer_excess(V, ends) for V in frames if abs(np.linalg.det(V)) > 1e-9]
    return [last_layer_excess(best, ends)], others


def relu_networks(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """ReLU networks: |x|, which attains the bound, and f = x/4 in 60 layers, which nearly does; every
    small one, then random ones.
    """
    yield _ABSOLUTE
    yield network([[[0.25 ** (1 / 60)]]] * 60, [[1.0], [2.0]])
    yield from cases.lattice(slopes=(0.0,))
    yield from cases.random_networks(rng, 3 * draws, slopes=(0.0,))


def change_term(nuclear: float, squared_lipschitz: float) -> float:
    """C⁻²‖Jf(x) − Jf(y)‖_*; nothing where no path leads through a hidden layer."""
    return nuclear / squared_lipschitz if squared_lipschitz > 0 else 0.0


def _pairs(case: Case) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Jf(x), Jf(y) and max_l ‖Jα_{l-1}(x)‖‖J(α̃_{l+1} → f)(y)‖, at most C², for all ordered
    pairs of points.
    """
    through = passage(case.net, case.params, case.x)
    J = through.jacobian()
    before = [np.linalg.norm(A, 2, axis=(1, 2)) for A in through.forward_jacobians()]
    after = [np.linalg.norm(B, 2, axis=(1, 2)) for B in through.backward_jacobians()][1:]
    layers = list(zip(before[: through.depth - 1], after, strict=True))
    for i, j in itertools.permutations(range(len(J)), 2):
        yield J[i], J[j], float(max((a[i] * b[j] for a, b in layers), default=0.0))


BENT_SLOPE = 0.1
_BENT = network([np.diag([1.0, BENT_SLOPE ** (1 / 40)])] * 40, [[0.5, 0.5], [0.5, -0.5]])
"""f = (x₁, ε relu x₂), every weight diag(1, ε^{1/L}), on both sides of x₂ = 0: 1-Lipschitz
throughout, of cost L + Lε^{2/L}.
"""


def measure_two_points(
    case: Case,
    *,
    finite: bool = False,
    any_rank: bool = False,
    term: Callable[[float, float], float] = change_term,
) -> Check:
    """‖θ‖² − kL against log|Jf(x)|₊ + log|Jf(y)|₊ + C⁻²‖Jf(x) − Jf(y)‖_*, or its form at finite
    depth.

    k is the larger of both ranks; pairs of unequal rank only where `any_rank` says so.
    """
    norm, L, checks, unequal = case.squared_norm, case.net.depth, [], 0
    for Jx, Jy, C in _pairs(case):
        sx, sy = kept(Jx), kept(Jy)
        change = term(float(np.linalg.norm(Jx - Jy, ord="nuc")), C)
        if finite:
            left, right = norm, (linear_cost(sx, L) + linear_cost(sy, L)) / 2 + change
        elif any_rank or len(sx) == len(sy):
            left = norm - max(len(sx), len(sy)) * L
            right = (first_bound(sx) + first_bound(sy)) / 2 + change
        else:
            unequal += 1
            continue
        checks.append(compare(left, ">=", right, 64 * EPS * L * (1 + norm + abs(right))))
    drops = outside("rank Jf(x) ≠ rank Jf(y)", parts=unequal)
    return worst(checks, drops + outside("one point: no pair", when=not (checks or drops)))


_ABSOLUTE = network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[1.0], [-1.0], [2.0]])
"""|x| at two points on one side and one on the other: only pairs across 0 have a term to double."""


def _signed_identity(P: np.ndarray, points: np.ndarray, depth: int) -> Any:
    """The identity on [−1, 1]."""
    built = identity_on(("signed", 1.0, 0.0, depth, 0.7))
    return built.net, built.params


@cases.numeric(
    "P 5 (if)",
    planar_domains,
    control(
        "the network for [−1, 1], which is not completely positive",
        lambda: (np.array([[1.0], [0.5]]), 6),
        build=_signed_identity,
    ),
    show=named("points, depth"),
)
def measure_planar(case: Domain, build: Callable[..., Any] = linear_construction) -> Check:
    """R⁽¹⁾(id; Ω) = 0 when Ω is k-planar and completely positive: networks of every depth cost
    exactly kL.

    The construction for P = the projection onto the span is the identity on Ω and costs kL.
    """
    points, depth = case
    _, s, Vt = np.linalg.svd(points, full_matrices=False)
    k = int(np.sum(s > 1e-12 * s[0]))
    P = Vt[:k].T @ Vt[:k]
    net, params = build(P, points, depth)
    built, rounding = Case(net, params, points), 256 * EPS * depth * k
    checks = [
        compare(value, "=", 0.0, rounding)
        for value in (cases.missed(built, points), built.squared_norm - k * depth)
    ]
    return worst(checks, k=k, depth=depth)


@cases.numeric(
    "P 5 (only if)",
    unplanar_domains,
    control(
        "a planar completely positive segment costs no more than L",
        lambda: ("signed", 1.0, 0.0, 9, 0.7),
        build=lambda case: network([[[1.0]]] * case[3], [[1.0], [0.5]]),
    ),
    show=repr,
)
def measure_gap(case: Identity, build: Callable[[Identity], Case] = identity_on) -> Check:
    """R⁽¹⁾(id; Ω) > 0 when Ω is not k-planar or not completely positive.

    What the network for the identity spends beyond L, against the gap; the gap is positive
    and the least that a layer must spend.
    """
    built = build(case)
    norm = built.squared_norm
    gap = signed_gap(case[1], case[2]) if case[0] == "signed" else bent_gap(case[1])
    attained, others = layers_of(case)
    return worst(
        [
            compare(cases.missed(built, built.x), "=", 0.0, 256 * EPS * norm**2),
            compare(norm - built.net.depth, ">=", gap, 256 * EPS * norm),
            compare(gap, ">=", 1e-3, 0.0),
            compare(min(attained), "=", gap, 1e-9),
            compare(min(others), ">=", gap, 1e-9),
        ],
        domain=case[0],
        slope=round(case[2], 2),
        depth=case[3],
    )


@cases.of_networks(
    "P 13",
    lambda rng, draws: itertools.chain([_BENT], relu_networks(rng, draws)),
    control(
        "twice the last term, at |x|",
        lambda: _ABSOLUTE,
        term=lambda nuclear, squared: 2 * change_term(nuclear, squared),
    ),
    # R⁽¹⁾(f) ≤ lim L(ε^{2/L} − 1) = 2 log ε, against log ε + log 1 + ε.
    confirm=lambda case: at_least(2 * math.log(BENT_SLOPE), math.log(BENT_SLOPE) + BENT_SLOPE),
)
def p_13(case: Any, term: Any = change_term, any_rank: bool = True) -> Check:
    """ReLU, C-uniformly Lipschitz: R⁽¹⁾(f) ≥ log|Jf(x)|₊ + log|Jf(y)|₊ + C⁻²‖Jf(x) − Jf(y)‖_*."""
    return measure_two_points(case, any_rank=any_rank, term=term)


p_13_amended = p_13.amend(cases=relu_networks, any_rank=False)(
    "the same, where rank Jf(x) = rank Jf(y) = R⁽⁰⁾(f)."
)


@cases.of_networks(
    "P 13 (finite depth)",
    relu_networks,
    control(
        "slope −1 on the left: x ↦ |x| by one neuron of weight 1",
        lambda: network([[[1.0]], [[1.0]]], [[1.0], [-1.0], [2.0]], slope=-1.0),
    ),
)
def p_13_finite_depth(case: Any) -> Check:
    """‖θ‖² ≥ ½L‖Jf(x)‖^{2/L}_{2/L} + ½L‖Jf(y)‖^{2/L}_{2/L} + C⁻²‖Jf(x) − Jf(y)‖_*."""
    return measure_two_points(case, finite=True)
