"""Small networks of every kind, written in plain JAX: what the graph must be able to follow.
`smooth` ones have no exact answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Architecture:
    """A model, how to draw its float64 parameters, and the shape of one sample."""

    name: str
    f: Callable[[Any, Any], Any]
    shapes: dict[str, tuple[int, ...]]
    sample: tuple[int, ...]
    smooth: bool = False
    tokens: int = 0

    def __str__(self) -> str:
        return self.name

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            name: rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[:-1])))
            for name, shape in self.shapes.items()
        }

    def coarse(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Small dyadic numbers, a fifth of them zero: ties are frequent."""
        return {
            n: rng.integers(-4, 5, s) * (rng.random(s) < 0.8) / 4 for n, s in self.shapes.items()
        }

    def inputs(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return (
            rng.integers(0, self.tokens, (n, *self.sample))
            if self.tokens
            else rng.normal(size=(n, *self.sample))
        )


def conv(x: Any, kernel: Any, strides: Any = (1, 1), padding: Any = "VALID", **options: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
    )


def pool(
    x: Any,
    window: int = 2,
    *,
    stride: int | None = None,
    padding: str = "VALID",
    average: bool = False,
) -> Any:
    shape, steps = (1, window, window, 1), (1, stride or window, stride or window, 1)
    if average:
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, shape, steps, padding) / window**2
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, shape, steps, padding)


def flat(x: Any) -> Any:
    return x.reshape(x.shape[0], -1)


def strided(p: Any, x: Any) -> Any:
    h = jax.nn.relu(conv(x, p["k"], (2, 1), ((1, 0), (0, 2))) + p["b"])
    return flat(h) @ p["w"]


def dilated(p: Any, x: Any) -> Any:
    h = jnp.abs(conv(x, p["k"], padding="SAME", rhs_dilation=(2, 1)))
    h = conv(h, p["m"], padding=((0, 0), (1, 0)), lhs_dilation=(1, 2))
    return flat(h)[:, ::5]


def grouped(p: Any, x: Any) -> Any:
    h = jax.nn.leaky_relu(conv(x, p["k"], feature_group_count=2), 0.25)
    return h.sum(axis=(1, 2)) @ p["w"] + p["b"]


def max_pooled(p: Any, x: Any) -> Any:
    h = jax.nn.relu(conv(x, p["k"], padding="SAME") + p["b"])
    return flat(pool(h)) @ p["w"] + p["c"]


def overlapping(p: Any, x: Any) -> Any:
    """Max-pooling that overlaps and reaches into its padding, then a maximum over all places."""
    h = pool(conv(x, p["k"], padding="SAME"), 3, stride=2, padding="SAME")
    return h.max(axis=(1, 2)) @ p["w"]


def average_pooled(p: Any, x: Any) -> Any:
    h = pool(jnp.clip(conv(x, p["k"], padding="SAME"), -1.0, 2.0), average=True)
    return flat(h) @ p["w"]


def residual(p: Any, x: Any) -> Any:
    h = x @ p["e"]
    for name in ("1", "2"):
        h = h + jax.nn.relu(h @ p[f"u{name}"] + p[f"b{name}"]) @ p[f"v{name}"]
    return h @ p["w"]


_MEAN, _VARIANCE = np.array([0.5, -0.25, 0.125]), np.array([0.7, 1.3, 2.0])


def normalised(p: Any, x: Any) -> Any:
    """A residual block with normalisation in evaluation mode: running statistics are constants."""
    h = conv(x, p["k"], padding="SAME")
    h = (h - _MEAN) * jax.lax.rsqrt(jnp.asarray(_VARIANCE) + 1e-5) * p["scale"] + p["shift"]
    return (jax.nn.relu(h) + x @ p["skip"]).mean(axis=(1, 2)) @ p["w"]


def linear_attention(p: Any, x: Any) -> Any:
    q, k, v = (x @ p[name] for name in "qkv")
    scores = jnp.einsum("ntd,nsd->nts", q, k) / 4
    return (x + jnp.einsum("nts,nsd->ntd", scores, v)).mean(axis=1) @ p["o"]


def normalised_attention(p: Any, x: Any) -> Any:
    """Linear attention with a denominator: a rational function."""
    q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
    q, k = jax.nn.relu(q) + 1, jax.nn.relu(k) + 1
    top = jnp.einsum("ntd,nsd,nse->nte", q, k, v)
    return (top / jnp.einsum("ntd,nsd->nt", q, k)[..., None]).sum(axis=1) @ p["o"]


def tied(p: Any, x: Any) -> Any:
    """An autoencoder whose decoder is its encoder transposed, and a square."""
    h = jax.nn.relu(x @ p["w"] + p["b"])
    return (h @ p["w"].T + p["c"]) ** 2


def recurrent(p: Any, x: Any) -> Any:
    """A loop over time with shared weights, by `scan`, inside `jit`."""

    @jax.jit
    def step(h: Any, u: Any) -> Any:
        return jax.nn.relu(h @ p["h"] + u @ p["u"] + p["b"]), h

    start = jnp.zeros((x.shape[0], p["h"].shape[0]), x.dtype)
    last, states = jax.lax.scan(step, start, jnp.moveaxis(x, 1, 0))
    return jnp.concatenate([last, states.sum(axis=0)], axis=1) @ p["w"]


def gated(p: Any, x: Any) -> Any:
    """A product of two branches, one of them bent."""
    return (jax.nn.relu(x @ p["g"]) * (x @ p["u"])) @ p["d"]


def embedded(p: Any, x: Any) -> Any:
    """Token ids in, logits of a tied table out."""
    h = p["table"][x] + p["place"]
    h = h + jax.nn.relu(h @ p["u"]) @ p["d"]
    return h.mean(axis=1) @ p["table"].T


def language_model(p: Any, x: Any) -> Any:
    h = p["table"][x] + p["place"]
    q, k, v = jnp.split(h @ p["qkv"] + p["b"], 3, axis=-1)
    scores = jnp.einsum("ntd,nsd->nts", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -1e9)
    h = h + jnp.einsum("nts,nsd->ntd", jax.nn.softmax(scores), v) @ p["o"]
    norm = (
        (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5) * p["gain"]
    )
    return (h + jax.nn.gelu(norm @ p["u"]) @ p["d"]) @ p["head"]


def multi_head(p: Any, x: Any) -> Any:
    """Attention with a head axis in the weights, and a depthwise convolution."""
    q, k, v = (jnp.einsum("ntd,dhe->nthe", x, p[name]) for name in ("q", "s", "v"))
    a = jax.nn.softmax(jnp.einsum("nthe,nshe->nhts", q, k), axis=-1)
    h = x + jnp.einsum("nhts,nshe,hed->ntd", a, v, p["o"])
    h = jax.lax.conv_general_dilated(
        h, p["k"], (1,), "SAME", feature_group_count=4, dimension_numbers=("NWC", "WIO", "NWC")
    )
    return jnp.tanh(h).mean(axis=1) * p["scale"]


IMAGE = (6, 5, 2)
ARCHITECTURES = [
    Architecture("strided convolution", strided, {"k": (3, 2, 2, 3), "b": (3,), "w": (54, 2)}, IMAGE),
    Architecture("dilated convolutions", dilated, {"k": (2, 3, 2, 2), "m": (2, 2, 2, 1)}, IMAGE),
    Architecture("grouped convolution", grouped, {"k": (3, 3, 1, 4), "w": (4, 2), "b": (2,)}, IMAGE),
    Architecture("max-pooling", max_pooled, {"k": (3, 3, 2, 2), "b": (2,), "w": (12, 3), "c": (3,)}, IMAGE),
    Architecture("overlapping pooling", overlapping, {"k": (2, 2, 2, 3), "w": (3, 2)}, IMAGE),
    Architecture("average pooling, clipped", average_pooled, {"k": (2, 2, 2, 2), "w": (12, 2)}, IMAGE),
    Architecture(
        "residual", residual,
        {"e": (3, 4), "u1": (4, 5), "b1": (5,), "v1": (5, 4), "u2": (4, 3), "b2": (3,), "v2": (3, 4), "w": (4, 2)}, (3,),
    ),
    Architecture("normalised", normalised, {"k": (3, 3, 2, 3), "scale": (3,), "shift": (3,), "skip": (2, 3), "w": (3, 2)}, (4, 4, 2)),
    Architecture("linear attention", linear_attention, {"q": (3, 3), "k": (3, 3), "v": (3, 3), "o": (3, 2)}, (4, 3)),
    Architecture("normalised attention", normalised_attention, {"qkv": (3, 6), "o": (2, 2)}, (3, 3)),
    Architecture("tied weights", tied, {"w": (4, 3), "b": (3,), "c": (4,)}, (4,)),
    Architecture("recurrent", recurrent, {"h": (3, 3), "u": (2, 3), "b": (3,), "w": (6, 2)}, (4, 2)),
    Architecture("gated units", gated, {"g": (3, 4), "u": (3, 4), "d": (4, 2)}, (3,)),
    Architecture("embedding", embedded, {"table": (6, 3), "place": (4, 3), "u": (3, 4), "d": (4, 3)}, (4,), tokens=6),
    Architecture(
        "language model", language_model,
        {"table": (6, 4), "place": (3, 4), "qkv": (4, 12), "b": (12,), "o": (4, 4), "gain": (4,), "u": (4, 8), "d": (8, 4), "head": (4, 6)},
        (3,), smooth=True, tokens=6,
    ),
    Architecture(
        "multi-head", multi_head,
        {"q": (4, 2, 2), "s": (4, 2, 2), "v": (4, 2, 2), "o": (2, 2, 4), "k": (3, 1, 4), "scale": (4,)}, (5, 4), smooth=True,
    ),
]  # fmt: skip
EXACT = [a for a in ARCHITECTURES if not a.smooth]
