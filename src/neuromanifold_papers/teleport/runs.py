"""The computations behind the teleport figures: raw numbers into one `.npz` per experiment,
resumable chunk by chunk.

Needs jax, numpy and jaxtyping only, so that the paper's scale can run on a bare accelerator (see
`data.carry`).
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.mlp import MLP
from neuromanifold.runtime.checksummed import read_archive, write_archive
from neuromanifold.symmetry.conservation.scales import SEARCH, ScaleSearch, hadamard_scales
from neuromanifold_papers.teleport import training
from neuromanifold_papers.teleport.data import Sample, load
from neuromanifold_papers.teleport.training import LOSSES, Images, Optimizer

Report = Callable[[str, float], None]
REMEDY = "delete it, or name another folder"


@dataclass(frozen=True)
class AlignmentPlan:
    """Figure 2: many networks of one width; alignment before training, loss along it.

    The loss is read up to `readings` times in each of the first `fine_epochs`, then once an epoch.
    """

    nets: int
    width: int
    train: int
    test: int
    aligned: int
    epochs: int
    batch: int
    chunk: int = 125
    readings: int = 13
    fine_epochs: int = 3
    pool: int = 1
    precision: str = "tensorfloat32"
    seed: int = 0


@dataclass(frozen=True)
class WidthPlan:
    """Figures 1 and 3: networks, transformed networks and their linearised twins over widths."""

    widths: tuple[int, ...]
    trials: int
    train: int
    test: int
    epochs: int
    batch: int
    loss: str = "mean squared error"
    records: int = 3
    level: float = 0.65
    pool: int = 1
    precision: str = "highest"
    search: ScaleSearch = SEARCH
    seed: int = 1


ALIGNMENT = {
    "small": AlignmentPlan(
        200, 48, 1024, 300, 512, 14, 32, chunk=100, readings=4, fine_epochs=14, pool=2
    ),
    "paper": AlignmentPlan(1000, 1024, 5000, 1000, 1000, 100, 128),
}
WIDTHS = {
    "small": WidthPlan((32, 64, 128, 256), 3, 1024, 300, 20, 32, level=0.6, pool=2),
    "paper": WidthPlan(
        (100, 150, 200, 300, 400, 550, 750, 1000, 1250, 1500), 3, 5000, 1000, 200, 128
    ),
}


class Store:
    """Named arrays in one checksummed `.npz`, rewritten atomically whenever one is added; what is
    there is not computed again.
    """

    def __init__(self, path: Path, plan: Any):
        self.path, self.plan, self.arrays = path, repr(plan), {}
        if path.is_file():
            header, self.arrays = read_archive(path, REMEDY)
            if header.get("plan") != self.plan:
                raise ValueError(
                    f"{path} holds runs of another plan ({header.get('plan')}, not {plan}); "
                    f"{REMEDY}."
                )

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def add(self, **arrays: Any) -> None:
        """Keep the arrays and write the file."""
        self.arrays.update({name: np.asarray(a) for name, a in arrays.items()})
        write_archive(self.path, {"plan": self.plan}, self.arrays)

    def put(self, prefix: str, arrays: dict[str, Any]) -> None:
        """`add` under `prefix/`."""
        self.add(**{f"{prefix}/{name}": a for name, a in arrays.items()})


def images(sample: Sample) -> Images:
    """The sample on the device."""
    return Images(*(jnp.asarray(a) for a in (sample.x, sample.y, sample.x_test, sample.y_test)))


def network(width: int, sample: Sample) -> MLP:
    """Two hidden ReLU layers, no bias, NTK parametrisation.   [teleport, App. E, F.2]"""
    return MLP((sample.x.shape[1], width, width, sample.y.shape[1]), bias=False, scaling="ntk")


def alignment_runs(
    path: Path, plan: AlignmentPlan, loss: str, report: Report
) -> dict[str, np.ndarray]:
    """Figure 2's numbers for one loss, by chunks of networks: see `gathered`; `times` are the
    epochs of the readings.
    """
    store, sample = Store(path, plan), load(plan.train, plan.test, pool=plan.pool)
    data, net = images(sample), network(plan.width, sample)
    optimizer = Optimizer(batch=plan.batch)
    segments = optimizer.segments(len(sample.x), plan.readings)
    if "device" not in store:
        device = np.array(jax.devices()[0].device_kind)
        store.add(data=np.array(repr(sample)), times=_times(plan, segments), device=device)
    for start in range(0, plan.nets, plan.chunk):
        if f"{start}/curves" not in store:
            began = time.perf_counter()
            with jax.default_matmul_precision(plan.precision):
                chunk = _alignment_chunk(net, LOSSES[loss], optimizer, segments, plan, start, data)
            store.put(str(start), {**chunk, "seconds": time.perf_counter() - began})
        report(f"figure 2, {loss}, {plan.precision}", min(1.0, (start + plan.chunk) / plan.nets))
    return store.arrays


def _times(plan: AlignmentPlan, segments: int) -> np.ndarray:
    """The times, in epochs, at which the loss is read: densely at first, then once an epoch."""
    fine = np.arange(1, plan.fine_epochs * segments + 1) / segments
    return np.concatenate([fine, np.arange(plan.fine_epochs + 1.0, plan.epochs + 1)])


def _alignment_chunk(
    net: MLP, loss: Any, optimizer: Any, segments: Any, plan: Any, start: Any, data: Images
) -> dict[str, np.ndarray]:
    numbers = jnp.arange(start, min(start + plan.chunk, plan.nets))
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(plan.seed), number))(numbers)
    params = training.draw(net, keys)
    momenta = jax.tree.map(jnp.zeros_like, params)
    few = min(plan.aligned, len(data.x))
    with jax.default_matmul_precision("highest"):
        measured = training.measure(net, loss, params, data.x[:few], data.y[:few], data)
    curves, accuracies, accuracy = [], [], None
    for epoch in range(plan.epochs):
        orders = jax.vmap(lambda key, e=epoch: jax.random.fold_in(key, e + 1))(keys)
        indices = training.shuffled(optimizer, len(data.x), segments, orders)
        for part in range(segments):
            params, momenta = training.train_steps(
                net, loss, optimizer, params, momenta, indices[:, part], data
            )
            if epoch < plan.fine_epochs or part == segments - 1:
                value, accuracy = training.evaluate(net, loss, params, data)
                curves.append(value)
        accuracies.append(accuracy)
    return {
        "initial": np.asarray(measured.loss),
        "alignment": np.asarray(measured.alignment),
        "logit_alignment": np.asarray(measured.logit_alignment),
        "signal": np.asarray(measured.signal),
        "curves": np.stack([np.asarray(c) for c in curves], axis=1),
        "accuracy": np.stack([np.asarray(a) for a in accuracies], axis=1),
    }


def gathered(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """One quantity of all networks: the chunks that there are, in order."""
    found = [key for key in arrays if key.endswith(f"/{name}")]
    return np.concatenate(
        [
            np.atleast_1d(arrays[key])
            for key in sorted(found, key=lambda key: int(key.split("/")[0]))
        ]
    )


def width_runs(path: Path, plan: WidthPlan, report: Report) -> dict[str, np.ndarray]:
    """Figures 1 and 3: per width `rmse`, `accuracy`, `linear_accuracy` (kind, trial, time),
    `scales` (least, mean and largest c), `gain` of alignment (trial); and `times` in batches.

    Kind 0 is the standard network, kind 1 the transformed one; both start from the same weights and
    see the same batches.
    """
    store, sample = Store(path, plan), load(plan.train, plan.test, pool=plan.pool)
    data = images(sample)
    optimizer = Optimizer(batch=plan.batch)
    segments = optimizer.segments(len(sample.x), plan.records)
    steps = len(sample.x) // plan.batch
    if "device" not in store:
        store.add(
            data=np.array(repr(sample)),
            times=np.arange(1, plan.epochs * segments + 1) * steps // segments,
            device=np.array(jax.devices()[0].device_kind),
        )
    for done, width in enumerate(plan.widths):
        if f"{width}/rmse" not in store:
            began = time.perf_counter()
            with jax.default_matmul_precision(plan.precision):
                result = _width_chunk(network(width, sample), optimizer, segments, plan, data)
            store.put(str(width), {**result, "seconds": time.perf_counter() - began})
        report(
            f"figure 1, width {width}",
            sum(w * w for w in plan.widths[: done + 1]) / sum(w * w for w in plan.widths),
        )
    return store.arrays


def _width_chunk(
    net: MLP, optimizer: Any, segments: Any, plan: WidthPlan, data: Images
) -> dict[str, np.ndarray]:
    loss = LOSSES[plan.loss]
    keys = jax.random.split(
        jax.random.fold_in(jax.random.key(plan.seed), net.widths[1]), plan.trials
    )
    weights = training.draw(net, keys)
    scales = jax.lax.map(
        lambda w: hadamard_scales(net, loss, plan.search, w, data.x, data.y), weights
    )
    gain = jax.lax.map(
        lambda pair: _alignment_gain(net, loss, pair[0], pair[1], data), (weights, scales)
    )
    ones = jax.tree.map(jnp.ones_like, scales)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ones, scales)
    runs = training.twins(jax.tree.map(lambda w: jnp.concatenate([w, w]), weights), both)
    pairs = jnp.concatenate([keys, keys])
    records = []
    for epoch in range(plan.epochs):
        orders = jax.vmap(lambda key, e=epoch: jax.random.fold_in(key, e + 1))(pairs)
        runs, compared = training.train_twins(net, loss, optimizer, segments, runs, orders, data)
        records.append(compared)
    shape = (2, plan.trials, -1)
    flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(scales)])
    result = {
        name: np.concatenate([np.asarray(getattr(r, name)) for r in records], axis=1).reshape(shape)
        for name in ("rmse", "accuracy", "linear_accuracy")
    }
    summary = np.array([float(f(flat)) for f in (jnp.min, jnp.mean, jnp.max)])
    return {**result, "scales": summary, "gain": np.asarray(gain)}


def _alignment_gain(net: MLP, loss: Any, weights: Any, scales: Any, data: Images) -> Any:
    """A after the transformation over A before it: ‖c ⊙ ∇L‖²/‖∇L‖², since f is the same."""
    gradient = jax.grad(lambda w: loss(net(w, data.x), data.y))(weights)
    return training.squared_norm(
        jax.tree.map(jnp.multiply, scales, gradient)
    ) / training.squared_norm(gradient)


def to_stderr(began: float) -> Report:
    """A line per finished chunk."""
    import sys

    def report(what: str, fraction: float) -> None:
        spent = time.perf_counter() - began
        print(f"{what}: {fraction:.0%} ({spent:.0f} s since the start)", file=sys.stderr)

    return report


class OutOfTime(Exception):
    """Raised between chunks; what is finished is on disk."""


def within(seconds: float, report: Report) -> Report:
    """`report`, which also stops the run once `seconds` have passed since now."""
    began = time.perf_counter()

    def limited(what: str, fraction: float) -> None:
        report(what, fraction)
        if time.perf_counter() - began > seconds:
            raise OutOfTime(
                f"stopped after {seconds:.0f} s at {what}; the same command goes on from here"
            )

    return limited


def alignment_file(loss: str, *, checked: bool = False) -> str:
    """The name of the raw numbers of Figure 2 for one loss."""
    return f"teleport_alignment_{loss.replace(' ', '_')}{'_checked' if checked else ''}.npz"


WIDTHS_FILE = "teleport_widths.npz"


def main() -> None:
    """`teleport.py alignment|checked|widths --out DIR [--losses …] [--scale …] [--limit
    SECONDS]`: raw numbers into DIR.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("experiments", nargs="+", choices=("alignment", "checked", "widths"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--losses", nargs="+", choices=tuple(LOSSES), default=tuple(LOSSES))
    parser.add_argument("--scale", choices=tuple(ALIGNMENT), default="paper")
    parser.add_argument("--limit", type=float, default=float("inf"))
    options = parser.parse_args()
    began = time.perf_counter()
    report = within(options.limit, to_stderr(began))
    try:
        for experiment in options.experiments:
            _experiment(experiment, options, report)
    except OutOfTime as stop:
        print(stop)
    print(f"{time.perf_counter() - began:.1f} s on {jax.devices()[0].device_kind}")


def _experiment(experiment: str, options: Any, report: Report) -> None:
    plan = ALIGNMENT[options.scale]
    if experiment == "widths":
        width_runs(options.out / WIDTHS_FILE, WIDTHS[options.scale], report)
        return
    for loss in options.losses:
        if experiment == "alignment":
            alignment_runs(options.out / alignment_file(loss), plan, loss, report)
        else:
            few = replace(plan, nets=plan.chunk, precision="highest")
            alignment_runs(options.out / alignment_file(loss, checked=True), few, loss, report)


if __name__ == "__main__":
    main()
