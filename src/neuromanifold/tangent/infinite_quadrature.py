"""Dual activations by quadrature, with error control: Hermite series for smooth activations, split panels for kinked ones."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from neuromanifold.models.activation import Activation
from neuromanifold.numerics.memory import blocks
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite_duals import Array, Moments

_ORDERS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_CORRELATIONS = np.array([1.0, -1.0, 0.7, 0.0])
_PANEL_ORDERS = (24, 40, 64)
_PAIRS_AT_ONCE = 64
_TRANSITION = 9.0


@dataclass(frozen=True)
class Quadrature:
    """How expectations over an activation without closed form are computed.

    `rtol` bounds the estimated error of E[σ(u)σ(v)], relative to √(E[σ(u)²] E[σ(v)²]), and likewise for the slopes. `kinks`
    are the points where σ or a derivative of it jumps: integrals are split there. `reach` is the radius, in standard
    deviations, of the split integrals. `always` takes quadrature even where a closed form is known, which tests both.
    """

    rtol: float = 1e-12
    kinks: tuple[float, ...] = ()
    reach: float = 10.0
    always: bool = False

    def __post_init__(self):
        if not 0 < self.rtol < 1:
            raise ValueError(f"`rtol` is {self.rtol!r}; pass a number between 0 and 1, such as 1e-12.")
        if not np.isfinite(self.kinks).all():
            raise ValueError(f"`kinks` is {self.kinks!r}; pass finite numbers.")


def quadrature_dual(activation: Activation, quadrature: Quadrature) -> "HermiteSeries | SplitPanels":
    """The dual of any activation: split at the kinks where there are any, a Hermite series otherwise."""
    if quadrature.kinks:
        return SplitPanels(activation, quadrature)
    return HermiteSeries(activation, quadrature)


@dataclass(frozen=True)
class HermiteSeries:
    """E[σ(u)σ(v)] = Σ_k h_k(a) h_k(b) cosᵏθ  with  h_k(a) = E[σ(√a z) he_k(z)], he_k orthonormal, by Gauss–Hermite.

    Half of the coefficients that n nodes give are kept: the last of them weigh as much as what the nodes miss of the
    first. A rule is accepted when the error that its two predecessors predict for it is below `rtol`.
    """

    activation: Activation
    quadrature: Quadrature

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """Both expectations, by Horner's rule in cos θ."""
        rows, columns = self._series(np.ravel(a), np.ravel(b))
        if np.shape(a) == np.shape(angle):  # entrywise, not an outer product
            values = [_horner(r * c, np.ravel(np.cos(angle))) for r, c in zip(rows, columns, strict=True)]
            return Moments(*(v.reshape(np.shape(angle)) for v in values))
        return Moments(*(_outer_horner(r, c, np.cos(angle)) for r, c in zip(rows, columns, strict=True)))

    def variance(self, a: Array) -> Array:
        """E[σ(u)²] = Σ h_k²."""
        [(value, _)] = self._series(np.ravel(a))
        return (value**2).sum(axis=0).reshape(np.shape(a))

    def _series(self, *variances: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The coefficients (k, n) of σ and of σ' at each variance, as many for each as the most demanding one asks for."""
        distinct, where = np.unique(np.concatenate(variances), return_inverse=True)
        sums = []
        for order in _ORDERS:
            found = _coefficients(self.activation, distinct, order)
            sums.append([_sums(h[: order // 2]) for h in found])
            if len(sums) > 2 and estimated_error(*sums[-3:]) <= self.quadrature.rtol:
                sides = np.split(where, np.cumsum([len(v) for v in variances])[:-1])
                return [(found[0][: order // 2, side], found[1][: order // 2, side]) for side in sides]
        raise ArithmeticError(
            f"the quadrature for {self.activation} has not reached {self.quadrature.rtol:.0e} with {_ORDERS[-1]} nodes "
            f"(variances up to {distinct.max():.3g}); raise `rtol`, or name the points where the activation or a "
            "derivative of it jumps: quadrature=Quadrature(kinks=(…,))."
        )


def _sums(h: np.ndarray) -> np.ndarray:
    """Σ_k h_k² ρᵏ for a few correlations ρ, the first of them 1: (correlations, variances)."""
    return np.array([_horner(h**2, np.full(h.shape[1], rho)) for rho in _CORRELATIONS])


def estimated_error(*sums: list[np.ndarray]) -> float:
    """The error of the last of three rules, each with twice the nodes of the one before, relative to E[σ²].

    The change from one rule to the next is the error of the former. An analytic σ has errors like exp(−c√n), and those
    of n/4 and n/2 nodes predict that of n: e₂ (e₂/e₁)^√2. A rule at the level of rounding predicts itself.
    """
    first, second, third = (np.stack(s) for s in sums)
    size = np.maximum(third[:, 0], np.finfo(np.float64).tiny)
    before, after = (np.abs(b - a).max(axis=1) / size for a, b in ((first, second), (second, third)))
    ratio = np.minimum(1.0, after / np.maximum(before, np.finfo(np.float64).tiny))
    return float((after * ratio ** np.sqrt(2.0)).max())


@functools.cache
def _gauss_hermite(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z_i and the orthogonal matrix √w_i he_k(z_i), (k, i), with small entries accurate to their own size.

    The recurrence √(k+1) he_{k+1} = z he_k − √k he_{k−1} runs from he_0 = 1 with its growth kept as a logarithm; each column
    is then normalised, which gives √w_i = 1/√Σ_k he_k(z_i)².
    """
    nodes = np.asarray(eigvalsh_tridiagonal(np.zeros(order), np.sqrt(np.arange(1.0, order))))
    mantissa, exponent = np.empty((order, order)), np.zeros((order, order))
    previous, current, grown = np.zeros(order), np.ones(order), np.zeros(order)
    for k in range(order):
        mantissa[k], exponent[k] = current, grown
        previous, current = current, (nodes * current - np.sqrt(k) * previous) / np.sqrt(k + 1)
        scale = np.maximum(np.maximum(np.abs(previous), np.abs(current)), np.finfo(np.float64).tiny)
        previous, current, grown = previous / scale, current / scale, grown + np.log(scale)
    columns = mantissa * np.exp(exponent - exponent.max(axis=0))
    return nodes, columns / np.sqrt((columns**2).sum(axis=0))


def _coefficients(activation: Activation, variances: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """h_k(a) for σ and σ': Σ_i √w_i he_k(z_i) · √w_i σ(√a z_i), the first row of the matrix being √w."""
    nodes, matrix = _gauss_hermite(order)
    values = _evaluate(activation, np.sqrt(variances)[None, :] * nodes[:, None])
    with np.errstate(invalid="ignore", over="ignore"):
        weighted = [np.where(matrix[0][:, None] > 0, matrix[0][:, None] * v, 0.0) for v in values]
        return matrix @ weighted[0], matrix @ weighted[1]


def _evaluate(activation: Activation, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """σ and σ' in float64."""
    with arithmetic():
        points = jnp.asarray(z)
        return np.asarray(activation(points)), np.asarray(activation.derivative(points))


def _horner(products: np.ndarray, rho: np.ndarray) -> np.ndarray:
    total = np.zeros_like(rho)
    for term in products[::-1]:
        total = total * rho + term
    return total


def _outer_horner(rows: np.ndarray, columns: np.ndarray, rho: np.ndarray) -> np.ndarray:
    total = np.zeros_like(rho)
    for row, column in zip(rows[::-1], columns[::-1], strict=True):
        total *= rho
        total += row[:, None] * column[None, :]
    return total


@dataclass(frozen=True)
class SplitPanels:
    """E over z₁ and z₂ with u = √a z₁, v = √b (cos θ z₁ + sin θ z₂): Gauss–Legendre between the kinks of u and of v.

    The inner integral is a smooth function of z₁ that changes over a width tan θ where v's mean crosses a kink; the outer
    panels also end there. The rule is accepted when more nodes change nothing beyond `rtol`.
    """

    activation: Activation
    quadrature: Quadrature

    def moments(self, a: Array, b: Array, angle: Array) -> Moments:
        """Both expectations, a few pairs at a time."""
        a, b, angle = np.broadcast_arrays(a, b, angle)
        flat = [np.ravel(v) for v in (a, b, angle)]
        parts = [self._controlled(*(v[part] for v in flat)) for part in blocks(len(flat[0]), _PAIRS_AT_ONCE)]
        return Moments(*(np.concatenate(v).reshape(a.shape) for v in zip(*parts, strict=True)))

    def variance(self, a: Array) -> Array:
        """E[σ(u)²]."""
        return self.moments(a, a, np.zeros_like(a)).value

    def _controlled(self, a: np.ndarray, b: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = [np.sqrt(p * q) for p, q in zip(self._squares(a), self._squares(b), strict=True)]
        coarse = self._integrals(a, b, angle, _PANEL_ORDERS[0])
        for order in _PANEL_ORDERS[1:]:
            fine = self._integrals(a, b, angle, order)
            errors = [np.abs(f - c) - self.quadrature.rtol * s for f, c, s in zip(fine, coarse, scale, strict=True)]
            if max(float(e.max()) for e in errors) <= 0:
                return fine
            coarse = fine
        raise ArithmeticError(
            f"the quadrature for {self.activation} split at {self.quadrature.kinks} has not reached "
            f"{self.quadrature.rtol:.0e}; raise `rtol`, or name all its kinks."
        )

    def _squares(self, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E[σ(u)²] and E[σ'(u)²], which set the scale of the error."""
        z, w = self._panels(self._kinks(a), _PANEL_ORDERS[-1])
        value, slope = _evaluate(self.activation, np.sqrt(a)[:, None] * z)
        return (w * value**2).sum(axis=1), (w * slope**2).sum(axis=1)

    def _kinks(self, variance: np.ndarray) -> np.ndarray:
        """Where √a z meets a kink, (n, kinks); outside the reach where it never does."""
        root = np.sqrt(variance)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.asarray(self.quadrature.kinks)[None, :] / root, nan=0.0)

    def _integrals(self, a: np.ndarray, b: np.ndarray, angle: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
        rho, rest = np.cos(angle)[:, None], np.sin(angle)[:, None]
        crossing = self._kinks(b)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre, width = crossing / rho, np.abs(rest / rho)
            steps = [np.nan_to_num(centre + s * width, nan=0.0) for s in (-_TRANSITION, -1.0, 0.0, 1.0, _TRANSITION)]
        z1, w1 = self._panels(np.concatenate([self._kinks(a), *steps], axis=1), order)
        outer = _evaluate(self.activation, np.sqrt(a)[:, None] * z1)
        with np.errstate(divide="ignore", invalid="ignore"):
            breaks = np.nan_to_num((crossing[:, None, :] - (rho * z1)[:, :, None]) / rest[:, :, None], nan=0.0)
        z2, w2 = self._panels(breaks.reshape(-1, breaks.shape[-1]), order)
        z2, w2 = z2.reshape(*z1.shape, -1), w2.reshape(*z1.shape, -1)
        inner = _evaluate(self.activation, np.sqrt(b)[:, None, None] * ((rho * z1)[:, :, None] + rest[:, :, None] * z2))
        value, slope = ((w1 * o * (w2 * i).sum(axis=2)).sum(axis=1) for o, i in zip(outer, inner, strict=True))
        return value, slope

    def _panels(self, breaks: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights of ∫ … φ(z) dz over [−R, R], split at the breaks of each row."""
        reach = self.quadrature.reach
        ends = np.full((len(breaks), 1), reach)
        edges = np.sort(np.concatenate([-ends, np.clip(breaks, -reach, reach), ends], axis=1), axis=1)
        nodes, weights = np.polynomial.legendre.leggauss(order)
        middle, half = (edges[:, 1:] + edges[:, :-1]) / 2, (edges[:, 1:] - edges[:, :-1]) / 2
        z = (middle[:, :, None] + half[:, :, None] * nodes).reshape(len(breaks), -1)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return z, (half[:, :, None] * weights).reshape(len(breaks), -1) * density
