"""[teleport] on convex losses: what the kernel's quadratic form bounds, and what it does not.
Eq. 87
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most, inside
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements.exact import rationals

ONE, HALF = Fraction(1), Fraction(1, 2)


def _clipped(z: Any) -> Any:
    return max(-1, min(1, z))


# Each loss with its derivative, on one output; the target is 0.
LOSSES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "F": (lambda z: z, lambda z: z**0),
    "F²/2": (lambda z: z * z / 2, lambda z: z),
    "F²": (lambda z: z * z, lambda z: 2 * z),
    "F²/8": (lambda z: z * z / 8, lambda z: z / 4),
    "huber": (lambda z: _clipped(z) * z - _clipped(z) ** 2 / 2, _clipped),
    "F⁴": (lambda z: z**4, lambda z: 4 * z**3),
    "log cosh": (lambda z: float(np.log(np.cosh(float(z)))), lambda z: float(np.tanh(float(z)))),
    "logistic": (
        lambda z: float(np.logaddexp(0, float(z))),
        lambda z: float(1 / (1 + np.exp(-float(z)))),
    ),
}
FUNCTIONS = LOSSES | {"−F²/2": (lambda z: -z * z / 2, lambda z: -z)}
"""And one that is not convex."""
CURVATURES = {"F²/2": ONE, "F²": 2 * ONE, "F²/8": Fraction(1, 4)}
ROUNDED = ("log cosh", "logistic")


@dataclass(frozen=True)
class Step:
    """Outputs F on |X| samples, a kernel, and a convex loss."""

    loss: str
    outputs: tuple[Fraction, ...]
    kernel: tuple[tuple[Fraction, ...], ...]

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"loss": self.loss, "|X|": len(self.outputs)}

    @property
    def tolerance(self) -> float:
        return 1e-12 if self.loss in ROUNDED else 0.0

    def value(self, outputs: np.ndarray) -> Any:
        """L = ΣC/|X|.   [teleport, Eq. 10]"""
        total = sum(FUNCTIONS[self.loss][0](z) for z in outputs)
        return total / len(outputs)

    def signal(self, outputs: np.ndarray) -> np.ndarray:
        """f = C'(F)."""
        return np.array([FUNCTIONS[self.loss][1](z) for z in outputs], object)

    def run(self, steps: int) -> list[np.ndarray]:
        """F(s+1) = F(s) − Θf(s).   [teleport, before Eq. 87]"""
        found, kernel = [np.array(self.outputs, object)], np.array(self.kernel, object)
        for _ in range(steps):
            found.append(found[-1] - kernel @ self.signal(found[-1]))
        return found

    def form(self) -> Any:
        """fᵀΘf."""
        f = self.signal(np.array(self.outputs, object))
        return f @ np.array(self.kernel, object) @ f

    @property
    def alignment(self) -> Any:
        """A = fᵀΘf/‖f‖²."""
        f = self.signal(np.array(self.outputs, object))
        return self.form() / (f @ f)

    def __str__(self) -> str:
        rows = ", ".join("[" + ", ".join(map(str, row)) + "]" for row in self.kernel)
        return f"C = '{self.loss}'; F = [{', '.join(map(str, self.outputs))}]; Theta = [{rows}]"


def boundary() -> Iterator[Step]:
    """Two samples with outputs −1, 0, 1, not both 0, and the kernels 0, ½, of one sample only,
    and of rank 1, for every loss.
    """
    kernels = ((0, 0, 0), (HALF, 0, HALF), (ONE, 0, 0), (HALF, HALF, HALF), (HALF, -HALF, HALF))
    outputs = [(a, b) for a, b in product((-ONE, 0 * ONE, ONE), repeat=2) if a or b]
    for (a, b, c), start, loss in product(kernels, outputs, LOSSES):
        yield Step(loss, start, ((ONE * a, ONE * b), (ONE * b, ONE * c)))


def steps(rng: np.random.Generator, count: int) -> Iterator[Step]:
    """One sample with F = 1 and Θ = 1, ½, ¼, 2, and F = −1, for every loss; `boundary`; then random
    outputs and kernels.

    The random ones have up to four samples.
    """
    for start, kernel in ((ONE, ONE), (-ONE, ONE), (ONE, HALF), (ONE, HALF / 2), (ONE, 2 * ONE)):
        yield from (Step(loss, (start,), ((kernel,),)) for loss in LOSSES)
    yield from boundary()
    names = list(LOSSES)
    for _ in range(count):
        n = int(rng.integers(1, 5))
        root = rationals(rng.integers(-2, 3, (n, n)))
        kernel = root @ root.T * Fraction(1, int(rng.choice([4, 16, 64])))
        outputs = [Fraction(int(v), 2) for v in rng.choice([-5, -3, -2, -1, 1, 2, 3, 5], n)]
        yield Step(names[rng.integers(len(names))], tuple(outputs), tuple(map(tuple, kernel)))


def decrease(case: Step) -> Any:
    """L(1) − L(0)."""
    before, after = case.run(1)
    return case.value(after) - case.value(before)


def _by_jax(case: Step, count: int) -> tuple[list[np.ndarray], list[np.ndarray], list[float]]:
    """Outputs, signals (by JAX's gradient of the loss) and losses along the run, in float64."""
    import jax
    import jax.numpy as jnp

    functions = {
        "F": lambda z: z,
        "F²/2": lambda z: z**2 / 2,
        "F²": lambda z: z**2,
        "F²/8": lambda z: z**2 / 8,
        "huber": lambda z: jnp.where(jnp.abs(z) < 1, z**2 / 2, jnp.abs(z) - 0.5),
        "F⁴": lambda z: z**4,
        "log cosh": lambda z: jnp.log(jnp.cosh(z)),
        "logistic": lambda z: jnp.logaddexp(0.0, z),
    }
    total = lambda z: functions[case.loss](z).sum()  # noqa: E731
    with jax.enable_x64(True):
        outputs, kernel = [np.array(case.outputs, float)], np.array(case.kernel, float)
        signals = [np.asarray(jax.grad(total)(jnp.asarray(outputs[0])))]
        for _ in range(count):
            outputs.append(outputs[-1] - kernel @ signals[-1])
            signals.append(np.asarray(jax.grad(total)(jnp.asarray(outputs[-1]))))
        return outputs, signals, [float(total(jnp.asarray(z))) / len(z) for z in outputs]


def _printed_by_jax(case: Step) -> Check:
    _, signals, values = _by_jax(case, 1)
    form = float(signals[0] @ np.array(case.kernel, float) @ signals[0])
    return at_most(values[1] - values[0], -form, 1e-10)


@statement(
    "Eq 87 (amended)",
    steps,
    control(
        "a concave loss, −F²/2, on two samples",
        lambda: Step("−F²/2", (ONE, 0 * ONE), ((ONE, 0 * ONE), (0 * ONE, ONE))),
    ),
    amends=("Eq 87", "Eq 87 (initial decrease)"),
)
def _decrease(case: Step) -> Check:
    """L(s+1) − L(s) ≥ −f(s)ᵀΘf(s)/|X| for every differentiable convex loss: the reverse, and with
    the 1/|X| of Eq. 10.

    L(s+1) − L(s) ≥ −fᵀΘf/|X|: a convex function lies above its tangents.
    """
    bound = -case.form() / len(case.outputs)
    return at_least(decrease(case), bound, case.tolerance * (1 + abs(float(bound))))


@statement(
    "Eq 87",
    steps,
    control(
        "a step uphill, linear loss",
        lambda: Step("F", (ONE,), ((ONE,),)),
        change=lambda case: -decrease(case),
    ),
    confirm=_printed_by_jax,
)
def eq_87(case: Step, change: Any = decrease) -> Check:
    """L(s+1) − L(s) ≤ −f(s)ᵀΘf(s) for every differentiable convex loss."""
    return at_most(change(case), -case.form(), case.tolerance * (1 + abs(float(case.form()))))


def _slowest(signals: list[np.ndarray], a: Any) -> tuple[Any, Any]:
    """‖f(s)‖²/‖f(0)‖² and (1 − A)^{2s}, s = 1, 2, 3, at the step with the least slack."""
    squares = [f @ f for f in signals]
    pairs = [(squares[s] / squares[0], (1 - a) ** (2 * s)) for s in (1, 2, 3)]
    return min(pairs, key=lambda pair: pair[0] - pair[1])


def _contraction_by_jax(case: Step) -> Check:
    _, signals, _ = _by_jax(case, 3)
    left, right = _slowest(signals, _alignment_by_jax(case, signals[0]))
    return at_least(float(left), float(right), 1e-10)


def _alignment_by_jax(case: Step, f: np.ndarray) -> float:
    return float(f @ np.array(case.kernel, float) @ f / (f @ f))


_HALF_STEP = lambda: Step("F²/2", (ONE,), ((HALF,),))  # noqa: E731


@statement(
    "Eq 87 (contraction)",
    steps,
    control("(1 − A/2)^s for C = F²/2, Θ = ½", _HALF_STEP, curvatures={"F²/2": HALF}),
    confirm=_contraction_by_jax,
)
def eq_87_contraction(case: Step, curvatures: Any = None) -> Check:
    """For every differentiable convex loss f contracts no faster than (1 − A)^s: ‖f(s)‖² ≥ (1 −
    A)^{2s}‖f(0)‖², as in Eq. 84.
    """
    a = case.alignment * (curvatures[case.loss] if curvatures else 1)
    left, right = _slowest(list(map(case.signal, case.run(3))), a)
    return at_least(left, right, case.tolerance, comparisons=3)


eq_87_contraction_amended = eq_87_contraction.amend(
    control("κ = 1 for C = F²", lambda: Step("F²", (ONE,), ((HALF,),)), curvatures={"F²": ONE}),
    cases=lambda rng, count: (case for case in steps(rng, 4 * count) if case.loss in CURVATURES),
    curvatures=CURVATURES,
)("For C = κ‖F − y‖²/2, f contracts no faster than |1 − κA|^s.")


def _decrease_by_jax(case: Step) -> Check:
    _, signals, values = _by_jax(case, 1)
    return at_least(values[1] / values[0], 1 - 2 * _alignment_by_jax(case, signals[0]), 1e-10)


@statement(
    "Eq 87 (initial decrease)",
    steps,
    control("1 − A for C = F²/2, Θ = ½", _HALF_STEP, factor=1),
    confirm=_decrease_by_jax,
)
def eq_87_rate(case: Step, factor: int = 2) -> Check:
    """For every differentiable convex loss the first step obeys the bound of Proposition F.1,
    L(1)/L(0) ≥ 1 − 2A.
    """
    before, after = (case.value(outputs) for outputs in case.run(1))
    if before <= 0:
        return at_least(0, 0, drops=inside("L(0) ≤ 0, where the ratio says nothing"))
    return at_least(after / before, 1 - factor * case.alignment, case.tolerance)
