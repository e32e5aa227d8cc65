"""From a finite network to the description of its limit: `nm.describe`.

The network's graph is read as layers: each value is the data after some layers, an entrywise
function of that, or a parameter. LayerNorm and attention are recognised by what they compute, since
no two libraries write them with the same operations: a part of the graph is evaluated at random
values and compared with each layer that it could be. A graph that means something else does not
agree to nine digits.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import prod
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.primitives import EXP, Kind, LayerPart
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.reading import call
from neuromanifold.graph.selection import select
from neuromanifold.models.activation import BUILT_IN, Activation
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.init import Layer
from neuromanifold.models.layers.attention import Attention, AttentionParams
from neuromanifold.models.layers.branches import Elementwise, Residual, Sum
from neuromanifold.models.layers.conv import Conv
from neuromanifold.models.layers.dense import Dense
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.models.layers.pooling import AvgPool, Flatten, GlobalAvgPool
from neuromanifold.models.layers.windows import margins
from neuromanifold.models.sequential import Sequential
from neuromanifold.numerics.precision import arithmetic, is_floating


@dataclass(frozen=True)
class Weights:
    """A weight layer in the making. `axes` bring the leaf to (features, channels, *window);
    `bias` is (leaf, factor).
    """

    leaf: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    factor: float = 1.0
    bias: tuple[int, float] | None = None
    strides: tuple[int, ...] = ()
    padding: str = "VALID"

    @property
    def fan_in(self) -> int:
        """Channels times the size of the window."""
        return prod(self.shape[1:])

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the layer owns."""
        return (self.leaf, *(() if self.bias is None else self.bias[:1]))

    @property
    def plain(self) -> bool:
        """Whether the leaves enter without factors."""
        return self.factor == 1 and (self.bias is None or self.bias[1] == 1)


@dataclass(frozen=True)
class Arranged:
    """A leaf read as (heads, width, channels): cut into three axes, then transposed."""

    leaf: int
    split: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(heads, width, channels)."""
        return tuple(self.split[a] for a in self.axes)

    def of(self, leaf: Any) -> Any:
        """The leaf's numbers in that order."""
        return leaf.reshape(self.split).transpose(self.axes)


@dataclass(frozen=True)
class Heads:
    """Attention whose queries are its keys: softmax(φ XKᵀKXᵀ) XVᵀO ψ + β b; `out` is read as
    (heads, width, features).
    """

    key: Arranged
    value: Arranged
    out: Arranged
    key_factor: float
    factor: float
    bias: tuple[int, float] | None

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the layer owns."""
        return (
            self.key.leaf,
            self.value.leaf,
            self.out.leaf,
            *(() if self.bias is None else self.bias[:1]),
        )

    @property
    def plain(self) -> bool:
        """Whether the leaves enter without factors, but for 1/width of the keys; factors are
        known to rounding.
        """
        factors = (
            self.key_factor * self.key.shape[1],
            self.factor,
            1.0 if self.bias is None else self.bias[1],
        )
        return max(abs(factor - 1) for factor in factors) < 1e-12


@dataclass(frozen=True)
class Fork:
    """A sum of two branches; an empty one is the input itself."""

    branches: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, eq=False)
class Step:
    """The data after one more layer; two values that share a step share all layers up to it."""

    before: "Step | None" = None
    layer: Any = None

    def back(self) -> list["Step"]:
        """This step and all before it."""
        return [self, *(() if self.before is None else self.before.back())]

    def since(self, earlier: "Step") -> tuple[Any, ...]:
        """The layers after an earlier step."""
        steps = self.back()
        return tuple(step.layer for step in reversed(steps[: steps.index(earlier)]))


@dataclass(frozen=True)
class Data:
    """An entrywise function of the value `source`, which is the data after `step`."""

    step: Step
    source: int


@dataclass(frozen=True)
class Parameter:
    """A leaf times a factor, its axes in that order; `spread` where it was broadcast along the
    channels.
    """

    leaf: int
    factor: float
    axes: tuple[int, ...]
    spread: bool = False


@dataclass(frozen=True)
class Padded:
    """Zeros around the data."""

    step: Step
    widths: tuple[tuple[int, int], ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Unread:
    """Something computed from the data after `step`, or from parameters alone, that no layer known
    here is; `why` says what stood in
    the way. A later value may turn out to be a layer as a whole."""

    step: "Step | None"
    why: ValueError


@dataclass(frozen=True)
class Total:
    """A sum over `count` positions, on its way to a mean."""

    step: Step
    layer: Any
    count: int


_RTOL = 1e-9
_SCALES = (1.0, 1e-3)


class Region:
    """What the graph computes between two of its values: a function of the first and of some
    leaves.
    """

    def __init__(self, program: Program, start: int, end: int):
        self.program, self.start, self.end = program, start, end
        self.sample = program.inputs[-1]
        self.nodes = self._between()
        taken = {i for node in self.nodes for i in node.inputs}
        self.leaves = tuple(leaf for leaf, i in enumerate(program.inputs[:-1]) if i in taken)
        self.constants = [program.constants[i] for i in sorted(taken) if i in program.constants]

    def _between(self) -> list[Node]:
        needed, kept = {self.end}, []
        for node in reversed(self.program.nodes):
            if needed & set(node.outputs) - {self.start}:
                kept.append(node)
                needed |= set(node.inputs)
        return kept[::-1]

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.program.values[i].shape)

    def leaf_shape(self, leaf: int) -> tuple[int, ...]:
        """The shape of a leaf."""
        return self.shape(self.program.inputs[leaf])

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of one sample at the start."""
        return self.shape(self.start) if self.start == self.sample else self.shape(self.start)[1:]

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of one sample at the end, if the end has an axis for the one sample."""
        whole = self.shape(self.end)
        return whole[1:] if whole[:1] == (1,) else ()

    def reaching(self, end: int) -> "Region":
        """The part up to another value."""
        return Region(self.program, self.start, end)

    def __call__(self, z: np.ndarray, leaves: dict[int, np.ndarray]) -> np.ndarray:
        """The end's value, with z in the place of the start."""
        known: dict[int, Any] = {self.program.inputs[leaf]: value for leaf, value in leaves.items()}
        known[self.start] = z.reshape(self.shape(self.start))
        for node in self.nodes:
            found = node.evaluate(
                *(known[i] if i in known else self.program.constants[i] for i in node.inputs)
            )
            known |= dict(zip(node.outputs, found, strict=True))
        return np.asarray(known[self.end])


def recognise(region: Region) -> LayerNorm | Heads | None:
    """The layer that this part of the graph is, or `None`."""
    if not region.nodes or not region.after or not region.program.values[region.end].real:
        return None
    return _heads(region) if region.leaves else _layer_norm(region)


def _agree(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max() <= _RTOL * np.abs(expected).max())


def _layer_norm(region: Region) -> LayerNorm | None:
    """Normalisation over the channels or over everything, with one of the constants of this part
    as its ε.
    """
    if region.after != region.before:
        return None
    rng = np.random.default_rng(0)
    drawn = [scale * rng.standard_normal((1, *region.before)) for scale in _SCALES]
    found = [region(z, {}).reshape(z.shape) for z in drawn]
    small = {float(c.ravel()[0]) for c in region.constants if c.size == 1 and c.dtype.kind == "f"}
    for positions, eps in product((False, True), [*sorted(e for e in small if 0 < e < 0.1), 0.0]):
        layer = LayerNorm(positions=positions, eps=eps)
        if all(
            _agree(f, np.asarray(layer.apply((), z, "ntk")))
            for f, z in zip(found, drawn, strict=True)
        ):
            return layer
    return None


def _heads(region: Region) -> Heads | None:
    """softmax(φ XKᵀKXᵀ) X Vᵀ Oᵀ ψ + β b over all positions, with the leaves K, V, O, b in any
    layout.
    """
    exponential = next((node for node in region.nodes if node.primitive is EXP), None)
    if exponential is None or len(region.before) < 2 or region.after[:-1] != region.before[:-1]:
        return None
    weights = region.reaching(exponential.inputs[0])
    others = [leaf for leaf in region.leaves if leaf not in weights.leaves]
    biases = [leaf for leaf in others if len(region.leaf_shape(leaf)) == 1]
    matrices = [leaf for leaf in others if leaf not in biases]
    places = prod(region.before[:-1])
    heads, rest = divmod(prod(region.shape(exponential.inputs[0])), places**2)
    if len(weights.leaves) == 2 and len(others) >= 2:
        raise ValueError(
            "`f` has attention with independent queries and keys, whose weights stay random at "
            "infinite width, so that the outputs "
            "are no Gaussian process; use one leaf for both."
        )
    if len(weights.leaves) != 1 or len(biases) > 1 or len(matrices) != 2 or rest or not heads:
        return None
    return _Search(region, weights, heads).run(weights.leaves[0], matrices, biases)


@dataclass(frozen=True)
class _Search:
    region: Region
    weights: Region
    heads: int

    def run(self, key: int, matrices: list[int], biases: list[int]) -> Heads | None:
        rng = np.random.default_rng(1)
        leaves = {
            i: 0.5 * rng.standard_normal(self.region.leaf_shape(i))
            for i in (key, *matrices, *biases)
        }
        z = rng.standard_normal(self.region.before)
        x = z.reshape(-1, z.shape[-1])
        without = leaves | {b: np.zeros_like(leaves[b]) for b in biases}
        expected = self.region(z, without).reshape(len(x), -1)
        offset = self.region(z, leaves).reshape(len(x), -1) - expected
        bias = _bias(offset, leaves, biases)
        if biases and bias is None:
            return None
        exponents = self.weights(z, leaves)
        for keys in _projections(key, leaves[key].shape, self.heads, x.shape[1]):
            projected = np.einsum("pc,hkc->hpk", x, keys.of(leaves[key]))
            for factor, attention in _softmaxes(projected @ projected.swapaxes(1, 2), exponents):
                found = self.outputs(attention, x, matrices, leaves, expected)
                if found is not None:
                    return Heads(keys, *found[:2], key_factor=factor, factor=found[2], bias=bias)
        return None

    def outputs(
        self,
        attention: np.ndarray,
        x: np.ndarray,
        matrices: list[int],
        leaves: Any,
        expected: np.ndarray,
    ) -> tuple[Arranged, Arranged, float] | None:
        """Which matrix holds the values and which the output's weights, and the factor ψ."""
        features = expected.shape[1]
        for value, out in (matrices, matrices[::-1]):
            for values in _projections(value, leaves[value].shape, self.heads, x.shape[1]):
                mixed = np.einsum("hpq,qc,hvc->phv", attention, x, values.of(leaves[value]))
                for outs in _projections(out, leaves[out].shape, self.heads, features):
                    weight = outs.of(leaves[out])
                    if weight.shape[1] != mixed.shape[2]:
                        continue
                    plain = np.einsum("phv,hvf->pf", mixed, weight)
                    factor = float((plain * expected).sum() / (plain**2).sum())
                    if factor and _agree(factor * plain, expected):
                        return values, outs, factor
        return None


def _bias(
    offset: np.ndarray, leaves: dict[int, np.ndarray], biases: list[int]
) -> tuple[int, float] | None:
    """The leaf that is added at every position, and its factor."""
    for leaf in biases:
        given = leaves[leaf]
        factor = (
            float(offset[0] @ given / (given @ given)) if given.shape == offset.shape[1:] else 0.0
        )
        if factor and _agree(offset, np.broadcast_to(factor * given, offset.shape)):
            return leaf, factor
    return None


def _softmaxes(products: np.ndarray, exponents: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """softmax(φ·products) for the factors φ under which the exponents, less their largest or as
    they are, have the right sum.
    """
    for level in (products.max(axis=-1, keepdims=True), 0.0):
        factor = float(exponents.sum() / (products - level).sum())
        if factor > 0:
            powers = np.exp(factor * (products - products.max(axis=-1, keepdims=True)))
            yield factor, powers / powers.sum(axis=-1, keepdims=True)


def _projections(
    leaf: int, shape: tuple[int, ...], heads: int, channels: int
) -> Iterator[Arranged]:
    """The ways to read a leaf as (heads, width, channels)."""
    splits = {shape} if len(shape) == 3 else set()
    if len(shape) == 2:
        for axis, size in enumerate(shape):
            if size % heads == 0:
                pairs = ((heads, size // heads), (size // heads, heads))
                splits |= {(*shape[:axis], *pair, *shape[axis + 1 :]) for pair in pairs}
    for split, axes in product(sorted(splits), permutations(range(3))):
        arranged = Arranged(leaf, split, axes)
        if (arranged.shape[0], arranged.shape[2]) == (heads, channels):
            yield arranged


class Unreadable(ValueError):
    """An operation that is no part of a layer by itself."""


class Reader:
    """One pass over the graph of a network for one sample, channels last."""

    def __init__(self, graph: Graph):
        self.program, self.names = graph.program, graph.parameters
        *leaves, sample = self.program.inputs
        self.uses = Counter(i for node in self.program.nodes for i in node.inputs)
        self.root = Step()
        self.ends: dict[int, Step] = {}
        self.places: dict[Step, int] = {self.root: sample}
        self.known: dict[int, Any] = {sample: Data(self.root, sample)}
        for leaf, i in enumerate(leaves):
            self.known[i] = Parameter(leaf, 1.0, tuple(range(len(self.shape(i)))))

    def read(self) -> tuple[Any, ...]:
        """The layers from the sample to the output."""
        for node in self.program.nodes:
            self.known |= dict.fromkeys(node.outputs, self.after(node))
        (output,) = self.program.outputs
        return self.end(output, self.program.nodes[-1]).since(self.root)

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.program.values[i].shape)

    def refuse(self, node: Node, why: str) -> NoReturn:
        """Say which operation has no meaning here."""
        where = f" ({node.source})" if node.source else ""
        raise Unreadable(
            f"`f` uses {node.operation}{where}, which {why}; describe the network by "
            "nm.Sequential instead."
        )

    def after(self, node: Node) -> Any:
        """What a node's result is."""
        given = [self.known.get(i) for i in node.inputs]
        unread = next((v for v in given if isinstance(v, Unread)), None)
        try:
            return self.ruled(node, given) if unread is None else self.whole(node, unread.why)
        except Unreadable as why:
            return self.whole(node, why)

    def whole(self, node: Node, why: ValueError) -> Data | Unread:
        """The layer that all since the last step shared by the inputs amounts to, if it does."""
        origins = [self.origin(i, node) for i in node.inputs]
        steps = [step for step in origins if step is not None]
        if not steps:
            return Unread(None, why)
        common = next(
            step for step in steps[0].back() if all(step in other.back() for other in steps)
        )
        return self.layer(node, common) or Unread(common, why)

    def layer(self, node: Node, before: Any) -> Data | None:
        """The node's result as the data after a layer that is recognised by what it computes."""
        found = recognise(Region(self.program, self.places[before], node.outputs[0]))
        return None if found is None else self.ending(node, before, found)

    def origin(self, i: int, node: Node) -> Step | None:
        """The last step before a value; `None` for parameters and constants."""
        match self.known.get(i):
            case Data():
                return self.end(i, node)
            case Unread(step=step) | Padded(step=step) | Total(step=step):
                return step
        return None

    def ruled(self, node: Node, given: list[Any]) -> Any:
        """What a node's result is by the rule for its operation."""
        kinds = [type(v) for v in given if v is not None]
        if kinds and all(kind is Parameter for kind in kinds) and len(kinds) == 1:
            return self.parameter(node, next(v for v in given if v is not None))
        total = next((v for v in given if isinstance(v, Total)), None)
        if total is not None:
            return self.mean(node, total)
        rule = _RULES.get(node.primitive.layer)
        if rule is not None:
            return rule(self, node)
        if node.primitive.entrywise:
            return self.entrywise(node, given)
        self.refuse(node, "has no infinite-width limit that is known here")

    def parameter(self, node: Node, given: Parameter) -> Parameter:
        """A parameter, rearranged or multiplied by a number."""
        if node.primitive.layer is LayerPart.TRANSPOSE:
            return replace(given, axes=tuple(given.axes[a] for a in node.options["permutation"]))
        factor = self.factor(node, [self.known.get(i) for i in node.inputs])
        if factor is not None:
            return replace(given, factor=given.factor * factor)
        shape = self.shape(node.outputs[0])
        if node.primitive.layer is LayerPart.COPY:
            return given
        same_size = prod(shape) == prod(self.shape(node.inputs[0]))
        if node.primitive.layer is LayerPart.RESHAPE and same_size:
            return replace(given, spread=True)
        self.refuse(
            node,
            f"rearranges the parameter {self.names[given.leaf]} in a way that is not understood",
        )

    def number(self, node: Node, at: int) -> float:
        """The one number that a constant holds."""
        constant = self.program.constants.get(node.inputs[at])
        if constant is None or np.ptp(constant) != 0:
            self.refuse(node, "multiplies by something that is not one number")
        return float(np.ravel(constant)[0])

    def end(self, i: int, node: Node) -> Step:
        """The data at a value as a step, with the entrywise function since the last one as an
        activation.
        """
        given = self.known.get(i)
        if isinstance(given, Unread):
            raise given.why
        if not isinstance(given, Data):
            self.refuse(node, "takes something that is no layer's output")
        if i == given.source:
            return given.step
        if i not in self.ends:
            found = self.activation(given.source, i)
            self.ends[i] = (
                given.step if found.name == "identity" else Step(given.step, Elementwise(found))
            )
            self.places.setdefault(self.ends[i], i)
        return self.ends[i]

    def activation(self, source: int, i: int) -> Activation:
        """The scalar function from one value to the other; the library's own where it is one of
        those.
        """
        program = self.program.slice([i])
        reached = program.depending([source])
        nodes = [node for node in program.nodes if not reached.isdisjoint(node.inputs)]

        def fn(z: Any) -> Any:
            known = {source: jnp.asarray(z)}

            def read(j: int) -> Any:
                constant = program.constants.get(j)
                if j in known or constant is None:
                    return known[j]
                dtype = known[source].dtype if program.values[j].real else constant.dtype
                return jnp.full(known[source].shape, np.ravel(constant)[0], dtype)

            for node in nodes:
                known[node.outputs[0]] = node.evaluate(*map(read, node.inputs))[0]
            return known[i]

        z = np.linspace(-3.0, 3.0, 61)
        for known in BUILT_IN.values():
            if np.allclose(known(z), fn(z), rtol=1e-14, atol=1e-15):
                return known
        return Activation(fn, name=nodes[-1].operation)

    def entrywise(self, node: Node, given: list[Any]) -> Data:
        """An entrywise function of one step, a bias, a factor of weights, or a sum of branches."""
        data = [v for v in given if isinstance(v, Data)]
        biases = [v for v in given if isinstance(v, Parameter)]
        if len(data) + len(biases) < sum(v is not None for v in given):
            self.refuse(node, "takes something that is no layer's output")
        if biases:
            return self.biased(node, data, biases)
        if len({v.source for v in data}) > 1:
            return self.forked(node)
        for i, v in zip(node.inputs, given, strict=True):
            if v is None and np.ptp(self.program.constants[i]) != 0:
                self.refuse(
                    node, "combines the data with constants that differ from entry to entry"
                )
        factor = self.factor(node, given)
        weights, source = data[0].step.layer, data[0].source
        is_open = isinstance(weights, Weights | Heads) and weights.bias is None
        if factor is not None and is_open and source in node.inputs and self.uses[source] == 1:
            return self.ending(
                node, data[0].step.before, replace(weights, factor=weights.factor * factor)
            )
        return data[0]

    def factor(self, node: Node, given: list[Any]) -> float | None:
        """The number by which the node multiplies its one value, if it does."""
        if node.primitive.kind is Kind.DIVIDES and given[1] is None:
            return 1 / self.number(node, 1)
        if node.primitive.kind is Kind.MULTIPLIES and node.primitive.entrywise and None in given:
            return self.number(node, given.index(None))
        return None

    def biased(self, node: Node, data: list[Data], biases: list[Parameter]) -> Data:
        """A bias added to the product of weights, or to a sum that ends with one."""
        step, bias = data[0].step if len(data) == 1 else Step(), biases[0]
        features = self.shape(node.outputs[0])[-1]
        fits = node.primitive.signs == (1, 1) and len(biases) == 1
        fits = fits and self.shape(self.program.inputs[bias.leaf]) == (features,)
        owner = _with_bias(step.layer, (bias.leaf, bias.factor))
        if not fits or owner is None or data[0].source not in node.inputs:
            self.refuse(
                node,
                f"uses the parameter {self.names[bias.leaf]} as neither weight nor bias of a layer",
            )
        return self.ending(node, step.before, owner)

    def forked(self, node: Node) -> Data:
        """A sum of two branches from the last step that they share."""
        if node.primitive.signs != (1, 1):
            self.refuse(node, "combines branches other than by a sum")
        ends = [self.end(i, node) for i in node.inputs]
        common = next(step for step in ends[0].back() if step in ends[1].back())
        return self.ending(node, common, Fork(tuple(end.since(common) for end in ends)))

    def ending(self, node: Node, before: Any, layer: Any) -> Data:
        """The node's result as the data after a layer."""
        step = Step(before, layer)
        self.places[step] = node.outputs[0]
        return Data(step, node.outputs[0])

    def mean(self, node: Node, total: Total) -> Data:
        """A sum divided by how many it adds."""
        factor = self.factor(node, [self.known.get(i) for i in node.inputs])
        if factor is None:
            self.refuse(node, "uses a sum over positions that is not divided by their number")
        if abs(factor * total.count - 1) > 1e-12:
            self.refuse(node, f"divides a sum over {total.count} positions by another number")
        return self.ending(node, total.step, total.layer)

    def product(self, node: Node) -> Data:
        """data · weights."""
        (contracted, (batch, _)) = node.options["dimension_numbers"]
        left, right = (self.known.get(i) for i in node.inputs)
        axis = len(self.shape(node.inputs[0])) - 1
        if (
            not isinstance(left, Data)
            or not isinstance(right, Parameter)
            or tuple(contracted[0]) != (axis,)
            or batch
        ):
            self.refuse(node, "is no product of data, channels last, with a parameter")
        inner = contracted[1][0]
        if len(right.axes) != 2 or right.spread:
            self.refuse(node, "multiplies with a parameter that is no matrix")
        axes = (right.axes[1 - inner], right.axes[inner])
        return self.weighted(node, self.end(node.inputs[0], node), right, axes)

    def weighted(
        self, node: Node, before: Step, given: Parameter, axes: tuple[int, ...], **options: Any
    ) -> Data:
        """The data behind new weights."""
        leaf = self.shape(self.program.inputs[given.leaf])
        shape = tuple(leaf[a] for a in axes)
        return self.ending(node, before, Weights(given.leaf, axes, shape, given.factor, **options))

    def convolution(self, node: Node) -> Data:
        """Channels last; no groups, no dilation; margins of zeros as `SAME` or `VALID` has them."""
        options, given = node.options, self.known.get(node.inputs[1])
        numbers, axes = options["dimension_numbers"], len(self.shape(node.inputs[0])) - 2
        last = (0, axes + 1, *range(1, axes + 1))
        plain = options["feature_group_count"] == options["batch_group_count"] == 1
        plain = plain and set((*options["lhs_dilation"], *options["rhs_dilation"])) == {1}
        if (
            not plain
            or not isinstance(given, Parameter)
            or (tuple(numbers.lhs_spec), tuple(numbers.out_spec)) != (last, last)
        ):
            self.refuse(node, "is no plain convolution with channels last")
        step, size, widths = self.surrounded(node, options["padding"])
        axes_of = tuple(given.axes[a] for a in numbers.rhs_spec)
        window = [self.shape(self.program.inputs[given.leaf])[a] for a in axes_of[2:]]
        strides = tuple(options["window_strides"])
        padding = self.padding(node, size, window, strides, widths)
        return self.weighted(node, step, given, axes_of, strides=strides, padding=padding)

    def surrounded(
        self, node: Node, padding: Any
    ) -> tuple[Step, tuple[int, ...], list[tuple[int, int]]]:
        """The data before any margins, its positions, and the margins in all."""
        given, own = self.known.get(node.inputs[0]), [(int(a), int(b)) for a, b in padding]
        if isinstance(given, Padded):
            return (
                given.step,
                given.size,
                [(a + c, b + d) for (a, b), (c, d) in zip(given.widths, own, strict=True)],
            )
        return self.end(node.inputs[0], node), self.shape(node.inputs[0])[1:-1], own

    def padding(self, node: Node, size: Any, window: Any, strides: Any, widths: Any) -> str:
        """The name of the margins."""
        for name in ("VALID", "SAME"):
            if list(widths) == [
                margins(*each, name) for each in zip(size, window, strides, strict=True)
            ]:
                return name
        self.refuse(node, f"has margins {widths}, which are neither SAME nor VALID")

    def pad(self, node: Node) -> Padded:
        """Read zeros around the positions."""
        config = [tuple(map(int, c)) for c in node.options["padding_config"]]
        inside = config[0] == config[-1] == (0, 0, 0) and all(
            c[2] == 0 and min(c) >= 0 for c in config
        )
        if not inside or self.number(node, 1) != 0:
            self.refuse(node, "pads with something else than zeros around the positions")
        widths = tuple((before, after) for before, after, _ in config[1:-1])
        return Padded(self.end(node.inputs[0], node), widths, self.shape(node.inputs[0])[1:-1])

    def window_sum(self, node: Node) -> Total:
        """A sum over windows of positions."""
        options = node.options
        (first, *window, last), (_, *strides, _) = (
            options["window_dimensions"],
            options["window_strides"],
        )
        step, size, widths = self.surrounded(node, options["padding"][1:-1])
        padding = self.padding(node, size, window, strides, widths)
        if (
            first != 1
            or last != 1
            or set((*options["base_dilation"], *options["window_dilation"])) != {1}
        ):
            self.refuse(node, "is no plain window over positions")
        return Total(
            step, AvgPool(tuple(window), strides=tuple(strides), padding=padding), prod(window)
        )

    def position_sum(self, node: Node) -> Total:
        """Read a sum over all positions."""
        shape = self.shape(node.inputs[0])
        if tuple(node.options["axes"]) != tuple(range(1, len(shape) - 1)) or len(shape) < 3:
            self.refuse(node, "sums over something else than all positions")
        return Total(self.end(node.inputs[0], node), GlobalAvgPool(), prod(shape[1:-1]))

    def reshaped(self, node: Node) -> Data:
        """The axis of the one sample comes or goes, or positions and channels become one axis."""
        before, after = self.shape(node.inputs[0]), self.shape(node.outputs[0])
        given = self.known.get(node.inputs[0])
        if (1, *before) == after or (1, *after) == before or before == after:
            return Data(self.end(node.inputs[0], node), node.outputs[0])
        if isinstance(given, Data) and after in ((1, prod(before)), (prod(before),)):
            return self.ending(node, self.end(node.inputs[0], node), Flatten())
        self.refuse(node, f"turns {before} into {after}")


def _with_bias(layer: Any, bias: tuple[int, float]) -> Any | None:
    """The layer with that bias; of a sum, the first branch whose last layer has none yet."""
    match layer:
        case Weights(bias=None) | Heads(bias=None):
            return replace(layer, bias=bias)
        case Fork(branches=branches):
            for index, branch in enumerate(branches):
                last = _with_bias(branch[-1], bias) if branch else None
                if last is not None:
                    return Fork((*branches[:index], (*branch[:-1], last), *branches[index + 1 :]))
    return None


_RULES: dict[LayerPart | None, Callable[[Reader, Node], Any]] = {
    LayerPart.PRODUCT: Reader.product,
    LayerPart.CONVOLUTION: Reader.convolution,
    LayerPart.MARGIN: Reader.pad,
    LayerPart.WINDOW_SUM: Reader.window_sum,
    LayerPart.POSITION_SUM: Reader.position_sum,
    LayerPart.RESHAPE: Reader.reshaped,
}


def describe(f: Model, params: Params, x: Samples, *, leaf_std: Any = None) -> Sequential:
    """Read from the graph of f which `nm.Sequential` it is; `nm.infinite_ntk` takes the result.

    The parameters are drawn independently. `leaf_std` gives their standard deviations: one number,
    or a mapping from names of leaves (or patterns, see `nm.tangent.select`) to numbers; 1 when
    absent. Factors of the weights that the graph shows, such as 1/√fan_in, are included.

    Dense layers, convolutions, means over positions, entrywise functions and sums of branches are
    understood, with channels last. LayerNorm (without gains), and attention over all positions whose
    queries are its keys, are recognised by what they compute, however they are written. Anything else
    is refused by name. Before it returns, the description is compared with f at these parameters and
    samples.

    >>> net = nm.MLP((3, 5, 1), "tanh", scaling="ntk")
    >>> found = nm.describe(net, net.init(key=jax.random.key(0)), np.ones((2, 3)))
    >>> found.layers[0].weight_std.__round__(12), str(found.layers[1].activation), found.scaling
    (1.0, 'tanh', 'ntk')
    """
    with arithmetic():
        params, x = check_arguments(f, params, x, dtype=np.float64)
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
        _compare(call(f, params, x), net(tuple(own for _, own in found), x))
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
    """Return a layer and its parameters."""
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
