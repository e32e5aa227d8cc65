"""Results follow their inputs: JAX arrays in, JAX arrays out; NumPy in, NumPy out; float64 leaves as NumPy while the x64 flag is off."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import api
from neuromanifold.numerics.results import Result, follows


def check_look(result: Any) -> None:
    """The answer first and short: no result shows its arrays entry by entry."""
    if isinstance(result, np.ndarray | jax.Array | dict | float) or type(result) in (tuple, list):
        return
    assert len(repr(result)) <= 260, repr(result)
    assert "array(" not in repr(result).lower()


def floats(result: Any) -> Iterator[Any]:
    """The floating-point arrays of a result: of its pytrees and of its fields, but not of proofs and descriptions among them."""
    for leaf in jax.tree.leaves(result):
        if isinstance(leaf, Result) and dataclasses.is_dataclass(leaf):
            yield from (a for field in dataclasses.fields(leaf) for a in floats(getattr(leaf, field.name)))
        elif isinstance(leaf, np.ndarray | jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating):
            yield leaf


@pytest.mark.parametrize("verb", api.descriptions(np.asarray))
def test_the_results_of_a_description_follow(verb: str):
    result = api.descriptions(np.asarray)[verb]()
    check_look(result)
    found = list(floats(result))
    assert all(isinstance(a, np.ndarray) for a in found)
    narrow = list(floats(api.descriptions(lambda a: jnp.asarray(a, jnp.float32))[verb]()))
    assert all(isinstance(a, jax.Array) == (a.dtype != np.float64) for a in narrow)
    with jax.enable_x64(True):
        wide = list(floats(api.descriptions(lambda a: jnp.asarray(a, jnp.float64))[verb]()))
    assert all(isinstance(a, jax.Array) for a in wide)
    assert len(found) == len(wide)


def ordered(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["v"]) @ params["w"]


@pytest.mark.parametrize("verb", ["symmetry.dimension_account", "symmetry.reduce_width", *api.STAYING])
def test_the_results_of_a_model_follow_unless_they_stay(verb: str, tmp_path):
    """What stays on the host whatever came in is listed, with the reason; accounts and reductions follow."""
    params = {"v": np.array([[0.3, -0.4], [0.5, 0.1]]), "w": np.array([[0.7], [-0.2]])}
    x, y = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 0.5]]), np.array([[0.1], [0.2], [-0.3]])
    call = api.VERBS[verb]
    with jax.enable_x64(True):
        arrays = (jax.tree.map(jnp.asarray, params), jnp.asarray(x), jnp.asarray(y))
        found = list(floats(call(ordered, *arrays, tmp_path)))
    assert all(isinstance(a, jax.Array) != (verb in api.STAYING) for a in found)
    if verb not in api.STAYING:
        assert found
        kept = list(floats(call(ordered, params, x, y, tmp_path)))
        assert len(kept) == len(found)
        assert all(isinstance(a, np.ndarray) for a in kept)


def test_dictionaries_of_results_keep_their_order_and_keys_say_nothing(key):
    @dataclasses.dataclass(frozen=True, repr=False)
    class Counted(Result):
        counts: dict[str, int]
        values: np.ndarray

    verb = follows(lambda a, key: Counted({"z": 1, "a": 2}, np.ones(2)))
    with jax.enable_x64(True):
        assert list(verb(jnp.ones(2), key).counts) == ["z", "a"]
        assert isinstance(verb(jnp.ones(2), key).values, jax.Array)
        assert isinstance(verb(np.ones(2), key).values, np.ndarray)


def test_a_verb_that_does_not_follow_is_seen():
    still = lambda a: np.asarray(a) * 2.0  # noqa: E731
    with jax.enable_x64(True):
        assert not any(isinstance(a, jax.Array) for a in floats(still(jnp.ones(2))))
        assert all(isinstance(a, jax.Array) for a in floats(follows(still)(jnp.ones(2))))
