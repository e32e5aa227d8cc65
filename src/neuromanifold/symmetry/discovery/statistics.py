"""The running statistics of a network as parameters beside its own, so that they follow their
channels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.footprint import live_entries
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.reading import evaluate
from neuromanifold.graph.selection import leaf_names
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import arithmetic, full_products, is_floating
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.symmetry.discovery.channels import align

_PREFIX = "module."
_FEW = 2  # samples on which f is compared with what it was
_ROOM = 2**28  # bytes of the values of samples that are evaluated at once


@dataclass(frozen=True)
class WithStatistics:
    """A model g((params, statistics), x): what f(params, x) computes, where statistics are the
    vectors that f holds beside its parameters (running means and variances).

    A model that is not adapted from another library has none. Equal for equal f, so that what was
    traced and compiled for one serves the other.
    """

    f: Model

    def __call__(self, both: Any, x: Any) -> Any:
        """f with other statistics."""
        params, statistics = both
        if not isinstance(self.f, AdaptedModel) or not self._chosen:
            return self.f(params, x)
        with full_products():
            return self.f.apply(params, self._state(statistics), x)

    @property
    def statistics(self) -> tuple[np.ndarray, ...]:
        """Return the statistics that f holds."""
        leaves = jax.tree.leaves(self.f.state) if isinstance(self.f, AdaptedModel) else []
        return tuple(np.asarray(leaves[k], np.float64) for k in self._chosen)

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the statistics."""
        state = self.f.state if isinstance(self.f, AdaptedModel) else ()
        found = leaf_names(state)
        return tuple(found[k].removeprefix(_PREFIX) for k in self._chosen)

    @property
    def _chosen(self) -> tuple[int, ...]:
        """The numbers, among the leaves of the state, of real arrays with one long axis."""
        state = self.f.state if isinstance(self.f, AdaptedModel) else ()
        return tuple(
            k
            for k, leaf in enumerate(jax.tree.leaves(state))
            if is_floating(leaf) and sum(n > 1 for n in np.shape(leaf)) == 1
        )

    def _state(self, statistics: Any) -> Any:
        assert isinstance(self.f, AdaptedModel)
        leaves, structure = jax.tree.flatten(self.f.state)
        for k, leaf in zip(self._chosen, statistics, strict=True):
            leaves[k] = leaf
        return structure.unflatten(leaves)

    def closed(self, statistics: Any) -> Model:
        """Return f with other statistics for its own."""
        if not isinstance(self.f, AdaptedModel) or not self._chosen:
            return self.f
        return replace(self.f, state=self._state(statistics))


@dataclass(frozen=True, eq=False)
class Opened:
    """A network with its statistics among its leaves: the graph, all leaves in float64 (those of
    `params` first) and their names.
    """

    model: WithStatistics
    params: Any
    x: Any

    @cached_property
    def graph(self) -> Graph:
        """The network at one sample."""
        return trace(self.model, (self.params, self.model.statistics), self.x)

    @cached_property
    def count(self) -> int:
        """How many leaves are parameters."""
        return len(jax.tree.leaves(self.params))

    @property
    def leaves(self) -> list[np.ndarray]:
        """The values of all leaves, made anew each time: nobody keeps them who does not need them."""
        own = [align(np.asarray(leaf), np.float64) for leaf in jax.tree.leaves(self.params)]
        return [*own, *self.model.statistics]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all leaves."""
        return (*leaf_names(self.params), *self.model.names)

    @cached_property
    def few(self) -> Any:
        """The first samples, in float64."""

        def first(a: Any) -> np.ndarray:
            return np.asarray(a[:_FEW], np.float64 if is_floating(a) else None)

        return jax.tree.map(first, self.x)

    def outputs(self, leaves: Sequence[Any], x: Any) -> Iterator[np.ndarray]:
        """Yield f at `leaves` on samples, (some samples, outputs) at a time."""
        with arithmetic():
            tree = self.tree([jax.device_put(a, may_alias=True) for a in leaves])
        return blocks_of_outputs(self.model, tree, x, self.graph)

    @cached_property
    def _outputs_before(self) -> np.ndarray:
        return np.concatenate([*self.outputs(self.leaves, self.few)])

    def moved(self, leaves: Sequence[Any]) -> float:
        """Return by how much f differs at `leaves` on the first samples, relative to its largest
        value there.
        """
        before = self._outputs_before
        after = np.concatenate([*self.outputs(leaves, self.few)])
        found = np.abs(after - before).max(initial=0.0) / (np.abs(before).max(initial=0.0) or 1.0)
        return float(found) if np.isfinite(found) else np.inf

    def tree(self, leaves: Any) -> Any:
        """Return (params, statistics) of these leaves."""
        leaves = list(leaves)
        params = jax.tree.unflatten(jax.tree.structure(self.params), leaves[: self.count])
        return params, tuple(leaves[self.count :])


def open_statistics(f: Model, params: Any, x: Any) -> Opened:
    """Return a network with its statistics among its leaves."""
    return Opened(WithStatistics(f), params, x)


def outputs_of(model: Model, params: Any, x: Any, graph: Graph) -> np.ndarray:
    """Return f on samples, (samples, outputs), as many samples at once as fit into memory."""
    return np.concatenate([*blocks_of_outputs(model, params, x, graph)])


def blocks_of_outputs(model: Model, params: Any, x: Any, graph: Graph) -> Iterator[np.ndarray]:
    """Yield f on samples, (some samples, outputs), as many at once as fit into memory."""
    for block in sample_blocks(graph, len(jax.tree.leaves(x)[0])):
        part = jax.tree.map(lambda a, block=block: np.asarray(a)[block], x)
        with arithmetic():
            ys = jax.tree.leaves(evaluate(model, params, part))
            found = np.empty((len(ys[0]), sum(y.size // len(y) for y in ys)))
            np.concatenate([y.reshape(len(y), -1) for y in ys], axis=1, out=found)
        yield found


def sample_blocks(graph: Graph, n: int, held: int = 0) -> Iterator[slice]:
    """Yield parts of a batch that fit into memory, with `held` numbers of each sample that are kept
    beside; all of one length: another would be compiled by itself.
    """
    room = min(memory_budget(), _ROOM)
    most = int(np.clip(room // (8 * max(1, live_entries(graph) + held)), 1, max(1, n)))
    size = next(size for size in range(most, 0, -1) if n % size == 0)
    return (slice(i, i + size) for i in range(0, n, size))
