"""A model that closes over float64 NumPy constants belongs to its owner: `jax.jit(f)` is as good
after any verb as before it.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import api

P = {"v": jnp.array([[0.3, -0.4, 0.2], [0.5, 0.1, -0.6]]), "w": jnp.array([[0.7], [-0.2], [0.9]])}
X = jnp.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 0.5], [0.3, 2.0]])
Y = jnp.array([[0.1], [0.2], [-0.3], [0.4]])


def model() -> Any:
    """A ReLU network with scales (an array and a number) and an order of its own."""
    scale, number, order = np.array([0.1, 0.7]), np.array(0.3), np.array([1, 0])

    def f(params: Any, x: Any) -> Any:
        return jax.nn.relu((x * scale)[:, order] @ params["v"] - number) @ params["w"]

    return f


def compiled(f: Any) -> np.ndarray:
    y = jax.jit(f)(P, X)
    assert y.dtype == jnp.float32
    return np.asarray(y)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return compiled(model())


def test_every_public_function_of_a_model_is_called():
    assert api.taking("f") - api.DESCRIBED <= set(api.VERBS)


@pytest.mark.parametrize("verb", api.VERBS)
def test_a_verb_leaves_the_model_as_it_was(verb: str, expected: np.ndarray, tmp_path: Path):
    f = model()
    api.VERBS[verb](f, P, X, Y, tmp_path)
    assert (compiled(f) == expected).all()


def test_reading_the_model_itself_with_64_bits_spoils_it():
    f = model()
    with jax.enable_x64(True):
        jax.eval_shape(f, P, X)
    with pytest.raises((ValueError, TypeError), match=r"verifier errors|same dtypes"):
        compiled(f)
