"""Files that notice when a bit of them has changed: their last line is the SHA-256 of all that stands before it.

HDF5 and zip ignore what follows their own end, so that other programs read such files as before.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from neuromanifold.numerics.files import write_atomically

_MARK = b"\nsha256 "
LENGTH = len(_MARK) + 64 + 1
_PIECE = 1 << 20


def write_sealed(path: str | Path, write: Callable[[Path], object]) -> Path:
    """`write_atomically`, with the checksum added."""

    def fill(temporary: Path) -> None:
        write(temporary)
        with temporary.open("ab") as file:
            file.write(_seal(temporary, temporary.stat().st_size))

    return write_atomically(path, fill)


def check_seal(path: str | Path, remedy: str) -> None:
    """Refuse a file whose checksum is missing or is not that of its content; the sentence ends with `remedy`."""
    path = Path(path)
    size = path.stat().st_size - LENGTH
    with path.open("rb") as file:
        file.seek(max(size, 0))
        found = file.read(LENGTH)
    if size < 0 or not found.startswith(_MARK):
        raise ValueError(
            f"{path} has no checksum at its end: it is cut short, or not written by this version; {remedy}."
        )
    if found != _seal(path, size):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content; {remedy}.")


def _seal(path: Path, size: int) -> bytes:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0:
            piece = file.read(min(_PIECE, size))
            state.update(piece)
            size -= len(piece)
    return _MARK + state.hexdigest().encode() + b"\n"
