"""Kernels of infinitely wide networks, estimated by finite ones: the check that needs no
formula.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.arguments import Samples
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.results import Array, follows, show_record
from neuromanifold.numerics.validation import check_sample
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.kernel.ntk import ntk


class Estimate(NamedTuple):
    """A mean over drawn networks and its standard error, entry by entry; `runs` networks were
    drawn.
    """

    mean: Array
    standard_error: Array
    runs: int

    def __repr__(self) -> str:
        return show_record(self)

    def deviation(self, limit: Any) -> float:
        """Return how far one network is from `limit`: the root mean square over networks and
        entries, relative to the limit's.
        """
        spread = self.standard_error**2 * self.runs
        return float(
            np.sqrt(np.mean((self.mean - limit) ** 2 + spread) / np.mean(np.square(limit)))
        )

    def bias(self, limit: Any) -> tuple[float, float]:
        """Return how far the mean over networks is from `limit`, root mean square over entries, and
        the standard error of that; both relative.

        The square of the former is freed of what the spread of the mean adds to it, and 0 where
        nothing is left.
        """
        size = np.mean(np.square(limit))
        noise = np.mean(self.standard_error**2)
        square = max(float(np.mean((self.mean - limit) ** 2) - noise), 0.0)
        return float(np.sqrt(square / size)), float(np.sqrt(noise / size))


class MonteCarlo(NamedTuple):
    """Estimates of the covariance of the outputs and of the tangent kernel."""

    nngp: Estimate
    ntk: Estimate

    def __repr__(self) -> str:
        return show_record(self)


@follows
def monte_carlo_kernels(
    net: Any,
    x1: Samples,
    x2: Any = None,
    *,
    key: Key,
    runs: int = 1000,
    dtype: Any = "float32",
    memory: int | str | None = None,
) -> MonteCarlo:
    """Return NNGP and NTK of the networks that `net.init` draws, as means over `runs` of them with
    standard errors.

    Each network contributes the mean over its outputs of f(x)f(x') and of ⟨∇f(x), ∇f(x')⟩. As its
    widths grow the means approach `nm.nngp` and `nm.infinite_ntk`, the latter up to a bias of order
    1/width; one network's kernel deviates by 1/√width. Networks are drawn from keys split off `key`
    and evaluated many at once, within `memory` bytes.

    >>> net = nm.Sequential(nm.layers.Dense(1, bias=False), input_shape=(1,))      # f = wx, so that Θ = x²
    >>> found = monte_carlo_kernels(net, np.array([[2.0]]), key=jax.random.key(0), runs=10)
    >>> float(found.ntk.mean[0, 0]), float(found.ntk.standard_error[0, 0])
    (4.0, 0.0)
    """
    if not isinstance(runs, int) or runs < 2:
        raise ValueError(f"`runs` is {runs!r}; pass a whole number, two or more.")
    x1 = check_sample(x1)
    x2 = x1 if x2 is None else check_sample(x2, "x2")
    outputs = len(jax.tree.leaves(jax.eval_shape(net, net.init(key=key), x1))[0].shape)
    if outputs != 2:
        raise ValueError(
            "`net` has an output with positions; end it with Flatten or GlobalAvgPool and a Dense "
            "layer."
        )
    at_once = _at_once(net, len(x1) + len(x2), memory_budget(memory))
    with arithmetic():
        x1, x2 = (jnp.asarray(x, dtype) for x in (x1, x2))
        sums = [0.0] * 4
        keys = jax.random.split(key, runs)
        for part in blocks(runs, 64 * at_once):
            found = _sums(net, at_once, keys[part], x1, x2)
            sums = [
                total + np.asarray(value, np.float64)
                for total, value in zip(sums, found, strict=True)
            ]
    return MonteCarlo(_estimate(sums[0], sums[1], runs), _estimate(sums[2], sums[3], runs))


def _estimate(total: Any, squares: Any, runs: int) -> Estimate:
    mean = total / runs
    variance = np.maximum(squares / runs - mean**2, 0.0) * runs / (runs - 1)
    return Estimate(mean, np.sqrt(variance / runs), runs)


def _at_once(net: Any, samples: int, budget: int) -> int:
    """As many networks as their parameters and per-sample gradients leave room for."""
    return int(max(1, min(1000, budget / (8 * net.n_params * (samples + 4)))))


@jax.jit(static_argnums=(0, 1))
def _sums(net: Any, at_once: int, keys: Any, x1: Any, x2: Any) -> tuple[Any, ...]:
    """Sums over networks of the two kernels and of their squares, in float64."""

    def one(key: Any) -> tuple[Any, ...]:
        params = jax.tree.map(lambda leaf: leaf.astype(x1.dtype), net.init(key=key))
        left, right = net(params, x1), net(params, x2)
        covariance = left @ right.T / left.shape[1]
        tangent = ntk(net, params, x1, x2, trace=True) / left.shape[1]
        wide = [v.astype(jnp.float64) for v in (covariance, tangent)]
        return wide[0], wide[0] ** 2, wide[1], wide[1] ** 2

    return tuple(v.sum(axis=0) for v in jax.lax.map(one, keys, batch_size=at_once))
