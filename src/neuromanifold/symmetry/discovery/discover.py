"""`discover`: the affine symmetries of any network, found from its differential."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.bends import Oracle
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.graph.walk import walk
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Signature,
    check_model,
    check_rows,
)
from neuromanifold.numerics import modular
from neuromanifold.numerics.drawing import axes_of, bar, card, colours_of, plot_bar, table_of
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic, is_floating, promote
from neuromanifold.numerics.randomness import Key, check_key, host_generator
from neuromanifold.numerics.rank import SMALLEST_GAP
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.spaces import FloatSpaces
from neuromanifold.numerics.validation import (
    check_finite,
    check_param_types,
    refuse_tracers,
    sample_arrays,
)
from neuromanifold.regions.decisions import float_gates
from neuromanifold.symmetry.account.chain import FloatRows, chain_of
from neuromanifold.symmetry.account.linear_segments import (
    constant_units,
    has_linear_segments,
    switching_units,
)
from neuromanifold.symmetry.discovery.ansatz import Ansatz, Term, by_axes, everything
from neuromanifold.symmetry.discovery.conditions import MARGIN, NetworkSampler
from neuromanifold.symmetry.discovery.named_groups import NamedGroup, find_named_groups
from neuromanifold.symmetry.discovery.numerical_null_space import (
    SpectralGap,
    null_space,
    spectral_gap,
)
from neuromanifold.symmetry.groups.flow import FlowGroup
from neuromanifold.symmetry.reduction.narrowing import without_scales

_MOST_NUMBERS = 2**27
_NOTHING = 1e-10
_WRITTEN = 1e-6


_INPUTS = 4096
_VERIFIED = 1e-9
_FEW, _SEARCHED = 16, 1024
Leaves = list[np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Excess(Result):
    """Nullity less orbit, explained: `rational` + `held` + `segments` + `unseen` + `rest`.

    `rational`: scales and shifts that fold into the weights beside them (`folded` names them) leave
    a network f' with f = f' ∘ Φ, Φ a submersion. The kernel of J is that of J' with one more
    dimension for each parameter that folds; the affine fields of f' lift to fields of f that are
    rational in what was folded. `held`: units that never switch at these parameters (`still` of all
    `units`, on 4,096 random inputs) make f' equal to the network in which they are held; its affine
    fields at these parameters beyond those of f' are dead parameters and mixings of linear units.
    `segments`: directions that change no linear segment between the units that switch, and are no
    affine fields (see `linear_segments`). `unseen`: J has a larger rank on regions that a search reaches
    (`chain`) than on the random inputs behind the nullity. `rest`: none of these.
    """

    folded: tuple[str, ...]
    rational: int
    held: int
    segments: int
    unseen: int
    still: int
    units: int
    rest: int

    @property
    def total(self) -> int:
        """The nullity less the dimension of the orbit."""
        return self.rational + self.held + self.segments + self.unseen + self.rest

    def headline(self) -> str:
        """Say what the kernel has beyond the orbit."""
        parts = (
            (self.rational, f"rational in {' '.join(self.folded)}"),
            (self.held, f"with {self.still} of {self.units} units held that never bend"),
            (self.segments, "along linear segments"),
            (self.unseen, "that regions beyond the random inputs show"),
            (self.rest, "unexplained"),
        )
        return ", ".join(f"{count} {why}" for count, why in parts if count) or "nothing"


NONE = Excess((), 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, eq=False, repr=False)
class Discovery(Result):
    """The affine symmetries of a network, with evidence.

    `orbit` is the dimension of their orbit at random parameters, `fields` that of the space of
    fields, `nullity` that of the kernel of J at the same parameters on many random inputs. `orbits`
    are the dimensions at the keys tried; `conditions`, `spans` and `tangent` the cuts in the
    spectra of the conditions, of the fields at a point (the last: at several points together), and
    of J. `candidates` is how many coefficients there are, `unknowns` how many of them renamings of
    positions tell apart. `named` are the groups that have a name. `confirmed` says whether the
    conditions have the same rank modulo a prime (None: f is not rational, or too large for it).
    `excess` explains what the nullity has beyond the orbit (None with `ansatz="all"`).
    """

    group: FlowGroup
    parameters: int
    orbits: tuple[int, ...]
    fields: int
    candidates: int
    unknowns: int
    conditions: tuple[SpectralGap, ...]
    spans: tuple[SpectralGap, ...]
    tangent: SpectralGap
    named: tuple[NamedGroup, ...]
    confirmed: bool | None
    excess: Excess | None

    @property
    def explained(self) -> int:
        """The dimension of the orbit of all named groups together."""
        return sum(each.adds for each in self.named)

    @property
    def unnamed(self) -> int:
        """How many dimensions of the orbit no named group explains."""
        return self.orbit - self.explained

    @property
    def orbit(self) -> int:
        """The dimension of the orbit at the first key."""
        return self.orbits[0]

    @property
    def nullity(self) -> int:
        """D − rank J."""
        return self.tangent.nullity

    @property
    def gap(self) -> float:
        """The narrowest gap."""
        return min(each.gap for each in (*self.conditions, *self.spans, *self.named))

    @property
    def decided(self) -> bool:
        """Whether every spectrum has a gap, all keys agree, and a prime where one was asked."""
        return (
            len(set(self.orbits)) == 1 and self.gap >= SMALLEST_GAP and self.confirmed is not False
        )

    def headline(self) -> str:
        """Say the dimensions of orbit and kernel."""
        doubt = "" if self.decided else f" (undecided: {self.orbits}, gap {self.gap:.2g})"
        rest = f", {self.unnamed} without a name" if self.unnamed else ""
        return (
            f"orbit {self.orbit}{doubt}{rest}, nullity {self.nullity} of {self.parameters} "
            f"parameters, gap {self.gap:.1g}"
        )

    @property
    def _parts(self) -> list[tuple[str, int]]:
        """Where the D directions are at the parameters of the first key."""
        parts = [
            ("change the function", self.parameters - self.nullity),
            *((f"{each.kind} of {each.space}", each.adds) for each in self.named),
            ("symmetries without a name", self.unnamed),
            ("beyond the orbit", self.nullity - self.orbit),
        ]
        return [(name, count) for name, count in parts if count > 0]

    def plot(self, axes: Any = None) -> Any:
        """Draw one bar of D directions: those that change the function, the symmetries by name,
        and what no affine symmetry explains; returns the axes.
        """
        axes = axes_of(axes, (7, 1.9))
        return plot_bar(axes, self._parts, self.parameters, x="directions of the parameters")

    def _repr_html_(self) -> str:
        doubt = "" if self.decided else f" Undecided: the keys give {self.orbits}."
        said = (
            f"symmetries of dimension {self.orbit:,} among {self.parameters:,} parameters, smallest "
            f"gap {self.gap:.1g}.{doubt}"
        )
        beyond = self.excess.headline() if self.excess and self.excess.total else ""
        return card(
            "Discovery",
            (said, f"Beyond them: {beyond}.") if beyond else (said,),
            [bar(self._parts, "Directions of the parameters")],
            table_of(self._parts, self.parameters),
            colours=colours_of(self._parts),
        )

    def __str__(self) -> str:
        rows = [f"{each.adds:6}  {each.kind} of {each.space}" for each in self.named]
        beyond = (
            [f"beyond the orbit: {self.excess.headline()}"]
            if self.excess and self.excess.total
            else []
        )
        return "\n".join([self.headline(), *rows, *beyond])


def discover(
    f: Model,
    params: Params,
    x: Samples,
    *,
    key: Key,
    batch: bool = False,
    keys: int = 3,
    ansatz: str = "axes",
) -> Discovery:
    """Return the affine vector fields θ ↦ Aθ + b that leave f unchanged for all parameters and
    inputs.

    Candidates V_a: gl(n) on every axis of every parameter (and for each position of another axis, for
    heads), translations, couplings of parameters through axes that the graph joins; `ansatz="all"`
    takes all D² + D. Conditions: Σ_a c_a ⟨Jᵀu, V_a(θ)⟩ = 0 at random (θ, x, u), more than there are
    unknowns, in float64, rows and columns brought to length 1. The null space is read from the
    spectrum's gap. Where f does not tell the positions of an axis apart (tried), the null space is a
    representation of the symmetric group, generated by its vectors that are fixed by all
    permutations of all but two positions: only those are sought.

    Parameters and inputs are drawn with the sizes of those given; with `batch=True` the whole `x`
    is one input (normalisation in training mode; without it a model whose rows influence each other
    is refused). A field outside of the candidates is not found: `nullity` beside `orbit` says what
    is left.

    `keys` is how many independent draws must agree.

    >>> f = lambda params, x: jax.nn.relu(x @ params[0]) @ params[1]
    >>> found = nm.symmetry.discover(f, (np.ones((2, 3)), np.ones((3, 1))), np.ones((1, 2)), key=jax.random.key(0))
    >>> found.orbit, found.decided        # one scaling for each of the three neurons
    (3, True)
    """
    if ansatz not in ("axes", "all"):
        raise ValueError(f"`ansatz` is {ansatz!r}; pass 'axes' or 'all'.")
    if keys < 1:
        raise ValueError(f"`keys` is {keys}; pass how many keys must agree, 1 or more.")
    check_key(key)
    refuse_tracers((params, x), "`discover`")
    with arithmetic():
        sampler = network_sampler(f, params, x, batch)
        candidates = (
            by_axes(sampler.shapes, sampler.leaf_labels)
            if ansatz == "axes"
            else everything(sampler.shapes)
        )
        moving = sampler.moving if ansatz == "axes" else frozenset()
        rngs = [host_generator(k) for k in jax.random.split(key, keys)]
        return _discover(sampler, candidates, moving, rngs, by_name=ansatz == "axes")


def network_sampler(f: Model, params: Any, x: Any, batch: bool) -> NetworkSampler:
    """Return the arguments, checked, in float64. Call inside `arithmetic`."""
    check_model(f)
    check_param_types(params)
    params, x = promote(params, np.float64), promote(sample_arrays(x, "x"), np.float64)
    check_finite(params, "params")
    check_finite(x, "x")
    sampler = NetworkSampler(f, params, x, batch)
    if not batch:
        rows = jax.tree.map(lambda a: a[:, 0], sampler.draw_input(np.random.default_rng(0), 3))
        check_rows(
            f,
            params,
            rows,
            remedy="pass `batch=True`, so that all of `x` is one input, or a model in evaluation "
            "mode",
        )
    return sampler


def _discover(
    sampler: NetworkSampler,
    ansatz: Ansatz,
    moving: frozenset[int],
    rngs: Sequence[np.random.Generator],
    by_name: bool,
) -> Discovery:
    numbers = sampler.numbers(ansatz, moving)
    conditions, spans, found = [], [], []
    for rng, rows in zip(rngs, sampler.conditions(ansatz, numbers, rngs), strict=True):
        null, cut_here = null_space(rows)
        theta = sampler.draw(rng)
        fields = FieldSpace(sampler, ansatz, moving, null[:, numbers], rng)
        conditions.append(cut_here)
        spans.append(fields.span([theta]))
        found.append((theta, fields))
    theta, fields = found[0]
    tangent = null_space(
        sampler.tangent_rows(theta, rngs[0], sampler.size + MARGIN), vectors=False
    )[1]
    basis, independent = fields.basis()
    names = find_named_groups(sampler, ansatz, theta, rngs[0]) if by_name else ()
    exact = rank_modulo(sampler, ansatz, numbers, conditions[0].rank, rngs[0])
    labels = tuple(f"field[{k}]" for k in range(len(basis)))
    return Discovery(
        group=FlowGroup(sampler.f, ansatz, basis, labels).normalised(),
        parameters=sampler.size,
        orbits=tuple(each.rank for each in spans),
        fields=independent.rank,
        candidates=ansatz.size,
        unknowns=int(numbers.max(initial=-1)) + 1,
        conditions=tuple(conditions),
        spans=(*spans, independent),
        tangent=tangent,
        named=names,
        confirmed=None if exact is None else exact == conditions[0].rank,
        excess=explain_excess(sampler, theta, rngs[0], spans[0].rank, tangent.nullity)
        if by_name
        else None,
    )


def _fields_at(
    sampler: NetworkSampler, theta: list[np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return an orthonormal basis of a network's affine fields at a point: one key, no renamings of
    places.
    """
    ansatz = by_axes(sampler.shapes, sampler.leaf_labels)
    numbers = sampler.numbers(ansatz, frozenset())
    [rows] = sampler.conditions(ansatz, numbers, [rng])
    fields = FieldSpace(sampler, ansatz, frozenset(), null_space(rows)[0], rng)
    rank = fields.span([theta]).rank
    return np.linalg.svd(fields.values(fields.null, [theta]), full_matrices=False)[2][:rank]


@dataclass(frozen=True, eq=False)
class FieldSpace:
    """The null space of the conditions with its renamings: random members, their span at points,
    and a basis.
    """

    sampler: NetworkSampler
    ansatz: Ansatz
    moving: frozenset[int]
    null: np.ndarray
    rng: np.random.Generator

    def members(self, count: int) -> np.ndarray:
        """Return random fields: combinations of the null vectors, places renamed at random; all
        null vectors where there are no renamings.
        """
        if not self.moving or not len(self.null):
            return self.null
        sizes = self.sampler.labels.sizes
        found = []
        for _ in range(count):
            order = {a: self.rng.permutation(sizes[a]) for a in sorted(self.moving)}
            parts = self.ansatz.parts(self.rng.standard_normal(len(self.null)) @ self.null)
            moved = [
                self.sampler.permuted(part, term.axes, order)
                for part, term in zip(parts, self.ansatz.terms, strict=True)
            ]
            found.append(np.concatenate([np.ravel(part) for part in moved]))
        return np.array(found)

    def values(self, members: np.ndarray, points: Sequence[list[np.ndarray]]) -> np.ndarray:
        """Return the fields at points, side by side."""
        group = FlowGroup(self.sampler.f, self.ansatz, members, ())
        return np.concatenate([group.generators(theta) for theta in points], axis=1)

    def span(self, points: Sequence[list[np.ndarray]]) -> SpectralGap:
        """Return the rank of all fields at these points together."""
        return self._find_span(points)[1]

    def _find_span(
        self, points: Sequence[list[np.ndarray]], members: np.ndarray | None = None
    ) -> tuple[np.ndarray, SpectralGap, np.ndarray]:
        """Return enough members to span, the cut, and the combinations of them that are orthonormal
        at the points.
        """
        members = self.members(64) if members is None else members
        while True:
            self._check_size(len(members))
            values = self.values(members, points)
            U, s, _ = np.linalg.svd(values, full_matrices=False)
            # Fields that are zero, written in two ways, are rounding: all of them, where nothing is
            # symmetric.
            something = s.max(initial=0.0) > _NOTHING * np.linalg.norm(members, axis=1).max(
                initial=0.0
            )
            found = spectral_gap(s if something else s[:0], min(values.shape))
            if found.rank < 0.9 * len(members) or not self.moving or found.rank == values.shape[1]:
                return members, found, (U[:, : found.rank] / s[: found.rank]).T
            members = np.concatenate([members, self.members(len(members))])

    def _check_size(self, count: int) -> None:
        if count * self.ansatz.size > _MOST_NUMBERS:
            raise ValueError(
                f"`params` has {self.sampler.size} parameters and {count} or more fields of "
                f"{self.ansatz.size} coefficients each, "
                f"above {_MOST_NUMBERS} numbers; pass a narrower network of the same architecture."
            )

    def basis(self) -> tuple[np.ndarray, SpectralGap]:
        """Return independent fields, as many as there are, and the cut that says how many: more
        points do not tell more of them apart.
        """
        points = [self.sampler.draw(self.rng) for _ in range(3)]
        members, found, _ = self._find_span(points)
        while True:
            # A leaf that f does not read has fields without end: at few points they are more than
            # their values tell apart.
            points += [self.sampler.draw(self.rng) for _ in points]
            more, wider, combinations = self._find_span(points, members)
            if wider.rank == found.rank:
                return _remove(combinations @ more, _zero_fields(more, combinations)), wider
            members, found = more, wider


def _zero_fields(members: np.ndarray, combinations: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the coefficients that write the zero field (the identity on
    one axis less that on another).
    """
    Q = np.linalg.qr(combinations.T, mode="complete")[0][:, len(combinations) :]
    _, s, V = np.linalg.svd(Q.T @ members, full_matrices=False)
    return V[s > _WRITTEN * np.linalg.norm(members, axis=1).max(initial=0.0)]


def _remove(rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    return rows - (rows @ directions.T) @ directions


_BITS = 26
_MOST_ADDED = 2**10
"""So many products of residues below 2²⁶ can be added in 64 bits."""
_SAMPLES = 4
_ROUNDS = 6
_MOST_UNKNOWNS = 700


def rank_modulo(
    sampler: NetworkSampler,
    ansatz: Ansatz,
    numbers: np.ndarray,
    expected: int,
    rng: np.random.Generator,
) -> int | None:
    """Return the rank of the conditions modulo a random prime of 26 bits; None where f is not
    rational, or the system is large.

    On a region where all bends are decided alike, f is a rational function of parameters and input,
    and so are the conditions: they hold on the region exactly when they hold as identities. The
    gates are taken at random floats, numbers are random residues. The rank is at most that of the
    conditions, so what is left is at least the space of fields. Rows are added, since units may be
    off, until the rank is the one `expected` or six times as many rows as unknowns were seen.
    """
    unknowns = int(numbers.max(initial=-1)) + 1
    if sampler.batch or not 0 < unknowns <= _MOST_UNKNOWNS or sampler.size > _MOST_ADDED:
        return None
    graph = trace(sampler.f, sampler.params, sampler.one)
    if not graph.exact:
        return None
    p = modular.random_prime(bits=_BITS)
    rows, rank = np.empty((0, unknowns), np.int64), -1
    for more in range(1, _ROUNDS + 1):
        while len(rows) < more * (unknowns + MARGIN):
            rows = np.concatenate(
                [rows, _conditions(sampler, graph, ansatz, numbers, unknowns, p, rng)]
            )
        rank = modular_rank(rows, p)
        if rank >= expected:
            break
    return rank


def _conditions(
    sampler: NetworkSampler,
    graph: Graph,
    ansatz: Ansatz,
    numbers: np.ndarray,
    unknowns: int,
    p: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return conditions at random residues, on the region of a random point and of a few random
    inputs.
    """
    theta, x = sampler.draw(rng), jax.tree.map(lambda a: a[:, 0], sampler.draw_input(rng, _SAMPLES))
    A = ResidueArithmetic(p)
    gates = float_gates(graph, jax.tree.unflatten(sampler.structure, theta), x)
    leaves = [A.random(shape) for shape in sampler.shapes]
    inputs = [
        A.random(np.shape(a)) if is_floating(a) else np.asarray(a) for a in jax.tree.leaves(x)
    ]
    program = programs.jacobians(graph, _SAMPLES, tuple(range(len(leaves))))
    [J] = walk(program, A, [*leaves, *inputs, *(np.asarray(g) for g in jax.tree.leaves(gates))])
    values = [leaf.values for leaf in leaves]
    cuts = np.cumsum([leaf.size for leaf in values])[:-1]
    found = []
    for row in J.values.reshape(-1, J.values.shape[-1]):
        parts = [
            part.reshape(leaf.shape) for part, leaf in zip(np.split(row, cuts), values, strict=True)
        ]
        full = np.concatenate([_pull(term, parts, values, p).reshape(-1) for term in ansatz.terms])
        reduced = np.zeros(unknowns, np.int64)
        np.add.at(reduced, numbers, full)
        found.append(reduced % p)
    return np.array(found)


def _pull(term: Term, cotangents: list[Any], leaves: list[Any], p: int) -> np.ndarray:
    if term.source < 0:
        return cotangents[term.target]
    coefficient, source, target = term.letters
    return (
        np.einsum(f"{target},{source}->{coefficient}", cotangents[term.target], leaves[term.source])
        % p
    )


def explain_excess(
    sampler: NetworkSampler, theta: Leaves, rng: np.random.Generator, orbit: int, nullity: int
) -> Excess:
    """Explain `nullity` less `orbit` at the parameters `theta`."""
    if nullity == orbit:
        return NONE
    names, inner, point = _fold(sampler, theta, rng)
    gone = sampler.size - inner.size
    own = len(_fields_at(inner, point, rng)) if gone else orbit
    held = HeldNetwork.of(inner, point, rng)
    fixed = _fields_at(NetworkSampler(held, inner.params, inner.x, inner.batch), point, rng)
    rest = nullity - gone - len(fixed)
    segments = held.count_segment_directions(point, fixed, rng) if rest > 0 else 0
    rest -= segments
    unseen = min(rest, held.count_unseen(point, nullity - gone, rng)) if rest > 0 else 0
    counts = (gone + own - orbit, len(fixed) - own, segments, unseen)
    return Excess(names, *counts, held.still, held.units, rest - unseen)


def _fold(
    sampler: NetworkSampler, theta: Leaves, rng: np.random.Generator
) -> tuple[tuple[str, ...], NetworkSampler, Leaves]:
    if sampler.batch:
        return (), sampler, theta
    x = jax.tree.map(lambda a: a[:, 0], sampler.draw_input(rng, _FEW))
    names, model, small = without_scales(sampler.f, jax.tree.unflatten(sampler.structure, theta), x)
    inner = NetworkSampler(model, small, x, False) if names else sampler
    return names, inner, jax.tree.leaves(small) if names else theta


@dataclass(frozen=True, eq=False)
class HeldNetwork:
    """A network in which units that did not switch at some parameters, on random inputs, are
    held as they were.
    """

    sampler: NetworkSampler
    on: tuple[np.ndarray, ...]
    off: tuple[np.ndarray, ...]

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        """What makes two held networks the same function."""
        sampler, held = self.sampler, (*self.on, *self.off)
        shapes = Signature.of(sampler.params), Signature.of(sampler.one)
        return sampler.f, *shapes, sampler.batch, *((a.shape, a.tobytes()) for a in held)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldNetwork) and self._key == other._key

    @staticmethod
    def of(sampler: NetworkSampler, theta: Leaves, rng: np.random.Generator) -> "HeldNetwork":
        """Return the network of `sampler` with its units held as they are at `theta`."""
        graph = _graph(sampler)
        params = jax.tree.unflatten(sampler.structure, [jnp.asarray(leaf) for leaf in theta])
        x = sampler.draw_wide(rng, _INPUTS)
        x = x if sampler.batch else jax.tree.map(lambda a: a[:, 0], x)
        gates, zeros = ([np.asarray(a) for a in each] for each in _decide(graph, params, x))
        return HeldNetwork(sampler, *constant_units(gates, zeros))

    @property
    def still(self) -> int:
        """How many units did not switch."""
        return sum(int((a | b).sum()) for a, b in zip(self.on, self.off, strict=True))

    @property
    def units(self) -> int:
        """How many units there are."""
        return sum(a.size for a in self.on)

    @cached_property
    def graph(self) -> Graph:
        """The network at one input."""
        return _graph(self.sampler)

    def count_segment_directions(
        self, theta: Leaves, known: np.ndarray, rng: np.random.Generator
    ) -> int:
        """Count the directions that change no linear segment, and f nowhere, outside of the space
        `known`.
        """
        switching, D = switching_units(self.on, self.off), self.sampler.size
        scaled = np.concatenate([np.zeros(0, bool), *(units.ravel() for units in switching)])
        if not has_linear_segments(self.graph, D) or not scaled.any():
            return 0
        rows = self._rows(theta, rng, _FEW)
        whole = rows.segment_rows(self.on, switching, D + len(scaled) + MARGIN, rng)
        found = null_space(whole[:, np.append(np.ones(D, bool), scaled)])
        J = self.sampler.tangent_rows(theta, rng, D + MARGIN)
        J = J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        inside = found[0][np.abs(J @ found[0][:, :D].T).max(axis=0) <= _VERIFIED, :D]
        spectrum = np.linalg.svd(np.concatenate([known, inside]), compute_uv=False)
        return spectral_gap(spectrum, min(len(known) + len(inside), D)).rank - len(known)

    def count_unseen(self, theta: Leaves, nullity: int, rng: np.random.Generator) -> int:
        """Count the directions of a nullity that are none: by how much J has a larger rank on all
        regions that a search reaches.
        """
        if not self.graph.bending:
            return 0
        *_, rank, D = chain_of(self._rows(theta, rng, _SEARCHED), rng).ranks
        return max(0, nullity - (D - rank))

    def _rows(self, theta: Leaves, rng: np.random.Generator, count: int) -> FloatRows:
        """Return the Jacobian of the network at `theta`, on `count` random inputs."""
        x = self.sampler.draw_wide(rng, count)
        data = jax.tree.leaves(x if self.sampler.batch else jax.tree.map(lambda a: a[:, 0], x))
        params = jax.tree.unflatten(self.sampler.structure, theta)
        return FloatRows(self.graph, params, tuple(map(np.asarray, data)), FloatSpaces())

    def __call__(self, params: Any, x: Any) -> Any:
        """Return the outputs of f with these units held, flat."""
        if self.sampler.batch:
            return self._one(params, x)[None]
        return jax.vmap(lambda sample: self._one(params, sample))(x)

    def _one(self, params: Any, sample: Any) -> Any:
        found = interpret(
            self.graph.program,
            [*jax.tree.leaves(params), *jax.tree.leaves(sample)],
            _Holding(self.on, self.off),
        )
        return jnp.concatenate([value.reshape(-1) for value in found])


@jax.jit(static_argnums=0)
def _decide(graph: Graph, params: Any, x: Any) -> tuple[Any, Any]:
    """Return the gates of `graph` at every sample of `x`, and where the quantity behind a gate is
    zero: at random numbers, because nothing that it is made of is on.
    """

    def one(sample: Any) -> tuple[Any, Any]:
        gates = graph.decide(params, sample)
        pairs = zip(graph.quantities(params, sample, gates), gates, strict=True)
        return gates, tuple(q == 0 if g.dtype == bool else g for q, g in pairs)

    return jax.vmap(one)(x)


class _Holding(Oracle):
    def __init__(self, on: tuple[np.ndarray, ...], off: tuple[np.ndarray, ...]) -> None:
        self._held = iter(zip(on, off, strict=True))

    def positive(self, quantity: Any) -> Any:
        on, off = next(self._held)
        return ((quantity > 0) | on) & ~off

    def largest(self, candidates: Any) -> Any:
        next(self._held)
        return jnp.argmax(candidates, axis=-1)


def _graph(sampler: NetworkSampler) -> Graph:
    """Return the network of `sampler` at one input: with `batch` the whole batch is the sample."""
    if not sampler.batch:
        return trace(sampler.f, sampler.params, sampler.one)

    whole = jax.tree.map(lambda a: a[None], sampler.one)
    return trace(_OneBatch(sampler.f), sampler.params, whole)


@dataclass(frozen=True)
class _OneBatch:
    """A model whose one sample is a whole batch of `f`."""

    f: Model

    def __call__(self, params: Any, x: Any) -> Any:
        outputs = self.f(params, jax.tree.map(lambda a: a[0], x))
        return jax.tree.map(lambda y: y[None], outputs)
