"""Training many networks of the complexity paper at once, against its own loop, one run after
the other.   [complexity, Sec. 5]
"""

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.harness import Routine, compare
from benchmarks.row import Row
from benchmarks.worker import Worker, save_network

WIDTHS = (1, 10, 10, 10, 10, 1)
RUNS, EPOCHS, EVERY = 45, 1_000, 50
PEER_EPOCHS = 200


def rows(*, quick: bool) -> Iterator[Row]:
    """Seconds per epoch of one run: the paper's loop with and without DataLoader, and with the
    paper's measurements.
    """
    epochs, peer_epochs = (100, 50) if quick else (EPOCHS, PEER_EPOCHS)
    yield _row("training", epochs, peer_epochs, "torch, the paper's loop", target=100)
    yield _row(
        "training", epochs, peer_epochs, "torch, without DataLoader", target=100, loader=False
    )
    yield _row(
        "training and tracking",
        epochs,
        peer_epochs,
        "torch, the paper's loop and probe",
        target=50,
        every=EVERY,
    )


def functional_dimension(f: Callable[..., Any], params: Any, x: Any, y: Any) -> Any:
    return nm.functional_dimension(f, params, x).value


def sampled_regions(f: nm.MLP, params: Any, x: Any, y: Any) -> Any:
    return nm.sampled_regions(f, params, x)


def fixed_neurons(f: nm.MLP, params: Any, x: Any, y: Any) -> Any:
    return nm.fixed_neurons(f, params, x).total


PROBES = (functional_dimension, sampled_regions, fixed_neurons)


def data() -> tuple[np.ndarray, np.ndarray]:
    """The paper's f2 on 100 points, with noise of 0.01 on inputs and outputs."""
    grid = np.linspace(0, 1, 100)[:, None]
    noise = 0.01 * np.random.default_rng(0).standard_normal((2, *grid.shape))
    y = 1.5 + np.sin(2 * np.pi * grid) + 0.5 * np.sin(4 * np.pi * grid)
    return (grid + noise[0]).astype(np.float32), (y + noise[1]).astype(np.float32)


def _row(
    job: str,
    epochs: int,
    peer_epochs: int,
    label: str,
    *,
    target: float,
    every: int | None = None,
    **options: Any,
) -> Row:
    net = nm.MLP(WIDTHS, "relu")
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias, runs=RUNS)
    x, y = data()
    optimizer = nm.dynamics.adam_l2(lr=0.01, weight_decay=1e-4)
    probed = {} if every is None else {"probes": PROBES, "every": every}

    def train() -> Any:
        training = nm.train(
            net,
            params,
            x,
            y,
            key=jax.random.key(1),
            epochs=epochs,
            loss=nm.losses.mse,
            optimizer=optimizer,
            batch_size=16,
            **probed,
        )
        return training.params

    def final_loss(trained: Any) -> float:
        return float(np.median(jax.vmap(lambda p: nm.losses.mse(net(p, x), y))(trained)))

    ours = Routine("ours", train, final_loss, units=RUNS * epochs)
    with tempfile.TemporaryDirectory() as folder:
        arrays = save_network(folder, jax.tree.map(lambda leaf: leaf[0], params), x=x, y=y)
        peer = Worker(
            "torch",
            "torch_training.py",
            "training",
            label=label,
            units=peer_epochs,
            arrays=arrays,
            epochs=peer_epochs,
            every=every,
            **options,
        )
        note = (
            f"seconds per epoch of one run; ours: {RUNS} runs × {epochs:,} epochs, theirs: 1 run "
            f"× {peer_epochs} epochs"
        )
        return compare(
            f"{job} {'-'.join(map(str, WIDTHS))}",
            ours,
            peer,
            target=target,
            tolerance=None,
            note=note,
        )
