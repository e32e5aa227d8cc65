"""The statements of `invariant` that need no figure: examples, the printed partitions,
invariance of deep networks.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Mixed
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.orbits.closure import lie_closure
from neuromanifold.orbits.lattice import exchange, invariant_leaves
from neuromanifold.orbits.maps import induces_invariant_manifold
from neuromanifold.orbits.partition import invariant_leaf, leaf_of
from neuromanifold.orbits.residual import invariance_residual
from neuromanifold.orbits.zeros import zero_blocks, zero_rows
from neuromanifold_papers.invariant.partition import printed_sets
from neuromanifold_papers.output import Claim

DEEP = MLP((2, 4, 3, 1), ("tanh", Mixed(silu=2, cos=1)))
KEPT = 1e-9


def printed_partitions(m: int) -> list[Claim]:
    """Every θ with entries in {−1, 0, 1}, one input: in how many of the printed sets does it
    lie?
    """
    grid = list(itertools.product((-1.0, 0.0, 1.0), repeat=2 * m))
    points = [(np.array(p[:m])[:, None], np.array(p[m:])[:, None]) for p in grid]
    plain = [len(printed_sets(a, w, signed=False)) for a, w in points]
    signed = [len(printed_sets(a, w, signed=True)) for a, w in points]
    repaired = [len(printed_sets(a, w, signed=True, repaired=True)) for a, w in points]
    counts = {
        name: [len(invariant_leaves(MLP((1, k, 1), name, bias=False))) for k in (1, 2, 3, 4)]
        for name in ("exp", "tanh", "cos")
    }
    several = sum(n > 1 for n in signed)
    return [
        Claim(
            "P 5.1",
            "the sets M_P are a partition; there are Bell-many",
            {
                "points in exactly one": plain.count(1),
                "of": len(points),
                "leaves, m = 1..4": counts["exp"],
            },
            set(plain) == {1} and counts["exp"] == [1, 2, 5, 15],
        ),
        Claim(
            "P 5.2",
            "the sets M_{P,γ} (first block zero, possibly empty) are a partition",
            {
                "points in several sets": several,
                "of": len(points),
                "smallest": "m = 1, θ = 0: in M_{{1}} and in M_{∅,{1}}",
            },
            several == 0,
            "with an empty zero block nothing keeps another block from zero; the proof's step 1 "
            "(iii) uses that it is not",
        ),
        Claim(
            "P 5.2, repaired",
            "… when neurons outside the first block must not be zero",
            {
                "points in exactly one": repaired.count(1),
                "of": len(points),
                "leaves, m = 1..4": counts["tanh"],
            },
            set(repaired) == {1} and counts["tanh"] == [2, 6, 24, 116],
            "our statement; it is what the proof shows",
        ),
        Claim(
            "Thm 4.2, footnote 5",
            "even σ is analogous",
            {"leaves, m = 1..4": counts["cos"]},
            counts["cos"] == [2, 7, 31, 164],
            "our count: any block may have zero incoming weights, and several may",
        ),
    ]


def examples() -> list[Claim]:
    """Examples 3.1, 4.1, 4.2."""
    net = MLP((1, 2, 1), "exp", bias=False)
    lattice = invariant_leaves(net)
    points = {
        "equal": (1.0, 1.0, 2.0, 2.0),
        "equal w": (1.0, 2.0, 2.0, 2.0),
        "all zero but a": (1.0, 2.0, 0.0, 0.0),
    }
    dimensions = {
        kind: int(
            lie_closure(
                net,
                (Layer(np.array([[w1], [w2]])), Layer(np.array([[a1, a2]]))),
                key=jax.random.key(0),
            ).dimension
        )
        for kind, (a1, a2, w1, w2) in points.items()
    }
    shear = induces_invariant_manifold(
        lambda t, x: (t[0] - t[1]) * x,
        lambda t: jnp.array([t[0] + t[1], 2 * t[1]]),
        np.array([1.0, 0.0]),
        features=1,
    )
    circle = induces_invariant_manifold(
        _radial, lambda t: t / (t @ t), np.array([0.6, 0.8]), features=1
    )
    return [
        Claim(
            "Ex 3.1",
            "SIMs of a₁e^{w₁x} + a₂e^{w₂x}: ℝ⁴, the equal neurons, the complement",
            {"leaves": lattice.dimensions.tolist(), "closure": dimensions},
            lattice.dimensions.tolist() == [4, 2] and list(dimensions.values()) == [2, 4, 4],
        ),
        Claim(
            "Ex 4.1",
            "a global invariant map whose fixed points are no SIM",
            {
                "map": shear.maps[0].kind,
                "angle to ker(Dgᵀ − id)": shear.angle,
                "verdict": shear.verdict,
            },
            shear.maps[0].kind == "globally invariant" and shear.verdict == "not invariant",
        ),
        Claim(
            "Ex 4.2",
            "the inversion makes the unit circle a SIM of a radial model",
            {
                "map": circle.maps[0].kind,
                "angle to ker(Dgᵀ − id)": circle.angle,
                "verdict": circle.verdict,
            },
            bool(circle),
        ),
    ]


def _radial(theta: Any, x: Any) -> Any:
    r = jnp.sqrt(theta @ theta)
    return (r + 1 / r + x) ** 2


def deep_networks(draws: int) -> list[Claim]:
    """Theorem 4.2 on a network of three layers with neurons of every kind, and a joint
    stabiliser of two layers.
    """
    manifolds = {
        "(i) permutation": leaf_of(DEEP, (exchange(DEEP, 0, 0, 1), exchange(DEEP, 1, 0, 1))),
        "(ii) sign": leaf_of(DEEP, (exchange(DEEP, 0, 0, 1, -1), exchange(DEEP, 0, 2, 2, -1))),
        "(iii) zero block, frozen entries": zero_blocks(
            DEEP, [{0, 2}, {1}], DEEP.init(key=jax.random.key(2))
        ),
        "(iv) zero row": zero_rows(DEEP, [set(), {2}]),
    }
    claims = []
    for name, manifold in manifolds.items():
        point = manifold.project(
            jax.tree.map(lambda a: a / 2, manifold.sample(key=jax.random.key(0)))
        )
        left = invariance_residual(
            DEEP, point, manifold, key=jax.random.key(1), draws=draws, lr=0.01
        )
        claims.append(
            Claim(
                f"Thm 4.2 {name}",
                "is a SIM",
                f"left by {left.worst:.1e} over {draws} pairs of data and loss, "
                f"{manifold.dimension} of {DEEP.n_params} dimensions",
                left.worst < KEPT and bool(left.travelled.min() > 1e-3),
                "flow, descent, momentum; relative to max(1, |θ|)",
            )
        )
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.normal(size=(DEEP.n_params, manifolds["(i) permutation"].dimension)))[
        0
    ].T
    control = _left_subspace(rows, draws)
    claims.append(
        Claim(
            "control",
            "a random subspace is left",
            f"left by {control:.2f} (least over the draws)",
            control > 1e-3,
        )
    )
    return [*claims, _joint()]


def _left_subspace(rows: np.ndarray, draws: int) -> float:
    def distance(params: Any) -> float:
        theta = np.concatenate([np.asarray(a).reshape(-1) for a in jax.tree.leaves(params)])
        return float(np.linalg.norm(theta - rows.T @ (rows @ theta)))

    values = rows.T @ np.random.default_rng(1).normal(size=len(rows)) / 2
    start, layers = 0, []
    for layer in DEEP.init(key=jax.random.key(0)):
        parts = []
        for part in layer:
            parts.append(values[start : start + part.size].reshape(part.shape))
            start += part.size
        layers.append(Layer(*parts))
    left = invariance_residual(
        DEEP, tuple(layers), distance, key=jax.random.key(1), draws=draws, lr=0.01
    )
    return float(np.nanmin(left.flow[:, -1]))


def _joint() -> Claim:
    """A circulant layer: the rotation of two layers together fixes θ, no exchange within one
    does.
    """
    n, c = 4, np.array([0.3, -1.1, 0.8, 0.5])
    net = MLP((1, n, n, 1), "exp")
    params = (
        Layer(np.full((n, 1), 0.7), np.full(n, 0.2)),
        Layer(np.stack([np.roll(c, k) for k in range(n)]), np.full(n, 0.1)),
        Layer(np.full((1, n), 0.4), np.zeros(1)),
    )
    leaf = invariant_leaf(net, params)
    return Claim(
        "Lem 4.1",
        "leaves are the fixed spaces of stabilisers in the whole group",
        f"a circulant layer: dimension {leaf.dimension} of {net.n_params}, by a rotation of two "
        "layers at once",
        leaf.dimension == 9,
        "equal neurons within one layer, the case of Sec. 5, are not all there is in deep networks",
    )
