"""`Sequential`: a network described by a list of layers, finite and infinitely wide alike."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.layers.base import SCALINGS, AbstractLayer, Shape
from neuromanifold.models.layers.branches import (
    Given,
    apply_all,
    as_layers,
    draw_all,
    shapes_through,
)
from neuromanifold.models.mlp import check_draw
from neuromanifold.numerics.precision import (
    arithmetic,
    boundary,
    full_products,
    is_traced,
    promote,
    to_host,
    widest,
)
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.validation import check_sample


@dataclass(frozen=True, init=False)
class Sequential:
    """Layers in order, for samples of shape `input_shape`, channels last.

    A layer is one of `nm.layers`, an activation, or an activation's name. `scaling="ntk"` keeps
    parameters standard normal and multiplies by the layers' standard deviations, σ_w W a/√fan_in +
    σ_b b; `"standard"` draws the parameters with them. Parameters are a tuple with one entry per
    layer: `nm.Layer(weight, bias)` for `Dense` and `Conv`, `()` for layers without parameters.
    `nm.nngp` and `nm.infinite_ntk` take the description itself.

    >>> from neuromanifold.models.layers import Conv, Dense, GlobalAvgPool
    >>> net = Sequential(Conv(8, 3), "relu", GlobalAvgPool(), Dense(10), input_shape=(6, 6, 2))
    >>> net.output_shape, net.n_params          # 8·2·9 + 8 and 10·8 + 10
    ((10,), 242)
    """

    layers: tuple[AbstractLayer, ...]
    input_shape: Shape
    scaling: str

    def __init__(self, *layers: Given, input_shape: Any, scaling: str = "ntk"):
        if scaling not in SCALINGS:
            raise ValueError(f"`scaling` is {scaling!r}; pass 'ntk' or 'standard'.")
        object.__setattr__(self, "layers", as_layers(layers, "layers"))
        object.__setattr__(self, "input_shape", _check_shape(input_shape))
        object.__setattr__(self, "scaling", scaling)
        shapes_through(self.layers, self.input_shape)

    @property
    def output_shape(self) -> Shape:
        """The shape of the output at one sample."""
        return shapes_through(self.layers, self.input_shape)[-1]

    @property
    def n_params(self) -> int:
        """The number of parameters."""
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(self._parameter_shapes))

    def init(self, *, key: Key, runs: int | None = None, dtype: Any = "float32") -> tuple[Any, ...]:
        """Draw parameters as the layers say, in float32 and then cast; `runs=R` draws R
        networks on a leading axis.
        """
        check_draw(key, runs, dtype)
        params = (
            self._draw(key) if runs is None else jax.vmap(self._draw)(jax.random.split(key, runs))
        )
        if np.dtype(dtype) == np.float32:
            return params
        with arithmetic():
            return to_host(jax.tree.map(lambda leaf: leaf.astype(dtype), params))

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x): the outputs (n, *output_shape) at the samples (n, *input_shape), in the widest
        dtype passed.
        """
        self.check(params, x)
        if is_traced((params, x)):
            x = jnp.asarray(x)
            x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(widest(params))
            with full_products():
                return apply_all(self.layers, params, x, self.scaling)
        x = check_sample(x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(_forward(self, promote(params, dtype), jnp.asarray(x, dtype)))

    def check(self, params: Any, x: Any, name: str = "x") -> None:
        """Refuse `params` or `x` whose shapes are not this network's; the error calls `x` by `name`."""
        self.check_params(params)
        if np.ndim(x) == 0 or np.shape(x)[1:] != self.input_shape:
            sizes = ", ".join(map(str, self.input_shape))
            raise ValueError(f"`{name}` has shape {np.shape(x)}; the network takes (n, {sizes}).")

    def check_params(self, params: Any) -> None:
        """Refuse parameters whose structure or shapes are not this network's."""
        expected = self._parameter_shapes
        if jax.tree.structure(params) != jax.tree.structure(expected):
            raise ValueError(
                f"`params` has the structure {jax.tree.structure(params)}; the network needs "
                f"{jax.tree.structure(expected)}, "
                "as `init` draws it."
            )
        for (path, leaf), needed in zip(
            jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(expected), strict=True
        ):
            if np.shape(leaf) != needed.shape:
                where = jax.tree_util.keystr(path)
                raise ValueError(
                    f"`params{where}` has shape {np.shape(leaf)}; the network needs {needed.shape}."
                )

    def _draw(self, key: Any) -> tuple[Any, ...]:
        return draw_all(self.layers, key, self.input_shape, self.scaling)

    @cached_property
    def _parameter_shapes(self) -> Any:
        # The key is made inside, so that nothing enters the trace that asks.
        return jax.eval_shape(lambda seed: self._draw(jax.random.key(seed)), 0)


@jax.jit(static_argnums=0)
def _forward(net: Sequential, params: Any, x: Any) -> Any:
    return apply_all(net.layers, params, x, net.scaling)


def _check_shape(shape: Any) -> Shape:
    values = (shape,) if isinstance(shape, int) else tuple(shape)
    if not values or not all(isinstance(v, (int, np.integer)) and v >= 1 for v in values):
        raise ValueError(
            f"`input_shape` is {shape!r}; pass positive whole numbers, positions first and "
            "channels last."
        )
    return tuple(int(v) for v in values)
