"""The structured kernel of eight architectures against contraction of their Jacobians, both
compiled, in one run.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm
from benchmarks.harness import Routine, compare
from benchmarks.row import Row

REPEATS = 9
LEAST = 0.85


class Architecture(NamedTuple):
    """A model with the shapes of its parameters and samples; `target` is the least acceptable
    ratio.
    """

    name: str
    f: Callable[[Any, Any], Any]
    shapes: dict[str, tuple[int, ...]]
    sample: tuple[int, ...]
    n: int
    target: float = LEAST
    vocabulary: int = 0


def dense(params: Any, x: Any) -> Any:
    """ReLU layers w0, w1, … with biases b0, b1, …."""
    last = len(params) // 2 - 1
    for i in range(last):
        x = jax.nn.relu(x @ params[f"w{i}"] + params[f"b{i}"])
    return x @ params[f"w{last}"] + params[f"b{last}"]


def residual(params: Any, x: Any) -> Any:
    """A stream with two blocks."""
    h = x @ params["in"]
    for i in range(2):
        h = h + jax.nn.relu(h @ params[f"up{i}"]) @ params[f"down{i}"]
    return h @ params["out"]


def convolutional(params: Any, x: Any) -> Any:
    """Convolutions with pooling, then dense layers: LeNet where the shapes are its."""
    layers = sum(name.startswith("c") for name in params)
    for i in range(layers):
        x = jax.nn.relu(_convolve(x, params[f"c{i}"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return dense({k: v for k, v in params.items() if k[0] in "wb"}, x.reshape(len(x), -1))


def _convolve(x: Any, w: Any, groups: int = 1) -> Any:
    axes = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=axes, feature_group_count=groups
    )


def depthwise(params: Any, x: Any) -> Any:
    """A depthwise convolution and a pointwise one."""
    h = jax.nn.relu(_convolve(x, params["depth"], groups=x.shape[-1]))
    return jax.nn.relu(_convolve(h, params["point"])).mean(axis=(1, 2)) @ params["out"]


def recurrent(params: Any, x: Any) -> Any:
    """A tanh cell over eight steps: one matrix, used eight times."""
    h = jnp.zeros((len(x), params["h"].shape[0]))
    for t in range(x.shape[1]):
        h = jnp.tanh(x[:, t] @ params["x"] + h @ params["h"])
    return h @ params["out"]


def _attend(params: Any, i: int, h: Any) -> Any:
    q, k, v = (h @ params[f"{name}{i}"] for name in "qkv")
    scores = jnp.where(jnp.tril(jnp.ones((h.shape[1],) * 2, bool)), q @ jnp.swapaxes(k, 1, 2), -1e9)
    return jax.nn.softmax(scores / np.sqrt(q.shape[-1])) @ v @ params[f"o{i}"]


def attention(params: Any, x: Any) -> Any:
    """One causal layer, averaged over places."""
    return _attend(params, 0, x).mean(axis=1)


def language_model(params: Any, x: Any) -> Any:
    """Two layers, all logits at all places."""
    h = params["embed"][x]
    for i in range(2):
        h = h + _attend(params, i, h)
        h = h + jax.nn.gelu(h @ params[f"up{i}"]) @ params[f"down{i}"]
    return (h @ params["unembed"]).reshape(len(x), -1)


def _layers(*widths: int) -> dict[str, tuple[int, ...]]:
    pairs = list(zip(widths[:-1], widths[1:], strict=True))
    return {f"w{i}": pair for i, pair in enumerate(pairs)} | {
        f"b{i}": (out,) for i, (_, out) in enumerate(pairs)
    }


def _blocks(d: int, count: int, wide: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(count):
        shapes |= {f"{name}{i}": (d, d) for name in "qkvo"} | {
            f"up{i}": (d, wide),
            f"down{i}": (wide, d),
        }
    return shapes


ARCHITECTURES = [
    Architecture("MLP 1-10-10-10-10-1", dense, _layers(1, 10, 10, 10, 10, 1), (1,), 100),
    Architecture("MLP 784-1024-1024-10", dense, _layers(784, 1024, 1024, 10), (784,), 32, target=400),
    Architecture(
        "residual 64, two blocks", residual,
        {"in": (32, 64), "up0": (64, 128), "down0": (128, 64), "up1": (64, 128), "down1": (128, 64), "out": (64, 10)}, (32,), 64,
    ),
    Architecture("8×8 CNN", convolutional, {"c0": (3, 3, 1, 4), **_layers(36, 16, 10)}, (8, 8, 1), 64),
    Architecture(
        "LeNet-5", convolutional, {"c0": (5, 5, 1, 6), "c1": (5, 5, 6, 16), **_layers(256, 120, 84, 10)}, (28, 28, 1), 32, target=3,
    ),
    Architecture("depthwise separable", depthwise, {"depth": (3, 3, 1, 16), "point": (1, 1, 16, 32), "out": (32, 10)}, (10, 10, 16), 32),
    Architecture("recurrent 32, eight steps", recurrent, {"x": (8, 32), "h": (32, 32), "out": (32, 10)}, (8, 8), 64, target=1.2),
    Architecture("causal attention 32", attention, {k: v for k, v in _blocks(32, 1, 1).items() if k[0] in "qkvo"}, (8, 32), 32, target=1.5),
    Architecture(
        "language model, two layers, all logits", language_model,
        {"embed": (64, 32), "unembed": (32, 64), **_blocks(32, 2, 128)}, (8,), 4, target=3, vocabulary=64,
    ),
]  # fmt: skip


def drawn(it: Architecture) -> tuple[Any, Any]:
    """Parameters of standard deviation 1/√(fan-in), and samples, in float32."""
    rng = np.random.default_rng(0)
    params = {
        name: (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[:-1])))).astype(np.float32)
        for name, shape in it.shapes.items()
    }
    if it.vocabulary:
        return params, rng.integers(0, it.vocabulary, (it.n, *it.sample))
    return params, rng.standard_normal((it.n, *it.sample)).astype(np.float32)


def contraction(f: Callable[[Any, Any], Any], params: Any, x: Any) -> Any:
    """J Jᵀ from the Jacobian by reverse mode, sample by sample."""
    rows = jax.vmap(lambda sample: jax.jacrev(lambda p: f(p, sample[None])[0])(params))(x)
    J = jnp.concatenate(
        [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(rows)], axis=2
    )
    J = J.reshape(-1, J.shape[-1])
    return jnp.matmul(J, J.T, precision="highest")


def rows(*, quick: bool) -> Iterator[Row]:
    """Each architecture; `quick` leaves out those whose Jacobian is large."""
    for it in ARCHITECTURES:
        if quick and it.target > 2:
            continue
        params, x = drawn(it)
        ours, theirs = (
            jax.jit(lambda p, x, it=it: nm.ntk(it.f, p, x)),
            jax.jit(lambda p, x, it=it: contraction(it.f, p, x)),
        )
        yield compare(
            f"kernel of all outputs, {it.name}, N={it.n}",
            Routine("ours", lambda: ours(params, x), _norm),  # noqa: B023  measured before the next one is made
            Routine("contraction of the Jacobian", lambda: theirs(params, x), _norm),  # noqa: B023
            target=it.target,
            repeats=3 if quick else REPEATS,
            tolerance=1e-5,
        )


def _norm(kernel: Any) -> float:
    return float(np.linalg.norm(np.asarray(kernel, np.float64)))
