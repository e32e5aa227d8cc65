"""The named groups of a network as directions at its parameters, in float64 or modulo a prime, for
the account.
"""

from typing import Any

import jax
import numpy as np

from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.spaces import ModularSpaces
from neuromanifold.symmetry.discovery.ansatz import Ansatz, by_axes
from neuromanifold.symmetry.discovery.discover import network_sampler
from neuromanifold.symmetry.discovery.named_groups import NamedGroup, find_named_groups

LARGEST = 400
"""Parameters of networks whose named groups are sought without being asked for: seconds."""
_WHOLE = 1e-7


def groups_by_name(f: Model, params: Any, x: Any) -> tuple[tuple[NamedGroup, ...], tuple[str, ...]]:
    """Return the groups that `f` has by name at `params`, and what was not looked at."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    if size > LARGEST:
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


def exact_directions(
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
