"""Dual activations by Hermite series, with an estimate of their error."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.tangent.infinite.duals import Moments, Own
from neuromanifold.tangent.infinite.pairs import Array, GaussianPair, difference, root

ORDERS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_CORRELATIONS = (1.0, -1.0, 0.7, 0.0)
_AT_ONCE = 8


@dataclass(frozen=True)
class HermiteSeries:
    """E[σ(u)σ(v)] = Σ_k h_k(a) h_k(b) cosᵏθ  with  h_k(a) = E[σ(√a z) he_k(z)], he_k orthonormal,
    by Gauss–Hermite.

    Half of the coefficients that `order` nodes give are kept: the last of them weigh as much as
    what the nodes miss of the first. `exact` keeps them all: n nodes know a polynomial of degree
    below n.
    """

    activation: Activation
    order: int
    exact: bool = False
    recorded: bool = True

    def own(self, a: Array) -> Own:
        """E[σ(u)²] = Σ h_k², and the coefficients (…, k) of σ and of σ'."""
        if self.exact:
            value, slope = _coefficients(self.activation, a, self.order, self.order)
            return Own((value**2).sum(axis=-1), (value, slope), 0.0)
        rules = [
            _coefficients(self.activation, a, n, n // 2)
            for n in (self.order // 4, self.order // 2, self.order)
        ]
        error = estimate_error(*([_sums(h) for h in rule] for rule in rules))
        value, slope = rules[-1]
        return Own((value**2).sum(axis=-1), (value, slope), error)

    def pairs(self, between: GaussianPair, left: Own, right: Own) -> Moments:
        """Both series, by Horner's rule."""
        rho = between.correlation
        value, slope = (_mehler(h, k, rho) for h, k in zip(left.record, right.record, strict=True))
        return Moments(
            value, difference((left.variance + right.variance) / 2, value, terms=self.order), slope
        )


def _mehler(left: Array, right: Array, rho: Array) -> Array:
    """Σ_k left_k right_k ρᵏ for coefficients on the last axis, a few terms in one pass over the
    pairs.
    """
    missing = -left.shape[-1] % _AT_ONCE

    def parts(h: Array) -> Array:
        h = jnp.moveaxis(jnp.pad(h, [(0, 0)] * (h.ndim - 1) + [(0, missing)]), -1, 0)
        return h.reshape(-1, _AT_ONCE, *h.shape[1:])

    def horner(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        for h, k in zip(part[0][::-1], part[1][::-1], strict=True):
            total = total * rho + h * k
        return total, None

    return jax.lax.scan(horner, jnp.zeros_like(rho), (parts(left), parts(right)), reverse=True)[0]


def _coefficients(activation: Activation, a: Array, order: int, kept: int) -> tuple[Array, Array]:
    """h_k(a) for σ and σ', on a last axis: Σ_i √w_i he_k(z_i) · √w_i σ(√a z_i), the first row of
    the matrix being √w.
    """
    nodes, matrix = gauss_hermite(order)
    z = root(a)[..., None] * nodes
    # Far out, values that overflow carry weights that underflow: they count as nothing.
    weighted = [
        jnp.where(matrix[0] > 0, matrix[0] * v, 0.0)
        for v in (activation(z), activation.derivative(z))
    ]
    return tuple(v @ matrix[:kept].T for v in weighted)  # pyright: ignore[reportReturnType]


def _sums(h: Array) -> Array:
    """Σ_k h_k² ρᵏ for a few correlations ρ, the first of them 1."""
    powers = np.array([rho ** np.arange(h.shape[-1]) for rho in _CORRELATIONS])
    return (h**2) @ powers.T


def estimate_error(first: list[Any], second: list[Any], third: list[Any], *, xp: Any = jnp) -> Any:
    """The error of the last of three rules, each with twice the nodes of the one before, relative
    to E[σ²]; the largest of all.

    The change from one rule to the next is the error of the former. An analytic σ has errors like
    exp(−c√n), and those of n/4 and n/2 nodes predict that of n: e₂ (e₂/e₁)^√2. A rule at the level
    of rounding predicts itself.
    """
    tiny = np.finfo(np.float64).tiny
    errors = []
    for s1, s2, s3 in zip(first, second, third, strict=True):
        size = xp.maximum(s3[..., 0], tiny)
        before, after = (xp.abs(b - a).max(axis=-1) / size for a, b in ((s1, s2), (s2, s3)))
        ratio = xp.minimum(1.0, after / xp.maximum(before, tiny))
        errors.append((after * ratio ** np.sqrt(2.0)).max())
    return functools.reduce(xp.maximum, errors)


@functools.cache
def gauss_hermite(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z_i and the orthogonal matrix √w_i he_k(z_i), (k, i), with small entries accurate to
    their own size.

    The recurrence √(k+1) he_{k+1} = z he_k − √k he_{k−1} runs from he_0 = 1 with its growth kept as
    a logarithm; each column is then normalised, which gives √w_i = 1/√Σ_k he_k(z_i)².
    """
    from scipy.linalg import eigvalsh_tridiagonal

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


def settle_order(
    activation: Activation, variances: np.ndarray, orders: tuple[int, ...], rtol: float
) -> tuple[int, np.ndarray]:
    """The first of the orders whose estimated error at these variances is below `rtol` (the last if
    none), and E[σ²] there.

    On the host, before anything is compiled.
    """
    sums, found = [], np.empty(0)
    for rules in (ORDERS[:7], *((n,) for n in ORDERS[7:])):
        for n, (value, slope) in zip(rules, _host_rules(activation, variances, rules), strict=True):
            sums.append([np.asarray(_sums(h)) for h in (value, slope)])
            found = (value**2).sum(axis=-1)
            settled = len(sums) > 2 and estimate_error(*sums[-3:], xp=np) <= rtol
            if n == orders[-1] or (n >= orders[0] and settled):
                return n, found
    return orders[-1], found


def _host_rules(
    activation: Activation, variances: np.ndarray, rules: tuple[int, ...]
) -> list[tuple[Array, Array]]:
    """The coefficients of several rules, with the activation evaluated once at all their nodes."""
    nodes = np.concatenate([gauss_hermite(n)[0] for n in rules])
    with arithmetic():
        z = jnp.asarray(np.sqrt(variances)[:, None] * nodes)
        values = [np.asarray(v) for v in (activation(z), activation.derivative(z))]
    parts = [np.split(v, np.cumsum(rules)[:-1], axis=1) for v in values]
    with np.errstate(invalid="ignore", over="ignore"):
        return [
            tuple(np.where(m[0] > 0, m[0] * v, 0.0) @ m[: n // 2].T for v in both)
            for n, m, *both in zip(rules, (gauss_hermite(n)[1] for n in rules), *parts, strict=True)
        ]  # pyright: ignore[reportReturnType]
