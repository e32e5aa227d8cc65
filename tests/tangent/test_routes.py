"""The ways of the kernel: tables that are looked up, matrices used several times, pooling at
ties, constants, against the Jacobian.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.graph.selection import select
from neuromanifold.tangent.kernel import contraction, routes, tiles

N = 3


def dense_kernel(f: Any, params: Any, x: Any) -> np.ndarray:
    """J Jᵀ by JAX's own reverse mode, in float64."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), params)
        rows = jax.jacrev(lambda p: f(p, jnp.asarray(x)).reshape(len(x), -1))(wide)
        J = np.concatenate(
            [
                np.asarray(leaf).reshape(-1, a.size)
                for leaf, a in zip(jax.tree.leaves(rows), jax.tree.leaves(params), strict=True)
            ],
            axis=1,
        )
    return J @ J.T


def ways(f: Any, params: Any, x: Any, *, trace: bool = False) -> dict[str, str]:
    return dict(
        line.split(None, 1)
        for line in str(nm.tangent.kernel_plan(f, params, x, trace=trace)).splitlines()
    )


def language_model(mode: str | None = None) -> Any:
    """Tokens looked up, mixed over places, all logits."""

    def f(p: Any, x: Any) -> Any:
        h = p["embed"][x] if mode is None else jnp.take(p["embed"], x, axis=0, mode=mode)
        return jnp.tanh(jnp.einsum("ntc,st->nsc", h, p["mix"]) @ p["inner"]) @ p["out"]

    return f


def drawn_language_model(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "embed": rng.normal(size=(40, 5)),
        "mix": rng.normal(size=(4, 4)),
        "inner": rng.normal(size=(5, 6)),
        "out": rng.normal(size=(6, 7)),
    }


@pytest.mark.parametrize(
    "mode, kind",
    [
        (None, "all"),
        (None, "trace"),
        (None, "diagonal"),
        ("clip", "all"),
        ("fill", "all"),
        ("wrap", "all"),
    ],
)
def test_tables_are_compared_by_their_indices(
    mode: str | None, kind: str, rng: np.random.Generator
):
    """Repeated, negative and (where the mode allows them) too large tokens; another table row
    would give another kernel.
    """
    f, params = language_model(mode), drawn_language_model(rng)
    x = np.array([[0, 3, 3, -1], [39, 3, 0, 7], [5, 5, 5, 5]])
    x = x + 41 * (np.arange(12).reshape(3, 4) == 6) if mode in ("clip", "wrap") else x
    assert ways(f, params, x)["embed"] == "gram"
    options = {} if kind == "all" else {kind: True}
    expected, full = dense_kernel(f, params, x), nm.ntk(f, params, x, **options)
    blocks = expected.reshape(3, 28, 3, 28)
    wanted = {
        "all": expected,
        "trace": np.einsum("iaja->ij", blocks),
        "diagonal": np.einsum("iaja->ija", blocks),
    }[kind]
    np.testing.assert_allclose(full, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    other = nm.ntk(f, params, np.where(x == 7, 8, x), **options)
    assert np.abs(other - wanted).max() > 1e-3 * np.abs(wanted).max()


def test_small_tables_and_tied_ones_keep_their_jacobian(rng: np.random.Generator):
    """More places than rows: the Jacobian is cheaper. A table that is also multiplied by is no
    table of rows alone.
    """
    params = {"embed": rng.normal(size=(2, 3))}
    x = rng.integers(0, 2, (N, 30))

    def summed(p: Any, x: Any) -> Any:
        return jnp.tanh(p["embed"][x]).sum(axis=1)

    def tied(p: Any, x: Any) -> Any:
        return jnp.tanh(p["embed"][x]).sum(axis=1) @ p["embed"].T

    for f, reason in ((summed, "gather"), (tied, "gather")):
        assert ways(f, params, x)["embed"] == f"jacobian: it enters through {reason}"
        expected = dense_kernel(f, params, x)
        np.testing.assert_allclose(
            nm.ntk(f, params, x), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
        )


def recurrent(p: Any, x: Any) -> Any:
    h = jnp.zeros((len(x), p["h"].shape[0]), x.dtype)
    for t in range(x.shape[1]):
        h = jnp.tanh(x[:, t] @ p["x"] + h @ p["h"])
    return h @ p["out"]


def twisted(p: Any, x: Any) -> Any:
    """The same matrix, once as it is and once transposed."""
    return jnp.tanh(x @ p["w"]) @ p["w"].T


@pytest.mark.parametrize("outputs", [1, 40])
def test_steps_that_share_a_matrix_are_one_use(outputs: int, rng: np.random.Generator):
    params = {
        "x": rng.normal(size=(4, 6)),
        "h": rng.normal(size=(6, 6)),
        "out": rng.normal(size=(6, outputs)),
    }
    x = rng.normal(size=(N, 3, 4))
    assert ways(recurrent, params, x)["h"] in ("gram", "block") and ways(recurrent, params, x)[
        "x"
    ] in ("gram", "block")
    made = routes.plan(recurrent, params, jnp.asarray(x), select(params, None), "all")
    assert {route.name: route.use.all_positions for route in made.routes} == {
        "h": 3,
        "x": 3,
        "out": 1,
    }
    expected = dense_kernel(recurrent, params, x)
    np.testing.assert_allclose(
        nm.ntk(recurrent, params, x), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )
    assert nm.functional_dimension(recurrent, params, x) == np.linalg.matrix_rank(expected)


def test_a_matrix_used_in_two_arrangements_is_differentiated_by_itself(rng: np.random.Generator):
    params, x = {"w": rng.normal(size=(4, 6))}, rng.normal(size=(N, 4))
    assert ways(twisted, params, x)["w"] == "jacobian: several products share it"
    expected = dense_kernel(twisted, params, x)
    np.testing.assert_allclose(
        nm.ntk(twisted, params, x), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("window, stride", [(2, 2), (3, 2)])
def test_pooling_is_differentiated_as_jax_does_it_at_ties_too(
    window: int, stride: int, padding: str, rng: np.random.Generator
):
    """Of equal entries the first counts: with constant images every window ties, and any other
    choice gives another kernel.
    """

    def f(p: Any, x: Any) -> Any:
        h = x * p["scale"][..., None]
        pooled = jax.lax.reduce_window(
            h, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, stride, stride, 1), padding
        )
        return pooled.reshape(len(x), -1)

    params, x = (
        {"scale": np.ones((7, 7))},
        np.concatenate([np.ones((1, 7, 7, 2)), rng.normal(size=(2, 7, 7, 2))]),
    )
    expected = dense_kernel(f, params, x)
    np.testing.assert_array_equal(nm.ntk(f, params, x), expected)
    assert np.abs(nm.ntk(f, params, x[:, ::-1, ::-1]) - expected).max() > 0.5


@pytest.mark.parametrize("kind", ["all", "trace"])
def test_large_blocks_are_contracted_one_by_one(
    kind: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
):
    """The kernel stays what it is, of one set of samples and of two, and a sample takes room for
    the largest strip of a block, two rows of four, instead of all blocks.
    """
    shapes = {"a": (4, 5), "b": (5, 5), "c": (5, 4)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    x, z = rng.normal(size=(N, 5, 4)), rng.normal(size=(2, 5, 4))

    def mixer(p: Any, x: Any) -> Any:
        return (jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"]) @ p["c"]).sum(axis=(1, 2))[:, None]

    def kernels(f: Any) -> tuple[Any, Any, float]:
        plan = nm.tangent.kernel_plan(f, params, x, trace=kind == "trace")
        assert {route.way for route in plan.routes} == {"block"}
        options = {"trace": kind == "trace"}
        return nm.ntk(f, params, x, **options), nm.ntk(f, params, x, z, **options), plan.per_sample

    joined = kernels(mixer)
    for module in (routes, contraction):
        monkeypatch.setattr(module, "LARGE", 8)
    alone = kernels(lambda p, x: mixer(p, x))
    for one, other in zip(joined[:2], alone[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * np.abs(one).max())
    assert joined[2] - alone[2] == 2 * (20 + 25 + 20 - 2 * 4)


def test_long_passes_of_few_samples_at_a_time_give_the_same_kernel(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
):
    """With a small budget factors are made of two samples at a time, or the kernel is cut as well;
    with a large one of all.
    """
    params = {"a": rng.normal(size=(4, 6)), "b": rng.normal(size=(6, 4))}
    x = rng.normal(size=(6, 5, 4))

    def f(p: Any, x: Any) -> Any:
        return (jnp.tanh(x @ p["a"]) @ p["b"]).sum(axis=1)[:, :2]

    for module in (routes, contraction):
        monkeypatch.setattr(module, "LARGE", 8)
    plan = nm.tangent.kernel_plan(f, params, x)
    assert plan.long
    whole = nm.ntk(f, params, x)
    assert (plan.passes, plan.held, plan.formed, plan.per_pair) == (276, 130, 12, 12)
    for numbers, expected in ((5500, None), (4500, 2)):
        budget = 8 * (48 + numbers)
        tiled = tiles.Tiles(
            plan, jax.tree.map(jnp.asarray, params), x, None, "all", budget, np.dtype(np.float64)
        )
        assert (tiled.together(6), tiled.largest) == (expected, 6)
        kernel = nm.ntk(f, params, x, memory=budget)
        np.testing.assert_allclose(kernel, whole, rtol=0, atol=1e-13 * np.abs(whole).max())
    small = nm.ntk(f, params, x, memory=1)
    np.testing.assert_allclose(small, whole, rtol=0, atol=1e-13 * np.abs(whole).max())


def test_constants_are_as_narrow_as_the_parameters(rng: np.random.Generator):
    """NumPy's √d is float64: with JAX's x64 flag off the user's float32 network stays float32,
    and so does its kernel's program.
    """

    def f(p: Any, x: Any) -> Any:
        return jax.nn.softmax((x @ p["w"]) / np.sqrt(5)) @ p["out"]

    params = {"w": rng.normal(size=(3, 5)), "out": rng.normal(size=(5, 2))}
    x = rng.normal(size=(N, 3))
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        typed = {name: a.astype(dtype) for name, a in params.items()}
        made = routes.plan(f, typed, x.astype(dtype), select(typed, None), "all")
        assert {value.dtype for value in made.graph.program.values if value.real} == {dtype}
    narrow = nm.ntk(f, jax.tree.map(lambda a: a.astype(np.float32), params), x.astype(np.float32))
    assert narrow.dtype == np.float32
    expected = dense_kernel(f, params, x)
    np.testing.assert_allclose(narrow, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
