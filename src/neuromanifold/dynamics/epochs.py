"""The compiled core of training: permutation, step, epoch, and any number of epochs of many
members at once.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from neuromanifold.dynamics.optimizers import Optimizer, optimizer_at
from neuromanifold.dynamics.probes import Probe
from neuromanifold.graph.reading import call
from neuromanifold.models.losses import Loss


@dataclass(frozen=True)
class Recipe:
    """What is compiled into the program: equal recipes on equal shapes share it.
    `batch_size=None` is the full batch.
    """

    f: Any
    loss: Loss
    optimizer: Optimizer
    batch_size: int | None


class Learner(NamedTuple):
    """The numbers that training changes."""

    params: Any
    state: Any


class SweepPlace(NamedTuple):
    """Where a member stands in the sweep."""

    run: Any
    dataset: Any
    hyper: dict[str, Any]


def permutation(key: Any, n: int) -> Any:
    """A uniform permutation of range(n): the order of n random 64-bit numbers, whose lowest bits
    are replaced by 0 … n−1.

    So one array is sorted, and not two (as in `jax.random.permutation`), which is four times as
    fast on a CPU. Needs 64-bit types. Two of the numbers tie with probability below n³ · 2⁻⁶⁴.

    >>> with jax.enable_x64(True):
    ...     sorted(permutation(jax.random.key(0), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    width = (n - 1).bit_length()
    numbers = jax.random.bits(key, (n,), "uint64") >> width << width
    return (jnp.sort(numbers | jnp.arange(n, dtype="uint64")) & (2**width - 1)).astype("int32")


def _step(recipe: Recipe, optimizer: Any, learner: Learner, x: Any, y: Any) -> Learner:
    def objective(params: Any):
        return recipe.loss(call(recipe.f, params, x), y)

    value, gradient = jax.value_and_grad(objective)(learner.params)
    extra = {"value": value, "grad": gradient, "value_fn": objective}
    updates, state = optimizer.update(gradient, learner.state, learner.params, **extra)
    state = jax.tree.map(
        lambda new, old: new if new.dtype == old.dtype else new.astype(old.dtype),
        state,
        learner.state,
    )
    return Learner(optax.apply_updates(learner.params, updates), state)


def _epoch(recipe: Recipe, size: int, optimizer: Any, learner: Learner, x: Any, y: Any) -> Learner:
    """One pass: full batches by scan, then what is left as a batch of its own, whose loss is the
    mean over itself.
    """
    full = len(x) // size * size

    def step(learner: Any, batch: Any):
        return _step(recipe, optimizer, learner, *batch), None

    batches = tuple(a[:full].reshape(-1, size, *a.shape[1:]) for a in (x, y))
    learner, _ = jax.lax.scan(step, learner, batches)
    return learner if full == len(x) else _step(recipe, optimizer, learner, x[full:], y[full:])


def _epochs(
    recipe: Recipe, learner: Learner, place: SweepPlace, data: Any, key: Any, start: Any, stop: Any
) -> Learner:
    optimizer = optimizer_at(recipe.optimizer, place.hyper)
    x, y = _data_of(place, data)
    size = recipe.batch_size
    if size is None:
        return jax.lax.fori_loop(
            start, stop, lambda e, l: _step(recipe, optimizer, l, x, y), learner
        )

    def epoch(e: Any, learner: Any):
        order = permutation(jax.random.fold_in(jax.random.fold_in(key, e), place.run), len(x))
        return _epoch(recipe, size, optimizer, learner, x[order], y[order])

    return jax.lax.fori_loop(start, stop, epoch, learner)


def _data_of(place: SweepPlace, data: Any) -> tuple[Any, Any]:
    # A single data set stays free of the members' axis.
    return tuple(a[0] if len(a) == 1 else a[place.dataset] for a in data)


@partial(jax.jit, static_argnums=0)
def begin(recipe: Recipe, params: Any, place: SweepPlace) -> Learner:
    """Each member before its first step; `params` is theirs, with the axis of members in front."""

    def one(params: Any, hyper: Any):
        return Learner(params, optimizer_at(recipe.optimizer, hyper).init(params))

    return jax.vmap(one)(params, place.hyper)


@partial(jax.jit, static_argnums=0)
def advance(
    recipe: Recipe,
    learners: Learner,
    places: SweepPlace,
    data: Any,
    key: Any,
    start: Any,
    stop: Any,
) -> Learner:
    """Epochs `start` to `stop` of all members.

    The batches of an epoch depend on `key`, the epoch and the run alone: not on where training was
    cut into blocks, and not on data set or hyperparameters, which are thus compared on equal
    batches.
    """
    member = partial(_epochs, recipe)
    return jax.vmap(member, in_axes=(0, 0, None, None, None, None))(
        learners, places, data, key, start, stop
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def evaluate(
    f: Any, probes: tuple[Probe, ...], at_once: int, params: Any, places: SweepPlace, data: Any
) -> dict[str, Any]:
    """The traced probes on all members, `at_once` at a time."""

    def one(member: Any):
        params, place = member
        x, y = _data_of(place, data)
        return {probe.name: probe(f, params, x, y) for probe in probes}

    members = len(places.run)
    return (
        jax.vmap(one)((params, places))
        if at_once >= members
        else jax.lax.map(one, (params, places), batch_size=at_once)
    )
