"""Named arrays from a file, whatever its format, with nothing executed."""

import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from neuromanifold.models.files.layout import Layout
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.untrusted_files import (
    check_size,
    first_line,
    open_archive,
    read_json,
    read_member,
    read_npz,
    unreadable,
)

TORCH = (".pt", ".pth", ".ckpt", ".bin")
FORMATS = ".safetensors, .npz, .pt, .pth or .pt2"
_LARGEST_HEADER = 4 * 2**20


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by name, metadata) of `.safetensors`, `.npz` or what `torch.save` wrote; in the
    file's order where it has one.
    """
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix == ".npz":
        return read_npz(path), {}
    if path.suffix in TORCH:
        return read_torch_archive(path), {}
    raise ValueError(f"`path` is {str(path)!r}; pass a {FORMATS} file.")


def keeps_order(path: Path) -> bool:
    """Whether the file's order is that in which the network lists its layers; safetensors sorts
    by name.
    """
    return path.suffix != ".safetensors"


def _read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    _check_header(path)
    try:
        with safe_open(path, "numpy") as archive:
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
            return tensors, archive.metadata() or {}
    except (SafetensorError, ValueError, OSError, EOFError, TypeError, AttributeError) as error:
        raise unreadable(path, f"damaged, or not what its name says: {first_line(error)}") from None


def _check_header(path: Path) -> None:
    """The header must be short, shallow, and name nothing twice, before the library makes
    objects of it.
    """
    size = os.path.getsize(path)
    with path.open("rb") as handle:
        first = handle.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else size
        if length > min(size - 8, _LARGEST_HEADER):
            raise unreadable(
                path,
                f"damaged, or not what its name says: a header of {length:,} bytes in a file of "
                f"{size:,}",
            )
        read_json(path, handle.read(length), "its header")


_MOST_OPERATIONS = 500_000


@dataclass(frozen=True)
class Name:
    """What the pickle would import."""

    text: str


@dataclass(frozen=True)
class Stored:
    """What the pickle keeps outside itself, by its identifier."""

    identifier: Any


@dataclass(frozen=True, eq=False)
class Call:
    """What the pickle would call, on what, and what it would then put into the result."""

    name: str
    args: Any
    items: dict[Any, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)


class _Mark:
    """Where on the stack a collection begins."""


def parse(pickled: bytes) -> Any:
    """The tree that the pickle describes, of numbers, strings, tuples, lists, dictionaries, names
    and calls.

    >>> import pickle, os
    >>> parse(pickle.dumps({"run": os.getcwd, "n": [1, 2]}, protocol=2))
    {'run': Name(text='posix.getcwd'), 'n': [1, 2]}
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > _MOST_OPERATIONS:
            raise ValueError(f"more than {_MOST_OPERATIONS:,} operations")
        if opcode.name == "STOP":
            return stack.pop()
        _step(opcode.name, argument, stack, memo)
    raise ValueError("no end")


def _step(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if opcode in _IGNORED:
        return
    if opcode in _VALUES:
        stack.append(argument)
    elif opcode in _FRESH:
        stack.append(_FRESH[opcode]())
    elif opcode in _ACTIONS:
        _ACTIONS[opcode](stack)
    elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif opcode == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif opcode in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif opcode == "GLOBAL":
        stack.append(Name(argument.replace(" ", ".", 1)))
    else:
        raise ValueError(f"the operation {opcode}")


def _since_mark(stack: list[Any]) -> list[Any]:
    found = []
    while not isinstance(top := stack.pop(), _Mark):
        found.append(top)
    return found[::-1]


def _tuple(count: int) -> Callable[[list[Any]], None]:
    def action(stack: list[Any]) -> None:
        parts = tuple(stack[-count:])
        del stack[-count:]
        stack.append(parts)

    return action


def _call(stack: list[Any]) -> None:
    args, name = stack.pop(), stack.pop()
    stack.append(Call(name.text if isinstance(name, Name) else "something computed", args))


def _import(stack: list[Any]) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(Name(f"{module}.{name}"))


def _extend(stack: list[Any], parts: list[Any]) -> None:
    (stack[-1].parts if isinstance(stack[-1], Call) else stack[-1]).extend(parts)


def _update(stack: list[Any], pairs: list[Any]) -> None:
    target = stack[-1].items if isinstance(stack[-1], Call) else stack[-1]
    target.update(zip(pairs[::2], pairs[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _update(stack, [key, value])


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    _extend(stack, [value])


_IGNORED = frozenset({"PROTO", "FRAME"})
_VALUES = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_FRESH: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,
    "MARK": _Mark,
}
_ACTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda stack: stack.append(_since_mark(stack)),
    "STACK_GLOBAL": _import,
    "BINPERSID": lambda stack: stack.append(Stored(stack.pop())),
    "REDUCE": _call,
    "NEWOBJ": _call,
    "BUILD": lambda stack: stack.pop(),
    "POP": lambda stack: stack.pop(),
    "APPEND": _append,
    "APPENDS": lambda stack: _extend(stack, _since_mark(stack)),
    "ADDITEMS": lambda stack: _extend(stack, _since_mark(stack)),
    "SETITEM": _set_item,
    "SETITEMS": lambda stack: _update(stack, _since_mark(stack)),
}


_LARGEST_PICKLE = 16 * 2**20
_STORAGES = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}
# Under these keys training loops keep the state dict beside the epoch, the optimiser and so on.
_NESTED = ("state_dict", "model_state_dict", "model", "net", "network", "module")
_SAVE = "save its state dict instead: torch.save(model.state_dict(), path)"


def read_torch_archive(path: Path) -> dict[str, np.ndarray]:
    """The state dict of a file written by `torch.save`, name → array in the order of the file."""
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`path` is {str(path)!r}, which is no archive of torch.save since PyTorch 1.6 "
            "(it is older, or damaged); "
            "in PyTorch: torch.save(torch.load(path, weights_only=True), path)."
        )
    with open_archive(path) as archive:
        folder = _folder(path, archive)
        try:
            tree = parse(read_member(path, archive, f"{folder}data.pkl", _LARGEST_PICKLE))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise unreadable(
                path, f"damaged, or no state dict: its pickle has {_show(error)}"
            ) from None
        return _tensors(path, archive, folder, _state_dict(path, tree))


def _folder(path: Path, archive: zipfile.ZipFile) -> str:
    names = archive.namelist()
    if any(name.endswith(("constants.pkl", "code/__torch__.py")) for name in names):
        raise ValueError(f"`path` is {str(path)!r}, a TorchScript program; {_SAVE}.")
    found = [
        name.removesuffix("data.pkl")
        for name in names
        if name.count("/") <= 1 and name.endswith("data.pkl")
    ]
    if len(found) != 1:
        raise unreadable(path, f"{len(found)} members named data.pkl, where torch.save writes one")
    order = f"{found[0]}byteorder"
    if (
        order in names
        and archive.getinfo(order).file_size < 20
        and archive.read(order) != b"little"
    ):
        raise unreadable(path, "its numbers are not little-endian")
    return found[0]


def _state_dict(path: Path, tree: Any) -> Mapping[str, Any]:
    """The dictionary of tensors, at the top or under one of the usual keys."""
    mapping = _mapping(tree)
    if mapping is None:
        held = tree.name if isinstance(tree, Call) else type(tree).__name__
        raise ValueError(
            f"`path` is {str(path)!r}, which holds a {held}, whose code would have to run; {_SAVE}."
        )
    for key in _NESTED:
        inner = _mapping(mapping.get(key))
        if inner is not None and any(_is_tensor(value) for value in inner.values()):
            return inner
    return mapping


def _mapping(tree: Any) -> Mapping[str, Any] | None:
    if isinstance(tree, Call) and tree.name == "collections.OrderedDict":
        return tree.items
    return tree if isinstance(tree, dict) else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Call) and value.name in (
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
    )


def _tensors(
    path: Path, archive: zipfile.ZipFile, folder: str, state: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    others = [
        name for name, value in state.items() if not (isinstance(name, str) and _is_tensor(value))
    ]
    if others or not state:
        held = f"{others[0]!r}, {_describe(state[others[0]])}" if state else "nothing"
        raise ValueError(
            f"`path` is {str(path)!r}, which holds {held}, where a state dict has tensors; {_SAVE}."
        )
    try:
        described = {name: _description(value) for name, value in state.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise unreadable(
            path,
            f"damaged: it describes its tensors in a way that PyTorch does not, {_show(error)}",
        ) from None
    check_size(path, sum(layout.nbytes for _, layout in described.values()))
    raw = {key: _storage(path, archive, f"{folder}data/{key}") for key, _ in described.values()}
    return {name: layout.read(path, name, raw[key]) for name, (key, layout) in described.items()}


def _storage(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise unreadable(path, f"damaged: its member {name!r} is missing") from None


def _description(value: Call) -> tuple[str, Layout]:
    """(storage, layout) of a tensor."""
    if value.name.endswith("_rebuild_parameter"):
        value = value.args[0]
    stored, offset, shape, strides, *_ = value.args
    if not isinstance(stored, Stored):
        raise TypeError("a tensor without storage")
    kind, storage, key, _, _ = stored.identifier
    if kind != "storage" or not isinstance(storage, Name) or not isinstance(key, str):
        raise TypeError("a storage of another kind")
    return key, Layout(
        _STORAGES[storage.text.rpartition(".")[2]], offset, tuple(shape), tuple(strides)
    )


def _describe(value: Any) -> str:
    return f"a {value.name}" if isinstance(value, Call) else indefinite(value)


def _show(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return text[:80] or type(error).__name__
