"""The geometry of a sample: what exact questions about one (f, params, x) share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.walk import refuse_inexact
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.rank import Rank, exact_rank
from neuromanifold.regions.problem import Problem
from neuromanifold.tangent.rank.certificate import (
    JacobianCertificate,
    by_all_columns,
    by_last_layers,
)


@dataclass(frozen=True, eq=False)
class Geometry:
    """A network at its parameters on a sample; its bends are decided when first asked about, its
    rank certified likewise, both once.

    Signs, status of neurons and columns that vanish are kept by `problem`. Accounts, reductions and
    inspections ask this object; it lives as long as they hold it, and nothing is kept anywhere
    else.
    """

    f: Model
    params: Any
    x: Any
    memory: int | str | None = None

    @cached_property
    def graph(self) -> Graph:
        """The network as a program."""
        return trace(self.f, self.params, self.x)

    @property
    def problem(self) -> Problem:
        """The exact Jacobian, every bend decided by proof."""
        refuse_inexact(self.graph, "exact arithmetic needs")
        return self.decided

    @cached_property
    def decided(self) -> Problem:
        """Any network with every bend decided: by proof where nothing smooth comes before it."""
        return Problem.of(self.f, self.params, self.x, require_exact=False, memory=self.memory)

    @cached_property
    def by_last_layers(self) -> JacobianCertificate | None:
        """The exact rank of a wide J where the columns of its last layers prove it."""
        return by_last_layers(self.problem)

    @cached_property
    def rank(self) -> Rank:
        """The exact rank of J with its certificate."""
        found = self.by_last_layers or by_all_columns(self.problem, prove=False)
        return exact_rank(found.rank, found)
