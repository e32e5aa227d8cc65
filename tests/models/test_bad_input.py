"""Bad input to models: one clear error each, that names the argument, shows the value and says
what to do.
"""

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


@pytest.mark.parametrize(
    "arguments, options, text",
    [
        (
            ((2,),),
            {},
            r"`widths` is \(2,\); pass at least input and output width, all positive whole numbers",
        ),
        (((2, 0, 1),), {}, r"`widths` is \(2, 0, 1\); pass"),
        (((2, -3, 1),), {}, r"`widths` is \(2, -3, 1\); pass"),
        (((2, 2.5, 1),), {}, r"`widths` is \(2, 2\.5, 1\); pass"),
        ((3,), {}, r"`widths` is 3; pass a sequence of whole numbers"),
        (
            ((2, 3, 1), "relux"),
            {},
            "`activation` is 'relux', which is not built in; use one of .*relu",
        ),
        (
            ((2, 3, 1), ("relu", "relu")),
            {},
            "`activation` has 2 entries for 1 hidden layers; give one for each",
        ),
        (
            ((2, 3, 1), (nm.Mixed(relu=1),)),
            {},
            r"`activation\[0\]` is Mixed\(relu=1\) with 1 neurons; the layer has 3",
        ),
        (((2, 3, 1), 7), {}, "`activation` is 7; pass a name, an nm.Activation"),
        (((2, 3, 1),), {"scaling": "nkt"}, "`scaling` is 'nkt'; pass 'standard' or 'ntk'"),
        (
            ((2, 3, 1),),
            {"output_activation": "relux"},
            "activation` is 'relux', which is not built in; use one of",
        ),
    ],
)
def test_an_impossible_network_is_refused(arguments: tuple, options: dict, text: str):
    with cast.unchecked(), pytest.raises((ValueError, TypeError), match=text):
        nm.MLP(*arguments, **options)


@hypothesis.given(
    st.lists(
        st.integers(-3, 5) | st.floats(allow_nan=True) | st.none() | st.text(max_size=2), max_size=4
    )
)
@hypothesis.settings(max_examples=60)
def test_widths_make_a_network_or_an_error_that_shows_them(widths: list):
    shown = f"[\\[(]{re.escape(repr(tuple(widths)).strip('(,)'))},?[\\])]"
    possible = len(widths) >= 2 and all(isinstance(w, int) and w > 0 for w in widths)
    with cast.unchecked():
        if possible:
            assert nm.MLP(widths).widths == tuple(widths)
        else:
            with pytest.raises((ValueError, TypeError), match=rf"`widths` is {shown}; pass"):
                nm.MLP(widths)


@hypothesis.given(st.text(max_size=12))
@hypothesis.settings(max_examples=30)
def test_unknown_activations_are_refused_by_name(name: str):
    known = [
        "abs",
        "cos",
        "erf",
        "exp",
        "gelu",
        "identity",
        "relu",
        "sigmoid",
        "silu",
        "sin",
        "softplus",
        "tanh",
    ]
    hypothesis.assume(name not in known and not name.startswith(("leaky_relu", "power")))
    with pytest.raises(
        ValueError, match=re.escape(f"`activation` is {name!r}, which is not built in; use one of")
    ):
        nm.MLP((2, 3, 1), name)


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: nm.Mixed(relu=-1), "`relu` is given -1 neurons; pass a whole number"),
        (lambda: nm.Mixed(relux=1), "`activation` is 'relux', which is not built in"),
        (lambda: nm.power(0), "`degree` is 0; pass a positive integer"),
        (lambda: nm.power(1.5), r"`degree` is 1\.5; pass a positive integer"),
        (lambda: nm.leaky_relu(float("nan")), "`alpha` is nan; pass"),
        (lambda: nm.leaky_relu(float("inf")), "`alpha` is inf; pass"),
        (lambda: nm.leaky_relu("steep"), "`alpha` is 'steep'; pass"),
        (lambda: nm.Activation(7), "`fn` is"),
        (
            lambda: nm.Activation(lambda z: z.sum()),
            r"`fn` maps shape \(\d+,\) to \(\); an activation acts entrywise",
        ),
        (
            lambda: nm.Activation(np.tanh, mood="odd"),
            "`mood` is no property of an activation; declare some of parity",
        ),
        (lambda: nm.FunctionModel(3), "`fn` is an int; pass a function"),
        (
            lambda: NET.init(key=jax.random.key(0), scheme="hee"),
            "`scheme` is 'hee'; use one of he_bias, he",
        ),
        (lambda: NET.init(key=jax.random.key(0), dtype=int), "`dtype` is .*int.*; pass"),
        (lambda: NET.init(key=jax.random.key(0), dtype=complex), "`dtype` is .*complex.*; pass"),
        (lambda: NET.init(key=jax.random.key(0), runs=0), "`runs` is 0; pass"),
        (lambda: NET.init(key=jax.random.key(0), runs=-1), "`runs` is -1; pass"),
        (lambda: NET.init(key=7), "`key` is 7; pass"),
    ],
)
def test_an_impossible_part_is_refused(build, text: str):
    with cast.unchecked(), pytest.raises((ValueError, TypeError), match=text):
        build()


@pytest.mark.parametrize(
    "params, x, text",
    [
        (
            PARAMS,
            np.ones((4, 3)),
            r"`x` has 3 features but the network takes 2; pass an array of shape \(n, 2\)",
        ),
        (
            PARAMS,
            np.ones(2),
            r"`x` has shape \(2,\) but the network takes 2; pass an array of shape \(n, 2\)",
        ),
        (
            PARAMS,
            np.ones((4, 2, 1)),
            r"`x` has shape \(4, 2, 1\) but .*; pass an array of shape \(n, 2\)",
        ),
        (PARAMS, None, "`x` "),
        (PARAMS, X.astype(complex), "`x` .*complex"),
        (
            PARAMS[:1],
            X,
            "`params` is 1 layers but the network has 2 layers; pass a tuple of nm.Layer",
        ),
        (
            {"weight": 1},
            X,
            "`params` is a dict but the network has 2 layers; pass a tuple of nm.Layer",
        ),
        (
            (PARAMS[0], nm.Layer(np.ones((1, 4)), np.zeros(1))),
            X,
            r"`params\[1\]\.weight` has shape \(1, 4\)",
        ),
        (
            (PARAMS[0], nm.Layer(np.ones((1, 3)))),
            X,
            r"`params\[1\]\.bias` has shape None; the network needs \(1,\)",
        ),
        (
            (PARAMS[0], nm.Layer(np.ones((1, 3)), np.zeros(2))),
            X,
            r"`params\[1\]\.bias` has shape \(2,\)",
        ),
    ],
)
def test_arrays_of_the_wrong_shape_are_refused(params, x, text: str):
    with cast.unchecked(), pytest.raises((ValueError, TypeError), match=text):
        NET(params, x)


def test_lists_are_data_too():
    np.testing.assert_allclose(NET(PARAMS, [[1.0, 2.0]]), [[9.0]])


@pytest.mark.parametrize("fn", [lambda p, x: x.sum(), lambda p, x: x[:2], lambda p, x: x[0]])
def test_a_function_that_loses_the_sample_axis_is_refused(fn):
    with pytest.raises(
        ValueError,
        match=r"`fn` maps 4 samples to an output of shape .*; its first axis must count the samples",
    ):
        nm.FunctionModel(fn)(1.0, X)
