"""How results are drawn: as a card of HTML and SVG in a notebook, with matplotlib by `plot`.

A card takes its text colour and ground from the notebook, light or dark, and needs no styles, no
script and nothing from elsewhere. It is well-formed XML.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.numerics.palette import MIDDLE, gather_parts, hatch

WIDEST = 900
"""Pixels of a card."""
_WIDE, _HIGH = 430, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 22, 36
_LEAST = 1.5  # pixels of a part that is there
_MOST_POINTS = 400
Parts = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Curve:
    """A line through (x, y) with its name; `low` and `high` bound a band around it, `points` draws
    points in its place. Values that are not finite are left out.
    """

    name: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    points: bool = False


def card(
    title: str,
    sentences: Iterable[str],
    pictures: Iterable[str] = (),
    rows: Iterable[Sequence[str]] = (),
    *,
    colours: Sequence[str] = (),
    details: Iterable[Sequence[str]] = (),
) -> str:
    """The verdict, pictures, and a table with one row for each of `rows`; `colours` are keys to a
    picture, shown before the first cells; `details` is a table that folds out.

    >>> card("Rank", ["2 & sure"]).partition("<p")[2]
    ' style="margin:4px 0"><b>Rank</b>: 2 &amp; sure</p></div>'
    """
    first, *more = sentences
    said = f"<b>{html.escape(title)}</b>: {html.escape(first)}"
    said = "".join(
        f'<p style="margin:4px 0">{text}</p>' for text in (said, *(html.escape(s) for s in more))
    )
    drawn = "".join(
        f'<div style="display:inline-block;vertical-align:top;margin:6px 12px 2px 0;max-width:100%">{p}</div>'
        for p in pictures
    )
    unfolded = _table(details)
    folded = f"<details><summary>All numbers</summary>{unfolded}</details>" if unfolded else ""
    return (
        f'<div style="max-width:{WIDEST}px;font-size:13px;line-height:1.4;overflow-wrap:anywhere">'
        f"{said}{drawn}{_table(rows, colours)}{folded}</div>"
    )


def _table(rows: Iterable[Sequence[str]], colours: Sequence[str] = ()) -> str:
    cell = "text-align:{};vertical-align:top;padding:1px 14px 1px 0;border:0;white-space:normal"
    text = ""
    for index, row in enumerate(rows):
        key = _key(colours[index]) if index < len(colours) else ""
        cells = [
            f'<td style="{cell.format("right" if k == 1 else "left")}">{key if not k else ""}'
            f"{html.escape(value)}</td>"
            for k, value in enumerate(row)
        ]
        text += f"<tr>{''.join(cells)}</tr>"
    return (
        f'<table style="border:0;margin:6px 0;font-size:12px;border-collapse:collapse"><tbody>{text}</tbody></table>'
        if text
        else ""
    )


def _key(colour: str) -> str:
    return (
        f'<svg width="16" height="10" aria-hidden="true"><rect width="10" height="10" rx="2" '
        f'fill="{colour}"/></svg>'
    )


def colours_of(parts: Parts) -> list[str]:
    """The colour of each part in `bar`: those that are drawn as one have one colour.

    >>> colours_of([("a", 2), ("b", 1)]) == list(MIDDLE[:2])
    True
    """
    names = [name for name, _ in gather_parts(tuple(parts), len(MIDDLE))]
    return [MIDDLE[names.index(name) if name in names else len(MIDDLE) - 1] for name, _ in parts]


def bar(parts: Parts, label: str) -> str:
    """One bar, cut into parts; the smallest are drawn as one where there are more than colours."""
    shown = gather_parts(tuple(parts), len(MIDDLE))
    total, place = max(1, sum(count for _, count in shown)), float(WIDEST - 20)
    widths = [max(place * count / total, _LEAST if count else 0.0) for _, count in shown]
    scale, left, text = place / max(1.0, sum(widths)), 0.0, ""
    for (name, count), width, colour in zip(shown, widths, MIDDLE, strict=False):
        text += (
            f'<rect x="{left:.1f}" y="0" width="{max(0.0, width * scale - 1):.1f}" height="18" fill="{colour}">'
            f"<title>{html.escape(f'{name}: {count:,}')}</title></rect>"
        )
        left += width * scale
    alt = ", ".join(f"{name}: {count:,}" for name, count in shown)
    return (
        f'<svg viewBox="0 0 {place:.0f} 18" width="{place:.0f}" height="18" preserveAspectRatio="none" '
        f'style="max-width:100%" role="img" aria-label="{html.escape(f"{label}. {alt}")}">{text}</svg>'
    )


def chart(curves: Sequence[Curve], *, x: str, y: str, log: bool = False, rule: float = 0) -> str:
    """A small plot with axes; on a logarithmic scale only positive values are drawn, and `rule`
    is a dashed line at a value.
    """
    drawn = [_finite(curve, log) for curve in curves]
    heights = [h for c in drawn for h in (c.y, c.low, c.high) if h is not None and len(h)]
    if not heights:
        return ""
    values = np.concatenate([*heights, np.array([rule] if rule > 0 else [])])
    along = np.concatenate([c.x for c in drawn])
    low, high = _limits(values, log)
    span = max(float(along.max() - along.min()), 1e-300)
    wide, high_px = _WIDE - _LEFT - _RIGHT, _HIGH - _TOP - _BOTTOM

    def across(a: Any) -> Any:
        return _LEFT + wide * (np.asarray(a) - along.min()) / span

    def up(a: Any) -> Any:
        a = np.log10(a) if log else np.asarray(a)
        return _TOP + high_px * (1 - (a - low) / (high - low))

    text = _axes(low, high, log, up, (float(along.min()), float(along.max())), x)
    if rule > 0:
        text += (
            f'<path d="M{_LEFT} {up(rule):.1f}h{wide}" stroke="currentColor" stroke-dasharray="4 3" fill="none"/>'
            f'<text x="{_WIDE - _RIGHT}" y="{up(rule) - 3:.1f}" text-anchor="end">threshold {rule:.1e}</text>'
        )
    for curve, colour in zip(drawn, MIDDLE, strict=False):
        text += _line(curve, across, up, colour)
    hidden = sum(int((np.asarray(curve.y) <= 0).sum()) for curve in curves) if log else 0
    heading = f"{y} ({hidden:,} not positive, not drawn)" if hidden else y
    text += f'<text x="0" y="12">{html.escape(heading)}</text>'
    alt = "; ".join(f"{c.name} from {c.y[0]:.4g} to {c.y[-1]:.4g}" for c in drawn if len(c.y))
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}" style="max-width:100%" font-size="11" '
        f'font-family="sans-serif" fill="currentColor" role="img" aria-label="{html.escape(f"{heading}: {alt}")}">{text}</svg>'
    )


def _finite(curve: Curve, log: bool) -> Curve:
    """The curve where it can be drawn, in at most `_MOST_POINTS` points."""
    x, y = np.asarray(curve.x, float), np.asarray(curve.y, float)
    band = [None if a is None else np.asarray(a, float) for a in (curve.low, curve.high)]
    fine = np.isfinite(x) & np.isfinite(y)
    for a in (y, *(a for a in band if a is not None)):
        fine &= np.isfinite(a) & ((a > 0) | (not log))
    at = np.flatnonzero(fine)
    if len(at) > _MOST_POINTS:
        at = at[np.unique(np.linspace(0, len(at) - 1, _MOST_POINTS).round().astype(int))]
    low, high = (None if a is None else a[at] for a in band)
    return Curve(curve.name, x[at], y[at], low, high, curve.points)


def _limits(values: np.ndarray, log: bool) -> tuple[float, float]:
    if log:
        low, high = math.floor(np.log10(values.min())), math.ceil(np.log10(values.max()))
        return low, max(high, low + 1)
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _axes(low: float, high: float, log: bool, up: Any, ends: tuple[float, float], x: str) -> str:
    step = max(1, round((high - low) / 4)) if log else (high - low) / 2
    ticks = np.arange(low, high + step / 2, step)
    text = ""
    for tick in ticks[ticks <= high + 1e-9 * abs(high)]:
        value = 10.0**tick if log else tick
        name = f"1e{tick:.0f}" if log else f"{tick:.3g}"
        text += (
            f'<path d="M{_LEFT} {up(value):.1f}H{_WIDE - _RIGHT}" stroke="currentColor" stroke-opacity="0.25"/>'
            f'<text x="{_LEFT - 5}" y="{up(value) + 4:.1f}" text-anchor="end">{name}</text>'
        )
    for end, at, anchor in zip(ends, (_LEFT, _WIDE - _RIGHT), ("start", "end"), strict=True):
        text += f'<text x="{at}" y="{_HIGH - _BOTTOM + 15}" text-anchor="{anchor}">{end:g}</text>'
    return (
        f'{text}<text x="{(_LEFT + _WIDE - _RIGHT) / 2}" y="{_HIGH - _BOTTOM + 29}" '
        f'text-anchor="middle">{html.escape(x)}</text>'
    )


def _line(curve: Curve, across: Any, up: Any, colour: str) -> str:
    if not len(curve.y):
        return ""
    places = [f"{a:.1f} {b:.1f}" for a, b in zip(across(curve.x), up(curve.y), strict=True)]
    if curve.points or len(places) == 1:
        dots = "".join(f"M{place}h0" for place in places)
        return f'<path d="{dots}" stroke="{colour}" stroke-width="3.5" stroke-linecap="round" fill="none"/>'
    text = f'<path d="M{"L".join(places)}" stroke="{colour}" stroke-width="1.6" fill="none"/>'
    if curve.low is None:
        return text
    there = zip(across(curve.x), up(curve.high), strict=True)
    back = zip(across(curve.x)[::-1], up(curve.low)[::-1], strict=True)
    around = "L".join(f"{a:.1f} {b:.1f}" for a, b in (*there, *back))
    return f'<path d="M{around}Z" fill="{colour}" fill-opacity="0.2"/>{text}'


def table_of(parts: Parts, total: int) -> list[tuple[str, str, str]]:
    """A row for each part: name, number and share.

    >>> table_of([("dead", 1)], 4)
    [('dead', '1', '25.0%')]
    """
    return [(name, f"{count:,}", f"{100 * count / max(1, total):.1f}%") for name, count in parts]


def axes_of(axes: Any, size: tuple[float, float]) -> Any:
    """The axes given, or those of a new figure."""
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def plot_bar(axes: Any, parts: Parts, total: int, *, x: str) -> Any:
    """The parts of a whole as one bar on matplotlib axes, which are returned."""
    left = 0
    for index, (name, count) in enumerate(gather_parts(tuple(parts))):
        axes.barh(
            0, count, left=left, edgecolor="white", label=f"{name}: {count:,}", **hatch(index)
        )
        left += count
    axes.set(yticks=[], xlim=(0, max(1, total)), xlabel=x)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return axes
