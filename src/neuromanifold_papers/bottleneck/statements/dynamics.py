"""`bottleneck`, the summary statistics of gradient descent.   [bottleneck, Sec. 5]"""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import EPS, compare, worst
from neuromanifold_papers.bottleneck.summary_statistics import (
    descent,
    summary_cost,
    summary_rates,
    summary_statistics,
    summary_step,
)
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement

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
    "every v, w and dimension: rotations bring w to e₁ and v into a plane, and both sides are "
    "polynomials of "
    "degree 4 at most"
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

    return tuple(
        -(moved(i, -2) - 8 * moved(i, -1) + 8 * moved(i, 1) - moved(i, 2)) / 12
        for i in range(len(v))
    )


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


Start = tuple[np.ndarray, np.ndarray]


def starts(rng: np.random.Generator, draws: int) -> Iterator[Start]:
    """(v, w) in one to six dimensions, on the axis, across it, and anywhere."""
    yield np.array([0.5]), np.array([1.0])
    yield np.array([0.0, 0.7]), np.array([1.0, 0.0])
    yield np.array([1.5, 0.0]), np.array([-1.0, 0.0])
    for index in range(max(4, draws // 4)):
        w = rng.normal(size=2 + index % 5)
        yield 0.7 * rng.normal(size=len(w)), w / np.linalg.norm(w)


def printed_rates(u: Any) -> np.ndarray:
    """Both rates as functions of the statistics alone."""
    norm = u[0] + u[1]
    return np.array([axis_rate(norm, u[0]), rest_rate(norm, u[1])])


def noise_bound(size: float, norm: float) -> float:
    """8‖E‖_op‖v‖², which makes the O(‖E‖) of both equations explicit."""
    return 8 * size * norm


def noisy(
    rng: np.random.Generator, draws: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(v, w, E) with noise of every size."""
    for v, w in starts(rng, 2 * draws):
        yield v, w, 10.0 ** rng.uniform(-6, 0) * rng.normal(size=(len(w), len(w)))


def _show_vectors(case: tuple[Vector, Vector]) -> str:
    return "; ".join(
        f"{name} = ({', '.join(map(str, part))})" for name, part in zip("vw", case, strict=True)
    )


def _show_start(case: tuple[np.ndarray, ...]) -> str:
    return "; ".join(
        f"{name} = np.array({part.tolist()})" for name, part in zip("vwE", case, strict=False)
    )


_HALF = ((_F(1), _F(1)), (_F(1), _F(0)))


@statement(
    "Sec 5 (along w)",
    grid,
    control(
        "−4 instead of −8 at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        rate=lambda norm, along: axis_rate(norm, along) / 2,
    ),
    show=_show_vectors,
    exhaustive=_DECIDED,
)
def measure_axis(case: tuple[Vector, Vector], rate: Callable[[Any, Any], Any] = axis_rate) -> Check:
    """Gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ(wᵀv)² = −8(‖v‖² − 1)(wᵀv)²."""
    v, w = case
    left = 2 * dot(v, w) * dot(w, velocity(v, w))
    return equal(left, rate(dot(v, v), _statistics(v, w)[0]), dimension=len(v))


@statement(
    "Sec 5 (across w)",
    grid,
    control(
        "‖v‖² − 1 instead of ‖v‖² at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        rate=lambda norm, across: rest_rate(norm - 1, across),
    ),
    show=_show_vectors,
    exhaustive=_DECIDED,
)
def measure_rest(case: tuple[Vector, Vector], rate: Callable[[Any, Any], Any] = rest_rate) -> Check:
    """Gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ‖(1 − wwᵀ)v‖² = −8‖v‖²‖(1 − wwᵀ)v‖²."""
    v, w = case
    across = tuple(x - dot(v, w) * y for x, y in zip(v, w, strict=True))
    left = 2 * dot(across, velocity(v, w))
    return equal(left, rate(dot(v, v), _statistics(v, w)[1]), dimension=len(v))


@statement(
    "Sec 5 (flow)",
    starts,
    control(
        "both rates halved",
        lambda: (np.array([0.5, 0.5]), np.array([1.0, 0.0])),
        rates=lambda u: printed_rates(u) / 2,
    ),
    method="integration",
    show=_show_start,
)
def measure_flow(case: Start, rates: Any = None) -> Check:
    """The two equations are self-consistent: integrated alone they follow the statistics of the
    flow.

    Gradient flow on C, integrated in ℝ^d, against the two equations, integrated in the plane.
    """
    from scipy.integrate import solve_ivp

    v, w = case
    options: dict[str, Any] = {
        "rtol": 1e-10,
        "atol": 1e-12,
        "t_eval": np.linspace(0, 0.5, 8),
        "method": "DOP853",
    }
    high = solve_ivp(lambda _, a: -4 * ((a @ a) * a - (w @ a) * w), (0, 0.5), v, **options).y.T
    low = solve_ivp(
        lambda _, u: (rates or printed_rates)(u), (0, 0.5), summary_statistics(v, w)[0], **options
    ).y.T
    missed = float(np.abs(summary_statistics(high, w) - low).max())
    agrees = float(np.abs(printed_rates(low[-1]) - summary_rates(low[-1])).max())
    size = 1 + float(low.max())
    return worst(
        [
            compare(missed, "=", 0.0, 1e4 * 1e-10 * size),
            compare(agrees, "=", 0.0, 64 * EPS * size**2),
        ],
        {"dimension": len(v)},
    )


@statement(
    "Sec 5 (noise)",
    noisy,
    control(
        "half of it, at v = 4w and E = wwᵀ",
        lambda: (np.array([4.0, 0.0]), np.array([1.0, 0.0]), np.diag([1.0, 0.0])),
        bound=lambda size, norm: noise_bound(size, norm) / 2,
    ),
    method="float64",
    show=_show_start,
)
def measure_noise(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
    bound: Callable[[float, float], float] = noise_bound,
) -> Check:
    """Noise E changes both rates by O(‖E‖): by 8‖E‖‖v‖² at most.

    By how much E changes the two rates, against 8‖E‖‖v‖².
    """
    v, w, E = case
    extra = 2 * (E + E.T) @ v
    across = v - (w @ v) * w
    path, _ = descent(v, w, rate=1e-3, steps=1, noise=E)
    clean, _ = descent(v, w, rate=1e-3, steps=1)
    assert np.allclose(path[1] - clean[1], 1e-3 * extra, atol=1e-12)
    changed = max(abs(float(2 * (w @ v) * (w @ extra))), abs(float(2 * across @ extra)))
    norm, size = float(v @ v), float(np.linalg.norm(E, ord=2))
    return compare(
        changed / size,
        "<=",
        bound(size, norm) / size,
        64 * EPS * (1 + norm),
        hypotheses={"dimension": len(v)},
    )


@statement(
    "Sec 5 (cost)",
    grid,
    control(
        "‖v‖² instead of ‖v‖⁴ at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        formula=lambda norm, along: norm - 2 * along + 1,
    ),
    show=_show_vectors,
    exhaustive=_DECIDED,
)
def measure_cost(
    case: tuple[Vector, Vector], formula: Callable[[Any, Any], Any] = printed_cost
) -> Check:
    """C(v) = ‖v‖⁴ − 2(wᵀv)² + 1 at E = 0."""
    v, w = case
    return equal(cost(v, w), formula(dot(v, v), dot(v, w) ** 2), dimension=len(v))


@statement(
    "Sec 5 (descent)",
    starts,
    control(
        "with noise they are not",
        lambda: (np.array([0.5, 0.5]), np.array([1.0, 0.0])),
        noise=0.1 * np.eye(2),
    ),
    method="float64",
    show=_show_start,
)
def measure_descent(case: Start, noise: np.ndarray | None = None) -> Check:
    """At E = 0 the costs of gradient descent are a function of the two statistics of v(0) alone,
    so that f* has bottleneck rank 2 at most.

    Statistics and costs along gradient descent against a map of the statistics alone: what is
    learned has bottleneck rank 2.
    """
    v, w = case
    path, costs = descent(v, w, rate=0.02, steps=10, noise=noise)
    u = summary_statistics(v, w)
    missed = 0.0
    for t in range(10):
        u = summary_step(u, 0.02)
        found = summary_statistics(path[t + 1], w)
        missed = max(
            missed,
            float(np.abs(found - u).max()),
            float(np.abs(costs[:, t] - summary_cost(u)).max()),
        )
    return compare(
        missed, "=", 0.0, 64 * EPS * 10 * (1 + float(v @ v) ** 2), hypotheses={"dimension": len(v)}
    )
