"""Results follow their inputs: JAX arrays in, JAX arrays out; NumPy in, NumPy out; float64
leaves as NumPy while the x64 flag is off.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import api
import neuromanifold as nm
from neuromanifold.numerics.results import Result, follows


def check_look(result: Any) -> None:
    """The answer first and short: no result shows its arrays entry by entry."""
    if isinstance(result, np.ndarray | jax.Array | dict | float) or type(result) in (tuple, list):
        return
    assert len(repr(result)) <= 260, repr(result)
    assert "array(" not in repr(result).lower()


def floats(result: Any) -> Iterator[Any]:
    """The floating-point arrays of a result: of its pytrees and of its fields, but not of proofs
    and descriptions among them.
    """
    for leaf in jax.tree.leaves(result):
        if isinstance(leaf, Result) and dataclasses.is_dataclass(leaf):
            yield from (
                a for field in dataclasses.fields(leaf) for a in floats(getattr(leaf, field.name))
            )
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


P = {"v": np.array([[0.3, -0.4, 0.2], [0.5, 0.1, -0.6]]), "w": np.array([[0.7], [-0.2], [0.9]])}
X = np.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 0.5], [0.3, 2.0]])


def network(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["v"]) @ params["w"]


def asked(verb: str, folder: Path) -> list[Any]:
    """The floating-point arrays of what a verb says of float64 JAX arrays, with the x64 flag on."""
    with jax.enable_x64(True):
        params, x, y = jax.tree.map(jnp.asarray, (P, X, X[:, :1]))
        return list(floats(api.VERBS[verb](network, params, x, y, folder)))


@pytest.mark.parametrize("verb", api.STAYING)
def test_what_is_said_to_stay_on_the_host_stays(verb: str, tmp_path: Path):
    assert not any(isinstance(a, jax.Array) for a in asked(verb, tmp_path)), api.STAYING[verb]


@pytest.mark.parametrize("verb", ["symmetry.dimension_account", "symmetry.reduce_width"])
def test_accounts_and_reductions_follow(verb: str, tmp_path: Path):
    """Negative control for the test above: these do not stay. A perceptron's reduction is a
    description of its own.
    """
    assert verb not in api.STAYING
    assert all(isinstance(a, jax.Array) for a in asked(verb, tmp_path))
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, api.NET.init(key=api.KEY, dtype="float64"))
        found = list(floats(nm.reduce_width(api.NET, params, jnp.asarray(X))))
        found += floats(nm.dimension_account(api.NET, params, jnp.asarray(X)))
    assert found and all(isinstance(a, jax.Array) for a in found)
    assert all(isinstance(a, np.ndarray) for a in floats(nm.reduce_width(network, P, X)))


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
