"""Random projections of gradients: inner products against the kernel, exact where nothing is
projected, and the same bytes after a kill.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.tangent.kernel import features as module

KEY = jax.random.key(5)
RNG = np.random.default_rng(0)
NET = nm.MLP((5, 8, 6, 3), "tanh")


def float64(tree):
    return jax.tree.map(lambda a: np.asarray(a, np.float64), tree)


PARAMS = float64(NET.init(key=jax.random.key(0), scheme=nm.init.he_bias))
X = RNG.normal(size=(12, 5))


def convolutional(p, x):
    window = jax.lax.conv_general_dilated(x, p["filters"], (1, 1), "SAME")
    return jnp.tanh(window + p["bias"][:, None, None]).reshape(len(x), -1) @ p["readout"]


def attention(p, x):
    """A table, a matrix on both sides, and a factor of the outputs."""
    h = p["table"][x]
    s = jax.nn.softmax(h @ p["query"] @ h.swapaxes(1, 2), -1)
    return (s @ h @ p["out"]).mean(1) * p["scale"]


def normal(*shape):
    return RNG.normal(size=shape)


CAST = {
    "perceptron": (NET, PARAMS, X),
    "convolutional": (
        convolutional,
        {"filters": normal(6, 2, 3, 3), "bias": normal(6), "readout": normal(6 * 16, 2)},
        normal(8, 2, 4, 4),
    ),
    "attention": (
        attention,
        {"table": normal(11, 4), "query": normal(4, 4), "out": normal(4, 3), "scale": normal(3)},
        RNG.integers(11, size=(9, 7)),
    ),
}


def largest_error(rows: np.ndarray, kernel: np.ndarray) -> float:
    """The largest error of an inner product in units of ‖u‖‖v‖."""
    size = np.sqrt(np.diag(kernel))
    return float(np.abs((rows @ rows.T - kernel) / np.outer(size, size)).max())


def johnson_lindenstrauss(rows: int, k: int, failing: float = 1e-6) -> float:
    """The ε with 2N² exp(−k(ε²/4 − ε³/6)) = `failing`."""
    wanted = math.log(2 * rows**2 / failing) / k
    found = np.linspace(0, 1, 100_001)
    return float(found[np.argmax(found**2 / 4 - found**3 / 6 >= wanted)])


@pytest.mark.parametrize("name", CAST)
def test_inner_products_are_the_kernel_within_the_bound(name):
    f, params, x = CAST[name]
    kernel = np.asarray(nm.ntk(f, params, x))
    size = sum(a.size for a in jax.tree.leaves(params))
    k = size - 1
    rows = np.asarray(nm.features(f, params, x, key=KEY, k=k))
    assert rows.shape == (len(kernel), k)
    spread = largest_error(rows, kernel)
    bound = johnson_lindenstrauss(len(rows), k)
    # At these sizes the uniform bound says little (ε above 1 is written as 0); the variance of
    # each product, at most (‖u‖²‖v‖² + ⟨u, v⟩²)/k, says more: five standard deviations.
    assert spread < (bound or math.inf)
    assert spread < 5 * math.sqrt(2 / k)
    # The control: rows in another order are no rows of this kernel.
    assert largest_error(rows[::-1], kernel) > 5 * math.sqrt(2 / k)


def test_many_features_reach_the_uniform_bound():
    x = RNG.normal(size=(6, 6000))
    rows = np.asarray(nm.features(lambda w, x: x @ w, np.zeros((6000, 1)), x, key=KEY, k=4000))
    bound = johnson_lindenstrauss(6, 4000)
    assert 0 < largest_error(rows, x @ x.T) < bound < 0.25


def test_the_projection_is_unbiased_and_has_independent_signs():
    """At the unit vectors the rows of a linear model are those of P."""
    P = np.asarray(nm.features(lambda w, x: x @ w, np.zeros((600, 1)), np.eye(600), key=KEY, k=96))
    assert set(np.unique(np.round(P * math.sqrt(96), 12))) == {-1.0, 1.0}
    values = np.linalg.eigvalsh(P.T @ P) * 96 / 600
    edge = (1 - math.sqrt(96 / 600)) ** 2, (1 + math.sqrt(96 / 600)) ** 2  # Marchenko and Pastur
    assert edge[0] - 0.1 < values.min() and values.max() < edge[1] + 0.1
    assert abs(P.mean()) < 5 / math.sqrt(P.size) / math.sqrt(96)


def test_with_as_many_as_parameters_they_are_the_gradients():
    rows = nm.features(NET, PARAMS, X, key=KEY, k=10**6)
    assert np.array_equal(np.asarray(rows), np.asarray(nm.jacobian(NET, PARAMS, X)))
    head = nm.features(NET, PARAMS, X, key=KEY, k=10**6, wrt="2")
    assert np.array_equal(np.asarray(head), np.asarray(nm.jacobian(NET, PARAMS, X, wrt="2")))


@pytest.mark.parametrize("name", ["perceptron", "attention"])
def test_those_of_a_loss_are_the_outputs_weighted_by_its_slope(name):
    """The same projection, whatever is differentiated: those of losses and of outputs go
    together.
    """
    f, params, x = CAST[name]
    with jax.enable_x64(True):
        y = np.eye(3)[RNG.integers(3, size=len(x))]
        slopes = np.asarray(jax.nn.softmax(f(jax.tree.map(jnp.asarray, params), x))) - y
    rows = np.asarray(nm.features(f, params, x, key=KEY, k=40)).reshape(len(x), 3, 40)
    found = nm.features(f, params, x, y, key=KEY, k=40, loss=nm.losses.cross_entropy)
    expected = np.einsum("no,nok->nk", slopes, rows)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12 * np.abs(expected).max())


def test_seeds_reproduce_and_blocks_change_nothing():
    whole = np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=64))
    assert np.array_equal(whole, np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=64)))
    blocked = np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=64, memory=40_000))
    np.testing.assert_allclose(blocked, whole, atol=1e-13 * np.abs(whole).max())
    other = np.asarray(nm.features(NET, PARAMS, X, key=jax.random.key(6), k=64))
    assert np.abs(other - whole).max() > 0.1 * np.abs(whole).max()
    parts = [nm.features(NET, PARAMS, X, key=KEY, k=40, wrt=names) for names in ("0", ["1", "2"])]
    together = np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=40))
    np.testing.assert_allclose(
        np.asarray(parts[0]) + np.asarray(parts[1]),
        together,
        atol=1e-13 * np.abs(together).max(),
    )


def test_single_precision_stays_and_gives_the_same_to_its_digits():
    small = jax.tree.map(lambda a: a.astype(np.float32), PARAMS)
    found = np.asarray(nm.features(NET, small, X.astype(np.float32), key=KEY, k=64))
    exact = np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=64))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())


class Killed(Exception):
    pass


def test_a_killed_call_goes_on_and_gives_the_same_bytes(tmp_path, monkeypatch):
    options = {"key": KEY, "k": 64, "tile": 5}
    whole = nm.features(NET, PARAMS, X, store=tmp_path / "whole", **options)
    write, written = module.Store.write, []

    def until_the_second(self, i, j, block):
        if len(written) == 2:
            raise Killed
        written.append(i)
        write(self, i, j, block)

    monkeypatch.setattr(module.Store, "write", until_the_second)
    with pytest.raises(Killed):
        nm.features(NET, PARAMS, X, store=tmp_path / "killed", **options)
    monkeypatch.setattr(module.Store, "write", write)
    assert not np.isfinite(np.asarray(module.Store.array(_place(tmp_path / "killed"))[:])).all()
    again = nm.features(NET, PARAMS, X, store=tmp_path / "killed", **options)
    assert written == [0, 1] and np.array_equal(again[:], whole[:])
    np.testing.assert_allclose(
        whole[:], np.asarray(nm.features(NET, PARAMS, X, key=KEY, k=64)), rtol=1e-12
    )
    (tmp_path / "whole" / "kernel.zarr" / "c" / "1" / "0").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="1 tiles of .* were damaged"):
        mended = nm.features(NET, PARAMS, X, store=tmp_path / "whole", **options)
    assert np.array_equal(mended[:], again[:])


def _place(folder):
    return module.Store(folder, 36, 15, "float64", 64)


@pytest.mark.parametrize(
    "change",
    [{"key": jax.random.key(6)}, {"k": 32}, {"wrt": "0"}, {"y": np.zeros((12, 3))}],
    ids=["key", "k", "wrt", "y"],
)
def test_other_features_are_not_mixed_with_what_is_stored(change, tmp_path):
    options = {"key": KEY, "k": 24, "store": tmp_path, "tile": 6}
    nm.features(NET, PARAMS, X, **options)
    with pytest.raises(ValueError, match="holds something else"):
        nm.features(NET, PARAMS, X, **(options | change))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"k": 0}, "`k` is 0; pass a number of features, 1 or more"),
        ({"k": 2.5}, "`k` is 2.5"),
        ({"wrt": "7"}, "`wrt` is|`wrt` has '7', which names no parameter"),
        ({"tile": 0, "store": "/nonexistent/x"}, "`tile` is 0"),
        ({"key": None}, "`key`"),
    ],
)
def test_bad_arguments_are_named(options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        nm.features(NET, PARAMS, X, **({"key": KEY} | options))
