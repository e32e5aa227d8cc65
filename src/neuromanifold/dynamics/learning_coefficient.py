"""`learning_coefficient`: how fast the volume of nearly optimal parameters shrinks, by sampling."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.graph.reading import called
from neuromanifold.models.arguments import Model, Params, Samples, Targets, check_target, checked
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import boundary, promote
from neuromanifold.numerics.rank import Rank
from neuromanifold.numerics.results import Array, Result
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.tangent.curvature import sharpness
from neuromanifold.tangent.rank.dimension import functional_dimension

_DENSE = 1500
"""Parameters up to which the sampler knows the whole Hessian, and not its largest eigenvalue
alone.
"""

_ACCEPTANCE = 0.8
"""The share of accepted proposals that the tuning of the step aims at."""

_MIXED = 1.05
"""R̂ up to which chains are taken to agree."""


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficient(Result):
    """An estimate λ̂ of the local learning coefficient with its standard error over chains.

    `excess` holds b·(L(θ_t) − L(θ*)) of each chain (rows) at each draw, b the
    `inverse_temperature`; λ̂ is its mean. `distance` holds ‖θ_t − θ*‖² likewise: where minima form
    long arms it is what mixes last. `rank` is the functional dimension on the sample where θ*
    fits it, else `None`: half of it is a lower bound of λ. `acceptance` is the share of accepted
    proposals, `None` where minibatches leave nothing to accept.
    """

    value: float
    error: float
    excess: Float[Array, "chains draws"]
    distance: Float[Array, "chains draws"]
    inverse_temperature: float
    localisation: float
    step: float
    acceptance: float | None
    rank: Rank | None

    @property
    def by_chain(self) -> Float[Array, " chains"]:
        """The estimate of each chain."""
        return np.asarray(self.excess).mean(axis=1)

    @property
    def lower_bound(self) -> float | None:
        """½·rank: λ is at least this, and equal where the minima near θ* form a manifold."""
        return None if self.rank is None else int(self.rank) / 2

    @property
    def r_hat(self) -> float:
        """Gelman and Rubin's R̂ of the halves of all chains: 1 where they agree on the mean of the
        excess and of the distance; the larger of the two.
        """
        return max(_r_hat(np.asarray(self.excess)), _r_hat(np.asarray(self.distance)))

    @property
    def lowest(self) -> float:
        """The smallest excess met: far below zero where θ* is no minimum."""
        return float(np.min(self.excess))

    def doubt(self) -> str:
        """Say why the number may be wrong; empty where nothing speaks against it."""
        below = self.acceptance is not None and self.lowest < -1 - 0.1 * abs(self.value)
        if self.value < 0 or below:
            return (
                f"the chains found the loss {-self.lowest / self.inverse_temperature:.2g} lower "
                "than at `params`, which are no minimum"
            )
        if self.r_hat > _MIXED:
            return "the chains have not agreed yet; pass more `draws`"
        if self.value + 3 * self.error < (self.lower_bound or 0.0):
            return (
                "below what the rank proves: `localisation` outweighs directions that the loss "
                "bends little; pass a larger `inverse_temperature`"
            )
        return ""

    def headline(self) -> str:
        """λ̂ ± its error, the lower bound, and what speaks against it."""
        chains, draws = np.shape(self.excess)
        bound = "" if self.rank is None else f", at least {self.lower_bound:g} by the rank"
        doubt = self.doubt()
        return (
            f"{self.value:.3g} ± {self.error:.2g}{bound}; {chains} chains of {draws:,} draws, "
            f"R̂ {self.r_hat:.3f}{doubt and f'; {doubt}'}"
        )


def _r_hat(values: np.ndarray) -> float:
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean()
    between = half * halves.mean(axis=1).var(ddof=1)
    return float(np.sqrt((half - 1) / half + between / (half * within))) if within else 1.0


def learning_coefficient(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    key: Any,
    loss: Loss = mse,
    inverse_temperature: float | None = None,
    localisation: float = 1.0,
    chains: int = 8,
    draws: int = 1000,
    burn_in: int | None = None,
    leaps: int = 16,
    batch_size: int | None = None,
    step: float | None = None,
) -> LearningCoefficient:
    """Estimate the local learning coefficient λ of a loss L at a minimum θ* = `params`.

    The volume of {θ near θ* : L(θ) − L(θ*) < ε} shrinks like ε^λ (log 1/ε)^(m−1). For a loss with a
    definite Hessian λ is half the number of parameters; every degeneracy makes it smaller. The
    estimator is that of Lau et al. (2023): draw θ from the density

        exp(−b(L(θ) − L(θ*)) − (γ/2)‖θ − θ*‖²),        λ̂ = b(E L(θ) − L(θ*)),

    with b the `inverse_temperature`, n/log n by default for n samples, and γ the `localisation`.
    `loss` is a mean over samples (as `mse`). λ̂ → λ as b grows, with an error of the order (m −
    1)/log b where the minima cross (m > 1).

    **Sampling.** `chains` walks start at θ* and are one program, in float64, in coordinates z with
    θ = θ* + (bH₊ + γ)^(−½) z, H the Hessian at θ*; beyond 1,500 parameters all directions share
    1/√(b·sharpness + γ). On the whole sample each draw follows Hamilton's equations for a random
    number of steps, `leaps` on average, and Metropolis accepts or refuses its end: a step size
    costs time, never truth. It is tuned in the `burn_in` (as long as the draws by default). With
    `batch_size` gradients come from random minibatches and a draw is one step of Langevin's
    equation (SGLD): nothing is accepted or refused, and `step`, 0.1 by default, overestimates λ by
    up to 1/(1 − step/4). In units of θ and without H it is devinterp's sampler with the step
    `step`/(b·sharpness + γ).

    **The rank's lower bound.** Let L be analytic with the minimum L(θ*) near θ*, and r the rank of
    H. By the splitting lemma there are coordinates with L − L(θ*) = ½‖u‖² + g(v), u ∈ ℝʳ, where g ≥
    0 has no terms below order three. Learning coefficients of independent sums add: λ = r/2 + λ_g ≥
    r/2, with equality exactly where g = 0 near θ*, that is, where the minima form a manifold of
    codimension r. Where θ* fits the sample and ∂²L/∂f² is definite, H = Jᵀ(∂²L/∂f²)J, so that r is
    the functional dimension. A lower bound only: for w ↦ w²x at w = 0 the rank is 0 and λ = ¼.

    >>> line = lambda params, x: x @ params
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> found = nm.learning_coefficient(line, np.zeros((3, 1)), x, np.zeros((100, 1)), key=jax.random.key(0))
    >>> found.lower_bound, abs(found.value - 1.5) < 0.15
    (1.5, True)
    """
    refuse_tracers((params, x, y), "`learning_coefficient`")
    with boundary(params, x, y) as leave:
        params, x = checked(f, params, x, dtype=np.float64)
        y = promote(check_target(f, params, x, y, loss), np.float64)
        check_loss(loss, y)
        n = leading_axis(x)
        b = _temperature(inverse_temperature, n)
        _check_counts(chains, draws, leaps, batch_size, n)
        if not (math.isfinite(localisation) and localisation > 0):
            raise ValueError(
                f"`localisation` is {localisation}; pass a positive number: without it the walk "
                "leaves along directions that do not change f."
            )
        size = ravel_pytree(params)[0].size
        scale = _scale(f, loss, params, x, y, b, localisation)
        plan = _Plan(
            chains,
            draws,
            draws if burn_in is None else burn_in,
            leaps,
            batch_size,
            tuned=step is None and batch_size is None,
        )
        numbers = (b, localisation, _first_step(step, batch_size, size), scale, key)
        excess, distance, accepted, last = _walk(f, loss, plan, params, x, y, numbers)
        excess = np.asarray(excess)
        if not np.isfinite(excess).all():
            lost = int((~np.isfinite(excess).all(axis=1)).sum())
            raise ArithmeticError(
                f"{lost} of {chains} chains diverged; pass a smaller `step` than "
                f"{float(last):.2g}, or no `batch_size`: the whole sample cannot diverge."
            )
        means = excess.mean(axis=1)
        return LearningCoefficient(
            value=float(means.mean()),
            error=float(means.std(ddof=1) / np.sqrt(chains)),
            excess=leave(jnp.asarray(excess)),
            distance=leave(distance),
            inverse_temperature=b,
            localisation=float(localisation),
            step=float(last),
            acceptance=None if batch_size is not None else float(accepted),
            rank=_rank_of_fit(f, loss, params, x, y, b),
        )


class _Plan(NamedTuple):
    """How many chains walk how far."""

    chains: int
    draws: int
    burn_in: int
    leaps: int
    batch_size: int | None
    tuned: bool


def _temperature(given: float | None, n: int) -> float:
    if given is None:
        if n < 2:
            raise ValueError(
                "`x` has one sample, for which n/log n is infinite; pass `inverse_temperature`."
            )
        return n / math.log(n)
    if not (math.isfinite(given) and given > 0):
        raise ValueError(f"`inverse_temperature` is {given}; pass a positive number.")
    return float(given)


def _check_counts(chains: int, draws: int, leaps: int, batch_size: int | None, n: int) -> None:
    if chains < 2:
        raise ValueError(f"`chains` is {chains}; pass at least 2: the error is read from them.")
    if draws < 4:
        raise ValueError(f"`draws` is {draws}; pass at least 4.")
    if leaps < 1:
        raise ValueError(f"`leaps` is {leaps}; pass at least 1.")
    if batch_size is not None and not 1 <= batch_size <= n:
        raise ValueError(f"`batch_size` is {batch_size}; pass 1 to {n}, the number of samples.")


def _scale(f: Model, loss: Loss, params: Any, x: Any, y: Any, b: float, gamma: float) -> Any:
    """(bH₊ + γ)^(−½) as a matrix, or 1/√(b·sharpness + γ) for many parameters."""
    if ravel_pytree(params)[0].size > _DENSE:
        top = max(float(sharpness(f, params, x, y, loss=loss, rtol=1e-3)), 0.0)
        return jnp.asarray(1 / math.sqrt(b * top + gamma))
    values, vectors = np.linalg.eigh(np.asarray(_hessian(f, loss, params, x, y)))
    return jnp.asarray(vectors / np.sqrt(b * np.maximum(values, 0.0) + gamma))


@compiled("f", "loss")
def _hessian(f: Model, loss: Loss, params: Any, x: Any, y: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    gradient = jax.grad(lambda v: loss(called(f, unravel(v), x), y))
    along = jax.lax.map(
        lambda v: jax.jvp(gradient, (flat,), (v,))[1], jnp.eye(flat.size), batch_size=16
    )
    return (along + along.T) / 2


def _first_step(step: float | None, batch_size: int | None, size: int) -> float:
    if step is not None:
        if not (math.isfinite(step) and step > 0):
            raise ValueError(f"`step` is {step}; pass a positive number.")
        return float(step)
    return 0.1 if batch_size is not None else size ** (-1 / 4)


class _Posterior(NamedTuple):
    """exp(−b(L(θ) − L(θ*)) − (γ/2)‖θ − θ*‖²) in z, θ = θ* + Tz, T a matrix or a number."""

    f: Model
    loss: Loss
    params: Any
    x: Any
    y: Any
    b: Any
    gamma: Any
    scale: Any

    def change(self, z: Any) -> Any:
        """θ − θ* = Tz, as one vector."""
        return self.scale @ z if self.scale.ndim else self.scale * z

    def energy(self, z: Any, rows: Any = None) -> tuple[Any, Any]:
        """−log of the density and the excess b(L(θ) − L(θ*)), on some rows."""
        flat, unravel = ravel_pytree(self.params)
        chosen = (self.x, self.y) if rows is None else _rows((self.x, self.y), rows)
        change = self.change(z)
        here, start = (
            self.loss(called(self.f, unravel(v), chosen[0]), chosen[1])
            for v in (flat + change, flat)
        )
        excess = self.b * (here - start)
        return excess + self.gamma / 2 * jnp.sum(change**2), excess

    def force(self, z: Any, rows: Any = None) -> Any:
        """The gradient of the energy, and the excess."""
        return jax.grad(self.energy, has_aux=True)(z, rows)


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda a: a[rows], tree)


@compiled("f", "loss", "plan")
def _walk(f: Model, loss: Loss, plan: _Plan, params: Any, x: Any, y: Any, numbers: Any) -> Any:
    """Excess and squared distance at each draw of each chain, the share accepted, and the step."""
    b, gamma, step, scale, key = numbers
    posterior = _Posterior(f, loss, params, x, y, b, gamma, scale)

    def hamiltonian(z: Any, key: Any, step: Any, leaps: Any) -> Any:
        push, luck = jax.random.split(key)
        start = jax.random.normal(push, z.shape, z.dtype)

        def leap(_: Any, state: Any) -> Any:
            z, momentum, force = state
            momentum = momentum - step / 2 * force
            z = z + step * momentum
            force = posterior.force(z)[0]
            return z, momentum - step / 2 * force, force

        new, momentum, _ = jax.lax.fori_loop(0, leaps, leap, (z, start, posterior.force(z)[0]))
        (before, old), (after, excess) = posterior.energy(z), posterior.energy(new)
        gained = before - after + (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
        ratio = jnp.where(jnp.isfinite(gained), jnp.exp(jnp.minimum(gained, 0.0)), 0.0)
        taken = jax.random.uniform(luck) < ratio
        return jnp.where(taken, new, z), jnp.where(taken, excess, old), ratio

    def stochastic(z: Any, key: Any, step: Any, _: Any) -> Any:
        noise, choice = jax.random.split(key)
        rows = jax.random.choice(choice, len(y), (plan.batch_size or len(y),), replace=False)
        force, excess = posterior.force(z, rows)
        kick = jax.random.normal(noise, z.shape, z.dtype)
        return z - step / 2 * force + jnp.sqrt(step) * kick, excess, 1.0

    one = hamiltonian if plan.batch_size is None else stochastic

    def advance(carry: Any, t: Any) -> Any:
        z, log_step = carry
        length, *keys = jax.random.split(jax.random.fold_in(key, t), 1 + plan.chains)
        leaps = jax.random.randint(length, (), 1, 2 * plan.leaps)
        z, excess, ratio = jax.vmap(one, (0, 0, None, None))(
            z, jnp.stack(keys), jnp.exp(log_step), leaps
        )
        tuning = plan.tuned & (t < plan.burn_in)
        change = jnp.where(tuning, (jnp.mean(ratio) - _ACCEPTANCE) * (t + 1.0) ** -0.4, 0.0)
        distance = jnp.sum(jax.vmap(posterior.change)(z) ** 2, axis=1)
        return (z, log_step + change), (excess, distance, jnp.mean(ratio))

    start = jnp.zeros((plan.chains, ravel_pytree(params)[0].size))
    carry = (start, jnp.log(jnp.asarray(step, start.dtype)))
    (_, log_step), traces = jax.lax.scan(advance, carry, jnp.arange(plan.burn_in + plan.draws))
    excess, distance, ratio = (trace[plan.burn_in :] for trace in traces)
    return excess.T, distance.T, jnp.mean(ratio), jnp.exp(log_step)


def _rank_of_fit(f: Model, loss: Loss, params: Any, x: Any, y: Any, b: float) -> Rank | None:
    """The functional dimension where the outputs fit the targets: moving them against the loss's
    gradient by a Newton step changes b·L by less than 1e-6.
    """
    outputs = called(f, params, x)
    pull = jax.grad(loss)(outputs, y)
    curved = jax.jvp(lambda z: jax.grad(loss)(z, y), (outputs,), (pull,))[1]
    size, bend = float(jnp.vdot(pull, pull)), float(jnp.vdot(pull, curved))
    fitted = size == 0 or (bend > 0 and b * size**2 / bend < 1e-6)
    return functional_dimension(f, params, x) if fitted else None
