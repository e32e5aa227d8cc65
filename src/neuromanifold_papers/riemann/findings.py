"""Where `riemann` as printed and the computed facts part: the smallest counterexamples found, in
exact arithmetic.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import exact_jacobian_rank
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.output import Claim


def _exact(*filters: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.array(w, object) for w in filters)


def _invariant(params: Any) -> int:
    return int((params[1] ** 2).sum() - (params[0] ** 2).sum())


def theorem_13() -> Claim:
    """Two 2×2 layers of stride one, δ = 6: four tuples, two kernels, over a smooth filter."""
    net = LinearConvNet(((2, 2), (2, 2)), ((1, 1), (1, 1)))
    first = _exact([[0, 1], [1, 0]], [[2, 0], [0, 2]])
    second = _exact([[1, 0], [0, 1]], [[0, 2], [2, 0]])
    same = (net.end_to_end(first) == net.end_to_end(second)).all() and _invariant(
        first
    ) == _invariant(second) == 6
    K, L = fs.filter_kernel(net, first), fs.filter_kernel(net, second)
    full = (
        exact_jacobian_rank(net, first)
        == exact_jacobian_rank(net, second)
        == fs.neuromanifold_dimension(net)
        == 7
    )
    over = fs.fiber(net, net.end_to_end(first), 6.0)
    refuted = bool(
        same and full and (K != L).any() and len(over) == 4 and fs.is_smooth(net, over.v)
    )
    return Claim(
        "Thm 13",
        "D > 1, two sizes > 1 in every layer, any δ, smooth v: 2^{H−1} parameters over (v, δ), "
        "one NTK",
        "w_1 = y_1 + y_2, w_2 = 2 + 2 y_1 y_2 and w_1' = 1 + y_1 y_2, w_2' = 2 y_1 + 2 y_2: same "
        "v, δ = 6, "
        f"{len(over)} tuples (printed: 2), K[0,0] = {K[0, 0]} and {L[0, 0]}",
        not refuted,
        "exact integers; dμ has rank 7 = dim M at both. Like layers can be swapped; the swap "
        "sends δ to −δ, and after "
        "rescaling back to δ the "
        "kernel differs unless the swapped filters have equal norms",
    )


def observation_11() -> Claim:
    """The swap itself: K unchanged, δ reversed; and t_l = t_L also in one dimension."""
    net = LinearConvNet((2, 2), (1, 1))
    a, b = _exact([1, 1], [1, 2])
    same = (fs.filter_kernel(net, (a, b)) == fs.filter_kernel(net, (b, a))).all()
    reversed_ = _invariant((a, b)) == -_invariant((b, a)) != 0
    dilations = net.dilations
    return Claim(
        "Obs 11",
        "t_l = t_L for l < L can only happen if D > 1",
        f"D = 1, sizes (2, 2), stride 1: t_1 = t_2 = {dilations[0][0]}",
        not bool(dilations[0] == dilations[1] and same and reversed_),
        "11 b) holds as an identity of kernels, but the swap maps Θ_δ to Θ_{−δ}, which the proof "
        "of Thm 13 overlooks",
    )


def table_1_high_dimension() -> Claim:
    """Table 1 omits the hypothesis on sizes: a D = 2 net with sizes (3,1), (2,1) is
    one-dimensional.
    """
    net = LinearConvNet(((3, 1), (2, 1)), ((1, 1), (1, 1)))
    over = fs.fiber(net, np.array([[0], [1], [1], [0]]), 0.0)
    return Claim(
        "Table 1",
        "high-dim convolutions: NTK parameter independent for all δ and all strides",
        f"filters 3×1 and 2×1, v = x²y + xy², δ = 0: {over.factorisations} factorisations, "
        f"kernels {over.kernel_spread:.3f} apart",
        over.kernel_spread == 0,
        "Table 1 and Sec 1.2 leave out 'at least two filter sizes > 1 in every layer'; this is Ex "
        "19 again",
    )


def table_1_one_dimension() -> Claim:
    """Stride one, all sizes two, balanced: independent although a stride is one."""
    net = LinearConvNet((2, 2), (1, 1))
    v = np.array([1, 3, 2])
    over, unbalanced = fs.fiber(net, v, 0.0), fs.fiber(net, v, 1.0)
    return Claim(
        "Table 1",
        "1-dim convolutions with a stride of one: generally parameter dependent",
        f"sizes (2, 2), stride 1, v = (x + y)(x + 2y): kernels {over.kernel_spread:.1e} apart at "
        "δ = 0, "
        f"{unbalanced.kernel_spread:.3f} at δ = 1",
        "partly",
        "with all sizes 2 and δ = 0 the tuples are permutations of filters of equal norm, so the "
        "kernel is one; "
        "sizes (3, 2): independent for every δ over the open set of cubics with one real root",
    )


def singular_points_exist() -> Claim:
    """Stride one, sizes (3, 2): M = ℝ⁴ has no singular point."""
    net = LinearConvNet((3, 2), (1, 1))
    rng = np.random.default_rng(0)
    points = [
        np.zeros(4),
        np.array([1, 3, 3, 1]),
        np.array([0, 0, 0, 1]),
        *rng.integers(-3, 4, (200, 4)),
    ]
    smooth = sum(bool(fs.is_smooth(net, v)) for v in points)
    return Claim(
        "Sec 2",
        "if H > 1, the neuromanifold has singular points",
        f"sizes (3, 2), stride 1: M = ℝ⁴ (Ex 19), {smooth} of {len(points)} points smooth, 0 "
        "among them",
        smooth < len(points),
        "true when s_1, …, s_{H−1} > 1",
    )


def two_descriptions() -> Claim:
    """The two printed descriptions of the singular locus disagree over the reals."""
    net, small = LinearConvNet((5, 2), (2, 1)), LinearConvNet((4,), (1,))
    params = _exact([1, 0, 0, 0, 1], [1, 1])
    v = net.end_to_end(params)
    rank, over = exact_jacobian_rank(net, params), fs.fiber(net, v, 0.0)
    inside = (v[::2] == small.end_to_end(_exact([1, 1, 1, 1]))).all() and not v[1::2].any()
    disagree = bool(
        inside and rank == fs.neuromanifold_dimension(net) == 6 and over.factorisations == 1
    )
    return Claim(
        "Sec 2 / 2.1",
        "the singular locus is 0 and the smaller neuromanifolds of the same strides; it is the v "
        "with several tuples or a rank drop",
        "sizes (5, 2), strides (2, 1), v = (x⁴ + y⁴)(x² + y²): in the neuromanifold of sizes (1, "
        "4), "
        f"yet {over.factorisations} real tuple up to scalars, rank {rank} = dim M",
        not disagree,
        "over ℂ there are three tuples; over ℝ only one, and M is a manifold near v. The first "
        "description is that of the "
        "complex variety, the second that of the real M. (Were k_l > 1 asked of the smaller nets "
        "too, only sizes (3, 3) "
        "would remain, which "
        "over ℝ is not contained in M.) Thm 4 holds either way",
    )


def dense_any_width() -> Claim:
    """Width one: the kernel depends on W and Δ only; and Δ = c·I behaves like Δ = 0."""
    chain = (np.array([[Fraction(2)]], object), np.array([[Fraction(3)]], object))
    mates = fs.level_set_sample(tuple(W.astype(float) for W in chain), 5)
    spread = max(
        fs.kernel_distance(fs.dense_kernel(chain).matrix.astype(float), fs.dense_kernel(m).matrix)
        for m in mates
    )
    return Claim(
        "Ex 20",
        "the example generalises to any depth and width",
        f"width 1, W = 6, Δ = 5: {len(mates)} tuples, kernels {spread:.1e} apart",
        spread > 1e-7,
        "w_2² − w_1² and w_2 w_1 fix both weights up to a common sign; from width 2 on the claim "
        "holds for generic Δ, "
        "but not for Δ = c·I (see the table)",
    )


def all_findings() -> list[Claim]:
    """Every statement that failed, or holds only in part."""
    return [
        theorem_13(),
        observation_11(),
        table_1_high_dimension(),
        table_1_one_dimension(),
        singular_points_exist(),
        two_descriptions(),
        dense_any_width(),
    ]
