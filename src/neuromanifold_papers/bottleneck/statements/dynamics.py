"""`bottleneck`, the summary statistics of gradient descent.   [bottleneck, Sec. 5]"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.summary_statistics import (
    descent,
    summary_cost,
    summary_rates,
    summary_statistics,
    summary_step,
)
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, named, statement

# Rational unit vectors in one, two and three dimensions, by their entries times 1, 1, 5 and 3.
_AXES = (((1,), 1), ((1, 0), 1), ((-3, 4), 5), ((1, -2, 2), 3))
_DECIDED = (
    "every v, w and dimension: rotations bring w to e₁ and v into a plane, and both sides are "
    "polynomials of "
    "degree 4 at most in each coordinate, which five values of each decide"
)


Exact = tuple[np.ndarray, np.ndarray]
"""v and w, in fractions."""


def grid(rng: np.random.Generator, draws: int) -> Iterator[Exact]:
    """v on the lattice {−2, …, 2}^d for each axis w."""
    for w, scale in _AXES:
        for v in itertools.product(range(-2, 3), repeat=len(w)):
            yield cases.fractions(v), cases.fractions(w) / scale


def cost(v: np.ndarray, target: np.ndarray) -> Any:
    """‖vvᵀ − target‖² by its entries; target = wwᵀ without noise."""
    return np.sum((np.outer(v, v) - target) ** 2)


def along(f: Callable[[np.ndarray], Any], v: np.ndarray, u: np.ndarray) -> Any:
    """∂f(v) along u by five points, exact for polynomials of degree 4."""
    return (f(v - 2 * u) - 8 * f(v - u) + 8 * f(v + u) - f(v + 2 * u)) / 12


def gradient(f: Callable[[np.ndarray], Any], v: np.ndarray) -> np.ndarray:
    """∇f(v), of a polynomial of degree 4."""
    return np.array([along(f, v, e) for e in cases.fractions(np.eye(len(v), dtype=int))])


def velocity(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """−∇C."""
    return -gradient(lambda u: cost(u, np.outer(w, w)), v)


def axis_rate(norm: Any, along: Any) -> Any:
    """−8(‖v‖² − 1)(wᵀv)²."""
    return -8 * (norm - 1) * along


def rest_rate(norm: Any, across: Any) -> Any:
    """−8‖v‖²‖(1 − wwᵀ)v‖²."""
    return -8 * norm * across


def printed_cost(norm: Any, along: Any) -> Any:
    """‖v‖⁴ − 2(wᵀv)² + 1."""
    return norm**2 - 2 * along + 1


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


exact = partial(statement, show=named("v, w"), exhaustive=_DECIDED)
_HALF = (cases.fractions((1, 1)), cases.fractions((1, 0)))


@exact(
    "Sec 5 (along w)",
    grid,
    control(
        "−4 instead of −8 at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        rate=lambda norm, along: axis_rate(norm, along) / 2,
    ),
)
def measure_axis(case: Exact, rate: Callable[[Any, Any], Any] = axis_rate) -> Check:
    """Gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ(wᵀv)² = −8(‖v‖² − 1)(wᵀv)²."""
    v, w = case
    left = 2 * (v @ w) * (w @ velocity(v, w))
    return equal(left, rate(v @ v, (v @ w) ** 2), dimension=len(v))


@exact(
    "Sec 5 (across w)",
    grid,
    control(
        "‖v‖² − 1 instead of ‖v‖² at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        rate=lambda norm, across: rest_rate(norm - 1, across),
    ),
)
def measure_rest(case: Exact, rate: Callable[[Any, Any], Any] = rest_rate) -> Check:
    """Gradient flow on ‖vvᵀ − wwᵀ‖² has ∂ₜ‖(1 − wwᵀ)v‖² = −8‖v‖²‖(1 − wwᵀ)v‖²."""
    v, w = case
    left = 2 * (v - (v @ w) * w) @ velocity(v, w)
    return equal(left, rate(v @ v, v @ v - (v @ w) ** 2), dimension=len(v))


@statement(
    "Sec 5 (flow)",
    starts,
    control(
        "both rates halved",
        lambda: (np.array([0.5, 0.5]), np.array([1.0, 0.0])),
        rates=lambda u: printed_rates(u) / 2,
    ),
    method="integration",
    show=named("v, w"),
)
def measure_flow(case: Start, rates: Any = None) -> Check:
    """The two equations are self-consistent: integrated alone they follow the statistics of the
    flow.

    Gradient flow on C, integrated in ℝ^d, against the two equations, integrated in the plane.
    """
    from scipy.integrate import solve_ivp

    v, w = case

    def followed(field: Callable[[Any], Any], start: np.ndarray) -> np.ndarray:
        times, wanted = np.linspace(0, 0.5, 8), {"rtol": 1e-10, "atol": 1e-12}
        flow = partial(solve_ivp, t_eval=times, method="DOP853", **wanted)
        return flow(lambda _, at: field(at), (0, 0.5), start).y.T

    high = followed(lambda a: -4 * ((a @ a) * a - (w @ a) * w), v)
    low = followed(rates or printed_rates, summary_statistics(v, w)[0])
    missed = float(np.abs(summary_statistics(high, w) - low).max())
    agrees = float(np.abs(printed_rates(low[-1]) - summary_rates(low[-1])).max())
    size = 1 + float(low.max())
    return cases.worst(
        [
            cases.compare(missed, "=", 0.0, 1e4 * 1e-10 * size),
            cases.compare(agrees, "=", 0.0, 64 * cases.EPS * size**2),
        ],
        dimension=len(v),
    )


@cases.numeric(
    "Sec 5 (noise)",
    lambda rng, draws: (
        (v, w, 10.0 ** rng.uniform(-6, 0) * rng.normal(size=(len(w), len(w))))
        for v, w in starts(rng, 2 * draws)
    ),
    control(
        "half of it, at v = 4w and E = wwᵀ",
        lambda: (np.array([4.0, 0.0]), np.array([1.0, 0.0]), np.diag([1.0, 0.0])),
        bound=lambda size, norm: noise_bound(size, norm) / 2,
    ),
    show=named("v, w, E"),
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
    most, rounding = bound(size, norm) / size, 64 * cases.EPS * (1 + norm)
    return cases.compare(changed / size, "<=", most, rounding, dimension=len(v))


@exact(
    "Sec 5 (cost)",
    grid,
    control(
        "‖v‖² instead of ‖v‖⁴ at v = (1, 1), w = (1, 0)",
        lambda: _HALF,
        formula=lambda norm, along: norm - 2 * along + 1,
    ),
)
def measure_cost(case: Exact, formula: Callable[[Any, Any], Any] = printed_cost) -> Check:
    """C(v) = ‖v‖⁴ − 2(wᵀv)² + 1 at E = 0."""
    v, w = case
    return equal(cost(v, np.outer(w, w)), formula(v @ v, (v @ w) ** 2), dimension=len(v))


@cases.numeric(
    "Sec 5 (descent)",
    starts,
    control(
        "with noise they are not",
        lambda: (np.array([0.5, 0.5]), np.array([1.0, 0.0])),
        noise=0.1 * np.eye(2),
    ),
    show=named("v, w"),
)
def measure_descent(case: Start, noise: np.ndarray | None = None) -> Check:
    """At E = 0 the costs of gradient descent are a function of the two statistics of v(0) alone,
    so that f* has bottleneck rank 2 at most.

    Statistics and costs along gradient descent against a map of the statistics alone: what is
    learned has bottleneck rank 2.
    """
    v, w = case
    path, costs = descent(v, w, rate=0.02, steps=10, noise=noise)
    u, gaps = summary_statistics(v, w), []
    for t in range(10):
        u = summary_step(u, 0.02)
        gaps += [summary_statistics(path[t + 1], w) - u, costs[:, t] - summary_cost(u)]
    missed = max(float(np.abs(gap).max()) for gap in gaps)
    rounding = 64 * cases.EPS * 10 * (1 + float(v @ v) ** 2)
    return cases.compare(missed, "=", 0.0, rounding, dimension=len(v))
