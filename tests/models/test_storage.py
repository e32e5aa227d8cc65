"""Files: what is saved comes back, what is damaged is named, and nothing in a file is executed."""

import os
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import cast
import neuromanifold as nm

WEIGHTS = {
    "0.weight": np.arange(6.0).reshape(3, 2),
    "0.bias": np.arange(3.0),
    "2.weight": np.ones((1, 3)),
    "2.bias": np.zeros(1),
}


def same(a, b) -> bool:
    leaves = list(zip(*map(jax.tree.leaves, (a, b)), strict=True))
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        u.dtype == v.dtype and np.array_equal(u, v) for u, v in leaves
    )


@pytest.mark.parametrize("member", cast.MLPS, ids=str)
def test_a_saved_network_comes_back(member: cast.Member, rng: np.random.Generator, tmp_path: Path):
    params = member.draw(rng)
    net, loaded = nm.load(nm.save(tmp_path / "net.safetensors", member.model, params))
    assert net == member.model
    assert same(loaded, params)


@pytest.mark.parametrize(
    "dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64], ids=lambda t: t.__name__
)
def test_every_width_of_float_comes_back_bit_by_bit(dtype, key: jax.Array, tmp_path: Path):
    net = nm.MLP((2, 3, 1))
    params = jax.tree.map(np.asarray, net.init(key=key, dtype=dtype))
    _, loaded = nm.load(nm.save(str(tmp_path / "net.safetensors"), net, params))
    assert same(loaded, params)
    assert not same(loaded, jax.tree.map(lambda leaf: np.nextafter(leaf, leaf + 1), params))


def test_a_file_that_exists_is_replaced_whole_or_not_at_all(key: jax.Array, tmp_path: Path):
    net, path = nm.MLP((2, 3, 1)), tmp_path / "net.safetensors"
    params = net.init(key=key)
    nm.save(path, net, params)
    with pytest.raises(ValueError, match="`params` is 1 layers but the network has 2 layers"):
        nm.save(path, net, params[:1])
    assert same(nm.load(path)[1], jax.tree.map(np.asarray, params))
    assert os.listdir(tmp_path) == ["net.safetensors"]


@pytest.mark.parametrize("prefix", ["", "layers.", "model.mlp."])
def test_weights_of_other_programs(prefix: str, tmp_path: Path):
    named = {prefix + name: array for name, array in WEIGHTS.items()}
    np.savez(tmp_path / "net.npz", **named)
    save_file(named, tmp_path / "net.safetensors")
    for file in ("net.npz", "net.safetensors"):
        net, params = nm.load(tmp_path / file, activation="tanh")
        assert net == nm.MLP((2, 3, 1), "tanh")
        assert [array.tolist() for layer in params for array in layer] == [
            a.tolist() for a in WEIGHTS.values()
        ]


def test_layers_are_ordered_by_number_and_not_by_letter(tmp_path: Path):
    np.savez(tmp_path / "net.npz", **{"10.weight": np.ones((1, 3)), "2.weight": np.ones((3, 2))})
    assert nm.load(tmp_path / "net.npz", activation="relu")[0] == nm.MLP((2, 3, 1), bias=False)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(
        FileNotFoundError, match=r"`path` is '.*nowhere\.safetensors', which does not exist; pass a"
    ):
        nm.load(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"hello", lambda b: b"", lambda b: b[:-7], lambda b: b[:40], lambda b: b"{" + b],
)
@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_corrupt_file_is_named(damage, suffix: str, key: jax.Array, tmp_path: Path):
    path = tmp_path / f"net.{suffix}"
    if suffix == "npz":
        np.savez(path, **WEIGHTS)
    else:
        net = nm.MLP((2, 3, 1))
        nm.save(path, net, net.init(key=key))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"net\.{suffix}.* cannot be read .*damaged"):
        nm.load(path, activation="relu")


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    for name in ("net.h5", "net.npy", "net.json", "net"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(
            ValueError,
            match=rf"`path` is '.*{name}'; pass a \.safetensors, \.npz, \.pt, \.pth or \.pt2",
        ):
            nm.load(tmp_path / name)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def test_nothing_in_a_file_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "net.npz", **{"0.weight": np.array([Bomb()], dtype=object)})
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Bomb()))
    for file in ("net.npz", "raw.npz"):
        with pytest.raises(ValueError, match="cannot be read"):
            nm.load(tmp_path / file, activation="relu")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "arrays, text",
    [
        ({}, "holds nothing"),
        (
            {"foo": np.ones((3, 2))},
            r"holds foo \(3, 2\); a file alone is enough for stacked linear layers .* add --factory",
        ),
        (
            {"0.weight": np.ones((3, 2)), "1.weight": np.ones((2, 4))},
            "each taking what the one before it gives",
        ),
        (
            {"0.weight": np.ones((3, 2, 2))},
            r"holds 0\.weight \(3, 2, 2\); a file alone is enough for stacked linear layers",
        ),
        (
            {"0.weight": np.ones((3, 2)), "0.bias": np.ones(4)},
            r"`params\[0\].bias` has shape \(4,\); the network needs \(3,\)",
        ),
        ({"0.weight": np.full((3, 2), np.nan)}, r"`params\[0\].weight` is nan"),
        ({"0.weight": np.ones((3, 2), int)}, "int64"),
        ({"0.weight": np.ones((3, 2), complex)}, "complex128"),
    ],
)
def test_arrays_that_are_no_network_are_refused(arrays: dict, text: str, tmp_path: Path):
    np.savez(tmp_path / "net.npz", **arrays)
    with pytest.raises((ValueError, TypeError), match=text):
        nm.load(tmp_path / "net.npz", activation="relu")


def test_the_activation_is_asked_for_where_the_file_does_not_say_it(tmp_path: Path):
    np.savez(tmp_path / "net.npz", **WEIGHTS)
    with pytest.raises(ValueError, match=r"`activation` is needed: net\.npz does not say which"):
        nm.load(tmp_path / "net.npz")


def test_an_activation_that_contradicts_the_file_is_refused(key: jax.Array, tmp_path: Path):
    net = nm.MLP((2, 3, 1), "tanh")
    path = nm.save(tmp_path / "net.safetensors", net, net.init(key=key))
    assert nm.load(path, activation="tanh")[0] == net
    with pytest.raises(ValueError, match="`activation` is 'relu'"):
        nm.load(path, activation="relu")


@pytest.mark.parametrize("file", ["net.npz", "net.pkl", "net"])
def test_a_name_that_could_not_be_read_back_is_refused(file: str, key: jax.Array, tmp_path: Path):
    net = nm.MLP((2, 3, 1))
    with pytest.raises(ValueError, match=r"`path` is .*\.safetensors"):
        nm.save(tmp_path / file, net, net.init(key=key))
    assert not list(tmp_path.iterdir())


def test_a_function_that_no_file_can_hold_is_refused(key: jax.Array, tmp_path: Path):
    net = nm.MLP((2, 3, 1), nm.Activation(lambda z: z**3 + z, name="relu"))
    with pytest.raises(
        ValueError, match=r"`net` uses .* no file can hold; save networks with built-in activations"
    ):
        nm.save(tmp_path / "net.safetensors", net, net.init(key=key))
