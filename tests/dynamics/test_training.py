"""The trainer equals a plain loop, member by member and step by step; nothing depends on how the
work is cut.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from threadpoolctl import threadpool_info

import cast
import neuromanifold.dynamics
from dynamics import plain
from dynamics.compilations import compilations
from neuromanifold.dynamics import (
    Probe,
    adam_l2,
    job,
    lanes,
    loss_probe,
    r_squared,
    train,
    weight_norm,
)
from neuromanifold.dynamics.epochs import permutation
from neuromanifold.models import losses

NET, REFERENCE = cast.OUTPUTS.model, cast.OUTPUTS.reference
SAMPLES, BATCH, EPOCHS = 10, 4, 3
STEPS = EPOCHS * 3  # batches of 4, 4 and 2
ROUNDING = (
    STEPS * 1e4 * np.finfo(np.float64).eps
)  # a thousand operations a step, Adam's quotients lose a digit
LOSS = loss_probe(losses.mse)


def runs(rng: np.random.Generator, count: int, dtype: str = "float64"):
    drawn = [cast.OUTPUTS.draw(rng) for _ in range(count)]
    return jax.tree.map(lambda *leaves: np.stack(leaves).astype(dtype), *drawn)


def data(rng: np.random.Generator, *stack: int):
    return rng.normal(size=(*stack, SAMPLES, 2)), rng.normal(size=(*stack, SAMPLES, 3))


def ordinary(params, x, y, key, **options):
    """The training that most tests share, so that it is compiled once."""
    given = {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "optimizer": adam_l2(0.05, 0.01),
        "probes": [LOSS],
        "every": 1,
    }
    return train(NET, params, x, y, key=key, **{**given, **options})


def test_every_member_of_a_sweep_equals_a_plain_loop_step_by_step(key, rng, tally):
    params, (x, y) = runs(rng, 2), data(rng, 2)
    decays, rates = [0.0, 0.1], [0.01, 0.05]
    hyper = {"weight_decay": decays, "lr": rates}
    done = ordinary(params, x, y, key, hyper=hyper, optimizer=adam_l2)
    assert done.axes == ("dataset", "weight_decay", "lr", "run")
    assert done.history.loss.sel(weight_decay=0.1, run=1).shape == (2, 2, EPOCHS + 1)
    assert done.history.loss.shape == (2, 2, 2, 2, EPOCHS + 1)
    for d, w, l, r in np.ndindex(2, 2, 2, 2):
        one = jax.tree.map(lambda a, r=r: a[r], params)
        loop = partial(
            plain.train, REFERENCE, one, x[d], y[d], key=key, run=r, epochs=EPOCHS, batch_size=BATCH
        )
        theta, values = loop(optimizer=plain.Adam(rates[l], decays[w]))
        member = plain.vector(done.member(dataset=d, weight_decay=w, lr=l, run=r))
        np.testing.assert_allclose(member, theta, rtol=ROUNDING, atol=ROUNDING)
        np.testing.assert_allclose(done.history.loss[d, w, l, r], values, rtol=ROUNDING)
        if (d, w, l, r) == (1, 1, 1, 1):
            other = loop(run=0, optimizer=plain.Adam(rates[l], decays[w]))[
                0
            ]  # the batches of another run
            longer = loop(batch_size=5, optimizer=plain.Adam(rates[l], decays[w]))[
                0
            ]  # no short batch
            assert min(abs(member - other).max(), abs(member - longer).max()) > 1e-3
    tally(16, of=16, what="members")


def test_float32_stays_float32_and_agrees_with_the_loop_to_its_rounding(key, rng):
    params, (x, y) = runs(rng, 3, "float32"), data(rng)
    done = ordinary(params, x, y, key)
    assert {leaf.dtype for leaf in jax.tree.leaves(done.params)} == {np.dtype(np.float32)}
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(done.params))
    for r in range(3):
        one = jax.tree.map(lambda a, r=r: a[r], params)
        loop = partial(
            plain.train, REFERENCE, one, x, y, key=key, run=r, epochs=EPOCHS, batch_size=BATCH
        )
        theta, _ = loop(optimizer=plain.Adam(0.05, 0.01))
        tolerance = ROUNDING * np.finfo(np.float32).eps / np.finfo(np.float64).eps
        np.testing.assert_allclose(
            plain.vector(done.member(run=r)), theta, rtol=tolerance, atol=tolerance
        )


def test_the_result_does_not_depend_on_the_global_flag(rng):
    params, (x, y), found = runs(rng, 3, "float32"), data(rng), []
    for flag, key in (
        (False, jax.random.key(0)),
        (True, jax.random.key(0)),
        (False, jax.random.PRNGKey(0)),
    ):
        with jax.enable_x64(flag):
            found.append(plain.vector(ordinary(params, x, y, key).params))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_full_batches_are_gradient_descent(key, rng):
    x, y, theta = rng.normal(size=(20, 3)), rng.normal(size=(20, 1)), rng.normal(size=(4, 3, 1))
    done = train(
        _linear,
        theta,
        x,
        y,
        key=key,
        epochs=50,
        loss=losses.half_squared_error,
        optimizer=optax.sgd(0.1),
    )
    hessian = x.T @ x / 20
    optimum = np.linalg.lstsq(x, y, rcond=None)[0]
    contraction = np.linalg.matrix_power(np.eye(3) - 0.1 * hessian, 50)
    np.testing.assert_allclose(done.params, optimum + contraction @ (theta - optimum), rtol=1e-12)


def _linear(params, x):
    return x @ params


def test_permutations_are_uniform_and_follow_the_plain_law(key, draws, tally):
    count = draws(4800)
    with jax.enable_x64(True):
        keys = jax.random.split(key, count)
        found = np.asarray(jax.jit(jax.vmap(partial(permutation, n=4)))(keys))
        long = np.asarray(permutation(jax.random.fold_in(jax.random.fold_in(key, 7), 2), 1000))
    assert np.array_equal(np.sort(found, axis=1), np.tile(np.arange(4), (count, 1)))
    _, occurrences = np.unique(found, axis=0, return_counts=True)
    expected = count / 24
    assert len(occurrences) == 24
    assert (
        (occurrences - expected) ** 2 / expected
    ).sum() < 64  # χ² with 23 degrees of freedom: one in 100,000 exceeds
    assert np.array_equal(long, plain.order(key, 7, 2, 1000))
    tally(count, of=count, what="permutations")


def test_the_groups_follow_from_members_and_memory_alone(monkeypatch, key, rng):
    """Whatever the number of cores, the bits are the same; another `chunk` changes the rounding."""
    params, (x, y), found = runs(rng, 6, "float32"), data(rng), []
    for cores, options, groups in (
        (1, {}, 2),
        (2, {}, 2),
        (64, {}, 2),
        (2, {"memory": 1}, 6),
        (2, {"chunk": 5}, 2),
    ):
        monkeypatch.setattr(lanes, "cores", lambda cores=cores: cores)
        done = ordinary(params, x, y, key, **options)
        assert done.history.attrs["groups"] == groups
        found.append(plain.vector(done.params))
    assert done.history.attrs["chunk"] == 5
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    rounding = ROUNDING * np.finfo(np.float32).eps / np.finfo(np.float64).eps
    for other in found[3:]:
        np.testing.assert_allclose(other, found[0], rtol=rounding, atol=rounding)


@pytest.mark.parametrize("members", [1, 2, 3, 7, 8, 16, 17, 45, 300, 4000])
def test_groups_are_neither_too_long_nor_too_few(members):
    cut = lanes.plan(members, 1, 2**40)
    assert (
        cut.length <= lanes.LARGEST_ON_CPU
        and (cut.length - 1) * cut.groups < members <= cut.length * cut.groups
    )
    assert members < 8 or cut.groups >= 4
    assert sorted({*cut.index.ravel().tolist()}) == list(range(members))


def test_one_network_is_trained_like_a_run_of_one(key, rng):
    params, (x, y) = runs(rng, 1, "float32"), data(rng)
    many = ordinary(params, x, y, key)
    one = ordinary(jax.tree.map(lambda a: a[0], params), x, y, key)
    assert one.axes == () and one.history.loss.dims == ("epoch",)
    assert np.array_equal(plain.vector(one.params), plain.vector(many.member(run=0)))
    assert np.array_equal(one.history.loss, many.history.loss[0])
    assert plain.vector(one.member()).shape == plain.vector(one.params).shape
    assert repr(one) == f"Training({NET!r}, one network; loss)"
    swept = ordinary(
        jax.tree.map(lambda a: a[0], params),
        x,
        y,
        key,
        hyper={"lr": [0.1, 0.05]},
        optimizer=adam_l2,
    )
    assert swept.axes == ("lr",) and swept.history.loss.shape == (2, EPOCHS + 1)


def test_where_shapes_leave_it_open_a_word_says_whether_there_are_runs(key):
    scale, x = np.ones((1, 1)), np.ones((4, 1))
    fit = partial(
        train,
        lambda params, x: params * x,
        scale,
        x,
        2 * x,
        key=key,
        epochs=1,
        optimizer=optax.sgd(0.1),
    )
    with pytest.raises(
        ValueError,
        match=r"`params` \(params \(1, 1\)\) may be one network or 1 of them: say `single=True`",
    ):
        fit()
    assert fit(single=True).params.shape == (1, 1) and fit(single=True).axes == ()
    assert fit(single=False).axes == ("run",)


def test_blocks_of_any_length_give_the_same_bits(monkeypatch, key, rng):
    params, (x, y) = runs(rng, 3, "float32"), data(rng)
    whole = ordinary(params, x, y, key, epochs=20, every=None)
    monkeypatch.setattr(job, "SECONDS_PER_BLOCK", 0.0)
    cut = ordinary(params, x, y, key, epochs=20, every=3)
    assert np.array_equal(plain.vector(whole.params), plain.vector(cut.params))
    assert np.array_equal(whole.history.loss[:, -1], cut.history.loss[:, -1])
    assert cut.history.epoch.values.tolist() == [0, 3, 6, 9, 12, 15, 18, 20]
    assert whole.history.epoch.values.tolist() == [0, 20]


def test_a_second_training_of_the_same_shapes_compiles_nothing(key, rng):
    ordinary(runs(rng, 3, "float32"), *data(rng), key)
    with compilations() as second:
        ordinary(
            runs(rng, 3, "float32"),
            *data(rng),
            jax.random.key(9),
            epochs=5,
            every=2,
            optimizer=adam_l2(0.05, 0.01),
        )
    assert second == []
    with compilations() as other:
        ordinary(runs(rng, 3, "float32"), *data(rng), key, optimizer=adam_l2(0.05, 0.02), probes=())
    assert len([name for name in other if "advance" in name]) == 1  # one program for all groups


def test_probes_traced_or_on_the_host_see_the_same_networks(key, rng):
    params, (x, y) = runs(rng, 3), data(rng)
    seen = []

    def largest(f, params, x, y):
        seen.append((type(params[0].weight), params[0].weight.shape, x.shape))
        return max(abs(leaf).max() for leaf in jax.tree.leaves(params))

    largest.host = True
    layer_norms = Probe(
        lambda f, params, x, y: jnp.stack([jnp.linalg.norm(layer.weight) for layer in params]),
        "layer_norms",
        ("layer",),
    )
    traced = Probe(
        lambda f, params, x, y: jnp.stack(
            [jnp.abs(a).max() for a in jax.tree.leaves(params)]
        ).max(),
        "traced",
    )
    given = [largest, layer_norms, traced, r_squared, weight_norm, LOSS]
    history = ordinary(params, x, y, key, probes=given).history
    assert history.largest.dims == ("run", "epoch") and history.layer_norms.dims == (
        "run",
        "epoch",
        "layer",
    )
    assert np.array_equal(history.largest, history.traced)
    assert set(seen) == {(np.ndarray, (4, 2), (SAMPLES, 2))} and len(seen) == 3 * (EPOCHS + 1)
    total = sum((leaf**2).reshape(3, -1).sum(1) for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(history.weight_norm[:, 0], np.sqrt(total), rtol=1e-14)
    spread = ((y - y.mean(0)) ** 2).mean()
    np.testing.assert_allclose(history.r_squared, 1 - history.loss / spread, rtol=1e-12)


def test_the_history_says_how_it_was_made_and_survives_a_file(key, rng, tmp_path):
    import xarray

    done = ordinary(runs(rng, 3, "float32"), *data(rng), key)
    made = done.history.attrs
    assert made["model"] == repr(NET) and made["optimizer"] == "adam_l2(lr=0.05, weight_decay=0.01)"
    assert made["batch_size"] == BATCH and made["epochs"] == EPOCHS and made["dtype"] == "float32"
    assert (
        made["loss"] == "mse"
        and made["device"].endswith("(cpu)")
        and f"jax {jax.__version__}" in made["versions"]
    )
    implementation, *words = made["key"].split()
    again = jax.random.wrap_key_data(np.array(words, np.uint32), impl=implementation)
    assert bool(again == key)
    done.history.to_netcdf(tmp_path / "history.nc")
    with xarray.open_dataset(tmp_path / "history.nc") as read:
        assert read.identical(done.history)
    assert repr(done) == f"Training({NET!r}, run 3; loss)"


def test_without_epochs_nothing_changes(key, rng):
    params, (x, y) = runs(rng, 3, "float32"), data(rng)
    done = ordinary(params, x, y, key, epochs=0)
    assert np.array_equal(plain.vector(done.params), plain.vector(params))
    assert done.history.loss.shape == (3, 1)


def test_any_optimiser_of_optax_trains(key, rng):
    x, y, theta = (
        rng.normal(size=(20, 3)),
        rng.normal(size=(20, 1)),
        np.float32(rng.normal(size=(2, 3, 1))),
    )
    schedule = optax.exponential_decay(0.1, transition_steps=10, decay_rate=0.5)
    for optimizer in (
        optax.adam(schedule),
        optax.polyak_sgd(),
    ):  # a schedule; one that needs the value of the loss
        done = train(_linear, theta, x, y, key=key, epochs=30, optimizer=optimizer, probes=[LOSS])
        assert (done.history.loss[:, -1] < 0.7 * done.history.loss[:, 0]).all()
        assert done.params.dtype == np.float32


def test_progress_is_shown_on_request(key, rng, capsys):
    ordinary(runs(rng, 3, "float32"), *data(rng), key)
    assert capsys.readouterr().err == ""
    ordinary(runs(rng, 3, "float32"), *data(rng), key, progress=True)
    said = capsys.readouterr().err
    assert "training, epochs" in said and f"{EPOCHS}/{EPOCHS}" in said


def test_the_room_exports_what_it_says():
    assert all(
        getattr(neuromanifold.dynamics, name).__doc__ for name in neuromanifold.dynamics.__all__
    )


def test_a_program_that_calls_lapack_runs_one_group_at_a_time(monkeypatch, key, rng):
    """Two at a time have been seen to wait for each other for ever."""

    def solved(params, x):
        return jnp.linalg.solve(params.T @ params + jnp.eye(3, dtype=params.dtype), x.T).T

    def refuse(*_):
        raise AssertionError("groups ran side by side")

    monkeypatch.setattr(lanes.Lanes, "together", refuse)
    x, y, theta = rng.normal(size=(20, 3)), rng.normal(size=(20, 3)), rng.normal(size=(4, 3, 3))
    done = train(solved, theta, x, y, key=key, epochs=20, batch_size=8, probes=[LOSS])
    assert done.history.attrs["groups"] == 2
    assert (done.history.loss[:, -1] < done.history.loss[:, 0]).all()
    with pytest.raises(AssertionError, match="side by side"):
        ordinary(runs(rng, 3, "float32"), *data(rng), key)


def test_blas_has_one_thread_while_probes_run_and_its_own_number_again_afterwards(key, rng):
    def threads() -> list[int]:
        return [
            library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
        ]

    probe = Probe(lambda f, params, x, y: max(threads()), "threads", host=True)
    before = threads()
    done = ordinary(runs(rng, 3, "float32"), *data(rng), key, epochs=0, probes=[probe])
    assert (done.history.threads == 1).all() and threads()[: len(before)] == before
