"""Files that notice when a bit of them has changed: their last line is the SHA-256 of all that
stands before it.

HDF5 and zip ignore what follows their own end, so that other programs read such files as before.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.runtime.files import write_atomically
from neuromanifold.runtime.untrusted_files import first_line, read_npy

_MARK = b"\nsha256 "
LENGTH = len(_MARK) + 64 + 1
_PIECE = 1 << 20


def write_checksummed(path: str | Path, write: Callable[[Path], object]) -> Path:
    """`write_atomically`, with the checksum added."""

    def fill(temporary: Path) -> None:
        write(temporary)
        with temporary.open("ab") as file:
            file.write(_checksum(temporary, temporary.stat().st_size))

    return write_atomically(path, fill)


def check_checksum(path: str | Path, remedy: str) -> None:
    """Refuse a file whose checksum is missing or is not that of its content; the sentence ends
    with `remedy`.
    """
    path = Path(path)
    size = path.stat().st_size - LENGTH
    with path.open("rb") as file:
        file.seek(max(size, 0))
        found = file.read(LENGTH)
    if size < 0 or not found.startswith(_MARK):
        raise ValueError(
            f"{path} has no checksum at its end: it is cut short, or not written by this version; "
            f"{remedy}."
        )
    if found != _checksum(path, size):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content; {remedy}.")


def _checksum(path: Path, size: int) -> bytes:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0:
            piece = file.read(min(_PIECE, size))
            state.update(piece)
            size -= len(piece)
    return _MARK + state.hexdigest().encode() + b"\n"


_HEADER = "header"


def write_archive(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """The header (as JSON) and the arrays, uncompressed, atomically, with a checksum."""
    content: Any = arrays | {_HEADER: as_bytes(json.dumps(header))}

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **content)

    return write_checksummed(path, fill)


def read_archive(path: str | Path, remedy: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays, after every check: checksum, names, sizes. No code runs, and
    nothing is decompressed.
    """
    path = Path(path)
    check_checksum(path, remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            content = {
                entry.filename.removesuffix(".npy"): _member(archive, entry)
                for entry in archive.infolist()
            }
        header = json.loads(content.pop(_HEADER).tobytes())
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        RecursionError,
        NotImplementedError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{path} cannot be read ({first_line(error)}); {remedy}.") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} cannot be read (its header is no table); {remedy}.")
    return header, content


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    if (
        entry.compress_type != zipfile.ZIP_STORED
        or entry.flag_bits & 1
        or entry.file_size != entry.compress_size
    ):
        raise ValueError(
            f"{entry.filename[:80]!r} is compressed or encrypted, which this library never writes"
        )
    return read_npy(io.BytesIO(archive.read(entry)), entry.file_size, strings=True)


def as_bytes(a: Any) -> np.ndarray:
    """A string, or an array of any dtype, as raw bytes: .npz has no type for bfloat16."""
    return np.frombuffer(a.encode() if isinstance(a, str) else np.asarray(a).tobytes(), np.uint8)
