"""Factorisations of end-to-end filters on D ≥ 2 dimensional signals.

The irreducible factors f_c over ℂ of a squarefree polynomial f span, through d log f_c, the closed 1-forms Σ_j (g_j/f) dz_j
with deg_j g_j < deg_j f: a linear system (Ruppert; Gao 2003) whose null space has as many dimensions as f has factors.
Along a generic line a form has at each root of f the residue that belongs to the root's factor; the residues identify
the form d log f_c, and then f_c is the solution of the linear equations f ∂_j F = g_j F. No search is involved, so all
factors are found. Rational polynomials are first factored over ℚ by FLINT, which also gives repeated factors.
"""

from itertools import product as pairs_of
from typing import NamedTuple

import numpy as np

from neuromanifold.functionspace.assignment import Atom, factorisations
from neuromanifold.functionspace.polynomial import exact, factor_exactly, is_rational, product
from neuromanifold.models.convolution import LinearConvNet, Shape
from neuromanifold.numerics.results import Array

LARGEST_SYSTEM = 900


class NotSquarefree(Exception):
    """The numerical factorisation met a repeated factor, which rounding makes indistinguishable from two close ones."""


class Places(NamedTuple):
    """The non-coordinate irreducible factors over ℂ with multiplicities, and the orders of the coordinates y_m and x_m."""

    factors: list[np.ndarray]
    powers: list[int]
    zero: tuple[int, ...]
    infinity: tuple[int, ...]


def tensor_factorisations(
    net: LinearConvNet, places: Places, *, tolerance: float, limit: int
) -> list[tuple[np.ndarray, ...]]:
    """All real filter tuples, up to scalars, that use exactly the given irreducible factors."""
    available = (*places.powers, *places.zero, *places.infinity)
    degrees = [tuple(k - 1 for k in shape) for shape in net.filter_shapes]
    atoms = [_atoms(places, t, degree, tolerance) for t, degree in zip(net.dilations, degrees, strict=True)]
    return factorisations(available, atoms, degrees, limit)


def places_of(v: Array, *, tolerance: float) -> Places:
    """The irreducible factors of v over ℂ: exactly grouped when v is rational, numerically otherwise."""
    core, zero, infinity = strip_coordinates(v)
    if is_rational(core):
        factors, powers = [], []
        for factor, power in factor_exactly(exact(core)):
            parts = absolute_factors(
                np.array(factor, np.float64) / max(abs(e) for e in factor.ravel()), tolerance=tolerance
            )
            factors += parts
            powers += [power] * len(parts)
        return Places(factors, powers, zero, infinity)
    factors = absolute_factors(core, tolerance=tolerance)
    return Places(factors, [1] * len(factors), zero, infinity)


def merge_places(parts: list[Places], dilations: tuple[Shape, ...], *, tolerance: float) -> Places:
    """The factors of a product of layers from those of each layer, equal ones counted together."""
    factors: list[np.ndarray] = []
    powers: list[int] = []
    for part, power in ((f, p) for places in parts for f, p in zip(places.factors, places.powers, strict=True)):
        at = _find(part, factors, tolerance)
        if at is None:
            factors.append(part)
            powers.append(power)
        else:
            powers[at] += power
    zero, infinity = (
        tuple(
            sum(t[m] * order[m] for t, order in zip(dilations, orders, strict=True)) for m in range(len(dilations[0]))
        )
        for orders in ([p.zero for p in parts], [p.infinity for p in parts])
    )
    return Places(factors, powers, zero, infinity)


def strip_coordinates(v: Array) -> tuple[np.ndarray, Shape, Shape]:
    """v without its factors y_m and x_m (vanishing first and last slices), and their orders."""
    scale = 0 if is_rational(v) else 4 * np.finfo(np.float64).eps * np.abs(v).max()
    support = np.argwhere(np.abs(v) > scale)
    first, last = support.min(axis=0), support.max(axis=0)
    core = v[tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))]
    infinity = tuple(int(n - 1 - b) for n, b in zip(v.shape, last, strict=True))
    return core, tuple(int(a) for a in first), infinity


def absolute_factors(f: Array, *, tolerance: float) -> list[np.ndarray]:
    """The irreducible factors over ℂ of a real squarefree polynomial without coordinate factors.

    >>> whole = product([np.array([[1.0, 2], [3, 5]]), np.array([[1.0, 0, 1]])], 2)
    >>> [factor.shape for factor in absolute_factors(whole, tolerance=1e-9)]
    [(2, 2), (1, 2), (1, 2)]
    """
    axes = [m for m, n in enumerate(f.shape) if n > 1]
    if not axes:
        return []
    small = np.asarray(f, np.float64).reshape([f.shape[m] for m in axes])
    small = small / np.abs(small).max()
    parts = _linear_factors(small) if small.ndim == 1 else _split(small, tolerance)
    return [part.reshape([part.shape[axes.index(m)] if m in axes else 1 for m in range(f.ndim)]) for part in parts]


def _linear_factors(f: Array) -> list[np.ndarray]:
    roots = np.roots(f[::-1]).astype(np.complex128)
    if (
        len(roots) > 1
        and (np.abs(roots[:, None] - roots) + 9 * np.eye(len(roots)) * np.abs(roots).max()).min()
        < 1e-5 * np.abs(roots).max()
    ):
        raise NotSquarefree
    return [_normalised(np.array([-root, 1.0])) for root in roots]


def _split(f: Array, tolerance: float) -> list[np.ndarray]:
    unknowns = sum(f.size // n * (n - 1) for n in f.shape)
    if unknowns > LARGEST_SYSTEM:
        raise NotSquarefree
    basis = _closed_forms(f, tolerance)
    if len(basis) == 1:
        return [f]
    forms = _logarithmic(f, basis)
    factors = [_integrate(f, form) for form in forms]
    whole = product(factors, f.ndim)
    if whole.shape != f.shape:
        raise NotSquarefree
    scale = np.vdot(whole, f) / np.vdot(whole, whole)
    if np.linalg.norm(f - scale * whole) > 1e3 * tolerance * np.linalg.norm(f):
        raise NotSquarefree
    return sorted(factors, key=lambda part: -part.size)


def _shifts(operand: Shape, shape: Shape, total: Shape) -> np.ndarray:
    columns = np.asarray(np.ravel_multi_index(np.indices(operand).reshape(len(operand), -1), total))
    return columns[:, None] + np.ravel_multi_index(np.indices(shape).reshape(len(shape), -1), total)


def _derivative(f: Array, axis: int) -> np.ndarray:
    weights = np.arange(1, f.shape[axis]).reshape([-1 if m == axis else 1 for m in range(f.ndim)])
    return np.take(f, range(1, f.shape[axis]), axis) * weights


def _twisted(f: Array, h: Array, axis: int, operand: Shape, total: Shape) -> np.ndarray:
    """The matrix of F ↦ f ∂F − h F (∂ along `axis`) on polynomials of shape `operand`."""
    dtype = np.result_type(f, h)
    matrix = np.zeros((int(np.prod(total)), int(np.prod(operand))), dtype)
    powers = np.indices(operand)[axis].ravel()
    stride = int(np.prod(total[axis + 1 :]))
    columns = np.flatnonzero(powers)
    matrix[_shifts(operand, f.shape, total)[columns] - stride, columns[:, None]] = powers[columns, None] * f.ravel()
    matrix[_shifts(operand, h.shape, total), np.arange(len(powers))[:, None]] -= h.ravel()
    return matrix


def _closed_forms(f: Array, tolerance: float) -> list[list[np.ndarray]]:
    D = f.ndim
    shapes = [tuple(n - (m == j) for m, n in enumerate(f.shape)) for j in range(D)]
    rows = []
    for i, j in pairs_of(range(D), repeat=2):
        if i < j:
            total = tuple(2 * n - 2 if m in (i, j) else 2 * n - 1 for m, n in enumerate(f.shape))
            zero = [np.zeros((int(np.prod(total)), int(np.prod(shape)))) for shape in shapes]
            zero[i] = _twisted(f, _derivative(f, j), j, shapes[i], total)
            zero[j] = -_twisted(f, _derivative(f, i), i, shapes[j], total)
            rows.append(np.concatenate(zero, axis=1))
    matrix = np.concatenate(rows)
    _, singular, right = np.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    singular = np.concatenate([singular, np.zeros(matrix.shape[1] - len(singular))])
    null = right[singular <= max(tolerance, 1e-13) * singular[0]]
    if len(null) == 0:
        null = right[-1:]
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    return [[row[a:b].reshape(shape) for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False)] for row in null]


def _evaluate(f: Array, points: Array) -> np.ndarray:
    values = np.broadcast_to(f, (len(points), *f.shape))
    for m in range(f.ndim):
        values = np.einsum("pi...,pi->p...", values, points[:, m, None] ** np.arange(f.shape[m]))
    return values


def _logarithmic(f: Array, basis: list[list[Array]]) -> list[list[np.ndarray]]:
    """The forms d log f_c, told apart by their residues on a generic line."""
    rng = np.random.default_rng(20250706)
    degree = sum(n - 1 for n in f.shape)
    base, direction = np.exp(2j * np.pi * rng.random((2, f.ndim)))
    circle = np.exp(2j * np.pi * np.arange(degree + 1) / (degree + 1))
    line = np.fft.fft(_evaluate(f, base + circle[:, None] * direction)) / (degree + 1)
    roots = np.roots(line[::-1])
    gaps = np.abs(roots[:, None] - roots) + 9 * np.eye(len(roots))
    if len(roots) != degree or gaps.min() < 1e-5:
        raise NotSquarefree
    for _ in range(2):
        points = base + roots[:, None] * direction
        slope = sum(b * _evaluate(_derivative(f, m), points) for m, b in enumerate(direction))
        roots = roots - _evaluate(f, points) / slope
    points = base + roots[:, None] * direction
    slope = sum(b * _evaluate(_derivative(f, m), points) for m, b in enumerate(direction))
    residues = np.stack(
        [sum(b * _evaluate(g, points) for g, b in zip(form, direction, strict=True)) / slope for form in basis], axis=1
    )
    classes = _clusters(residues)
    if len(classes) != len(basis):
        raise NotSquarefree
    table = np.stack([residues[members].mean(axis=0) for members in classes], axis=1)
    mixing = np.linalg.inv(table)
    return [
        [np.sum([c * form[j] for c, form in zip(row, basis, strict=True)], axis=0) for j in range(f.ndim)]
        for row in mixing
    ]


def _clusters(points: Array) -> list[np.ndarray]:
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    near = distance <= 1e-4 * max(distance.max(), np.finfo(np.float64).tiny)
    groups, free = [], np.ones(len(points), bool)
    for i in range(len(points)):
        if free[i]:
            members = np.flatnonzero(near[i] & free)
            free[members] = False
            groups.append(members)
    return groups


def _integrate(f: Array, form: list[Array]) -> np.ndarray:
    """The F with ∂_j F / F = g_j / f; its degree along axis j is the limit of z_j g_j / f."""
    shape = []
    for j, g in enumerate(form):
        lead, top = np.take(f, -1, axis=j), np.take(g, -1, axis=j)
        degree = (np.vdot(lead, top) / np.vdot(lead, lead)).real
        shape.append(1 + int(min(max(round(degree), 0), f.shape[j] - 1)))
    shape = tuple(shape)
    total = tuple(n + k - 1 for n, k in zip(f.shape, shape, strict=True))
    matrix = np.concatenate([_twisted(f, g, j, shape, total) for j, g in enumerate(form)])
    return _normalised(np.linalg.svd(matrix, full_matrices=False)[2][-1].conj().reshape(shape))


def _normalised(factor: Array) -> np.ndarray:
    largest = factor.ravel()[np.abs(factor).argmax()]
    factor = factor * (abs(largest) / largest) / np.linalg.norm(factor)
    real = np.abs(np.imag(factor)).max() <= 1e-7
    return np.real(factor) if real else factor


def _find(factor: Array, factors: list[Array], tolerance: float) -> int | None:
    for index, other in enumerate(factors):
        if other.shape == factor.shape:
            overlap = abs(np.vdot(factor, other)) / (np.linalg.norm(factor) * np.linalg.norm(other))
            if 1 - overlap <= max(tolerance, 1e-10):
                return index
    return None


def _atoms(places: Places, t: Shape, degree: tuple[int, ...], tolerance: float) -> list[Atom]:
    n, D = len(places.factors), len(t)
    atoms, taken = [], set()
    for i in range(n):
        if i in taken:
            continue
        orbit = _orbit(i, places.factors, t, tolerance)
        taken.update(() if orbit is None else orbit)
        if orbit is None:
            continue
        mates = [_find(places.factors[o].conj(), places.factors, tolerance) for o in orbit]
        if None in mates:
            continue
        members = sorted({*orbit, *(mate for mate in mates if mate is not None)})
        taken.update(members)
        whole = product([places.factors[o] for o in members], D)
        coefficients = _normalised(whole[tuple(slice(None, None, s) for s in t)])
        counts = tuple(int(o in members) for o in range(n)) + (0,) * (2 * D)
        atoms.append(Atom(counts, tuple(k - 1 for k in coefficients.shape), np.real(coefficients)))
    orders = (*places.zero, *places.infinity)
    for m in range(2 * D):
        axis = m % D
        if orders[m] >= t[axis] and degree[axis]:
            coefficients = np.array([0.0, 1.0] if m < D else [1.0, 0.0]).reshape(
                [2 if a == axis else 1 for a in range(D)]
            )
            counts = tuple(t[axis] if p == n + m else 0 for p in range(n + 2 * D))
            atoms.append(Atom(counts, tuple(int(a == axis) for a in range(D)), coefficients))
    return atoms


def _orbit(i: int, factors: list[Array], t: Shape, tolerance: float) -> tuple[int, ...] | None:
    """The images of a factor under z_m ↦ ζ_m z_m with ζ_m^{t_m} = 1, or None when one of them is missing."""
    factor, members = factors[i], {i}
    for turn in pairs_of(*(range(s if k > 1 else 1) for s, k in zip(t, factor.shape, strict=True))):
        if any(turn):
            phase = sum(a / s * e for a, s, e in zip(turn, t, np.indices(factor.shape), strict=True))
            at = _find(factor * np.exp(2j * np.pi * phase), factors, tolerance)
            if at is None:
                return None
            members.add(at)
    return tuple(sorted(members))
