"""Files that are either complete or absent, with the rights that the user's umask gives them."""

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable
from pathlib import Path


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary neighbour of `path`, then rename it: an interruption leaves the
    old file untouched.

    The file has the permissions that the umask gives to new files, or those of the file it
    replaces. A link stays a link; a pipe or a device is written to, since a rename would put a file
    in its place.
    """
    path = _behind_links(Path(path))
    if path.exists() and not path.is_file():
        write(path)
        return path
    with room_for(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _neighbour(path)
    permissions = stat.S_IMODE((path if path.exists() else temporary).stat().st_mode)
    try:
        with room_for(path):
            write(temporary)
            # Some writers put a file of their own in the place of this one.
            temporary.chmod(permissions)
            _flush(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def room_for(path: Path) -> Generator[None]:
    """Where the disk is full, or nothing may be written: one sentence with the file's name."""
    try:
        yield
    except Exception as error:
        full = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        number = getattr(error, "errno", None)
        if isinstance(error, OSError) and number in {errno.EROFS, errno.EACCES, errno.EPERM}:
            raise type(error)(
                f"{str(path)!r} cannot be written ({error.strerror}); name another folder."
            ) from None
        if number not in full and not any(f"os error {n})" in str(error) for n in full):
            raise
        raise OSError(
            f"{str(path)!r} found no room on its disk; make room there and call the same again."
        ) from None


def _behind_links(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


def _neighbour(path: Path) -> Path:
    """A new empty file beside `path`; the system applies the umask to it."""
    name = f".{path.name[:200]}.{secrets.token_hex(6)}{path.suffix}"
    temporary = path.with_name(name)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return temporary


def from_memory(save: Callable[[io.BytesIO], object]) -> Callable[[Path], object]:
    """What `write_atomically` takes, for an archive of PyTorch: its own writer ends the process
    where the disk is full, so that the archive is made in memory.
    """

    def write(path: Path) -> None:
        archive = io.BytesIO()
        save(archive)
        path.write_bytes(archive.getbuffer())

    return write


def _flush(path: Path) -> None:
    # Without it a machine that loses power may keep the new name and lose the bytes.
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_text(path: str | Path, text: str) -> Path:
    """`text` in `path`, atomically, as UTF-8."""
    return write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def check_output(
    path: str | Path, name: str = "path", *, read: Iterable[str | Path | None] = ()
) -> Path:
    """`path` as a file that can be written, its folder made where there is none; refused before any
    work is done.

    What the same command reads (`read`) is not overwritten.
    """
    path = Path(path)
    for other in read:
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise FileExistsError(
                f"`{name}` is {str(path)!r}, which is read here; name another file."
            )
    if path.is_dir():
        raise IsADirectoryError(f"`{name}` is {str(path)!r}, which is a folder; name a file in it.")
    if str(path) == "-":
        raise ValueError(f"`{name}` is '-'; name a file.")
    if not path.exists() or path.is_file():
        check_folder(_behind_links(path).parent, name)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(
            f"`{name}` is {str(path)!r}, which may not be written; name another file."
        )
    return path


def check_folder(folder: str | Path, name: str = "out") -> Path:
    """`folder` as one that exists and takes files, made where it is absent; refused before any
    work is done.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _neighbour(folder / "probe").unlink()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise type(error)(
            f"`{name}` cannot be written into {str(folder)!r} ({reason}); name another folder."
        ) from None
    return folder
