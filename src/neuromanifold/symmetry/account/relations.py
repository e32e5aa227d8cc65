"""Directions that come from linear relations between the sign patterns of a layer's neurons.

With s_k(x) the slope of neuron k, w̃_k = (w_k, b_k) and h̃ = (h, 1) the layer's input, the next
layer receives z'_r = Σ_k V_rk s_k (w̃_k·h̃) + b'_r, and to first order, coefficient by coefficient
of h̃,

    δz'_r = Σ_j h̃_j Σ_k s_k (V_rk δw̃_kj + δV_rk w̃_kj) + δb'_r.

This vanishes where (V_rk δw̃_kj + δV_rk w̃_kj)_k lies, for every r and j, in N = {c : Σ c_k s_k =
0}, and for the constant h̃_j = 1 in {c : Σ c_k s_k constant}, the next bias taking the constant up.
Equal patterns (s_i = s_j), always-active neurons (s_k = 1) and no relation at all (scalings) are
special cases; 1_A + 1_B = 1 is one that no group of the network gives.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.spaces import Spaces
from neuromanifold.tangent.rank.fields import ParameterLayout

LARGEST = 1200
"""Parameters that a layer's relations may involve; more are not sought."""


def related_directions(
    net: MLP, params: Params, slopes: list[Float[np.ndarray, "regions _"]], spaces: Spaces
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return rows in the kernel of J on the regions whose `slopes` are given, and the hidden layers
    (from 1) too large to look at.
    """
    found, left_out = [np.zeros((0, net.n_params), spaces.lift(np.zeros(1)).dtype)], []
    for layer, slope in enumerate(slopes[: net.depth - 1]):
        neurons = involved_neurons(net, slope, spaces)
        if not len(neurons):
            continue
        positions = _positions(net, layer, neurons)
        if len(positions) > LARGEST:
            left_out.append(layer + 1)
            continue
        local = spaces.kernel(_equations(net, params, layer, slope, neurons, spaces))
        rows = np.zeros((len(local), net.n_params), local.dtype)
        rows[:, positions] = local
        found.append(rows)
    return np.concatenate(found), tuple(left_out)


def involved_neurons(
    net: MLP, slope: Float[np.ndarray, "regions n"], spaces: Spaces
) -> Int[np.ndarray, " k"]:
    """Return the neurons of constant slope on each region that take part in some relation (with the
    constant where there are biases).
    """
    linear = np.flatnonzero(~np.isnan(slope).any(axis=0) & slope.any(axis=0))
    relations = spaces.kernel(spaces.lift(_patterns(net, slope[:, linear])))
    return linear[~spaces.vanishing(relations[:, : len(linear)])]


def _patterns(net: MLP, slope: np.ndarray) -> np.ndarray:
    distinct = np.unique(slope, axis=0)
    return np.concatenate([distinct, np.ones((len(distinct), 1))], axis=1) if net.bias else distinct


def _positions(net: MLP, layer: int, neurons: np.ndarray) -> np.ndarray:
    """Return incoming weights and bias of each neuron, then outgoing weights of each, then the next
    layer's biases.
    """
    layout = ParameterLayout(net)
    incoming = [layout.incoming(layer, int(k)) for k in neurons]
    outgoing = [layout.outgoing(layer, int(k)) for k in neurons]
    return np.concatenate([*incoming, *outgoing, layout.bias(layer + 1)])


def _equations(
    net: MLP, params: Params, layer: int, slope: np.ndarray, neurons: np.ndarray, spaces: Spaces
) -> np.ndarray:
    """Return one row for each output r of the next layer, each coordinate j of h̃ and each
    independent pattern.
    """
    here, after, K = params[layer], params[layer + 1], len(neurons)
    bias = [] if here.bias is None else [np.asarray(here.bias, np.float64)[neurons, None]]
    W = np.concatenate([np.asarray(here.weight, np.float64)[neurons], *bias], axis=1)
    V = np.asarray(after.weight, np.float64)[:, neurons]
    Q = spaces.basis(spaces.lift(_patterns(net, slope[:, neurons])))
    q, fan_in, n_out = len(Q), W.shape[1], len(V)
    lifted_W, lifted_V = spaces.lift(W), spaces.lift(V)
    rows = np.zeros(
        (n_out, fan_in, q, K * fan_in + n_out * K + (n_out if net.bias else 0)), Q.dtype
    )
    scales = spaces.lift(
        np.ones(fan_in)
        if not net.bias
        else np.append(np.ones(fan_in - 1), net.weight_scales[layer + 1])
    )
    for r in range(n_out):
        along_V = _scale(spaces, Q[:, :K], lifted_V[r])
        for j in range(fan_in):
            along_W, c = _scale(spaces, Q[:, :K], lifted_W[:, j]), np.full(K, scales[j])
            rows[r, j, :, np.arange(K) * fan_in + j] = _scale(spaces, along_V, c).T
            rows[r, j, :, K * fan_in + np.arange(K) * n_out + r] = _scale(spaces, along_W, c).T
        if net.bias:
            rows[r, fan_in - 1, :, K * (fan_in + n_out) + r] = Q[:, K]
    return rows.reshape(-1, rows.shape[-1])


def _scale(spaces: Spaces, Q: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply column k of `Q` by factor k."""
    return spaces.product(Q, np.diag(factors)) if Q.size else Q


"""Parameters that are looked at together; more are not."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Positions of parameters of one unit, one layer, and two layers that follow each other,
    none the whole network; what is too large.
    """

    units: tuple[np.ndarray, ...]
    layers: tuple[np.ndarray, ...]
    pairs: tuple[np.ndarray, ...]
    left_out: tuple[str, ...]

    @staticmethod
    def of(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> "Blocks":
        """Return slices of leaves along every axis, each with the entry of a bias of that length;
        leaves whose names differ at the end only.
        """
        layers = dict(_layers(names, shapes))
        ordered = list(layers.items())
        pairs = {
            f"{a}, {b}": np.concatenate([p, q])
            for (a, p), (b, q) in pairwise(ordered)
            if len(ordered) > 2
        }
        layers = layers if len(layers) > 1 else {}
        sizes = {name: len(block) for name, block in (*layers.items(), *pairs.items())}
        left_out = tuple(
            f"the {size:,} parameters of {name} together"
            for name, size in sizes.items()
            if size > LARGEST
        )
        whole, two = (
            tuple(b for b in part if 1 < len(b) <= LARGEST)
            for part in (layers.values(), pairs.values())
        )
        units = tuple(block for block in _units(names, shapes) if 1 < len(block) <= LARGEST)
        return Blocks(units, whole, two, left_out)


def _units(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Iterator[np.ndarray]:
    places = _places(shapes)
    for name, place in zip(names, places, strict=True):
        beside = [
            b
            for other, b in zip(names, places, strict=True)
            if b.ndim == 1 and _layer(other) == _layer(name)
        ]
        for axis in range(place.ndim if place.ndim > 1 else 0):
            for k, part in enumerate(np.moveaxis(place, axis, 0)):
                yield np.concatenate(
                    [part.ravel(), *(b[k : k + 1] for b in beside if len(b) == place.shape[axis])]
                )


def _layers(
    names: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[str, np.ndarray]]:
    layers: dict[str, list[np.ndarray]] = {}
    for name, place in zip(names, _places(shapes), strict=True):
        layers.setdefault(_layer(name), []).append(place.ravel())
    yield from ((name, np.concatenate(parts)) for name, parts in layers.items())


def _layer(name: str) -> str:
    return name.rpartition(".")[0] or name


def _places(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    starts = np.cumsum([0, *(int(np.prod(shape, dtype=int)) for shape in shapes)])
    return [
        np.arange(a, b).reshape(s) for a, b, s in zip(starts[:-1], starts[1:], shapes, strict=True)
    ]
