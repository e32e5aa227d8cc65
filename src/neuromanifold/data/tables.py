"""Tables of numbers in files: CSV with or without a header, and NumPy arrays. Nothing is
executed on reading.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from neuromanifold.numerics.inputs import plain_array
from neuromanifold.runtime.untrusted_files import read_npy as read_array

DELIMITERS = "\t;,"
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
MISSING = {
    "",
    "na",
    "n/a",
    "nan",
    "null",
    "none",
    "nil",
    "inf",
    "-inf",
    "+inf",
    "infinity",
    "-",
    "?",
    ".",
}
_LINES_LOOKED_AT = 1000


def read_csv(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The numbers (rows, columns) and the header, `None` where the first line holds numbers.

    Columns are separated by tabs, semicolons or commas: whichever most lines below the first have,
    in this order. A header names every column and none of its cells is like a number; a first line
    that is neither header nor numbers is refused, as is one that counts the columns (0,1,2).
    """
    delimiter = _delimiter(path)
    header = _header(path, delimiter)
    try:
        table = np.loadtxt(
            _lines(path, header is not None), np.float64, None, delimiter, ndmin=2, quotechar='"'
        )
    except ValueError as error:
        _refuse(path, delimiter, header, str(error))
    if header is not None and table.shape[1] != len(header):
        raise ValueError(
            f"{path} names {len(header)} columns but its rows have {table.shape[1]}; give all "
            "lines as many."
        )
    if not np.isfinite(table).all() or (np.abs(table) >= 2**53).any():
        _check_cells(path, delimiter, header)
    return table, header


def _lines(path: Path, skip: bool = False) -> Iterator[str]:
    """The lines that are not blank, without the first where `skip`."""
    try:
        with path.open(encoding="utf-8-sig", newline=None) as file:
            for line in file:
                if line.strip() and not skip:
                    yield line
                skip = skip and not line.strip()
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; needed is a table of numbers in CSV."
        ) from None


def _delimiter(path: Path) -> str:
    lines = [line for _, line in zip(range(_LINES_LOOKED_AT), _lines(path), strict=False)]
    if not lines:
        raise ValueError(f"{path} is empty; needed is a table of numbers in CSV.")

    def votes(mark: str) -> tuple[int, bool, int]:
        return sum(mark in line for line in lines[1:]), mark in lines[0], -DELIMITERS.index(mark)

    return max(DELIMITERS, key=votes)


def _header(path: Path, delimiter: str) -> tuple[str, ...] | None:
    line, first = next(_rows(path, delimiter))
    numbers = [NUMBER.fullmatch(cell) is not None for cell in first]
    if all(numbers):
        if _counts_columns(path, delimiter, first):
            raise ValueError(
                f"{path}, line {line} is {delimiter.join(first)!r}, which may number the columns "
                "or be data; "
                "name the columns in a first line, such as x0,x1."
            )
        return None
    for column, (cell, number) in enumerate(zip(first, numbers, strict=True), 1):
        if not number and (any(numbers) or _no_name(cell)):
            raise ValueError(
                f"{path}, line {line}, column {column} is {cell!r}; replace it by a number, "
                "or, if this line names the columns, name every one of them."
            )
    if next(_lines(path, skip=True), None) is None:
        raise ValueError(
            f"{path} has a header and no rows below it; needed is at least one line of numbers."
        )
    return tuple(first)


def _no_name(cell: str) -> bool:
    """Whether a cell stands for a missing number, or is one in a notation that is not read."""
    return (
        cell.lower() in MISSING
        or NUMBER.fullmatch(re.sub(r"[_' ]", "", cell).replace(",", ".", 1)) is not None
    )


def _counts_columns(path: Path, delimiter: str, first: list[str]) -> bool:
    """Whether the first line is 0,1,2,…; with one column, whether it also stands apart from
    fractions below.
    """
    if first != [str(i) for i in range(len(first))]:
        return False
    rows = (
        cells
        for _, (_, cells) in zip(range(_LINES_LOOKED_AT), _rows(path, delimiter), strict=False)
    )
    below = [cell for cells in list(rows)[1:] for cell in cells]
    return bool(below) and (len(first) > 1 or not all(cell.isdigit() for cell in below))


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; needed is a table of numbers in CSV."
        ) from None
    except csv.Error as error:
        raise ValueError(
            f"{path} is not a table in CSV ({error}); needed are numbers, separated by commas."
        ) from None


def _refuse(path: Path, delimiter: str, header: tuple[str, ...] | None, reason: str) -> NoReturn:
    """Say which cell or line could not be read."""
    _check_cells(path, delimiter, header)
    raise ValueError(f"{path} cannot be read ({reason}); needed is a table of numbers in CSV.")


def _check_cells(path: Path, delimiter: str, header: tuple[str, ...] | None) -> None:
    rows = _rows(path, delimiter)
    width = len(next(rows)[1]) if header is not None else None
    for line, cells in rows:
        width = width or len(cells)
        if len(cells) != width:
            raise ValueError(
                f"{path}, line {line} has {len(cells)} columns but the table has {width}; give "
                "all lines as many."
            )
        for column, cell in enumerate(cells, 1):
            _check_cell(f"{path}, line {line}, column {column}", cell)


def _check_cell(where: str, cell: str) -> None:
    if not NUMBER.fullmatch(cell):
        comma = (
            "; write decimals with a point" if NUMBER.fullmatch(cell.replace(",", ".", 1)) else ""
        )
        raise ValueError(f"{where} is {cell!r}; replace it by a number{comma}.")
    value = float(cell)
    if np.isinf(value) or (WHOLE.fullmatch(cell) and int(value) != int(cell.partition(".")[0])):
        raise ValueError(
            f"{where} is {cell}, which float64 cannot hold; subtract or scale it first."
        )


def read_npy(path: Path) -> np.ndarray:
    """The array of real numbers in a .npy file, as float64; a list of numbers is a column."""
    try:
        with path.open("rb") as file:
            a = plain_array(read_array(file, path.stat().st_size), str(path))
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); it is damaged or not a .npy file of numbers."
        ) from None
    if a.dtype.kind not in "fiub":
        raise ValueError(
            f"{path} holds dtype {a.dtype}; needed is one array of real numbers, samples on the "
            "first axis."
        )
    return a.astype(np.float64)[:, None] if a.ndim == 1 else a.astype(np.float64)
