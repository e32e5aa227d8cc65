"""`named_groups`: the symmetries that channels, heads, gains and streams have by name, read from
the graph and verified.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuromanifold.graph.axes import Axes
from neuromanifold.graph.selection import leaf_names
from neuromanifold.numerics.results import Result
from neuromanifold.symmetry.discovery.ansatz import Ansatz, Term
from neuromanifold.symmetry.discovery.conditions import NetworkSampler
from neuromanifold.symmetry.discovery.numerical_null_space import spectral_gap
from neuromanifold.symmetry.groups.flow import FlowGroup

Place = tuple[int, int]


@dataclass(frozen=True)
class Space:
    """The places of one atom on all axes of parameters that have it, for each place of the atom
    `each` (−1: none).
    """

    atom: int
    each: int
    members: tuple[tuple[int, int], ...]

    def name(self, names: tuple[str, ...]) -> str:
        """Return the leaves that have it."""
        return " ".join(dict.fromkeys(names[leaf] for leaf, _ in self.members))


def spaces(labels: tuple[Axes, ...], sizes: dict[int, int]) -> list[Space]:
    """Return all spaces, with each companion that all members have before those without."""
    found = []
    for atom in sorted({a for axes in labels for axis in axes for a in axis}):
        members = tuple(
            (k, at) for k, axes in enumerate(labels) for at, axis in enumerate(axes) if atom in axis
        )
        companions = [{a for axis in labels[k] for a in axis} - {atom} for k, _ in members]
        common = sorted(set.intersection(*companions)) if companions else []
        found += [Space(atom, each, members) for each in (*common, -1)]
    return found


@dataclass(frozen=True, eq=False)
class Patterns:
    """Fields of one shape: X = E_ij on a member, shifts and what absorbs them, as coefficients
    of an ansatz.
    """

    ansatz: Ansatz
    labels: tuple[Axes, ...]
    sizes: dict[int, int]

    def allows(self, space: Space) -> bool:
        """Whether the ansatz has a term for every member."""
        return all(self._term(space, m) is not None for m in range(len(space.members)))

    def _term(self, space: Space, member: int) -> tuple[Term, int] | None:
        leaf, axis = space.members[member]
        lead = space.each if self._leads(space, member) else -1
        for term, start in zip(self.ansatz.terms, self.ansatz.starts, strict=True):
            if term.target == leaf == term.source and self._acts(term, leaf, axis, lead):
                return term, start
        return None

    def _leads(self, space: Space, member: int) -> bool:
        leaf, axis = space.members[member]
        return space.each >= 0 and space.each not in self.labels[leaf][axis]

    def matrix(self, space: Space, member: int, place: Place, each: int = 0) -> np.ndarray:
        """Return E_ij on the member's axis, where the companion is at its place `each`."""
        found = self._term(space, member)
        assert found is not None
        term, start = found
        return self._place(
            term, start, self._entries(space, term, place, each, self._leads(space, member))
        )

    def _acts(self, term: Term, leaf: int, axis: int, lead: int) -> bool:
        coefficient, source, target = term.letters
        if source[axis] == target[axis] or source[axis] not in coefficient:
            return False
        if lead < 0:
            return len(coefficient) == 2
        return len(coefficient) == 3 and self.labels[leaf][source.index(coefficient[0])] == (lead,)

    def _entries(self, space: Space, term: Term, place: Place, each: int, lead: bool) -> np.ndarray:
        """Return C with E_ij in the places of the atom, the identity in those of the axis's other
        atoms.
        """
        axis = term.axes[-1]
        block = np.ones((1, 1))
        for atom in axis:
            n = self.sizes[atom]
            part = np.zeros((n, n))
            if atom == space.atom:
                part[place] = 1.0
            elif atom == space.each:
                part[each, each] = 1.0
            else:
                part = np.eye(n)
            block = np.kron(block, part)
        if not lead:
            return block
        found = np.zeros(term.shape)
        found[each] = block
        return found

    def shifts(self, space: Space, place: int, free: frozenset[int]) -> list[np.ndarray]:
        """Return translations along one place, the same on all other axes, and one-place couplings
        that absorb them; none of free leaves.
        """
        found = []
        for term, start in zip(self.ansatz.terms, self.ansatz.starts, strict=True):
            if term.source == term.target or term.target in free:
                continue
            places = [at for at, axis in enumerate(term.axes) if space.atom in axis]
            if places and (term.source < 0 or len(places) == 1):
                found.append(self._shift(term, start, places[0], space.atom, place))
            elif len(places) == 2 == len(term.shape):
                lines = np.outer(
                    self._line(term, places[0], space.atom, place),
                    self._line(term, places[1], space.atom, place),
                )
                found.append(self._place(term, start, lines))
        return found

    def translation(self, leaf: int, space: Space, place: int) -> np.ndarray:
        """Return the coefficients of a translation of one leaf."""
        term, start = next(
            (term, start) for term, start in zip(self.ansatz.terms, self.ansatz.starts, strict=True)
            if term.target == leaf and term.source < 0
        )  # fmt: skip
        at = next(at for at, axis in enumerate(term.axes) if space.atom in axis)
        return self._shift(term, start, at, space.atom, place)

    def _line(self, term: Term, at: int, atom: int, place: int) -> np.ndarray:
        line = np.ones(())
        for a in term.axes[at]:
            line = np.multiply.outer(
                line, np.eye(self.sizes[a])[place] if a == atom else np.ones(self.sizes[a])
            )
        return line.reshape(-1)

    def _shift(self, term: Term, start: int, at: int, atom: int, place: int) -> np.ndarray:
        shape = [1] * len(term.shape)
        shape[at] = term.shape[at]
        return self._place(
            term,
            start,
            np.broadcast_to(self._line(term, at, atom, place).reshape(shape), term.shape),
        )

    def _place(self, term: Term, start: int, values: Any) -> np.ndarray:
        found = np.zeros(self.ansatz.size)
        found[start : start + term.size] = np.ravel(values)
        return found


def mixing_patterns(patterns: Patterns, space: Space) -> np.ndarray:
    """Return E_01 and E_10 on every member."""
    places = itertools.product(range(len(space.members)), ((0, 1), (1, 0)))
    return np.array([patterns.matrix(space, m, place) for m, place in places])


def scaling_patterns(patterns: Patterns, space: Space) -> np.ndarray:
    """Return E_00 on every member."""
    return np.array([patterns.matrix(space, m, (0, 0)) for m in range(len(space.members))])


_VERIFIED = 1e-9
_ROUNDED = 1e-8
_ROWS = 160
_FLOOR = 1e-6
_ORDER = ("GL", "O(", "scaling", "free", "shift", "affine scaling", "scale")


@dataclass(frozen=True, eq=False, repr=False)
class NamedGroup(Result):
    """A group with a name: `kind` says what it does with the places of a space, `space` which
    parameters have that space.

    `adds` is by how much it raises the dimension of the orbit, after the groups before it; `gap`
    that of the spectrum it was read from.
    """

    kind: str
    space: str
    group: FlowGroup
    adds: int
    gap: float

    @property
    def dimension(self) -> int:
        """How many generators it has."""
        return self.group.dimension

    def headline(self) -> str:
        """Say its name and its dimension."""
        return f"{self.kind} of {self.space}, dimension {self.dimension}, adds {self.adds}"


def find_named_groups(
    sampler: NetworkSampler, ansatz: Ansatz, theta: list[np.ndarray], rng: np.random.Generator
) -> tuple[NamedGroup, ...]:
    """Return all named groups of a network: proposed from axes that the graph joins, solved for at
    two places, verified at all.

    Those that add nothing to the orbit at θ of those before them are left out.
    """
    names, labels, sizes = leaf_names(sampler.params), sampler.leaf_labels, sampler.labels.sizes
    ask = _Questions(sampler, Patterns(ansatz, labels, sizes), rng)
    proposed = [space for space in spaces(labels, sizes) if ask.patterns.allows(space)]
    families = [
        (kind, space.name(names), rows) for space in proposed for kind, rows in ask.families(space)
    ]
    families += [("shift", "all", rows) for rows in ask.common_shifts()]
    groups = [
        (kind, name, FlowGroup(sampler.f, ansatz, rows, ()).normalised())
        for kind, name, rows in families
    ]
    groups = [each for each in groups if ask.holds(each[2])]
    groups.sort(
        key=lambda each: next(k for k, kind in enumerate(_ORDER) if each[0].startswith(kind))
    )
    return tuple(_join(_keep_adding(groups, theta)))


def _keep_adding(
    groups: list[tuple[str, str, FlowGroup]], theta: list[np.ndarray]
) -> Iterator[NamedGroup]:
    known = np.empty((0, sum(leaf.size for leaf in theta)))
    for kind, name, group in groups:
        values = np.concatenate([known, group.generators(theta)])
        _, s, V = np.linalg.svd(values, full_matrices=False)
        found = spectral_gap(s, min(values.shape))
        if found.rank > len(known):
            yield NamedGroup(kind, name, group, found.rank - len(known), found.gap)
            known = V[: found.rank]


def _join(groups: Iterator[NamedGroup]) -> list[NamedGroup]:
    """Groups of equal kind and space, joined: GL(n) is found in parts."""
    found: dict[tuple[str, str], list[NamedGroup]] = {}
    for each in groups:
        found.setdefault((each.kind, each.space), []).append(each)
    joined = []
    for (kind, name), parts in found.items():
        rows = np.concatenate([each.group.coefficients for each in parts])
        labels = tuple(f"{kind} of {name} [{k}]" for k in range(len(rows)))
        group = replace(parts[0].group, coefficients=rows, labels=labels)
        gap = min(each.gap for each in parts)
        joined.append(NamedGroup(kind, name, group, sum(each.adds for each in parts), gap))
    return joined


def echelon(rows: np.ndarray) -> np.ndarray:
    """Return reduced row echelon form by complete pivoting, with entries at rounding level set to
    zero.
    """
    rows = np.array(rows, np.float64)
    for k in range(len(rows)):
        rest = np.abs(rows[k:])
        i, j = (int(place) for place in np.unravel_index(int(np.argmax(rest)), rest.shape))
        rows[[k, k + i]] = rows[[k + i, k]]
        rows[k] /= rows[k, j]
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, j], rows[k])
    rows[np.abs(rows) < _ROUNDED] = 0.0
    return rows


def _first_of_pair(solutions: np.ndarray, k: int) -> bool:
    """Say whether solution k is the first of X = E_01 and X = E_10, which give the same fields over
    all pairs of places.
    """
    turned = _scale_to_one(solutions[k].reshape(-1, 2)[:, ::-1].reshape(-1))
    return not any(np.allclose(_scale_to_one(other), turned) for other in solutions[:k])


def _scale_to_one(row: np.ndarray) -> np.ndarray:
    return row / row[np.argmax(np.abs(row))]


@dataclass(frozen=True, eq=False)
class _Questions:
    """Asks a network about patterns."""

    sampler: NetworkSampler
    patterns: Patterns
    rng: np.random.Generator

    def solutions(self, proposed: Any) -> np.ndarray:
        """Return the combinations of proposed fields that annihilate J, as echelon rows."""
        proposed = np.array(proposed)
        if not len(proposed):
            return np.empty((0, 0))
        rows = self.sampler.products(self.patterns.ansatz, proposed, self.rng, _ROWS)
        columns = np.maximum(np.linalg.norm(rows, axis=0), _FLOOR)
        _, s, V = np.linalg.svd(rows / columns)
        # The 1 is the size of what is not rounding, in case all of it is.
        found = spectral_gap(np.append(1.0, s) if s[0] < 1 else s, len(proposed) + int(s[0] < 1))
        null = V[found.rank - int(s[0] < 1) :] / columns / np.linalg.norm(proposed, axis=1)
        return echelon(null) if found.decided else np.empty((0, len(proposed)))

    def families(self, space: Space) -> Iterator[tuple[str, np.ndarray]]:
        """Yield kinds with their generators, as rows of coefficients."""
        leaves = dict.fromkeys(leaf for leaf, _ in space.members)
        free = frozenset(
            k for k in leaves if len(self.solutions([self.patterns.translation(k, space, 0)]))
        )
        own = replace(space, members=tuple(m for m in space.members if m[0] not in free))
        if own.members:
            yield from self._linear(own)
        if space.each < 0:
            yield from self._shifts(own, free)
            for leaf in sorted(free):
                whole = len(self.sampler.shapes[leaf]) == 1
                rows = [self.patterns.translation(leaf, space, i) for i in range(self.size(space))]
                yield "free" if whole else "shift", np.array(rows)

    def size(self, space: Space) -> int:
        return self.patterns.sizes[space.atom]

    def _linear(self, space: Space) -> Iterator[tuple[str, np.ndarray]]:
        n, matrix, count = self.size(space), self.patterns.matrix, range(len(space.members))
        heads = range(self.patterns.sizes[space.each]) if space.each >= 0 else range(1)
        tag = f" for each of {len(heads)} heads" if space.each >= 0 else ""
        mixing = self.solutions(mixing_patterns(self.patterns, space))
        scaling = self.solutions(scaling_patterns(self.patterns, space))
        kinds: list[str] = []
        for k, solution in enumerate(mixing):
            into, back = solution[::2], solution[1::2]
            skew = np.allclose(into, -back)
            if not skew and not _first_of_pair(mixing, k):
                continue
            pairs = [(i, j) for i in range(n) for j in range(n) if (i < j if skew else i != j)]
            rows = [
                sum(into[m] * matrix(space, m, (i, j), h) + back[m] * matrix(space, m, (j, i), h) for m in count)
                for h in heads for i, j in pairs
            ]  # fmt: skip
            kinds.append(f"O({n})" if skew else f"GL({n})")
            yield kinds[-1] + tag, np.array(rows)
        for solution in scaling:
            rows = [
                sum(solution[m] * matrix(space, m, (i, i), h) for m in count)
                for h in heads
                for i in range(n)
            ]
            yield (
                (f"GL({n})" if any("GL" in kind for kind in kinds) else "scaling") + tag,
                np.array(rows),
            )
        if space.each < 0:
            whole = np.array([sum(matrix(space, m, (i, i)) for i in range(n)) for m in count])
            for solution in self.solutions(whole):
                yield "scale", solution[None] @ whole

    def _shifts(self, space: Space, free: frozenset[int]) -> Iterator[tuple[str, np.ndarray]]:
        """Return what shifts a place, with scalings of it; what scalings alone give is left out.
        Places that differ are asked one by one.
        """
        count = range(len(space.members))

        def at(place: int) -> np.ndarray:
            scalings = [self.patterns.matrix(space, m, (place, place)) for m in count]
            return np.array(self.patterns.shifts(space, place, free) + scalings)

        places = [at(i) for i in range(self.size(space))]
        alike = space.atom not in self.sampler.labels.rigid
        shifts = len(places[0]) - len(count)
        for k, place in enumerate(places[:1] if alike else places):
            for solution in self.solutions(place):
                if np.abs(solution[:shifts]).max(initial=0.0) > 0:
                    kind = (
                        "affine scaling"
                        if np.abs(solution[shifts:]).max(initial=0.0) > 0
                        else "shift"
                    )
                    yield (
                        kind,
                        np.array(
                            [solution @ each for each in (places if alike else places[k : k + 1])]
                        ),
                    )

    def common_shifts(self) -> Iterator[np.ndarray]:
        """Yield translations of all entries of a leaf alike."""
        ansatz = self.patterns.ansatz
        proposed = np.zeros((len(ansatz.shapes), ansatz.size))
        for term, start in zip(ansatz.terms, ansatz.starts, strict=True):
            if term.source < 0:
                proposed[term.target, start : start + term.size] = 1.0
        for solution in self.solutions(proposed):
            yield solution[None] @ proposed

    def holds(self, group: FlowGroup) -> bool:
        """Whether every generator annihilates J at random parameters and inputs."""
        return bool(
            (
                np.abs(self.sampler.products(group.ansatz, group.coefficients, self.rng, 8))
                <= _VERIFIED
            ).all()
        )
