"""[teleport] on the proof of Lemma 3.1, equation by equation.   App. D.1, Eq. 53–65

One output F(θ) = g·θ + θᵀQθ/2 in rational numbers: its gradient is g + Qθ, its Hessian Q, and a
mean value is taken at the middle of a segment. Linear models (Q = 0) have m_n = 0: an error of
O(m_n) is 0 for them, whatever the constant.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product, starmap
from typing import Any

import flint
import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.precision import arithmetic
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements.exact import rationals

Vector = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Segment:
    """A quadratic model, some parameters and a learning rate, in fractions."""

    g: np.ndarray
    Q: np.ndarray
    start: np.ndarray
    end: np.ndarray
    rate: Fraction = Fraction(1)

    @property
    def step(self) -> np.ndarray:
        """θ − θ₀."""
        return self.end - self.start

    @property
    def bend(self) -> Fraction:
        """A bound of ‖∇²F‖: the largest row sum of |Q|."""
        return max(np.abs(self.Q).sum(axis=1))

    def value(self, theta: np.ndarray) -> Any:
        return self.g @ theta + theta @ self.Q @ theta / 2

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.g + self.Q @ theta

    def __str__(self) -> str:
        names = ("g", "Q", "start", "end", "rate")
        shown = [np.array(getattr(self, name), float).tolist() for name in names]
        return "; ".join(f"{name} = {value}" for name, value in zip(names, shown, strict=True))


def _line(g: int, q: int, start: int, end: int, rate: int = 1) -> Segment:
    """F = gθ + qθ²/2 from one number to another, with the rate 1/`rate`."""
    return Segment(*map(rationals, ([g], [[q]], [start], [end])), rate=Fraction(1, rate))


def segments(rng: np.random.Generator, draws: int) -> Iterator[Segment]:
    """One parameter, small integers, then two and three parameters at random."""
    yield from starmap(_line, product((1, 2), (0, 1), (0, 1), (2, 3), (1, 2)))
    for _ in range(draws):
        size = int(rng.integers(2, 4))
        half = rng.integers(-3, 4, (size, size))
        g, a, b = (rationals(rng.integers(-4, 5, size)) for _ in range(3))
        yield Segment(g, rationals(half + half.T), a, b, Fraction(1, int(rng.integers(1, 5))))


def _jax(case: Segment) -> tuple[Callable[[jax.Array], jax.Array], jax.Array, jax.Array]:
    """The model and both parameters for JAX, which knows nothing of g and Q."""
    g, Q = jnp.asarray(np.array(case.g, float)), jnp.asarray(np.array(case.Q, float))
    start, end = (jnp.asarray(np.array(v, float)) for v in (case.start, case.end))
    return lambda theta: g @ theta + theta @ Q @ theta / 2, start, end


_LINEAR = lambda: _line(1, 1, 0, 3)  # noqa: E731


def _scaled(factor: int) -> Segment:
    return _line(factor, 1, 0, 1)


def _by_jax_57(case: Segment) -> Check:
    with arithmetic():
        F, start, end = _jax(case)
        left = jax.grad(F)(end) - jax.grad(F)(start)
        right = jax.hessian(F)((start + end) / 2)[0]
        return equal(float(left[0]), float(right[0]), 1e-12)


@statement(
    "Eq 57",
    segments,
    control("a step of 3 for one of 1", _LINEAR, passes=lambda: _scaled(1)),
    confirm=_by_jax_57,
)
def eq_57(case: Segment) -> Check:
    """With L = F, the mean value θ' has v·(∇L(θ) − ∇L(θ₀)) = vᵀH(θ')/η, H = η∇²L, without the
    displacement; v the first unit vector.
    """
    left = case.gradient(case.end)[0] - case.gradient(case.start)[0]
    return equal(left, case.Q[0, 0], parameters=len(case.g))


@eq_57.amend(control("the displacement reversed", _LINEAR, sign=-1))
def eq_57_amended(case: Segment, sign: int = 1) -> Check:
    """v·(∇L(θ) − ∇L(θ₀)) = vᵀ∇²L(θ')(θ − θ₀) at some θ' of the segment."""
    left = case.gradient(case.end)[0] - case.gradient(case.start)[0]
    return equal(left, sign * case.Q[0] @ case.step, parameters=len(case.g))


def _norm1(vector: np.ndarray) -> Fraction:
    return np.abs(vector).sum()


def _by_jax_61(case: Segment) -> Check:
    with arithmetic():
        F, _, end = _jax(case)
        hessian = jnp.abs(jax.hessian(F)(end)).sum(axis=1).max()
        distance = float(_norm1(case.step))
        return at_most(float(jnp.abs(jax.grad(F)(end)).sum()), distance * float(hessian), 1e-12)


@statement(
    "Eq 61",
    segments,
    control("a gradient at θ₀, where none is", lambda: _scaled(10), passes=lambda: _scaled(0)),
    confirm=_by_jax_61,
)
def eq_61(case: Segment, sign: int = 0) -> Check:
    """‖∇F(θ)‖ = O(m_n) within a fixed radius: at most ‖∇²F‖ times the distance to θ₀, printed
    without the difference of gradients.
    """
    left = _norm1(case.gradient(case.end) + sign * case.gradient(case.start))
    return at_most(left, case.bend * _norm1(case.step), parameters=len(case.g))


eq_61_amended = eq_61.amend(
    control("the sum of the gradients for their difference", _LINEAR, sign=1), sign=-1
)("‖∇F(θ) − ∇F(θ₀)‖ is at most ‖∇²F‖ times the distance to θ₀.")


def _remainder(case: Segment, rate: Fraction, sign: int) -> Fraction:
    """F(θ) − F(θ₀) − rate·sign·∇F(θ₀)·(θ − θ₀)."""
    moved = case.value(case.end) - case.value(case.start)
    return moved - rate * sign * case.gradient(case.start) @ case.step


def _by_jax_63(case: Segment) -> Check:
    with arithmetic():
        F, start, end = _jax(case)
        tangent = jax.jvp(F, (start,), (start - end,))[1]
        left = F(end) - F(start) - float(case.rate) * tangent
        bent = jax.grad(F)((start + end) / 2) - jax.grad(F)(start)
        return equal(float(left), float(bent @ (end - start)), 1e-12)


@statement(
    "Eq 63",
    segments,
    control("a gradient at θ₀", _LINEAR, passes=lambda: _scaled(0)),
    confirm=_by_jax_63,
)
def eq_63(case: Segment, sign: int = -1, rated: bool = True) -> Check:
    """Some θ' has F(θ) − F(θ₀) − η∇F(θ₀)·(θ₀ − θ) = (∇F(θ') − ∇F(θ₀))·(θ − θ₀)."""
    left = _remainder(case, case.rate if rated else Fraction(1), sign)
    bent = case.gradient((case.start + case.end) / 2) - case.gradient(case.start)
    return equal(left, bent @ case.step, parameters=len(case.g))


eq_63_amended = eq_63.amend(control("θ₀ − θ for θ − θ₀", _LINEAR, sign=-1), sign=1, rated=False)(
    "Some θ' has F(θ) − F(θ₀) − ∇F(θ₀)·(θ − θ₀) = (∇F(θ') − ∇F(θ₀))·(θ − θ₀)."
)


def _by_jax_64(case: Segment) -> Check:
    with arithmetic():
        F, start, end = _jax(case)
        left = F(end) - F(start) - jax.jvp(F, (start,), (start - end,))[1]
        hessian = jnp.abs(jax.hessian(F)(end)).sum(axis=1).max()
        bound = float(hessian) * float(_norm1(case.step)) ** 2
        return at_most(abs(float(left)), bound, 1e-12)


@statement(
    "Eq 64",
    segments,
    control("a gradient at θ₀, where none is", lambda: _scaled(10), passes=lambda: _scaled(0)),
    confirm=_by_jax_64,
)
def eq_64(case: Segment, sign: int = -1, share: int = 1) -> Check:
    """|F(θ) − F(θ₀) − ∇F(θ₀)·(θ₀ − θ)| = O(m_n): at most ‖∇²F‖‖θ − θ₀‖²."""
    bound = case.bend * _norm1(case.step) ** 2 / share
    return at_most(abs(_remainder(case, Fraction(1), sign)), bound, parameters=len(case.g))


eq_64_amended = eq_64.amend(
    control("a third for the half", lambda: _scaled(10), share=3), sign=1, share=2
)("|F(θ) − F(θ₀) − ∇F(θ₀)·(θ − θ₀)| is at most ‖∇²F‖‖θ − θ₀‖²/2.")


@dataclass(frozen=True)
class Descent:
    """F(θ) = θ·k in one parameter, C = (F − y)²/2, so many steps of gradient descent."""

    k: int
    start: int
    target: int
    rate: Fraction
    steps: int

    def outputs(self) -> list[Fraction]:
        """F(θ(0)), …, F(θ(s)), from the parameters."""
        theta, found = Fraction(self.start), []
        for _ in range(self.steps + 1):
            found.append(self.k * theta)
            theta -= self.rate * self.k * (self.k * theta - self.target)
        return found

    @property
    def kernel(self) -> Fraction:
        """Θ₀ = η∇F∇F.   [teleport, Eq. 8]"""
        return self.rate * self.k**2


def descents(rng: np.random.Generator, draws: int) -> Iterator[Descent]:
    for k, start, target, rate, steps in product((1, 2), (1, 3), (0, 2), (2, 5), (1, 2, 3)):
        yield Descent(k, start, target, Fraction(1, 2 * rate), steps)
    for _ in range(draws):
        k, start, target = (int(n) for n in rng.integers(1, 9, 3))
        yield Descent(k, start, target, Fraction(1, int(rng.integers(1, 90))), 2)


def _by_jax_65(case: Descent) -> Check:
    with arithmetic():
        loss = lambda theta: (case.k * theta - case.target) ** 2 / 2  # noqa: E731
        theta = before = float(case.start)
        for _ in range(case.steps):
            before, theta = theta, theta - float(case.rate) * float(jax.grad(loss)(theta))
        error = case.k * before - case.target
        printed = case.k * case.start - float(case.rate) * float(case.kernel) * error
        return equal(case.k * theta, printed, 1e-12)


_TWO_STEPS = lambda: Descent(1, 1, 0, Fraction(1, 2), 2)  # noqa: E731


@statement(
    "Eq 65",
    descents,
    control("two steps", _TWO_STEPS, passes=lambda: Descent(1, 1, 0, Fraction(1), 1)),
    confirm=_by_jax_65,
)
def eq_65(case: Descent) -> Check:
    """For a linear model F(θ(s)) = F(θ₀) − (η/|X|)Θ₀f(s − 1), from F(θ₀) at every step, with the
    rate beside a kernel that holds it.
    """
    outputs = case.outputs()
    printed = outputs[0] - case.rate * case.kernel * (outputs[-2] - case.target)
    return equal(outputs[-1], printed, steps=case.steps)


@eq_65.amend(control("from F(θ₀) at every step", _TWO_STEPS, before=0))
def eq_65_amended(case: Descent, before: int = -2) -> Check:
    """For a linear model F(θ(s)) = F(θ(s − 1)) − Θ₀f(s − 1)/|X|."""
    outputs = case.outputs()
    moved = outputs[before] - case.kernel * (outputs[-2] - case.target)
    return equal(outputs[-1], moved, steps=case.steps)


@dataclass(frozen=True)
class Wide:
    """n parameters ±1 in F(θ) = Σ θ_i/√n, at F = 0: ‖∇F‖ = 1, ∇²F = 0, one step of rate 1 with
    C'(F) = −1; n is an even square.
    """

    width: int

    def moved(self) -> tuple[Fraction, Fraction]:
        """‖θ(1)‖² and ‖θ(1) − θ₀‖²."""
        root = Fraction(1, int(self.width**0.5))
        signs = [1, -1] * (self.width // 2)
        return sum((s + root) ** 2 for s in signs) + Fraction(0), self.width * root**2


def _by_numpy_55(case: Wide) -> Check:
    signs = np.resize([1.0, -1.0], case.width)
    return at_most(float(np.sum((signs + 1 / np.sqrt(case.width)) ** 2)), 5.0, 1e-9)


@statement(
    "Eq 55",
    lambda rng, draws: [Wide((2 * k) ** 2) for k in range(1, 20)],
    control("a width of 10⁴", lambda: Wide(10_000), passes=lambda: Wide(4)),
    confirm=_by_numpy_55,
)
def eq_55(case: Wide) -> Check:
    """θ = θ(s − 1) − η∇L = O(1): ‖θ‖² at any width is at most that at the smallest, 5."""
    return at_most(case.moved()[0], Wide(4).moved()[0], width=case.width)


@eq_55.amend(control("‖θ‖² for ‖θ − θ₀‖²", lambda: Wide(10_000), which=0))
def eq_55_amended(case: Wide, which: int = 1) -> Check:
    """‖θ(s) − θ₀‖ = O(1): here it is 1 at every width."""
    return equal(case.moved()[which], 1, width=case.width)


@dataclass(frozen=True)
class Outputs:
    """A linear model of so many outputs on one sample, above a last hidden layer of `width`: its
    Jacobian, one row an output, and the signal C'.
    """

    width: int
    jacobian: tuple[Vector, ...]
    signal: Vector

    def step(self, terms: int) -> np.ndarray:
        """−Σ_k Θ_ik C'_k over the first `terms` outputs; what does not exist contributes 0."""
        return -_gram(self.jacobian)[:, :terms] @ np.array(self.signal[:terms])

    def trained(self) -> np.ndarray:
        """How one step of gradient descent by the parameters moves the outputs."""
        J = np.array(self.jacobian)
        return -J @ (J.T @ np.array(self.signal))


def _vector(values: Any) -> Vector:
    return tuple(rationals(values).tolist())


def _rows(matrix: Any) -> tuple[Vector, ...]:
    return tuple(map(_vector, matrix))


def _gram(rows: tuple[Vector, ...]) -> np.ndarray:
    J = np.array(rows)
    return J @ J.T


def _outputs(rng: np.random.Generator, draws: int) -> Iterator[Outputs]:
    for width, outputs in product((1, 2, 3), (1, 2, 3)):
        yield Outputs(width, _rows([[1]] * outputs), _vector([1] * outputs))
        rows = _rows(rng.integers(1, 9, (outputs, 3)))
        yield Outputs(width, rows, _vector(rng.integers(1, 9, outputs)))


def _by_jax_42(case: Outputs) -> Check:
    with arithmetic():
        rows, signal = np.array(case.jacobian, float), np.array(case.signal, float)
        F = lambda theta: jnp.asarray(rows) @ theta  # noqa: E731
        zero = jnp.zeros(rows.shape[1])
        moved = F(-jax.grad(lambda theta: F(theta) @ signal)(zero))
        kernel = jax.jacobian(F)(zero) @ jax.jacobian(F)(zero).T
        printed = -kernel[:, : case.width] @ signal[: case.width]
        return equal(float(jnp.abs(moved - printed).max()), 0.0, 1e-9)


_TWO_OUTPUTS = lambda: Outputs(2, _rows([[1, 2], [3, 1]]), _vector([1, 1]))  # noqa: E731


@statement(
    "Eq 42",
    _outputs,
    control("one term for two outputs", _TWO_OUTPUTS, terms=lambda case: 1),
    confirm=_by_jax_42,
)
def eq_42(case: Outputs, terms: Any = lambda case: case.width) -> Check:
    """The sum over outputs in Eq 42 has n_L terms, n_L the width of the last hidden layer: it is
    the step that training makes.
    """
    apart = max(np.abs(case.trained() - case.step(terms(case))))
    return equal(apart, 0, hypotheses={"n_L": case.width, "outputs": len(case.signal)})


eq_42_amended = eq_42.amend(terms=lambda case: len(case.signal))(
    "The sum has n_{L+1} terms, as many as there are outputs."
)


def _kernels(rng: np.random.Generator, draws: int) -> Iterator[tuple[Vector, ...]]:
    yield _rows([[1], [1]])
    for _ in range(draws):
        rows, columns = (int(n) for n in rng.integers(1, 4, 2))
        yield _rows(rng.integers(-3, 4, (rows, columns)))


def _least(rows: tuple[Vector, ...]) -> float:
    return float(np.linalg.eigvalsh(np.array(_gram(rows), float))[0])


@statement(
    "Eq 78",
    _kernels,
    control("one sample three times", lambda: _rows([[2]] * 3), passes=lambda: _rows([[2]])),
    confirm=lambda rows: at_most(1e-9, _least(rows)),
)
def eq_78(rows: tuple[Vector, ...]) -> Check:
    """Every eigenvalue of the kernel Θ = JJᵀ is positive, so that its determinant is not 0."""
    determinant = flint.fmpz_mat(_gram(rows).astype(int).tolist()).det()
    return equal(int(determinant == 0), 0, samples=len(rows))


@eq_78.amend(
    control("−JJᵀ", lambda: _rows([[2, 1], [1, 3]]), sign=-1),
    method="float64",
)
def eq_78_amended(rows: tuple[Vector, ...], sign: int = 1) -> Check:
    """Every eigenvalue of the kernel is non-negative, and that is all that the proof uses.

    The trace less Σ|λ|, which is 0 where none is negative.
    """
    kernel = np.array(_gram(rows), float)
    size = float(np.abs(sign * np.linalg.eigvalsh(kernel)).sum())
    left = abs(float(np.trace(kernel)) - sign * size)
    return equal(left, 0.0, 4 * len(rows) * max(size, 1.0) * 1e-15, samples=len(rows))


@statement(
    "Eq 81",
    lambda rng, draws: list(product(range(1, 6), (Fraction(n, 3) for n in range(-3, 10)))),
    control("the power 2s − 1", lambda: (2, Fraction(1, 3)), power=1),
)
def eq_81(case: tuple[int, Fraction], power: int = 0) -> Check:
    """(1 − λ)^{2s} has the second derivative 2s(2s − 1)(1 − λ)^{2s−2} ≥ 0.

    From the coefficients of the polynomial against the printed one.
    """
    steps, at = case
    found = (
        (flint.fmpz_poly([1, -1]) ** (2 * steps))
        .derivative()
        .derivative()(flint.fmpq(at.numerator, at.denominator))
    )
    printed = 2 * steps * (2 * steps - 1) * (1 - at) ** (2 * steps - 2 + power)
    return equal(Fraction(int(found.p), int(found.q)) if printed >= 0 else -1, printed, steps=steps)
