"""Named arrays and a header in one sealed file: what the library keeps to go on from, in NumPy's .npz."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.numerics.npy import read_npy
from neuromanifold.numerics.sealed import check_seal, write_sealed

_HEADER = "header"


def write_archive(path: str | Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """The header (as JSON) and the arrays, uncompressed, atomically, with a checksum."""
    content: Any = arrays | {_HEADER: as_bytes(json.dumps(header))}

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **content)

    return write_sealed(path, fill)


def read_archive(path: str | Path, remedy: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays, after every check: seal, names, sizes. No code runs, and nothing is decompressed."""
    path = Path(path)
    check_seal(path, remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            content = {entry.filename.removesuffix(".npy"): _member(archive, entry) for entry in archive.infolist()}
        header = json.loads(content.pop(_HEADER).tobytes())
    except (OSError, ValueError, KeyError, EOFError, RecursionError, NotImplementedError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read ({error}); {remedy}.") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} cannot be read (its header is no table); {remedy}.")
    return header, content


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size != entry.compress_size:
        raise ValueError(f"{entry.filename[:80]!r} is compressed or encrypted, which this library never writes")
    return read_npy(io.BytesIO(archive.read(entry)), entry.file_size, strings=True)


def as_bytes(a: Any) -> np.ndarray:
    """A string, or an array of any dtype, as raw bytes: .npz has no type for bfloat16."""
    return np.frombuffer(a.encode() if isinstance(a, str) else np.asarray(a).tobytes(), np.uint8)
