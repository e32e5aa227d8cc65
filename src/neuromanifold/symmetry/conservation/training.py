"""Teleporting during training, as an optax transformation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from neuromanifold.models.arguments import Samples, Targets
from neuromanifold.models.losses import Loss, mse
from neuromanifold.symmetry.conservation.teleport import Search, check_options, search_orbit
from neuromanifold.symmetry.groups.base import LieGroup
from neuromanifold.symmetry.groups.product import symmetry_group


class TeleportState(NamedTuple):
    """How many updates were made, and the state of the optimizer."""

    count: Any
    inner: Any


def teleporting(
    optimizer: optax.GradientTransformation,
    net: Any,
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
    """The optimizer, except that update number k in `at` is a teleportation g(θ) − θ on the data
    (x, y) instead.

    The function does not change at that update; the optimizer's memory starts anew, since it
    belongs to the old coordinates. Works under `jit`, `vmap` and `scan`, in the dtype of the
    parameters.

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
