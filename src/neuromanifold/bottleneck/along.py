"""Ranks along the graph of any network: of its weights, its representations, and the Jacobians
between them.   [bottleneck, Sec. 4]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.bottleneck.structure import BottleneckStructure, bottleneck_structure
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.program import Program
from neuromanifold.graph.uses import NOT_USED, Use, canonical_cotangent, entries, leaves
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import arithmetic, is_floating, promote, widest
from neuromanifold.numerics.rank import Rank, rank_from_spectrum
from neuromanifold.numerics.results import Result, follows
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.runtime.memory import blocks, memory_budget

_ALL_OUTPUTS, _SOME_OUTPUTS = 64, 16
"""Up to so many outputs are all followed back; of more, so many random combinations."""
_LARGEST_BLOCK = 2**18  # entries of a block's Jacobian that is formed: 512×512 takes half a second
_AT_ONCE = 16


@dataclass(frozen=True, repr=False)
class LayerRanks(Result):
    """A product with a parameter W: its singular values, and those of what it gives, α̃(X)/√rows.

    Rows of α̃ are samples and the `positions` that share W (positions of an image, tokens), columns its
    channels. A convolution's W is its kernel as a matrix (out, window·in); of several groups or
    heads W is block-diagonal.
    """

    name: str
    shape: tuple[int, int]
    positions: int
    weight: Rank
    representation: Rank


@dataclass(frozen=True, repr=False)
class CutRanks(Result):
    """A value z of `size` numbers through which all that f knows of its input passes.

    `to_output` is of ∂f/∂z, `block` of ∂z′/∂z with z′ the next cut (f after the last one), None
    where it is too large; each at the sample of the largest rank. `of` is what ∂f/∂z can have at
    most as it was computed: of many outputs a few random combinations are followed back.
    """

    name: str
    size: int
    of: int
    to_output: Rank
    block: Rank | None


@dataclass(frozen=True, repr=False)
class RanksAlong(Result):
    """Layers and cuts in the order of computation; `print` it for a table.

    `structure` is the reading of [bottleneck, Thm 6, Cor 8], whose hypotheses are a plain stack of
    dense layers with |σ'| ≤ 1; elsewhere it is None, `why` says so, and the ranks are a measurement.
    `left_out` are parameters of at least two axes that enter otherwise than by one product.
    """

    layers: tuple[LayerRanks, ...]
    cuts: tuple[CutRanks, ...]
    samples: int
    jacobians_at: int
    structure: BottleneckStructure | None
    why: str
    left_out: tuple[str, ...]

    @property
    def deficient(self) -> tuple[str, ...]:
        """The layers whose weight has less than full rank."""
        return tuple(layer.name for layer in self.layers if int(layer.weight) < min(layer.shape))

    @property
    def narrowest(self) -> LayerRanks | None:
        """The layer whose representation has the smallest rank."""
        return min(self.layers, key=lambda layer: int(layer.representation), default=None)

    def __str__(self) -> str:
        width = max([5, *(len(part.name) for part in (*self.layers, *self.cuts))])
        lines = [
            f"{'layer':<{width}}  {'weight':>13} {'rank':>5} {'stable':>7}   representation, rank "
            "and stable rank"
        ]
        for layer in self.layers:
            shape = f"{layer.shape[0]}×{layer.shape[1]}"
            lines.append(
                f"{layer.name:<{width}}  {shape:>13} {int(layer.weight):5d} "
                f"{stable_rank(layer.weight):7.1f}   {int(layer.representation):5d} "
                f"{stable_rank(layer.representation):7.1f}"
            )
        lines += ["", f"{'cut':<{width}}  {'numbers':>13}   ∂f/∂z        block to the next cut"]
        for cut in self.cuts:
            block = "too large" if cut.block is None else f"rank {int(cut.block)}"
            ahead = f"{int(cut.to_output)} of {cut.of}"
            lines.append(f"{cut.name:<{width}}  {cut.size:13,}   {ahead:<12} {block}")
        lines += ["", str(self.structure) if self.structure is not None else self.why]
        return "\n".join(lines)


def stable_rank(rank: Rank) -> float:
    """Σσ²/σ₁², which no small singular value moves; 0 of a zero matrix."""
    values = np.asarray(rank.spectrum, np.float64)
    return float(((values / values[0]) ** 2).sum()) if values.size and values[0] > 0 else 0.0


@follows
def ranks_along(
    f: Model, params: Params, x: Samples, *, samples: int = 4, memory: int | str | None = None
) -> RanksAlong:
    """Compute ranks and singular values along any network: of its weights, of its representations
    of `x`, and of the Jacobians between its cuts at the first `samples` of them.

    For layer l: W_l, α̃_l(X)/√rows. A cut is a value z that separates input from output: an input of
    a layer, the stream between two blocks of a residual network. There rank Jf(x) ≤ rank ∂f/∂z and
    rank Jf(x) ≤ rank ∂z′/∂z: a cut or a block of rank k bounds the rank of all that is computed.
    In float64; a singular value counts above max(shape)·ε of the largest, ε that of the parameters'
    own precision, and of a weight above ε‖W‖_F, twice what rounding its entries can do: a square
    matrix of random float32 numbers has full rank. Representations are streamed over `x`, within `memory`.

    >>> from neuromanifold.bottleneck import ranks_along
    >>> f = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
    >>> found = ranks_along(f, {"in": np.ones((3, 4)), "out": np.eye(4, 2)}, np.ones((5, 3)))
    >>> [int(layer.weight) for layer in found.layers], [int(cut.to_output) for cut in found.cuts]
    ([1, 2], [1, 2])
    """
    refuse_tracers((params, x), "`ranks_along`")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(
            f"`samples` is {samples!r}; pass the number of samples at which Jacobians are taken."
        )
    budget, eps = memory_budget(memory), float(jnp.finfo(widest(params)).eps)
    structure, why = _reading(f, params, x)
    with arithmetic():
        check_arguments(f, params, x)
        params, x = promote(params, np.float64), jax.tree.map(_wide, x)
        layout = _layout(trace(f, params, x, whole=True))
        layers = _layers(layout, params, x, budget, eps)
        first = jax.tree.map(lambda a: a[:samples], x)
        cuts = _cuts(layout, params, first, eps)
    return RanksAlong(
        layers,
        cuts,
        leading_axis(x),
        leading_axis(first),
        structure,
        why,
        layout.left_out,
    )


def _wide(leaf: Any) -> Any:
    return np.asarray(leaf, np.float64) if is_floating(leaf) else np.asarray(leaf)


def _reading(f: Model, params: Any, x: Any) -> tuple[BottleneckStructure | None, str]:
    if (net := perceptron(f)) is None:
        return None, (
            "measured only: the theorems about bottlenecks are about plain stacks of dense layers"
        )
    try:
        return bottleneck_structure(net, params, x), ""
    except ValueError as refusal:
        return None, f"measured only: {str(refusal).partition(';')[0]}"


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where the layers and cuts of a graph are; `parts` are the programs from cut to cut."""

    graph: Graph
    uses: tuple[tuple[str, int, Use], ...]
    left_out: tuple[str, ...]
    cuts: tuple[int, ...]
    parts: tuple[Program, ...]

    @property
    def program(self) -> Program:
        return self.graph.program


@lru_cache(maxsize=64)
def _layout(graph: Graph) -> _Layout:
    program, uses, left_out = graph.program, [], []
    order = {node.outputs[0]: k for k, node in enumerate(program.nodes)}
    for i, leaf in enumerate(leaves(program, len(graph.parameters))):
        for k, use in enumerate(leaf.uses):
            place = f" {k + 1} of {len(leaf.uses)}" if len(leaf.uses) > 1 else ""
            uses.append((f"{graph.parameters[i]}{place}", i, use))
        if not leaf.uses and leaf.why != NOT_USED and len(program.values[leaf.value].shape) > 1:
            left_out.append(f"{graph.parameters[i]}: {leaf.why}")
    uses.sort(key=lambda entry: order[entry[2].output])
    cuts = _cut_values(graph, {use.output for *_, use in uses})
    ends = (*cuts, None)[1:]
    parts = tuple(_between(graph, start, end) for start, end in zip(cuts, ends, strict=True))
    return _Layout(graph, tuple(uses), tuple(left_out), cuts, parts)


def _cut_values(graph: Graph, products: set[int]) -> tuple[int, ...]:
    """The last value before each layer that alone holds what is known of the data."""
    program = graph.program
    data = program.inputs[len(graph.parameters) :]
    moving, alive, candidate, found = program.depending(data), set(data), None, []
    for node, dying in zip(program.nodes, program.last_uses(), strict=True):
        [only] = alive if len(alive) == 1 else [None]
        candidate = only if only is not None and program.values[only].real else candidate
        if node.outputs[0] in products and candidate is not None and candidate not in found:
            found.append(candidate)
        alive = (alive | (moving & set(node.outputs))) - set(dying)
    return tuple(i for i in found if i not in program.outputs)


def _between(graph: Graph, start: int, end: int | None) -> Program:
    """(params, value `start`) ↦ value `end`, or the outputs."""
    program, parameters = graph.program, graph.program.inputs[: len(graph.parameters)]
    part = program.slice(program.outputs if end is None else (end,))
    moving = program.depending(program.inputs[len(graph.parameters) :])
    beyond = program.depending((start,))
    nodes = tuple(
        node
        for node in part.nodes
        if start not in node.outputs
        and (moving.isdisjoint(node.outputs) or not beyond.isdisjoint(node.outputs))
    )
    return replace(part, nodes=nodes, inputs=(*parameters, start))


def _layers(
    layout: _Layout, params: Any, x: Any, budget: int, eps: float
) -> tuple[LayerRanks, ...]:
    triangles: list[Any] = [None] * len(layout.uses)
    for signals in _stream_products(layout, params, x, budget):
        for k, rows in enumerate(signals):
            R = rows if triangles[k] is None else np.concatenate([triangles[k], rows])
            triangles[k] = np.linalg.qr(R, mode="r") if len(R) > R.shape[1] else R
    found, flat = [], jax.tree.leaves(params)
    for (name, leaf, use), R in zip(layout.uses, triangles, strict=True):
        W, rows = _weight(layout.program, flat[leaf], leaf, use), leading_axis(x)
        outer, inner = W.shape[0] * W.shape[1], W.shape[0] * W.shape[2]
        values = np.sort(np.linalg.svd(W, compute_uv=False).ravel())[::-1]
        scale = math.sqrt(rows * use.all_positions)
        found.append(
            LayerRanks(
                name,
                (outer, inner),
                use.all_positions,
                _rank_of_weight(values, (outer, inner), eps),
                _rank_of(np.linalg.svd(R / scale, compute_uv=False), R.shape, eps),
            )
        )
    return tuple(found)


def _rank_of_weight(values: np.ndarray, shape: tuple[int, int], eps: float) -> Rank:
    """Return the rank of W, whose entries are known to half an ε of themselves: whatever was
    rounded to W differs from it by at most ε‖W‖_F/2 in any singular value.
    """
    rounding = eps * float(np.linalg.norm(values)) / (float(values.max(initial=0.0)) or 1.0)
    return _rank_of(values, shape, max(rounding / max(1, *shape), np.finfo(np.float64).eps))


def _rank_of(values: np.ndarray, shape: Sequence[int], eps: float) -> Rank:
    found = rank_from_spectrum(values, (shape[0], shape[1]), max(1, *shape) * eps)
    value, spectrum, threshold, gap = map(
        np.asarray, (found.value, found.spectrum, found.threshold, found.gap)
    )
    return Rank(value, spectrum, threshold, gap)


def _weight(program: Program, leaf: Any, index: int, use: Use) -> np.ndarray:
    """W[b, c, k], in the arrangement of the product."""
    arranged = np.ravel(leaf)[entries(program, program.inputs[index], use.path)]
    return use.product.weight(use.node.options, use.operand, use.sizes, arranged)


def _stream_products(
    layout: _Layout, params: Any, x: Any, budget: int
) -> Iterator[list[np.ndarray]]:
    """The products at some samples after the other, as (samples·positions, channels)."""
    program = layout.program
    moving = program.depending(program.inputs[len(layout.graph.parameters) :])
    each = 8 * sum(math.prod(program.values[i].shape) for i in moving)
    n, most = leading_axis(x), max(1, min(_AT_ONCE, budget // (2 * max(1, each))))
    size = next(blocks(n, most)).stop
    for start in range(0, n, size):
        at = np.minimum(np.arange(start, start + size), n - 1)
        found = _signals(layout, params, jax.tree.map(lambda a, at=at: a[at], x))
        kept = min(size, n - start)
        yield [np.asarray(a)[:kept].reshape(-1, a.shape[-1]) for a in found]


@compiled("layout")
def _signals(layout: _Layout, params: Any, x: Any) -> list[Any]:
    program = layout.program
    wanted = list(dict.fromkeys(p.output for *_, use in layout.uses for p in use.products))

    def one(sample: Any) -> list[Any]:
        inputs = [*jax.tree.leaves(params), *jax.tree.leaves(sample)]
        results = interpret(program, inputs, None, wanted=wanted)[len(program.outputs) :]
        known = dict(zip(wanted, results, strict=True))
        return [_canonical(use, known) for *_, use in layout.uses]

    return jax.vmap(one)(x)


def _canonical(use: Use, known: dict[int, Any]) -> Any:
    """y as (positions, groups·channels)."""
    parts = [canonical_cotangent(part, known[part.output][None])[0] for part in use.products]
    y = jnp.concatenate(parts, axis=1)
    return jnp.moveaxis(y, 0, 1).reshape(y.shape[1], -1)


def _cuts(layout: _Layout, params: Any, x: Any, eps: float) -> tuple[CutRanks, ...]:
    if not layout.cuts:
        return ()
    program, outputs = layout.program, layout.graph.outputs
    if outputs <= _ALL_OUTPUTS:
        rows = np.eye(outputs)
    else:
        rows = np.random.default_rng(0).normal(size=(_SOME_OUTPUTS, outputs)) / math.sqrt(outputs)
    values, ahead = _to_output(layout, params, x, rows)
    found = []
    for k, (cut, z, J) in enumerate(zip(layout.cuts, values, ahead, strict=True)):
        shape = [side for side in program.values[cut].shape if side > 1]
        size = math.prod(shape)
        end = values[k + 1][0].size if k + 1 < len(layout.cuts) else outputs
        block = None
        if size * end <= _LARGEST_BLOCK:
            block = _highest(np.asarray(_block(layout, k, params, z)), eps)
        name = f"{_maker_of(program, cut)} {'×'.join(map(str, shape or [1]))}"
        found.append(
            CutRanks(name, size, min(len(rows), size), _highest(np.asarray(J), eps), block)
        )
    return tuple(found)


def _maker_of(program: Program, value: int) -> str:
    if value in program.inputs:
        return "input"
    return next(node.operation for node in program.nodes if value in node.outputs)


def _highest(J: np.ndarray, eps: float) -> Rank:
    """Of the sample with the largest rank, and among these the widest gap."""
    spectra = np.linalg.svd(J, compute_uv=False)
    return max(
        (_rank_of(values, J.shape[1:], eps) for values in spectra),
        key=lambda rank: (int(rank), float(rank.gap)),
    )


@compiled("layout")
def _to_output(layout: _Layout, params: Any, x: Any, rows: Any) -> tuple[list[Any], list[Any]]:
    """The values of all cuts, and ∂(rows·f)/∂z of each, (n, rows, size)."""
    program, leaves = layout.program, jax.tree.leaves(params)
    inner = [i for i in layout.cuts if i not in program.inputs]

    def one(sample: Any) -> tuple[list[Any], list[Any]]:
        data = dict(zip(program.inputs[len(leaves) :], jax.tree.leaves(sample), strict=True))

        def output(moved: dict[int, Any]) -> tuple[Any, list[Any]]:
            given = [*leaves, *(moved.get(i, a) for i, a in data.items())]
            added = {i: moved[i] for i in inner}
            results = interpret(program, given, None, added=added, wanted=layout.cuts)
            count = len(program.outputs)
            return jnp.concatenate([v.ravel() for v in results[:count]]), results[count:]

        start = {
            i: data[i] if i in data else jnp.zeros(program.values[i].shape) for i in layout.cuts
        }
        _, pull, values = jax.vjp(output, start, has_aux=True)
        (moved,) = jax.vmap(pull)(rows)
        return values, [moved[i].reshape(len(rows), -1) for i in layout.cuts]

    return jax.lax.map(one, x)


@compiled("layout", "k")
def _block(layout: _Layout, k: int, params: Any, z: Any) -> Any:
    """∂z′/∂z from a cut to the next, (n, size′, size), the shorter way round."""
    part, leaves = layout.parts[k], jax.tree.leaves(params)

    def onward(z: Any) -> Any:
        return jnp.concatenate([v.ravel() for v in interpret(part, [*leaves, z], None)])

    def one(z: Any) -> Any:
        size = sum(math.prod(part.values[i].shape) for i in part.outputs)
        J = jax.jacrev(onward)(z) if size < z.size else jax.jacfwd(onward)(z)
        return J.reshape(size, -1)

    return jax.vmap(one)(z)
