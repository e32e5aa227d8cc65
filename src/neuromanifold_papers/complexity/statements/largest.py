"""complexity, Sec. 5: the largest singular value of the Jacobian, from which the threshold of
the reported rank follows.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import product

import jax
import numpy as np
import scipy.stats
from jax.flatten_util import ravel_pytree

from neuromanifold.dynamics.geometry_probes import snapshot
from neuromanifold.dynamics.training import train
from neuromanifold_papers.check import Check, Interval, at_most
from neuromanifold_papers.complexity import runs
from neuromanifold_papers.statement import by_training, control

PRINTED = {"f2": 3.0, "g2": 4.0}
"""log₁₀ of the printed largest singular values, in the 1D and in the 2D experiments."""
TRIALS, EPOCHS = 6, {"f2": 200, "g2": 50}
NEAR = 0.5
"""About 10³ is read as 10^{2.5} to 10^{3.5}."""

When = tuple[str, bool]


@lru_cache
def parameters(name: str) -> np.ndarray:
    """(runs, 2, D): the parameters of the paper's networks before training, and after some
    epochs of it.
    """
    x, y = runs.load_data((name,))
    net = runs.network(x.shape[2])
    done = train(
        net,
        net.init(key=jax.random.key(0), runs=TRIALS),
        x,
        y,
        key=jax.random.key(1),
        epochs=EPOCHS[name],
        optimizer=runs.adam,
        hyper={"weight_decay": (runs.WEIGHT_DECAY,)},
        batch_size=runs.BATCH,
        probes=(snapshot,),
        every=EPOCHS[name],
    )
    return done.history.parameters.values[0, 0]


def largest_singular_values(name: str, after: bool) -> np.ndarray:
    """σ_max of the Jacobian on the whole data set, one for each run."""
    [x], _ = runs.load_data((name,))
    net = runs.network(x.shape[1])
    unravel = ravel_pytree(net.init(key=jax.random.key(0)))[1]
    jacobians = jax.vmap(jax.jacrev(lambda theta: net(unravel(theta), x)[:, 0]))(
        parameters(name)[:, int(after)]
    )
    return np.linalg.norm(np.asarray(jacobians, np.float64), ord=2, axis=(1, 2))


@by_training(
    "Sec 5 (σ_max)",
    list(product(PRINTED, (False, True))),
    control("10⁶ in place of 10³", lambda: ("f2", False), printed={"f2": 6.0}),
    show=lambda case: f"name, after = {case}",
)
def largest(case: When, printed: Mapping[str, float] = PRINTED) -> Check:
    """The largest singular values were about 10³ in the 1D and 10⁴ in the 2D experiments, so that
    values below about 0.01 and 0.1 count as zero (about: to half a power of ten).

    How far the mean of log₁₀ σ_max, with Student's 95 % interval, lies from the printed power
    of ten.
    """
    name, after = case
    found = np.log10(largest_singular_values(name, after))
    half = float(scipy.stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / len(found) ** 0.5)
    off = abs(float(found.mean()) - printed[name])
    hypotheses = {"data": name, "epochs": EPOCHS[name] if after else 0}
    distance = Interval(off, max(0.0, off - half), off + half)
    return at_most(distance, NEAR, comparisons=len(found), hypotheses=hypotheses)
