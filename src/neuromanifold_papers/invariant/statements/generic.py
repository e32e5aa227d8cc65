"""invariant, Sec. 5.1: degenerate points, generic activations, independent neurons."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from neuromanifold.models.activation import Activation, activation_named
from neuromanifold.orbits.closure import lie_closure
from neuromanifold.orbits.genericity import is_degenerate, is_generic, is_generic_odd
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Neurons, Support, field_dimension
from neuromanifold_papers.invariant.statements.leaves import times
from neuromanifold_papers.statement import control, statement


def degenerate_as_printed(neurons: Neurons) -> bool:
    """Some a_k = 0, some w_k = 0, or w_i = ±w_j for i ≠ j.   [invariant, Def 5.1]"""
    vanishing = any(n[0] == 0 or not any(n[1:]) for n in neurons)
    pairs = itertools.combinations(neurons, 2)
    return vanishing or any(one[1:] in (other[1:], times(-1, other[1:])) for one, other in pairs)


def _degenerate_points(rng: np.random.Generator, draws: int) -> Iterator[Neurons]:
    for m, d in ((1, 1), (2, 1), (1, 2), (3, 1)):
        yield from cast.grid(m, d)
    yield from cast.grid(2, 1, (-2, -1, 0, 1, 2))
    yield from (
        cast.whole_neurons(rng, int(rng.integers(2, 6)), int(rng.integers(1, 4)), 3)
        for _ in range(draws)
    )


@statement(
    "Def 5.1",
    _degenerate_points,
    control(
        "w₁ = −w₂ taken for non-degenerate",
        lambda: ((1, 1), (2, -1)),
        printed=lambda neurons: False,
    ),
    draws=40,
)
def degenerate(neurons: Neurons, printed: Any = degenerate_as_printed) -> Check:
    """θ is non-degenerate when all a_k ≠ 0, all w_k ≠ 0 and w_i ≠ ±w_j for i ≠ j."""
    library = is_degenerate(*cast.two_layer("tanh", neurons))
    wanted = printed(neurons)
    return equal(int(library), int(wanted), m=len(neurons), degenerate=wanted)


POLYNOMIALS = ("identity", "power(2)", "power(3)")


@lru_cache
def taylor(name: str) -> tuple[float, ...]:
    """σ⁽ⁿ⁾(0)/n!, n < 26, from the functions' closed forms in power series over ball arithmetic."""
    import flint

    before = flint.ctx.cap, flint.ctx.prec
    flint.ctx.cap, flint.ctx.prec = cast.HIGHEST, 256
    try:
        z = flint.arb_series([0, 1])
        e = z.exp()
        series = {
            "exp": lambda: e,
            "sigmoid": lambda: e / (e + 1),
            "softplus": lambda: (e + 1).log(),
            "tanh": lambda: (e * e - 1) / (e * e + 1),
            "erf": lambda: z.erf(),
            "sin": lambda: z.sin(),
            "cos": lambda: z.cos(),
            "silu": lambda: z * e / (e + 1),
            "gelu": lambda: z * ((z / flint.arb(2).sqrt()).erf() + 1) / 2,
            "1 + sin(z)": lambda: z.sin() + 1,
            "z + cos(z)": lambda: z.cos() + z,
            "sinh(z) + sin(z)": lambda: (e - 1 / e) / 2 + z.sin(),
            "z - sin(z)": lambda: z - z.sin(),
            "1 - cos(z)": lambda: 1 - z.cos(),
            "z - sin(z) + cos(z)": lambda: z - z.sin() + z.cos(),
            "1 - cos(z) + z - sin(z)": lambda: 1 - z.cos() + z - z.sin(),
            "identity": lambda: z,
            "power(2)": lambda: z * z,
            "power(3)": lambda: z * z * z,
        }[name]()
        found = [series[n] for n in range(cast.HIGHEST)]
    finally:
        flint.ctx.cap, flint.ctx.prec = before
    return tuple(0.0 if c.contains(0) else float(c.mid()) for c in found)


def kind_as_printed(orders: Support) -> str:
    """Generic, generic odd or neither, from the orders below 26 with nonzero coefficients.
    [invariant, Def 5.2]
    """
    polynomial = not any(n > 3 for n in orders)
    odd, even = all(n % 2 for n in orders), not any(n % 2 for n in orders)
    if not polynomial and not odd and not even and {0, 1} <= {*orders}:
        return "generic"
    return "generic odd" if not polynomial and odd and 1 in orders else "neither"


@statement(
    "Def 5.2",
    lambda rng, draws: [*cast.ANALYTIC, *POLYNOMIALS],
    control(
        "silu, σ(0) = 0, taken for generic",
        lambda: "silu",
        printed=lambda orders: kind_as_printed((0, *orders)),
    ),
)
def kinds(name: str, printed: Any = kind_as_printed) -> Check:
    """Generic: analytic, no polynomial, neither odd nor even, σ(0) ≠ 0 ≠ σ'(0); generic odd:
    analytic, no polynomial, odd, σ'(0) ≠ 0.
    """
    sigma: Activation = cast.ANALYTIC[name] if name in cast.ANALYTIC else activation_named(name)
    library = (
        "generic" if is_generic(sigma) else "generic odd" if is_generic_odd(sigma) else "neither"
    )
    orders = tuple(n for n, c in enumerate(taylor(name)) if c)
    agrees = library == printed(orders) and orders == cast.SUPPORTS.get(name, orders)
    return equal(int(agrees), 1, kind=library)


@dataclass(frozen=True)
class Weights:
    """An activation and weights w_1, …, w_m."""

    name: str
    weights: tuple[tuple[int, ...], ...]
    floating: bool = False


def long_support(name: str, count: int) -> Support:
    """The first orders of the Taylor series, continued by its period of at most four."""
    found = [*cast.SUPPORTS[name]]
    while len(found) < count:
        found.append(found[-1] + (4 if name == "sinh(z) + sin(z)" else found[-1] - found[-2]))
    return tuple(found[:count])


def _weights(rng: np.random.Generator, draws: int) -> Iterator[Weights]:
    for name, m in itertools.product(cast.SUPPORTS, (1, 2, 3)):
        for lengths in itertools.combinations((1, 2, 3), m):
            yield Weights(name, tuple((w,) for w in lengths))
            yield Weights(name, tuple((-w if i % 2 else w,) for i, w in enumerate(lengths)))
    half = [(1, 0), (0, 1), (1, 1), (1, -1), (2, 0)]
    for name in ("exp", "tanh", "cos"):
        yield from (
            Weights(name, chosen) for m in (1, 2) for chosen in itertools.combinations(half, m)
        )
    for _ in range(draws):
        name = str(rng.choice(["exp", "tanh", "cos", "silu"]))
        yield Weights(
            name,
            tuple((int(w),) for w in rng.permutation([1, 2, 4])[:2] * rng.choice([-1, 1], 2)),
            True,
        )


@statement(
    "Lem 5.1",
    _weights,
    control("w₂ = −w₁ for tanh", lambda: Weights("tanh", ((1,), (-1,)))),
    draws=10,
)
def independent(case: Weights) -> Check:
    """For weights w_i ≠ 0, w_i ≠ ±w_j and σ with infinitely many σ⁽ⁿ⁾(0) ≠ 0 the functions
    σ(w_i·x), σ'(w_i·x)x_j are independent.

    The rank of {σ(w_i·x), σ'(w_i·x)x_j}: at a_i = 1 these are the fields; by the Taylor
    series, or the library's fields.
    """
    neurons = tuple((1, *w) for w in case.weights)
    m, d = len(case.weights), len(case.weights[0])
    if case.floating:
        net, params = cast.two_layer(case.name, np.array(neurons) * np.array([1.0] + [0.5] * d))
        found = int(lie_closure(net, params, key=jax.random.key(0), depth=1).by_depth[0])
    else:
        found = field_dimension(long_support(case.name, 2 * (d + 1) * m), neurons)
    return equal(found, (d + 1) * m, activation=case.name, m=m, d=d)
