"""`bottleneck`, the second correction, the identity, and two points: P 4, P 5, P 13.   [bottleneck, Sec. 3.2, 3.3]"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import balance, cost_expansion, linear_construction, log_plus
from neuromanifold.bottleneck.passage import passage, squared_norm
from neuromanifold.theorems.bottleneck_cases import (
    EPS,
    PAPER,
    Case,
    compare,
    lattice,
    network,
    outputs,
    random_networks,
    show,
    worst,
)
from neuromanifold.theorems.bottleneck_cost import (
    Spectrum,
    expansion,
    linear_cost,
    small_matrices,
    small_rank,
    spectra,
    squared_determinant,
    third_order,
    with_singular_values,
)
from neuromanifold.theorems.bottleneck_first import first_bound, kept
from neuromanifold.theorems.statement import Check, Control, Statement

_LINEAR = "on functions whose R⁽²⁾ is known: linear maps"


def second(A: np.ndarray) -> float:
    """½‖log₊AᵀA‖²."""
    return float(np.sum(log_plus(A.T @ A, rtol=1e-10) ** 2)) / 2


def measure_sign(case: Spectrum) -> Check:
    """L(R(A; L) − L·rank − 2 log|A|₊) ≥ 0, whose limit is R⁽²⁾, and R⁽²⁾ itself."""
    s, shape, seed, depth = case
    A, values = with_singular_values(s, shape, seed), np.array(s)
    correction = depth * (linear_cost(values, depth) - len(s) * depth - first_bound(values))
    rounding = 64 * EPS * depth**2 * (1 + linear_cost(values, depth))
    hypotheses = {"rank": len(s), "depth": depth}
    return worst([compare(correction, ">=", 0.0, rounding), compare(second(A), ">=", 0.0, 64 * EPS)], hypotheses)


Pair = tuple[np.ndarray, np.ndarray] | None


def invertible_pairs(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """All pairs of invertible 2 × 2 matrices over −1, 0, 1 (`None`), then pairs that share the k-dimensional space between them."""
    yield None
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d + 1))
        shared = np.linalg.qr(rng.normal(size=(d, k)))[0]
        f, g = (with_singular_values(np.exp(rng.normal(size=k)), (d, k), index + n) for n in (0, 1000))
        yield f @ shared.T, shared @ g.T


def composed_root(f: Any, g: Any) -> Any:
    """What bounds √R⁽²⁾(f∘g), from R⁽²⁾(f) and R⁽²⁾(g)."""
    return np.sqrt(f) + np.sqrt(g)


def added_second(f: Any, g: Any) -> Any:
    """What bounds R⁽²⁾(f + g)."""
    return f + g


def _seconds(matrices: np.ndarray) -> np.ndarray:
    """½‖log₊AᵀA‖² = 2 Σ log² s of a stack of matrices."""
    s = np.linalg.svd(matrices, compute_uv=False)
    return 2 * np.sum(np.log(np.where(s > 1e-10 * s[..., :1], s, 1.0), where=s > 0, out=np.zeros_like(s)) ** 2, axis=-1)


def measure_root(case: Pair) -> Check:
    if case is None:
        A = small_matrices()[small_rank(small_matrices()) == 2].astype(float)
        values = _seconds(A)
        left = np.sqrt(_seconds(A[:, None] @ A[None])).ravel()
        right = composed_root(values[:, None], values[None]).ravel()
        at = int(np.argmax(left - right))
        return compare(
            left[at],
            "<=",
            right[at],
            64 * EPS * 8,
            hypotheses={"matrices": "all invertible over −1, 0, 1"},
            count=len(left),
        )
    A, B = case
    hypotheses = {"matrices": f"{len(A)} × {len(A)}", "rank": len(kept(A))}
    left, right = math.sqrt(second(A @ B)), float(composed_root(second(A), second(B)))
    additive = abs(first_bound(kept(A @ B)) - first_bound(kept(A)) - first_bound(kept(B))) < 1e-8
    return compare(left, "<=", right, 1e-9 * (1 + right), hypotheses=hypotheses, vacuous=not additive)


def orthogonal_pairs(rng: np.random.Generator, draws: int) -> Iterator[Pair]:
    """All pairs of 2 × 2 matrices over −1, 0, 1 (`None`), then pairs with orthogonal row and column spaces."""
    yield None
    for index in range(4 * draws):
        d = 2 + index % 3
        k = int(rng.integers(1, d))
        U, V = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
        s = np.exp(rng.normal(size=d))
        yield (U[:, :k] * s[:k]) @ V[:, :k].T, (U[:, k:] * s[k:]) @ V[:, k:].T


def measure_added_second(case: Pair) -> Check:
    if case is None:
        A = small_matrices()
        rank, square, both = small_rank(A), squared_determinant(A), A[:, None] + A[None]
        adds = small_rank(both) == rank[:, None] + rank[None]
        adds &= squared_determinant(both) == square[:, None] * square[None]
        values = _seconds(A.astype(float))
        left, right = _seconds(both.astype(float))[adds], added_second(values[:, None], values[None])[adds]
        at = int(np.argmax(left - right))
        return compare(
            left[at], "<=", right[at], 64 * EPS * 8, hypotheses={"matrices": "all over −1, 0, 1"}, count=len(left)
        )
    A, B = case
    left, right = second(A + B), float(added_second(second(A), second(B)))
    return compare(left, "<=", right, 1e-9 * (1 + right), hypotheses={"matrices": f"{len(A)} × {len(A)}"})


Positive = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def positive_maps(rng: np.random.Generator, draws: int) -> Iterator[Positive]:
    """(B, Q, V, L): A = Q exp(B) Vᵀ with exp(pB) ≥ 0 for every p, on the cone V·orthant, so that every AᵖΩ is completely positive."""
    for b, L in itertools.product((-1.0, 0.0, 0.7), (1, 2, 5, 40)):
        yield np.array([[b]]), np.eye(1), np.eye(1), L
    for index in range(draws):
        k = 1 + index % 3
        d = k + index % 2
        B = rng.uniform(0, 0.5, size=(k, k))
        B = (B + B.T) / 2 + np.diag(rng.uniform(-1, 1, size=k))
        Q, V = (np.linalg.qr(rng.normal(size=(d, k)))[0] for _ in range(2))
        yield B, Q, V, int(rng.integers(2, 40))


def second_of_linear(A: np.ndarray, depth: int) -> float:
    """kL + 2 log|A|₊ + R⁽²⁾/L with R⁽²⁾ = ½‖log₊AᵀA‖²."""
    return expansion(A, depth)


def measure_second_of_linear(case: Positive) -> Check:
    """The balanced factors A^{1/L} stay nonnegative on Ω, so a ReLU network has the cost of the linear one, whose 1/L term is R⁽²⁾."""
    B, Q, V, depth = case
    values, basis = np.linalg.eigh(B)
    root = (basis * np.exp(values / depth)) @ basis.T
    weights = [root] * depth
    weights[0], weights[-1] = weights[0] @ V.T, Q @ weights[-1]
    if depth == 1:
        weights = [Q @ root @ V.T]
    A = Q @ (basis * np.exp(values)) @ basis.T @ V.T
    x = np.random.default_rng(0).uniform(size=(6, len(B))) @ V.T
    case_net = network(weights, x)
    s = np.exp(values)
    norm, condition = case_net.squared_norm, float(s.max() / s.min()) ** 2
    rounding = 64 * EPS * (1 + norm + condition) * depth
    missed = float(np.abs(outputs(case_net.net, case_net.params, x) - x @ A.T).max())
    return worst(
        [
            compare(missed, "=", 0.0, rounding),
            compare(norm, "=", linear_cost(s, depth), rounding),
            compare(abs(norm - second_of_linear(A, depth)), "<=", third_order(s, depth), rounding),
        ],
        {"rank": len(B), "depth": depth},
    )


Domain = tuple[np.ndarray, int]


def planar_domains(rng: np.random.Generator, draws: int) -> Iterator[Domain]:
    """(generators of a planar completely positive cone, depth): rays, acute and right angles, in up to four dimensions."""
    for d, angle, depth in itertools.product((2, 3), (0.0, 0.3, math.pi / 4, math.pi / 2), (2, 3, 9)):
        yield np.eye(d)[:1] * math.cos(angle) + np.eye(d)[:2] * np.array([[0.0], [math.sin(angle)]]), depth
    for _ in range(draws):
        frame = np.linalg.qr(rng.normal(size=(int(rng.integers(2, 5)), 2)))[0]
        yield rng.uniform(size=(int(rng.integers(1, 4)), 2)) @ frame.T, int(rng.integers(2, 30))


def measure_planar(case: Domain) -> Check:
    """The construction for P = the projection onto the span is the identity on Ω and costs kL."""
    points, depth = case
    P = np.linalg.pinv(points, rcond=1e-12) @ points
    k = int(np.linalg.matrix_rank(points, tol=1e-12))
    net, params = linear_construction(P, points, depth)
    missed = float(np.abs(outputs(net, params, points) - points).max())
    excess = squared_norm(net, params) - k * depth
    rounding = 256 * EPS * depth * k
    return worst([compare(missed, "=", 0.0, rounding), compare(excess, "=", 0.0, rounding)], {"k": k, "depth": depth})


def signed_gap(radius: float, slope: float) -> float:
    """What R⁽¹⁾ of the identity on [−r, r] exceeds: log min{1 + r², 2/(1 + a²)}.

    A neuron of the first layer is open at both ends and pays a bias of r|w| at least, or has slope a at one of them. With the
    Jacobian bound for the other layers, c₁ ≥ ‖W_1‖² + ‖b_1‖² − 1 − log of the mean of ‖D_1W_1‖² over both ends.
    """
    return math.log(min(1 + radius**2, 2 / (1 + slope**2)))


def bent_gap(angle: float) -> float:
    """What R⁽¹⁾ of the identity on two segments at that angle exceeds: 2 log(cos φ/2 + sin φ/2), the least of the proof's minimum over W_L."""
    return 2 * math.log(math.cos(angle / 2) + math.sin(angle / 2))


Identity = tuple[str, float, float, int, float]


def unplanar_domains(rng: np.random.Generator, draws: int) -> Iterator[Identity]:
    """(domain, size, slope, depth, first weight): [−r, r], planar but of both signs, and two segments at an angle, not planar."""
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
    """A network that is the identity on the domain: shifted onto one positive line, carried, and taken apart in the last layers."""
    domain, size, slope, depth, first = case
    if domain == "signed":
        hidden = first ** (-1 / max(1, depth - 2))
        middle = [np.array([[hidden]])] * (depth - 2)
        last = 1 / (first * hidden ** (depth - 2))
        weights = [np.array([[first]]), *middle, np.array([[last]])]
        biases = [np.array([first * size]), *[np.zeros(1)] * (depth - 2), np.array([-size])]
        return network(weights, [[size], [-size], [size / 3], [0.0]], slope=slope, biases=biases)
    ends = np.array([[1.0, 0.0], [math.cos(size), math.sin(size)]])
    functional = np.linalg.solve(ends, np.array([1.0, -1.0]))
    weights = [first * functional[None], *[np.ones((1, 1))] * (depth - 3), np.array([[1.0], [-1.0]]) / first, ends.T]
    biases = [np.array([first]), *[np.zeros(1)] * (depth - 3), np.array([-1.0, 1.0]), np.zeros(2)]
    x = np.concatenate([t * ends for t in (1.0, 0.5, 0.0)])
    found = network(weights, x, biases=biases)
    return replace(found, params=balance(found.net, found.params))


def measure_gap(case: Identity) -> Check:
    """What the network for the identity spends beyond L, against the gap, which is positive."""
    built = identity_on(case)
    missed = float(np.abs(outputs(built.net, built.params, built.x) - built.x).max())
    gap = signed_gap(case[1], case[2]) if case[0] == "signed" else bent_gap(case[1])
    rounding = 256 * EPS * built.squared_norm
    hypotheses = {"domain": case[0], "slope": round(case[2], 2), "depth": case[3]}
    return worst(
        [
            compare(missed, "=", 0.0, 256 * EPS * built.squared_norm**2),
            compare(built.squared_norm - built.net.depth, ">=", gap, rounding),
            compare(gap, ">=", 1e-3, 0.0),
        ],
        hypotheses,
    )


def relu_networks(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """ReLU networks: every small one, then random ones; |x|, which attains the bound, first."""
    yield _ABSOLUTE
    yield from lattice(slopes=(0.0,))
    yield from random_networks(rng, 3 * draws, slopes=(0.0,))


def change_term(nuclear: float, squared_lipschitz: float) -> float:
    """C⁻²‖Jf(x) − Jf(y)‖_*; nothing where no path leads through a hidden layer."""
    return nuclear / squared_lipschitz if squared_lipschitz > 0 else 0.0


def _pairs(case: Case) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Jf(x), Jf(y) and max_l ‖Jα_{l-1}(x)‖‖J(α̃_{l+1} → f)(y)‖, at most C², for all ordered pairs of points."""
    through = passage(case.net, case.params, case.x)
    J = through.jacobian()
    before = [np.linalg.norm(A, ord=2, axis=(1, 2)) for A in through.forward_jacobians()][: through.depth - 1]
    after = [np.linalg.norm(B, ord=2, axis=(1, 2)) for B in through.backward_jacobians()][1:]
    for i, j in itertools.permutations(range(len(J)), 2):
        yield J[i], J[j], float(max((a[i] * b[j] for a, b in zip(before, after, strict=True)), default=0.0))


def measure_two_points(case: Case, *, finite: bool = False) -> Check:
    """‖θ‖² − kL against log|Jf(x)|₊ + log|Jf(y)|₊ + C⁻²‖Jf(x) − Jf(y)‖_*, or its form at finite depth."""
    norm, L, checks = case.squared_norm, case.net.depth, []
    for Jx, Jy, C in _pairs(case):
        sx, sy = kept(Jx), kept(Jy)
        change = change_term(float(np.linalg.norm(Jx - Jy, ord="nuc")), C)
        if finite:
            left, right = norm, (linear_cost(sx, L) + linear_cost(sy, L)) / 2 + change
        elif len(sx) == len(sy):
            left, right = norm - len(sx) * L, (first_bound(sx) + first_bound(sy)) / 2 + change
        else:
            continue
        checks.append(compare(left, ">=", right, 64 * EPS * L * (1 + norm + abs(right))))
    return worst(checks, case.hypotheses)


_ABSOLUTE = network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[1.0], [-1.0]])


def _doubled() -> Check:
    Jx, Jy, C = next(_pairs(_ABSOLUTE))
    change = change_term(float(np.linalg.norm(Jx - Jy, ord="nuc")), C)
    return compare(_ABSOLUTE.squared_norm - 2, ">=", 2 * change, 1e-12)


def _statement(id: str, row: str, says: str, **fields: Any) -> Statement:
    return Statement(paper=PAPER, row=row, id=id, says=says, **fields)


def _show_pair(case: Pair) -> str:
    return (
        "all pairs of small matrices"
        if case is None
        else f"A, B = np.array({case[0].tolist()}), np.array({case[1].tolist()})"
    )


def _steep_sum() -> Check:
    u = np.array([[math.cos(0.1)], [math.sin(0.1)]])
    A, B = np.diag([1.0, 0.0]), u @ u.T
    return compare(second(A + B), "<=", float(added_second(second(A), second(B))), 1e-9)


def _oblique() -> Check:
    row, column = np.array([[1.0, 0.0]]), np.array([[0.1], [math.sqrt(0.99)]])
    return compare(math.sqrt(second(row @ column)), "<=", float(composed_root(second(row), second(column))), 1e-9)


STATEMENTS = (
    _statement(
        "P 4",
        "P 4",
        "R⁽²⁾(f) ≥ 0 where there is a limiting representation",
        method="float64",
        cases=spectra,
        measure=measure_sign,
        show=repr,
        narrower=_LINEAR,
        control=Control(
            "the third correction has no sign: s = 1/5", lambda: compare(cost_expansion([[0.2]]).r3, ">=", 0.0, 1e-12)
        ),
    ),
    _statement(
        "P 4 (1)",
        "P 4",
        "√R⁽²⁾(f∘g) ≤ √R⁽²⁾(f) + √R⁽²⁾(g) when the R⁽⁰⁾ agree and R⁽¹⁾ adds",
        method="float64",
        cases=invertible_pairs,
        measure=measure_root,
        show=_show_pair,
        narrower=_LINEAR,
        control=Control("R⁽¹⁾ does not add: (1, 0)·(0.1, √0.99)ᵀ", _oblique),
    ),
    _statement(
        "P 4 (2)",
        "P 4",
        "R⁽²⁾(f + g) ≤ R⁽²⁾(f) + R⁽²⁾(g) when R⁽⁰⁾ and R⁽¹⁾ add",
        method="float64",
        cases=orthogonal_pairs,
        measure=measure_added_second,
        show=_show_pair,
        narrower=_LINEAR,
        control=Control("R⁽¹⁾ does not add: projections at an angle of 0.1", _steep_sum),
    ),
    _statement(
        "P 4 (3)",
        "P 4",
        "R⁽²⁾(x ↦ Ax; Ω) = ½‖log₊AᵀA‖² when AᵖΩ is completely positive of dimension rank A for all p in [0, 1]",
        method="float64",
        cases=positive_maps,
        measure=measure_second_of_linear,
        show=lambda case: f"B, Q, V, L = {case[0].tolist()}, {case[1].tolist()}, {case[2].tolist()}, {case[3]}",
        narrower="A = Q exp(B) Vᵀ with B symmetric and nonnegative off its diagonal, Ω = V·orthant",
        control=Control(
            "twice R⁽²⁾",
            lambda: compare(
                abs(
                    linear_cost(np.array([3.0]), 40) - expansion(np.array([[3.0]]), 40) - second(np.array([[3.0]])) / 40
                ),
                "<=",
                third_order(np.array([3.0]), 40),
                1e-12,
            ),
        ),
    ),
    _statement(
        "P 5 (if)",
        "P 5",
        "R⁽¹⁾(id; Ω) = 0 when Ω is k-planar and completely positive: networks of every depth cost exactly kL",
        method="float64",
        cases=planar_domains,
        measure=measure_planar,
        show=lambda case: f"points, depth = np.array({case[0].tolist()}), {case[1]}",
        narrower="k = 1 and 2, where complete positivity is decided exactly",
        control=Control(
            "[−1, 1], not completely positive",
            lambda: compare(identity_on(("signed", 1.0, 0.0, 6, 0.7)).squared_norm - 6, "=", 0.0, 1e-12),
        ),
    ),
    _statement(
        "P 5 (only if)",
        "P 5",
        "R⁽¹⁾(id; Ω) > 0 when Ω is not k-planar or not completely positive",
        method="float64",
        cases=unplanar_domains,
        measure=measure_gap,
        show=repr,
        narrower="k = 1: [−r, r] with slopes in (−1, 1), and two segments at an angle; explicit networks against a positive lower bound",
        control=Control(
            "a planar completely positive segment costs no more than L",
            lambda: compare(linear_cost(np.ones(1), 9) - 9, ">=", signed_gap(1.0, 0.0), 1e-12),
        ),
    ),
    _statement(
        "P 13",
        "P 13",
        "ReLU, C-uniformly Lipschitz: R⁽¹⁾(f) ≥ log|Jf(x)|₊ + log|Jf(y)|₊ + C⁻²‖Jf(x) − Jf(y)‖_*",
        method="float64",
        cases=relu_networks,
        measure=measure_two_points,
        show=show,
        control=Control("twice the last term, at |x|", _doubled),
    ),
    _statement(
        "P 13 (finite depth)",
        "P 13",
        "‖θ‖² ≥ ½L‖Jf(x)‖^{2/L}_{2/L} + ½L‖Jf(y)‖^{2/L}_{2/L} + C⁻²‖Jf(x) − Jf(y)‖_*",
        method="float64",
        cases=relu_networks,
        measure=lambda case: measure_two_points(case, finite=True),
        show=show,
        control=Control(
            "slope −1 on the left: x ↦ |x| by one neuron of weight 1",
            lambda: measure_two_points(network([[[1.0]], [[1.0]]], [[1.0], [-1.0]], slope=-1.0), finite=True),
        ),
    ),
)
