"""The equivalent network with fewer channels, for any graph: dead ones removed, proportional and
linear ones merged, scales folded.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.reading import called
from neuromanifold.models.adapters.torch.graph_writer import Smaller
from neuromanifold.models.arguments import Model
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.regions.reach import wide_inputs
from neuromanifold.symmetry.discovery.channels import Arrays, Channels, channels_of
from neuromanifold.symmetry.reduction.channel_dependence import (
    Kind,
    Nature,
    nature_of,
    zero_channels,
)
from neuromanifold.symmetry.reduction.folding import Folded, Folding, folded, shifted
from neuromanifold.symmetry.reduction.rewriting import Removal, nearly_parallel

PROBES = 256
"""Wide inputs on which equality is tested."""
_FEW = 8  # of each kind that are looked at first
_LOST = 1e4  # roundings that a sum over a layer may add up to, in units of float64's

UNREAD, SILENT, INACTIVE, PARALLEL, FOLDED = (
    "without outgoing weights", "without incoming weights", "inactive on the sample", "equal or proportional to another",
    "folded into the weights beside them",
)  # fmt: skip
_WHY = {
    UNREAD: (Kind.APART, "nothing reads it"),
    SILENT: (Kind.HOMOGENEOUS, "nothing writes it, and what is made of zero is zero"),
    PARALLEL: (Kind.HOMOGENEOUS, "its values are those of the other times the factor"),
}
"""What the axis must be for a step to hold at every input, and why it does then (see `nature`)."""


@dataclass(frozen=True, eq=False)
class Narrowed:
    """A model at the parameters of fewer channels: the others are put back as zeros. A pure
    function of its parameters.

    `neutral` says which places of the leaves that were folded belong to the channels that stay.
    """

    f: Model
    shapes: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[np.ndarray, ...], ...]
    neutral: Mapping[int, tuple[np.ndarray, ...]] = field(default_factory=dict)

    def __call__(self, params: Any, x: Any) -> Any:
        """f with zeros for what was removed."""
        leaves, structure = jax.tree.flatten(params)
        full = [
            jnp.zeros(shape, jnp.asarray(leaf).dtype).at[np.ix_(*kept)].set(leaf) if shape else leaf
            for leaf, shape, kept in zip(leaves, self.shapes, self.kept, strict=True)
        ]
        return self.f(structure.unflatten(full), x)

    @property
    def model(self) -> Model:
        """The network as it was given, before anything was folded or removed."""
        return self.f.f if isinstance(self.f, Folded) else self.f


def smaller_parameters(model: Narrowed, params: dict[str, Any]) -> dict[str, Smaller]:
    """Each parameter of a dictionary by name: its values, and where they stood; what was folded
    at its neutral values.
    """
    neutral = model.f.neutral if isinstance(model.f, Folded) else {}
    fewer = _smaller_neutral(model)
    given = iter(zip(model.shapes, model.kept, strict=True))
    found: dict[str, Smaller] = {}
    for k, name in enumerate(sorted(params)):
        if k in neutral:
            found[name] = Smaller(fewer[k], model.neutral[k], neutral[k].shape, fixed=True)
        else:
            shape, kept = next(given)
            found[name] = Smaller(np.asarray(params[name]), kept, shape, fixed=False)
    return found


def _smaller_neutral(model: Narrowed) -> dict[int, np.ndarray]:
    """What was folded, at the channels that stay."""
    neutral = model.f.neutral if isinstance(model.f, Folded) else {}
    return {k: a[np.ix_(*model.neutral[k])] if a.shape else a for k, a in neutral.items()}


@dataclass(frozen=True, eq=False)
class _Inputs:
    """f as a function of the parameters, at `samples` of the sample and then at wide inputs."""

    values: Callable[[Arrays], np.ndarray]
    samples: int

    def same(self, before: np.ndarray, after: np.ndarray, *, on_sample: bool) -> bool:
        """Whether two values of f are the same to rounding, at those of the sample or at all."""
        before, after = (a[: self.samples] if on_sample else a for a in (before, after))
        scale = (
            np.abs(before).reshape(len(before), -1).max(axis=1, initial=np.finfo(np.float64).tiny)
        )
        off = np.abs(after - before).reshape(len(before), -1).max(axis=1)
        return bool((off <= _LOST * np.finfo(np.float64).eps * scale).all())


@dataclass(frozen=True, eq=False)
class _Work:
    """Parameters at full size, removed channels as zeros; f at a few inputs, then at all of
    them: most changes are seen at the few.
    """

    inputs: tuple[_Inputs, ...]
    arrays: Arrays
    alive: tuple[np.ndarray, ...]
    removed: tuple[Removal, ...]
    natures: tuple[Nature | None, ...] = ()
    zero: Callable[[Channels, Nature, Arrays], np.ndarray] | None = None

    def off(self, k: int, channels: Channels) -> np.ndarray:
        """Which channels have no weights and are zero by their bias, at every input."""
        nature = self.natures[k]
        if nature is None or not nature.steady or self.zero is None:
            return np.zeros(channels.size, bool)
        return (
            self.zero(channels, nature, self.arrays)
            & channels.unweighted(self.arrays)
            & self.alive[k]
        )

    def proof(self, k: int, kind: Kind, why: str) -> str:
        """Why a step holds at every input: where the channels of axis k are of that kind or a
        stronger one.
        """
        nature = self.natures[k]
        return why if nature is not None and nature.kind >= kind else ""

    def same(self, arrays: Arrays, *, on_sample: bool) -> bool:
        """Whether f is what it was, on the sample or on all inputs, to rounding."""
        pairs = zip(self.inputs, self.present, strict=True)
        return all(at.same(before, at.values(arrays), on_sample=on_sample) for at, before in pairs)

    @cached_property
    def present(self) -> tuple[np.ndarray, ...]:
        """f at the parameters as they are."""
        return tuple(at.values(self.arrays) for at in self.inputs)


@dataclass(frozen=True, eq=False)
class Found:
    """(f, params) with fewer channels, the same with zeros put back, what went, how many
    channels, the largest difference on the sample.
    """

    f: Model
    params: Any
    whole: Narrowed
    removed: tuple[Removal, ...]
    channels: int
    deviation: float


def narrowed(f: Model, params: Any, x: Any, rtol: float, *, fold: bool) -> Found:
    """The rules, until none of them finds anything; f itself at the smaller parameters where it
    takes them, else `Narrowed`.
    """
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda a: np.asarray(a, np.float64), params))
    data = tuple(np.asarray(a) for a in jax.tree.leaves(x))
    wide = wide_inputs(data, PROBES, np.random.default_rng(0))
    work = _Work(_inputs(f, structure, x, wide), leaves, (), ())
    graph = trace(f, params, x)
    smaller, work = _without_scales(f, structure, work, graph) if fold else (f, work)
    axes = channels_of(graph) if isinstance(smaller, Folded) else ()
    if isinstance(smaller, Folded):
        inner = smaller.parameters(work.arrays)
        own, structure = jax.tree.flatten(inner)
        work = replace(work, inputs=_inputs(smaller, structure, x, wide), arrays=own)
    graph = trace(smaller, structure.unflatten(work.arrays), x)
    found = channels_of(graph)
    first = [a[0] for a in data]
    work = replace(
        work,
        alive=tuple(np.ones(c.size, bool) for c in found),
        natures=tuple(nature_of(graph, c) for c in found),
        zero=lambda channels, nature, arrays: zero_channels(graph, channels, nature, arrays, first),
    )
    before = None
    while before != work.removed:
        before = work.removed
        for k, channels in enumerate(found):
            for rule in (_unread, _silent, _inactive, _parallel, _linear):
                work = rule(work, k, channels, rtol)
    neutral = (
        _neutral_places(smaller, axes, found, work.alive) if isinstance(smaller, Folded) else {}
    )
    smaller, small, padded = _sliced(smaller, structure, work, found, x, neutral)
    with arithmetic():
        whole = jax.tree.unflatten(jax.tree.structure(params), leaves)
        pairs = zip(jax.tree.leaves(smaller(small, x)), jax.tree.leaves(f(whole, x)), strict=True)
        deviation = max(
            float(np.abs(np.asarray(a) - np.asarray(b)).max(initial=0.0)) for a, b in pairs
        )
    return Found(
        smaller, small, padded, work.removed, sum(int((~a).sum()) for a in work.alive), deviation
    )


def _inputs(f: Model, structure: Any, x: Any, wide: Sequence[np.ndarray]) -> tuple[_Inputs, ...]:
    """A few samples and wide inputs, evenly spaced, where that saves something; then all of
    them.
    """
    compiled = jax.jit(lambda p, x: called(f, p, x))
    data, form = jax.tree.flatten(x)
    n, m = len(data[0]), len(wide[0])

    def at(own: np.ndarray, others: np.ndarray) -> _Inputs:
        both = [
            np.concatenate([np.asarray(a)[own], b[others]]) for a, b in zip(data, wide, strict=True)
        ]

        def values(arrays: Arrays) -> np.ndarray:
            with arithmetic():
                outputs = jax.tree.leaves(
                    compiled(
                        structure.unflatten([jnp.asarray(a) for a in arrays]), form.unflatten(both)
                    )
                )
                return np.concatenate([np.asarray(y).reshape(len(y), -1) for y in outputs], axis=1)

        return _Inputs(values, len(own))

    few = at(np.arange(min(n, _FEW)) * n // min(n, _FEW), np.arange(min(m, _FEW)))
    return few, at(np.arange(n), np.arange(m))


def without_scales(f: Model, params: Any, x: Any) -> tuple[tuple[str, ...], Model, Any]:
    """What folds by name, and (f, params) without it."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda a: np.asarray(a, np.float64), params))
    wide = [np.asarray(a)[:0] for a in jax.tree.leaves(x)]
    work = _Work(_inputs(f, structure, x, wide), leaves, (), ())
    smaller, work = _without_scales(f, structure, work, trace(f, params, x))
    names = tuple(name for removal in work.removed for name in str(removal.layer).split())
    return (
        names,
        smaller,
        smaller.parameters(work.arrays) if isinstance(smaller, Folded) else params,
    )


def _without_scales(f: Model, structure: Any, work: _Work, graph: Graph) -> tuple[Model, _Work]:
    """Scales and shifts that the weights beside them take over: constants of the model from now
    on.
    """
    folding, neutral = Folding(graph), dict[int, np.ndarray]()
    with arithmetic():
        for fold, chain in itertools.product((folded, shifted), folding.chains):
            taken = fold(folding, chain, work.arrays)
            if (
                taken is None
                or neutral.keys() & taken[1].keys()
                or not work.same(taken[0], on_sample=False)
            ):
                continue
            names = [graph.parameters[k] for k in taken[1]]
            count, why = sum(a.size for a in taken[1].values()), "an affine map of parameters alone"
            removal = Removal(" ".join(names), count, FOLDED, "parameter", everywhere=why)
            work = replace(work, arrays=taken[0], removed=(*work.removed, removal))
            neutral |= taken[1]
    return (Folded(f, structure, neutral) if neutral else f), work


def _neutral_places(
    folded: Folded,
    axes: tuple[Channels, ...],
    found: tuple[Channels, ...],
    alive: tuple[np.ndarray, ...],
) -> dict[int, tuple[np.ndarray, ...]]:
    """Which places of each folded leaf stay: it loses the channels of the axis that it shared
    with parameters before it was folded.
    """
    own = [k for k in range(folded.structure.num_leaves) if k not in folded.neutral]
    kept = {
        replace(slot, leaf=own[slot.leaf]): which
        for c, which in zip(found, alive, strict=True)
        for slot in c.slots
    }
    places = {k: [np.arange(n) for n in a.shape] for k, a in folded.neutral.items()}
    for channels in axes:
        for which in [kept[slot] for slot in channels.slots if slot in kept][:1]:
            for slot in channels.slots:
                if slot.leaf in places:
                    places[slot.leaf][slot.axis] = np.intersect1d(
                        places[slot.leaf][slot.axis], slot.kept(which)
                    )
    return {k: tuple(parts) for k, parts in places.items()}


def _sliced(
    f: Model,
    structure: Any,
    work: _Work,
    found: tuple[Channels, ...],
    x: Any,
    neutral: Mapping[int, tuple[np.ndarray, ...]],
) -> tuple[Model, Any, Narrowed]:
    """The parameters without the channels that went, with a model that takes them before, and
    the one that puts zeros back after them.
    """
    leaves = work.arrays
    kept = [[np.arange(n) for n in leaf.shape] for leaf in leaves]
    for channels, alive in zip(found, work.alive, strict=True):
        for slot in channels.slots:
            places = kept[slot.leaf][slot.axis]
            kept[slot.leaf][slot.axis] = np.intersect1d(places, slot.kept(alive))
    small = structure.unflatten(
        [a[np.ix_(*places)] if places else a for a, places in zip(work.arrays, kept, strict=True)]
    )
    model = Narrowed(f, tuple(a.shape for a in leaves), tuple(map(tuple, kept)), neutral)
    direct = replace(f, neutral=_smaller_neutral(model)) if isinstance(f, Folded) else f
    with arithmetic():
        expected = jax.tree.leaves(jax.jit(lambda p, x: called(model, p, x))(small, x))
        try:
            own = jax.tree.leaves(direct(small, x))
        except (TypeError, ValueError):
            return model, small, model
    alike = all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-9, atol=1e-12)
        for a, b in zip(own, expected, strict=True)
    )
    return (direct if alike else model), small, model


def _gone(
    work: _Work, k: int, channels: Channels, which: np.ndarray, arrays: Arrays, why: Removal
) -> _Work:
    alive = tuple(a & ~which if i == k else a for i, a in enumerate(work.alive))
    removal = replace(why, layer=channels.name, count=int(which.sum()))
    return replace(work, arrays=arrays, alive=alive, removed=(*work.removed, removal))


def _unread(work: _Work, k: int, channels: Channels, rtol: float) -> _Work:
    return _dropped(work, k, channels, _zero(channels.read(work.arrays)), UNREAD)


def _silent(work: _Work, k: int, channels: Channels, rtol: float) -> _Work:
    return _dropped(work, k, channels, _zero(channels.written(work.arrays)), SILENT)


def _zero(rows: np.ndarray) -> np.ndarray:
    return np.asarray(~rows.any(axis=1))


def _dropped(work: _Work, k: int, channels: Channels, which: np.ndarray, reason: str) -> _Work:
    which = which & work.alive[k]
    arrays = channels.changed(work.arrays, which, 0.0, reads_only=False)
    if not which.any() or not work.same(arrays, on_sample=False):
        return work
    return _gone(
        work,
        k,
        channels,
        which,
        arrays,
        Removal("", 0, reason, everywhere=work.proof(k, *_WHY[reason])),
    )


def _inactive(work: _Work, k: int, channels: Channels, rtol: float) -> _Work:
    """Channels that are zero at every sample: whatever reads them, f stays the same there;
    elsewhere too where their weights are zero.
    """
    candidates = np.zeros(channels.size, bool)
    for i in np.flatnonzero(work.alive[k]):
        loud = channels.changed(work.arrays, np.arange(channels.size) == i, 1e3, reads_only=True)
        candidates[i] = work.same(loud, on_sample=True)
    off = candidates & work.off(k, channels)
    proved = Removal(
        "", 0, "inactive", everywhere="without incoming weights, it is what its bias makes it"
    )
    for which, removal in (
        (off, proved),
        (candidates & ~off, Removal("", 0, INACTIVE, on_sample=True)),
    ):
        arrays = channels.changed(work.arrays, which, 0.0, reads_only=False)
        if which.any() and work.same(arrays, on_sample=True):
            work = _gone(work, k, channels, which, arrays, removal)
    return work


def _parallel(work: _Work, k: int, channels: Channels, rtol: float) -> _Work:
    """Channels written by proportional parameters: all factors where f allows it, else equal
    ones only.
    """
    for equal_only in (False, True):
        into, factor = parallel_to(
            channels.written(work.arrays), work.alive[k], rtol, equal_only=equal_only
        )
        gone = into != np.arange(channels.size)
        arrays = channels.merged(work.arrays, into, factor)
        if gone.any() and work.same(arrays, on_sample=False):
            kind, why = _WHY[PARALLEL]
            kind = Kind.APART if (np.abs(factor[gone] - 1.0) <= rtol).all() else kind
            return _gone(
                work,
                k,
                channels,
                gone,
                arrays,
                Removal("", 0, PARALLEL, everywhere=work.proof(k, kind, why)),
            )
    return work


def _linear(work: _Work, k: int, channels: Channels, rtol: float) -> _Work:
    """Linear channels: where f is the same for (gW, g⁻ᵀR), W what writes them and R what reads
    them, it depends on RᵀW alone, and as
    many channels as its rank do what all did. Linear is a channel that may be multiplied by −2;
    that f is the same then is tested."""
    W, R = channels.written(work.arrays), channels.read(work.arrays)
    own = np.array(
        [i for i in np.flatnonzero(work.alive[k]).tolist() if _is_linear(work, channels, i)], int
    )
    if len(own) < 2:
        return work
    U, s, V = _product_factors(R[own].T, W[own])
    rank = int((s > rtol * max(W.shape[1], R.shape[1], len(own)) * s[0]).sum()) if s[0] > 0 else 0
    if rank >= len(own):
        return work
    W, R = W.copy(), R.copy()
    W[own], R[own] = 0.0, 0.0
    root = np.sqrt(s[:rank, None])
    W[own[:rank]], R[own[:rank]] = root * V[:rank], root * U[:, :rank].T
    arrays, gone = (
        channels.rewritten(work.arrays, W, R),
        np.isin(np.arange(channels.size), own[rank:]),
    )
    if not work.same(arrays, on_sample=False):
        return work
    why = work.proof(
        k, Kind.LINEAR, "f is linear in these channels, and sees the product RᵀW alone"
    )
    return _gone(
        work,
        k,
        channels,
        gone,
        arrays,
        Removal("", 0, f"linear: {rank} do what {len(own)} did", everywhere=why),
    )


def _is_linear(work: _Work, channels: Channels, i: int) -> bool:
    W, R = channels.written(work.arrays).copy(), channels.read(work.arrays).copy()
    W[i], R[i] = -2.0 * W[i], -0.5 * R[i]
    return work.same(channels.rewritten(work.arrays, W, R), on_sample=False)


def _product_factors(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The singular value decomposition of AB by those of small matrices: A = QR, Bᵀ = PS, AB =
    Q(RSᵀ)Pᵀ.
    """
    (Q, R), (P, S) = np.linalg.qr(A), np.linalg.qr(B.T)
    U, s, V = np.linalg.svd(R @ S.T, full_matrices=False)
    return Q @ U, s, V @ P.T


def parallel_to(
    rows: np.ndarray, alive: np.ndarray, rtol: float, *, equal_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For each row the first one that it is a positive multiple of (itself where there is none),
    and the factor.
    """
    into, factor = np.arange(len(rows)), np.ones(len(rows))
    near, kept = nearly_parallel(rows, rtol), []
    for i in np.flatnonzero(alive):
        for j in kept:
            ratio = _ratio(rows[j], rows[i], rtol) if near[i, j] else None
            if ratio is not None and (not equal_only or abs(ratio - 1.0) <= rtol):
                into[i], factor[i] = j, ratio
                break
        else:
            kept.append(int(i))
    return into, factor


def _ratio(base: np.ndarray, row: np.ndarray, rtol: float) -> float | None:
    pivot = int(np.abs(base).argmax())
    if base[pivot] == 0 or row[pivot] / base[pivot] <= 0:
        return None
    ratio = float(row[pivot] / base[pivot])
    return ratio if np.abs(row - ratio * base).max() <= rtol * np.abs(row).max() else None
