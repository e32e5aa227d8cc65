"""`bottleneck`, the statements of Sec. 4 about layers; their measurements are in `layers`.
[bottleneck, Sec. 4]
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from neuromanifold.bottleneck import planarity_bound
from neuromanifold.bottleneck.kernel import PlanarityBound
from neuromanifold.models.mlp import MLP, Params
from neuromanifold_papers.bottleneck.statements import layers
from neuromanifold_papers.bottleneck.statements.cases import Case, network, show, statement
from neuromanifold_papers.bottleneck.statements.first import networks
from neuromanifold_papers.statement import Control

_WELL_POSED = "points where Jf(x) has a condition below 10⁸"
_ONE_SMALLER = Control(
    "c₁ one smaller, at the identity",
    case=lambda: network([[[1.0]], [[1.0]]], [[1.0]]),
    breaks={"allowed": lambda frames: layers.budget(frames) - 1},
)


def _one_direction_less(
    net: MLP, params: Params, x: np.ndarray, *, rank: int, averaged: bool
) -> PlanarityBound:
    """The values of one rank less, against the bound of this one."""
    found, less = (
        planarity_bound(net, params, x, rank=k, averaged=averaged) for k in (rank, rank - 1)
    )
    return replace(found, values=less.values)


def _show_far(case: Case) -> str:
    if case.kind != "one far point":
        return show(case)
    square = round(1 / float(case.params[0].weight[1, 1]) ** 2)
    return (
        "from fractions import Fraction\nfrom neuromanifold_papers.bottleneck.statements.layers "
        "import far_point\n"
        f"case = far_point({len(case.x)}, Fraction(1, {square}), {float(case.x[0, 0])})"
    )


THM6 = statement(
    "Thm 6",
    "Thm 6",
    "‖θ‖² ≤ kL + c₁ and rank Jf(x) = k: some semi-orthogonal U_l, V_l have Σ ‖W_l − U_lV_{l-1}ᵀ‖² "
    "+ ‖b_l‖² ≤ "
    "c₁ − 2 log|Jf(x)|₊",
    method="float64",
    cases=networks,
    measure=layers.measure_closest,
    show=show,
    control=_ONE_SMALLER,
)
THM6_LAYERS = statement(
    "Thm 6 (layers)",
    "Thm 6",
    "for every p in (0, 1) at least (1 − p)L layers have ‖W_l − U_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ (c₁ − 2 "
    "log|Jf(x)|₊)/(pL)",
    method="float64",
    cases=layers.several_layers,
    measure=layers.measure_layer_count,
    show=show,
    control=Control(
        "two thirds of the bound, at two layers of weight 4: it is passed by the second largest "
        "only",
        case=lambda: network([[[4.0]], [[4.0]]], [[1.0]]),
        breaks={"share": lambda total, m: layers.layer_share(total, m) / 1.5},
    ),
)
CARRIED = statement(
    "Thm 6 (shared V) amended",
    "Thm 6",
    "with one V_l a layer, Σ ‖W_l − V_lV_{l-1}ᵀ‖² + ‖b_l‖² ≤ c₁ − 2 log|Jf(x)|₊ for slopes in [0, "
    "1]: carry "
    "V_l forward from the row space of Jf(x)",
    method="float64",
    cases=layers.nonnegative_slopes,
    measure=layers.measure_carried,
    show=show,
    control=_ONE_SMALLER,
    proof="Let V_0 be a basis of the row space of Jf(x), and D_lW_lV_{l-1} = V_lP_l the polar "
    "decomposition, D_l the "
    "slopes at x, D_L = 1. Then JfV_0 = V_LP_L⋯P_1, so Π det P_l = |Jf|₊. Where D_l has zeros V_l "
    "has zero rows, "
    "elsewhere W_lV_{l-1} = D_l⁻¹V_lP_l with D_l⁻¹ ≥ 1, so Tr V_lᵀW_lV_{l-1} ≥ Tr P_l ≥ k + log "
    "det P_l. Hence Σ "
    "‖W_l − V_lV_{l-1}ᵀ‖² + ‖b_l‖² = Σ ‖W_l‖² + ‖b_l‖² + k − 2 Tr V_lᵀW_lV_{l-1} ≤ ‖θ‖² − kL − 2 "
    "log|Jf|₊.",
)
SHARED = statement(
    "Thm 6 (shared V)",
    "Thm 6",
    "the main text's form with one semi-orthonormal V_l a layer, σ_a with a in (−1, 1): Σ ‖W_l − "
    "V_lV_{l-1}ᵀ‖² "
    "≤ c₁ − 2 log|Jf(x)|₊",
    method="float64",
    cases=layers.one_neuron_wide,
    measure=layers.measure_shared,
    show=show,
    narrower="layers (1, w, 1), where the best V_1 is known in closed form; points with Jf(x) ≠ 0",
    control=_ONE_SMALLER,
    confirm=layers.confirm_shared,
    route="scan over V_1 against a budget in fractions",
    worked="""
With slope a = −½ on the left, W₁ = (4/5, −3/5)ᵀ, W₂ = (4/5, 3/5), x = 1: the second neuron is reflected, D₁W₁ = (4/5, 3/10)ᵀ,
Jf = 41/50 and c₁ = ‖θ‖² − 2 = 0, so the budget is −2 log(41/50) = 0.397 ≤ 18/41. But V₁ must be close to ±W₁ and to ±W₂ᵀ at
once: ‖W₁ − V₁V₀ᵀ‖² + ‖W₂ − V₂V₁ᵀ‖² ≥ 4 − 2 max‖W₁ ± W₂ᵀ‖ = 4 − 2·(8/5) = 4/5. With U_l and V_l apart, as in the appendix, the
theorem holds here.
""",
    amended=CARRIED,
)
FORWARD = replace(
    CARRIED,
    id="Thm 6 (proof's factors) amended",
    says="with factors carried forward from the row space of Jf(x), slopes in [0, 1], the sum "
    "stays within the budget",
)
APPENDIX = statement(
    "Thm 6 (proof's factors)",
    "Thm 6",
    "the appendix's U_l, V_{l-1}, from the SVD of W_l projected onto the row space of J(α̃_l → f) "
    "and the "
    "image of Jα_{l-1}, stay within the budget",
    method="float64",
    cases=layers.appendix_cases,
    measure=layers.measure_appendix,
    show=show,
    narrower="points with Jf(x) ≠ 0",
    control=_ONE_SMALLER,
    confirm=layers.confirm_appendix,
    route="fractions, with −2 log J ≤ 2(1 − J)/J",
    worked="""
W₁ = (4/5, 3/5)ᵀ, W₂ = (1, 0), ReLU, x = 1: Jf = 4/5, k = 1, ‖θ‖² = 2, so c₁ = 0 and the budget is −2 log(4/5) = 0.446. Layer 1
is projected onto the row space of J(α̃₁ → f) = (1, 0): U₁ = (1, 0)ᵀ and ‖W₁ − U₁‖² = 1/25 + 9/25 = 2/5. Layer 2 is projected
onto the image of Jα₁, (4/5, 3/5): V₁ = (4/5, 3/5) and ‖W₂ − V₁ᵀ‖² = 2/5. Together 4/5 > 0.446. The proof's identity log|Jf|₊ =
Σ log|P_lW_lQ_{l-1}|₊ + … loses the angle between the two spaces: each factor here is 4/5, their product 16/25. With V₁ = U₁ =
(4/5, 3/5) the sum is 2/5 and the theorem holds.
""",
    amended=FORWARD,
)
TRACE = statement(
    "trace",
    "trace",
    "Tr Θ(x, x) = Σ_l (‖α_{l-1}(x)‖² + [bias]) ‖J(α̃_l → f)(x)‖²_F",
    method="exact",
    cases=layers.traced,
    measure=layers.measure_trace,
    show=show,
    control=Control(
        "without the biases' share: (1, 1), f = x",
        case=lambda: network([[[1.0]]], [[1.0]], biases=[[0.0]]),
        breaks={"bias": False},
    ),
)
UNBIASED_TRACE = statement(
    "trace (without biases)",
    "trace",
    "Tr Θ(x, x) = Σ_l ‖α_{l-1}(x)‖² ‖J(α̃_l → f)(x)‖²_F, as the appendix prints it, for the "
    "networks of the "
    "setup, which have biases",
    method="exact",
    cases=layers.biased_traces,
    measure=lambda case, formula=layers.trace_formula: layers.measure_trace(
        case, bias=False, formula=formula
    ),
    show=show,
    control=Control(
        "twice the sum: (1, 1) without biases, f = x",
        case=lambda: network([[[1.0]]], [[1.0]]),
        breaks={"formula": lambda case, bias: 2 * layers.trace_formula(case, bias)},
    ),
    confirm=layers.confirm_trace,
    route="nm.ntk(…, trace=True)",
    worked="""
f(x) = wx + b at w = 1, b = 0, x = 1: ∂f/∂w = x and ∂f/∂b = 1, so Θ(x, x) = x² + 1 = 2, while the printed sum is ‖α₀‖² = x² = 1.
Each layer lacks the share ‖J(α̃_l → f)‖² of its bias. Theorem 7 and Corollary 8 only need that the sum is at most the trace,
which it is.
""",
    amended=replace(
        TRACE,
        id="trace (without biases) amended",
        cases=layers.biased_traces,
        proof="The chain rule: ∂f/∂W_l = J(α̃_l → f) ⊗ α_{l-1} and ∂f/∂b_l = J(α̃_l → f).",
    ),
)
THM7 = statement(
    "Thm 7",
    "Thm 7",
    "balanced, ‖θ‖² ≤ kL + c₁, rank Jf(x) = k, Tr Θ(x, x) ≤ cL: Σ_l ‖α_{l-1}(x)‖² ≤ c·max{1, "
    "e^{c₁/k}} "
    "L/(k|Jf(x)|₊^{2/k})",
    method="float64",
    cases=layers.balanced_networks,
    measure=layers.measure_activations,
    show=show,
    narrower=_WELL_POSED,
    control=Control(
        "not balanced: f = x as 11/10 and then 10/11",
        case=lambda: network([[[1.1]], [[1 / 1.1]]], [[1.0]]),
    ),
)
THM7_LAYERS = statement(
    "Thm 7 (layers)",
    "Thm 7",
    "and for every p in (0, 1) at least (1 − p)L layers have ‖α_{l-1}(x)‖² ≤ c·max{1, "
    "e^{c₁/k}}/(p k|Jf(x)|₊^{2/k})",
    method="float64",
    cases=layers.balanced_chains,
    measure=lambda case, share=layers.layer_share: layers.measure_activations(
        case, layers=True, share=share
    ),
    show=show,
    narrower=_WELL_POSED,
    control=Control(
        "half the bound, at f = x in two layers",
        case=lambda: network([[[1.0]], [[1.0]]], [[1.0]]),
        breaks={"share": lambda total, m: layers.layer_share(total, m) / 2},
    ),
)
POINTWISE = statement(
    "Cor 8 amended",
    "Cor 8",
    "the same with the trace of each point in its own term, (1/N) Σ_i (Tr Θ(x_i, x_i)/L)·max{1, "
    "e^{c₁/k}}/(k|Jf(x_i)|₊^{2/k}), for every x among the x_i in the first factor",
    method="float64",
    cases=layers.planar_cases,
    draws=20,
    measure=lambda case, averaged=False: layers.measure_planarity(case, averaged=averaged),
    show=show,
    narrower=_WELL_POSED,
    control=Control(
        "the averaged trace, with one far point of 1024",
        case=lambda: layers.far_point(1024, Fraction(1, 32), 100.0),
        breaks={"averaged": True},
    ),
    proof="The paper's, with Theorem 7 at each x_i before the mean is taken.",
)
COR8 = statement(
    "Cor 8",
    "Cor 8",
    "balanced, (1/N) Tr Θ(X, X) ≤ cL, rank Jf(x_i) = k: for every p in (0, 1) at least (1 − p)L "
    "layers have "
    "s_{k+1}(α̃_l(X)/√N) ≤"
    " √(c₁ − 2 log|Jf(x)|₊)·(√((1/N) Σ_i c·max{1, e^{c₁/k}}/(k|Jf(x_i)|₊^{2/k})) + √p)/(p√L); the "
    "x of the first factor, left "
    "open, is read as any of the x_i, as Thm 6 allows",
    method="float64",
    cases=layers.planar_cases,
    draws=20,
    measure=lambda case, bound=planarity_bound: layers.measure_planarity(
        case, averaged=True, bound=bound
    ),
    show=_show_far,
    narrower=_WELL_POSED,
    control=Control(
        "s₂ instead of s₃, at the identity of the plane",
        case=lambda: network([np.eye(2)] * 2, np.eye(2) + 1.0),
        breaks={"bound": _one_direction_less},
    ),
    confirm=layers.confirm_planarity,
    route="by hand, e^{2η²} bounded by its series",
    worked="""
f(x) = σ(x₁) + η²σ(x₂) with W₁ = diag(1, η), W₂ = (1, η): balanced, k = 1, c₁ = 2η². Take N − 1 points (M, 0), where |Jf| = 1,
and one at (0, M√N/η), where |Jf| = η² is small and the activations are large. Then s₂(α̃₁(X)/√N) ≈ M. In the printed bound the
far point's trace is averaged over the sample, (1/N) Tr Θ(X, X) ≈ 4M² = 2c, and its 1/|Jf|² = η⁻⁴ too, so that at p = ½ and η⁴ =
1/N the bound squared is about 2·2η²·2M²·e^{2η²}·(1 + 1) = 16 M² e^{2/√N}/√N, below M² for large N. At N = 400, M = 100: s₂² =
9975 and the bound squared is 8879; one layer of the two, more than any fraction p < ½, lies above. Theorem 7 gives the product
of trace and 1/|Jf|² point by point, and the far point has both. The statement leaves open which x stands in the first factor;
here it is any of the N − 1.
""",
    amended=POINTWISE,
)
STATEMENTS = (THM6, THM6_LAYERS, SHARED, APPENDIX, TRACE, UNBIASED_TRACE, THM7, THM7_LAYERS, COR8)
