"""`save` and `load`: parameters in safetensors, the architecture in the file's metadata. Nothing
is executed on reading.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation, Mixed, activation_named
from neuromanifold.models.adapters.torch.tensors import from_array
from neuromanifold.models.files.factory import load_with_factory
from neuromanifold.models.files.layers import chain_layers, fold_normalisations, parts_of
from neuromanifold.models.files.pt2 import read_exported
from neuromanifold.models.files.tensors import FORMATS, keeps_order, read_tensors
from neuromanifold.models.mlp import MLP, Entry, Layer, Params
from neuromanifold.models.model_kind import perceptron, require_perceptron
from neuromanifold.models.stack import LinearStack
from neuromanifold.numerics.validation import check_params
from neuromanifold.runtime.files import write_atomically
from neuromanifold.runtime.packages import need
from neuromanifold.runtime.untrusted_files import first_line, read_json

_KEY = "neuromanifold"


def save(path: str | Path, net: MLP, params: Params, *, names: Sequence[str] | None = None) -> Path:
    """Write network and parameters to one `.safetensors` file, `path`, atomically.

    `names` are those of the layers (`["fc1", "fc2"]`), as a PyTorch module has them; 0, 1, … when
    absent. A `.pt` or `.pth` is a state dict alone, written by PyTorch: it does not say the
    activation.

    >>> import tempfile, jax
    >>> net = MLP((2, 3, 1), "tanh")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded, params = load(save(f"{folder}/net.safetensors", net, net.init(key=jax.random.key(0))))
    >>> loaded == net
    True
    """
    from safetensors.numpy import save_file

    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".pt", ".pth"):
        raise ValueError(
            f"`path` is {str(path)!r}; give the file a name that ends in .safetensors (or .pt, "
            ".pth)."
        )
    require_perceptron(net, "only an nm.MLP has an architecture that a file can hold")
    net.check_params(params)
    check_params(params)
    known = [str(i) for i in range(len(params))] if names is None else list(names)
    if len(known) != len(params):
        raise ValueError(
            f"`names` has {len(known)} entries but the network has {len(params)} layers; name "
            "each of them."
        )
    layers = zip(known, params, strict=True)
    tensors = {
        f"{name}.{part}": np.ascontiguousarray(a)
        for name, layer in layers
        for part, a in _present(layer)
    }
    if suffix != ".safetensors":
        state = {name: from_array(a) for name, a in tensors.items()}
        return write_atomically(path, lambda temporary: need("torch").save(state, temporary))
    metadata = {_KEY: json.dumps(_describe(net))}
    return write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def layer_names(path: str | Path) -> list[str]:
    """The names of the layers in a state dict, in the order in which they are applied."""
    path = Path(path)
    tensors, _ = read_tensors(path)
    return [
        part.name
        for part in chain_layers(path, parts_of(path, tensors), keeps_order(path), tensors)
    ]


def load(
    path: str | Path,
    *,
    activation: str | None = None,
    batchnorm: str | None = None,
    factory: str | None = None,
    example: Any = None,
    statistics: bool = False,
) -> tuple[Any, Any]:
    """Read `(net, params)` from the model file `path`; nothing in the file is executed.

    - What `save` wrote says its architecture.
    - Any other `.safetensors`, `.npz`, `.pt` or `.pth` is a state dict of stacked linear layers
      (`fc1.weight`, `net.0.bias`, `layers.3.linear.weight`): numbers or the file's order say their
      order, shapes confirm it, and `activation` (`"relu"`) is then required. Batch normalisation is
      folded into the layers, with a warning; `batchnorm="before"` or `"after"` says on which side
      of the activation it stands, where the names do not.
    - A `.pt2` is a whole program, and becomes a model of its own; PyTorch is not needed. With
      `statistics=True` the running means and variances of its batch normalisations are parameters,
      so that they follow their channels when `nm.reduce_width` removes some.
    - `factory="package.module:function"` names the function that builds the network whose state
      dict the file holds, a PyTorch module (then `example` is one batch of its input) or a function
      `f(params, x)`.
    """
    path = Path(path)
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"`path` is {str(path)!r}, which {problem}; pass a {FORMATS} file.")
    if batchnorm not in (None, "before", "after"):
        raise ValueError(
            f"`batchnorm` is {batchnorm!r}; pass 'before' or 'after': where it comes, seen "
            "from the activation."
        )
    if factory is not None:
        return load_with_factory(path, factory, example, statistics=statistics)
    if path.suffix == ".pt2":
        for name, value in (("activation", activation), ("batchnorm", batchnorm)):
            if value is not None:
                raise ValueError(
                    f"`{name}` is {value!r} but {path.name} is a whole program; leave the "
                    "argument out."
                )
        return read_exported(path, statistics=statistics)
    if statistics:
        raise ValueError(
            f"`statistics` is True but {path.name} is a state dict, whose normalisations are "
            "folded; leave it out, or pass `factory`."
        )
    tensors, metadata = read_tensors(path)
    parts = parts_of(path, tensors)
    params = fold_normalisations(
        path, parts, chain_layers(path, parts, keeps_order(path), tensors), batchnorm
    )
    check_params(params)
    net = _architecture(path, params, metadata.get(_KEY), activation)
    if (known := perceptron(net)) is not None:
        _check_shapes(path, known, params)
    return net, params


def _check_shapes(path: Path, net: MLP, params: Params) -> None:
    try:
        net.check_params(params)
    except ValueError as error:
        raise ValueError(
            f"`path` {path.name} does not hold the network that it describes: {error}"
        ) from None


def _architecture(
    path: Path, params: Params, described: str | None, activation: str | None
) -> MLP | LinearStack:
    if described is not None:
        net = _restore(path, described)
        if activation is not None and net.activation != MLP(net.widths, activation).activation:
            raise ValueError(
                f"`activation` is {activation!r} but {path.name} says {net}; leave the argument "
                "out."
            )
        return net
    if activation is None:
        raise ValueError(
            f"`activation` is needed: {path.name} does not say which one its network uses (for "
            "example 'relu')."
        )
    widths = (params[0].weight.shape[1], *(layer.weight.shape[0] for layer in params))
    biases = {layer.bias is not None for layer in params}
    for index, layer in enumerate(params):
        if layer.bias is not None and np.shape(layer.bias) != (widths[index + 1],):
            raise ValueError(
                f"`params[{index}].bias` has shape {np.shape(layer.bias)}; the network needs "
                f"{(widths[index + 1],)}."
            )
    return (
        MLP(widths, activation, bias=biases == {True})
        if len(biases) == 1
        else LinearStack(activation_named(activation))
    )


def _present(layer: Layer) -> list[tuple[str, Any]]:
    return [(name, a) for name, a in layer._asdict().items() if a is not None]


def _describe(net: MLP) -> dict[str, Any]:
    return {
        "widths": net.widths,
        "activation": [_encode(entry) for entry in net.activation],
        "bias": net.bias,
        "output_activation": _encode(net.output_activation),
        "scaling": net.scaling,
    }


def _restore(path: Path, described: str) -> MLP:
    try:
        description = read_json(path, described.encode(), "the description of its network")
        activation = tuple(_decode(entry) for entry in description.pop("activation"))
        return MLP(activation=activation, **description)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"`path` {path.name} describes its network in a way that cannot be read "
            f"({first_line(error)}); save it again."
        ) from None


def _encode(entry: Entry) -> Any:
    if isinstance(entry, Mixed):
        return [[_encode(a), count] for a, count in entry.parts]
    try:
        known = activation_named(entry.name) == entry
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            f"`net` uses {entry!r}, a function that no file can hold; save networks with built-in "
            "activations."
        )
    return entry.name


def _decode(entry: Any) -> Activation | Mixed:
    return (
        activation_named(entry)
        if isinstance(entry, str)
        else Mixed(*((activation_named(a), c) for a, c in entry))
    )
