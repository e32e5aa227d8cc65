"""`inspect` agrees with the rooms it asks, and its table and page say what it found."""

import dataclasses
import json
import re
import sys

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.inspection.inspect import show_progress
from neuromanifold.inspection.subject import MOST_ROWS, places_of

NET = nm.MLP((1, 4, 4, 1))


@pytest.fixture(scope="module")
def inspected():
    params = NET.init(key=jax.random.key(3))
    x = np.linspace(-2.0, 2.0, 40)[:, None]
    return params, x, nm.inspect(NET, params, x, np.sin(x))


def test_it_says_what_the_rooms_say(inspected):
    params, x, inspection = inspected
    assert inspection.n_params == NET.n_params == 33
    assert int(inspection.exact) == int(nm.functional_dimension(NET, params, x, exact=True))
    assert inspection.regions == nm.sampled_regions(NET, params, x)
    fixed = nm.fixed_neurons(NET, params, x)
    assert [layer.active for layer in inspection.layers] == [int(a.sum()) for a in fixed.active]
    assert [layer.inactive for layer in inspection.layers] == [int(a.sum()) for a in fixed.inactive]
    assert all(s.active + s.inactive + s.switching == s.width for s in inspection.layers)
    np.testing.assert_allclose(
        inspection.spectrum.eigenvalues, nm.spectrum(NET, params, x).eigenvalues
    )


def test_r_squared_is_one_minus_the_residual_share(inspected):
    params, x, inspection = inspected
    y = np.sin(x)
    expected = 1 - ((NET(params, x) - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert inspection.fit == pytest.approx(expected)
    assert nm.inspect(NET, params, x, NET(params, x)).fit == 1.0


def test_the_table_shows_the_proof(inspected):
    *_, inspection = inspected
    text = str(inspection)
    shown = next(line for line in text.splitlines() if line.startswith("functional dimension"))
    assert shown.split()[2] == str(int(inspection.exact))
    assert str(inspection.exact.certificate) in text
    assert "float32 would say" in text
    assert inspection.headline in text


def test_smooth_networks_have_no_regions_and_a_numerical_rank():
    net = nm.MLP((2, 3, 1), "tanh")
    inspection = nm.inspect(
        net, net.init(key=jax.random.key(0)), np.random.default_rng(0).normal(size=(20, 2))
    )
    assert inspection.exact is None
    assert inspection.regions is None
    assert "numerical" in str(inspection)
    assert inspection.dimension is inspection.float64


def test_what_is_not_exact_is_named_and_a_kernel_may_show_full_rank(rng):
    net = nm.MLP((3, 40, 40, 2), "tanh")
    found = nm.inspect(net, net.init(key=jax.random.key(0)), rng.normal(size=(10, 3)))
    reasons = {part.title: part.left_out for part in found.parts}
    assert reasons["exact rank"].startswith(
        "exact arithmetic is that of fractions, and the network uses tanh"
    )
    full = dataclasses.replace(found, float64=None)
    assert int(full.dimension) == 20
    assert "numerical, every eigenvalue of the kernel is above rounding" in str(full)
    twice = nm.spectrum(net, net.init(key=jax.random.key(0)), np.ones((4, 3)))
    assert dataclasses.replace(full, spectrum=twice).dimension is None


def test_any_function_is_inspected():
    inspection = nm.inspect(
        lambda params, x: params["a"] * x + params["b"], {"a": 1.0, "b": 2.0}, np.ones((3, 1))
    )
    assert (inspection.n_params, int(inspection.dimension)) == (2, 1)
    reasons = {part.title: part.left_out for part in inspection.parts}
    assert reasons["ranks along the network"].startswith("no parameter enters by one product")


def test_ranks_along_are_shown_for_any_network_and_a_planted_one_is_named(rng):
    def f(params, x):
        return jax.nn.relu(x @ params["first"]) @ params["second"]

    params = {"first": rng.normal(size=(5, 6)), "second": rng.normal(size=(6, 2))}
    x = rng.normal(size=(30, 5))
    for planted in (False, True):
        if planted:
            params["first"][:, 1:] = params["first"][:, :1] * np.arange(1, 6)
        found = nm.inspect(f, params, x)
        rows = {name.strip(): (value, remark) for name, value, remark in found.rows}
        value, remark = rows["ranks along the network"]
        assert value == f"{int(planted)} of 2" and remark.endswith(": first") == planted
        assert rows["representations"][0].endswith(" of 2")
        assert rows["Jacobians to the output"][0] == f"{2 - planted} of 2"
        assert "Jacobians between the cuts" in nm.report.render(found)
        assert json.loads(nm.report.as_json(found))["ranks"]["weights"] == {
            "first": 1 if planted else 5,
            "second": 2,
        }


def test_a_table_that_is_not_looked_at_is_named_in_the_table_and_on_the_page(rng):
    params = {"words": rng.normal(size=(9, 4)), "out": rng.normal(size=(4, 2))}

    def f(params, x):
        return jax.numpy.tanh(params["words"][x]).sum(1) @ params["out"]

    found = nm.inspect(f, params, rng.integers(0, 9, (5, 3)))
    remark = next(r for name, _, r in found.rows if name == "ranks along the network")
    reason = "words: it enters through gather"
    assert remark.endswith(f"not looked at: {reason}")
    assert f"Not looked at: {reason}." in nm.report.render(found)


def test_the_rank_by_samples_is_the_rank_on_the_first_samples(inspected):
    params, x, inspection = inspected
    for n in (1, 2, 5, 11, 23, 40):
        assert inspection.growth[n - 1] == int(
            nm.functional_dimension(NET, params, x[:n], exact=True)
        )
    at = inspection.saturated_at
    assert (
        inspection.growth[at - 1]
        == int(inspection.exact)
        > (inspection.growth[at - 2] if at > 1 else 0)
    )


def test_wide_jacobians_have_a_curve_too(rng):
    net = nm.MLP((2, 8, 2))
    params, x = net.init(key=jax.random.key(0)), rng.normal(size=(6, 2))
    x = np.concatenate([x, x[:3]])
    inspection = nm.inspect(net, params, x)
    expected = [int(nm.functional_dimension(net, params, x[:n], exact=True)) for n in range(1, 10)]
    assert inspection.growth.tolist() == expected
    assert inspection.saturated_at == 6
    alone = dataclasses.replace(inspection, account=None)
    assert "The last 3 samples added nothing; samples of another kind still may." in alone.verdict
    enough = inspection.account.chain[1]
    assert f"would show {enough}." in inspection.verdict[1] and enough > int(inspection.exact)


def test_a_rank_that_stood_still_for_one_sample_has_not_settled(rng):
    net = nm.MLP((2, 40, 1))
    x = rng.normal(size=(25, 2))
    inspection = nm.inspect(net, net.init(key=jax.random.key(0)), np.concatenate([x, x[-1:]]))
    assert (inspection.saturated_at, inspection.n_samples, int(inspection.exact)) == (25, 26, 25)
    alone = dataclasses.replace(inspection, account=None)
    assert "The rank still grew at sample 25 of 26: more samples may show more." in alone.verdict
    assert "too late to say that it has settled" in str(inspection)


def test_the_fit_of_classes_is_an_accuracy_and_the_table_names_the_loss(rng):
    net, x = nm.MLP((2, 8, 3)), rng.normal(size=(12, 2))
    params = net.init(key=jax.random.key(0))
    largest = np.argmax(np.asarray(net(params, x)), axis=1)
    wrong = np.r_[(largest[:3] + 1) % 3, largest[3:]]  # nine of twelve are right
    found = nm.inspect(net, params, x, 100 * np.eye(3)[wrong] / 100)
    assert (found.fit, found.fit_name) == (0.75, "accuracy")
    assert "of mse" in str(found)
    other = nm.inspect(
        net, params, x, 2 * np.eye(3)[wrong], loss=nm.losses.huber
    )  # control: no indicators
    assert other.fit_name == "r²" and other.fit < 0.75 and "of huber" in str(other)


def test_the_headline_begins_with_what_says_something(rng):
    net = nm.MLP((2, 8, 1))
    inspection = nm.inspect(net, net.init(key=jax.random.key(0)), rng.normal(size=(3, 2)))
    rank = inspection.spectrum.effective_rank
    assert inspection.headline.startswith(f"On these 3 samples about {rank:.1f} directions make up")
    limit = "3 samples × 1 output can show at most 3 of 33 parameter directions, and all of these"
    assert limit in inspection.headline
    names = [name for name, *_ in inspection.rows]
    assert names.index("NTK largest eigenvalue") < names.index("functional dimension")
    alone = dataclasses.replace(inspection, spectrum=None)
    assert alone.headline.endswith("the sample is the limit.")


def test_a_large_sample_is_thinned_and_the_table_says_so(inspected, rng):
    params, *_ = inspected
    x = rng.normal(size=(50, 1))
    inspection = nm.inspect(NET, params, x, samples=10)
    assert (inspection.n_samples, inspection.n_given) == (10, 50)
    np.testing.assert_array_equal(inspection.sample[0], x[::5])
    assert "10 of the 50 samples, evenly spaced" in str(inspection)
    assert int(inspection.exact) == int(nm.functional_dimension(NET, params, x[::5], exact=True))
    with pytest.raises(
        ValueError, match=r"`samples` is 0; pass how many of the 50 samples to look at"
    ):
        nm.inspect(NET, params, x, samples=0)


def test_sections_beyond_memory_or_patience_are_left_out_and_say_so(inspected):
    params, x, _ = inspected
    small = {
        part.title: part.left_out
        for part in nm.inspect(NET, params, x, samples=40, memory=5000).parts
    }
    assert (
        small["exact rank"]
        == "it would take 45 KB and the budget is 5 KB: pass more `memory` or fewer `samples`"
    )
    assert nm.inspect(NET, params, x, memory=5000).n_samples < 40
    hasty = nm.inspect(NET, params, x, patience=0)
    assert hasty.dimension is None
    assert hasty.headline.endswith("the rank was not computed.")
    assert "not computed" in str(hasty)
    assert "not computed" in nm.report.render(hasty)


def test_an_interrupt_keeps_what_is_done(inspected, monkeypatch):
    params, x, _ = inspected

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("neuromanifold.inspection.sections.spectrum", interrupt)
    inspection = nm.inspect(NET, params, x)
    done = [part.title for part in inspection.parts if not part.left_out]
    assert inspection.interrupted
    assert inspection.spectrum is None
    assert done
    assert "interrupted" in str(inspection)


def test_named_inputs_are_inspected():
    def f(params, x):
        return (x["a"] @ params["w"]) * x["mask"][:, None]

    x = {"a": np.eye(3), "mask": np.array([1.0, 1.0, 0.0])}
    inspection = nm.inspect(f, {"w": np.ones((3, 2))}, x)
    assert int(inspection.exact) == 4  # two rows of the identity are seen, with two outputs each
    assert inspection.growth.tolist() == [2, 4, 4]


def test_json_and_markdown_say_the_same(inspected, tmp_path):
    *_, inspection = inspected
    found = json.loads(nm.report.write_json(inspection, tmp_path / "i.json").read_text())
    assert found["functional_dimension"] == found["exact"]["rank"] == int(inspection.exact)
    assert sum(found["account"].values()) == found["parameters"] == NET.n_params
    text = nm.report.write_markdown(inspection, tmp_path).read_text()
    assert f"| functional dimension | {int(inspection.exact)} |" in text


def test_the_target_must_have_the_output_shape(inspected):
    params, x, _ = inspected
    with pytest.raises(
        ValueError, match=r"`y` has shape \(40,\) but the model's output has \(40, 1\)"
    ):
        nm.inspect(NET, params, x, np.sin(x)[:, 0])


def test_the_page_is_self_contained_and_escapes_names(inspected, tmp_path):
    *_, inspection = inspected
    page = nm.report.write(
        inspection, tmp_path / "report", title="<script>alert(1)</script>"
    ).read_text()
    assert page.count("<script>") == 1  # its own
    assert page.count("<script") == 1 + page.count('<script type="application/json">')
    assert "&lt;script&gt;" in page
    assert 'src="http' not in page
    assert "@import" not in page
    drawings = (
        2 + 1 + 4 + len(inspection.layers)
    )  # before and after; the bar; growth, spectrum, bottleneck and function; a map for each layer
    assert page.count('<svg class="inner"') == page.count('class="plot"') == 4
    assert page.count('role="img"') == drawings
    assert inspection.headline in re.sub(r"<[^>]*>", "", page)
    assert len(page.encode()) < 1_500_000


def test_the_page_leaves_out_what_was_not_computed(tmp_path):
    net = nm.MLP((2, 3, 1), "tanh")
    inspection = nm.inspect(
        net, net.init(key=jax.random.key(0)), np.random.default_rng(0).normal(size=(20, 2))
    )
    page = nm.report.render(inspection)
    assert page.count('role="img"') == 3  # parameters, spectrum, bottleneck
    assert "What the units do" not in page


def test_the_account_adds_up_and_the_smaller_network_agrees(inspected):
    params, x, inspection = inspected
    assert sum(count for _, count in inspection.account.rows) == NET.n_params
    small = inspection.reduction
    assert small.net.n_params == NET.n_params - small.parameters_saved
    np.testing.assert_allclose(small.net(small.params, x), NET(params, x), rtol=0, atol=1e-12)
    assert "directions that change nothing" in str(inspection)


def test_the_bottleneck_is_the_one_of_the_room(inspected):
    params, x, inspection = inspected
    found = nm.bottleneck.bottleneck_structure(NET, params, x)
    assert (inspection.bottleneck.rank, inspection.bottleneck.layers) == (found.rank, found.layers)
    assert inspection.bottleneck.excess >= -1e-9
    steep = nm.MLP((1, 2, 1), nm.leaky_relu(3.0))
    assert nm.inspect(steep, steep.init(key=jax.random.key(0)), x).bottleneck is None


def test_a_large_network_has_its_symmetries_by_structure_in_place_of_the_account(key, rng):
    """One scaling for each of 80 + 60 rectified units, and D − 140 is the rank on many inputs; a
    small network has the account instead.
    """
    net = nm.MLP((10, 80, 60, 3))
    params = net.init(key=key, scheme=nm.init.he_bias)
    found = nm.inspect(net, params, rng.standard_normal((8, 10)), exact=False, progress=False)
    assert found.account is None and found.symmetries is not None
    assert found.symmetries.orbit == 140 and found.symmetries.exact
    assert ("symmetries by structure", "140") in [row[:2] for row in found.rows]
    assert found.symmetries.deviation < 1e-12
    titles = [part.title for part in found.parts]
    assert "account of the parameters" not in titles
    small = nm.inspect(NET, NET.init(key=key), rng.standard_normal((8, 1)), progress=False)
    assert small.account is not None and small.symmetries is None


def test_chosen_outputs_are_those_of_the_function_cut_down_by_hand():
    """Rank and spectrum of three logits are those of x ↦ f(x)[:, 1:4]; what belongs to no row of the
    Jacobian is about the whole function: a bias that only another output reads has an effect.
    """
    net = nm.MLP((2, 4, 6))
    params = net.init(key=jax.random.key(1))
    x = np.random.default_rng(0).normal(size=(12, 2))
    found, part = nm.inspect(net, params, x, outputs=np.s_[1:4]), lambda p, x: net(p, x)[:, 1:4]
    whole = nm.inspect(net, params, x)
    assert int(found.exact) == int(nm.functional_dimension(part, params, x, exact=True))
    assert int(found.exact) < int(whole.exact)
    expected = nm.spectrum(part, params, x).eigenvalues
    np.testing.assert_allclose(found.spectrum.eigenvalues, expected, atol=1e-9 * expected[0])
    assert found.closed == whole.closed
    assert (found.n_outputs, found.n_all_outputs) == (3, 6)
    assert "change the 3 of 6 outputs looked at" in found.headline
    assert "outputs looked at" not in whole.headline


def test_of_very_many_outputs_eight_are_looked_at_and_the_first_lines_say_so():
    def f(params, x):
        return x @ params["w"]

    x = np.random.default_rng(0).normal(size=(3, 2))
    params = {"w": np.ones((2, 5_001))}
    found = nm.inspect(f, params, x)
    assert (found.n_samples, found.n_outputs) == (3, 8)
    assert "8 of 5,001 outputs" in found.rows[1][2]
    assert "8 of 5,001 outputs" in found.headline
    assert int(found.dimension) == 16
    assert found.closed == 0
    assert places_of(None, (5_000,), MOST_ROWS) is None  # the control: so many are all looked at


@pytest.mark.parametrize("outputs", [0, -1, "8", (9,), np.s_[:0], True, 1.5])
def test_outputs_that_are_none_of_them_are_refused(outputs):
    params = NET.init(key=jax.random.key(3))
    with pytest.raises(ValueError, match="`outputs` is"):
        nm.inspect(NET, params, np.ones((2, 1)), outputs=outputs)


def test_shares_of_a_large_kernel_are_right_where_they_are_known():
    """∂f/∂b is twice ∂f/∂a at every sample, so that its share is 4/5 whatever is drawn."""

    def f(params, x):
        return x @ params["a"] + 2 * x @ params["b"] + 0 * params["c"][0]

    a = np.ones((60, 40))
    x = np.random.default_rng(0).normal(size=(50, 60))
    found = nm.inspect(f, {"a": a, "b": a, "c": np.ones(7)}, x, samples=50)
    shares = {block.name: block.share for block in found.blocks}
    assert found.blocks[0].rank is None
    np.testing.assert_allclose([shares["a"], shares["b"], shares["c"]], [0.2, 0.8, 0.0], rtol=1e-12)
    assert found.closed == 7


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown_in_a_terminal_alone(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with show_progress(None, [("kernel", 10.0)]) as bar:
        bar(0)
    assert ("about 10 s in all" in capsys.readouterr().err) == terminal
