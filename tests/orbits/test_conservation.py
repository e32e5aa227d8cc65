"""D − dim Lie_θ against the conserved quantities that are known: where they are all, and where
there are more.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import neuromanifold as nm
from cast import unchecked
from neuromanifold.orbits import lie_closure
from neuromanifold.orbits.bounds import conserved_forms, filter_forms
from neuromanifold.orbits.rings import Reals


def drawn(net, rng, key):
    return jax.tree.map(lambda a: rng.normal(size=a.shape), net.init(key=key, dtype="float64"))


def gradients(net, params):
    """The gradients of `nm.conserved_quantities`, by automatic differentiation."""
    with jax.enable_x64(True):
        theta, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
        return np.asarray(
            jax.jacobian(lambda t: nm.conserved_quantities(net, unravel(t)).values)(theta)
        )


def known_laws(net, params):
    """How many of the known conserved quantities are independent at the point."""
    return int(np.linalg.matrix_rank(conserved_forms(net, params, Reals())))


FORMS = [
    (nm.MLP((2, 3, 2), "identity"), conserved_forms),
    (nm.MLP((2, 3, 2, 1), ("relu", nm.power(3)), bias=False), conserved_forms),
    (nm.MLP((2, 4, 1), nm.Mixed((nm.leaky_relu(-1.0), 1), relu=1, identity=2)), conserved_forms),
    (nm.LinearConvNet((3, 2, 2), (2, 1, 1)), filter_forms),
]


@pytest.mark.parametrize(
    "net, forms", FORMS, ids=lambda value: str(value) if not hasattr(value, "__code__") else ""
)
def test_forms_are_the_gradients_of_the_conserved_quantities(net, forms, rng, key):
    params = drawn(net, rng, key)
    ours, theirs = forms(net, params, Reals()), gradients(net, params)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        factor = (a @ b) / (a @ a)
        np.testing.assert_allclose(factor * a, b, rtol=1e-12, atol=1e-12)


DEEP = [
    (2, 2, 2, 2),
    (1, 2, 2, 2),
    (3, 2, 3, 1),
    (2, 3, 2, 2),
    (2, 1, 2, 2),
    (2, 2, 2, 2, 2),
    (1, 2, 1, 2),
]


@pytest.mark.parametrize("bias", [False, True])
def test_deep_linear_nets_have_the_known_laws(bias, rng, key, tally):
    """D − dim Lie_θ = rank of the gradients of all Δ_l, proved, with and without biases."""
    proved = 0
    for widths in DEEP:
        net = nm.MLP(widths, "identity", bias=bias)
        params = drawn(net, rng, key)
        with unchecked():
            closure = lie_closure(net, params, key=key)
        assert net.n_params - int(closure.dimension) == known_laws(net, params), widths
        proved += closure.certified and closure.agree
    tally(proved, of=len(DEEP), what=f"deep linear nets {'with' if bias else 'without'} biases")
    assert proved == len(DEEP)


@pytest.mark.parametrize(
    "widths, known", [((1, 2, 1), 3), ((1, 1, 1, 1), 2), ((1, 2, 2, 1), 6), ((1, 3, 2, 1), 9)]
)
def test_a_single_scalar_function_has_more_laws(widths, known, rng, key):
    """n_0 = n_L = 1 without biases: all fields are parallel, so every function of θ that one
    flow keeps is a law.
    """
    net = nm.MLP(widths, "identity", bias=False)
    params = drawn(net, rng, key)
    closure = lie_closure(net, params, key=key)
    assert int(closure.dimension) == closure.upper_bound == 1
    assert known_laws(net, params) == known <= net.n_params - 1
    biased = nm.MLP(widths, "identity")
    assert int(lie_closure(biased, drawn(biased, rng, key), key=key).dimension) > 1


@pytest.mark.parametrize(
    "widths, strides",
    [((2, 2), (1, 1)), ((3, 2), (2, 1)), ((2, 2, 2), (1, 1, 1)), ((2, 3, 2), (2, 1, 1))],
)
def test_convolutional_nets_keep_the_differences_of_norms_and_no_more(widths, strides, rng, key):
    net = nm.LinearConvNet(widths, strides)
    closure = lie_closure(net, drawn(net, rng, key), key=key)
    assert net.n_params - int(closure.dimension) == net.depth - 1 and closure.certified


def unused(net, params, x):
    """Weights that no input sees: their neuron and its source are never active together."""
    return np.flatnonzero((nm.jacobian(net, params, x) == 0).all(axis=0))


@pytest.mark.parametrize("widths, bias", [((2, 3, 1), False), ((1, 3, 1), True), ((3, 3, 2), True)])
def test_two_layer_relu_nets_keep_one_balance_for_each_neuron(widths, bias, rng, key, draws, tally):
    """With all kinks sampled and told apart, D − dim Lie_θ is the number of hidden neurons."""
    net, hits, count = nm.MLP(widths, "relu", bias=bias), 0, draws(8)
    for _ in range(count):
        params, x = drawn(net, rng, key), 5 * rng.normal(size=(300, widths[0]))
        patterns = nm.activation_patterns(net, params, x)
        seen = patterns.any(axis=0).all() and not patterns.all(axis=0).any()
        if seen and len(np.unique(patterns, axis=1).T) == widths[1]:
            closure = lie_closure(net, params, key=key, inputs=x)
            assert net.n_params - int(closure.dimension) == widths[1] and closure.certified
            assert closure.along_orbit is None and "not analytic" in closure.route
            hits += 1
    tally(hits, of=count, what="ReLU nets whose kinks are all sampled")


def test_kinks_that_are_not_sampled_leave_more_laws(rng, key):
    """Where two ReLU neurons are always active together they are linear neurons to the data: Δ
    has three entries, not two.
    """
    net = nm.MLP((2, 2, 1), "relu", bias=False)
    params = (nm.Layer(np.array([[1.0, 0.5], [0.5, 1.0]])), nm.Layer(np.array([[1.0, -2.0]])))
    inside = np.abs(rng.normal(size=(40, 2)))
    closure = lie_closure(net, params, key=key, inputs=inside)
    assert net.n_params - int(closure.dimension) == 3 and not closure.certified
    everywhere = lie_closure(net, params, key=key, inputs=rng.normal(size=(40, 2)))
    assert net.n_params - int(everywhere.dimension) == 2 and everywhere.certified


def test_one_input_without_biases_has_its_kinks_at_zero_only(rng, key):
    """f is one function of θ for x > 0 and one for x < 0, on different neurons: two dimensions
    whatever the width.
    """
    net = nm.MLP((1, 4, 1), "relu", bias=False)
    params = (nm.Layer(np.array([[1.0], [0.5], [-1.0], [-2.0]])), nm.Layer(rng.normal(size=(1, 4))))
    assert int(lie_closure(net, params, key=key).dimension) == 2


@pytest.mark.parametrize("widths, bias", [((2, 3, 3, 1), False), ((3, 3, 3, 2), True)])
def test_deep_relu_nets_keep_balances_and_unused_weights(widths, bias, rng, key, draws, tally):
    """D − dim Lie_θ is the rank of the balances and of the weights between neurons that no input
    activates together.
    """
    net, hits, exact, count = nm.MLP(widths, "relu", bias=bias), 0, 0, draws(10)
    for _ in range(count):
        params, x = drawn(net, rng, key), 5 * rng.normal(size=(300, widths[0]))
        closure = lie_closure(net, params, key=key, inputs=x)
        forms = np.concatenate(
            [conserved_forms(net, params, Reals()), np.eye(net.n_params)[unused(net, params, x)]]
        )
        known = np.linalg.matrix_rank(forms)
        assert net.n_params - int(closure.dimension) >= known
        exact += net.n_params - int(closure.dimension) == known
        hits += net.n_params - int(closure.dimension) > net.hidden
    tally(exact, of=count, what="deep ReLU nets with no other laws")
    assert exact >= 0.6 * count
    tally(hits, of=count, what="deep ReLU nets with more laws than balances")
