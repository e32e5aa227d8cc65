"""Layers of a PyTorch module at other widths: the same layers, their parameters of another shape."""

from collections.abc import Mapping
from typing import Any

from neuromanifold.numerics.validation import indefinite


def resized(module: Any, shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str], torch: Any) -> None:
    """Give the parameters of linear and convolution layers these shapes, in place; the values are left to the caller."""
    for name, shape in shapes.items():
        path, _, leaf = name.rpartition(".")
        layer = module.get_submodule(path)
        old = getattr(layer, leaf)
        if tuple(old.shape) == tuple(shape):
            continue
        if 0 in shape:
            raise ValueError(
                f"`params[{name!r}]` has shape {shape}: the network is constant behind it, and PyTorch has no layers without "
                "channels; there is nothing to resize, take the constant."
            )
        if any(name in pair and pair[0] != pair[1] for pair in tied.items()):
            raise ValueError(
                f"`params[{name!r}]` has shape {shape}, but its weight is shared; such weights keep their shape."
            )
        setattr(layer, leaf, torch.nn.Parameter(old.new_zeros(shape), requires_grad=old.requires_grad))
        if leaf == "weight":
            _renamed(layer, name, shape, torch)


def _renamed(layer: Any, name: str, shape: tuple[int, ...], torch: Any) -> None:
    """What a layer says of its own widths."""
    nn = torch.nn
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = shape
    elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and layer.groups == 1:
        layer.out_channels, layer.in_channels = shape[:2]
    else:
        raise ValueError(
            f"`params[{name!r}]` has shape {shape}, but {indefinite(layer)} cannot be resized; "
            "linear layers and convolutions without groups can."
        )
