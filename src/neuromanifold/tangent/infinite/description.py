"""From a finite network to the description of its limit: `nm.describe`."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.graph import trace
from neuromanifold.graph.reading import called
from neuromanifold.graph.selection import select
from neuromanifold.models.arguments import Model, Params, Samples, checked
from neuromanifold.models.init import Layer
from neuromanifold.models.layers.attention import Attention, AttentionParams
from neuromanifold.models.layers.branches import Residual, Sum
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.sequential import Sequential
from neuromanifold.numerics.precision import arithmetic, is_floating
from neuromanifold.tangent.infinite.reading import Reader
from neuromanifold.tangent.infinite.steps import Fork, Heads, Weights


def describe(f: Model, params: Params, x: Samples, *, leaf_std: Any = None) -> Sequential:
    """The `nm.Sequential` that f is, read from its graph, for networks whose leaves are drawn
    independently with deviations `leaf_std`.

    `leaf_std` is one number, or a mapping of names of leaves (or patterns, see `nm.tangent.select`)
    to numbers; 1 without it. Factors of the weights that the graph shows, such as 1/√fan_in, count
    along. Dense layers, convolutions, means over positions, entrywise functions and sums of
    branches are understood, channels last; LayerNorm (without gains) and attention over all
    positions whose queries are its keys are recognised by what they compute, however they are
    written. Whatever else is refused by name. The description is compared with f at these
    parameters and samples before it is handed out, and `nm.infinite_ntk` takes it.

    >>> net = nm.MLP((3, 5, 1), "tanh", scaling="ntk")
    >>> found = nm.describe(net, net.init(key=jax.random.key(0)), np.ones((2, 3)))
    >>> found.layers[0].weight_std.__round__(12), str(found.layers[1].activation), found.scaling
    (1.0, 'tanh', 'ntk')
    """
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float64)
        graph = trace(f, params, x)
        if not isinstance(x, jax.Array) or len(graph.program.outputs) != 1:
            raise ValueError(
                "`f` takes or gives several arrays; at infinite width it needs one of each."
            )
        if not is_floating(x):
            raise ValueError(
                f"`x` holds {x.dtype}; at infinite width samples are real numbers, so pass what "
                "the tokens are embedded as."
            )
        layers = Reader(graph).read()
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
        spreads = _spreads(params, graph.parameters, leaf_std)
        _check_leaves(layers, graph.parameters)
        scaling = _scaling(layers, spreads)
        found = [_layer(layer, spreads, scaling, leaves) for layer in layers]
        net = Sequential(*(layer for layer, _ in found), input_shape=x.shape[1:], scaling=scaling)
        _compare(called(f, params, x), net(tuple(own for _, own in found), x))
        return net


def _spreads(params: Any, names: tuple[str, ...], given: Any) -> list[float]:
    """The standard deviation of each leaf."""
    table = (
        {"*": 1.0 if given is None else given} if not isinstance(given, Mapping) else dict(given)
    )
    found = dict.fromkeys(names)
    for pattern, value in table.items():
        if not isinstance(value, int | float | np.floating) or not (
            np.isfinite(value) and value > 0
        ):
            raise ValueError(f"`leaf_std` is {value!r} for {pattern!r}; pass a positive number.")
        found |= dict.fromkeys(select(params, pattern).names, float(value))
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(
            f"`leaf_std` has no entry for {missing[0]!r}; the leaves are {', '.join(names)}."
        )
    return [value for value in found.values() if value is not None]


def _weights(layers: tuple[Any, ...]) -> list[Weights | Heads]:
    found: list[Weights | Heads] = []
    for layer in layers:
        if isinstance(layer, Weights | Heads):
            found.append(layer)
        elif isinstance(layer, Fork):
            found += [each for branch in layer.branches for each in _weights(branch)]
    return found


def _check_leaves(layers: tuple[Any, ...], names: tuple[str, ...]) -> None:
    """Every leaf in one layer, once."""
    used = [leaf for w in _weights(layers) for leaf in w.leaves]
    for leaf, name in enumerate(names):
        if used.count(leaf) != 1:
            raise ValueError(
                f"`params` has the leaf {name}, which `f` uses in {used.count(leaf)} layers; at "
                "infinite width each belongs to one."
            )


def _scaling(layers: tuple[Any, ...], spreads: list[float]) -> str:
    """`"ntk"` where all leaves are standard normal, `"standard"` where no weight is multiplied
    by a factor.
    """
    if all(value == 1 for value in spreads):
        return "ntk"
    if all(w.plain for w in _weights(layers)):
        return "standard"
    raise ValueError(
        "`leaf_std` gives deviations to weights that `f` multiplies by factors; move either into "
        "the other, "
        "so that leaves are standard normal or enter as they are."
    )


def _layer(
    given: Any, spreads: list[float], scaling: str, leaves: list[np.ndarray]
) -> tuple[Any, Any]:
    """A layer and its parameters."""
    if isinstance(given, Fork):
        branches = [
            [_layer(each, spreads, scaling, leaves) for each in branch] for branch in given.branches
        ]
        layers, params = (
            [tuple(pair[k] for pair in branch) for branch in branches] for k in (0, 1)
        )
        if () not in layers:
            return Sum(*layers), tuple(params)
        kept = 1 - layers.index(())
        return Residual(*layers[kept]), params[kept]
    if isinstance(given, Heads):
        return _attention(given, spreads, leaves)
    if not isinstance(given, Weights):
        return given, ()
    weight = leaves[given.leaf].transpose(given.axes) * np.sign(given.factor)
    bias = None if given.bias is None else leaves[given.bias[0]] * np.sign(given.bias[1])
    return _weight_layer(given, spreads), Layer(weight, bias)


def _weight_layer(given: Weights, spreads: list[float]) -> Dense | Conv:
    options: dict[str, Any] = {
        "bias": given.bias is not None,
        "weight_std": abs(given.factor) * spreads[given.leaf] * given.fan_in**0.5,
        "bias_std": 1.0 if given.bias is None else abs(given.bias[1]) * spreads[given.bias[0]],
    }
    if len(given.shape) == 2:
        return Dense(given.shape[0], **options)
    return Conv(
        given.shape[0], given.shape[2:], strides=given.strides, padding=given.padding, **options
    )


def _attention(
    given: Heads, spreads: list[float], leaves: list[np.ndarray]
) -> tuple[Attention, AttentionParams]:
    (heads, keys, channels), (_, values, features) = given.key.shape, given.out.shape
    size, bias = abs(given.factor) ** 0.5, given.bias
    layer = Attention(
        features,
        heads=heads,
        key_features=keys,
        value_features=values,
        bias=bias is not None,
        key_std=spreads[given.key.leaf] * (given.key_factor * keys * channels) ** 0.5,
        value_std=spreads[given.value.leaf] * size * channels**0.5,
        out_std=spreads[given.out.leaf] * size * (heads * values) ** 0.5,
        bias_std=1.0 if bias is None else abs(bias[1]) * spreads[bias[0]],
    )
    out = given.out.of(leaves[given.out.leaf]).reshape(heads * values, features).T * np.sign(
        given.factor
    )
    return layer, AttentionParams(
        key=given.key.of(leaves[given.key.leaf]),
        query=None,
        value=given.value.of(leaves[given.value.leaf]),
        out=out,
        bias=None if bias is None else leaves[bias[0]] * np.sign(bias[1]),
    )


def _compare(expected: Any, found: Any) -> None:
    expected, found = np.asarray(expected), np.asarray(found)
    scale = np.abs(expected).max() + np.finfo(np.float64).tiny
    if expected.shape != found.shape or np.abs(found - expected).max() > 1e-9 * scale:
        raise ArithmeticError(
            "the description read from the graph of `f` gives other outputs than `f`; describe "
            "the network by nm.Sequential instead."
        )
