"""What results of this room say about themselves: gaps, counts, refusals; and that they leave
the caller's JAX alone.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuromanifold import symmetry as S
from symmetry.nets import NETS


def test_laws_of_attention_with_biases_and_their_gap(rng, key):
    """GL(2) of queries and keys and of values and outputs give 3 + 3 laws and 1 + 1 momenta; the
    key's bias is free, 2 of each.
    """
    net = NETS["biased attention"]
    params, x = net.draw(rng)
    found = S.discover(net.f, params, x, key=key, keys=1)
    assert (
        found.fields == found.group.dimension == 26
    )  # 4 + 4 + 2, and 2 + 4 + 4 + 3 + 3 ways to move the key's bias
    laws = S.conservation_laws(found.group)
    assert (
        (laws.symmetric.dimension, laws.skew.dimension) == (8, 4)
        and laws.decided
        and laws.gap > 1e9
    )
    assert all(each.gap > 1e9 for each in found.named) and found.gap <= min(
        each.gap for each in found.named
    )


def test_laws_without_a_gap_say_so(rng):
    """Negative control: fields that are symmetric to four, six and eight digits."""
    f = lambda params, x: x @ params[0] @ params[1]  # noqa: E731
    params = (rng.normal(size=(3, 2)), rng.normal(size=(2, 3)))
    group = S.discover(f, params, np.ones((1, 3)), key=jax.random.key(0), keys=1).group
    symmetric = S.conservation_laws(group).symmetric
    plain = symmetric.combinations @ group.coefficients
    spoilt = plain + np.array([[1e-4], [1e-6], [1e-8]]) * rng.normal(size=plain.shape)
    laws = S.conservation_laws(S.FlowGroup(f, group.ansatz, spoilt, symmetric.labels))
    assert not laws.decided and "undecided" in repr(laws)


def test_too_many_fields_are_refused(rng, key, monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("neuromanifold.symmetry.discovery.discover"), "_MOST_NUMBERS", 100
    )
    net = NETS["softmax"]
    params, x = net.draw(rng)
    with pytest.raises(
        ValueError, match=r"`params` has 16 parameters and .* pass a narrower network"
    ):
        S.discover(net.f, params, x, key=key, keys=1)


def rooted(params, x):
    """Its derivative is infinite where x is zero, and not a number below; the exponential keeps
    it out of exact arithmetic.
    """
    return jnp.exp(jnp.sqrt(params["w"] * x)) * params["v"] + jnp.sin(params["u"] * x)


def test_rows_that_are_not_finite_are_refused_on_the_sample_and_counted_elsewhere():
    params = {"w": np.full(1, 0.5), "v": np.ones(1), "u": np.ones(1)}
    with pytest.raises(
        ArithmeticError, match=r"not finite in 1 of 3 rows of J on `x`; remove these samples"
    ):
        S.dimension_account(rooted, params, np.array([[0.0], [1.0], [2.0]]))
    account = S.dimension_account(rooted, params, np.array([[1.0], [2.0], [3.0]]))
    assert account.chain[0] == 3
    # One row spans less than all there is, so random inputs are asked too; some of them are
    # negative.
    account = S.dimension_account(rooted, params, np.array([[0.1]]))
    assert account.chain == (1, 3, 3, 3)
    assert any("which are not finite" in what for what in account.left_out)
