"""The picture of an inspection shows its numbers."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import neuromanifold as nm


@pytest.fixture(scope="module")
def found():
    net = nm.MLP((1, 4, 1))
    return nm.inspect(net, net.init(key=jax.random.key(0)), np.linspace(-2, 2, 12)[:, None])


def test_the_panels_show_the_rank_the_singular_values_and_the_shares(found):
    growth, spectrum, shares = found.plot().axes
    allowed, rank = growth.get_lines()
    np.testing.assert_array_equal(rank.get_ydata(), found.growth)
    np.testing.assert_array_equal(allowed.get_ydata(), np.minimum(np.arange(1, 13), 13))
    assert sum(len(line.get_xdata()) for line in spectrum.get_lines()[:1]) == int(found.dimension)
    assert (
        sum(bar.get_width() for bar in shares.patches)
        == found.n_params
        == sum(n for _, n in found.shares)
    )


def test_what_was_not_computed_has_no_panel(found):
    bare = replace(found, growth=None, float64=None, spectrum=None, exact=None, account=None)
    (shares,) = bare.plot().axes
    assert [text.get_text() for text in shares.texts] == ["the rank was not computed"]
