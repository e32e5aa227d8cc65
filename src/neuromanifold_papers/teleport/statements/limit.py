"""[teleport] on the kernel limit and what keeps it.   Lem. 3.1, Thm. 4.1"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.statement import Control, Statement
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
        return Check(exponent(case, name, run), power, ">=", 1e-2, case.hypotheses)
    slope = measured(case).slope(name)
    return Check(lower_end(slope), rate, "<=", 0.0, {"family": case.name, "symmetry": case.kind})


def growing_run(case: Quadratic, m: float) -> dict[str, float]:
    """Learning rate 1 on F = θ/m: ‖∇F‖ = 1/m is not O(1), and neither are the step and F."""
    return {"distance": float(np.tanh(1.0)) / m, "outputs": float(np.tanh(1.0)) / m**2}


SLOW_HESSIAN = Control(
    "a Hessian that falls like √m",
    case=lambda: Quadratic(5, 3, 0),
    breaks={"run": lambda case, m: quadratic_run(case, m**0.5)},
)
_GROWING = Control(
    "a gradient that is not normalised, F = θ/m",
    case=lambda: Quadratic(1, 1, 0),
    breaks={"run": growing_run},
)


LAZY = Statement(
    paper="teleport",
    row=ROW,
    id="Lem 3.1 (lazy)",
    says="‖θ − θ₀‖ = O(1)",
    method="float64",
    cases=lemma_cases("tanh, two layers", "relu", "tanh"),
    measure=lambda case, run=quadratic_run: decays(case, "distance", rate=0.0, run=run),
    control=_GROWING,
    draws=20,
)

BOUNDED = Statement(
    paper="teleport",
    row=ROW,
    id="Lem 3.1 (outputs)",
    says="F and f stay O(1), F(θ₀) being so",
    method="float64",
    cases=lemma_cases("tanh, two layers", "relu", "tanh"),
    measure=lambda case, run=quadratic_run: decays(case, "outputs", rate=0.0, run=run),
    control=_GROWING,
    draws=20,
)


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


def loss_gradient_moves(case: Line | Quadratic | Family, run: Run = quadratic_run) -> Check:
    """‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n), as printed; with H = 0 it would have to vanish."""
    if isinstance(case, Line):
        before = case.slope(case.start)
        after = case.slope(case.start - case.lr * before)
        return Check(abs(after - before), 0, "<=", hypotheses={"family": "linear"})
    return decays(case, "loss_gradient", rate=RATE, run=run)


def _line_by_jax(case: Line) -> Check:
    import jax

    with jax.enable_x64(True):
        gradient = jax.grad(lambda t: (1 + t**2) ** 0.5)
        theta = float(case.start)
        after = float(gradient(theta - float(case.lr) * gradient(theta)))
        return Check(abs(after - float(gradient(theta))), 0.0, "<=", 1e-12)


def _gradient_cases(rng: np.random.Generator, count: int) -> Iterator[Any]:
    yield Line()
    yield from lemma_cases(*SMOOTH)(rng, count)


GRADIENT = Statement(
    paper="teleport",
    row=ROW,
    id="Lem 3.1 (gradient)",
    says="‖∇L(θ(s)) − ∇L(θ₀)‖ = O(m_n) and ‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) (Eq. 50)",
    method="exact",
    cases=_gradient_cases,
    measure=loss_gradient_moves,
    control=SLOW_HESSIAN,
    show=str,
    draws=20,
    confirm=_line_by_jax,
    route="float64, JAX's gradient of the loss",
    worked="""F(θ) = θ has H = 0, so m_n may be any sequence. Loss √(1 + F²), convex, smooth, Lipschitz; at θ = ¾, ∇L = ¾/√(1 + 9/16) = 3/5.
With learning rate 5/4 the next θ is ¾ − ¾ = 0, where ∇L = 0. ∇L moved by 3/5, which is not O(m_n): it changes because F does,
through C'(F). Eq. 57 takes the Hessian of L for that of F. ∇F does not move here, and in general by O(m_n); the lemma's
conclusion needs no more.""",
    amended=Statement(
        paper="teleport",
        row=ROW,
        id="Lem 3.1 (gradient, amended)",
        says="‖∇F(θ(s)) − ∇F(θ₀)‖ = O(m_n) for smooth networks; ∇L moves by O(1)",
        method="float64",
        cases=lemma_cases(*SMOOTH),
        measure=lambda case, run=quadratic_run: decays(
            case, "function_gradient", rate=RATE, run=run
        ),
        control=SLOW_HESSIAN,
        draws=20,
        proof="As in Lem 3.1 (amended): ‖θ(s) − θ₀‖ ≤ r_s, fixed in n, and ‖∇²F‖ = O(m_n) on that "
        "ball.",
    ),
)

QUARTER = -0.25


def kinked(case: Family, rate: float, name: str) -> Check:
    """‖∇F(θ(s)) − ∇F(θ₀)‖ of ReLU networks against width^rate."""
    slope = measured(case).slope(name)
    return Check(lower_end(slope), rate, "<=", 0.0, {"activation": "relu", "symmetry": case.kind})


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
    return Check(lower_end(log_slope(np.repeat(widths, 5), found.ravel())), RATE, "<=")


_OUTPUTS = Control(
    "‖F‖ in place of ‖∇F − ∇F₀‖",
    case=lambda: Family("relu", "standard"),
    breaks={"name": "outputs"},
)


KINKS = Statement(
    paper="teleport",
    row=ROW,
    id="Lem 3.1 (ReLU)",
    says="the proof carries over to networks with kinks by the barycentric mean value (App. A.1, "
    "D.1): ‖∇F − ∇F₀‖ = O(n^{−1/2})",
    method="float64",
    cases=kinked_cases,
    draws=20,
    measure=lambda case, name="function_gradient": kinked(case, RATE, name),
    control=_OUTPUTS,
    show=lambda case: (
        "from neuromanifold_papers.teleport.statements.wide import Family, measured\n"
        f"measured(Family({case.name!r}, {case.kind!r}, {case.seed})).slope('function_gradient')"
    ),
    confirm=_flips_by_hand,
    route="float64, one step of networks of up to a million ReLU neurons, by hand",
    worked="""F = Σ v_i max(w_i, 0)/√n with standard normal v, w, at x = 1 and f = 1, one step of size 1: w_i falls by v_i/√n where w_i > 0.
A neuron with 0 < w_i < v_i/√n is switched off, with probability v_i/√(2πn) for v_i > 0, and ∂F/∂w_i falls from v_i/√n to 0. So
‖∇F − ∇F₀‖² is about n·E[v₊/√(2πn)·v²/n] = E[v₊³]/√(2πn) = 1/(π√n), and its root falls like n^{−1/4}. The corollary needs a
continuous function; ∇F jumps at a kink. (F itself is continuous, and its linearisation error keeps the rate n^{−1/2}: Lem 3.1,
Thm 4.1, Fig 1.)""",
    narrower="one hidden layer, widths 256 to 12288",
    amended=Statement(
        paper="teleport",
        row=ROW,
        id="Lem 3.1 (ReLU, amended)",
        says="ReLU networks with one hidden layer: ‖∇F − ∇F₀‖ = O(n^{−1/4}) in probability",
        method="float64",
        cases=kinked_cases,
        draws=20,
        measure=lambda case, name="function_gradient": kinked(case, QUARTER, name),
        control=_OUTPUTS,
        narrower="widths 256 to 12288",
        proof="F(x) = Σ v_i max(w_i·x, 0)/√n, normal weights, finitely many samples and steps, a "
        "loss of bounded slope; C is a "
        "constant that may grow from line to line. A step moves v_i and w_i by C(|v_i| + "
        "|w_i|)/√n at most, so all steps move "
        "them by r_i = CM_i/√n, M_i = |v_i| + |w_i| at the start. At a sample x, n‖∇F − ∇F₀‖² ≤ "
        "3|x|² Σ r_i² + 2|x|² Σ v_i² "
        "1{w_i·x changes sign}. The first sum is O(1). A sign changes only where the part u of "
        "w_i along x has |u| ≤ r_i ≤ "
        "C(|u| + |w_i^⊥| + |v_i|)/√n, so |u| ≤ 2C(|w_i^⊥| + |v_i|)/√n for large n. u is standard "
        "normal and independent of "
        "w_i^⊥ and v_i, so the probability given them is at most that number, and the second sum "
        "has an expectation of at most "
        "n·2C E[v²(|w^⊥| + |v|)]/√n = O(√n). By Markov's inequality ‖∇F − ∇F₀‖² = O(n^{−1/2}). "
        "Bounded factors at the weights "
        "change C alone.",
    ),
)


def move_cases(rng: np.random.Generator, count: int) -> Iterator[Family]:
    """Bounded generalised symmetries of every weight, and neuron scalings, at initialisation and
    after four steps.
    """
    yield from (
        Family(name, kind, seed) for seed in family_seeds(count) for name, kind in few(MOVES, count)
    )


LIMIT = (LAZY, GRADIENT, KINKS, BOUNDED)
