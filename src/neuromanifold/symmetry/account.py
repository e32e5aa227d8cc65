"""`dimension_account`: where the parameters of a network went."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.rank import Rank, exact_rank
from neuromanifold.numerics.results import Result
from neuromanifold.symmetry.equivalence import HiddenEquivalence, hidden_equivalence
from neuromanifold.tangent.certificate import certified_rank


@dataclass(frozen=True, repr=False)
class DimensionAccount(Result):
    """D = functional dimension + what each source of symmetry explains + unexplained, every number an exact rank.

    `explained[s]` is by how much source s raises the rank of the generators counted before it. `sample_limit` bounds the
    functional dimension by the sample alone: n·o rows, and for piecewise-linear networks o·min(points, n_0 + 1) for
    each region met; where it equals the functional dimension, more data would reveal more. `in_kernel` says that
    all generators were verified to satisfy Jv = 0.
    """

    parameters: int
    functional: Rank
    explained: dict[str, int]
    sample_limit: int
    in_kernel: bool
    equivalence: HiddenEquivalence

    @property
    def symmetric(self) -> int:
        """The dimension of the symmetries: the rank of all generators."""
        return sum(self.explained.values())

    @property
    def unexplained(self) -> int:
        """D − functional dimension − symmetries: directions in ker J that no known symmetry accounts for."""
        return self.parameters - int(self.functional) - self.symmetric

    @property
    def closes(self) -> bool:
        """Whether the symmetries account for the whole kernel of J."""
        return self.unexplained == 0

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """(name, number of dimensions), adding up to D; the first is the functional dimension, the last the unexplained part."""
        return (
            ("functional dimension", int(self.functional)),
            *self.explained.items(),
            ("unexplained", self.unexplained),
        )

    def headline(self) -> str:
        """Where the parameters went."""
        return f"{self.parameters:,} parameters = " + " + ".join(
            f"{count:,} {name}" for name, count in self.rows if count
        )

    def plot(self, axes: Any = None) -> Any:
        """One bar of D dimensions, cut into where they went; returns the axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(figsize=(7, 1.9), layout="constrained")[1]
        colours = ("#0072B2", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#999999")
        shown, left = [(name, count) for name, count in self.rows if count], 0
        for index, (name, count) in enumerate(shown):
            colour = colours[-1] if name == "unexplained" else colours[index % (len(colours) - 1)]
            axes.barh(0, count, left=left, color=colour, edgecolor="white", label=f"{name}: {count:,}")
            left += count
        axes.set(yticks=[], xlim=(0, self.parameters), xlabel="dimensions of the parameter space")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return axes

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows)
        lines = [f"{name:<{width}}  {count:>7,}  {count / self.parameters:6.1%}" for name, count in self.rows]
        total = f"{'parameters':<{width}}  {self.parameters:>7,}"
        note = f"the sample alone limits the functional dimension to {self.sample_limit:,}"
        return "\n".join([*lines, total, note])


def dimension_account(net: MLP, params: Params, x: Any) -> DimensionAccount:
    """D = functional dimension + explained by each symmetry source in turn + unexplained, by exact ranks.   [complexity, Sec. 4]

    Sources in turn: parameters of inactive neurons, parameters that no open path runs through, scalings, mixing of
    linear neurons, their translations.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.ones((2, 1)), np.array([0.0, -1.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    >>> account = nm.dimension_account(net, params, np.array([[-1.0], [0.25], [0.75], [2.0], [3.0]]))
    >>> account.rows[0], account.explained["scalings"], account.unexplained
    (('functional dimension', 5), 2, 0)
    """
    group = hidden_equivalence(net, params, x)
    certificate = certified_rank(group.problem, prove=False)
    return account_of(group, exact_rank(certificate.rank, certificate))


def account_of(group: HiddenEquivalence, functional: Rank) -> DimensionAccount:
    """The account where symmetries and functional dimension are known already."""
    p = modular.random_prime()
    limit = group.problem.shape[0]
    if group.problem.graph.piecewise_linear:
        limit = min(limit, group.problem.region_bound())
    return DimensionAccount(
        parameters=group.net.n_params,
        functional=functional,
        explained=_in_turn(group, p),
        sample_limit=min(limit, group.net.n_params),
        in_kernel=_verified(group, p),
        equivalence=group,
    )


def _in_turn(group: HiddenEquivalence, p: int) -> dict[str, int]:
    """How much each source adds to the rank of those before it. Unit fields are counted, and leave their columns."""
    explained, kept = {}, np.ones(group.net.n_params, bool)
    rows, rank = np.empty((0, group.net.n_params), np.int64), 0
    for name, fields in group.sources.items():
        if name in ("inactive neurons", "closed paths"):
            explained[name] = fields.count
            kept[fields.target] = False
            continue
        rows = np.concatenate([rows, fields.modulo(group.params, p)])
        total = modular_rank(rows[:, kept], p)
        explained[name], rank = total - rank, total
    return explained


def _verified(group: HiddenEquivalence, p: int) -> bool:
    """Whether Jv = 0 modulo p for every generator, by forward products, in blocks of generators."""
    vectors = group.fields.modulo(group.params, p)
    return not len(vectors) or not group.problem.products(p, vectors).any()
