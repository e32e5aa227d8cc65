"""The guarded readers give back what honest files hold; tests/models/test_hostile_files.py has
the others.
"""

from pathlib import Path

import numpy as np
import pytest

from neuromanifold.runtime.memory import machine_memory
from neuromanifold.runtime.untrusted_files import (
    check_size,
    open_archive,
    read_json,
    read_member,
    read_npz,
)

ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "scalar": np.array(2.5),
    "empty": np.empty((0, 3)),
    "large": np.arange(3_000_000, dtype=np.int32),
    "half": np.array([1, 2], np.float16),
    "flags": np.array([True, False]),
    "big-endian": np.arange(3, dtype=">f8"),
    "complex": np.array([1 + 2j]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_honest_archive_is_read_as_numpy_reads_it(save, tmp_path: Path):
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_npz(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as expected:
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
            assert found[name].flags.f_contiguous == array.flags.f_contiguous


def test_a_member_that_ends_early_or_is_altered_is_refused(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).normal(size=1000))
    content = bytearray(path.read_bytes())
    content[600] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz', which cannot be read \(damaged"):
        read_npz(path)


def test_what_does_not_fit_is_refused_before_it_is_read(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3))
    check_size(path, 64 * 2**20)
    with pytest.raises(
        ValueError, match=r"bytes that would become 67,108,865; arrays that are really so regular"
    ):
        check_size(path, 64 * 2**20 + 1)
    with path.open("r+b") as handle:
        handle.truncate(machine_memory() // 8)
    with pytest.raises(ValueError, match="are more than half of this machine's memory"):
        check_size(path, machine_memory())


def test_a_member_has_its_largest_size(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(3))
    with open_archive(path) as archive:
        assert len(read_member(path, archive, "a.npy", 1000)) == 152
        with pytest.raises(
            ValueError, match=r"its member 'a\.npy' takes 152 bytes, more than the 100 that it may"
        ):
            read_member(path, archive, "a.npy", 100)


@pytest.mark.parametrize(
    "text, problem",
    [
        (b"{", "the text is no JSON"),
        (b'{"a": 1, "a": 2}', "it names 'a' twice"),
        (b"[" * 5000 + b"]" * 5000, "the text is nested too deeply"),
        (b"[" + b"1," * 1_000_001 + b"1]", "the text has 1,000,002 parts"),
        (b'"\xff"', "the text is no JSON"),
    ],
)
def test_a_text_that_is_no_plain_json_is_refused(text: bytes, problem: str):
    with pytest.raises(ValueError, match=problem):
        read_json(Path("a.json"), text, "the text")
    assert read_json(Path("a.json"), b'{"a": [1, null]}', "the text") == {"a": [1, None]}
