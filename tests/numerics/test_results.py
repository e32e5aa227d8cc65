"""What results show of themselves."""

import dataclasses
import html
import inspect
from pathlib import Path

import equinox
import jax
import numpy as np
import pytest

import api
import neuromanifold as nm
from neuromanifold.numerics.results import Result, Shown, shorten

LONGEST = 300
SMALL = {
    "AffineGroup", "AvgPool", "Attention", "Block", "Cluster", "Conv", "Dense", "Elementwise", "ExtendedModel",
    "FilterScalingGroup", "Flatten", "FunctionModel", "GeneralLinearGroup", "GlobalAvgPool", "HadamardGroup", "LayerNorm",
    "LayerRank", "LayerUnits", "MatrixGroup", "OrthogonalGroup", "Part", "PermutationGroup", "Probe", "Quadrature", "Removal", "Residual",
    "ScalingGroup", "Sequential", "SignGroup", "SignedPermutationGroup", "Sum", "SymmetryGroup", "Units",
}  # fmt: skip
"""Descriptions of a few words and numbers, which Python's own `repr` of a dataclass shows; the
others are `Shown`, or write one.
"""
PARAMETERS = {"Layer"}
"""Parameters, which show their arrays as every pytree of arrays does."""


def public_records():
    """Every public class with fields, by its name in its room."""
    for room in api.ROOMS:
        for name in getattr(nm, room).__all__:
            found = getattr(getattr(nm, room), name)
            if inspect.isclass(found) and (
                dataclasses.is_dataclass(found) or hasattr(found, "_fields")
            ):
                yield name, found


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
        assert result._repr_html_().startswith(("<pre>", "<div "))
    largest = found["spectrum"].eigenvalues[0]
    assert f"{largest:.4g}" in repr(found["spectrum"])
    label, value = found["conserved"].labels[0], found["conserved"].values[0]
    assert f"{label} = {value:.6g}" in repr(found["conserved"])
    assert repr(found["account"]).startswith("DimensionAccount(13 parameters = ")


def test_every_public_record_shows_itself_in_a_line():
    """Classes that Python would print field by field are small; all others are `Shown` (which is
    cut), or write their own line.
    """
    written = (str(Path(nm.__file__).parent), str(Path(equinox.__file__).parent))
    generated = {
        name
        for name, found in public_records()
        if not inspect.unwrap(found.__repr__).__code__.co_filename.startswith(written)
    }
    assert generated <= SMALL | PARAMETERS
    assert len(list(public_records())) > 60


@pytest.fixture(scope="module")
def long_ones():
    """Results that hold much: what a field-by-field `repr` would show takes thousands of
    characters.
    """
    net, x = nm.MLP((2, *[6] * 8, 1)), np.random.default_rng(0).normal(size=(40, 2))
    params = net.init(key=jax.random.key(0), dtype="float64")
    narrow = nm.MLP((2, 3, 1))
    small = narrow.init(key=jax.random.key(0), dtype="float64")
    lattice = nm.orbits.invariant_leaves(nm.MLP((1, 4, 1), "exp", bias=False))
    extended = nm.symmetry.HadamardGroup(net).extend(params)
    group = nm.symmetry_group(
        lambda p, x: jax.nn.relu(x @ p["in"]) @ p["out"],
        {"in": np.ones((3, 8)), "out": np.ones((8, 2))},
        np.ones((4, 3)),
    )
    rank = nm.functional_dimension(net, params, x, exact=True)
    return {
        "plan": nm.tangent.kernel_plan(net, params, x),
        "rank": rank,
        "certificate": rank.certificate,
        "graph": nm.graph.trace(net, params, x),
        "bounds": nm.dimension_bounds(net, params, x),
        "units": nm.fixed_neurons(net, params, x),
        "signs": nm.regions.exact_signs(net, params, x),
        "equivalence": nm.hidden_equivalence(net, params, x),
        "reduction": nm.reduce_width(net, params),
        "conserved": nm.conserved_quantities(net, params),
        "scaling": nm.symmetry.ScalingGroup(net).sample(key=jax.random.key(1)),
        "permutation": nm.symmetry.PermutationGroup(net).sample(key=jax.random.key(1)),
        "batch": nm.symmetry.BatchGroup(narrow, x[:3]),
        "batch element": nm.symmetry.BatchGroup(narrow, x[:3]).sample(key=jax.random.key(1)),
        "network group": group,
        "places": group.factors[0],
        "extended": extended,
        "transformed": nm.symmetry.ExtendedModel(net).frozen(extended.factors),
        "lattice": lattice,
        "set": lattice.set(range(len(lattice))),
        "leaf": lattice.leaves[0],
        "loss": nm.functionspace.FilterLoss(np.eye(30), np.ones(30)),
        "condensation": nm.condensation(narrow, small),
        "tracker": nm.Tracker(narrow, x),
        "kernels": nm.infinite.infinite_kernels(net, x),
        "spectrum": nm.spectrum(narrow, small, x),
        "account": nm.dimension_account(narrow, small, x),
        "interpolant": nm.data.load("f1"),
    }


def test_what_holds_much_still_shows_itself_in_a_line(long_ones):
    for name, result in long_ones.items():
        assert len(repr(result)) <= LONGEST, (name, len(repr(result)), repr(result))
        assert "\n" not in repr(result), name
        assert "array(" not in repr(result).lower(), name
        if isinstance(result, Shown) and type(result)._repr_html_ is Shown._repr_html_:
            assert html.unescape(result._repr_html_()) == f"<pre>{result}</pre>"
    certificate = long_ones["certificate"]
    assert repr(certificate).startswith(f"JacobianCertificate({certificate.rank}, exact, ")
    assert repr(long_ones["plan"]) == "Plan(9 uses of parameters: 9 by hadamard; 1 outputs)"
    assert str(long_ones["plan"]).count("\n") == 8


def test_python_would_print_thousands_of_characters(long_ones):
    """The control: the same results field by field."""
    for name in ("certificate", "plan", "graph"):
        fields = dataclasses.fields(long_ones[name])
        assert (
            sum(len(repr(getattr(long_ones[name], field.name))) for field in fields) > 5 * LONGEST
        ), name


def test_a_line_that_is_cut_says_so():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Long(Result):
        words: str

    assert repr(Long("a" * 1000)).endswith("a…)")
    assert len(repr(Long("a" * 1000))) <= LONGEST
    assert shorten("abc", 3) == "abc"


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
        assert len(shown) == (
            (found[name].eigenvalues > 0).sum() if name == "spectrum" else len(found[name].losses)
        )
    assert axes.get_xlabel()
    plt.close(axes.figure)
