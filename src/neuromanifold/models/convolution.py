"""`LinearConvNet`: convolutions on D-dimensional signals, one filter and one stride per layer."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation, activation_named
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
from neuromanifold.numerics.validation import check_sample, in_order, indefinite

Shape = tuple[int, ...]


@dataclass(frozen=True, init=False)
class LinearConvNet:
    """A composition of convolutions  (α_{w,s}(X))_i = Σ_j w_j X_{i·s+j}  (i, j multi-indices).
    [riemann, Eq 2, 3]

    `filter_shapes` and `strides` have one entry per layer, an int (D = 1) or a D-tuple. The
    composition is again a convolution; its filter is `end_to_end(params)`, of shape k = 1 + Σ_l
    (k_l − 1) t_l with t_l = s_1⋯s_{l−1}, and its stride is s_1⋯s_H. The last stride does not enter
    the filter. Parameters are a tuple of filters. Valid convolution: a signal must have the size s
    (d − 1) + k for some output size d. `activation="relu"` puts a ReLU between the layers
    [riemann, Sec 5]; such a net has no end-to-end filter.

    >>> net = LinearConvNet((3, 2), (2, 1))                          # the running example [riemann, Ex 15]
    >>> net.end_to_end((np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))).tolist()
    [1.0, 2.0, 13.0, 20.0, 30.0]
    >>> net((np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0])), np.array([[1.0, 0.0, 0.0, 0.0, 1.0]])).tolist()
    [[31.0]]
    """

    filter_shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    activation: Activation

    def __init__(
        self, filter_shapes: Any, strides: Any, *, activation: str | Activation = "identity"
    ):
        shapes, steps = _layers("filter_shapes", filter_shapes), _layers("strides", strides)
        if len(shapes) != len(steps):
            raise ValueError(
                f"`strides` has {len(steps)} entries for {len(shapes)} layers; give one for each."
            )
        dimensions = {len(entry) for entry in (*shapes, *steps)}
        if len(dimensions) != 1:
            raise ValueError(
                f"`filter_shapes` {shapes} and `strides` {steps} mix dimensions "
                f"{sorted(dimensions)}; use D-tuples throughout."
            )
        for index, shape in enumerate(shapes):
            if prod(shape) == 1:
                raise ValueError(
                    f"`filter_shapes[{index}]` is {shape}, a layer that only multiplies by a "
                    "number; leave it out "
                    "(its stride joins the next layer's inputs) or give it a size above 1."
                )
        object.__setattr__(self, "filter_shapes", shapes)
        object.__setattr__(self, "strides", steps)
        object.__setattr__(
            self,
            "activation",
            activation_named(activation) if isinstance(activation, str) else activation,
        )

    @property
    def dimension(self) -> int:
        """D, the number of axes of a signal."""
        return len(self.strides[0])

    @property
    def depth(self) -> int:
        """H, the number of layers."""
        return len(self.filter_shapes)

    @property
    def n_params(self) -> int:
        """The number of parameters, Σ_l Π_m k_l^(m)."""
        return sum(prod(shape) for shape in self.filter_shapes)

    @property
    def is_linear(self) -> bool:
        """Whether the layers are composed without an activation between them."""
        return self.activation.name == "identity"

    @cached_property
    def dilations(self) -> tuple[Shape, ...]:
        """t_l = s_1⋯s_{l−1}, axis by axis: the exponents that layer l's polynomial is made of.
        [riemann, Eq 8]
        """
        ones = (1,) * self.dimension
        return tuple(
            accumulate(
                self.strides[:-1],
                lambda t, s: tuple(a * b for a, b in zip(t, s, strict=True)),
                initial=ones,
            )
        )

    @cached_property
    def end_to_end_shape(self) -> Shape:
        """k^(m) = 1 + Σ_l (k_l^(m) − 1) t_l^(m): the shape of the end-to-end filter."""
        layers = list(zip(self.filter_shapes, self.dilations, strict=True))
        return tuple(1 + sum((k[m] - 1) * t[m] for k, t in layers) for m in range(self.dimension))

    @cached_property
    def end_to_end_stride(self) -> Shape:
        """s_1⋯s_H, axis by axis."""
        return tuple(prod(s[m] for s in self.strides) for m in range(self.dimension))

    def signal_shape(self, output: int | Shape) -> Shape:
        """Return the input size d_0 that gives the output size: d_{l−1} = s_l (d_l − 1) + k_l."""
        output = (output,) if isinstance(output, int) else tuple(output)
        return tuple(
            s * (d - 1) + k
            for s, d, k in zip(self.end_to_end_stride, output, self.end_to_end_shape, strict=True)
        )

    def init(
        self, *, key: Key, scale: float = 1.0, runs: int | None = None, dtype: Any = "float32"
    ) -> tuple[Any, ...]:
        """Draw filters with independent N(0, `scale`²/size) entries, drawn in float32 and then cast;
        `runs=R` adds a leading axis.
        """
        keys = jax.random.split(key, self.depth)
        lead = () if runs is None else (runs,)
        params = tuple(
            jnp.float32(scale * prod(shape) ** -0.5)
            * jax.random.normal(k, (*lead, *shape), jnp.float32)
            for k, shape in zip(keys, self.filter_shapes, strict=True)
        )
        if np.dtype(dtype) == np.float32:
            return params
        with arithmetic():
            return to_host(jax.tree.map(lambda leaf: leaf.astype(dtype), params))

    def __call__(self, params: tuple[Any, ...], x: Any) -> Any:
        """The output signals (n, *d_H) at the input signals (n, *d_0), in the widest dtype
        passed.
        """
        if is_traced((params, x)):
            with full_products():
                return self._forward(params, x)
        x = check_sample(x)
        self.check(params, x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(self._forward(promote(params, dtype), promote(x, dtype)))

    def _forward(self, params: tuple[Any, ...], x: Any) -> Any:
        self.check(params, x)
        a = jnp.asarray(x)[:, None]
        for index, (w, stride) in enumerate(zip(params, self.strides, strict=True)):
            w = jnp.asarray(w)
            a = a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(w.dtype)
            dtype = jnp.promote_types(a.dtype, w.dtype)
            a = jax.lax.conv_general_dilated(
                a.astype(dtype), w.astype(dtype)[None, None], stride, "VALID"
            )
            a = a if index == self.depth - 1 else self.activation(a)
        return a[:, 0]

    def end_to_end(self, params: tuple[Any, ...]) -> Any:
        """Return μ(θ), the filter of the whole composition: the coefficients of Π_l π_{t_l}(w_l).
        [riemann, Eq 8, Lem 9]

        JAX arrays (tracers included) give a JAX array. NumPy arrays give a NumPy array of the same
        arithmetic, so that object arrays of `int` or `Fraction` are composed exactly.
        """
        if not self.is_linear:
            raise ValueError(
                f"`activation` is {self.activation.name}: only a linear net has an end-to-end "
                "filter; pass activation='identity'."
            )
        self.check_params(params)
        if any(isinstance(w, jax.Array) for w in params):
            return _compose_jax(params, self.dilations)
        return compose([np.asarray(w) for w in params], self.dilations)

    def check(self, params: Any, x: Any) -> None:
        """Refuse parameters or signals whose shapes are not this network's."""
        self.check_params(params)
        shape = np.shape(x)
        if len(shape) != self.dimension + 1:
            raise ValueError(
                f"`x` has shape {shape}; pass signals of shape (n, "
                f"{', '.join(['d'] * self.dimension)}) for D = {self.dimension}."
            )
        k, s = self.end_to_end_shape, self.end_to_end_stride
        for m, size in enumerate(shape[1:]):
            if size < k[m] or (size - k[m]) % s[m]:
                below = k[m] + max(0, (size - k[m]) // s[m]) * s[m]
                raise ValueError(
                    f"`x` has size {size} along axis {m + 1}; the network takes {k[m]} + {s[m]}·j, "
                    f"so crop or pad it to {below} or {below + s[m]}."
                )

    def check_params(self, params: Any) -> None:
        """Refuse parameters that are not one filter of the right shape per layer."""
        if not isinstance(params, (tuple, list)) or len(params) != self.depth:
            found = (
                f"{len(params)} filters"
                if isinstance(params, (tuple, list))
                else indefinite(params)
            )
            raise ValueError(
                f"`params` is {found} but the network has {self.depth} layers; pass a tuple of "
                "filters."
            )
        for index, (w, shape) in enumerate(zip(params, self.filter_shapes, strict=True)):
            if np.shape(w) != shape:
                raise ValueError(
                    f"`params[{index}]` has shape {np.shape(w)}; the network needs {shape}."
                )

    def __repr__(self) -> str:
        shapes, strides = (
            tuple(e[0] if self.dimension == 1 else e for e in a)
            for a in (self.filter_shapes, self.strides)
        )
        return (
            f"LinearConvNet({shapes}, "
            f"{strides}{'' if self.is_linear else f', activation={self.activation.name!r}'})"
        )


def compose(filters: Any, dilations: tuple[Shape, ...]) -> np.ndarray:
    """The product of the sparse polynomials Σ_i w_l[i] z^{t_l i}, in the arithmetic of the
    arrays.
    """
    product = filters[0]  # t_1 = 1
    for w, t in zip(filters[1:], dilations[1:], strict=True):
        product = dilated_product(product, w, t)
    return product


def dilated_product(p: np.ndarray, w: np.ndarray, t: Shape) -> np.ndarray:
    """p(z) · w(z^t) as coefficient arrays.

    >>> dilated_product(np.array([1, 2, 3]), np.array([1, 10]), (2,)).tolist()
    [1, 2, 13, 20, 30]
    """
    shape = tuple(n + s * (k - 1) for n, s, k in zip(p.shape, t, w.shape, strict=True))
    product = np.zeros(shape, np.result_type(p, w))
    for index in np.ndindex(w.shape):
        corner = tuple(slice(s * i, s * i + n) for s, i, n in zip(t, index, p.shape, strict=True))
        product[corner] += w[index] * p
    return product


def _compose_jax(filters: tuple[Any, ...], dilations: tuple[Shape, ...]) -> Any:
    dtype = jnp.result_type(*filters)
    product = jnp.asarray(filters[0], dtype)[None, None]
    for w, t in zip(filters[1:], dilations[1:], strict=True):
        kernel = jnp.flip(jnp.asarray(w, dtype))[None, None]
        padding = [(s * (k - 1),) * 2 for s, k in zip(t, w.shape, strict=True)]
        product = jax.lax.conv_general_dilated(
            product, kernel, (1,) * w.ndim, padding, rhs_dilation=t
        )
    return product[0, 0]


def _layers(name: str, given: Any) -> tuple[Shape, ...]:
    try:
        layers = tuple(
            entry if isinstance(entry, (tuple, list)) else (entry,) for entry in in_order(given)
        )
        checked = tuple(tuple(int(size) for size in entry) for entry in layers)
    except (TypeError, ValueError):
        raise TypeError(
            f"`{name}` is {given!r}; pass one whole number, or one D-tuple of them, per layer."
        ) from None
    if (
        not checked
        or any(not entry or min(entry) < 1 for entry in checked)
        or any(
            a != b
            for new, old in zip(checked, layers, strict=True)
            for a, b in zip(new, old, strict=True)
        )
    ):
        raise ValueError(
            f"`{name}` is {given!r}; pass one entry per layer, all positive whole numbers."
        )
    return checked
