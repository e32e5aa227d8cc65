"""`bottleneck`, narrow minima: Proposition 9, at a point and on a segment.   [bottleneck, P 9]"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import kernel_curvature, segment_bound
from neuromanifold_papers.bottleneck.statements.cases import (
    EPS,
    SLOPES,
    SMALL,
    Case,
    biased_lattice,
    chain,
    compare,
    lattice,
    network,
    outputs,
    parameter_gradients,
    random_networks,
    show,
    worst,
)
from neuromanifold_papers.check import Check, at_least, outside
from neuromanifold_papers.statement import control, statement

_RELU = (0.0, 1.0)


def printed_constant(case: Case) -> float:
    """2L."""
    return 2.0 * case.net.depth


def proved_constant(case: Case) -> float:
    """L, what the proof gives."""
    return float(case.net.depth)


def sloped_constant(case: Case) -> float:
    """L for ReLU and linear networks, L|a|^{2−2/L} for the slope a ≠ 0 on the left."""
    return case.net.depth * (
        1.0 if case.slope == 0 else abs(case.slope) ** (2 - 2 / case.net.depth)
    )


def curved_networks(
    slopes: Sequence[float] | None, shapes: Sequence[tuple[int, ...]] = SMALL
) -> Any:
    """Chains of equal weights of every depth, every network of these small shapes, random ones."""

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = SLOPES if slopes is None else slopes
        for depth, slope, x in itertools.product((1, 2, 3, 8), chosen, (1.0, -1.0)):
            yield chain(1.0, depth, x, slope=slope)
        yield from lattice(shapes, chosen)
        yield from biased_lattice(chosen)
        yield from random_networks(rng, 2 * draws, slopes=slopes)

    return cases


Constant = Callable[[Case], float]


def measure_curvature(case: Case, constant: Constant) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op against constant·‖Jf(x)‖^{2−2/L}, at each point."""
    found = kernel_curvature(case.net, case.params, case.x)
    pairs = zip(found.value, constant(case) * found.jacobian_power, strict=True)
    rounding = 64 * EPS * case.net.depth
    return worst(
        (
            compare(float(v), ">=", float(bound), rounding * (1 + float(v + bound)))
            for v, bound in pairs
        ),
        case.hypotheses,
    )


def measure_proved(case: Case, constant: Constant = proved_constant) -> Check:
    return measure_curvature(case, constant)


def _kernel(case: Case, x: float, y: float) -> float:
    """Θ(x, y) of a network ℝ → ℝ from exact derivatives."""
    moved = parameter_gradients(replace(case, x=np.array([[x], [y]])))
    return float(moved[0, 0] @ moved[1, 0])


def confirm_curvature(case: Case, constant: Any) -> Check:
    """ℝ → ℝ: the mixed difference of Θ from exact derivatives; Θ is bilinear inside a region, so
    it is the mixed derivative.
    """
    step, x = 2.0**-6, float(case.x[-1, 0])
    mixed = (
        _kernel(case, x + step, x + step)
        - _kernel(case, x, x + step)
        - _kernel(case, x + step, x)
        + _kernel(case, x, x)
    ) / step**2
    jump = outputs(case.net, case.params, np.array([[x], [x + step]]))
    J = abs(float(jump[1, 0] - jump[0, 0])) / step
    return at_least(mixed, constant(case) * J ** (2 - 2 / case.net.depth), 1e-9)


def segments(slopes: Sequence[float] | None) -> Any:
    """Two ends each: on chains of every slope, on networks with weights −1, 0, 1, then short
    segments of random networks.
    """

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = (0.0, 1.0, 0.5, -0.5, 0.125, -0.125) if slopes is None else slopes
        for depth, slope in itertools.product((2, 1, 3), chosen):
            for ends in ((1.0, 2.0), (-1.0, -0.125), (0.125, 1.0), (-2.0, -1.0)):
                yield network([[[1.0]]] * depth, [[ends[0]], [ends[1]]], slope=slope, kind="chain")
        for depth in (1, 2, 4):
            yield network([[[1.0]]] * depth, [[-1.0], [1.0]], slope=1.0, kind="chain")
        for case in lattice(((1, 1, 1), (1, 2, 1), (2, 1, 2)), (0.0, 0.5, -0.5)):
            ends = [[1.0], [2.0]] if case.x.shape[1] == 1 else [[2.0, 1.0], [3.0, 1.0]]
            yield replace(case, x=np.array(ends))
        for case in random_networks(rng, 4 * draws, slopes=slopes, points=2):
            step = 10.0 ** rng.uniform(-2, 0.5) * rng.normal(size=case.x.shape[1])
            yield replace(case, x=np.stack([case.x[0], case.x[0] + step]))

    return cases


def segment_constant(case: Case) -> float:
    """What L/4 becomes for slopes other than 0 and 1."""
    return sloped_constant(case) / case.net.depth


def measure_segment(case: Case, *, sloped: bool, factor: float = 1.0) -> Check:
    """max ‖Θ‖_op over both ends against (L/4)‖x − y‖²‖Jf(x)u‖^{2−2/L}, where no neuron changes
    its sign in between.
    """
    found = segment_bound(case.net, case.params, case.x)
    bound = found.bound * (segment_constant(case) if sloped else factor)
    rounding = 64 * EPS * case.net.depth * (1 + found.value)
    drops = outside("x and y are not in one region", when=not found.one_region)
    return compare(found.value, ">=", bound, rounding, hypotheses=case.hypotheses, drops=drops)


def confirm_segment(case: Case) -> Check:
    """ℝ → ℝ: Θ at both ends from exact derivatives, Jf from the difference of f over the
    segment.
    """
    ends = case.x[:, 0]
    value = max(_kernel(case, float(x), float(x)) for x in ends)
    y = outputs(case.net, case.params, case.x)[:, 0]
    length, L = float(abs(ends[1] - ends[0])), case.net.depth
    return at_least(
        value, L / 4 * length**2 * float(abs(y[1] - y[0]) / length) ** (2 - 2 / L), 1e-9
    )


_ONE = chain(1.0, 1, 1.0)


_HALF = chain(1.0, 2, -1.0, slope=0.5)


_SHALLOW = network([[[1.0]]] * 2, [[-1.0], [-0.125]], slope=0.125)


_PROOF = (
    "Let B_l = J(α̃_l → f)(x), u, v with vᵀJf(x)u = s = ‖Jf(x)‖. Then ∂²_{xy}Θ ≥ Σ_l "
    "‖Jα_{l-1}u‖²‖B_lᵀv‖² along (u, v), and by the means "
    "this is at least L(Π_l ‖Jα_{l-1}u‖‖B_lᵀv‖)^{2/L}. In the product ‖Jα_0u‖ = 1 = ‖B_Lᵀv‖, and "
    "the L − 1 pairs ‖B_lᵀv‖‖Jα_lu‖ are at "
    "least s, as B_l = B_lD_l for ReLU gives s = vᵀB_lJα_lu. "
)


proved = statement(
    "P 9 amended",
    curved_networks(_RELU),
    control("2L, at f = x", lambda: _ONE, constant=printed_constant),
    amends="P 9",
    method="float64",
    show=show,
    proof=_PROOF,
    says="‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op for ReLU and linear networks",
)(measure_proved)


@statement(
    "P 9",
    curved_networks(None, ((1, 1), (1, 1, 1), (1, 2, 1))),
    control(
        "3L, at f = 2x in two layers of weight √2",
        lambda: chain(math.sqrt(2), 2, 1.0),
        constant=lambda case: 3.0 * case.net.depth,
    ),
    method="float64",
    show=show,
    confirm=lambda case: confirm_curvature(case, printed_constant),
)
def printed(case: Case, constant: Constant = printed_constant) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op ≥ 2L‖Jf(x)‖^{2−2/L}_op."""
    return measure_curvature(case, constant)


@statement(
    "P 9 (slopes) amended",
    curved_networks(None),
    control("L for the slope ½", lambda: _HALF, constant=proved_constant),
    amends="P 9 (slopes)",
    method="float64",
    show=show,
    proof=_PROOF
    + "For the slope a, s = vᵀB_lD_l⁻¹Jα_lu and |D_l⁻¹| ≤ 1/|a|: each pair is at least |a|s.",
)
def measure_sloped(case: Case, constant: Constant = sloped_constant) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op ≥ L|a|^{2−2/L}‖Jf(x)‖^{2−2/L}_op for the slope a ≠ 0 on the left, with
    1 instead of |a| for ReLU.
    """
    return measure_curvature(case, constant)


slopes_too = statement(
    "P 9 (slopes)",
    curved_networks(None, ((1, 1), (1, 1, 1), (1, 2, 1))),
    control("2L, at f = x", lambda: _ONE, constant=printed_constant),
    method="float64",
    show=show,
    confirm=lambda case: confirm_curvature(case, proved_constant),
    says="‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op, the constant of the proof, for every σ_a with a in (−1, 1)",
)(measure_proved)


@statement(
    "P 9 (segment) amended",
    segments(None),
    control("slope 1/8 with 1 instead of |a|", lambda: _SHALLOW, sloped=False),
    amends="P 9 (segment)",
    method="float64",
    show=show,
)
def sloped_segment(case: Any, sloped: Any = True) -> Check:
    """For x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)|a|^{2−2/L}‖x −
    y‖²‖Jf(x)u‖^{2−2/L}, with 1 instead of |a| for ReLU and linear networks.
    """
    return measure_segment(case, sloped=sloped)


@statement(
    "P 9 (segment)",
    segments(None),
    control(
        "L instead of L/4, at the line [−1, 1]",
        lambda: network([[[1.0]]], [[-1.0], [1.0]], slope=1.0),
        factor=4.0,
    ),
    method="float64",
    show=show,
    confirm=confirm_segment,
)
def segment(case: Any, factor: Any = 1.0) -> Check:
    """For x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)‖x − y‖²‖Jf(x)u‖^{2−2/L}, u =
    (y − x)/‖y − x‖, for every σ_a with a in (−1, 1).
    """
    return measure_segment(case, sloped=False, factor=factor)


STATEMENTS = (printed, slopes_too, segment)
