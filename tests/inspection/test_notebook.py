"""What notebooks show of results: well-formed, alone, escaped, and true to the numbers."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.drawing import WIDEST, Curve, bar, chart, colours_of
from neuromanifold.numerics.palette import MIDDLE
from neuromanifold.numerics.rank import rank_from_spectrum

SAMPLES = 12


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """One of each result, of one small network; parameters with a name that is HTML."""
    key, net = jax.random.key(0), nm.MLP((2, 4, 1))
    x = np.asarray(jax.random.normal(jax.random.key(1), (SAMPLES, 2)))
    y = x[:, :1] ** 2
    runs = net.init(key=key, runs=3)
    probes = {"<i>r²</i>": nm.dynamics.r_squared, "weights": nm.dynamics.weight_norm}
    training = nm.train(net, runs, x, y, key=key, epochs=4, every=2, probes=probes)
    params = training.member(run=0)

    def f(params: Any, x: Any) -> Any:
        return jax.nn.relu(x @ params["<b>w</b>"]) @ params["v"]

    named = {"<b>w</b>": np.ones((2, 3)), "v": np.ones((3, 1))}
    found = nm.inspect(net, params, x)
    return {
        "training": training,
        "inspection": found,
        "account": found.account,
        "reduction": found.reduction,
        "spectrum": found.spectrum,
        "rank": found.float64,
        "exact": found.exact,
        "discovery": nm.symmetry.discover(f, named, np.ones((1, 2)), key=key, keys=1),
    }


def parsed(result: Any) -> ET.Element:
    """The card as a tree: HTML that is also XML has no tag left open."""
    return ET.fromstring(result._repr_html_())


def table(result: Any) -> list[list[str]]:
    """The first table, cell by cell."""
    return [
        ["".join(cell.itertext()) for cell in row] for row in parsed(result).findall("table//tr")
    ]


def test_a_card_is_well_formed_alone_and_narrow(found: dict[str, Any]):
    for name, result in found.items():
        text, tree = result._repr_html_(), parsed(result)
        assert not re.search(r"https?:|src=|url\(|@import|<script|<style|<link", text), name
        assert f"max-width:{WIDEST}px" in tree.attrib["style"], name
        widths = [float(svg.attrib["width"]) for svg in tree.iter("svg")]
        assert widths and max(widths) <= WIDEST, name
        assert tree.find("p/b") is not None and tree.findall("table//tr"), name
        assert all(
            svg.attrib.get("aria-label") or svg.attrib.get("aria-hidden")
            for svg in tree.iter("svg")
        )


def test_colours_of_text_are_the_notebooks(found: dict[str, Any]):
    for result in found.values():
        fills = set(re.findall(r'(?:fill|stroke)="([^"]+)"', result._repr_html_()))
        assert fills <= {*MIDDLE, "currentColor", "none"}


def test_names_are_escaped(found: dict[str, Any]):
    for name in ("discovery", "training"):
        text = found[name]._repr_html_()
        assert not re.search(r"<b>w</b>|<i>r²", text)
        assert re.search(r"&lt;b&gt;w|&lt;i&gt;r²", text)


def test_the_numbers_are_those_of_the_object(found: dict[str, Any]):
    account, rank, reduction = found["account"], found["exact"], found["reduction"]
    listed = {name: int(count) for name, count, _ in table(account)}
    assert listed == {name: count for name, count in account.rows if count}
    assert sum(listed.values()) == account.parameters == 17
    assert table(rank)[0][1] == str(int(rank)) == table(found["inspection"])[0][1]
    assert int(table(rank)[0][1]) + int(table(rank)[1][1]) == min(SAMPLES, 17)
    kept, saved = (int(row[1]) for row in table(reduction)[:2])
    assert (kept, saved) == (17 - reduction.parameters_saved, reduction.parameters_saved)
    spectrum = dict(table(found["spectrum"]))
    assert float(spectrum["trace"]) == pytest.approx(found["spectrum"].eigenvalues.sum(), rel=1e-3)
    discovery = found["discovery"]
    counts = [int(row[1]) for row in table(discovery)]
    assert sum(counts) == discovery.parameters and counts[1] == discovery.orbit == 3
    head, *rows = table(found["training"])
    history = found["training"].history
    assert head == ["", "epoch 0", "epoch 4"]
    for name, first, last in rows:
        for shown, values in ((first, history[name][:, 0]), (last, history[name][:, -1])):
            assert shown == (
                f"{np.median(values):.4g} ({np.min(values):.4g} to {np.max(values):.4g})"
            )


def test_a_bar_has_the_lengths_of_its_parts_and_loses_none():
    parts = [(f"kind {k}", 100 - k) for k in range(9)]
    tree = ET.fromstring(bar(parts, "Parts"))
    assert len(tree.findall("rect")) == len(MIDDLE)
    titles = [title.text or "" for title in tree.iter("title")]
    assert sum(int(text.rpartition(": ")[2]) for text in titles) == sum(c for _, c in parts)
    widths = [float(rect.attrib["width"]) + 1 for rect in tree.findall("rect")]
    assert widths[0] / widths[1] == pytest.approx(100 / 99, rel=1e-3)
    assert colours_of(parts)[-1] == MIDDLE[-1] != colours_of(parts)[0]


def test_a_curve_passes_through_its_points_and_says_what_it_hides():
    curve = Curve("loss", [0, 1, 2], [1.0, 100.0, 10.0])
    [path] = re.findall(r'd="(M[^"]*L[^"]*)"', chart([curve], x="epoch", y="loss", log=True))
    (_, a), (_, b), (_, c) = [tuple(map(float, p.split())) for p in path[1:].split("L")]
    assert b < c < a and c - b == pytest.approx((a - b) / 2, abs=0.1)
    hidden = chart([Curve("λ", [1, 2], [1.0, -1.0])], x="order", y="λ", log=True)
    assert "1 not positive" in hidden
    assert not chart([Curve("λ", [1], [np.nan])], x="order", y="λ")


def test_every_result_has_a_plot(found: dict[str, Any]):
    for name, result in found.items():
        drawn = result.plot()
        axes = getattr(drawn, "axes", None)
        axes = axes if isinstance(axes, list) else [drawn]
        assert axes and all(a.has_data() for a in axes), name


def test_many_ranks_are_shown_and_not_plotted():
    many = jax.vmap(lambda s: rank_from_spectrum(s, (3, 3)))(np.eye(3)[:2] + 1.0)
    assert many._repr_html_().startswith("<pre>")
    with pytest.raises(ValueError, match=r"ranks of shape \(2,\); plot one of them"):
        many.plot()
