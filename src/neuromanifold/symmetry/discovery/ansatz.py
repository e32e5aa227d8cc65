"""The candidates among which symmetries are sought: affine vector fields that act on one axis of
one parameter at a time.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.axes import Axes, Axis

_LETTERS = "abcdefghijklm"
_MIXED = "nopqrstuvwxyz"


@dataclass(frozen=True)
class Term:
    """δθ_target = C ∘ θ_source (`source` −1: the constant 1), C a free tensor: `equation` is
    einsum's, "C,source->target".
    """

    target: int
    source: int
    equation: str
    shape: tuple[int, ...]
    axes: Axes

    @property
    def size(self) -> int:
        """How many coefficients."""
        return math.prod(self.shape)

    @property
    def letters(self) -> tuple[str, str, str]:
        """The letters of C, of the source and of the target."""
        operands, target = self.equation.split("->")
        coefficient, _, source = operands.partition(",")
        return coefficient, source, target

    def push(self, coefficients: Any, leaves: Sequence[Any]) -> Any:
        """Return C ∘ θ_source."""
        return (
            coefficients
            if self.source < 0
            else jnp.einsum(self.equation, coefficients, leaves[self.source])
        )

    def pull(self, cotangents: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Return the derivative of ⟨cotangent, C ∘ θ_source⟩ by C."""
        if self.source < 0:
            return cotangents[self.target]
        coefficient, source, target = self.letters
        return jnp.einsum(
            f"{target},{source}->{coefficient}", cotangents[self.target], leaves[self.source]
        )


@dataclass(frozen=True)
class Ansatz:
    """Fields V_c(θ), linear in the coefficients c = (C_1, C_2, …) of all terms, one after the
    other.
    """

    shapes: tuple[tuple[int, ...], ...]
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """How many coefficients there are."""
        return sum(term.size for term in self.terms)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each term's coefficients begin."""
        return tuple(np.cumsum([0, *(term.size for term in self.terms)])[:-1].tolist())

    def parts(self, coefficients: Any) -> list[Any]:
        """Return (C_1, C_2, …) from one vector."""
        cuts = zip(self.terms, self.starts, strict=True)
        return [coefficients[start : start + term.size].reshape(term.shape) for term, start in cuts]

    def push(self, coefficients: Any, leaves: Sequence[Any], constant: Any = 1.0) -> list[Any]:
        """Return V_c(θ), leaf by leaf; with `constant=0` its linear part alone."""
        self.check(leaves)
        found = [jnp.zeros_like(leaf) for leaf in leaves]
        for term, part in zip(self.terms, self.parts(coefficients), strict=True):
            factor = constant if term.source < 0 else 1.0
            found[term.target] = found[term.target] + factor * term.push(part, leaves)
        return found

    def check(self, leaves: Sequence[Any]) -> None:
        """Refuse leaves of other shapes."""
        if (given := tuple(np.shape(leaf) for leaf in leaves)) != self.shapes:
            raise ValueError(
                f"`params` has arrays of shapes {given} but the group acts on {self.shapes}; "
                "pass parameters of the network that it was found for."
            )

    def pull(self, cotangents: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Return the row (⟨cotangent, V_a(θ)⟩)_a over the coefficients."""
        return jnp.concatenate([term.pull(cotangents, leaves).reshape(-1) for term in self.terms])


def everything(shapes: Sequence[tuple[int, ...]]) -> Ansatz:
    """Return all affine fields: D² + D coefficients, for small networks and for checking the other
    ansatz.
    """
    terms = [translation(k, shape, tuple(() for _ in shape)) for k, shape in enumerate(shapes)]
    for b, a in itertools.product(range(len(shapes)), repeat=2):
        source, target = _LETTERS[: len(shapes[a])], _MIXED[: len(shapes[b])]
        shape = (*shapes[b], *shapes[a])
        terms.append(
            Term(b, a, f"{target}{source},{source}->{target}", shape, tuple(() for _ in shape))
        )
    return Ansatz(tuple(map(tuple, shapes)), tuple(terms))


def by_axes(shapes: Sequence[tuple[int, ...]], labels: Sequence[Axes]) -> Ansatz:
    """gl(n) on every axis, gl(n) on an axis for each place of another (heads), translations, and
    couplings of leaves.

    A coupling θ_b ← C∘θ_a joins axes of equal label: all axes of b (a bias absorbs a shift of what
    goes through the weight a), or all but one of each where a third leaf has the shape of C (a
    weight absorbs a shift of one of the factors of a product); one-axis leaves of equal label
    couple freely.
    """
    terms: list[Term] = []
    for k, shape in enumerate(shapes):
        terms.append(translation(k, shape, labels[k]))
        long = [i for i, n in enumerate(shape) if n > 1] or [0] * bool(shape)
        terms += [] if shape else [Term(k, k, ",->", (), ())]
        terms += [_mixing(k, shape, labels[k], i) for i in long]
        if len(long) > 2:
            terms += [
                _mixing(k, shape, labels[k], i, j) for i, j in itertools.permutations(long, 2)
            ]
    heads = {(at[i], at[j]) for shape, at in zip(shapes, labels, strict=True) if sum(n > 1 for n in shape) > 2
             for i, j in itertools.permutations(range(len(shape)), 2)}  # fmt: skip
    for k, shape in enumerate(shapes):
        if len(shape) == 2 and min(shape) > 1:
            terms += [
                _mixing(k, shape, labels[k], i, 1 - i)
                for i in (0, 1)
                if (labels[k][1 - i], labels[k][i]) in heads
            ]
    for b, a in itertools.permutations(range(len(shapes)), 2):
        terms += _couplings(b, a, shapes, labels)
    return Ansatz(tuple(map(tuple, shapes)), tuple(terms))


def translation(k: int, shape: tuple[int, ...], axes: Axes) -> Term:
    """Return the term δθ_k = C."""
    return Term(k, -1, f"{_LETTERS[: len(shape)]}->{_LETTERS[: len(shape)]}", tuple(shape), axes)


def _mixing(k: int, shape: tuple[int, ...], axes: Axes, i: int, each: int | None = None) -> Term:
    """Return the term of gl on axis i, for each place of axis `each` its own."""
    source = _LETTERS[: len(shape)]
    target = source[:i] + "n" + source[i + 1 :]
    lead = "" if each is None else source[each]
    front = () if each is None else (each,)
    equation = f"{lead}n{source[i]},{source}->{target}"
    return Term(
        k,
        k,
        equation,
        (*(shape[j] for j in front), shape[i], shape[i]),
        (*(axes[j] for j in front), axes[i], axes[i]),
    )


def _couplings(
    b: int, a: int, shapes: Sequence[tuple[int, ...]], labels: Sequence[Axes]
) -> list[Term]:
    if len(shapes[a]) == len(shapes[b]) == 1:
        same = labels[a] == labels[b] and shapes[a][0] > 1
        return (
            [Term(b, a, "na,a->n", (*shapes[b], *shapes[a]), (*labels[b], *labels[a]))]
            if same
            else []
        )
    found = []
    for joined in _matchings(labels[b], labels[a]):
        free_b = [i for i in range(len(shapes[b])) if i not in joined]
        free_a = [i for i in range(len(shapes[a])) if i not in joined.values()]
        axes = (*(labels[b][i] for i in free_b), *(labels[a][i] for i in free_a))
        if free_b and not (
            len(free_a) == 1 == len(free_b) and any(_same_axes(axes, other) for other in labels)
        ):
            continue
        source = _LETTERS[: len(shapes[a])]
        target = "".join(
            source[joined[i]] if i in joined else _MIXED[i] for i in range(len(shapes[b]))
        )
        coefficient = "".join(_MIXED[i] for i in free_b) + "".join(source[i] for i in free_a)
        shape = (*(shapes[b][i] for i in free_b), *(shapes[a][i] for i in free_a))
        found.append(Term(b, a, f"{coefficient},{source}->{target}", shape, axes))
    return found


def _same_axes(axes: Axes, other: Axes) -> bool:
    return sorted(axes) == sorted(axis for axis in other if axis)


def _matchings(target: Axes, source: Axes) -> list[dict[int, int]]:
    """Return all largest ways to give axes of the target axes of the source of the same label, each
    at most once.
    """
    found: list[dict[int, int]] = [{}]
    for i, axis in enumerate(target):
        options = [j for j, other in enumerate(source) if axis and other == axis]
        extended = [known | {i: j} for known in found for j in options if j not in known.values()]
        found = extended or found
    return [known for known in found if known]


def orbit_numbers(term: Term, sizes: dict[int, int], moving: frozenset[int]) -> np.ndarray:
    """Return for each coefficient of a term: which coefficients equal it when two places of each
    atom in `moving` are told apart, the rest not.

    A tuple of places is written with 0 and 1 for the two, and 2, 3, … for the others in the order
    in which they appear.
    """
    places = np.indices(term.shape).reshape(len(term.shape), term.size)
    columns: dict[int, list[np.ndarray]] = {}
    fixed: list[np.ndarray] = []
    for at, axis in enumerate(term.axes):
        for atom, column in _digits(places[at], axis, sizes, term.shape[at]):
            if atom in moving:
                columns.setdefault(atom, []).append(column)
            else:
                fixed.append(column)
    canonical = fixed + [column for each in columns.values() for column in _canonical(each)]
    if not canonical:
        return np.zeros(places.shape[1], np.int64)
    return np.unique(np.stack(canonical), axis=1, return_inverse=True)[1].reshape(-1)


def _digits(
    places: np.ndarray, axis: Axis, sizes: dict[int, int], n: int
) -> list[tuple[int, np.ndarray]]:
    """Return the place on an axis as one place on each of its atoms."""
    if not axis:
        return [(-1, places)] if n > 1 else []
    digits = np.unravel_index(places, [sizes[a] for a in axis])
    return list(zip(axis, digits, strict=True))


def _canonical(columns: list[np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    used = np.full(columns[0].shape, 2)
    for k, column in enumerate(columns):
        new = np.where(column < 2, column, used)
        for j in range(k):
            new = np.where((columns[j] == column) & (column >= 2), found[j], new)
        used = used + (new == used)
        found.append(new)
    return found
