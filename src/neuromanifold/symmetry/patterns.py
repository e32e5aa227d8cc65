"""Named candidates: what a space of places (channels, heads, a stream) allows, told from two of its places."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.graph.axes import Axes
from neuromanifold.symmetry.ansatz import Ansatz, Term

Place = tuple[int, int]


@dataclass(frozen=True)
class Space:
    """The places of one atom on all axes of parameters that have it, for each place of the atom `each` (−1: none)."""

    atom: int
    each: int
    members: tuple[tuple[int, int], ...]

    def name(self, names: tuple[str, ...]) -> str:
        """The leaves that have it."""
        return " ".join(dict.fromkeys(names[leaf] for leaf, _ in self.members))


def spaces(labels: tuple[Axes, ...], sizes: dict[int, int]) -> list[Space]:
    """All spaces, with each companion that all members have before those without."""
    found = []
    for atom in sorted({a for axes in labels for axis in axes for a in axis}):
        members = tuple((k, at) for k, axes in enumerate(labels) for at, axis in enumerate(axes) if atom in axis)
        companions = [{a for axis in labels[k] for a in axis} - {atom} for k, _ in members]
        common = sorted(set.intersection(*companions)) if companions else []
        found += [Space(atom, each, members) for each in (*common, -1)]
    return found


@dataclass(frozen=True, eq=False)
class Patterns:
    """Fields of one shape: X = E_ij on a member, shifts and what absorbs them, as coefficients of an ansatz."""

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
        """E_ij on the member's axis, where the companion is at its place `each`."""
        found = self._term(space, member)
        assert found is not None
        term, start = found
        return self._placed(term, start, self._entries(space, term, place, each, self._leads(space, member)))

    def _acts(self, term: Term, leaf: int, axis: int, lead: int) -> bool:
        coefficient, source, target = term.letters
        if source[axis] == target[axis] or source[axis] not in coefficient:
            return False
        if lead < 0:
            return len(coefficient) == 2
        return len(coefficient) == 3 and self.labels[leaf][source.index(coefficient[0])] == (lead,)

    def _entries(self, space: Space, term: Term, place: Place, each: int, lead: bool) -> np.ndarray:
        """C with E_ij in the places of the atom, the identity in those of the axis's other atoms."""
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
        """Translations along one place, the same on all other axes, and one-place couplings that absorb them; none of free leaves."""
        found = []
        for term, start in zip(self.ansatz.terms, self.ansatz.starts, strict=True):
            if term.source == term.target or term.target in free:
                continue
            places = [at for at, axis in enumerate(term.axes) if space.atom in axis]
            if places and (term.source < 0 or len(places) == 1):
                found.append(self._shift(term, start, places[0], space.atom, place))
            elif len(places) == 2 == len(term.shape):
                lines = np.outer(
                    self._line(term, places[0], space.atom, place), self._line(term, places[1], space.atom, place)
                )
                found.append(self._placed(term, start, lines))
        return found

    def translation(self, leaf: int, space: Space, place: int) -> np.ndarray:
        """That of one leaf."""
        term, start = next(
            (term, start) for term, start in zip(self.ansatz.terms, self.ansatz.starts, strict=True)
            if term.target == leaf and term.source < 0
        )  # fmt: skip
        at = next(at for at, axis in enumerate(term.axes) if space.atom in axis)
        return self._shift(term, start, at, space.atom, place)

    def _line(self, term: Term, at: int, atom: int, place: int) -> np.ndarray:
        line = np.ones(())
        for a in term.axes[at]:
            line = np.multiply.outer(line, np.eye(self.sizes[a])[place] if a == atom else np.ones(self.sizes[a]))
        return line.reshape(-1)

    def _shift(self, term: Term, start: int, at: int, atom: int, place: int) -> np.ndarray:
        shape = [1] * len(term.shape)
        shape[at] = term.shape[at]
        return self._placed(term, start, np.broadcast_to(self._line(term, at, atom, place).reshape(shape), term.shape))

    def _placed(self, term: Term, start: int, values: Any) -> np.ndarray:
        found = np.zeros(self.ansatz.size)
        found[start : start + term.size] = np.ravel(values)
        return found


def mixing_patterns(patterns: Patterns, space: Space) -> np.ndarray:
    """E_01 and E_10 on every member."""
    places = itertools.product(range(len(space.members)), ((0, 1), (1, 0)))
    return np.array([patterns.matrix(space, m, place) for m, place in places])


def scaling_patterns(patterns: Patterns, space: Space) -> np.ndarray:
    """E_00 on every member."""
    return np.array([patterns.matrix(space, m, (0, 0)) for m in range(len(space.members))])
