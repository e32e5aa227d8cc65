"""Files from elsewhere, read with nothing believed: what a file claims is checked against its size
before memory is spent.

An archive may be a bomb (6 MB that become 6 GB), claim shapes that are not there, name a member
twice, be encrypted. Each is refused in one sentence before it is read.
"""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from neuromanifold.runtime.memory import machine_memory

_MIB = 2**20
# Weights hardly compress and data rarely a hundredfold; up to this size nobody needs to ask.
_HARMLESS = 64 * _MIB
_LARGEST_RATIO = 100
_LARGEST_DIRECTORY = 4 * _MIB
_LARGEST_ARRAY_HEADER = 10_000
# A JSON text of n brackets and commas becomes at most about 100 n bytes of Python objects.
_LARGEST_JSON = 32 * _MIB
_MOST_JSON_PARTS = 1_000_000


def unreadable(path: Path, problem: str) -> ValueError:
    """The one sentence for a file that is damaged, or is not what its name says."""
    return ValueError(
        f"`path` is {str(path)!r}, which cannot be read ({problem}); write it again, or pass "
        "another file."
    )


@contextmanager
def open_archive(path: Path) -> Generator[zipfile.ZipFile]:
    """A zip archive whose directory is small, whose members are distinct, plain, and fit into
    memory together.
    """
    with path.open("rb") as handle, _damage_named(path):
        if handle.read(2) != b"PK":
            raise unreadable(path, "damaged, or not what its name says: no archive begins here")
        _check_directory_size(path, handle)
        handle.seek(0)
        with zipfile.ZipFile(handle) as archive:
            _check_members(path, archive.infolist())
            yield archive


@contextmanager
def _damage_named(path: Path) -> Generator[None]:
    """What reading a damaged archive ends in, as one sentence. An OSError is a place before the
    file's first byte.
    """
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        struct.error,
        OverflowError,
        OSError,
        UnicodeDecodeError,
    ) as error:
        problem = first_line(error)
        raise unreadable(path, f"damaged, or not what its name says: {problem}") from None


def _check_directory_size(path: Path, handle: Any) -> None:
    """Python's reader makes an object of every entry before one can look; so the directory's
    size is looked at first.
    """
    size = handle.seek(0, os.SEEK_END)
    start = max(0, size - 2**16 - 22)
    handle.seek(start)
    tail = handle.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + 22:
        raise unreadable(path, "damaged, or not what its name says: no archive ends here")
    [directory] = struct.unpack("<L", tail[end + 12 : end + 16])
    if directory == 0xFFFFFFFF:
        directory = _large_directory_size(handle, tail[max(0, end - 20) : end])
    if directory > _LARGEST_DIRECTORY:
        raise unreadable(path, f"its table of contents alone takes {directory:,} bytes")


def _large_directory_size(handle: Any, locator: bytes) -> int:
    """The size as the 64-bit form of the format has it."""
    if locator[:4] != b"PK\6\7":
        return 0xFFFFFFFF
    handle.seek(struct.unpack("<Q", locator[8:16])[0])
    record = handle.read(56)
    return (
        struct.unpack("<Q", record[40:48])[0]
        if record[:4] == b"PK\6\6" and len(record) == 56
        else 0xFFFFFFFF
    )


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    for name in _find_repeated(member.filename for member in members):
        raise unreadable(path, f"it holds {_shorten(name)} twice")
    for member in members:
        if member.flag_bits & 1:
            raise unreadable(path, f"its member {member.filename!r} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise unreadable(
                path,
                f"its member {member.filename!r} is compressed by method {member.compress_type}, "
                "which is neither none nor deflate",
            )
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise unreadable(
                path, f"its member {member.filename!r} claims another size than it has"
            )
    check_size(path, sum(member.file_size for member in members))


def check_size(path: Path, total: int) -> None:
    """Refuse contents larger than half the memory, or out of all proportion to the file."""
    on_disk = path.stat().st_size
    if total > _HARMLESS and total > _LARGEST_RATIO * on_disk:
        raise unreadable(
            path,
            f"{on_disk:,} bytes that would become {total:,}; arrays that are really so regular, "
            "save uncompressed",
        )
    if total > machine_memory() // 2:
        raise unreadable(path, f"its {total:,} bytes are more than half of this machine's memory")


def read_member(path: Path, archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    """A member's bytes, refused where there are more than `largest`."""
    member = archive.getinfo(name)
    if member.file_size > largest:
        raise unreadable(
            path,
            f"its member {name!r} takes {member.file_size:,} bytes, more than the {largest:,} "
            "that it may",
        )
    return archive.read(member)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` archive, never unpickling."""
    with open_archive(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as stream:
                arrays[name] = read_array(path, stream, member.file_size, f"its member {name!r}")
        return arrays


def read_array(path: Path, stream: Any, size: int, what: str) -> np.ndarray:
    """One array, allocated only after its shape and dtype have been found to fill the bytes that
    are there.
    """
    head = io.BytesIO(stream.read(min(size, _LARGEST_ARRAY_HEADER + 12)))
    try:
        version = np.lib.format.read_magic(head)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = reader(head, max_header_size=_LARGEST_ARRAY_HEADER)
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        raise unreadable(
            path,
            f"damaged, or not what its name says: {what} has no array's header, "
            f"{first_line(error)}",
        ) from None
    if dtype.kind not in "fiubc" or dtype.hasobject:
        raise unreadable(
            path, f"{what} holds {dtype}, not numbers; Python objects are never loaded"
        )
    if (
        any(type(n) is not int or n < 0 for n in shape)
        or math.prod(shape) * dtype.itemsize != size - head.tell()
    ):
        raise unreadable(
            path,
            f"damaged: {what} claims the shape {_shorten(shape)} of {dtype} in {size:,} bytes",
        )
    array = np.empty(math.prod(shape), dtype)
    _fill(path, array, head.read(), stream, what)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _fill(path: Path, array: np.ndarray, first: bytes, stream: Any, what: str) -> None:
    target = memoryview(array.view(np.uint8).data)
    target[: len(first)] = first
    position = len(first)
    while position < len(target):
        piece = stream.read(min(_MIB, len(target) - position))
        if not piece:
            raise unreadable(path, f"damaged: {what} ends early")
        target[position : position + len(piece)] = piece
        position += len(piece)


def read_json(path: Path, text: bytes, what: str) -> Any:
    """A JSON text, refused where it is large, deep, or names a key twice."""
    parts = sum(text.count(mark) for mark in (b"{", b"[", b","))
    if len(text) > _LARGEST_JSON or parts > _MOST_JSON_PARTS:
        raise unreadable(
            path, f"{what} has {parts:,} parts in {len(text):,} bytes, more than any network needs"
        )
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise unreadable(path, f"{what} is nested too deeply") from None
    except ValueError as error:
        raise unreadable(path, f"damaged: {what} is no JSON, {first_line(error)}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name in _find_repeated(name for name, _ in pairs):
        raise ValueError(f"it names {_shorten(name)} twice")
    return dict(pairs)


def _find_repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, cut to 80 characters."""
    return _shorten(str(error).partition("\n")[0], quoted=False)


def _shorten(value: Any, *, quoted: bool = True) -> str:
    text = repr(value) if quoted else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


_KINDS = "fiubc"
_LONGEST_HEADER = 10_000


def read_npy(file: Any, size: int, *, strings: bool = False) -> np.ndarray:
    """The array in a stream of `size` bytes; a ValueError says in half a sentence what is wrong.

    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.arange(3.0))
    >>> read_npy(io.BytesIO(stream.getvalue()), len(stream.getvalue())).tolist()
    [0.0, 1.0, 2.0]
    """
    shape, fortran, dtype = _header(file)
    if dtype.hasobject or dtype.kind not in (_KINDS + "U" if strings else _KINDS):
        raise ValueError(f"it holds dtype {dtype}, not numbers")
    count = 1
    for length in shape:
        count *= length  # Python's integers do not overflow
    claimed, there = count * dtype.itemsize, size - file.tell()
    if claimed != there:
        raise ValueError(
            f"it claims shape {_show(shape)} of {dtype}, {claimed} bytes, and holds {there}"
        )
    a = np.frombuffer(file.read(there), dtype).reshape(shape, order="F" if fortran else "C")
    return a.copy() if a.flags.c_contiguous else np.ascontiguousarray(a)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    readers: dict[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"its format version is {version}, and (1, 0) or (2, 0) is needed")
    try:
        shape, fortran, dtype = readers[version](file, max_header_size=_LONGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header cannot be read: {str(error).splitlines()[0][:200]}") from None
    if any(length < 0 for length in shape):
        raise ValueError(f"it claims shape {_show(shape)}")
    return shape, fortran, dtype


def _show(shape: tuple[int, ...]) -> str:
    return (
        str(shape) if len(shape) < 9 else f"({', '.join(map(str, shape[:8]))}, … {len(shape)} axes)"
    )
