"""Ranks along any network, against NumPy's singular values of matrices formed another way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.bottleneck import ranks_along
from neuromanifold.bottleneck.along import stable_rank

Stage = Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class Network:
    """f as stages (params, z) → z′, one for each cut; `products` are the layers' outputs as
    functions of (params, x), rows by channels; `matrices` their weights.
    """

    shapes: dict[str, tuple[int, ...]]
    sample: tuple[int, ...]
    stages: tuple[Stage, ...]
    products: dict[str, Callable[[Any, Any], Any]]
    planted: str

    def __call__(self, params: Any, x: Any) -> Any:
        for stage in self.stages:
            x = jax.vmap(lambda z, stage=stage: stage(params, z))(x)
        return x

    def draw(self, rng: np.random.Generator, *, plant: bool) -> dict[str, np.ndarray]:
        params = {k: rng.normal(size=shape) for k, shape in self.shapes.items()}
        if plant:
            W = params[self.planted]
            rows = W.reshape(len(W), -1)
            rows[2:] = rng.normal(size=(len(W) - 2, 2)) @ rows[:2]
        return params


def convolved(z: Any, kernel: Any, stride: int = 1) -> Any:
    return jax.lax.conv_general_dilated(z[None], kernel, (stride, stride), "SAME")[0]


def channels(z: Any) -> Any:
    """(channels, height, width) as places by channels."""
    return z.reshape(len(z), -1).T


def after(count: int, last: Stage, stages: tuple[Stage, ...]) -> Callable[[Any, Any], Any]:
    """`last` of what the first stages give."""

    def product(params: Any, z: Any) -> Any:
        for stage in stages[:count]:
            z = stage(params, z)
        return last(params, z)

    return product


def _itself(params: Any, z: Any) -> Any:
    return z


def _convolutional() -> Network:
    stages = (
        lambda p, z: jax.nn.relu(convolved(z, p["a"])),
        lambda p, z: jax.nn.relu(convolved(z, p["b"], 2)),
        lambda p, z: p["head"] @ z.ravel(),
    )
    products = {
        "a": after(0, lambda p, z: channels(convolved(z, p["a"])), stages),
        "b": after(1, lambda p, z: channels(convolved(z, p["b"], 2)), stages),
        "head": after(2, lambda p, z: (p["head"] @ z.ravel())[None], stages),
    }
    shapes = {"a": (4, 2, 3, 3), "b": (5, 4, 3, 3), "head": (3, 45)}
    return Network(shapes, (2, 6, 6), stages, products, "b")


def _residual() -> Network:
    stages = (
        lambda p, z: p["in"] @ z,
        lambda p, z: z + p["down"] @ jnp.tanh(p["up"] @ z),
        lambda p, z: p["head"] @ z,
    )
    products = {
        "in": after(0, lambda p, z: (p["in"] @ z)[None], stages),
        "up": after(1, lambda p, z: (p["up"] @ z)[None], stages),
        "down": after(1, lambda p, z: (p["down"] @ jnp.tanh(p["up"] @ z))[None], stages),
        "head": after(2, lambda p, z: (p["head"] @ z)[None], stages),
    }
    shapes = {"in": (6, 5), "up": (9, 6), "down": (6, 9), "head": (3, 6)}
    return Network(shapes, (5,), stages, products, "in")


def _attention() -> Network:
    def mixed(p: Any, z: Any) -> Any:
        scores = jax.nn.softmax((z @ p["q"].T) @ (z @ p["k"].T).T)
        return scores @ (z @ p["v"].T)

    stages = (
        lambda p, z: (z + mixed(p, z) @ p["o"].T).mean(axis=0),
        lambda p, z: p["head"] @ z,
    )
    products = {
        name: after(0, lambda p, z, name=name: z @ p[name].T, stages) for name in ("q", "k", "v")
    }
    products["o"] = after(0, lambda p, z: mixed(p, z) @ p["o"].T, stages)
    products["head"] = after(1, lambda p, z: (p["head"] @ z)[None], stages)
    shapes = {"q": (4, 5), "k": (4, 5), "v": (4, 5), "o": (5, 4), "head": (3, 5)}
    return Network(shapes, (4, 5), stages, products, "v")


NETWORKS = {"convolutional": _convolutional(), "residual": _residual(), "attention": _attention()}


def same(found: Any, expected: np.ndarray) -> None:
    scale = max(1e-300, float(expected[0]))
    values = np.asarray(found.spectrum)[: len(expected)]
    np.testing.assert_allclose(values, expected[: len(values)], rtol=0, atol=1e-12 * scale)
    assert (expected[len(values) :] <= 1e-12 * scale).all()


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("plant", [False, True])
def test_ranks_along_are_those_of_matrices_formed_another_way(
    kind: str, plant: bool, rng: np.random.Generator
):
    net = NETWORKS[kind]
    params, x = net.draw(rng, plant=plant), rng.normal(size=(20, *net.sample))
    found = ranks_along(net, params, x, samples=2)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name.keys() == net.products.keys() and not found.left_out
    with jax.enable_x64(True):
        for name, product in net.products.items():
            W = params[name].reshape(len(params[name]), -1)
            same(by_name[name].weight, np.linalg.svd(W, compute_uv=False))
            Y = np.concatenate([np.asarray(product(params, one)) for one in x])
            expected = np.linalg.svd(Y / np.sqrt(len(Y)), compute_uv=False)
            same(by_name[name].representation, expected)
        assert len(found.cuts) == len(net.stages) and found.jacobians_at == 2
        z, points = x[:2], []
        for stage in net.stages:
            points.append(z)
            z = jax.vmap(lambda one, stage=stage: stage(params, one))(z)
        for k, (cut, z) in enumerate(zip(found.cuts, points, strict=True)):
            onward = after(len(net.stages) - k, _itself, net.stages[k:])
            for rank, fn in ((cut.to_output, onward), (cut.block, net.stages[k])):
                J = np.asarray(jax.vmap(jax.jacobian(fn, argnums=1), (None, 0))(params, z))
                J = J.reshape(2, -1, cut.size)
                spectra = np.linalg.svd(J, compute_uv=False)
                assert int(rank) == max(np.linalg.matrix_rank(j) for j in J)
                distance = min(np.abs(rank.spectrum - s).max() / s[0] for s in spectra)
                assert distance < 1e-12
    assert found.deficient == ((net.planted,) if plant else ())
    assert int(by_name[net.planted].weight) == (2 if plant else min(len(params[net.planted]), 5))
    assert found.structure is None and "measured only" in str(found)


def test_a_rank_planted_in_float32_is_seen_at_that_precision(rng: np.random.Generator):
    net = NETWORKS["residual"]
    params = {k: a.astype(np.float32) for k, a in net.draw(rng, plant=True).items()}
    x = rng.normal(size=(20, 5)).astype(np.float32)
    assert ranks_along(net, params, x).deficient == ("in",)
    exact = {k: a.astype(np.float64) for k, a in params.items()}
    assert (
        ranks_along(net, exact, x.astype(np.float64)).deficient == ()
    )  # 1e-8 is no rounding there
    assert {int(cut.block) for cut in ranks_along(net, params, x).cuts} == {2, 3, 6}


def test_a_small_singular_value_of_a_float32_matrix_counts_where_rounding_cannot_make_it(
    rng: np.random.Generator,
):
    """Rounding the entries moves it by ε‖W‖_F/2 at most, though it lies below 400 ε of the largest.
    The control has one row that is the sum of the others.
    """
    epsilon = float(np.finfo(np.float32).eps)
    left, values, right = np.linalg.svd(rng.standard_normal((400, 400)))
    values[-1] = 1e-5 * values[0]
    W = ((left * values) @ right).astype(np.float32)
    exact = np.linalg.svd(W.astype(np.float64), compute_uv=False)
    assert epsilon * np.linalg.norm(exact) < exact[-1] < 400 * epsilon * exact[0]
    [layer] = ranks_along(lambda p, x: x @ p["w"], {"w": W}, np.ones((1, 400))).layers
    assert int(layer.weight) == np.linalg.matrix_rank(W.astype(np.float64)) == 400
    W[0] = W[1:].sum(axis=0)
    [layer] = ranks_along(lambda p, x: x @ p["w"], {"w": W}, np.ones((1, 400))).layers
    assert int(layer.weight) == 399 < np.linalg.matrix_rank(W.astype(np.float64))


def test_the_paper_s_reading_comes_where_its_hypotheses_hold(rng: np.random.Generator):
    net = nm.MLP((3, 4, 4, 2), bias=False)
    params, x = net.init(key=jax.random.key(0)), rng.normal(size=(30, 3)).astype(np.float32)
    found, expected = (
        ranks_along(net, params, x),
        nm.bottleneck.bottleneck_structure(net, params, x),
    )
    assert found.structure.rank == expected.rank
    for layer, values in zip(found.layers, expected.data["singular_values"].values, strict=True):
        same(layer.weight, values[np.isfinite(values)])
    for layer, values in zip(
        found.layers, expected.data["preactivation_singular_values"].values, strict=True
    ):
        same(layer.representation, values[np.isfinite(values)])
    steep = nm.MLP((3, 4, 4, 2), "power(2)", bias=False)
    refused = ranks_along(steep, params, x)
    assert refused.structure is None and "slopes from" in refused.why


def test_of_many_outputs_some_combinations_are_followed_back(rng: np.random.Generator):
    params, x = rng.normal(size=(100, 30)), rng.normal(size=(4, 30))
    found = ranks_along(lambda W, x: jnp.tanh(x @ W.T), params, x)
    [cut] = found.cuts
    assert (cut.of, int(cut.to_output), int(cut.block)) == (16, 16, 30)
    params[3:] = params[:1]
    [cut] = ranks_along(lambda W, x: jnp.tanh(x @ W.T), params, x).cuts
    assert (cut.of, int(cut.to_output), int(cut.block)) == (16, 3, 3)


def test_a_million_outputs_need_no_square_matrix_of_that_size(rng: np.random.Generator):
    """A language model's logits: the identity of their number would take 8 TB."""
    params = {"w": rng.normal(size=(3, 4)), "out": rng.normal(size=(4, 1_000_000))}
    x = rng.normal(size=(2, 3))
    found = ranks_along(lambda params, x: (x @ params["w"]) @ params["out"], params, x, samples=2)
    assert [int(layer.representation) for layer in found.layers] == [2, 2]
    assert [int(cut.to_output) for cut in found.cuts] == [3, 4]


def test_stable_rank():
    found = nm.numerics.Rank(np.int64(2), np.array([2.0, 1.0]), np.float64(0), np.float64(1))
    assert stable_rank(found) == 1.25


def test_a_wrong_number_of_samples_is_refused():
    with pytest.raises(ValueError, match="`samples` is 0; pass the number of samples"):
        ranks_along(lambda W, x: x @ W, np.eye(2), np.eye(2), samples=0)
