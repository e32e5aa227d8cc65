"""Operations that shift and scale by mean and variance."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Refusal, Scalar, Table, table


def _standardise(x: Any, axes: tuple[int, ...], eps: Scalar) -> tuple[Any, Any, Any]:
    """((x − μ)/√(σ² + ε), μ, 1/√(σ² + ε)), with the moments over `axes`."""
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    scale = jax.lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + eps)
    return centred * scale, mean, scale


def _affine(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def native_layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: Scalar = 1e-5
) -> tuple[Any, Any, Any]:
    """Standardised over the last axes, then γ, β; with mean and inverse deviation."""
    y, mean, scale = _standardise(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    return _affine(y, weight, bias), mean, scale


def layer_norm(
    x: Any,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: Scalar = 1e-5,
    cudnn: bool = True,
) -> Any:
    """Standardised over the last axes, then γ, β."""
    return native_layer_norm(x, shape, weight, bias, eps)[0]


def rms_norm(x: Any, shape: Sequence[int], weight: Any, eps: Scalar) -> Any:
    """x / √(mean x² + ε) · γ."""
    squares = jnp.mean(x * x, tuple(range(x.ndim - len(shape), x.ndim)), keepdims=True)
    return _affine(x * jax.lax.rsqrt(squares + eps), weight, None)


def _per_channel(a: Any, ndim: int) -> Any:
    return None if a is None else a.reshape(1, -1, *(1,) * (ndim - 2))


def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: Any = 0.1,
    eps: Scalar = 1e-5,
    cudnn: bool = True,
) -> Any:
    """(x − μ)/√(σ² + ε) · γ + β with the recorded moments, or with those of x, which is no batch
    then but made of parameters.
    """
    if training or mean is None:
        rest = (0, *range(2, x.ndim))
        mean, var = jnp.mean(x, rest), jnp.var(x, rest)
    mean, var, weight, bias = (_per_channel(a, x.ndim) for a in (mean, var, weight, bias))
    return _affine((x - mean) * jax.lax.rsqrt(var + eps), weight, bias)


def native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: Any, eps: Scalar
) -> Any:
    """Batch normalisation in evaluation mode, with two empty statistics."""
    return batch_norm(x, weight, bias, mean, var, False, momentum, eps), None, None


def own_statistics(
    x: Any, weight: Any, bias: Any, training: bool, momentum: Any, eps: Scalar
) -> tuple[Any, None, None]:
    """Standardised by its own moments, with two statistics that nobody reads."""
    return batch_norm(x, weight, bias, None, None, True, momentum, eps), None, None


def refuse_statistics(*_: Any, **__: Any) -> Any:
    """Batch normalisation that records the moments of what it is given: refused."""
    raise Refusal("changes its running statistics; call `module.eval()` first")


def takes_moments(target: str, args: Sequence[Any]) -> bool:
    """Whether an operation standardises by the moments of what it is given."""
    if target == "aten.batch_norm.default":
        return bool(args[5]) or args[3] is None
    return target.startswith("aten._native_batch_norm_legit") and "no_training" not in target


def group_norm(
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: Scalar = 1e-5,
    cudnn: bool = True,
) -> Any:
    """Standardised over each group of channels and all positions."""
    grouped = x.reshape(x.shape[0], groups, -1)
    y = _standardise(grouped, (2,), eps)[0].reshape(x.shape)
    return _affine(y, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))


def native_group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, positions: int, groups: int, eps: Scalar
) -> tuple[Any, None, None]:
    """Group normalisation, with two statistics that nobody reads."""
    return group_norm(x, groups, weight, bias, eps), None, None


def instance_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input_stats: bool,
    momentum: Any,
    eps: Scalar,
    cudnn: bool = True,
) -> Any:
    """Standardised over the positions of each channel of each sample, or by recorded moments."""
    if not use_input_stats:
        return batch_norm(x, weight, bias, mean, var, False, momentum, eps)
    return group_norm(x, x.shape[1], weight, bias, eps)


NORMALISATION: Table = table(
    {
        "layer_norm.default": layer_norm,
        "native_layer_norm.default": native_layer_norm,
        "rms_norm.default": rms_norm,
        "batch_norm.default": batch_norm,
        "_native_batch_norm_legit_no_training.default": native_batch_norm,
        "_native_batch_norm_legit.no_stats": own_statistics,
        "_native_batch_norm_legit_functional.default _native_batch_norm_legit.default": (
            refuse_statistics
        ),
        "group_norm.default": group_norm,
        "native_group_norm.default": native_group_norm,
        "instance_norm.default": instance_norm,
    }
)
