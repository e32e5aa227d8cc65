"""`invariance_residual`: how far training leaves a manifold, over random data and random
analytic losses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.dynamics.checks import check_hashable
from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params
from neuromanifold.models.function import output_shape
from neuromanifold.models.losses import Loss
from neuromanifold.numerics.precision import arithmetic, promote, to_host
from neuromanifold.numerics.randomness import Key, host_generator
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import check_params, refuse_tracers
from neuromanifold.orbits.partition import input_features
from neuromanifold.symmetry.groups.hadamard import unflatten

_COEFFICIENTS = 4
_LARGE = 1e50


@dataclass(frozen=True, eq=False, repr=False)
class InvarianceResidual(Result):
    """Distances from the manifold, relative to max(1, |θ|), one row for each draw of data and loss.

    `flow` (draws, times) along gradient flow, `descent` and `momentum` (draws, steps + 1) along
    gradient descent without and with momentum. `travelled` (draws,) is |θ(t) − θ(0)| at the last
    time: a network that does not move proves nothing. `finished` says which flows reached the end;
    what a flow did not reach is nan.
    """

    times: np.ndarray
    flow: np.ndarray
    descent: np.ndarray
    momentum: np.ndarray
    travelled: np.ndarray
    finished: np.ndarray

    @property
    def worst(self) -> float:
        """The largest distance over all draws and steps."""
        return float(max(np.nanmax(part) for part in (self.flow, self.descent, self.momentum)))

    def __str__(self) -> str:
        flow, descent, momentum = (
            float(np.nanmax(p)) for p in (self.flow, self.descent, self.momentum)
        )
        moved = f"{np.nanmin(self.travelled):.2g} to {np.nanmax(self.travelled):.2g}"
        return (
            f"left by {flow:.1e} (flow), {descent:.1e} (descent), {momentum:.1e} (momentum), "
            f"having travelled {moved}"
        )


def invariance_residual(
    f: Model,
    params: Params,
    manifold: Any,
    *,
    key: Key,
    draws: int = 20,
    samples: int = 8,
    features: int | None = None,
    loss: Loss | None = None,
    t1: float = 1.0,
    saves: int = 10,
    steps: int = 20,
    lr: float = 0.05,
    momentum: float = 0.9,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> InvarianceResidual:
    """Train from `params` on random data with random losses and measure the distance from
    `manifold`.   [invariant, Def 3.1]

    dθ/dt = −∇_θ mean_i ℓ(f_θ(x_i), y_i), x and y standard normal, and for each draw another
    analytic loss

        ℓ(s, t) = c₀(s − t)²/2 + c₁ sin(s + t) + c₂ log cosh(s − c₃t).

    `manifold` has a method `distance(params)`, or is that function itself. `loss` replaces the
    random losses: one loss ℓ₀ with ∇ℓ₀(s, ·) ≢ 0 for every s already decides, over all data
    [invariant, P 3.1]. `features` is the number of inputs where `f` is no network. Everything is
    float64; the flow is integrated to `rtol`, `atol`.

    Each of the `draws` has `samples` inputs; the flow runs to `t1` and is measured at `saves`
    times; gradient descent with learning rate `lr` and `momentum` takes `steps` steps.

    >>> net = nm.MLP((1, 2, 1), "exp", bias=False)
    >>> from neuromanifold.orbits import invariant_leaf
    >>> leaf = invariant_leaf(net, (nm.Layer(np.ones((2, 1))), nm.Layer(np.ones((1, 2)))))
    >>> left = invariance_residual(net, leaf.sample(key=jax.random.key(0)), leaf, key=jax.random.key(1), draws=3)
    >>> left.worst < 1e-12
    True
    """
    refuse_tracers(params, "`invariance_residual`")
    check_params(params)
    check_hashable(f=f, loss=loss)
    distance = _distance(manifold)
    times = np.linspace(0.0, t1, saves + 1)
    with arithmetic():
        params = promote(params, np.float64)
        x, y, c = _data(f, params, key, draws, samples, input_features(f, features))
        flows = to_host(_flows(f, loss, params, (x, y, c), jnp.asarray(times), rtol, atol))
        plain, heavy = (
            to_host(_descents(f, loss, params, (x, y, c), lr, mu, steps)) for mu in (0.0, momentum)
        )
        measure = partial(_distances, distance, partial(unflatten, to_host(params)))
        flows = np.where(np.isfinite(flows), flows, np.nan)
        travelled = np.linalg.norm(flows[:, -1] - flows[:, 0], axis=1)
        finished = np.isfinite(travelled)
        return InvarianceResidual(
            times, measure(flows), measure(plain), measure(heavy), travelled, finished
        )


def _distance(manifold: Any) -> Any:
    method = getattr(manifold, "distance", manifold)
    if not callable(method):
        raise TypeError(
            f"`manifold` is {manifold!r}; pass an object with `distance(params)`, such as a leaf, "
            "or that function."
        )
    return method


def _data(
    f: Any, params: Any, key: Any, draws: int, samples: int, features: int
) -> tuple[Any, Any, Any]:
    """Inputs, targets and loss coefficients: c₀ uniform in [½, 3/2], the others standard normal."""
    rng = host_generator(key)
    x = rng.standard_normal((draws, samples, features))
    y = rng.standard_normal((draws, samples, *output_shape(f, params, x[0])))
    c = rng.standard_normal((draws, _COEFFICIENTS))
    c[:, 0] = rng.uniform(0.5, 1.5, draws)
    return x, y, c


def random_loss(coefficients: Any, prediction: Any, target: Any) -> Any:
    """mean over all entries of  c₀(s − t)²/2 + c₁ sin(s + t) + c₂ log cosh(s − c₃t).

    >>> float(random_loss(np.array([2.0, 0.0, 0.0, 0.0]), np.array([[3.0]]), np.array([[1.0]])))
    4.0
    """
    s, t, (c0, c1, c2, c3) = prediction, target, coefficients
    z = s - c3 * t
    return jnp.mean(
        c0 * (s - t) ** 2 / 2 + c1 * jnp.sin(s + t) + c2 * (jnp.logaddexp(z, -z) - jnp.log(2.0))
    )


def _slope(
    f: Any, loss: Loss | None, unravel: Callable[[Any], Any], data: Any
) -> Callable[[Any], Any]:
    """θ ↦ ∇_θ L on vectors."""
    x, y, c = data
    value = partial(random_loss, c) if loss is None else loss
    return jax.grad(lambda theta: value(call(f, unravel(theta), x), y))


@partial(jax.jit, static_argnums=(0, 1))
def _flows(
    f: Any, loss: Loss | None, params: Any, data: Any, times: Any, rtol: Any, atol: Any
) -> Any:
    import diffrax

    start, unravel = ravel_pytree(params)

    def one(data: Any) -> Any:
        slope = _slope(f, loss, unravel, data)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, theta, _: -slope(theta)),
            diffrax.Dopri5(),
            times[0],
            times[-1],
            None,
            start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
            max_steps=10_000,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        ).ys

    return jax.vmap(one)(data)


@partial(jax.jit, static_argnums=(0, 1, 6))
def _descents(
    f: Any, loss: Loss | None, params: Any, data: Any, lr: Any, momentum: Any, steps: int
) -> Any:
    """v ← μv + ∇L(θ), θ ← θ − lr·v."""
    start, unravel = ravel_pytree(params)

    def one(data: Any) -> Any:
        slope = _slope(f, loss, unravel, data)

        def step(state: Any, _: None) -> tuple[Any, Any]:
            theta, velocity = state
            velocity = momentum * velocity + slope(theta)
            theta = theta - lr * velocity
            return (theta, velocity), theta

        return jnp.concatenate(
            [start[None], jax.lax.scan(step, (start, jnp.zeros_like(start)), None, steps)[1]]
        )

    return jax.vmap(one)(data)


def _distances(
    distance: Callable[[Any], float], unravel: Callable[[Any], Any], points: np.ndarray
) -> np.ndarray:
    def at(theta: np.ndarray) -> float:
        if not np.abs(theta).max() < _LARGE:
            return np.nan
        return float(distance(unravel(theta))) / max(1.0, float(np.linalg.norm(theta)))

    return np.array([[at(theta) for theta in row] for row in points])
