"""`bottleneck`, narrow minima: Proposition 9 and Theorem 10.   [bottleneck, Sec. 4.1]"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neuromanifold.bottleneck import (
    Interpolant,
    folded_interpolant,
    kernel_curvature,
    polyline_interpolant,
    segment_bound,
)
from neuromanifold.bottleneck.balance import balance
from neuromanifold.theorems.bottleneck_cases import (
    EPS,
    PAPER,
    SLOPES,
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
)
from neuromanifold.theorems.statement import Check, Control, Statement

_RELU = (0.0, 1.0)


def printed_constant(depth: int) -> float:
    """2L."""
    return 2.0 * depth


def proved_constant(depth: int) -> float:
    """L, what the proof gives."""
    return float(depth)


def sloped_constant(depth: int, slope: float) -> float:
    """L for ReLU and linear networks, L|a|^{2−2/L} for the slope a ≠ 0 on the left."""
    return depth * (1.0 if slope == 0 else abs(slope) ** (2 - 2 / depth))


def curved_networks(slopes: Sequence[float] | None) -> Any:
    """Chains of equal weights of every depth, every small network, random ones."""

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = SLOPES if slopes is None else slopes
        for depth, slope, x in itertools.product((1, 2, 3, 8), chosen, (1.0, -1.0)):
            yield chain(1.0, depth, x, slope=slope)
        yield from lattice(slopes=chosen)
        yield from biased_lattice(chosen)
        yield from random_networks(rng, 2 * draws, slopes=slopes)

    return cases


def measure_curvature(case: Case, constant: Any) -> Check:
    """‖∂²_{xy}Θ(x, x)‖_op against constant·‖Jf(x)‖^{2−2/L}, at the point where the ratio is least."""
    found = kernel_curvature(case.net, case.params, case.x)
    bound = constant(case) * found.jacobian_power
    at = int(np.argmax(bound - found.value))
    rounding = 64 * EPS * case.net.depth * (1 + float(found.value[at]) + float(bound[at]))
    return compare(
        float(found.value[at]), ">=", float(bound[at]), rounding, hypotheses=case.hypotheses, count=len(bound)
    )


def measure_printed(case: Case) -> Check:
    return measure_curvature(case, lambda c: printed_constant(c.net.depth))


def measure_proved(case: Case) -> Check:
    return measure_curvature(case, lambda c: proved_constant(c.net.depth))


def measure_sloped(case: Case) -> Check:
    return measure_curvature(case, lambda c: sloped_constant(c.net.depth, c.slope))


def _kernel(case: Case, x: float, y: float) -> float:
    """Θ(x, y) of a network ℝ → ℝ from exact derivatives."""
    moved = parameter_gradients(replace(case, x=np.array([[x], [y]])))
    return float(moved[0, 0] @ moved[1, 0])


def confirm_curvature(case: Case, constant: Any) -> Check:
    """ℝ → ℝ: the mixed difference of Θ from exact derivatives; Θ is bilinear inside a region, so it is the mixed derivative."""
    step, x = 2.0**-6, float(case.x[-1, 0])
    mixed = (
        _kernel(case, x + step, x + step)
        - _kernel(case, x, x + step)
        - _kernel(case, x + step, x)
        + _kernel(case, x, x)
    ) / step**2
    jump = outputs(case.net, case.params, np.array([[x], [x + step]]))
    J = abs(float(jump[1, 0] - jump[0, 0])) / step
    return Check(mixed, constant(case) * J ** (2 - 2 / case.net.depth), ">=", 1e-9)


def segments(slopes: Sequence[float] | None) -> Any:
    """Two ends each: on chains of every slope, then short segments of random networks."""

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Case]:
        chosen = (0.0, 1.0, 0.5, -0.5, 0.125, -0.125) if slopes is None else slopes
        for depth, slope in itertools.product((1, 2, 3), chosen):
            for ends in ((1.0, 2.0), (-1.0, -0.125), (0.125, 1.0), (-2.0, -1.0)):
                yield network([[[1.0]]] * depth, [[ends[0]], [ends[1]]], slope=slope, kind="chain")
        for depth in (1, 2, 4):
            yield network([[[1.0]]] * depth, [[-1.0], [1.0]], slope=1.0, kind="chain")
        for case in random_networks(rng, 4 * draws, slopes=slopes, points=2):
            step = 10.0 ** rng.uniform(-2, 0.5) * rng.normal(size=case.x.shape[1])
            yield replace(case, x=np.stack([case.x[0], case.x[0] + step]))

    return cases


def segment_constant(case: Case) -> float:
    """What L/4 becomes for slopes other than 0 and 1."""
    return sloped_constant(case.net.depth, case.slope) / case.net.depth


def measure_segment(case: Case, *, sloped: bool) -> Check:
    """max ‖Θ‖_op over both ends against (L/4)‖x − y‖²‖Jf(x)u‖^{2−2/L}, where no neuron changes its sign in between."""
    found = segment_bound(case.net, case.params, case.x)
    bound = found.bound * (segment_constant(case) if sloped else 1.0)
    rounding = 64 * EPS * case.net.depth * (1 + found.value)
    return compare(found.value, ">=", bound, rounding, hypotheses=case.hypotheses, vacuous=not found.one_region)


def confirm_segment(case: Case) -> Check:
    """ℝ → ℝ: Θ at both ends from exact derivatives, Jf from the difference of f over the segment."""
    ends = case.x[:, 0]
    value = max(_kernel(case, float(x), float(x)) for x in ends)
    y = outputs(case.net, case.params, case.x)[:, 0]
    length, L = float(abs(ends[1] - ends[0])), case.net.depth
    return Check(value, L / 4 * length**2 * float(abs(y[1] - y[0]) / length) ** (2 - 2 / L), ">=", 1e-9)


Family = tuple[str, int, float, tuple[Interpolant, ...]]


def shrunk(found: Interpolant, factor: float) -> Interpolant:
    """The same for targets `factor` times as large, the factor spread over all layers and balanced again."""
    root = factor ** (1 / found.net.depth)
    layers = []
    for index, layer in enumerate(found.params, start=1):
        layers.append(layer._replace(weight=layer.weight * root, bias=layer.bias * root**index))
    return replace(found, params=balance(found.net, tuple(layers)), y=found.y * factor)


@functools.cache
def _folded(dimension: int, folds: tuple[int, ...], factor: float) -> tuple[Interpolant, ...]:
    found = tuple(folded_interpolant(dimension, q, 16) for q in folds)
    return found if factor == 1 else tuple(shrunk(i, factor) for i in found)


def interpolants(rng: np.random.Generator, draws: int) -> Iterator[Family]:
    """Folded curves through lattices of dimensions 2 and 3, and polylines through random points; targets of three sizes."""
    factors = (1.0, 0.01, 0.1)
    for (k, folds), factor in itertools.product(((2, (1, 2, 3)), (3, (1, 2))), factors):
        yield "folded", k, factor, _folded(k, folds, factor)
    for index in range(1 + draws // 20):
        points = [rng.uniform(0.1, 1, size=(n, 2)) for n in (6, 12, 24)]
        factor = factors[index % 3]
        yield "polyline", 2, factor, tuple(shrunk(polyline_interpolant(p, 12), factor) for p in points)


def kernel_exponent(dimension: int) -> float:
    """4 − 4/k*."""
    return 4 - 4 / dimension


def least_cost(n: int, dimension: int) -> float:
    """2(1 − 1/k*) log N."""
    return 2 * (1 - 1 / dimension) * math.log(n)


def path_length(y: np.ndarray) -> float:
    """What a path through all points cannot be shorter than: ½ Σ (d₁ + d₂) over nearest and second nearest, less the ends' share."""
    distances = np.linalg.norm(y[:, None] - y[None], axis=2)
    nearest = np.sort(distances, axis=1)[:, 1:3]
    return float(nearest.sum() / 2 - nearest[:, 1].max())


def _fits(found: Interpolant) -> bool:
    return bool(np.abs(outputs(found.net, found.params, found.x) - found.y).max() <= 1e-6 * np.abs(found.y).max())


def measure_kernel_growth(case: Family) -> Check:
    """The exponent in N of max Tr Θ(x, x)·e^{c₁}/L over the training points."""
    name, k, factor, found = case
    assert all(map(_fits, found))
    assert all(min(i.net.widths) == 1 for i in found)
    logs = [math.log(i.trace / i.net.depth) + i.c1 for i in found]
    exponent = float(np.polyfit(np.log([len(i.y) for i in found]), logs, 1)[0])
    return compare(exponent, ">=", kernel_exponent(k), 0.0, hypotheses=_family_hypotheses(case), count=len(found))


def _family_hypotheses(case: Family) -> dict[str, Any]:
    name, k, factor, found = case
    return {"interpolant": name, "k*": k, "size of targets": factor, "N": str([len(i.y) for i in found])}


def measure_least_cost(case: Family) -> Check:
    """c₁ against 2(1 − 1/k*) log N, where it is closest."""
    _, k, _, found = case
    sides = [(i.c1, least_cost(len(i.y), k)) for i in found]
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(left, ">=", right, 1e-9 * (1 + abs(left)), hypotheses=_family_hypotheses(case), count=len(found))


def confirm_least_cost(case: Family) -> Check:
    """The sums of squares of all weights and biases with `math.fsum`, and the fit itself."""
    _, k, _, found = case
    assert all(map(_fits, found))
    sides = []
    for i in found:
        squares = [w * w for p in i.params for w in [*np.ravel(p.weight).tolist(), *np.ravel(p.bias).tolist()]]
        sides.append((math.fsum(squares) - len(i.params), least_cost(len(i.y), k)))
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return Check(left, right, ">=", 1e-9)


def measure_path(case: Family) -> Check:
    """c₁ ≥ 2 log(length of the shortest path / diameter of the sample)."""
    found = case[3]
    sides = []
    for i in found:
        spread = float(np.linalg.norm(i.x[:, None] - i.x[None], axis=2).max())
        sides.append((i.c1, 2 * math.log(path_length(i.y) / spread)))
    left, right = min(sides, key=lambda side: side[0] - side[1])
    return compare(left, ">=", right, 1e-9 * (1 + abs(left)), hypotheses=_family_hypotheses(case), count=len(found))


def _show_family(case: Family) -> str:
    name, k, factor, found = case
    if name == "folded":
        made = [f"shrunk(folded_interpolant({k}, {q}, 16), {factor})" for q in range(1, len(found) + 1)]
        return f"[i.c1 for i in ({', '.join(made)})]  # {', '.join(f'{i.c1:.6g}' for i in found)} for N = {[len(i.y) for i in found]}"
    return f"polylines through {[len(i.y) for i in found]} random points of the square, targets × {factor}, depth 12"


def _full_rank() -> Check:
    """The identity through both dimensions fits every sample with c₁ = 0 over 2L and a trace that does not grow."""
    plane = network([np.eye(2)] * 16, folded_interpolant(2, 3, 16).x)
    traces = [4.0 * 16, 4.0 * 16]
    assert np.array_equal(outputs(plane.net, plane.params, plane.x), plane.x)
    return compare(math.log(traces[1] / traces[0]) / math.log(16), ">=", kernel_exponent(2), 1e-9)


def _statement(id: str, row: str, says: str, **fields: Any) -> Statement:
    return Statement(paper=PAPER, row=row, id=id, says=says, **fields)


_ONE = chain(1.0, 1, 1.0)
_HALF = chain(1.0, 2, -1.0, slope=0.5)
_SHALLOW = network([[[1.0]]] * 2, [[-1.0], [-0.125]], slope=0.125)

PROVED = _statement(
    "P 9 amended",
    "P 9",
    "‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op for ReLU and linear networks",
    method="float64",
    cases=curved_networks(_RELU),
    measure=measure_proved,
    show=show,
    control=Control("2L, at f = x", lambda: measure_printed(_ONE)),
)
PRINTED = _statement(
    "P 9",
    "P 9",
    "‖∂²_{xy}Θ(x, x)‖_op ≥ 2L‖Jf(x)‖^{2−2/L}_op",
    method="float64",
    cases=curved_networks(None),
    measure=measure_printed,
    show=show,
    control=Control(
        "8L, at f = 2x in two layers of weight √2",
        lambda: measure_curvature(chain(math.sqrt(2), 2, 1.0), lambda c: 8.0 * c.net.depth),
    ),
    confirm=lambda case: confirm_curvature(case, lambda c: printed_constant(c.net.depth)),
    route="mixed difference of the kernel from exact derivatives",
    worked="""
f(x) = w_L⋯w_1 x with all weights 1 and x > 0 has Θ(x, y) = Σ_l (Π_{i≠l} w_i)² xy = L·xy, so ∂²_{xy}Θ = L, and Jf = 1: L ≥ 2L is false at every depth, first
for one layer, f(x) = x: 1 < 2. The proof's last line is L s^{2−2/L}, and the chain attains it.
""",
    amended=PROVED,
)
SLOPED = _statement(
    "P 9 (slopes) amended",
    "P 9",
    "‖∂²_{xy}Θ(x, x)‖_op ≥ L|a|^{2−2/L}‖Jf(x)‖^{2−2/L}_op for the slope a ≠ 0 on the left, with 1 instead of |a| for ReLU",
    method="float64",
    cases=curved_networks(None),
    measure=measure_sloped,
    show=show,
    control=Control("L for the slope ½", lambda: measure_proved(_HALF)),
)
SLOPES_TOO = _statement(
    "P 9 (slopes)",
    "P 9",
    "‖∂²_{xy}Θ(x, x)‖_op ≥ L‖Jf(x)‖^{2−2/L}_op, the constant of the proof, for every σ_a with a in (−1, 1)",
    method="float64",
    cases=curved_networks(None),
    measure=measure_proved,
    show=show,
    control=Control("2L, at f = x", lambda: measure_printed(_ONE)),
    confirm=lambda case: confirm_curvature(case, lambda c: proved_constant(c.net.depth)),
    route="mixed difference of the kernel from exact derivatives",
    worked="""
The proof uses D_l² = D_l, true for ReLU only. Layers (1, 1, 1), weights 1, slope ½, x = −1: f(x) = ½x there, Θ(x, y) = (½)²xy + (½x)(½y) = ½xy,
so ∂²_{xy}Θ = ½, while L|Jf|^{2−2/L} = 2·½ = 1. Writing W_lJα_{l-1} = D_l⁻¹Jα_l instead costs |a|² in each hidden layer and gives
L|a|^{2−2/L}‖Jf‖^{2−2/L} by the same argument; the chain attains it at every depth.
""",
    amended=SLOPED,
)
SLOPED_SEGMENT = _statement(
    "P 9 (segment) amended",
    "P 9",
    "for x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)|a|^{2−2/L}‖x − y‖²‖Jf(x)u‖^{2−2/L}, with 1 instead of |a| for ReLU and linear networks",
    method="float64",
    cases=segments(None),
    measure=lambda case: measure_segment(case, sloped=True),
    show=show,
    control=Control("slope 1/8 with 1 instead of |a|", lambda: measure_segment(_SHALLOW, sloped=False)),
)
SEGMENT = _statement(
    "P 9 (segment)",
    "P 9",
    "for x, y in one region max{‖Θ(x,x)‖_op, ‖Θ(y,y)‖_op} ≥ (L/4)‖x − y‖²‖Jf(x)u‖^{2−2/L}, u = (y − x)/‖y − x‖, for every σ_a with a in (−1, 1)",
    method="float64",
    cases=segments(None),
    measure=lambda case: measure_segment(case, sloped=False),
    show=show,
    control=Control("L instead of L/4, at the line [−1, 1]", lambda: _wider_segment()),
    confirm=confirm_segment,
    route="kernel from exact derivatives",
    worked="""
Layers (1, 1, 1), weights 1, slope 1/8, x = −1, y = −1/8: f = x/8 on the segment, Θ(x, x) = x²/64 + x²/64 = x²/32, at most 1/32 = 0.03125 at the ends. The bound is
(2/4)(7/8)²(1/8) = 49/1024 = 0.0479. As at a point, the proof uses D_l² = D_l; for ReLU it stands, and the line through 0 of a linear chain attains it.
""",
    amended=SLOPED_SEGMENT,
)


def _wider_segment() -> Check:
    line = network([[[1.0]]], [[-1.0], [1.0]], slope=1.0)
    found = segment_bound(line.net, line.params, line.x)
    return compare(found.value, ">=", 4 * found.bound, 1e-12)


KERNEL = _statement(
    "Thm 10",
    "Thm 10",
    "rank-1 interpolants of N points of a k*-dimensional target have Tr Θ(x, x) ≥ c·L·e^{−c₁}·N^{4−4/k*} somewhere",
    method="float64",
    cases=interpolants,
    measure=measure_kernel_growth,
    show=_show_family,
    narrower="growth in N of two constructed families, k* = 2 and 3; the constant c is not printed, so only the rate can be checked",
    control=Control("an interpolant of rank 2, the identity", _full_rank),
)
PATH = _statement(
    "Thm 10 (c₁) amended",
    "Thm 10",
    "c₁ ≥ 2 log(ℓ/diam Ω) with ℓ the length of the shortest path through the targets, which is 2(1 − 1/k*) log N up to a constant that depends on f* and Ω",
    method="float64",
    cases=interpolants,
    measure=measure_path,
    show=_show_family,
    narrower="two constructed families; ℓ from below by nearest and second nearest neighbours",
    control=Control(
        "the exponent 2 − 2/k* raised by 30 at N = 64",
        lambda: compare(folded_interpolant(2, 3, 16).c1, ">=", 32 * math.log(64), 1e-9),
    ),
)
COST = _statement(
    "Thm 10 (c₁)",
    "Thm 10",
    "rank-1 interpolants of N points of a k*-dimensional target have c₁ = ‖θ‖² − L ≥ 2(1 − 1/k*) log N",
    method="float64",
    cases=interpolants,
    measure=measure_least_cost,
    show=_show_family,
    narrower="two constructed families, k* = 2 and 3",
    control=Control(
        "the exponent 2 − 2/k* raised by 30 at N = 64",
        lambda: compare(folded_interpolant(2, 3, 16).c1, ">=", 32 * math.log(64), 1e-9),
    ),
    confirm=confirm_least_cost,
    route="sum of squares of all parameters",
    worked="""
The bound carries no constant, and a small target needs none of it. Multiply f* by 1/100, that is every layer's weights by 100^{−1/L}: c₁ falls by about
2 log 100 = 9.2 (from 5.1 to −4.5 for N = 4, k* = 2, sixteen layers, where the bound is log 4 = 1.39), and below any bound for a smaller factor, while k* and N stay. What the argument proves is c₁ ≥ 2 log max‖Jf‖ ≥ 2 log(ℓ/diam Ω), where ℓ, the length of a path
through all targets, is of the order N^{1−1/k*} with a factor that scales with f*; as a rate in N the statement stands.
""",
    amended=PATH,
)
STATEMENTS = (PRINTED, SLOPES_TOO, SEGMENT, KERNEL, COST)
