"""The second route to an orbit's dimension: transport the fields along a random trajectory of
their own flows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.rank import Rank, numerical_rank
from neuromanifold.numerics.results import Result

Point = Float[np.ndarray, " D"]
Vectors = Float[np.ndarray, "_ D"]
Lift = Callable[[Point, Vectors], tuple[Point, Vectors]]


@dataclass(frozen=True, repr=False)
class Transport(Result):
    """The tangent space of the orbit, from fields gathered along a trajectory.

    `ranks` has the dimension after each piece of the trajectory, `basis` an orthonormal basis at
    the starting point.
    """

    ranks: tuple[Rank, ...]
    basis: Vectors

    @property
    def rank(self) -> Rank:
        """The dimension after the last piece."""
        return self.ranks[-1]


def transport(
    jacobian: Callable[[Point], Vectors],
    draw: Callable[[], Lift],
    theta: Point,
    *,
    length: float,
    rtol: float,
    pieces: int,
    bound: int,
) -> Transport:
    """Flow along one random field after the other, carrying the span of all fields met so far.
    [invariant, Thm 2.1]

    The tangent space of an orbit is spanned by the fields at all its points, transported to one.
    With V_0 the span of the fields at θ, and V_{i+1} = De^{tX}(V_i) + the fields at the new point,
    the dimension grows until it is that of the orbit: where a generic piece adds nothing, V is
    invariant under all flows and holds all fields, so it is the tangent space. No pause, as
    brackets at a degenerate point have, can end it early; a second piece without growth is asked
    for because the first may have moved too little for float64.

    `draw()` gives the tangent lift (θ, V) ↦ (X(θ), DX(θ)V) of a random field; `length` is how far a
    piece moves; flows are integrated to the relative tolerance `rtol` and ranks read with 10³ times
    it. It ends early at `bound`.
    """
    V, legs, point = _rows(jacobian(theta)), [], theta
    ranks = [numerical_rank(V, rtol=1e3 * rtol)]
    V = _basis(V, ranks[-1])
    while len(V) < bound and len(legs) < pieces and not _is_settled(ranks):
        leg = _Leg.along(draw(), point, length)
        point, V = leg.flow(point, V, 1.0, rtol)
        legs.append(leg)
        gathered = np.concatenate([_rows(V), _rows(jacobian(point))])
        ranks.append(numerical_rank(gathered, rtol=1e3 * rtol))
        V = _basis(gathered, ranks[-1])
    for leg in reversed(legs):
        point, V = leg.flow(point, V, -1.0, rtol)
    return Transport(tuple(ranks), _basis(_rows(V), None))


def _is_settled(ranks: list[Rank]) -> bool:
    return len(ranks) > 2 and int(ranks[-1]) == int(ranks[-2]) == int(ranks[-3])


@dataclass(frozen=True)
class _Leg:
    """The field X, slowed to X/√(1 + |X|²/s²): the same orbits, but no flow can run off to
    infinity.
    """

    lift: Lift
    speed: float
    duration: float

    @staticmethod
    def along(lift: Lift, point: Point, length: float) -> "_Leg":
        """Slowed at the speed the field has at the point; a field that vanishes there does not
        move it.
        """
        speed = float(np.linalg.norm(lift(point, np.zeros((0, len(point))))[0]))
        return _Leg(lift, speed, length / speed if speed > 0 else 0.0)

    def flow(self, theta: Point, V: Vectors, sign: float, rtol: float) -> tuple[Point, Vectors]:
        """(Φ(θ), DΦ(θ)V) with Φ the slowed flow for ± the duration."""
        from scipy.integrate import solve_ivp

        if self.duration == 0:
            return theta, V
        start = np.concatenate([theta[None], V])
        rate: Any = lambda _, state: self._rate(state.reshape(start.shape)).ravel()  # noqa: E731
        solution: Any = solve_ivp(
            rate, (0.0, sign * self.duration), start.ravel(), method="DOP853", rtol=rtol, atol=rtol
        )
        if not solution.success:
            raise ArithmeticError(
                f"a flow of the gradient fields could not be followed: {solution.message}"
            )
        rows = solution.y[:, -1].reshape(start.shape)
        return rows[0], rows[1:]

    def _rate(self, rows: np.ndarray) -> np.ndarray:
        x, dx = self.lift(rows[0], rows[1:])
        slow = 1.0 / np.sqrt(1.0 + (x @ x) / self.speed**2)
        return np.concatenate(
            [slow * x[None], slow * dx - (slow**3 / self.speed**2) * (dx @ x)[:, None] * x]
        )


def _rows(vectors: Vectors) -> Vectors:
    """Rows, normalised, without those that are rounding errors beside the largest."""
    norms = np.linalg.norm(vectors, axis=1)
    kept = norms > 1e-10 * norms.max(initial=0.0)
    return vectors[kept] / norms[kept, None]


def _basis(vectors: Vectors, rank: Rank | None) -> Vectors:
    """An orthonormal basis of the span, of the given dimension or as many vectors as there are."""
    if len(vectors) == 0:
        return vectors
    _, _, right = np.linalg.svd(vectors, full_matrices=False)
    return right[: len(vectors) if rank is None else int(rank)]
