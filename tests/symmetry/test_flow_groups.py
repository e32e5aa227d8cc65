"""What follows for the groups that discovery finds: conservation laws, teleportation, curvature
that a symmetry does not change.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS


@cache
def case(name):
    """Parameters, a sample near a fit, and the group, once for each network."""
    rng, net = np.random.default_rng(1), NETS[name]
    params, x = net.draw(rng, 8)
    params = {k: a / 2 for k, a in params.items()}
    with arithmetic():
        y = np.asarray(net.f(params, x))
    y = y + 0.3 * rng.normal(size=y.shape)
    return net.f, params, x, y, S.discover(net.f, params, x, key=jax.random.key(0), keys=1).group


def gradient(f, params, x, y):
    with arithmetic():
        return jax.tree.map(np.asarray, jax.grad(lambda p: jnp.mean((f(p, x) - y) ** 2))(params))


@pytest.mark.parametrize("name, count, momenta", [("cnn", 4, 0), ("attention", 6, 2)])
def test_laws_hold_along_gradient_flow_and_a_broken_one_does_not(name, count, momenta):
    """Balancedness of channels; for GL(2) of queries and keys and of values and outputs 3 + 3,
    and one rotation of each for momentum.
    """
    f, params, x, y, group = case(name)
    laws = S.conservation_laws(group)
    assert laws.symmetric.dimension == count and laws.skew.dimension == momenta
    end = jax.tree.map(lambda a: a[-1], nm.gradient_flow(f, params, x, y, t1=2.0).params)
    before, after = (S.conserved_quantities(f, p, group=group).values for p in (params, end))
    change = max(np.abs(end[k] - params[k]).max() for k in params)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9 * np.abs(before).max())
    broken = [(p[next(iter(p))] ** 2).sum() for p in (params, end)]
    assert change > 1e-3 and abs(broken[1] - broken[0]) > 1e-4


def test_skew_fields_give_laws_of_the_heavy_ball():
    """d/dt e^{μt}⟨θ̇, Aθ⟩ = e^{μt}(⟨θ̇, Aθ̇⟩ − ⟨∇L, Aθ⟩) vanishes for skew A and not for
    symmetric A.
    """
    f, params, x, y, group = case("attention")
    laws, rng = S.conservation_laws(group), np.random.default_rng(0)
    velocity = {k: rng.normal(size=a.shape) for k, a in params.items()}
    slope = gradient(f, params, x, y)
    flat = lambda tree: np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])  # noqa: E731
    for fields, holds in ((laws.skew, True), (laws.symmetric, False)):
        rates = fields.linear_images(velocity) @ flat(velocity) - fields.generators(params) @ flat(
            slope
        )
        assert (np.abs(rates).max() < 1e-12) == holds
    kept = laws.momenta(params, velocity, 2.0, friction=0.5)
    np.testing.assert_allclose(kept, np.e * laws.momenta(params, velocity), rtol=1e-14)


@pytest.mark.parametrize("name", ["attention"])
def test_curvature_modulo_the_group_is_that_of_the_orbit(name):
    f, params, x, y, group = case(name)
    elsewhere = group.sample(key=jax.random.key(5))(params)
    ask = lambda p, **options: nm.sharpness(f, p, x, y, **options)  # noqa: E731
    assert ask(elsewhere, modulo=group) == pytest.approx(ask(params, modulo=group), rel=1e-8)
    assert ask(elsewhere) != pytest.approx(ask(params), rel=1e-2)


def test_the_spectrum_modulo_a_group_of_an_mlp_is_that_of_the_orbit(rng):
    net = nm.MLP((2, 3, 1))
    params, x, y = (
        net.init(key=jax.random.key(0), dtype="float64"),
        rng.normal(size=(9, 2)),
        rng.normal(size=(9, 1)),
    )
    group = S.ScalingGroup(net)
    elsewhere = group.sample(key=jax.random.key(1))(params)
    first, second = (
        nm.tangent.curvatures(net, p, x, y, k=3, modulo=group) for p in (params, elsewhere)
    )
    np.testing.assert_allclose(second, first, rtol=1e-8)


@pytest.mark.parametrize("name", ["cnn", "attention"])
def test_teleportation_beats_random_elements_of_the_same_size(name):
    f, params, x, y, group = case(name)
    jump = S.teleport(f, params, x, y, group=group, steps=100, starts=6)
    size = float(group.norm(jump.coordinates @ group.coefficients))
    norms = []
    for k in jax.random.split(jax.random.key(0), 10):
        slope = gradient(f, group.sample(key=k, size=size)(params), x, y)
        norms.append(np.sqrt(sum((a**2).sum() for a in slope.values())))
    assert jump.gradient_norm.after > max(norms) > 0 and jump.deviation < 1e-10


def test_other_networks_need_a_group():
    with pytest.raises(TypeError, match=r"pass `group=nm\.symmetry\.discover"):
        S.conserved_quantities(lambda p, x: x * p, np.ones(2))
