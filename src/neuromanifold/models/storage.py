"""`save` and `load`: parameters in safetensors, the architecture in the file's metadata. Nothing is executed on reading."""

import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.activation import Activation, Mixed, activation_named
from neuromanifold.models.mlp import MLP, Entry, Layer, Params
from neuromanifold.numerics.files import write_atomically
from neuromanifold.numerics.validation import check_params

_KEY = "neuromanifold"


def save(path: str | Path, net: MLP, params: Params) -> Path:
    """Write network and parameters to one `.safetensors` file, atomically.

    >>> import tempfile, jax
    >>> net = MLP((2, 3, 1), "tanh")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded, params = load(save(f"{folder}/net.safetensors", net, net.init(key=jax.random.key(0))))
    >>> loaded == net
    True
    """
    from safetensors.numpy import save_file

    if Path(path).suffix != ".safetensors":
        raise ValueError(f"`path` is {str(path)!r}; give the file a name that ends in .safetensors.")
    if not isinstance(net, MLP):
        raise TypeError(f"`net` is a {type(net).__name__}; only an nm.MLP has an architecture that a file can hold.")
    net.check_params(params)
    tensors = {f"{i}.{name}": np.ascontiguousarray(a) for i, layer in enumerate(params) for name, a in _present(layer)}
    metadata = {_KEY: json.dumps(_describe(net))}
    return write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load(path: str | Path, *, activation: str | None = None) -> tuple[MLP, Params]:
    """Read `(net, params)` from `.safetensors` or `.npz`.

    A file written by `save` says its architecture. Any other holds weights named like `0.weight`, `0.bias` (or
    `layers.0.weight`: alphabetical prefixes are ignored, numbers order the layers); its architecture is read off their
    shapes and `activation`, which is then required.
    """
    path = Path(path)
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"`path` is {str(path)!r}, which {problem}; pass a .safetensors or .npz file.")
    tensors, metadata = _read(path)
    params = _layers(tensors, path)
    check_params(params)
    net = _architecture(path, params, metadata.get(_KEY), activation)
    net.check_params(params)
    return net, params


def _architecture(path: Path, params: Params, described: str | None, activation: str | None) -> MLP:
    if described is not None:
        net = _restore(path, described)
        if activation is not None and net.activation != MLP(net.widths, activation).activation:
            raise ValueError(f"`activation` is {activation!r} but {path.name} says {net}; leave the argument out.")
        return net
    if activation is None:
        raise ValueError(
            f"`activation` is needed: {path.name} does not say which one its network uses (for example 'relu')."
        )
    widths = (params[0].weight.shape[1], *(layer.weight.shape[0] for layer in params))
    return MLP(widths, activation, bias=params[0].bias is not None)


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
        description = json.loads(described)
        activation = tuple(_decode(entry) for entry in description.pop("activation"))
        return MLP(activation=activation, **description)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"`path` {path.name} describes its network in a way that cannot be read ({error}); save it again."
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
            f"`net` uses {entry!r}, a function that no file can hold; save networks with built-in activations."
        )
    return entry.name


def _decode(entry: Any) -> Activation | Mixed:
    return activation_named(entry) if isinstance(entry, str) else Mixed(*((activation_named(a), c) for a, c in entry))


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if path.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"`path` is {str(path)!r}; pass a .safetensors or .npz file.")
    try:
        if path.suffix == ".npz":
            with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
                return dict(archive), {}
        with safe_open(path, "numpy") as archive:
            return {name: archive.get_tensor(name) for name in archive.keys()}, archive.metadata() or {}  # noqa: SIM118
    except (SafetensorError, zipfile.BadZipFile, ValueError, OSError, EOFError, TypeError, AttributeError):
        raise ValueError(
            f"`path` is {str(path)!r}, which cannot be read (damaged, or not what its name says); write it again, or pass another file."
        ) from None


def _layers(tensors: dict[str, np.ndarray], path: Path) -> Params:
    found: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for name, tensor in tensors.items():
        *prefix, last = name.replace("_", ".").split(".")
        entry = found.setdefault(tuple(int(part) for part in prefix if part.isdigit()), {})
        if last in entry:
            raise ValueError(
                f"`path` {path.name} holds two tensors for one layer, {name} among them; number the layers apart."
            )
        entry[last] = tensor
    usable = found and all({"weight"} <= set(entry) <= {"weight", "bias"} for entry in found.values())
    layers = tuple(Layer(entry["weight"], entry.get("bias")) for _, entry in sorted(found.items())) if usable else ()
    shapes = [layer.weight.shape for layer in layers]
    chained = all(len(shape) == 2 for shape in shapes) and all(a[0] == b[1] for a, b in itertools.pairwise(shapes))
    if not usable or not chained:
        raise ValueError(
            f"`path` {path.name} holds {', '.join(sorted(tensors)) or 'nothing'}; needed are the layers of an MLP, "
            "0.weight (out, in), 0.bias, 1.weight, …, each taking what the one before it gives."
        )
    return layers
