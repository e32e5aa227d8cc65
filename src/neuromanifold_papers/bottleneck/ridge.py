"""Full-batch training with ridge, loss + λ‖θ‖²: Adam first, then L-BFGS in float64 to
convergence.   [bottleneck, Sec. 3.1]
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.dynamics.optimizers import adam_l2
from neuromanifold.dynamics.training import train
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.precision import arithmetic, promote, to_host
from neuromanifold_papers.bottleneck.family import DepthFamily

FIXED = "open"


@dataclass(frozen=True, eq=False)
class RidgeTraining:
    """Trained parameters with a leading run axis, and for each run where it ended.

    `gradient_norm` is ‖∇(loss + λ‖θ‖²)‖ at the end, `adam_gradient_norm` after the first phase; at
    a kink of the loss it need not vanish. `adam_objective` and `objective` are loss + λ‖θ‖² after
    each phase.
    """

    params: Any
    ridge: float
    loss: Float[np.ndarray, " runs"]
    squared_norm: Float[np.ndarray, " runs"]
    gradient_norm: Float[np.ndarray, " runs"]
    adam_gradient_norm: Float[np.ndarray, " runs"]
    adam_objective: Float[np.ndarray, " runs"]

    @property
    def objective(self) -> Float[np.ndarray, " runs"]:
        """loss + λ‖θ‖²."""
        return self.loss + self.ridge * self.squared_norm


def train_ridge(
    f: Callable[[Any, Any], Any],
    params: Any,
    x: Any,
    y: Any,
    *,
    key: Any,
    ridge: float,
    steps: int,
    lr: float = 2e-3,
    polish: int = 200,
    tolerance: float = 1e-7,
    loss: Loss = mse,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    memory: int | str | None = None,
) -> RidgeTraining:
    """Minimise loss(f_θ(x), y) + λ‖θ‖² over all samples at once, many runs side by side.
    [bottleneck, Sec. 3.1]

    `steps` of Adam with a cosine decay of the learning rate to zero, in the dtype of `params`, by
    `train`; then up to `polish` steps of L-BFGS in float64, until the gradient is below
    `tolerance`. `params` has a leading run axis; an entry `"open"` (see `DepthFamily`) is kept as
    it is and not counted in ‖θ‖². `checkpoint`, `progress` and `memory` are those of `train`.

    >>> from neuromanifold_papers.bottleneck.ridge import train_ridge
    >>> x = np.array([[1.0], [2.0]])
    >>> done = train_ridge(lambda p, x: x * p, np.zeros((1, 1)), x, 3 * x, key=jax.random.key(0), ridge=0.5, steps=10)
    >>> done.params.item(), bool(done.gradient_norm < 1e-7)          # 7.5/(2.5 + 0.5)
    (2.5, True)
    """
    if not ridge >= 0 or not np.isfinite(ridge):
        raise ValueError(f"`ridge` is {ridge}; pass a finite number, 0 or more.")
    if polish != int(polish) or polish < 0:
        raise ValueError(f"`polish` is {polish!r}; pass a whole number of steps, 0 or more.")
    optimizer = _fixing(params, lr, steps, ridge)
    first = train(
        f,
        params,
        x,
        y,
        key=key,
        epochs=steps,
        loss=loss,
        optimizer=optimizer,
        checkpoint=checkpoint,
        progress=progress,
        memory=memory,
        single=False,
    )
    with arithmetic():
        arguments = promote((first.params, x, y), np.float64)
        before = _evaluated(f, loss, ridge, *arguments)
        polished = arguments[0]
        if polish:
            polished = _polish(f, loss, ridge, int(polish), float(tolerance), *arguments)
            polished = _better(
                polished, arguments[0], before["objective"], f, loss, ridge, *arguments[1:]
            )
        after = to_host(_evaluated(f, loss, ridge, polished, *arguments[1:]))
        before, polished = to_host((before, polished))
    return RidgeTraining(
        params=polished,
        ridge=float(ridge),
        loss=after["loss"],
        squared_norm=after["squared_norm"],
        gradient_norm=after["gradient_norm"],
        adam_gradient_norm=before["gradient_norm"],
        adam_objective=before["objective"],
    )


@dataclass(frozen=True, kw_only=True)
class RidgeStudy:
    """How the networks of Figures 1 and 2 are trained: `seeds` of each depth, side by side."""

    width: int
    steps: int
    polish: int
    ridge: float
    lr: float = 1e-3
    seeds: int = 1
    memory: str | None = None

    def trained(
        self,
        x: Any,
        y: Any,
        depths: tuple[int, ...],
        keys: tuple[int, int],
        checkpoint: Path | None,
        progress: bool,
    ) -> tuple[DepthFamily, Any, RidgeTraining]:
        """The networks, their parameters at the start, and the training; the keys of both."""
        family = DepthFamily(x.shape[1], self.width, y.shape[1], depths * self.seeds)
        start = family.init(key=jax.random.key(keys[0]))
        how: Any = {
            name: getattr(self, name) for name in ("ridge", "steps", "lr", "polish", "memory")
        }
        how |= {"checkpoint": checkpoint, "progress": progress, "key": jax.random.key(keys[1])}
        return family, start, train_ridge(family, start, x, y, **how)


def weight_spectra(params: Any) -> xr.Dataset:
    """The singular values of every layer's weights, filled up with nan."""
    spectra = [np.linalg.svd(layer.weight, compute_uv=False) for layer in params]
    values = np.full((len(spectra), max(map(len, spectra))), np.nan)
    for row, found in zip(values, spectra, strict=True):
        row[: len(found)] = found
    return xr.Dataset(
        {"singular_values": (("layer", "index"), values)},
        coords={"layer": np.arange(1, len(spectra) + 1)},
    )


def _fixing(params: Any, lr: float, steps: int, ridge: float) -> optax.GradientTransformation:
    adam = _adam(float(lr), int(steps), float(ridge))
    if not (isinstance(params, dict) and FIXED in params):
        return adam
    return _with_fixed(float(lr), int(steps), float(ridge))


@lru_cache(maxsize=64)
def _adam(lr: float, steps: int, ridge: float) -> optax.GradientTransformation:
    # `adam_l2` decays by weight_decay/2 · ‖θ‖².
    return adam_l2(optax.cosine_decay_schedule(lr, max(1, steps)), 2 * ridge)


@lru_cache(maxsize=64)
def _with_fixed(lr: float, steps: int, ridge: float) -> optax.GradientTransformation:
    def labels(params: Any) -> Any:
        return {name: FIXED if name == FIXED else "free" for name in params}

    transforms = {"free": _adam(lr, steps, ridge), FIXED: optax.set_to_zero()}
    made = optax.multi_transform(cast(Any, transforms), labels)

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        return made.update(gradient, state, params)

    update.__qualname__ = f"ridge_adam(lr={lr}, steps={steps}, ridge={ridge})"
    return optax.GradientTransformation(made.init, cast(Any, update))


def _split(params: Any) -> tuple[Any, Any]:
    """What is trained, and what is fixed."""
    if isinstance(params, dict) and FIXED in params:
        return {k: v for k, v in params.items() if k != FIXED}, {FIXED: params[FIXED]}
    return params, None


def _join(free: Any, fixed: Any) -> Any:
    return free if fixed is None else {**free, **fixed}


def _objective(
    f: Any, loss: Loss, ridge: float, x: Any, y: Any, fixed: Any
) -> Callable[[Any], Any]:
    def value(free: Any) -> Any:
        norm = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(free))
        return loss(f(_join(free, fixed), x), y) + ridge * norm

    return value


@jax.jit(static_argnums=(0, 1, 2))
def _evaluated(f: Any, loss: Loss, ridge: float, params: Any, x: Any, y: Any) -> dict[str, Any]:
    def one(params: Any) -> dict[str, Any]:
        free, fixed = _split(params)
        objective, gradient = jax.value_and_grad(_objective(f, loss, ridge, x, y, fixed))(free)
        norm = ravel_pytree(free)[0]
        return {
            "loss": loss(f(params, x), y),
            "objective": objective,
            "squared_norm": jnp.sum(norm**2),
            "gradient_norm": jnp.linalg.norm(ravel_pytree(gradient)[0]),
        }

    return jax.lax.map(one, params)


@jax.jit(static_argnums=(0, 1, 2, 3, 4))
def _polish(
    f: Any, loss: Loss, ridge: float, steps: int, tolerance: float, params: Any, x: Any, y: Any
) -> Any:
    solver = optax.lbfgs(memory_size=20)

    def one(params: Any) -> Any:
        start, fixed = _split(params)
        flat, unravel = ravel_pytree(start)
        objective = _objective(f, loss, ridge, x, y, fixed)

        def value(p: Any) -> Any:
            return objective(unravel(p))

        value_and_grad = optax.value_and_grad_from_state(value)

        def unfinished(carry: Any) -> Any:
            _, state, count = carry
            gradient = optax.tree.get(state, "grad")
            return (count < steps) & ((count == 0) | (jnp.linalg.norm(gradient) > tolerance))

        def step(carry: Any) -> Any:
            p, state, count = carry
            v, g = value_and_grad(p, state=state)
            updates, state = solver.update(g, state, p, value=v, grad=g, value_fn=value)
            return optax.apply_updates(p, updates), state, count + 1

        flat, _, _ = jax.lax.while_loop(
            unfinished, step, (flat, solver.init(flat), jnp.zeros((), jnp.int32))
        )
        return _join(unravel(flat), fixed)

    return jax.vmap(one)(params)


def _better(
    new: Any, old: Any, objective: Any, f: Any, loss: Loss, ridge: float, x: Any, y: Any
) -> Any:
    """Run by run what has the lower objective: a line search that fails at a kink must not lose
    what Adam found.
    """
    found = _evaluated(f, loss, ridge, new, x, y)["objective"]
    keep = found <= objective

    def pick(a: Any, b: Any) -> Any:
        return jnp.where(keep.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
