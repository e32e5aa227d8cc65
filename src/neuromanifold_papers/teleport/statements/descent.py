"""[teleport] on the speed of training in the linear limit.   P F.1, Eq. 87"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from neuromanifold.tangent.prediction.alignment import alignment
from neuromanifold_papers.check import EPS, Check, at_least, at_most, equal
from neuromanifold_papers.statement import control, in_float64, statement
from neuromanifold_papers.teleport.statements.exact import rationals

STEPS = tuple(range(7))
Vector = tuple[Fraction, ...]


@dataclass(frozen=True)
class Descent:
    """A kernel Θ (by rows), and the signal f(0)."""

    kernel: tuple[Vector, ...]
    start: Vector

    @property
    def matrix(self) -> np.ndarray:
        return rationals(self.kernel) if not self.kernel else np.array(self.kernel, object)

    @property
    def alignment(self) -> Any:
        """A = fᵀΘf/‖f‖²; the library's, in float64, is compared with it in `P F.1 (A)`."""
        f = np.array(self.start, object)
        return f @ self.matrix @ f / (f @ f)

    @property
    def hypotheses(self) -> dict[str, Any]:
        top = float(np.linalg.eigvalsh(self.matrix.astype(float)).max())
        return {
            "size": len(self.start),
            "top eigenvalue": "≤ 1" if top <= 1 else "1 to 2" if top <= 2 else "above 2",
            "A": "< 1" if self.alignment < 1 else "≥ 1",
        }

    def __str__(self) -> str:
        rows = ", ".join("[" + ", ".join(map(str, row)) + "]" for row in self.kernel)
        return f"Theta = [{rows}]; f = [{', '.join(map(str, self.start))}]"


def spectra(rng: np.random.Generator, count: int) -> Iterator[Descent]:
    """All diagonal kernels of size ≤ 2 with eigenvalues 0, ½, …, 3 and weights on a grid; then
    random BBᵀ of size 2 to 4.
    """
    grid = [Fraction(k, 2) for k in range(7)]
    yield from (Descent(((value,),), (Fraction(1),)) for value in grid)
    for (a, b), f in product(product(grid, grid), ((1, 1), (1, 3), (2, -1))):
        yield Descent(((a, Fraction(0)), (Fraction(0), b)), (Fraction(f[0], 4), Fraction(f[1], 4)))
    for _ in range(count):
        n = int(rng.integers(2, 5))
        root = rationals(rng.integers(-3, 4, (n, n)))
        kernel = root @ root.T * Fraction(1, int(rng.choice([4, 20, 100])))
        f = rng.integers(-3, 4, n)
        if f.any():
            yield Descent(tuple(map(tuple, kernel)), tuple(map(Fraction, f.tolist())))


def signals(case: Descent) -> list[np.ndarray]:
    """f(s+1) = (I − Θ)f(s), for s = 0 … 6.   [teleport, Eq. 74]"""
    found = [np.array(case.start, object)]
    for _ in STEPS[1:]:
        found.append(found[-1] - case.matrix @ found[-1])
    return found


def ratios(case: Descent) -> list[Any]:
    """L(s)/L(0) for L = ‖f‖²/2|X|."""
    squares = [f @ f for f in signals(case)]
    return [value / squares[0] for value in squares]


def floor(a: Fraction, s: int) -> Fraction:
    """(1 − A)^{2s}.   [teleport, Eq. 76]"""
    return (1 - a) ** (2 * s)


def line(a: Fraction, s: int) -> Fraction:
    """1 − 2sA.   [teleport, Eq. 76]"""
    return 1 - 2 * s * a


def worst(lefts: Sequence[Any], bound: Any, a: Fraction) -> Check:
    """left ≥ bound(A, s) at every step s: the step with the least slack, exactly."""
    pairs = [(left, bound(a, s)) for s, left in enumerate(lefts)]
    left, right = min(pairs, key=lambda pair: pair[0] - pair[1])
    return at_least(left, right, comparisons=len(pairs))


TWO_RATES = Descent(((Fraction(1, 2), Fraction(0)), (Fraction(0), Fraction(0))), (Fraction(1),) * 2)
"""A = ¼, and half of f never decays: a bound that is passed at the first step holds at the last."""


@statement(
    "P F.1 (1)",
    spectra,
    control("(1 − A/2)^{2s}", lambda: TWO_RATES, bound=lambda a, s: floor(a / 2, s)),
)
def p_f_1(case: Descent, bound: Any = floor) -> Check:
    """L(s)/L(0) ≥ (1 − A)^{2s} for f(s+1) = (I − Θ)f(s), whatever the spectrum of Θ."""
    return worst(ratios(case), bound, case.alignment)


@statement(
    "P F.1 (2)",
    spectra,
    control("1 − sA for 1 − 2sA", lambda: TWO_RATES, bound=lambda a, s: 1 - s * a),
)
def p_f_1_line(case: Descent, bound: Any = line) -> Check:
    """(1 − A)^{2s} ≥ 1 − 2sA, for A ≥ 1 too."""
    return worst([floor(case.alignment, s) for s in STEPS], bound, case.alignment)


def rate_bound(a: float) -> float:
    """2 ln(1/(1 − A)), which is infinite for A = 1 and not a number for A > 1.   [teleport, Eq. 77]"""
    return float(-2 * np.log1p(-a)) if a < 1 else float("inf") if a == 1 else float("nan")


@in_float64(
    "P F.1 (4)",
    lambda rng, count: [2.0**-k for k in range(1, 21)] + rng.uniform(0.0, 0.99, count).tolist(),
    control("A + O(A²) at A = 1/1024", lambda: 2.0**-10, slope=1.0),
)
def p_f_1_expansion(a: float, slope: float = 2.0) -> Check:
    """2 ln(1/(1 − A)) = 2A + O(A²).

    |2 ln(1/(1 − A)) − 2A| ≤ A²/(1 − A): what O(A²) means.
    """
    return at_most(abs(rate_bound(a) - slope * a) / a**2, 1 / (1 - a), 64 * EPS / a, A=a)


def _linear(params: Any, x: Any) -> Any:
    return (x @ params)[:, None]


def _half(prediction: Any, target: Any) -> Any:
    return ((prediction - target) ** 2).sum() / 2


@in_float64(
    "P F.1 (A)",
    lambda rng, count: (case for case in spectra(rng, count) if len(case.start) <= 2),
    control(
        "the unweighted mean of the eigenvalues 0 and 3, f = (1, 3)",
        lambda: Descent(
            ((Fraction(0), Fraction(0)), (Fraction(0), Fraction(3))), (Fraction(1), Fraction(3))
        ),
        mean=lambda case: case.matrix.trace() / len(case.start),
    ),
)
def p_f_1_a(case: Descent, mean: Any = lambda case: case.alignment) -> Check:
    """Σ w_i λ_i with w_i = v_i²/‖v‖² is A (Eq. 83), which the library computes.

    The library's A, of the linear model whose kernel is Θ, against the rational one.
    """
    values, vectors = np.linalg.eigh(case.matrix.astype(float))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    f = np.array(case.start, float)[:, None]
    found = alignment(_linear, np.zeros(root.shape[1]), root, -f, loss=_half)
    scale = 1 + float(case.alignment)
    return equal(found / scale, float(mean(case)) / scale, 1e3 * EPS)


@dataclass(frozen=True)
class Setup:
    """A linear model F = Jθ on |X| samples with squared errors, learning rate 1."""

    jacobian: tuple[Vector, ...]
    start: Vector

    def __str__(self) -> str:
        rows = [list(map(str, row)) for row in self.jacobian]
        return f"J = {rows}; f = {list(map(str, self.start))}"


def setups(rng: np.random.Generator, count: int) -> Iterator[Setup]:
    one = Fraction(1)
    for n in (1, 2, 3):
        yield Setup(((one,),) * n, (one,) * n)
    for _ in range(count):
        n, d = rng.integers(1, 5), rng.integers(1, 4)
        rows, f = rationals(rng.integers(-2, 3, (n, d))), rng.integers(1, 4, n)
        yield Setup(tuple(map(tuple, rows)), tuple(map(Fraction, f.tolist())))


def half_mean(f: np.ndarray) -> Any:
    """L = Σ C/|X| with C = (F − y)²/2.   [teleport, Eq. 13]"""
    return f @ f / (2 * len(f))


def gradient_step(case: Setup, loss: Callable[[np.ndarray], Any] = half_mean) -> np.ndarray:
    """f after one step of gradient descent by the parameters: what training does. The gradient of a
    quadratic loss is its central difference with step 1.   [teleport, Eq. 9, 10]
    """
    rows, f = np.array(case.jacobian, object), np.array(case.start, object)
    gradient = np.array([(loss(f + column) - loss(f - column)) / 2 for column in rows.T])
    return f - rows @ gradient


def kernel_step(case: Setup, samples: int) -> np.ndarray:
    """(I − Θ/samples) f; Eq. 74 has 1, Eq. 14 has |X|."""
    rows, f = np.array(case.jacobian, object), np.array(case.start, object)
    return f - rows @ (rows.T @ f) / samples


_ONE = lambda: Setup(((Fraction(1),),), (Fraction(1),))  # noqa: E731
_NO_STEP = control("no step at all", _ONE, step=lambda case: np.array(case.start, object))


def _setup_in_floats(case: Setup) -> Check:
    """Gradient descent on θ by JAX, and Θ by the library's kernel."""
    import jax

    from neuromanifold.tangent.kernel.ntk import ntk

    rows, f = np.array(case.jacobian, float), np.array(case.start, float)[:, None]
    with jax.enable_x64(True):
        zero = jax.numpy.zeros(rows.shape[1])
        gradient = jax.grad(lambda p: _half(_linear(p, rows), -f) / len(f))(zero)
        moved = np.asarray(_linear(zero - gradient, rows) + f)
    kernel = ntk(_linear, np.zeros(rows.shape[1]), rows)
    return equal(float(np.abs(moved - (f - kernel @ f)).max()), 0.0, 1e-12)


@statement("P F.1 (setup)", setups, _NO_STEP, confirm=_setup_in_floats)
def p_f_1_setup(case: Setup, step: Any = gradient_step, samples: Any = lambda case: 1) -> Check:
    """With the setup of Section 2.2, training in the linear limit is f(s+1) = (I − Θ)f(s) (Eq.
    74).
    """
    difference = max(abs(v) for v in step(case) - kernel_step(case, samples(case)))
    return equal(difference, 0, hypotheses={"|X|": len(case.start)})


p_f_1_setup_amended = p_f_1_setup.amend(samples=lambda case: len(case.start))(
    "Training in the linear limit is f(s+1) = (I − Θ/|X|)f(s), as Eq. 14 has it."
)

eq_14 = statement(
    "Eq 14",
    setups,
    control("C = F²", _ONE, step=lambda case: gradient_step(case, lambda f: 2 * half_mean(f))),
    says="for halved squared errors f = F − y, and in the linear limit Δf = −Θf/|X|",
)(p_f_1_setup_amended.measure)


@dataclass(frozen=True)
class Stochastic:
    """Descent by batches of so many samples, drawn anew at every step, with momentum β."""

    full: Descent
    batch: int
    momentum: Fraction

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"samples": len(self.full.start), "batch": self.batch, "β": str(self.momentum)}

    def __str__(self) -> str:
        return f"{self.full}; batch = {self.batch}; beta = {self.momentum}"


FEW_STEPS = STEPS[:4]


def expected_ratios(case: Stochastic) -> list[Any]:
    """E L(s)/L(0) over all batches, v ← βv + (n/b)Θf_B, f ← f − v."""
    f = np.array(case.full.start, object)
    n = len(f)
    masks = [np.isin(range(n), kept).astype(int) for kept in combinations(range(n), case.batch)]
    steps = [case.full.matrix * mask * Fraction(n, case.batch) for mask in masks]
    states, found = [(f, 0 * f)], []
    for _ in FEW_STEPS:
        found.append(sum((f @ f for f, _ in states), Fraction(0)) / len(states))
        moved = [(f, case.momentum * v + step @ f) for f, v in states for step in steps]
        states = [(f - v, v) for f, v in moved]
    return [value / found[0] for value in found]


def stochastic(*momenta: Fraction) -> Callable[[np.random.Generator, int], Iterator[Stochastic]]:
    """Kernels of up to three samples, scaled down, every size of batch, and these momenta."""

    def cases(rng: np.random.Generator, count: int) -> Iterator[Stochastic]:
        small = [case for case in spectra(rng, count) if len(case.start) <= 3]
        for case, scale in product([*small[:7], *small[7::8]], (1, 8)):
            kernel = tuple(tuple(value / scale for value in row) for row in case.kernel)
            for batch in range(1, len(case.start) + 1):
                yield from (Stochastic(Descent(kernel, case.start), batch, b) for b in momenta)

    return cases


_WHOLE_BATCHES = Stochastic(TWO_RATES, 2, Fraction(0))
_ALIKE = ((Fraction(1, 16), Fraction(0)), (Fraction(0), Fraction(1, 16)))


@statement(
    "A.4 (stochastic)",
    stochastic(Fraction(0)),
    control("(1 − A/2)^{2s}", lambda: _WHOLE_BATCHES, bound=lambda a, s: floor(a / 2, s)),
)
def stochastic_descent(case: Stochastic, bound: Any = floor) -> Check:
    """With random batches the results hold in expectation: E L(s)/L(0) ≥ (1 − A)^{2s}."""
    return worst(expected_ratios(case), bound, case.full.alignment)


def _by_roots(case: Stochastic) -> Check:
    """Whole batches: f(s) = p_s(Θ)f(0), from the roots of r² − (1 + β − λ)r + β."""
    values, vectors = np.linalg.eigh(case.full.matrix.astype(float))
    shares = (vectors.T @ np.array(case.full.start, float)) ** 2
    shares, beta = shares / shares.sum(), float(case.momentum)
    roots = [np.roots([1, -(1 + beta - value), beta]).astype(complex) for value in values]
    slacks = []
    for s in FEW_STEPS:
        factors = [(a ** (s + 1) * (1 - b) - b ** (s + 1) * (1 - a)) / (a - b) for a, b in roots]
        slacks.append(shares @ np.abs(factors) ** 2 - float(floor(case.full.alignment, s)))
    return at_least(float(min(slacks)), 0.0, 1e-12)


@statement(
    "A.4 (momentum)",
    stochastic(Fraction(1, 4), Fraction(1, 16)),
    control(
        "(1 + A)^{2s} without momentum", lambda: _WHOLE_BATCHES, bound=lambda a, s: floor(-a, s)
    ),
    confirm=_by_roots,
)
def momentum_descent(case: Stochastic, bound: Any = floor) -> Check:
    """With momentum β, v ← βv + Θf and f ← f − v, the results hold: E L(s)/L(0) ≥ (1 − A)^{2s}."""
    return worst(expected_ratios(case), bound, case.full.alignment)


@momentum_descent.amend(
    control(
        "A for A/(1 − β)",
        lambda: Stochastic(Descent(_ALIKE, (Fraction(1),) * 2), 2, Fraction(1, 4)),
        factor=lambda beta: Fraction(1),
    ),
    id="A.4 (amended)",
    cases=stochastic(Fraction(0), Fraction(1, 4), Fraction(1, 16)),
)
def momentum_amended(case: Stochastic, factor: Any = lambda beta: 1 / (1 - beta)) -> Check:
    """Random batches and momentum β: E L(s)/L(0) ≥ (1 − sA/(1 − β))² while sA ≤ 1 − β."""
    bound = lambda a, s: max(1 - s * a * factor(case.momentum), Fraction(0)) ** 2  # noqa: E731
    return worst(expected_ratios(case), bound, case.full.alignment)
