"""Filter tuples near an end-to-end filter by least squares: polishing, projection, and a search
from many starts.
"""

from typing import Any

import numpy as np

from neuromanifold.functionspace.kernel import jacobian_at
from neuromanifold.functionspace.rescale import (
    FilterLike,
    Filters,
    check_delta,
    check_filter,
    sign_patterns,
    solve_squared_norms,
)
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Array, follows


def split(net: LinearConvNet, flat: Array) -> Filters:
    """A parameter vector as filters."""
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in net.filter_shapes)])
    return tuple(
        flat[a:b].reshape(shape)
        for a, b, shape in zip(bounds, bounds[1:], net.filter_shapes, strict=False)
    )


def join(filters: Filters) -> np.ndarray:
    """The filters as one parameter vector."""
    return np.concatenate([w.ravel() for w in filters])


def polish(
    net: LinearConvNet, filters: Filters, v: Array, *, steps: int = 8
) -> tuple[Filters, float]:
    """Gauss–Newton on μ(θ) = v from a near solution; returns the best iterate and its residual
    ‖μ(θ) − v‖.

    The steps have least norm, so they are orthogonal to the layer rescalings and do not drift along
    them.
    """
    target = 4 * np.finfo(np.float64).eps * np.linalg.norm(v)
    best, error = filters, compose(filters, net.dilations) - v
    residual = float(np.linalg.norm(error))
    for _ in range(steps):
        if residual <= target:
            break
        step = np.linalg.lstsq(jacobian_at(net, best), -error.ravel(), rcond=1e-10)[0]
        trial = tuple(w + dw for w, dw in zip(best, split(net, step), strict=True))
        error = compose(trial, net.dilations) - v
        if not np.linalg.norm(error) < residual:
            break
        best, residual = trial, float(np.linalg.norm(error))
    return best, residual


def normalise(net: LinearConvNet, filters: Filters, v: Array) -> Filters | None:
    """The balanced multiple of a projective tuple whose product is closest to v; None when it is
    orthogonal to v.
    """
    mu = compose(filters, net.dilations)
    scale = float(np.vdot(mu, v) / np.vdot(mu, mu))
    if scale == 0:
        return None
    norms = np.array([np.linalg.norm(w) for w in filters])
    each = (abs(scale) * norms.prod()) ** (1 / net.depth)
    first = each / norms[0] * np.sign(scale)
    return (
        first * filters[0],
        *(each / n * w for n, w in zip(norms[1:], filters[1:], strict=True)),
    )


def descend(
    net: LinearConvNet, filters: Filters, v: Array, *, steps: int = 200
) -> tuple[Filters, float]:
    """Levenberg–Marquardt on ‖μ(θ) − v‖²: a critical point and its residual."""
    theta, damping = join(filters), 1.0
    error = (compose(filters, net.dilations) - v).ravel()
    J = jacobian_at(net, filters)
    floor = 1e-15 * np.linalg.norm(v)
    for _ in range(steps):
        gram, slope = J.T @ J, J.T @ error
        if (
            np.linalg.norm(slope) <= 1e-14 * np.linalg.norm(J) * np.linalg.norm(v)
            or np.linalg.norm(error) <= floor
        ):
            break
        step = np.linalg.solve(gram + damping * np.trace(gram) * np.eye(len(theta)), -slope)
        trial = split(net, theta + step)
        new = (compose(trial, net.dilations) - v).ravel()
        if new @ new < error @ error:
            theta, error, J = theta + step, new, jacobian_at(net, trial)
            damping = max(damping / 5, 1e-13)
        else:
            damping *= 3
            if damping > 1e12:
                break
    return split(net, theta), float(np.linalg.norm(error))


def random_start(net: LinearConvNet, v: Array, rng: np.random.Generator) -> Filters:
    """Gaussian filters, scaled so that the product has the size of v."""
    filters = tuple(rng.normal(size=shape) for shape in net.filter_shapes)
    size = np.linalg.norm(compose(filters, net.dilations))
    factor = (np.linalg.norm(v) / size) ** (1 / net.depth)
    return tuple(factor * w for w in filters)


@follows
def nearest_filter(
    net: LinearConvNet, v: Array, *, starts: int = 16, key: Key | None = None, enough: float = 0.0
) -> tuple[Filters, float]:
    """Return the best of many descents: filters and ‖μ(θ) − v‖, an upper bound of the distance of v
    to the neuromanifold.

    Stops early at a residual of `enough`.

    `starts` descents begin at random parameters.
    """
    v, rng = np.asarray(check_filter(net, v), np.float64), host_generator(key)
    best: tuple[Filters, float] | None = None
    for _ in range(starts):
        found = descend(net, random_start(net, v, rng), v)
        if best is None or found[1] < best[1]:
            best = found
        if best[1] <= enough:
            break
    if best is None:
        raise ValueError(f"`starts` is {starts}; pass a whole number, one or more.")
    return best


@follows
def search_fiber(
    net: LinearConvNet,
    v: FilterLike,
    delta: Any,
    *,
    starts: int,
    key: Key | None = None,
    rtol: float = 1e-9,
) -> list[Filters]:
    """Return the distinct tuples over (v, δ) that descents from random starts find: a count that
    uses no algebra.

    Every start is solved, rescaled to δ, and compared with the earlier ones in all its sign
    patterns.

    `delta` are the invariants δ, `starts` the number of descents; a tuple counts when ‖μ(θ) − v‖ ≤
    `rtol`·‖v‖.
    """
    v, delta = np.asarray(check_filter(net, v), np.float64), check_delta(net, delta)
    rng, found = host_generator(key), []
    for _ in range(starts):
        filters, _ = descend(net, random_start(net, v, rng), v)
        filters, residual = polish(net, filters, v)
        if residual > rtol * np.linalg.norm(v):
            continue
        norms = np.array([np.linalg.norm(w) for w in filters])
        scaled = [
            np.sqrt(beta) / n * w
            for beta, n, w in zip(solve_squared_norms(norms, delta), norms, filters, strict=True)
        ]
        for signs in sign_patterns(net.depth):
            candidate = tuple(s * w for s, w in zip(signs, scaled, strict=True))
            flat = join(candidate)
            if all(
                np.linalg.norm(flat - join(other)) > 1e-5 * np.linalg.norm(flat) for other in found
            ):
                found.append(candidate)
    return found
