"""`bottleneck`, linear maps and ranks: the cost, its expansion, and the inequalities of R⁽⁰⁾.   [bottleneck, Sec. 3]"""

import itertools
import math
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from neuromanifold.bottleneck import (
    balanced_factors,
    cost_expansion,
    jacobian_rank,
    log_plus,
    pseudo_determinant,
    representation_cost,
)
from neuromanifold.bottleneck.passage import passage
from neuromanifold.theorems.bottleneck_cases import (
    EPS,
    PAPER,
    SLOPES,
    Case,
    compare,
    lattice,
    network,
    outputs,
    random_networks,
    show,
    worst,
)
from neuromanifold.theorems.statement import Check, Control, Statement

# Far enough that R/L differs from its limit by less than rounding.
_INFINITE_DEPTH = 2**60
_RTOL = 1e-10

Spectrum = tuple[tuple[float, ...], tuple[int, int], int, int]


def linear_cost(s: np.ndarray, depth: int) -> float:
    """L Σ s_i^{2/L}."""
    return float(depth * np.sum(s ** (2 / depth)))


def with_singular_values(s: Any, shape: tuple[int, int], seed: int) -> np.ndarray:
    """A matrix of that shape with these nonzero singular values, its singular vectors drawn from the seed."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, : len(s)] for n in shape)
    return (U * np.asarray(s)) @ V.T


def spectra(rng: np.random.Generator, draws: int) -> Iterator[Spectrum]:
    """(singular values, shape, seed, depth): every shape up to 3 and every rank, values below, at and above 1."""
    for shape in itertools.product((1, 2, 3), repeat=2):
        for k in range(min(shape) + 1):
            for s in itertools.combinations_with_replacement((0.5, 1.0, 3.0), k):
                yield s, shape, 0, 1 + (len(s) + sum(shape)) % 5
    for index in range(draws):
        shape = tuple(int(n) for n in rng.integers(1, 6, size=2))
        s = np.exp(rng.uniform(-2.3, 2.3, size=int(rng.integers(1, min(shape) + 1))))
        yield tuple(s.tolist()), (shape[0], shape[1]), index, int(rng.integers(1, 40))


def _show_spectrum(case: Spectrum) -> str:
    s, shape, seed, depth = case
    return f"s, shape, seed, depth = {s}, {shape}, {seed}, {depth}"


def _spectrum_hypotheses(case: Spectrum) -> dict[str, Any]:
    s, shape, _, depth = case
    return {"rank": len(s), "shape": str(shape), "depth": depth}


def measure_minimiser(case: Spectrum) -> Check:
    """The balanced factors multiply to A, and their norm is the closed form and the library's cost."""
    s, shape, seed, depth = case
    A = with_singular_values(s, shape, seed)
    factors = [p.weight for p in balanced_factors(A, depth)]
    product = reduce(lambda a, W: W @ a, factors, np.eye(shape[1]))
    norm, closed = sum(float(np.sum(W**2)) for W in factors), linear_cost(np.array(s), depth)
    error = 64 * EPS * depth * (1 + closed)
    return worst(
        [
            compare(float(np.abs(product - A).max()), "=", 0.0, 64 * EPS * depth * max(s, default=1.0)),
            compare(norm, "=", closed, error),
            compare(representation_cost(A, depth), "=", closed, error),
        ],
        _spectrum_hypotheses(case),
    )


def factorisations(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Linear networks: all with weights −1, 0, 1 on small shapes, then random and nearly balanced ones."""
    yield from lattice(slopes=(1.0,))
    yield from random_networks(rng, 4 * draws, slopes=(1.0,), biased=(False,))


def measure_factorisation(case: Case) -> Check:
    weights = [np.asarray(p.weight) for p in case.params]
    A = reduce(lambda a, W: W @ a, weights, np.eye(case.net.widths[0]))
    norm = sum(float(np.sum(W**2)) for W in weights)
    cost = linear_cost(_singular_values(A), len(weights))
    return compare(norm, ">=", cost, 64 * EPS * len(weights) * (1 + norm), hypotheses=case.hypotheses)


def _singular_values(A: np.ndarray) -> np.ndarray:
    s = np.linalg.svd(A, compute_uv=False)
    return s[s > _RTOL * s[0]]


def expansion(A: np.ndarray, depth: int) -> float:
    """L·rank A + 2 log|A|₊ + ‖log₊AᵀA‖²/(2L), as printed."""
    log = log_plus(A.T @ A, rtol=_RTOL)
    rank = int(np.linalg.matrix_rank(A, tol=_RTOL * np.linalg.norm(A)))
    return depth * rank + 2 * math.log(pseudo_determinant(A, rtol=_RTOL)) + float(np.sum(log**2)) / (2 * depth)


def third_order(s: np.ndarray, depth: int) -> float:
    """Taylor's bound on the rest: (4/3) Σ |log s|³ max(1, s^{2/L}) / L²."""
    return float(4 / 3 * np.sum(np.abs(np.log(s)) ** 3 * np.maximum(1, s ** (2 / depth))) / depth**2)


def measure_expansion(case: Spectrum) -> Check:
    s, shape, seed, depth = case
    A, values = with_singular_values(s, shape, seed), np.array(s)
    rest = representation_cost(A, depth, rtol=_RTOL) - expansion(A, depth)
    condition = float(values.max() / values.min()) ** 2 if s else 1.0
    rounding = 64 * EPS * (depth * (1 + len(s)) + condition) * (1 + float(np.sum(np.log(values) ** 2)))
    return compare(abs(rest), "<=", third_order(values, depth), rounding, hypotheses=_spectrum_hypotheses(case))


def measure_order(case: Spectrum) -> Check:
    """log₂ of how much the rest shrinks when the depth doubles: at least 2, up to the next term's share."""
    s, shape, seed, depth = case
    found, L = cost_expansion(with_singular_values(s, shape, seed), rtol=_RTOL), depth * 2**12
    near, far = abs(found.remainder(L)), abs(found.remainder(2 * L))
    if far <= 1e-3 * EPS:
        return Check(2, 2, vacuous=True, hypotheses=_spectrum_hypotheses(case))
    next_term = 2 / 3 * float(np.sum(np.log(np.array(s)) ** 4))
    share = 4 * next_term / (abs(found.r3) * L) if abs(found.r3) > 1e-12 else 0.0
    return Check(math.log2(near / far), 2.0, ">=", min(1.0, share) + 64 * EPS, _spectrum_hypotheses(case))


def deepened(case: Case, extra: int) -> Case:
    """The same function on the sample with `extra` layers more: the narrowest representation is shifted to be positive, carried, and shifted back."""
    through = passage(case.net, case.params, case.x)
    at = int(np.argmin(case.net.widths))
    here = [*through.activations, through.preactivations[-1]][at]
    k, shift = here.shape[1], np.full(here.shape[1], float(np.abs(here).max()) + 1.0)
    weights = [np.asarray(p.weight) for p in case.params]
    biases = [
        np.zeros(len(W)) if p.bias is None else np.asarray(p.bias) for W, p in zip(weights, case.params, strict=True)
    ]
    same, none = np.eye(k), np.zeros(k)
    if at == len(weights):
        weights, biases = [*weights, *[same] * extra], [*biases[:-1], biases[-1] + shift, *[none] * (extra - 1), -shift]
    else:
        back = biases[at] - weights[at] @ shift
        weights = [*weights[:at], *[same] * extra, *weights[at:]]
        biases = [*biases[:at], shift, *[none] * (extra - 1), back, *biases[at + 1 :]]
    return network(weights, case.x, slope=case.slope, biases=biases, kind=case.kind)


def cost_per_layer(case: Case) -> tuple[float, float]:
    """What a further layer costs in the long run, and by how much the deepened networks miss the function."""
    short, long = deepened(case, 4), deepened(case, 12)
    before = outputs(case.net, case.params, case.x)
    missed = max(float(np.abs(outputs(d.net, d.params, d.x) - before).max()) for d in (short, long))
    return (long.squared_norm - short.squared_norm) / 8, missed / (1 + float(np.abs(before).max()))


def integer_networks(rng: np.random.Generator, draws: int, slopes: tuple[float, ...] = SLOPES) -> Iterator[Case]:
    """Networks with integer weights and biases, of every shape of widths 1 to 3 in one to three layers, then larger ones."""
    shapes = [w for depth in (1, 2, 3) for w in itertools.product((1, 2, 3), repeat=depth + 1)]
    shapes += [tuple(int(w) for w in rng.integers(1, 6, size=int(rng.integers(3, 7)))) for _ in range(draws)]
    for index, widths in enumerate(shapes):
        weights = [rng.integers(-2, 3, size=(b, a)) for a, b in itertools.pairwise(widths)]
        biases = [rng.integers(-1, 2, size=len(W)) for W in weights]
        x = rng.integers(-3, 4, size=(3, widths[0]))
        yield network(weights, x, slope=slopes[index % len(slopes)], biases=biases, kind="integer")


def measure_sandwich_below(case: Case) -> Check:
    """Rank_J, exactly, against the cost per layer of networks for f; and at finite depth the bound whose limit it is."""
    rank = int(jacobian_rank(case.net, case.params, case.x, exact=True))
    long, (per_layer, _) = deepened(case, 12), cost_per_layer(case)
    norm, L = long.squared_norm, long.net.depth
    bound = max(linear_cost(_singular_values(J), L) for J in passage(long.net, long.params, long.x).jacobian())
    return worst(
        [
            compare(rank, "<=", per_layer, 64 * EPS * norm),
            compare(bound, "<=", norm, 64 * EPS * L * norm),
        ],
        case.hypotheses | {"Rank_J": rank},
    )


def measure_sandwich_above(case: Case) -> Check:
    """The cost per layer against the inner dimension of the factorisation through the narrowest layer."""
    per_layer, missed = cost_per_layer(case)
    k, norm = min(case.net.widths), deepened(case, 12).squared_norm
    return worst(
        [compare(per_layer, "<=", k, 64 * EPS * norm), compare(missed, "=", 0.0, 64 * EPS * (1 + norm))],
        case.hypotheses | {"inner dimension": k},
    )


def composed(f: Case, g: Case) -> Case:
    """f∘g as one network: the output layer of g and the first of f multiply into one."""
    first, last = f.params[0], g.params[-1]
    weights = [*(p.weight for p in g.params[:-1]), first.weight @ last.weight, *(p.weight for p in f.params[1:])]
    biases = [*(p.bias for p in g.params[:-1]), first.weight @ last.bias + first.bias, *(p.bias for p in f.params[1:])]
    return network(weights, g.x, slope=f.slope, biases=biases, kind=f.kind)


def added(f: Case, g: Case) -> Case:
    """f + g as one network of both side by side; equal depths, inputs and outputs."""
    pairs = list(zip(f.params, g.params, strict=True))
    weights, biases = [], []
    for index, (p, q) in enumerate(pairs):
        if index == len(pairs) - 1:
            joined = np.hstack([p.weight, q.weight]) if index else p.weight + q.weight
            biases.append(None if p.bias is None else p.bias + q.bias)
        else:
            block = np.block(
                [
                    [p.weight, np.zeros((len(p.weight), len(q.weight[0])))],
                    [np.zeros((len(q.weight), len(p.weight[0]))), q.weight],
                ]
            )
            joined = np.vstack([p.weight, q.weight]) if index == 0 else block
            biases.append(None if p.bias is None else np.concatenate([p.bias, q.bias]))
        weights.append(joined)
    return network(weights, f.x, slope=f.slope, biases=None if f.params[0].bias is None else biases, kind=f.kind)


def small_matrices(values: tuple[int, ...] = (-1, 0, 1)) -> np.ndarray:
    """All 2 × 2 matrices with these entries."""
    return np.array(list(itertools.product(values, repeat=4))).reshape(-1, 2, 2)


def small_rank(M: np.ndarray) -> np.ndarray:
    """The rank of integer 2 × 2 matrices, exactly."""
    det = M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0]
    return np.where(det != 0, 2, np.any(M != 0, axis=(-1, -2)).astype(int))


def squared_determinant(M: np.ndarray) -> np.ndarray:
    """|M|₊² of integer 2 × 2 matrices, exactly: det², or the sum of squares for rank 1, or 1."""
    det = M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0]
    return np.where(det != 0, det**2, np.maximum(1, np.sum(M**2, axis=(-1, -2))))


def network_pairs(rng: np.random.Generator, draws: int, compose: bool) -> Iterator[Any]:
    """First all pairs of 2 × 2 matrices (`None`), then pairs of integer networks that can be composed, or added."""
    yield None
    for index in range(draws + 8):
        slope = SLOPES[index % len(SLOPES)]
        inner = tuple(int(w) for w in rng.integers(1, 4, size=3))
        first = (2, *inner, 3 if compose else 2)
        second = (
            (3, *(int(w) for w in rng.integers(1, 4, size=3)), 2)
            if compose
            else (2, *(int(w) for w in rng.integers(1, 4, size=3)), 2)
        )
        x = rng.integers(-3, 4, size=(3, 2))
        g = _integer_network(rng, first, x, slope)
        yield _integer_network(rng, second, outputs(g.net, g.params, g.x) if compose else x, slope), g


def _integer_network(rng: np.random.Generator, widths: tuple[int, ...], x: Any, slope: float) -> Case:
    weights = [rng.integers(-2, 3, size=(b, a)).astype(float) for a, b in itertools.pairwise(widths)]
    biases = [rng.integers(-1, 2, size=len(W)).astype(float) for W in weights]
    return network(weights, x, slope=slope, biases=biases, kind="integer")


def composed_rank(f: Any, g: Any) -> Any:
    """What bounds R⁽⁰⁾(f∘g): min{R⁽⁰⁾(f), R⁽⁰⁾(g)}."""
    return np.minimum(f, g)


def added_rank(f: Any, g: Any) -> Any:
    """What bounds R⁽⁰⁾(f + g): R⁽⁰⁾(f) + R⁽⁰⁾(g)."""
    return f + g


def _measure_pair(case: Any, join: Any, of_matrices: Any, bound: Any) -> Check:
    """Ranks of all small matrices, exactly; of networks the cost per layer and the exact Jacobian rank, against the narrowest layers."""
    if case is None:
        A = small_matrices()
        joined = small_rank(of_matrices(A[:, None], A[None]))
        allowed = bound(small_rank(A)[:, None], small_rank(A)[None])
        at = np.unravel_index(int(np.argmax(joined - allowed)), joined.shape)
        return Check(
            int(joined[at]),
            int(allowed[at]),
            "<=",
            hypotheses={"functions": "all 2 × 2 matrices over −1, 0, 1"},
            count=joined.size,
        )
    f, g = case
    both = join(f, g)
    allowed = int(bound(min(f.net.widths), min(g.net.widths)))
    rank = int(jacobian_rank(both.net, both.params, both.x, exact=True))
    per_layer, missed = cost_per_layer(both)
    # A sum of wide networks may also pass through the input or the output, and then costs less.
    norm = deepened(both, 12).squared_norm
    hypotheses = {"functions": "networks", "slope": f.slope, "bound": allowed}
    return worst(
        [
            Check(rank, allowed, "<="),
            compare(per_layer, "<=", allowed, 64 * EPS * norm),
            compare(missed, "=", 0.0, 64 * EPS * (1 + norm)),
        ],
        hypotheses,
    )


def measure_linear_rank(case: Spectrum) -> Check:
    """Networks for x ↦ Ax on [−1, 1]^d cost rank A a layer, and R(A; L)/L, below which none can go, has the same limit."""
    s, shape, seed, _ = case
    A = with_singular_values(s, shape, seed)
    x = np.array(list(itertools.product((-1.0, 1.0), repeat=shape[1])))
    U, root, Vt = np.linalg.svd(A, full_matrices=False)
    k = len(s)
    if k == 0:
        zero = representation_cost(A, _INFINITE_DEPTH)
        return Check(zero, 0.0, hypotheses={"rank": 0, "shape": str(shape)})
    narrow = network([Vt[:k], U[:, :k] * root[:k]], x, slope=1.0, biases=[np.zeros(k), np.zeros(shape[0])])
    upper = network(
        [Vt[:k], U[:, :k] * root[:k]],
        x,
        biases=[np.full(k, 1.0 + math.sqrt(shape[1])), -(U[:, :k] * root[:k]) @ np.full(k, 1.0 + math.sqrt(shape[1]))],
    )
    per_layer, missed = cost_per_layer(upper)
    wrong = float(np.abs(outputs(upper.net, upper.params, x) - outputs(narrow.net, narrow.params, x)).max())
    lower = representation_cost(A, _INFINITE_DEPTH, rtol=_RTOL) / _INFINITE_DEPTH
    rounding = 64 * EPS * (1 + upper.squared_norm)
    return worst(
        [
            compare(per_layer, "=", k, rounding),
            compare(lower, "=", k, rounding),
            compare(missed + wrong, "=", 0.0, rounding),
        ],
        {"rank": k, "shape": str(shape)},
    )


def circle_points(rng: np.random.Generator, draws: int) -> list[np.ndarray]:
    """Rational points of the circle, those of small height and then random ones, all in one case."""
    pairs = [(m, n) for m in range(1, 6) for n in range(m)] + rng.integers(1, 50, size=(draws, 2)).tolist()
    return [np.array([((m * m - n * n) / (m * m + n * n), 2 * m * n / (m * m + n * n)) for m, n in pairs])]


def measure_circle_tangents(points: np.ndarray) -> Check:
    """The rank of the identity on the circle's tangents."""
    tangents = np.stack([-points[:, 1], points[:, 0]], axis=1)[:, :, None]
    rank = jacobian_rank(*_identity(), points, tangents=tangents)
    return Check(int(rank), 1, hypotheses={"points": "rational"}, count=len(points))


def _identity() -> Any:
    case = network([np.eye(2)], np.zeros((1, 2)))
    return case.net, case.params


def through_a_line(rng: np.random.Generator, draws: int) -> Iterator[Case]:
    """Networks ℝ² → ℝ → ℝ²: the projection, then random ones."""
    yield network([[[1.0, 0.0]], [[1.0], [0.0]]], np.zeros((1, 2)), slope=1.0, kind="projection")
    for _ in range(draws):
        w = int(rng.integers(1, 6))
        widths = (2, w, 1, w, 2)
        weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
        biases = [rng.normal(size=len(W)) for W in weights]
        yield network(weights, np.zeros((1, 2)), slope=float(rng.choice(SLOPES)), biases=biases, kind="random")


def measure_circle(case: Case) -> Check:
    """Two opposite points that the line does not tell apart, found by bisection, are taken to one: one misses by 1."""
    at = int(np.argmin(case.net.widths[1:])) + 1

    def value(angle: float) -> float:
        x = np.array([[math.cos(angle), math.sin(angle)], [-math.cos(angle), -math.sin(angle)]])
        u = passage(case.net, case.params, x).preactivations[at - 1][:, 0]
        return float(u[0] - u[1])

    low, high = 0.0, math.pi
    sign = math.copysign(1.0, value(low))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) * sign > 0 else (low, middle)
    x = np.array([[math.cos(low), math.sin(low)]])
    pair = np.concatenate([x, -x])
    y = outputs(case.net, case.params, pair)
    error = float(np.linalg.norm(y - pair, axis=1).max())
    return Check(
        error, 1.0, ">=", float(np.linalg.norm(y[0] - y[1])) / 2 + 8 * EPS, {"network": case.kind, "slope": case.slope}
    )


def _statement(id: str, row: str, says: str, **fields: Any) -> Statement:
    return Statement(paper=PAPER, row=row, id=id, says=says, **fields)


_UPPER = "R⁽⁰⁾ is seen from above, as the cost per layer of explicit networks, and from below through Jacobians; it is known exactly only where the two meet"
_ROTATION = network([np.eye(2)], np.ones((1, 2)))

STATEMENTS = (
    _statement(
        "linear",
        "linear",
        "no factorisation W_L⋯W_1 = A has Σ‖W_l‖² below L Σ s_i(A)^{2/L}",
        method="float64",
        cases=factorisations,
        measure=measure_factorisation,
        show=show,
        control=Control(
            "exponent 2/(L+1)",
            lambda: compare(
                linear_cost(np.array([0.5, 0.1]), 4), ">=", 4 / 5 * linear_cost(np.array([0.5, 0.1]), 5), 0.0
            ),
        ),
    ),
    _statement(
        "linear (minimiser)",
        "linear",
        "the balanced factorisation attains R(A; L) = L Σ s_i(A)^{2/L}",
        method="float64",
        cases=spectra,
        measure=measure_minimiser,
        show=_show_spectrum,
        control=Control(
            "unequal factors 4·1 of 4",
            lambda: compare(4.0**2 + 1.0, "=", linear_cost(np.array([4.0]), 2), 64 * EPS),
        ),
    ),
    _statement(
        "expansion",
        "expansion",
        "R(A; L) = L·rank A + 2 log|A|₊ + ‖log₊AᵀA‖²/(2L) up to (4/3)Σ|log s|³max(1, s^{2/L})/L²",
        method="float64",
        cases=spectra,
        measure=measure_expansion,
        show=_show_spectrum,
        control=Control(
            "‖log₊AᵀA‖²/L in the last term",
            lambda: compare(
                abs(
                    representation_cost([[3.0]], 64) - expansion(np.array([[3.0]]), 64) - float(np.log(9.0) ** 2) / 128
                ),
                "<=",
                third_order(np.array([3.0]), 64),
                1e-12,
            ),
        ),
    ),
    _statement(
        "expansion (order)",
        "expansion",
        "the remainder of the expansion is O(L⁻²): it falls at least fourfold when the depth doubles",
        method="float64",
        cases=spectra,
        measure=measure_order,
        show=_show_spectrum,
        control=Control(
            "the expansion without its last term",
            lambda: Check(
                math.log2(
                    (cost_expansion([[3.0]]).cost(512) - 512 - cost_expansion([[3.0]]).r1)
                    / (cost_expansion([[3.0]]).cost(1024) - 1024 - cost_expansion([[3.0]]).r1)
                ),
                2.0,
                ">=",
                0.05,
            ),
        ),
    ),
    _statement(
        "ranks (Rank_J)",
        "ranks",
        "Rank_J(f) = max_x rank Jf(x) ≤ R⁽⁰⁾(f)",
        method="exact",
        cases=integer_networks,
        measure=measure_sandwich_below,
        show=show,
        narrower=_UPPER,
        control=Control(
            "Rank_J(f) + 1 ≤ R⁽⁰⁾ at the identity of the plane",
            lambda: Check(3, cost_per_layer(_ROTATION)[0], "<=", 1e-12),
        ),
    ),
    _statement(
        "ranks (Rank_BN)",
        "ranks",
        "R⁽⁰⁾(f) ≤ Rank_BN(f), the least inner dimension of a factorisation f = h∘g",
        method="float64",
        cases=integer_networks,
        measure=measure_sandwich_above,
        show=show,
        narrower=_UPPER,
        control=Control(
            "an inner dimension one smaller", lambda: compare(cost_per_layer(_ROTATION)[0], "<=", 1, 1e-12)
        ),
    ),
    _statement(
        "ranks (composition)",
        "ranks",
        "R⁽⁰⁾(f∘g) ≤ min{R⁽⁰⁾(f), R⁽⁰⁾(g)}",
        method="exact",
        cases=lambda rng, draws: network_pairs(rng, draws, compose=True),
        measure=lambda case: _measure_pair(case, composed, lambda A, B: A @ B, composed_rank),
        show=lambda case: "all pairs" if case is None else f"# f:\n{show(case[0])}\n# g:\n{show(case[1])}",
        narrower=_UPPER,
        control=Control("one less than the minimum", lambda: Check(2, int(composed_rank(2, 2)) - 1, "<=")),
    ),
    _statement(
        "ranks (sum)",
        "ranks",
        "R⁽⁰⁾(f + g) ≤ R⁽⁰⁾(f) + R⁽⁰⁾(g)",
        method="exact",
        cases=lambda rng, draws: network_pairs(rng, draws, compose=False),
        measure=lambda case: _measure_pair(case, added, lambda A, B: A + B, added_rank),
        show=lambda case: "all pairs" if case is None else f"# f:\n{show(case[0])}\n# g:\n{show(case[1])}",
        narrower=_UPPER,
        control=Control(
            "the larger of the two instead of their sum",
            lambda: Check(int(small_rank(np.array([[1, 0], [0, 1]]))), max(1, 1), "<="),
        ),
    ),
    _statement(
        "ranks (linear map)",
        "ranks",
        "R⁽⁰⁾(x ↦ Ax; Ω) = rank A on a full-dimensional bounded Ω, of any sign",
        method="float64",
        cases=spectra,
        measure=measure_linear_rank,
        show=_show_spectrum,
        narrower="Ω = [−1, 1]^d",
        control=Control(
            "rank A − 1",
            lambda: compare(representation_cost(np.eye(2), _INFINITE_DEPTH) / _INFINITE_DEPTH, "=", 1, 1e-12),
        ),
    ),
    _statement(
        "ranks (circle, Rank_J)",
        "ranks",
        "the identity on the circle has Rank_J = 1",
        method="exact",
        cases=circle_points,
        measure=measure_circle_tangents,
        show=lambda points: f"{len(points)} rational points of the circle",
        control=Control(
            "the whole plane instead of the tangent", lambda: Check(int(np.linalg.matrix_rank(np.eye(2))), 1)
        ),
    ),
    _statement(
        "ranks (circle, Rank_BN)",
        "ranks",
        "no continuous f = h∘g through ℝ¹ is the identity on the circle: it misses some point by 1 at least; so Rank_BN = 2",
        method="float64",
        cases=through_a_line,
        measure=measure_circle,
        show=show,
        control=Control(
            "inner dimension 2: the identity misses by 0",
            lambda: Check(float(np.abs(outputs(*_identity(), np.eye(2)) - np.eye(2)).max()), 1.0, ">="),
        ),
    ),
)
