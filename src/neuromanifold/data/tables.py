"""Tables of numbers in files: CSV with or without a header, and NumPy arrays. Nothing is executed on reading."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

DELIMITERS = ",;\t"


def read_csv(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """The numbers (rows, columns) and the header, `None` where the first line holds numbers only.

    Columns are separated by commas, semicolons or tabs, whichever the last line (no header) has most of.
    """
    rows = _rows(path)
    header = None if all(_is_number(cell) for cell in rows[0][1]) else tuple(cell.strip() for cell in rows.pop(0)[1])
    if not rows:
        raise ValueError(f"{path} has a header and no rows below it; needed is at least one line of numbers.")
    width = len(header or rows[0][1])
    return np.array([_numbers(path, line, cells, width) for line, cells in rows]), header


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file; needed is a table of numbers in CSV.") from None
    last = next((line for line in reversed(lines) if line.strip()), "")
    delimiter = max(DELIMITERS, key=last.count)
    numbered = enumerate(_cells(lines, delimiter), 1)
    rows = [(number, cells) for number, cells in numbered if any(cell.strip() for cell in cells)]
    if not rows:
        raise ValueError(f"{path} is empty; needed is a table of numbers in CSV.")
    return rows


def _cells(lines: Iterable[str], delimiter: str) -> Iterable[list[str]]:
    return (next(csv.reader([line], delimiter=delimiter), []) for line in lines)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(path: Path, line: int, cells: list[str], width: int) -> list[float]:
    if len(cells) != width:
        raise ValueError(
            f"{path}, line {line} has {len(cells)} columns but the table has {width}; give all lines as many."
        )
    for column, cell in enumerate(cells, 1):
        if not _is_number(cell):
            raise ValueError(f"{path}, line {line}, column {column} is {cell!r}; replace it by a number.")
    return [float(cell) for cell in cells]


def read_npy(path: Path) -> np.ndarray:
    """The array of real numbers in a .npy file, as float64; a list of numbers is a column."""
    try:
        a = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}); it is damaged or not a .npy file of numbers.") from None
    if not isinstance(a, np.ndarray) or a.dtype.kind not in "fiub":
        found = f"dtype {a.dtype}" if isinstance(a, np.ndarray) else "several arrays"
        raise ValueError(f"{path} holds {found}; needed is one array of real numbers, samples on the first axis.")
    return a.astype(np.float64)[:, None] if a.ndim == 1 else a.astype(np.float64)
