"""[teleport] on bounded transformations and on the two parametrisations.   Eq. 17, 18, 23, App.
A.6
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check
from neuromanifold_papers.statement import Control, Statement

_EPS = float(np.finfo(np.float64).eps)
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


def bounded_by(case: Stretch) -> Check:
    """‖Γ‖² ≤ C², with the least C that Eq. 17 allows."""
    return Check(max(c * c for c in case.factors), case.least_c, "<=", hypotheses=case.hypotheses)


def _by_singular_values(case: Stretch) -> Check:
    gamma, rows = np.diag(np.array(case.factors, float)), np.array(case.gradients, float)
    ratios = np.linalg.norm(rows @ gamma, axis=1) / np.linalg.norm(rows, axis=1)
    return Check(float(np.linalg.norm(gamma, 2)), float(ratios.max()), "<=", 16 * _EPS)


def implied(case: Stretch, factor: int = 1) -> Check:
    """‖Γ∇F‖² ≤ ‖Γ‖²‖∇F‖² for every input."""
    return Check(
        factor * case.least_c, max(c * c for c in case.factors), "<=", hypotheses=case.hypotheses
    )


EQ_18 = Statement(
    paper="teleport",
    row="Eq 15, 16, 22, 24",
    id="Eq 18",
    says="‖Γ∇F‖ ≤ C‖∇F‖ for all inputs (Eq. 17) requires ‖Γ‖ ≤ C",
    method="exact",
    cases=stretches,
    measure=bounded_by,
    control=Control(
        "a factor 10 on a parameter that no input sees", case=lambda: Stretch(((1, 0),), (1, 10))
    ),
    confirm=_by_singular_values,
    route="float64, singular values",
    worked="""F = θ_1x on all x, with a second parameter that F does not see (the outgoing weight of a dead ReLU neuron is one).
Γ = diag(1, 10) leaves ∇F = (x, 0) as it is, so Eq. 17 holds with C = 1, and ‖Γ‖ = 10. Eq. 17 bounds Γ along the
gradients only. Eq. 18 implies Eq. 17; it is what Theorem 4.1 uses.""",
    amended=Statement(
        paper="teleport",
        row="Eq 15, 16, 22, 24",
        id="Eq 18 (amended)",
        says="‖Γ‖ ≤ C implies ‖Γ∇F‖ ≤ C‖∇F‖ for all inputs",
        method="exact",
        cases=stretches,
        measure=implied,
        control=Control(
            "twice ‖Γ∇F‖", case=lambda: Stretch(((1, 1),), (2, 2)), breaks={"factor": 4}
        ),
        proof="The definition of the spectral norm.",
    ),
)

Pair = tuple[Rows, Rows]


def norms(case: Pair, power: int = 2) -> Check:
    """‖ΓᵀHΓ‖ ≤ ‖Γ‖²‖H‖, spectral norms."""
    H, gamma = (np.array(rows, float) for rows in case)
    left = float(np.linalg.norm(gamma.T @ H @ gamma, 2))
    right = float(np.linalg.norm(gamma, 2) ** power * np.linalg.norm(H, 2))
    return Check(
        left,
        right,
        "<=",
        64 * _EPS * (1 + right),
        hypotheses={"rank of Γ": int(np.linalg.matrix_rank(gamma))},
    )


def _pairs(rng: np.random.Generator, count: int) -> Iterator[Pair]:
    for a, b, c in product((-1, 0, 1), repeat=3):
        for p, q, r, s in product((-1, 0, 1), repeat=4):
            yield from ((((a, b), (b, c)), ((k * p, k * q), (k * r, k * s))) for k in (1, 3))


EQ_23 = Statement(
    paper="teleport",
    row="Eq 19",
    id="Eq 23",
    says="‖ΓᵀHΓ‖ ≤ C²‖H‖ for ‖Γ‖ ≤ C (spectral norms; that the print leaves out the absolute "
    "value in sup vᵀHv is Eq 19 (sup))",
    method="float64",
    cases=_pairs,
    measure=norms,
    control=Control(
        "C in place of C²", case=lambda: (((1, 0), (0, 1)), ((1, 1), (1, 1))), breaks={"power": 1}
    ),
    exhaustive="2 × 2, all symmetric H and all Γ with entries −1, 0, 1 and three times them",
    proof="|vᵀΓᵀHΓv| ≤ ‖H‖‖Γv‖².",
)


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


def kernels(case: Twin, rates: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Both kernels on three inputs: η = 1 for all NTK parameters; for the standard ones 1/n_l on
    weights and 1 on biases.
    """
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

    def kernel(params: Any, scales: Any, weights: Any) -> np.ndarray:
        rows = [jax.grad(output)(params, scales, z) for z in x]
        flat = [
            np.concatenate(
                [
                    part.ravel()
                    for (w, b), rate in zip(row, weights, strict=True)
                    for part in (rate**0.5 * w, b)
                ]
            )
            for row in rows
        ]
        return np.array(flat) @ np.array(flat).T

    with jax.enable_x64(True):
        ntk = kernel(theta, [a**-0.5 for a, _ in pairs], [1.0] * 3)
        standard = [
            (weight / a**0.5, bias) for (weight, bias), (a, _) in zip(theta, pairs, strict=True)
        ]
        return ntk, kernel(
            standard, [1.0] * 3, [1 / a for a, _ in pairs] if rates else [1 / case.width] * 3
        )


def same_kernel(case: Twin, rates: bool = True) -> Check:
    ntk, standard = kernels(case, rates)
    gap = float(np.abs(ntk - standard).max() / np.abs(ntk).max())
    return Check(gap, 0.0, "=", 1e3 * _EPS, hypotheses=case.hypotheses)


A_6 = Statement(
    paper="teleport",
    row="Eq 19",
    id="A.6 (parametrisations)",
    says="standard and NTK parametrisation give the same kernel (the first layer divided by √n_0, "
    "printed √n_1; a rate for each "
    "layer: 1/n_l for weights, 1 for biases)",
    method="float64",
    cases=lambda rng, count: [
        Twin(n, width, seed) for n in (1, 3) for width in (2, 20) for seed in (0, 1)
    ],
    measure=same_kernel,
    control=Control(
        "one rate 1/n for all layers' weights, three inputs",
        case=lambda: Twin(3, 20, 0),
        breaks={"rates": False},
    ),
    proof="W = θ/√n_l has ∂F/∂θ = ∂F/∂W/√n_l, so that the rate 1 on θ is 1/n_l on W.",
)
