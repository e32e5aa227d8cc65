"""`fiber`: all parameters over an end-to-end filter with given invariants."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.functionspace.factors import NotSquarefree, Places, merge_places, places_of, tensor_factorisations
from neuromanifold.functionspace.kernel import kernel_spread
from neuromanifold.functionspace.polynomial import exact, is_rational, spread
from neuromanifold.functionspace.rescale import Filters, checked_delta, sign_patterns, solve_squared_norms
from neuromanifold.functionspace.roots import root_factorisations
from neuromanifold.functionspace.search import join, nearest_filter, normalise, polish
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold.numerics.results import Array, Result, counted, follows

_SHORT = 2.0**24


@dataclass(frozen=True, eq=False, repr=False)
class Fiber(Result):
    """All parameter tuples over (v, δ), with what shows that they are: a sequence of filter tuples.

    `factorisations` counts the tuples up to scalars; each gives 2^{H−1} parameters. `residual` is the largest
    ‖μ(θ) − v‖/‖v‖ among them. When there are none, v is not in the neuromanifold: `distance` is then the relative
    distance ‖μ(θ) − v‖/‖v‖ of the best fit found (an upper bound of the true one). `infinite`: v = 0 with δ ≠ 0, where
    the nonzero filters are arbitrary on their spheres. `method` is `"roots"` or `"factors"` (both
    exhaustive) or `"search"`: v is too large to be factored as a whole, a tuple was found by least squares, and its mates
    are those that its layers' factors give.
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

        Signs leave a kernel alone (checked on the first factorisation), so one tuple stands for its sign patterns.
        """
        return kernel_spread(self.net, (*self.params[: 2 ** (self.net.depth - 1)], *self.up_to_signs[1:]))

    def __str__(self) -> str:
        if self.infinite:
            return "infinitely many tuples: v is zero, so one filter vanishes and the others are free on their spheres"
        if not self.params:
            return f"no tuples: v is not in the neuromanifold (the best fit found is at relative distance {self.distance:.3g})"
        found = f"{counted(len(self), 'tuple')} in {counted(self.factorisations, 'factorisation')}"
        return f"{found} (residual {self.residual:.1e}, by {self.method})"


@follows
def fiber(
    net: LinearConvNet,
    v: Any,
    delta: Any = 0.0,
    *,
    rtol: float = 1e-10,
    limit: int = 100_000,
    starts: int = 16,
) -> Fiber:
    """All θ with μ(θ) = v and ‖w_{l+1}‖² − ‖w_l‖² = δ_l.   [riemann, Eq 8, Prop 2, Thm 4, Cor 10, Thm 13]

    One dimension: by complex roots (`roots.py`), for any strides, with repeated roots and roots at 0 and ∞. More: by
    irreducible factors (`factors.py`), assigned to the layers in all possible ways. Both find everything. Integers and
    `Fraction`s are factored exactly; floats are taken to be known to about `rtol`, so tuples count when
    ‖μ(θ) − v‖ ≤ rtol ‖v‖. `limit` bounds the number of factorisations, `starts` the search for the nearest
    filter when v is not in the neuromanifold.

    >>> cubic = fiber(LinearConvNet((3, 2), (1, 1)), np.array([0, 1, 1, 0]))     # x²y + xy² [riemann, Ex 19]
    >>> len(cubic), cubic.factorisations
    (6, 3)
    >>> print(fiber(LinearConvNet((2, 2), (1, 1)), np.array([1.0, 0.0, 1.0])))    # x² + y²
    no tuples: v is not in the neuromanifold (the best fit found is at relative distance 0.707)
    """
    v, numbers, delta = checked_filter(net, v), _float(v), checked_delta(net, delta)
    size = float(np.linalg.norm(numbers))
    if size == 0:
        return _over_zero(net, numbers, delta)
    candidates, method = _candidates(net, v, numbers, size, rtol, limit, starts)
    tuples, worst = _accepted(net, candidates, numbers, rtol * size)
    if not tuples:
        near, distance = nearest_filter(net, numbers, starts=starts, enough=rtol * size)
        if distance > rtol * size:
            return Fiber(net, numbers, delta, (), 0, float("nan"), distance / size, method)
        # v is off the neuromanifold, but by no more than its own uncertainty: the fibre is that of the filter nearby.
        close = compose(near, net.dilations)
        candidates, method = _candidates(net, close, close, size, 1e-10, limit, starts)
        tuples, worst = _accepted(net, [near, *candidates], numbers, rtol * size)
    signs = sign_patterns(net.depth)
    params = tuple(member for filters in tuples for member in _signed(filters, delta, signs))
    return Fiber(net, numbers, delta, params, len(tuples), worst / size, worst / size, method)


def _accepted(net: LinearConvNet, candidates: list[Filters], v: Array, allowed: float) -> tuple[list[Filters], float]:
    """The distinct candidates that reach v, polished, and the largest residual among them."""
    tuples: list[Filters] = []
    worst = 0.0
    for candidate in candidates:
        near = normalise(net, candidate, v)
        if near is not None:
            filters, residual = polish(net, near, v)
            if residual <= allowed and not _known(filters, tuples):
                tuples.append(filters)
                worst = max(worst, residual)
    return tuples, worst


def checked_filter(net: LinearConvNet, v: Any) -> np.ndarray:
    """v as an array of the network's end-to-end shape, real and finite; rational arrays stay rational."""
    if not net.is_linear:
        raise ValueError(f"`net` has the activation {net.activation.name}; fibres are those of linear networks.")
    v = np.asarray(v)
    if np.iscomplexobj(v):
        raise TypeError(f"`v` is complex ({v.dtype}); end-to-end filters are real.")
    if v.shape != net.end_to_end_shape:
        raise ValueError(f"`v` has shape {v.shape}; the end-to-end filter of {net} has shape {net.end_to_end_shape}.")
    if v.dtype == object and not is_rational(v):
        v = exact(v)
    if not is_rational(v):
        v = v.astype(np.float64)
        if not np.isfinite(v).all():
            raise ValueError(f"`v` has {(~np.isfinite(v)).sum()} entries that are not finite; remove or replace them.")
    return v


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
            _dilated(places_of(w, tolerance=tolerance), t, tolerance)
            for w, t in zip(filters, net.dilations, strict=True)
        ]
    except NotSquarefree:
        return [filters], "search"
    places = merge_places([part for part, _ in layers], net.dilations, tolerance=1e-9)
    candidates = tensor_factorisations(net, places, tolerance=1e-9, limit=limit)
    return candidates, "factors" if all(proven for _, proven in layers) else "search"


def _exact_candidates(net: LinearConvNet, v: Array, tolerance: float, limit: int) -> list[Filters]:
    """Floats with few binary digits are taken at their word: as rationals, whose repeated factors FLINT finds."""
    if is_rational(v) or not np.array_equal(np.round(v * _SHORT), v * _SHORT):
        return []
    try:
        return tensor_factorisations(net, places_of(exact(v), tolerance=tolerance), tolerance=tolerance, limit=limit)
    except NotSquarefree:
        return []


def _dilated(part: Places, t: tuple[int, ...], tolerance: float) -> tuple[Places, bool]:
    """The factors of w(z^t) from those of w(z), and whether they are known to be irreducible."""
    if set(t) == {1}:
        return part, True
    factors, powers, proven = [], [], True
    for factor, power in zip(part.factors, part.powers, strict=True):
        spread_out = spread(factor, t)
        try:
            dilated = places_of(spread_out, tolerance=tolerance).factors if np.isrealobj(factor) else [spread_out]
        except NotSquarefree:  # too large to split; generic factors stay irreducible
            dilated = [spread_out]
        proven &= dilated[0] is not spread_out
        factors += dilated
        powers += [power] * len(dilated)
    return Places(factors, powers, part.zero, part.infinity), bool(proven)


def _known(filters: Filters, tuples: list[Filters]) -> bool:
    flat = [w / np.linalg.norm(w) for w in filters]
    return any(
        all(1 - abs(np.vdot(a, b)) / np.linalg.norm(b) <= 1e-11 for a, b in zip(flat, other, strict=True))
        for other in tuples
    )


def _signed(filters: Filters, delta: Array, signs: Array) -> Iterator[Filters]:
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
