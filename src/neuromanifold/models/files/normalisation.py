"""Batch normalisation between linear layers, folded into them: in evaluation mode it is an
affine map.
"""

import warnings
from pathlib import Path

import numpy as np

from neuromanifold.models.files.layers import Part
from neuromanifold.models.init import Layer

# A state dict does not hold ε; this is PyTorch's default.
EPS = 1e-5


def folded(
    path: Path, parts: list[Part], linear: list[Part], batchnorm: str | None
) -> tuple[Layer, ...]:
    """The layers with every batch normalisation  s a + t,  s = γ/√(σ² + ε),  t = β − s μ,
    multiplied into a neighbour.

    Before the activation, W a + b becomes (s W) a + (s b + t); after it, the next layer's W a + b
    becomes (W s) a + (b + W t). That rounds, and γ and β are then no parameters of their own: a
    warning says so.
    """
    layers = [part.layer for part in linear]
    norms = [part for part in parts if part.normalises]
    for norm in norms:
        index, before = _place(path, norm, parts, linear, batchnorm)
        scale, shift = _affine(path, norm)
        target = index if before else index + 1
        fold = _fold_after if before else _fold_into
        if len(scale) != layers[target].weight.shape[0 if before else 1]:
            raise ValueError(
                f"`path` {path.name} has {norm.name} of width {len(scale)} beside "
                f"{linear[target].name}, which is not so wide."
            )
        layers[target] = fold(layers[target], scale, shift)
    if norms:
        warnings.warn(
            f"{path.name}: {len(norms)} batch normalisations are folded into the linear layers (ε "
            f"= {EPS}, rounded to "
            f"{layers[0].weight.dtype}); γ and β are not among the parameters. To keep them, load "
            "the module with a factory.",
            stacklevel=4,
        )
    return tuple(layers)


def _place(
    path: Path, norm: Part, parts: list[Part], linear: list[Part], batchnorm: str | None
) -> tuple[int, bool]:
    """(index of the linear layer before it, −1 for none; whether it comes before that layer's
    activation).
    """
    index = _index(path, norm, parts, linear)
    if index in (-1, len(linear) - 1):
        return index, index >= 0
    if batchnorm is not None:
        return index, batchnorm == "before"
    before, after = _adjacent(linear[index], norm), _adjacent(norm, linear[index + 1])
    if before != after:
        return index, before
    raise ValueError(
        f"`path` {path.name} has the batch normalisation {norm.name}, and does not say whether it "
        "comes before or after the "
        "activation; pass batchnorm='before' or batchnorm='after' (--batchnorm)."
    )


def _adjacent(a: Part, b: Part) -> bool:
    """Whether nothing stands between two parts of one sequence: only their last numbers differ,
    by one.
    """
    return (
        a.pattern == b.pattern
        and a.numbers[:-1] == b.numbers[:-1]
        and bool(a.numbers)
        and b.numbers[-1] - a.numbers[-1] == 1
    )


def _index(path: Path, norm: Part, parts: list[Part], linear: list[Part]) -> int:
    """Which linear layer it follows: by number in a common pattern, by an equal number, or by
    the file's order.
    """
    same = [part for part in linear if part.pattern == norm.pattern]
    if len(same) == len(linear):
        return sum(part.numbers < norm.numbers for part in linear) - 1
    numbered = [i for i, part in enumerate(linear) if part.numbers and part.numbers == norm.numbers]
    if len(numbered) == 1:
        return numbered[0]
    earlier = parts[: parts.index(norm)]
    if path.suffix != ".safetensors" and all(part in parts for part in linear):
        return sum(part in earlier for part in linear) - 1
    raise ValueError(
        f"`path` {path.name} has the batch normalisation {norm.name}, and does not say after "
        "which layer; number both."
    )


def _affine(path: Path, norm: Part) -> tuple[np.ndarray, np.ndarray]:
    mean, var = (
        np.asarray(norm.tensors[key], np.float64) for key in ("running_mean", "running_var")
    )
    if (
        mean.ndim != 1
        or mean.shape != var.shape
        or not (var >= 0).all()
        or not np.isfinite(mean).all()
    ):
        raise ValueError(
            f"`path` {path.name} has {norm.name} with moments that no data has; train it, or save "
            "it again."
        )
    scale = np.asarray(norm.tensors.get("weight", 1.0), np.float64) / np.sqrt(var + EPS)
    return scale, np.asarray(norm.tensors.get("bias", 0.0), np.float64) - scale * mean


def _fold_after(layer: Layer, scale: np.ndarray, shift: np.ndarray) -> Layer:
    bias = shift if layer.bias is None else scale * np.asarray(layer.bias, np.float64) + shift
    return _rounded(layer, scale[:, None] * np.asarray(layer.weight, np.float64), bias)


def _fold_into(layer: Layer, scale: np.ndarray, shift: np.ndarray) -> Layer:
    weight = np.asarray(layer.weight, np.float64)
    bias = (
        weight @ shift
        if layer.bias is None
        else np.asarray(layer.bias, np.float64) + weight @ shift
    )
    return _rounded(layer, weight * scale, bias)


def _rounded(layer: Layer, weight: np.ndarray, bias: np.ndarray) -> Layer:
    return Layer(weight.astype(layer.weight.dtype), bias.astype(layer.weight.dtype))
