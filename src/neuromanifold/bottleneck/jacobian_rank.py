"""Rank_J(f; Ω) = max_x rank Jf(x): numerically with gaps, or exactly for piecewise-linear
networks.   [bottleneck, Sec. 3.1]
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.heights import Heights
from neuromanifold.graph.reading import call
from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import boundary
from neuromanifold.numerics.rank import Certificate, Rank, exact_rank, rank_from_spectrum
from neuromanifold.numerics.results import follows
from neuromanifold.numerics.validation import refuse_tracers, sample_arrays
from neuromanifold.regions.problem import Problem

_PRIMES_BETWEEN = 2.0**54  # fewer than the primes between 2⁶⁰ and 2⁶¹ (2.7·10¹⁶)


class InputJacobianCertificate(Certificate):
    """Why max_x rank Jf(x) over the sample is `rank`: attained at `sample` modulo `prime`, and no
    larger for `reason`.

    `"full rank"`: the smaller of input and output dimension. `"open neurons"`: at every sample some
    layer has no more neurons with nonzero slope. `"probability"`: the prime was drawn at random,
    and a larger rank escapes it with at most `failure_probability`. `kinks` counts pre-activations
    of exactly zero, where the slope from the left was taken.
    """

    rank: int = eqx.field(static=True)
    sample: int = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    failure_probability: float = eqx.field(static=True)
    kinks: int = eqx.field(static=True)

    def verify(self, net: Model, params: Params, x: Samples) -> bool:
        """Recompute with another prime and bends by ball arithmetic alone."""
        again = _certify(Problem.of(net, params, np.asarray(x), balls_only=True))
        return again.rank == self.rank and again.reason == self.reason and again.kinks == self.kinks

    def __str__(self) -> str:
        proved = self.failure_probability == 0
        upper = (
            f"proved by {self.reason}"
            if proved
            else f"failure probability ≤ {self.failure_probability:.1g}"
        )
        return f"exact, {upper}"


@follows
def jacobian_rank(
    f: Model,
    params: Params,
    x: Samples,
    *,
    tangents: Any = None,
    exact: bool = False,
    rtol: float | None = None,
) -> Rank:
    """Return the Jacobian rank of f over the sample, max_x rank Jf(x).   [bottleneck, Sec. 3.1]

    A lower bound on R⁽⁰⁾(f) and on the bottleneck rank. `tangents` (n, d, t) restricts each Jf(x)
    to the tangent space of a domain that is not open. The result carries the spectrum and gap of
    the point that attains the maximum (the one with the widest gap among several). `exact=True`: of
    the exact rational Jacobian of a piecewise-linear MLP, certified.

    >>> from neuromanifold.bottleneck import jacobian_rank
    >>> net = nm.MLP((2, 3, 2), "identity", bias=False)
    >>> params = (nm.Layer(np.ones((3, 2))), nm.Layer(np.ones((2, 3))))
    >>> int(jacobian_rank(net, params, np.eye(2))), int(jacobian_rank(net, params, np.eye(2), exact=True))
    (1, 1)
    """
    if exact:
        return _exact(f, params, x, tangents)
    with boundary(params, x) as leave:
        params, x = check_arguments(f, params, x, dtype=np.float64)
        J = _input_jacobians(f, params, x)
        J = J if tangents is None else J @ _check_tangents(tangents, J.shape)
        ranks = rank_from_spectrum(jnp.linalg.svd(J, compute_uv=False), J.shape[1:], rtol)
        found: Any = (ranks.value, ranks.spectrum, ranks.threshold, ranks.gap)
        at = jnp.lexsort((found[3], found[0]))[-1]
        return Rank(*leave(tuple(a[at] for a in found)))


@jax.jit(static_argnums=0)
def _input_jacobians(f: Model, params: Any, x: Any) -> Any:
    def at_one(sample: Any):
        J = jax.jacfwd(lambda s: call(f, params, s[None])[0].ravel())(sample)
        return J.reshape(J.shape[0], -1)

    return jax.vmap(at_one)(x)


def _check_tangents(tangents: Any, shape: tuple[int, ...]) -> Any:
    found = np.shape(tangents)
    if len(found) != 3 or found[0] != shape[0] or found[1] != shape[2]:
        raise ValueError(
            f"`tangents` has shape {found}; pass ({shape[0]}, {shape[2]}, t), a basis for each "
            "sample."
        )
    return jnp.asarray(tangents, jnp.float64)


def _exact(f: Model, params: Any, x: Any, tangents: Any) -> Rank:
    if tangents is not None:
        raise ValueError("`tangents` goes with exact=False; a tangent space is seldom rational.")
    refuse_tracers((params, x), "`exact=True`")
    with boundary(params, x):
        check_arguments(f, params, x)
    certificate = _certify(Problem.of(f, params, sample_arrays(x)))
    return exact_rank(certificate.rank, certificate)


def _certify(problem: Problem) -> InputJacobianCertificate:
    p = modular.random_prime()
    ranks = [modular_rank(J, p) for J in problem.input_jacobian(ResidueArithmetic(p)).values]
    rank = max(ranks)
    reason, probability = _upper_bound(problem, rank)
    return InputJacobianCertificate(
        rank=rank,
        sample=ranks.index(rank),
        prime=p,
        reason=reason,
        failure_probability=probability,
        kinks=len(problem.decisions.places),
    )


def _upper_bound(problem: Problem, rank: int) -> tuple[str, float]:
    if rank == min(problem.graph.inputs, problem.graph.outputs):
        return "full rank", 0.0
    if rank == _open_width(problem):
        return "open neurons", 0.0
    height = problem.input_jacobian(Heights())
    order = min(problem.graph.inputs, problem.graph.outputs)
    bits = order * (
        max(0.0, height.magnitude)
        + height.bits
        + order * height.other
        + math.log2(max(1, order)) / 2
    )
    return "probability", min(1.0, problem.samples * bits / 60 / (_PRIMES_BETWEEN / 2))


def _open_width(problem: Problem) -> int | None:
    """Over the samples, the largest of the fewest neurons with nonzero slope in a layer; asked
    of perceptrons.
    """
    if (net := perceptron(problem.model)) is None:
        return None
    widths = [np.full(problem.samples, w) for w in net.widths]
    return int(
        np.min([*((slope != 0).sum(axis=1) for slope in problem.slopes), *widths], axis=0).max()
    )
