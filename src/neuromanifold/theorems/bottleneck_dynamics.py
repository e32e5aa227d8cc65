"""`bottleneck`, two worked examples: the summary statistics of Sec. 5 and the diverging representations of Example 20.   [bottleneck, Sec. 5, Ex 20]"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold.bottleneck import example20, representation_lipschitz, summary_rates, summary_statistics
from neuromanifold.bottleneck.example20 import example20_excess
from neuromanifold.bottleneck.passage import squared_norm
from neuromanifold.bottleneck.summary_statistics import descent, summary_cost, summary_step
from neuromanifold.theorems.bottleneck_cases import EPS, PAPER, compare, outputs, worst
from neuromanifold.theorems.statement import Check, Control, Statement

Vector = tuple[Fraction, ...]

_F = Fraction
# Rational unit vectors in one, two and three dimensions.
_AXES: tuple[Vector, ...] = (
    (_F(1),),
    (_F(1), _F(0)),
    (_F(-3, 5), _F(4, 5)),
    (_F(1, 3), _F(-2, 3), _F(2, 3)),
)
_DECIDED = (
    "every v, w and dimension: rotations bring w to e₁ and v into a plane, and both sides are polynomials of degree 4 at most "
    "in each coordinate, which five values of each decide"
)


def grid(rng: np.random.Generator, draws: int) -> Iterator[tuple[Vector, Vector]]:
    """v on the lattice {−2, …, 2}^d for each axis w."""
    for w in _AXES:
        for v in itertools.product(range(-2, 3), repeat=len(w)):
            yield tuple(_F(x) for x in v), w


def dot(a: Vector, b: Vector) -> Fraction:
    """aᵀb."""
    return sum((x * y for x, y in zip(a, b, strict=True)), _F(0))


def cost(v: Vector, w: Vector) -> Fraction:
    """‖vvᵀ − wwᵀ‖² by its entries."""
    pairs = itertools.product(range(len(v)), repeat=2)
    return sum(((v[i] * v[j] - w[i] * w[j]) ** 2 for i, j in pairs), _F(0))


def velocity(v: Vector, w: Vector) -> Vector:
    """−∇C by the five-point stencil, which is exact on polynomials of degree 4."""

    def moved(i: int, step: int) -> Fraction:
        return cost((*v[:i], v[i] + step, *v[i + 1 :]), w)

    return tuple(-(moved(i, -2) - 8 * moved(i, -1) + 8 * moved(i, 1) - moved(i, 2)) / 12 for i in range(len(v)))


def axis_rate(norm: Any, along: Any) -> Any:
    """−8(‖v‖² − 1)(wᵀv)²."""
    return -8 * (norm - 1) * along


def rest_rate(norm: Any, across: Any) -> Any:
    """−8‖v‖²‖(1 − wwᵀ)v‖²."""
    return -8 * norm * across


def printed_cost(norm: Any, along: Any) -> Any:
    """‖v‖⁴ − 2(wᵀv)² + 1."""
    return norm**2 - 2 * along + 1


def _statistics(v: Vector, w: Vector) -> tuple[Fraction, Fraction]:
    return dot(v, w) ** 2, dot(v, v) - dot(v, w) ** 2


def measure_axis(case: tuple[Vector, Vector]) -> Check:
    v, w = case
    left = 2 * dot(v, w) * dot(w, velocity(v, w))
    return Check(left, axis_rate(dot(v, v), _statistics(v, w)[0]), hypotheses={"dimension": len(v)})


def measure_rest(case: tuple[Vector, Vector]) -> Check:
    v, w = case
    across = tuple(x - dot(v, w) * y for x, y in zip(v, w, strict=True))
    left = 2 * dot(across, velocity(v, w))
    return Check(left, rest_rate(dot(v, v), _statistics(v, w)[1]), hypotheses={"dimension": len(v)})


def measure_cost(case: tuple[Vector, Vector]) -> Check:
    v, w = case
    return Check(cost(v, w), printed_cost(dot(v, v), dot(v, w) ** 2), hypotheses={"dimension": len(v)})


Start = tuple[np.ndarray, np.ndarray]


def starts(rng: np.random.Generator, draws: int) -> Iterator[Start]:
    """(v, w) in one to six dimensions, on the axis, across it, and anywhere."""
    yield np.array([0.5]), np.array([1.0])
    yield np.array([0.0, 0.7]), np.array([1.0, 0.0])
    yield np.array([1.5, 0.0]), np.array([-1.0, 0.0])
    for index in range(max(4, draws // 4)):
        w = rng.normal(size=2 + index % 5)
        yield 0.7 * rng.normal(size=len(w)), w / np.linalg.norm(w)


def measure_flow(case: Start, rates: Any = None) -> Check:
    """Gradient flow on C, integrated in ℝ^d, against the two equations, integrated in the plane."""
    from scipy.integrate import solve_ivp

    v, w = case
    options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12, "t_eval": np.linspace(0, 0.5, 8), "method": "DOP853"}
    high = solve_ivp(lambda _, a: -4 * ((a @ a) * a - (w @ a) * w), (0, 0.5), v, **options).y.T
    low = solve_ivp(lambda _, u: (rates or printed_rates)(u), (0, 0.5), summary_statistics(v, w)[0], **options).y.T
    missed = float(np.abs(summary_statistics(high, w) - low).max())
    agrees = float(np.abs(printed_rates(low[-1]) - summary_rates(low[-1])).max())
    size = 1 + float(low.max())
    return worst(
        [compare(missed, "=", 0.0, 1e4 * 1e-10 * size), compare(agrees, "=", 0.0, 64 * EPS * size**2)],
        {"dimension": len(v)},
    )


def printed_rates(u: Any) -> np.ndarray:
    """Both rates as functions of the statistics alone."""
    norm = u[0] + u[1]
    return np.array([axis_rate(norm, u[0]), rest_rate(norm, u[1])])


def noise_bound(size: float, norm: float) -> float:
    """8‖E‖_op‖v‖², which makes the O(‖E‖) of both equations explicit."""
    return 8 * size * norm


def noisy(rng: np.random.Generator, draws: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(v, w, E) with noise of every size."""
    for v, w in starts(rng, 2 * draws):
        yield v, w, 10.0 ** rng.uniform(-6, 0) * rng.normal(size=(len(w), len(w)))


def measure_noise(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Check:
    """By how much E changes the two rates, against 8‖E‖‖v‖²."""
    v, w, E = case
    extra = 2 * (E + E.T) @ v
    across = v - (w @ v) * w
    path, _ = descent(v, w, rate=1e-3, steps=1, noise=E)
    clean, _ = descent(v, w, rate=1e-3, steps=1)
    assert np.allclose(path[1] - clean[1], 1e-3 * extra, atol=1e-12)
    changed = max(abs(float(2 * (w @ v) * (w @ extra))), abs(float(2 * across @ extra)))
    norm, size = float(v @ v), float(np.linalg.norm(E, ord=2))
    return compare(
        changed / size, "<=", noise_bound(size, norm) / size, 64 * EPS * (1 + norm), hypotheses={"dimension": len(v)}
    )


def measure_descent(case: Start) -> Check:
    """Statistics and costs along gradient descent against a map of the statistics alone: what is learned has bottleneck rank 2."""
    v, w = case
    path, costs = descent(v, w, rate=0.02, steps=10)
    u = summary_statistics(v, w)
    missed = 0.0
    for t in range(10):
        u = summary_step(u, 0.02)
        found = summary_statistics(path[t + 1], w)
        missed = max(missed, float(np.abs(found - u).max()), float(np.abs(costs[:, t] - summary_cost(u)).max()))
    return compare(missed, "=", 0.0, 64 * EPS * 10 * (1 + float(v @ v) ** 2), hypotheses={"dimension": len(v)})


Depth = tuple[int, float]


def depths(rng: np.random.Generator, draws: int) -> Iterator[Depth]:
    """(L, γ): even depths, as the paper's construction, and odd ones; γ over (½, 1)."""
    yield from itertools.product((2, 3, 4, 6, 8, 20, 41, 100), (0.75, 0.55, 0.95))
    for _ in range(draws // 2):
        yield int(rng.integers(2, 150)), float(rng.uniform(0.5, 1))


def wanted(x: np.ndarray) -> np.ndarray:
    """(x₁, x₂, x₃ + σ(x₁ − x₂))."""
    return np.stack([x[:, 0], x[:, 1], x[:, 2] + np.maximum(x[:, 0] - x[:, 1], 0)], axis=1)


_CUBE = np.array(list(itertools.product((0.0, 0.25, 1.0), repeat=3)))


def measure_example(case: Depth) -> Check:
    depth, gamma = case
    net, params = example20(depth, gamma=gamma)
    missed = float(np.abs(outputs(net, params, _CUBE) - wanted(_CUBE)).max())
    stretch = math.exp((depth - 2) / 2 * depth**-gamma)
    return compare(missed, "=", 0.0, 64 * EPS * depth * stretch**3, hypotheses={"depth": depth, "γ": round(gamma, 2)})


def excess_bound(depth: int, gamma: float) -> float:
    """12(L − 2)ε² cosh 4ε + 2e^{−(L−2)ε} + e^{−2(L−2)ε} with ε = L^{−γ}: o(1) exactly for ½ < γ < 1."""
    epsilon = depth**-gamma
    decay = math.exp(-(depth - 2) * epsilon)
    return 12 * (depth - 2) * epsilon**2 * math.cosh(4 * epsilon) + 2 * decay + decay**2


def even_depths(rng: np.random.Generator, draws: int) -> Iterator[Depth]:
    """Even depths with networks up to 100, then by the closed form up to 2⁶⁰."""
    yield from itertools.product((2, 4, 10, 100), (0.75, 0.55, 0.95))
    yield from itertools.product((2**20, 2**40, 2**60), (0.75, 0.6, 0.8))
    for _ in range(draws // 2):
        yield 2 * int(rng.integers(1, 60)), float(rng.uniform(0.5, 1))


def measure_excess(case: Depth) -> Check:
    """‖θ‖² − 3L of the network, or its closed form, against a bound that tends to 0; and the closed form against the network."""
    depth, gamma = case
    closed = _excess(depth, gamma)
    rounding = 64 * EPS * 3 * min(depth, 200)
    checks = [compare(closed, "<=", excess_bound(depth, gamma), rounding)]
    if depth <= 200:
        checks.append(compare(squared_norm(*example20(depth, gamma=gamma)) - 3 * depth, "=", closed, rounding))
    else:
        checks.append(compare(closed, "<=", 13 * depth ** (1 - 2 * gamma), rounding))
    return worst(checks, {"depth": depth, "γ": round(gamma, 2)})


def _excess(depth: int, gamma: float) -> float:
    """The library's closed form; far out, where cosh − 1 is below rounding, its two leading terms."""
    epsilon = float(depth) ** -gamma
    if depth <= 2**20:
        return example20_excess(depth, epsilon)
    return (depth - 2) / 2 * (24 * epsilon**2 + 24 * epsilon**4)


def least_lipschitz(excess: float) -> float:
    """√(√2/(‖θ‖² − 3L)): what P 13 demands of C, as ‖Jf(x) − Jf(y)‖_* = √2 across x₁ = x₂."""
    return math.sqrt(math.sqrt(2) / excess)


def measure_divergence(case: Depth) -> Check:
    """The largest ‖Jα_l‖ against e^{(L−2)ε/2}, which it attains, and the least that P 13 allows; both grow without bound."""
    depth, gamma = case
    net, params = example20(depth, gamma=gamma)
    found = float(representation_lipschitz(net, params, _CUBE).max())
    excess, stretch = _excess(depth, gamma), math.exp((depth - 2) / 2 * depth**-gamma)
    return worst(
        [
            compare(found, ">=", stretch, 64 * EPS * depth * stretch),
            compare(found, ">=", least_lipschitz(excess), 1e-9),
        ],
        {"depth": depth, "γ": round(gamma, 2)},
    )


def _statement(id: str, row: str, says: str, **fields: Any) -> Statement:
    return Statement(paper=PAPER, row=row, id=id, says=says, **fields)


def _show_vectors(case: tuple[Vector, Vector]) -> str:
    return "; ".join(f"{name} = ({', '.join(map(str, part))})" for name, part in zip("vw", case, strict=True))


def _show_start(case: tuple[np.ndarray, ...]) -> str:
    return "; ".join(f"{name} = np.array({part.tolist()})" for name, part in zip("vwE", case, strict=False))


_HALF = ((_F(1), _F(1)), (_F(1), _F(0)))

STATEMENTS = (
    _statement(
        "Sec 5 (along w)",
        "Sec 5",
        "gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ(wᵀv)² = −8(‖v‖² − 1)(wᵀv)²",
        method="exact",
        cases=grid,
        measure=measure_axis,
        show=_show_vectors,
        exhaustive=_DECIDED,
        control=Control(
            "−4 instead of −8 at v = (1, 1), w = (1, 0)", lambda: Check(measure_axis(_HALF).left, axis_rate(2, 1) / 2)
        ),
    ),
    _statement(
        "Sec 5 (across w)",
        "Sec 5",
        "gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ‖(1 − wwᵀ)v‖² = −8‖v‖²‖(1 − wwᵀ)v‖²",
        method="exact",
        cases=grid,
        measure=measure_rest,
        show=_show_vectors,
        exhaustive=_DECIDED,
        control=Control(
            "‖v‖² − 1 instead of ‖v‖² at v = (1, 1), w = (1, 0)",
            lambda: Check(measure_rest(_HALF).left, rest_rate(1, 1)),
        ),
    ),
    _statement(
        "Sec 5 (flow)",
        "Sec 5",
        "the two equations are self-consistent: integrated alone they follow the statistics of the flow",
        method="integration",
        cases=starts,
        measure=measure_flow,
        show=_show_start,
        control=Control(
            "both rates halved",
            lambda: measure_flow((np.array([0.5, 0.5]), np.array([1.0, 0.0])), lambda u: printed_rates(u) / 2),
        ),
    ),
    _statement(
        "Sec 5 (noise)",
        "Sec 5",
        "noise E changes both rates by O(‖E‖): by 8‖E‖‖v‖² at most",
        method="float64",
        cases=noisy,
        measure=measure_noise,
        show=_show_start,
        control=Control(
            "half of it, at v = w and E = wwᵀ", lambda: compare(8.0, "<=", noise_bound(1.0, 1.0) / 2, 1e-12)
        ),
    ),
    _statement(
        "Sec 5 (cost)",
        "Sec 5",
        "C(v) = ‖v‖⁴ − 2(wᵀv)² + 1 at E = 0",
        method="exact",
        cases=grid,
        measure=measure_cost,
        show=_show_vectors,
        exhaustive=_DECIDED,
        control=Control("‖v‖² instead of ‖v‖⁴ at v = (1, 1), w = (1, 0)", lambda: Check(cost(*_HALF), 2 - 2 + 1)),
    ),
    _statement(
        "Sec 5 (descent)",
        "Sec 5",
        "at E = 0 the costs of gradient descent are a function of the two statistics of v(0) alone, so that f* has bottleneck rank 2 at most",
        method="float64",
        cases=starts,
        measure=measure_descent,
        show=_show_start,
        control=Control(
            "with noise they are not",
            lambda: compare(
                float(
                    np.abs(
                        descent([0.5, 0.5], [1.0, 0.0], rate=0.02, steps=1, noise=0.1 * np.eye(2))[1]
                        - descent([0.5, 0.5], [1.0, 0.0], rate=0.02, steps=1)[1]
                    ).max()
                ),
                "=",
                0.0,
                1e-12,
            ),
        ),
    ),
    _statement(
        "Ex 20",
        "Ex 20",
        "the printed weights represent (x₁, x₂, x₃ + σ(x₁ − x₂)) on [0, 1]³",
        method="float64",
        cases=depths,
        measure=measure_example,
        control=Control(
            "outside the orthant, at (−1, −1, 0)",
            lambda: compare(
                float(
                    np.abs(
                        outputs(*example20(8), np.array([[-1.0, -1.0, 0.0]])) - wanted(np.array([[-1.0, -1.0, 0.0]]))
                    ).max()
                ),
                "=",
                0.0,
                1e-12,
            ),
        ),
    ),
    _statement(
        "Ex 20 (norm)",
        "Ex 20",
        "‖θ‖² = 3L + o(1) with ε = L^{−γ}, ½ < γ < 1, so that R⁽⁰⁾ = 3 and R⁽¹⁾ = 0",
        method="float64",
        cases=even_depths,
        measure=measure_excess,
        control=Control(
            "γ = ½: the excess tends to 12", lambda: compare(_excess(2**40, 0.5), "<=", excess_bound(2**40, 0.75), 1e-9)
        ),
    ),
    _statement(
        "Ex 20 (divergence)",
        "Ex 20",
        "the representations are not uniformly Lipschitz: ‖Jα_l‖ reaches e^{(L−2)ε/2}, and P 13 makes C ≥ √(√2/(‖θ‖² − 3L))",
        method="float64",
        cases=lambda rng, draws: [case for case in depths(rng, draws) if case[0] % 2 == 0],
        measure=measure_divergence,
        narrower="the representations of the construction, not of the unknown optimum; of those P 13 speaks",
        control=Control(
            "ε = 0: bounded representations, and the excess stays 3",
            lambda: compare(
                float(representation_lipschitz(*example20(100, epsilon=0.0), _CUBE).max()),
                ">=",
                math.exp(49 * 100**-0.75),
                1e-9,
            ),
        ),
    ),
)
