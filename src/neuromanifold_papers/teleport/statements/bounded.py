"""[teleport] on bounded transformations and on the two parametrisations.   Eq. 17, 18, 23, App.
A.6
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import EPS, Check, at_most, equal
from neuromanifold_papers.statement import control, in_float64, statement

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Stretch:
    """Gradients ∇F(x) of a linear model, one row for each input, and a diagonal Γ."""

    gradients: Rows
    factors: tuple[int, ...]

    @property
    def least_c(self) -> Fraction:
        """C²: the largest ‖Γ∇F‖²/‖∇F‖² over all inputs.   [teleport, Eq. 17]"""
        return max(
            Fraction(
                sum((c * g) ** 2 for c, g in zip(self.factors, row, strict=True)),
                sum(g * g for g in row),
            )
            for row in self.gradients
        )

    @property
    def hypotheses(self) -> dict[str, Any]:
        rank = int(np.linalg.matrix_rank(np.array(self.gradients)))
        return {"parameters": len(self.factors), "gradients span": rank}


def stretches(rng: np.random.Generator, count: int) -> Iterator[Stretch]:
    """A parameter that no input sees; then all gradients with entries 0, 1 and factors 1, 2, 10."""
    yield Stretch(((1, 0),), (1, 10))
    rows = [row for row in product((0, 1), repeat=2) if any(row)]
    for gradients in [*((row,) for row in rows), *product(rows, repeat=2)]:
        yield from (Stretch(gradients, factors) for factors in product((1, 2, 10), repeat=2))


def _by_singular_values(case: Stretch) -> Check:
    gamma, rows = np.diag(np.array(case.factors, float)), np.array(case.gradients, float)
    ratios = np.linalg.norm(rows @ gamma, axis=1) / np.linalg.norm(rows, axis=1)
    return at_most(float(np.linalg.norm(gamma, 2)), float(ratios.max()), 16 * EPS)


@statement(
    "Eq 18",
    stretches,
    control(
        "C halved where Γ = 2 and every parameter is seen",
        lambda: Stretch(((1, 1),), (2, 2)),
        allowed=lambda case: case.least_c / 4,
    ),
    confirm=_by_singular_values,
)
def eq_18(case: Stretch, allowed: Any = lambda case: case.least_c) -> Check:
    """‖Γ∇F‖ ≤ C‖∇F‖ for all inputs (Eq. 17) requires ‖Γ‖ ≤ C.

    ‖Γ‖² ≤ C², with the least C that Eq. 17 allows.
    """
    return at_most(max(c * c for c in case.factors), allowed(case))


@eq_18.amend(control("twice ‖Γ∇F‖", lambda: Stretch(((1, 1),), (2, 2)), factor=4))
def implied(case: Stretch, factor: int = 1) -> Check:
    """‖Γ‖ ≤ C implies ‖Γ∇F‖ ≤ C‖∇F‖ for all inputs.

    ‖Γ∇F‖² ≤ ‖Γ‖²‖∇F‖² for every input.
    """
    return at_most(factor * case.least_c, max(c * c for c in case.factors))


Matrix = tuple[tuple[float, ...], ...]
Pair = tuple[Matrix, Matrix]


def pairs(rng: np.random.Generator, count: int) -> Iterator[Pair]:
    for a, b, c in product((-1, 0, 1), repeat=3):
        for p, q, r, s in product((-1, 0, 1), repeat=4):
            yield from ((((a, b), (b, c)), ((k * p, k * q), (k * r, k * s))) for k in (1, 3))


@dataclass(frozen=True)
class Twin:
    """A tanh network (n_0, n, n, 1) in NTK parametrisation, and the same function with standard
    weights θ/√n_l.
    """

    inputs: int
    width: int
    seed: int

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "width": self.width}


def one_rate(widths: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """η = 1/n for all weights and all biases, n the smallest hidden layer.   [teleport, Eq. 32]"""
    n = min(widths[1:-1])
    return [1 / n] * (len(widths) - 1), [1 / n] * (len(widths) - 1)


def kernels(case: Twin, rates: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both kernels on three inputs: rate 1 for all NTK parameters, `rates` for the standard ones."""
    import jax
    import jax.numpy as jnp

    rng, widths = np.random.default_rng(case.seed), (case.inputs, case.width, case.width, 1)
    pairs = list(zip(widths[:-1], widths[1:], strict=True))
    theta = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairs]
    x = rng.normal(size=(3, case.inputs))

    def output(params: Any, scales: Any, z: Any) -> Any:
        for l, ((weight, bias), scale) in enumerate(zip(params, scales, strict=True)):
            z = scale * (weight @ (jnp.tanh(z) if l else z)) + bias
        return z[0]

    def kernel(params: Any, scales: Any, speeds: Any) -> np.ndarray:
        rates = [rate**0.5 for pair in speeds for rate in pair]
        rows = [jax.tree.leaves(jax.grad(output)(params, scales, z)) for z in x]
        flat = [[(r * part).ravel() for r, part in zip(rates, row, strict=True)] for row in rows]
        matrix = np.array([np.concatenate(parts) for parts in flat])
        return matrix @ matrix.T

    with jax.enable_x64(True):
        ntk = kernel(theta, [a**-0.5 for a, _ in pairs], [(1.0, 1.0)] * 3)
        standard = [(W / a**0.5, b) for (W, b), (a, _) in zip(theta, pairs, strict=True)]
        return ntk, kernel(standard, [1.0] * 3, list(zip(*rates(widths), strict=True)))


def _by_hand(case: Twin) -> Check:
    """F = Σ v_i(w_i x + b_i) + c at x = 1, w = 1, b = 0, v = 1, four neurons: NTK weights V = 2.

    (1/n)ΣV²(x² + 1) + (1/n)Σ(w + b)² + 1 against (1/n)(Σv²(x² + 1) + Σ(w + b)² + 1).
    """
    n, v = 4, 1
    ntk = Fraction(n * (2 * v) ** 2 * 2, n) + 1 + 1
    return equal(ntk, Fraction(n * v * v * 2 + n + 1, n))


@in_float64(
    "A.6 (parametrisations)",
    [Twin(n, width, seed) for n in (1, 3) for width in (2, 20) for seed in (0, 1)],
    control(
        "the rate 2 for all, at width 1",
        lambda: Twin(1, 1, 0),
        rates=lambda widths: ([2.0] * 3, [2.0] * 3),
    ),
    confirm=_by_hand,
)
def a_6(case: Any, rates: Any = one_rate) -> Check:
    """The standard parametrisation with learning rate 1/n (Eqs. 31, 32) and the NTK
    parametrisation with rate 1 (Eqs. 34, 35) give the same kernel.
    """
    ntk, standard = kernels(case, rates)
    return equal(float(np.abs(ntk - standard).max() / np.abs(ntk).max()), 0.0, 1e3 * EPS)


a_6_a_rate_for_each_layer = a_6.amend(
    control("one rate 1/n for all, three inputs", lambda: Twin(3, 20, 0), rates=one_rate),
    id="A.6 (a rate for each layer)",
    rates=lambda widths: ([1 / n for n in widths[:-1]], [1.0] * (len(widths) - 1)),
)("The same, with the rate 1/n_l for the weights that read layer l and 1 for biases.")


@statement(
    "Eq 33",
    list(product((1, 2, 3), (4, 5))),
    control("n_1 = 2n_0", lambda: (2, 4), passes=lambda: (2, 2)),
    confirm=lambda case: equal(
        float(np.random.default_rng(0).normal(size=10**5).var() / case[1]), 1 / case[0], 0.05
    ),
)
def eq_33(case: tuple[int, int], divisor: int = 1) -> Check:
    """In NTK parametrisation the first layer is divided by √n_1, which with θ ~ 1 gives the network of
    Eq. 31, whose first weights are of size 1/√n_0.

    The variance of the first pre-activation at |x|² = 1: 1/n_k in NTK, 1/n_0 in standard
    parametrisation.
    """
    return equal(Fraction(1, case[divisor]), Fraction(1, case[0]), hypotheses={"n_0": case[0]})


eq_33_amended = eq_33.amend(control("divided by √n_1", lambda: (2, 4), divisor=1), divisor=0)(
    "Divided by √n_0 the first pre-activation has the same distribution in both."
)
