"""`riemann`, Sec 2: what may be left out of a one-dimensional network: the last stride, and a
layer of size 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from neuromanifold.models.convolution import compose
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.statements.algebra import convolution_matrix
from neuromanifold_papers.riemann.statements.exact import differing, statement, symbols
from neuromanifold_papers.statement import control


@dataclass(frozen=True)
class Layers:
    """Sizes and strides of one-dimensional convolutions, size 1 allowed, which the library's
    networks refuse; filters or symbols.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    filters: tuple[tuple[int, ...], ...] | None = None

    @property
    def params(self) -> tuple[np.ndarray, ...]:
        """The filters as arrays."""
        if self.filters is None:
            return symbols([(k,) for k in self.sizes])
        return tuple(np.array(w, object) for w in self.filters)

    @property
    def dilations(self) -> tuple[tuple[int], ...]:
        """t_l = s_1⋯s_{l−1}."""
        return tuple((int(t),) for t in np.cumprod([1, *self.strides[:-1]]))

    def end_to_end(self, params: Any) -> np.ndarray:
        """μ by Eq 8."""
        return compose(params, self.dilations)

    def matrix(self, params: Any) -> np.ndarray:
        """The map of signals itself, with one output: layer after layer by Eq 2."""
        found, outputs = np.eye(1, dtype=int).astype(object), 1
        for w, s in zip(reversed(params), reversed(self.strides), strict=True):
            found = found @ convolution_matrix(w, (s,), (outputs,))
            outputs = s * (outputs - 1) + len(w)
        return found

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"H": len(self.sizes), "sizes": str(self.sizes), "strides": str(self.strides)}

    def __str__(self) -> str:
        return f"sizes, strides, filters = {self.sizes}, {self.strides}, {self.filters}"


def all_layers(depths: tuple[int, ...]) -> Iterator[Layers]:
    """Sizes 1–3 and strides 1–3, the smallest first."""
    for depth in depths:
        every = product(product((1, 2, 3), repeat=depth), product((1, 2, 3), repeat=depth))
        yield from (
            Layers(k, s)
            for k, s in sorted(every, key=lambda pair: (sum(pair[0]), sum(pair[1]), pair))
        )


def unequal(left: np.ndarray, right: np.ndarray) -> int:
    """How many entries differ; all of them when the sizes do."""
    return differing(left, right) if left.shape == right.shape else max(left.size, right.size)


@statement(
    "Eq 8 (last stride)",
    lambda rng, draws: ((layers, 5) for layers in all_layers((1, 2, 3))),
    control(
        "the first stride changed instead of the last", lambda: (Layers((3, 2), (2, 1)), 1), place=0
    ),
)
def eq_8_last(case: tuple[Layers, int], place: int = -1) -> Check:
    """The last stride does not enter μ."""
    layers, other = case
    strides = list(layers.strides)
    strides[place] = other
    changed, params = replace(layers, strides=tuple(strides)), layers.params
    return equal(unequal(layers.end_to_end(params), changed.end_to_end(params)), 0)


def dropped_with_stride(layers: Layers, at: int) -> Layers:
    """The network without layer `at` and without its stride."""
    k, s = layers.sizes, layers.strides
    return Layers(k[:at] + k[at + 1 :], s[:at] + s[at + 1 :])


def stride_passed_on(layers: Layers, at: int) -> Layers:
    """The network without layer `at`, whose stride multiplies that of the layer before it; a
    first layer's is lost.
    """
    s, found = layers.strides, dropped_with_stride(layers, at)
    passed = (*s[: at - 1], s[at - 1] * s[at], *s[at + 1 :]) if at else found.strides
    return replace(found, strides=passed)


def spread_out(v: np.ndarray, stride: int) -> np.ndarray:
    """v with stride − 1 zeros between neighbours: π_1 of the result is π_stride(v)."""
    found = np.zeros(stride * (len(v) - 1) + 1, int).astype(object)
    found[::stride] = v
    return found


Omit = Callable[[Layers, int], Layers]


def _omitted_by_signals(case: tuple[Layers, int]) -> Check:
    """The same by the maps of signals."""
    layers, at = case
    params = layers.params
    without = dropped_with_stride(layers, at).matrix([w for l, w in enumerate(params) if l != at])
    return equal(unequal(layers.matrix(params), params[at][0] * without), 0)


_NUMBER = Layers((2, 1, 2), (1, 2, 1), ((1, 2), (7,), (3, 5)))


def _with_a_number(rng: np.random.Generator, draws: int) -> Iterator[tuple[Layers, int]]:
    """A counterexample with numbers, then every network with a layer of size 1, for all filters."""
    yield _NUMBER, 1
    for layers in all_layers((2, 3)):
        yield from ((layers, at) for at, k in enumerate(layers.sizes) if k == 1)


@statement(
    "Eq 8 (irrelevant)",
    _with_a_number,
    control("a layer of size 2 omitted", lambda: (Layers((2, 2), (1, 1)), 0)),
    confirm=_omitted_by_signals,
)
def eq_8_irrelevant(
    case: tuple[Layers, int], omit: Omit = dropped_with_stride, spread: bool = False
) -> Check:
    """A layer of size 1 can be omitted: μ is its number times μ of the network without it."""
    layers, at = case
    params = layers.params
    rest = omit(layers, at).end_to_end([w for l, w in enumerate(params) if l != at])
    if spread and at == 0:
        rest = spread_out(rest, layers.strides[0])
    return equal(unequal(layers.end_to_end(params), params[at][0] * rest), 0, position=at)


eq_8_irrelevant_amended = eq_8_irrelevant.amend(
    control("the stride omitted with the layer", lambda: (_NUMBER, 1), omit=dropped_with_stride),
    omit=stride_passed_on,
    spread=True,
)(
    "A layer of size 1 can be omitted when its stride multiplies that of the layer before it; if it is "
    "the first, with stride s, π_1(μ) = w_1·π_s(μ'), μ' that of the rest."
)
