"""What results show of themselves."""

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold.numerics.results import Result


@pytest.fixture(scope="module")
def found():
    net, x = nm.MLP((2, 3, 1)), np.random.default_rng(0).normal(size=(5, 2))
    params = net.init(key=jax.random.key(0), dtype="float64")
    return {
        "spectrum": nm.spectrum(net, params, x),
        "account": nm.dimension_account(net, params, x),
        "conserved": nm.conserved_quantities(net, params),
        "equivalence": nm.hidden_equivalence(net, params, x),
        "reduction": nm.reduce_width(net, params),
        "flow": nm.gradient_flow(nm.MLP((2, 3, 1), "tanh"), params, x, x[:, :1], t1=0.5),
    }


def test_the_answer_comes_first_and_fits_on_a_line(found):
    for name, result in found.items():
        assert isinstance(result, Result)
        assert len(repr(result)) <= 240, name
        assert "array(" not in repr(result), name
        assert result._repr_html_().startswith("<pre>")
    largest = found["spectrum"].eigenvalues[0]
    assert f"{largest:.4g}" in repr(found["spectrum"])
    label, value = found["conserved"].labels[0], found["conserved"].values[0]
    assert f"{label} = {value:.6g}" in repr(found["conserved"])
    assert repr(found["account"]).startswith("DimensionAccount(13 parameters = ")


def test_data_leave_as_plain_data(found):
    out = found["spectrum"].to_dict()
    assert (out["eigenvalues"] == found["spectrum"].eigenvalues).all()
    table = found["spectrum"].to_xarray()
    assert (table.eigenvalue.values == found["spectrum"].eigenvalues).all()
    assert table.attrs["trace"] == found["spectrum"].trace
    flow = found["flow"].to_xarray()
    assert flow.sizes["time"] == len(found["flow"].times)
    assert (flow["params[0].weight"].values == found["flow"].params[0].weight).all()


@pytest.mark.parametrize("name", ["spectrum", "account", "flow"])
def test_pictures_show_the_numbers(found, name):
    import matplotlib.pyplot as plt

    axes = found[name].plot()
    if name == "account":
        assert sum(bar.get_width() for bar in axes.patches) == found[name].parameters
    else:
        shown = axes.lines[0].get_ydata()
        assert len(shown) == ((found[name].eigenvalues > 0).sum() if name == "spectrum" else len(found[name].losses))
    assert axes.get_xlabel()
    plt.close(axes.figure)
