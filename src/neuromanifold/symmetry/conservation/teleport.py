"""`teleport`: along the symmetry orbit to where the gradient is largest.
[teleport, Eq. 25, App. E]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from neuromanifold.graph.reading import call, evaluate
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_target,
)
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.precision import arithmetic, follower, promote, to_host
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import indefinite, refuse_tracers
from neuromanifold.symmetry.groups.base import Element, LieGroup
from neuromanifold.symmetry.groups.hadamard import Extended, HadamardGroup
from neuromanifold.symmetry.groups.product import symmetry_group
from neuromanifold.symmetry.groups.transformation import gamma_norm
from neuromanifold.tangent.prediction.alignment import alignment

_NUDGE = 1e-3


@dataclass(frozen=True, repr=False)
class Change(Result):
    """A number before and after the teleportation."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before."""
        return self.after / self.before if self.before else np.inf


@dataclass(frozen=True, eq=False, repr=False)
class Teleportation(Result):
    """Where the parameters went, with evidence.

    `model(params, x)` is the function with which to go on: the network itself, or for
    `HadamardGroup` the transformed model θ ↦ F(c ⊙ θ). `deviation` is the largest change of f on
    the sample relative to its largest value, `gamma_norm` is ‖Γ‖ with ∇ ↦ Γ∇, `history` the
    gradient norm at each step of the search.
    """

    params: Any
    model: Any
    element: Element
    coordinates: Array
    gradient_norm: Change
    alignment: Change
    gamma_norm: float
    deviation: float
    history: Array

    def headline(self) -> str:
        """Say what the teleportation changed."""
        return (
            f"gradient norm {self.gradient_norm.before:.4g} → {self.gradient_norm.after:.4g}, "
            "alignment "
            f"{self.alignment.before:.4g} → {self.alignment.after:.4g}, ‖Γ‖ "
            f"{self.gamma_norm:.3g}, f moved by {self.deviation:.1g}"
        )


@follows
def teleport(
    net: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    group: LieGroup | None = None,
    steps: int = 100,
    bound: float = 4.0,
    penalty: float = 0.0,
    lr: float = 0.05,
    clip: float | None = None,
    starts: int = 1,
    rtol: float = 1e-10,
) -> Teleportation:
    """Maximise ‖∇L(gθ)‖ over the orbit of a symmetry group, in float64.   [teleport, Eq. 25]

    Adam climbs in the coordinates of the group (log-scalings, Lie algebra) for `steps` steps, where
    ‖Γ‖ ≤ `bound` (for translations, which are not linear, only their mixing part counts). The best
    point is returned, so the gradient norm never falls (without a penalty). It is checked that f did
    not change, to `rtol`.

    `group` is all of `symmetry_group(net)` when absent; for a network that is no MLP pass the group
    that `discover` found. `penalty` subtracts penalty·‖exp(ξ) − 1‖². `clip` limits the norm of each
    ascent direction. ‖∇L‖ has many local maxima on an orbit: with `starts` several climbs are made,
    all but the first from far away. App. E of the paper is HadamardGroup, lr=0.01, penalty=0.1,
    bound=10.

    >>> net = nm.MLP((1, 1, 1), bias=False)
    >>> params = (nm.Layer(np.array([[1.0]])), nm.Layer(np.array([[1.0]])))
    >>> squared = lambda prediction, target: ((prediction - target) ** 2).sum()
    >>> moved = nm.teleport(net, params, np.array([[1.0]]), np.array([[0.0]]), loss=squared, bound=4.0)
    >>> round(moved.gradient_norm.ratio ** 2, 6)        # (c² + 1/c²) / 2 at c = 2, the bound
    2.125
    """
    refuse_tracers((params, x, y), "`teleport`")
    group = symmetry_group(net) if group is None else group
    check_options(net, group, steps, bound)
    if not isinstance(starts, int) or starts < 1:
        raise ValueError(f"`starts` is {starts!r}; pass a positive whole number of climbs.")
    follow = follower(params)
    with arithmetic():
        params, x = check_arguments(net, params, x, dtype=np.float64)
        y = promote(check_target(net, params, x, y, loss), np.float64)
        check_loss(loss, y)
        start = group.extend(params)
        found, history = _search(
            Search(group, loss, steps, bound, penalty, lr, clip, starts), start, x, y
        )
        element = group.element(found)
        moved = element(to_host(start))
        before, after = evaluate(group.model, start, x), evaluate(group.model, moved, x)
        deviation = float(np.abs(after - before).max() / max(1e-300, np.abs(before).max()))
        if not deviation <= rtol:
            raise ArithmeticError(
                f"the teleportation moved f by {deviation:.1e} of its size, beyond `rtol` = "
                f"{rtol:.0e}; lower `bound`."
            )
        model, theta = _continue(group, moved)
        norms = Change(*(_norm(m, loss, p, x, y) for m, p in ((net, params), (model, theta))))
        aligned = Change(
            alignment(net, params, x, y, loss=loss), alignment(model, theta, x, y, loss=loss)
        )
        return Teleportation(
            params=follow(to_host(theta)),
            model=model,
            element=element,
            coordinates=np.asarray(found),
            gradient_norm=norms,
            alignment=aligned,
            gamma_norm=_gamma_norm(group, element, params),
            deviation=deviation,
            history=np.asarray(history),
        )


def check_options(net: Any, group: Any, steps: Any, bound: Any) -> None:
    if not isinstance(group, LieGroup):
        raise TypeError(
            f"`group` is {indefinite(group)}, which has no coordinates to search over; pass a "
            "continuous group "
            "such as nm.symmetry.ScalingGroup(net), or nm.symmetry.discover(…).group of any "
            "network."
        )
    if group.net != net:
        raise ValueError(
            f"`group` acts on {group.net}, not on {net}; build it from the same network."
        )
    if group.dimension == 0:
        raise ValueError(
            f"`group` of {net} has dimension 0: its activations are neither homogeneous nor "
            "linear; use nm.symmetry.HadamardGroup(net)."
        )
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"`steps` is {steps!r}; pass a positive whole number.")
    if not bound > 1:
        raise ValueError(
            f"`bound` is {bound!r}; pass a number above 1: it limits ‖Γ‖, which is 1 at the start."
        )


@dataclass(frozen=True)
class Search:
    """What the search is made of, hashable, so that one compilation serves many networks."""

    group: LieGroup
    loss: Loss
    steps: int
    bound: float
    penalty: float = 0.0
    lr: float = 0.05
    clip: float | None = None
    starts: int = 1

    @property
    def ascent(self) -> Any:
        """Adam, with the direction clipped before if asked for."""
        clipping = [] if self.clip is None else [optax.clip_by_global_norm(self.clip)]
        return optax.chain(*clipping, optax.adam(self.lr))


def gradient_norm(model: Any, loss: Loss, params: Any, x: Any, y: Any) -> Any:
    """Return ‖∇_θ loss(f_θ(x), y)‖."""
    gradient = jax.grad(lambda p: loss(call(model, p, x), y))(params)
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))


def _norm(model: Any, loss: Loss, params: Any, x: Any, y: Any) -> float:
    return float(_gradient_norm(model, loss, promote(params, np.float64), x, y))


_gradient_norm = jax.jit(gradient_norm, static_argnums=(0, 1))


@jax.jit(static_argnums=0)
def _search(search: Search, start: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return search_orbit(search, start, x, y)


def search_orbit(search: Search, start: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the best coordinates met, and the gradient norm at each step. Traceable."""
    group, ascent = search.group, search.ascent

    def objective(coordinates: Any):
        size = orbit_norm(group, search.loss, start, coordinates, x, y)
        return size - search.penalty * jnp.sum((jnp.exp(coordinates) - 1) ** 2), size

    def step(carry: Any, _):
        coordinates, state, best, best_value = carry
        (value, size), uphill = jax.value_and_grad(objective, has_aux=True)(coordinates)
        better = value > best_value
        best = jnp.where(better, coordinates, best)
        best_value = jnp.where(better, value, best_value)
        updates, state = ascent.update(-uphill, state)
        coordinates = group.clip(optax.apply_updates(coordinates, updates), search.bound)
        return (coordinates, state, best, best_value), size

    dtype = jax.tree.leaves(start)[0].dtype
    zero = jnp.zeros(group.dimension, dtype)

    def climb(beside: Any) -> tuple[Any, Any, Any]:
        carry = (group.clip(beside, search.bound), ascent.init(zero), zero, objective(zero)[0])
        (_, _, best, value), history = jax.lax.scan(step, carry, None, length=search.steps)
        return best, value, history

    begin = jnp.asarray(_beginnings(search), dtype)
    if search.starts == 1:
        best, _, history = climb(begin[0])
        return best, history
    found, values, histories = jax.lax.map(climb, begin)
    chosen = jnp.argmax(values)
    return found[chosen], histories[chosen]


def _beginnings(search: Search) -> np.ndarray:
    """Where to climb from: a little beside the identity, since a balanced point is critical for
    ‖∇L‖, and far from it.
    """
    rng, D = np.random.default_rng(0), search.group.dimension
    beside = _NUDGE * rng.standard_normal((1, D))
    far = rng.standard_normal((search.starts - 1, D)) * np.log(search.bound) / np.sqrt(D)
    return np.concatenate([beside, far])


def orbit_norm(group: LieGroup, loss: Loss, start: Any, coordinates: Any, x: Any, y: Any) -> Any:
    """Return ‖∇_θ L‖ at the point of the orbit with the given coordinates; of an extended model
    only θ counts as parameters.
    """
    moved = group.exponential(coordinates).act(start)
    if isinstance(moved, Extended):
        return gradient_norm(
            lambda p, x: call(group.model, Extended(moved.factors, p), x),
            loss,
            moved.params,
            x,
            y,
        )
    return gradient_norm(group.model, loss, moved, x, y)


def _continue(group: LieGroup, moved: Any) -> tuple[Any, Any]:
    if isinstance(group, HadamardGroup):
        return group.model.frozen(moved.factors), moved.params
    return group.net, moved


def _gamma_norm(group: LieGroup, element: Any, params: Any) -> float:
    if isinstance(group, HadamardGroup):
        return max(float(np.max(leaf)) for leaf in jax.tree.leaves(element.factors))
    return gamma_norm(element, params)


class TeleportState(NamedTuple):
    """How many updates were made, and the state of the optimizer."""

    count: Any
    inner: Any


def teleporting(
    optimizer: optax.GradientTransformation,
    net: Model,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    at: Sequence[int] = (0,),
    group: LieGroup | None = None,
    steps: int = 20,
    bound: float = 4.0,
    lr: float = 0.05,
) -> optax.GradientTransformation:
    """Return the optimizer, except that update number k in `at` is a teleportation g(θ) − θ on the
    data (x, y) instead.

    The function does not change at that update; the optimizer's memory starts anew, since it
    belongs to the old coordinates. Works under `jit`, `vmap` and `scan`, in the dtype of the
    parameters.

    `optimizer` is any of optax; `group`, `steps`, `bound` and `lr` are as for `teleport`.

    >>> import optax
    >>> net = nm.MLP((1, 2, 1))
    >>> params, x, y = net.init(key=jax.random.key(0)), jnp.ones((3, 1)), jnp.zeros((3, 1))
    >>> rule = nm.symmetry.teleporting(optax.sgd(0.1), net, x, y, loss=lambda p, t: ((p - t) ** 2).mean())
    >>> updates, state = rule.update(params, rule.init(params), params)
    >>> moved = optax.apply_updates(params, updates)
    >>> bool(abs(net(moved, x) - net(params, x)).max() < 1e-5), int(state.count)
    (True, 1)
    """
    group = symmetry_group(net) if group is None else group
    check_options(net, group, steps, bound)
    search = Search(group, loss, steps, bound, lr=lr)
    marks = jnp.array(sorted(at), jnp.int32)

    def init(params: Any) -> TeleportState:
        return TeleportState(jnp.zeros((), jnp.int32), optimizer.init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "`params` is None; a teleportation needs them: call update(updates, state, params)."
            )

        def jump(_):
            dtype = jax.tree.leaves(params)[0].dtype
            found, _ = search_orbit(search, params, jnp.asarray(x, dtype), jnp.asarray(y, dtype))
            moved = group.exponential(found).act(params)
            change = jax.tree.map(lambda new, old: (new - old).astype(old.dtype), moved, params)
            return change, optimizer.init(params)

        def go_on(_):
            return optimizer.update(updates, state.inner, params)

        changed, inner = jax.lax.cond(jnp.isin(state.count, marks), jump, go_on, None)
        return changed, TeleportState(state.count + 1, inner)

    return optax.GradientTransformation(init, update)
