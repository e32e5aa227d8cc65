"""Seconds of the exact rank of a 64-64-64-10 network against the number of samples: `python
docs/images/exact_rank_cost.py`.
"""

import time
from pathlib import Path

import jax
import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

SIZES = (10, 20, 30, 40, 50, 70, 100, 150, 200, 300, 500)


def seconds(n: int) -> tuple[float, int]:
    """Best of three at n samples (of one beyond 200), after a first call; and the rank."""
    net = nm.MLP((64, 64, 64, 10))
    params = net.init(key=jax.random.key(0), scheme=nm.init.he_bias)
    x = np.random.default_rng(0).standard_normal((n, 64)).astype(np.float32)
    best, rank = np.inf, 0
    for _ in range(2 if n > 200 else 4):
        start = time.perf_counter()
        rank = int(nm.functional_dimension(net, params, x, exact=True))
        best = min(best, time.perf_counter() - start)
    return best, rank


def main() -> None:
    """Measure, fit, draw, print."""
    times, ranks = np.array([seconds(n) for n in SIZES]).T
    slope, offset = np.polyfit(np.log(SIZES[-6:]), np.log(times[-6:]), 1)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.loglog(SIZES, times, "o", color="#0072B2", mfc="none", label="exact rank, certified")
    fit = np.exp(offset) * np.array(SIZES[-6:], float) ** slope
    axes.loglog(SIZES[-6:], fit, color="0.5", ls=":", label=f"N to the power {slope:.2f}")
    axes.set(
        xlabel="samples N (10 rows of the Jacobian each)",
        ylabel="seconds",
        title="64-64-64-10: no steps on the way",
    )
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(Path(__file__).with_name("exact-rank-cost.png"), dpi=130)
    for n, t, r in zip(SIZES, times, ranks, strict=True):
        print(f"| {n} | {int(r)} | {t:.2f} |")
    print(f"slope {slope:.2f}")


if __name__ == "__main__":
    main()
