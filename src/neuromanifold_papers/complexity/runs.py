"""The trainings of the complexity study: set-ups, histories with snapshots of θ, ranks from the
snapshots.   [complexity, Sec. 5]

Training runs on any device; ranks are taken on the host afterwards, from the same float32
parameters. Both are kept in one NetCDF file per experiment: what is finished is not done again.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree

from neuromanifold import data
from neuromanifold.dynamics import geometry_probes as geometry
from neuromanifold.dynamics.optimizers import adam_l2
from neuromanifold.dynamics.probes import r_squared, weight_norm
from neuromanifold.dynamics.training import train
from neuromanifold.models.mlp import MLP
from neuromanifold.regions.bounds import region_bound
from neuromanifold.regions.patterns import sampled_regions
from neuromanifold.runtime.progress import count_steps
from neuromanifold.tangent.rank.dimension import functional_dimension, single_precision_rank
from neuromanifold_papers.output import REMEDY, read_data, save_data

HIDDEN = (10, 10, 10, 10)
LEARNING_RATE, WEIGHT_DECAY, BATCH = 0.01, 1e-4, 16
SECONDS_BETWEEN_WRITES = 20.0
PROBES = (
    r_squared,
    weight_norm,
    geometry.sampled_regions,
    geometry.fixed_neurons,
    geometry.region_bound,
    geometry.snapshot,
)
RANKS = ("float32_dimension", "functional_dimension", "effective_rank", "exact_dimension")


@dataclass(frozen=True)
class Experiment:
    """Runs from equal seeds on each data set; probes every `every` epochs, exact ranks every
    `exact_every`.
    """

    name: str
    datasets: tuple[str, ...]
    runs: int
    epochs: int
    every: int
    exact_every: int
    weight_decay: tuple[float, ...] = (WEIGHT_DECAY,)
    seed: int = 0

    @property
    def setup(self) -> str:
        """All that determines the training."""
        return json.dumps(
            {k: v for k, v in asdict(self).items() if k != "exact_every"} | {"widths": HIDDEN}
        )


UNIVARIATE, BIVARIATE = ("f1", "f2", "f3"), ("g1", "g2", "g3")
ENERGY = ("heating_load", "cooling_load")
DECAYS = (0.0, 1e-4, 1e-3)
EXPERIMENTS = {
    "small": (
        Experiment("univariate", UNIVARIATE, runs=15, epochs=5000, every=500, exact_every=500),
        Experiment("energy", ENERGY, runs=5, epochs=200, every=50, exact_every=100),
        Experiment(
            "decay",
            ("f2",),
            runs=20,
            epochs=2000,
            every=1000,
            exact_every=1000,
            weight_decay=DECAYS,
        ),
        Experiment("bivariate", BIVARIATE, runs=8, epochs=300, every=50, exact_every=150),
    ),
    "paper": (
        Experiment("univariate", UNIVARIATE, runs=15, epochs=2000, every=50, exact_every=50),
        Experiment("energy", ENERGY, runs=10, epochs=2000, every=25, exact_every=100),
        Experiment(
            "decay", ("f2",), runs=10, epochs=2000, every=50, exact_every=50, weight_decay=DECAYS
        ),
        Experiment("bivariate", BIVARIATE, runs=20, epochs=2000, every=25, exact_every=100),
        Experiment(
            "univariate_long",
            UNIVARIATE,
            runs=60,
            epochs=10_000,
            every=1000,
            exact_every=1000,
            seed=100,
        ),
        Experiment(
            "decay_more",
            ("f2",),
            runs=60,
            epochs=2000,
            every=1000,
            exact_every=1000,
            weight_decay=DECAYS,
            seed=100,
        ),
    ),
}
SEEDS = {
    "small": {"univariate": 40, "bivariate": 20, "bivariate_100": 20, "energy": 8},
    "paper": {"univariate": 400, "bivariate": 400, "bivariate_100": 400, "energy": 200},
}


def network(inputs: int) -> MLP:
    """(n_0, 10, 10, 10, 10, 1), ReLU."""
    return MLP((inputs, *HIDDEN, 1))


def load_data(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The data sets (S, n, i) and targets (S, n, 1) in float32, as the networks see them."""
    if names == ENERGY:
        sets = [data.load("energy").target(name) for name in names]
    else:
        sets = [data.load(name) for name in names]
    return np.stack([d.x for d in sets]).astype(np.float32), np.stack([d.y for d in sets]).astype(
        np.float32
    )


def trained(experiment: Experiment, out: Path, *, progress: bool = False) -> xr.Dataset:
    """The experiment's history, from its file where that is there, else trained; an interrupted
    training continues.

    Dimensions (dataset, weight_decay, run, epoch), with `parameters` the snapshots.
    """
    path = out / f"{experiment.name}.nc"
    found = _read(path, experiment.setup)
    if found is not None:
        return found
    x, y = load_data(experiment.datasets)
    net = network(x.shape[2])
    checkpoint = out / f"{experiment.name}.checkpoint"
    out.mkdir(parents=True, exist_ok=True)
    done = train(
        net,
        net.init(key=jax.random.key(experiment.seed), runs=experiment.runs),
        x,
        y,
        key=jax.random.key(experiment.seed + 1),
        epochs=experiment.epochs,
        optimizer=adam,
        hyper={"weight_decay": experiment.weight_decay},
        batch_size=BATCH,
        probes=PROBES,
        every=experiment.every,
        checkpoint=checkpoint,
        progress=progress,
    )
    history = done.history.assign_coords(dataset=list(experiment.datasets))
    history = _with(history, {name: np.full(history.r_squared.shape, np.nan) for name in RANKS})
    history.attrs |= {"setup": experiment.setup, "title": f"complexity study: {experiment.name}"}
    save_data(history, out, experiment.name)
    checkpoint.unlink(missing_ok=True)
    return history


def adam(weight_decay: Any) -> Any:
    """Adam at the paper's rate, with this L2 term."""
    return adam_l2(LEARNING_RATE, weight_decay)


def _read(path: Path, setup: str) -> xr.Dataset | None:
    if not path.exists():
        return None
    found = read_data(path)
    if found.attrs.get("setup") != setup:
        raise ValueError(
            f"{path} holds another set-up ({found.attrs.get('setup')}, not {setup}); {REMEDY}."
        )
    return found


def with_ranks(
    experiment: Experiment, history: xr.Dataset, out: Path, *, progress: bool = False
) -> xr.Dataset:
    """The ranks of every snapshot; exact ones at every `exact_every` epochs and at the end, nan
    elsewhere.
    """
    x, _ = load_data(experiment.datasets)
    net = network(x.shape[2])
    unravel = ravel_pytree(net.init(key=jax.random.key(0)))[1]
    snapshots = history.parameters.values
    values = {name: history[name].values.copy() for name in RANKS}
    exact_due = [_is_due(experiment, int(epoch)) for epoch in history.epoch]
    missing = np.isnan(values[RANKS[0]]) | (np.isnan(values["exact_dimension"]) & exact_due)
    due = [tuple(int(i) for i in place) for place in np.argwhere(missing)]
    written = time.monotonic()
    for place in watch(due, progress, f"ranks, {experiment.name}"):
        params = jax.tree.map(np.asarray, unravel(snapshots[place]))
        for name, value in ranks(net, params, x[place[0]], exact=exact_due[place[-1]]).items():
            values[name][place] = value
        if time.monotonic() - written > SECONDS_BETWEEN_WRITES:
            save_data(_with(history, values), out, experiment.name)
            written = time.monotonic()
    history = _with(history, values)
    if due:
        save_data(history, out, experiment.name)
    return history


def _is_due(experiment: Experiment, epoch: int) -> bool:
    return epoch % experiment.exact_every == 0 or epoch == experiment.epochs


def _with(history: xr.Dataset, values: dict[str, np.ndarray]) -> xr.Dataset:
    return history.assign({name: (history.r_squared.dims, a.copy()) for name, a in values.items()})


def ranks(net: MLP, params: Any, x: np.ndarray, *, exact: bool = True) -> dict[str, int | float]:
    """rank J in single precision (as the paper), in double precision, exactly (nan where not
    asked), and the effective rank.
    """
    double = functional_dimension(net, params, x, smallest_gap=0.0)
    eigenvalues = np.asarray(double.spectrum) ** 2
    p = eigenvalues / eigenvalues.sum()
    p = p[p > 0]
    return {
        "float32_dimension": int(single_precision_rank(net, params, x)),
        "functional_dimension": int(double),
        "effective_rank": float(np.exp(-(p * np.log(p)).sum())),
        "exact_dimension": int(functional_dimension(net, params, x, exact=True))
        if exact
        else np.nan,
    }


def watch(items: list[Any], progress: bool, what: str) -> Iterator[Any]:
    """Yield the items, with a progress bar on the terminal's error stream."""
    with count_steps(progress, what, len(items)) as advance:
        for item in items:
            yield item
            advance()


def samples() -> dict[str, Any]:
    """Where initial networks are measured: the paper's samples, and the 10×10 grid that its
    100×371 matrix suggests.
    """
    line = np.linspace(0.0, 1.0, 10)
    coarse = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    return {
        "univariate": lambda: data.load("f1").x,
        "bivariate": lambda: data.load("g1").x,
        "bivariate_100": lambda: coarse,
        "energy": lambda: data.load("energy").x,
    }


def initial(name: str, seeds: int, out: Path, *, progress: bool = False) -> xr.Dataset:
    """Ranks (float32, float64, exact), regions and the region bound of `seeds` initial networks
    on one sample.
    """
    setup = json.dumps({"sample": name, "seeds": seeds, "widths": HIDDEN})
    found = _read(out / f"initial_{name}.nc", setup)
    if found is not None:
        return found
    x = samples()[name]().astype(np.float32)
    net = network(x.shape[1])
    params = net.init(key=jax.random.key(2025), runs=seeds)
    each = [jax.tree.map(lambda a, run=run: np.asarray(a[run]), params) for run in range(seeds)]
    rows = [_initial_row(net, p, x) for p in watch(each, progress, f"initial networks, {name}")]
    columns = {key: ("seed", np.array([row[key] for row in rows])) for key in rows[0]}
    found = xr.Dataset(columns, attrs={"setup": setup, "samples": len(x)})
    save_data(found, out, f"initial_{name}")
    return found


def _initial_row(net: MLP, params: Any, x: np.ndarray) -> dict[str, int | float]:
    counts = {
        "sampled_regions": sampled_regions(net, params, x),
        "region_bound": region_bound(net, params, x),
    }
    return ranks(net, params, x) | counts
