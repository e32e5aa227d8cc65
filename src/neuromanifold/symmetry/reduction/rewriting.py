"""The rules that make a network smaller without changing its function: each rewrites one layer and
says what it removed.

A layer's weights carry their scale 1/√fan_in here. Neurons know their activation, and the slope s
when σ(z) = sz on the sample (or everywhere).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation, Mixed, activation_named, per_neuron
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Entry, Params
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.regions.signs import is_kinked
from neuromanifold.symmetry.groups.neurons import is_linear, linear_slope
from neuromanifold.symmetry.reduction.box import Box
from neuromanifold.symmetry.reduction.linear_units import numerical_rank, product_factors

_WIDER = 1e-12


@dataclass(frozen=True)
class Removal:
    """`count` neurons of hidden layer `layer` (counted from 1 in the given network; the name of its
    weights in others) went, and why.

    `everywhere` is the reason why f stays the same at every input, up to the rounding of the
    parameters; empty where there is none: with `on_sample` equality is then claimed on the sample
    only, with `on_box` on the box that was given, else it was tested on the sample and on wide
    inputs. `what` went: a "neuron", a "channel" of convolutions, a "unit" that every token has, or
    a "parameter" that is a scale or shift which others took over.
    """

    layer: int | str
    count: int
    reason: str
    what: str = "neuron"
    everywhere: str = ""
    on_sample: bool = False
    on_box: bool = False

    def __str__(self) -> str:
        proof = (
            f" (everywhere: {self.everywhere})"
            if self.everywhere
            else ""
            if self.on_sample or self.on_box
            else " (tested)"
        )
        return (
            f"layer {self.layer}: {self.count} {self.what}{'' if self.count == 1 else 's'}, "
            f"{self.reason}{proof}"
        )


@dataclass(frozen=True, eq=False)
class Hidden:
    """A hidden layer at work: scaled weights, biases (zero when absent), activations and slopes,
    and its number in the given network.
    """

    weight: np.ndarray
    bias: np.ndarray
    activations: tuple[Activation, ...]
    slopes: np.ndarray
    number: int

    def keep(self, chosen: np.ndarray) -> "Hidden":
        """The chosen neurons only."""
        activations = tuple(self.activations[i] for i in chosen)
        return replace(
            self,
            weight=self.weight[chosen],
            bias=self.bias[chosen],
            activations=activations,
            slopes=self.slopes[chosen],
        )


@dataclass(frozen=True, eq=False)
class Work:
    """A network at work: hidden layers, output layer, and what was removed so far."""

    hidden: tuple[Hidden, ...]
    weight: np.ndarray
    bias: np.ndarray
    may_shift: bool
    removed: tuple[Removal, ...] = ()

    def next(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases of the layer after hidden layer `index`."""
        if index + 1 < len(self.hidden):
            return self.hidden[index + 1].weight, self.hidden[index + 1].bias
        return self.weight, self.bias

    def put(
        self,
        index: int,
        layer: Hidden | None,
        weight: np.ndarray,
        bias: np.ndarray,
        removal: Removal | None,
    ) -> "Work":
        """Hidden layer `index` replaced (or taken out when None), and the next layer's weights
        and biases.
        """
        hidden = list(self.hidden)
        removed = self.removed if removal is None else (*self.removed, removal)
        work = replace(self, removed=removed)
        if index + 1 < len(hidden):
            hidden[index + 1] = replace(hidden[index + 1], weight=weight, bias=bias)
        else:
            work = replace(work, weight=weight, bias=bias)
        hidden[index : index + 1] = [] if layer is None else [layer]
        return replace(work, hidden=tuple(hidden))


def begin(net: MLP, params: Params, signs: Sequence[np.ndarray] | None) -> Work:
    """The network at work; with the signs of each hidden layer, (samples, neurons), neurons of one
    sign are linear (or dead) from the start.
    """
    arrays = [
        (
            np.asarray(layer.weight, np.float64) * scale,
            np.zeros(len(layer.weight)) if layer.bias is None else layer.bias,
        )
        for layer, scale in zip(params, net.weight_scales, strict=True)
    ]
    hidden = []
    for index, (entry, (weight, bias)) in enumerate(zip(net.activation, arrays, strict=False)):
        activations = tuple(
            a for a, run in per_neuron(entry, len(weight)) for _ in range(run.start, run.stop)
        )
        slopes = np.array([linear_slope(a) for a in activations])
        if signs is not None:
            slopes = _find_fixed_slopes(activations, signs[index], slopes)
        hidden.append(Hidden(weight, np.asarray(bias, np.float64), activations, slopes, index + 1))
    weight, bias = arrays[-1]
    return Work(tuple(hidden), weight, np.asarray(bias, np.float64), net.bias)


def _find_fixed_slopes(
    activations: tuple[Activation, ...], sign: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """σ(0) = 0 at a kink, so a neuron whose pre-activation is never negative is linear even
    where it vanishes.
    """
    found = slopes.copy()
    for i, activation in enumerate(activations):
        if activation.slopes is not None and is_kinked(activation):
            if (sign[:, i] >= 0).all():
                found[i] = activation.slopes[1]
            elif (sign[:, i] <= 0).all():
                found[i] = activation.slopes[0]
    return found


def signs_on_box(net: MLP, params: Params, box: Box) -> list[np.ndarray]:
    """The signs of each hidden layer's neurons at the ends of what they can be on a box, (2,
    neurons): bounds of every layer from those of the one before.
    """
    found, (low, high) = [], (box.low[0], box.high[0])
    layers = zip(params, net.weight_scales, net.activation, strict=False)
    for (weight, bias), scale, entry in layers:
        W = np.asarray(weight, np.float64) * scale
        middle, half = (low + high) / 2, (high - low) / 2
        shift = 0.0 if bias is None else np.asarray(bias, np.float64)
        reach = np.abs(W) @ half + _WIDER * (np.abs(W) @ np.abs(middle) + np.abs(shift))
        z = np.stack([W @ middle + shift - reach, W @ middle + shift + reach])
        found.append(np.sign(z))
        low, high = _activate_bounds(entry, z)
    return found


def _activate_bounds(entry: Entry, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of what neurons give; none where their activation is not piecewise linear."""
    low, high = np.full(z.shape[1], -np.inf), np.full(z.shape[1], np.inf)
    for activation, run in per_neuron(entry, z.shape[1]):
        if activation.slopes is not None:
            part = z[:, run]
            inside = np.clip(0.0, part[0], part[1])  # a kink lies at zero alone
            ends = np.stack([part[0], part[1], inside])
            values = np.where(ends > 0, activation.slopes[1] * ends, activation.slopes[0] * ends)
            low[run], high[run] = values.min(0), values.max(0)
    return low, high


def finish(work: Work, net: MLP) -> tuple[MLP, Params]:
    """The smaller network and its parameters."""
    entries, layers, order = [], [], np.arange(net.widths[0])
    for layer in work.hidden:
        # Mixed wants equal activations side by side.
        kinds = list(dict.fromkeys(layer.activations))
        chosen = np.argsort([kinds.index(a) for a in layer.activations], kind="stable")
        sorted_layer = layer.keep(chosen)
        runs = [(kind, len(list(run))) for kind, run in itertools.groupby(sorted_layer.activations)]
        entries.append(runs[0][0] if len(runs) == 1 else Mixed(*runs))
        layers.append((sorted_layer.weight[:, order], sorted_layer.bias))
        order = chosen
    layers.append((work.weight[:, order], work.bias))
    widths = (net.widths[0], *(len(bias) for _, bias in layers))
    smaller = replace(net, widths=widths, activation=tuple(entries))
    return smaller, tuple(
        Layer(weight if scale == 1.0 else weight / scale, bias if net.bias else None)
        for (weight, bias), scale in zip(layers, smaller.weight_scales, strict=True)
    )


def drop_silent(work: Work, index: int) -> Work:
    """Neurons that are dead on the sample, without outgoing weights, or constant: gone, their
    constant in the next bias.
    """
    layer, (V, c) = work.hidden[index], work.next(index)
    constants = _values_at(layer)
    dead = layer.slopes == 0
    unread = ~dead & (V == 0).all(axis=0)
    still = ~dead & ~unread & (layer.weight == 0).all(axis=1) & (work.may_shift | (constants == 0))
    bias = c + V[:, still] @ constants[still]
    off = dead & (layer.weight == 0).all(axis=1)
    for mask, reason, everywhere in (
        (dead & ~off, "inactive on the sample", ""),
        (off, "inactive", "without incoming weights, and off by its bias"),
        (unread, "without outgoing weights", "nothing reads it"),
        (still, "constant", "the next bias takes its value over"),
    ):
        if mask.any():
            removal = Removal(
                layer.number,
                int(mask.sum()),
                reason,
                everywhere=everywhere,
                on_sample=not everywhere,
            )
            work = work.put(index, work.hidden[index], V, bias, removal)
    kept = np.flatnonzero(~(dead | unread | still))
    return (
        work.put(index, layer.keep(kept), V[:, kept], bias, None)
        if len(kept) < len(layer.bias)
        else work
    )


def _values_at(layer: Hidden) -> np.ndarray:
    """σ(b) of each neuron: its value when nothing comes in."""
    with arithmetic():
        values = [
            a(jnp.asarray(b, np.float64))
            for a, b in zip(layer.activations, layer.bias, strict=True)
        ]
        return np.array([float(value) for value in values])


def merge_parallel(work: Work, index: int, rtol: float) -> Work:
    """Neurons whose incoming weights and bias are equal, opposite (odd or even σ) or
    proportional (homogeneous σ): one stays.
    """
    layer, (V, c) = work.hidden[index], work.next(index)
    V, rows = V.copy(), np.concatenate([layer.weight, layer.bias[:, None]], axis=1)
    near = nearly_parallel(rows, rtol)
    kept: list[int] = []
    for i, row in enumerate(rows):
        partner = next(
            (
                (j, factor)
                for j in kept
                if near[i, j]
                and layer.activations[i] == layer.activations[j]
                and (factor := _factor(layer.activations[i], rows[j], row, rtol)) is not None
            ),
            None,
        )
        if partner is None:
            kept.append(i)
        else:
            V[:, partner[0]] += partner[1] * V[:, i]
    if len(kept) == len(rows):
        return work
    removal = Removal(
        layer.number,
        len(rows) - len(kept),
        "equal, opposite or proportional to another",
        everywhere="σ gives multiples of one value for these weights and biases",
    )
    return work.put(index, layer.keep(np.array(kept)), V[:, kept], c, removal)


def nearly_parallel(rows: np.ndarray, rtol: float) -> np.ndarray:
    """Which pairs may be proportional: if |r − t·b|_∞ ≤ rtol·|r|_∞ then 1 − |cos| ≤ d·rtol², up
    to rounding.
    """
    norms = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(norms > 0, norms, 1.0)[:, None]
    d = rows.shape[1]
    return np.abs(unit @ unit.T) >= 1 - d * rtol**2 - 8 * d * np.finfo(np.float64).eps


def _factor(activation: Activation, base: np.ndarray, row: np.ndarray, rtol: float) -> float | None:
    """t with σ(row·(x, 1)) = t·σ(base·(x, 1)) for every x, or None."""
    pivot = int(np.abs(base).argmax())
    if base[pivot] == 0 or row[pivot] == 0:
        return None
    ratio = row[pivot] / base[pivot]
    if np.abs(row - ratio * base).max() > rtol * np.abs(row).max():
        return None
    if activation.degree is None and abs(abs(ratio) - 1) > rtol:
        return None
    size = 1.0 if activation.degree is None else abs(ratio) ** activation.degree
    sign = 1.0 if ratio > 0 else {"odd": -1.0, "even": 1.0}.get(activation.parity or "")
    return None if sign is None else float(size * sign)


def compress_linear(work: Work, index: int, n_in: int, rtol: float) -> Work:
    """k neurons that are linear on the sample contribute VSWa + VSb: rank(VSW) of them do, or
    none when the layer folds into the next.
    """
    layer, (V, c) = work.hidden[index], work.next(index)
    linear = np.flatnonzero(~np.isnan(layer.slopes))
    others = np.flatnonzero(np.isnan(layer.slopes))
    scaled = V[:, linear] * layer.slopes[linear]
    M, shift = scaled @ layer.weight[linear], scaled @ layer.bias[linear]
    rank = numerical_rank(product_factors(scaled, layer.weight[linear])[1], M.shape, rtol)
    k, n_out = len(linear), len(c)
    always = all(is_linear(layer.activations[i]) for i in linear)
    where = "linear" if always else "linear on the sample"
    went = partial(
        Removal,
        layer.number,
        everywhere="a product of matrices" if always else "",
        on_sample=not always,
    )
    if not len(others) and (rank == 0 or n_out * n_in <= rank * (n_in + n_out + work.may_shift)):
        removal = went(k, f"{where}: the layer folds into the next") if k else None
        return work.put(index, None, M, c + shift, removal)
    if rank >= k:
        return work
    into, out = _factorise(M, rank)
    identity = activation_named("identity")
    rest = layer.keep(others)
    smaller = replace(
        rest,
        weight=np.concatenate([rest.weight, into]),
        bias=np.concatenate([rest.bias, np.zeros(rank)]),
        activations=(*rest.activations, *[identity] * rank),
        slopes=np.concatenate([rest.slopes, np.ones(rank)]),
    )
    removal = went(k - rank, f"{where}: {rank} do what {k} did")
    return work.put(index, smaller, np.concatenate([V[:, others], out], axis=1), c + shift, removal)


def _factorise(M: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """(A, B) with BA = M and A of `rank` rows; an identity wherever one will do, since it rounds
    nothing.
    """
    n_out, n_in = M.shape
    if rank == n_out:
        return M, np.eye(n_out)
    if rank == n_in:
        return np.eye(n_in), M
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    root = np.sqrt(s[:rank])
    return root[:, None] * Vt[:rank], U[:, :rank] * root


def exhaust(work: Work, n_in: int, rtol: float, *, on_box: bool = False) -> Work:
    """The rules, until none of them finds anything; what is claimed on the sample is claimed on the
    box instead where the signs are those of a box.
    """
    while True:
        before = work.removed
        index = 0
        while index < len(work.hidden):
            fan_in = n_in if index == 0 else len(work.hidden[index - 1].bias)
            layers = len(work.hidden)
            for rule in (drop_silent, lambda w, i: merge_parallel(w, i, rtol)):
                work = rule(work, index)
            work = compress_linear(work, index, fan_in, rtol)
            index += len(work.hidden) == layers
        if work.removed == before:
            return replace(work, removed=tuple(map(_on_box, work.removed))) if on_box else work


def _on_box(removal: Removal) -> Removal:
    return replace(
        removal,
        reason=removal.reason.replace("sample", "box"),
        on_sample=False,
        on_box=removal.on_sample,
    )
