"""Names, the table of `neuromanifold data list`, and DATA files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuromanifold import data


def test_the_table_has_one_row_for_each_name_and_agrees_with_what_loads():
    rows = data.catalogue()
    assert tuple(row["name"] for row in rows) == data.names()
    assert all(set(row) == {"name", "size", "licence", "present", "origin"} for row in rows)
    loadable = [row for row in rows if row["present"] in ("generated", "with scikit-learn")]
    assert len(loadable) == 8
    for row in loadable:
        d = data.load(row["name"])
        assert row["size"] == f"{len(d):,} × {d.x.shape[1]} → {d.y.shape[1]}"
        assert d.licence.startswith(row["licence"]) and d.source and d.notes


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"`name` is 'mnist'; the data sets are f1, f2, .*, fashion_mnist"
    ):
        data.load("mnist")


def test_a_data_set_is_frozen():
    d = data.load("f1")
    with pytest.raises(ValueError, match="read-only"):
        d.x[0] = 0
    with pytest.raises(AttributeError):
        d.name = "other"  # pyright: ignore
    mine = np.ones((3, 1))
    data.Dataset("mine", mine, mine, ("a",), ("b",), "", "")
    mine[0] = 2  # the caller's array stays the caller's


@pytest.mark.parametrize(
    "x, y", [((3, 2), (3, 1)), ((3, 1), (4, 1)), ((0, 1), (0, 1)), ((3,), (3, 1))]
)
def test_a_data_set_refuses_shapes_that_do_not_agree(x, y):
    with pytest.raises(ValueError, match=r"pass \(n, 1\) with n ≥ 1|pass as many of each"):
        data.Dataset("mine", np.zeros(x), np.zeros(y), ("a",), ("b",), "", "")


def test_parts_of_a_data_set():
    d = data.load("digits")
    assert np.array_equal(d.take(5).x, d.x[:5])
    with pytest.raises(ValueError, match=r"`n` is 1798; digits has 1797 samples"):
        d.take(1798)
    with pytest.raises(ValueError, match=r"`name` is 'ten'; the targets of digits are 0, 1, 2"):
        d.target("ten")


def test_scikit_learn_is_imported_only_where_its_data_are_wanted():
    code = (
        "import sys; from neuromanifold import data; data.load('f1'); data.catalogue(); "
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3,4\n",
        "a,b\n1,2\n3,4\n",
        "1;2\n3;4",
        '"a name, quoted"\t"b"\n1\t2\n3\t4\n',
        "\ufeffa,b\n1, 2\n\n3.0,4e0\n",
        "1,2\r\n3,4\r\n",
        "1,2\r3,4\r",
        'a,b\n"1",+2\n3.,.4e1\n   \n',
    ],
)
def test_csv_with_or_without_header(text: str, tmp_path: Path):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8", newline="")
    assert np.array_equal(data.read(tmp_path / "x.csv"), [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"x\.csv is empty"),
        ("a,b\n", r"x\.csv has a header and no rows"),
        ("1,2\n3\n", r"line 2 has 1 columns but the table has 2"),
        ("a,b\n1,2\n3,four\n", r"line 3, column 2 is 'four'; replace it by a number"),
        ("1,2\n3,\n", r"line 2, column 2 is ''"),
        ("1,2\n3,nan\n", r"line 2, column 2 is 'nan'; replace it by a number"),
        ("1,2\n\n3,inf\n", r"line 3, column 2 is 'inf'; replace it by a number"),
        (
            "NA,2\n3,4\n",
            r"line 1, column 1 is 'NA'; replace it by a number, or, if this line names the columns, name every",
        ),
        ("NA,NA\n3,4\n", r"line 1, column 1 is 'NA'"),
        (",a\n0,1.5\n", r"line 1, column 1 is ''; .*name every one"),
        ("1,5;2,7\n1,6;2,8\n", r"line 1, column 1 is '1,5'; replace it"),
        (
            "a;b\n1,5;2,7\n",
            r"line 2, column 1 is '1,5'; replace it by a number; write decimals with a point",
        ),
        ("a\tb\n1,5\t2\n", r"line 2, column 1 is '1,5'"),
        ("1_0,2\n3,4\n", r"line 1, column 1 is '1_0'"),
        ("1_0,2_0\n3,4\n", r"line 1, column 1 is '1_0'"),
        ("3,4\n1_0,2\n", r"line 2, column 1 is '1_0'"),
        (
            "0,1\n0.5,2.5\n",
            r"line 1 is '0,1', which may number the columns or be data; name the columns",
        ),
        ("0\n0.5\n0.7\n", r"line 1 is '0', which may number the columns or be data"),
        (
            "a,b\n9007199254740993,1\n",
            r"line 2, column 1 is 9007199254740993, which float64 cannot hold",
        ),
        ("1,2\n1e400,1\n", r"line 2, column 1 is 1e400, which float64 cannot hold"),
        (
            "a,b,c\n1,2\n",
            r"line 2 has 2 columns but the table has 3|names 3 columns but its rows have 2",
        ),
        ("1 2\n3 4\n", r"line 1, column 1 is '1 2'"),
        ("1,2\n0x10,1\n", r"line 2, column 1 is '0x10'"),
        ("1,2\n١,1\n", r"line 2, column 1 is '١'"),
        ('1,"2\n3,4\n', r"x\.csv"),
        ("1\x002,3\n", r"x\.csv"),
        ('a,b\n1,"' + "2" * 200_000 + '"\n', r"x\.csv"),
        (b"\xff\xfe\x00\x01", r"x\.csv is not a text file"),
    ],
)
def test_bad_csv(text: str | bytes, message: str, tmp_path: Path):
    (tmp_path / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        data.read(tmp_path / "x.csv")


@pytest.mark.parametrize(
    "a",
    [
        np.arange(6.0).reshape(3, 2),
        np.arange(3),
        np.ones((2, 3, 4), np.float32),
        np.array([[True]]),
    ],
)
def test_npy(a: np.ndarray, tmp_path: Path):
    np.save(tmp_path / "x.npy", a)
    x = data.read(tmp_path / "x.npy")
    assert x.dtype == np.float64
    assert np.array_equal(x, a[:, None] if a.ndim == 1 else a)


def test_whole_numbers_below_a_header_and_beside_it(tmp_path: Path):
    """The first line 0,1 is refused, 0,0 and a lone 0 above whole numbers are data; a large even
    number is exact.
    """
    (tmp_path / "x.csv").write_text("0,0\n0,1\n1,0\n1,1\n")
    assert data.read(tmp_path / "x.csv").shape == (4, 2)
    (tmp_path / "x.csv").write_text("0\n1\n2\n")
    assert data.read(tmp_path / "x.csv").ravel().tolist() == [0, 1, 2]
    (tmp_path / "x.csv").write_text("a\n9007199254740994\n1e300\n")
    assert data.read(tmp_path / "x.csv").ravel().tolist() == [2.0**53 + 2, 1e300]


def claiming(shape: str, body: bytes = b"") -> bytes:
    """A .npy file that claims a shape."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def test_big_endian_files_are_read(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=">f8").reshape(2, 3))
    assert np.array_equal(data.read(tmp_path / "x.npy"), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "write, message",
    [
        (lambda path: path.write_bytes(b"\x93NUMPY"), r"x\.npy cannot be read"),
        (lambda path: path.write_bytes(b""), r"x\.npy cannot be read"),
        (
            lambda path: np.save(path, np.array([{"a": 1}]), allow_pickle=True),
            r"x\.npy cannot be read .*dtype object, not numbers",
        ),
        (
            lambda path: np.save(path, np.array(["a"])),
            r"x\.npy cannot be read .*dtype <U1, not numbers",
        ),
        (lambda path: np.save(path, np.ones((2, 2), complex)), r"x\.npy holds dtype complex128"),
        (
            lambda path: (
                np.savez(path.with_suffix(""), a=np.ones(3))
                or path.with_suffix(".npz").rename(path)
            ),
            r"x\.npy cannot be read .*magic string",
        ),
        (lambda path: np.save(path, np.array([[np.inf]])), r"x\.npy` is inf at \[0, 0\]"),
        (
            lambda path: np.save(path, np.array([2**53 + 1])),
            r"x\.npy. is 9007199254740993 at \[0\], which float64 cannot",
        ),
        (
            lambda path: np.save(path, np.longdouble([1]) + 2**-60),
            r"in float128, which float64 cannot hold",
        ),
        (
            lambda path: path.write_bytes(claiming("(10000000000000,)")),
            r"claims shape .* and holds 0\); it is damaged",
        ),
        (
            lambda path: path.write_bytes(claiming("(2,)", b"1234567")),
            r"claims shape \(2,\) of float64, 16 bytes, and holds 7",
        ),
        (
            lambda path: np.save(path, np.ones((0, 2))),
            r"x\.npy` has shape \(0, 2\), so it is empty",
        ),
    ],
)
def test_bad_npy(write, message: str, tmp_path: Path):
    write(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=message):
        data.read(tmp_path / "x.npy")


def test_data_may_be_a_name_a_file_or_a_mistake(tmp_path: Path):
    assert np.array_equal(data.read("g2"), data.load("g2").x)
    with pytest.raises(
        FileNotFoundError,
        match=r"`path` is '.*absent.csv', which does not exist; pass a .npy, .npz or .csv file",
    ):
        data.read(tmp_path / "absent.csv")
    with pytest.raises(
        ValueError, match=r"`path` is 'f4'; pass a .npy, .npz or .csv file, or a data set: f1, f2"
    ):
        data.read("f4")
