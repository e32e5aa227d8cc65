"""Small networks with known continuous symmetries: bare functions of parameters by name, with
their orbit and nullity in theory.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

relu = jax.nn.relu


class Net(NamedTuple):
    """A function, the shapes of its parameters and of one input, the dimension of its affine orbit,
    and the nullity of J (None: it
    depends on which units are dead at the parameters)."""

    f: object
    shapes: dict
    input: tuple
    orbit: int
    nullity: int | None
    batch: bool = False

    @property
    def size(self):
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def draw(self, rng, n=5):
        """Parameters of mean square 1 in each leaf, and inputs: the draws of `discover` are then
        standard normal.
        """
        params = {name: rng.normal(size=shape) for name, shape in self.shapes.items()}
        return {name: a / np.sqrt((a**2).mean()) for name, a in params.items()}, unit(
            rng.normal(size=(n, *self.input))
        )


def unit(a):
    return a / np.sqrt((a**2).mean())


def conv(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cnn(p, x):
    h = relu(conv(x, p["w"]) + p["b"])
    return relu(conv(h, p["v"]) + p["d"]).mean((1, 2)) @ p["u"]


def normalised_batch(p, x):
    z = x @ p["w"] + p["c"]
    return relu((z - z.mean(0)) / jnp.sqrt(z.var(0)) * p["g"] + p["b"]) @ p["v"]


def normalised_fixed(p, x):
    z = (x @ p["w"] + p["c"] - np.array([0.3, -0.7])) / np.array([1.3, 0.6])
    return relu(z * p["g"] + p["b"]) @ p["v"]


def bent_stream(p, x):
    h = relu(x @ p["w"])
    return relu(h + relu(h @ p["a"]) @ p["b"]) @ p["v"]


def linear_stream(p, x):
    h = x @ p["w"]
    return (h + relu(h @ p["a"]) @ p["b"]) @ p["v"]


def layer_norm(p, x):
    z = x - x.mean(-1, keepdims=True)
    return (z / jnp.sqrt((z**2).mean(-1, keepdims=True)) * p["g"] + p["b"]) @ p["w"] + p["c"]


def rms(x, eps=0.0):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps)


def rms_norm(p, x):
    return (rms(x) * p["g"]) @ p["w"]


def attend(q, k, v, o, heads):
    q, k, v = (a.reshape(*a.shape[:-1], heads, -1) for a in (q, k, v))
    weights = jax.nn.softmax(jnp.einsum("nshd,nthd->nhst", q, k), -1)
    z = jnp.einsum("nhst,nthd->nshd", weights, v)
    return z.reshape(*z.shape[:-2], -1) @ o


def attention(p, x):
    return attend(x @ p["q"], x @ p["k"], x @ p["v"], p["o"], 1)


def two_heads(p, x):
    return attend(x @ p["q"], x @ p["k"], x @ p["v"], p["o"], 2)


def biased_attention(p, x):
    q, k, v = (x @ p[name] + p["b" + name] for name in "qkv")
    return attend(q, k, v, p["o"], 1) + p["bo"]


def soft_output(p, x):
    return jax.nn.softmax(x @ p["w"] + p["b"], -1)


def swiglu(p, x):
    return (jax.nn.silu(x @ p["g"]) * (x @ p["u"])) @ p["d"]


def rms_stream(p, x):
    h = x @ p["e"]
    return rms(h + jax.nn.silu(rms(h) @ p["a"]) @ p["b"]) @ p["u"]


def _block(p, x, norm):
    h = x @ p["e"]
    z = norm(h, "g1")
    h = h + attend(z @ p["q"], z @ p["k"], z @ p["v"], p["o"], 2)
    z = norm(h, "g2")
    h = h + (jax.nn.silu(z @ p["g"]) * (z @ p["u"])) @ p["d"]
    return norm(h, "g3") @ p["w"]


def block(p, x):
    return _block(p, x, lambda h, g: rms(h))


def block_with_epsilon(p, x):
    return _block(p, x, lambda h, g: rms(h, 0.01))


def block_with_gains(p, x):
    return _block(p, x, lambda h, g: rms(h) * p[g])


_NORMALISED = {"w": (3, 2), "c": (2,), "g": (2,), "b": (2,), "v": (2, 2)}
_HEADS = {"q": (3, 2), "k": (3, 2), "v": (3, 2), "o": (2, 3)}
_BLOCK = {
    "e": (7, 6),
    "q": (6, 6),
    "k": (6, 6),
    "v": (6, 6),
    "o": (6, 6),
    "g": (6, 5),
    "u": (6, 5),
    "d": (5, 6),
    "w": (6, 7),
}

NETS = {
    "cnn": Net(
        cnn,
        {"w": (2, 2, 1, 2), "b": (2,), "v": (2, 2, 2, 2), "d": (2,), "u": (2, 3)},
        (4, 4, 1),
        4,
        None,
    ),
    "normalised batch": Net(normalised_batch, _NORMALISED, (3,), 6, None, batch=True),
    "normalised": Net(normalised_fixed, _NORMALISED, (3,), 6, None),
    "bent stream": Net(
        bent_stream, {"w": (3, 3), "a": (3, 2), "b": (2, 3), "v": (3, 2)}, (3,), 5, None
    ),
    "linear stream": Net(
        linear_stream, {"w": (3, 2), "a": (2, 3), "b": (3, 2), "v": (2, 2)}, (3,), 7, 7
    ),
    "layer norm": Net(layer_norm, {"g": (4,), "b": (4,), "w": (4, 2), "c": (2,)}, (4,), 8, 10),
    "rms norm": Net(rms_norm, {"g": (4,), "w": (4, 3)}, (4,), 4, 4),
    "attention": Net(attention, _HEADS, (4, 3), 8, 8),
    "two heads": Net(two_heads, _HEADS, (4, 3), 4, 4),
    "biased attention": Net(
        biased_attention, _HEADS | {"bq": (2,), "bk": (2,), "bv": (2,), "bo": (3,)}, (4, 3), 12, 12
    ),
    "softmax": Net(soft_output, {"w": (3, 4), "b": (4,)}, (3,), 4, 4),
    "swiglu": Net(swiglu, {"g": (3, 3), "u": (3, 3), "d": (3, 2)}, (3,), 3, 3),
    "rms stream": Net(rms_stream, {"e": (4, 3), "a": (3, 2), "b": (2, 3), "u": (3, 3)}, (4,), 4, 4),
    "block": Net(block, _BLOCK, (4, 7), 57, 57),
    "block with epsilon": Net(block_with_epsilon, _BLOCK, (4, 7), 56, 56),
    "block with gains": Net(
        block_with_gains, _BLOCK | {"g1": (6,), "g2": (6,), "g3": (6,)}, (4, 7), 60, 75
    ),
}
