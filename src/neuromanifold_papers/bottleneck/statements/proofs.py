"""bottleneck: sentences between the theorems, and the lemmas inside the proofs of Thms 11 to 16."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from neuromanifold_papers.check import Check, at_least, at_most, equal
from neuromanifold_papers.statement import control, statement

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Channels:
    """f(x, y) = (aσ(x), bσ(y)) with ReLUs: R⁽⁰⁾ = 2, and a network of two channels of equal
    weights costs L(a^{2/L} + b^{2/L}), so that R⁽¹⁾ ≤ 2 log ab.
    """

    a: float
    b: float
    depth: int = 1000

    def excess(self) -> float:
        """‖θ‖² − 2L at the given depth, which is no less than 2 log ab."""
        L = self.depth
        return L * (self.a ** (2 / L) + self.b ** (2 / L)) - 2 * L

    def __str__(self) -> str:
        return f"a, b, L = {self.a}, {self.b}, {self.depth}"


def _channels(rng: np.random.Generator, draws: int) -> list[Channels]:
    return [Channels(a, b) for a, b in product((1.0, 2.0, 0.5), (1.0, 0.5, 0.25))]


def _rank(x: float, y: float) -> int:
    return int(x > 0) + int(y > 0)


def _determinant(case: Channels, x: float, y: float) -> float:
    """|Jf(x, y)|₊: the product of the slopes of the open channels."""
    return float((case.a if x > 0 else 1.0) * (case.b if y > 0 else 1.0))


_POINTS = tuple(product((-1.0, 1.0), repeat=2))


def _bound(case: Channels, rank: int) -> Check:
    """The largest 2 log|Jf(x)|₊ over points of at least this rank against ‖θ‖² − 2L."""
    found = [2 * np.log(_determinant(case, *p)) for p in _POINTS if _rank(*p) >= rank]
    return at_most(float(max(found)), case.excess(), 1e-9, a=case.a, b=case.b)


def _by_a_network(case: Channels) -> Check:
    """The network itself at (1, −1): its Jacobian by differences, its norm by summing weights."""
    L = case.depth
    weights = [np.diag([case.a ** (1 / L), case.b ** (1 / L)])] * L

    def f(p: np.ndarray) -> np.ndarray:
        for W in weights:
            p = np.maximum(W @ p, 0)
        return p

    point, h = np.array([1.0, -1.0]), 1e-6
    columns = [(f(point + h * e) - f(point - h * e)) / (2 * h) for e in np.eye(2)]
    values = np.linalg.svd(np.array(columns).T, compute_uv=False)
    log = float(2 * np.sum(np.log(values[values > 1e-6])))
    return at_most(log, sum(float(np.sum(W**2)) for W in weights) - 2 * L, 1e-6)


@statement(
    "Sec 1.1 (every x)",
    _channels,
    control("a channel of slope 1/100", lambda: Channels(1.0, 0.01)),
    method="float64",
    confirm=_by_a_network,
)
def every_x(case: Channels) -> Check:
    """For all x, 2 log|Jf(x)|₊ ≤ R⁽¹⁾(f), without the hypothesis on the rank of Jf(x)."""
    return _bound(case, 1)


@statement(
    "Sec 1.1 (every x, amended)",
    _channels,
    control("points of rank 1 too", lambda: Channels(1.0, 0.01), rank=1),
    amends="Sec 1.1 (every x)",
    method="float64",
)
def every_x_amended(case: Channels, rank: int = 2) -> Check:
    """For all x where rank Jf(x) = R⁽⁰⁾(f), 2 log|Jf(x)|₊ ≤ R⁽¹⁾(f)."""
    return _bound(case, rank)


Pair = tuple[float, int]


@statement(
    "Thm 11 (lemma)",
    lambda rng, draws: list(product((0.01, 0.3, 1.0, 2.0, 50.0), (1, 2, 7, 100))),
    control("the inequality reversed", lambda: (2.0, 3), sign=-1),
    method="float64",
)
def thm_11_lemma(case: Pair, sign: int = 1) -> Check:
    """s^{2/L} − 1 ≥ (2/L) log s."""
    s, L = case
    left, right = s ** (2 / L) - 1, 2 / L * float(np.log(s))
    return at_least(sign * left, sign * right, 10 * EPS * (1 + abs(left)))


def _matrices(rng: np.random.Generator, draws: int) -> Iterator[np.ndarray]:
    for rows, columns in product((1, 2, 3), repeat=2):
        yield rng.normal(size=(rows, columns))
        rank = min(rows, columns)
        yield rng.normal(size=(rows, max(rank - 1, 1))) @ rng.normal(
            size=(max(rank - 1, 1), columns)
        )
    for _ in range(draws):
        n, m = rng.integers(2, 7, 2)
        yield rng.normal(size=(n, m)) * rng.uniform(0.2, 3)


def _values(A: np.ndarray) -> np.ndarray:
    """The nonzero singular values."""
    found = np.linalg.svd(A, compute_uv=False)
    return found[found > 1e-10 * max(found[0], 1e-300)]


@statement(
    "Thm 11 (convex)",
    lambda rng, draws: [tuple(rng.integers(0, 5, (2, 3, 2)).tolist()) for _ in range(draws)],
    control("stacked without 1/√2", lambda: (((1, 0), (0, 1)), ((1, 1), (0, 2))), share=1),
    show=lambda case: f"B, C = {case}",
)
def thm_11_convex(case: tuple[list[list[int]], list[list[int]]], share: int = 2) -> Check:
    """Completely positive kernels are convex: (BᵀB + CᵀC)/2 is SᵀS of the stacked non-negative
    S = (B; C)/√2, with S x ≥ 0 where Bx, Cx ≥ 0.
    """
    B, C = (np.array([[Fraction(v) for v in row] for row in rows], object) for rows in case)
    mean = (B.T @ B + C.T @ C) / 2
    stacked = np.vstack([B, C])
    return equal(int(np.any(stacked.T @ stacked / share != mean)), 0)


@statement(
    "Thm 15 (lemmas)",
    _matrices,
    control("(s − 1)² taken twice", lambda: np.diag([2.0, 3.0]), factor=2.0),
    method="float64",
    show=lambda A: f"A = np.array({A.tolist()})",
)
def thm_15_lemmas(A: np.ndarray, factor: float = 1.0) -> Check:
    """‖A‖² − rank A − 2 log|A|₊ ≥ Σ(s_i − 1)² = ‖A − UVᵀ‖², and |AB|₊ = |A|₊|B|₊ when the image of
    B is the row space of A; the least slack of the first, less the error of the second.
    """
    U, s, V = np.linalg.svd(A, full_matrices=False)
    keep = s > 1e-10 * s[0]
    U, s, V = U[:, keep], s[keep], V[keep]
    excess = float(np.sum(s**2) - len(s) - 2 * np.sum(np.log(s)))
    distance = float(np.sum((A - U @ V) ** 2))
    square = float(np.sum((s - 1) ** 2))
    B = V.T @ np.random.default_rng(0).normal(size=(len(s), len(s)))
    split = float(np.sum(np.log(_values(A @ B))) - np.sum(np.log(s)) - np.sum(np.log(_values(B))))
    error = abs(distance - square) + abs(split)
    scale = 1 + float(np.sum(s**2))
    return at_least(excess - factor * square - error, 0.0, 1e-7 * scale, rank=len(s))


@statement(
    "Thm 15 (diagonal)",
    _matrices,
    control("eigenvalues up to 5", lambda: np.random.default_rng(0).normal(size=(4, 2)), top=5.0),
    method="float64",
    show=lambda A: f"A = np.array({A.tolist()})",
)
def thm_15_diagonal(A: np.ndarray, top: float = 1.0) -> Check:
    """−2 log|PDQ|₊ ≥ k − ‖PDQ‖² ≥ 0 for projections of rank k and D diagonal with entries in
    [0, 1].
    """
    image = np.linalg.svd(A, full_matrices=False)[0]
    other = np.linalg.qr(np.random.default_rng(1).normal(size=image.shape))[0]
    D = np.diag(top * np.resize([1.0, 0.4, 0.7], len(A)))
    s = _values(image.T @ D @ other)
    k, square = image.shape[1], float(np.sum(s**2))
    if len(s) < k:
        s = np.append(s, np.full(k - len(s), 1e-300))
    logs = -2 * float(np.sum(np.log(s)))
    return at_least(min(logs - (k - square), k - square), 0.0, 1e-10 * (1 + abs(logs)), k=k)


@statement(
    "Thm 16 (lemmas)",
    _matrices,
    control("the power 4/rank A", lambda: np.diag([2.0, 3.0]), power=4.0),
    method="float64",
    show=lambda A: f"A = np.array({A.tolist()})",
)
def thm_16_lemmas(A: np.ndarray, power: float = 2.0) -> Check:
    """‖A‖² ≥ rank A·|A|₊^{2/rank A}."""
    s = _values(A)
    mean = len(s) * float(np.exp(power / len(s) * np.sum(np.log(s))))
    return at_least(float(np.sum(s**2)), mean, 1e-10 * (1 + mean), rank=len(s))


@statement(
    "Thm 16 (balanced)",
    lambda rng, draws: [(int(L), int(rng.integers(2**31))) for L in (2, 3, 5) for _ in range(4)],
    control("layers that shrink", lambda: (3, 0), order=-1),
    method="float64",
)
def thm_16_balanced(case: tuple[int, int], order: int = 1) -> Check:
    """Balancedness, ‖W_{l,i·}‖² + b_{l,i}² = ‖W_{l+1,·i}‖², makes the layers' norms increase, so that
    the mean of the first l squared norms is at most the mean of all.
    """
    depth, seed = case
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, depth + 1)
    weights = [rng.normal(size=(sizes[l + 1], sizes[l])) for l in range(depth)]
    biases = [rng.normal(size=sizes[l + 1]) for l in range(depth)]
    for l in range(depth - 1):
        wanted = np.sum(weights[l] ** 2, axis=1) + biases[l] ** 2
        weights[l + 1] *= np.sqrt(wanted / np.sum(weights[l + 1] ** 2, axis=0))
    norms = np.array([np.sum(W**2) for W in weights])[::order]
    means = np.cumsum(norms) / np.arange(1, depth + 1)
    slack = min(float(np.min(np.diff(norms))), float(np.min(means[-1] - means)))
    return at_least(slack, 0.0, 1e-12 * float(norms.max()), depth=depth)


Bits = tuple[tuple[int, ...], tuple[int, ...]]


def _activations(rng: np.random.Generator, draws: int) -> list[Bits]:
    bits = list(product((1, 0), repeat=2))
    return list(product(bits, bits))


@statement(
    "P 13 (proof, squares)",
    _activations,
    control("a neuron that is off at x and on at y", lambda: ((0, 0, 1), (1, 1, 1))),
    confirm=lambda case: at_most(
        float(
            np.abs(
                np.diag(np.subtract(*case)) @ np.diag(np.subtract(*case))
                - np.diag(np.subtract(*case))
            ).max()
        ),
        0.0,
    ),
)
def squares(case: Bits) -> Check:
    """(D(x) − D(y))² = D(x) − D(y) for the diagonal matrices of activations."""
    difference = [a - b for a, b in zip(*case, strict=True)]
    return equal(sum(d * d != d for d in difference), 0)


@statement(
    "P 13 (proof, squares, amended)",
    _activations,
    control("the sign kept", lambda: ((0, 0, 1), (1, 1, 1)), size=lambda d: d),
    amends="P 13 (proof, squares)",
)
def squares_amended(case: Bits, size: Callable[[int], int] = abs) -> Check:
    """(D(x) − D(y))² = |D(x) − D(y)|, which the proof needs: D(x) − D(y) is the product of two
    matrices whose squares are that.
    """
    difference = [a - b for a, b in zip(*case, strict=True)]
    return equal(sum(d * d != size(d) for d in difference), 0)


@dataclass(frozen=True)
class Layers:
    """A drawn ReLU network without biases and two inputs."""

    widths: tuple[int, ...]
    seed: int

    def drawn(self) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
        """Weights, and for each input the diagonals of activations, 1 at both ends."""
        rng = np.random.default_rng(self.seed)
        pairs = zip(self.widths, self.widths[1:], strict=False)
        weights = [rng.normal(size=(after, before)) for before, after in pairs]
        sides = []
        for _ in range(2):
            a, found = rng.normal(size=self.widths[0]), [np.ones(self.widths[0])]
            for W in weights[:-1]:
                z = W @ a
                found.append((z > 0).astype(float))
                a = np.maximum(z, 0)
            sides.append([*found, np.ones(self.widths[-1])])
        return weights, sides


def _layers(rng: np.random.Generator, draws: int) -> list[Layers]:
    shapes = ((2, 3, 2), (3, 4, 4, 2), (2, 5, 3, 4, 3))
    return [Layers(widths, seed) for widths in shapes for seed in range(max(draws // 4, 2))]


def _chain(weights: list[np.ndarray], diagonals: list[np.ndarray]) -> np.ndarray:
    """D_L W_L ⋯ D_1 W_1 D_0."""
    found = np.diag(diagonals[0])
    for W, d in zip(weights, diagonals[1:], strict=True):
        found = np.diag(d) @ W @ found
    return found


@statement(
    "P 13 (proof)",
    _layers,
    control("the activations at x on both sides", lambda: Layers((3, 4, 4, 2), 0), mixed=False),
    method="float64",
    draws=20,
)
def p_13_proof(case: Layers, mixed: bool = True) -> Check:
    """Jf(x) − Jf(y) telescopes over the layers, Σ W_L D(y) ⋯ W_{l+1}(D_l(x) − D_l(y))W_l D(x) ⋯ W_1,
    and ‖AB‖_* ≤ (‖A‖² + ‖B‖²)/2 for every term's split.
    """
    weights, (x, y) = case.drawn()
    left = _chain(weights, x) - _chain(weights, y)
    total = np.zeros_like(left)
    slack = np.inf
    for l in range(1, len(weights)):
        diagonals = [*x[:l], x[l] - y[l], *(y if mixed else x)[l + 1 :]]
        total = total + _chain(weights, diagonals)
        change = np.abs(x[l] - y[l])
        A, B = weights[l] @ np.diag(x[l] - y[l]), np.diag(change) @ weights[l - 1]
        nuclear = float(np.sum(np.linalg.svd(A @ B, compute_uv=False)))
        slack = min(slack, (np.sum(A**2) + np.sum(B**2)) / 2 - nuclear)
    error = float(np.abs(total - left).max())
    scale = 1 + float(np.abs(left).max())
    return at_least(min(float(slack), 0.0) - error, 0.0, 1e-11 * scale, depth=len(weights))


@statement(
    "Sec 3.2 (operator norm)",
    _matrices,
    control("R⁽¹⁾ = 2 log|A|₊ for R⁽²⁾", lambda: np.diag([9.0, 1 / 9]), of="first"),
    method="float64",
    show=lambda A: f"A = np.array({A.tolist()})",
)
def operator_norm(A: np.ndarray, of: str = "second") -> Check:
    """In linear networks R⁽²⁾ bounds the operator norm, log‖A‖ ≤ √(R⁽²⁾/2); R⁽⁰⁾ and R⁽¹⁾ do not."""
    logs = np.log(_values(A))
    second = float(2 * np.sum(logs**2))
    bound = np.sqrt(second / 2) if of == "second" else abs(float(np.sum(2 * logs)))
    return at_most(float(logs.max()), float(bound), 1e-12 * (1 + bound))


@dataclass(frozen=True)
class Start:
    """v and a rotation around w = e_1, exact: by 3/5, 4/5 in the plane of e_2, e_3."""

    v: tuple[int, int, int]

    def descent(self, v: list[Fraction], steps: int) -> list[Fraction]:
        """Gradient descent of rate 1/16 on ‖vvᵀ − wwᵀ‖², gradient 4(‖v‖²v − (w·v)w)."""
        for _ in range(steps):
            square = sum(x * x for x in v)
            v = [x - (square * x - (v[0] if i == 0 else 0)) / 4 for i, x in enumerate(v)]
        return v


def _turn(v: list[Fraction]) -> list[Fraction]:
    a, b, c = v
    return [a, Fraction(3, 5) * b - Fraction(4, 5) * c, Fraction(4, 5) * b + Fraction(3, 5) * c]


@statement(
    "Sec 5 (rotation)",
    lambda rng, draws: [Start(v) for v in product((-1, 0, 1), (1, 2), (0, 1))],
    control(
        "a rotation that moves w", lambda: Start((1, 2, 0)), turn=lambda v: _turn(v[::-1])[::-1]
    ),
    exhaustive="twelve starts, three steps of gradient descent, in rational numbers",
)
def rotation(case: Start, turn: Callable[[list[Fraction]], list[Fraction]] = _turn) -> Check:
    """Without noise gradient descent commutes with rotations around w, and ‖v‖² = (w·v)² +
    ‖(1 − wwᵀ)v‖².
    """
    v = [Fraction(x, 2) for x in case.v]
    wrong = turn(case.descent(v, 3)) != case.descent(turn(v), 3)
    wrong += sum(x * x for x in v) != v[0] ** 2 + v[1] ** 2 + v[2] ** 2
    return equal(int(wrong), 0, comparisons=2)


@statement(
    "Sec 5 (rank 2)",
    lambda rng, draws: [tuple(rng.normal(size=4).tolist()) for _ in range(max(draws // 4, 3))],
    control("v along w", lambda: (0.7, 0.0, 0.0, 0.0)),
    method="float64",
    draws=24,
    show=lambda v: f"v = {v}",
)
def rank_two(v: tuple[float, ...]) -> Check:
    """At E = 0 the map from v(0) to the costs of the next steps has a Jacobian of rank 2, so that
    its BN-rank, at most 2 by Sec 5 (descent), is not less: the second singular value is not 0.
    """

    def costs(start: np.ndarray) -> np.ndarray:
        found = []
        for _ in range(3):
            square, along = float(start @ start), start[0]
            found.append(square**2 - 2 * along**2 + 1)
            start = start - 0.05 * 4 * (square * start - along * np.eye(len(start))[0])
        return np.array(found)

    point, h = np.array(v), 1e-5
    J = np.array([(costs(point + h * e) - costs(point - h * e)) / (2 * h) for e in np.eye(len(v))])
    values = np.linalg.svd(J, compute_uv=False)
    return at_least(float(values[1]), 1e-6 * float(values[0]), dimension=len(v))


@statement(
    "Sec 3.1 (rank 1 fits)",
    lambda rng, draws: [
        (int(rng.integers(3, 7)), int(rng.integers(2**31))) for _ in range(max(draws // 4, 3))
    ],
    control("two equal inputs with different outputs", lambda: (3, -1)),
    method="float64",
)
def rank_one_fits(case: tuple[int, int]) -> Check:
    """Any data are fitted by a function of BN-rank 1: a linear form that separates the inputs, and
    a piecewise linear path through the outputs; a linear map of rank 1 does not fit them.
    """
    count, seed = case
    rng = np.random.default_rng(abs(seed))
    x, y = rng.normal(size=(count, 3)), rng.normal(size=(count, 2))
    if seed < 0:
        x[1] = x[0]
    t = x @ rng.normal(size=3)
    order = np.argsort(t, kind="stable")
    fitted = np.stack([np.interp(t, t[order], y[order, k]) for k in range(2)], axis=1)
    return at_most(float(np.abs(fitted - y).max()), 0.0, 1e-9, points=count)
