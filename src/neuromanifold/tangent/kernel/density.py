"""`spectral_density`: how the eigenvalues of a kernel too large to be formed are distributed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import Selection, select
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments, output_size
from neuromanifold.models.function import flat_outputs
from neuromanifold.numerics import krylov
from neuromanifold.numerics.precision import boundary, widest
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.results import Array, Result
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.kernel.routes import count_kept_numbers, plan

_ABOVE_ROUNDING = 100.0


class DensityEstimate(NamedTuple):
    """A number, and two between which it lies: what quadrature leaves open, two standard errors of
    the probes further.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} … {self.high:.4g})"


@dataclass(frozen=True, eq=False, repr=False)
class SpectralDensity(Result):
    """The distribution of the `size` eigenvalues of Θ = JJᵀ.

    `eigenvalues` are the largest, computed one by one. Of the others, row i of `nodes` and
    `weights` is the Gauss quadrature of the measure μ_i(g) = vᵢᵀg(Θ)vᵢ, vᵢ a random unit vector
    orthogonal to the eigenvectors: its mean over vᵢ is tr g(Θ)/(size − k) over the others.
    No more than `rank_bound` are positive: there are as many rows, and as many parameters.
    `rounding` is the size below which eigenvalues are rounding errors of Θ's products.
    """

    eigenvalues: Float[Array, " k"]
    nodes: Float[Array, "probes steps"]
    weights: Float[Array, "probes steps"]
    size: int
    rank_bound: int
    rounding: float

    def headline(self) -> str:
        """Return how many eigenvalues, the largest, and what carries the trace."""
        return (
            f"{self.size:,} eigenvalues up to {self.eigenvalues[0]:.4g}, trace {self.trace}, "
            f"stable rank {self.stable_rank}, effective rank {self.effective_rank}"
        )

    def __str__(self) -> str:
        ranks = [f"{10.0**-i:g}: {self.epsilon_rank(10.0**-i)}" for i in self._decades]
        return "\n".join([self.headline(), *(f"above λ_max·{rank}" for rank in ranks)])

    @property
    def _decades(self) -> range:
        lowest = _ABOVE_ROUNDING * self.rounding / self.eigenvalues[0]
        return range(1, 1 + math.floor(-math.log10(max(lowest, 1e-12))))

    @property
    def trace(self) -> DensityEstimate:
        """Σλ."""
        return self._from_sums(lambda value: (value,), lambda sums: sums[0])

    @property
    def stable_rank(self) -> DensityEstimate:
        """Σλ / λ_max."""
        largest = float(self.eigenvalues[0])
        return self._from_sums(lambda value: (value,), lambda sums: sums[0] / largest)

    @property
    def effective_rank(self) -> DensityEstimate:
        """exp(−Σ p log p) with p = λ/Σλ, from Σλ and Σ λ log λ."""

        def sums(value: Any) -> tuple[Any, ...]:
            positive = np.where(value > self.rounding, value, 1.0)
            kept = np.where(value > self.rounding, value, 0.0)
            return kept, kept * np.log(positive)

        return self._from_sums(sums, lambda s: np.exp(np.log(s[0]) - s[1] / s[0]))

    @property
    def participation_ratio(self) -> DensityEstimate:
        """(Σλ)² / Σλ²."""
        return self._from_sums(lambda value: (value, value**2), lambda s: s[0] ** 2 / s[1])

    def epsilon_rank(self, epsilon: float) -> DensityEstimate:
        """Estimate the number of eigenvalues above `epsilon`·λ_max."""
        return self.count(epsilon * float(self.eigenvalues[0]))

    def count(self, threshold: float) -> DensityEstimate:
        """Return the number of eigenvalues above `threshold`.

        Weights above it are the estimate. A Gauss quadrature with nodes θ₁ < … has, for every
        measure, Σ_{k<j} w_k ≤ μ(−∞, θ_j) and μ(−∞, θ_j] ≤ Σ_{k≤j} w_k (Chebyshev, Markov,
        Stieltjes), so that one weight more and one less bound it, probe by probe.
        """
        if not threshold > _ABOVE_ROUNDING * self.rounding:
            raise ValueError(
                f"`threshold` is {threshold:.3g}, and eigenvalues below "
                f"{_ABOVE_ROUNDING * self.rounding:.3g} are rounding errors here; pass a larger "
                "one, or `params` and `x` in float64."
            )
        others = self.size - len(self.eigenvalues)
        surely = int((self.eigenvalues > threshold).sum())
        if surely < len(self.eigenvalues) or not others:
            return DensityEstimate(*(float(surely),) * 3)
        order = np.argsort(-self.nodes, axis=1)
        nodes, weights = (np.take_along_axis(a, order, 1) for a in (self.nodes, self.weights))
        below = np.cumsum(np.pad(weights, ((0, 0), (1, 0))), axis=1)
        above = (nodes > threshold).sum(axis=1)
        low, value, high = (
            np.take_along_axis(below, np.clip(above + i, 0, nodes.shape[1])[:, None], 1)[:, 0]
            for i in (-1, 0, 1)
        )
        ends = np.mean(low) - _two_errors(low), np.mean(high) + _two_errors(high)
        found = (float(np.mean(value)), *(min(1.0, max(0.0, float(end))) for end in ends))
        return DensityEstimate(
            *(min(surely + others * part, float(self.rank_bound)) for part in found)
        )

    def _from_sums(
        self, terms: Callable[[Any], tuple[Any, ...]], read: Callable[[np.ndarray], Any]
    ) -> DensityEstimate:
        """What `read` makes of Σ over all eigenvalues of each of `terms`, with two standard errors
        by leaving out a probe at a time (jackknife).
        """
        ours = np.array([np.sum(term) for term in terms(self.eigenvalues)])
        others = self.size - len(self.eigenvalues)
        if not others:
            return DensityEstimate(*(float(read(ours)),) * 3)
        each = np.array([(self.weights * term).sum(1) for term in terms(self.nodes)])
        n = each.shape[1]
        value = float(read(ours + others * each.mean(1)))
        without = (each.sum(1, keepdims=True) - each) / max(n - 1, 1)
        found = np.array([read(ours + others * without[:, i]) for i in range(n)])
        error = math.sqrt((n - 1) / n * float(((found - found.mean()) ** 2).sum()))
        error = 2.0 * error if n > 1 else math.inf
        return DensityEstimate(value, value - error, value + error)

    def plot(self, axes: Any = None) -> Any:
        """Draw the number of eigenvalues above each threshold, with what is left open; returns the
        axes.
        """
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
        lowest = _ABOVE_ROUNDING * self.rounding * 1.01
        at = np.geomspace(lowest, float(self.eigenvalues[0]) * (1 - 1e-9), 200)
        value, low, high = np.array([self.count(threshold) for threshold in at]).T
        axes.fill_between(at, np.maximum(low, 0.5), high, color="#0072B2", alpha=0.25, lw=0)
        axes.loglog(at, np.maximum(value, 0.5), color="#0072B2", lw=1)
        axes.set(xlabel="λ", ylabel=f"eigenvalues above λ, of {self.size:,}")
        return axes


def spectral_density(
    f: Model,
    params: Params,
    x: Samples,
    *,
    largest: int = 16,
    probes: int = 8,
    steps: int = 40,
    wrt: Any = None,
    key: Key | None = None,
    memory: int | str | None = None,
) -> SpectralDensity:
    """Estimate how the eigenvalues of the kernel Θ = JJᵀ are distributed, through products with Θ.

    Where a sample is the limit of the rank, these say how much of the network it sees: the
    `largest` eigenvalues by Lanczos, the others by stochastic Lanczos quadrature, `probes` random
    vectors with `steps` steps each, hence trace, stable and effective rank and the number of
    eigenvalues above ε·λ_max, each between two numbers. Θ is never formed, and samples are taken in
    blocks that fit into `memory`. Products have the dtype of `params` and `x`: in float32
    eigenvalues below about 1e-5·λ_max are not seen. `wrt` chooses parameters: a layer, a head.

    >>> x = np.linspace(0.0, 1.0, 50)[:, None]
    >>> found = nm.tangent.spectral_density(lambda p, x: p[0] * x + p[1], np.zeros(2), x, largest=2)
    >>> round(found.epsilon_rank(1e-6).value, 6), round(found.trace.value, 6)
    (2.0, 66.836735)
    """
    refuse_tracers((params, x), "`spectral_density`")
    for name, number, least in (
        ("largest", largest, 1),
        ("probes", probes, 1),
        ("steps", steps, 2),
    ):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"`{name}` is {number!r}; pass a whole number, at least {least}.")
    with boundary(params, x):
        dtype = widest(params, x)
        params, x = check_arguments(f, params, x)
        size = leading_axis(x) * output_size(f, params, x)
        chosen, budget = select(params, wrt), memory_budget(memory, device=True)
        kept = count_kept_numbers(plan(f, params, x, chosen, "trace").graph)
        product = _Product(f, params, x, chosen, budget, kept)
        k = min(largest, size)
        eps = float(jnp.finfo(dtype).eps)
        found = krylov.largest_eigenpairs(product, size, k, rtol=math.sqrt(eps))
        values, Q = np.asarray(found.values, np.float64), np.asarray(found.vectors).T
        draws = np.random.default_rng(_seed(key)).standard_normal((size, probes if k < size else 0))
        nodes, weights = _quadratures(product, Q, draws, min(steps, max(size - k, 1)))
        bound, rounding = min(size, chosen.size), eps * float(np.abs(values[0]))
        return SpectralDensity(values, nodes, weights, size, bound, rounding)


def _two_errors(found: np.ndarray) -> float:
    """Two standard errors of the mean; infinite where there is one number."""
    return (
        2.0 * float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    )


def _seed(key: Any) -> Any:
    return 0 if key is None else np.asarray(jax.random.key_data(key)).ravel()


@dataclass(frozen=True, eq=False)
class _Product:
    """V ↦ ΘV = J(JᵀV) for the columns of V, block of samples by block of samples."""

    f: Model
    params: Any
    x: Any
    chosen: Selection
    budget: int
    kept: int

    def __call__(self, V: np.ndarray) -> np.ndarray:
        columns = blocks(V.shape[1], max(1, int(self.budget // (32 * self.chosen.size))))
        return np.hstack([self._of(V[:, part]) for part in columns])

    def _of(self, V: np.ndarray) -> np.ndarray:
        outputs = len(V) // leading_axis(self.x)
        V = V.reshape(-1, outputs, V.shape[1])
        direction: Any = None
        for part, x in self._samples(V.shape[2]):
            added = _pull(self.f, self.chosen, self.params, x, np.moveaxis(V[part], 2, 0))
            direction = added if direction is None else jax.tree.map(jnp.add, direction, added)
        pushed = [
            np.asarray(_push(self.f, self.chosen, self.params, x, direction), np.float64)
            for _, x in self._samples(V.shape[2])
        ]
        return np.moveaxis(np.concatenate(pushed, axis=1), 0, 2).reshape(-1, V.shape[2])

    def _samples(self, columns: int) -> Iterator[tuple[slice, Any]]:
        """Blocks of as many samples as fit into the budget with what the passes keep of each."""
        most = max(1, int(self.budget // (8 * self.kept * (1 + columns))))
        for part in blocks(leading_axis(self.x), most):
            yield part, jax.tree.map(lambda a, part=part: a[part], self.x)


@jax.jit(static_argnums=(0, 1))
def _pull(f: Model, chosen: Selection, params: Any, x: Any, v: Any) -> Any:
    """Jᵀv, for every v."""
    mine, rebuild = chosen.split(params)
    y, pullback = jax.vjp(lambda p: flat_outputs(f, rebuild(p), x), mine)
    return jax.vmap(pullback)(v.astype(y.dtype))[0]


@jax.jit(static_argnums=(0, 1))
def _push(f: Model, chosen: Selection, params: Any, x: Any, direction: Any) -> Any:
    """Ju, for every u."""
    mine, rebuild = chosen.split(params)
    return jax.vmap(jax.linearize(lambda p: flat_outputs(f, rebuild(p), x), mine)[1])(direction)


def _quadratures(
    product: krylov.Product, Q: np.ndarray, draws: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of each draw's quadrature, by Lanczos orthogonal to Q and to all vectors
    before; where nothing is left the recurrence ends.
    """

    def apart(W: np.ndarray, basis: list[np.ndarray]) -> np.ndarray:
        for _ in range(2):
            W = W - Q @ (Q.T @ W)
            for V in basis:
                W = W - V * (V * W).sum(0)
        return W

    V = apart(draws, [])
    V = V / np.linalg.norm(V, axis=0)
    basis, diagonal, off = [V], [], []
    largest = np.zeros(draws.shape[1])
    for step in range(steps if draws.shape[1] else 0):
        W = product(basis[-1])
        diagonal.append((basis[-1] * W).sum(0))
        W = apart(W, basis)
        norms = np.linalg.norm(W, axis=0)
        largest = np.maximum(largest, np.abs(diagonal[-1]) + norms)
        going = norms > 64 * np.finfo(np.float64).eps * largest
        off.append(np.where(going, norms, 0.0))
        if step + 1 < steps:
            basis.append(np.where(going, W / np.where(going, norms, 1.0), 0.0))
    if not diagonal:
        nothing = np.zeros((draws.shape[1], 0))
        return nothing, nothing
    T = np.zeros((draws.shape[1], len(diagonal), len(diagonal)))
    for i, (a, b) in enumerate(zip(diagonal, off, strict=True)):
        T[:, i, i] = a
        if i + 1 < len(diagonal):
            T[:, i, i + 1] = T[:, i + 1, i] = b
    nodes, vectors = np.linalg.eigh(T)
    return nodes, vectors[:, 0] ** 2
