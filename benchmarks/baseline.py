"""Ratios that were measured before, and the check that fails when one has halved."""

import json
from pathlib import Path

from benchmarks.row import Row, machine

FILE = Path(__file__).with_name("baseline.json")


def record(rows: list[Row], path: Path = FILE) -> Path:
    """Keep the ratios of these rows in place of earlier ones of the same names; other rows stay."""
    known = _ratios(path) if path.exists() else {}
    known |= {row.name: row.ratio for row in rows if row.ratio is not None}
    path.write_text(
        json.dumps({"machine": machine(), "ratios": dict(sorted(known.items()))}, indent=2) + "\n"
    )
    return path


def halved(rows: list[Row], path: Path = FILE) -> list[str]:
    """A sentence for each row whose ratio is less than half of the recorded one, or whose result
    is wrong.
    """
    known = _ratios(path)
    found = [f"{row.name}: the results differ; {row.note}" for row in rows if not row.agrees]
    return found + [
        f"{row.name}: the ratio is {row.ratio:.3g}, less than half of the recorded "
        f"{known[row.name]:.3g}"
        for row in rows
        if row.ratio is not None and row.name in known and row.ratio < known[row.name] / 2
    ]


def unknown(rows: list[Row], path: Path = FILE) -> list[str]:
    """Rows that the record does not have."""
    known = _ratios(path)
    return [row.name for row in rows if row.name not in known]


def _ratios(path: Path) -> dict[str, float]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["ratios"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read as recorded ratios ({error}); record them: bench --record."
        ) from None
