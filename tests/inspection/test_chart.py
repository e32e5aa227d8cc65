"""Charts and maps of units by themselves: what they draw, what they hand to the script, and what
they refuse to say wrongly.
"""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection import LayerUnits
from neuromanifold.report.chart import Chart, Rule, Series, embed, figure, ticks_of
from neuromanifold.report.terms import TERMS, anchor, glossary, link_term, row_name
from neuromanifold.report.unit_map import _layer

X = np.arange(1.0, 6.0)


def _data(text):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text)[1])


def test_the_drawing_holds_the_numbers_to_scale():
    chart = Chart("T", "alt text", "x", "y", (Series("s", X, 2 * X),), from_zero=True)
    text = figure(chart, "caption")
    points = [
        tuple(map(float, p))
        for p in re.findall(
            r"[ML]([\d.]+) ([\d.]+)", re.search(r'class="line c1" d="(.*?)"', text)[1]
        )
    ]
    steps = np.diff(np.array(points), axis=0)
    assert len(points) == 5
    np.testing.assert_allclose(
        steps, np.broadcast_to(steps[0], steps.shape), atol=0.11
    )  # one decimal of a unit
    assert _data(text)["series"][0] == {
        "name": "s",
        "kind": "line",
        "x": [1, 2, 3, 4, 5],
        "y": [2, 4, 6, 8, 10],
    }
    assert 'aria-label="T. alt text"' in text


def test_a_curve_under_another_is_drawn_wide():
    """Two curves that share a step; the control shares single points only."""
    under, crossing = Series("under", X, X, colour="c1"), Series("crossing", X, 6 - X, colour="c2")
    apart = figure(Chart("T", "a", "x", "y", (under, crossing)))
    same = figure(Chart("T", "a", "x", "y", (under, Series("over", X, X, colour="c3"))))
    assert "hidden" not in apart
    assert 'class="line c1 hidden"' in same and 'class="line c3"' in same


def test_what_has_no_number_interrupts_the_curve_and_logarithms_leave_out_zero():
    y = np.array([1.0, np.nan, 3.0, 4.0, np.inf])
    text = figure(Chart("T", "a", "x", "y", (Series("", X, y),)))
    assert _data(text)["series"][0]["y"] == [1, None, 3, 4, None]
    drawn = re.search(r'class="line c1" d="(.*?)"', text)[1]
    assert re.sub(r"[\d. ]", "", drawn) == "MML"
    logarithmic = Chart(
        "T", "a", "x", "y", (Series("", X, np.array([0.0, 1, 10, 100, 1000]), "points"),), log=True
    )
    assert figure(logarithmic).count("h0") == 4
    assert logarithmic.y_range() == pytest.approx((-0.18, 3.18))


def test_rules_and_bands_are_drawn_and_named():
    rules = (
        Rule(2.0, "cut", "c2"),
        Rule(3.0, "", "c5", vertical=True, width=1.0),
        Rule(4.0, "here", vertical=True),
    )
    text = figure(Chart("T", "a", "x", "y", (Series("s", X, X),), rules))
    assert text.count('class="key rule') == 2
    assert 'class="band c5"' in text
    assert [r["vertical"] for r in _data(text)["rules"]] == [False, True, True]


@pytest.mark.parametrize(("lo", "hi"), [(0.0, 1e-9), (-3.0, 7.5), (999.0, 1001.0), (0.0, 4e8)])
def test_ticks_lie_inside_and_are_round(lo, hi):
    ticks = np.array(ticks_of(lo, hi))
    assert 2 <= len(ticks) <= 7
    assert ((ticks >= lo) & (ticks <= hi)).all()
    mantissa = f"{np.diff(ticks)[0]:.0e}"[0]
    assert mantissa in "125"


def test_a_constant_curve_and_a_single_point_are_drawn():
    for x in (X, X[:1]):
        text = figure(Chart("T", "a", "x", "y", (Series("s", x, np.zeros_like(x)),)))
        assert "nan" not in text


def test_json_in_a_page_cannot_end_its_element():
    assert "<" not in embed({"name": "</script><script>"})
    assert json.loads(embed({"name": "</script>&"})) == {"name": "</script>&"}


def test_shares_near_nothing_and_near_all_are_not_rounded_to_them():
    shares = np.array([0.0, 1e-6, 0.5, 1 - 1e-6, 1.0])
    text = _layer(LayerUnits(5, 1, 1, "fc", kind="unit", shares=shares))
    assert _data(text)["shares"] == [0, 1, 500, 999, 1000]
    assert [len(re.findall("M", d)) for d in re.findall(r' d="(.*?)"', text)] == [1, 1, 1, 1, 1]
    assert "5 units: 3 switch, 1 always on, 1 always off" in text


def test_a_layer_too_large_for_a_page_says_so():
    text = _layer(LayerUnits(9000, 0, 0, "fc", shares=np.full(9000, 0.5)))
    assert "A map of 9,000 cells would be too large for a page" in text
    assert "<svg" not in text


def test_every_row_of_the_table_links_to_a_definition():
    text = glossary("".join(link_term(term, term) for term in TERMS))
    assert all(f'id="{anchor(term)}"' in text for term in TERMS)
    assert "<dt" not in glossary("a page without links")
    for name in (
        "functional dimension",
        "  float64 would say",
        "parameters",
        "parameters without effect",
        "  dead channels",
        "bottleneck",
    ):
        assert 'href="#term-' in row_name(name)
    assert row_name("nothing <known>") == "nothing &lt;known&gt;"


def test_no_two_parts_of_an_account_look_alike_on_a_page():
    net, x = nm.MLP((1, 4, 4, 1)), np.linspace(-2, 2, 30)[:, None]
    found = nm.inspect(net, net.init(key=jax.random.key(0)), x)
    for kinds in (3, 9, 30):
        many = dataclasses.replace(
            found.account, everywhere={f"kind {k}": 1 for k in range(kinds)}, on_regions={}
        )
        page = nm.report.render(dataclasses.replace(found, account=many))
        bar = re.search(r'<svg class="bar".*?</svg><ul class="legend">(.*?)</ul>', page, re.DOTALL)
        keys = re.findall(r'class="key dot ([^"]*)"', bar[1])
        assert (
            len(set(keys)) == len(keys) == min(21, len([count for _, count in many.rows if count]))
        )
        assert all(
            f".{name} " in page or f".{name} {{" in page for key in keys for name in key.split()
        )


def test_every_term_that_a_page_links_to_is_defined_on_it_and_no_other():
    net, x = nm.MLP((1, 4, 4, 1)), np.linspace(-2, 2, 30)[:, None]
    page = nm.report.render(nm.inspect(net, net.init(key=jax.random.key(0)), x, np.sin(x)))
    links, defined = (
        set(re.findall(r'href="#(term-[^"]*)"', page)),
        set(re.findall(r'<dt id="(term-[^"]*)"', page)),
    )
    assert (
        links == defined
        and {"term-functional-dimension", "term-parameter-direction", "term-scalings"} <= links
    )
