"""`bottleneck`, ranks: the inequalities of R⁽⁰⁾.   [bottleneck, Sec. 3.1]"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from neuromanifold.bottleneck import representation_cost
from neuromanifold.bottleneck.passage import passage
from neuromanifold.models.init import Layer
from neuromanifold_papers.bottleneck.statements import cases, cost
from neuromanifold_papers.bottleneck.statements.cases import EPS, Case, compare, network, worst
from neuromanifold_papers.check import Check, at_most, equal, inside, outside
from neuromanifold_papers.statement import control, statement

# Far enough that R/L differs from its limit by less than rounding.
_INFINITE_DEPTH = 2**60


def deepened(case: Case, extra: int) -> Case:
    """The same function on the sample with `extra` layers more, which carry the narrowest
    representation, shifted to be positive.
    """
    through = passage(case.net, case.params, case.x)
    at = int(np.argmin(case.net.widths))
    here = [*through.activations, through.preactivations[-1]][at]
    k, shift = here.shape[1], np.full(here.shape[1], float(np.abs(here).max()) + 1.0)
    weights = [np.asarray(p.weight) for p in case.params]
    biases = [
        np.zeros(len(W)) if p.bias is None else np.asarray(p.bias)
        for W, p in zip(weights, case.params, strict=True)
    ]
    same, none = np.eye(k), np.zeros(k)
    if at == len(weights):
        weights, biases = (
            [*weights, *[same] * extra],
            [*biases[:-1], biases[-1] + shift, *[none] * (extra - 1), -shift],
        )
    else:
        back = biases[at] - weights[at] @ shift
        weights = [*weights[:at], *[same] * extra, *weights[at:]]
        biases = [*biases[:at], shift, *[none] * (extra - 1), back, *biases[at + 1 :]]
    return network(weights, case.x, slope=case.slope, biases=biases, kind=case.kind)


def cost_per_layer(case: Case) -> tuple[float, float]:
    """What a further layer costs in the long run, and by how much the deepened networks miss the
    function.
    """
    short, long = deepened(case, 4), deepened(case, 12)
    before = cases.outputs(case)
    gap = max(cases.missed(d, before) for d in (short, long))
    return (long.squared_norm - short.squared_norm) / 8, gap / (1 + float(np.abs(before).max()))


def integer_networks(
    rng: np.random.Generator, draws: int, slopes: tuple[float, ...] = cases.SLOPES
) -> Iterator[Case]:
    """Networks with integer weights and biases, of every shape of widths 1 to 3 in one to three
    layers, then larger ones.
    """
    shapes = [w for depth in (1, 2, 3) for w in itertools.product((1, 2, 3), repeat=depth + 1)]
    shapes += [
        tuple(int(w) for w in rng.integers(1, 6, size=int(rng.integers(3, 7))))
        for _ in range(draws)
    ]
    for index, widths in enumerate(shapes):
        yield _integer_network(rng, widths, slopes[index % len(slopes)])


def exact_rank(case: Case) -> int:
    """Rank_J on the sample of a network with dyadic weights and slopes, whose Jacobians are
    exact: the rank of integer matrices.
    """
    J = cases.jacobians(case) * 2.0**case.net.depth
    assert np.array_equal(J, np.rint(J))
    assert np.abs(J).max() < 2**53
    return max(cases.rational_rank(matrix.astype(int).tolist()) for matrix in J)


def narrowest(case: Case) -> int:
    """The inner dimension of the factorisation through the narrowest layer."""
    return min(case.net.widths)


def composed(f: Case, g: Case) -> Case:
    """f∘g as one network: the output layer of g and the first of f multiply into one."""
    first, last = f.params[0], g.params[-1]
    joined = Layer(first.weight @ last.weight, first.weight @ last.bias + first.bias)
    weights, biases = zip(*g.params[:-1], joined, *f.params[1:], strict=True)
    return network(weights, g.x, slope=f.slope, biases=biases, kind=f.kind)


def added(f: Case, g: Case) -> Case:
    """f + g as one network of both side by side; equal depths, inputs and outputs."""
    pairs = list(zip(f.params, g.params, strict=True))
    weights: list[Any] = [block_diag(p.weight, q.weight) for p, q in pairs]
    # Both read one input and add to one output: the blocks of these lie on each other.
    weights[0] = np.add(*np.split(weights[0], 2, axis=1))
    weights[-1] = np.add(*np.split(weights[-1], 2, axis=0))
    biases = None
    if f.net.bias:
        biases = [np.concatenate([p.bias, q.bias]) for p, q in pairs]
        biases[-1] = pairs[-1][0].bias + pairs[-1][1].bias
    return network(weights, f.x, slope=f.slope, biases=biases, kind=f.kind)


def small_matrices(values: tuple[int, ...] = (-1, 0, 1)) -> np.ndarray:
    """All 2 × 2 matrices with these entries."""
    return np.array(list(itertools.product(values, repeat=4))).reshape(-1, 2, 2)


def small_rank(M: np.ndarray) -> np.ndarray:
    """The rank of integer 2 × 2 matrices, exactly."""
    det = M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0]
    found = np.where(det != 0, 2, np.any(M != 0, axis=(-1, -2)).astype(int))
    assert np.array_equal(found, np.linalg.matrix_rank(M))
    return found


def squared_determinant(M: np.ndarray) -> np.ndarray:
    """|M|₊² of integer 2 × 2 matrices, exactly: det², or the sum of squares for rank 1, or 1."""
    det = M[..., 0, 0] * M[..., 1, 1] - M[..., 0, 1] * M[..., 1, 0]
    return np.where(det != 0, det**2, np.maximum(1, np.sum(M**2, axis=(-1, -2))))


def largest(
    excess: np.ndarray, kept: Any = True, reason: str = "", tolerance: float = 0.0, **said: Any
) -> Check:
    """The largest excess over pairs of small matrices, but for those not kept."""
    kept = np.broadcast_to(kept, excess.shape)
    drops, count = outside(reason, parts=int((~kept).sum())), int(kept.sum())
    return at_most(excess[kept].max().item(), 0, tolerance, cases=count, drops=drops, **said)


def network_pairs(rng: np.random.Generator, draws: int, compose: bool) -> Iterator[Any]:
    """All pairs of 2 × 2 matrices (`None`), maps that annihilate each other, then integer
    networks to be composed, or added (ℝ⁴ → ℝ⁴).
    """
    yield None
    yield _annihilating(compose)
    for index in range(2 * draws + 16):
        slope = cases.SLOPES[index % len(cases.SLOPES)]
        inner, outer = (tuple(int(w) for w in rng.integers(1, 4, size=3)) for _ in range(2))
        first, second = (
            ((2, *inner, 3), (3, *outer, 2)) if compose else ((4, *inner, 4), (4, *outer, 4))
        )
        x = rng.integers(-3, 4, size=(3, first[0]))
        g = _integer_network(rng, first, slope, x)
        yield _integer_network(rng, second, slope, cases.outputs(g) if compose else x), g


def _annihilating(compose: bool) -> tuple[Case, Case]:
    """Two maps of rank 1 with f∘g = 0, or of rank 4 with f + g = 0, in two layers at positive
    points.
    """
    if compose:
        g = network([[[1.0, 0.0]], [[1.0], [0.0]]], [[1.0, 2.0]], biases=[[0.0], [0.0, 0.0]])
        return network([[[0.0, 1.0]], [[1.0], [0.0]]], [[1.0, 0.0]], biases=[[1.0], [0.0, 0.0]]), g
    same, none = np.eye(4), [np.zeros(4)] * 2
    f, g = (network([same, sign * same], [[1.0, 2.0, 3.0, 4.0]], biases=none) for sign in (1, -1))
    return f, g


def _integer_network(
    rng: np.random.Generator, widths: tuple[int, ...], slope: float, x: Any = None
) -> Case:
    weights = [rng.integers(-2, 3, size=(b, a)) for a, b in itertools.pairwise(widths)]
    biases = [rng.integers(-1, 2, size=len(W)) for W in weights]
    points = rng.integers(-3, 4, size=(3, widths[0])) if x is None else x
    return network(weights, points, slope=slope, biases=biases, kind="integer")


def _lines() -> tuple[Case, Case]:
    """x and x again, of rank 1."""
    line = network([[[1.0]]] * 2, [[1.0]], biases=[[0.0]] * 2)
    return line, line


def _two_axes() -> tuple[Case, Case]:
    """(x₁, 0) and (0, x₂), of rank 1 each and 2 together."""
    first, last = (
        network([e[None], e[:, None]], [[1.0, 2.0]], biases=[[0.0], [0.0, 0.0]]) for e in np.eye(2)
    )
    return first, last


def composed_rank(f: Any, g: Any) -> Any:
    """What bounds R⁽⁰⁾(f∘g): min{R⁽⁰⁾(f), R⁽⁰⁾(g)}."""
    return np.minimum(f, g)


def added_rank(f: Any, g: Any) -> Any:
    """What bounds R⁽⁰⁾(f + g): R⁽⁰⁾(f) + R⁽⁰⁾(g)."""
    return f + g


def known_rank(case: Case) -> int | None:
    """R⁽⁰⁾ where Rank_J and the narrowest layer, which enclose it, meet."""
    return narrowest(case) if exact_rank(case) == narrowest(case) else None


def _measure_pair(case: Any, compose: bool, bound: Any) -> Check:
    """Ranks of all small matrices, exactly; of networks whose R⁽⁰⁾ is known the Rank_J of both
    together and the cost per layer.

    Composed networks have further layers at the narrowest of both, added ones each at its own.
    """
    if case is None:
        A = small_matrices()
        rank, both = small_rank(A), A[:, None] @ A[None] if compose else A[:, None] + A[None]
        excess = small_rank(both) - bound(rank[:, None], rank[None])
        return largest(excess, functions="all 2 × 2 matrices over −1, 0, 1")
    f, g = case
    ranks = known_rank(f), known_rank(g)
    if None in ranks:
        return equal(
            0, 0, drops=inside("R⁽⁰⁾ of f or g is not known: Rank_J is below the narrowest layer")
        )
    allowed = int(bound(*ranks))
    short, long = (
        deepened(composed(f, g), extra)
        if compose
        else added(deepened(f, extra), deepened(g, extra))
        for extra in (4, 12)
    )
    wanted = cases.outputs(f) if compose else cases.outputs(f) + cases.outputs(g)
    gap, norm = max(cases.missed(both, wanted) for both in (short, long)), long.squared_norm
    return worst(
        [
            at_most(exact_rank(short), allowed),
            compare((norm - short.squared_norm) / 8, "=", allowed, 64 * EPS * norm),
            compare(gap, "=", 0.0, 64 * EPS * (1 + norm) * (1 + float(np.abs(wanted).max()))),
        ],
        functions="networks",
        slope=f.slope,
        bound=allowed,
    )


def show_pair(case: Any) -> str:
    """Two networks; `None` stands for all pairs of small matrices."""
    if case is None:
        return "every pair of small matrices"
    return f"# f:\n{cases.show(case[0])}\n# g:\n{cases.show(case[1])}"


_UPPER = (
    "R⁽⁰⁾ is seen from above, as the cost per layer of explicit networks, and from below through "
    "Jacobians; it is known exactly only where the two meet"
)
_EXPLICIT = "the cost per layer of explicit networks stands for R⁽⁰⁾"
_KNOWN = (
    "on functions whose R⁽⁰⁾ is known, Rank_J being the narrowest layer of a network; that of "
    "both together is enclosed"
)
_PLANE = network([np.eye(2)], np.ones((1, 2)))


@statement(
    "ranks (Rank_J)",
    integer_networks,
    control(
        "Rank_J(f) + 1 ≤ R⁽⁰⁾ at the identity of the plane",
        lambda: _PLANE,
        least=lambda case: exact_rank(case) + 1,
    ),
    show=cases.show,
    narrower=_UPPER,
    constructive=_EXPLICIT,
)
def measure_sandwich_below(case: Case, least: Callable[[Case], int] = exact_rank) -> Check:
    """Rank_J(f) = max_x rank Jf(x) ≤ R⁽⁰⁾(f).

    Rank_J, exactly, against the cost per layer of networks for f; and at finite depth the
    bound whose limit it is.
    """
    rank = least(case)
    long, (per_layer, _) = deepened(case, 12), cost_per_layer(case)
    norm, L = long.squared_norm, long.net.depth
    bound = max(cost.linear_cost(cost.singular_values(J), L) for J in cases.jacobians(long))
    return worst(
        [
            compare(rank, "<=", per_layer, 64 * EPS * norm),
            compare(bound, "<=", norm, 64 * EPS * L * norm),
        ],
        hypotheses={"Rank_J": rank},
    )


@cases.of_networks(
    "ranks (Rank_BN)",
    integer_networks,
    control(
        "an inner dimension one smaller", lambda: _PLANE, inner=lambda case: narrowest(case) - 1
    ),
    narrower=_UPPER,
    constructive=_EXPLICIT,
)
def measure_sandwich_above(case: Case, inner: Callable[[Case], int] = narrowest) -> Check:
    """R⁽⁰⁾(f) ≤ Rank_BN(f), the least inner dimension of a factorisation f = h∘g.

    The cost per layer against the inner dimension of the factorisation through the narrowest
    layer.
    """
    per_layer, gap = cost_per_layer(case)
    k, norm = inner(case), deepened(case, 12).squared_norm
    return worst(
        [
            compare(per_layer, "<=", k, 64 * EPS * norm),
            compare(gap, "=", 0.0, 64 * EPS * (1 + norm)),
        ],
        inner_dimension=k,
    )


of_pairs = partial(statement, show=show_pair, narrower=_KNOWN, constructive=_EXPLICIT)


@of_pairs(
    "ranks (composition)",
    lambda rng, draws: network_pairs(rng, draws, compose=True),
    control("one less than the minimum", _lines, bound=lambda f, g: composed_rank(f, g) - 1),
)
def ranks_composition(case: Any, bound: Any = composed_rank) -> Check:
    """R⁽⁰⁾(f∘g) ≤ min{R⁽⁰⁾(f), R⁽⁰⁾(g)}."""
    return _measure_pair(case, True, bound)


@of_pairs(
    "ranks (sum)",
    lambda rng, draws: network_pairs(rng, draws, compose=False),
    control("the larger of the two instead of their sum", _two_axes, bound=np.maximum),
)
def ranks_sum(case: Any, bound: Any = added_rank) -> Check:
    """R⁽⁰⁾(f + g) ≤ R⁽⁰⁾(f) + R⁽⁰⁾(g)."""
    return _measure_pair(case, False, bound)


@cost.of_spectra(
    "ranks (linear map)",
    cost.spectra,
    control("rank A − 1", lambda: ((1.0, 1.0), (2, 2), 0, 1), rank=lambda s: len(s) - 1),
    covers=lambda case: {"rank": len(case[0]), "shape": str(case[1])},
)
def measure_linear_rank(case: cost.Spectrum, rank: Callable[[Sequence[float]], int] = len) -> Check:
    """R⁽⁰⁾(x ↦ Ax; Ω) = rank A on a full-dimensional bounded Ω, of any sign.

    Networks for x ↦ Ax on [−1, 1]^d cost rank A a layer, and R(A; L)/L, below which none can
    go, has the same limit.
    """
    s, shape, seed, _ = case
    A = cost.with_singular_values(s, shape, seed)
    x = np.array(list(itertools.product((-1.0, 1.0), repeat=shape[1])))
    U, root, Vt = np.linalg.svd(A, full_matrices=False)
    k = len(s)
    if k == 0:
        return equal(representation_cost(A, _INFINITE_DEPTH), 0.0)
    weights, shift = [Vt[:k], U[:, :k] * root[:k]], np.full(k, 1.0 + math.sqrt(shape[1]))
    narrow = network(weights, x, slope=1.0)
    upper = network(weights, x, biases=[shift, -weights[1] @ shift])
    per_layer, gap = cost_per_layer(upper)
    lower = representation_cost(A, _INFINITE_DEPTH, rtol=cost.RTOL) / _INFINITE_DEPTH
    rounding = 64 * EPS * (1 + upper.squared_norm)
    return worst(
        [
            compare(per_layer, "=", rank(s), rounding),
            compare(lower, "=", rank(s), rounding),
            compare(gap + cases.missed(upper, cases.outputs(narrow)), "=", 0.0, rounding),
        ]
    )
