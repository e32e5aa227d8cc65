"""Complete positivity of finitely many points, or of their cone: an isometric copy in a
nonnegative orthant.   [bottleneck, Thm 3]
"""

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import MatrixLike, check_matrix

# Horn's copositive form: xᵀHx ≥ 0 on the orthant, and no sum of a positive semidefinite and a
# nonnegative matrix.
_HORN = np.array([[(1, -1, 1, 1, -1)[(j - i) % 5] for j in range(5)] for i in range(5)], np.float64)


@dataclass(frozen=True, repr=False)
class CompletePositivity(Result):
    """Whether the points embed isometrically and linearly into a nonnegative orthant, with the
    evidence.

    True: `embedding` O (m × d) has OᵀO = the projection onto the span of the points and O x ≥
    −`defect` on them. False: `reason` names two points at an obtuse angle, or five points on which
    Horn's copositive form is negative. None: neither was found.
    """

    verdict: bool | None
    reason: str
    embedding: Float[Array, "m d"] | None = None
    defect: float = 0.0
    witness: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is True

    def verify(self, points: MatrixLike) -> bool:
        """Check the evidence again, from the points and the evidence alone."""
        X = check_matrix(points, "points")
        if self.verdict and self.embedding is not None:
            image = X @ self.embedding.T
            tolerance = 1e-9 * max(1.0, float(np.abs(X).max()))
            isometric = np.allclose(
                image @ image.T, X @ X.T, rtol=0, atol=tolerance * max(1.0, float(np.abs(X).max()))
            )
            return bool(isometric and image.min() >= -tolerance)
        if self.verdict is False:
            G = X[list(self.witness)] @ X[list(self.witness)].T
            return bool(G[0, 1] < 0) if len(G) == 2 else _horn_value(G) < 0
        return False


@follows
def completely_positive(
    points: MatrixLike, *, size: int | None = None, tries: int = 20
) -> CompletePositivity:
    """Return whether the Gram matrix of the points is completely positive: XXᵀ = YYᵀ with Y ≥ 0,
    Y = XOᵀ.   [bottleneck, Thm 3(3)]

    The cone spanned by the points embeds along with them. Up to two dimensions the answer is exact;
    beyond, an embedding into `size` dimensions (default up to k(k+1)/2 for points of rank k) is
    searched by alternating projections, and refuted by two points at an obtuse angle or by Horn's
    form on five.

    `points` is (n, d); the search starts `tries` times.

    >>> from neuromanifold.bottleneck import completely_positive
    >>> bool(completely_positive(np.array([[1.0, 1.0], [1.0, -1.0]])))      # a right angle fits into the quadrant
    True
    >>> completely_positive(np.array([[1.0], [-1.0]])).reason
    'points 0 and 1 make an obtuse angle'
    """
    X = check_matrix(points, "points")
    if size is not None and size < 1:
        raise ValueError(f"`size` is {size}; pass a whole number of dimensions, one or more.")
    G = X @ X.T
    i, j = np.unravel_index(int(np.argmin(G)), G.shape)
    tolerance = 1e-12 * float(np.abs(G).max())
    if G[i, j] < -tolerance:
        witness = (int(min(i, j)), int(max(i, j)))
        return CompletePositivity(
            False, f"points {witness[0]} and {witness[1]} make an obtuse angle", witness=witness
        )
    basis = _span(X)
    coordinates = X @ basis
    for m in [size] if size is not None else _sizes(basis.shape[1]):
        for O in _candidates(coordinates, m, tries):
            defect = float(max(0.0, -(coordinates @ O.T).min()))
            if defect <= 1e-10 * max(1.0, float(np.abs(X).max())):
                return CompletePositivity(
                    True, f"embedded into {len(O)} dimensions", O @ basis.T, defect
                )
    horn = _horn_witness(G)
    if horn is not None:
        return CompletePositivity(
            False, f"Horn's form is negative on points {list(horn)}", witness=horn
        )
    return CompletePositivity(None, "neither an embedding nor a refutation was found")


def _span(X: np.ndarray) -> np.ndarray:
    _, s, Vt = np.linalg.svd(X, full_matrices=False)
    return Vt[s > max(X.shape) * np.finfo(np.float64).eps * max(s[0], 1e-300)].T


def _sizes(k: int) -> list[int]:
    return sorted({k, k + 1, 2 * k, max(k, k * (k + 1) // 2)})


def _candidates(C: np.ndarray, m: int, tries: int):
    """Isometries R^k → R^m that may carry the rows of C into the orthant."""
    k = C.shape[1]
    if k == 0:
        yield np.zeros((m, 0))
        return
    yield np.eye(m, k)
    if k == 1:
        yield -np.eye(m, 1)
    if k == 2:
        yield from (np.eye(m, 2) @ R for R in _rotations(C))
    rng = np.random.default_rng(0)
    for _ in range(tries if k > 2 else 0):
        yield _alternate(C, np.linalg.qr(rng.normal(size=(m, k)))[0])


def _rotations(C: np.ndarray):
    """Frames of the plane that begin with one of the rays: a cone of at most a right angle fits
    one of them.
    """
    for ray in C[np.linalg.norm(C, axis=1) > 0]:
        u = ray / np.linalg.norm(ray)
        for v in (np.array([-u[1], u[0]]), np.array([u[1], -u[0]])):
            yield np.array([u, v])


def _alternate(C: np.ndarray, O: np.ndarray, steps: int = 3000) -> np.ndarray:
    """Alternating projections between nonnegative images and isometric ones (orthogonal
    Procrustes).
    """
    floor = 0.0
    for _ in range(steps):
        image = C @ O.T
        if image.min() >= 0:
            return O
        U, _, Vt = np.linalg.svd(np.maximum(image, floor).T @ C, full_matrices=False)
        O = U @ Vt
        floor = 1e-6 * float(np.abs(image).max())
    return O


def _horn_witness(G: np.ndarray) -> tuple[int, ...] | None:
    for subset in itertools.combinations(range(min(len(G), 8)), 5):
        for order in itertools.permutations(subset[1:]):
            chosen = (subset[0], *order)
            if order[0] < order[-1] and _horn_value(G[np.ix_(chosen, chosen)]) < 0:
                return chosen
    return None


def _horn_value(G: np.ndarray) -> float:
    """The smallest dᵀ(H∘G)d found over positive d: negative means not completely positive."""
    scale = np.sqrt(np.diag(G))
    if np.any(scale == 0):
        return 0.0
    M = _HORN * G / np.outer(scale, scale)
    _, vectors = np.linalg.eigh(M)
    lowest = vectors[:, 0] * np.sign(vectors[:, 0].sum() or 1.0)
    trials = [np.ones(5), np.maximum(lowest, 0.0)]
    value = min(float(d @ M @ d) for d in trials)
    return value if value < -1e-12 else 0.0
