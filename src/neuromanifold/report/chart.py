"""`Chart`: curves and points over one variable as an SVG that reads well by itself; `page.js` adds
hovering and zoom.

What the script needs stands beside the drawing as JSON. Colours are names of the page's style
sheet, so that light and dark agree.
"""

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_LEFT, _TOP, _WIDTH, _HEIGHT = 72.0, 10.0, 394.0, 226.0
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, eq=False)
class Series:
    """One curve: `kind` is line, points or step; `colour` a name of the style sheet (`c1` …
    `c7`, `soft`).
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    kind: str = "line"
    colour: str = "c1"
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Rule:
    """A horizontal line at a value, or a vertical one, with its name; a vertical one may have a
    width.
    """

    at: float
    name: str
    colour: str = "soft"
    vertical: bool = False
    width: float = 0.0


@dataclass(frozen=True, eq=False)
class Chart:
    """`alt` says in a sentence what is to be seen."""

    title: str
    alt: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    log: bool = False
    whole: bool = True
    from_zero: bool = False

    def x_range(self) -> tuple[float, float]:
        """From the first to the last value, with a little room."""
        return _pad(np.concatenate([s.x for s in self.series]), 0.02)

    def y_range(self) -> tuple[float, float]:
        """The same of the curves and the rules; of positive values only, as logarithms, where
        the scale is one.
        """
        levels = np.array([r.at for r in self.rules if not r.vertical])
        values = np.concatenate([*(s.y for s in self.series), levels])
        values = values[np.isfinite(values) & (values > 0 if self.log else True)]
        lo, hi = _pad(np.log10(values) if self.log else values, 0.06)
        return (0.0, hi) if self.from_zero and not self.log else (lo, hi)


def _pad(values: np.ndarray, share: float) -> tuple[float, float]:
    lo, hi = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    room = share * (hi - lo) or 0.5 * abs(lo) or 1.0
    return lo - room, hi + room


def figure(chart: Chart, caption: str = "") -> str:
    """The drawing with its legend, its caption and the numbers for the script."""
    legend = "".join(
        f'<li><i class="key {_key(s)}"></i>{html.escape(s.name)}</li>'
        for s in chart.series
        if s.name
    )
    named = [r for r in chart.rules if r.name]
    legend += "".join(
        f'<li><i class="key rule {r.colour}"></i>{html.escape(r.name)}</li>' for r in named
    )
    label = html.escape(f"{chart.title}. {chart.alt}")
    return (
        f'<figure class="chart"><ul class="legend">{legend}</ul>'
        f'<div class="plot">{_svg(chart, label)}</div>'
        f"<figcaption>{html.escape(caption)}</figcaption>"
        f'<script type="application/json">{embed(_numbers(chart))}</script></figure>'
    )


def _key(series: Series) -> str:
    kind = "dot" if series.kind == "points" else "dashed" if series.dashed else "stroke"
    return f"{kind} {series.colour}"


def embed(data: Any) -> str:
    """JSON that cannot end the element it stands in, nor begin another."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _numbers(chart: Chart) -> dict[str, Any]:
    return {
        "box": [_LEFT, _TOP, _WIDTH, _HEIGHT],
        "x": chart.x_label,
        "y": chart.y_label,
        "log": chart.log,
        "whole": chart.whole,
        "zero": chart.from_zero,
        "range": [*chart.x_range(), *chart.y_range()],
        "series": [
            {"name": s.name, "kind": s.kind, "x": _short(s.x), "y": _short(s.y)}
            for s in chart.series
        ],
        "rules": [
            {"at": _short([r.at])[0], "vertical": r.vertical, "width": r.width} for r in chart.rules
        ],
    }


def _short(values: Any) -> list[float | int | None]:
    """Six digits; whole numbers whole; null where there is no number."""
    found = [float(f"{v:.6g}") if abs(v) < 1e6 else v for v in np.asarray(values, float).tolist()]
    return [
        None if not math.isfinite(v) else int(v) if v == int(v) and abs(v) < 2**53 else v
        for v in found
    ]


def _svg(chart: Chart, label: str) -> str:
    x0, x1, y0, y1 = *chart.x_range(), *chart.y_range()
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    sx = lambda x: _LEFT + (np.asarray(x, float) - x0) / (x1 - x0) * _WIDTH  # noqa: E731
    sy = lambda y: bottom - (_level(y, chart.log) - y0) / (y1 - y0) * _HEIGHT  # noqa: E731
    rules = "".join(_rule(r, sx, sy) for r in chart.rules)
    curves = "".join(
        _curve(s, sx(s.x), sy(s.y), _hidden(s, chart.series[k + 1 :]))
        for k, s in enumerate(chart.series)
    )
    ticks = "".join(
        _tick(float(sx(t)), bottom + 17, _number(t), "middle")
        for t in ticks_of(x0, x1, whole=chart.whole, count=6)
    )
    levels = ticks_of(y0, y1, whole=chart.log)
    shown = [
        (bottom - (t - y0) / (y1 - y0) * _HEIGHT, _power(t) if chart.log else _number(t))
        for t in levels
    ]
    grid = "".join(f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>' for y, _ in shown)
    marks = "".join(_tick(_LEFT - 6, y + 4.0, text, "end") for y, text in shown)
    return (
        f'<svg viewBox="0 0 480 280" role="img" aria-label="{label}">'
        f'<g class="grid">{grid}</g>'
        f'<svg class="inner" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="{_LEFT} {_TOP} {_WIDTH} {_HEIGHT}"><g class="rules">{rules}</g><g '
        f'class="curves">{curves}</g></svg>'
        f'<path class="frame" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
        f'<g class="xt">{ticks}</g><g class="yt">{marks}</g>'
        f'<text x="{_LEFT + _WIDTH / 2}" y="274" '
        f'text-anchor="middle">{html.escape(chart.x_label)}</text>'
        f'<text transform="translate(13 {_TOP + _HEIGHT / 2}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(chart.y_label)}</text>'
        "</svg>"
    )


def _level(y: Any, log: bool) -> Any:
    y = np.asarray(y, float)
    return np.log10(np.where(y > 0, y, np.nan)) if log else y


def _hidden(series: Series, later: Sequence[Series]) -> bool:
    """Whether a curve drawn after `series` covers a step of it: `series` is then drawn wide."""
    lines = [other for other in later if other.kind == "line" and len(other.y) == len(series.y)]
    equal = [np.isclose(series.y, other.y, rtol=1e-2) for other in lines]
    return series.kind == "line" and any((same[1:] & same[:-1]).any() for same in equal)


def _curve(series: Series, x: np.ndarray, y: np.ndarray, hidden: bool) -> str:
    dashed = (" dashed" if series.dashed else "") + (" hidden" if hidden else "")
    return f'<path class="{series.kind} {series.colour}{dashed}" d="{_path(series.kind, x, y)}"/>'


def _path(kind: str, x: np.ndarray, y: np.ndarray) -> str:
    """Points as strokes of no length; a curve that begins anew after what is no number."""
    text, previous = [], False
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        here = math.isfinite(b)
        if here and kind == "points":
            text.append(f"M{a:.1f} {b:.1f}h0")
        elif here:
            text.append(
                f"{'L' if previous else 'M'}{a:.1f} {b:.1f}"
                if kind == "line" or not previous
                else f"H{a:.1f}V{b:.1f}"
            )
        previous = here
    return "".join(text)


def _rule(rule: Rule, sx: Any, sy: Any) -> str:
    if rule.width:
        a, b = float(sx(rule.at - rule.width / 2)), float(sx(rule.at + rule.width / 2))
        return (
            f'<path class="band {rule.colour}" d="M{a:.1f} '
            f'{_TOP}H{b:.1f}V{_TOP + _HEIGHT}H{a:.1f}Z"/>'
        )
    if rule.vertical:
        return f'<path class="rule {rule.colour}" d="M{float(sx(rule.at)):.1f} {_TOP}v{_HEIGHT}"/>'
    return f'<path class="rule {rule.colour}" d="M{_LEFT} {float(sy(rule.at)):.1f}h{_WIDTH}"/>'


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def ticks_of(lo: float, hi: float, *, whole: bool = False, count: int = 5) -> Sequence[float]:
    """Round numbers between two others, about so many.

    >>> [float(t) for t in ticks_of(0.0, 23.0)]
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    power = 10.0 ** math.floor(math.log10((hi - lo) / count))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * count >= hi - lo)
    step = max(1.0, float(round(step))) if whole else step
    first = math.ceil(lo / step)
    return [k * step for k in range(first, math.floor(hi / step) + 1)]


def _number(value: float) -> str:
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    return f"{round(value, 9):,.10g}"


def _power(exponent: float) -> str:
    return "10" + str(round(exponent)).translate(_SUPERSCRIPTS)
