"""Laws that every group obeys on every network it accepts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.support import distance, draw, flat

MIXED = (nm.Mixed(relu=3, identity=2), "relu")
EVERYTHING = nm.MLP(
    (2, 4, 3, 2),
    ("gelu", nm.Mixed((nm.leaky_relu(0.5), 1), abs=2)),
    output_activation="sigmoid",
    scaling="ntk",
    bias=False,
)
RELU = nm.MLP((2, 5, 4, 1))
LINEAR = nm.MLP((4, 2, 3), "identity", bias=False)
TANH = nm.MLP((2, 4, 3, 2), "tanh")
MIXED_NET = nm.MLP((2, 5, 4, 2), MIXED)
STEEP = nm.MLP(
    (2, 3, 3, 1),
    (nm.Mixed((nm.leaky_relu(1.0), 2), identity=1), nm.leaky_relu(0.25)),
    scaling="ntk",
)

CAST: list[tuple[Any, nm.MLP]] = [
    (S.PermutationGroup, RELU),
    (S.PermutationGroup, MIXED_NET),
    (S.PermutationGroup, nm.MLP((2, 4, 2), "sigmoid")),
    (S.SignGroup, TANH),
    (S.SignGroup, EVERYTHING),
    (S.SignGroup, nm.MLP((2, 4, 2), nm.Mixed(tanh=2, cos=2), output_activation="cos")),
    (S.SignedPermutationGroup, TANH),
    (S.SignedPermutationGroup, nm.MLP((2, 4, 3, 1), "abs")),
    (S.ScalingGroup, RELU),
    (S.ScalingGroup, nm.MLP((3, 4, 4, 2), nm.leaky_relu(0.25))),
    (S.ScalingGroup, nm.MLP((2, 4, 1), nm.power(2))),
    (S.ScalingGroup, nm.MLP((2, 4, 1), nm.power(3), bias=False)),
    (S.ScalingGroup, EVERYTHING),
    (S.ScalingGroup, MIXED_NET),
    (S.GeneralLinearGroup, LINEAR),
    (S.GeneralLinearGroup, MIXED_NET),
    (S.AffineGroup, nm.MLP((2, 3, 3, 2), "identity", scaling="ntk")),
    (S.AffineGroup, MIXED_NET),
    (S.AffineGroup, STEEP),
    (S.OrthogonalGroup, nm.MLP((2, 3, 4, 2), "identity")),
    (S.HadamardGroup, nm.MLP((2, 3, 2), "tanh")),
    (S.MatrixGroup, nm.MLP((2, 3, 1), "tanh")),
    (S.symmetry_group, RELU),
    (S.symmetry_group, MIXED_NET),
    (S.symmetry_group, TANH),
    (S.symmetry_group, STEEP),
]
CONTINUOUS = [
    (group, net)
    for group, net in CAST
    if isinstance(group(net), S.ContinuousGroup | S.HadamardGroup) and group(net).dimension
]


def label(value: Any) -> str:
    return value.__name__ if callable(value) and not isinstance(value, nm.MLP) else str(value)


def drawn(group: Any, rng: np.random.Generator) -> Any:
    """Parameters of the model that the group acts on, in float64."""
    return group.extend(draw(group.net, rng))


@pytest.mark.parametrize("make, net", CAST, ids=label)
def test_group_axioms(make, net, key, rng, draws):
    group = make(net)
    for k in jax.random.split(key, draws(3)):
        g, h, i = (group.sample(key=sub) for sub in jax.random.split(k, 3))
        params = drawn(group, rng)
        assert distance(group.identity(params), params) == 0
        assert distance((g @ h)(params), g(h(params))) < 1e-12
        assert distance(((g @ h) @ i)(params), (g @ (h @ i))(params)) < 1e-12
        assert distance(g.inverse(g(params)), params) < 1e-12
        assert distance((g @ g.inverse)(params), params) < 1e-12
        assert distance(g(params), params) > 1e-3 or getattr(group, "order", 99) < 99


@pytest.mark.parametrize("make, net", CAST, ids=label)
def test_the_function_is_unchanged_on_fresh_inputs(make, net, key, rng, draws, tally):
    group, moved = make(net), 0
    for k in jax.random.split(key, draws(5)):
        params, x = drawn(group, rng), rng.normal(size=(20, net.widths[0]))
        image = group.sample(key=k)(params)
        before, after = group.model(params, x), group.model(image, x)
        assert before.dtype == np.float64
        assert np.abs(after - before).max() <= 1e-12 * max(1.0, np.abs(before).max())
        moved += distance(image, params) > 1e-3
    tally(moved, of=draws(5), what="elements that move the parameters")


@pytest.mark.parametrize("make, net", CONTINUOUS, ids=label)
def test_generators_lie_in_the_kernel_of_the_jacobian(make, net, rng):
    group = make(net)
    params, x = drawn(group, rng), rng.normal(size=(20, net.widths[0]))
    J, fields = nm.jacobian(group.model, params, x), group.generators(params)
    assert fields.shape == (group.dimension, J.shape[1])
    assert (
        np.abs(J @ fields.T).max()
        <= 1e-12 * np.linalg.norm(J, 2) * np.linalg.norm(fields, axis=1).max()
    )
    assert np.abs(J @ rng.normal(size=J.shape[1])).max() > 1e-3


@pytest.mark.parametrize("make, net", CONTINUOUS, ids=label)
def test_finite_differences_of_the_action_are_the_generators(make, net, rng):
    group = make(net)
    params, step = drawn(group, rng), 1e-5
    basis = step * np.eye(group.dimension)
    difference = [flat(group.element(e)(params)) - flat(group.element(-e)(params)) for e in basis]
    difference = np.array(difference) / (2 * step)
    np.testing.assert_allclose(
        difference, group.generators(params), rtol=0, atol=1e-9 * max(1, np.abs(flat(params)).max())
    )


@pytest.mark.parametrize(
    "make, net", [c for c in CONTINUOUS if c[0] is not S.HadamardGroup], ids=label
)
def test_orbit_and_stabiliser_add_up_and_the_stabiliser_fixes_the_point(make, net, rng):
    """The exact rank agrees with the numerical one, and exp of the left kernel of the generators
    fixes θ.
    """
    group = make(net)
    params = drawn(group, rng)
    orbit = group.orbit_dimension(params)
    assert orbit == int(group.orbit_dimension(params, exact=False))
    assert orbit + group.stabiliser_dimension(params) == group.dimension
    _, _, Vt = np.linalg.svd(group.generators(params).T)
    for direction in Vt[orbit:]:
        assert distance(group.element(direction)(params), params) < 1e-12


def test_the_stabiliser_of_a_narrow_linear_network(rng):
    """W ∈ ℝ³, V ∈ ℝ³: gW = W and Vg⁻¹ = V leave (3 − 1)² dimensions of GL(3); the orbit {(W',
    V') : V'W' = VW} has 5.
    """
    group = S.GeneralLinearGroup(nm.MLP((1, 3, 1), "identity", bias=False))
    params = drawn(group, rng)
    assert (group.orbit_dimension(params), group.stabiliser_dimension(params)) == (5, 4)
    _, _, Vt = np.linalg.svd(group.generators(params).T)
    for direction in Vt[5:]:
        assert distance(group.element(direction)(params), params) < 1e-12
    assert distance(group.element(Vt[0])(params), params) > 0.1


def test_parameters_keep_their_dtype_whatever_the_global_flag(key, rng, x64):
    for make, net in [
        (S.ScalingGroup, RELU),
        (S.AffineGroup, MIXED_NET),
        (S.PermutationGroup, RELU),
    ]:
        for dtype in ("float32", "float64"):
            params = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), draw(net, rng))
            image = make(net).sample(key=key)(params)
            assert {str(leaf.dtype) for leaf in jax.tree.leaves(image)} == {dtype}


@pytest.mark.parametrize("make", [S.ScalingGroup, S.AffineGroup], ids=label)
def test_elements_are_the_same_under_jit(make, rng):
    group = make(MIXED_NET)
    params, coordinates = drawn(group, rng), 0.3 * rng.normal(size=group.dimension)
    with arithmetic():
        jitted = jax.jit(lambda xi, p: group.element(xi)(p))(jnp.asarray(coordinates), params)
    assert distance(jax.tree.map(np.asarray, jitted), group.element(coordinates)(params)) < 1e-13


@pytest.mark.parametrize(
    "make, net, text",
    [
        (S.ScalingGroup, TANH, "'tanh', which is not homogeneous"),
        (S.SignGroup, RELU, "relu, which has no parity"),
        (S.SignedPermutationGroup, RELU, "no parity"),
        (S.GeneralLinearGroup, RELU, "'relu', which is not linear"),
        (S.AffineGroup, RELU, "not linear"),
        (S.AffineGroup, LINEAR, "no biases to translate"),
        (S.OrthogonalGroup, TANH, "not linear"),
        (S.PermutationGroup, nm.MLP((2, 1)), "no hidden neurons"),
    ],
    ids=label,
)
def test_a_group_refuses_by_the_name_of_the_missing_property(make, net, text):
    with pytest.raises(ValueError, match=text):
        make(net)


def test_bad_arguments_are_refused():
    with unchecked(), pytest.raises(TypeError, match="`net` is an int"):
        S.PermutationGroup(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="`key` is 0"):
        S.PermutationGroup(RELU).sample(key=0)
    with pytest.raises(ValueError, match="dimension 9; pass one number for each generator"):
        S.ScalingGroup(RELU).element(np.zeros(2))
    with pytest.raises(ValueError, match="needs one slope in each layer"):
        slopes = nm.Mixed((nm.Activation(lambda z: 2 * z, name="double"), 1), identity=1)
        S.OrthogonalGroup(nm.MLP((1, 2, 1), slopes))
