"""Groups of all kinds meet the functions of the room: laws of described networks, of any
function, of discovered groups; refusals.
"""

from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from symmetry.support import draw

KEY = jax.random.key(0)
RELU = nm.MLP((2, 3, 2, 1))
LINEAR = nm.MLP((3, 2, 3), "identity", bias=False)
FILTERS = nm.LinearConvNet((3, 2, 2), (2, 1, 1))


def product(params, x):
    return x @ params["w"] @ params["v"]


def test_the_laws_of_a_described_network_are_its_conserved_quantities(rng):
    """Scalings: ½⟨θ, Aθ⟩ is minus half the balance of each neuron; rescaled filters: half of
    each difference of norms.
    """
    params = draw(RELU, rng)
    for group in (nm.symmetry_group(RELU), S.ScalingGroup(RELU)):
        laws = S.conservation_laws(group)
        assert (laws.symmetric.dimension, laws.skew.dimension, laws.decided) == (5, 0, True)
        np.testing.assert_allclose(
            -2 * laws.quantities(params), nm.conserved_quantities(RELU, params).values
        )
        np.testing.assert_allclose(
            S.conserved_quantities(RELU, params, group=group).values, laws.quantities(params)
        )
    filters = FILTERS.init(key=KEY, dtype="float64")
    laws = S.conservation_laws(S.FilterScalingGroup(FILTERS))
    np.testing.assert_allclose(
        2 * laws.quantities(filters), nm.conserved_quantities(FILTERS, filters).values
    )


def test_the_laws_of_linear_neurons_are_those_of_discovery(rng):
    """GL(2): three symmetric fields and one rotation, for the description, the discovered group
    and the network's group alike.
    """
    params = {"w": rng.normal(size=(3, 2)), "v": rng.normal(size=(2, 3))}
    whole = nm.symmetry_group(product, params, rng.normal(size=(4, 3)), key=KEY)
    laws = [S.conservation_laws(group) for group in (nm.symmetry_group(LINEAR), whole, whole.flows)]
    assert [(each.symmetric.dimension, each.skew.dimension) for each in laws] == [(3, 1)] * 3
    points = [{"w": rng.normal(size=(3, 2)), "v": rng.normal(size=(2, 3))} for _ in range(6)]
    delta = [(p["w"].T @ p["w"] - p["v"] @ p["v"].T)[np.triu_indices(2)] for p in points]
    described = [laws[0].quantities((nm.Layer(p["w"].T), nm.Layer(p["v"].T))) for p in points]
    for found in (
        described,
        [laws[1].quantities(p) for p in points],
    ):  # three combinations of the entries of Δ
        assert (
            np.linalg.matrix_rank(np.array(found))
            == np.linalg.matrix_rank(np.hstack([found, delta]))
            == 3
        )
    assert S.conservation_laws(S.OrthogonalGroup(LINEAR)).skew.dimension == 1
    assert S.conservation_laws(S.OrthogonalGroup(LINEAR)).symmetric.dimension == 0
    assert nm.sharpness(product, params, np.ones((2, 3)), np.zeros((2, 3)), modulo=whole) > 0


def test_the_laws_of_an_extended_network_hold_for_any_activation():
    """F(c ⊙ θ): ½(c² − θ²) of every parameter."""
    net = nm.MLP((1, 2, 1), "tanh")
    group = S.HadamardGroup(net)
    theta = group.extend(net.init(key=KEY, dtype="float64"))
    laws = S.conservation_laws(group)
    flat = np.concatenate([np.ravel(a) for a in jax.tree.leaves(theta.params)])
    np.testing.assert_allclose(np.sort(laws.quantities(theta)), np.sort((1 - flat**2) / 2))
    assert S.conservation_laws(nm.symmetry_group(net)).symmetric.dimension == 0


class Bent(S.FilterScalingGroup):
    """A group of someone else's, whose generators are not affine."""

    def generators(self, params):
        return super().generators([np.asarray(w) ** 2 for w in params])


@pytest.mark.parametrize(
    "group, message",
    [
        (lambda: S.PermutationGroup(RELU), r"`group` is a PermutationGroup, which has no generators; pass a continuous group"),
        (lambda: S.discover(product, P, X, key=KEY, keys=1), r"`group` is a Discovery, .* the `\.group` of what"),
        (lambda: nm.symmetry_group(product, P, X), r"`group` holds permutations and signs alone: .* pass `key=`"),
        (lambda: Bent(FILTERS), r"`group` is a Bent, whose generators are not affine in the parameters; pass a group of linear"),
        (lambda: None, r"`group` is a NoneType, which has no generators"),
    ],
)  # fmt: skip
def test_what_has_no_affine_generators_has_no_laws(group, message):
    with pytest.raises((TypeError, ValueError), match=message):
        S.conservation_laws(group())


P, X = {"w": np.ones((3, 2)), "v": np.ones((2, 3))}, np.ones((2, 3))


def test_groups_refuse_other_parameters_and_other_groups():
    """The functions as users have them: the tests' own check of types would speak first."""
    group = S.discover(product, P, X, key=KEY, keys=1).group
    other = {"w": np.ones((2, 2)), "v": np.ones((2, 3))}
    laws = S.conservation_laws(group)
    for call in (group.generators, group.sample(key=KEY), laws.quantities):
        with pytest.raises(
            ValueError,
            match=r"`params` has arrays of shapes .* but the group acts on .*; pass parameters",
        ):
            call(other)
    with pytest.raises(
        ValueError, match=r"`velocity` has arrays of shapes .* pass θ̇ in the form of θ"
    ):
        laws.momenta(P, other)
    with pytest.raises(
        TypeError,
        match=r"`group` is a NetworkGroup, which has no coordinates to search over; pass a continuous",
    ):
        unwrap(S.teleport)(product, P, X, np.ones((2, 3)), group=nm.symmetry_group(product, P, X))
    with pytest.raises(
        TypeError,
        match=r"`modulo` is a PermutationGroup, which has no orbit of generators; pass a continuous",
    ):
        unwrap(nm.tangent.curvatures)(
            RELU,
            RELU.init(key=KEY),
            np.ones((2, 2)),
            np.ones((2, 1)),
            k=1,
            modulo=S.PermutationGroup(RELU),
        )
    for groups, word in (([S.PermutationGroup(RELU)], "holds"), (S.ScalingGroup(RELU), "is")):
        with pytest.raises(
            TypeError, match=rf"`groups` {word} a .*; pass a sequence of continuous groups"
        ):
            unwrap(S.dimension_account)(RELU, RELU.init(key=KEY), np.ones((2, 2)), groups=groups)


def test_elements_and_keys_that_are_none_are_refused():
    group, other = S.ScalingGroup(RELU), LINEAR.init(key=KEY)
    with pytest.raises(
        ValueError,
        match=r"`params` has arrays of shapes .*, on which this Monomial does not act; pass parameters",
    ):
        group.sample(key=KEY)(other)
    for call in (S.transformation, S.gamma_norm):
        with pytest.raises(
            TypeError,
            match=r"`g` is a ScalingGroup, no element of a group; pass `group\.sample\(key=key\)`",
        ):
            unwrap(call)(group, RELU.init(key=KEY))
    calls = [
        lambda: S.discover(product, P, X, key=0),
        lambda: nm.symmetry_group(RELU).sample(key=0),
        lambda: nm.symmetry_group(product, P, X, key=0),
        lambda: S.SignedPermutationGroup(nm.MLP((1, 2, 1), "tanh")).sample(key=0),
        lambda: S.dimension_account(product, P, X, key=0),
    ]
    for call in calls:
        with pytest.raises(
            TypeError, match=r"`key` is 0; pass a JAX key such as jax\.random\.key\(0\)"
        ):
            call()
    with pytest.raises(ValueError, match="`keys` is 0; pass how many keys must agree"):
        S.discover(product, P, X, key=KEY, keys=0)


def test_laws_are_read_under_jit():
    laws = S.conservation_laws(nm.symmetry_group(RELU))
    params = RELU.init(key=KEY)
    inside = jax.jit(lambda p: (laws.quantities(p), laws.momenta(p, p)))(params)
    np.testing.assert_allclose(inside[0], laws.quantities(params), rtol=1e-5)
    assert inside[1].shape == (0,) and isinstance(inside[0], jnp.ndarray)
