"""Ten small networks of every kind, each plain, with a dead unit and with a duplicate one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm

Layers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """A model, a draw of its parameters, samples, and what plants a dead and a duplicate unit."""

    f: Any
    draw: Callable[[np.random.Generator], Any]
    inputs: Callable[[np.random.Generator], Any]
    dead: Callable[[Any], Any]
    duplicate: Callable[[Any], Any]


def _dense(widths: tuple[int, ...], activation: str, n: int, *, bias: bool = True) -> Kind:
    net = nm.MLP(widths, activation, bias=bias)

    def draw(rng: np.random.Generator) -> Any:
        pairs = zip(widths, widths[1:], strict=False)
        return tuple(
            nm.Layer(rng.normal(size=(b, a)) / np.sqrt(a), rng.normal(size=b) / 2 if bias else None)
            for a, b in pairs
        )

    def change(params: Any, make: Callable[[np.ndarray, np.ndarray | None], None]) -> Any:
        first = nm.Layer(*(None if a is None else a.copy() for a in params[0]))
        make(first.weight, first.bias)
        return (first, *params[1:])

    def dead(weight: np.ndarray, shift: np.ndarray | None) -> None:
        weight[0] = 0.0
        if shift is not None:
            shift[0] = -1.0

    def duplicate(weight: np.ndarray, shift: np.ndarray | None) -> None:
        weight[1] = weight[2]
        if shift is not None:
            shift[1] = shift[2]

    return Kind(
        net,
        draw,
        lambda rng: rng.normal(size=(n, widths[0])),
        lambda params: change(params, dead),
        lambda params: change(params, duplicate),
    )


def _named(f: Any, shapes: dict[str, tuple[int, ...]], inputs: Any, writes: dict[str, int]) -> Kind:
    """A function of named arrays; `writes` names those that write the planted units and the axis
    of the units in each.
    """

    def draw(rng: np.random.Generator) -> Layers:
        return {
            name: np.abs(rng.normal(size=shape)) + 0.5
            if name.startswith("var")
            else rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))
            for name, shape in shapes.items()
        }

    def change(params: Layers, make: Callable[[str, np.ndarray], None]) -> Layers:
        new = {name: array.copy() for name, array in params.items()}
        for name, axis in writes.items():
            make(name, np.moveaxis(new[name], axis, 0))
        return new

    def dead(name: str, units: np.ndarray) -> None:
        units[0] = -5.0 if name.startswith("bias") else 1.0 if name.startswith("var") else 0.0

    def duplicate(name: str, units: np.ndarray) -> None:
        units[1] = units[2]

    return Kind(f, draw, inputs, lambda p: change(p, dead), lambda p: change(p, duplicate))


def _images(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(12, 1, 5, 5))


def _convolve(x: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME")


def _normalise(params: Any, x: Any, k: int) -> Any:
    gain = params[f"gain{k}"] / jnp.sqrt(params[f"var{k}"] + 1e-5)
    shape = (1, -1, 1, 1)
    return (x - params[f"mean{k}"].reshape(shape)) * gain.reshape(shape) + params[
        f"bias{k}"
    ].reshape(shape)


def _cnn(params: Any, x: Any) -> Any:
    h = jax.nn.relu(_convolve(x, params["kernel"]) + params["bias"].reshape(1, -1, 1, 1))
    return h.mean(axis=(2, 3)) @ params["out"]


def _resnet(params: Any, x: Any) -> Any:
    h = jax.nn.relu(_normalise(params, _convolve(x, params["stem"]), 0))
    inner = jax.nn.relu(_normalise(params, _convolve(h, params["kernel1"]), 1))
    h = jax.nn.relu(h + _normalise(params, _convolve(inner, params["kernel2"]), 2))
    return h.mean(axis=(2, 3)) @ params["out"]


def _normal(h: Any) -> Any:
    h = h - h.mean(axis=-1, keepdims=True)
    return h / jnp.sqrt((h**2).mean(axis=-1, keepdims=True) + 1e-5)


def _block(params: Any, h: Any, activation: Any) -> Any:
    q, k, v = (_normal(h) @ params[name] for name in "qkv")
    weights = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / 2.0, axis=-1)
    h = h + weights @ v @ params["o"]
    return h + activation(_normal(h) @ params["up"] + params["bias"]) @ params["down"]


def _transformer(params: Any, x: Any) -> Any:
    return _block(params, x @ params["embed"], jax.nn.relu).mean(axis=1) @ params["out"]


def _language(params: Any, tokens: Any) -> Any:
    return _block(params, params["embed"][tokens], jax.nn.gelu)[:, -1] @ params["out"]


def _gated(params: Any, x: Any) -> Any:
    """A ReLU network whose last step is a sigmoid."""
    h = jax.nn.relu(x @ params["in"].T + params["bias"])
    return jax.nn.sigmoid(h @ params["out"])


_BATCH_NORMAL = {f"{name}{k}": (3,) for k in range(3) for name in ("gain", "bias", "mean", "var")}
_BLOCK = {name: (4, 4) for name in "qkvo"} | {"up": (4, 6), "bias": (6,), "down": (6, 4)}
_READS = {"up": 1, "bias": 0}

KINDS: dict[str, Kind] = {
    "one variable": _dense((1, 5, 5, 1), "relu", 40),
    "classes": _dense((3, 6, 4, 3), "relu", 10),
    "no biases": _dense((2, 5, 4, 1), "relu", 30, bias=False),
    "linear": _dense((3, 4, 2), "identity", 12),
    "tanh": _dense((2, 4, 3, 1), "tanh", 25),
    "sigmoid at the end": _named(
        _gated, {"in": (5, 2), "bias": (5,), "out": (5, 1)}, lambda rng: rng.normal(size=(20, 2)),
        {"in": 0, "bias": 0},
    ),
    "CNN": _named(_cnn, {"kernel": (4, 1, 3, 3), "bias": (4,), "out": (4, 2)}, _images, {"kernel": 0, "bias": 0}),
    "ResNet": _named(
        _resnet,
        {"stem": (3, 1, 3, 3), "kernel1": (3, 3, 3, 3), "kernel2": (3, 3, 3, 3), **_BATCH_NORMAL, "out": (3, 2)},
        _images,
        {"kernel1": 0, "gain1": 0, "bias1": 0, "mean1": 0, "var1": 0},
    ),
    "transformer": _named(
        _transformer, {"embed": (3, 4), **_BLOCK, "out": (4, 2)}, lambda rng: rng.normal(size=(15, 3, 3)), _READS
    ),
    "language model": _named(
        _language, {"embed": (7, 4), **_BLOCK, "out": (4, 7)}, lambda rng: rng.integers(0, 7, (6, 5)), _READS
    ),
}  # fmt: skip


def networks() -> Iterator[tuple[str, str, Any, Any, Any]]:
    """(kind, what was planted, f, params, x), thirty of them."""
    for index, (name, kind) in enumerate(KINDS.items()):
        rng = np.random.default_rng(index)
        params, x = kind.draw(rng), kind.inputs(rng)
        yield name, "nothing", kind.f, params, x
        yield name, "dead", kind.f, kind.dead(params), x
        yield name, "duplicate", kind.f, kind.duplicate(params), x
