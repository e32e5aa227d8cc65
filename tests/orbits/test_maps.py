"""When the fixed points of maps are invariant: the paper's examples, normal and other linear
maps, first-order invariance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.orbits import induces_invariant_manifold, invariant_leaf, zero_blocks, zero_rows


def difference(theta, x):
    return (theta[0] - theta[1]) * x


def radial(theta, x):
    r = jnp.sqrt(theta @ theta)
    return (r + 1 / r + x) ** 2


def test_example_4_1_a_global_invariance_whose_fixed_points_are_left():
    """g(θ) = (θ₁ + θ₂, 2θ₂) leaves (θ₁ − θ₂)x alone; its fixed points θ₂ = 0 are no SIM:
    gradients (x, −x) leave them.
    """
    found = induces_invariant_manifold(
        difference, lambda t: jnp.array([t[0] + t[1], 2 * t[1]]), np.array([1.5, 0.0]), features=1
    )
    assert not found and found.verdict == "not invariant"
    assert (
        found.maps[0].kind == "globally invariant"
        and found.maps[0].linear
        and not found.maps[0].normal
    )
    assert (found.dimension, found.cokernel) == (1, 1)
    assert found.angle == pytest.approx(np.pi / 4) and found.departure == pytest.approx(
        np.sqrt(0.5)
    )


def test_example_4_2_a_nonlinear_map_whose_fixed_points_are_invariant(rng):
    """θ ↦ θ/|θ|² and the unit circle, at the point given and at those found from elsewhere."""
    phase = rng.uniform(0, 2 * np.pi)
    found = induces_invariant_manifold(
        radial, lambda t: t / (t @ t), np.array([np.cos(phase), np.sin(phase)]), features=1
    )
    assert found and found.maps[0].kind == "globally invariant" and not found.maps[0].linear
    assert found.dimension == 1 and found.fixed_points > 1


def test_a_radial_model_without_the_symmetry_leaves_the_circle():
    """Control: (|θ| + x)² has no critical circle, and the inversion does not leave it alone."""
    found = induces_invariant_manifold(
        lambda t, x: (jnp.sqrt(t @ t) + x) ** 2,
        lambda t: t / (t @ t),
        np.array([0.6, 0.8]),
        features=1,
    )
    assert found.verdict == "not invariant" and found.maps[0].kind == "not invariant"


def test_linear_normal_maps_meet_the_tangent_condition(rng, draws, tally):
    """Remark 4.1: ker(A − 1) = ker(Aᵀ − 1) for normal A; a shear of the same eigenvalues is the
    control.
    """
    count, held = draws(2), 0
    for _ in range(count):
        q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        angle = rng.uniform(0.3, 3.0)
        turn = np.eye(4)
        turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        normal = q @ turn @ q.T
        shear = np.eye(4) + np.outer(q[0], q[1]) - np.outer(q[0], q[0])
        fixed_normal, fixed_shear = q[:, 2] + q[:, 3], q[2] + q[3]

        def zero(theta, x):
            return 0 * theta[0] * x

        def apply(matrix, theta):
            return matrix @ theta

        kept = induces_invariant_manifold(
            zero, jax.tree_util.Partial(apply, normal), fixed_normal, features=1
        )
        lost = induces_invariant_manifold(
            zero, jax.tree_util.Partial(apply, shear), fixed_shear, features=1
        )
        assert kept.maps[0].normal and kept.angle < 1e-7 and kept.dimension == 2 and kept
        assert not lost.maps[0].normal and lost.angle > 0.1 and lost.verdict == "undecided"
        held += 1
    tally(held, of=count, what="normal maps, each with a shear that fails")


def test_a_set_smaller_than_the_kernel_of_its_differential():
    """g(θ) = θ + θ²: the only fixed point is 0, though Dg = 1 there; Theorem 4.1 does not apply,
    and is not claimed to.
    """
    found = induces_invariant_manifold(
        lambda t, x: t**2 * x, lambda t: t + t**2, np.array(0.0), features=1
    )
    assert (found.dimension, found.cokernel, found.verdict) == (0, 1, "undecided")


def test_sign_flips_are_invariant_to_first_order_only(key, tally):
    """P 4.1 (i): σ(0) = 0 makes flips infinitesimally invariant at their fixed points, not
    globally (silu is not odd).
    """
    net = nm.MLP((2, 3, 2, 1), "silu")
    manifold = zero_blocks(net, [{0}, {1}])
    found = induces_invariant_manifold(net, manifold.flip, manifold.sample(key=key))
    assert (
        found
        and found.maps[0].kind == "infinitesimally invariant"
        and found.maps[0].everywhere > 1e-3
    )
    assert found.dimension == manifold.dimension + 1, "the frozen entry is free in the fixed set"
    generic = nm.MLP((2, 3, 2, 1), "exp")
    assert not induces_invariant_manifold(generic, manifold.flip, manifold.sample(key=key))
    tally(1, of=1, what="first-order symmetry that is none everywhere")


def test_flips_of_rows_for_flat_activations(key):
    """P 4.1 (ii) with the output layer: σ'(0) = 0 (here z + z² − 1 has slope 1: the control)."""
    hill = nm.Activation(lambda z: jnp.cos(z) + z**3, name="hill")
    net = nm.MLP((2, 2, 1), hill, output_activation=hill)
    manifold = zero_rows(net, [{1}, {0}])
    found = induces_invariant_manifold(net, manifold.flip, manifold.sample(key=key))
    assert (
        found
        and found.maps[0].kind == "infinitesimally invariant"
        and found.dimension == manifold.dimension
    )
    steep = nm.MLP((2, 2, 1), nm.Activation(lambda z: z + z**2 - 1, name="steep"))
    hidden = zero_rows(nm.MLP((2, 2, 1), hill), [{1}])
    assert not induces_invariant_manifold(steep, hidden.flip, hidden.sample(key=key))


def test_generators_of_a_leaf_induce_it(key):
    """Lem 4.1 through Thm 4.1, and the maps' fixed points have the leaf's dimension."""
    net = nm.MLP((2, 3, 1), "tanh")
    leaf = invariant_leaf(
        net, (nm.Layer(np.ones((3, 2)), np.ones(3)), nm.Layer(np.ones((1, 3)), np.zeros(1)))
    )
    found = induces_invariant_manifold(net, leaf.generators, leaf.sample(key=key))
    assert found and found.dimension == leaf.dimension == 5


def test_bad_arguments():
    identity = jax.tree_util.Partial(lambda t: t)
    with pytest.raises(ValueError, match="`maps` is empty"):
        induces_invariant_manifold(difference, (), np.ones(2), features=1)
    with pytest.raises(ValueError, match=r"moved by `maps\[0\]` by 1"):
        induces_invariant_manifold(difference, lambda t: t + 1, np.ones(2), features=1)
    with pytest.raises(ValueError, match="`features` is None"):
        induces_invariant_manifold(difference, identity, np.ones(2))
