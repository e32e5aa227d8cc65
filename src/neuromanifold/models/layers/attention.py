"""`Attention`: global self-attention over all positions."""

from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from neuromanifold.models.layers.base import AbstractLayer, Shape, check_deviations, check_features
from neuromanifold.numerics.randomness import Key


class AttentionParams(NamedTuple):
    """`key`, `query` (`None` when tied) and `value` (heads, ·, channels), `out` (features,
    heads·value), `bias`.
    """

    key: Any
    query: Any
    value: Any
    out: Any
    bias: Any


@dataclass(frozen=True)
class Attention(AbstractLayer):
    """z = Σ_heads softmax(QKᵀ·s) V O + σ_b b, each of K, Q, V a linear map of the channels at each
    position.

    `key_std` is that of queries too. `tied` (the default) takes one matrix for both and the scale s
    = 1/key_features, under which the weights of attention converge as the widths grow; `tied=False`
    takes two and s = 1/√key_features, the usual choice, which has no Gaussian limit of this form.
    Every width is `features` unless given.

    >>> nm.Sequential(Attention(4), input_shape=(5, 3)).n_params      # keys and values 4·3 each, out 4·4, bias 4
    44
    """

    features: int
    heads: int = field(default=1, kw_only=True)
    key_features: int | None = field(default=None, kw_only=True)
    value_features: int | None = field(default=None, kw_only=True)
    tied: bool = field(default=True, kw_only=True)
    bias: bool = field(default=True, kw_only=True)
    key_std: float = field(default=1.0, kw_only=True)
    value_std: float = field(default=1.0, kw_only=True)
    out_std: float = field(default=1.0, kw_only=True)
    bias_std: float = field(default=1.0, kw_only=True)

    def __post_init__(self):
        for name in ("features", "heads"):
            check_features(getattr(self, name), name)
        for name in ("key_features", "value_features"):
            if getattr(self, name) is not None:
                check_features(getattr(self, name), name)
        check_deviations(
            key_std=self.key_std,
            value_std=self.value_std,
            out_std=self.out_std,
            bias_std=self.bias_std,
        )

    @property
    def widths(self) -> tuple[int, int]:
        """Channels of keys and of values, per head."""
        return self.key_features or self.features, self.value_features or self.features

    def output_shape(self, shape: Shape) -> Shape:
        """Return `shape` with `features` channels."""
        if len(shape) < 2:
            raise ValueError(
                f"`input_shape` reaches Attention as {shape}; attention needs positions and "
                "channels: pass (positions, …, channels)."
            )
        return (*shape[:-1], self.features)

    def draw(self, key: Key, shape: Shape, scaling: str) -> AttentionParams:
        """Draw all matrices standard normal, or with their standard deviations where `scaling` is standard."""
        channels, (keys, values), heads = shape[-1], self.widths, self.heads
        std = self._factors(channels) if scaling == "standard" else _Factors(1.0, 1.0, 1.0, 1.0)
        keyed = dict(zip(AttentionParams._fields, jax.random.split(key, 5), strict=True))

        def normal(name: str, factor: float, size: Shape) -> Any:
            return jnp.float32(factor) * jax.random.normal(keyed[name], size, jnp.float32)

        return AttentionParams(
            key=normal("key", std.key, (heads, keys, channels)),
            query=None if self.tied else normal("query", std.key, (heads, keys, channels)),
            value=normal("value", std.value, (heads, values, channels)),
            out=normal("out", std.out, (self.features, heads * values)),
            bias=normal("bias", std.bias, (self.features,)) if self.bias else None,
        )

    def apply(self, params: Any, x: Any, scaling: str) -> Any:
        """Return the attention's outputs: a softmax over all positions of the sample."""
        std = self._factors(x.shape[-1]) if scaling == "ntk" else _Factors(1.0, 1.0, 1.0, 1.0)
        flat = x.reshape(len(x), prod(x.shape[1:-1]), x.shape[-1])
        keys = jnp.einsum("npc,hkc->nhpk", flat, params.key)
        values = jnp.einsum("npc,hvc->nhpv", flat, params.value) * std.value
        queries = keys if self.tied else jnp.einsum("npc,hkc->nhpk", flat, params.query)
        scale = self.widths[0] ** (-1.0 if self.tied else -0.5)
        logits = jnp.einsum("nhpk,nhqk->nhpq", queries, keys) * (std.key**2 * scale)
        mixed = jnp.einsum("nhpq,nhqv->npvh", jax.nn.softmax(logits), values)
        merged = jnp.moveaxis(mixed, -1, -2).reshape(*flat.shape[:2], -1)
        z = jnp.matmul(merged, params.out.T) * std.out
        z = z if params.bias is None else z + std.bias * params.bias
        return z.reshape(*x.shape[:-1], self.features)

    def _factors(self, channels: int) -> "_Factors":
        inner = channels**-0.5
        out = (self.heads * self.widths[1]) ** -0.5
        return _Factors(
            self.key_std * inner, self.value_std * inner, self.out_std * out, self.bias_std
        )


class _Factors(NamedTuple):
    """What each matrix is multiplied by: σ/√fan_in."""

    key: float
    value: float
    out: float
    bias: float
