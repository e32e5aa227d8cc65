"""Activation patterns, the linear regions a sample meets, and units with one status on all of
it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, UInt32

from neuromanifold.graph.graph import Graph, Units, trace
from neuromanifold.models.activation import per_neuron
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    check_model,
    check_rows,
    output_size,
)
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import boundary, is_traced, promote, widest
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import check_params, check_sample, refuse_tracers
from neuromanifold.regions.decisions import decide, float_gates
from neuromanifold.regions.signs import is_kinked

_WORD = 32


def activation_patterns(
    f: Model, params: Params, x: Samples, *, exact: bool = False
) -> Bool[Any, "n units"]:
    """Return which units are active at each sample, in the order of computation.
    [complexity, Sec. 3.1]

    A unit of `max(z, 0)` and the like is active where z > 0; each candidate of a maximum (a position
    in a pooling window) is a unit, active where it wins. For an `nm.MLP` the columns are its hidden
    neurons, those without a kink always active. `exact=True` decides by exact arithmetic on the
    host; what is exactly zero is inactive. Works under `jit` and `vmap` when `exact=False`.
    """
    return jnp_or_np_concatenate(patterns_by_layer(f, params, x, exact))


def jnp_or_np_concatenate(layers: list[Any]) -> Any:
    """Return columns side by side, in the arrays' own library."""
    return (np if isinstance(layers[0], np.ndarray) else jnp).concatenate(layers, axis=1)


def patterns_by_layer(f: Any, params: Any, x: Any, exact: bool) -> list[Any]:
    """Return the pattern's columns of a piecewise-linear network, one array for each layer or bend."""
    return _columns(f, params, x, exact, require_piecewise_linear)


def unit_patterns(f: Any, params: Any, x: Any) -> list[Any]:
    """Return the pattern's columns of any network, whatever comes before its bends; signs are those of floating
    point.
    """
    return _columns(f, params, x, False, lambda graph: None)


def _columns(
    f: Any, params: Any, x: Any, exact: bool, require: Callable[[Graph], None]
) -> list[Any]:
    check_params(params)
    x = check_sample(x)
    if exact:
        refuse_tracers((params, x), "`exact=True`")
    check_model(f)
    with boundary(params, x) as leave:
        dtype = np.dtype(np.float64) if exact else widest(params, x)
        params, x = promote(params, dtype), promote(x, dtype)
        output_size(f, params, x)
        check_rows(f, params, x)
        graph = trace(f, params, x, dtype=dtype)
        require(graph)
        gates = decide(graph, params, x).gates if exact else float_gates(graph, params, x)
        return leave(pattern_columns(f, graph, gates, jax.tree.leaves(x)[0].shape[0]))


def require_piecewise_linear(graph: Graph) -> None:
    """Refuse networks that bend on something else than affine functions of the sample; what
    comes after the last bend is free.
    """
    for node in graph.program.nodes:
        found = graph.degrees[node.outputs[0]]
        curved = found.smooth or found.jumps or found.data > 1
        if node.outputs[0] in graph.deciding and curved:
            where = f" ({node.source})" if node.source else ""
            raise ValueError(
                f"`f` uses {node.operation}{where} before a kink, so it is not piecewise linear "
                "and has no linear regions; "
                "use relu, leaky_relu, abs, max-pooling and linear layers."
            )
    if not graph.felt and not graph.before_output().piecewise_linear:
        raise ValueError(
            "`f` has no kinks and is not linear, so it has no linear regions; use relu, "
            "leaky_relu, abs or max-pooling."
        )


def pattern_columns(f: Any, graph: Graph, gates: Any, n: int) -> list[Any]:
    """Return gates as columns, one array for each layer of a perceptron (neurons without a kink
    always on), else for each bend.
    """
    asked = iter([_flat(units, gate, n) for units, gate in zip(graph.units, gates, strict=True)])
    if (net := perceptron(f)) is None:
        return list(asked) or [np.empty((n, 0), bool)]
    return [
        _layer(entry, width, asked, n)
        for entry, width in zip(net.activation, net.widths[1:], strict=False)
    ] or [np.empty((n, 0), bool)]


def _flat(units: Units, gate: Any, n: int) -> Any:
    """Return one column for each unit or candidate; none for what no derivative passes."""
    if units.stopped:
        return gate.reshape(n, -1)[:, :0] > 0
    if units.candidates is None:
        return gate.reshape(n, -1)
    library = np if isinstance(gate, np.ndarray) else jnp
    return (gate[..., None] == library.arange(units.candidates)).reshape(n, -1)


def _layer(entry: Any, width: int, asked: Any, n: int) -> Any:
    """The neurons of a perceptron's layer: each kinked run asks once, the others are always
    active.
    """
    parts = [
        next(asked) if is_kinked(a) else np.ones((n, run.stop - run.start), bool)
        for a, run in per_neuron(entry, width)
    ]
    return parts[0] if len(parts) == 1 else jnp_or_np_concatenate(parts)


def sampled_regions(
    f: Model, params: Params, x: Samples, *, exact: bool = False
) -> int | Int[Any, ""]:
    """Return how many linear regions of `f_θ` the sample meets.   [complexity, Def C.1]

    Two inputs share a region when every unit agrees on them. An `int`; under `jit` and `vmap` a 0-d
    array.

    `exact=True` decides the signs in exact arithmetic.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(jnp.array([[1.0], [1.0]]), jnp.array([0.0, -1.0])), nm.Layer(jnp.ones((1, 2)), jnp.zeros(1)))
    >>> nm.sampled_regions(net, params, jnp.array([[-1.0], [0.5], [0.7], [2.0]]))
    3
    """
    patterns = activation_patterns(f, params, x, exact=exact)
    if is_traced(patterns):
        rows = ordered_patterns(patterns)
        return 1 + (rows[1:] != rows[:-1]).any(axis=1).sum(dtype=jnp.int32)
    return len(np.unique(np.packbits(patterns, axis=1), axis=0)) if patterns.shape[1] else 1


def ordered_patterns(patterns: Bool[Any, "n units"]) -> UInt32[Any, "n words"]:
    """Return the patterns packed into words, equal ones side by side. Traced."""
    padded = jnp.pad(patterns, ((0, 0), (0, -patterns.shape[1] % _WORD))).reshape(
        patterns.shape[0], -1, _WORD
    )
    rows = (padded.astype(jnp.uint32) << jnp.arange(_WORD, dtype=jnp.uint32)).sum(
        axis=-1, dtype=jnp.uint32
    )
    return rows[jnp.lexsort(rows.T)] if rows.shape[1] else rows


@dataclass(frozen=True, repr=False)
class FixedNeurons(Result):
    """Units with one status on the whole sample, by hidden layer of a perceptron, by bend of any
    other network.   [complexity, Sec. 3.1]

    `active[l]` and `inactive[l]` are masks over the units of layer l.
    """

    active: tuple[Any, ...]
    inactive: tuple[Any, ...]

    @property
    def fixed_by_layer(self) -> tuple[Any, ...]:
        """k_l: how many units of each layer are fixed."""
        return tuple(a.sum() + i.sum() for a, i in zip(self.active, self.inactive, strict=True))

    @property
    def total(self) -> Any:
        """How many units are fixed."""
        return sum(self.fixed_by_layer)


jax.tree_util.register_dataclass(FixedNeurons, ("active", "inactive"), ())


def fixed_neurons(f: Model, params: Params, x: Samples, *, exact: bool = False) -> FixedNeurons:
    """Say which units are active on all of the sample, and which on none of it.

    `exact=True` decides the signs in exact arithmetic.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(jnp.array([[1.0], [1.0]]), jnp.array([3.0, -1.0])), nm.Layer(jnp.ones((1, 2)), jnp.zeros(1)))
    >>> nm.fixed_neurons(net, params, jnp.array([[-1.0], [2.0]])).active[0].tolist()
    [True, False]
    """
    layers = [layer for layer in patterns_by_layer(f, params, x, exact) if layer.shape[1]]
    return FixedNeurons(
        tuple(p.all(axis=0) for p in layers), tuple((~p).all(axis=0) for p in layers)
    )
