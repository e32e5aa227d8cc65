"""What the page shows first: three numbers, the network drawn before and after reduction, what to
do next; and the same as one image to share.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from neuromanifold.inspection import Inspection, LayerUnits
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.palette import LIGHT, gather_parts
from neuromanifold.numerics.results import count_of
from neuromanifold.report.terms import mark_up
from neuromanifold.symmetry.reduction.narrowing import Narrowed

_STATES = (
    ("switching", "s3", "#0072b2"), ("always on, so linear", "on", "#00805d"), ("constant", "c5", "#56b4e9"),
    ("copy or multiple of another", "c2", "#c04f00"), ("off on all samples", "off", "#9aa1aa"),
)  # fmt: skip
_MOST_DOTS, _MOST_LAYERS, _ROWS = 128, 10, 16
_MOST_BARS = 40
_PANEL, _TALL, _TOP = 460.0, 190.0, 34.0
Number = tuple[str, str]


@dataclass(frozen=True)
class _Column:
    """One layer: how many of its units are in each of the states."""

    name: str
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.counts)


def numbers_of(found: Inspection) -> list[Number]:
    """At most three (value, what it counts), the most telling first."""
    listed: list[Number] = []
    D, given = found.n_params, f"on all {found.n_given:,} samples"
    if found.dimension is not None:
        rank = int(found.dimension)
        limited = rank == found.rows_of_jacobian < D
        if (
            limited
            and rank > 1
            and found.spectrum is not None
            and found.spectrum.effective_rank > 0
        ):
            text = f"directions make up the tangent kernel of {D:,} parameters"
            listed.append((f"{found.spectrum.effective_rank:.1f}", text))
        else:
            listed.append((f"{rank:,}", f"of {D:,} parameter directions change {found.changed}"))
    if found.reduction is not None and found.reduction.parameters_saved:
        left = D - found.reduction.parameters_saved
        listed.append((f"{left:,}", f"of {D:,} parameters compute the same"))
    if found.layers:
        off, cells = sum(s.off for s in found.layers), sum(s.cells for s in found.layers)
        if off:
            listed.append((f"{off:,}", f"of {cells:,} {found.units} are off {given}"))
    if found.closed is not None:
        listed.append((f"{found.closed:,}", f"of {D:,} parameters have no effect on the sample"))
    if found.conserved is not None and len(found.conserved):
        listed.append((f"{len(found.conserved):,}", "numbers that gradient flow keeps"))
    return listed[:3] or [(f"{D:,}", "parameters")]


def big_numbers(found: Inspection) -> str:
    """The three numbers as a row."""
    cells = "".join(
        f"<li><b>{value}</b> <span>{html.escape(text)}</span></li>"
        for value, text in numbers_of(found)
    )
    return f'<ul class="big">{cells}</ul>'


def network_figure(found: Inspection) -> str:
    """The units of every layer, coloured by what they do, and what is left of them beside it."""
    before = _columns(found)
    if not before:
        return ""
    after = _after(found, before)
    panels = (
        [("now: ", before), ("equivalent smaller network: ", after)] if after else [("", before)]
    )
    largest = max(1, *(column.size for column in before))
    drawn = ""
    for title, columns in panels:
        heading = f"{title}{sum(column.size for column in columns):,} {found.units}"
        drawn += (
            f'<svg viewBox="0 0 {_PANEL:.0f} {_TALL + _TOP + 26:.0f}" role="img" '
            f'aria-label="{html.escape(_alt(title, columns))}">'
            f"{_panel(heading, columns, largest)}</svg>"
        )
    used = [any(column.counts[k] for column in before) for k in range(len(_STATES))]
    legend = "".join(
        f'<li><i class="key dot {colour}"></i>{name}</li>'
        for (name, colour, _), there in zip(_STATES, used, strict=True)
        if there
    )
    caption = f"One column a layer; in each, {found.units} sorted by what they do on all {found.n_given:,} samples."
    return (
        f'<figure class="net"><div class="two">{drawn}</div><ul class="legend">{legend}</ul>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _alt(title: str, columns: Sequence[_Column]) -> str:
    listed = "; ".join(f"{column.name} {column.size}" for column in columns)
    return f"The network, {title}units by layer: {listed}."


def _columns(found: Inspection) -> list[_Column]:
    return [
        _column(found, index, status) for index, status in enumerate(found.layers or (), start=1)
    ]


def _count_removed(found: Inspection, index: int, status: LayerUnits) -> dict[str, int]:
    """How many units of a layer went, by reason."""
    removed = () if found.reduction is None else found.reduction.removed
    counts: dict[str, int] = {}
    for removal in removed:
        name = str(removal.layer).removesuffix(".weight").removesuffix(".bias")
        if removal.what != "parameter" and (removal.layer == index or name == status.name):
            counts[removal.reason] = counts.get(removal.reason, 0) + removal.count
    return counts


def _column(found: Inspection, index: int, status: LayerUnits) -> _Column:
    reasons = _count_removed(found, index, status)
    still = sum(n for why, n in reasons.items() if "constant" in why)
    alike = sum(n for why, n in reasons.items() if "proportional" in why or "multiple" in why)
    left = status.cells - status.off
    alike = min(alike, left)
    still = min(still, left - alike)
    on = min(status.on, left - alike - still)
    counts = (left - alike - still - on, on, still, alike, status.off)
    return _Column(f"layer {status.name}" if status.name.isdigit() else status.name, counts)


def _after(found: Inspection, before: Sequence[_Column]) -> list[_Column]:
    """The layers of the smaller network: the states that go, go first; merged linear units
    besides.
    """
    if found.reduction is None or not found.reduction.neurons_saved:
        return []
    net = perceptron(found.reduction.net)
    statuses = found.layers or ()
    if net is not None and len(net.widths) - 2 != len(before):
        return [_Column(f"layer {k}", (0, w, 0, 0, 0)) for k, w in enumerate(net.widths[1:-1], 1)]
    whole = found.reduction.whole
    if whole is not None:
        fewer = [gone for status in statuses if (gone := _gone(whole, status)) is not None]
    else:
        fewer = [
            sum(_count_removed(found, k, status).values()) for k, status in enumerate(statuses, 1)
        ]
    if len(fewer) < len(before) or (whole is None and sum(fewer) != found.reduction.neurons_saved):
        return []  # what went cannot be told for each layer that is drawn
    columns = []
    for column, gone in zip(before, fewer, strict=True):
        kept = list(column.counts)
        for state in (4, 3, 2, 1, 0):
            taken = min(gone, kept[state])
            kept[state], gone = kept[state] - taken, gone - taken
        columns.append(_Column(column.name, tuple(kept)))
    return columns


def _gone(whole: Narrowed, status: LayerUnits) -> int | None:
    """How many units of a layer went, by the places that its bias or weight lost, whatever the
    steps are named after; None where that does not say.
    """
    for name in (f"{status.name}.bias", f"{status.name}.weight", status.name):
        if name in whole.names:
            k = whole.names.index(name)
            axes = zip(whole.shapes[k], whole.kept[k], strict=True)
            left = {len(kept) for size, kept in axes if size == status.cells}
            return status.cells - left.pop() if len(left) == 1 else None
    return None


def _panel(title: str, columns: Sequence[_Column], largest: int) -> str:
    shown = columns[:_MOST_BARS]
    more = f", the first {len(shown)} of {len(columns)} layers" if len(columns) > len(shown) else ""
    text = f'<text x="0" y="14" class="title">{html.escape(title)}{more}</text>'
    small = len(shown) <= _MOST_LAYERS and all(column.size <= _MOST_DOTS for column in shown)
    place = _PANEL / max(1, len(shown))
    centres = [place * (k + 0.5) for k in range(len(shown))]
    step = min([18.0, *(_step(column, place) for column in shown)]) if small else 0.0
    heights = [
        step * _grid(column)[1] if small else _TALL * max(0.06, column.size / largest)
        for column in shown
    ]
    joined = "".join(
        f'<path class="join" d="M{a:.1f} {_middle(-ha):.1f}L{b:.1f} {_middle(-hb):.1f}V{_middle(hb):.1f}'
        f'L{a:.1f} {_middle(ha):.1f}Z"/>'
        for (a, ha), (b, hb) in pairwise(zip(centres, heights, strict=True))
    )
    draw = _dots if small else _bar
    drawn = "".join(
        "".join(draw(column, x, place, height))
        for column, x, height in zip(shown, centres, heights, strict=True)
    )
    labels = "".join(
        f'<text x="{x:.1f}" y="{_TOP + _TALL + 20:.0f}" text-anchor="middle">{column.size:,}</text>'
        for column, x in zip(shown, centres, strict=True)
        if len(shown) <= 2 * _MOST_LAYERS
    )
    return text + joined + drawn + labels


def _middle(height: float) -> float:
    return _TOP + _TALL / 2 + height / 2


def _states(column: _Column) -> Iterator[str]:
    for (_, colour, _), count in zip(_STATES, column.counts, strict=True):
        yield from [colour] * count


def _grid(column: _Column) -> tuple[int, int]:
    """In how many files and rows the units of a layer stand."""
    files = max(1, -(-column.size // _ROWS))
    return files, max(1, -(-column.size // files))


def _step(column: _Column, place: float) -> float:
    """How far apart they can be."""
    files, rows = _grid(column)
    return min(_TALL / rows, place * 0.85 / files)


def _dots(column: _Column, x: float, place: float, height: float) -> Iterator[str]:
    """A circle each, of one size in all layers."""
    files, rows = _grid(column)
    step = height / rows
    left, top = x - step * (files - 1) / 2, _TOP + _TALL / 2 - step * (rows - 1) / 2
    for index, colour in enumerate(_states(column)):
        file, row = divmod(index, rows)
        yield (
            f'<circle class="{colour}" cx="{left + file * step:.1f}" cy="{top + row * step:.1f}" '
            f'r="{step * 0.4:.1f}"/>'
        )


def _bar(column: _Column, x: float, place: float, height: float) -> Iterator[str]:
    """A bar, divided as the units are."""
    top, width = _TOP + (_TALL - height) / 2, min(18.0, place * 0.6)
    for (name, colour, _), count in zip(_STATES, column.counts, strict=True):
        if count:
            part = height * count / column.size
            tip = html.escape(f"{column.name}: {count:,} of {column.size:,} {name}")
            yield (
                f'<rect class="{colour}" x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{part:.2f}" data-tip="{tip}"/>'
            )
            top += part


def next_steps(found: Inspection) -> str:
    """What a reader can do with the answer, and what cannot be concluded from it."""
    steps = [*_shrink(found), *_rate(found), *_data(found), *_open(found)]
    return "<ul class=steps>" + "".join(f"<li>{step}</li>" for step in steps) + "</ul>"


def _shrink(found: Inspection) -> Iterator[str]:
    small = found.reduction
    if small is None:
        return
    if not small.parameters_saved:
        yield "<b>Nothing to shrink.</b> No unit or channel can go without a change on these samples."
        return
    left = found.n_params - small.parameters_saved
    yield (
        f"<b>Shrink it.</b> {left:,} of {found.n_params:,} parameters compute the same on "
        f"{found.n_reduced:,} samples: <code>neuromanifold reduce MODEL DATA</code>, "
        '<code>nm.reduce_width(f, params, x)</code>; see <a href="#reduction">what goes</a>.'
    )


def _rate(found: Inspection) -> Iterator[str]:
    if found.descent is None:
        yield (
            "<b>Learning rate.</b> Give the targets (<code>--targets y.npy</code>) and this page says up to "
            "which rate gradient descent is stable."
        )
        return
    yield (
        f"<b>Learning rate.</b> Full-batch gradient descent on {html.escape(found.descent.loss)} is stable up to "
        f"{found.descent.largest_lr:.3g} at these parameters."
    )


def _data(found: Inspection) -> Iterator[str]:
    if found.dimension is None or int(found.dimension) == found.n_params:
        return
    rank = int(found.dimension)
    if rank == found.rows_of_jacobian:
        yield (
            f"<b>More samples.</b> {count_of(found.n_samples, 'sample')} with "
            f"{count_of(found.n_outputs, 'output')} each allow no rank above {rank:,}: more samples may "
            "show more."
        )
    elif found.account is not None and found.account.chain[2] > rank:
        yield (
            f"<b>Other data.</b> Inputs in other linear regions would show at least {found.account.chain[2]:,} "
            f"directions, these show {rank:,}."
        )


def _open(found: Inspection) -> Iterator[str]:
    missing = {}
    for part in found.parts:
        if part.left_out:
            missing.setdefault(part.left_out, []).append(part.title)
    if missing:
        listed = "".join(
            f"<li>{html.escape(', '.join(titles))}: {mark_up(why)}</li>"
            for why, titles in missing.items()
        )
        yield f"<b>Not concluded.</b><ul>{listed}</ul>"


def share_image(found: Inspection, title: str) -> str:
    """The three numbers and the bar as an SVG of 1200 × 630 that stands alone."""
    shares, D = gather_parts(found.shares), max(1, found.n_params)
    left, parts, keys = 60.0, [], []
    for index, (name, count) in enumerate(shares):
        width, colour = 1080 * count / D, LIGHT[index % len(LIGHT)]
        parts.append(
            f'<rect x="{left:.1f}" y="400" width="{width:.1f}" height="56" fill="{colour}"/>'
        )
        left += width
        if index < 6:
            x, y = 60 + 370 * (index % 3), 498 + 32 * (index // 3)
            keys.append(
                f'<rect x="{x}" y="{y - 14}" width="16" height="16" fill="{colour}"/>'
                f'<text x="{x + 24}" y="{y}" font-size="20">{html.escape(name[:28])}: {count:,}</text>'
            )
    numbers = "".join(
        f'<text x="{60 + 370 * k}" y="240" font-size="84" font-weight="700" fill="#005f96">{value}</text>'
        + "".join(
            f'<text x="{60 + 370 * k}" y="{285 + 28 * line}" font-size="22">{html.escape(words)}</text>'
            for line, words in enumerate(_wrap(text, 31))
        )
        for k, (value, text) in enumerate(numbers_of(found))
    )
    model = found.model if len(found.model) <= 70 else found.model[:67] + "…"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 630" width="1200" height="630" '
        'font-family="system-ui, sans-serif" fill="#222"><rect width="1200" height="630" fill="#fff"/>'
        f'<text x="60" y="86" font-size="38" font-weight="700">{html.escape(title)}</text>'
        f'<text x="60" y="126" font-size="22" fill="#555">{html.escape(model)}</text>{numbers}'
        f"{''.join(parts)}{''.join(keys)}"
        f'<text x="60" y="600" font-size="20" fill="#555">neuromanifold · '
        f"{count_of(found.n_samples, 'sample')} × {count_of(found.n_outputs, 'output')}</text></svg>\n"
    )


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        lines = (
            [*lines[:-1], f"{lines[-1]} {word}".strip()]
            if len(lines[-1]) + len(word) < width
            else [*lines, word]
        )
    return lines
