"""Brackets of any network without bends, by walking its gradient over nilpotent elements."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.graph.graph import trace
from neuromanifold.orbits import lie_closure
from neuromanifold.orbits.family import (
    NilpotentArithmetic,
    NilpotentElement,
    TracedFamily,
    WalkedFamily,
    dense_family,
    family_of,
    walked_family,
)
from neuromanifold.orbits.partition import flatten_on_host
from neuromanifold.orbits.rings import Reals, Residues

P = 2**61 - 1


def residual(params, x):
    h = x @ params["in"]
    return (h + jnp.square(h @ params["up"]) @ params["down"]) @ params["out"]


def attention(params, x):
    """Linear attention: no softmax, so a polynomial."""
    q, k, v = (x @ params[name] for name in "qkv")
    return (q @ jnp.swapaxes(k, -1, -2) @ v).mean(axis=1)


def convolution(params, x):
    z = jax.lax.conv_general_dilated(x[:, None], params["w"], (2,), [(1, 0)], rhs_dilation=(1,))
    return (z**3).sum(axis=-1) @ params["v"]


def rational(params, x):
    z = x @ params["w"]
    return (z / (1 + z**2)) @ params["v"]


def embedding(params, x):
    """A lookup and a sum over places that repeat, so that the gradient scatters."""
    table = params["table"][jnp.array([0, 2, 2, 1])]
    return (x * table) @ params["v"]


def smooth(params, x):
    return jnp.exp(jnp.tanh(x @ params["w"])) @ params["v"]


def bending(params, x):
    return jax.nn.relu(x @ params["w"]) @ params["v"]


NETWORKS = {
    residual: ({"in": (2, 2), "up": (2, 3), "down": (3, 2), "out": (2, 1)}, (2,)),
    attention: ({"q": (2, 2), "k": (2, 2), "v": (2, 1)}, (3, 2)),
    convolution: ({"w": (2, 1, 2), "v": (2, 1)}, (5,)),
    rational: ({"w": (2, 2), "v": (2, 1)}, (2,)),
    embedding: ({"table": (3,), "v": (4, 1)}, (4,)),
    smooth: ({"w": (2, 2), "v": (2, 1)}, (2,)),
}


def _drawn(f, rng):
    shapes, sample = NETWORKS[f]
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}, rng.normal(
        size=(40, *sample)
    )


@pytest.mark.parametrize("f", NETWORKS, ids=lambda f: f.__name__)
def test_walked_brackets_are_the_nested_ones(f, rng):
    params, x = _drawn(f, rng)
    theta = flatten_on_host(params)
    walked = family_of(f, params, x)
    assert isinstance(walked, WalkedFamily)
    outputs = (trace(f, params, x).outputs,)
    # The same draws of inputs and cotangents make the same brackets, up to the order in which they
    # are drawn.
    one = walked_family(trace(f, params, x), x[:1], Reals())
    nested = TracedFamily(f, params, x[:1], outputs)
    for depth in (1, 2, 3):
        rows = [
            g.jacobian(theta) if depth == 1 else g.brackets(theta, depth, 1, rng).vectors
            for g in (one, nested)
        ]
        both = [row / max(np.linalg.norm(row), 1e-300) for row in rows]
        if np.linalg.norm(rows[1]) > 1e-8:
            assert min(np.abs(both[0] - both[1]).max(), np.abs(both[0] + both[1]).max()) < 1e-9


@pytest.mark.parametrize(
    "f, dimension", [(attention, 6), (rational, 6)], ids=["attention", "rational"]
)
def test_the_exact_closure_is_that_of_float64(f, dimension, rng, key):
    """GL(2) keeps q kᵀ and conserves the 3 entries of qᵀq − kᵀk, the scale of v against it one
    more: 10 − 4 for attention.
    """
    params, x = _drawn(f, rng)
    proved = lie_closure(f, params, key=key, inputs=x)
    assert int(proved.dimension) == dimension
    assert proved.route.startswith("brackets modulo a 61-bit prime")
    plain = lie_closure(f, params, key=key, inputs=x, exact=False)
    assert int(proved.dimension) == int(plain.dimension)
    certificate = proved.by_depth[-1].certificate
    assert certificate.verify(f, params, x)
    moved = jax.tree.map(lambda a: a + 1.0, params)
    assert not certificate.verify(f, moved, x)


def test_bends_and_functions_without_a_walk_are_left_to_nested_forward_mode(rng, key):
    params = {"w": rng.normal(size=(2, 2)), "v": rng.normal(size=(2, 1))}
    x = rng.normal(size=(10, 2))
    family = family_of(bending, params, x)
    assert isinstance(family, TracedFamily)
    assert not isinstance(family, WalkedFamily)
    with pytest.raises(
        TypeError, match="`exact=True` needs a network of rational operations without bends"
    ):
        lie_closure(bending, params, key=key, inputs=x, exact=True)
    assert lie_closure(bending, params, key=key, inputs=x, depth=1).along_orbit is None


@pytest.mark.parametrize(
    "net", [nm.MLP((2, 3, 2), "tanh"), nm.MLP((2, 2, 2, 1), nm.power(3), scaling="ntk")], ids=repr
)
def test_perceptrons_have_the_same_fields_layer_by_layer(net, rng):
    params, x = net.init(key=jax.random.key(2), dtype="float64"), rng.normal(size=(6, 2))
    theta = flatten_on_host(params)
    dense, walked = dense_family(net, x), walked_family(trace(net, params, x), x, Reals())
    for depth in (2, 4):
        a, b = (
            g.brackets(theta, depth, 5, np.random.default_rng(3)).vectors for g in (dense, walked)
        )
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max())


def test_elements_divide_and_scatter_as_fractions_do(rng):
    """(2 + 3ε₁ + 5ε₂ + 7ε₁ε₂)⁻¹ has the coefficients of the geometric series; repeated places
    add up.
    """
    A = NilpotentArithmetic(Residues(P))
    a = NilpotentElement(np.array([2, 3, 5, 7]).reshape(4, 1, 1))
    inverse = A.divide(A.lift(np.ones(1)), a)
    expected = [
        Fraction(1, 2),
        Fraction(-3, 4),
        Fraction(-5, 4),
        Fraction(-7, 4) + 2 * Fraction(15, 8),
    ]
    assert inverse.entries.ravel().tolist() == [
        q.numerator * pow(q.denominator, -1, P) % P for q in expected
    ]
    one = A.multiply(a, inverse).entries.ravel().tolist()
    assert one == [1, 0, 0, 0]
    base, updates = A.lift(np.arange(3.0)), A.lift(np.array([1.0, 10.0, 100.0]))
    spread = A.scatter_add(base, np.array([2, 0, 2]), updates)
    assert spread.entries.ravel().tolist() == [10, 1, 103]
    with pytest.raises(ZeroDivisionError, match="divides by zero"):
        A.divide(a, A.lift(np.zeros(1)))
