"""What the page shows first agrees with the inspection: numbers, drawing, ranks by layer, steps."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection import sections
from neuromanifold.inspection.inspect import subject_of
from neuromanifold.report.overview import network_figure, next_steps, numbers_of

NET = nm.MLP((1, 6, 5, 1))
X = np.linspace(-2.0, 2.0, 30)[:, None]


@pytest.fixture(scope="module")
def found() -> nm.inspection.Inspection:
    params = NET.init(key=jax.random.key(1), scheme=nm.init.he_bias)
    dead = params[0]._replace(bias=params[0].bias.at[0].set(-99.0))
    return nm.inspect(NET, (dead, *params[1:]), X)


def test_the_three_numbers_are_those_of_the_inspection(found):
    (rank, of), (left, _), (off, _) = numbers_of(found)
    assert int(rank) == int(found.dimension) and f"of {NET.n_params} parameter" in of
    assert int(left) == NET.n_params - found.reduction.parameters_saved
    assert int(off) == sum(s.off for s in found.layers) >= 1


def test_the_drawing_has_a_circle_for_each_unit_before_and_after(found):
    before, after = re.findall(r"<svg.*?</svg>", network_figure(found), flags=re.DOTALL)
    assert before.count("<circle") == 11
    assert after.count("<circle") == 11 - found.reduction.neurons_saved < 11
    assert before.count('<circle class="off"') == sum(s.off for s in found.layers)
    assert after.count('<circle class="off"') == 0


def test_what_is_left_is_not_drawn_where_a_removal_has_no_layer(found):
    removed = tuple(dataclasses.replace(r, layer="elsewhere") for r in found.reduction.removed)
    other = dataclasses.replace(found.reduction, removed=removed)
    drawn = network_figure(dataclasses.replace(found, reduction=other))
    assert drawn.count("<svg") == 1 and "equivalent smaller network" not in drawn


def test_a_wide_network_is_drawn_as_bars(found):
    net = nm.MLP((2, 300, 1))
    x = np.random.default_rng(0).normal(size=(4, 2))
    wide = nm.inspect(net, net.init(key=jax.random.key(0)), x, patience=0)
    assert "<circle" not in network_figure(wide) and "<rect" in network_figure(wide)


def test_ranks_by_layer_bound_the_rank_and_shares_add_up(found):
    ranks = [block.rank for block in found.blocks]
    assert max(ranks) <= int(found.exact) <= sum(ranks)
    assert [block.parameters for block in found.blocks] == [12, 35, 6]
    assert sum(block.share for block in found.blocks) == pytest.approx(1.0)


def test_shares_from_random_rows_are_those_of_the_jacobian(found, monkeypatch):
    """Eight rows of 30: the relative error of ‖J_l‖² is at most √(2/8), at five deviations."""
    params = NET.init(key=jax.random.key(1))
    subject = subject_of(NET, params, X, None, None, None, None, nm.losses.mse)
    exact = sections._blocks(subject)
    monkeypatch.setattr(sections, "_cheap", lambda s: "too large")
    probed = sections._blocks(subject)
    assert [block.rank for block in probed] == [None, None, None]
    for a, b in zip(exact, probed, strict=True):
        assert abs(a.share - b.share) <= 5 * np.sqrt(2 / 8) * a.share


def test_the_image_stands_alone_and_the_page_says_what_made_it(found, tmp_path):
    page = nm.report.write(found, tmp_path, command="neuromanifold inspect <net> x.npy").read_text()
    assert "Made by <code>neuromanifold inspect &lt;net&gt; x.npy</code>." in page
    assert re.search(r"neuromanifold \d+\.\d+.*, \d{4}-\d\d-\d\d \d\d:\d\d", page)
    image = ET.fromstring((tmp_path / "share.svg").read_text())
    words = " ".join(node.text or "" for node in image.iter() if node.tag.endswith("text"))
    assert all(value in words for value, _ in numbers_of(found))
    assert not [node for node in image.iter() if any("href" in key for key in node.attrib)]


def test_the_steps_say_what_can_be_done_and_what_cannot(found):
    steps = next_steps(found)
    left = NET.n_params - found.reduction.parameters_saved
    assert f"{left} of {NET.n_params} parameters compute the same on 30 samples" in steps
    assert "--targets" in steps  # no targets were given
    assert f"at least {found.account.chain[2]} directions" in steps
    smooth = nm.MLP((2, 3, 1), "tanh")
    x = np.random.default_rng(0).normal(size=(20, 2))
    other = next_steps(nm.inspect(smooth, smooth.init(key=jax.random.key(0)), x, x[:, :1]))
    assert "is stable up to" in other and "Not concluded" in other
