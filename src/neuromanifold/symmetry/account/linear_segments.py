"""Directions that change no linear stretch of a network: what lies between the units that switch.

Let S be the rectified units that switch on some regions; on these all others are always on
(wherever they are not zero) or always off. Cut the network at S: what its units give becomes an
input r of its own, what they decide on an output q beside f. Φ_θ(x, r) = (f, q) is what the
stretches between the bends do; it is affine in r and polynomial in θ. The network is Φ_θ with r =
max(q, 0) put in: θ enters through Φ_θ alone, and since max(λq, 0) = λ max(q, 0) for λ > 0, through
Φ_θ up to scalings of units of S. So a direction v with

    D_θΦ(x, r)·v = d/dt Φ^{exp tλ}(x, r) at t = 0, for all x and r and some λ,    Φ^λ(x, r) = (f,
    λq)(x, r/λ),

changes f at no input of these regions, whatever the units of S do. (f = G(Φ_θ) with G the same for
every θ, and G(Φ^λ) = G(Φ).)

Scalings, mixing of linear neurons, their translations and closed paths are of this kind. Others
come from no affine field. In the stream z = h + max(hA, 0)B, f = max(z, 0)V of three channels and
two branches, let branch j and two units of z be on wherever h is not zero. What follows h is known
by the 3 + 1 + 2 numbers of the third unit up to its scaling, and by the 6 + 2 with which h and the
other branch reach f through the two: 13. A_j, B and V have 15 with one scaling between A_j and B_j.
One direction is left: the third unit is scaled, A_j turns since e + A_jB_j is the third unit's
weight, and V and B of the two take that back. It is rational in θ.

Where no unit switches Φ is f, which would explain its kernel by itself: nothing is offered then.
"""

import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.regions.reach import Known
from neuromanifold.symmetry.account.chain import Gates, Rows

LARGEST = 1200
"""Parameters and units that are looked at together; more are not."""
_SPARE = 4


def stretched_directions(
    rows: Rows, known: Known, gates: Gates, rng: np.random.Generator
) -> np.ndarray:
    """Rows that span these directions, Φ cut at the units that switch on the known regions; none
    where nothing can be said.
    """
    none = np.zeros((0, rows.columns), rows.spaces.lift(np.zeros(1)).dtype)
    if not looked_at(rows.graph, rows.columns):
        return none
    held, cut = held_and_cut(gates, rows.quantities(known.data, gates))
    scaled, D = np.concatenate([c.ravel() for c in cut]), rows.columns
    if not scaled.any():
        return none
    whole = rows.stretches(held, cut, D + len(scaled) + _SPARE, rng)
    found = rows.spaces.kernel(np.concatenate([whole[:, :D], whole[:, D:][:, scaled]], axis=1))[
        :, :D
    ]
    return found[found.any(axis=1)]


def looked_at(graph: Graph, parameters: int) -> bool:
    """Whether the stretches of a network are looked at: all its bends are rectifiers, and it is
    small enough.
    """
    return bool(graph.bending) and graph.rectifies and parameters + graph.decisions <= LARGEST


def held_and_cut(gates: Gates, quantities: Gates) -> tuple[Gates, Gates]:
    """For each unit whether it is held on, and whether it switches; where it decides on zero it
    may be called either.
    """
    free = [q == 0 for q in quantities]
    on = tuple((g | z).all(0) & g.any(0) for g, z in zip(gates, free, strict=True))
    return on, tuple(g.any(0) & ~up for g, up in zip(gates, on, strict=True))
