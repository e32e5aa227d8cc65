"""Operations that are linear in each argument: products, convolutions, look-ups."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import (
    Refusal,
    Scalar,
    Table,
    repeat,
    table,
)
from neuromanifold.models.adapters.torch.operations.reduction import norm


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x Wᵀ + b."""
    y = jnp.matmul(x, jnp.transpose(weight))
    return y if bias is None else y + bias


def bilinear(a: Any, b: Any, weight: Any, bias: Any = None) -> Any:
    """yₖ = aᵀ Wₖ b + bₖ."""
    y = jnp.einsum("...i,kij,...j->...k", a, weight, b)
    return y if bias is None else y + bias


def addmm(x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """βx + α a b."""
    product = jnp.matmul(a, b)
    return (x if beta == 1 else beta * x) + (product if alpha == 1 else alpha * product)


def einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    """Einstein's sum."""
    return jnp.einsum(equation, *operands)


def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table, NaN for an index outside it; the row `padding_idx` gets no gradient, as
    in PyTorch.
    """
    if scale_grad_by_freq:
        raise Refusal(
            "scales gradients by how often an index occurs in the batch; build it without "
            "scale_grad_by_freq"
        )
    rows = jnp.take(weight, indices, axis=0, mode="fill")
    if padding_idx < 0:
        return rows
    return jnp.where((indices == padding_idx)[..., None], jax.lax.stop_gradient(rows), rows)


def one_hot(indices: Any, classes: int = -1) -> Any:
    """Unit vectors."""
    if classes < 0:
        raise Refusal("reads the number of classes off the values; pass num_classes")
    return jax.nn.one_hot(indices, classes, dtype=int)


def convolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of (n, c, *space) with (out, c/groups, *window), plus a bias per
    channel.
    """
    space = weight.ndim - 2
    y = jax.lax.conv_general_dilated(
        x if x.ndim == weight.ndim else x[None],
        weight,
        window_strides=repeat(stride, space),
        padding=_margins(padding, weight.shape[2:], repeat(dilation, space)),
        rhs_dilation=repeat(dilation, space),
        feature_group_count=groups,
    )
    return _with_bias(y if x.ndim == weight.ndim else y[0], bias, space)


def transposed_convolution(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The adjoint of a convolution: (n, c, *space) with (c, out/groups, *window)."""
    space = weight.ndim - 2
    margins = [
        (d * (k - 1) - p, d * (k - 1) - p + extra)
        for k, d, p, extra in zip(
            weight.shape[2:],
            repeat(dilation, space),
            repeat(padding, space),
            repeat(output_padding, space),
            strict=True,
        )
    ]
    y = jax.lax.conv_general_dilated(
        x,
        jnp.flip(_swap_channels(weight, groups), range(2, 2 + space)),
        window_strides=(1,) * space,
        padding=margins,
        lhs_dilation=repeat(stride, space),
        rhs_dilation=repeat(dilation, space),
        feature_group_count=groups,
    )
    return _with_bias(y, bias, space)


def general_convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """ATen's one signature for both."""
    if transposed:
        return transposed_convolution(
            x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return convolution(x, weight, bias, stride, padding, dilation, groups)


def _margins(
    padding: Any, window: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(window)
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(p, p) for p in repeat(padding, len(window))]


def _swap_channels(weight: Any, groups: int) -> Any:
    c, out, *window = weight.shape
    w = jnp.swapaxes(weight.reshape(groups, c // groups, out, *window), 1, 2)
    return w.reshape(groups * out, c // groups, *window)


def _with_bias(y: Any, bias: Any, space: int) -> Any:
    return y if bias is None else y + bias.reshape(-1, *(1,) * space)


def cosine_similarity(a: Any, b: Any, dim: int = 1, eps: Scalar = 1e-8) -> Any:
    """⟨a, b⟩ over max(‖a‖, ε) max(‖b‖, ε), differentiated as if no norm were below ε."""

    def unit(x: Any) -> Any:
        size = norm(x, 2, dim, keepdim=True)
        return x / (size + jax.lax.stop_gradient(jnp.maximum(size, eps) - size))

    return jnp.sum(unit(a) * unit(b), axis=dim)


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """g v/‖v‖, the norm over all axes but one."""
    rest = tuple(axis for axis in range(v.ndim) if axis != dim)
    return v * (g / jnp.sqrt(jnp.sum(v * v, axis=rest, keepdims=True)))


def multiply_groups(
    x: Any, weights: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """x_i W_g(i): the rows of x lie group by group, and `offs` says where each group ends."""
    if offs is None or bias is not None or (x.ndim, weights.ndim) != (2, 3):
        raise Refusal("groups other than the rows of a matrix; use torch.matmul")
    group = jnp.searchsorted(offs, jnp.arange(len(x)), side="right")
    chosen = (group[:, None] == jnp.arange(len(weights))).astype(x.dtype)
    return jnp.einsum("ni,gio,ng->no", x, weights, chosen)


LINEAR: Table = table(
    {
        "linear.default": linear,
        "bilinear.default": bilinear,
        "matmul.default mm.default bmm.default mv.default dot.default": jnp.matmul,
        "addmm.default baddbmm.default": addmm,
        "outer.default ger.default": jnp.outer,
        "einsum.default": einsum,
        "embedding.default": embedding,
        "one_hot.default": one_hot,
        "conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding conv3d.padding": convolution,
        "conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input": transposed_convolution,
        "convolution.default": general_convolution,
        "cosine_similarity.default": cosine_similarity,
        "_weight_norm.default": weight_norm,
        "_weight_norm_interface.default": lambda v, g, dim=0: (weight_norm(v, g, dim), None),
        "_grouped_mm.default": multiply_groups,
    }
) | {"transformers.grouped_mm_fallback.default": multiply_groups}
