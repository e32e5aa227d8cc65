"""[teleport] Lem. 3.1 as printed: no bound on the outputs at initialisation, and a loss that is
Lipschitz but whose slope need not be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from inspect import cleandoc
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.statement import Control, Statement
from neuromanifold_papers.teleport.statements.limit import (
    RATE,
    ROW,
    SLOW_HESSIAN,
    Quadratic,
    decays,
    lemma_cases,
    quadratic_run,
)
from neuromanifold_papers.teleport.statements.wide import Family

JUMPS = 40


def step(t: Any) -> Any:
    """0 up to 0, 3t² − 2t³, 1 from 1 on: continuously differentiable."""
    t = min(max(t, 0), 1)
    return t * t * (3 - 2 * t)


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


def error(j: int, gradient: Callable[[Any], Any] = slope) -> Fraction:
    """|F(θ(2)) − F_lin(2)| after two steps, in rational numbers."""
    m, start = hessian(j), j + 1 - Fraction(1, 2**j)
    theta, linear = Fraction(0), start
    for _ in range(2):
        f = gradient(start + theta + m * theta**2 / 2)
        theta, linear = theta - f * (1 + m * theta), linear - gradient(linear)
    return abs(start + theta + m * theta**2 / 2 - linear)


def exponent(case: Climb, gradient: Callable[[Any], Any] = slope) -> float:
    """p in ‖F − F_lin‖ ∝ m^p between the two j."""
    errors, sizes = (
        [f(j) for j in (case.first, case.second)] for f in (lambda j: error(j, gradient), hessian)
    )
    return float(np.log(float(errors[0] / errors[1])) / np.log(float(sizes[0] / sizes[1])))


def _error_by_jax(case: Climb) -> Check:
    """Two steps of gradient descent by JAX's derivatives of the loss and of the model, in
    float64, at j = 5 and 8.
    """
    import jax
    import jax.numpy as jnp

    def loss(z: Any) -> Any:
        """∫C': a step's integral is t³ − t⁴/2 up to 1, then t − ½."""
        j = jnp.arange(1.0, 16.0)
        t = 8.0**j * (z - j)
        area = jnp.where(t < 0, 0.0, jnp.where(t < 1, t**3 - t**4 / 2, t - 0.5))
        return jnp.sum(2.0**-j * 8.0**-j * area)

    def run(j: int) -> float:
        m, start = 4 * 8.0**-j, j + 1 - 2.0**-j
        model = lambda t: start + t + m * t**2 / 2  # noqa: E731
        theta, linear = 0.0, start
        for _ in range(2):
            theta, linear = (
                theta - jax.grad(lambda t: loss(model(t)))(theta),
                linear - jax.grad(loss)(linear),
            )
        return float(abs(model(theta) - linear))

    with jax.enable_x64(True):
        errors = [run(j) for j in (5, 8)]
    return Check(float(np.log(errors[0] / errors[1]) / np.log(8.0**3)), 1.0, ">=", 1e-2)


def linearises(
    case: Climb | Quadratic | Family, run: Callable[..., dict[str, float]] = quadratic_run
) -> Check:
    """‖F − F_lin‖ = O(m^p) with p = 1."""
    if isinstance(case, Climb):
        return Check(exponent(case), 1.0, ">=", 1e-2, case.hypotheses)
    return decays(case, "error", rate=RATE, run=run)


def _printed_cases(rng: np.random.Generator, count: int) -> Iterator[Any]:
    yield Climb()
    yield from lemma_cases("tanh, two layers", "relu", "tanh")(rng, count)


LEMMA = Statement(
    paper="teleport",
    row=ROW,
    id="Lem 3.1",
    says="‖H‖ = O(m_n), a normalised gradient, a twice differentiable Lipschitz loss: after any "
    "fixed number of steps "
    "‖F − F_lin‖ = O(m_n)",
    method="float64",
    cases=_printed_cases,
    measure=linearises,
    control=SLOW_HESSIAN,
    draws=20,
    show=str,
    narrower="quadratic models after 6 steps, three losses and rates; tanh and ReLU networks "
    "after 8 steps, slope up to 4 errors",
    confirm=_error_by_jax,
    route="float64, JAX's gradients of loss and model",
    worked=cleandoc("""One loss for all n: C'(z) = Σ_j 2^{−j} s(8^j(z − j)) with a smooth step s from 0 to 1 on [0, 1]. C' increases from 0
    to 1, so C is convex, Lipschitz and twice differentiable; but it rises by 2^{−j} within 8^{−j} of z = j. Take F = j + 1 −
    2^{−j} + θ + ½mθ² with m = 4·8^{−j}, θ₀ = 0, learning rate 1: ∇F = 1, H = m. At F(θ₀) the slope is c = 1 − 2^{−j}. After
    one step F_lin = j, at the foot of the j-th rise, and F = j + ½mc² ≥ j + 8^{−j}, on top of it: F and F_lin differ by 2·8^{−j}
    or less, their slopes by 2^{−j}. After the second step F and F_lin differ by 2^{−j} up to O(m), which is m^{1/3}, not O(m).
    The proof calls bounded outputs (Eq. 51) the trivial base case; F(θ₀) = O(1) is nowhere assumed, and C'' is not bounded."""),
    amended=Statement(
        paper="teleport",
        row=ROW,
        id="Lem 3.1 (amended)",
        says="the same, if F(θ₀) = O(1) and C'' is bounded on bounded sets",
        method="float64",
        cases=lemma_cases("tanh, two layers", "relu", "tanh"),
        measure=linearises,
        control=Control("F(θ₀) not bounded, the loss of the counterexample", case=Climb),
        draws=20,
        show=str,
        narrower="quadratic models after 6 steps, three losses and rates; tanh and ReLU networks "
        "after 8 steps, slope up to 4 errors",
        proof=cleandoc("""Measure θ in units of √η: then ‖∇F(θ₀)‖ ≤ G, ‖∇²F‖ ≤ cm on every fixed ball, and the rate is 1. |C'| ≤ Λ, so the
        step is at most Λ(G + cmr) at distance r: after s steps r ≤ r_s, fixed in n, hence ‖∇F(θ(s)) − ∇F(θ₀)‖ ≤ cmr_s, and F and
        F_lin stay bounded. By Taylor F(θ(s+1)) − F(θ(s)) = −Θ₀f(s)/|X| + O(m), while F_lin moves by −Θ₀f_lin(s)/|X|. With
        |C''| ≤ K on the bounded set that both visit, e(s+1) ≤ (1 + G²K)e(s) + O(m) and e(0) = 0."""),
    ),
)
