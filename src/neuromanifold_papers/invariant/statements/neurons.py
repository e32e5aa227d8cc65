"""invariant, Sec. 5.1: the five elementary SIMs of two-layer networks, and when an orbit leaves
a coincidence of neurons.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements.algebra import (
    PRIME,
    Neurons,
    Support,
    monomial_fields,
    stays,
    value,
)
from neuromanifold_papers.invariant.statements.cases import (
    CLASSES,
    EPS,
    SUPPORTS,
    by_neuron,
    closure,
    is_even,
    is_odd,
    trained,
    two_layer,
)
from neuromanifold_papers.statement import Control, Statement, control, statement

ROUNDING = 2**10
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
    if part in SIGNS:
        a, w = SIGNS[part]
        other = rows[j]
        rows[i] = (
            [a * other[0], *(w * entry for entry in other[1:])] if i != j else _own(part, other)
        )
    elif part == "(iv)":
        rows[i] = [0] * len(rows[i])
    else:
        rows[i] = [rows[i][0], *[0] * (len(rows[i]) - 1)]
    return tuple(map(tuple, rows))


def _own(part: str, row: list[int]) -> list[int]:
    """A neuron that the relation ties to itself."""
    return {"(i)": row, "(ii)": [0] * len(row), "(iii)": [row[0], *[0] * (len(row) - 1)]}[part]


def applies(part: str, support: Support) -> bool:
    """The hypothesis of each part, from the Taylor series of σ."""
    return {
        "(i)": True,
        "(ii)": is_odd(support),
        "(iii)": is_even(support),
        "(iv)": 0 not in support,
        "(v)": 1 not in support,
    }[part]


def departures(case: Elementary) -> int:
    """How many of the fields up to order 6 are not tangent to the set, modulo a prime."""
    d, moved = len(case.neurons[0]) - 1, 0
    for _, X in monomial_fields(d, [n for n in SUPPORTS[case.name] if n <= 6]):
        rows = np.array([[value(p, neuron) for p in X] for neuron in case.neurons])
        moved += int((case.tie(rows) % PRIME).any())
    return moved


def _elementary(part: str) -> Callable[[np.random.Generator, int], Iterator[Elementary]]:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Elementary]:
        names = [name for name in SUPPORTS if applies(part, SUPPORTS[name])]
        single = list(itertools.product((-1, 1), (-1, 0, 1)))
        for name in names:
            yield from (Elementary(part, name, tied(part, (n,), 0, 0), 0, 0) for n in single)
            yield from (
                Elementary(part, name, tied(part, (n, o), i, 1 - i), i, 1 - i)
                for n, o in itertools.combinations(single, 2)
                for i in (0, 1)
            )
            yield Elementary(part, name, tied(part, ((1, 2, -1), (2, 1, 3), (1, 0, 1)), 0, 2), 0, 2)
        common = [name for name in names if name in CLASSES]
        for _ in range(draws):
            m, d = (int(k) for k in rng.integers([2, 1], [5, 3]))
            neurons = tuple(map(tuple, rng.integers(-3, 4, (m, d + 1)).tolist()))
            i, j = (int(k) for k in rng.integers(0, m, 2))
            yield Elementary(
                part,
                str(rng.choice(common)),
                tied(part, neurons, i, j),
                i,
                j,
                int(rng.integers(2**31)),
            )

    return cases


def _show(case: Elementary) -> str:
    return f"{case.name}, neurons (a_i, w_i) = {case.neurons}, i = {case.i}, j = {case.j}"


def _outside(part: str, name: str) -> Callable[[], Elementary]:
    return lambda: Elementary(part, name, tied(part, ((1, 1), (2, 1)), 0, 1), 0, 1)


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
    net, params = two_layer(case.name, 0.5 * np.array(case.neurons))
    end = trained(np.random.default_rng(case.seed), net, params).flow(steps=4)
    out = case.tie(end[by_neuron(net.widths[0], net.widths[1])])
    return at_most(float(np.abs(out).max()), 0.0, ROUNDING * EPS, hypotheses=hypotheses)


REMARKS: tuple[Statement, ...] = (
    remark,
    replace(
        remark,
        id="Rem 5.1 (ii)",
        says="for odd σ, {(a_i, w_i) = −(a_j, w_j)} is a SIM, i = j included",
        cases=_elementary("(ii)"),
        control=control("silu, which is not odd", _outside("(ii)", "silu")),
    ),
    replace(
        remark,
        id="Rem 5.1 (iii)",
        says="for even σ, {(a_i, w_i) = (a_j, −w_j)} is a SIM, i = j included",
        cases=_elementary("(iii)"),
        control=control("tanh, which is not even", _outside("(iii)", "tanh")),
    ),
    replace(
        remark,
        id="Rem 5.1 (iv)",
        says="for σ(0) = 0, {(a_i, w_i) = 0} is a SIM",
        cases=_elementary("(iv)"),
        control=control("exp, σ(0) = 1", _outside("(iv)", "exp")),
    ),
    replace(
        remark,
        id="Rem 5.1 (v)",
        says="for σ'(0) = 0, {w_i = 0} is a SIM",
        cases=_elementary("(v)"),
        control=control("tanh, σ'(0) = 1", _outside("(v)", "tanh")),
    ),
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
            if not (is_odd(first) and n % 2 == 0) and not (is_even(first) and n % 2)
        )
        yield (*first, *later)


def condition(case: Coincidence) -> bool:
    """The right-hand side of Lemma 5.2."""
    (a, *w), (b, *_) = case.neurons
    return {
        "(i)": not any(w) and 0 not in case.support,
        "(ii)": 1 not in case.support,
        "(iii)": a == b,
        "(iv)": (a == -b and is_odd(case.support)) or (a == b and is_even(case.support)),
    }[case.part]


def combination(part: str, neurons: Neurons) -> tuple[list[tuple[int, tuple[int, ...]]], range]:
    """The linear forms that vanish on the subspace: Σ c_k n_k, and which coordinates of a
    neuron.
    """
    one, other = neurons
    d = len(one) - 1
    pairs = {
        "(i)": [(1, one)],
        "(ii)": [(1, one)],
        "(iii)": [(1, one), (-1, other)],
        "(iv)": [(1, one), (1, other)],
    }
    return pairs[part], range(1) if part == "(i)" else range(1, d + 1)


def contained_exactly(case: Coincidence) -> bool:
    """Whether the forms vanish along the orbit near the point: derivatives along words of fields,
    modulo a prime.

    The first three or four orders are fields enough: they have the parity of σ, and 0 and 1 where
    σ(0), σ'(0) ≠ 0.
    """
    pairs, coordinates = combination(case.part, case.neurons)
    orders, length = (4, 3) if len(case.neurons[0]) == 2 else (3, 2)
    return all(stays(case.support[:orders], pairs, form, length) for form in coordinates)


def contained_numerically(case: Coincidence) -> bool:
    """Whether Lie_θ lies in the subspace and a flow stays in it, by the library."""
    order = by_neuron(len(case.neurons[0]) - 1, 2)
    pairs, coordinates = combination(case.part, case.neurons)
    forms = np.zeros((len(coordinates), order.size))
    for row, coordinate in enumerate(coordinates):
        for (c, _), neuron in zip(pairs, (0, 1), strict=False):
            forms[row, order[neuron, coordinate]] = c
    basis = closure(case.name, case.neurons).basis
    end = trained(np.random.default_rng(0), *two_layer(case.name, case.neurons)).flow(steps=2)
    return float(max(np.abs(forms @ basis.T).max(initial=0.0), np.abs(forms @ end).max())) < LEFT


Points = Callable[[int], Iterator[Neurons]]


def _numbers(d: int) -> list[tuple[int, ...]]:
    return [w for w in itertools.product((-1, 0, 1), repeat=d) if any(w)]


def _without_output(d: int) -> Iterator[Neurons]:
    for w in [(0,) * d, *_numbers(d)[:3]]:
        yield from (((0, *w), (a, *v)) for a in (0, 1) for v in ((1,) * d, w))


def _without_input(d: int) -> Iterator[Neurons]:
    for a, b in itertools.product((1, -1, 2), (0, 1)):
        yield from (((a, *[0] * d), (b, *v)) for v in ((0,) * d, (1,) * d))


def _aligned(sign: int) -> Points:
    def points(d: int) -> Iterator[Neurons]:
        for a, b, w in itertools.product((-1, 0, 1), (-1, 0, 1), _numbers(d)[:2]):
            yield (a, *w), (b, *(sign * entry for entry in w))

    return points


def _coincidences(
    part: str, points: Points
) -> Callable[[np.random.Generator, int], Iterator[Coincidence]]:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Coincidence]:
        for d, support in itertools.product((1, 2), supports()):
            yield from (Coincidence(part, neurons, support) for neurons in points(d))
        listed = list(points(1))
        for name in CLASSES:
            yield from (
                Coincidence(part, listed[k], SUPPORTS[name], name) for k in (0, len(listed) // 2)
            )
        for _ in range(draws):
            name = str(rng.choice(list(CLASSES)))
            yield Coincidence(part, listed[int(rng.integers(len(listed)))], SUPPORTS[name], name)

    return cases


def _taken_for(broken: str, case: Coincidence, other: Support) -> Control:
    """The orbit of one activation against the condition of another."""
    return control(broken, lambda: case, kept=lambda case: condition(replace(case, support=other)))


@statement(
    "Lem 5.2 (i)",
    _coincidences("(i)", _without_output),
    _taken_for(
        "exp for expm1", Coincidence("(i)", ((0, 0), (1, 1)), SUPPORTS["exp"]), SUPPORTS["exp"][1:]
    ),
    draws=6,
    show=lambda case: f"{case.name or case.support}, neurons (a, w) = {case.neurons}",
)
def lemma(case: Coincidence, kept: Callable[[Coincidence], bool] = condition) -> Check:
    """Where a_i = 0 the orbit stays in {a_i = 0} exactly when w_i = 0 and σ(0) = 0."""
    found = contained_numerically(case) if case.name else contained_exactly(case)
    wanted = kept(case)
    by = case.name or "Taylor series"
    return equal(
        int(found), int(wanted), hypotheses={"σ": by, "kept": wanted, "d": len(case.neurons[0]) - 1}
    )


LEMMAS: tuple[Statement, ...] = (
    lemma,
    replace(
        lemma,
        id="Lem 5.2 (ii)",
        says="where w_i = 0, a_i ≠ 0 the orbit stays in {w_i = 0} exactly when σ'(0) = 0",
        cases=_coincidences("(ii)", _without_input),
        control=_taken_for(
            "tanh for z − sin z",
            Coincidence("(ii)", ((1, 0), (1, 1)), SUPPORTS["tanh"]),
            SUPPORTS["z - sin(z)"],
        ),
    ),
    replace(
        lemma,
        id="Lem 5.2 (iii)",
        says="where w_i = w_j ≠ 0 the orbit stays in {w_i = w_j} exactly when a_i = a_j",
        cases=_coincidences("(iii)", _aligned(1)),
        control=control(
            "neurons without input, w_i = w_j = 0, of cos",
            lambda: Coincidence("(iii)", ((1, 0), (2, 0)), SUPPORTS["cos"]),
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
            Coincidence("(iv)", ((1, 1), (-1, -1)), SUPPORTS["sigmoid"]),
            SUPPORTS["tanh"],
        ),
    ),
)
