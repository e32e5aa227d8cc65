"""complexity: sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from neuromanifold.regions.bounds import is_roughly_monotonic
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.bounds import affine_pieces
from neuromanifold_papers.complexity.statements.cases import Network, Widths, network
from neuromanifold_papers.complexity.statements.kernel import parameter_count
from neuromanifold_papers.statement import Control, control, statement

Matrix = tuple[int, int, float]
"""Rows, columns and the printed largest singular value."""
EPSILON = 1.19e-7
EXPERIMENTS: dict[str, Matrix] = {
    "1D": (100, 361, 1e3),
    "2D": (400, 371, 1e4),
    "1D, 100 for max(n, m)": (100, 100, 1e3),
}
COUNTED = {"1D": 0.01, "2D": 0.1, "1D, 100 for max(n, m)": 0.01}


def _threshold(matrix: Matrix) -> float:
    """max(n, m)·σ_max·ε.   [complexity, Sec 5]"""
    rows, columns, largest = matrix
    return max(rows, columns) * largest * EPSILON


def _by_numpy(name: str) -> Check:
    """NumPy's rank, whose rule is the printed one, of σ_max and three times the printed value: 2."""
    rows, columns, largest = EXPERIMENTS[name]
    matrix = np.zeros((rows, columns), np.float32)
    matrix[0, 0], matrix[1, 1] = largest, 3 * COUNTED[name]
    return equal(int(np.linalg.matrix_rank(matrix)), 2)


def _hundredth(name: str) -> Control:
    return control("a hundredth of ε", lambda: name, size=lambda matrix: _threshold(matrix) / 100)


@statement(
    "Sec 5 (0.01 and 0.1)",
    ["1D", "2D"],
    _hundredth("1D, 100 for max(n, m)"),
    confirm=_by_numpy,
)
def thresholds(
    name: str,
    size: Any = _threshold,
    counted: Mapping[str, float] = COUNTED,
    within: float = 0.5,
) -> Check:
    """With σ_max = 10³ (1D) and 10⁴ (2D) the threshold max(n, m)·σ_max·ε is roughly 0.01 and 0.1
    (roughly: to half a power of ten).
    """
    apart = float(np.log10(size(EXPERIMENTS[name]) / counted[name]))
    return at_most(abs(apart), within, experiment=name)


@thresholds.amend(_hundredth("1D"), id="Sec 5 (0.04 and 0.5)", counted={"1D": 0.04, "2D": 0.5})
def thresholds_amended(name: str, size: Any = _threshold, counted: Any = COUNTED) -> Check:
    """The threshold is, to one digit, 0.04 in the 1D and 0.5 in the 2D experiments."""
    return equal(float(f"{size(EXPERIMENTS[name]):.0e}"), counted[name], experiment=name)


def patterns(case: Network) -> int:
    """How many activation patterns the sample meets."""
    return len(np.unique(np.concatenate(case.active, axis=1), axis=0))


def _pattern_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    yield network([[[1]], [[-1]], [[1]]], [[0], [-1], [0]], [-1, 1])
    for widths in [*cast.architectures([1], 3), *cast.architectures([2], 2)]:
        yield cast.staged(rng, widths, cast.throughout(widths), 3 * widths[0] + 5)


def _by_affine_maps(case: Network) -> Check:
    """Every two samples of different patterns: whether f is affine between and beyond them."""
    f = lambda x: np.asarray(case.net(case.params, x), float)  # noqa: E731
    step = np.eye(case.x.shape[1]) * 1e-3
    slopes = [(f(x + step) - f(x - step)) / 2e-3 for x in np.asarray(case.x, float)]
    values = [f(x[None])[0] - x @ s for x, s in zip(np.asarray(case.x, float), slopes, strict=True)]
    pieces = np.array([np.append(s, v) for s, v in zip(slopes, values, strict=True)])
    far = [np.abs(pieces[:i] - piece).max(axis=1) > 1e-3 for i, piece in enumerate(pieces)]
    return equal(sum(bool(others.all()) for others in far), patterns(case))


@statement(
    "Sec 5 (patterns)",
    _pattern_cases,
    control(
        "a pattern too many, where one neuron bends",
        lambda: network([[[1]], [[1]]], [[0], [0]], [-1, 1]),
        more=1,
    ),
    confirm=_by_affine_maps,
)
def distinct(case: Network, more: int = 0) -> Check:
    """Each activation pattern on the sample is one linear region of f_θ: as many patterns as affine
    pieces.
    """
    return equal(patterns(case) + more, len(affine_pieces(case)), layers=case.net.depth)


@distinct.amend()
def no_fewer(case: Network, more: int = 0) -> Check:
    """The sample meets at least as many activation patterns as affine pieces."""
    return at_most(len(affine_pieces(case)) + more, patterns(case), layers=case.net.depth)


@statement(
    "App A (linear error)",
    cast.architectures([0, 1, 2, 3], 4),
    control("no error allowed, at (1, 2 | 1)", lambda: (1, 2, 1), error=0),
)
def linear_error(widths: Widths, error: int = 1) -> Check:
    """Roughly monotonic widths shrink or grow up to an error linear in the layers: n_m ≤ n_l + (m − l)
    for all l < m, or n_l ≤ n_m + (m − l) for all.
    """
    pairs = list(combinations(range(len(widths)), 2))
    shrinks = all(widths[m] <= widths[l] + error * (m - l) for l, m in pairs)
    grows = all(widths[l] <= widths[m] + error * (m - l) for l, m in pairs)
    return equal(int(shrinks or grows), int(any(cast.roughly(widths))), layers=len(widths) - 1)


# (n_0, h, …, h | n_d)
_RECTANGLES = [
    (n, *(hidden,) * depth, o)
    for hidden in range(1, 11)
    for n, o, depth in ((1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 4), (8, 1, 4))
]


@statement(
    "App A (mild)",
    _RECTANGLES,
    control("hidden widths 5, 1, 5", lambda: (1, 5, 1, 5, 1)),
    confirm=lambda widths: equal(int(is_roughly_monotonic(widths)), 1),
)
def mild(widths: Widths) -> Check:
    """Rectangular architectures (n_0, h, …, h | n_d) are roughly monotonic, so that the assumption is
    mild.
    """
    return equal(int(any(cast.roughly(widths))), 1, hidden_layers=len(widths) - 2)


@mild.amend(control("h at most max(n_0, n_d), at (1, 2 | 1)", lambda: (1, 2, 1), room=0))
def mild_amended(widths: Widths, room: int = 1) -> Check:
    """(n_0, h, …, h | n_d) is roughly monotonic exactly when h is at most 1 + max(n_0, n_d)."""
    within = widths[1] <= room + max(widths[0], widths[-1])
    return equal(int(any(cast.roughly(widths))), int(within), hidden_layers=len(widths) - 2)


PRINTED_MATRICES = {"univariate": (100, 361), "energy": (768, 431), "bivariate": (100, 371)}
DATA = {"univariate": (100, 1), "energy": (768, 8), "bivariate": (20 * 20, 2)}


def _jacobian_shape(name: str) -> tuple[int, int]:
    """Samples, and the parameters of (n_0, 10, 10, 10, 10 | 1)."""
    samples, inputs = DATA[name]
    return samples, parameter_count((inputs, 10, 10, 10, 10, 1))


def _by_points(name: str) -> Check:
    """The points of the study's own data."""
    from neuromanifold_papers.complexity import runs

    [x], _ = runs.load_data(({"bivariate": "g2", "univariate": "f2"}[name],))
    return equal(len(x), PRINTED_MATRICES[name][0])


@statement(
    "Sec 6 (matrices)",
    list(DATA),
    control("the energy data with one input", lambda: "energy", data="univariate"),
    confirm=_by_points,
)
def matrices(name: str, data: str = "", printed: Any = PRINTED_MATRICES) -> Check:
    """The functional dimensions are ranks of matrices 100×361, 768×431 and 100×371."""
    pairs = zip(_jacobian_shape(data or name), printed[name], strict=True)
    return equal(sum(abs(a - b) for a, b in pairs), 0, experiment=name)


matrices_amended = matrices.amend(printed=PRINTED_MATRICES | {"bivariate": (400, 371)})(
    "They are ranks of matrices 100×361, 768×431 and 400×371."
)
