"""`riemann`, Ex 15: the running example, its filter, equations, inverse, kernel and scaling."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.riemann.examples import printed_blocks
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.exact import EPS, differing, symbols
from neuromanifold_papers.riemann.statements.strided import STRIDE_ONE
from neuromanifold_papers.statement import control, statement

ROW = "Ex 15, 16, 17, 19, 20"
IDENTITY = "for all filters, as a polynomial identity"


def printed_filter(a: Any, b: Any) -> list[Any]:
    """(a_0b_0, a_1b_0, a_2b_0 + a_0b_1, a_1b_1, a_2b_1)."""
    return [a[0] * b[0], a[1] * b[0], a[2] * b[0] + a[0] * b[1], a[1] * b[1], a[2] * b[1]]


@statement(
    "Ex 15 (μ)",
    lambda rng, draws: [RUNNING],
    control("stride one", lambda: STRIDE_ONE),
    exhaustive=IDENTITY,
)
def ex_15_filter(net: LinearConvNet) -> Check:
    """The end-to-end filter of sizes (3, 2), strides (2, 1)."""
    a, b = symbols(RUNNING.filter_shapes)
    v = net.end_to_end((a, b))
    printed = printed_filter(a, b)
    if len(v) != len(printed):
        return equal(len(v), len(printed))
    return equal(differing(v, printed), 0, net=repr(net))


def discriminant(v: Any) -> Any:
    """v_2² − 4v_0v_4."""
    return v[2] * v[2] - 4 * v[0] * v[4]


def square(v: Any, a: Any, b: Any) -> Any:
    """v_2² − 4v_0v_4 − (a_2b_0 − a_0b_1)²: zero when the discriminant is a square, hence not
    negative.
    """
    root = a[2] * b[0] - a[0] * b[1]
    return discriminant(v) - root * root


def printed_equation(v: Any) -> Any:
    """v_0v_3² + v_1²v_4 − v_1v_2v_3."""
    return v[0] * v[3] * v[3] + v[1] * v[1] * v[4] - v[1] * v[2] * v[3]


@statement(
    "Ex 15 (equations)",
    lambda rng, draws: [RUNNING],
    control("sizes (3, 3) at stride one", lambda: LinearConvNet((3, 3), (1, 1))),
    exhaustive=IDENTITY,
)
def ex_15_equations(net: LinearConvNet) -> Check:
    """Every v in M satisfies v_0v_3² + v_1²v_4 − v_1v_2v_3 = 0 and v_2² − 4v_0v_4 ≥ 0."""
    a, b = symbols(net.filter_shapes)
    v = net.end_to_end((a, b))
    values = np.array([printed_equation(v), square(v, a, b)], object)
    return equal(differing(values, [0, 0]), 0, net=repr(net))


def preimage(v: Any) -> tuple[list[Any], list[Any]]:
    """The printed filters over v: (15) when v_1, v_3 ≠ 0, and those for v_1 = 0 or v_3 = 0."""
    if v[1] and v[3]:
        return [Fraction(v[0], v[1]), Fraction(1), Fraction(v[4], v[3])], [v[1], v[3]]
    return ([v[2], v[3], v[4]], [0, 1]) if v[3] else ([v[0], v[1], v[2]], [1, 0])


def solutions(size: int) -> Iterator[tuple[Any, ...]]:
    """All v with v_1 or v_3 ≠ 0 that satisfy the equation, the other entries from −size..size."""
    entries = range(-size, size + 1)
    for v0, v1, v3, v4 in product(entries, repeat=4):
        if v1 and v3:
            yield v0, v1, Fraction(v0 * v3 * v3 + v1 * v1 * v4, v1 * v3), v3, v4
        elif (v1 or v3) and v0 * v3 * v3 + v1 * v1 * v4 == 0:
            yield from ((v0, v1, v2, v3, v4) for v2 in entries)


@statement(
    "Ex 15 (inverse)",
    lambda rng, draws: solutions(3),
    control("v_2 changed by 1, so that the equation fails", lambda: (1, 1, 3, 1, 1)),
    show=lambda v: f"v = {tuple(map(str, v))}",
)
def ex_15_converse(v: Any) -> Check:
    """Conversely such a v with v_1 or v_3 ≠ 0 is μ of the printed filters, (15) or those for v_1
    = 0, v_3 = 0.
    """
    a, b = preimage(v)
    wrong = differing(
        RUNNING.end_to_end((np.array(a, object), np.array(b, object))), np.array(v, object)
    )
    return equal(wrong, 0, hypotheses={"v_1 = 0": v[1] == 0, "v_3 = 0": v[3] == 0})


def not_negative(v: Any) -> bool:
    """v_2² ≥ 4v_0v_4."""
    return bool(discriminant(v) >= 0)


@statement(
    "Ex 15 (inequality)",
    lambda rng, draws: (
        (v0, 0, v2, 0, v4) for v0, v2, v4 in product(range(-1, 3), repeat=3) if any((v0, v2, v4))
    ),
    control(
        "the inequality reversed", lambda: (1, 0, 3, 0, 1), printed=lambda v: discriminant(v) <= 0
    ),
    method="float64",
    show=lambda v: f"v = {v}",
)
def ex_15_even(v: Any, printed: Callable[[Any], bool] = not_negative) -> Check:
    """For v_1 = v_3 = 0, v lies in M exactly when v_2² ≥ 4v_0v_4.

    v_1 = v_3 = 0: v is a quadratic form in (x², y²), in M exactly when the discriminant is
    not negative.
    """
    inside = fs.fiber(RUNNING, np.array(v), starts=1).in_neuromanifold
    return equal(int(inside), int(printed(v)), discriminant=str(np.sign(discriminant(v))))


@statement(
    "Ex 15 (unique)",
    lambda rng, draws: solutions(2),
    control("v_1 = v_3 = 0", lambda: (2, 0, 5, 0, 2)),
    method="float64",
    show=lambda v: f"v = {tuple(map(str, v))}",
)
def ex_15_unique(v: Any) -> Check:
    """Up to scaling there is one choice of filters over v when v_1 or v_3 ≠ 0."""
    over = fs.fiber(RUNNING, np.array([Fraction(e) for e in v], object), 1.0)
    return equal(over.factorisations, 1, hypotheses={"v_1 = 0": v[1] == 0, "v_3 = 0": v[3] == 0})


def printed_normal(v: Any) -> list[Any]:
    """The gradient of the equation."""
    return [
        v[3] * v[3],
        2 * v[1] * v[4] - v[2] * v[3],
        -v[1] * v[3],
        2 * v[0] * v[3] - v[1] * v[2],
        v[1] * v[1],
    ]


def both_vanish(v: Any) -> bool:
    """v_1 = v_3 = 0."""
    return v[1] == 0 and v[3] == 0


@statement(
    "Ex 15 (singular)",
    lambda rng, draws: (
        tuple(RUNNING.end_to_end((np.array(t[:3], object), np.array(t[3:], object))).tolist())
        for t in product((-1, 0, 1, 2), repeat=5)
        if any(t[:3]) and any(t[3:]) and sum(t) % 3 == 0
    ),
    control("v_1 = 0 alone", lambda: (0, 0, 1, 1, 1), printed=lambda v: v[1] == 0),
    method="float64",
    show=lambda v: f"v = {v}",
)
def ex_15_singular(v: Any, printed: Callable[[Any], bool] = both_vanish) -> Check:
    """v in M is singular exactly when v_1 = v_3 = 0.

    The hypersurface is singular where its gradient vanishes; M where `is_smooth` says so.
    """
    wanted = printed(v)
    gradient = not any(printed_normal(v))
    measured = not fs.is_smooth(RUNNING, np.array([Fraction(e) for e in v], object))
    return equal(
        int(gradient != wanted) + int(measured != wanted), 0, hypotheses={"v_1 = v_3 = 0": wanted}
    )


@statement(
    "Ex 15 (kernel)",
    lambda rng, draws: [(RUNNING, printed_blocks)],
    control("K_1 and K_2 exchanged", lambda: (RUNNING, lambda a, b: printed_blocks(a, b)[::-1])),
    exhaustive=IDENTITY,
    show=lambda case: repr(case[0]),
)
def ex_15_kernel(case: Any) -> Check:
    """The blocks K_1 and K_2 of the kernel, as printed."""
    net, wanted = case
    a, b = symbols(net.filter_shapes)
    found = fs.filter_kernel_blocks(net, (a, b))
    return equal(
        sum(differing(K, np.array(P, object)) for K, P in zip(found, wanted(a, b), strict=True)), 0
    )


def printed_scale(a: np.ndarray, b: np.ndarray, delta: float) -> float:
    """λ² = (−δ + √(δ² + 4‖a‖²‖b‖²)) / (2‖a‖²)."""
    na, nb = float(a @ a), float(b @ b)
    root = np.sqrt(delta**2 + 4 * na * nb)
    return (-delta + root) / (2 * na) if delta <= 0 else 2 * nb / (delta + root)


def _scale_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    for delta in (0.0, 1.0, -1.0, 1e3, -1e3, 1e-6):
        yield np.array([1.0, 2.0, 3.0]), np.array([1.0, -2.0]), delta
    for _ in range(draws):
        yield rng.normal(size=3), rng.normal(size=2), float(5 * rng.normal())


@statement(
    "Ex 15 (λ)",
    _scale_cases,
    control(
        "δ of the other sign",
        lambda: (np.ones(3), np.ones(2), 1.0),
        formula=lambda a, b, delta: printed_scale(a, b, -delta),
    ),
    method="float64",
    show=lambda case: f"{case[0].tolist()}, {case[1].tolist()}, δ = {case[2]}",
)
def ex_15_scale(case: Any, formula: Callable[..., float] = printed_scale) -> Check:
    """The scalar that attains δ is λ² = (−δ + √(δ² + 4‖a‖²‖b‖²)) / (2‖a‖²)."""
    a, b, delta = case
    scales = fs.rescale(RUNNING, (a, b), [delta]).scales
    return equal(
        float(scales[0] ** 2) / formula(a, b, delta),
        1.0,
        64 * EPS,
        hypotheses={"δ": "0" if delta == 0 else "> 0" if delta > 0 else "< 0"},
    )


def printed_balanced_scale(v: Any) -> float:
    """√((v_1² + v_3²) / (v_0²/v_1² + 1 + v_4²/v_3²))."""
    return float(
        np.sqrt((v[1] ** 2 + v[3] ** 2) / (v[0] ** 2 / v[1] ** 2 + 1 + v[4] ** 2 / v[3] ** 2))
    )


@statement(
    "Ex 15 (λ, balanced)",
    lambda rng, draws: (v for v in solutions(2) if v[1] and v[3]),
    control(
        "v_1 and v_0 exchanged in the formula", lambda: (1, 2, 2, 2, 1), inserted=(2, 1, 2, 2, 1)
    ),
    method="float64",
    show=lambda v: f"v = {tuple(map(str, v))}",
)
def ex_15_balanced(v: Any, inserted: Any = None) -> Check:
    """v_1, v_3 ≠ 0, δ = 0: λ² = ‖b‖/‖a‖ in terms of v."""
    a, b = (np.array(w, float) for w in preimage(v))
    scales = fs.rescale(RUNNING, (a, b), [0.0]).scales
    printed = printed_balanced_scale(np.array(v if inserted is None else inserted, float))
    return equal(float(scales[0] ** 2) / printed, 1.0, 64 * EPS)


GROUP = (
    ex_15_filter,
    ex_15_equations,
    ex_15_converse,
    ex_15_even,
    ex_15_unique,
    ex_15_singular,
    ex_15_kernel,
    ex_15_scale,
    ex_15_balanced,
)
