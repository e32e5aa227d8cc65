"""The running statistics of a network as parameters beside its own, so that they follow their
channels.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.selection import leaf_names
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import full_products, is_floating

_PREFIX = "module."


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
        """What f holds."""
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

    @cached_property
    def leaves(self) -> list[np.ndarray]:
        """The values of all leaves."""
        own = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(self.params)]
        return [*own, *self.model.statistics]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all leaves."""
        return (*leaf_names(self.params), *self.model.names)

    def tree(self, leaves: Any) -> Any:
        """Return (params, statistics) of these leaves."""
        leaves = list(leaves)
        params = jax.tree.unflatten(jax.tree.structure(self.params), leaves[: self.count])
        return params, tuple(leaves[self.count :])


def opened(f: Model, params: Any, x: Any) -> Opened:
    """Return a network with its statistics among its leaves."""
    return Opened(WithStatistics(f), params, x)
