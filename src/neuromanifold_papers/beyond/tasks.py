"""Small networks on 8×8 images and on modular addition, and labels that grow harder."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm

CLASSES = 10
SHAPES: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "convolutional": {
        "1 convolution": {"weight": (9, 1, 4), "bias": (4,)},
        "2 convolution": {"weight": (4, 4, 8), "bias": (8,)},
        "3 dense": {"weight": (32, CLASSES), "bias": (CLASSES,)},
    },
    "transformer": {
        "1 embedding": {"weight": (16, 4), "bias": (4,), "position": (4, 4)},
        "2 attention": {"q": (4, 2, 2), "k": (4, 2, 2), "v": (4, 2, 2), "o": (2, 2, 4)},
        "3 perceptron": {"up": (4, 10), "inner": (10,), "down": (10, 4), "bias": (4,)},
        "4 dense": {"weight": (16, CLASSES), "bias": (CLASSES,)},
    },
}
"""The parameters of both networks, layer by layer."""


def convolutional(params: Any, x: Any) -> Any:
    """4 channels of 3×3, ReLU, means over 2×2, 8 channels of 2×2, ReLU, 10 outputs."""
    first, second, last = params.values()
    h = jax.nn.relu(_convolve(x.reshape(-1, 8, 8, 1), first, 3))
    h = h.reshape(-1, 3, 2, 3, 2, 4).mean(axis=(2, 4))
    h = jax.nn.relu(_convolve(h, second, 2)).reshape(len(x), -1)
    return h @ last["weight"] + last["bias"]


def _convolve(x: Any, layer: Any, side: int) -> Any:
    """A convolution as one product of windows: many runs at once are then one batched product."""
    rows = x.shape[1] - side + 1
    windows = [x[:, i : i + rows, j : j + rows] for i in range(side) for j in range(side)]
    return jnp.einsum("pnabc,pco->nabo", jnp.stack(windows), layer["weight"]) + layer["bias"]


def transformer(params: Any, x: Any) -> Any:
    """Four patches of 4×4 pixels as tokens, one block of attention (two heads) and a ReLU
    perceptron, without normalisation; all tokens are read.
    """
    embedding, attention, perceptron, last = params.values()
    patches = x.reshape(-1, 2, 4, 2, 4).transpose(0, 1, 3, 2, 4).reshape(-1, 4, 16)
    h = patches @ embedding["weight"] + embedding["bias"] + embedding["position"]
    return _block(attention, perceptron, h, h).reshape(len(x), -1) @ last["weight"] + last["bias"]


def adder(params: Any, x: Any) -> Any:
    """Two numbers, one-hot, and a token that reads them; one block; the last token's outputs."""
    embedding, attention, perceptron, last = params.values()
    numbers = x.reshape(len(x), 2, -1) @ embedding["weight"] + embedding["position"]
    read = jnp.broadcast_to(embedding["read"], (len(x), 1, numbers.shape[-1]))
    h = _block(attention, perceptron, read, jnp.concatenate([numbers, read], axis=1))
    return h[:, 0] @ last["weight"]


def adder_shapes(modulus: int, width: int) -> dict[str, dict[str, tuple[int, ...]]]:
    """The parameters of `adder`: two heads, as many units as the stream is wide."""
    half = width // 2
    return {
        "1 embedding": {"weight": (modulus, width), "position": (2, width), "read": (width,)},
        "2 attention": {
            "q": (width, 2, half), "k": (width, 2, half), "v": (width, 2, half), "o": (2, half, width),
        },
        "3 perceptron": {
            "up": (width, width), "inner": (width,), "down": (width, width), "bias": (width,),
        },
        "4 dense": {"weight": (width, modulus)},
    }  # fmt: skip


def _block(attention: Any, perceptron: Any, reading: Any, tokens: Any) -> Any:
    """The stream of the tokens `reading` after they attended to `tokens` and passed the perceptron."""
    q = jnp.einsum("nsd,dhe->nhse", reading, attention["q"])
    k, v = (jnp.einsum("ntd,dhe->nhte", tokens, attention[name]) for name in "kv")
    scores = jnp.einsum("nhse,nhte->nhst", q, k) / np.sqrt(q.shape[-1])
    seen = jnp.einsum("nhst,nhte->nhse", jax.nn.softmax(scores, axis=-1), v)
    h = reading + jnp.einsum("nhse,hed->nsd", seen, attention["o"])
    inner = jax.nn.relu(h @ perceptron["up"] + perceptron["inner"])
    return h + inner @ perceptron["down"] + perceptron["bias"]


NETWORKS = {"convolutional": convolutional, "transformer": transformer}


def initial(shapes: Any, *, key: Any, runs: int, gain: float) -> Any:
    """Normal numbers of variance gain/fan-in, a run axis in front; a bias has its layer's fan-in."""
    keys = iter(jax.random.split(key, sum(len(layer) for layer in shapes.values())))
    return {
        name: {
            leaf: jax.random.normal(next(keys), (runs, *shape))
            * np.sqrt(gain / _fan_in(leaf, layer))
            for leaf, shape in layer.items()
        }
        for name, layer in shapes.items()
    }


def _fan_in(leaf: str, layer: dict[str, tuple[int, ...]]) -> int:
    """What one number sums over; for a bias that of the layer's first weight."""
    if len(layer[leaf]) == 1:
        leaf = next(iter(layer))
    return int(np.prod(layer[leaf][:-1])) if leaf in ("weight", "o") else layer[leaf][0]


class MissingData(Exception):
    """A data set is not on this machine; the text says how to get it."""


def load(name: str) -> nm.data.Dataset:
    """The data set called `name`; a missing file or package becomes `MissingData`."""
    try:
        return nm.data.load(name)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        raise MissingData(str(error)) from error


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """8×8 pixels, flat, of mean 0 and variance 1, and classes: the digits of scikit-learn, or the
    10,000 test images of Fashion-MNIST with two black pixels around them, averaged over 4×4.
    """
    data = load({"digits": "digits", "Fashion-MNIST": "fashion_mnist_test"}[name])
    x = np.asarray(data.x)
    if name == "Fashion-MNIST":
        padded = np.pad(x.reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2)))
        x = padded.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(-1, 64)
    return (x - x.mean()) / x.std(), np.asarray(data.y).argmax(axis=1)


def noisy(labels: np.ndarray, noises: tuple[float, ...], rng: np.random.Generator) -> np.ndarray:
    """Labels of which growing shares are replaced by random ones; a share holds all smaller ones."""
    n = len(labels)
    random, ranks = rng.integers(CLASSES, size=n), rng.permutation(n)
    return np.stack([np.where(ranks < n * noise, random, labels) for noise in noises])


def cycling(x: np.ndarray, degrees: tuple[int, ...]) -> np.ndarray:
    """Labels that go k times through all classes along the first principal component of `x`: each
    class has as many images (but for rounding), whatever the degree k.
    """
    along = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, 0]
    place = np.argsort(np.argsort(along)) / len(x)
    return np.stack([np.floor(CLASSES * (k * place % 1)).astype(int) for k in degrees])
