"""[teleport] Lem. 3.1 as printed: no bound on the outputs at initialisation, and a loss that is
Lipschitz but whose slope need not be.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold_papers.check import Check, at_least, outside
from neuromanifold_papers.statement import control, in_float64
from neuromanifold_papers.teleport.statements import limit
from neuromanifold_papers.teleport.statements.limit import RATE, Quadratic, decays, power_law
from neuromanifold_papers.teleport.statements.wide import Family

JUMPS = 40


def step(t: Any) -> Any:
    """0 up to 0, 3t² − 2t³, 1 from 1 on: continuously differentiable."""
    t = min(max(t, 0), 1)
    return t * t * (3 - 2 * t)


def is_smooth(h: Fraction = Fraction(1, 100)) -> bool:
    """Whether `step` leaves 0 and reaches 1 with slope 0: within 3h² of them at a distance h."""
    return step(h) <= 3 * h**2 and 1 - step(1 - h) <= 3 * h**2


def slope(z: Any) -> Any:
    """C'(z) = Σ_j 2^{−j} step(8^j (z − j)): increasing and below 1, so that C is convex and
    Lipschitz; C'' reaches 4^j·3/2 near j.
    """
    return sum(Fraction(1, 2**j) * step(8**j * (z - j)) for j in range(1, JUMPS))


@dataclass(frozen=True)
class Climb:
    """F_n(θ) = j + 1 − 2^{−j} + θ + ½m θ², m = 4·8^{−j}, at θ₀ = 0 with learning rate 1 and the
    loss of `slope`, for two j.
    """

    first: int = 6
    second: int = 12

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"family": "one parameter", "F(θ₀)": "unbounded"}

    def __str__(self) -> str:
        return (
            "from neuromanifold_papers.teleport.statements.unbounded import error, hessian\n"
            f"[float(error(j) / hessian(j)) for j in ({self.first}, {self.second})]  # grows like "
            "4**j"
        )


def hessian(j: int) -> Fraction:
    """m_j = 4·8^{−j}."""
    return Fraction(4, 8**j)


def error(j: int) -> Fraction:
    """|F(θ(2)) − F_lin(2)| after two steps, in rational numbers."""
    m, start = hessian(j), j + 1 - Fraction(1, 2**j)
    theta, linear = Fraction(0), start
    for _ in range(2):
        f = slope(start + theta + m * theta**2 / 2)
        theta, linear = theta - f * (1 + m * theta), linear - slope(linear)
    return abs(start + theta + m * theta**2 / 2 - linear)


def _loss(z: Any) -> Any:
    """∫C' in float64: a step's integral is t³ − t⁴/2 up to 1, then t − ½."""
    j = jnp.arange(1.0, 16.0)
    t = 8.0**j * (z - j)
    area = jnp.where(t < 0, 0.0, jnp.where(t < 1, t**3 - t**4 / 2, t - 0.5))
    return jnp.sum(2.0**-j * 8.0**-j * area)


def _error_by_jax(case: Climb) -> Check:
    """Two steps of gradient descent by JAX's derivatives of the loss and of the model, in
    float64, at j = 5 and 8.
    """

    def run(j: int) -> float:
        m, start = 4 * 8.0**-j, j + 1 - 2.0**-j
        model = lambda t: start + t + m * t**2 / 2  # noqa: E731
        theta, linear = 0.0, start
        for _ in range(2):
            theta = theta - jax.grad(lambda t: _loss(model(t)))(theta)
            linear = linear - jax.grad(_loss)(linear)
        return float(abs(model(theta) - linear))

    with jax.enable_x64(True):
        return at_least(power_law((run(5), run(8)), (8.0**3, 1.0)), 1.0, 1e-2)


@in_float64(
    "Lem 3.1",
    lambda rng, count: chain([Climb()], limit.ALL(rng, count)),
    limit.SLOW_HESSIAN,
    draws=20,
    confirm=_error_by_jax,
)
def lemma(case: Climb | Quadratic | Family, run: Any = limit.quadratic_run) -> Check:
    """‖H‖ = O(m_n), a normalised gradient, a twice differentiable Lipschitz loss: after any fixed number
    of steps ‖F − F_lin‖ = O(m_n).
    """
    if isinstance(case, Climb):
        both = (case.first, case.second)
        p = power_law([*map(error, both)], [*map(hessian, both)])
        return at_least(p, 1.0, 1e-2, drops=outside("C' jumps", when=not is_smooth()))
    return decays(case, "error", rate=RATE, run=run)


lem_3_1_amended = lemma.amend(
    control("F(θ₀) not bounded, the loss of the counterexample", Climb), cases=limit.ALL
)("the same, if C'' is bounded; where it is bounded on bounded sets only, if F(θ₀) = O(1) too")


@dataclass(frozen=True)
class Scaled:
    """F = z + m(uv − 1/m²) at u = c/m, v = 1/(cm): one linear neuron, moved by its scaling symmetry
    (u, v) ↦ (cu, v/c), with learning rate ½, the loss of `slope`, and m = 8·8^{−j}, for two j.
    """

    factor: Fraction
    first: int = 6
    second: int = 12

    def __str__(self) -> str:
        return (
            "from fractions import Fraction\n"
            "from neuromanifold_papers.teleport.statements.unbounded import Scaled, moved_errors\n"
            f"[float(e / m) for e, m in moved_errors(Scaled(Fraction({self.factor})))]  # 4**j"
        )


def moved_errors(case: Scaled) -> list[tuple[Fraction, Fraction]]:
    """|F(θ(2)) − F_lin(2)| after two steps, beside m, for both j, in rational numbers."""
    return [_moved_error(case.factor, j) for j in (case.first, case.second)]


def _moved_error(c: Fraction, j: int) -> tuple[Fraction, Fraction]:
    m, rate = Fraction(8, 8**j), Fraction(1, 2)
    kernel = rate * (c**2 + 1 / c**2)
    start = j + Fraction(17, 8) * (1 - Fraction(1, 2 ** (j + 2)))
    u, v, linear = c / m, 1 / (c * m), start
    for _ in range(2):
        f = slope(start + m * u * v - 1 / m)
        u, v = u - rate * f * m * v, v - rate * f * m * u
        linear -= kernel * slope(linear)
    return abs(start + m * u * v - 1 / m - linear), m


def _moved_by_jax(case: Scaled) -> Check:
    """Two steps by JAX's gradients of model and loss in float64, at j = 3 and 6."""

    def run(j: int) -> float:
        m, c = 8 * 8.0**-j, float(case.factor)
        start = j + 17 / 8 * (1 - 2.0 ** -(j + 2))
        model = lambda t: start + m * t[0] * t[1] - 1 / m  # noqa: E731
        theta = first = jnp.array([c / m, 1 / (c * m)])
        tangent = jnp.zeros(2)
        lin = lambda t: start + jax.grad(model)(first) @ t  # noqa: E731
        for _ in range(2):
            theta = theta - 0.5 * jax.grad(lambda t: _loss(model(t)))(theta)
            tangent = tangent - 0.5 * jax.grad(lambda t: _loss(lin(t)))(tangent)
        return float(abs(model(theta) - lin(tangent)))

    with jax.enable_x64(True):
        return at_least(power_law((run(3), run(6)), (8.0**3, 1.0)), 1.0, 1e-2)


_MOVED = limit.families(
    ("tanh", "hadamard"),
    ("tanh", "hadamard, later"),
    ("tanh, two layers", "hadamard"),
    ("relu", "hadamard"),
    ("relu", "scaling"),
    ("relu", "scaling, later"),
)
"""Bounded generalised symmetries of every weight, and neuron scalings, at initialisation and after
four steps.
"""


@in_float64(
    "Thm 4.1",
    lambda rng, count: chain([Scaled(Fraction(1)), Scaled(Fraction(2))], _MOVED(rng, count)),
    control("a symmetry whose ‖Γ‖ grows with the width", lambda: Family("tanh", "unbounded")),
    draws=20,
    confirm=_moved_by_jax,
)
def theorem(case: Scaled | Family) -> Check:
    """In the setup of Lem 3.1, after a symmetry with ‖Γ‖ ≤ C, at any step, ‖F − F_lin‖ is still O(m_n)."""
    if isinstance(case, Family):
        return decays(case, "error", rate=RATE)
    p = power_law(*zip(*moved_errors(case), strict=True))
    return at_least(p, 1.0, 1e-2, family="one linear neuron", c=str(case.factor))


thm_4_1_amended = theorem.amend(
    control(
        "F(θ₀) not bounded, the loss of the counterexample, c = 2", lambda: Scaled(Fraction(2))
    ),
    cases=_MOVED,
)("the same, if C'' is bounded; where it is bounded on bounded sets only, if F(θ₀) = O(1) too")
