"""Files that are either complete or absent."""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary neighbour of `path`, then rename it: an interruption leaves the old file untouched.

    The file has the permissions that the umask gives to new files, or those of the file it replaces.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{path.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    permissions = stat.S_IMODE((path if path.exists() else temporary).stat().st_mode)
    try:
        write(temporary)
        temporary.chmod(permissions)  # some writers put a file of their own in the place of this one
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_text(path: str | Path, text: str) -> Path:
    """`text` in `path`, atomically, as UTF-8."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
