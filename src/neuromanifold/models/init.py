"""Initialisations: functions `(key, net) → params`, drawn in float32.

Standard deviations, with fan_in the number of inputs of the layer:

| scheme | weights | biases |
|---|---|---|
| `he_bias` | √(2/fan_in) | √(2/fan_in)   [complexity, Sec. 5] |
| `he` | √(2/fan_in) | 0 |
| `xavier` | √(2/(fan_in+fan_out)) | 0 |
| `lecun` | √(1/fan_in) | 0 |
| `ntk` | 1 | 1 |
| `small(scale)` | scale·√(1/fan_in) | scale·√(1/fan_in) |
| `balanced` | W_{l+1}ᵀW_{l+1} = W_l W_lᵀ exactly up to rounding | 0 |
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from neuromanifold.numerics.randomness import Key


class Layer(NamedTuple):
    """The parameters of one affine layer: `weight` (out, in) and `bias` (out,), or `None` when
    there is none.
    """

    weight: Any
    bias: Any = None


Scheme = Callable[[Any, Any], tuple[Layer, ...]]


def _gaussian(
    std: Callable[[int, int], tuple[float, float]],
) -> Callable[[Any, Any], tuple[Layer, ...]]:
    def scheme(key: Any, net: Any):
        layers = []
        for fan_in, out, k in zip(
            net.widths[:-1], net.widths[1:], jax.random.split(key, net.depth), strict=True
        ):
            weight_std, bias_std = std(fan_in, out)
            weight_key, bias_key = jax.random.split(k)
            weight = jnp.float32(weight_std) * jax.random.normal(
                weight_key, (out, fan_in), jnp.float32
            )
            bias = (
                jnp.float32(bias_std) * jax.random.normal(bias_key, (out,), jnp.float32)
                if net.bias
                else None
            )
            layers.append(Layer(weight, bias))
        return tuple(layers)

    return scheme


def he_bias(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw weights *and biases* N(0, 2/fan_in), as the complexity paper draws them.
    [complexity, Sec. 5]
    """
    return _gaussian(lambda fan_in, out: ((2 / fan_in) ** 0.5, (2 / fan_in) ** 0.5))(key, net)


def he(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw weights N(0, 2/fan_in), biases 0."""
    return _gaussian(lambda fan_in, out: ((2 / fan_in) ** 0.5, 0.0))(key, net)


def xavier(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw weights N(0, 2/(fan_in + fan_out)), biases 0."""
    return _gaussian(lambda fan_in, out: ((2 / (fan_in + out)) ** 0.5, 0.0))(key, net)


def lecun(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw weights N(0, 1/fan_in), biases 0."""
    return _gaussian(lambda fan_in, out: ((1 / fan_in) ** 0.5, 0.0))(key, net)


def ntk(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw standard normal weights and biases, for nets with `scaling="ntk"`."""
    return _gaussian(lambda fan_in, out: (1.0, 1.0))(key, net)


def small(scale: float) -> Scheme:
    """Draw weights and biases N(0, `scale`²/fan_in): the regime in which neurons condense."""
    if not scale > 0:
        raise ValueError(f"`scale` is {scale}; pass a positive number.")
    return _gaussian(lambda fan_in, out: (scale / fan_in**0.5, scale / fan_in**0.5))


def balanced(key: Key, net: Any) -> tuple[Layer, ...]:
    """Draw weights with W_{l+1}ᵀW_{l+1} = W_l W_lᵀ and zero biases: W_l = U_l S U_{l-1}ᵀ with one
    diagonal S.

    U_l has min(widths) orthonormal columns; the entries of S are |N(0, 1)|.
    """
    rank = min(net.widths)
    *basis_keys, diagonal_key = jax.random.split(key, len(net.widths) + 1)
    bases = [_orthonormal(k, width, rank) for k, width in zip(basis_keys, net.widths, strict=True)]
    diagonal = jnp.abs(jax.random.normal(diagonal_key, (rank,), jnp.float32))
    return tuple(
        Layer((out * diagonal) @ into.T, jnp.zeros(len(out), jnp.float32) if net.bias else None)
        for into, out in zip(bases[:-1], bases[1:], strict=True)
    )


def _orthonormal(key: Any, rows: int, columns: int) -> Any:
    return jnp.linalg.qr(jax.random.normal(key, (rows, columns), jnp.float32))[0]


SCHEMES: dict[str, Scheme] = {
    "he_bias": he_bias,
    "he": he,
    "xavier": xavier,
    "lecun": lecun,
    "ntk": ntk,
    "balanced": balanced,
}


def resolve(scheme: str | Scheme) -> Scheme:
    """The scheme itself, or the one of that name."""
    if callable(scheme):
        return scheme
    if scheme in SCHEMES:
        return SCHEMES[scheme]
    raise ValueError(
        f"`scheme` is {scheme!r}; use one of {', '.join(SCHEMES)}, nm.init.small(scale), or a "
        "function (key, net)."
    )
