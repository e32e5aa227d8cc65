"""One self-contained HTML page for an inspection: no scripts, no fonts, nothing from elsewhere."""

import html
import io
import re
from pathlib import Path
from typing import Any

from neuromanifold.inspection import Inspection
from neuromanifold.numerics.files import write_text
from neuromanifold.report import figures
from neuromanifold.report.style import STYLE

_STYLE = (
    STYLE
    + """
body { max-width: 56rem; }
.verdict { border-left: 4px solid var(--accent); padding: .1rem 0 .1rem .9rem; margin: 1.2rem 0; }
.verdict p { margin: .3rem 0; } .verdict p:first-child { font-size: 1.15rem; }
.facts td { text-align: right; white-space: nowrap; font-weight: 600; }
.facts td + td { text-align: left; white-space: normal; font-weight: 400; color: var(--soft); }
.facts .sub th { padding-left: 1.6rem; color: var(--soft); } .facts .none td { font-weight: 400; color: var(--soft); }
@media (max-width: 40rem) {
  .facts tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--line); padding: .3rem 0; }
  .facts th, .facts td { border: 0; padding: 0 .2rem; } .facts td + td { grid-column: 1 / -1; font-size: .92rem; } }
"""
)
_TERMS = (
    ("functional dimension", "the rank of the Jacobian of all outputs on the sample with respect to all parameters: how many independent "
     "changes of the function, seen on the sample, parameters can make"),
    ("exact", "computed with whole numbers modulo a prime at the very parameters and data, floating-point numbers taken as the fractions "
     "they are; the certificate says why no rounding and no threshold is involved"),
    ("gap", "the smallest singular value that counts over the largest that does not; near 1 the rank depends on the threshold"),
    ("linear region", "a set of inputs on which every unit is on or off in the same way, so that the network is affine"),
    ("always on, always off", "the unit's input is positive, or is not, at every sample looked at"),
    ("NTK", "the neural tangent kernel, Jacobian times its transpose; its eigenvalues are the squared singular values"),
    ("effective rank", "exp of the entropy of the normalised eigenvalues: about how many directions carry the trace"),
    ("stable rank", "trace over largest eigenvalue"),
    ("bottleneck", "layers whose weights are near a partial isometry of one common rank"),
)  # fmt: skip


def write(inspection: Inspection, folder: str | Path, *, title: str = "What this network's parameters do") -> Path:
    """Write `index.html` into `folder`, atomically, and return its path."""
    return write_text(Path(folder) / "index.html", render(inspection, title=title))


def render(inspection: Inspection, *, title: str = "What this network's parameters do") -> str:
    """The page as a string; every name from outside is escaped."""
    sections = "\n".join(_section(*section) for section in _sections(inspection))
    verdict = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in inspection.verdict)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{_STYLE}</style></head>
<body>
<main>
<h1>{html.escape(title)}</h1>
<p><code>{html.escape(inspection.model)}</code></p>
<div class="verdict">{verdict}</div>
{_table(inspection)}
{sections}
<h2 id="terms">The words</h2>
<dl>{"".join(f"<dt><b>{name}</b></dt><dd>{meaning}.</dd>" for name, meaning in _TERMS)}</dl>
<h2 id="how">How it was computed</h2>
{_how(inspection)}
</main>
<footer>neuromanifold, {inspection.seconds:.1f} s. {html.escape(_proof(inspection))}</footer>
</body></html>
"""


def _table(inspection: Inspection) -> str:
    rows = "\n".join(
        f'<tr{_class(name, value)}><th scope="row">{html.escape(name.strip())}</th>'
        f"<td>{html.escape(value)}</td><td>{html.escape(remark)}</td></tr>"
        for name, value, remark in inspection.rows
    )
    return f'<table class="facts"><tbody>\n{rows}\n</tbody></table>'


def _class(name: str, value: str) -> str:
    return " class=sub" if name.startswith(" ") else " class=none" if value == "not computed" else ""


def _how(inspection: Inspection) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html.escape(part.title)}</th><td>{part.seconds:.1f} s</td></tr>'
        for part in inspection.parts
        if not part.left_out
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _sections(inspection: Inspection) -> list[tuple[str, Any, str]]:
    found = inspection
    known = found.dimension is not None
    figured = (
        (known, "Where the parameters went", figures.parameters_figure, _PARAMETERS),
        (_still_growing(found), "How many samples it takes", figures.growth_figure, _GROWTH),
        (
            found.float64 is not None or found.spectrum is not None,
            "Singular values",
            figures.spectrum_figure,
            _SPECTRUM,
        ),
        (bool(found.layers), "What the units do", figures.neurons_figure, _UNITS),
        (found.bottleneck is not None, "Bottleneck", figures.bottleneck_figure, _BOTTLENECK),
        (found.curve is not None, "The function", figures.curve_figure, "The network over the range of the sample."),
    )
    return [(heading, draw(found), caption) for there, heading, draw, caption in figured if there]


def _still_growing(inspection: Inspection) -> bool:
    """A curve that is not just the line of what the samples allow."""
    return inspection.growth is not None and int(inspection.growth[-1]) < inspection.rows_of_jacobian


_PARAMETERS = (
    "The functional dimension is the rank of the Jacobian of the outputs on the sample with respect to all parameters. The other "
    "directions leave the function unchanged on the sample; where an account was made, each is shown with the symmetry it belongs to."
)
_GROWTH = (
    "Where the curve is flat, further samples show nothing new; where it still rises at the right end, the sample was too small to "
    "show all that the parameters can do."
)
_SPECTRUM = (
    "Singular values of that Jacobian in float64. A rank read off floating point depends on where the line is drawn; the exact rank "
    "does not."
)
_UNITS = "On this sample a unit that is always on is linear and one that is always off could be removed. In brackets: how many units."
_BOTTLENECK = (
    "A layer in the bottleneck (shaded) has as many singular values near 1 as the bottleneck's rank and the others near 0: what L2 "
    "regularisation makes of deep networks."
)


def _section(heading: str, figure: Any, caption: str) -> str:
    name = re.sub(r"\W+", "-", heading.lower())
    drawn = _svg(figure).replace("<svg ", f'<svg role="img" aria-label="{html.escape(f"{heading}. {caption}")}" ', 1)
    return f'<h2 id="{name}">{html.escape(heading)}</h2>\n<figure>{drawn}<figcaption>{html.escape(caption)}</figcaption></figure>'


def _svg(figure: Any) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "neuromanifold", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="none")
    text = buffer.getvalue()
    for colour, name in ((figures.INK, "currentColor"), (figures.BLUE.lower(), "var(--accent)")):
        text = text.replace(colour, name)
    return text[text.index("<svg") :]


def _proof(inspection: Inspection) -> str:
    if inspection.exact is None:
        return "The functional dimension is numerical, or was not computed."
    return (
        f"The functional dimension is {inspection.exact.certificate}; certificate.verify(net, params, x) re-checks it by another "
        "prime and another route."
    )
