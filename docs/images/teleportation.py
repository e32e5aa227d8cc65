"""Draws teleportation.png and prints the numbers of symmetry.md: 20 networks on each of three
data sets, before and after.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm
from neuromanifold import symmetry
from neuromanifold.models import losses
from neuromanifold.numerics.precision import arithmetic

SEEDS, LIMIT, BOUND = 20, 400, 2.0
RATES = tuple(10.0 ** np.arange(-4.0, 0.01, 0.25))
SHARED = 1e-3
COLOURS = ("#0072B2", "#D55E00")


@jax.jit(static_argnums=0)
def losses_of_descent(net, params, x, y, rate):
    """The loss before each of LIMIT steps of gradient descent."""

    def step(p, _):
        value, change = jax.value_and_grad(lambda q: losses.mse(net(q, x), y))(p)
        return jax.tree.map(lambda a, g: a - rate * g, p, change), value

    return jax.lax.scan(step, params, None, length=LIMIT)[1]


def steps_to(fraction, values):
    """The first step with at most that fraction of the first loss; LIMIT when there is none."""
    below = np.where(np.isfinite(values), values, np.inf) <= values[..., :1] * fraction
    return np.where(below.any(axis=-1), below.argmax(axis=-1), LIMIT)


def experiment(name):
    data = nm.data.load(name)
    x, y = data.x[:100], data.y[:100]
    x, y = (x - x.mean(axis=0)) / x.std(axis=0) if name == "diabetes" else x, y
    y = (y - y.mean()) / y.std() if name == "diabetes" else y
    net = nm.MLP((x.shape[1], 10, 10, 10, 10, 1))
    group = symmetry.ScalingGroup(net)
    starts = [net.init(key=jax.random.key(seed), dtype="float64") for seed in range(SEEDS)]
    moves = [
        symmetry.teleport(net, p, x, y, group=group, loss=losses.mse, bound=BOUND) for p in starts
    ]
    with arithmetic():
        curves = []
        for params in (starts, [move.params for move in moves]):
            stacked = jax.tree.map(
                lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *params
            )
            run = jax.vmap(
                jax.vmap(losses_of_descent, (None, None, None, None, 0)),
                (None, 0, None, None, None),
            )
            curves.append(np.asarray(run(net, stacked, x, y, jnp.asarray(RATES))))
    return net, moves, curves


def main():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), constrained_layout=True)
    shared = int(np.argmin(np.abs(np.log(RATES) - np.log(SHARED))))
    for axis, name in zip(axes, ("f2", "g2", "diabetes"), strict=True):
        net, moves, curves = experiment(name)
        at_shared = [steps_to(0.5, curve[:, shared]) for curve in curves]
        steps = [steps_to(0.1, curve) for curve in curves]
        best = [s.min(axis=1) for s in steps]
        ratio = np.array([move.gradient_norm.ratio for move in moves])
        print(
            f"{name}: {net}; gradient norm x {np.median(ratio):.2f} (min {ratio.min():.2f}); "
            f"largest deviation {max(move.deviation for move in moves):.1e}; ‖Γ‖ ≤ "
            f"{max(m.gamma_norm for m in moves):.3f}; "
            f"steps to half at rate {SHARED:g}: {np.median(at_shared[0]):g} → "
            f"{np.median(at_shared[1]):g} "
            f"(sooner {np.sum(at_shared[1] < at_shared[0])}, later "
            f"{np.sum(at_shared[1] > at_shared[0])}); "
            f"to a tenth, each at its best rate: {np.median(best[0]):g} → {np.median(best[1]):g} "
            f"(sooner {np.sum(best[1] < best[0])}, later {np.sum(best[1] > best[0])}); "
            f"median best rate {np.median(np.array(RATES)[steps[0].argmin(axis=1)]):.2g} → "
            f"{np.median(np.array(RATES)[steps[1].argmin(axis=1)]):.2g}"
        )
        for label, colour, curve in zip(
            ("before", "after one teleportation"), COLOURS, curves, strict=True
        ):
            relative = curve[:, shared] / curve[:, shared, :1]
            low, middle, high = np.quantile(relative, (0.25, 0.5, 0.75), axis=0)
            axis.plot(middle, color=colour, label=label)
            axis.fill_between(np.arange(LIMIT), low, high, color=colour, alpha=0.2, linewidth=0)
        axis.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
        axis.set(title=name, xlabel=f"steps of gradient descent, rate {SHARED:g}", yscale="log")
    axes[0].set_ylabel("loss / first loss (median, quartiles)")
    axes[0].legend(frameon=False)
    figure.savefig(Path(__file__).with_name("teleportation.png"), dpi=110)


if __name__ == "__main__":
    main()
