"""The reduction as a section of the page, with the smaller network to download."""

import base64
import html
import tempfile
from pathlib import Path

from neuromanifold.inspection import Inspection
from neuromanifold.models import save
from neuromanifold.report.terms import linked

_LARGEST = 600_000  # bytes of weights in a page that is to stay small


def reduction_section(found: Inspection) -> str:
    """What went and why, how far the outputs moved, and the weights."""
    reduction = found.reduction
    if reduction is None or not reduction.neurons_saved:
        return ""
    removed = "".join(f"<li>{html.escape(str(removal))}</li>" for removal in reduction.removed)
    widths = "-".join(map(str, reduction.net.widths))
    share = 100 * reduction.parameters_saved / found.n_params
    return (
        f"<p>The {linked('reduction', 'reduction')} has the widths <code>{widths}</code> and {reduction.net.n_params:,} of "
        f"{found.n_params:,} parameters ({share:.0f}% fewer). Its outputs on the sample {_deviation(reduction.deviation)}.</p>"
        f"<ul>{removed}</ul>{_download(found)}"
    )


def _deviation(size: float) -> str:
    return f"differ by at most {size:.1e}" if size else "are equal"


def _download(found: Inspection) -> str:
    """The file as part of the page; the command that writes it where it is too large for that."""
    assert found.reduction is not None
    with tempfile.TemporaryDirectory() as folder:
        data = save(Path(folder) / "smaller.safetensors", found.reduction.net, found.reduction.params).read_bytes()
    if len(data) > _LARGEST:
        return f"<p>Its weights take {len(data) / 1e6:.1f} MB: write them with <code>neuromanifold reduce MODEL DATA</code>.</p>"
    coded = base64.b64encode(data).decode()
    link = f'<a class="download" download="smaller.safetensors" href="data:application/octet-stream;base64,{coded}">'
    return f"<p>{link}Download smaller.safetensors</a> ({len(data) / 1000:.0f} kB); <code>nm.load</code> reads it.</p>"
