"""Beyond the paper: what a symmetry does to alignment and speed, to the output's Hessian, and to
the functional dimension.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.hadamard import HadamardGroup
from neuromanifold.tangent.curvature import output_hessian_norm
from neuromanifold.tangent.rank.dimension import functional_dimension
from neuromanifold_papers.teleport import training
from neuromanifold_papers.teleport.data import load
from neuromanifold_papers.teleport.runs import WIDTHS, Report, Store, images, network
from neuromanifold_papers.teleport.statistics import halving_time
from neuromanifold_papers.teleport.training import LOSSES, Images, Optimizer


@dataclass(frozen=True)
class HessianPlan:
    """The Hessian of the first output at a few samples, over widths, standard and transformed."""

    widths: tuple[int, ...]
    trials: int
    samples: int
    pool: int = 1
    seed: int = 2


@dataclass(frozen=True)
class SpeedPlan:
    """Networks before and after random neuron scalings of several strengths, trained on the same
    batches.
    """

    nets: int = 60
    width: int = 48
    strengths: tuple[float, ...] = (0.2, 0.4, 0.6)
    train: int = 1024
    epochs: int = 14
    batch: int = 32
    pool: int = 2
    loss: str = "mean squared error"
    seed: int = 3


HESSIAN = {
    "small": HessianPlan((32, 64, 128, 256), 2, 2, pool=2),
    "paper": HessianPlan((100, 150, 200, 300, 400, 550, 750, 1000, 1250, 1500), 3, 2),
}
SPEED = SpeedPlan()


def hessian_runs(path: Path, plan: HessianPlan, report: Report) -> dict[str, np.ndarray]:
    """‖∇²F(x)‖ at initialisation, per width (kind, trial, sample); kind 1 is the
    Hadamard-transformed network.
    """
    store, sample = Store(path, plan), load(1024, 100, pool=plan.pool)
    search, loss = WIDTHS["paper"].search, LOSSES[WIDTHS["paper"].loss]
    for done, width in enumerate(plan.widths):
        if f"{width}/norm" not in store:
            net = network(width, sample)
            store.put(str(width), {"norm": _hessian_norms(net, plan, loss, search, sample)})
        report(
            f"Hessian, width {width}",
            sum(w * w for w in plan.widths[: done + 1]) / sum(w * w for w in plan.widths),
        )
    return store.arrays


def _hessian_norms(net: MLP, plan: HessianPlan, loss: Any, search: Any, sample: Any) -> np.ndarray:
    x = sample.x[: plan.samples].astype(np.float64)
    group, norms = HadamardGroup(net), np.empty((2, plan.trials, plan.samples))
    for trial in range(plan.trials):
        weights = net.init(key=jax.random.fold_in(jax.random.key(plan.seed), trial))
        moved = group.search(weights, sample.x, sample.y, loss=loss, method=search)(
            group.extend(weights)
        )
        norms[0, trial] = output_hessian_norm(net, weights, x, rtol=1e-4)
        norms[1, trial] = output_hessian_norm(
            group.model.frozen(moved.factors), moved.params, x, rtol=1e-4
        )
    return norms


def rescaled(params: Any, factors: tuple[Any, ...]) -> Any:
    """Hidden neuron i of layer l scaled in by factors[l][i] and out by its inverse: a symmetry
    of ReLU networks.   [teleport, Eq. 5]
    """
    ahead = [*factors, None]
    behind = [None, *factors]
    layers = []
    for layer, out, into in zip(params, ahead, behind, strict=True):
        weight = layer.weight if out is None else layer.weight * out[:, None]
        weight = weight if into is None else weight / into[None, :]
        layers.append(
            Layer(weight, layer.bias if out is None or layer.bias is None else layer.bias * out)
        )
    return tuple(layers)


def speed_runs(path: Path, plan: SpeedPlan, report: Report) -> dict[str, np.ndarray]:
    """Alignment and halving time (strength, net), strength 0 first, before and after neuron
    scalings e^{sξ}.
    """
    store, sample = Store(path, plan), load(plan.train, 100, pool=plan.pool)
    data, net = images(sample), network(plan.width, sample)
    for done, strength in enumerate((0.0, *plan.strengths)):
        if f"{strength}/alignment" not in store:
            store.put(str(strength), _speed(net, plan, strength, data))
        report(f"speed-up, strength {strength}", (done + 1) / (len(plan.strengths) + 1))
    return store.arrays


def _speed(net: MLP, plan: SpeedPlan, strength: float, data: Images) -> dict[str, np.ndarray]:
    loss, optimizer = LOSSES[plan.loss], Optimizer(batch=plan.batch)
    keys = jax.random.split(jax.random.key(plan.seed), plan.nets)
    weights = training.draw(net, keys)
    noise = [jax.random.normal(jax.random.key(7 + l), (plan.nets, plan.width)) for l in range(2)]
    params = jax.vmap(rescaled)(weights, tuple(jnp.exp(strength * n) for n in noise))
    measured = training.measure(net, loss, params, data.x, data.y, data)
    momenta = jax.tree.map(jnp.zeros_like, params)
    segments, curves = optimizer.segments(len(data.x), 4), []
    for epoch in range(plan.epochs):
        orders = jax.vmap(lambda key, e=epoch: jax.random.fold_in(key, e + 1))(keys)
        indices = training.shuffled(optimizer, len(data.x), segments, orders)
        for part in range(segments):
            params, momenta = training.train_steps(
                net, loss, optimizer, params, momenta, indices[:, part], data
            )
            curves.append(training.evaluate(net, loss, params, data)[0])
    times = np.arange(1, plan.epochs * segments + 1) / segments
    initial = np.asarray(measured.loss)
    halved = halving_time(times, np.stack([np.asarray(c) for c in curves], axis=1), initial)
    return {"alignment": np.asarray(measured.alignment), "halved": halved, "initial": initial}


def dimension_under_symmetry(key: Any) -> dict[str, tuple[int, int]]:
    """The certified functional dimension before and after a symmetry, for exact ones (powers of
    two) and rounded ones.
    """
    net = MLP((2, 6, 5, 1))
    params = net.init(key=key)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2)).astype(np.float32)
    exact = tuple(
        2.0 ** rng.integers(-3, 4, width).astype(np.float32) for width in net.widths[1:-1]
    )
    rounded = tuple(
        np.exp(0.5 * rng.standard_normal(width)).astype(np.float32) for width in net.widths[1:-1]
    )
    order = [rng.permutation(width) for width in net.widths[1:-1]]
    before = int(functional_dimension(net, params, x, exact=True).value)
    moves = {
        "scaling by powers of two": rescaled(params, exact),
        "scaling, rounded": rescaled(params, rounded),
        "permutation": _permuted(params, order),
    }
    return {
        name: (before, int(functional_dimension(net, p, x, exact=True).value))
        for name, p in moves.items()
    }


def _permuted(params: Any, order: list[np.ndarray]) -> Any:
    layers = []
    for layer, out, into in zip(params, [*order, None], [None, *order], strict=True):
        weight, bias = (
            np.asarray(layer.weight),
            None if layer.bias is None else np.asarray(layer.bias),
        )
        weight, bias = (
            (weight, bias) if out is None else (weight[out], None if bias is None else bias[out])
        )
        layers.append(Layer(weight if into is None else weight[:, into], bias))
    return tuple(layers)
