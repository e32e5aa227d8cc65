"""invariant, Sec. 5.1: the five elementary SIMs of two-layer networks, and when an orbit leaves
a coincidence of neurons.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements import algebra
from neuromanifold_papers.invariant.statements import cases as cast
from neuromanifold_papers.invariant.statements.algebra import Neurons, Support
from neuromanifold_papers.statement import Cases, Control, Statement, control, statement

LEFT = 1e-7
"""An orbit leaves a space when a direction of Lie_θ, or a flow, is farther out than this; what
stays is out by rounding.
"""

SIGNS = {"(i)": (1, 1), "(ii)": (-1, -1), "(iii)": (1, -1)}
"""(a_i, w_i) = (ε a_j, ε' w_j)."""


@dataclass(frozen=True)
class Elementary:
    """A point of one of the five sets: neuron i is tied to neuron j; a seed where a flow is
    followed.
    """

    part: str
    name: str
    neurons: Neurons
    i: int
    j: int
    seed: int | None = None

    def tie(self, rows: np.ndarray) -> np.ndarray:
        """What vanishes on the set, for rows (a, w)."""
        if self.part == "(iv)":
            return rows[self.i]
        if self.part == "(v)":
            return rows[self.i, 1:]
        a, w = SIGNS[self.part]
        return rows[self.i] - np.array([a, *[w] * (rows.shape[1] - 1)]) * rows[self.j]


def tied(part: str, neurons: Neurons, i: int, j: int) -> Neurons:
    """The point with neuron i changed so that it lies in the set."""
    rows = [list(neuron) for neuron in neurons]
    # A neuron tied to itself, i = j, is 0 where its sign changes.
    a, w = SIGNS.get(part, (0, 0) if part == "(iv)" else (1, 0))
    a, w = (max(a, 0), max(w, 0)) if i == j else (a, w)
    a0, *other = rows[j] if part in SIGNS else rows[i]
    rows[i] = [a * a0, *(w * entry for entry in other)]
    return tuple(map(tuple, rows))


def applies(part: str, support: Support) -> bool:
    """The hypothesis of each part, from the Taylor series of σ."""
    return {
        "(i)": True,
        "(ii)": cast.is_odd(support),
        "(iii)": cast.is_even(support),
        "(iv)": 0 not in support,
        "(v)": 1 not in support,
    }[part]


def departures(case: Elementary) -> int:
    """How many of the fields up to order 6 are not tangent to the set, modulo a prime."""
    d, moved = len(case.neurons[0]) - 1, 0
    for _, X in algebra.monomial_fields(d, [n for n in cast.SUPPORTS[case.name] if n <= 6]):
        rows = np.array([[algebra.value(p, neuron) for p in X] for neuron in case.neurons])
        moved += int((case.tie(rows) % algebra.PRIME).any())
    return moved


def _elementary(part: str) -> Cases:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Elementary]:
        names = [name for name in cast.SUPPORTS if applies(part, cast.SUPPORTS[name])]
        single = list(itertools.product((-1, 1), (-1, 0, 1)))
        for name in names:
            yield from (Elementary(part, name, tied(part, (n,), 0, 0), 0, 0) for n in single)
            yield from (
                Elementary(part, name, tied(part, (n, o), i, 1 - i), i, 1 - i)
                for n, o in itertools.combinations(single, 2)
                for i in (0, 1)
            )
            yield Elementary(part, name, tied(part, ((1, 2, -1), (2, 1, 3), (1, 0, 1)), 0, 2), 0, 2)
        common = [name for name in names if name in cast.CLASSES]
        for _ in range(draws):
            m, d = (int(k) for k in rng.integers([2, 1], [5, 3]))
            neurons = tuple(map(tuple, rng.integers(-3, 4, (m, d + 1)).tolist()))
            i, j = (int(k) for k in rng.integers(0, m, 2))
            name, point = str(rng.choice(common)), tied(part, neurons, i, j)
            yield Elementary(part, name, point, i, j, int(rng.integers(2**31)))

    return cases


def _show(case: Elementary) -> str:
    return f"{case.name}, neurons (a_i, w_i) = {case.neurons}, i = {case.i}, j = {case.j}"


@statement(
    "Rem 5.1 (i)",
    _elementary("(i)"),
    control(
        "w_i = w_j without a_i = a_j", lambda: Elementary("(i)", "exp", ((1, 1), (2, 1)), 0, 1)
    ),
    draws=8,
    show=_show,
)
def remark(case: Elementary) -> Check:
    """{(a_i, w_i) = (a_j, w_j)} is a SIM."""
    hypotheses = {"activation": case.name, "m": len(case.neurons), "i = j": case.i == case.j}
    if case.seed is None:
        return at_most(departures(case), 0, hypotheses=hypotheses)
    net, params = cast.two_layer(case.name, 0.5 * np.array(case.neurons))
    end = cast.trained(np.random.default_rng(case.seed), net, params).flow(steps=4)
    out = case.tie(end[cast.by_neuron(net.widths[0], net.widths[1])])
    return at_most(float(np.abs(out).max()), 0.0, cast.ROUNDING, hypotheses=hypotheses)


def _part(part: str, says: str, broken: str, name: str) -> Statement:
    """The same of another part; `name` does not satisfy its hypothesis."""
    outside = Elementary(part, name, tied(part, ((1, 1), (2, 1)), 0, 1), 0, 1)
    changed = {"id": f"Rem 5.1 {part}", "says": says, "cases": _elementary(part)}
    return replace(remark, **changed, control=control(broken, lambda: outside))


REMARKS = (
    _part(
        "(ii)",
        "for odd σ, {(a_i, w_i) = −(a_j, w_j)} is a SIM, i = j included",
        "silu, which is not odd",
        "silu",
    ),
    _part(
        "(iii)",
        "for even σ, {(a_i, w_i) = (a_j, −w_j)} is a SIM, i = j included",
        "tanh, which is not even",
        "tanh",
    ),
    _part("(iv)", "for σ(0) = 0, {(a_i, w_i) = 0} is a SIM", "exp, σ(0) = 1", "exp"),
    _part("(v)", "for σ'(0) = 0, {w_i = 0} is a SIM", "tanh, σ'(0) = 1", "tanh"),
)


@dataclass(frozen=True)
class Coincidence:
    """Two neurons with a coincidence; the support of σ, or the name of an activation for the
    library.
    """

    part: str
    neurons: Neurons
    support: Support
    name: str = ""


def supports() -> Iterator[Support]:
    """Every pattern of the first five Taylor coefficients, continued to order 8 with its parity."""
    for mask in range(1, 32):
        first = tuple(n for n in range(5) if mask >> n & 1)
        later = (
            n
            for n in range(5, 9)
            if not (cast.is_odd(first) and n % 2 == 0) and not (cast.is_even(first) and n % 2)
        )
        yield (*first, *later)


def condition(case: Coincidence) -> bool:
    """The right-hand side of Lemma 5.2."""
    (a, *w), (b, *_) = case.neurons
    return {
        "(i)": not any(w) and 0 not in case.support,
        "(ii)": 1 not in case.support,
        "(iii)": a == b,
        "(iv)": (a == -b and cast.is_odd(case.support)) or (a == b and cast.is_even(case.support)),
    }[case.part]


def combination(part: str, neurons: Neurons) -> tuple[list[tuple[int, tuple[int, ...]]], range]:
    """The linear forms that vanish on the subspace: Σ c_k n_k, and which coordinates of a
    neuron.
    """
    sign = {"(iii)": -1, "(iv)": 1}.get(part, 0)
    pairs = [(c, neuron) for c, neuron in zip((1, sign), neurons, strict=True) if c]
    return pairs, range(1) if part == "(i)" else range(1, len(neurons[0]))


def contained_exactly(case: Coincidence) -> bool:
    """Whether the forms vanish along the orbit near the point: derivatives along words of fields,
    modulo a prime.

    The first three or four orders are fields enough: they have the parity of σ, and 0 and 1 where
    σ(0), σ'(0) ≠ 0.
    """
    pairs, coordinates = combination(case.part, case.neurons)
    orders, length = (4, 3) if len(case.neurons[0]) == 2 else (3, 2)
    return all(algebra.stays(case.support[:orders], pairs, form, length) for form in coordinates)


def contained_numerically(case: Coincidence) -> bool:
    """Whether Lie_θ lies in the subspace and a flow stays in it, by the library."""
    order = cast.by_neuron(len(case.neurons[0]) - 1, 2)
    pairs, coordinates = combination(case.part, case.neurons)
    forms = np.zeros((len(coordinates), order.size))
    for row, coordinate in enumerate(coordinates):
        for (c, _), neuron in zip(pairs, (0, 1), strict=False):
            forms[row, order[neuron, coordinate]] = c
    basis = cast.closure(case.name, case.neurons).basis
    end = cast.trained(np.random.default_rng(0), *cast.two_layer(case.name, case.neurons)).flow(
        steps=2
    )
    return float(max(np.abs(forms @ basis.T).max(initial=0.0), np.abs(forms @ end).max())) < LEFT


def _numbers(d: int) -> list[tuple[int, ...]]:
    return [w for w in itertools.product((-1, 0, 1), repeat=d) if any(w)]


def _without_output(d: int) -> Iterator[Neurons]:
    for w in [(0,) * d, *_numbers(d)[:3]]:
        yield from (((0, *w), (a, *v)) for a in (0, 1) for v in ((1,) * d, w))


def _without_input(d: int) -> Iterator[Neurons]:
    for a, b in itertools.product((1, -1, 2), (0, 1)):
        yield from (((a, *[0] * d), (b, *v)) for v in ((0,) * d, (1,) * d))


def _aligned(sign: int) -> Callable[[int], Iterator[Neurons]]:
    def points(d: int) -> Iterator[Neurons]:
        for a, b, w in itertools.product((-1, 0, 1), (-1, 0, 1), _numbers(d)[:2]):
            yield (a, *w), (b, *(sign * entry for entry in w))

    return points


def _coincidences(part: str, points: Callable[[int], Iterator[Neurons]]) -> Cases:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Coincidence]:
        for d, support in itertools.product((1, 2), supports()):
            yield from (Coincidence(part, neurons, support) for neurons in points(d))
        listed = list(points(1))
        for name, point in itertools.product(cast.CLASSES, listed[:: len(listed) // 2][:2]):
            yield Coincidence(part, point, cast.SUPPORTS[name], name)
        for _ in range(draws):
            name = str(rng.choice(list(cast.CLASSES)))
            point = listed[int(rng.integers(len(listed)))]
            yield Coincidence(part, point, cast.SUPPORTS[name], name)

    return cases


def _taken_for(broken: str, case: Coincidence, other: Support) -> Control:
    """The orbit of one activation against the condition of another."""
    return control(broken, lambda: case, kept=lambda case: condition(replace(case, support=other)))


@statement(
    "Lem 5.2 (i)",
    _coincidences("(i)", _without_output),
    _taken_for(
        "exp for expm1",
        Coincidence("(i)", ((0, 0), (1, 1)), cast.SUPPORTS["exp"]),
        cast.SUPPORTS["exp"][1:],
    ),
    draws=6,
    show=lambda case: f"{case.name or case.support}, neurons (a, w) = {case.neurons}",
)
def lemma(case: Coincidence, kept: Any = condition) -> Check:
    """Where a_i = 0 the orbit stays in {a_i = 0} exactly when w_i = 0 and σ(0) = 0."""
    found = contained_numerically(case) if case.name else contained_exactly(case)
    wanted = kept(case)
    by, d = case.name or "Taylor series", len(case.neurons[0]) - 1
    return equal(int(found), int(wanted), σ=by, kept=wanted, d=d)


LEMMAS = (
    replace(
        lemma,
        id="Lem 5.2 (ii)",
        says="where w_i = 0, a_i ≠ 0 the orbit stays in {w_i = 0} exactly when σ'(0) = 0",
        cases=_coincidences("(ii)", _without_input),
        control=_taken_for(
            "tanh for z − sin z",
            Coincidence("(ii)", ((1, 0), (1, 1)), cast.SUPPORTS["tanh"]),
            cast.SUPPORTS["z - sin(z)"],
        ),
    ),
    replace(
        lemma,
        id="Lem 5.2 (iii)",
        says="where w_i = w_j ≠ 0 the orbit stays in {w_i = w_j} exactly when a_i = a_j",
        cases=_coincidences("(iii)", _aligned(1)),
        control=control(
            "neurons without input, w_i = w_j = 0, of cos",
            lambda: Coincidence("(iii)", ((1, 0), (2, 0)), cast.SUPPORTS["cos"]),
        ),
    ),
    replace(
        lemma,
        id="Lem 5.2 (iv)",
        says="where w_i = −w_j ≠ 0 the orbit stays in {w_i = −w_j} exactly when a_i = −a_j and σ "
        "is odd, or a_i = a_j and σ is even",
        cases=_coincidences("(iv)", _aligned(-1)),
        control=_taken_for(
            "sigmoid, odd up to a constant, for tanh",
            Coincidence("(iv)", ((1, 1), (-1, -1)), cast.SUPPORTS["sigmoid"]),
            cast.SUPPORTS["tanh"],
        ),
    ),
)
