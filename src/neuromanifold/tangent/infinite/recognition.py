"""LayerNorm and attention in a graph, recognised by what they compute: no two libraries write them
with the same operations.

A part of the graph is evaluated at random values and compared with each layer that it could be; a
graph that means something else does not agree to nine digits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np

from neuromanifold.graph.primitives import EXP
from neuromanifold.graph.program import Node, Program
from neuromanifold.models.layers.norm import LayerNorm
from neuromanifold.tangent.infinite.steps import Arranged, Heads

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


def recognised(region: Region) -> LayerNorm | Heads | None:
    """The layer that this part of the graph is, or `None`."""
    if not region.nodes or not region.after or not region.program.values[region.end].real:
        return None
    return _attention(region) if region.leaves else _layer_norm(region)


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


def _attention(region: Region) -> Heads | None:
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
