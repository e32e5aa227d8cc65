"""Directions that change no linear segment of a network: what lies between the units that switch.

Let S be the rectified units that switch on some regions; on these all others are always on
(wherever they are not zero) or always off. Take the network apart at S: what its units give becomes an
input r of its own, what they decide on an output q beside f. Φ_θ(x, r) = (f, q) is what the
segments between the bends do; it is affine in r and polynomial in θ. The network is Φ_θ with r =
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

Where no unit switches Φ is f, which would explain its kernel by itself: nothing is returned then.
"""

from collections.abc import Sequence

import numpy as np

from neuromanifold.graph.graph import Graph
from neuromanifold.regions.reach import KnownRegions
from neuromanifold.symmetry.account.chain import Gates, Rows

LARGEST = 1200
"""Parameters and units that are looked at together; more are not."""
_SPARE = 4


def segment_directions(
    rows: Rows, known: KnownRegions, gates: Gates, rng: np.random.Generator
) -> np.ndarray:
    """Return rows that span these directions, with Φ taken between the units that switch on the
    regions `known`; none where nothing can be said.
    """
    none = np.zeros((0, rows.columns), rows.spaces.lift(np.zeros(1)).dtype)
    if not has_linear_segments(rows.graph, rows.columns):
        return none
    on, off = constant_units(gates, [q == 0 for q in rows.quantities(known.data, gates)])
    switching = switching_units(on, off)
    scaled, D = np.concatenate([units.ravel() for units in switching]), rows.columns
    if not scaled.any():
        return none
    whole = rows.segment_rows(on, switching, D + len(scaled) + _SPARE, rng)
    chosen = whole[:, np.append(np.ones(D, bool), scaled)]
    found = rows.spaces.kernel(chosen)[:, :D]
    return found[found.any(axis=1)]


def has_linear_segments(graph: Graph, parameters: int) -> bool:
    """Whether the linear segments of `graph` are looked at: all its bends are rectifiers, and it
    has few enough `parameters` and units.
    """
    return bool(graph.bending) and graph.rectifies and parameters + graph.decisions <= LARGEST


def constant_units(gates: Sequence[np.ndarray], zeros: Sequence[np.ndarray]) -> tuple[Gates, Gates]:
    """Return which units are on at every input where they do not decide on zero (`zeros`), and
    which at none; a maximum over several is neither.
    """
    decide = [g if g.dtype == bool else np.zeros(g.shape, bool) for g in gates]
    pairs = zip(decide, zeros, strict=True)
    on = tuple(np.asarray((g | z.astype(bool)).all(0) & g.any(0)) for g, z in pairs)
    off = tuple(np.asarray((g.dtype == bool) & ~g.any(0)) for g in gates)
    return on, off


def switching_units(on: Gates, off: Gates) -> Gates:
    """Return the units that are neither always on nor always off."""
    return tuple(~a & ~b for a, b in zip(on, off, strict=True))
