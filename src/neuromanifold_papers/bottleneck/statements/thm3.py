"""`bottleneck`, the statements of Theorem 3; their measurements are in `first`.
[bottleneck, Thm 3]
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from neuromanifold_papers.bottleneck.statements import first
from neuromanifold_papers.bottleneck.statements.cases import chain, network, show, statement
from neuromanifold_papers.statement import NO_PROOF, Control

_ROW = "Thm 3"


def _domain(case: first.Lemma) -> str:
    return "[−1, 1]" if case[2] else "[0, 1]"


_SIGNED = network([[[1.0]]], [[1.0], [-1.0]], biases=[[0.0]])
_TWICE = (np.array([[2.0]]), np.ones((1, 1)))
"""A = (2) on the ray of 1."""

MAIN = statement(
    "Thm 3",
    _ROW,
    "R⁽¹⁾(f) ≥ 2 log|Jf(x)|₊ where rank Jf(x) = R⁽⁰⁾(f): ‖θ‖² − kL ≥ 2 log|Jf(x)|₊ for all θ, x "
    "and k = rank Jf(x)",
    method="float64",
    cases=first.networks,
    measure=first.measure_first,
    show=show,
    control=Control(
        "slopes outside (−1, 1): σ(z) = 3z on the left", case=lambda: chain(1.0, 2, -1.0, slope=3.0)
    ),
)
FINITE = statement(
    "Thm 3 (finite depth)",
    _ROW,
    "‖θ‖² ≥ L‖Jf(x)‖^{2/L}_{2/L} = L Σ s_i(Jf(x))^{2/L}",
    method="float64",
    cases=first.networks,
    measure=first.measure_finite,
    show=show,
    control=Control(
        "slopes outside (−1, 1): σ(z) = 3z on the left", case=lambda: chain(1.0, 2, -1.0, slope=3.0)
    ),
)
COMPOSITION = statement(
    "Thm 3 (1)",
    _ROW,
    "R⁽¹⁾(f∘g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f∘g) = R⁽⁰⁾(f) = R⁽⁰⁾(g)",
    method="float64",
    cases=first.matrix_pairs,
    measure=first.measure_composition,
    show=first.show_matrices,
    narrower=first.KNOWN,
    control=Control(
        "half of R⁽¹⁾(g)",
        case=lambda: (np.array([[2.0]]), np.array([[2.0]])),
        breaks={"bound": lambda f, g: f * g**0.5},
    ),
)
STACKED = statement(
    "Thm 3 (1, lemma) amended",
    _ROW,
    "R(f∘g; L₁ + L₂) ≤ R(f; L₁) + R(g; L₂) when g(Ω) is completely positive: rotated into the "
    "orthant, it "
    "passes the ReLU",
    method="float64",
    cases=first.nonnegative_pairs,
    measure=first.measure_stacked,
    show=first.show_matrices,
    constructive="the stacked network's ‖θ‖² stands for R(f∘g), those of f and g for their costs",
    control=Control(
        "f = g = x on [−1, 1]: the ReLU between them cuts", case=lambda: (_SIGNED, _SIGNED)
    ),
    proof="Where g(Ω) lies in the orthant the ReLU between the two networks does nothing: the "
    "stacked one is f∘g, and the norms add.",
)
LEMMA = statement(
    "Thm 3 (1, lemma)",
    _ROW,
    "R(f∘g; L₁ + L₂) ≤ R(f; L₁) + R(g; L₂), from which the proof of (1) starts",
    method="float64",
    cases=first.lemmas,
    measure=first.measure_lemma,
    show=lambda case: (
        "from fractions import Fraction\n"
        f"s, t = Fraction('{case[0]}'), Fraction('{case[1]}')  # f = s·x and g = t·x on "
        f"{_domain(case)}"
    ),
    control=Control(
        "a third of the right side",
        case=lambda: (Fraction(1), Fraction(1), False),
        breaks={"costs": lambda s, t: first.one_layer_costs(s, t) / 3},
    ),
    confirm=first.confirm_lemma,
    route="linear programme over neurons of every direction",
    worked="""
Take f = g = x on [−1, 1], one layer each: R(f; 1) = R(g; 1) = 1. Two layers have a ReLU between them. With neurons cᵢσ(aᵢx +
bᵢ), ‖θ‖² ≥ Σ (aᵢ² + bᵢ² + cᵢ²) ≥ 2 Σ |cᵢ|·|(aᵢ, bᵢ)|. Their sum takes the values ±1 at ±1 up to the output bias, so 2 = Σ
cᵢ(σ(aᵢ + bᵢ) − σ(bᵢ − aᵢ)) ≤ √2 Σ |cᵢ|·|(aᵢ, bᵢ)|, because σ(a + b) − σ(b − a) ≤ √2|(a, b)|. Hence ‖θ‖² ≥ 2√2 > 2 = 1 + 1. Part
(1) itself is about infinite depth and is not refuted by this.
""",
    amended=STACKED,
)
WITHOUT_BIASES = statement(
    "Thm 3 (2) amended",
    _ROW,
    "R⁽¹⁾(f + g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f + g) = R⁽⁰⁾(f) + R⁽⁰⁾(g), for networks without "
    "biases",
    method="float64",
    cases=first.without_biases,
    measure=first.measure_parallel,
    show=first.show_matrices,
    narrower="networks side by side at every depth, of which the statement is the limit, and "
    "linear maps",
    constructive="‖θ‖² of the networks side by side stands for R(f + g)",
    control=Control("output biases: f = g = ½", case=lambda: (Fraction(1, 2), Fraction(1, 2))),
    proof="Side by side, first layers stacked, last ones joined, blocks between: R(f + g; L) ≤ "
    "R(f; L) + R(g; L) at every depth. Subtract "
    "(R⁽⁰⁾(f) + R⁽⁰⁾(g))L and let L grow.",
)
SUM = statement(
    "Thm 3 (2)",
    _ROW,
    "R⁽¹⁾(f + g) ≤ R⁽¹⁾(f) + R⁽¹⁾(g) when R⁽⁰⁾(f + g) = R⁽⁰⁾(f) + R⁽⁰⁾(g)",
    method="float64",
    cases=first.sums,
    measure=first.measure_sum,
    show=first.show_matrices,
    narrower="on functions whose R⁽¹⁾ is known: constants of size at most 1, linear maps on "
    "completely positive domains",
    control=Control("ranks that do not add: f = g = x", case=lambda: (np.eye(1), np.eye(1))),
    confirm=first.confirm_constants,
    route="dynamic programme over the last four layers",
    worked="""
Constants have R⁽⁰⁾ = 0, so R⁽⁰⁾ adds. On a domain that holds 0, R(c; L) = c² for |c| ≤ 1 at every depth: the output bias alone
costs c², and nothing is cheaper, for c = b + w·r with r the size of the last hidden layer at 0, whose cost is by induction at
least r² if r ≤ 1 and at least 1 otherwise; in the first case ‖θ‖² ≥ b² + w² + r² ≥ b² + 2(c − b) ≥ c², as b ≤ c ≤ 1. So R⁽¹⁾(½)
= ¼, twice, and R⁽¹⁾(½ + ½) = 1 > ½. Two networks side by side add their output biases, not the squares of them.
""",
    amended=WITHOUT_BIASES,
)
ATTAINED = statement(
    "Thm 3 (3)",
    _ROW,
    "R⁽¹⁾(x ↦ Ax; Ω) = 2 log|A|₊ when P Ω and AΩ are completely positive of dimension rank A: the "
    "construction's ‖θ‖² − kL → 2 log|A|₊",
    method="float64",
    cases=first.constructions,
    measure=first.measure_construction,
    show=first.show_construction,
    narrower="ranks 1 and 2, where complete positivity is decided exactly; the rate 1/L is ours",
    control=Control(
        "a limit smaller by ½",
        case=lambda: (*_TWICE, 100),
        breaks={"rate": lambda s, depth: first.construction_rate(s, depth) - 0.5},
    ),
)
EXCHANGED = statement(
    "Thm 3 (3, interpolation) amended",
    _ROW,
    "with the kernels (1 − l/L)P + (l/L)AᵀA the construction's ‖θ‖² − kL tends to 2 log|A|₊",
    method="float64",
    cases=first.constructions,
    measure=lambda case, weights=first.exchanged_weights: first.measure_interpolation(
        case, weights
    ),
    show=first.show_construction,
    control=Control(
        "the printed weights",
        case=lambda: (*_TWICE, 3),
        breaks={"weights": first.printed_weights},
    ),
    proof="On each singular direction ‖θ‖² − L is Σ (κ_l/κ_{l-1} − 1) with κ from 1 to s² in "
    "equal steps, the left Riemann sum of ∫dκ/κ = "
    "2 log s, which it exceeds by (s² − 1)(1 − s⁻²)/L = (s − 1/s)²/L at most.",
)
INTERPOLATION = replace(
    EXCHANGED,
    id="Thm 3 (3, interpolation)",
    proof=NO_PROOF,
    says="with the kernels (l/L)P + (1 − l/L)AᵀA the construction's ‖θ‖² − kL tends to 2 log|A|₊ "
    "(appendix, proof "
    "of (3))",
    measure=lambda case, rate=first.construction_rate: first.measure_interpolation(
        case, first.printed_weights, rate
    ),
    confirm=first.confirm_interpolation,
    route="fractions",
    control=Control(
        "a limit smaller by 2",
        case=lambda: (np.eye(1), np.ones((1, 1)), 3),
        breaks={"rate": lambda s, depth: first.construction_rate(s, depth) - 2},
    ),
    worked="""
Layer 0 is the input and layer L the output, so the kernel must begin at P and end at AᵀA; as printed it begins beside AᵀA,
jumps there from P in the first layer and back in the last. For A = (2) and L = 3 the printed kernels are 1, 3, 2, 4, and ‖θ‖² =
3/1 + 2/3 + 4/2 = 17/3, which is 8/3 above L = 3, where 2 log 2 + (2 − ½)²/3 = 2.136 is the most that the exchanged weights
need. For L → ∞ the printed kernels leave 2(4 − 1) − 2 log 2 = 4.61 instead of 2 log 2 = 1.39.
""",
    amended=EXCHANGED,
)
STATEMENTS = (MAIN, FINITE, COMPOSITION, LEMMA, SUM, ATTAINED, INTERPOLATION)
