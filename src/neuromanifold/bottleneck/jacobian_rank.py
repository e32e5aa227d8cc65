"""Rank_J(f; Ω) = max_x rank Jf(x): numerically with gaps, or exactly for piecewise-linear networks.   [bottleneck, Sec. 3.1]"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import per_neuron
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic, is_traced, to_host
from neuromanifold.numerics.rank import Certificate, Rank, exact_rank, rank_from_spectrum
from neuromanifold.regions.heights import Height, field_degree, fractional_bits, log2_bound, minor_bits
from neuromanifold.regions.patterns import require_piecewise_linear
from neuromanifold.regions.signs import Signs, exact_signs
from neuromanifold.tangent import residues, structure
from neuromanifold.tangent.arguments import Model, checked

_PRIMES_BETWEEN = 2.0**54  # fewer than the primes between 2⁶⁰ and 2⁶¹ (2.7·10¹⁶)


class InputJacobianCertificate(Certificate):
    """Why max_x rank Jf(x) over the sample is `rank`: attained at `sample` modulo `prime`, and no larger for `reason`.

    `"full rank"`: the smaller of input and output dimension. `"open neurons"`: at every sample some layer has no more
    neurons with nonzero slope. `"probability"`: the prime was drawn at random, and a larger rank escapes it with at most
    `failure_probability`. `kinks` counts pre-activations of exactly zero, where the slope from the left was taken.
    """

    rank: int = eqx.field(static=True)
    sample: int = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    failure_probability: float = eqx.field(static=True)
    kinks: int = eqx.field(static=True)

    def verify(self, net: MLP, params: Params, x: Any) -> bool:
        """Recompute with another prime and signs by ball arithmetic alone."""
        again = _certified(net, params, np.asarray(x, np.float64), balls_only=True, avoid=self.prime)
        return again.rank == self.rank and again.reason == self.reason and again.kinks == self.kinks

    def __str__(self) -> str:
        proved = self.failure_probability == 0
        upper = f"proved by {self.reason}" if proved else f"failure probability ≤ {self.failure_probability:.1g}"
        return f"exact, {upper}"


def jacobian_rank(
    f: Model, params: Any, x: Any, *, tangents: Any = None, exact: bool = False, rtol: float | None = None
) -> Rank:
    """The Jacobian rank of f over the sample, max_x rank Jf(x).   [bottleneck, Sec. 3.1]

    A lower bound on R⁽⁰⁾(f) and on the bottleneck rank. `tangents` (n, d, t) restricts each Jf(x) to the tangent space of a
    domain that is not open. The result carries the spectrum and gap of the point that attains the maximum (the one with
    the widest gap among several). `exact=True`: of the exact rational Jacobian of a piecewise-linear MLP, certified.

    >>> from neuromanifold.bottleneck import jacobian_rank
    >>> net = nm.MLP((2, 3, 2), "identity", bias=False)
    >>> params = (nm.Layer(np.ones((3, 2))), nm.Layer(np.ones((2, 3))))
    >>> int(jacobian_rank(net, params, np.eye(2))), int(jacobian_rank(net, params, np.eye(2), exact=True))
    (1, 1)
    """
    if exact:
        return _exact(f, params, x, tangents)
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float64)
        J = _input_jacobians(f, params, x)
        J = J if tangents is None else J @ _checked_tangents(tangents, J.shape)
        ranks = rank_from_spectrum(jnp.linalg.svd(J, compute_uv=False), J.shape[1:], rtol)
        found: Any = (ranks.value, ranks.spectrum, ranks.threshold, ranks.gap)
        at = jnp.lexsort((found[3], found[0]))[-1]
        return Rank(*to_host(tuple(a[at] for a in found)))


@jax.jit(static_argnums=0)
def _input_jacobians(f: Model, params: Any, x: Any) -> Any:
    def at_one(sample):
        J = jax.jacfwd(lambda s: f(params, s[None])[0].ravel())(sample)
        return J.reshape(J.shape[0], -1)

    return jax.vmap(at_one)(x)


def _checked_tangents(tangents: Any, shape: tuple[int, ...]) -> Any:
    found = np.shape(tangents)
    if len(found) != 3 or found[0] != shape[0] or found[1] != shape[2]:
        raise ValueError(f"`tangents` has shape {found}; pass ({shape[0]}, {shape[2]}, t), a basis for each sample.")
    return jnp.asarray(tangents, jnp.float64)


def _exact(f: Model, params: Any, x: Any, tangents: Any) -> Rank:
    if tangents is not None:
        raise ValueError("`tangents` goes with exact=False; a tangent space is seldom rational.")
    if not isinstance(f, MLP):
        raise TypeError(f"`exact=True` needs an nm.MLP, and `f` is a {type(f).__name__}; use exact=False.")
    if is_traced((params, x)):
        raise TypeError("`exact=True` needs concrete values and runs on the host; call it outside jit, vmap and grad.")
    require_piecewise_linear(f)
    with arithmetic():
        checked(f, params, x)
    certificate = _certified(f, params, np.asarray(x, np.float64))
    return exact_rank(certificate.rank, certificate)


def _certified(
    net: MLP, params: Params, x: np.ndarray, *, balls_only: bool = False, avoid: int = 0
) -> InputJacobianCertificate:
    params = tuple(type(p)(*(None if a is None else np.asarray(a, np.float64) for a in p)) for p in params)
    signs = exact_signs(net, params, x, balls_only=balls_only)
    p = residues.draw_prime(net)
    while p == avoid:
        p = residues.draw_prime(net)
    ranks = [modular_rank(J, p) for J in _modular_jacobians(net, params, x, signs, p)]
    rank = max(ranks)
    reason, probability = _upper_bound(net, params, signs, rank)
    return InputJacobianCertificate(
        rank=rank,
        sample=ranks.index(rank),
        prime=p,
        reason=reason,
        failure_probability=probability,
        kinks=len(signs.kinks),
    )


def _modular_jacobians(net: MLP, params: Params, x: np.ndarray, signs: Signs, p: int) -> np.ndarray:
    reduced = residues.reduce_net(net, params, p)
    first = residues.modular_factors(reduced, modular.from_floats(x, p), signs)[0].d
    return modular.matmul(first, reduced.weights[0], p)


def _upper_bound(net: MLP, params: Params, signs: Signs, rank: int) -> tuple[str, float]:
    if rank == min(net.widths):
        return "full rank", 0.0
    slopes = structure.layer_slopes(net, signs)
    if int(np.min([(slope != 0).sum(axis=1) for slope in slopes], axis=0).max()) == rank:
        return "open neurons", 0.0
    order, degree = min(net.widths[0], net.widths[-1]), field_degree(net)
    primes = minor_bits(_entry_height(net, params), order, degree) / 60
    samples = len(signs.layers[0])
    return "probability", min(1.0, samples * primes / (_PRIMES_BETWEEN / (2 * degree)))


def _entry_height(net: MLP, params: Params) -> Height:
    """The height of the entries of D_LW_L⋯D_1W_1."""
    magnitude, denominator = 0.0, 0.0
    for layer, entry, fan_in in zip(params, net.activations, net.widths[:-1], strict=True):
        slopes = np.array([s for activation, _ in per_neuron(entry, 1) for s in activation.slopes or ()])
        magnitude += max(0.0, log2_bound(float(np.abs(layer.weight).sum(axis=1).max())))
        magnitude += max(0.0, log2_bound(float(np.abs(slopes).max())))
        denominator += fractional_bits(np.asarray(layer.weight)) + fractional_bits(slopes)
        denominator += math.log2(fan_in) if net.scaling == "ntk" else 0.0
    return Height(magnitude, denominator)
