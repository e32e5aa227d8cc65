"""`match`: the symmetry that brings one network nearest to another, and the path between them.

With a group of permutations, signs and positive factors on hidden axes, ‖a − g b‖² is minimised one
axis at a time. All other axes fixed, place j of b put at place i of a, times the factors that the
axis allows, costs Σ_s ‖A_{s,i} − ε_s t^{e_s} B_{s,j}‖² over the slots s of the parameters: the best
t solves a polynomial, the best order an assignment.   [Ainsworth et al. 2023, "Git re-basin",
weight matching; the factors are ours]

Each head of an attention has an order of its own for its channels: where f allows that, an axis
inside heads is one axis for each head. Running statistics move with their channels and cost
nothing.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.reading import evaluate
from neuromanifold.models.arguments import Model, Samples, Targets, check_model, check_target
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import check_params, refuse_tracers, sample_arrays
from neuromanifold.symmetry.account.rules import FOLDED, SCALED, structural_symmetries
from neuromanifold.symmetry.conservation.balances import Balance, channel_scalings
from neuromanifold.symmetry.conservation.teleport import Change
from neuromanifold.symmetry.discovery.channels import Arrays, Slot, align
from neuromanifold.symmetry.discovery.conditions import NetworkSampler
from neuromanifold.symmetry.discovery.named_groups import leaf_names
from neuromanifold.symmetry.discovery.statistics import WithStatistics
from neuromanifold.symmetry.groups.base import Element
from neuromanifold.symmetry.groups.channel_permutation import (
    ChannelPermutationGroup,
    channel_monomial,
)
from neuromanifold.symmetry.groups.entries import Entries
from neuromanifold.symmetry.groups.product import symmetry_group

_SWEEPS = 500
_ROUNDING = 1e-14  # of ‖a‖² + ‖b‖²: a step that gains less gains nothing
_STILL = 1e-14  # of a factor
_INPUTS = 16
_SAME = 1e-9  # of f's largest value


@dataclass(frozen=True, eq=False, repr=False)
class Move(Result):
    """What was done to one hidden axis: position i is b's position `order[i]`, times `factors[s, i]` in
    slot s, an axis of the leaf `parameters[s]`; inside the head `head`, counted from 0 as a counts
    them, where each head has an order of its own.
    """

    parameters: tuple[str, ...]
    order: np.ndarray
    factors: np.ndarray
    head: int | None = None

    @property
    def moved(self) -> int:
        """How many positions went elsewhere."""
        return int((self.order != np.arange(len(self.order))).sum())

    def headline(self) -> str:
        """Return how many positions moved, flipped and were scaled."""
        flipped = int((self.factors < 0).any(axis=0).sum())
        scaled = int((np.abs(np.abs(self.factors) - 1) > 10 * _STILL).any(axis=0).sum())
        own = " ".join(dict.fromkeys(self.parameters))
        own = own if self.head is None else f"{own}, head {self.head}"
        return f"{own}: {self.moved} of {len(self.order)} moved, {flipped} flipped, {scaled} scaled"


@dataclass(frozen=True, eq=False, repr=False)
class Barrier(Result):
    """The losses on the straight path from a to b, and to b moved, at the points `t`.

    A height is the largest excess of the loss over the straight line between its ends.
    """

    t: Array
    before: Array
    after: Array

    @property
    def height(self) -> Change:
        """max_t L(θ_t) − (1 − t) L(θ_0) − t L(θ_1), before and after."""
        t = np.asarray(self.t)
        heights = [
            float((losses - (1 - t) * losses[0] - t * losses[-1]).max())
            for losses in map(np.asarray, (self.before, self.after))
        ]
        return Change(*heights)

    def headline(self) -> str:
        """Return both heights."""
        return f"{self.height.before:.4g} → {self.height.after:.4g}"


@dataclass(frozen=True, eq=False, repr=False)
class Match(Result):
    """The parameters `params` = g(b), nearest to a among those found, with evidence.

    `element` is g, `moves` what it does to each hidden axis, `distance` ‖a − b‖ and ‖a − g b‖,
    `deviation` the largest change of f on the sample relative to its largest value, `starts` the
    distances that the searches ended at, `left_out` the axes whose scalings were not sought. Where
    f holds running statistics, `statistics` are those of a, of b, and of b moved, and g acts on
    the pair (parameters, statistics).
    """

    net: Model
    x: Any
    a: Any
    b: Any
    params: Any
    statistics: tuple[Any, Any, Any]
    element: Element
    moves: tuple[Move, ...]
    distance: Change
    deviation: float
    starts: tuple[float, ...]
    left_out: tuple[str, ...]

    def headline(self) -> str:
        """Return the distances."""
        return (
            f"distance {self.distance.before:.4g} → {self.distance.after:.4g}, f moved by "
            f"{self.deviation:.1g}"
        )

    def __str__(self) -> str:
        unseen = [f"  not searched: {each}" for each in self.not_searched]
        return "\n".join([self.headline(), *(f"  {m.headline()}" for m in self.moves), *unseen])

    @property
    def model(self) -> Model:
        """f with the statistics of b moved: what `params` belong to."""
        return WithStatistics(self.net).closed(self.statistics[2])

    @cached_property
    def not_searched(self) -> tuple[str, ...]:
        """The symmetries that f has by its structure and that g does not range over: matrices on
        linear axes and within heads, rotations of streams, shifts that nothing sees.
        """
        found = structural_symmetries(self.net, self.a, self.x)
        beyond = [rule for rule in found.rules if rule.kind not in (FOLDED, SCALED)]
        folded = [rule for rule in found.rules if rule.kind == FOLDED]
        return (
            *(f"{rule.kind} ({' '.join(rule.leaves)})" for rule in (*beyond, *folded)),
            *(f"scalings of {each}" for each in self.left_out),
        )

    def path(self, t: Any) -> Any:
        """Return (1 − t) a + t g(b)."""
        return _between(self.a, self.params, t)

    def barrier(self, x: Samples, y: Targets, *, loss: Loss = mse, points: int = 11) -> Barrier:
        """Return the losses at `points` points of the straight paths from a to b and from a to g(b), in
        float64."""
        if not isinstance(points, int) or points < 3:
            raise ValueError(f"`points` is {points!r}; pass a whole number, 3 or more.")
        t = np.linspace(0.0, 1.0, points)
        model = WithStatistics(self.net)
        with arithmetic():
            ends = zip((self.a, self.b, self.params), self.statistics, strict=True)
            start, b, moved = (promote(each, np.float64) for each in ends)
            x = promote(sample_arrays(x), np.float64)
            y = promote(check_target(self.net, start[0], x, y, loss), np.float64)
            check_loss(loss, y)
            before, after = (
                np.array([float(loss(evaluate(model, _between(start, end, s), x), y)) for s in t])
                for end in (b, moved)
            )
        return Barrier(t, before, after)


def _between(a: Any, b: Any, t: Any) -> Any:
    return jax.tree.map(lambda p, q: (1 - t) * p + t * q, a, b)


@follows
def match(
    f: Model,
    a: Any,
    b: Any,
    *,
    x: Samples | None = None,
    other: Model | None = None,
    starts: int = 8,
    key: Key = None,
) -> Match:
    """Return the element g of the symmetries of `f` that brings `b` nearest to `a`: min ‖a − g b‖.

    g permutes the positions of every hidden axis (units, channels, residual streams, heads, as
    `symmetry_group(f, a, x)` reads them from the graph), flips signs where odd or even bends allow,
    and multiplies homogeneous positions by positive factors (`channel_scalings`). One axis after the
    other is brought to its optimum, an assignment whose entries are minimised over signs and
    factors, until nothing gains. That is the global minimum for one hidden axis; for several it is
    a local one that depends on the start, so that the search starts from the identity and `starts`
    times, all but the first drawn with `key`, from both networks balanced. Every head has an order
    of its own for the channels in it where f does not mind (tried at random parameters). Other
    symmetries (matrices on linear units and within heads, rotations of streams) are not searched:
    `not_searched` names those that f has. `x` says the shapes of inputs (an `nm.MLP` needs none),
    and f is compared on it.

    Running statistics of batch normalisation follow their channels and do not count in the
    distance. Those of b are held by its own model, `other` (`f, a = nm.from_torch(first)`; `other, b
    = nm.from_torch(second)`); the result's `model` is f with them moved.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.array([[1.0], [3.0]]), np.zeros(2)), nm.Layer(np.array([[1.0, 2.0]]), np.zeros(1)))
    >>> swapped = (nm.Layer(np.array([[12.0], [1.0]]), np.zeros(2)), nm.Layer(np.array([[0.5, 1.0]]), np.zeros(1)))
    >>> found = nm.symmetry.match(net, params, swapped)          # the second unit first, the first over 4
    >>> found.moves[0].order.tolist(), found.params[0].weight.round(12).tolist(), round(found.distance.after, 12)
    ([1, 0], [[1.0], [3.0]], 0.0)
    """
    refuse_tracers((a, b, x), "`match`")
    check_model(f)
    x = _sample(f, x)
    _check_pair(a, b)
    if not isinstance(starts, int) or starts < 0:
        raise ValueError(f"`starts` is {starts!r}; pass a whole number, 0 or more.")
    statistics = _statistics(f, other)
    if statistics[0]:
        pairs = zip(*statistics, strict=True)
        model = _Opened(f, tuple(bool((s > 0).all() and (t > 0).all()) for s, t in pairs))
        start, end = model.paired(a, statistics[0]), model.paired(b, statistics[1])
    else:
        model, start, end = f, a, b
    axes, left_out = _axes(model, start, x)
    # Statistics are no parameters: as zeros they move with their channels and cost nothing.
    free = [np.zeros_like(each) for each in statistics[0]]
    target, leaves = ([*_float64(each), *free] for each in (a, b))
    rng = host_generator(jax.random.key(0) if key is None else key)
    found = list(_searches(axes, target, leaves, starts, rng))
    best = min(found, key=lambda search: search.distance)
    element = _element(axes, best.states, [leaf.shape for leaf in leaves])
    moved, carried = element((b, statistics[1])) if statistics[0] else (element(b), ())
    return Match(
        net=f,
        x=x,
        a=a,
        b=b,
        params=moved,
        statistics=(*statistics, carried),
        element=element,
        moves=tuple(
            Move(axis.parameters, state.order, state.factors, axis.head)
            for axis, state in zip(axes, best.states, strict=True)
        ),
        distance=Change(_distance(target, leaves), best.distance),
        deviation=_deviation(model, end, element, x),
        starts=tuple(search.distance for search in found),
        left_out=left_out,
    )


def _sample(f: Model, x: Any) -> Any:
    if x is not None:
        return sample_arrays(x)
    net = perceptron(f)
    if net is None:
        raise TypeError(
            "`x` is None; pass samples: what a network other than an nm.MLP takes cannot be read "
            "from its parameters."
        )
    return np.random.default_rng(0).standard_normal((_INPUTS, net.widths[0]))


@dataclass(frozen=True)
class _Opened:
    """A network with its statistics as parameters, those that are positive (variances) by their
    logarithms: so random ones are variances too, and none can change its sign.
    """

    f: Model
    positive: tuple[bool, ...]

    def __call__(self, both: Any, x: Any) -> Any:
        params, own = both
        pairs = zip(own, self.positive, strict=True)
        return WithStatistics(self.f)(
            (params, tuple(jnp.exp(s) if log else s for s, log in pairs)), x
        )

    def paired(self, params: Any, statistics: Sequence[np.ndarray]) -> Any:
        """The parameters of this network."""
        pairs = zip(statistics, self.positive, strict=True)
        return params, tuple(np.log(s) if log else s for s, log in pairs)


def _statistics(f: Model, other: Model | None) -> tuple[Any, Any]:
    """The running statistics of both networks."""
    ours, theirs = (WithStatistics(f if each is None else each).statistics for each in (f, other))
    shapes = [[each.shape for each in own] for own in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"`other` holds statistics of shapes {shapes[1]} but `f` of {shapes[0]}; pass the model "
            "that was made together with `b`."
        )
    return ours, theirs


def _check_pair(a: Any, b: Any) -> None:
    check_params(a)
    check_params(b)
    if jax.tree.structure(a) != jax.tree.structure(b):
        raise ValueError(
            "`b` has another structure than `a`; pass two sets of parameters of the same model."
        )
    for name, p, q in zip(leaf_names(a), jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if np.shape(p) != np.shape(q):
            raise ValueError(
                f"`b` has shape {np.shape(q)} at {name} but `a` has {np.shape(p)}; pass two sets "
                "of parameters of the same model."
            )


def _float64(params: Any) -> Arrays:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(params)]


def _distance(a: Arrays, b: Arrays) -> float:
    return float(np.sqrt(sum(((p - q) ** 2).sum() for p, q in zip(a, b, strict=True))))


def _deviation(f: Model, params: Any, element: Element, x: Any) -> float:
    """By how much f moves in float64, relative to its largest value."""
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    with arithmetic():
        x = promote(x, np.float64)
        before, after = (
            jax.tree.leaves(evaluate(f, promote(p, np.float64), x)) for p in (wide, element(wide))
        )
        size = max(float(abs(v).max()) for v in before) or 1.0
        moved = max(float(abs(v - w).max()) for v, w in zip(before, after, strict=True))
    return moved / size


@dataclass(frozen=True, eq=False)
class _Axis:
    """A hidden axis: its slots, whether its places may be permuted, all sign patterns of one place
    (patterns, slots), and the exponents of its scalings, one row each. An axis of heads comes before
    those inside each head, of which `inside` holds the numbers, a row for each kind.
    """

    parameters: tuple[str, ...]
    slots: "tuple[Slot | _HeadSlot, ...]"
    permutes: bool
    signs: np.ndarray
    exponents: tuple[np.ndarray, ...]
    head: int | None = None
    inside: tuple[tuple[int, ...], ...] = ()

    @property
    def size(self) -> int:
        return self.slots[0].size

    @property
    def damping(self) -> float:
        """Half a step where a leaf meets the axis twice: each of its slots would make it whole."""
        leaves = [slot.leaf for slot in self.slots]
        return 1.0 if len(set(leaves)) == len(leaves) else 0.5


@dataclass(frozen=True, eq=False)
class _HeadSlot:
    """The part of a slot that lies in one head; `each` is where the heads are."""

    slot: Slot
    each: Slot
    head: int

    @property
    def leaf(self) -> int:
        return self.slot.leaf

    @property
    def size(self) -> int:
        return self.slot.size

    def slices(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return self.slot.by_head(self.each, arrays[self.leaf])[self.head].reshape(self.size, -1)

    def put(self, arrays: Arrays, slices: np.ndarray) -> None:
        a = align(arrays[self.leaf])
        view = self.slot.by_head(self.each, a)[self.head]
        view[...] = slices.reshape(view.shape)
        arrays[self.leaf] = a


@dataclass(frozen=True, eq=False)
class _State:
    """An element of one axis's group: place i is the old place order[i] times factors[s, i]."""

    order: np.ndarray
    factors: np.ndarray

    @staticmethod
    def identity(axis: _Axis) -> "_State":
        return _State(np.arange(axis.size), np.ones((len(axis.slots), axis.size)))

    def after(self, first: "_State") -> "_State":
        return _State(first.order[self.order], self.factors * first.factors[:, self.order])

    @property
    def inverse(self) -> "_State":
        back = np.argsort(self.order)
        return _State(back, 1 / self.factors[:, back])

    def act(self, axis: _Axis, leaves: Sequence[np.ndarray]) -> Arrays:
        found = list(leaves)
        for slot, factors in zip(axis.slots, self.factors, strict=True):
            slot.put(found, slot.slices(found)[self.order] * factors[:, None])
        return found


@dataclass(frozen=True, eq=False)
class _Search:
    """Where a search ended: an element for each axis, and the distance."""

    states: tuple[_State, ...]
    distance: float


def _axes(f: Model, params: Any, x: Any) -> tuple[list[_Axis], tuple[str, ...]]:
    """The hidden axes with what their groups allow: permutations and signs of `symmetry_group`,
    factors of `channel_scalings`. A scaling of slots that are no permutable axis is one alone.
    """
    names, found = leaf_names(params), list[_Axis]()
    scalings = channel_scalings(f, params, x)
    left_out, unused = list(scalings.left_out), list(scalings.balances)
    for group in symmetry_group(f, params, x).factors:
        assert isinstance(group, ChannelPermutationGroup)
        own = [balance for balance in unused if set(_bare(balance)) <= set(group.slots)]
        unused = [balance for balance in unused if not any(balance is each for each in own)]
        found.append(_Axis(
            tuple(names[slot.leaf] for slot in group.slots), group.slots, True,
            _sign_patterns(group), tuple(_rows(own, group.slots, left_out)),
        ))  # fmt: skip
    for balance in unused:
        slots = _bare(balance)
        rows = tuple(_rows([balance], slots, left_out))
        found.append(_Axis(balance.leaves, slots, False, np.ones((1, len(slots))), rows))
    return _split_heads(found, NetworkSampler(f, params, x, False)), tuple(left_out)


def _split_heads(axes: Sequence[_Axis], sampler: NetworkSampler) -> list[_Axis]:
    """The axes, those inside heads once for each head where f allows that, behind all others."""
    within = dict[int, tuple[int, list[_Axis]]]()
    for i, k in itertools.permutations(range(len(axes)), 2):
        if i not in within and k not in within and axes[i].permutes:
            own = _by_head(axes[i], axes[k])
            if own and _is_allowed(own, sampler):
                within[i] = k, own
    whole = [k for k in range(len(axes)) if k not in within]
    found = [axes[k] for k in whole]
    for outer, own in within.values():
        numbers, place = tuple(range(len(found), len(found) + len(own))), whole.index(outer)
        found[place] = replace(found[place], inside=(*found[place].inside, numbers))
        found += own
    return found


def _by_head(axis: _Axis, outer: _Axis) -> list[_Axis]:
    """The axis once for each place of another that has all of its entries; none where some are
    outside.
    """
    slots, others = (
        [slot for slot in each.slots if isinstance(slot, Slot)] for each in (axis, outer)
    )
    heads = [each for slot in slots if (each := slot.beside(others)) is not None]
    if len(heads) < len(slots):
        return []
    return [
        replace(axis, head=h, slots=tuple(_HeadSlot(s, e, h) for s, e in zip(slots, heads, strict=True)))
        for h in range(outer.size)
    ]  # fmt: skip


def _is_allowed(axes: Sequence[_Axis], sampler: NetworkSampler) -> bool:
    """Whether random orders, signs and factors for each head leave f as it is at random parameters."""
    rng = np.random.default_rng(0)
    leaves, x = sampler.draw(rng), sampler.draw_input(rng, 2)
    moved = leaves
    for axis in axes:
        factors = axis.signs[rng.integers(len(axis.signs), size=axis.size)].T
        for row in axis.exponents:
            factors = factors * rng.uniform(0.5, 2.0, axis.size) ** row[:, None]
        moved = _State(rng.permutation(axis.size), factors).act(axis, moved)
    with arithmetic():
        x = jax.tree.map(lambda a: a[:, 0], promote(x, np.float64))
        before, after = (
            jax.tree.leaves(evaluate(sampler.f, jax.tree.unflatten(sampler.structure, each), x))
            for each in (leaves, moved)
        )
    return all(
        bool(np.abs(np.asarray(p) - np.asarray(q)).max() <= _SAME * np.abs(np.asarray(p)).max())
        for p, q in zip(before, after, strict=True)
    )


def _bare(balance: Balance) -> tuple[Slot, ...]:
    return tuple(replace(slot, reads=False) for slot in balance.channels.slots)


def _rows(
    balances: Sequence[Balance], slots: tuple[Slot, ...], left_out: list[str]
) -> Iterator[np.ndarray]:
    """Exponents for each slot, where they are whole numbers; other laws are named in `left_out`."""
    for balance in balances:
        own = dict(zip(_bare(balance), balance.exponents, strict=True))
        row = np.array([own.get(slot, 0.0) for slot in slots])
        if (row == np.round(row)).all():
            yield row.astype(int)
        else:
            left_out.append(f"{balance.writer} (exponents that are no fractions)")


def _sign_patterns(group: ChannelPermutationGroup) -> np.ndarray:
    """Every product of the flips, (patterns, slots); the first is all ones."""
    flips = np.array([[-1.0 if k in flip else 1.0 for k in range(len(group.slots))]
                      for flip in group.flips]).reshape(-1, len(group.slots))  # fmt: skip
    chosen = itertools.product((0, 1), repeat=len(flips))
    return np.array([np.prod(flips ** np.array(c)[:, None], axis=0) for c in chosen])


def _element(
    axes: Sequence[_Axis], states: Sequence[_State], shapes: Sequence[tuple[int, ...]]
) -> Element:
    """The product over axes as one element; inside heads it permutes entries, not whole axes."""
    if any(axis.head is not None for axis in axes):
        numbers = [np.arange(np.prod(shape, dtype=int)).reshape(shape) for shape in shapes]
        factors = _act(axes, states, [np.ones(shape) for shape in shapes])
        still = [replace(state, factors=np.ones_like(state.factors)) for state in states]
        return Entries(tuple(_act(axes, still, numbers)), tuple(factors))
    found: Any = channel_monomial(shapes, (), np.arange(0), np.ones((0, 0)))
    for axis, state in zip(axes, states, strict=True):
        slots = [slot for slot in axis.slots if isinstance(slot, Slot)]
        found = channel_monomial(shapes, slots, state.order, state.factors) @ found
    return found


def _move(axes: Sequence[_Axis], states: Sequence[_State], k: int, step: _State) -> list[_State]:
    """The states after a step on axis k. What is done inside heads goes with the heads."""
    found = list(states)
    found[k] = step.after(states[k])
    for numbers in axes[k].inside:
        for place, old in enumerate(step.order):
            found[numbers[place]] = states[numbers[old]]
    return found


def _product(
    axes: Sequence[_Axis], late: Sequence[_State], early: Sequence[_State]
) -> tuple[_State, ...]:
    """First `early`, then `late`."""
    found = list(early)
    for k, step in enumerate(late):
        found = _move(axes, found, k, step)
    return tuple(found)


def _searches(
    axes: list[_Axis], a: Arrays, b: Arrays, starts: int, rng: np.random.Generator
) -> Iterator[_Search]:
    """From the identity; and from the best of some starts between the two networks balanced, where
    factors between them are gone.
    """
    identity = tuple(map(_State.identity, axes))
    yield _descend(axes, a, b, identity)
    if not axes or not starts:
        return
    to_a, to_b = _balance(axes, a), _balance(axes, b)
    level_a, level_b = _act(axes, to_a, a), _act(axes, to_b, b)
    bare = [replace(axis, exponents=()) for axis in axes]
    known = set[bytes]()
    for number in range(starts):
        start = tuple(_shuffle(axis, rng) for axis in axes) if number else identity
        found = _descend(bare, level_a, level_b, start)
        order = b"".join(state.order.tobytes() for state in found.states)
        if order in known:
            continue
        known.add(order)
        back = [state.inverse for state in to_a]  # factors alone: no heads move
        joined = _product(axes, back, _product(axes, found.states, to_b))
        yield _descend(axes, a, b, joined)


def _shuffle(axis: _Axis, rng: np.random.Generator) -> _State:
    order = rng.permutation(axis.size) if axis.permutes else np.arange(axis.size)
    return replace(_State.identity(axis), order=order)


def _act(axes: Sequence[_Axis], states: Sequence[_State], leaves: Arrays) -> Arrays:
    for axis, state in zip(axes, states, strict=True):
        leaves = state.act(axis, leaves)
    return leaves


def _balance(axes: Sequence[_Axis], leaves: Arrays) -> tuple[_State, ...]:
    """The factors that bring θ nearest to the origin, a convex problem in their logarithms: one
    axis after the other until none moves.
    """

    def shorten(axis: _Axis, leaves: Arrays) -> _State:
        state = _State.identity(axis)
        for row in axis.exponents:
            norms = np.array([(s.slices(leaves) ** 2).sum(axis=1) for s in axis.slots])
            t = _best_factor(row, norms * state.factors**2, np.zeros_like(norms))
            state = replace(state, factors=state.factors * t ** row[:, None])
        return state

    states = list(map(_State.identity, axes))
    _settle(axes, states, leaves, shorten)
    return tuple(states)


def _descend(axes: Sequence[_Axis], a: Arrays, b: Arrays, start: tuple[_State, ...]) -> _Search:
    """From a start, one axis after the other to its optimum, until no order changes."""
    states = list(start)
    fixed = [replace(axis, permutes=False, signs=axis.signs[:1]) for axis in axes]
    leaves = _act(axes, states, b)
    rounding = _ROUNDING * sum((leaf**2).sum() for leaf in (*a, *leaves))
    for _ in range(_SWEEPS):
        changed = False
        for k, axis in enumerate(axes):
            found = _optimum(axis, a, leaves, rounding)
            moved = found.act(axis, leaves)
            # A leaf that meets an axis twice makes the axis's own account wrong: the gain is
            # measured.
            if _distance(a, moved) ** 2 < _distance(a, leaves) ** 2 - rounding:
                states, leaves, changed = _move(axes, states, k, found), moved, True
        leaves = _settle(fixed, states, leaves, lambda axis, own: _optimum(axis, a, own, rounding))
        if not changed:
            break
    return _Search(tuple(states), _distance(a, leaves))


def _settle(
    axes: Sequence[_Axis],
    states: list[_State],
    leaves: Arrays,
    step: Callable[[_Axis, Arrays], _State],
) -> Arrays:
    """The leaves, and in place the states, when the factors of one axis after the other were
    brought to their best until none moves. Near there the distance says nothing of them, since it
    is flat.
    """
    for _ in range(_SWEEPS):
        largest = 0.0
        for k, axis in enumerate(axes):
            if axis.exponents:
                found = step(axis, leaves)
                found = replace(found, factors=found.factors**axis.damping)
                states[k], leaves = found.after(states[k]), found.act(axis, leaves)
                largest = max(largest, float(np.abs(found.factors - 1).max()))
        if largest <= _STILL:
            break
    return leaves


def _optimum(axis: _Axis, a: Arrays, b: Arrays, rounding: float) -> _State:
    """The best order, signs and factors of one axis, all others fixed; as they are where nothing
    is better by more than `rounding`.
    """
    ours, theirs = ([slot.slices(leaves) for slot in axis.slots] for leaves in (a, b))
    norms = np.array([(each**2).sum(axis=1) for each in theirs])
    if axis.permutes:
        products = np.array([p @ q.T for p, q in zip(ours, theirs, strict=True)])
        squares = np.broadcast_to(norms[:, None], products.shape)
    else:
        products = np.array([(p * q).sum(axis=1) for p, q in zip(ours, theirs, strict=True)])
        squares = norms
    best, factors = np.full(products.shape[1:], np.inf), np.ones(products.shape)
    for signs in axis.signs:
        signed = signs.reshape(-1, *[1] * (products.ndim - 1)) * np.ones(products.shape)
        for row in axis.exponents:
            t = _best_factor(row, squares * signed**2, products * signed)
            signed = signed * t ** row.reshape(-1, *[1] * (products.ndim - 1))
        cost = (squares * signed**2 - 2 * products * signed).sum(axis=0)
        better = cost < best - rounding / axis.size
        best, factors = np.where(better, cost, best), np.where(better, signed, factors)
    if not axis.permutes:
        return _State(np.arange(axis.size), factors)
    from scipy.optimize import linear_sum_assignment

    rows, order = linear_sum_assignment(best)
    if best.trace() - best[rows, order].sum() <= rounding:
        order = rows
    return _State(order, factors[:, rows, order])


def _best_factor(exponents: np.ndarray, squares: np.ndarray, products: np.ndarray) -> np.ndarray:
    """The t > 0 with the least Σ_s squares_s t^{2e_s} − 2 products_s t^{e_s}, elementwise behind
    the axis of slots; 1 where none is least (a slice of zeros).

    t times half the derivative is Σ_s e_s (squares_s t^{2e_s} − products_s t^{e_s}): times a power
    of t a polynomial, whose roots are the eigenvalues of its companion matrix.
    """
    lowest, highest = 2 * min(exponents.min(), 0), 2 * max(exponents.max(), 0)
    shape = squares.shape[1:]
    coefficients = np.zeros((highest - lowest + 1, *shape))
    for e, p, q in zip(exponents, squares, products, strict=True):
        if e:
            coefficients[2 * e - lowest] += e * p
            coefficients[e - lowest] -= e * q
    sound = (coefficients[0] < 0) & (coefficients[-1] > 0)
    if not sound.any():
        return np.ones(shape)
    own = coefficients[:, sound].T  # (many, degree + 1), lowest first
    degree = own.shape[1] - 1
    # In units of (|first| / last)^(1/degree) both ends of the polynomial are of one size.
    unit = (-own[:, 0] / own[:, -1]) ** (1 / degree)
    own = own * unit[:, None] ** np.arange(degree + 1)
    companion = np.zeros((len(own), degree, degree))
    companion[:, np.arange(1, degree), np.arange(degree - 1)] = 1.0
    companion[:, :, -1] = -own[:, :-1] / own[:, -1:]
    roots = np.linalg.eigvals(companion)
    # Rounding makes pairs of nearly equal roots complex; what is no root is not least.
    tried = np.where(roots.real > 0, np.abs(roots), 1.0) * unit[:, None]
    p, q = squares[:, sound], products[:, sound]
    powers = tried[None] ** exponents[:, None, None]
    values = (p[..., None] * powers**2 - 2 * q[..., None] * powers).sum(axis=0)
    found = np.ones(shape)
    found[sound] = np.take_along_axis(tried, values.argmin(axis=1)[:, None], axis=1)[:, 0]
    return found
