"""Bad input to the tangent room: one clear error each, the same for every function."""

import re

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import cast
import neuromanifold as nm

NET = nm.MLP((2, 3, 1))
PARAMS = (nm.Layer(np.ones((3, 2)), np.zeros(3)), nm.Layer(np.ones((1, 3)), np.zeros(1)))
X = np.ones((4, 2))


VERBS = {
    "jacobian": nm.jacobian,
    "ntk": nm.ntk,
    "ntk_operator": nm.ntk_operator,
    "spectrum": nm.spectrum,
    "functional_dimension": nm.functional_dimension,
    "exact": lambda f, params, x: nm.functional_dimension(f, params, x, exact=True),
    "alignment": lambda f, params, x: nm.alignment(
        f, params, x, np.ones((4, 1)), loss=nm.losses.mse
    ),
    "kernel_alignment": lambda f, params, x: nm.kernel_alignment(f, params, x, np.ones((4, 1))),
    "activation_patterns": nm.activation_patterns,
    "exact patterns": lambda f, params, x: nm.activation_patterns(f, params, x, exact=True),
    "sampled_regions": nm.sampled_regions,
    "fixed_neurons": nm.fixed_neurons,
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def refused(verb, params, x, text: str, f=NET) -> None:
    with cast.unchecked(), pytest.raises((ValueError, TypeError), match=text) as caught:
        verb(f, params, x)
    assert "\n" not in str(caught.value)


@every_verb
def test_wrong_shapes_are_refused(verb):
    refused(
        verb,
        PARAMS,
        np.ones((4, 3)),
        r"`x` has 3 features but the network takes 2; pass an array of shape \(n, 2\)",
    )
    refused(
        verb,
        PARAMS,
        np.ones(2),
        r"`x` has shape \(2,\) but the network takes 2; pass an array of shape \(n, 2\)",
    )
    refused(
        verb,
        PARAMS,
        np.ones((0, 2)),
        r"`x` has shape \(0, 2\), so it is empty; pass at least one sample",
    )
    refused(
        verb,
        PARAMS[:1],
        X,
        "`params` is 1 layers but the network has 2 layers; pass a tuple of nm.Layer",
    )
    wrong = (nm.Layer(np.ones((3, 2)), np.zeros(3)), nm.Layer(np.ones((1, 4)), np.zeros(1)))
    refused(verb, wrong, X, r"`params\[1\]\.weight` has shape \(1, 4\); the network needs \(1, 3\)")


@every_verb
def test_values_that_are_no_finite_reals_are_refused(verb):
    for bad in (np.nan, np.inf):
        x = X.copy()
        x[2, 1] = bad
        refused(
            verb, PARAMS, x, rf"`x` is {bad} at \[2, 1\] \(1 such entry\); remove or replace them"
        )
        spoilt = (nm.Layer(PARAMS[0].weight, np.array([0, bad, 0])), PARAMS[1])
        refused(verb, spoilt, X, rf"`params\[0\]\.bias` is {bad} at \[1\]")
    refused(verb, PARAMS, X.astype(complex), r"`x` is complex \(complex128\); pass a real array")
    refused(verb, PARAMS, np.array([["a", "b"]]), "`x` ")
    refused(verb, PARAMS, None, "`x` ")


@every_verb
def test_complex_and_integer_parameters_are_refused(verb):
    for dtype in (np.int32, np.int64, bool):
        params = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), PARAMS)
        refused(
            verb,
            params,
            X,
            rf"`params\[0\]\.weight` has dtype {np.dtype(dtype)}, which has no derivative; cast it with",
        )
    params = jax.tree.map(lambda leaf: leaf.astype(complex), PARAMS)
    refused(
        verb, params, X, r"`params\[0\]\.weight` is complex \(complex128\); pass real parameters"
    )


@every_verb
def test_lists_and_integers_are_data_too(verb):
    verb(NET, PARAMS, [[1.0, 2.0], [0.5, 1.0], [2.0, 0.0], [-1.0, 1.0]])
    verb(NET, PARAMS, np.arange(8).reshape(4, 2))


@pytest.mark.parametrize(
    "verb", [VERBS[name] for name in ("jacobian", "ntk", "spectrum", "functional_dimension")]
)
def test_functions_that_are_no_models_are_refused(verb):
    refused(verb, PARAMS, X, "`f` is an int; pass a model or any function", f=3)
    refused(
        verb,
        PARAMS,
        X,
        "`f` maps 4 samples to an output of shape .*; its first axis must count",
        f=lambda p, x: x.sum(),
    )
    refused(verb, PARAMS, X, "`f` returns no array; a model returns", f=lambda p, x: ())
    refused(verb, PARAMS, X, "`f` returns .*complex", f=lambda p, x: 1j * x)
    refused(verb, PARAMS, X, "`f` returns .*int", f=lambda p, x: x.astype(int))
    refused(verb, {}, X, "`params` has no arrays; pass the parameters", f=lambda p, x: x)


class Holds:
    """A model that holds arrays and cannot be hashed, as an equinox module is."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, params, x):
        return x


@every_verb
def test_a_model_that_holds_arrays_is_refused_with_the_line_to_write(verb):
    refused(verb, PARAMS, X, "`f` is a Holds, which cannot be hashed, .*nm.from_equinox", f=Holds())


@pytest.mark.parametrize(
    "activation, operation", [("tanh", "tanh"), ("gelu", "erfc"), ("exp", "exp")]
)
def test_exact_arithmetic_needs_rational_activations(activation: str, operation: str):
    text = rf"`f` uses {operation} \(.*\), which has no exact value at rational numbers; pass `exact=False`"
    refused(VERBS["exact"], PARAMS, X, text, f=nm.MLP((2, 3, 1), activation))


def batch_norm(params, x):
    h = x @ params[0].weight.T
    return ((h - h.mean(axis=0)) / (1e-3 + h.std(axis=0)))[:, :1]


@every_verb
def test_a_model_that_mixes_its_rows_is_refused(verb, rng: np.random.Generator):
    with (
        cast.unchecked(),
        pytest.raises(
            ArithmeticError, match=r"`f` mixes its rows: .* pass a model in evaluation mode"
        ),
    ):
        verb(batch_norm, PARAMS, rng.normal(size=(4, 2)))


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda: nm.ntk(NET, PARAMS, X, np.ones((3, 5))),
            "`x2` has 5 features but the network takes 2",
        ),
        (
            lambda: nm.ntk(NET, PARAMS, X, np.ones((0, 2))),
            r"`x2` has shape \(0, 2\), so it is empty",
        ),
        (lambda: nm.ntk(NET, PARAMS, X, np.full((3, 2), np.nan)), r"`x2` is nan at \[0, 0\]"),
        (
            lambda: nm.ntk(NET, PARAMS, X, memory=0),
            "`memory` is 0; pass a positive number of bytes",
        ),
        (
            lambda: nm.ntk(NET, PARAMS, X, memory="much"),
            "`memory` is 'much'; pass a positive number of bytes, or a string",
        ),
        (lambda: nm.ntk(NET, PARAMS, X, memory=float("nan")), "`memory` is nan; pass"),
        (lambda: nm.spectrum(NET, PARAMS, X, k=0), "`k` is 0"),
        (lambda: nm.spectrum(NET, PARAMS, X, k=5), "`k` is 5"),
        (lambda: nm.spectrum(NET, PARAMS, X, k=1.5), r"`k` is 1\.5"),
        (lambda: nm.functional_dimension(NET, PARAMS, X, rtol=-1.0), r"`rtol` is -1\.0; pass"),
        (lambda: nm.functional_dimension(NET, PARAMS, X, rtol=float("nan")), "`rtol` is nan; pass"),
        (lambda: nm.functional_dimension(NET, PARAMS, X, exact=True, rtol=0.1), "`rtol`"),
        (lambda: nm.ntk_operator(NET, PARAMS, X).mv(np.ones(3)), "3"),
    ],
)
def test_impossible_options_are_refused(call, text: str):
    with cast.unchecked(), pytest.raises((ValueError, TypeError), match=text):
        call()


@hypothesis.given(shape=st.lists(st.integers(0, 3), max_size=3).map(tuple))
@hypothesis.settings(max_examples=25)
def test_every_shape_of_x_is_taken_or_named(shape: tuple[int, ...]):
    x = np.ones(shape)
    if len(shape) == 2 and shape[1] == 2 and shape[0] > 0:
        assert nm.activation_patterns(NET, PARAMS, x, exact=True).shape == (shape[0], 3)
    else:
        with pytest.raises(ValueError, match=r"`x` .*; pass") as caught:
            nm.activation_patterns(NET, PARAMS, x, exact=True)
        assert re.search(r"\d|scalar", str(caught.value))
