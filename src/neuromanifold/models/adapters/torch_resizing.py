"""Layers of a PyTorch module at other widths: the same layers, their parameters of another shape."""

from collections.abc import Mapping
from typing import Any

from neuromanifold.numerics.validation import indefinite

STATISTICS = ("running_mean", "running_var")


def statistics_of(module: Any, torch: Any) -> tuple[str, ...]:
    """The names of the running statistics of batch normalisations."""
    norms = [(path, layer) for path, layer in module.named_modules() if _is_norm(layer, torch)]
    return tuple(
        f"{path}.{leaf}".removeprefix(".")
        for path, layer in norms
        for leaf in STATISTICS
        if getattr(layer, leaf) is not None
    )


def _is_norm(layer: Any, torch: Any) -> bool:
    return isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d)


def resized(module: Any, shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str], torch: Any) -> None:
    """Give the parameters of linear layers, convolutions and batch normalisations (with their statistics) these shapes, in place.

    The values are left to the caller.
    """
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
        new = old.detach().new_zeros(shape)
        is_parameter = isinstance(old, torch.nn.Parameter)
        setattr(layer, leaf, torch.nn.Parameter(new, requires_grad=old.requires_grad) if is_parameter else new)
        if leaf == "weight" or _is_norm(layer, torch):
            _renamed(layer, name, shape, torch)
    _check_norms(module, torch)


def _check_norms(module: Any, torch: Any) -> None:
    """Refuse statistics of channels that went."""
    for name in statistics_of(module, torch):
        path, _, leaf = name.rpartition(".")
        layer = module.get_submodule(path)
        if len(getattr(layer, leaf)) != layer.num_features:
            raise ValueError(
                f"`params` has {layer.num_features} channels for {path!r} and does not say which of its running statistics stay; "
                "reduce what `from_torch(module, example=…, statistics=True)` gives."
            )


def _renamed(layer: Any, name: str, shape: tuple[int, ...], torch: Any) -> None:
    """What a layer says of its own widths."""
    nn = torch.nn
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = shape
    elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and layer.groups == 1:
        layer.out_channels, layer.in_channels = shape[:2]
    elif _is_norm(layer, torch):
        layer.num_features = shape[0]
    else:
        raise ValueError(
            f"`params[{name!r}]` has shape {shape}, but {indefinite(layer)} cannot be resized; "
            "linear layers, convolutions without groups and batch normalisations can."
        )
