"""Matrix products of the library's models inside a caller's own trace: full precision, unless
the caller says otherwise.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import neuromanifold as nm
from tests.described import POOLED

MLP, KEY = nm.MLP((3, 4, 2)), jax.random.key(0)
MODULE = eqx.nn.Linear(3, 2, key=KEY)
EQUINOX, WEIGHTS = nm.from_equinox(MODULE)
START = MLP.init(key=KEY)
CALLS = {
    "MLP": (MLP, START, (3,)),
    "Sequential": (POOLED, POOLED.init(key=KEY), POOLED.input_shape),
    "linearize": (nm.linearize(MLP, START), START, (3,)),
    "from_equinox": (EQUINOX, WEIGHTS, (3,)),
}


def _precisions(f, params, shape) -> set[str]:
    """Of all products and convolutions of the traced call, as the jaxpr has them."""
    text = str(jax.make_jaxpr(lambda p, x: f(p, x))(params, jnp.ones((2, *shape), jnp.float32)))
    return set(re.findall(r"precision=(None|\(?[A-Za-z.]*(?:DEFAULT|HIGHEST|HIGH)\b)", text))


@pytest.mark.parametrize("name", CALLS)
def test_a_traced_model_multiplies_at_full_precision(name):
    found = _precisions(*CALLS[name])
    assert found and all(text.endswith("HIGHEST") for text in found)
    with jax.default_matmul_precision("default"):  # the caller's word
        assert not any(text.endswith("HIGHEST") for text in _precisions(*CALLS[name]))
    bare = _precisions(lambda p, x: x @ p, jnp.ones((3, 2)), (3,))
    assert bare == set()  # control: JAX's own product leaves it to the device
