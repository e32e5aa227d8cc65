"""Named arrays from a file, whatever its format, with nothing executed."""

import os
import struct
from pathlib import Path

import numpy as np

from neuromanifold.models.files.torch_archive import read_torch_archive
from neuromanifold.runtime.untrusted_files import first_line, read_json, read_npz, unreadable

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
