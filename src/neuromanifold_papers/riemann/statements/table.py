"""`riemann`, Table 1: when is the NTK independent of the parameters, for fixed δ or Δ?"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import jax
import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import stride_one_runs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.riemann.statements.conserved import RUNNING, balanced
from neuromanifold_papers.riemann.statements.dense import freedom, integer_matrices, scalar_kernels
from neuromanifold_papers.riemann.statements.exact import (
    EPS,
    differing,
    gaussian_filters,
    hypotheses,
    line_nets,
    show_filters,
    symbols,
)
from neuromanifold_papers.riemann.statements.tensors import LINE, SQUARE
from neuromanifold_papers.riemann.statements.theorem13 import FIRST_13, equal_norms
from neuromanifold_papers.riemann.table import CONVOLUTIONS
from neuromanifold_papers.statement import control, statement

# Root finding and factoring give filters to about 1e-10 for well-conditioned v; kernels of
# different tuples are 1e-3 apart.
SAME = 1e-7
APART = 1e-4


def _balanced_pairs(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Balanced weights of all widths, and others over the same product: their hidden frames
    rotated independently.
    """
    for widths in [*product((1, 2, 3), repeat=3), *product((1, 2, 3), repeat=4)]:
        first = balanced(widths, min(widths), rng)
        rotations = [np.linalg.qr(rng.normal(size=(d, d)))[0] for d in widths[1:-1]]
        yield first, fs.rotate_factors(first, rotations)
    for _ in range(draws // 4):
        first = balanced((2, 2, 2), 2, rng)
        yield from (
            (first, mate)
            for mate in fs.level_set_sample(
                first, 1, key=jax.random.key(int(rng.integers(1 << 31)))
            )
        )


def _unbalanced_pair() -> Any:
    rng = np.random.default_rng(0)
    first = tuple(rng.normal(size=(2, 2)) for _ in range(2))
    return first, fs.level_set_sample(first, 1)[0]


@statement(
    "Table 1 (dense, balanced)",
    _balanced_pairs,
    control("generic Δ", _unbalanced_pair),
    method="float64",
    show=lambda pair: repr([[W.tolist() for W in p] for p in pair]),
)
def dense_balanced(case: Any) -> Check:
    """Fully connected, Δ = 0: the NTK is parameter independent."""
    first, second = case
    distance = fs.kernel_distance(fs.dense_kernel(first).matrix, fs.dense_kernel(second).matrix)
    return equal(distance, 0.0, 64 * EPS * len(first), widths=str([W.shape for W in first]))


def segments(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The widths cut at hidden layers of width 1.

    >>> segments((2, 2, 1, 3, 1))
    [(2, 2, 1), (1, 3, 1)]
    """
    cuts = [0, *(i for i in range(1, len(widths) - 1) if widths[i] == 1), len(widths) - 1]
    return [widths[a : b + 1] for a, b in zip(cuts, cuts[1:], strict=False)]


def depends(widths: tuple[int, ...]) -> bool:
    """Whether some segment has two layers or more and is not (1, h, 1)."""
    return any(len(s) > 2 and not (len(s) == 3 and s[0] == s[2] == 1) for s in segments(widths))


def _widths(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    every = [
        *product((1, 2, 3), repeat=3),
        *(w for w in product((1, 2, 3), repeat=4) if sum(w) <= 7),
    ]
    for widths in sorted(every, key=lambda w: (len(w), sum(w), w)):
        yield integer_matrices(widths, rng), widths


def hourglass() -> int:
    """(1, h, 1), h = 2: in how many entries K² differs from (tr Δ)² + 4(W² − det Δ), as
    polynomials.
    """
    pair = symbols([(2, 1), (1, 2)])
    K, W, D = (
        fs.dense_kernel(pair).matrix[0, 0],
        fs.end_to_end_matrix(pair)[0, 0],
        fs.gram_differences(pair)[0],
    )
    trace, determinant = D[0, 0] + D[1, 1], D[0, 0] * D[1, 1] - D[0, 1] * D[1, 0]
    return differing([K * K], [trace * trace + 4 * (W * W - determinant)])


def _dense_closed_form(case: Any) -> Check:
    _, widths = case
    return at_least(hourglass(), 1) if widths == (1, 2, 1) else scalar_kernels((1, 2))


def _simplest(case: Any) -> list[Any]:
    """The same widths with all entries of layer l equal to l."""
    matrices, widths = case
    simple = tuple(np.full(W.shape, l) for l, W in enumerate(matrices, 1))
    return (
        []
        if all((a == b).all() for a, b in zip(matrices, simple, strict=True))
        else [(simple, widths)]
    )


def _show_dense(case: Any) -> str:
    return f"weights = {[W.tolist() for W in case[0]]}"


_DENSE_PROOF = """*Only if:* all pieces are single layers or (1, h, 1), so W = u c_1⋯c_m rᵀ, with numbers c_i. Δ gives the
difference of the squared norms of neighbouring layers: all are determined by that of the first, a, and grow with it; so does c_i² =
‖u_i‖²‖v_i‖² + e_2(Δ_i) ≥ 0. Hence ‖W‖² = ‖u‖²‖r‖²Πc_i² grows strictly with a, and W ≠ 0 and Δ determine a, all norms and |c_i|, the
lines of u and r, and with them K. *If, for two layers* (p, h, q), q ≥ 2 (p ≥ 2: transpose): let P = W_2ᵀW_2, Q = W_1W_1ᵀ. X = S +
R, S symmetric, R skew, moves W_1 by XW_1 and W_2 by −W_2X, which fixes W, and Δ when S(P + Q) + (P + Q)S = −[Δ, R]; dK =
−2W_2SW_2ᵀ⊗1 + 1⊗2W_1ᵀSW_1. For h ≤ p + q generically P + Q > 0 and S is determined by R, rationally in the weights, so that one
point with dK ≠ 0 will do: let W_1 vanish on the first two hidden neurons and W_2 be w = diag(1, 2) on them and two outputs, each
other neuron having one input or output of its own; R turns the two. Then S ≠ 0 on these two neurons, W_1ᵀSW_1 = 0, W_2SW_2ᵀ = wSwᵀ
≠ 0. For h > p + q a rotation of the hidden layer leaves p + q neurons with weights. *If, otherwise:* no proof; exact ranks only."""


@statement(
    "Table 1 (dense, unbalanced)",
    _widths,
    control(
        "a balanced point: W_1 = M, W_2 = Mᵀ",
        lambda: ((np.array([[1, 2], [3, 5]]), np.array([[1, 3], [2, 5]])), (2, 2, 2)),
    ),
    smaller=_simplest,
    confirm=_dense_closed_form,
    show=_show_dense,
)
def dense_unbalanced(case: Any) -> Check:
    """Fully connected, two layers or more, generic Δ: the NTK depends on more than W and Δ, for
    all widths.
    """
    matrices, widths = case
    return at_least(min(freedom(matrices), 1), 1, widths=str(widths), H=len(matrices))


@statement(
    "Table 1 (dense, unbalanced), amended",
    _widths,
    control(
        "a balanced point: W_1 = M, W_2 = Mᵀ",
        lambda: ((np.array([[1, 2], [3, 5]]), np.array([[1, 3], [2, 5]])), (2, 2, 2)),
    ),
    amends="Table 1 (dense, unbalanced)",
    show=_show_dense,
    proof=_DENSE_PROOF,
)
def dense_law(case: Any) -> Check:
    """Cut at the hidden layers of width 1, generic Δ: the NTK varies over (W, Δ) exactly when
    some piece has two layers or more and is not (1, h, 1).
    """
    matrices, widths = case
    return equal(min(freedom(matrices), 1), int(depends(widths)), widths=str(widths))


def spread(
    net: LinearConvNet,
    rng: np.random.Generator,
    delta: Any,
    draws: int = 2,
    *,
    enough: float = np.inf,
) -> float:
    """The largest kernel distance over the fibres of Gaussian filters and, for D = 1, of filters
    with real roots only.

    Drawing stops at a distance of `enough`.
    """
    worst = 0.0
    for index in range(draws):
        params = gaussian_filters(net, rng)
        if net.dimension == 1 and index % 2:
            params = tuple(np.poly(rng.normal(size=k - 1)) for (k,) in net.filter_shapes)
        worst = max(worst, fs.fiber(net, net.end_to_end(params), delta).kernel_spread)
        if worst >= enough:
            break
    return worst


def drawn_delta(net: LinearConvNet, rng: np.random.Generator, zero: bool) -> np.ndarray:
    return np.zeros(net.depth - 1) if zero else 2 * rng.normal(size=net.depth - 1)


def _cell(net: LinearConvNet, delta: np.ndarray) -> dict[str, Any]:
    return hypotheses(net, delta="0" if not delta.any() else "not 0")


def _independent(case: Any) -> Check:
    net, delta, seed = case
    found = spread(net, np.random.default_rng(seed), delta)
    return equal(found, 0.0, SAME, hypotheses=_cell(net, delta))


def _dependent(case: Any) -> Check:
    net, delta, seed = case
    found = spread(net, np.random.default_rng(seed), delta, 8, enough=APART)
    return at_least(found, APART, hypotheses=_cell(net, delta))


def _family(dimension: int, printed: str) -> list[LinearConvNet]:
    """The study's architectures of the cells of Table 1."""
    return [
        net
        for D, _, _, answer, nets in CONVOLUTIONS
        for net in nets
        if dimension == D and answer == printed
    ]


def _show(case: Any) -> str:
    net, delta, seed = case
    return f"net, delta, seed = nm.{net!r}, {np.asarray(delta).tolist()}, {seed}"


def _line_yes(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = [*_family(1, "yes"), *line_nets((2, 3), (2, 3), (2,))]
    for net in nets:
        for zero in (True, False):
            yield net, drawn_delta(net, rng, zero), int(rng.integers(1 << 31))


def _every_filter(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Filters over which two tuples lie, and Gaussian ones."""
    for a, b in (((1, 0, 2), (2, 1)), ((1, 2, 3), (1, 1)), ((3, 0, 1), (1, 2))):
        yield RUNNING, (np.array(a, object), np.array(b, object))
    yield from ((net, gaussian_filters(net, rng)) for net in _family(1, "yes"))


def _other_tuple(case: Any) -> Check:
    """(a_0, 0, a_2), (b_0, b_1) and (b_0, 0, b_1), (a_0, a_2), whose halves have the same norms: both
    kernels in integers.
    """
    net, ((a0, _, a2), (b0, b1)) = case
    mate = (np.array([b0, 0, b1], object), np.array([a0, a2], object))
    return equal(differing(fs.filter_kernel(net, case[1]), fs.filter_kernel(net, mate)), 0)


@statement(
    "Table 1 (D = 1, strides > 1)",
    _every_filter,
    control(
        "stride one",
        lambda: (LinearConvNet((3, 2), (1, 1)), (np.array([0, 1, 1]), np.array([1, 2]))),
    ),
    method="float64",
    show=show_filters,
    confirm=_other_tuple,
)
def line_every(case: Any) -> Check:
    """One-dimensional, all inner strides above one: parameter independent for all δ, at every v; here at
    the δ of the tuple.
    """
    net, params = case
    over = fs.fiber(net, net.end_to_end(params), fs.norm_differences(net, params))
    return equal(over.kernel_spread, 0.0, SAME, hypotheses=hypotheses(net))


line_yes = statement(
    "Table 1 (D = 1, strides > 1), amended",
    _line_yes,
    control("stride one", lambda: (LinearConvNet((3, 2), (1, 1)), np.zeros(1), 1)),
    amends="Table 1 (D = 1, strides > 1)",
    method="float64",
    show=_show,
    says="one-dimensional, all inner strides above one: parameter independent for all δ at almost every v, the smooth ones",
    proof="Theorem 4.",
)(_independent)


def _stride_one_nets() -> list[LinearConvNet]:
    return [*line_nets((2, 3), (1,), (2,)), *_family(1, "no"), LinearConvNet((2, 2, 3), (1, 2, 1))]


line_no = statement(
    "Table 1 (D = 1, stride 1, δ ≠ 0)",
    lambda rng, draws: (
        (net, drawn_delta(net, rng, False), int(rng.integers(1 << 31)))
        for net in _stride_one_nets()
    ),
    control("strides above one", lambda: (LinearConvNet((3, 2), (2, 1)), np.ones(1), 1)),
    method="float64",
    show=_show,
    says="one-dimensional, some inner stride one, generic δ: some v has tuples with different NTKs",
)(_dependent)


def _equal_norms_exactly(case: Any) -> Check:
    """Two filters of equal norm in layers of size 2: the only tuples over their product, up to
    signs, are the two orders.
    """
    net, *_ = case
    filters = (np.array([1, 2], object), np.array([2, 1], object), np.array([2, -1], object))[
        : net.depth
    ]
    return at_least(
        differing(fs.filter_kernel(net, filters), fs.filter_kernel(net, filters[::-1])), 1
    )


def larger_in_run(net: LinearConvNet) -> bool:
    """Whether layers joined by stride one, two or more, include one of size above 2."""
    return any(
        len(run) > 1 and max(net.filter_shapes[l][0] for l in run) > 2
        for run in stride_one_runs(net)
    )


def _balanced_line(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for net in _stride_one_nets():
        yield net, np.zeros(net.depth - 1), int(rng.integers(1 << 31))


_BALANCED_PROOF = """K = Σ M_lM_lᵀ, M_l multiplication by v/w_l on the forms of layer l. *Else:* the products of the layers that
stride one joins are determined by almost every v up to scalars (sing (locus), amended: strides above one lie between them). Where
two or more layers are joined they are linear forms, so that the tuples are their orders; δ = 0 gives all filters one norm, which v
determines. So {±v/w_l} is one set for all tuples, within layers of one size, and K one matrix. (On a set of measure zero a factor
can cross a stride: over (x² − y²)(x² − 2y²)(x² − 3y²), sizes (2, 2, 3), strides (1, 2, 1), the kernels differ.) *Size above 2:* let
w_a = ℓA and w_b = mB be joined, ℓ, m linear with real roots, A not constant; the tuple with mA and ℓB, brought to one norm λ' by
factors, lies over the same v. Let φ be evaluation at the root ρ of ℓ, a simple root of v. φᵀKφ has the term of ρ's own layer only,
|(v/w)(ρ)|²S(ρ), S = Σ_{i<k} ρ^{2ti}: both kernels agree at φ only if S_a B(ρ)²λ'² = S_b A(ρ)²‖ℓB‖². As a root of A tends to ρ the
right side tends to 0 and the left does not: near there the kernels differ, on an open set."""


line_no_balanced = statement(
    "Table 1 (D = 1, stride 1, δ = 0)",
    _balanced_line,
    control("strides above one", lambda: (LinearConvNet((3, 2), (2, 1)), np.zeros(1), 1)),
    method="float64",
    confirm=_equal_norms_exactly,
    show=_show,
    says="one-dimensional, some inner stride one, δ = 0: some v has tuples with different NTKs",
)(_dependent)


@statement(
    "Table 1 (D = 1, stride 1, δ = 0), amended",
    _balanced_line,
    control("δ = 1 for sizes (2, 2)", lambda: (LinearConvNet((2, 2), (1, 1)), np.ones(1), 1)),
    amends="Table 1 (D = 1, stride 1, δ = 0)",
    method="float64",
    show=_show,
    proof=_BALANCED_PROOF,
)
def balanced_law(case: Any) -> Check:
    """δ = 0: where layers joined by stride one include a size above 2, an open set of v has
    tuples with different NTKs; else almost every v has one NTK.
    """
    return _dependent(case) if larger_in_run(case[0]) else _independent(case)


def _wide(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = [*_family(2, "yes"), *_family(3, "yes")]
    for net in sorted(nets, key=lambda net: (net.n_params, net.depth)):
        for zero in (True, False):
            yield net, drawn_delta(net, rng, zero), int(rng.integers(1 << 31))


def _exact_kernels(case: Any) -> Check:
    """Integer tuples with one v and one δ: those of Thm 13 (like layers), or x²y + xy² in 3 × 1
    and 2 × 1 (balanced: 2K in integers).
    """
    net, *_ = case
    if any(sum(k > 1 for k in shape) < 2 for shape in net.filter_shapes):
        kernels = []
        for a, b, sa, sb in (((0, 1, 0), (1, 1), 2, 1), ((1, 1, 0), (0, 1), 1, 2)):
            blocks = fs.filter_kernel_blocks(
                LINE, (np.array(a, object)[:, None], np.array(b, object)[:, None])
            )
            kernels.append(sb * blocks[0] + sa * blocks[1])
        return equal(differing(*kernels), 0)
    mate = (FIRST_13[1] // 2, 2 * FIRST_13[0])
    return equal(differing(fs.filter_kernel(SQUARE, FIRST_13), fs.filter_kernel(SQUARE, mate)), 0)


def _thick(net: LinearConvNet) -> bool:
    return all(sum(k > 1 for k in shape) >= 2 for shape in net.filter_shapes)


wide = statement(
    "Table 1 (D > 1)",
    _wide,
    control("D = 1, stride one", lambda: (LinearConvNet((3, 2), (1, 1)), np.zeros(1), 1)),
    method="float64",
    confirm=_exact_kernels,
    show=_show,
    says="high-dimensional: parameter independent for all δ and all strides",
)(_independent)

table_1_d_1_amended = statement(
    "Table 1 (D > 1), amended",
    lambda rng, draws: (
        case for case in _wide(rng, draws) if _thick(case[0]) and equal_norms(case[0], case[1])
    ),
    control("like layers, δ = 6", lambda: (SQUARE, np.array([6.0]), 1)),
    amends="Table 1 (D > 1)",
    method="float64",
    show=_show,
    says="high-dimensional, two sizes above 1 in every layer: parameter independent for all strides and all δ with Σ_{i=l}^{L−1} δ_i = 0 between layers of the same space",
)(_independent)

GROUP = (dense_balanced, dense_unbalanced, line_every, line_no, line_no_balanced, wide)
