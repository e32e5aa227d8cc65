"""Several trainings at once, in threads and in processes: nothing waits for ever, and the
numbers are those of one alone.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from hashlib import sha256

import jax
import numpy as np

import neuromanifold as nm
from neuromanifold.dynamics.probes import Probe, loss_probe

PROBES = (
    loss_probe(nm.losses.mse),
    Probe(lambda f, params, x, y: int(nm.functional_dimension(f, params, x)), "rank", host=True),
)


def work(seed: int) -> str:
    """A training that asks for ranks on the way, as a digest of every number."""
    rng = np.random.default_rng(seed)
    net, x = nm.MLP((2, 4, 1), "tanh"), rng.standard_normal((16, 2))
    params = net.init(key=jax.random.key(seed), runs=3)
    done = nm.train(
        net,
        params,
        x,
        np.sin(x[:, :1]),
        key=jax.random.key(0),
        epochs=3,
        batch_size=8,
        probes=PROBES,
    )
    numbers = [
        *jax.tree.leaves(done.params),
        *(done.history[name].values for name in done.history),
    ]
    return sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in numbers)).hexdigest()


def test_four_threads_and_four_processes_at_once():
    seeds = range(4)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=spawn) as processes, ThreadPoolExecutor(4) as threads:
        apart = [processes.submit(work, seed) for seed in seeds]
        beside = [threads.submit(work, seed) for seed in seeds]
        found = [[each.result(timeout=300) for each in group] for group in (apart, beside)]
    alone = [work(seed) for seed in seeds]
    assert found == [alone, alone]
    assert len(set(alone)) == 4
