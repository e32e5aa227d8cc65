"""The program of what the outputs need: the same numbers from smaller values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.needed import keep_needed_parts
from neuromanifold.graph.program import Program
from neuromanifold.graph.tracing import program_of


def mixed(p: Any, x: Any) -> Any:
    """A block of a transformer with a head: (5, 6) to (5, 40)."""
    q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
    heads = [a.reshape(5, 2, 3).transpose(1, 0, 2) for a in (q, k, v)]
    scores = jax.nn.softmax(
        jnp.where(np.tri(5, dtype=bool), heads[0] @ heads[1].swapaxes(1, 2), -9.0)
    )
    h = x + (scores @ heads[2]).transpose(1, 0, 2).reshape(5, 6) @ p["out"]
    h = (h - h.mean(-1, keepdims=True)) / (1.0 + h.std(-1, keepdims=True))
    return jnp.tanh(h @ p["up"]) @ p["words"].T + p["bias"]


def drawn(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    shapes = {"qkv": (6, 18), "out": (6, 6), "up": (6, 6), "words": (40, 6), "bias": (40,)}
    return {name: rng.normal(size=s) for name, s in shapes.items()}, rng.normal(size=(5, 6))


def run(program: Program, params: Any, x: Any) -> tuple[Any, Any]:
    """The output and the gradient of a random combination of its entries."""

    def combined(params: Any) -> Any:
        y = interpret(program, [*jax.tree.leaves(params), x], None)[0]
        return jnp.vdot(np.random.default_rng(0).normal(size=y.shape), y), y

    with jax.enable_x64(True):
        (_, y), slopes = jax.value_and_grad(combined, has_aux=True)(params)
        return np.asarray(y), jax.tree.map(np.asarray, slopes)


def numbers(program: Program) -> int:
    return sum(int(np.prod(program.values[o].shape)) for n in program.nodes for o in n.outputs)


@pytest.mark.parametrize(
    "cut", [np.s_[4:, 3:5], np.s_[::2], np.s_[:, 7::11], np.s_[1:2, :]], ids=str
)
def test_a_part_of_the_output_is_the_same_from_fewer_numbers(cut: Any, rng: np.random.Generator):
    params, x = drawn(rng)
    with jax.enable_x64(True):
        whole = program_of(lambda p, x: mixed(p, x)[cut], params, x)
    small = keep_needed_parts(whole)
    assert numbers(small) < numbers(whole)
    (y, slopes), (z, others) = run(whole, params, x), run(small, params, x)
    np.testing.assert_allclose(z, y, rtol=0, atol=1e-14 * np.abs(y).max())
    for name in params:
        largest = np.abs(slopes[name]).max()
        np.testing.assert_allclose(others[name], slopes[name], rtol=0, atol=1e-13 * largest)


def test_the_head_computes_the_chosen_logits_alone(rng: np.random.Generator):
    params, x = drawn(rng)
    small = keep_needed_parts(program_of(lambda p, x: mixed(p, x)[-1:, 3:5], params, x))
    products = [n for n in small.nodes if n.operation == "dot_general"]
    shapes = [small.values[n.outputs[0]].shape for n in products]
    # The keys and values of all tokens, the query of the last one, two logits.
    assert shapes == [(5, 18), (2, 1, 5), (2, 1, 3), (1, 6), (1, 6), (1, 2)]


def test_what_every_output_needs_is_left_as_it_is(rng: np.random.Generator):
    """The controls: all outputs; a sum along the sliced axis; two parts that together are all."""
    params, x = drawn(rng)
    for f in (
        mixed,
        lambda p, x: jnp.cumsum(mixed(p, x), axis=0)[-1],
        lambda p, x: mixed(p, x)[:3].sum() + mixed(p, x)[2:].sum(),
        lambda p, x: mixed(p, x).reshape(-1)[:40],
    ):
        whole = program_of(f, params, x)
        heads = [n for n in keep_needed_parts(whole).nodes if n.operation == "dot_general"]
        assert sum(small_head(keep_needed_parts(whole), n) for n in heads) == 0
    whole = program_of(mixed, params, x)
    assert keep_needed_parts(whole) is whole


def small_head(program: Program, node: Any) -> bool:
    shape = program.values[node.outputs[0]].shape
    return shape[-1] == 40 and shape[0] < 3


def test_a_tied_table_of_few_logits_needs_no_jacobian(rng: np.random.Generator):
    """The rows that are multiplied are looked-up rows too, also where a token is one of them; all
    logits are the control.
    """

    def f(p: Any, tokens: Any) -> Any:
        h = jnp.tanh(jnp.cumsum(p["words"][tokens], axis=1) @ p["mix"])
        return h @ p["words"].T

    params = {"words": rng.normal(size=(200, 4)), "mix": rng.normal(size=(4, 4))}
    tokens = np.array([[3, 3, 7], [28, 0, 9], [1, 2, 28]])
    for g, way in (
        (lambda p, x: f(p, x)[:, -1, 3:29:9], "gram"),
        (lambda p, x: f(p, x)[:, :2, 7], "gram"),
        (f, "jacobian: it enters through gather"),
    ):
        lines = str(nm.tangent.kernel_plan(g, params, tokens)).splitlines()
        assert dict(line.split(None, 1) for line in lines)["words"] == way
        J = nm.jacobian(g, params, tokens)
        kernel = nm.ntk(g, params, tokens)
        np.testing.assert_allclose(kernel, J @ J.T, rtol=0, atol=1e-12 * np.abs(kernel).max())
        rows = nm.features(g, params, tokens, key=jax.random.key(0), k=4000)
        assert np.abs(rows @ rows.T - J @ J.T).max() < 0.1 * np.trace(J @ J.T)
