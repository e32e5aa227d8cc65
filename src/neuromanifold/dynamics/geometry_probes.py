"""Probes of the geometry along training: ranks (single, double, exact), regions, fixed neurons,
bounds, a snapshot of θ.

All are traced and run on all networks at once, except `exact_dimension` and `tight_bound`, which
run on the host.
"""

from typing import Any

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from neuromanifold.dynamics.probes import Probe
from neuromanifold.models.arguments import Model, Params, Samples, Targets
from neuromanifold.regions import bounds, patterns
from neuromanifold.tangent.rank import dimension


def float32_dimension(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return the rank that float32 reports, as the paper computed it: an artefact to compare with.
    [complexity, Sec. 5]
    """
    return dimension.single_precision_rank(f, params, x).value


def functional_dimension(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return rank J by singular values in float64."""
    return dimension.functional_dimension(f, params, x).value


def effective_rank(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return exp(−Σ p log p) with p = λ/Σλ over the eigenvalues λ of the kernel JJᵀ: how many
    directions carry its trace.

    >>> f = lambda params, x: params[0] * x + params[1]
    >>> float(effective_rank(f, jnp.ones(2), jnp.array([[1.0], [-1.0]]), None))      # J has orthogonal rows of equal length
    2.0
    """
    eigenvalues = (
        jnp.asarray(dimension.functional_dimension(f, params, x, smallest_gap=0.0).spectrum) ** 2
    )
    p = eigenvalues / eigenvalues.sum()
    return jnp.exp(-jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0)))


def sampled_regions(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return how many linear regions the sample meets.   [complexity, Def C.1]"""
    return patterns.sampled_regions(f, params, x)


def fixed_neurons(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return how many hidden neurons have one status on the whole sample.   [complexity, Sec. 3.1]"""
    return patterns.fixed_neurons(f, params, x).total


def theorem1_bound(f: Any, params: Params, x: Samples, y: Targets) -> Any:
    """Return the formula of Theorem 1; a bound only where the widths are roughly monotonic.
    [complexity, Thm 1]
    """
    return bounds.theorem1_bound(f, params, x)


def region_bound(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return o·Σ over sampled regions of min(samples in it, n_0 + 1).   [complexity, Prop C.3]"""
    return bounds.region_bound(f, params, x)


def _snapshot(f: Any, params: Any, x: Any, y: Any) -> Any:
    return ravel_pytree(params)[0]


def _exact_dimension(f: Any, params: Any, x: Any, y: Any) -> int:
    return int(dimension.functional_dimension(f, params, x, exact=True))


def _tight_bound(f: Any, params: Any, x: Any, y: Any) -> int:
    return bounds.dimension_bounds(f, params, x).tight


exact_dimension = Probe(_exact_dimension, "exact_dimension", host=True)
"""rank J of the exact rational matrix at these floats, certified; runs on the host."""

tight_bound = Probe(_tight_bound, "tight_bound", host=True)
"""Our bound from signs and data alone; runs on the host."""

snapshot = Probe(_snapshot, "parameters", dims=("parameter",))
"""θ itself, in `ravel_pytree` order, for what is to be computed afterwards."""
