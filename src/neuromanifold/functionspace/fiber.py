"""`fiber`: all parameters over an end-to-end filter with given invariants."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs_of
from typing import Any, NamedTuple

import numpy as np

from neuromanifold.functionspace.assignment import Atom, factorisations
from neuromanifold.functionspace.kernel import kernel_spread
from neuromanifold.functionspace.polynomial import (
    exact,
    factor_exactly,
    is_rational,
    product,
    spread,
)
from neuromanifold.functionspace.rescale import (
    FilterLike,
    Filters,
    check_delta,
    check_filter,
    sign_patterns,
    solve_squared_norms,
)
from neuromanifold.functionspace.roots import root_factorisations
from neuromanifold.functionspace.search import join, nearest_filter, normalise, polish
from neuromanifold.models.convolution import LinearConvNet, Shape, compose
from neuromanifold.numerics.results import Array, Result, count_of, follows

LARGEST_SYSTEM = 900


class NotSquarefree(Exception):
    """The numerical factorisation met a repeated factor, which rounding makes indistinguishable
    from two close ones.
    """


class Places(NamedTuple):
    """The non-coordinate irreducible factors over ℂ with multiplicities, and the orders of the
    coordinates y_m and x_m.
    """

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
    atoms = [
        _atoms(places, t, degree, tolerance)
        for t, degree in zip(net.dilations, degrees, strict=True)
    ]
    return factorisations(available, atoms, degrees, limit)


def places_of(v: Array, *, tolerance: float) -> Places:
    """The irreducible factors of v over ℂ: exactly grouped when v is rational, numerically
    otherwise.
    """
    core, zero, infinity = strip_coordinates(v)
    if is_rational(core):
        factors, powers = [], []
        for factor, power in factor_exactly(exact(core)):
            parts = absolute_factors(
                np.array(factor, np.float64) / max(abs(e) for e in factor.ravel()),
                tolerance=tolerance,
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
    for part, power in (
        (f, p) for places in parts for f, p in zip(places.factors, places.powers, strict=True)
    ):
        at = _find(part, factors, tolerance)
        if at is None:
            factors.append(part)
            powers.append(power)
        else:
            powers[at] += power
    zero, infinity = (
        tuple(
            sum(t[m] * order[m] for t, order in zip(dilations, orders, strict=True))
            for m in range(len(dilations[0]))
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
    return [
        part.reshape([part.shape[axes.index(m)] if m in axes else 1 for m in range(f.ndim)])
        for part in parts
    ]


def _linear_factors(f: Array) -> list[np.ndarray]:
    roots = np.roots(f[::-1]).astype(np.complex128)
    if (
        len(roots) > 1
        and (np.abs(roots[:, None] - roots) + 9 * np.eye(len(roots)) * np.abs(roots).max()).min()
        < 1e-5 * np.abs(roots).max()
    ):
        raise NotSquarefree
    return [_normalise(np.array([-root, 1.0])) for root in roots]


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


def _twisted_matrix(f: Array, h: Array, axis: int, operand: Shape, total: Shape) -> np.ndarray:
    """The matrix of F ↦ f ∂F − h F (∂ along `axis`) on polynomials of shape `operand`."""
    dtype = np.result_type(f, h)
    matrix = np.zeros((int(np.prod(total)), int(np.prod(operand))), dtype)
    powers = np.indices(operand)[axis].ravel()
    stride = int(np.prod(total[axis + 1 :]))
    columns = np.flatnonzero(powers)
    matrix[_shifts(operand, f.shape, total)[columns] - stride, columns[:, None]] = (
        powers[columns, None] * f.ravel()
    )
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
            zero[i] = _twisted_matrix(f, _derivative(f, j), j, shapes[i], total)
            zero[j] = -_twisted_matrix(f, _derivative(f, i), i, shapes[j], total)
            rows.append(np.concatenate(zero, axis=1))
    matrix = np.concatenate(rows)
    _, singular, right = np.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    singular = np.concatenate([singular, np.zeros(matrix.shape[1] - len(singular))])
    null = right[singular <= max(tolerance, 1e-13) * singular[0]]
    if len(null) == 0:
        null = right[-1:]
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    return [
        [row[a:b].reshape(shape) for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False)]
        for row in null
    ]


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
        [
            sum(b * _evaluate(g, points) for g, b in zip(form, direction, strict=True)) / slope
            for form in basis
        ],
        axis=1,
    )
    classes = _clusters(residues)
    if len(classes) != len(basis):
        raise NotSquarefree
    table = np.stack([residues[members].mean(axis=0) for members in classes], axis=1)
    mixing = np.linalg.inv(table)
    return [
        [
            np.sum([c * form[j] for c, form in zip(row, basis, strict=True)], axis=0)
            for j in range(f.ndim)
        ]
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
    matrix = np.concatenate([_twisted_matrix(f, g, j, shape, total) for j, g in enumerate(form)])
    return _normalise(np.linalg.svd(matrix, full_matrices=False)[2][-1].conj().reshape(shape))


def _normalise(factor: Array) -> np.ndarray:
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
        coefficients = _normalise(whole[tuple(slice(None, None, s) for s in t)])
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
    """The images of a factor under z_m ↦ ζ_m z_m with ζ_m^{t_m} = 1, or None when one of them is
    missing.
    """
    factor, members = factors[i], {i}
    for turn in pairs_of(*(range(s if k > 1 else 1) for s, k in zip(t, factor.shape, strict=True))):
        if any(turn):
            phase = sum(
                a / s * e for a, s, e in zip(turn, t, np.indices(factor.shape), strict=True)
            )
            at = _find(factor * np.exp(2j * np.pi * phase), factors, tolerance)
            if at is None:
                return None
            members.add(at)
    return tuple(sorted(members))


_SHORT = 2.0**24


@dataclass(frozen=True, eq=False, repr=False)
class Fiber(Result):
    """All parameter tuples over (v, δ), with what shows that they are: a sequence of filter tuples.

    `factorisations` counts the tuples up to scalars; each gives 2^{H−1} parameters. `residual` is
    the largest ‖μ(θ) − v‖/‖v‖ among them. When there are none, v is not in the neuromanifold:
    `distance` is then the relative distance ‖μ(θ) − v‖/‖v‖ of the best fit found (an upper bound of
    the true one). `infinite`: v = 0 with δ ≠ 0, where the nonzero filters are arbitrary on their
    spheres. `method` is `"roots"` or `"factors"` (both exhaustive) or `"search"`: v is too large to
    be factored as a whole, a tuple was found by least squares, and its mates are those that its
    layers' factors give.
    """

    net: LinearConvNet
    v: Array
    delta: Array
    params: tuple[Filters, ...]
    factorisations: int
    residual: float
    distance: float
    method: str
    infinite: bool = False

    def __len__(self) -> int:
        return len(self.params)

    def __getitem__(self, index: int) -> Filters:
        return self.params[index]

    def __iter__(self) -> Iterator[Filters]:
        return iter(self.params)

    @property
    def in_neuromanifold(self) -> bool:
        """Whether some parameters give v."""
        return self.infinite or len(self.params) > 0

    @property
    def up_to_signs(self) -> tuple[Filters, ...]:
        """One tuple of each class of sign patterns: what decides the kernels."""
        return self.params[:: 2 ** (self.net.depth - 1)]

    @property
    def kernel_spread(self) -> float:
        """The largest relative distance between tangent kernels over the fibre.

        Signs leave a kernel alone (checked on the first factorisation), so one tuple stands for its
        sign patterns.
        """
        return kernel_spread(
            self.net, (*self.params[: 2 ** (self.net.depth - 1)], *self.up_to_signs[1:])
        )

    def __str__(self) -> str:
        if self.infinite:
            return (
                "infinitely many tuples: v is zero, so one filter vanishes and the others are "
                "free on their spheres"
            )
        if not self.params:
            return (
                "no tuples: v is not in the neuromanifold (the best fit found is at relative "
                f"distance {self.distance:.3g})"
            )
        found = (
            f"{count_of(len(self), 'tuple')} in {count_of(self.factorisations, 'factorisation')}"
        )
        return f"{found} (residual {self.residual:.1e}, by {self.method})"


@follows
def fiber(
    net: LinearConvNet,
    v: FilterLike,
    delta: Any = 0.0,
    *,
    rtol: float = 1e-10,
    limit: int = 100_000,
    starts: int = 16,
) -> Fiber:
    """Return all θ with μ(θ) = v and ‖w_{l+1}‖² − ‖w_l‖² = δ_l.
    [riemann, Eq 8, Prop 2, Thm 4, Cor 10, Thm 13]

    One dimension: by complex roots (`roots.py`), for any strides, with repeated roots and roots at
    0 and ∞. More: by irreducible factors (`factors.py`), assigned to the layers in all possible
    ways. Both find everything. Integers and `Fraction`s are factored exactly; floats are taken to
    be known to about `rtol`, so tuples count when ‖μ(θ) − v‖ ≤ rtol ‖v‖. `limit` bounds the number
    of factorisations, `starts` the search for the nearest filter when v is not in the
    neuromanifold.

    `delta` are the invariants δ, one for each pair of neighbouring layers or one for all.

    >>> cubic = fiber(LinearConvNet((3, 2), (1, 1)), np.array([0, 1, 1, 0]))     # x²y + xy² [riemann, Ex 19]
    >>> len(cubic), cubic.factorisations
    (6, 3)
    >>> print(fiber(LinearConvNet((2, 2), (1, 1)), np.array([1.0, 0.0, 1.0])))    # x² + y²
    no tuples: v is not in the neuromanifold (the best fit found is at relative distance 0.707)
    """
    v, numbers, delta = check_filter(net, v), _float(v), check_delta(net, delta)
    size = float(np.linalg.norm(numbers))
    if size == 0:
        return _over_zero(net, numbers, delta)
    candidates, method = _candidates(net, v, numbers, size, rtol, limit, starts)
    tuples, worst = _accept(net, candidates, numbers, rtol * size)
    if not tuples:
        near, distance = nearest_filter(net, numbers, starts=starts, enough=rtol * size)
        if distance > rtol * size:
            return Fiber(net, numbers, delta, (), 0, float("nan"), distance / size, method)
        # v is off the neuromanifold, but by no more than its own uncertainty: the fibre is that of
        # the filter nearby.
        close = compose(near, net.dilations)
        candidates, method = _candidates(net, close, close, size, 1e-10, limit, starts)
        tuples, worst = _accept(net, [near, *candidates], numbers, rtol * size)
    signs = sign_patterns(net.depth)
    params = tuple(member for filters in tuples for member in _with_signs(filters, delta, signs))
    return Fiber(net, numbers, delta, params, len(tuples), worst / size, worst / size, method)


def _accept(
    net: LinearConvNet, candidates: list[Filters], v: Array, allowed: float
) -> tuple[list[Filters], float]:
    """The distinct candidates that reach v, polished, and the largest residual among them."""
    tuples: list[Filters] = []
    worst = 0.0
    for candidate in candidates:
        near = normalise(net, candidate, v)
        if near is not None:
            filters, residual = polish(net, near, v)
            if residual <= allowed and not _is_known(filters, tuples):
                tuples.append(filters)
                worst = max(worst, residual)
    return tuples, worst


def _float(v: Any) -> np.ndarray:
    array = np.asarray(v)
    return (
        np.array([float(e) for e in array.ravel()]).reshape(array.shape)
        if array.dtype == object
        else array.astype(np.float64)
    )


def _candidates(
    net: LinearConvNet, v: Array, numbers: Array, size: float, rtol: float, limit: int, starts: int
) -> tuple[list[Filters], str]:
    if net.dimension == 1:
        return root_factorisations(net, v, tolerance=max(1e-6, 1e3 * rtol), limit=limit), "roots"
    tolerance = max(1e-10, rtol)
    try:
        return tensor_factorisations(
            net, places_of(v, tolerance=tolerance), tolerance=tolerance, limit=limit
        ), "factors"
    except NotSquarefree:
        candidates = _exact_candidates(net, v, tolerance, limit)
        if candidates:
            return candidates, "factors"
    filters, residual = nearest_filter(net, numbers, starts=starts, enough=rtol * size)
    if residual > rtol * size:
        return [], "search"
    try:
        # A repeated factor of v sits, as a rule, in different layers, each of which is squarefree.
        layers = [
            _dilate_factors(places_of(w, tolerance=tolerance), t, tolerance)
            for w, t in zip(filters, net.dilations, strict=True)
        ]
    except NotSquarefree:
        return [filters], "search"
    places = merge_places([part for part, _ in layers], net.dilations, tolerance=1e-9)
    candidates = tensor_factorisations(net, places, tolerance=1e-9, limit=limit)
    return candidates, "factors" if all(proven for _, proven in layers) else "search"


def _exact_candidates(net: LinearConvNet, v: Array, tolerance: float, limit: int) -> list[Filters]:
    """Floats with few binary digits are taken at their word: as rationals, whose repeated
    factors FLINT finds.
    """
    if is_rational(v) or not np.array_equal(np.round(v * _SHORT), v * _SHORT):
        return []
    try:
        return tensor_factorisations(
            net, places_of(exact(v), tolerance=tolerance), tolerance=tolerance, limit=limit
        )
    except NotSquarefree:
        return []


def _dilate_factors(part: Places, t: tuple[int, ...], tolerance: float) -> tuple[Places, bool]:
    """The factors of w(z^t) from those of w(z), and whether they are known to be irreducible."""
    if set(t) == {1}:
        return part, True
    factors, powers, proven = [], [], True
    for factor, power in zip(part.factors, part.powers, strict=True):
        spread_out = spread(factor, t)
        try:
            dilated = (
                places_of(spread_out, tolerance=tolerance).factors
                if np.isrealobj(factor)
                else [spread_out]
            )
        except NotSquarefree:  # too large to split; generic factors stay irreducible
            dilated = [spread_out]
        proven &= dilated[0] is not spread_out
        factors += dilated
        powers += [power] * len(dilated)
    return Places(factors, powers, part.zero, part.infinity), bool(proven)


def _is_known(filters: Filters, tuples: list[Filters]) -> bool:
    flat = [w / np.linalg.norm(w) for w in filters]
    return any(
        all(
            1 - abs(np.vdot(a, b)) / np.linalg.norm(b) <= 1e-11
            for a, b in zip(flat, other, strict=True)
        )
        for other in tuples
    )


def _with_signs(filters: Filters, delta: Array, signs: Array) -> Iterator[Filters]:
    norms = np.array([np.linalg.norm(w) for w in filters])
    scales = np.sqrt(solve_squared_norms(norms, delta)) / norms
    scaled = [s * w for s, w in zip(scales, filters, strict=True)]
    for pattern in signs:
        yield tuple(w if sign > 0 else -w for sign, w in zip(pattern, scaled, strict=True))


def _over_zero(net: LinearConvNet, v: Array, delta: Array) -> Fiber:
    if delta.any():
        return Fiber(net, v, delta, (), 0, 0.0, 0.0, "zero", infinite=True)
    zero = tuple(np.zeros(shape) for shape in net.filter_shapes)
    return Fiber(net, v, delta, (zero,), 1, 0.0, 0.0, "zero")


def flat_params(tuples: Any) -> np.ndarray:
    """The tuples as rows of one array, in `ravel_pytree` order."""
    return np.stack([join(params) for params in tuples])
