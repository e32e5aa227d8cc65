"""`MLP`: fully connected networks, and the layers their parameters are made of."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models import init as schemes
from neuromanifold.models.activation import Activation, Mixed, activation_named, apply_activation
from neuromanifold.models.init import Layer
from neuromanifold.numerics.precision import (
    arithmetic,
    boundary,
    dtype_of,
    full_products,
    is_traced,
    promote,
    to_host,
    widest,
)
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.validation import check_sample, in_order, indefinite

Params = tuple[Layer, ...]
Entry = Activation | Mixed


@dataclass(frozen=True, init=False)
class MLP:
    """A fully connected network  a_l = σ_l(W_l a_{l-1} + b_l),  a_0 = x.

    `activation` is a name, an `Activation`, or a tuple with one entry per hidden layer, an entry of
    which may be `Mixed`. The output layer is linear unless `output_activation` is given.
    `scaling="ntk"` divides each product W a by √fan_in. A network is a frozen description;
    parameters are a tuple of `Layer(weight, bias)`, weight of shape (out, in).

    >>> net = MLP((1, 10, 10, 10, 10, 1))
    >>> net.n_params        # [complexity, Sec. 3.1]: D = Σ n_l (n_{l-1} + 1)
    361
    """

    widths: tuple[int, ...]
    activation: tuple[Entry, ...]
    bias: bool
    output_activation: Activation
    scaling: str

    def __init__(
        self,
        widths: Any,
        activation: str | Entry | tuple[str | Entry, ...] = "relu",
        *,
        bias: bool = True,
        output_activation: str | Activation | None = None,
        scaling: str = "standard",
    ):
        widths = _check_widths(widths)
        if not isinstance(bias, bool):
            raise TypeError(f"`bias` is {bias!r}; pass True or False.")
        if scaling not in ("standard", "ntk"):
            raise ValueError(f"`scaling` is {scaling!r}; pass 'standard' or 'ntk'.")
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "activation", _check_activations(activation, widths[1:-1]))
        object.__setattr__(self, "bias", bias)
        object.__setattr__(
            self,
            "output_activation",
            _resolve("identity" if output_activation is None else output_activation),
        )
        object.__setattr__(self, "scaling", scaling)

    @property
    def depth(self) -> int:
        """The number of affine layers."""
        return len(self.widths) - 1

    @property
    def hidden(self) -> int:
        """The number of hidden neurons."""
        return sum(self.widths[1:-1])

    @property
    def n_params(self) -> int:
        """D = Σ n_l (n_{l-1} + [bias]).   [complexity, Sec. 3.1]"""
        return sum(
            out * (fan_in + self.bias)
            for fan_in, out in zip(self.widths[:-1], self.widths[1:], strict=True)
        )

    @property
    def activations(self) -> tuple[Entry, ...]:
        """The activation after each affine layer, the output's last."""
        return (*self.activation, self.output_activation)

    @property
    def weight_scales(self) -> tuple[float, ...]:
        """What each layer multiplies its weight product by: 1, or 1/√fan_in in NTK scaling."""
        return tuple(fan_in**-0.5 if self.scaling == "ntk" else 1.0 for fan_in in self.widths[:-1])

    def init(
        self,
        *,
        key: Key,
        scheme: str | schemes.Scheme | None = None,
        runs: int | None = None,
        dtype: Any = "float32",
    ) -> Params:
        """Draw parameters by `scheme` (a function of `nm.init`, or its name), in float32 and then
        cast: one key, one network.

        `runs=R` draws R networks from keys split off `key`, on a leading axis. The default scheme
        is `nm.init.ntk` in NTK scaling and `nm.init.he_bias` otherwise. float64 leaves as NumPy
        arrays, which nothing narrows.
        """
        check_draw(key, runs, dtype)
        draw = schemes.resolve(
            scheme if scheme is not None else "ntk" if self.scaling == "ntk" else "he_bias"
        )
        if runs is None:
            params = draw(key, self)
        else:
            params = jax.vmap(lambda k: draw(k, self))(jax.random.split(key, runs))
        if np.dtype(dtype) == np.float32:
            return params
        with arithmetic():
            return to_host(jax.tree.map(lambda leaf: leaf.astype(dtype), params))

    def __call__(self, params: Params, x: Any) -> Any:
        """f_θ(x): the outputs (n, o) at the samples (n, i), in the widest dtype passed."""
        return self._apply(_forward, params, x)

    def preactivations(self, params: Params, x: Any) -> tuple[Any, ...]:
        """Return (z_1, …, z_L): what each layer computes before its activation, each (n, n_l), in
        the widest dtype passed.
        """
        return self._apply(_preactivations, params, x)

    def _apply(self, forward: Callable[..., Any], params: Params, x: Any) -> Any:
        if is_traced((params, x)):
            with full_products():
                return forward(self, params, x)
        x = check_sample(x)
        self.check(params, x)
        with boundary(params, x) as leave:
            dtype = widest(params, x)
            return leave(forward(self, promote(params, dtype), promote(x, dtype)))

    def check(self, params: Any, x: Any, name: str = "x") -> None:
        """Refuse `params` or `x` whose shapes are not this network's; the error calls `x` by `name`."""
        self.check_params(params)
        shape = np.shape(x)
        if len(shape) != 2 or shape[1] != self.widths[0]:
            found = f"{shape[1]} features" if len(shape) == 2 else f"shape {shape}"
            raise ValueError(
                f"`{name}` has {found} but the network takes {self.widths[0]}; pass an array of "
                f"shape (n, {self.widths[0]})."
            )
        if jnp.issubdtype(dtype_of(x), jnp.complexfloating):
            raise TypeError(f"`{name}` is complex ({dtype_of(x)}); pass a real array.")

    def check_params(self, params: Any) -> None:
        """Refuse parameters whose structure or shapes are not this network's."""
        if not isinstance(params, (tuple, list)) or len(params) != self.depth:
            found = (
                f"{len(params)} layers" if isinstance(params, (tuple, list)) else indefinite(params)
            )
            raise ValueError(
                f"`params` is {found} but the network has {self.depth} layers; pass a tuple of "
                "nm.Layer."
            )
        for index, (layer, fan_in, out) in enumerate(
            zip(params, self.widths[:-1], self.widths[1:], strict=True)
        ):
            if not isinstance(layer, Layer):
                raise TypeError(
                    f"`params[{index}]` is {indefinite(layer)}; pass nm.Layer(weight, bias)."
                )
            if np.shape(layer.weight) != (out, fan_in):
                raise ValueError(
                    f"`params[{index}].weight` has shape {np.shape(layer.weight)}; the network "
                    f"needs {(out, fan_in)}."
                )
            if (layer.bias is not None) != self.bias or (
                layer.bias is not None and np.shape(layer.bias) != (out,)
            ):
                found = None if layer.bias is None else np.shape(layer.bias)
                raise ValueError(
                    f"`params[{index}].bias` has shape {found}; the network needs "
                    f"{(out,) if self.bias else None}."
                )

    def __repr__(self) -> str:
        entries = set(self.activation)
        shown = (
            str(next(iter(entries)))
            if len(entries) == 1
            else f"({', '.join(map(str, self.activation))})"
        )
        extra = "" if self.bias else ", bias=False"
        extra += (
            ""
            if self.output_activation.name == "identity"
            else f", output_activation={self.output_activation}"
        )
        extra += "" if self.scaling == "standard" else f", scaling={self.scaling!r}"
        return f"MLP({self.widths}, {shown}{extra})"


@jax.jit(static_argnums=0)
def _forward(net: MLP, params: Params, x: Any) -> Any:
    return apply_activation(net.output_activation, _preactivations(net, params, x)[-1])


def check_draw(key: Any, runs: Any, dtype: Any) -> None:
    """Refuse what `init` cannot draw with."""
    if not isinstance(key, jax.Array):
        raise TypeError(f"`key` is {key!r}; pass a JAX key such as jax.random.key(0).")
    if runs is not None and (not isinstance(runs, int) or runs < 1):
        raise ValueError(
            f"`runs` is {runs!r}; pass a positive whole number, or None for a single network."
        )
    if not jnp.issubdtype(np.dtype(dtype), jnp.floating):
        raise TypeError(
            f"`dtype` is {np.dtype(dtype)}; pass a floating dtype such as 'float32' or 'float64'."
        )


def _check_widths(widths: Any) -> tuple[int, ...]:
    try:
        checked = tuple(operator.index(w) for w in in_order(widths))
    except TypeError:
        raise TypeError(
            f"`widths` is {widths!r}; pass a sequence of whole numbers such as (1, 10, 10, 1)."
        ) from None
    if len(checked) < 2 or min(checked) < 1:
        raise ValueError(
            f"`widths` is {tuple(widths)}; pass at least input and output width, all positive "
            "whole numbers."
        )
    return checked


def _resolve(entry: Any) -> Activation:
    if isinstance(entry, str):
        return activation_named(entry)
    if isinstance(entry, Activation):
        return entry
    raise TypeError(
        f"`activation` is {entry!r}; pass a name, an nm.Activation, or wrap a function as "
        "nm.Activation(fn)."
    )


def _check_activations(activation: Any, hidden: tuple[int, ...]) -> tuple[Entry, ...]:
    entries = (
        tuple(activation) if isinstance(activation, (tuple, list)) else (activation,) * len(hidden)
    )
    if len(entries) != len(hidden):
        raise ValueError(
            f"`activation` has {len(entries)} entries for {len(hidden)} hidden layers; give one "
            "for each."
        )
    resolved = tuple(entry if isinstance(entry, Mixed) else _resolve(entry) for entry in entries)
    for index, (entry, width) in enumerate(zip(resolved, hidden, strict=True)):
        if isinstance(entry, Mixed) and entry.width != width:
            raise ValueError(
                f"`activation[{index}]` is {entry} with {entry.width} neurons; the layer has "
                f"{width}."
            )
    return resolved


def _preactivations(net: MLP, params: Params, x: Any) -> tuple[Any, ...]:
    net.check(params, x)
    a = jnp.asarray(x)
    a = a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(params[0].weight.dtype)
    outputs = []
    for layer, entry, scale in zip(params, net.activations, net.weight_scales, strict=True):
        z = a @ layer.weight.T
        z = z if scale == 1.0 else z * scale
        z = z if layer.bias is None else z + layer.bias
        outputs.append(z)
        a = apply_activation(entry, z)
    return tuple(outputs)
