"""The reduction as a section of the page, with the smaller network to download."""

import base64
import html
import tempfile
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import save as dump

from neuromanifold.graph.selection import leaf_names
from neuromanifold.inspection import Inspection
from neuromanifold.models import MLP, save
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.results import count_of
from neuromanifold.report.terms import link_term
from neuromanifold.symmetry import Reduction

_LARGEST = 600_000  # bytes of weights in a page that is to stay small


def reduction_section(found: Inspection) -> str:
    """What went and why, how far the outputs moved, and the weights."""
    reduction = found.reduction
    if reduction is None or not reduction.parameters_saved:
        return ""
    removed = "".join(f"<li>{html.escape(str(removal))}</li>" for removal in reduction.removed)
    net, share = perceptron(reduction.net), 100 * reduction.parameters_saved / found.n_params
    noun = "channel" if found.units == "channels" else "unit"
    shape = (
        f"the widths <code>{_widths(net)}</code>"
        if net is not None
        else f"{count_of(reduction.neurons_saved, noun)} fewer"
        if reduction.neurons_saved
        else f"as many {noun}s"
    )
    return (
        f"<p>The {link_term('reduction', 'reduction')} has {shape} and "
        f"{found.n_params - reduction.parameters_saved:,} of "
        f"{found.n_params:,} parameters ({share:.0f}% fewer). On the sample its outputs "
        f"{_deviation(reduction.deviation)}.</p>"
        f"<ul>{removed}</ul>{_download(found)}"
    )


def _deviation(size: float) -> str:
    return f"differ by at most {size:.1e}" if size else "are the same"


def _download(found: Inspection) -> str:
    """The file as part of the page; the command that writes it where it is too large for that."""
    assert found.reduction is not None
    net, data = perceptron(found.reduction.net), _file(found.reduction)
    if len(data) > _LARGEST:
        call = "nm.reduce_width(f, params, x)" if net is None else "neuromanifold reduce MODEL DATA"
        return f"<p>Its weights take {len(data) / 1e6:.1f} MB: <code>{call}</code> gives them.</p>"
    coded = base64.b64encode(data).decode()
    link = (
        '<a class="download" download="smaller.safetensors" '
        f'href="data:application/octet-stream;base64,{coded}">'
    )
    reader = "safetensors.numpy.load_file" if net is None else "nm.load"
    return (
        f"<p>{link}Download smaller.safetensors</a> ({len(data) / 1000:.0f} kB); "
        f"<code>{reader}</code> reads it.</p>"
    )


def _file(reduction: Reduction) -> bytes:
    """The weights: of a perceptron with its architecture, of other networks under the names of
    their leaves, running statistics and what was folded (at its neutral values) included.
    """
    if (net := perceptron(reduction.net)) is None:
        names, leaves = leaf_names(reduction.params), jax.tree.leaves(reduction.params)
        arrays = dict(zip(names, leaves, strict=True))
        if (whole := reduction.whole) is not None:
            arrays |= {whole.names[k]: whole.smaller(k) for k in whole.fixed}
        return dump({name: np.ascontiguousarray(leaf) for name, leaf in arrays.items()})
    with tempfile.TemporaryDirectory() as folder:
        return save(Path(folder) / "smaller.safetensors", net, reduction.params).read_bytes()


def _widths(net: MLP) -> str:
    return "-".join(map(str, net.widths))
