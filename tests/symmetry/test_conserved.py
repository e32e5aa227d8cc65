"""Conserved quantities: gradient flow keeps them, gradient descent loses η² of them in each
step, a foreign metric does not keep them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import symmetry as S
from neuromanifold.dynamics import gradient_flow
from neuromanifold.models import losses
from neuromanifold.numerics.precision import arithmetic, promote
from symmetry.support import draw, gradient, problem

NETS = [
    nm.MLP((2, 5, 4, 1)),
    nm.MLP((2, 4, 1), nm.power(2)),
    nm.MLP((2, 4, 2), nm.power(3), bias=False),
    nm.MLP((3, 4, 3, 2), nm.leaky_relu(0.25), scaling="ntk"),
    nm.MLP((2, 3, 3, 2), "identity"),
    nm.MLP((3, 2, 4, 2), "identity", bias=False),
    nm.MLP((2, 5, 4, 2), (nm.Mixed(relu=3, identity=2), "abs")),
]


def stepped(params, change, rate):
    return jax.tree.map(lambda p, g: p - rate * g, params, change)


@pytest.mark.parametrize("net", NETS, ids=str)
def test_a_step_of_gradient_descent_changes_them_by_exactly_the_square_of_the_rate(net, rng):
    """Q(θ − η∇L) = Q(θ) + η²Q(∇L): Noether's term is linear and vanishes, Q is quadratic. Hence
    the drift is of second order.
    """
    params, x, y = problem(net, rng)
    change = gradient(net, params, x, y)
    before, square = (S.conserved_quantities(net, p).values for p in (params, change))
    assert len(before) == len(S.conserved_quantities(net, params)) > 0
    for rate in (1.0, 0.1, 0.01):
        after = S.conserved_quantities(net, stepped(params, change, rate)).values
        np.testing.assert_allclose(
            after - before,
            rate**2 * square,
            rtol=0,
            atol=1e-13 * max(1.0, np.abs(before).max(), np.abs(after).max()),
        )
    assert np.abs(square).max() > 1e-6


@pytest.mark.parametrize("net", NETS, ids=str)
def test_there_is_one_for_each_symmetric_generator(net, rng):
    """∇Q is orthogonal to ∇L, for random data; the count is one per homogeneous neuron and
    n(n+1)/2 for n linear ones.
    """
    params, x, y = problem(net, rng)
    with arithmetic():
        rows = jax.jacrev(lambda p: S.conserved_quantities(net, p).values)(
            promote(params, np.float64)
        )
        rows = np.concatenate(
            [np.asarray(a).reshape(len(a), -1) for a in jax.tree.leaves(rows)], axis=1
        )
    change = np.concatenate([np.ravel(a) for a in jax.tree.leaves(gradient(net, params, x, y))])
    assert (
        np.abs(rows @ change).max()
        <= 1e-12 * np.abs(rows).max() * np.abs(change).max() * rows.shape[1]
    )
    linear = (
        [len(layer) for layer in S.GeneralLinearGroup(net).neurons]
        if "identity" in str(net)
        else []
    )
    others = net.hidden - sum(linear)
    assert len(rows) == others + sum(n * (n + 1) // 2 for n in linear)
    assert np.linalg.matrix_rank(rows) == len(rows)


def test_they_are_the_matrices_of_the_paper(rng):
    """Δ = VᵀV − WWᵀ without biases.   [riemann, Eq. 5]"""
    net = nm.MLP((3, 2, 4), "identity", bias=False)
    params = draw(net, rng)
    W, V = params[0].weight, params[1].weight
    delta = V.T @ V - W @ W.T
    found = S.conserved_quantities(net, params)
    assert found.labels == ("delta[1, 0, 0]", "delta[1, 0, 1]", "delta[1, 1, 1]")
    np.testing.assert_allclose(found.values, delta[np.triu_indices(2)], rtol=1e-14)


def drift(net, params, x, y, metric=None, max_steps=100_000):
    """The largest relative change along the flow to t = 10."""
    flow = gradient_flow(
        net, params, x, y, t1=10.0, metric=metric, dense=False, max_steps=max_steps
    )
    end = jax.tree.map(lambda leaf: leaf[-1], flow.params)
    before, after = (S.conserved_quantities(net, p).values for p in (params, end))
    assert flow.losses[-1] < 0.9 * flow.losses[0]
    return np.abs(after - before).max() / np.abs(before).max()


@pytest.mark.parametrize("net", [NETS[1], NETS[4]], ids=str)
def test_the_flow_keeps_them_to_time_10_and_another_metric_does_not(net, rng):
    params, x, y = problem(net, rng)
    assert drift(net, params, x, y) < 1e-8
    assert drift(net, params, x, y, metric=_uneven) > 1e-4


def test_the_flow_of_a_relu_network_keeps_them_where_it_does_not_slide_along_a_kink(rng, tally):
    """Where a kink attracts from both sides the flow slides along it and the solver refuses;
    near a fit it rarely does.
    """
    net, complete, tries = NETS[0], 0, 6
    for _ in range(tries):
        params, x, _ = problem(net, rng)
        y = net(params, x) + 0.1 * rng.normal(size=(len(x), 1))
        try:
            assert drift(net, params, x, y, max_steps=2_000) < 1e-8
            complete += 1
        except ArithmeticError as error:
            assert "the flow needs more than" in str(error)
    tally(complete, of=tries, what="flows that reach t = 10 without sliding")


def _uneven(params):
    """A constant metric that is not invariant: the first layer moves at half speed."""
    return lambda change: (jax.tree.map(lambda a: a / 2, change[0]), *change[1:])


def test_stochastic_gradient_descent_drifts_by_the_sum_of_squares(rng):
    """After k minibatch steps Q has moved by η²ΣQ(g_i), so halving η over twice the steps about
    halves the drift.
    """
    net = NETS[0]
    params, x, y = problem(net, rng, 32)

    def drift(rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        with arithmetic():
            batches = jnp.asarray(np.random.default_rng(1).integers(0, 32, (steps, 8)))

            def step(p, batch):
                change = jax.grad(
                    lambda q: losses.mse(net(q, jnp.asarray(x)[batch]), jnp.asarray(y)[batch])
                )(p)
                return stepped(p, change, rate), S.conserved_quantities(net, change).values

            end, squares = jax.jit(lambda p: jax.lax.scan(step, p, batches))(
                promote(params, np.float64)
            )
            before, after = (
                S.conserved_quantities(net, jax.tree.map(np.asarray, p)).values
                for p in (params, end)
            )
            return after - before, rate**2 * np.asarray(squares).sum(axis=0)

    coarse, predicted = drift(0.02, 50)
    np.testing.assert_allclose(coarse, predicted, rtol=0, atol=1e-13)
    fine, predicted = drift(0.01, 100)
    np.testing.assert_allclose(fine, predicted, rtol=0, atol=1e-13)
    assert 0.3 < np.linalg.norm(fine) / np.linalg.norm(coarse) < 0.8


def test_as_a_probe_and_without_symmetries(rng):
    tanh = nm.MLP((1, 3, 1), "tanh")
    assert S.conserved_quantities(tanh, draw(tanh, rng)).values.shape == (0,)
    net = NETS[0]
    runs = jax.tree.map(lambda *leaves: np.stack(leaves), *(draw(net, rng) for _ in range(3)))
    values = jax.vmap(lambda p: S.conserved_quantities_probe(net, p, None, None))(runs)
    assert values.shape == (3, 9)
