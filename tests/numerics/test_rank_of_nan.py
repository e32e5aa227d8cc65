"""A spectrum with nan has no rank, and no number that could pass for one."""

import jax.numpy as jnp
import numpy as np

from neuromanifold.numerics.rank import rank_from_spectrum


def test_a_spectrum_with_nan_has_rank_minus_one():
    broken = rank_from_spectrum(jnp.array([1.0, jnp.nan, 0.5]), (3, 3))
    assert int(broken) == -1
    assert np.isnan(float(broken.gap))


def test_the_same_spectrum_without_nan_has_its_rank():
    assert int(rank_from_spectrum(jnp.array([1.0, 0.7, 0.5]), (3, 3))) == 3
