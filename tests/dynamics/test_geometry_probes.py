"""Probes of the geometry, inside a training, against the functions they stand for on each
network by itself.
"""

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from neuromanifold.dynamics import geometry_probes as geometry
from neuromanifold.dynamics.training import train
from neuromanifold.regions import dimension_bounds
from neuromanifold.tangent import single_precision_rank

PROBES = (
    geometry.float32_dimension,
    geometry.functional_dimension,
    geometry.effective_rank,
    geometry.sampled_regions,
    geometry.fixed_neurons,
    geometry.theorem1_bound,
    geometry.region_bound,
    geometry.exact_dimension,
    geometry.tight_bound,
    geometry.snapshot,
)


def test_every_probe_sees_what_the_library_sees(key):
    net = nm.MLP((2, 4, 3, 1))
    x = np.asarray(jax.random.normal(key, (20, 2)), np.float32)
    y = np.abs(x[:, :1])
    start = net.init(key=key, runs=3)
    done = train(net, start, x, y, key=key, epochs=2, batch_size=8, probes=PROBES, every=1)
    assert list(done.history) == [
        *(p.__name__ for p in PROBES[:7]),
        "exact_dimension",
        "tight_bound",
        "parameters",
    ]
    assert done.history.parameters.dims == ("run", "epoch", "parameter")
    for run in range(3):
        one, seen = done.member(run=run), done.history.isel(run=run, epoch=-1)
        np.testing.assert_array_equal(seen.parameters, ravel_pytree(one)[0])
        bounds = dimension_bounds(net, one, x)
        assert int(seen.float32_dimension) == int(single_precision_rank(net, one, x))
        assert int(seen.functional_dimension) == int(
            nm.functional_dimension(net, one, x, smallest_gap=0.0)
        )
        np.testing.assert_allclose(
            seen.effective_rank, nm.spectrum(net, one, x).effective_rank, rtol=1e-8
        )
        assert int(seen.sampled_regions) == nm.sampled_regions(net, one, x)
        assert int(seen.fixed_neurons) == nm.fixed_neurons(net, one, x).total
        assert int(seen.theorem1_bound) == bounds.theorem1
        assert int(seen.region_bound) == bounds.regions
        assert int(seen.exact_dimension) == int(nm.functional_dimension(net, one, x, exact=True))
        assert int(seen.exact_dimension) <= int(seen.tight_bound) == bounds.tight
