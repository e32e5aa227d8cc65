"""`bottleneck`, narrow minima: Proposition 9, at a point and on a segment.   [bottleneck, P 9]"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import kernel_curvature, segment_bound
from neuromanifold_papers.bottleneck.statements import cases
from neuromanifold_papers.bottleneck.statements.cases import (
    EPS,
    SLOPES,
    Case,
    chain,
    compare,
    network,
    of_networks,
    outputs,
    worst,
)
from neuromanifold_papers.check import Check, at_least, outside
from neuromanifold_papers.statement import control

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
    slopes: Sequence[float] | None, shapes: Sequence[tuple[int, ...]] = cases.SMALL
) -> Any:
    """Chains of equal weights of every depth, every network of these small shapes, random ones."""

    def nets(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = SLOPES if slopes is None else slopes
        for depth, slope, x in itertools.product((1, 2, 3, 8), chosen, (1.0, -1.0)):
            yield chain(1.0, depth, x, slope=slope)
        yield from cases.lattice(shapes, chosen)
        yield from cases.biased_lattice(chosen)
        yield from cases.random_networks(rng, 2 * draws, slopes=slopes)

    return nets


Constant = Callable[[Case], float]


def _kernel(case: Case, x: float, y: float) -> float:
    """Θ(x, y) of a network ℝ → ℝ from exact derivatives."""
    moved = cases.parameter_gradients(replace(case, x=np.array([[x], [y]])))
    return float(moved[0, 0] @ moved[1, 0])


def confirm_curvature(case: Case, constant: Any) -> Check:
    """ℝ → ℝ: the mixed difference of Θ from exact derivatives; Θ is bilinear inside a region, so
    it is the mixed derivative.
    """
    step, x = 2.0**-6, float(case.x[-1, 0])
    ends = itertools.product(((x + step, 1), (x, -1)), repeat=2)
    mixed = sum(s * t * _kernel(case, a, b) for (a, s), (b, t) in ends) / step**2
    J = abs(float(np.diff(outputs(case, np.array([[x], [x + step]])), axis=0).item())) / step
    return at_least(mixed, constant(case) * J ** (2 - 2 / case.net.depth), 1e-9)


def segments(slopes: Sequence[float] | None) -> Any:
    """Two ends each: on chains of every slope, on networks with weights −1, 0, 1, then short
    segments of random networks.
    """

    def nets(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = (0.0, 1.0, 0.5, -0.5, 0.125, -0.125) if slopes is None else slopes
        yield network([[[1.0]]], [[-1.0], [1.0]], kind="chain")
        yield network([[[1.0]]] * 3, [[0.125], [2.0]], kind="chain")
        yield network([[[1.0]]] * 2, [[1.0], [-3.0]], kind="chain")
        for depth, slope in itertools.product((2, 1, 3), chosen):
            for ends in ((1.0, 2.0), (-1.0, -0.125), (0.125, 1.0), (-2.0, -1.0)):
                yield network([[[1.0]]] * depth, [[ends[0]], [ends[1]]], slope=slope, kind="chain")
        for case in cases.lattice(((1, 1, 1), (1, 2, 1), (2, 1, 2)), (0.0, 0.5, -0.5)):
            ends = [[1.0], [2.0]] if case.x.shape[1] == 1 else [[2.0, 1.0], [3.0, 1.0]]
            yield replace(case, x=np.array(ends))
        for case in cases.random_networks(rng, 4 * draws, slopes=slopes, points=2):
            step = 10.0 ** rng.uniform(-2, 0.5) * rng.normal(size=case.x.shape[1])
            yield replace(case, x=np.stack([case.x[0], case.x[0] + step]))

    return nets


def confirm_segment(case: Case) -> Check:
    """ℝ → ℝ: Θ at both ends from exact derivatives, Jf from the difference of f over the
    segment.
    """
    value = max(_kernel(case, float(x), float(x)) for x in case.x[:, 0])
    length, rise = (float(abs(np.diff(y, axis=0).item())) for y in (case.x, outputs(case)))
    L = case.net.depth
    return at_least(value, L / 4 * length**2 * (rise / length) ** (2 - 2 / L), 1e-9)


_TWICE = control(
    "2L, at f = max(x, 0)",
    lambda: network([[[1.0]]] * 2, [[1.0], [-1.0]]),
    constant=printed_constant,
)
_HALF = network([[[1.0]]] * 2, [[-1.0], [1.0]], slope=0.5)
_SHALLOW = network([[[1.0]]] * 2, [[-1.0], [-0.125]], slope=0.125)


@of_networks(
    "P 9",
    curved_networks(None, ((1, 1), (1, 1, 1), (1, 2, 1))),
    control(
        "3L, at f = 4x in layers of weights 1 and 4",
        lambda: network([[[1.0]], [[4.0]]], [[1.0]]),
        constant=lambda case: 3.0 * case.net.depth,
    ),
    confirm=lambda case: confirm_curvature(case, printed_constant),
)
def printed(case: Case, constant: Constant = printed_constant) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op ≥ 2L‖Jf(x)‖^{2−2/L}_op."""
    found = kernel_curvature(case.net, case.params, case.x)
    bounds, rounding = constant(case) * found.jacobian_power, 64 * EPS * case.net.depth
    pairs = [(float(v), float(bound)) for v, bound in zip(found.value, bounds, strict=True)]
    return worst(compare(v, ">=", bound, rounding * (1 + v + bound)) for v, bound in pairs)


measure_proved = printed.amend(
    _TWICE,
    cases=curved_networks(_RELU),
    constant=proved_constant,
)("‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op for ReLU and linear networks.")


@of_networks(
    "P 9 (slopes)",
    curved_networks(None, ((1, 1), (1, 1, 1), (1, 2, 1))),
    _TWICE,
    confirm=lambda case: confirm_curvature(case, proved_constant),
)
def slopes_too(case: Case, constant: Constant = proved_constant) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op, the constant of the proof, for every σ_a with a in (−1, 1)."""
    return printed(case, constant=constant)


measure_sloped = slopes_too.amend(
    control("L for the slope ½", lambda: _HALF, constant=proved_constant),
    cases=curved_networks(None),
    constant=sloped_constant,
)(
    "‖∂²_{xy}Θ(x, x)‖_op ≥ L|a|^{2−2/L}‖Jf(x)‖^{2−2/L}_op for the slope a ≠ 0 on the left, with "
    "1 instead of |a| for ReLU."
)


@of_networks(
    "P 9 (segment)",
    segments(None),
    control(
        "L instead of L/4, at the line [−1, 1]",
        lambda: network([[[1.0]]], [[-1.0], [1.0]], slope=1.0),
        factor=4.0,
    ),
    confirm=confirm_segment,
)
def segment(case: Case, factor: float = 1.0, sloped: bool = False) -> Check:
    """For x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)‖x − y‖²‖Jf(x)u‖^{2−2/L}, u =
    (y − x)/‖y − x‖, for every σ_a with a in (−1, 1).
    """
    found, L = segment_bound(case.net, case.params, case.x), case.net.depth
    bound = found.bound * (sloped_constant(case) / L if sloped else factor)
    drops = outside("x and y are not in one region", when=not found.one_region)
    return compare(found.value, ">=", bound, 64 * EPS * L * (1 + found.value), drops=drops)


sloped_segment = segment.amend(
    control("slope 1/8 with 1 instead of |a|", lambda: _SHALLOW, sloped=False), sloped=True
)(
    "For x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)|a|^{2−2/L}‖x − "
    "y‖²‖Jf(x)u‖^{2−2/L}, with 1 instead of |a| for ReLU and linear networks."
)
