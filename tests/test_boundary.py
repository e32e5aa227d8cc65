"""One API, and what every verb refuses or does at its boundary."""

import inspect
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import api
import neuromanifold as nm

NET = nm.MLP((2, 3, 1))
X = jnp.array([[0.5, -1.0], [1.5, 0.25], [-0.75, 0.5]])
Y = jnp.array([[0.1], [0.2], [-0.3]])
POSITIONAL = {
    "params", "x", "x2", "y", "delta", "state", "variables", "cotangent", "alpha", "lr", "weight_decay", "frozen", "ring", "record",
    "precision", "memory",
}  # fmt: skip
"""Arguments of formulas (parameters, data, points, a slope, a rate) may be left out and given by
position; all others are options.
"""
NO_DEFAULT_LOSS = {
    "functionspace.balanced_flow", "functionspace.dense_parameter_flow", "functionspace.parameter_flow", "functionspace.riemannian_flow"
}  # fmt: skip
"""Their loss is a function of one filter or matrix, and is the problem itself."""
OTHER_WORDS = {
    "seed",
    "rng",
    "tol",
    "tolerance",
    "eps",
    "learning_rate",
    "eta",
    "step_size",
    "model",
    "network",
    "criterion",
}


def irregular(name: str, signature: inspect.Signature) -> list[str]:
    """What a signature has that the others have not."""
    found = [f"{name}: `{word}`" for word in signature.parameters if word in OTHER_WORDS]
    for word, parameter in signature.parameters.items():
        optional = (
            parameter.default is not parameter.empty
            and parameter.kind is not parameter.KEYWORD_ONLY
        )
        found += (
            [f"{name}: `{word}` is an option by position"]
            if optional and word not in POSITIONAL
            else []
        )
    loss = signature.parameters.get("loss")
    if loss is not None and name not in NO_DEFAULT_LOSS | {
        "orbits.invariance_residual"
    }:  # there: random losses
        found += [] if loss.default is nm.losses.mse else [f"{name}: loss={loss.default}"]
    return found


def test_the_same_word_means_the_same_everywhere():
    assert [
        line
        for name, found in api.functions()
        for line in irregular(name, inspect.signature(found))
    ] == []


def test_planted_words_are_caught():
    def planted(f: Any, params: Any, seed: int = 0, *, loss: Any = None) -> None: ...

    assert len(irregular("planted", inspect.signature(planted))) == 3


def test_curvature_is_computed_inside_jit_on_data_outside():
    params = NET.init(key=jax.random.key(0))
    for verb in (nm.sharpness, nm.tangent.gauss_newton_curvature, nm.largest_stable_lr):
        inside = jax.jit(lambda p, verb=verb: verb(NET, p, X, Y))(params)
        assert float(inside) == pytest.approx(float(verb(NET, params, X, Y)), rel=1e-6)


@pytest.mark.parametrize(
    "verb", [nm.kernel_flow, nm.teleport, lambda f, p, x, y: nm.spectrum(f, p, x)]
)
def test_what_runs_on_the_host_says_so_inside_jit(verb: Any):
    with pytest.raises(TypeError, match="needs concrete values and runs on the host"):
        jax.jit(lambda p: verb(NET, p, X, Y))(NET.init(key=jax.random.key(0)))


def test_the_differential_of_filters_is_one_of_concrete_filters():
    net, filters = nm.LinearConvNet((2, 2), (1, 1)), (np.ones(2), np.array([1.0, 2.0]))
    differential = nm.functionspace.filter_jacobian
    assert differential(net, filters).tolist() == [[1, 0, 1, 0], [2, 1, 1, 1], [0, 2, 0, 1]]
    with pytest.raises(TypeError, match="`filter_jacobian` needs concrete values"):
        jax.jit(lambda w: differential(net, w))(filters)


def test_modules_that_hold_their_arrays_are_refused_with_the_line_to_write():
    module: Any = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    line = re.escape("`f, params = nm.from_equinox(module)`")
    with pytest.raises(TypeError, match=line):
        nm.ntk(lambda m, x: jax.vmap(m)(x), module, X)
    params = NET.init(key=jax.random.key(0))
    for call in (nm.ntk, nm.jacobian, nm.inspect):
        with pytest.raises(TypeError, match=line):
            call(module, params, X)
    with pytest.raises(TypeError, match=line):
        nm.train(module, params, X, Y, key=jax.random.key(0), epochs=1)
    with pytest.raises(TypeError, match=line):
        nm.gradient_flow(module, params, X, Y, t1=0.1)


def test_linear_filters_keep_float64():
    net = nm.LinearConvNet((2, 2), (1, 1))
    assert (
        net(net.init(key=jax.random.key(0), dtype="float64"), np.ones((3, 3))).dtype == np.float64
    )
