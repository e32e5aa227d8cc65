"""[teleport] on the kernel limit and what keeps it.   Lem. 3.1, Thm. 4.1"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements.wide import Family, measured
from neuromanifold_papers.teleport.statistics import Estimate, log_slope

ROW = "Lem 3.1, Thm 4.1"
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
"""C' of convex, smooth, Lipschitz losses with bounded C''."""


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
        return {
            "family": "quadratic",
            "parameters": self.parameters,
            "samples": self.samples,
            "loss": self.loss,
            "lr": self.lr,
        }


@lru_cache(maxsize=512)
def quadratic_run(case: Quadratic, m: float, steps: int = 6) -> dict[str, float]:
    """What `wide.Measured` names, after gradient descent on ΣC(F − y)/|X|."""
    signal, lr = SIGNALS[case.loss], case.lr
    rng = np.random.default_rng(case.seed)
    n, d = case.samples, case.parameters
    a, y, start = (
        rng.normal(size=(n, d)) / np.sqrt(d),
        rng.normal(size=n),
        rng.normal(size=d) / np.sqrt(d),
    )
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


Run = Callable[[Quadratic, float], dict[str, float]]


def exponent(case: Quadratic, name: str, run: Run) -> float:
    """p in quantity ∝ m^p, between two small m."""
    first, second = (run(case, m)[name] for m in SMALL)
    return float(np.log(first / second) / np.log(SMALL[0] / SMALL[1]))


def quadratics(rng: np.random.Generator, count: int) -> Iterator[Quadratic]:
    for parameters in (1, 2, 5, 20):
        for samples in (1, 2, 3):
            yield Quadratic(parameters, samples, int(rng.integers(2**31)))
    names, rates = list(SIGNALS), (0.1, 1.0, 2.0)
    for index in range(count):
        loss, lr = names[index % 3], rates[index // 3 % 3]
        yield Quadratic(
            int(rng.integers(1, 40)), int(rng.integers(1, 6)), int(rng.integers(2**31)), loss, lr
        )


SMOOTH = ("tanh, two layers", "tanh")
MOVES = (
    ("tanh", "hadamard"),
    ("tanh", "hadamard, later"),
    ("tanh, two layers", "hadamard"),
    ("relu", "hadamard"),
    ("relu", "scaling"),
    ("relu", "scaling, later"),
)


def family_seeds(count: int) -> range:
    """Families of networks are dear and shared by several statements: one draw of each, and one
    more for every 40 cases asked for.
    """
    return range(1 + count // 40)


def few(listed: Sequence[Any], count: int) -> Sequence[Any]:
    """The last of the list alone when hardly any cases are asked for."""
    return listed[-1:] if count < 8 else listed


def kinked_cases(rng: np.random.Generator, count: int) -> Iterator[Family]:
    """ReLU networks, standard and transformed."""
    return (
        Family("relu", kind, seed)
        for seed in family_seeds(count)
        for kind in ("standard", "hadamard")
    )


def lemma_cases(*names: str) -> Callable[[np.random.Generator, int], Iterator[Quadratic | Family]]:
    """Quadratic models, then networks of growing width."""

    def cases(rng: np.random.Generator, count: int) -> Iterator[Quadratic | Family]:
        yield from quadratics(rng, count)
        yield from (
            Family(name, "standard", seed)
            for seed in family_seeds(count)
            for name in few(names, count)
        )

    return cases


def decays(case: Quadratic | Family, name: str, *, rate: float, run: Run = quadratic_run) -> Check:
    """`name` is O(m^p) with p = 1 for rate −½ and 0 for rate 0; m = width^{−1/2} for networks."""
    if isinstance(case, Quadratic):
        power = rate / RATE
        return at_least(exponent(case, name, run), power, 1e-2, hypotheses=case.hypotheses)
    slope = measured(case).slope(name)
    return at_most(lower_end(slope), rate, family=case.name, symmetry=case.kind)


def growing_run(case: Quadratic, m: float) -> dict[str, float]:
    """Learning rate 1 on F = θ/m: ‖∇F‖ = 1/m is not O(1), and neither are the step and F."""
    return {"distance": float(np.tanh(1.0)) / m, "outputs": float(np.tanh(1.0)) / m**2}


SLOW_HESSIAN = control(
    "a Hessian that falls like √m",
    lambda: Quadratic(5, 3, 0),
    run=lambda case, m: quadratic_run(case, m**0.5),
)
_GROWING = control(
    "a gradient that is not normalised, F = θ/m", lambda: Quadratic(1, 1, 0), run=growing_run
)


@statement(
    "Lem 3.1 (lazy)",
    lemma_cases("tanh, two layers", "relu", "tanh"),
    _GROWING,
    method="float64",
    draws=20,
)
def lazy(case: Any, run: Any = quadratic_run) -> Check:
    """‖θ − θ₀‖ = O(1)."""
    return decays(case, "distance", rate=0.0, run=run)


@statement(
    "Lem 3.1 (outputs)",
    lemma_cases("tanh, two layers", "relu", "tanh"),
    _GROWING,
    method="float64",
    draws=20,
)
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


def _gradient_cases(rng: np.random.Generator, count: int) -> Iterator[Any]:
    yield Line()
    yield from lemma_cases(*SMOOTH)(rng, count)


@statement("Lem 3.1 (gradient)", _gradient_cases, SLOW_HESSIAN, draws=20, confirm=_line_by_jax)
def loss_gradient_moves(case: Line | Quadratic | Family, run: Run = quadratic_run) -> Check:
    """‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n) and ‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) (Eq. 50).

    ‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n), as printed; with H = 0 it would have to vanish.
    """
    if isinstance(case, Line):
        before = case.slope(case.start)
        after = case.slope(case.start - case.lr * before)
        return at_most(abs(after - before), 0, family="linear")
    return decays(case, "loss_gradient", rate=RATE, run=run)


@statement(
    "Lem 3.1 (gradient, amended)",
    lemma_cases(*SMOOTH),
    SLOW_HESSIAN,
    amends="Lem 3.1 (gradient)",
    method="float64",
    draws=20,
)
def lem_3_1_gradient_amended(case: Any, run: Any = quadratic_run) -> Check:
    """‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) for smooth networks; ∇L moves by O(1)."""
    return decays(case, "function_gradient", rate=RATE, run=run)


QUARTER = -0.25


def kinked(case: Family, rate: float, name: str) -> Check:
    """‖∇F(θ(s)) − ∇F(θ₀)‖ of ReLU networks against width^rate."""
    slope = measured(case).slope(name)
    return at_most(lower_end(slope), rate, activation="relu", symmetry=case.kind)


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


def _flips_by_hand(case: Family) -> Check:
    """One step of one-sample networks up to a million neurons, without the library."""
    rng, widths = np.random.default_rng(case.seed), np.array([10**3, 10**4, 10**5, 10**6], float)
    found = np.array([[flipped(int(n), rng) for _ in range(5)] for n in widths])
    return at_most(lower_end(log_slope(np.repeat(widths, 5), found.ravel())), RATE)


_OUTPUTS = control("‖F‖ in place of ‖∇F − ∇F₀‖", lambda: Family("relu", "standard"), name="outputs")


@statement(
    "Lem 3.1 (ReLU)",
    kinked_cases,
    control(
        "‖F‖ in place of ‖∇F − ∇F₀‖, for tanh", lambda: Family("tanh", "standard"), name="outputs"
    ),
    method="float64",
    draws=20,
    show=lambda case: (
        "from neuromanifold_papers.teleport.statements.wide import Family, measured\n"
        f"measured(Family({case.name!r}, {case.kind!r}, {case.seed})).slope('function_gradient')"
    ),
    confirm=_flips_by_hand,
)
def kinks(case: Any, name: Any = "function_gradient") -> Check:
    """The proof carries over to networks with kinks by the barycentric mean value (App. A.1,
    D.1): ‖∇F − ∇F₀‖ = O(n^{−1/2}).
    """
    return kinked(case, RATE, name)


@statement(
    "Lem 3.1 (ReLU, amended)",
    kinked_cases,
    _OUTPUTS,
    amends="Lem 3.1 (ReLU)",
    method="float64",
    draws=20,
)
def lem_3_1_relu_amended(case: Any, name: Any = "function_gradient") -> Check:
    """ReLU networks with one hidden layer: ‖∇F − ∇F₀‖ = O(n^{−1/4}) in probability."""
    return kinked(case, QUARTER, name)


def network_cases(rng: np.random.Generator, count: int) -> Iterator[Family]:
    """Smooth networks and ReLU networks of growing width."""
    names = few(("tanh", "tanh, two layers", "relu"), count)
    return (Family(name, "standard", seed) for seed in family_seeds(count) for name in names)


def bent_remainder(n: int, rng: np.random.Generator) -> float:
    """F(θ₁) − F(θ₀) − ∇F(θ₀)(θ₁ − θ₀) of F = Σ v_i max(w_i, 0)/√n, x = 1, after one step
    w ← w − v 1{w > 0}/√n, v ← v − max(w, 0)/√n.
    """
    w, v = rng.normal(size=(2, n))
    on, root = w > 0, np.sqrt(n)
    moved, out = w - v * on / root, v - w * on / root
    tangent = v * w * on + v * on * (moved - w) + w * on * (out - v)
    return abs(float((out * np.maximum(moved, 0) - tangent).sum())) / root


def _remainder_by_hand(case: Family) -> Check:
    """One step of one-sample ReLU networks up to a million neurons, without the library."""
    rng, widths = np.random.default_rng(case.seed), 10.0 ** np.arange(3, 7)
    found = np.array([[bent_remainder(int(n), rng) for _ in range(40)] for n in widths])
    return at_most(lower_end(log_slope(np.repeat(widths, 40), found.ravel())), -1.0)


_DISTANCE = control(
    "‖θ − θ₀‖ in place of the error", lambda: Family("tanh", "standard"), name="distance"
)


@statement(
    "Eq 39",
    network_cases,
    _DISTANCE,
    method="float64",
    draws=20,
    show=lambda case: (
        "from neuromanifold_papers.teleport.statements.wide import Family, measured\n"
        f"measured(Family({case.name!r}, {case.kind!r}, {case.seed})).slope('error')"
    ),
    confirm=_remainder_by_hand,
)
def expanded_limit(case: Family, name: str = "error") -> Check:
    """F is its linearisation up to O(1/n), where Eq 6 says O(1/√n): after eight steps."""
    return decays(case, name, rate=-1.0)


@statement("Eq 39 (amended)", network_cases, _DISTANCE, amends="Eq 39", method="float64", draws=20)
def expanded_limit_amended(case: Family, name: str = "error") -> Check:
    """F is its linearisation up to O(1/√n), as Eq 6 has it; of smooth networks up to O(1/n)."""
    return decays(case, name, rate=RATE if case.name == "relu" else -1.0)


def move_cases(rng: np.random.Generator, count: int) -> Iterator[Family]:
    """Bounded generalised symmetries of every weight, and neuron scalings, at initialisation and
    after four steps.
    """
    yield from (
        Family(name, kind, seed) for seed in family_seeds(count) for name, kind in few(MOVES, count)
    )


LIMIT = (lazy, loss_gradient_moves, kinks, bounded)
