"""bottleneck: sentences between the theorems, and the lemmas inside the proofs of Thms 11 to 16."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.linalg import svdvals

from neuromanifold.bottleneck.passage import passage
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import drawn, network
from neuromanifold_papers.bottleneck.statements.dynamics import along, cost, gradient
from neuromanifold_papers.check import Check, at_least, at_most, equal
from neuromanifold_papers.statement import control, statement


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


def _by_a_network(case: Channels) -> Check:
    """The network itself at (1, −1): its Jacobian by differences, its norm by summing weights."""
    L = case.depth
    weights = [np.diag([case.a ** (1 / L), case.b ** (1 / L)])] * L

    def f(p: np.ndarray) -> np.ndarray:
        return reduce(lambda p, W: np.maximum(W @ p, 0), weights, p)

    point, h = np.array([1.0, -1.0]), 1e-6
    columns = [(f(point + h * e) - f(point - h * e)) / (2 * h) for e in np.eye(2)]
    values = svdvals(np.array(columns).T)
    log = float(2 * np.sum(np.log(values[values > 1e-6])))
    return at_most(log, sum(float(np.sum(W**2)) for W in weights) - 2 * L, 1e-6)


@cases.numeric(
    "Sec 1.1 (every x)",
    [Channels(a, b) for a, b in product((1.0, 2.0, 0.5), (1.0, 0.5, 0.25))],
    control("a channel of slope 1/100", lambda: Channels(1.0, 0.01)),
    confirm=_by_a_network,
)
def every_x(case: Channels, rank: int = 1) -> Check:
    """For all x, 2 log|Jf(x)|₊ ≤ R⁽¹⁾(f), without the hypothesis on the rank of Jf(x).

    The largest 2 log|Jf|₊, the slopes of the open channels, over points of at least this rank against
    ‖θ‖² − 2L.
    """
    channels = product((False, True), repeat=2)
    found = [case.a**x * case.b**y for x, y in channels if x + y >= rank]
    return at_most(float(2 * np.log(max(found))), case.excess(), 1e-9, a=case.a, b=case.b)


every_x_amended = every_x.amend(
    control("points of rank 1 too", lambda: Channels(1.0, 0.01), rank=1), rank=2
)("For all x where rank Jf(x) = R⁽⁰⁾(f), 2 log|Jf(x)|₊ ≤ R⁽¹⁾(f).")


def remainder(t: Any) -> Any:
    """eᵗ − 1 − t in Taylor's form t²∫₀¹(1 − v)eᵗᵛdv, which is never negative, by Gauss's rule: the
    proofs of Thms 11, 15 and 16 and of P 12 rest on its sign.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    v, dv = (nodes + 1) / 2, weights / 2
    t = np.asarray(t, float)[..., None]
    return np.sum(t**2 * (1 - v) * np.exp(t * v) * dv, axis=-1)


@cases.numeric(
    "Thm 11 (lemma)",
    list(product((0.01, 0.3, 1.0, 2.0, 50.0), (1, 2, 7, 100))),
    control("the inequality reversed", lambda: (2.0, 3), sign=-1),
)
def thm_11_lemma(case: tuple[float, int], sign: int = 1) -> Check:
    """s^{2/L} − 1 ≥ (2/L) log s: with t = (2/L) log s it is larger by t²∫₀¹(1 − v)eᵗᵛdv."""
    s, L = case
    t = 2 / L * float(np.log(s))
    left = s ** (2 / L) - 1
    return equal(left, t + sign * float(remainder(t)), 100 * cases.EPS * (1 + abs(left) + abs(t)))


@dataclass(frozen=True)
class Drawn:
    """A weight matrix, two projections of rank k to images of its rows and columns, and the matrix
    between them on those k dimensions.
    """

    rows: int
    columns: int
    rank: int
    seed: int
    scale: float = 1.0

    def drawn(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """W and orthonormal columns of both images."""
        rng = np.random.default_rng(self.seed)
        W = self.scale * rng.normal(size=(self.rows, self.columns))
        left, right = (np.linalg.qr(rng.normal(size=(n, self.rank)))[0] for n in W.shape)
        return W, left, right


def _drawn(rng: np.random.Generator, draws: int) -> Iterator[Drawn]:
    """Every size up to 3 with every rank, one with singular values of hundreds, and random ones."""
    for rows, columns in product((1, 2, 3), repeat=2):
        yield from (Drawn(rows, columns, k + 1, k) for k in range(min(rows, columns)))
    yield Drawn(3, 3, 2, 0, 300.0)
    for seed in rng.integers(2**31, size=draws):
        n, m = map(int, rng.integers(2, 7, 2))
        rank = int(rng.integers(1, min(n, m) + 1))
        yield Drawn(n, m, rank, int(seed), float(rng.uniform(0.2, 3)))


Factors = tuple[list[list[int]], list[list[int]], int, int]
"""B and C, non-negative and so on the positive orthant, and a, b with p = a²/(a² + b²)."""


@statement(
    "Thm 11 (convex)",
    lambda rng, draws: [
        (*rng.integers(0, 5, (2, 3, 2)).tolist(), 1, index % 4) for index in range(draws)
    ],
    control(
        "stacked without the roots", lambda: ([[1, 0], [0, 1]], [[1, 1], [0, 2]], 1, 2), power=0
    ),
)
def thm_11_convex(case: Factors, power: int = 1) -> Check:
    """Completely positive kernels are convex: pBᵀB + (1 − p)CᵀC is SᵀS of the stacked non-negative
    S = (√p B; √(1 − p) C), with S x ≥ 0 where Bx, Cx ≥ 0; at p = ½ the mean.
    """
    B, C = map(cases.fractions, case[:2])
    a, b = case[2:]
    total = Fraction(a**2 + b**2)
    mixed = a**2 / total * B.T @ B + b**2 / total * C.T @ C
    stacked = np.vstack([a**power * B, b**power * C])
    negative = np.any(stacked @ np.array([[1, 0, 3], [0, 1, 2]]) < 0)
    wrong = np.any(stacked.T @ stacked / total != mixed) + negative
    return equal(int(wrong), 0, comparisons=2)


@cases.numeric(
    "Thm 15 (lemmas)",
    _drawn,
    control("‖W − UVᵀ‖² taken twice", lambda: Drawn(2, 2, 2, 0), factor=2.0),
)
def thm_15_lemmas(case: Drawn, factor: float = 1.0) -> Check:
    """‖W‖² − k − 2 log|A|₊ ≥ ‖W − UVᵀ‖² for A = PWQ = USVᵀ between projections of rank k, and
    |AB|₊ = |A|₊|B|₊ when the image of B is the row space of A: the first is larger by
    2 Σ(s_i − 1 − log s_i), and log|A|₊ is taken from the second.
    """
    W, left, right = case.drawn()
    core = left.T @ W @ right
    U, s, Vt = np.linalg.svd(core)
    A, B = left @ core @ right.T, right @ np.random.default_rng(0).normal(size=core.shape)
    log = np.sum(np.log(svdvals(A @ B)[: case.rank])) - np.sum(np.log(svdvals(B)))
    excess = float(np.sum(W**2)) - case.rank - 2 * float(log)
    distance = float(np.sum((W - left @ U @ Vt @ right.T) ** 2))
    more = 2 * float(np.sum(remainder(np.log(s))))
    rounding = 1e-9 * (1 + float(np.sum(W**2)))
    return equal(excess, factor * distance + more, rounding, rank=case.rank)


@cases.numeric(
    "Thm 15 (diagonal)",
    _drawn,
    control("entries up to 5", lambda: Drawn(4, 4, 2, 0), top=5.0),
)
def thm_15_diagonal(case: Drawn, top: float = 1.0) -> Check:
    """−2 log|PDQ|₊ ≥ k − ‖PDQ‖² ≥ 0 for projections of rank k and D diagonal with entries in
    [0, 1]: no singular value is above 1, and the first is larger by Σ(s_i² − 1 − 2 log s_i).
    """
    _, left, _ = case.drawn()
    right = np.linalg.qr(np.random.default_rng(1).normal(size=left.shape))[0]
    s = svdvals(left.T @ np.diag(top * np.resize([1.0, 0.4, 0.7], len(left))) @ right)
    logs = 2 * np.log(s)
    more = float(np.sum(remainder(logs)))
    below = case.rank - float(np.sum(np.minimum(s, 1) ** 2))
    rounding = 1e-9 * (1 + float(np.sum(np.abs(logs))))
    return equal(-float(np.sum(logs)), below + more, rounding, k=case.rank)


@cases.numeric(
    "Thm 16 (lemmas)",
    _drawn,
    control("the power 4/rank A", lambda: Drawn(2, 2, 2, 0, 3.0), power=4.0),
)
def thm_16_lemmas(case: Drawn, power: float = 2.0) -> Check:
    """‖A‖² ≥ rank A·|A|₊^{2/rank A}: with t_i = log s_i² and their mean m it is eᵐ Σ(eᵘ − 1 − u),
    u = t_i − m, larger.
    """
    W, left, _ = case.drawn()
    A, k = left @ left.T @ W, case.rank
    logs = np.log(svdvals(A)[:k])
    mean = float(np.exp(power / k * np.sum(logs)))
    more = mean * float(np.sum(remainder(2 * logs - power * np.mean(logs))))
    square = float(np.sum(A**2))
    return equal(square, k * mean + more, 1e-9 * (1 + square), rank=k)


@cases.numeric(
    "Thm 16 (balanced)",
    lambda rng, draws: [(int(L), int(rng.integers(2**31))) for L in (2, 3, 5) for _ in range(4)],
    control("layers that shrink", lambda: (3, 0), order=-1),
)
def thm_16_balanced(case: tuple[int, int], order: int = 1) -> Check:
    """Balancedness, ‖W_{l,i·}‖² + b_{l,i}² = ‖W_{l+1,·i}‖², makes the layers' norms increase, so that
    the mean of the first l squared norms is at most the mean of all.
    """
    depth, seed = case
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 5, depth + 1).tolist()
    layers = drawn(rng, widths, np.zeros((1, widths[0]))).params
    weights = [layer.weight for layer in layers]
    for l in range(depth - 1):
        wanted = np.sum(weights[l] ** 2, axis=1) + layers[l].bias ** 2
        weights[l + 1] *= np.sqrt(wanted / np.sum(weights[l + 1] ** 2, axis=0))
    norms = np.array([np.sum(W**2) for W in weights])[::order]
    means = np.cumsum(norms) / np.arange(1, depth + 1)
    slack = min(float(np.min(np.diff(norms))), float(np.min(means[-1] - means)))
    return at_least(slack, 0.0, 1e-12 * float(norms.max()), depth=depth)


Bits = tuple[tuple[int, ...], tuple[int, ...]]


def _by_matrices(case: Bits) -> Check:
    D = np.diag(np.subtract(*case))
    return at_most(float(np.abs(D @ D - D).max()), 0.0)


@statement(
    "P 13 (proof, squares)",
    list(product(product((1, 0), repeat=2), repeat=2)),
    control("a neuron that is off at x and on at y", lambda: ((0, 0, 1), (1, 1, 1))),
    confirm=_by_matrices,
)
def squares(case: Bits, size: Callable[[int], int] = lambda d: d) -> Check:
    """(D(x) − D(y))² = D(x) − D(y) for the diagonal matrices of activations."""
    difference = [a - b for a, b in zip(*case, strict=True)]
    return equal(sum(d * d != size(d) for d in difference), 0)


squares_amended = squares.amend(
    control("the sign kept", lambda: ((0, 0, 1), (1, 1, 1)), size=lambda d: d), size=abs
)(
    "(D(x) − D(y))² = |D(x) − D(y)|, which the proof needs: D(x) − D(y) is the product of two "
    "matrices whose squares are that."
)


Layers = tuple[tuple[int, ...], int]
"""The widths of a drawn ReLU network without biases, and a seed for it and two inputs."""


def _activations(case: Layers) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Weights, and for each input the diagonals of activations, 1 at both ends."""
    widths, rng = case[0], np.random.default_rng(case[1])
    weights = [rng.normal(size=(after, before)) for before, after in pairwise(widths)]
    net = network(weights, rng.normal(size=(2, widths[0])))
    hidden = [z > 0 for z in passage(net.net, net.params, net.x).preactivations[:-1]]
    first, last = (np.ones((2, width)) for width in (widths[0], widths[-1]))
    return weights, [[*layers] for layers in zip(first, *hidden, last, strict=True)]


def _chain(weights: list[np.ndarray], diagonals: list[np.ndarray]) -> np.ndarray:
    """D_L W_L ⋯ D_1 W_1 D_0."""
    found = np.diag(diagonals[0])
    for W, d in zip(weights, diagonals[1:], strict=True):
        found = np.diag(d) @ W @ found
    return found


@cases.numeric(
    "P 13 (proof)",
    lambda rng, draws: [
        (widths, seed)
        for widths in ((2, 3, 2), (3, 4, 4, 2), (2, 5, 3, 4, 3))
        for seed in range(max(draws // 4, 2))
    ],
    control("the activations at x on both sides", lambda: ((3, 4, 4, 2), 0), mixed=False),
    draws=20,
)
def p_13_proof(case: Layers, mixed: bool = True) -> Check:
    """Jf(x) − Jf(y) telescopes over the layers, Σ W_L D(y) ⋯ W_{l+1}(D_l(x) − D_l(y))W_l D(x) ⋯ W_1,
    and ‖AB‖_* ≤ (‖A‖² + ‖B‖²)/2 for every term's split.

    With AB = UΣVᵀ, ‖A‖² + ‖B‖² − 2‖AB‖_* = ‖AᵀU − BV‖² + ‖A − UUᵀA‖² + ‖B − BVVᵀ‖².
    """
    weights, (x, y) = _activations(case)
    missing, gaps = _chain(weights, x) - _chain(weights, y), []
    for l in range(1, len(weights)):
        change = 1.0 * x[l] - y[l]
        missing = missing - _chain(weights, [*x[:l], change, *(y if mixed else x)[l + 1 :]])
        A, B = weights[l] @ np.diag(change), np.diag(np.abs(change)) @ weights[l - 1]
        U, s, Vt = np.linalg.svd(weights[l] @ np.diag(change) @ weights[l - 1])
        U, V = U[:, : len(s)], Vt[: len(s)].T
        parts = (A.T @ U - B @ V, A - U @ U.T @ A, B - B @ V @ V.T)
        squares = sum(float(np.sum(part**2)) for part in parts)
        gaps.append(np.sum(A**2) + np.sum(B**2) - 2 * np.sum(s) - squares)
    wrong = float(np.linalg.norm([*missing.ravel(), *gaps]))
    scale = 1 + float(np.abs(_chain(weights, x)).max()) + sum(np.sum(W**2) for W in weights)
    return at_most(wrong, 0.0, 1e-11 * scale, depth=len(weights))


@cases.numeric(
    "Sec 3.2 (operator norm)",
    _drawn,
    control("R⁽¹⁾ for R⁽²⁾", lambda: Drawn(2, 2, 2, 0), of=lambda logs: np.sum(logs)),
)
def operator_norm(
    case: Drawn, of: Callable[[np.ndarray], Any] = lambda logs: np.sum(logs**2) / 2
) -> Check:
    """In linear networks R⁽²⁾ = ½‖log AᵀA‖² bounds the operator norm: 2(log‖A‖)² ≤ R⁽²⁾, which is
    larger by 2 Σ(log s_i)² over the other singular values; R⁽¹⁾ is not that.
    """
    W, left, _ = case.drawn()
    A = left @ left.T @ W
    second = float(of(np.log(np.linalg.eigvalsh(A @ A.T)[-case.rank :])))
    norm = float(np.linalg.norm(A, 2))
    others = 2 * float(np.sum(np.log(svdvals(A)[1 : case.rank]) ** 2))
    return equal(2 * np.log(norm) ** 2, second - others, 1e-9 * (1 + others + abs(second)))


_TURN = cases.fractions([[5, 0, 0], [0, 3, -4], [0, 4, 3]]) / 5
"""A rotation around w = e_1."""


def _descent(v: np.ndarray) -> np.ndarray:
    """Three steps of gradient descent of rate 1/16 on ‖vvᵀ − wwᵀ‖², gradient 4(‖v‖²v − (w·v)w)."""
    w = cases.fractions([1, 0, 0])
    for _ in range(3):
        v = v - ((v @ v) * v - (w @ v) * w) / 4
    return v


@statement(
    "Sec 5 (rotation)",
    list(product((-1, 0, 1), (1, 2), (0, 1))),
    control("a rotation that moves w", lambda: (1, 2, 0), turn=_TURN[::-1, ::-1]),
    exhaustive="twelve starts, three steps of gradient descent, in rational numbers",
)
def rotation(case: tuple[int, int, int], turn: np.ndarray = _TURN) -> Check:
    """Without noise gradient descent commutes with rotations around w, and ‖v‖² = (w·v)² +
    ‖(1 − wwᵀ)v‖².
    """
    v = cases.fractions(case) / 2
    wrong = np.any(turn @ _descent(v) != _descent(turn @ v))
    wrong += v @ v != v[0] ** 2 + v[1:] @ v[1:]
    return equal(int(wrong), 0, comparisons=2)


@statement(
    "Sec 5 (rank 2)",
    lambda rng, draws: [tuple(map(int, v)) for v in rng.integers(1, 9, (max(draws // 4, 3), 4))],
    control("noise E ≠ 0", lambda: (3, 5, 7, 2), noise=2),
    draws=24,
)
def rank_two(case: tuple[int, ...], noise: int = 0) -> Check:
    """At E = 0 the map from v(0) to the costs of the next steps has a Jacobian of rank 2 and no more,
    so that its BN-rank, at most 2 by Sec 5 (descent), is not less.

    A tangent u of v(0) gives ∂C(v(t)) along u(t), and u(t + 1) = u(t) − η∂∇C along u(t), in rational
    numbers.
    """
    tangents, rows = list(cases.fractions(np.eye(4, dtype=int))), []
    target = cases.fractions(np.diag([1, 0, noise, 0]))
    value = partial(cost, target=target)
    v, slope = cases.fractions(case) / 8, partial(gradient, value)
    for _ in range(3):
        rows.append([along(value, v, u) for u in tangents])
        tangents = [u - along(slope, v, u) / 16 for u in tangents]
        v = v - slope(v) / 16
    return equal(cases.rational_rank(rows), 2, dimension=len(case))


@cases.numeric(
    "Sec 3.1 (rank 1 fits)",
    lambda rng, draws: [
        (int(rng.integers(3, 7)), int(rng.integers(2**31))) for _ in range(max(draws // 4, 3))
    ],
    control("two equal inputs with different outputs", lambda: (3, -1)),
)
def rank_one_fits(case: tuple[int, int]) -> Check:
    """Any data are fitted by a function of BN-rank 1: a linear form that separates the inputs, and
    a piecewise linear path through the outputs; a linear map of rank 1 does not fit them.

    The largest error of the path, and 1 more if the best linear map of rank 1 misses by nothing.
    """
    count, seed = case
    rng = np.random.default_rng(abs(seed))
    x, y = rng.normal(size=(count, 3)), rng.normal(size=(count, 2))
    if seed < 0:
        x[1] = x[0]
    t = x @ rng.normal(size=3)
    order = np.argsort(t, kind="stable")
    fitted = np.stack([np.interp(t, t[order], y[order, k]) for k in range(2)], axis=1)
    linear = x @ np.linalg.pinv(x) @ y
    missed = float(np.hypot(np.linalg.norm(y - linear), svdvals(linear)[1]))
    wrong = float(np.abs(fitted - y).max()) + (missed < 1e-6)
    return at_most(wrong, 0.0, 1e-9, points=count)


Sum = tuple[list[list[float]], list[list[float]], list[float]]
"""W, A and b."""


def _sums(rng: np.random.Generator, draws: int) -> Iterator[Sum]:
    """Both sides agree for W diagonal, A = 5·1 and b = 0, and at k = 0 for parallel b and WA."""
    yield [[3.0, 0.0], [0.0, 0.5]], [[5.0, 0.0], [0.0, 5.0]], [0.0, 0.0]
    yield [[2.0]], [[3.0, 3.0, 3.0]], [4.0]
    for _ in range(draws):
        n, m, count = map(int, rng.integers(1, 6, 3))
        W, A, b = rng.normal(size=(n, m)), rng.normal(size=(m, count)), rng.normal(size=n)
        yield W.tolist(), A.tolist(), b.tolist()


@cases.numeric(
    "Cor 17 (sum)",
    _sums,
    control(
        "a hundredth of the bias left out",
        lambda: ([[2.0]], [[3.0, 3.0, 3.0]], [4.0]),
        norm=lambda b: 0.99 * np.linalg.norm(b),
    ),
)
def cor_17_sum(case: Sum, norm: Callable[[np.ndarray], Any] = np.linalg.norm) -> Check:
    """s_{k+1}((WA + b1ᵀ)/√N) ≤ s_{k+1}(W)‖A/√N‖ + ‖b‖, at the k where they are closest."""
    W, A, b = (np.array(part) for part in case)
    root = np.sqrt(A.shape[1])
    found = svdvals(W @ A + b[:, None]) / root
    alone = np.append(svdvals(W), np.zeros(len(found)))[: len(found)]
    most = alone * float(np.linalg.norm(A, 2)) / root + float(norm(b))
    k = int(np.argmin(most - found))
    return at_most(float(found[k]), float(most[k]), 1e-12 * (1 + float(most[0])), k=k)
