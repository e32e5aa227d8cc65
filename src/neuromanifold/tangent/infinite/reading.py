"""A network's graph read as layers: each value is the data after some layers, an entrywise
function of that, or a parameter.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.graph.primitives import Kind, Layer
from neuromanifold.graph.program import Node
from neuromanifold.models.activation import BUILT_IN, Activation
from neuromanifold.models.layers.branches import Elementwise
from neuromanifold.models.layers.pooling import AvgPool, Flatten, GlobalAvgPool
from neuromanifold.models.layers.windows import margins
from neuromanifold.tangent.infinite.recognition import Region, recognised
from neuromanifold.tangent.infinite.steps import (
    Data,
    Fork,
    Heads,
    Padded,
    Parameter,
    Step,
    Total,
    Unread,
    Weights,
)


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
        found = recognised(Region(self.program, self.places[before], node.outputs[0]))
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
        if node.primitive.layer is Layer.TRANSPOSE:
            return replace(given, axes=tuple(given.axes[a] for a in node.options["permutation"]))
        factor = self.factor(node, [self.known.get(i) for i in node.inputs])
        if factor is not None:
            return replace(given, factor=given.factor * factor)
        shape = self.shape(node.outputs[0])
        if node.primitive.layer is Layer.COPY:
            return given
        same_size = prod(shape) == prod(self.shape(node.inputs[0]))
        if node.primitive.layer is Layer.RESHAPE and same_size:
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
        """Zeros around the positions."""
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
        """A sum over all positions."""
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


_RULES: dict[Layer | None, Callable[[Reader, Node], Any]] = {
    Layer.PRODUCT: Reader.product,
    Layer.CONVOLUTION: Reader.convolution,
    Layer.MARGIN: Reader.pad,
    Layer.WINDOW_SUM: Reader.window_sum,
    Layer.POSITION_SUM: Reader.position_sum,
    Layer.RESHAPE: Reader.reshaped,
}
