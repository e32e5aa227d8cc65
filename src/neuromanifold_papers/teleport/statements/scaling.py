"""[teleport] on homogeneous activations: neurons may be rescaled.   Eq. 5"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from neuromanifold import symmetry as S
from neuromanifold.models.activation import Activation, power
from neuromanifold.models.mlp import MLP
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.statement import control, statement
from neuromanifold_papers.teleport.statements import exact
from neuromanifold_papers.teleport.statements.exact import HALF, POSITIVE, REAL, TWO, largest


def out_factor(c: Any, d: int) -> Any:
    """Outgoing weights are divided by c^d.   [teleport, Eq. 5]"""
    return c**d


@dataclass(frozen=True, eq=False)
class Scaling:
    """Factors c for the hidden neurons of a network with rational parameters."""

    net: MLP
    factors: tuple[tuple[Fraction, ...], ...]
    seed: int


def scaling_cases(signs: tuple[int, ...], activations: tuple[Activation, ...]):
    """All networks with one or two hidden layers of width ≤ 2, with and without bias; then
    random widths up to 4, three layers.
    """
    sizes = [w for depth in (1, 2) for w in product((1, 2), repeat=depth + 2)]

    def cases(rng: np.random.Generator, count: int) -> Iterator[Scaling]:
        for widths, activation, bias in product(sizes, activations, (False, True)):
            yield _scaling(MLP(widths, activation, bias=bias), signs, rng)
        for _ in range(count):
            widths = tuple(int(w) for w in rng.integers(1, 5, rng.integers(3, 6)))
            places = rng.integers(len(activations), size=len(widths) - 2)
            chosen = tuple(activations[k] for k in places)
            yield _scaling(MLP(widths, chosen, bias=bool(rng.integers(2))), signs, rng)

    return cases


def _scaling(net: MLP, signs: tuple[int, ...], rng: np.random.Generator) -> Scaling:
    sizes = (HALF, TWO, Fraction(3), Fraction(1, 5))
    factors = tuple(
        tuple(int(rng.choice(signs)) * sizes[rng.integers(4)] for _ in range(width))
        for width in net.widths[1:-1]
    )
    return Scaling(net, factors, int(rng.integers(2**31)))


def scaled_outputs(case: Scaling, factor: Callable[[Any, int], Any] = out_factor) -> Check:
    """F before and after, over the rationals; the library's element does the scaling."""
    rng = np.random.default_rng(case.seed)
    theta = exact.rationals(rng.integers(-5, 6, case.net.n_params))
    x = [[Fraction(int(v), 3) for v in rng.integers(-5, 6, case.net.widths[0])] for _ in range(3)]
    degrees = [int(d[0]) for d in S.ScalingGroup(case.net).degrees]
    out = [factor(exact.rationals(c), d) for c, d in zip(case.factors, degrees, strict=True)]
    g = exact.rational_monomial(case.net, case.factors, out)
    params = exact.layers(case.net, theta)
    old, new = (exact.outputs(case.net, p, x) for p in (params, g.act(params)))
    hypotheses = {
        "activation": str(case.net.activation[0]),
        "degree": degrees[0],
        "hidden layers": case.net.depth - 1,
        "bias": case.net.bias,
        "sign of c": "−" if any(c < 0 for layer in case.factors for c in layer) else "+",
    }
    return equal(largest(np.array(new, object) - np.array(old, object)), 0, hypotheses=hypotheses)


eq_5 = statement(
    "Eq 5",
    scaling_cases((-1, 1), REAL),
    control(
        "outgoing weights × c^{−1} where d = 2",
        lambda: Scaling(MLP((1, 1, 1), power(2), bias=False), ((TWO,),), 0),
        factor=lambda c, d: c,
    ),
    says="activations with φ(cr) = c^d φ(r): incoming weights and bias × c, outgoing × c^{−d} leave F, for c ≠ 0, in any combination",
)(scaled_outputs)

eq_5_positive = statement(
    "Eq 5 (c > 0)",
    scaling_cases((1,), POSITIVE),
    control("c = −2 with ReLU", lambda: Scaling(MLP((1, 1, 1), "relu", bias=False), ((-TWO,),), 0)),
    says="the same for activations homogeneous for c > 0 only, such as ReLU",
)(scaled_outputs)
