"""The permutations and signs that a network's hidden axes allow: proposed from the graph, tried at random parameters and inputs."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.symmetry.channels import Slot, slots_of
from neuromanifold.symmetry.named import leaf_names
from neuromanifold.symmetry.places import PlaceGroup
from neuromanifold.symmetry.problem import Problem

_MOST_PATTERNS = 2**11
_AT_ONCE = 256
_DRAWS = 16
_EQUAL = 1e-9


def place_groups(problem: Problem) -> tuple[PlaceGroup, ...]:
    """A group for every hidden axis whose places f does not tell apart.

    Hidden: parameters have it, neither input nor output has. Sign flips of one place are sought among all sets of slots where there are
    at most eleven slots, else among the small sets and their complements.
    """
    labels, count, names = problem.labels, len(problem.shapes), leaf_names(problem.params)
    outside = {a for axes in (*labels.inputs[count:], *labels.outputs) for axis in axes for a in axis}
    found = []
    for atom, slots in _slots(problem).items():
        if atom in outside or atom in labels.rigid or not problem.is_moving(atom):
            continue
        flips, sought = _flips(problem, slots)
        own = tuple(dict.fromkeys(names[slot.leaf] for slot in slots))
        kind = "heads" if _has_faster(problem, atom) else "channels"
        found.append(PlaceGroup(problem.f, problem.shapes, kind, own, slots, flips, sought))
    return tuple(found)


def _slots(problem: Problem) -> dict[int, tuple[Slot, ...]]:
    found: dict[int, list[Slot]] = {}
    for leaf, axes in enumerate(problem.leaf_labels):
        for axis, atoms in enumerate(axes):
            for atom, slot in slots_of(leaf, axis, atoms, problem.labels.sizes, False):
                found.setdefault(atom, []).append(slot)
    return {atom: tuple(slots) for atom, slots in sorted(found.items())}


def _has_faster(problem: Problem, atom: int) -> bool:
    """Whether on some axis places that are not rigid lie inside each place of the atom: a head."""
    axes = (axis for leaf in problem.leaf_labels for axis in leaf if atom in axis)
    return any(set(axis[axis.index(atom) + 1 :]) - problem.labels.rigid for axis in axes)


def _flips(problem: Problem, slots: tuple[Slot, ...]) -> tuple[tuple[tuple[int, ...], ...], str]:
    """Generators of the sets of slots that may change sign at one place, and among which sets they were sought."""
    patterns, sought = _patterns(len(slots))
    for draws in (2, _DRAWS):  # most fall at the first two
        patterns = patterns[_unchanged(problem, slots, patterns, draws)] if len(patterns) else patterns
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in _independent(patterns)), sought


def _patterns(count: int) -> tuple[np.ndarray, str]:
    if 2**count <= _MOST_PATTERNS:
        rows = np.array(list(itertools.product((False, True), repeat=count)))
        return rows[1:], f"all sets of {count} slots"
    chosen, most = [np.arange(count)], 0
    while sum(math.comb(count, k) for k in range(1, most + 2)) <= _MOST_PATTERNS // 2:
        most += 1
        chosen += [np.array(each) for each in itertools.combinations(range(count), most)]
    rows = np.zeros((len(chosen), count), bool)
    for row, each in zip(rows, chosen, strict=True):
        row[each] = True
    return np.concatenate([rows, ~rows[1:]]), f"sets of at most {most} of {count} slots and their complements"


def _unchanged(problem: Problem, slots: tuple[Slot, ...], patterns: np.ndarray, draws: int) -> np.ndarray:
    """Which sets of slots keep f when one place of them changes sign, at all of some random parameters and inputs."""
    rng = np.random.default_rng(0)
    place = np.where(np.arange(slots[0].size) == rng.integers(slots[0].size), -1.0, 1.0)
    signs = [slot.spread(place) for slot in slots]

    def outputs(pattern: Any, leaves: Any, x: Any) -> Any:
        moved = list(leaves)
        for k, (slot, sign) in enumerate(zip(slots, signs, strict=True)):
            shape = [-1 if axis == slot.axis else 1 for axis in range(moved[slot.leaf].ndim)]
            moved[slot.leaf] = moved[slot.leaf] * jnp.where(pattern[k], sign, 1.0).reshape(shape)
        values = jax.tree.leaves(problem.f(jax.tree.unflatten(problem.structure, moved), x))
        return jnp.concatenate([value.reshape(-1) for value in values])

    at_points = jax.vmap(outputs, (None, 0, 0))
    compiled = jax.jit(jax.vmap(at_points, (0, None, None)))
    theta, x = problem.draw(rng, draws), problem.draw_input(rng, draws)
    expected = np.asarray(compiled(np.zeros((1, len(slots)), bool), theta, x))[0]
    size = np.abs(expected).max(axis=1, keepdims=True)
    kept = [
        (np.abs(np.asarray(compiled(part, theta, x)) - expected) <= _EQUAL * size).all(axis=(1, 2))
        for part in _parts(patterns)
    ]
    return np.concatenate(kept)[: len(patterns)]


def _parts(patterns: np.ndarray) -> Iterator[np.ndarray]:
    """Equal parts, the last filled up: one program serves all."""
    step = min(_AT_ONCE, 1 << (len(patterns) - 1).bit_length())
    for start in range(0, len(patterns), step):
        part = patterns[start : start + step]
        yield np.concatenate([part, np.zeros((step - len(part), part.shape[1]), bool)])


def _independent(patterns: np.ndarray) -> list[np.ndarray]:
    """Rows that generate all of them by exclusive or, the smallest first."""
    kept: list[np.ndarray] = []
    reduced: list[np.ndarray] = []
    for row in patterns[np.argsort(patterns.sum(axis=1), kind="stable")]:
        rest = row.copy()
        for other in reduced:
            rest = rest ^ other if rest[np.argmax(other)] else rest
        if rest.any():
            kept.append(row)
            reduced.append(rest)
    return kept
