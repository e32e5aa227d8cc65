"""invariant, Cor 5.4: the leaves of two-layer networks are connected."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.orbits.lattice import invariant_leaves
from neuromanifold.orbits.partition import InvariantLeaf
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.invariant.statements.algebra import Neurons
from neuromanifold_papers.invariant.statements.cases import ANALYTIC
from neuromanifold_papers.statement import control, statement


@dataclass(frozen=True)
class Lattice:
    """All leaves of a two-layer network."""

    name: str
    d: int
    m: int

    @property
    def net(self) -> MLP:
        """Without biases."""
        return MLP((self.d, self.m, 1), ANALYTIC[self.name], bias=False)

    @property
    def leaves(self) -> tuple[InvariantLeaf, ...]:
        """Largest first."""
        return invariant_leaves(self.net).leaves

    @property
    def codimension(self) -> float:
        """The smallest codimension of what is removed from the closure of a leaf; infinite where
        nothing is.
        """
        lattice = invariant_leaves(self.net)
        drops = lattice.dimensions[None, :] - lattice.dimensions[:, None]
        strict = lattice.below & ~np.eye(len(lattice), dtype=bool)
        return float(drops[strict].min(initial=10**6))


@statement(
    "Cor 5.4",
    [*itertools.starmap(Lattice, itertools.product(("exp", "tanh"), (1, 2, 3), (1, 2, 3)))],
    control("cos, even, d = 1: {w = 0} has codimension 1", lambda: Lattice("cos", 1, 1)),
)
def codimension(case: Lattice) -> Check:
    """Generic or generic odd σ: each leaf is a linear space less spaces of codimension at least 2
    in it, hence connected.
    """
    return at_least(case.codimension, 2, activation=case.name, m=case.m, d=case.d)


def differences(odd: bool, neurons: Neurons) -> np.ndarray:
    """The vectors that must not vanish on the leaf of a point: n_i − n_j, and for odd σ n_i +
    n_j and n_i.
    """
    rows = np.array(neurons)
    pairs = list(itertools.combinations(range(len(rows)), 2))
    found = [rows[i] - rows[j] for i, j in pairs]
    if odd:
        found += [rows[i] + rows[j] for i, j in pairs] + list(rows)
    return np.array(found).reshape(-1, rows.shape[1])


def segment_stays(u: np.ndarray, v: np.ndarray) -> bool:
    """Whether no vector (1 − t)u_k + t v_k vanishes for 0 ≤ t ≤ 1 that does not vanish always:
    u_k, v_k are not opposite.
    """
    lengths = np.einsum("kd,kd->k", u, u) * np.einsum("kd,kd->k", v, v)
    inner = np.einsum("kd,kd->k", u, v)
    return not ((inner < 0) & (inner**2 == lengths)).any()


@dataclass(frozen=True)
class Ends:
    """Two points of one leaf."""

    odd: bool
    start: Neurons
    end: Neurons


def straight(case: Ends) -> bool:
    """Whether one segment leads from the start to the end inside the leaf."""
    return segment_stays(differences(case.odd, case.start), differences(case.odd, case.end))


def has_path(case: Ends) -> bool:
    """Whether one segment, or two through one of a few points of the leaf, lead from the start
    to the end inside the leaf.
    """
    u, v = (differences(case.odd, point) for point in (case.start, case.end))
    if straight(case):
        return True
    turned = [_blend(case, a, b) for a, b in ((2, 1), (1, 2), (3, -1), (-1, 3))]
    around = [differences(case.odd, point) for point in turned]
    return any(_same(u, w) and segment_stays(u, w) and segment_stays(w, v) for w in around)


def _blend(case: Ends, a: int, b: int) -> Neurons:
    """A start + b J end, J a quarter turn of the (a, w) plane: it has the coincidences that both
    ends share.
    """
    quarter = np.array([[0, -1], [1, 0]])
    rows = a * np.array(case.start) + b * np.array(case.end) @ quarter
    return tuple(map(tuple, rows.tolist()))


def _same(u: np.ndarray, v: np.ndarray) -> bool:
    return bool((u.any(axis=1) == v.any(axis=1)).all())


def _ends(rng: np.random.Generator, draws: int) -> Iterator[Ends]:
    neurons = list(itertools.product((-1, 0, 1), repeat=2))
    for odd, m in ((False, 1), (True, 1), (False, 2), (True, 2)):
        points = list(itertools.product(neurons, repeat=m))
        vectors = [differences(odd, point).any(axis=1) for point in points]
        for (p, u), (q, v) in itertools.combinations(zip(points, vectors, strict=True), 2):
            if (u == v).all():
                yield Ends(odd, p, q)


@statement(
    "Cor 5.4 (paths)",
    _ends,
    control(
        "one segment, from a neuron of an odd σ to its opposite",
        lambda: Ends(True, ((1, 0),), ((-1, 0),)),
        path=straight,
    ),
)
def connected(case: Ends, path: Any = has_path) -> Check:
    """Any two points of a leaf are joined inside it by at most two segments."""
    return equal(int(path(case)), 1, odd=case.odd, m=len(case.start))
