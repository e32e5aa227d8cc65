"""Training beside leaves: how long a network stays near one, how neurons condense, what a start
on a leaf recovers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from neuromanifold.dynamics.flow import gradient_flow
from neuromanifold.dynamics.probes import Probe
from neuromanifold.dynamics.training import train
from neuromanifold.models import init
from neuromanifold.models.init import Layer
from neuromanifold.models.losses import half_squared_error, mse
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.orbits.condensation import effective_width
from neuromanifold.orbits.lattice import exchange
from neuromanifold.orbits.partition import leaf_of

BESIDE = MLP((1, 2, 1), "tanh", bias=False)
WIDE = MLP((1, 40, 1), "tanh")
STUDENT = MLP((3, 6, 1), "tanh", bias=False)


def beside_a_leaf(t1: float, offsets: tuple[float, ...]) -> xr.Dataset:
    """Gradient flow from on the leaf of two equal neurons and from beside it: distance from the
    leaf and loss over time.

    The target is a sum of two different neurons, which equal ones cannot fit.
    """
    rng = np.random.default_rng(3)
    x = np.linspace(-3, 3, 30)[:, None]
    y = BESIDE((Layer(np.array([[0.4], [3.0]])), Layer(np.array([[2.0, 1.5]]))), x)
    leaf = leaf_of(BESIDE, (exchange(BESIDE, 0, 0, 1),))
    start = leaf.project((Layer(np.array([[0.5], [0.5]])), Layer(np.array([[0.3, 0.3]]))))
    away = jax.tree.map(lambda a: rng.normal(size=a.shape), start)
    away = jax.tree.map(lambda a, b: (a - b) / leaf.distance(away), away, leaf.project(away))
    times = np.linspace(0.0, t1, 201)
    distances, losses = [], []
    for offset in offsets:
        point = jax.tree.map(lambda a, b, s=offset: a + s * b, start, away)
        flow = gradient_flow(
            BESIDE, point, x, y, t1=t1, loss=half_squared_error, saveat=times, dense=False
        )
        saved = [jax.tree.map(lambda a, k=k: a[k], flow.params) for k in range(len(times))]
        distances.append([leaf.distance(params) for params in saved])
        losses.append(flow.losses)
    return xr.Dataset(
        {"distance": (("offset", "time"), distances), "loss": (("offset", "time"), losses)},
        coords={"offset": list(offsets), "time": times},
        attrs={"leaf": str(leaf)},
    )


def time_within(data: xr.Dataset, distance: float) -> np.ndarray:
    """For each start: the first time at which the network is further than `distance` from the
    leaf; inf when never.
    """
    beyond = data.distance.values > distance
    return np.where(beyond.any(axis=1), data.time.values[beyond.argmax(axis=1)], np.inf)


def growth(data: xr.Dataset, offset: float) -> tuple[float, float]:
    """(λ, A) of distance ≈ A e^{λt}, fitted where the distance is between a hundred times its
    start (or 1e-13) and 0.01.
    """
    distance = data.distance.sel(offset=offset).values
    between = (distance > max(1e-13, 100 * offset)) & (distance < 1e-2)
    rate, logarithm = np.polyfit(data.time.values[between], np.log(distance[between]), 1)
    return float(rate), float(np.exp(logarithm))


def _directions(f: Any, params: Any, x: Any, y: Any) -> Any:
    """The angle of each neuron's (w, b), opposite neurons counted as one, in (−π/2, π/2]."""
    angle = jnp.arctan2(params[0].bias, params[0].weight[:, 0])
    return (angle + jnp.pi / 2) % jnp.pi - jnp.pi / 2


def condensing(epochs: int, every: int) -> xr.Dataset:
    """A wide network on a smooth target, from small and from ordinary initialisation: directions
    and effective width.
    """
    x = np.linspace(-1.5, 1.5, 40, dtype=np.float32)[:, None]
    y = np.tanh(3 * x - 1.5) + np.tanh(3 * x + 1.5)
    schemes = {"small": init.small(1e-3), "ordinary": init.small(1.0)}
    drawn = [WIDE.init(key=jax.random.key(0), scheme=scheme) for scheme in schemes.values()]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
    watched = [Probe(_directions, "direction", ("neuron",)), effective_width(angle=0.1)]
    done = train(
        WIDE,
        params,
        x,
        y,
        key=jax.random.key(1),
        epochs=epochs,
        every=every,
        loss=mse,
        optimizer=optax.adam(5e-3),
        probes=[*watched, Probe(_mass, "mass", ("neuron",)), Probe(_value, "loss")],
    )
    return done.history.assign_coords(run=list(schemes))


def _mass(f: Any, params: Any, x: Any, y: Any) -> Any:
    """|a|·|(w, b)| of each neuron, its share in the function."""
    return jnp.abs(params[1].weight[0]) * jnp.hypot(params[0].weight[:, 0], params[0].bias)


def _value(f: Any, params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((f(params, x) - y) ** 2)


@dataclass(frozen=True)
class Recovery:
    """How many samples, how often training is repeated, how long it lasts."""

    samples: tuple[int, ...]
    datasets: int
    starts: int
    epochs: int


def recovery(plan: Recovery, note: Callable[[], None]) -> xr.Dataset:
    """Train a student of 24 parameters on one neuron's function, from its leaf of dimension 4, from
    small and ordinary weights.

    Returns relative errors on fresh inputs and on the training data, and the distance from the leaf
    of equal neurons, each (start, samples, trial).
    """
    rng = np.random.default_rng(5)
    teacher = MLP((3, 1, 1), "tanh", bias=False)
    target = (Layer(np.array([[1.2, -0.8, 0.5]])), Layer(np.array([[1.5]])))
    leaf = leaf_of(STUDENT, tuple(exchange(STUDENT, 0, i, i + 1) for i in range(5)))
    fresh = rng.normal(size=(500, 3))
    truth = teacher(target, fresh)
    starts = {"on the leaf": leaf.project, "small": _scaled(1e-3), "ordinary": _scaled(1.0)}
    errors = np.zeros((len(starts), len(plan.samples), plan.datasets * plan.starts))
    fitted, apart = np.zeros_like(errors), np.zeros_like(errors)
    for column, samples in enumerate(plan.samples):
        x = rng.normal(size=(plan.datasets, samples, 3))
        y = np.stack([teacher(target, part) for part in x])
        drawn = [
            start(_normal(STUDENT, rng)) for start in starts.values() for _ in range(plan.starts)
        ]
        params = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
        done = train(
            STUDENT,
            params,
            x,
            y,
            key=jax.random.key(samples),
            epochs=plan.epochs,
            loss=mse,
            optimizer=optax.adam(optax.cosine_decay_schedule(0.03, plan.epochs)),
        )
        scores = _scores(done.params, (x, y), (fresh, truth), leaf.distance)
        for table, score in zip((errors, fitted, apart), scores, strict=True):
            by_start = score.reshape(plan.datasets, len(starts), plan.starts)
            table[:, column] = by_start.transpose(1, 0, 2).reshape(len(starts), -1)
        note()
    return xr.Dataset(
        {
            name: (("start", "samples", "trial"), values)
            for name, values in (("error", errors), ("training_error", fitted), ("apart", apart))
        },
        coords={"start": list(starts), "samples": list(plan.samples)},
        attrs={"parameters": STUDENT.n_params, "leaf": leaf.dimension},
    )


def _scores(
    params: Params, seen: Any, fresh: Any, distance: Callable[[Any], float]
) -> tuple[np.ndarray, ...]:
    """Relative error on fresh inputs, relative error on the training data, distance from the
    leaf: each (data set, run).
    """
    shape = params[0].weight.shape[:2]
    scores = tuple(np.zeros(shape) for _ in range(3))
    for at in np.ndindex(*shape):
        one = jax.tree.map(lambda a, at=at: np.asarray(a[at], np.float64), params)
        scores[0][at] = _relative(one, *fresh)
        scores[1][at] = _relative(one, seen[0][at[0]], seen[1][at[0]])
        scores[2][at] = distance(one)
    return scores


def failures(data: xr.Dataset, start: str, samples: int, recovered: float) -> dict[str, int]:
    """Why trials did not recover the target: further than 0.01 from the leaf, training error
    above 1e-3, or neither.
    """
    cell = data.sel(start=start, samples=samples)
    failed = cell.error.values >= recovered
    away, unfitted = cell.apart.values > 1e-2, cell.training_error.values > 1e-3
    return {
        "left the leaf": int((failed & away).sum()),
        "training data not fitted": int((failed & ~away & unfitted).sum()),
        "fitted on the leaf, another function": int((failed & ~away & ~unfitted).sum()),
    }


def _relative(params: Params, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((STUDENT(params, x) - y) ** 2) / np.mean(y**2)))


def _scaled(scale: float) -> Callable[[Params], Params]:
    return lambda params: jax.tree.map(lambda a: scale * a, params)


def _normal(net: MLP, rng: np.random.Generator) -> Params:
    return tuple(
        Layer(rng.normal(size=(b, a)) / np.sqrt(a))
        for a, b in zip(net.widths[:-1], net.widths[1:], strict=True)
    )
