"""invariant, Sec. 5: the rank of the Lie closure at every point, connected leaves, and orbits =
leaves.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import jax
import numpy as np

from neuromanifold.orbits.genericity import is_degenerate
from neuromanifold.orbits.partition import InvariantLeaf, generic_point
from neuromanifold_papers.check import Check, equal
from neuromanifold_papers.invariant.statements import algebra
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Field, Neurons
from neuromanifold_papers.invariant.statements.connected import Lattice
from neuromanifold_papers.invariant.statements.generic import degenerate_as_printed
from neuromanifold_papers.invariant.statements.orbits import rounding
from neuromanifold_papers.statement import by_integration, control, in_float64, statement


@dataclass(frozen=True)
class At:
    """A network at whole neurons (a_i, w_i); by polynomial fields modulo a prime, or by the
    library in float64.
    """

    name: str
    neurons: Neurons
    floating: bool = False

    @property
    def d(self) -> int:
        """The number of inputs."""
        return len(self.neurons[0]) - 1

    def dimension(self, enough: int) -> int:
        """dim Lie_θ, exactly as far as `enough`."""
        if self.floating:
            return int(cast.closure(self.name, self.neurons).dimension)
        return algebra.closure_dimension(cast.SUPPORTS[self.name], self.neurons, enough)

    @property
    def hypotheses(self) -> dict[str, Any]:
        """What this case covers."""
        known = {"activation": self.name, "m": len(self.neurons), "d": self.d}
        return known | {"degenerate": degenerate_as_printed(self.neurons)}


def leaf_dimension(name: str, neurons: Neurons) -> int:
    """dim [θ]: (d + 1) for each different neuron, for odd σ up to sign and without zero neurons.
    [invariant, Cor 5.3]
    """
    count = cast.condensed_up_to_sign if name in cast.GENERIC_ODD else cast.condensed
    return len(neurons[0]) * count(neurons)


def _non_degenerate(rng: np.random.Generator, draws: int) -> Iterator[At]:
    for name, m in itertools.product(cast.SUPPORTS, (1, 2)):
        for neurons in cast.grid(m, 1, (-2, -1, 1, 2)):
            if not degenerate_as_printed(neurons):
                yield At(name, neurons)
    for name in cast.CLASSES:
        yield At(name, ((1, 1), (-1, 2)), True)
    for _ in range(draws):
        m, d = (int(k) for k in rng.integers([2, 1], [4, 3]))
        half = [w for w in itertools.product((-2, -1, 0, 1, 2), repeat=d) if w > (0,) * d]
        weights = rng.permutation(half)[:m]
        pairs = zip(rng.choice([-2, -1, 1, 2], m), weights, strict=False)
        neurons = tuple((int(a), *w.tolist()) for a, w in pairs)
        yield At(str(rng.choice(["exp", "tanh", "cos", "silu"])), neurons, True)


@statement(
    "Cor 5.1",
    _non_degenerate,
    control(
        "the degenerate point w₁ = −w₂, a₁ = −a₂ of tanh", lambda: At("tanh", ((1, 1), (-1, -1)))
    ),
    draws=6,
)
def cor51(case: At) -> Check:
    """At non-degenerate θ dim Lie_θ = (d+1)m, for every analytic σ that is no polynomial."""
    full = (case.d + 1) * len(case.neurons)
    return equal(case.dimension(full), full)


def _apart(odd: bool) -> Callable[[np.random.Generator, int], Iterator[At]]:
    """Points with different neurons; for odd σ different up to sign, and not zero."""
    count = cast.condensed_up_to_sign if odd else cast.condensed
    names = cast.GENERIC_ODD if odd else cast.GENERIC

    def cases(rng: np.random.Generator, draws: int) -> Iterator[At]:
        points = itertools.chain(
            cast.grid(1, 1), cast.grid(2, 1), itertools.islice(cast.grid(3, 1), 0, None, 7)
        )
        yield from (At(names[0], neurons) for neurons in points if count(neurons) == len(neurons))
        drawn = (
            cast.whole_neurons(rng, int(rng.integers(2, 4)), int(rng.integers(1, 3)), 2)
            for _ in itertools.count()
        )
        yield from (
            At(str(rng.choice(names)), n)
            for n in itertools.islice((n for n in drawn if count(n) == len(n)), draws)
        )

    return cases


@by_integration(
    "Cor 5.2 (i)",
    _apart(False),
    control("equal neurons", lambda: At("exp", ((1, 1), (1, 1)))),
    draws=6,
)
def cor52_generic(case: At) -> Check:
    """Generic σ, different neurons: the orbit holds a non-degenerate point, and dim Lie_θ =
    (d+1)m.

    dim Lie_θ, and −1 unless two flows from θ end at a non-degenerate point.
    """
    net, params = cast.two_layer(case.name, 0.5 * np.array(case.neurons))
    rng = np.random.default_rng(len(case.neurons))
    for _ in range(2):
        params = cast.trained(rng, net, params, samples=3).end(steps=2)
    found = (
        -1
        if is_degenerate(net, params)
        else algebra.closure_dimension(cast.SUPPORTS[case.name], case.neurons)
    )
    return equal(found, (case.d + 1) * len(case.neurons))


COR52_ODD = replace(
    cor52_generic,
    id="Cor 5.2 (ii)",
    says="generic odd σ, neurons different up to sign and not zero: the orbit holds a "
    "non-degenerate point, and dim Lie_θ = (d+1)m",
    cases=_apart(True),
    control=control("a zero neuron", lambda: At("tanh", ((1, 1), (0, 0)))),
    narrower="entries −1, 0, 1 with m ≤ 2 and a seventh of m = 3, d = 1; random ones with m ≤ 3, "
    "d ≤ 2. The dimension is exact. "
    "Read with i ≠ j for the sign +: as printed, for any i, j, (a_i, w_i) ≠ ±(a_j, w_j) fails at "
    "i = j for every θ",
)


def _of_the_leaf(case: At) -> Check:
    wanted = leaf_dimension(case.name, case.neurons)
    return equal(case.dimension(wanted), wanted)


def _everywhere(rng: np.random.Generator, draws: int) -> Iterator[At]:
    for name in ("exp", "1 + sin(z)", "z + cos(z)", "tanh", "sinh(z) + sin(z)"):
        for m in (1, 2, 3, 4):
            yield from (At(name, neurons) for neurons in cast.grid(m, 1))
    for name, m in itertools.product(("exp", "tanh"), (1, 2)):
        yield from (At(name, neurons) for neurons in cast.grid(m, 2))
    for _ in range(draws):
        m, d = (int(k) for k in rng.choice([(2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 2)]))
        yield At(str(rng.choice([*cast.GENERIC, *cast.GENERIC_ODD])), cast.whole_neurons(rng, m, d))


exact = statement(
    "Cor 5.3",
    _everywhere,
    control(
        "silu, σ(0) = 0 without parity, at a zero neuron", lambda: At("silu", ((1, 1), (0, 0)))
    ),
    draws=100,
    says="generic or generic odd σ: dim Lie_θ = dim [θ] at every θ, degenerate ones included",
)(_of_the_leaf)


def _floating(rng: np.random.Generator, draws: int) -> Iterator[At]:
    for name, m in itertools.product(("exp", "tanh"), (1, 2)):
        yield from (At(name, neurons, True) for neurons in cast.grid(m, 1, (0, 1)))
    for _ in range(draws):
        m, d = (int(k) for k in rng.choice([(2, 2), (3, 1), (4, 1)]))
        yield At(str(rng.choice(["exp", "tanh"])), cast.whole_neurons(rng, m, d, 1), True)


cor_5_3_library = in_float64(
    "Cor 5.3 (library)",
    _floating,
    control("cos, which is even, at w = 0", lambda: At("cos", ((1, 0), (2, 0)), True)),
    draws=12,
    says="the library's closure in float64 has the dimension of the leaf at every θ",
)(_of_the_leaf)


def _both_routes(case: At, depth: int = -1) -> Check:
    """Brackets at θ, as deep as needed, against transport along the orbit."""
    found = cast.closure(case.name, case.neurons)
    assert found.along_orbit is not None
    return equal(int(found.by_depth[depth]), int(found.along_orbit), depth=found.depth)


BOTH_ROUTES = replace(
    cor_5_3_library,
    id="Cor 5.3 (both routes)",
    says="brackets at θ and transport along the orbit, on which the dimension is constant, give "
    "the same dimension",
    measure=_both_routes,
    control=control(
        "the fields alone, without brackets, at w = 0",
        lambda: At("tanh", ((1, 0), (2, 0))),
        depth=0,
    ),
)


@dataclass(frozen=True)
class Graded:
    """The brackets of one grade: fields whose components are homogeneous of degree grade + 1."""

    name: str
    d: int
    grade: int


GENERIC_GRADE = {1: 6, 2: 4}
"""How far brackets of generic activations are listed, by the number of inputs."""


def full_grade(d: int, grade: int) -> int:
    """How many fields of ℝ^{d+1} with homogeneous components of degree grade + 1 there are, up
    to combinations.
    """
    return (d + 1) * comb(grade + 1 + d, d)


def _degree(X: Field) -> int:
    return max(sum(exponents) for p in X for exponents in p)


def _grades(rng: np.random.Generator, draws: int) -> Iterator[Graded]:
    for name, d in itertools.product(cast.GENERIC, (1, 2)):
        yield from (Graded(name, d, grade) for grade in range(-1, GENERIC_GRADE[d] + 1))
    for name in cast.GENERIC_ODD:
        sparse = name == "sinh(z) + sin(z)"
        yield from (
            Graded(name, 1, grade) for grade in range(12 if sparse else 6, 21, 4 if sparse else 2)
        )
        yield from (Graded(name, 2, 8) for _ in range(1 - sparse))


@statement(
    "Cor 5.3 (every θ)",
    _grades,
    control("cos, which is even, d = 1, quadratic fields", lambda: Graded("cos", 1, 1)),
)
def filled(case: Graded) -> Check:
    """Brackets make all polynomial fields of a neuron, for odd σ all of high odd degrees: they
    take any values at different (up to sign, nonzero) neurons, so dim Lie_θ = dim [θ] at every
    real θ.

    Independent brackets of the grade, against all polynomial fields of it.
    """
    highest = 20 if case.d == 1 else 8
    fields = algebra.algebra(
        case.d,
        cast.SUPPORTS[case.name],
        highest if case.name in cast.GENERIC_ODD else GENERIC_GRADE[case.d],
    )
    found = sum(_degree(X) == case.grade + 1 for X in fields)
    return equal(found, full_grade(case.d, case.grade), activation=case.name, d=case.d)


@dataclass(frozen=True)
class OnLeaf:
    """A leaf, and a point on it: distinct whole values, or random ones for the library."""

    name: str
    leaf: InvariantLeaf
    seed: int | None = None

    @property
    def neurons(self) -> Neurons:
        """The point of distinct whole values, as rows (a_i, w_i)."""
        order = cast.by_neuron(self.leaf.net.widths[0], self.leaf.net.widths[1])
        return tuple(map(tuple, generic_point(self.leaf)[order].astype(int).tolist()))


def _leaves(rng: np.random.Generator, draws: int) -> Iterator[OnLeaf]:
    for name, m in itertools.product(("exp", "tanh"), (1, 2, 3, 4)):
        yield from (OnLeaf(name, leaf) for leaf in Lattice(name, 1, m).leaves)
    for name in ("exp", "tanh"):
        yield from (OnLeaf(name, leaf, 0) for leaf in Lattice(name, 1, 2).leaves)
    for _ in range(draws):
        d, m, name = (
            *rng.choice([(1, 3), (2, 2), (1, 4)]).tolist(),
            str(rng.choice(["exp", "tanh"])),
        )
        leaves = Lattice(name, d, m).leaves
        yield OnLeaf(name, leaves[int(rng.integers(len(leaves)))], int(rng.integers(2**31)))


def _even_leaf() -> OnLeaf:
    """cos with both w = 0: the outgoing weights change together, so the orbit is a line of the
    plane [θ].
    """
    [leaf] = [
        leaf
        for leaf in Lattice("cos", 1, 2).leaves
        if leaf.dimension == 2 and not generic_point(leaf)[:2].any()
    ]
    return OnLeaf("cos", leaf)


@statement("Thm 5.1", _leaves, control("cos, which is even, at w₁ = w₂ = 0", _even_leaf), draws=12)
def orbits(case: OnLeaf) -> Check:
    """Generic or generic odd σ: the orbit of θ is its symmetry leaf [θ], so all SIMs are
    symmetry-induced.

    dim Lie_θ against dim [θ]; by the library also −1 where Lie_θ is not the tangent space of
    the leaf.
    """
    hypotheses = {
        "activation": case.name,
        "m": case.leaf.net.widths[1],
        "dimension": case.leaf.dimension,
    }
    if case.seed is None:
        found = algebra.closure_dimension(
            cast.SUPPORTS[case.name], case.neurons, case.leaf.dimension
        )
        return equal(found, case.leaf.dimension, hypotheses=hypotheses)
    params = case.leaf.sample(key=jax.random.key(case.seed))
    rows = np.concatenate([params[1].weight.T, params[0].weight], axis=1)
    found = cast.closure(case.name, tuple(map(tuple, rows.tolist())))
    outside = found.basis - (found.basis @ case.leaf.basis.T) @ case.leaf.basis
    tangent = float(np.abs(outside).max(initial=0.0)) <= rounding(found)
    return equal(
        int(found.dimension) if tangent else -1, case.leaf.dimension, hypotheses=hypotheses
    )
