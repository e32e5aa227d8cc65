"""`dimension_account`: where the parameters of a network went."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.drawing import axes_of, bar, card, colours_of, plot_bar, table_of
from neuromanifold.numerics.precision import arithmetic, boundary
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.rank import Rank, rank_from_spectrum
from neuromanifold.numerics.results import Result, follows
from neuromanifold.numerics.spaces import FloatSpaces, ModularSpaces, Spaces, exact_spaces
from neuromanifold.numerics.validation import (
    check_params,
    indefinite,
    refuse_tracers,
    sample_arrays,
)
from neuromanifold.regions.problem import Problem
from neuromanifold.symmetry.account.chain import (
    MOST_BATCHES,
    ExactRows,
    FloatRows,
    RowSpaces,
    chain_of,
    unit_rows,
)
from neuromanifold.symmetry.account.equivalence import CLOSED, INACTIVE, HiddenEquivalence
from neuromanifold.symmetry.account.linear_segments import has_linear_segments, segment_directions
from neuromanifold.symmetry.account.relations import Blocks, related_directions
from neuromanifold.symmetry.account.rules import StructuralSymmetries, symmetries_of
from neuromanifold.symmetry.discovery.ansatz import Ansatz, by_axes
from neuromanifold.symmetry.discovery.discover import network_sampler
from neuromanifold.symmetry.discovery.named_groups import NamedGroup, find_named_groups
from neuromanifold.symmetry.discovery.statistics import open_statistics
from neuromanifold.tangent.rank.dimension import functional_dimension
from neuromanifold.tangent.rank.geometry import Geometry

FEW = "too few samples in a region"
UNSEEN = "not seen on the sample"
LARGEST = 5_000
"""Parameters of networks whose kernel is enumerated; larger ones are accounted for by rules."""
RELATED = "relations between patterns"
SEGMENTS = "linear segments"
CONFINED = ("confined in one unit", "confined in one layer", "confined in two layers")
Candidates = dict[str, np.ndarray]
Found = np.ndarray | Callable[[], np.ndarray]


@dataclass(frozen=True, repr=False)
class DimensionAccount(Result):
    """Where D parameters went: r_S ≤ r_R ≤ r_∞ ≤ D, and what explains each step, every direction
    counted once.

    `chain`: the rank of J on the sample, on generic inputs of the sample's regions (signs held), on
    all regions that wide and new inputs reached (a lower bound of what any input shows), and D.
    `everywhere[s]`: by how much source s raises the rank of the directions counted before it, among
    those that change nothing on any region reached (D − r_∞ in all). `on_regions[s]`: the same
    among directions that change nothing on the sample's regions but something elsewhere (r_∞ −
    r_R). r_R − r_S directions are lost because a region holds too few samples. What no source
    explains is `.unexplained`. `regions` and `reached` count regions, `sample_limit` bounds r_S by
    the sample alone, `refuted` counts generators that were tried and found to change f,
    `left_out` says what was too large to look at. Exact numbers are modulo a random 61-bit prime,
    r_S certified; otherwise float64, and `gap` is the smallest one in the spectra behind the chain.

    Of networks of more than 5,000 parameters the kernel is not enumerated: `rules` are the
    symmetries by structure, r_∞ is D less these, an upper bound of what any input shows, r_R the
    same without parameters that have no effect on the sample, and r_R − r_S has no name.
    """

    parameters: int
    functional: Rank
    chain: tuple[int, int, int, int]
    everywhere: dict[str, int]
    on_regions: dict[str, int]
    sample_limit: int
    samples: tuple[int, int]
    regions: int
    reached: int
    refuted: int
    left_out: tuple[str, ...]
    gap: float
    equivalence: HiddenEquivalence | None
    rules: StructuralSymmetries | None = None

    @property
    def _last(self) -> str:
        """The name of the step from the sample to generic inputs."""
        return FEW if self.rules is None else UNSEEN

    @property
    def exact(self) -> bool:
        """Whether every number is an exact rank."""
        return self.functional.exact

    @property
    def in_kernel(self) -> bool:
        """Whether every generator that was tried keeps f unchanged on the sample's regions."""
        return self.refuted == 0

    @property
    def explained(self) -> dict[str, int]:
        """What each source explains, everywhere and on the sample's regions together."""
        parts = [
            (*self.everywhere.items(), *self.on_regions.items()),
            ((self._last, self.chain[1] - self.chain[0]),),
        ]
        found: dict[str, int] = {}
        for name, count in (entry for part in parts for entry in part):
            found[name] = found.get(name, 0) + count
        return found

    @property
    def symmetric(self) -> int:
        """The dimension of the hidden equivalence's orbit on the sample (perceptrons), else of
        the groups found.
        """
        if self.equivalence is not None:
            return int(self.equivalence.orbit_dimension())
        named = (RELATED, SEGMENTS, *CONFINED, FEW, UNSEEN)
        return sum(count for name, count in self.explained.items() if name not in named)

    @property
    def unexplained_everywhere(self) -> int:
        """D − r_∞ less what sources explain: directions that changed nothing on any region
        reached.
        """
        return self.chain[3] - self.chain[2] - sum(self.everywhere.values())

    @property
    def unexplained_on_regions(self) -> int:
        """r_∞ − r_R less what sources explain."""
        return self.chain[2] - self.chain[1] - sum(self.on_regions.values())

    @property
    def unexplained(self) -> int:
        """Directions in ker J that no source accounts for."""
        return self.unexplained_everywhere + self.unexplained_on_regions

    @property
    def closes(self) -> bool:
        """Whether the sources account for the whole kernel of J."""
        return self.unexplained == 0

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """(name, number of dimensions), adding up to D; the first is the functional dimension,
        the last the unexplained part.
        """
        return (
            ("functional dimension", self.chain[0]),
            *self.explained.items(),
            ("unexplained", self.unexplained),
        )

    def headline(self) -> str:
        """Say where the parameters went."""
        return f"{self.parameters:,} parameters = " + " + ".join(
            f"{count:,} {name}" for name, count in self.rows if count
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw one bar of D dimensions, divided into where they went, and return the axes."""
        parts = [(name, count) for name, count in self.rows if count]
        axes = axes_of(axes, (7, 1.9))
        return plot_bar(axes, parts, self.parameters, x="dimensions of the parameter space")

    def _repr_html_(self) -> str:
        parts = [(name, count) for name, count in self.rows if count]
        r_S, r_R, r_all, D = self.chain
        said = f"{r_S:,} of {D:,} parameter directions change the function on the sample."
        more = (
            f"More samples in the same linear regions would show {r_R:,}, other inputs {r_all:,} "
            "or more."
            if self.rules is None
            else f"No input shows more than {r_all:,}."
        )
        return card(
            "Account",
            (said, more, *(f"Not looked at: {what}." for what in self.left_out)),
            [bar(parts, "Where the parameters went")],
            table_of(parts, D),
            colours=colours_of(parts),
        )

    def __str__(self) -> str:
        n, o = self.samples
        r_S, r_R, r_all, D = self.chain
        outputs = f"{o:,} output{'' if o == 1 else 's'}"
        few = (
            f"{n:,} samples × {outputs} allow at most {n * o:,} of {D:,} parameters\n"
            if n * o < D
            else ""
        )
        steps = (
            f"{r_R:,} on its {self.regions:,} regions ≤ {r_all:,} (at least) on {self.reached:,} "
            "regions reached"
        )
        if self.rules is not None:
            open_ = (
                f"{r_R:,} without parameters that have no effect on it ≤ " if r_R < r_all else ""
            )
            steps = f"{open_}{r_all:,} without the directions that have a rule"
        head = f"{few}rank {r_S:,} on the sample ≤ {steps} ≤ {D:,} parameters"
        names = list(dict.fromkeys([*self.everywhere, *self.on_regions]))
        table = [("functional dimension", r_S, "")]
        table += [
            (name, *_counts(self.everywhere.get(name, 0), self.on_regions.get(name, 0)))
            for name in names
        ]
        if self.rules is not None:
            evidence = {rule.kind: rule.evidence for rule in self.rules.rules}
            table = [(name, n, evidence.get(name, "on the sample")) for name, n, _ in table]
        table += [(self._last, r_R - r_S, "")]
        table += [
            ("unexplained", *_counts(self.unexplained_everywhere, self.unexplained_on_regions))
        ]
        width = max(len(name) for name, *_ in table)
        lines = [
            f"{name:<{width}}  {count:>7,}  {count / D:6.1%}  {where}".rstrip()
            for name, count, where in table
        ]
        notes = [f"not looked at: {what}" for what in self.left_out]
        return "\n".join([head, *lines, f"{'parameters':<{width}}  {D:>7,}", *notes])


def _counts(everywhere: int, on_regions: int) -> tuple[int, str]:
    where = (
        f"{everywhere:,} on every region reached, {on_regions:,} on the sample's regions only"
        if on_regions
        else ""
    )
    return everywhere + on_regions, where


@follows
def dimension_account(
    f: Model,
    params: Params,
    x: Samples,
    *,
    groups: Sequence[Any] | None = None,
    key: Key | None = None,
) -> DimensionAccount:
    """Say why parameter directions change nothing:
    D = functional dimension + explained, reason by reason + unexplained, for any network.
    [complexity, Sec. 4]

    The reasons, in this order: inactive units and closed paths; scalings; mixtures of linear neurons
    and their translations; neurons with one sign pattern (these for `nm.MLP`); linear relations
    between sign patterns; `groups`; features or signals that are confined to a subspace in one unit,
    one layer, or two layers in a row; linear segments between units that switch. A direction counts
    for its first reason, and is tested before it counts.

    Ranks and spans are exact where f is made of rational operations and comparisons, else float64
    with their gap. Each of `groups` has `generators(params)`; when absent, networks of at most 400
    parameters that are no `nm.MLP` get those that `discover` finds by name. `key` draws the wide
    inputs behind r_∞. With more than 5,000 parameters and no `groups` the reasons are the symmetries
    by structure (`structural_symmetries`), at any size.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.ones((2, 1)), np.array([0.0, -1.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    >>> account = nm.dimension_account(net, params, np.array([[-1.0], [0.25], [0.75], [2.0], [3.0]]))
    >>> account.chain, account.explained["scalings"], account.unexplained
    ((5, 5, 5, 7), 2, 0)
    """
    refuse_tracers((params, x), "`dimension_account`")
    _check_groups(groups)
    check_params(params)
    x = sample_arrays(x)
    with boundary(params, x):
        check_arguments(f, params, x)
    geometry = Geometry(f, params, x)
    if groups is None and sum(np.size(leaf) for leaf in jax.tree.leaves(params)) > LARGEST:
        return account_by_rules(geometry, functional_dimension(f, params, x), key=key)
    if geometry.graph.exact:
        return account_of(geometry, groups=groups, key=key)
    names, left_out = _groups_by_name(f, params, x) if groups is None else ((), ())
    wide = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
    return _in_float64(geometry.graph, wide, x, names if groups is None else groups, key, left_out)


@runtime_checkable
class _HasGenerators(Protocol):
    """A continuous group, or whatever else has generators."""

    def generators(self, params: Any) -> Any:
        """Return directions at `params`, one in each row."""
        ...


def _check_groups(groups: Any) -> None:
    for each in groups if isinstance(groups, list | tuple) else () if groups is None else (groups,):
        if each is groups or not isinstance(each, _HasGenerators | NamedGroup):
            raise TypeError(
                f"`groups` {'is' if each is groups else 'holds'} {indefinite(each)}; pass a "
                "sequence of continuous groups: "
                "`[nm.symmetry.ScalingGroup(net)]`, or `nm.symmetry.discover(…).named`."
            )


def _in_float64(
    graph: Graph, params: Any, x: Any, groups: Sequence[Any], key: Any, left_out: tuple[str, ...]
) -> DimensionAccount:
    rows = FloatRows(graph, params, tuple(np.asarray(a) for a in jax.tree.leaves(x)), FloatSpaces())
    matrix = rows.of_sample
    functional = rank_from_spectrum(rows.spaces.spectrum(matrix), matrix.shape, rows.spaces.rtol)
    sources = {
        _name_of(group): unit_rows(np.asarray(_fields(group).generators(params), np.float64))
        for group in groups
    }
    chain = chain_of(rows, host_generator(key))
    return _build_account(
        chain,
        functional,
        graph,
        (sources, sources),
        len(rows.data[0]),
        len(matrix),
        left_out=left_out,
    )


def account_of(
    geometry: Geometry,
    *,
    groups: Sequence[Any] | None = None,
    key: Any = None,
    batches: int = MOST_BATCHES,
) -> DimensionAccount:
    """Return the account of a geometry that others may have asked already; `batches` of inputs seek
    new regions.
    """
    problem = geometry.problem
    functional = geometry.rank
    params = geometry.params
    spaces = exact_spaces()
    rows = ExactRows(problem, spaces)
    chain = chain_of(rows, host_generator(key), rank=int(functional), batches=batches)
    limit = min(
        problem.region_bound() if problem.graph.piecewise_linear else problem.shape[0],
        problem.shape[0],
    )
    net = perceptron(problem.model)
    named, left_out = _name_sources(
        problem, params, groups if net is None or groups is not None else (), spaces
    )
    if net is None:
        sources = (named, named)
        return _build_account(
            chain, functional, problem.graph, sources, problem.samples, limit, left_out=left_out
        )
    met = rows.moved(chain.reached.data, chain.met)
    equivalence, wide = (
        HiddenEquivalence(net, params, each.data[0], each) for each in (problem, met)
    )
    (everywhere, one), (here, two) = (
        _perceptron_sources(side, params, spaces) for side in (wide, equivalence)
    )
    left_out = tuple(
        f"relations between the patterns of hidden layer {k}" for k in sorted({*one, *two})
    )
    sources = ({**everywhere, **named}, {**here, **named})
    return _build_account(
        chain, functional, problem.graph, sources, problem.samples, limit, equivalence, left_out
    )


def account_by_rules(geometry: Geometry, functional: Rank, *, key: Any = None) -> DimensionAccount:
    """Return the account of a network of any size whose rank on the sample is known: D ≥ D − (parameters
    without effect and directions by rules) ≥ r_S.
    """
    graph, left_out = geometry.graph, ()
    closed = geometry.problem.zero_columns if graph.exact else None
    if closed is None:
        left_out = ("parameters without effect: f is not made of rational operations",)
    network = open_statistics(geometry.f, geometry.params, geometry.x)
    rules, beside = symmetries_of(network, host_generator(key), closed)
    D, rank = rules.parameters, int(functional)
    idle = 0 if closed is None else int(closed.sum())
    most, here = D - rules.orbit, D - idle - beside
    samples = len(jax.tree.leaves(geometry.x)[0])
    return DimensionAccount(
        parameters=D,
        functional=functional,
        chain=(rank, here, most, D),
        everywhere=rules.kinds,
        on_regions={} if closed is None else {CLOSED: most - here},
        sample_limit=min(samples * graph.outputs, D),
        samples=(samples, graph.outputs),
        regions=0,
        reached=0,
        refuted=0,
        left_out=(*left_out, *(f"the channels of {each}" for each in rules.left_out)),
        gap=float(functional.gap),
        equivalence=None,
        rules=rules,
    )


def _name_sources(
    problem: Problem, params: Any, groups: Sequence[Any] | None, spaces: ModularSpaces
) -> tuple[Candidates, tuple[str, ...]]:
    """Return the generators of `groups` modulo p, of those that the network has by name where none
    are given, and what was not looked at.
    """
    if groups is not None and not any(isinstance(group, NamedGroup) for group in groups):
        return {
            _name_of(group): spaces.lift(np.asarray(group.generators(params))) for group in groups
        }, ()
    x = jax.tree.unflatten(jax.tree.structure(problem.graph.sample), problem.data)
    names, left_out = (
        _groups_by_name(problem.model, params, x) if groups is None else (tuple(groups), ())
    )
    found: Candidates = {}
    for each in names:
        found[_name_of(each)], inexact = _exact_directions(each, params, spaces)
        left_out += (
            (f"{inexact} fields of {_name_of(each)}, whose coefficients are not whole numbers",)
            if inexact
            else ()
        )
    return found, left_out


def _fields(group: Any) -> Any:
    return group.group if isinstance(group, NamedGroup) else group


def _name_of(group: Any) -> str:
    if isinstance(group, NamedGroup):
        return f"{group.kind} of {group.space}"
    name = type(group).__name__
    return f"{name.removesuffix('Group').lower()} group" if name.endswith("Group") else name.lower()


def _perceptron_sources(
    side: HiddenEquivalence, params: Any, spaces: ModularSpaces
) -> tuple[Candidates, tuple[int, ...]]:
    """Return the generators of a hidden equivalence by source, the relations last, and the layers
    too large for these.
    """
    related, left_out = related_directions(side.net, params, side.slopes, spaces)
    named = {name: fields.modulo(params, spaces.p) for name, fields in side.sources.items()}
    return {**named, RELATED: related}, left_out


def _build_account(
    chain: RowSpaces,
    functional: Rank,
    graph: Graph,
    sources: tuple[Candidates, Candidates],
    samples: int,
    limit: int,
    equivalence: HiddenEquivalence | None = None,
    left_out: tuple[str, ...] = (),
) -> DimensionAccount:
    names, shapes = graph.parameters, [tuple(leaf.shape) for leaf in jax.tree.leaves(graph.params)]
    blocks = Blocks.of(names, shapes)
    everywhere, _ = _count_in_turn(chain, chain.everywhere, sources[0], blocks, modulo=None)
    on_regions, refuted = _count_in_turn(
        chain, chain.regions, sources[1], blocks, modulo=chain.everywhere
    )
    D = chain.ranks[3]
    left_out += (
        (f"linear segments of {D:,} parameters",)
        if graph.bending and not has_linear_segments(graph, D)
        else ()
    )
    return DimensionAccount(
        parameters=D,
        functional=functional,
        chain=chain.ranks,
        everywhere=everywhere,
        on_regions=on_regions,
        sample_limit=min(limit, D),
        samples=(samples, graph.outputs),
        regions=chain.sampled.count,
        reached=chain.reached.count,
        refuted=refuted,
        left_out=(*left_out, *blocks.left_out, *_not_finite(chain), *_not_ended(chain)),
        gap=chain.gap,
        equivalence=equivalence,
    )


def _not_finite(chain: RowSpaces) -> tuple[str, ...]:
    return (
        (f"{chain.dropped:,} rows of J at random inputs, which are not finite",)
        if chain.dropped
        else ()
    )


def _not_ended(chain: RowSpaces) -> tuple[str, ...]:
    seen = (
        f"regions beyond the {chain.reached.count:,} reached, though new ones were still adding "
        "directions"
    )
    return () if chain.ended else (seen,)


def _count_in_turn(
    chain: RowSpaces,
    J: np.ndarray,
    sources: Candidates,
    blocks: Blocks,
    *,
    modulo: np.ndarray | None,
) -> tuple[dict[str, int], int]:
    """Count how much each source adds to the directions v with Jv = 0 counted before it, modulo the
    kernel of another matrix.

    Vectors outside the kernel of J do not count; how many there were. With M given, directions in
    ker M count as zero: the rank of all v in ker J modulo ker M is that of all Mv.
    """
    spaces, counts, refuted = chain.spaces, {}, 0
    most = J.shape[1] - len(J) - (0 if modulo is None else J.shape[1] - len(modulo))
    have = np.zeros((0, J.shape[1] if modulo is None else len(modulo)), J.dtype)
    sampled = modulo is not None
    for name, found in _candidates(chain, J, sources, blocks, sampled):
        left = len(have) < most
        rows = (found() if left else J[:0]) if callable(found) else found
        inside = spaces.vanishing(_products(J, rows, spaces).T)
        refuted += int((~inside).sum())
        seen = rows[inside] if modulo is None else _products(modulo, rows[inside], spaces)
        total = spaces.extended(have, seen) if left and len(seen) else have
        counts[name] = counts.get(name, 0) + len(total) - len(have)
        have = total
    return counts, refuted


def _products(J: np.ndarray, rows: np.ndarray, spaces: Spaces) -> np.ndarray:
    """Return J v for each row v of `rows`, by those columns that any of them has."""
    used = rows.any(axis=0)
    return spaces.product(rows[:, used], J[:, used].T)


def _candidates(
    chain: RowSpaces, J: np.ndarray, sources: Candidates, blocks: Blocks, sampled: bool
) -> Iterator[tuple[str, Found]]:
    """Yield the sources in turn; those that are sought only where something is left to explain as
    functions.
    """
    spaces = chain.spaces
    free = np.flatnonzero(spaces.vanishing(J))
    if INACTIVE not in sources:
        yield CLOSED, np.eye(J.shape[1], dtype=J.dtype)[free]
    yield from sources.items()
    for name, parts in zip(CONFINED, (blocks.units, blocks.layers, blocks.pairs), strict=True):
        yield name, partial(_confine, spaces, J, [np.setdiff1d(block, free) for block in parts])
    known = chain.sampled if sampled else chain.reached
    gates = tuple(g[: known.count] for g in chain.met)
    yield (
        SEGMENTS,
        lambda: segment_directions(chain.rows, known, gates, np.random.default_rng(0)),
    )


def _confine(spaces: Spaces, J: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros((0, J.shape[1]), J.dtype), *spaces.confined(J, parts)])


LARGEST_BY_NAME = 400
"""Parameters of networks whose named groups are sought without being asked for: seconds."""
_WHOLE = 1e-7


def _groups_by_name(
    f: Model, params: Any, x: Any
) -> tuple[tuple[NamedGroup, ...], tuple[str, ...]]:
    """Return the groups that `f` has by name at `params`, and what was not looked at."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    if size > LARGEST_BY_NAME:
        return (), (
            f"symmetries by name of {size:,} parameters (`groups=nm.symmetry.discover(…).named` "
            "passes them)",
        )
    rng = np.random.default_rng(0)
    with arithmetic():
        sampler = network_sampler(f, params, x, False)
        try:
            found = find_named_groups(
                sampler, by_axes(sampler.shapes, sampler.leaf_labels), sampler.draw(rng), rng
            )
        except np.linalg.LinAlgError:
            return (), ("symmetries by name: f is not finite at random parameters",)
    return found, ()


def _exact_directions(
    each: NamedGroup, params: Any, spaces: ModularSpaces
) -> tuple[np.ndarray, int]:
    """Return the fields of a group at `params` modulo p, and how many are left out because their
    coefficients are not whole numbers.
    """
    rows = (
        each.group.coefficients
        / np.array([np.abs(row[row != 0]).min(initial=np.inf) for row in each.group.coefficients])[
            :, None
        ]
    )
    whole = np.rint(rows)
    fits = (
        np.abs(rows - whole) <= _WHOLE * np.abs(whole).max(axis=1, keepdims=True, initial=1.0)
    ).all(axis=1)
    leaves = [spaces.lift(np.asarray(leaf)).astype(object) for leaf in jax.tree.leaves(params)]
    found = [_field(each.group.ansatz, row, leaves, spaces.p) for row in whole[fits]]
    return np.array(found, np.int64).reshape(
        len(found), -1 if found else sum(a.size for a in leaves)
    ), int((~fits).sum())


def _field(
    ansatz: Ansatz, coefficients: np.ndarray, leaves: list[np.ndarray], p: int
) -> np.ndarray:
    """Return V_c(θ) modulo p, for whole numbers c."""
    values = [np.zeros(leaf.shape, object) for leaf in leaves]
    for term, part in zip(ansatz.terms, ansatz.parts(coefficients), strict=True):
        if part.any():
            whole = np.array([int(c) for c in part.ravel()], object).reshape(part.shape)
            moved = (
                whole if term.source < 0 else np.einsum(term.equation, whole, leaves[term.source])
            )
            values[term.target] = values[term.target] + moved
    return np.concatenate([np.ravel(a % p) for a in values]).astype(np.int64)
