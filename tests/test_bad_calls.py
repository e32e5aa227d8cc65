"""A sample of tools/bad_calls.py: one bad argument each, answered by one sentence of ours."""

import inspect
from decimal import Decimal
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import cast
import neuromanifold as nm
from bad_calls import MODELS, VERBS, calls, found, outcome

MENDED = {
    ("MLP", "widths"): ("bytes", "a set"),
    ("LinearConvNet", "activation"): ("an object", "None", "a complex array"),
    ("functionspace.rescale", "delta"): ("dates", "an empty dictionary"),
    ("functionspace.nearest_filter", "v"): ("a complex number", "five axes", "nan"),
    ("functionspace.nearest_filter", "starts"): ("minus one",),
    ("functionspace.balanced_factors", "W"): ("a complex array", "a list of numbers"),
    ("functionspace.balanced_factors", "depth"): ("10**12",),
    ("bottleneck.balanced_factors", "depth"): ("10**12",),
    ("functionspace.metric", "params"): ("no samples", "a function of nothing"),
    ("tangent.output_hessian_norm", "dtype"): ("an empty list", "a class"),
    ("linearize", "f"): ("a class", "a function of nothing"),
}
CHOSEN = [call for call in calls() if call[2] in MODELS and call[0] == "ntk"] + [
    call
    for call in calls()
    if call[:2] in {("functional_dimension", "exact"), ("alignment", "lr"), ("train", "key")}
    or call[2] in MENDED.get(call[:2], ())
]


def test_there_are_thousands():
    assert sum(1 for _ in calls()) >= 2500 and len(VERBS) >= 70


@pytest.mark.parametrize("call", CHOSEN, ids=["-".join(call[:3]) for call in CHOSEN])
def test_a_bad_argument_ends_in_one_sentence(call):
    verb, argument, way, arguments = call
    with cast.unchecked():
        how, said = outcome(verb, arguments, 60)
    fine = way in {"minus one", "two and a half", "10**12", "inf", "None"} and argument == "lr"
    assert how == "refused" or (how == "answered" and fine), said


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in MENDED}))
def test_good_arguments_are_answered(verb):
    arguments = next(given for name, _, _, given in calls() if name == verb)
    first = next(iter(inspect.signature(found(verb)).parameters))
    good = arguments | {first: VERBS[verb][first]}
    with cast.unchecked():
        how, said = outcome(verb, good, 60)
    assert how == "answered", said


def test_numbers_are_numbers_in_every_arithmetic():
    """Fractions, decimals, whole numbers and JAX arrays pass where dates and complex numbers do not."""
    net = nm.LinearConvNet((2, 2), (1, 1))
    exact = [Fraction(1), Fraction(3), Fraction(2)]
    for v in (exact, [Decimal(e.numerator) for e in exact], [1, 3, 2], jnp.array([1.0, 3.0, 2.0])):
        assert len(nm.functionspace.fiber(net, v, Fraction(1, 2))) == 4
    for wrong in (np.array(exact, complex), np.array(["2020-01-01"] * 3, "datetime64[D]")):
        with pytest.raises(TypeError, match=r"`v` is .*; pass an array of real numbers"):
            nm.functionspace.fiber(net, wrong)
