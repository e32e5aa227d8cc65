"""[teleport] on the kernel limit and what keeps it.   Lem. 3.1, Thm. 4.1"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, cycle, islice, product, starmap
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most
from neuromanifold_papers.statement import Cases, control, in_float64, statement
from neuromanifold_papers.teleport.statements.wide import Family, measured
from neuromanifold_papers.teleport.statistics import Estimate, log_slope

RATE = -0.5
SMALL = (1e-4, 1e-6)


def lower_end(slope: Estimate) -> float:
    """Four standard errors below the slope: a rate is rejected only beyond it."""
    return slope.value - 2 * (slope.value - slope.low)


SIGNALS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log cosh": np.tanh,
    "√(1 + z²)": lambda z: z / np.sqrt(1 + z**2),
    "logistic": lambda z: 1 / (1 + np.exp(-z)),
}
"""C' of convex, smooth, Lipschitz losses with bounded C''; C' = 1 for others: a linear one."""


@dataclass(frozen=True)
class Quadratic:
    """F_k(θ) = a_k·θ + ½ m θᵀB_kθ with ‖B_k‖ = 1 on a few samples: ‖∇F‖ = O(1), ‖H‖ = m, for
    every sequence m = m_n → 0.
    """

    parameters: int
    samples: int
    seed: int
    loss: str = "log cosh"
    lr: float = 1.0

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"family": "quadratic", **{k: v for k, v in vars(self).items() if k != "seed"}}


@lru_cache(maxsize=512)
def quadratic_run(case: Quadratic, m: float, steps: int = 6) -> dict[str, float]:
    """What `wide.Measured` names, after gradient descent on ΣC(F − y)/|X|."""
    signal, lr = SIGNALS.get(case.loss, np.ones_like), case.lr
    rng = np.random.default_rng(case.seed)
    n, d = case.samples, case.parameters
    a, y, start = (rng.normal(size=shape) for shape in ((n, d), n, d))
    a, start = a / np.sqrt(d), start / np.sqrt(d)
    b = rng.normal(size=(n, d, d))
    b = b + b.transpose(0, 2, 1)
    b /= np.linalg.norm(b, 2, axis=(1, 2))[:, None, None]
    value = lambda t: a @ t + m / 2 * np.einsum("kij,i,j->k", b, t, t)  # noqa: E731
    rows = lambda t: a + m * b @ t  # noqa: E731
    theta, linear, first = start, value(start), rows(start)
    for _ in range(steps):
        theta = theta - lr * rows(theta).T @ signal(value(theta) - y) / n
        linear = linear - lr * first @ (first.T @ signal(linear - y)) / n
    gradients = [rows(t).T @ signal(value(t) - y) / n for t in (start, theta)]
    parts = {
        "error": value(theta) - linear,
        "distance": theta - start,
        "function_gradient": rows(theta) - first,
        "loss_gradient": gradients[1] - gradients[0],
        "outputs": value(theta),
    }
    return {name: float(np.linalg.norm(part)) for name, part in parts.items()}


def power_law(values: Sequence[Any], sizes: Sequence[Any]) -> float:
    """p in value ∝ size^p, between two sizes."""
    (a, b), (m, n) = values, sizes
    return float(np.log(float(a / b)) / np.log(float(m / n)))


def quadratics(rng: np.random.Generator, count: int) -> Iterator[Quadratic]:
    for parameters in (1, 2, 5, 20):
        for samples in (1, 2, 3):
            yield Quadratic(parameters, samples, int(rng.integers(2**31)))
    for lr, loss in islice(cycle(product((0.1, 1.0, 2.0), SIGNALS)), count):
        parameters, samples = int(rng.integers(1, 40)), int(rng.integers(1, 6))
        yield Quadratic(parameters, samples, int(rng.integers(2**31)), loss, lr)


SMOOTH = ("tanh, two layers", "tanh")


def family_seeds(count: int) -> range:
    """Families of networks are dear and shared by several statements: one draw of each, and one
    more for every 40 cases asked for.
    """
    return range(1 + count // 40)


def few(listed: Sequence[Any], count: int) -> Sequence[Any]:
    """The last of the list alone when hardly any cases are asked for."""
    return listed[-1:] if count < 8 else listed


def families(*listed: tuple[str, str]) -> Cases:
    """Networks of growing width, by their names and what is done to them."""
    return lambda rng, count: (
        Family(*which, seed=seed) for seed in family_seeds(count) for which in few(listed, count)
    )


def lemma_cases(*names: str) -> Cases:
    """Quadratic models, then networks of growing width."""
    wide = families(*((name, "standard") for name in names))
    return lambda rng, count: chain(quadratics(rng, count), wide(rng, count))


def decays(case: Quadratic | Family, name: str, *, rate: float, run: Any = quadratic_run) -> Check:
    """`name` is O(m^p) with p = 1 for rate −½ and 0 for rate 0; m = width^{−1/2} for networks."""
    if isinstance(case, Quadratic):
        found = power_law([run(case, m)[name] for m in SMALL], SMALL)
        return at_least(found, rate / RATE, 1e-2)
    slope = measured(case).slope(name)
    return at_most(lower_end(slope), rate, family=case.name, symmetry=case.kind)


ALL = lemma_cases("tanh, two layers", "relu", "tanh")


def _slowly(case: Quadratic, m: float) -> dict[str, float]:
    return quadratic_run(case, m**0.5)


SLOW_HESSIAN = control("a Hessian that falls like √m", lambda: Quadratic(5, 3, 0), run=_slowly)
# Learning rate 1 on F = θ/m: ‖∇F‖ = 1/m is not O(1), and neither are the step and F.
_GROWING = control(
    "a gradient that is not normalised, F = θ/m",
    lambda: Quadratic(1, 1, 0),
    run=lambda case, m: {"distance": np.tanh(1.0) / m, "outputs": np.tanh(1.0) / m**2},
)


@in_float64("Lem 3.1 (lazy)", ALL, _GROWING, draws=20)
def lazy(case: Any, run: Any = quadratic_run) -> Check:
    """‖θ − θ₀‖ = O(1)."""
    return decays(case, "distance", rate=0.0, run=run)


@in_float64("Lem 3.1 (outputs)", ALL, _GROWING, draws=20)
def bounded(case: Any, run: Any = quadratic_run) -> Check:
    """F and f stay O(1), F(θ₀) being so."""
    return decays(case, "outputs", rate=0.0, run=run)


@dataclass(frozen=True)
class Line:
    """F = θ, H = 0, loss √(1 + F²), at θ = 3/4 with learning rate 5/4."""

    start: Fraction = Fraction(3, 4)
    lr: Fraction = Fraction(5, 4)

    def slope(self, outputs: Fraction) -> Fraction:
        """F/√(1 + F²), at F = 3/4 or 0, where the root is rational."""
        root = {Fraction(3, 4): Fraction(5, 4), Fraction(0): Fraction(1)}[outputs]
        return outputs / root

    def __str__(self) -> str:
        return "F = lambda theta: theta; C = lambda F: (1 + F**2) ** 0.5; theta, lr = 3/4, 5/4"


def _line_by_jax(case: Line) -> Check:
    import jax

    with jax.enable_x64(True):
        gradient = jax.grad(lambda t: (1 + t**2) ** 0.5)
        theta = float(case.start)
        after = float(gradient(theta - float(case.lr) * gradient(theta)))
        return at_most(abs(after - float(gradient(theta))), 0.0, 1e-12)


@statement(
    "Lem 3.1 (gradient)",
    lambda rng, count: chain([Line()], lemma_cases(*SMOOTH)(rng, count)),
    control(
        "a Hessian that falls like √m, with a linear loss",
        lambda: Quadratic(5, 3, 0, "C = F"),
        run=_slowly,
    ),
    draws=20,
    confirm=_line_by_jax,
)
def loss_gradient_moves(case: Line | Quadratic | Family, run: Any = quadratic_run) -> Check:
    """‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n) and ‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) (Eq. 50).

    ‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n), as printed; with H = 0 it would have to vanish.
    """
    if isinstance(case, Line):
        before = case.slope(case.start)
        after = case.slope(case.start - case.lr * before)
        return at_most(abs(after - before), 0, family="linear")
    return decays(case, "loss_gradient", rate=RATE, run=run)


@loss_gradient_moves.amend(SLOW_HESSIAN, cases=lemma_cases(*SMOOTH), method="float64")
def lem_3_1_gradient_amended(case: Any, run: Any = quadratic_run) -> Check:
    """‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) for smooth networks; ∇L moves by O(1)."""
    return decays(case, "function_gradient", rate=RATE, run=run)


QUARTER = -0.25


def flipped(n: int, rng: np.random.Generator, step: float = 1.0) -> float:
    """‖∇F(1) − ∇F(0)‖ of F = Σ v_i max(w_i, 0)/√n, x = 1, after one step w ← w − step·v 1{w >
    0}/√n, v likewise.
    """
    w, v = rng.normal(size=(2, n))
    moved, out = w - step * v * (w > 0) / np.sqrt(n), v - step * np.maximum(w, 0) / np.sqrt(n)
    into = out * (moved > 0) - v * (w > 0)
    return float(
        np.sqrt((into**2).sum() + ((np.maximum(moved, 0) - np.maximum(w, 0)) ** 2).sum())
        / np.sqrt(n)
    )


def expected_flips(n: int, step: float = 1.0) -> float:
    """‖∇F(1) − ∇F(0)‖² ≈ step/(π√n): neuron i flips with probability step·v₊/√(2πn) and then
    counts v²/n, E v₊³ = 2/√(2π).
    """
    return step / (np.pi * np.sqrt(n))


def _by_hand(one: Callable[[int, np.random.Generator], float], times: int, rate: float) -> Any:
    """One step of one-sample networks up to a million neurons, without the library: its slope."""

    def confirm(case: Family) -> Check:
        rng, widths = np.random.default_rng(case.seed), 10.0 ** np.repeat(np.arange(3, 7), times)
        found = np.array([one(int(n), rng) for n in widths])
        return at_most(lower_end(log_slope(widths, found)), rate)

    return confirm


def _slope_of(name: str) -> Callable[[Family], str]:
    return lambda case: (
        "from neuromanifold_papers.teleport.statements.wide import Family, measured\n"
        f"measured(Family({case.name!r}, {case.kind!r}, {case.seed})).slope({name!r})"
    )


@in_float64(
    "Lem 3.1 (ReLU)",
    lambda rng, count: starmap(
        Family, product(["relu"], ["standard", "hadamard"], family_seeds(count))
    ),
    control(
        "‖F‖ in place of ‖∇F − ∇F₀‖, for tanh", lambda: Family("tanh", "standard"), name="outputs"
    ),
    draws=20,
    show=_slope_of("function_gradient"),
    confirm=_by_hand(flipped, 5, RATE),
)
def kinks(case: Family, name: str = "function_gradient", rate: float = RATE) -> Check:
    """The proof carries over to networks with kinks by the barycentric mean value (App. A.1,
    D.1): ‖∇F − ∇F₀‖ = O(n^{−1/2}).
    """
    slope = measured(case).slope(name)
    return at_most(lower_end(slope), rate, activation="relu", symmetry=case.kind)


lem_3_1_relu_amended = kinks.amend(
    control("‖F‖ in place of ‖∇F − ∇F₀‖", lambda: Family("relu", "standard"), name="outputs"),
    rate=QUARTER,
)("ReLU networks with one hidden layer: ‖∇F − ∇F₀‖ = O(n^{−1/4}) in probability.")


def bent_remainder(n: int, rng: np.random.Generator) -> float:
    """F(θ₁) − F(θ₀) − ∇F(θ₀)(θ₁ − θ₀) of F = Σ v_i max(w_i, 0)/√n, x = 1, after one step
    w ← w − v 1{w > 0}/√n, v ← v − max(w, 0)/√n.
    """
    w, v = rng.normal(size=(2, n))
    on, root = w > 0, np.sqrt(n)
    moved, out = w - v * on / root, v - w * on / root
    tangent = v * w * on + v * on * (moved - w) + w * on * (out - v)
    return abs(float((out * np.maximum(moved, 0) - tangent).sum())) / root


@in_float64(
    "Eq 39",
    families(*((name, "standard") for name in ("tanh", "tanh, two layers", "relu"))),
    control("‖θ − θ₀‖ for the error", lambda: Family("tanh", "standard"), name="distance"),
    draws=20,
    show=_slope_of("error"),
    confirm=_by_hand(bent_remainder, 40, -1.0),
)
def expanded_limit(case: Family, name: str = "error", bent: float = -1.0) -> Check:
    """F is its linearisation up to O(1/n), where Eq 6 says O(1/√n): after eight steps."""
    return decays(case, name, rate=bent if case.name == "relu" else -1.0)


expanded_limit_amended = expanded_limit.amend(bent=RATE)(
    "F is its linearisation up to O(1/√n), as Eq 6 has it; of smooth networks up to O(1/n)."
)
