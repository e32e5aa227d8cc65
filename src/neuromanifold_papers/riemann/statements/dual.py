"""`riemann`, Lem 18, the last part of its proof: the sets X_r of filters where dμ has rank r, and the
closures Y_r of their images.

Two layers with stride s: dμ drops rank by d where w_1 = q(x^s)u and w_2 = qt with q of degree d
and as large as it can be, and there μ = q(x^s)²·u·t(x^s), which parametrises Y_r.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain, product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_most, equal, outside
from neuromanifold_papers.riemann.statements.exact import hypotheses, rank, statement
from neuromanifold_papers.statement import control

Drop = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The stride s, and the coefficients of q, u and t."""


def _times(*forms: np.ndarray) -> np.ndarray:
    return reduce(np.convolve, forms)


def _at_power(form: np.ndarray, s: int) -> np.ndarray:
    """The coefficients of form(x^s, y^s)."""
    spread = np.zeros((len(form) - 1) * s + 1, object)
    spread[::s] = form
    return spread


def _filters(case: Drop) -> tuple[np.ndarray, np.ndarray]:
    s, *forms = case
    q, u, t = (np.array(form, object) for form in forms)
    return _times(_at_power(q, s), u), _times(q, t)


def _net(case: Drop) -> LinearConvNet:
    return LinearConvNet(tuple(len(w) for w in _filters(case)), (case[0], 1))


def _image(case: Drop) -> np.ndarray:
    """Columns that span the image of dμ."""
    return fs.filter_jacobian(_net(case), _filters(case))


def _tangents(case: Drop) -> np.ndarray:
    """Columns that span the image of the derivative of (q, u, t) ↦ q(x^s)²·u·t(x^s)."""
    s, *forms = case
    q, u, t = (np.array(form, object) for form in forms)
    Q, T = _at_power(q, s), _at_power(t, s)
    units = [np.eye(len(form), dtype=int).astype(object) for form in (q, u, t)]
    along_q = [_times(Q, _at_power(e, s), u, T) for e in units[0]]
    along_u = [_times(Q, Q, e, T) for e in units[1]]
    along_t = [_times(Q, Q, u, _at_power(e, s)) for e in units[2]]
    return np.array([*along_q, *along_u, *along_t], object).T


Columns = Callable[[Drop], np.ndarray]


def _said(case: Drop) -> dict[str, Any]:
    return {"hypotheses": hypotheses(_net(case), d=len(case[1]) - 1)}


def _further(case: Drop) -> bool:
    """Whether the rank drops by more than deg q: then q was not all that the filters share."""
    net = _net(case)
    return rank(_image(case)) != net.n_params - len(case[1])


def _generic(rng: np.random.Generator, draws: int) -> Iterator[Drop]:
    """Degrees 0, 1, 2 of q, up to 2 of u and 1 of t, strides 1, 2, 3; integer coefficients."""
    yield 2, (1, 1), (1,), (1,)
    for d, s, m, n in product((0, 1, 2), (1, 2, 3), (0, 1, 2), (0, 1)):
        if 0 in (d + n, d + m):
            continue
        q, u, t = (
            tuple(int(c) for c in rng.integers(1, 9, size + 1) * rng.choice([-1, 1], size + 1))
            for size in (d, m, n)
        )
        yield s, q, u, t


Crossing = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The stride s, and p, q and u of the filter p(x^s)²q(x^s)²u, over which two tuples lie."""


def _crossing(rng: np.random.Generator, draws: int) -> Iterator[Crossing]:
    for s, m, _ in product((1, 2, 3), (0, 1), range(2)):
        p, q = ((1, int(c)) for c in rng.choice(np.arange(-9, 10), 2, replace=False))
        yield s, p, q, tuple(int(c) for c in rng.integers(1, 9, m + 1))


def _tuples(case: Crossing) -> tuple[Drop, Drop]:
    """Both tuples: p or q is what the filters share."""
    s, *forms = case
    p, q, u = (np.array(form, object) for form in forms)
    squares = [_times(_at_power(f, s), _at_power(f, s), u).tolist() for f in (q, p)]
    return (s, case[1], tuple(squares[0]), (1,)), (s, case[2], tuple(squares[1]), (1,))


def _by_second_derivatives(case: Drop) -> Check:
    """dim dμ(T X_r) against r: T X_r is where LᵀJ(δ)K = 0, L and K the null spaces of J on either
    side; J is linear in θ.
    """
    net = _net(case)
    (a, b), sizes = _filters(case), [k for (k,) in net.filter_shapes]
    jacobian = lambda w, v: fs.filter_jacobian(net, (w, v)).astype(float)  # noqa: E731
    J = jacobian(a, b)
    U, values, V = np.linalg.svd(J)
    r = int((values > 1e-9 * values[0]).sum())
    units = np.eye(net.n_params)
    bends = [U[:, r:].T @ jacobian(e[: sizes[0]], e[sizes[0] :]) @ V[r:].T for e in units]
    constraints = np.array([bend.ravel() for bend in bends]).T
    _, bent, W = np.linalg.svd(constraints)
    along = W[int((bent > 1e-9 * np.abs(J).max()).sum()) :].T
    return equal(r, int(np.linalg.matrix_rank(J @ along, tol=1e-9 * values[0])))


@statement(
    "Lem 18 (smooth image)",
    _generic,
    control(
        "the tangent space of filters that share no factor, at stride 1",
        lambda: (1, (1, 1), (1, 2), (1,)),
        tangents=lambda case: _tangents((1, (1,), (1, 5, 6), (1, 1))),
    ),
    confirm=_by_second_derivatives,
)
def smooth_image(case: Drop, tangents: Columns = _tangents) -> Check:
    """At a smooth point of Y_r the image of d_θμ is the tangent space of Y_r: at generic filters
    of X_r it has the dimension of Y_r.
    """
    drops = outside("the rank drops further", when=_further(case))
    return equal(rank(_image(case)), rank(tangents(case)), drops=drops, **_said(case))


@statement(
    "Lem 18 (singular image)",
    _crossing,
    control(
        "dim Y_r of filters that share a factor more, at stride 1",
        lambda: (1, (1, 1), (1, 2), (1, 3)),
        tangents=lambda case: _tangents((1, (1, 2, 3), (1, 1), (1,))),
    ),
    confirm=lambda case: _by_second_derivatives(_tuples(case)[0]),
)
def singular_image(case: Crossing, tangents: Columns = _tangents) -> Check:
    """At a singular point of Y_r the image of d_θμ lies in a limit of its tangent spaces, so that
    its dimension r is at most dim Y_r.

    Two tuples with different tangent spaces lie over the filter, which is therefore singular.
    """
    first, second = _tuples(case)
    here, there = _tangents(first), _tangents(second)
    one = rank(np.hstack([here, there])) == rank(here)
    drops = outside("one tangent space", when=one)
    return at_most(rank(_image(first)), rank(tangents(first)), drops=drops, **_said(first))


@smooth_image.amend(
    control("d for (s − 1)d at stride 3", lambda: (3, (1, 2), (1, 1), (1,)), loss=lambda s, d: d),
    id="Lem 18 (image, amended)",
    amends=("Lem 18 (smooth image)", "Lem 18 (singular image)"),
)
def image_amended(case: Drop, loss: Callable[[int, int], int] = lambda s, d: (s - 1) * d) -> Check:
    """Two layers with stride s: Y_r has dimension r − (s − 1)d where dμ drops rank by d, so that
    the image of d_θμ is larger than any tangent space of Y_r unless s = 1 or d = 0.
    """
    drops = outside("the rank drops further", when=_further(case))
    dimension = rank(_image(case)) - loss(case[0], len(case[1]) - 1)
    return equal(rank(_tangents(case)), dimension, drops=drops, **_said(case))


@statement(
    "Lem 18 (hyperplanes)",
    lambda rng, draws: chain(
        _generic(rng, draws), (_tuples(case)[0] for case in _crossing(rng, draws))
    ),
    control(
        "the tangent space at other filters of X_r",
        lambda: (2, (1, 1), (1, 1), (1,)),
        tangents=lambda case: _tangents((2, (1, 3), (1, 5), (1,))),
    ),
)
def hyperplanes(case: Drop, tangents: Columns = _tangents) -> Check:
    """Every hyperplane that contains the image of d_θμ is in the dual variety of Y_r: it contains
    a tangent space of Y_r or a limit of such, which the image contains.
    """
    image = _image(case)
    together = rank(np.hstack([image, tangents(case)]))
    drops = outside("the rank drops further", when=_further(case))
    return equal(together, rank(image), drops=drops, **_said(case))
