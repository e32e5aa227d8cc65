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
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.conserved import RUNNING
from neuromanifold_papers.riemann.statements.exact import EPS, in_float64, statement
from neuromanifold_papers.riemann.statements.strided import STRIDE_ONE
from neuromanifold_papers.statement import control

IDENTITY = "for all filters, as a polynomial identity"


@statement("Ex 15 (μ)", [RUNNING], control("stride one", lambda: STRIDE_ONE), exhaustive=IDENTITY)
def ex_15_filter(net: LinearConvNet) -> Check:
    """The end-to-end filter of sizes (3, 2), strides (2, 1)."""
    a, b = exact.symbols(RUNNING.filter_shapes)
    v = net.end_to_end((a, b))
    printed = [a[0] * b[0], a[1] * b[0], a[2] * b[0] + a[0] * b[1], a[1] * b[1], a[2] * b[1]]
    if len(v) != len(printed):
        return equal(len(v), len(printed))
    return equal(exact.differing(v, printed), 0, net=repr(net))


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
    [RUNNING],
    control("sizes (3, 3) at stride one", lambda: LinearConvNet((3, 3), (1, 1))),
    exhaustive=IDENTITY,
)
def ex_15_equations(net: LinearConvNet) -> Check:
    """Every v in M satisfies v_0v_3² + v_1²v_4 − v_1v_2v_3 = 0 and v_2² − 4v_0v_4 ≥ 0."""
    a, b = exact.symbols(net.filter_shapes)
    v = net.end_to_end((a, b))
    values = np.array([printed_equation(v), square(v, a, b)], object)
    return equal(exact.differing(values, [0, 0]), 0, net=repr(net))


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
)
def ex_15_converse(v: Any) -> Check:
    """Conversely such a v with v_1 or v_3 ≠ 0 is μ of the printed filters, (15) or those for v_1
    = 0, v_3 = 0.
    """
    found = RUNNING.end_to_end(tuple(np.array(w, object) for w in preimage(v)))
    return equal(exact.differing(found, np.array(v, object)), 0, hypotheses=_zeros(v))


def _zeros(v: Any) -> dict[str, bool]:
    return {"v_1 = 0": v[1] == 0, "v_3 = 0": v[3] == 0}


@in_float64(
    "Ex 15 (inequality)",
    lambda rng, draws: (
        (v0, 0, v2, 0, v4) for v0, v2, v4 in product(range(-1, 3), repeat=3) if any((v0, v2, v4))
    ),
    control("the inequality reversed", lambda: (1, 0, 3, 0, 1), sign=-1),
)
def ex_15_even(v: Any, sign: int = 1) -> Check:
    """For v_1 = v_3 = 0, v lies in M exactly when v_2² ≥ 4v_0v_4.

    v_1 = v_3 = 0: v is a quadratic form in (x², y²), in M exactly when the discriminant is
    not negative.
    """
    inside = fs.fiber(RUNNING, np.array(v), starts=1).in_neuromanifold
    found = discriminant(v)
    return equal(int(inside), int(sign * found >= 0), discriminant=str(np.sign(found)))


@in_float64(
    "Ex 15 (unique)",
    lambda rng, draws: solutions(2),
    control("v_1 = v_3 = 0", lambda: (2, 0, 5, 0, 2)),
)
def ex_15_unique(v: Any) -> Check:
    """Up to scaling there is one choice of filters over v when v_1 or v_3 ≠ 0."""
    over = fs.fiber(RUNNING, np.array([Fraction(e) for e in v], object), 1.0)
    return equal(over.factorisations, 1, hypotheses=_zeros(v))


def printed_normal(v: Any) -> list[Any]:
    """The gradient of the equation."""
    return [
        v[3] * v[3],
        2 * v[1] * v[4] - v[2] * v[3],
        -v[1] * v[3],
        2 * v[0] * v[3] - v[1] * v[2],
        v[1] * v[1],
    ]


@in_float64(
    "Ex 15 (singular)",
    lambda rng, draws: (
        tuple(RUNNING.end_to_end((np.array(t[:3], object), np.array(t[3:], object))).tolist())
        for t in product((-1, 0, 1, 2), repeat=5)
        if any(t[:3]) and any(t[3:]) and sum(t) % 3 == 0
    ),
    control("v_1 = 0 alone", lambda: (0, 0, 1, 1, 1), vanishing=(1,)),
)
def ex_15_singular(v: Any, vanishing: tuple[int, ...] = (1, 3)) -> Check:
    """v in M is singular exactly when v_1 = v_3 = 0.

    The hypersurface is singular where its gradient vanishes; M where `is_smooth` says so.
    """
    wanted = not any(v[i] for i in vanishing)
    gradient = not any(printed_normal(v))
    measured = not fs.is_smooth(RUNNING, np.array([Fraction(e) for e in v], object))
    wrong = int(gradient != wanted) + int(measured != wanted)
    return equal(wrong, 0, hypotheses={"v_1 = v_3 = 0": wanted})


@statement(
    "Ex 15 (kernel)",
    [RUNNING],
    control(
        "K_1 and K_2 exchanged", lambda: RUNNING, wanted=lambda a, b: printed_blocks(a, b)[::-1]
    ),
    exhaustive=IDENTITY,
)
def ex_15_kernel(net: Any, wanted: Callable[..., Any] = printed_blocks) -> Check:
    """The blocks K_1 and K_2 of the kernel, as printed."""
    a, b = exact.symbols(net.filter_shapes)
    printed = (np.array(P, object) for P in wanted(a, b))
    return equal(sum(map(exact.differing, fs.filter_kernel_blocks(net, (a, b)), printed)), 0)


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


@in_float64(
    "Ex 15 (λ)",
    _scale_cases,
    control(
        "δ of the other sign",
        lambda: (np.ones(3), np.ones(2), 1.0),
        formula=lambda a, b, delta: printed_scale(a, b, -delta),
    ),
)
def ex_15_scale(case: Any, formula: Callable[..., float] = printed_scale) -> Check:
    """The scalar that attains δ is λ² = (−δ + √(δ² + 4‖a‖²‖b‖²)) / (2‖a‖²)."""
    a, b, delta = case
    ratio = float(fs.rescale(RUNNING, (a, b), [delta]).scales[0] ** 2) / formula(a, b, delta)
    return equal(ratio, 1.0, 64 * EPS, δ=sign_of(delta))


def sign_of(delta: float) -> str:
    return "0" if delta == 0 else "> 0" if delta > 0 else "< 0"


@in_float64(
    "Ex 15 (λ, balanced)",
    lambda rng, draws: (v for v in solutions(2) if v[1] and v[3]),
    control(
        "v_1 and v_0 exchanged in the formula", lambda: (1, 2, 2, 2, 1), inserted=(2, 1, 2, 2, 1)
    ),
)
def ex_15_balanced(v: Any, inserted: Any = None) -> Check:
    """v_1, v_3 ≠ 0, δ = 0: λ² = ‖b‖/‖a‖ in terms of v.

    √((v_1² + v_3²) / (v_0²/v_1² + 1 + v_4²/v_3²)).
    """
    a, b = (np.array(w, float) for w in preimage(v))
    scales = fs.rescale(RUNNING, (a, b), [0.0]).scales
    v0, v1, _, v3, v4 = np.array(v if inserted is None else inserted, float) ** 2
    printed = np.sqrt((v1 + v3) / (v0 / v1 + 1 + v4 / v3))
    return equal(float(scales[0] ** 2 / printed), 1.0, 64 * EPS)
