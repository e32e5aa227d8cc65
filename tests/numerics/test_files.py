"""Files: whole or absent, with the user's rights, and a checksum that notices any change."""

import contextlib
import errno
import os
import resource
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.runtime.checksummed import (
    LENGTH,
    check_checksum,
    read_archive,
    write_archive,
    write_checksummed,
)
from neuromanifold.runtime.files import check_folder, check_output, write_atomically, write_text
from neuromanifold.runtime.untrusted_files import read_npy, read_npz


@pytest.fixture
def umask():
    """Sets the umask for one test."""
    before = os.umask(0)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_have_the_rights_that_the_umask_leaves(mask: int, mode: int, umask, tmp_path: Path):
    umask(mask)
    assert stat.S_IMODE(write_text(tmp_path / "a", "x").stat().st_mode) == mode


def test_a_file_that_is_replaced_keeps_its_rights(umask, tmp_path: Path):
    umask(0o022)
    write_text(tmp_path / "a", "x")
    (tmp_path / "a").chmod(0o640)
    assert stat.S_IMODE(write_text(tmp_path / "a", "y").stat().st_mode) == 0o640


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    write_text(tmp_path / "a", "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "a", fail)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_output_is_refused_before_the_work(tmp_path: Path):
    with pytest.raises(
        IsADirectoryError, match=r"`out` is .* which is a folder; name a file in it"
    ):
        check_output(tmp_path, "out")
    (tmp_path / "file").touch()
    with pytest.raises(
        OSError, match=r"`out` cannot be written into .*file' \(.*\); name another folder"
    ):
        check_output(tmp_path / "file" / "a.json", "out")
    with pytest.raises(OSError, match=r"`out` cannot be written into '/proc/1/x'"):
        check_folder("/proc/1/x")
    assert check_output(tmp_path / "new" / "a.json") == tmp_path / "new" / "a.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new"] and not list(
        (tmp_path / "new").iterdir()
    )


def test_every_flipped_bit_breaks_the_checksum(tmp_path: Path):
    path = write_checksummed(tmp_path / "a", lambda temporary: temporary.write_bytes(b"content"))
    check_checksum(path, "delete it")
    whole = path.read_bytes()
    assert len(whole) == len(b"content") + LENGTH
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"checksum.*; delete it"):
            check_checksum(path, "delete it")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"checksum"):
            check_checksum(path, "delete it")


def test_archives_give_back_what_was_put_into_them(tmp_path: Path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "b c/d": np.array(True),
        "empty": np.zeros((0, 4), np.int16),
    }
    header, found = read_archive(write_archive(tmp_path / "x.npz", {"n": 1}, arrays), "delete it")
    assert header == {"n": 1} and list(found) == list(arrays)
    assert all(np.array_equal(found[k], a) and found[k].dtype == a.dtype for k, a in arrays.items())
    with np.load(tmp_path / "x.npz") as plain:  # NumPy reads it too
        assert np.array_equal(plain["a"], arrays["a"])


def checksummed_zip(path: Path, member: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    def fill(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", kind) as archive:
            archive.writestr("header.npy", member)

    return write_checksummed(path, fill)


def npy(shape: str, dtype: str = "<f8", body: bytes = b"") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    "member, kind, why",
    [
        (npy("(1000000000000,)"), zipfile.ZIP_STORED, "claims shape"),
        (npy("(-1,)"), zipfile.ZIP_STORED, "claims shape"),
        (npy("(1,)", "|O"), zipfile.ZIP_STORED, "dtype object, not numbers"),
        (npy("(" * 500), zipfile.ZIP_STORED, "header cannot be read"),
        (b"nothing", zipfile.ZIP_STORED, "magic string"),
        (npy("(3,)", body=bytes(24)), zipfile.ZIP_DEFLATED, "compressed or encrypted"),
    ],
)
def test_hostile_members_are_refused(member: bytes, kind: int, why: str, tmp_path: Path):
    with pytest.raises(ValueError, match=rf"cannot be read \(.*{why}.*\); delete it"):
        read_archive(checksummed_zip(tmp_path / "x.npz", member, kind), "delete it")


def test_arrays_in_any_order_are_read(tmp_path: Path):
    import io

    for a in (
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(3, dtype=">f8"),
        np.array(2.5),
    ):
        stream = io.BytesIO()
        np.save(stream, a)
        found = read_npy(io.BytesIO(stream.getvalue()), len(stream.getvalue()))
        assert np.array_equal(found, a) and found.flags.c_contiguous and found.flags.writeable


def test_a_forked_process_gets_a_sentence():
    """In a process of its own: the child of a fork hangs in its first compilation once JAX is in
    use.
    """
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import neuromanifold as nm
from neuromanifold.runtime import processes
processes.SECONDS = 3.0
count = lambda: int(nm.functional_dimension(lambda p, x: p * x, np.array([2.0]), np.array([[1.0]])))
if sys.argv[1] == "used":
    count()
child = os.fork()
if child == 0:
    try:
        os._exit(10 + count())
    except RuntimeError as error:
        os._exit(20 if "spawn" in str(error) else 30)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    for mode, status in (("used", "20"), ("fresh", "11")):
        done = subprocess.run(
            [sys.executable, "-c", code, mode], capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip() == status, done.stderr


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 200 bytes: writing more fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("what", ["text", "network", "kernel"])
def test_a_full_disk_is_named_and_leaves_nothing_half(what: str, tmp_path: Path):
    net, x = nm.MLP((2, 8, 1)), np.ones((40, 2), np.float32)
    params = net.init(key=jax.random.key(0))
    file = tmp_path / ("old.safetensors" if what == "network" else "old")
    if what != "kernel":
        file.write_bytes(b"what was there")

    def write(path: Path) -> None:
        if what == "text":
            write_text(path, "a" * 1000)
        elif what == "network":
            nm.save(path, net, params)
        else:
            nm.gram(net, params, x, store=path, tile=20, trace=True)

    write(tmp_path / f"other{file.suffix}")  # compiles, and JAX writes its own cache
    with full_disk(), pytest.raises(OSError, match="found no room on its disk; make room there"):
        write(file)
    if what != "kernel":
        assert file.read_bytes() == b"what was there"
        assert len(list(tmp_path.iterdir())) == 2
    write(file)  # the same again, with room


def test_where_nothing_may_be_written_the_file_is_named(tmp_path: Path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "hidden")

    write_text(tmp_path / "a", "old")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=r"a' cannot be written \(Read-only file system\); name"):
        write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"


def test_an_archive_with_a_place_before_its_beginning_or_a_foreign_name_is_refused(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3))
    whole = path.read_bytes()
    assert read_npz(path)["a"].sum() == 3
    directory, end = whole.rfind(b"PK\1\2"), whole.rfind(b"PK\5\6")
    late = struct.pack("<L", struct.unpack("<L", whole[end + 16 : end + 20])[0] + 10**6)
    said_utf8 = whole[: directory + 8] + b"\0\x08" + whole[directory + 10 : end]
    for spoilt in (
        whole[: end + 16] + late + whole[end + 20 :],
        said_utf8.replace(b"a.npy", b"\xc0.npy") + whole[end:],
    ):
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"a\.npz', which cannot be read \(damaged"):
            read_npz(path)
