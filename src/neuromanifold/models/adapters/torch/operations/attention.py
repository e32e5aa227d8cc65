"""Scaled dot-product attention."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Refusal, Scalar, Table, table


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout_p: Scalar = 0.0,
    is_causal: bool = False,
    *,
    scale: Scalar | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q kᵀ s + mask) v, with s = 1/√d; a Boolean mask says what is seen, any other is
    added.

    A query that sees nothing gives zero. With `enable_gqa`, keys and values serve several query
    heads each.
    """
    if dropout_p > 0:
        raise Refusal("draws random numbers (dropout in training mode); call `module.eval()` first")
    if enable_gqa:
        k, v = (jnp.repeat(a, q.shape[-3] // a.shape[-3], axis=-3) for a in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = jnp.matmul(q, jnp.swapaxes(k, -1, -2)) * scale
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    if mask is None:
        return jnp.matmul(jax.nn.softmax(scores, axis=-1), v)
    scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jnp.matmul(safe_softmax(scores), v)


def safe_softmax(scores: Any, dim: int = -1, dtype: Any = None) -> Any:
    """The softmax, and zeros where every score is −∞."""
    seen = jnp.isfinite(jnp.max(scores, axis=dim, keepdims=True))
    return jnp.where(seen, jax.nn.softmax(jnp.where(seen, scores, 0.0), axis=dim), 0.0)


ATTENTION: Table = table(
    {"scaled_dot_product_attention.default": attention, "_safe_softmax.default": safe_softmax}
)
