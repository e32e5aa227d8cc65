"""One self-contained HTML page for an inspection: nothing from elsewhere, and no script but its
own.
"""

import base64
import hashlib
import html
import importlib.metadata
import time
from importlib.resources import files
from pathlib import Path

import numpy as np

from neuromanifold.inspection import Inspection, Timeline
from neuromanifold.report import figures
from neuromanifold.report.overview import big_numbers, network_figure, next_steps, share_image
from neuromanifold.report.reduction import reduction_section
from neuromanifold.report.style import PAGE_STYLE, STYLE
from neuromanifold.report.terms import (
    TERMS,
    annotate,
    glossary,
    link_term,
    mark_up,
    name_with_link,
    row_name,
)
from neuromanifold.report.unit_map import unit_map
from neuromanifold.runtime.files import write_text
from neuromanifold.symmetry.account.dimension_account import DimensionAccount

TITLE = "What this network's parameters do"
_PARAMETERS = (
    "The other directions leave it unchanged on the sample; where the account could be made, they "
    "are shown with the reason."
)
_UNITS = (
    "There is one square for each unit, or for each channel of a convolution. Its colour says at "
    "what share of the samples it is on. On this sample a unit that is always on is linear, and a "
    "unit that is always off could be removed."
)
_MOST_LISTED = 200


def write(
    inspection: Inspection,
    folder: str | Path,
    *,
    title: str = TITLE,
    timeline: Timeline | None = None,
    command: str = "",
) -> Path:
    """Write `index.html` into `folder`, and beside it `share.svg`, the image to share; return the
    path of the page. `command` is what made it, for the last line.

    `inspection`, `title` and `timeline` are as for `render`.
    """
    write_text(Path(folder) / "share.svg", share_image(inspection, title))
    page = render(inspection, title=title, timeline=timeline, command=command)
    return write_text(Path(folder) / "index.html", page)


def render(
    inspection: Inspection,
    *,
    title: str = TITLE,
    timeline: Timeline | None = None,
    command: str = "",
) -> str:
    """Return the page as a string; every name from outside is escaped, and the page forbids any
    script but its own.

    `inspection` is what `nm.inspect` returned, `title` the page's headline, `timeline` a training
    to show beside it, `command` what made the page.
    """
    sections = [
        (name, heading, text) for name, heading, text in _sections(inspection, timeline) if text
    ]
    verdict = "".join(f"<p>{annotate(sentence)}</p>" for sentence in inspection.verdict)
    words = glossary(verdict + "".join(text for *_, text in sections))
    sections.append(("terms", "The words", words))
    contents = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in sections)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-heading"><h2 '
        f'id="{name}-heading">{heading}</h2>{text}</section>'
        for name, heading, text in sections
    )
    return f"""{head(title, STYLE + PAGE_STYLE)}
<body>
<a class="skip" href="#numbers">to the numbers</a>
<main>
<h1>{html.escape(title)}</h1>
<p class="model"><code>{html.escape(inspection.model)}</code></p>
{big_numbers(inspection)}
<div class="verdict">{verdict}</div>
<nav aria-label="Sections"><ul>{contents}</ul></nav>
{body}
</main>
<footer>{_say_origin(inspection, command)} {html.escape(_proof(inspection))}</footer>
<script>{script()}</script>
</body></html>
"""


def _say_origin(found: Inspection, command: str) -> str:
    """Version, date, time taken, data, and the command."""
    version, day = importlib.metadata.version("neuromanifold"), time.strftime("%Y-%m-%d %H:%M")
    data = f"{found.n_samples:,} of {found.n_given:,} samples for the Jacobian"
    by = f" Made by <code>{html.escape(command)}</code>." if command else ""
    return f"neuromanifold {version}, {day}, {found.seconds:.1f} s; {data}.{by}"


def head(title: str, style: str) -> str:
    """The beginning of a page whose only script is ours: the browser is told its checksum."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"'sha256-{digest}'"
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{html.escape(title)}</title><link rel="icon" href="data:,"><style>{style}</style></head>"""


def script() -> str:
    """The page's script."""
    return files("neuromanifold.report").joinpath("page.js").read_text(encoding="utf-8")


def _sections(found: Inspection, timeline: Timeline | None) -> list[tuple[str, str, str]]:
    drawn_spectrum = found.float64 is not None or found.spectrum is not None
    return [
        ("network", "The network", network_figure(found)),
        (
            "parameters",
            "Where the parameters went",
            _parameters(found) if found.dimension is not None else "",
        ),
        (
            "layers",
            "Layer by layer",
            figures.blocks_figure(found.blocks) if found.blocks else "",
        ),
        ("next", "What to do next", next_steps(found)),
        (
            "numbers",
            "The numbers",
            f"<details><summary>All numbers, with their evidence</summary>{_table(found)}</details>",
        ),
        (
            "samples",
            "How many samples it takes",
            figures.growth_figure(found) if found.growth is not None else "",
        ),
        ("spectrum", "Singular values", figures.spectrum_figure(found) if drawn_spectrum else ""),
        ("units", "What the units do", f"<p>{_UNITS}</p>{unit_map(found)}" if found.layers else ""),
        ("symmetry", "Symmetries and conserved quantities", _symmetry(found)),
        ("reduction", "An equivalent smaller network", reduction_section(found)),
        ("descent", "Alignment and learning rate", _descent(found)),
        (
            "bottleneck",
            "Bottleneck",
            figures.bottleneck_figure(found) if found.bottleneck is not None else "",
        ),
        (
            "ranks",
            "Ranks along the network",
            figures.ranks_figure(found) if found.ranks is not None and found.ranks.layers else "",
        ),
        (
            "function",
            "The function",
            figures.curve_figure(found) if found.curve is not None else "",
        ),
        ("training", "Over training", _training(timeline) if timeline is not None else ""),
        ("program", "The network as a program", _program(found)),
        ("how", "How long it took", _how(found)),
    ]


def _table(found: Inspection) -> str:
    rows = "\n".join(
        f'<tr{_class(name, value)}><th scope="row">{row_name(name)}</th>'
        f"<td>{html.escape(value)}</td><td>{mark_up(remark)}</td></tr>"
        for name, value, remark in found.rows
    )
    return f'<table class="facts"><tbody>\n{rows}\n</tbody></table>'


def _class(name: str, value: str) -> str:
    return (
        " class=sub" if name.startswith(" ") else " class=none" if value == "not computed" else ""
    )


def _parameters(found: Inspection) -> str:
    dimension = link_term("functional dimension", "functional dimension")
    return (
        f"<p>The {dimension} counts the directions that change the function. "
        f"{_PARAMETERS}</p>{figures.parameters_figure(found)}"
    )


def _symmetry(found: Inspection) -> str:
    text = ""
    if found.account is not None:
        text += (
            "<p>Why directions change nothing, each counted once, by the first reason that "
            f"holds.</p>{_reasons(found.account)}"
        )
        text += _chain(found.account)
    if found.conserved is not None and len(found.conserved):
        values = [
            (label, f"{value:.6g}")
            for label, value in zip(found.conserved.labels, found.conserved.values, strict=True)
        ]
        name = link_term(f"{len(values):,} conserved quantities", "conserved quantity")
        more = (
            f"<p>{len(values) - _MOST_LISTED:,} more are in the file of --json.</p>"
            if len(values) > _MOST_LISTED
            else ""
        )
        text += (
            f"<details><summary>{name} of gradient "
            f"flow</summary>{_pairs(values[:_MOST_LISTED])}{more}</details>"
        )
    return text


def _reasons(account: DimensionAccount) -> str:
    rows = "".join(
        f'<tr><th scope="row">{name_with_link(name)}</th><td>{count:,}</td><td>'
        f"{html.escape(TERMS.get(name, 'a symmetry of the network'))}</td></tr>"
        for name, count in account.rows[1:]
        if count
    )
    return (
        f'<table class="facts"><tbody>{rows}</tbody></table>'
        if rows
        else "<p>All directions change the function.</p>"
    )


def _chain(account: DimensionAccount) -> str:
    """How the rank grows from the sample to all regions reached, and what was not looked at."""
    on_sample, on_regions, reached, D = account.chain
    notes = "".join(f"<li>{html.escape(what)}</li>" for what in account.left_out)
    listed = f"<details><summary>Not looked at</summary><ul>{notes}</ul></details>" if notes else ""
    rank = link_term("rank", "functional dimension")
    grown = f"{on_regions:,} with enough samples in each of its {account.regions:,} regions"
    return (
        f"<p>The {rank} is {on_sample:,} on the sample. It would be {grown}, and at least "
        f"{reached:,} over the {account.reached:,} "
        f"regions that further inputs reached, of {D:,} parameters.</p>{listed}"
    )


def _descent(found: Inspection) -> str:
    d = found.descent
    if d is None:
        return ""
    rate, sharp = link_term("learning rates", "learning rate"), link_term("sharpness", "sharpness")
    aligned = link_term("alignment", "alignment")
    return (
        f"<p>With the loss <code>{html.escape(d.loss)}</code> and all the samples at once, {rate} "
        "up to "
        f"<b>{d.largest_lr:.3g}</b> do not overshoot: the {sharp} is {d.sharpness:.4g}. "
        f"The {aligned} of the kernel with the loss's gradient is {d.alignment:.4g}"
        + (
            f", and with the targets {d.kernel_alignment:.3f} on a scale from 0 to 1.</p>"
            if np.isfinite(d.kernel_alignment)
            else ".</p>"
        )
    )


def _training(timeline: Timeline) -> str:
    missing = "".join(
        f"<li>{html.escape(name)}: {html.escape(why)}</li>"
        for name, why in timeline.left_out.items()
    )
    listed = f"<p>Not measured:</p><ul>{missing}</ul>" if missing else ""
    return (
        f"<p>{len(timeline.steps):,} files of weights, by the step in their "
        f"names.</p>{figures.timeline_figures(timeline)}{listed}"
    )


def _program(found: Inspection) -> str:
    says = "".join(f"<li>{html.escape(clause)}</li>" for clause in found.program)
    rows = [(name, " × ".join(map(str, shape)) or "1") for name, shape in found.tensors]
    more = f"<p>and {len(rows) - _MOST_LISTED:,} more</p>" if len(rows) > _MOST_LISTED else ""
    tensors = (
        f"<details><summary>{len(rows):,} arrays of "
        f"parameters</summary>{_pairs(rows[:_MOST_LISTED])}{more}</details>"
    )
    return f"<ul>{says}</ul>{tensors if rows else ''}" if says else ""


def _how(found: Inspection) -> str:
    parts = [part for part in found.parts if not part.left_out]
    return "<p>Seconds for each part.</p>" + _pairs(
        [(part.title, f"{part.seconds:.1f} s") for part in parts]
    )


def _pairs(rows: list[tuple[str, str]]) -> str:
    listed = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f'<table class="pairs"><tbody>{listed}</tbody></table>'


def _proof(found: Inspection) -> str:
    if found.exact is None:
        return "The functional dimension is numerical, or was not computed."
    return (
        f"The functional dimension is {found.exact.certificate}; in Python, "
        "inspection.exact.certificate.verify(f, params, x) checks "
        "it again by another prime and another route."
    )
