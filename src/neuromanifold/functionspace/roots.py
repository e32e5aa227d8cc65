"""Factorisations of one-dimensional end-to-end filters, by their complex roots.

With z = y/x the filter v is the polynomial Σ v_i z^i of nominal degree k − 1. A layer with dilation
t is a polynomial in z^t: it owns complete orbits {ζ r : ζ^t = 1} of roots, and t copies of a root
at 0 or ∞.
"""

from typing import Any

import numpy as np

from neuromanifold.functionspace.assignment import Atom, factorisations
from neuromanifold.functionspace.polynomial import is_rational, primitive
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold.numerics.results import Array

_EPS = float(np.finfo(np.float64).eps)
_CLUSTER_RADII = tuple(10.0 ** (-e / 2) for e in range(1, 17))
_MERGE_ERROR = 1e-12


def root_factorisations(
    net: LinearConvNet, v: Array, *, tolerance: float, limit: int
) -> list[tuple[np.ndarray, ...]]:
    """All real filter tuples over v up to scalars, to rounding; candidates only when v is off
    the neuromanifold.
    """
    at_zero, at_infinity, roots, powers = projective_roots(v)
    available = (*powers, at_zero, at_infinity)
    degrees = [(shape[0] - 1,) for shape in net.filter_shapes]
    atoms = [_atoms(roots, t, available, tolerance) for (t,) in net.dilations]
    return factorisations(available, atoms, degrees, limit)


def projective_roots(v: Array) -> tuple[int, int, np.ndarray, tuple[int, ...]]:
    """(order at 0, order at ∞, the other roots, their multiplicities).

    Rational input is treated exactly. In floats an m-fold root is known to about eps^{1/m}; roots
    that rounding of v can explain as one are joined.

    >>> projective_roots(np.array([0, 1, 2, 1, 0]))
    (1, 1, array([-1.+0.j]), (2,))
    """
    if is_rational(v):
        return _exact_roots(v)
    threshold = 4 * _EPS * np.abs(v).max()
    nonzero = np.flatnonzero(np.abs(v) > threshold)
    first, last = int(nonzero[0]), int(nonzero[-1])
    roots = np.roots(v[first : last + 1][::-1]).astype(np.complex128)
    joined, powers = _join(roots)
    return first, len(v) - 1 - last, joined, powers


def _exact_roots(v: Array) -> tuple[int, int, np.ndarray, tuple[int, ...]]:
    import flint

    nonzero = np.flatnonzero(v != 0)
    first, last = int(nonzero[0]), int(nonzero[-1])
    polynomial = flint.fmpz_poly(primitive(np.array([*v[first : last + 1], None], object)[:-1]))
    pairs = [(complex(root), int(power)) for root, power in polynomial.complex_roots()]  # pyright: ignore[reportGeneralTypeIssues]
    return (
        first,
        len(v) - 1 - last,
        np.array([r for r, _ in pairs], np.complex128),
        tuple(p for _, p in pairs),
    )


def _join(roots: Array) -> tuple[np.ndarray, tuple[int, ...]]:
    """Clusters replaced by their means wherever that changes the polynomial by no more than
    rounding could have.
    """
    n = len(roots)
    size = np.abs(roots)
    distance = np.abs(roots[:, None] - roots) / np.maximum(size[:, None], size) + np.diag(
        np.full(n, np.inf)
    )
    if n < 2 or distance.min() > _CLUSTER_RADII[0]:
        return roots, (1,) * n
    groups: list[np.ndarray] = []
    free = np.ones(n, bool)
    for radius in _CLUSTER_RADII:
        for group in _components(distance <= radius, free):
            if len(group) > 1 and _is_one_root(roots, group):
                groups.append(group)
                free[group] = False
    groups += [np.array([i]) for i in np.flatnonzero(free)]
    means = [complex(roots[g].mean()) for g in groups]
    means = [
        complex(r.real) if len(g) > 1 and _self_conjugate(roots[g]) else r
        for r, g in zip(means, groups, strict=True)
    ]
    return np.array(means, np.complex128), tuple(len(g) for g in groups)


def _components(near: Array, free: Array) -> list[np.ndarray]:
    groups, unseen = [], free.copy()
    for i in np.flatnonzero(free):
        if unseen[i]:
            members = np.zeros(len(free), bool)
            members[i] = True
            while (grown := (members | near[members].any(axis=0)) & free).sum() > members.sum():
                members = grown
            unseen &= ~members
            groups.append(np.flatnonzero(members))
    return groups


def _is_one_root(roots: Array, group: Array) -> bool:
    merged = roots.copy()
    merged[group] = roots[group].mean()
    before, after = np.poly(roots), np.poly(merged)
    return bool(np.linalg.norm(before - after) <= _MERGE_ERROR * np.linalg.norm(before))


def _self_conjugate(group: Array) -> bool:
    return bool(abs(np.imag(group).sum()) <= 4 * len(group) * _EPS * np.abs(group).sum())


def _atoms(roots: Array, t: int, available: tuple[int, ...], tolerance: float) -> list[Atom]:
    n, atoms = len(roots), []
    conjugate, orbits = _symmetries(roots, t, tolerance)
    taken: set[int] = set()
    for i, orbit in enumerate(orbits):
        if i in taken or orbit is None:
            continue
        mate = orbits[conjugate[i]] if conjugate[i] >= 0 else None
        taken.update(orbit)
        if mate is None:
            continue
        X = roots[i] ** t
        if set(mate) == set(orbit):
            coefficients, members = np.array([-X.real, 1.0]), orbit
        else:
            coefficients, members = np.array([abs(X) ** 2, -2 * X.real, 1.0]), (*orbit, *mate)
            taken.update(mate)
        counts = [0] * (n + 2)
        for member in members:
            counts[member] = 1
        atoms.append(
            Atom(tuple(counts), (len(coefficients) - 1,), coefficients / np.abs(coefficients).max())
        )
    for place, coefficients in ((n, np.array([0.0, 1.0])), (n + 1, np.array([1.0, 0.0]))):
        if available[place] >= t:
            atoms.append(
                Atom(tuple(t if p == place else 0 for p in range(n + 2)), (1,), coefficients)
            )
    return atoms


def _symmetries(roots: Array, t: int, tolerance: float) -> tuple[Any, list[tuple[int, ...] | None]]:
    """The index of each root's conjugate, and the orbit of each root under the t-th roots of
    unity (None: incomplete).
    """
    n = len(roots)
    if n == 0:
        return (), []
    turned = roots[:, None] * np.exp(2j * np.pi * np.arange(t) / t)
    images = np.concatenate([turned, roots.conj()[:, None]], axis=1)
    distance = np.abs(images[:, :, None] - roots)
    nearest = distance.argmin(axis=2)
    close = distance.min(axis=2) <= tolerance * np.abs(roots)[:, None]
    index, good = nearest.tolist(), close.tolist()
    conjugate = [index[i][t] if good[i][t] else -1 for i in range(n)]
    orbits: list[tuple[int, ...] | None] = [
        tuple(index[i][:t]) if all(good[i][:t]) and len(set(index[i][:t])) == t else None
        for i in range(n)
    ]
    return conjugate, orbits
