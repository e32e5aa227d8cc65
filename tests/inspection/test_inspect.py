"""`inspect` agrees with the rooms it asks, and its table and page say what it found."""

import jax
import numpy as np
import pytest

import neuromanifold as nm

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
    np.testing.assert_allclose(inspection.spectrum.eigenvalues, nm.spectrum(NET, params, x).eigenvalues)


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
    inspection = nm.inspect(net, net.init(key=jax.random.key(0)), np.random.default_rng(0).normal(size=(20, 2)))
    assert inspection.exact is None
    assert inspection.regions is None
    assert "numerical" in str(inspection)
    assert inspection.dimension is inspection.float64


def test_any_function_is_inspected():
    inspection = nm.inspect(lambda params, x: params["a"] * x + params["b"], {"a": 1.0, "b": 2.0}, np.ones((3, 1)))
    assert (inspection.n_params, int(inspection.dimension)) == (2, 1)


def test_the_target_must_have_the_output_shape(inspected):
    params, x, _ = inspected
    with pytest.raises(ValueError, match=r"`y` has shape \(40,\) but the model's output has \(40, 1\)"):
        nm.inspect(NET, params, x, np.sin(x)[:, 0])


def test_the_page_is_self_contained_and_escapes_names(inspected, tmp_path):
    *_, inspection = inspected
    page = nm.report.write(inspection, tmp_path / "report", title="<script>alert(1)</script>").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert 'src="http' not in page
    assert "@import" not in page
    assert page.count("<svg") == 5
    assert inspection.headline in page


def test_the_page_leaves_out_what_was_not_computed(tmp_path):
    net = nm.MLP((2, 3, 1), "tanh")
    inspection = nm.inspect(net, net.init(key=jax.random.key(0)), np.random.default_rng(0).normal(size=(20, 2)))
    page = nm.report.render(inspection)
    assert page.count("<svg") == 3
    assert "What the neurons do" not in page


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
