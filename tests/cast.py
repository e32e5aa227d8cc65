"""The cast: a dozen fixed small models. A new model joins the list and inherits every law."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np

import naive
import neuromanifold as nm


@dataclass(frozen=True)
class Member:
    """A model, how to draw float64 parameters, the shape of one sample, and the naive
    counterpart of a network.
    """

    name: str
    model: Any
    draw: Callable[[np.random.Generator], Any]
    sample: tuple[int, ...]
    outputs: int
    reference: naive.Network | None = None

    def __str__(self) -> str:
        return self.name

    def inputs(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.normal(size=(n, *self.sample))

    def jacobian(self, params: Any, x: np.ndarray) -> np.ndarray:
        """The dense reference: hand-written backpropagation for networks, plain reverse mode for
        other functions.
        """
        if self.reference is not None:
            return naive.jacobian(self.reference, naive.plain(params), np.asarray(x, np.float64))
        with jax.enable_x64(True):
            blocks = jax.tree.leaves(
                jax.jacrev(self.model)(jax.tree.map(jnp.asarray, params), jnp.asarray(x))
            )
            n = len(x) * self.outputs
            return np.concatenate([np.asarray(block).reshape(n, -1) for block in blocks], axis=1)


def drawn(
    widths: tuple[int, ...], bias: bool
) -> Callable[[np.random.Generator], tuple[nm.Layer, ...]]:
    """Parameters as float64 NumPy arrays, so that nothing of the library or of JAX's flag enters
    the draw.
    """

    def draw(rng: np.random.Generator) -> tuple[nm.Layer, ...]:
        return tuple(
            nm.Layer(
                rng.normal(size=(b, a)) / np.sqrt(a), 0.5 * rng.normal(size=b) if bias else None
            )
            for a, b in pairwise(widths)
        )

    return draw


def mlp(
    name: str,
    widths: tuple[int, ...],
    activation: Any,
    hidden: tuple[tuple[naive.Scalar, ...], ...],
    *,
    output: naive.Scalar = naive.IDENTITY,
    **options: Any,
) -> Member:
    net = nm.MLP(widths, activation, **options)
    reference = naive.Network(hidden, output, ntk=options.get("scaling") == "ntk")
    return Member(
        name, net, drawn(widths, options.get("bias", True)), widths[:1], widths[-1], reference
    )


def every(scalar: naive.Scalar, *widths: int) -> tuple[tuple[naive.Scalar, ...], ...]:
    return tuple((scalar,) * width for width in widths)


def _shared(params: Any, x: Any) -> Any:
    """The same matrix on the way in and on the way out, and two scalars."""
    hidden = jnp.tanh(params["sharpness"] * (x @ params["weight"].T))
    return hidden @ params["weight"] + params["offset"]


def _draw_shared(rng: np.random.Generator) -> Any:
    return {
        "offset": np.array(0.5),
        "sharpness": np.array(rng.normal()),
        "weight": rng.normal(size=(4, 3)),
    }


def _convolution(params: Any, x: Any) -> Any:
    """A filter of length 3 along 6 positions with 2 channels, a square, and a readout; one
    filter for all positions.
    """
    windows = jnp.stack([x[:, i : i + 3] for i in range(x.shape[1] - 2)], axis=1)
    return jnp.einsum("npic,cio->npo", windows, params["filter"]) ** 2 * params["gain"]


def _draw_convolution(rng: np.random.Generator) -> Any:
    return {"filter": rng.normal(size=(2, 3, 2)), "gain": rng.normal(size=2)}


MIXED = nm.Mixed(relu=3, identity=2)
SHARED = Member("shared weights", nm.FunctionModel(_shared), _draw_shared, (3,), 3)
CONVOLUTION = Member("convolution", nm.FunctionModel(_convolution), _draw_convolution, (6, 2), 8)
AFFINE = mlp("affine", (3, 2), "relu", ())
RELU = mlp("relu", (2, 5, 4, 1), "relu", every(naive.RELU, 5, 4))
BIAS_FREE = mlp("bias-free", (3, 4, 3, 1), "relu", every(naive.RELU, 4, 3), bias=False)
OUTPUTS = mlp("several outputs", (2, 4, 3, 3), "relu", every(naive.RELU, 4, 3))
LEAKY = mlp("leaky", (3, 4, 4, 2), nm.leaky_relu(0.25), every(naive.leaky(0.25), 4, 4))
NTK = mlp("NTK scaling", (3, 5, 4, 2), "relu", every(naive.RELU, 5, 4), scaling="ntk")
SQUARE = mlp("square", (2, 4, 1), nm.power(2), every(naive.SQUARE, 4))
LINEAR = mlp("linear", (4, 2, 3), "identity", every(naive.IDENTITY, 2), bias=False)
TANH = mlp("tanh", (2, 4, 3, 2), "tanh", every(naive.SMOOTH["tanh"], 4, 3))
MIXED_RELU = mlp(
    "mixed",
    (2, 5, 4, 2),
    (MIXED, "relu"),
    ((naive.RELU,) * 3 + (naive.IDENTITY,) * 2, (naive.RELU,) * 4),
)
EVERYTHING = mlp(
    "everything",
    (2, 4, 3, 2),
    ("gelu", nm.Mixed((nm.leaky_relu(0.5), 1), abs=2)),
    ((naive.SMOOTH["gelu"],) * 4, (naive.leaky(0.5), naive.ABS, naive.ABS)),
    output=naive.SMOOTH["sigmoid"],
    output_activation="sigmoid",
    scaling="ntk",
    bias=False,
)

PIECEWISE_LINEAR = [RELU, BIAS_FREE, OUTPUTS, MIXED_RELU, LEAKY, NTK]
EXACT = [*PIECEWISE_LINEAR, AFFINE, SQUARE, LINEAR]
MLPS = [*EXACT, TANH, EVERYTHING]
FUNCTIONS = [SHARED, CONVOLUTION]
ALL = [*MLPS, *FUNCTIONS]


@contextmanager
def unchecked() -> Iterator[None]:
    """As users run the library: without the tests' type checker, which would refuse bad input
    before it does.
    """
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


PARABOLA = nm.Activation(lambda z: 1 + 2 * z - 3 * z**2, polynomial=(1.0, 2.0, -3.0), slopes=None)
NAIVE_PARABOLA = naive.Scalar(lambda z: 1 + 2 * z - 3 * z**2, lambda z: 2 - 6 * z)


def layer(rng: np.random.Generator, width: int) -> tuple[Any, tuple[naive.Scalar, ...]]:
    """One hidden layer of a random kind that has exact ranks: for the library and for the
    reference.
    """
    first = int(rng.integers(0, width + 1))
    kinds = [
        ("relu", (naive.RELU,) * width),
        ("relu", (naive.RELU,) * width),
        (nm.leaky_relu(0.01), (naive.leaky(0.01),) * width),
        (
            nm.Mixed(relu=first, identity=width - first),
            (naive.RELU,) * first + (naive.IDENTITY,) * (width - first),
        ),
        (nm.power(2), (naive.SQUARE,) * width),
        (PARABOLA, (NAIVE_PARABOLA,) * width),
        ("abs", (naive.ABS,) * width),
        ("identity", (naive.IDENTITY,) * width),
    ]
    return kinds[rng.integers(len(kinds))]


def architecture(rng: np.random.Generator, *, width: int, depth: int, roots: bool = True) -> Member:
    """A random network of 1 to `depth` affine layers, widths 1 to `width`, 1 to 3 outputs that are
    linear or not, either
    scaling, with or without biases. `roots=False` keeps NTK scaling to widths with rational
    roots."""
    hidden = tuple(int(w) for w in rng.integers(1, width + 1, size=rng.integers(0, depth)))
    widths = (int(rng.integers(1, 4)), *hidden, int(rng.integers(1, 4)))
    layers = [layer(rng, w) for w in hidden]
    scaled = rng.random() < 0.4 and (roots or all(w in (1, 4, 9) for w in widths[:-1]))
    outputs = [(None, naive.IDENTITY)] * 4 + [("relu", naive.RELU), (nm.power(2), naive.SQUARE)]
    ours, theirs = outputs[rng.integers(len(outputs))]
    return mlp(
        f"{widths}",
        widths,
        tuple(activation for activation, _ in layers),
        tuple(scalars for _, scalars in layers),
        output=theirs,
        output_activation=ours,
        bias=bool(rng.random() < 0.7),
        scaling="ntk" if scaled else "standard",
    )


def coarse(rng: np.random.Generator, tree: Any) -> Any:
    """The same tree with small dyadic numbers, a fifth of them zero: degenerate points are
    frequent among them.
    """
    return jax.tree.map(
        lambda leaf: rng.integers(-4, 5, leaf.shape) * (rng.random(leaf.shape) < 0.9) / 4, tree
    )
