"""Discovery: the orbit and nullity of networks whose symmetries are known, all affine fields as
second route, what must not be found.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS

QUICK = ("normalised", "biased attention", "block")


def found(name, rng, key, **options):
    net = NETS[name]
    params, x = net.draw(rng)
    return net, params, x, S.discover(net.f, params, x, key=key, batch=net.batch, **options)


def moved(f, params, element, x):
    with arithmetic():
        before, after = (np.asarray(f(p, x)) for p in (params, element(params)))
        return np.abs(after - before).max() / np.abs(before).max()


def test_every_orbit_and_nullity_of_the_reference(rng, key, draws, tally):
    """The quick ones; all of them, at 5 seeds: `pytest tests/symmetry/test_discover.py --draws
    5`.
    """
    names = NETS if draws(1) > 1 else QUICK
    for name in names:
        for k in jax.random.split(key, draws(1)):
            net, params, x, answer = found(name, rng, k)
            assert answer.decided and answer.orbit == net.orbit, (name, answer)
            assert answer.unnamed == 0, (name, str(answer))
            assert answer.nullity == net.nullity if net.nullity else answer.nullity >= net.orbit, (
                name,
                answer,
            )
            assert moved(net.f, params, answer.group.sample(key=k), x) < 1e-10
    tally(len(names) * draws(1), of=len(NETS) * draws(1), what="networks of the reference")


def test_all_affine_fields_give_the_same_orbit(rng, key, draws):
    """Second route: D² + D unknowns, no labels of axes, no renaming of places."""
    for name in (
        [name for name, net in NETS.items() if net.size < 40] if draws(1) > 1 else ("softmax",)
    ):
        *_, answer = found(name, rng, key, keys=1, ansatz="all")
        assert answer.orbit == NETS[name].orbit and answer.gap > 1e6, (name, answer)


def test_a_bent_network_without_homogeneous_units_has_none(rng, key):
    """Negative control: a SiLU unit cannot be scaled, so nothing continuous is left."""
    params, x = (
        {"w": rng.normal(size=(2, 3)), "v": rng.normal(size=(3, 1))},
        rng.normal(size=(2, 2)),
    )
    answer = S.discover(lambda p, x: jax.nn.silu(x @ p["w"]) @ p["v"], params, x, key=key, keys=1)
    assert answer.orbit == answer.nullity == 0 and answer.decided and not answer.named


def test_parameters_that_make_f_undefined_are_refused(key):
    with pytest.raises(ArithmeticError, match="keep what must be positive"):
        S.discover(lambda p, x: x * jnp.sqrt(p), np.ones(2), np.ones((1, 2)), key=key, keys=1)


def test_an_unknown_ansatz_is_refused(key):
    with pytest.raises(ValueError, match="`ansatz` is 'some'; pass 'axes' or 'all'"):
        S.discover(lambda p, x: x * p, np.ones(2), np.ones((1, 2)), key=key, ansatz="some")


def test_what_the_nullity_has_beyond_the_orbit():
    """Normalised inputs sum to zero: rational in the gains. A batch in which one unit is off:
    its five parameters. Gains alone: nothing.
    """
    expected = {"layer norm": (2, 0, 0), "normalised batch": (0, 5, 0), "rms norm": (0, 0, 0)}
    for name, parts in expected.items():
        net = NETS[name]
        params, x = net.draw(np.random.default_rng(2))
        answer = S.discover(net.f, params, x, key=jax.random.key(2), batch=net.batch, keys=1)
        excess = answer.excess
        assert (excess.rational, excess.held, excess.rest) == parts, (name, answer)
        assert excess.total == answer.nullity - answer.orbit
        assert ("beyond the orbit" in str(answer)) == (excess.total > 0)
        assert excess.folded == (("g", "b") if name == "layer norm" else ())


def test_batch_normalisation_with_an_epsilon_keeps_the_shifts_and_loses_the_scale_of_what_it_normalises(
    rng, key
):
    """With ε = 0 each channel has three: the shift c (free), W → sW (s of its norm), gain against
    the next weights.

    With ε > 0 the variance is compared with ε: W → sW changes the function, two are left for each
    channel.
    """
    net = NETS["normalised batch"]

    def steady(p, x):
        z = x @ p["w"] + p["c"]
        return jax.nn.relu((z - z.mean(0)) / jnp.sqrt(z.var(0) + 0.5) * p["g"] + p["b"]) @ p["v"]

    params, x = net.draw(rng)
    answer = S.discover(steady, params, x, key=key, batch=True, keys=2)
    assert answer.decided and answer.orbit == 4 and answer.unnamed == 0
    assert sorted((each.kind, each.adds) for each in answer.named) == [("free", 2), ("scaling", 2)]


def test_batch_normalisation_in_training_mode_takes_the_batch_as_one_input(rng, key):
    """Scale and shift of what is normalised are absorbed: W → sW and c → c + t for each channel,
    beside gain against what reads it.

    Without `batch=True` the rows of such a model influence each other, and it is refused; so does
    every other function. Negative controls: in evaluation mode c is no longer free, and a model
    without statistics is the same either way.
    """
    net = NETS["normalised batch"]
    params, x = net.draw(rng)
    answer = S.discover(net.f, params, x, key=key, batch=True, keys=1)
    names = {(each.kind, each.space): each.adds for each in answer.named}
    assert (
        answer.orbit == 6
        and sum(count for (kind, _), count in names.items() if kind == "free") == 2
    )
    assert sum(count for (kind, _), count in names.items() if kind == "scaling") == 4
    for absorbed in ({**params, "w": 3.0 * params["w"]}, {**params, "c": params["c"] + 2.0}):
        with arithmetic():
            np.testing.assert_allclose(net.f(absorbed, x), net.f(params, x), rtol=1e-12)
    for rows in (x, x[:1]):
        with pytest.raises(
            ArithmeticError,
            match=r"`f` mixes its rows: .*; pass `batch=True`, so that all of `x` is one input",
        ):
            S.discover(net.f, params, rows, key=key)
    for call in (
        S.channel_scalings,
        S.reduce_width,
        S.dimension_account,
        lambda f, p, x: S.symmetry_group(f, p, x),
    ):
        with pytest.raises(ArithmeticError, match="`f` mixes its rows"):
            call(net.f, params, x)
    fixed = NETS["normalised"]
    with arithmetic():
        moved = np.abs(fixed.f({**params, "c": params["c"] + 2.0}, x) - fixed.f(params, x)).max()
    assert moved > 1e-3
    plain = lambda p, x: jax.nn.relu(x @ p["w"] + p["c"]) @ p["v"]  # noqa: E731
    few = {name: params[name] for name in ("w", "c", "v")}
    orbits = [
        S.discover(plain, few, x, key=key, batch=batch, keys=1).orbit for batch in (False, True)
    ]
    assert orbits == [2, 2]


def test_a_second_call_compiles_nothing_and_does_not_read_f(rng, key):
    """Of everything that is asked of a graph's symmetries; negative control: another width."""
    readings = []

    def f(params, x):
        readings.append(x.shape)
        return jnp.tanh(jax.nn.relu(x @ params["w"] + params["b"]) @ params["v"]) @ params["u"]

    def drawn(width):
        shapes = {"w": (2, width), "b": (width,), "v": (width, 2), "u": (2, 1)}
        params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        return params, rng.normal(size=(6, 2))

    def ask(params, x):
        S.discover(f, params, x, key=key)
        nm.symmetry_group(f, params, x)
        S.structural_symmetries(f, params, x)
        nm.dimension_account(f, params, x)

    given = drawn(3)
    ask(*given)
    readings.clear()
    with compilations() as compiled:
        ask(*given)
    assert not compiled and not readings
    with compilations() as compiled:
        nm.symmetry_group(f, *drawn(4))
    assert compiled and readings
