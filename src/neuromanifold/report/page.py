"""One self-contained HTML page for an inspection: no scripts, no fonts, nothing from elsewhere."""

import html
import io
from pathlib import Path
from typing import Any

from neuromanifold.inspection import Inspection
from neuromanifold.numerics.files import write_text
from neuromanifold.report import figures

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 52rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
code { font-size: .95em; background: #f3f4f6; padding: .1em .35em; border-radius: .25em; overflow-wrap: anywhere; }
.headline { font-size: 1.2rem; border-left: 4px solid #0072B2; padding: .3rem 0 .3rem .9rem; margin: 1.2rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e5e7eb; vertical-align: top; }
td:first-child { white-space: nowrap; }
td:nth-child(2) { text-align: right; white-space: nowrap; font-weight: 600; } td:nth-child(3) { color: #555; }
.sub td:first-child { padding-left: 1.6rem; color: #555; }
figure { margin: .6rem 0; } figure svg { width: 100%; height: auto; }
figcaption, footer { color: #555; font-size: .9rem; } footer { margin-top: 2.5rem; }
"""


def write(inspection: Inspection, folder: str | Path, *, title: str = "What this network's parameters do") -> Path:
    """Write `index.html` into `folder`, atomically, and return its path."""
    return write_text(Path(folder) / "index.html", render(inspection, title=title))


def render(inspection: Inspection, *, title: str = "What this network's parameters do") -> str:
    """The page as a string; every name from outside is escaped."""
    sections = "\n".join(_section(*section) for section in _sections(inspection))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{_STYLE}</style></head>
<body>
<h1>{html.escape(title)}</h1>
<p><code>{html.escape(inspection.model)}</code></p>
<p class="headline">{html.escape(inspection.headline)}</p>
{_table(inspection)}
{sections}
<footer>Computed by neuromanifold in {inspection.seconds:.1f} s. {html.escape(_proof(inspection))}</footer>
</body></html>
"""


def _table(inspection: Inspection) -> str:
    rows = "\n".join(
        f"<tr{' class=sub' if name.startswith(' ') else ''}><td>{html.escape(name.strip())}</td>"
        f"<td>{html.escape(value)}</td><td>{html.escape(remark)}</td></tr>"
        for name, value, remark in inspection.rows
    )
    return f"<table><tbody>\n{rows}\n</tbody></table>"


def _sections(inspection: Inspection) -> list[tuple[str, Any, str]]:
    sections = [
        (
            "Where the parameters went",
            figures.parameters_figure(inspection),
            "The functional dimension is the rank of the Jacobian of the outputs on the sample with respect to all parameters. "
            "The other directions belong to symmetries that leave the function unchanged on the sample; what no known symmetry "
            "accounts for is shown as unexplained.",
        ),
        (
            "Why the number can be trusted",
            figures.spectrum_figure(inspection),
            "Singular values of that Jacobian in float64. A rank read off floating point depends on where the line is drawn; "
            "the exact rank does not.",
        ),
    ]
    if inspection.layers:
        caption = "On this sample an always-active neuron is linear and an always-inactive one could be removed."
        sections.append(("What the neurons do", figures.neurons_figure(inspection), caption))
    if inspection.bottleneck is not None:
        caption = (
            "A layer in the bottleneck (shaded) has as many singular values near 1 as the bottleneck's rank and the others near 0: "
            "what L2 regularisation makes of deep networks."
        )
        sections.append(("Bottleneck", figures.bottleneck_figure(inspection), caption))
    if inspection.curve is not None:
        sections.append(("The function", figures.curve_figure(inspection), "The network over the range of the sample."))
    return sections


def _section(heading: str, figure: Any, caption: str) -> str:
    return f"<h2>{html.escape(heading)}</h2>\n<figure>{_svg(figure)}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _svg(figure: Any) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "neuromanifold"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _proof(inspection: Inspection) -> str:
    certificate = inspection.dimension.certificate
    if certificate is None:
        return "The functional dimension is numerical: this network allows no exact arithmetic."
    return f"The functional dimension is {certificate}; certificate.verify(net, params, x) re-checks it by another prime and another route."
