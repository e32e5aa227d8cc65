"""complexity: sentences that a second, blind reading found to say more than we had executed."""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.complexity.statements.bounds import affine_pieces
from neuromanifold_papers.complexity.statements.cases import (
    Network,
    Widths,
    architectures,
    network,
    roughly,
    staged,
)
from neuromanifold_papers.statement import control, statement

Matrix = tuple[int, int, float]
"""Rows, columns and the printed largest singular value."""
EPSILON = 1.19e-7
EXPERIMENTS: dict[str, Matrix] = {"1D": (100, 361, 1e3), "2D": (400, 371, 1e4)}
COUNTED = {"1D": 0.01, "2D": 0.1}


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


_TENFOLD = control("a hundredth of ε", lambda: "1D", size=lambda matrix: _threshold(matrix) / 100)


@statement(
    "Sec 5 (0.01 and 0.1)", lambda rng, draws: list(EXPERIMENTS), _TENFOLD, confirm=_by_numpy
)
def thresholds(name: str, size: Callable[[Matrix], float] = _threshold) -> Check:
    """With σ_max = 10³ (1D) and 10⁴ (2D) the threshold max(n, m)·σ_max·ε is roughly 0.01 and 0.1
    (roughly: to half a power of ten).
    """
    return _near(size(EXPERIMENTS[name]), COUNTED[name], name)


@statement(
    "Sec 5 (0.04 and 0.5)",
    lambda rng, draws: list(EXPERIMENTS),
    _TENFOLD,
    amends="Sec 5 (0.01 and 0.1)",
)
def thresholds_amended(name: str, size: Callable[[Matrix], float] = _threshold) -> Check:
    """The threshold is roughly 0.04 in the 1D and 0.5 in the 2D experiments."""
    return _near(size(EXPERIMENTS[name]), {"1D": 0.04, "2D": 0.5}[name], name, within=0.05)


def _near(found: float, wanted: float, name: str, within: float = 0.5) -> Check:
    return at_most(abs(float(np.log10(found / wanted))), within, experiment=name)


def patterns(case: Network) -> int:
    """How many activation patterns the sample meets."""
    layers = [np.asarray(layer) > 0 for layer in case.signs.layers[: case.net.depth - 1]]
    return len(np.unique(np.concatenate(layers, axis=1), axis=0))


def _pattern_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    yield network([[[1]], [[-1]], [[1]]], [[0], [-1], [0]], [-1, 1])
    for widths in [*architectures([1], 3), *architectures([2], 2)]:
        status = tuple(("bent",) * n for n in widths[1:-1])
        yield staged(rng, widths, status, 3 * widths[0] + 5)


def _by_affine_maps(case: Network) -> Check:
    """Every two samples of different patterns: whether f is affine between and beyond them."""
    f = lambda x: np.asarray(case.net(case.params, x), float)  # noqa: E731
    step = np.eye(case.x.shape[1]) * 1e-3
    slopes = [(f(x + step) - f(x - step)) / 2e-3 for x in np.asarray(case.x, float)]
    values = [f(x[None])[0] - x @ s for x, s in zip(np.asarray(case.x, float), slopes, strict=True)]
    pieces = [np.concatenate([s.ravel(), v]) for s, v in zip(slopes, values, strict=True)]
    apart = sum(
        all(np.abs(pieces[j] - piece).max() > 1e-3 for j in range(i))
        for i, piece in enumerate(pieces)
    )
    return equal(apart, patterns(case))


_ONE_MORE = control(
    "a pattern too many, where one neuron bends",
    lambda: network([[[1]], [[1]]], [[0], [0]], [-1, 1]),
    more=1,
)


@statement("Sec 5 (patterns)", _pattern_cases, _ONE_MORE, confirm=_by_affine_maps)
def distinct(case: Network, more: int = 0) -> Check:
    """Each activation pattern on the sample is one linear region of f_θ: as many patterns as affine
    pieces.
    """
    return equal(patterns(case) + more, len(affine_pieces(case)), layers=case.net.depth)


@statement("Sec 5 (patterns), amended", _pattern_cases, _ONE_MORE, amends="Sec 5 (patterns)")
def no_fewer(case: Network, more: int = 0) -> Check:
    """The sample meets at least as many activation patterns as affine pieces."""
    return at_most(len(affine_pieces(case)) + more, patterns(case), layers=case.net.depth)


def _all_widths(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from architectures([0, 1, 2, 3], 4)


@statement(
    "App A (linear error)",
    _all_widths,
    control("no error allowed, at (1, 2 | 1)", lambda: (1, 2, 1), error=0),
    exhaustive="widths 1 to 4, up to three hidden layers",
)
def linear_error(widths: Widths, error: int = 1) -> Check:
    """Roughly monotonic widths shrink or grow up to an error linear in the layers: n_m ≤ n_l + (m − l)
    for all l < m, or n_l ≤ n_m + (m − l) for all.
    """
    pairs = list(combinations(range(len(widths)), 2))
    shrinks = all(widths[m] <= widths[l] + error * (m - l) for l, m in pairs)
    grows = all(widths[l] <= widths[m] + error * (m - l) for l, m in pairs)
    return equal(int(shrinks or grows), int(any(roughly(widths))), layers=len(widths) - 1)


def _rectangles(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    """(n_0, h, …, h | n_d)."""
    for hidden in range(1, 11):
        for n, o, depth in [(1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 4), (8, 1, 4)]:
            yield n, *(hidden,) * depth, o


def _by_definition(widths: Widths) -> Check:
    from neuromanifold.regions import is_roughly_monotonic

    return equal(int(is_roughly_monotonic(widths)), 1)


_UNEVEN = control("hidden widths 5, 1, 5", lambda: (1, 5, 1, 5, 1))


@statement("App A (mild)", _rectangles, _UNEVEN, confirm=_by_definition)
def mild(widths: Widths) -> Check:
    """Rectangular architectures (n_0, h, …, h | n_d) are roughly monotonic, so that the assumption is
    mild.
    """
    return equal(int(any(roughly(widths))), 1, hidden_layers=len(widths) - 2)


@statement(
    "App A (mild), amended",
    _rectangles,
    control("h at most max(n_0, n_d), at (1, 2 | 1)", lambda: (1, 2, 1), room=0),
    amends="App A (mild)",
)
def mild_amended(widths: Widths, room: int = 1) -> Check:
    """(n_0, h, …, h | n_d) is roughly monotonic exactly when h is at most 1 + max(n_0, n_d)."""
    within = widths[1] <= room + max(widths[0], widths[-1])
    return equal(int(any(roughly(widths))), int(within), hidden_layers=len(widths) - 2)


PRINTED_MATRICES = {"univariate": (100, 361), "energy": (768, 431), "bivariate": (100, 371)}
DATA = {"univariate": (100, 1), "energy": (768, 8), "bivariate": (20 * 20, 2)}


def _jacobian_shape(name: str) -> tuple[int, int]:
    """Samples, and the parameters of (n_0, 10, 10, 10, 10 | 1)."""
    samples, inputs = DATA[name]
    widths = (inputs, 10, 10, 10, 10, 1)
    return samples, sum((a + 1) * b for a, b in zip(widths, widths[1:], strict=False))


def _by_points(name: str) -> Check:
    """The points of the study's own data."""
    from neuromanifold_papers.complexity import runs

    [x], _ = runs.load_data(({"bivariate": "g2", "univariate": "f2"}[name],))
    return equal(len(x), PRINTED_MATRICES[name][0])


_NO_BIASES = control("the energy data with one input", lambda: "energy", data=("univariate",))


@statement("Sec 6 (matrices)", lambda rng, draws: list(DATA), _NO_BIASES, confirm=_by_points)
def matrices(name: str, data: tuple[str, ...] = ()) -> Check:
    """The functional dimensions are ranks of matrices 100×361, 768×431 and 100×371."""
    return _sizes(name, PRINTED_MATRICES[name], data)


@statement(
    "Sec 6 (matrices), amended",
    lambda rng, draws: list(DATA),
    _NO_BIASES,
    amends="Sec 6 (matrices)",
    exhaustive="the three experiments",
)
def matrices_amended(name: str, data: tuple[str, ...] = ()) -> Check:
    """They are ranks of matrices 100×361, 768×431 and 400×371."""
    return _sizes(name, {**PRINTED_MATRICES, "bivariate": (400, 371)}[name], data)


def _sizes(name: str, printed: tuple[int, int], data: tuple[str, ...]) -> Check:
    found = _jacobian_shape(data[0] if data else name)
    return equal(sum(abs(a - b) for a, b in zip(found, printed, strict=True)), 0, experiment=name)
