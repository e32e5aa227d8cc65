"""Iterated brackets at any depth, from one sweep forward and one back over R[ε₁, …, ε_N]/(ε_i²)."""

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.orbits import nilpotent
from neuromanifold.orbits.fields import Control, Fields

Brackets = Float[np.ndarray, "subsets lanes D"] | Int[np.ndarray, "subsets lanes D"]


def iterated_brackets(
    fields: Fields, theta: np.ndarray, controls: list[Control]
) -> tuple[Brackets, np.ndarray]:
    """All brackets [X_{i₁}, [X_{i₂}, … [X_{i_k}, X_0]…]], i₁ < … < i_k, of each lane's controls
    (X_0, X_1, …, X_N).

    Since ε_i² = 0, the flow of X_i for the time ε_i is id + ε_i X_i, without a remainder. So the
    pull-back (e^{ε₁X₁})^* ⋯ (e^{ε_N X_N})^* X_0  needs one sweep forward, θ_i = θ_{i−1} + ε_i
    X_i(θ_{i−1}), the value v = X_0(θ_N), and one sweep back, v ← v − ε_i DX_i(θ_{i−1})v. Its
    coefficient of ε_S is the bracket of the fields in S.

    Returns the brackets by subset S (bits name the fields), and for each the size of the numbers it
    was subtracted from: what its rounding error is proportional to.
    """
    last, *others = controls
    points = [theta[None]]
    for i, control in enumerate(others):
        step = fields(points[i], control)
        points.append(np.concatenate([nilpotent.extend(points[i], i), step]))
    v = fields(points[-1], last)
    size = _norms(v)
    for i in reversed(range(len(others))):
        v = _pull_back(fields, points[i], others[i], v, i)
        size = np.maximum(size, _norms(v))
    return v, size


def _pull_back(
    fields: Fields, theta: np.ndarray, control: Control, v: np.ndarray, i: int
) -> np.ndarray:
    """v − ε_i DX_i(θ)v, by evaluating X_i at θ + ε_i v."""
    n = nilpotent.generators(v)
    subsets = np.arange(len(v))
    without = subsets[subsets >> i & 1 == 0]
    moved = nilpotent.extend(theta, n).copy()
    moved[without | 1 << i] = v[without]
    change = fields(moved, control)[without | 1 << i]
    result = v.copy()
    result[without | 1 << i] = fields.ring.add(v[without | 1 << i], fields.ring.negate(change))
    return result


def _norms(v: np.ndarray) -> np.ndarray:
    return np.linalg.norm(v.astype(np.float64), axis=-1)
