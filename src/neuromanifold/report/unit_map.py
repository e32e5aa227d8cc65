"""The units of every layer as a map of cells: grey where always off, green where always on, blue
where switching.
"""

import html
from collections.abc import Iterable

import numpy as np

from neuromanifold.inspection import Inspection, LayerUnits
from neuromanifold.numerics.results import count_of
from neuromanifold.report.chart import embed

_WIDTH, _FEWEST, _MOST_COLUMNS, _MOST_CELLS = 480, 32, 64, 8192
_LEGEND = (
    ("always off", "off"), ("on at less than a third", "s1"), ("on at a third to two thirds", "s2"), ("on at more", "s3"),
    ("always on", "on"),
)  # fmt: skip


def unit_map(found: Inspection) -> str:
    """One map a layer, with its counts."""
    legend = "".join(f'<li><i class="key dot {colour}"></i>{name}</li>' for name, colour in _LEGEND)
    maps = "".join(_layer(status) for status in found.layers or ())
    return f'<ul class="legend">{legend}</ul>{maps}'


def _layer(status: LayerUnits) -> str:
    cells = status.cells
    between = cells - status.on - status.off
    counts = (
        f"{count_of(cells, status.kind)}: {between:,} switch, {status.on:,} always on, "
        f"{status.off:,} always off"
    )
    heading = f"<h3>{html.escape(_full_name(status.name))} <small>{counts}</small></h3>"
    if not cells or cells > _MOST_CELLS:
        return heading + (
            ""
            if not cells
            else f"<p class=soft>A map of {cells:,} cells would be too large for a page.</p>"
        )
    return heading + _map(status, html.escape(f"{status.name}: {counts}."))


def _full_name(name: str) -> str:
    """A module's bare number says too little."""
    return f"layer {name}" if name.isdigit() else name


def _map(status: LayerUnits, label: str) -> str:
    n = len(status.shares)
    columns = max(_FEWEST, min(_MOST_COLUMNS, n))
    size = _WIDTH / columns
    rows = -(-n // columns)
    states = np.array([_state(share) for share in status.shares])
    paths = "".join(
        f'<path class="{name}" '
        f'd="{"".join(_cells(np.flatnonzero(states == name), columns, size))}"/>'
        for name in ("off", "s1", "s2", "s3", "on")
    )
    shares = [_per_mille(share) for share in status.shares.tolist()]
    data = {
        "columns": columns,
        "size": size,
        "kind": status.kind,
        "name": status.name,
        "shares": shares,
    }
    return (
        f'<figure class="cells"><svg viewBox="0 0 {_WIDTH} {rows * size:.2f}" role="img" '
        f'aria-label="{label}">{paths}</svg>'
        f'<script type="application/json">{embed(data)}</script></figure>'
    )


def _state(share: float) -> str:
    if share in (0.0, 1.0):
        return "on" if share else "off"
    return "s1" if share < 1 / 3 else "s2" if share < 2 / 3 else "s3"


def _per_mille(share: float) -> int:
    """Rounded, but neither to nothing nor to all."""
    return round(1000 * share) if share in (0.0, 1.0) else min(999, max(1, round(1000 * share)))


def _cells(indices: np.ndarray, columns: int, size: float) -> Iterable[str]:
    inside = size - 0.6
    for index in indices.tolist():
        row, column = divmod(index, columns)
        yield f"M{column * size + 0.3:.4g} {row * size + 0.3:.4g}h{inside:.3g}v{inside:.3g}h-{inside:.3g}z"
