"""What is special to scalings: degrees, negative factors, dimensions, and that a network without
homogeneity does change.
"""

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from symmetry.support import derivatives, draw, problem


@pytest.mark.parametrize("degree, expected", [(1, 2.0), (2, 4.0), (3, 8.0)])
def test_outgoing_weights_are_divided_by_the_factor_to_the_degree(degree, expected):
    net = nm.MLP((1, 1, 1), nm.power(degree))
    g = S.ScalingGroup(net).element(np.log([2.0]))
    (W, b), (V, c) = g(
        (nm.Layer(np.ones((1, 1)), np.ones(1)), nm.Layer(np.ones((1, 1)), np.ones(1)))
    )
    assert np.allclose([W[0, 0], b[0], 1 / V[0, 0], c[0]], [2.0, 2.0, expected, 1.0], rtol=1e-15)


def test_negative_factors_occur_exactly_where_they_are_allowed(key):
    net = nm.MLP((1, 6, 1), nm.Mixed((nm.power(2), 2), relu=2, identity=2))
    factors = np.array(
        [S.ScalingGroup(net).sample(key=k).into[0] for k in jax.random.split(key, 30)]
    )
    assert (factors[:, 2:4] > 0).all()
    assert (factors[:, [0, 1, 4, 5]] < 0).any(axis=0).all()


def test_a_scaling_changes_a_network_that_is_not_homogeneous(rng):
    """The control: the same element of ReLU's group applied to tanh."""
    relu, tanh = nm.MLP((2, 3, 1)), nm.MLP((2, 3, 1), "tanh")
    params, x = draw(relu, rng), rng.normal(size=(20, 2))
    g = S.ScalingGroup(relu).element(np.array([1.0, -1.0, 0.5]))
    assert np.abs(relu(g(params), x) - relu(params, x)).max() < 1e-14
    assert np.abs(tanh(g(params), x) - tanh(params, x)).max() > 1e-2


def test_the_orbit_of_a_generic_relu_network_has_as_many_dimensions_as_hidden_neurons(rng):
    """[complexity, Rem 4.3]; a neuron without weights is fixed by its scaling."""
    net = nm.MLP((2, 4, 3, 1))
    params = draw(net, rng)
    assert S.ScalingGroup(net).orbit_dimension(params) == 7
    params[0].weight[0], params[0].bias[0], params[1].weight[:, 0] = 0, 0, 0
    assert (
        S.ScalingGroup(net).orbit_dimension(params),
        S.ScalingGroup(net).stabiliser_dimension(params),
    ) == (6, 1)


@pytest.mark.parametrize("mixed", [(2, 1), (1, 2), (0, 3)])
def test_the_orbit_of_a_mixed_network(mixed, rng):
    """[complexity, Prop A.10] with the sum from l = 1, as its proof has it (the input has no
    n^R): Σ n^R + Σ (n^L)².
    """
    relus, linear = mixed
    entry = nm.Mixed(relu=relus, identity=linear)
    net = nm.MLP((3, 3, 3, 3), (entry, entry))
    params = draw(net, rng)
    rank = np.linalg.matrix_rank(
        np.concatenate(
            [group(net).generators(params) for group in (S.ScalingGroup, S.GeneralLinearGroup)]
        )
    )
    assert rank == 2 * (relus + linear**2)
    assert S.symmetry_group(net).dimension == rank + 2 * linear


def test_the_critical_locus_is_at_least_as_large_as_the_orbit(rng):
    """[complexity, Lem 4.2]: at an interpolating minimum the Hessian vanishes along the whole
    orbit.
    """
    net = nm.MLP((2, 4, 1))
    params, x, _ = problem(net, rng, 30)
    gradient, hessian, J = derivatives(net, params, x, net(params, x))
    group = S.hidden_equivalence(net, params, x)
    assert np.abs(gradient).max() < 1e-13
    nullity = len(hessian) - np.linalg.matrix_rank(hessian, tol=1e-10 * np.abs(hessian).max())
    assert nullity == len(hessian) - np.linalg.matrix_rank(J) >= group.orbit_dimension() > 0
    assert np.abs(hessian @ group.generators().T).max() < 1e-11 * np.abs(hessian).max()
