"""Teleportation: the gradient grows, the function stays, on data sets and seeds; controls where
nothing can be gained.
"""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold import symmetry as S
from neuromanifold.models import losses
from neuromanifold.numerics.precision import arithmetic, promote
from symmetry.support import draw, problem

RELU = nm.MLP((2, 8, 8, 1))
LINEAR = nm.MLP((2, 3, 1), "identity")


@jax.jit(static_argnums=(0, 4, 5))
def _descent(model, params, x, y, rate, limit):
    def step(p, _):
        value, change = jax.value_and_grad(lambda q: losses.mse(model(q, x), y))(p)
        return jax.tree.map(lambda a, g: a - rate * g, p, change), value

    return jax.lax.scan(step, params, None, length=limit)[1]


def steps_to_half(model, params, x, y, rate=1e-3, limit=500):
    """Steps of gradient descent until the loss is half its first value."""
    with arithmetic():
        values = np.asarray(_descent(model, *promote((params, x, y), np.float64), rate, limit))
    below = np.flatnonzero(values < values[0] / 2)
    return int(below[0]) if len(below) else limit


@pytest.mark.parametrize("name", ["f1", "g1"])
def test_teleporting_once_before_training(name, rng, draws, tally):
    """Gradient norm up and f unchanged in every case; gradient descent with the same rate then
    halves the loss sooner.
    """
    data = nm.data.load(name)
    net = nm.MLP((data.x.shape[1], 10, 10, 1))
    group, sooner, seeds = S.ScalingGroup(net), 0, draws(5)
    for _ in range(seeds):
        params = draw(net, rng)
        moved = S.teleport(net, params, data.x, data.y, group=group, loss=losses.mse, bound=2.0)
        assert moved.gradient_norm.ratio > 1.05
        assert moved.deviation < 1e-10
        assert np.abs(net(moved.params, data.x) - net(params, data.x)).max() < 1e-10
        assert moved.gamma_norm <= 2.0 * (1 + 1e-12)
        assert moved.alignment.ratio == pytest.approx(moved.gradient_norm.ratio**2, rel=1e-9)
        before, after = (steps_to_half(net, p, data.x, data.y) for p in (params, moved.params))
        sooner += after < before
    tally(sooner, of=seeds, what="networks that halve their loss sooner")


@pytest.mark.parametrize(
    "make", [S.ScalingGroup, S.symmetry_group, S.HadamardGroup], ids=lambda g: g.__name__
)
def test_every_group_raises_the_gradient_within_its_bound(make, rng):
    params, x, y = problem(RELU, rng)
    moved = S.teleport(RELU, params, x, y, group=make(RELU), loss=losses.mse, steps=30, bound=3.0)
    assert moved.gradient_norm.ratio > 1.1
    assert moved.gamma_norm <= 3.0 * (1 + 1e-9)
    assert len(moved.history) == 30
    np.testing.assert_allclose(
        moved.model(moved.params, x),
        RELU(params, x),
        rtol=0,
        atol=1e-12 * np.abs(RELU(params, x)).max(),
    )
    assert "gradient norm" in str(moved)


def test_linear_groups_and_the_orthogonal_control(rng):
    """O(k) preserves the gradient norm: nothing to gain. GL gains, within ‖Γ‖ ≤ bound."""
    params, x, y = problem(LINEAR, rng)
    gain = S.teleport(
        LINEAR,
        params,
        x,
        y,
        group=S.GeneralLinearGroup(LINEAR),
        loss=losses.mse,
        steps=30,
        bound=3.0,
    )
    assert gain.gradient_norm.ratio > 1.1
    assert gain.gamma_norm <= 3.0 * (1 + 1e-9)
    none = S.teleport(
        LINEAR, params, x, y, group=S.OrthogonalGroup(LINEAR), loss=losses.mse, steps=30
    )
    assert none.gradient_norm.ratio == pytest.approx(1.0, abs=1e-12)
    assert none.gamma_norm == pytest.approx(1.0, abs=1e-12)


def test_from_a_balanced_point_the_search_still_finds_its_way(rng):
    """W = V = 1 is a minimum of the gradient norm on its orbit: (c² + 1/c²)/2 = 2.125 at the
    bound c = 2.
    """
    net = nm.MLP((1, 1, 1), bias=False)
    params = (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))
    moved = S.teleport(net, params, np.ones((1, 1)), np.zeros((1, 1)), loss=losses.mse, bound=4.0)
    assert moved.gradient_norm.ratio**2 == pytest.approx(2.125, rel=1e-12)


def test_the_hadamard_search_of_the_paper_keeps_its_factors_near_one(rng):
    """[teleport, App. E]: penalty 0.1‖c − 1‖², Adam 0.01, 0 < c ≤ 10."""
    params, x, y = problem(RELU, rng)
    moved = S.teleport(
        RELU, params, x, y, group=S.HadamardGroup(RELU), loss=losses.half_squared_error,
        steps=5, bound=10.0, penalty=0.1, lr=0.01, clip=1.0,
    )  # fmt: skip
    assert moved.gradient_norm.ratio > 1
    assert np.abs(np.exp(moved.coordinates) - 1).max() <= 0.05


@contextmanager
def no_compilation():
    """JAX reports each compilation to its listeners."""
    seen: list[str] = []
    listener = lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield
    assert seen == []


def test_a_second_call_compiles_nothing(rng):
    params, x, y = problem(RELU, rng)
    group = S.ScalingGroup(RELU)
    run = lambda: S.teleport(RELU, params, x, y, group=group, loss=losses.mse, steps=7)  # noqa: E731
    first = run()
    with no_compilation():
        assert run().gradient_norm == first.gradient_norm


def test_teleporting_within_a_training_run(rng):
    """Under jit and scan: update 3 leaves the function, raises the gradient norm; the others are
    the optimizer's own.
    """
    params, x, y = problem(RELU, rng)
    inner = optax.adam(1e-2)
    rule = S.teleporting(
        inner, RELU, x, y, loss=losses.mse, at=(3,), group=S.ScalingGroup(RELU), bound=2.0
    )
    with arithmetic():
        x, y, start = jnp.asarray(x), jnp.asarray(y), promote(params, np.float64)

        def runs(rule):
            def step(carry, _):
                p, state = carry
                value, change = jax.value_and_grad(lambda q: losses.mse(RELU(q, x), y))(p)
                updates, state = rule.update(change, state, p)
                norm = optax.tree.norm(change)
                return (optax.apply_updates(p, updates), state), (value, norm)

            return jax.jit(lambda p: jax.lax.scan(step, (p, rule.init(p)), None, length=6)[1])(
                start
            )

        (plain, _), (value, norm) = runs(inner), runs(rule)
    np.testing.assert_allclose(value[:4], plain[:4], rtol=1e-13)
    assert float(value[4]) == pytest.approx(float(value[3]), rel=1e-12)
    assert float(norm[4]) > 1.05 * float(norm[3])
    assert float(value[5]) != pytest.approx(float(plain[5]), rel=1e-6)
    with pytest.raises(ValueError, match="`params` is None"):
        rule.update(params, rule.init(params))


def test_bad_arguments_are_refused(rng):
    params, x, y = problem(RELU, rng)
    tanh = nm.MLP((2, 3, 1), "tanh")
    cases = [
        ({"group": S.PermutationGroup(RELU)}, TypeError, "has no coordinates to search over"),
        (
            {"group": S.ScalingGroup(nm.MLP((2, 3, 1)))},
            ValueError,
            "build it from the same network",
        ),
        ({"steps": 0}, ValueError, "`steps` is 0"),
        ({"bound": 1.0}, ValueError, "`bound` is 1.0"),
    ]
    for options, error, text in cases:
        with unchecked(), pytest.raises(error, match=text):
            S.teleport(RELU, params, x, y, loss=losses.mse, **options)
    with pytest.raises(
        ValueError, match="dimension 0: its activations are neither homogeneous nor linear"
    ):
        S.teleport(tanh, draw(tanh, rng), x, y, loss=losses.mse)
    with pytest.raises(ValueError, match="`y` has shape"):
        S.teleport(RELU, params, x, y[:, 0], loss=losses.mse)
