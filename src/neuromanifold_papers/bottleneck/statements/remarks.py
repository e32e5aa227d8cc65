"""bottleneck: remarks of Sections 3 and 4 and steps of the proofs of Props 12, 14 and Thm 19."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import product
from math import ceil, exp
from typing import Any

import numpy as np

from neuromanifold_papers.bottleneck.statements.cases import fractions, numeric, rational_rank
from neuromanifold_papers.bottleneck.statements.cost import linear_cost
from neuromanifold_papers.bottleneck.statements.proofs import remainder
from neuromanifold_papers.check import Check, at_least, at_most, equal
from neuromanifold_papers.statement import control, named, statement

LINEAR = "linear networks, whose optimal representations are known: the powers of A"
Spectrum = tuple[tuple[float, ...], int, int]


"""Singular values, a depth and a layer."""


def _second(logs: Any) -> Any:
    """R⁽²⁾ = ½‖log AᵀA‖² = 2 Σ (log s)²."""
    return 2 * np.sum(logs**2)


@numeric(
    "Sec 3.3 (five limits)",
    [
        (values, depth, layer)
        for values in ((1.0,), (2.0, 0.5), (3.0, 1.0, 0.2))
        for depth in (4, 10, 50)
        for layer in (1, depth // 2, depth - 1)
    ],
    control("the layer's representation at half its ratio", lambda: ((2.0, 0.5), 10, 5), share=0.5),
    narrower=LINEAR,
)
def five_limits(case: Spectrum, share: float = 1.0) -> Check:
    """Along a network of least norm R(f; L) = R(α̃_l; l) + R(α̃_l → f; L − l), the ranks of both
    parts are that of f, their R⁽¹⁾ add, their R⁽²⁾ over p and 1 − p add, and between neighbouring
    layers R⁽¹⁾ tends to 0, being 2 log|A|₊/L.

    The network has the weights S^{1/L} in every layer.
    """
    values, depth, layer = np.array(case[0]), case[1], case[2]
    weights = [np.diag(values ** (1 / depth))] * depth
    p = layer / depth
    first = np.diag(np.linalg.matrix_power(weights[0], layer)) ** share
    rest, logs = values / first, np.log(values)
    ranks = [np.linalg.matrix_rank(np.diag(part)) for part in (first, rest)]
    errors = [
        linear_cost(first, layer)
        + linear_cost(rest, depth - layer)
        - sum(np.sum(W**2) for W in weights),
        *(rank - len(values) for rank in ranks),
        np.sum(np.log(first)) - p * np.sum(logs),
        _second(np.log(first)) / p + _second(np.log(rest)) / (1 - p) - _second(logs),
        depth * np.linalg.slogdet(weights[0])[1] - np.sum(logs),
    ]
    scale = 1 + linear_cost(values, depth)
    return at_most(float(np.linalg.norm(errors)), 0.0, 1e-12 * scale, depth=depth, comparisons=6)


Logs = tuple[tuple[int, ...], tuple[int, ...], Fraction]
"""Logarithms of the singular values of commuting f and g, and a ratio."""


@statement(
    "P 14 (limit)",
    lambda rng, draws: [
        *(((0, 3), (0, 4), Fraction(n, 7)) for n in range(1, 7)),
        *(
            (
                *map(tuple, rng.integers(-5, 6, (2, 3)).tolist()),
                Fraction(rng.integers(1, 20).item(), 20),
            )
            for _ in range(draws)
        ),
    ],
    control("p and 1 − p exchanged", lambda: ((0, 3), (0, 4), Fraction(1, 7)), of=lambda p: 1 - p),
)
def p_14_limit(case: Logs, of: Callable[[Fraction], Fraction] = lambda p: p) -> Check:
    """R⁽²⁾(f∘g) ≤ R⁽²⁾(f)/(1 − p) + R⁽²⁾(g)/p for commuting matrices with logarithms a and b: the
    right side is larger by R⁽²⁾ of pa − (1 − p)b, over p(1 − p). The best p makes that 0 when a and b
    are parallel, and the sum (√R⁽²⁾(f) + √R⁽²⁾(g))².
    """
    a, b = map(fractions, case[:2])
    p = of(case[2])
    more = _second(case[2] * a - (1 - case[2]) * b) / (case[2] * (1 - case[2]))
    return equal(_second(a + b) + more, _second(a) / (1 - p) + _second(b) / p)


@statement(
    "P 14 (negative)",
    list(product((-1, -3), (0, 1, 7), (10, 10**4, 10**8))),
    control("both parts positive", lambda: (1, 1, 10)),
    exhaustive="parts −1, −3 and 0, 1, 7, a tenth, 10⁻⁴ and 10⁻⁸ from the end",
)
def negative(case: tuple[int, int, int]) -> Check:
    """With a negative part the infimum over (0, 1) is −∞, at an end: at p = 1 − 1/m the sum
    a/(1 − p) + b/p is −|a|m + b + b/(m − 1).
    """
    a, b, m = case
    p = 1 - Fraction(1, m)
    return equal(a / (1 - p) + b / p, -abs(a) * m + b + Fraction(b, m - 1))


@numeric(
    "P 12 (steps)",
    lambda rng, draws: [
        (size, k, int(seed))
        for size, k in ((2, 1), (3, 1), (3, 2), (5, 3))
        for seed in rng.integers(2**31, size=max(draws // 10, 2))
    ],
    control("α a hundredth too large", lambda: (3, 2, 0), larger=1.01),
)
def p_12_steps(case: tuple[int, int, int], larger: float = 1.0) -> Check:
    """W_L A = P gives A = W_L⁺P; α²‖W‖² − 2k log α is least where ‖αW‖² = k; and there 2 log|A|₊ ≥ 0
    for every tangent space, 0 only where αW is an isometry on the image S of A and vanishes off it.

    α²‖W‖² − 2k log α exceeds its least value by kρ(2 log(α/α*)), ρ(t) = eᵗ − 1 − t, and 2 log|A|₊ is
    ‖αW(1 − P_S)‖² + Σ ρ(−2 log a_i).
    """
    size, k, seed = case
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(size, size))
    square = float(np.sum(W**2))
    alpha = larger * float(np.sqrt(k / square))
    samples = np.linspace(0.2, 3, 8)

    def value(scale: Any) -> Any:
        return scale**2 * square - 2 * k * np.log(scale)

    above = value(samples) - value(alpha) - k * remainder(2 * np.log(samples / alpha))
    basis = np.linalg.qr(rng.normal(size=(size, k)))[0]
    A = np.linalg.solve(alpha * W, basis @ basis.T)
    U, a, _ = np.linalg.svd(A)
    S, logs = U[:, :k], np.log(a[:k])
    rest = alpha**2 * float(np.sum((W - W @ S @ S.T) ** 2))
    excess = 2 * np.sum(logs) - rest - np.sum(remainder(-2 * logs))
    wrong = float(np.linalg.norm([*above, excess]))
    return at_most(wrong, 0.0, 1e-9 * (1 + square + a[0] ** 2), size=size, k=k)


@statement(
    "P 12 (explodes)",
    list(product(((0, 1, 1), (5, 12, 13), (-4, 3, 5)), (1, 10, 1000))),
    control("W an isometry on both", lambda: ((0, 1, 1), 1000), near=lambda epsilon: 1),
    exhaustive="two tangent lines of a plane at three angles, three distances to the isometry",
)
def p_12_explodes(
    case: tuple[tuple[int, int, int], int],
    near: Callable[[Fraction], Fraction | int] = lambda epsilon: epsilon,
) -> Check:
    """W near an isometry on one tangent space, where its term vanishes, makes the other explode: with
    W = P_x + ε(1 − P_x) and another tangent at the angle φ, |W⁺P_y|₊²/|W⁺P_x|₊² = ε⁻² sin²φ + cos²φ.
    """
    (a, b, c), steps = case
    x, y, epsilon = fractions([3, 4]) / 5, fractions([a, b]) / c, Fraction(1, steps)

    def squared(tangent: np.ndarray) -> Any:
        on = (x @ tangent) * x
        solved = on + (tangent - on) / near(epsilon)
        return solved @ solved

    sine = 1 - (x @ y) ** 2
    return equal(squared(y) / squared(x), sine / epsilon**2 + (x @ y) ** 2)


Gaps = tuple[int, int, Fraction]
"""How many intervals, a seed, and a share."""


@statement(
    "Thm 19 (intervals)",
    lambda rng, draws: list(
        product((3, 8, 21), map(int, rng.integers(2**31, size=2)), (Fraction(1, 2), Fraction(1, 5)))
    ),
    control("one interval more", lambda: (8, 0, Fraction(1, 2)), least=2),
)
def thm_19_intervals(case: Gaps, least: int = 1) -> Check:
    """Of N intervals of total length D more than (1 − θ)N are shorter than D/(θN), among them more
    than half at θ = ½.

    The cases have as many long intervals as that allows, the others of lengths 1 to 9, and so no
    short one more.
    """
    count, seed, share = case
    gaps = np.random.default_rng(seed).integers(1, 10, count).tolist()
    long = ceil(share * count) - 1
    gaps[:long] = [10**6] * long
    short = sum(gap * count * share < sum(gaps) for gap in gaps)
    return equal(short, (1 - share) * count // 1 + least, intervals=count)


Pieces = tuple[tuple[int, int, int], ...]
"""A piecewise linear path in the plane over an interval: the length of each piece and its step."""


def _paths(rng: np.random.Generator, draws: int) -> Iterator[Pieces]:
    yield ((2, 2, 4), (1, 1, 2), (3, 3, 6))
    yield ((1, 3, 4),)
    for count in rng.integers(1, 6, max(draws, 4)):
        lengths, steps = rng.integers(1, 9, count), rng.integers(-9, 10, (count, 2))
        yield tuple((int(t), int(u), int(v)) for t, (u, v) in zip(lengths, steps, strict=True))


@statement(
    "Thm 19 (slopes)",
    _paths,
    control("the flattest piece", lambda: ((1, 0, 0), (1, 3, 4)), of=min),
)
def thm_19_slopes(path: Pieces, of: Callable[..., Any] = max) -> Check:
    """A path from y_i to y_{i+1} over [x̃_i, x̃_{i+1}] has somewhere at least the slope of its chord.

    The squares: the mean of those of the pieces is that of the chord and half the mean of
    |v_i − v_j|², so that the largest is no less.
    """
    lengths, *steps = fractions(path).T
    share, slopes = lengths / lengths.sum(), np.stack(steps, axis=1) / lengths[:, None]
    squares, chord = np.sum(slopes**2, axis=1), share @ slopes
    apart = np.sum((slopes[:, None] - slopes) ** 2, axis=2)
    wrong = share @ squares - share @ apart @ share / 2 - chord @ chord
    found = of(squares) if wrong == 0 else -1
    return at_least(found, chord @ chord, pieces=len(path))


@statement(
    "Sec 3.1 (not unique)",
    lambda rng, draws: [Fraction(n, 8) for n in (1, 2, 3, 5, 6, 7)],
    control("the same function twice", lambda: Fraction(1, 2)),
)
def not_unique(middle: Fraction) -> Check:
    """x and the piecewise linear function through (0, 0), (½, m), (1, 1) fit the data 0, 1 with the
    same rank 1, differ off the data, and are told apart by their largest slopes, which R⁽¹⁾ bounds.
    """

    def bent(x: Fraction) -> Fraction:
        return 2 * middle * x if x <= Fraction(1, 2) else 1 - 2 * (1 - middle) * (1 - x)

    fits = all(bent(Fraction(x)) == x for x in (0, 1))
    apart = any(bent(Fraction(n, 16)) != Fraction(n, 16) for n in range(17))
    steepest = max(16 * (bent(Fraction(n + 1, 16)) - bent(Fraction(n, 16))) for n in range(16))
    return equal(int(fits and apart and steepest > 1), 1)


Ranked = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""Two integer matrices of one shape."""


def _regular(rng: np.random.Generator, draws: int) -> Iterator[Ranked]:
    """A of full rank, as almost all are, and B."""
    for _ in range(draws):
        shape = (2, *map(int, rng.integers(1, 5, 2)))
        A, B = rng.integers(-9, 10, shape).tolist()
        if rational_rank(A) == min(shape[1:]):
            yield tuple(map(tuple, A)), tuple(map(tuple, B))


@statement(
    "Sec 3 (zero derivatives)",
    _regular,
    control("at a matrix of rank 1", lambda: (((1, 2), (2, 4)), ((1, 0), (0, 1)))),
)
def zero_derivatives(case: Ranked) -> Check:
    """The rank is constant near almost every matrix: rank(A + tB) = rank A for small t."""
    A, B = map(fractions, case)
    return equal(rational_rank(A + B / 10**6), rational_rank(A), shape=str(A.shape))


Ridge = tuple[tuple[float, ...], float, int, int]
"""Singular values y of the target, λ, L and a rank or a seed: C(A) = ‖A − diag y‖²."""


def _printed_cost(s: np.ndarray, depth: int) -> float:
    """L R⁽⁰⁾(A) + R⁽¹⁾(A)."""
    s = s[s > 0]
    return depth * len(s) + 2 * float(np.sum(np.log(s)))


def _least_change(A: np.ndarray, case: Ridge, cost: Callable[..., float]) -> float:
    """The least that C(A) + λ·cost changes by small steps from A, in every direction of a few."""
    y, ridge, depth, _ = case
    steps = [
        *np.eye(A.size).reshape(-1, *A.shape),
        *np.random.default_rng(0).normal(size=(8, *A.shape)),
    ]

    def value(B: np.ndarray) -> float:
        return float(np.sum((B - np.diag(y)) ** 2)) + ridge * cost(np.linalg.svdvals(B), depth)

    sizes = (1e-4, -1e-4, 1e-6, -1e-6)
    return min(value(A + t * E) for t, E in product(sizes, steps)) - value(A)


@numeric(
    "Sec 3 (inner minima)",
    [((1.0,), ridge, depth, 0) for ridge, depth in product((1.0, 0.1), (2, 3, 10))],
    control(
        "two layers, where R = 2|a| has a slope", lambda: ((1.0,), 0.1, 2, 0), cost=linear_cost
    ),
    # At a = e^{−L} the cost is L − 2L.
    confirm=lambda case: at_least((exp(-case[2]) - 1) ** 2 - case[1] * case[2], 1.0),
    show=named("y, ridge, depth, rank"),
)
def inner_minima(case: Ridge, cost: Callable[[np.ndarray, int], float] = _printed_cost) -> Check:
    """Every minimum of C + λR⁽¹⁾ that is attained among the functions of one rank is a local minimum
    of C + λ(L R⁽⁰⁾ + R⁽¹⁾) of its own.

    Of linear maps: by how much the objective falls next to the minimum among the maps of that rank.
    """
    y, ridge, depth, rank = case
    a = np.array(y) * (np.arange(len(y)) < rank)
    for _ in range(60):
        a[:rank] = np.array(y)[:rank] - ridge * a[:rank] ** (2 / depth - 1)
    return at_least(_least_change(np.diag(a), case, cost), 0.0, 1e-12, depth=depth, rank=rank)


inner_minima_amended = inner_minima.amend(
    control("two layers, where R = 2|a| has a slope", lambda: ((1.0,), 0.1, 2, 0)),
    cases=[
        (y[:size], 0.05, depth, rank)
        for y in ((1.0, 0.9, 0.7),)
        for size, depth in product((1, 2, 3), (3, 5, 10))
        for rank in range(size + 1)
    ],
    cost=linear_cost,
)(
    "In linear networks of three layers or more a minimum of C + λR(A; L) among the matrices of one "
    "rank is a local minimum among all matrices."
)


@numeric(
    "Sec 3 (local minima)",
    lambda rng, draws: [
        (y, 0.05, depth, int(seed))
        for y, depth in product(((1.0, 0.02), (1.0, 0.6)), (2, 3))
        for seed in rng.integers(2**31, size=2)
    ],
    control("stopped after twenty steps", lambda: ((1.0, 0.6), 0.05, 2, 0), steps=20),
    narrower="2 × 2 matrices, from Gaussian starts; the print fixes neither loss, step nor start",
    show=named("y, ridge, depth, seed"),
)
def local_minima(case: Ridge, steps: int = 6000) -> Check:
    """Gradient descent on the weights of a linear network converges to a matrix that locally minimises
    C(A) + λR(A; L).

    By how much that falls next to the matrix where gradient descent on C + λ‖θ‖² ends.
    """
    y, ridge, depth, seed = case
    weights = list(np.random.default_rng(seed).normal(size=(depth, 2, 2)) / 2)
    for _ in range(steps):
        after = [reduce(np.matmul, weights[:l:-1], np.eye(2)) for l in range(depth)]
        before = [reduce(np.matmul, weights[:l][::-1], np.eye(2)) for l in range(depth)]
        slope = 2 * (after[0] @ weights[0] - np.diag(y))
        weights = [
            W - 0.05 * (A.T @ slope @ B.T + 2 * ridge * W)
            for W, A, B in zip(weights, after, before, strict=True)
        ]
    end = reduce(np.matmul, weights[::-1])
    return at_least(_least_change(end, case, linear_cost), 0.0, 1e-8, depth=depth)


Approximated = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], int]
"""W_1 and W_2 of a function W_2σ(W_1x) of inner width 1, and the accuracy as 1/n."""


def _approximated(rng: np.random.Generator, draws: int) -> Iterator[Approximated]:
    for accuracy in (1, 10, 10**6):
        yield ((1, 0),), ((1,), (0,)), accuracy
        for _ in range(max(draws // 8, 2)):
            W, V = (
                rng.integers(1, 6, (1, 3)),
                rng.integers(1, 6, (2, 1)) * rng.choice([-1, 1], (2, 1)),
            )
            yield tuple(map(tuple, W.tolist())), tuple(map(tuple, V.tolist())), accuracy


def _jacobian(layers: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """J at x of f = W_2σ(W_1x), for which f(x) = Jx."""
    first, second = layers
    return second @ (np.array([[int(z > 0)] for z in first @ x]) * first)


@statement(
    "Sec 3.1 (overestimating)",
    _approximated,
    control("twice as far off", lambda: (((1, 0),), ((1,), (0,)), 10), scale=2),
)
def overestimating(case: Approximated, scale: int = 1) -> Check:
    """A network of inner width 1 is approximated on [0, 1]^d at any accuracy by one of higher rank,
    with a second neuron that reads the last input alone: the Jacobian's rank grows by 1, and at the
    corners, where they differ most, the outputs differ by the accuracy.

    The growth of the rank and the largest difference, both counted in accuracies.
    """
    W, V = (np.array(rows, object) for rows in case[:2])
    across = np.array([[-V[1, 0]], [V[0, 0]]])
    w = scale * across * Fraction(1, case[2] * int(np.abs(across).max()))
    wider = [np.vstack([W, np.eye(W.shape[1], dtype=object)[-1:]]), np.hstack([V, w])]
    corners = [np.array(corner) for corner in product((0, 1), repeat=W.shape[1])]
    far = max(np.abs((_jacobian(wider, x) - _jacobian([W, V], x)) @ x).max() for x in corners)
    ranks = [rational_rank(_jacobian(layers, corners[-1])) for layers in (wider, [W, V])]
    return equal(ranks[0] - ranks[1] + case[2] * far, 2, accuracy=1 / case[2])


Hidden = tuple[tuple[int, ...], int, int]
"""Widths, a seed, and a hidden layer."""


def _representations(weights: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """α̃_1, …, α̃_L at the columns of x."""
    found = [weights[0] @ x]
    for W in weights[1:]:
        found.append(W @ (found[-1] * (found[-1] > 0)))
    return found


@statement(
    "Sec 3.3 (kernels)",
    lambda rng, draws: [
        (widths, int(seed), layer)
        for widths, layer in (((1, 2, 1), 1), ((2, 3, 4, 2), 1), ((2, 3, 4, 2), 2))
        for seed in rng.integers(2**31, size=3)
    ],
    control("a neuron scaled by 2 in, by ½ out", lambda: ((2, 3, 4, 2), 0, 1), scale=2),
)
def kernels(case: Hidden, scale: int = 1) -> Check:
    """A hidden representation of a ReLU network stays optimal when its neurons change places: outputs
    and ‖θ‖² stay, and so does its kernel α̃(x)·α̃(y), which orthogonal maps leave as it is too.

    How many of the four differ at eight points, in integers and fractions.
    """
    widths, seed, layer = case
    rng = np.random.default_rng(seed)
    sizes = zip(widths[1:], widths, strict=False)
    weights = [rng.integers(-5, 6, size).astype(object) for size in sizes]
    x = rng.integers(-9, 10, (widths[0], 8)).astype(object)
    order = np.roll(np.arange(widths[layer]), 1)
    gains = np.array([scale, *[1] * (widths[layer] - 1)], object)
    changed = list(weights)
    changed[layer - 1] = (gains[:, None] * weights[layer - 1])[order]
    changed[layer] = (weights[layer] * (Fraction(1) / gains))[:, order]
    before, after = _representations(weights, x), _representations(changed, x)
    turn = fractions(np.eye(widths[layer], dtype=int))
    turn[:2, :2] = fractions([[3, -4], [4, 3]]) / 5
    kernel = before[layer - 1].T @ before[layer - 1]
    turned = turn @ after[layer - 1]
    same = (
        np.array_equal(before[-1], after[-1]),
        sum(np.sum(W**2) for W in weights) == sum(np.sum(W**2) for W in changed),
        np.array_equal(kernel, after[layer - 1].T @ after[layer - 1]),
        np.array_equal(kernel, turned.T @ turned),
    )
    return equal(same.count(False), 0, comparisons=4)


@numeric(
    "D.2 (semicontinuity)",
    list(product((1, 2, 5, 20), (10, 1000, 10**6))),
    control("the rank of the sequence for its limit", lambda: (5, 10**6), rank=2),
    narrower="linear maps diag(1, 1/n), whose limit has a smaller rank",
)
def semicontinuity(case: tuple[int, int], rank: int = 1) -> Check:
    """lim inf R(f; L) ≥ R(f_0; L) as f → f_0: along diag(1, 1/n) → diag(1, 0) the cost is that of the
    limit and L·n^{−2/L} more.
    """
    depth, n = case
    limit = linear_cost(np.ones(rank), depth)
    cost = linear_cost(np.array([1.0, 1 / n]), depth)
    return equal(cost, limit + depth * n ** (-2 / depth), 1e-12 * depth, depth=depth)


@numeric(
    "App E",
    lambda rng, draws: [int(seed) for seed in rng.integers(2**31, size=5)],
    control("h of one latent variable", lambda: 0, latent=1),
    narrower="shallow tanh networks of width 30; the print gives neither width nor activation",
)
def app_e(seed: int, latent: int = 2) -> Check:
    """y = h(z_1, z_2) and x = g(z_1, …, z_8) in ℝ²⁰ with random shallow networks: g has an injective
    differential and dh has rank 2, so that f* = h∘g⁻¹ has Jacobian rank 2 and BN-rank 2.
    """
    rng = np.random.default_rng(seed)

    def differential(inputs: int) -> np.ndarray:
        V, W = rng.normal(size=(20, 30)), rng.normal(size=(30, inputs))
        z = rng.normal(size=inputs)
        return V @ np.diag(1 - np.tanh(W @ z) ** 2) @ W

    g, h = differential(8), differential(latent)
    wrong = 8 - int(np.linalg.matrix_rank(g))
    return equal(int(np.linalg.matrix_rank(h)) - wrong, 2)


@numeric(
    "Sec 2.1 (ridge)",
    list(product((1, 2, 3), (-2.0, 0.3, 3.0), (0.05, 0.5, 4.0))),
    control("λ|a|^{2/L} without the depth", lambda: (2, 3.0, 0.5), layers=lambda depth: 1),
    narrower="networks of one neuron in every layer and no biases, where R is known",
)
def ridge(
    case: tuple[int, float, float], layers: Callable[[int], int] = lambda depth: depth
) -> Check:
    """The least C(f_θ) + λ‖θ‖² over parameters is the least C(f) + λR(f; L) over functions: for
    C = (a − y)² and a = w_L⋯w_1, R = L|a|^{2/L}.
    """
    from scipy.optimize import minimize

    depth, y, ridge = case

    def loss(w: np.ndarray) -> float:
        return float((np.prod(w) - y) ** 2 + ridge * np.sum(w**2))

    trials = [np.full(depth, t) for t in (0.0, 0.5, 1.0, abs(y))]
    for start in trials:
        start[0] *= np.sign(y)
    least = min(minimize(loss, start, tol=1e-10).fun for start in trials)
    size = np.sign(y) * np.linspace(0, abs(y), 200001)
    cost = layers(depth) * np.abs(size) ** (2 / depth)
    over = float(np.min((size - y) ** 2 + ridge * cost))
    return equal(least, over, 1e-7 * (1 + y * y), depth=depth)


Representation = tuple[tuple[float, ...], int, float]
"""Singular values, a depth and a ratio."""


@numeric(
    "Sec 3.2 (convergence)",
    [
        (values, depth, p)
        for values in ((3.0,), (2.0, 0.5), (1.5, 1.0, 0.1))
        for depth, p in product((100, 1000), (0.3, 0.515, 0.999999))
    ],
    control("the limit a twentieth larger", lambda: ((3.0,), 1000, 0.999999), slope=1.05),
    narrower=LINEAR,
)
def convergence(case: Representation, slope: float = 1.0) -> Check:
    """In linear networks R⁽²⁾ guarantees that the representations converge: at layer l = ⌊pL⌋ the
    kernel is that of A^p up to (2/L)√(R⁽²⁾/2)·max(1, ‖A‖²).

    L(K_p − K_l) against its limit 2(pL − l)·S^{2p} log S, to the second order in R⁽²⁾/L.
    """
    values, (_, depth, p) = np.array(case[0]), case
    layer = int(p * depth)
    weight = np.diag(values ** (1 / depth))
    hidden = np.linalg.matrix_power(weight, layer)
    gap = p * depth - layer
    limit = values ** (2 * p)
    first = slope * 2 * gap * limit * np.log(values)
    found = depth * (limit - np.diag(hidden.T @ hidden))
    second = float(_second(np.log(values)))
    bound = 2 * np.sqrt(second / 2) * max(1.0, float(values.max()) ** 2)
    wrong = float(np.abs(found - first).max()) + max(0.0, float(np.abs(found).max()) - bound)
    return at_most(wrong, 0.0, second * max(1.0, float(values.max()) ** 2) / depth, depth=depth)


@statement(
    "Sec 3.1 (underestimating)",
    lambda rng, draws: [
        *(tuple(Fraction(2 * i + 1, 2 * m) for i in range(m)) for m in (1, 2, 5, 20)),
        tuple(Fraction(49 * (2 * i + 1), 20000) for i in range(200)),
        *(
            tuple(Fraction(int(n), 100) for n in sorted(rng.choice(101, size, replace=False)))
            for size in rng.integers(1, 12, max(draws // 4, 4))
        ),
    ],
    control("half the distance", lambda: (Fraction(1, 4), Fraction(3, 4)), share=Fraction(1, 2)),
    narrower="paths to and fro over the square at given heights",
)
def underestimating(heights: tuple[Fraction, ...], share: Fraction = Fraction(1)) -> Check:
    """A function of low rank within δ of one of higher rank is pathological: a path of length ℓ that
    comes within δ of every point of the unit square has 2δℓ + πδ² ≥ 1, so that its slope explodes.
    """
    gaps = [b - a for a, b in zip(heights, heights[1:], strict=False)]
    far = max(heights[0], 1 - heights[-1], *(gap / 2 for gap in gaps))
    length = len(heights) + heights[-1] - heights[0]
    delta = float(share * far)
    return at_least(2 * delta * float(length) + np.pi * delta**2, 1.0, turns=len(heights) - 1)


@statement(
    "Thm 10 (factor 2)",
    list(product((2, 3, 5), (Fraction(1), Fraction(3, 2), Fraction(199, 100)))),
    control("c₁ at twice its least value", lambda: (3, Fraction(2))),
    exhaustive="k* = 2, 3, 5, and c₁ at 1, 1.5 and 1.99 times its least value",
)
def factor_two(case: tuple[int, Fraction]) -> Check:
    """If c₁ is within a factor 2 of 2(1 − 1/k*) log N, e^{−c₁}N^{4−4/k*} is a positive power of N: of
    the exponent 2(2 − κ)(1 − 1/k*) for c₁ = κ·2(1 − 1/k*) log N.
    """
    k, factor = case
    exponent = 4 - Fraction(4, k) - factor * 2 * (1 - Fraction(1, k))
    return equal(exponent if exponent > 0 else -1, 2 * (2 - factor) * (1 - Fraction(1, k)))


Gd = tuple[tuple[float, float, float], float]
"""a, b, c of f(x) = a·tanh(bx + c), and the learning rate over 2/‖H‖."""


@numeric(
    "Sec 4 (2/η)",
    list(product(((1.0, 0.5, 0.2), (-2.0, 0.3, -0.4)), (0.4, 0.95, 1.05))),
    control("‖Θ‖ without 1/N", lambda: ((1.0, 0.5, 0.2), 0.95), count=lambda n: 1),
)
def stability(case: Gd, count: Callable[[int], int] = lambda n: n) -> Check:
    """Gradient descent of rate η converges to an interpolating minimum only where ‖H‖ = ‖Θ‖/N ≤ 2/η: a
    step along the top direction multiplies the distance by |1 − η‖Θ‖/N|.
    """
    start = np.array(case[0])
    samples = np.linspace(-1, 1, 5)

    def model(theta: np.ndarray) -> np.ndarray:
        return theta[0] * np.tanh(theta[1] * samples + theta[2])

    def rows(theta: np.ndarray) -> np.ndarray:
        t = np.tanh(theta[1] * samples + theta[2])
        bend = theta[0] * (1 - t**2)
        return np.stack([t, bend * samples, bend], axis=1)

    J = rows(start)
    values, vectors = np.linalg.eigh(J.T @ J / len(samples))
    rate = case[1] * 2 / values[-1]
    top, size = vectors[:, -1], 1e-7
    theta = start + size * top
    for _ in range(10):
        theta = theta - rate * rows(theta).T @ (model(theta) - model(start)) / len(samples)
    grown = float(abs(top @ (theta - start)) / size) ** (1 / 10)
    norm = float(np.linalg.norm(J, 2) ** 2) / count(len(samples))
    return equal(grown, abs(1 - rate * norm), 1e-4, rate=case[1])
