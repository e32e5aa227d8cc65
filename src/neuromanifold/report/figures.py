"""Figures of an inspection, drawn from what it holds; nothing is computed here."""

import html
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuromanifold.bottleneck.along import RanksAlong, stable_rank
from neuromanifold.inspection import Inspection, LayerRank, Timeline
from neuromanifold.numerics.palette import colour_and_texture, gather_parts
from neuromanifold.report.chart import Chart, Rule, Series, figure
from neuromanifold.report.terms import name_with_link

_LEAST_WIDTH = 2.0
_MOST_BLOCKS = 30
_LEAST_LOG = 30.0  # from the smallest value to the largest, where the scale is to be logarithmic
_TEXTURES = (
    '<defs><pattern id="striped" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)">'
    '<rect class="gap" width="2" height="5"/></pattern><pattern id="dotted" width="5" height="5" '
    'patternUnits="userSpaceOnUse">'
    '<circle class="gap" cx="2.5" cy="2.5" r="1.3"/></pattern></defs>'
)
_GROWTH = (
    "Where the curve is flat, further samples show nothing new; where it still rises at the right "
    "end, the sample was too small to "
    "show all that the parameters can do."
)
_SPECTRUM = (
    "Singular values of the Jacobian in float64. A rank read off floating point depends on where "
    "the line is drawn."
)
_KERNEL = (
    "Square roots of the eigenvalues of the tangent kernel in float64; what is below about 1e-8 "
    "of the largest is rounding."
)
_APART = " The exact rank does not depend on it."
_BOTTLENECK = (
    "A layer in the bottleneck (shaded) has as many singular values near 1 as the bottleneck's "
    "rank, and the others are near 0. Deep networks trained with L2 regularisation look like this."
)
_NO_BOTTLENECK = "No layer is in a bottleneck: there a few singular values would be near 1 and the others near 0."

_RANKS = (
    "A layer whose output has a small rank passes on only so many numbers about its input. The stable "
    "rank, Σσ²/σ₁², says how many of them are large."
)
_CUTS = (
    "A cut is a value that all of the network passes through, such as the stream between two blocks. "
    "No derivative behind it has a larger rank than the Jacobian there."
)


def spectrum_figure(found: Inspection) -> str:
    """Singular values of J on a log scale, with the rank and what the two precisions cut off."""
    assert found.singular_values is not None
    values = found.singular_values
    floor = max(values[0], 1e-300) * 1e-20
    index, rank = np.arange(1, len(values) + 1), _rank(found, len(values))
    kept, shown = index <= rank, np.maximum(values, floor)
    label = (
        "change the function"
        if found.dimension is not None
        else f"the largest of {found.rows_of_jacobian:,}"
    )
    series = [Series(label, index[kept], shown[kept], "points", "c1")]
    if not kept.all():
        series.append(Series("zero up to rounding", index[~kept], shown[~kept], "points", "soft"))
    rules = tuple(
        Rule(float(cut.threshold), f"{name} cuts here", colour)
        for cut, name, colour in (
            (found.float32, "float32", "c2"),
            (found.float64, "float64", "c3"),
        )
        if cut is not None and float(cut.threshold) > 0
    )
    below = f" Values below {floor:.0e} are drawn there." if (values < floor).any() else ""
    alt = (
        f"{len(values):,} values from {values[0]:.3g} down to {values[-1]:.3g}; {rank:,} of them "
        "count."
    )
    drawn, wide = (
        tuple(s for s in series if len(s.x)),
        bool(rules) or bool(shown[0] > _LEAST_LOG * shown[-1]),
    )
    chart = Chart(
        "Singular values", alt, "index, largest first", "singular value", drawn, rules, log=wide
    )
    caption = _KERNEL if found.float64 is None else _SPECTRUM
    return figure(chart, caption + (_APART if found.exact is not None else "") + below)


def _rank(found: Inspection, count: int) -> int:
    return count if found.dimension is None else min(count, int(found.dimension))


def growth_figure(found: Inspection) -> str:
    """The exact rank against the number of samples, with what that many samples allow."""
    assert found.growth is not None
    n, last = np.arange(1, len(found.growth) + 1), int(found.growth[-1])
    allowed = np.minimum(n * found.n_outputs, found.n_params).astype(float)
    allowed[allowed > 1.3 * last] = np.nan
    series = (
        Series("the most that so many samples allow", n, allowed, "line", "soft", dashed=True),
        Series("functional dimension, exact", n, found.growth.astype(float), "line", "c1"),
    )
    alt = (
        f"It is {int(found.growth[0]):,} with one sample and {last:,} with {len(n):,}; {last:,} "
        f"is reached after {found.saturated_at:,}."
    )
    return figure(
        Chart(
            "Functional dimension against samples",
            alt,
            "samples, in the order given",
            "directions",
            series,
            from_zero=True,
        ),
        _GROWTH,
    )


def parameters_figure(found: Inspection) -> str:
    """One bar: parameter directions that change the function on the sample, and where the others
    went.
    """
    shares = gather_parts(found.shares)
    widths = [
        max(960 * count / found.n_params, _LEAST_WIDTH if count else 0.0) for _, count in shares
    ]
    lefts = [0.0, *itertools.accumulate(width * 960 / sum(widths) for width in widths)]
    styles = [_style(index) for index in range(len(shares))]
    parts = "".join(
        _part(style, a, b - a, f"{name}: {count:,} of {found.n_params:,}")
        for (name, count), style, a, b in zip(shares, styles, lefts, lefts[1:], strict=False)
    )
    legend = "".join(
        f'<li><i class="key dot {" ".join(style)}"></i>{name_with_link(name)}: {count:,}</li>'
        for (name, count), style in zip(shares, styles, strict=True)
    )
    label = html.escape(
        "Where the parameters went. " + ", ".join(f"{name}: {count:,}" for name, count in shares)
    )
    return (
        '<figure class="wide"><svg class="bar" viewBox="0 0 960 34" role="img" '
        f'aria-label="{label}">{_TEXTURES}{parts}</svg>'
        f'<ul class="legend">{legend}</ul></figure>'
    )


def blocks_figure(blocks: Sequence[LayerRank]) -> str:
    """For every layer its parameters, its rank and its share of the kernel, as bars."""
    shown = sorted(blocks, key=lambda block: -block.parameters)[:_MOST_BLOCKS]
    most = max(block.parameters for block in shown)
    rows = "".join(_block(block, most) for block in blocks if block in shown)
    hidden = len(blocks) - len(shown)
    more = f"<p class=soft>The {hidden:,} smallest layers are not listed.</p>" if hidden else ""
    return (
        '<div class="scroll"><table class="blocks"><thead><tr><th>layer</th><th>parameters</th>'
        "<th></th><th>rank</th><th>share of the kernel</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{more}<p class=soft>Rank: of the Jacobian's columns that belong to the "
        "layer, how many of its directions change the function on the sample. Ranks of layers may overlap. The share "
        "is that of the tangent kernel's trace.</p>"
    )


def _block(block: LayerRank, most: int) -> str:
    rank = "–" if block.rank is None else f"{block.rank:,}"
    used = block.parameters if block.rank is None else block.rank
    inner = f'<rect class="c1" width="{160 * used / most:.1f}" height="12"/>'
    return (
        f'<tr><th scope="row">{html.escape(block.name)}</th><td>{block.parameters:,}</td>'
        f'<td><svg viewBox="0 0 160 12" width="160" height="12" aria-hidden="true">'
        f'<rect class="off" width="{160 * block.parameters / most:.1f}" height="12"/>{inner}</svg></td>'
        f"<td>{rank}</td><td>{100 * block.share:.1f}%</td>"
        f'<td><svg viewBox="0 0 80 12" width="80" height="12" aria-hidden="true">'
        f'<rect class="c3" width="{80 * block.share:.1f}" height="12"/></svg></td></tr>'
    )


def _style(index: int) -> tuple[str, str]:
    colour, texture = colour_and_texture(index)
    return f"p{colour + 1}", texture


def _part(style: tuple[str, str], left: float, width: float, tip: str) -> str:
    """A piece of a bar; its texture lies over its colour."""
    place = f'x="{left:.2f}" y="0" width="{width:.2f}" height="34"'
    over = f'<rect {place} fill="url(#{style[1]})" pointer-events="none"/>' if style[1] else ""
    return f'<rect class="{style[0]}" {place} data-tip="{html.escape(tip)}"/>{over}'


def bottleneck_figure(found: Inspection) -> str:
    """Singular values of every weight matrix over the layers."""
    assert found.bottleneck is not None
    layers = np.asarray(found.bottleneck.data["layer"].values, float)
    values = np.asarray(found.bottleneck.data["singular_values"].values, float)
    curves = [column for column in values.T if np.isfinite(column).any()]
    series = tuple(
        Series("singular values" if not k else "", layers, column, "line", "c1")
        for k, column in enumerate(curves)
    )
    bands = tuple(
        Rule(float(layer), "", "c5", vertical=True, width=1.0) for layer in found.bottleneck_layers
    )
    shaded = len(found.bottleneck_layers)
    alt = (
        f"Singular values of {len(layers)} weight matrices; {shaded} layers are in the bottleneck."
    )
    chart = Chart(
        "Bottleneck",
        alt,
        "layer",
        "singular value",
        series,
        (*bands, Rule(1.0, "the value 1", "soft")),
        from_zero=True,
    )
    return figure(chart, _BOTTLENECK if shaded else _NO_BOTTLENECK)


def ranks_figure(found: Inspection) -> str:
    """Ranks of the weights and of what the layers give, in the order of computation, with a table."""
    assert found.ranks is not None
    layers = found.ranks.layers
    order = np.arange(1, len(layers) + 1).astype(float)
    columns = [
        ("most that the weights' shape allows", [min(layer.shape) for layer in layers]),
        ("rank of the weights", [int(layer.weight) for layer in layers]),
        ("rank of what the layer gives", [int(layer.representation) for layer in layers]),
        (
            "stable rank of what it gives",
            [round(stable_rank(layer.representation), 2) for layer in layers],
        ),
    ]
    styles = (("soft", True), ("c1", False), ("c3", False), ("c2", True))
    series = tuple(
        Series(name, order, np.array(values, float), "line", colour, dashed)
        for (name, values), (colour, dashed) in zip(columns, styles, strict=True)
    )
    lowest = min(layers, key=lambda layer: int(layer.representation))
    alt = (
        f"Ranks of {len(layers)} layers; what {lowest.name} gives has the smallest, "
        f"{int(lowest.representation)}."
    )
    wide = max(columns[0][1]) > _LEAST_LOG * min(max(1e-3, v) for v in columns[3][1])
    chart = Chart(
        "Ranks along the network",
        alt,
        "layer, in the order of computation",
        "rank",
        series,
        log=wide,
        from_zero=not wide,
    )
    rows = "".join(
        f'<tr><th scope="row">{html.escape(layer.name)}</th>'
        + "".join(f"<td>{values[k]:,}</td>" for _, values in columns)
        + "</tr>"
        for k, layer in enumerate(layers)
    )
    heads = "".join(f"<th>{name}</th>" for name, _ in columns)
    table = (
        f"<details><summary>{len(layers)} layers, one by one</summary><div class=scroll>"
        f"<table><thead><tr><th>layer</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )
    caption = f"{_RANKS} Measured at {found.ranks.samples:,} samples."
    unseen = "; ".join(found.ranks.left_out)
    besides = f"<p class=soft>Not looked at: {html.escape(unseen)}.</p>" if unseen else ""
    return figure(chart, caption) + table + besides + _cuts_figure(found.ranks)


def _cuts_figure(ranks: RanksAlong) -> str:
    """Ranks of the Jacobians from the cuts to the output, and from each cut to the next."""
    if not ranks.cuts:
        return ""
    order = np.arange(1, len(ranks.cuts) + 1).astype(float)
    columns = (
        ("most that can show", [cut.of for cut in ranks.cuts], "soft", True),
        (
            "rank of the Jacobian to the output",
            [int(cut.to_output) for cut in ranks.cuts],
            "c1",
            False,
        ),
        (
            "rank of the Jacobian to the next cut",
            [np.nan if cut.block is None else int(cut.block) for cut in ranks.cuts],
            "c3",
            False,
        ),
    )
    series = tuple(
        Series(name, order, np.array(values, float), "line", colour, dashed)
        for name, values, colour, dashed in columns
        if not np.isnan(values).all()
    )
    least = min(ranks.cuts, key=lambda cut: int(cut.to_output))
    alt = (
        f"Ranks at {len(ranks.cuts)} cuts; the smallest Jacobian to the output, {int(least.to_output)} "
        f"of {least.of}, is that of {least.name}."
    )
    chart = Chart(
        "Jacobians between the cuts",
        alt,
        "cut, in the order of computation",
        "rank",
        series,
        from_zero=True,
    )
    return figure(
        chart,
        f"{_CUTS} Measured at {ranks.jacobians_at:,} samples; the largest rank is shown.",
    )


def curve_figure(found: Inspection) -> str:
    """The learned function of one variable, with the sample."""
    assert found.curve is not None
    (x, y), (grid, values) = found.sample, found.curve
    data = () if y is None else (Series("data", x[:, 0], y[:, 0], "points", "soft"),)
    network = Series("network", grid, values, "line", "c1")
    alt = (
        f"The network over [{grid[0]:.3g}, {grid[-1]:.3g}], between {values.min():.3g} and "
        f"{values.max():.3g}."
    )
    chart = Chart("The function", alt, "input x", "output f(x)", (*data, network), whole=False)
    return figure(chart, "The network over the range of the sample.")


def timeline_figures(timeline: Timeline) -> str:
    """One plot for each quantity that was measured over training."""
    return (
        '<div class="panels">'
        + "".join(_panel(timeline, *panel) for panel in timeline.panels())
        + "</div>"
    )


def _panel(timeline: Timeline, title: str, curves: dict[str, np.ndarray]) -> str:
    steps: Any = timeline.steps.astype(float)
    series = tuple(
        Series(
            label if len(curves) > 1 else "",
            steps,
            values,
            "line",
            _style(k)[0],
            dashed=bool(_style(k)[1]),
        )
        for k, (label, values) in enumerate(curves.items())
    )
    first, last = (", ".join(f"{values[i]:.4g}" for values in curves.values()) for i in (0, -1))
    alt = f"From {first} at step {timeline.steps[0]} to {last} at step {timeline.steps[-1]}."
    return f"<div><h3>{html.escape(title)}</h3>{figure(Chart(title, alt, 'step', title, series))}</div>"
