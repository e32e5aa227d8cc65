"""`learning_coefficient`: how fast the volume of nearly optimal parameters shrinks, by sampling."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_target,
)
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import boundary, promote
from neuromanifold.numerics.randomness import Key
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

_SPREAD = 1.5
"""Each draw takes a step between the tuned one and e^(−1.5) of it: where the loss bends more than
elsewhere only short steps are accepted.
"""

_MIXED = 1.05
"""R̂ up to which chains are taken to agree."""


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficient(Result):
    """An estimate λ̂ of the local learning coefficient with its standard error over chains.

    `excess` holds b·(L(θ_t) − L(θ*)) of each chain (rows) at each draw, b the
    `inverse_temperature`; λ̂ is its mean. `distance` holds ‖θ_t − θ*‖² likewise: where minima form
    long arms it is what mixes last. `ladder` holds the inverse temperatures that the walks
    exchanged between, `by_rung` the estimate of each chain at each. `rank` is the functional dimension on the sample where θ*
    fits it, else `None`: half of it is a lower bound of λ. `acceptance` is the share of accepted
    proposals, `None` where minibatches leave nothing to accept.
    """

    value: float
    error: float
    excess: Float[Array, "chains draws"]
    distance: Float[Array, "chains draws"]
    inverse_temperature: float
    localisation: float
    ladder: Float[Array, " rungs"]
    by_rung: Float[Array, "rungs chains"]
    step: float
    acceptance: float | None
    rank: Rank | None

    @property
    def by_chain(self) -> Float[Array, " chains"]:
        """The estimate of each chain."""
        return np.asarray(self.excess).mean(axis=1)

    @property
    def curve(self) -> tuple[Any, Any, Any]:
        """The inverse temperatures b of the ladder, λ̂ at each, and its standard error."""
        means = np.asarray(self.by_rung)
        error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
        return np.asarray(self.ladder), means.mean(axis=1), error

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
            return "the chains have not agreed yet; pass more `draws`, or a `ladder`"
        if self.value + 3 * self.error < (self.lower_bound or 0.0):
            return (
                "below what the rank proves: `localisation` outweighs directions that the loss "
                "bends little; pass a larger `inverse_temperature`"
            )
        return ""

    def headline(self) -> str:
        """Return λ̂ ± its error, the lower bound, and what speaks against it."""
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
    key: Key,
    loss: Loss = mse,
    inverse_temperature: float | None = None,
    localisation: float = 1.0,
    chains: int = 8,
    draws: int = 1000,
    burn_in: int | None = None,
    leaps: int = 16,
    ladder: int = 1,
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

    **Sampling.** `chains` walks start at θ* and are one program, in float64, along the
    eigenvectors of the Hessian H at θ*, in units of (bH₊ + γ)^(−½); beyond 1,500 parameters all
    directions share 1/√(b·sharpness + γ). On the whole sample each draw follows Hamilton's equations
    for a random number of steps, `leaps` on average, and Metropolis accepts or refuses its end: a
    step size costs time, never truth. It is tuned in the `burn_in` (as long as the draws by
    default). With `batch_size` gradients come from random minibatches and a draw is one step of
    Langevin's equation (SGLD): nothing is accepted or refused, and `step`, 0.1 by default,
    overestimates λ by up to 1/(1 − step/4). In units of θ and without H it is devinterp's sampler
    with the step `step`/(b·sharpness + γ).

    **Long arms.** Where minima form arms that are long and, at large b, thin, one walk hardly moves
    along them. With `ladder` = K > 1 every chain is K walks at inverse temperatures 0 = b₁ < … < b_K =
    b, and neighbours exchange places with the probability min(1, exp((b_{k+1} − b_k)(L_{k+1} −
    L_k))), which leaves all K densities as they are (parallel tempering; even and odd pairs in turn,
    Syed et al. 2021). The burn-in moves the rungs until all pairs exchange equally often (Vousden
    et al. 2016). It takes K times as long, and `curve` gives λ̂ at every b_k. Where it first grows
    beyond its last value and then falls, minima of larger loss and smaller λ within 1/√γ outweigh
    those at θ*: pass a larger `localisation`.

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
        params, x = check_arguments(f, params, x, dtype=np.float64)
        y = promote(check_target(f, params, x, y, loss), np.float64)
        check_loss(loss, y)
        n = leading_axis(x)
        b = _temperature(inverse_temperature, n)
        _check_counts(chains, draws, leaps, ladder, batch_size, n)
        if not (math.isfinite(localisation) and localisation > 0):
            raise ValueError(
                f"`localisation` is {localisation}; pass a positive number: without it the walk "
                "leaves along directions that do not change f."
            )
        size = ravel_pytree(params)[0].size
        curvature, basis = _frame(f, loss, params, x, y)
        plan = _Plan(
            chains,
            draws,
            draws if burn_in is None else burn_in,
            leaps,
            batch_size,
            ladder,
            tuned=step is None and batch_size is None,
        )
        numbers = (b, localisation, _first_step(step, batch_size, size), curvature, basis, key)
        walked = _walk(f, loss, plan, params, x, y, numbers)
        below, rungs = np.asarray(walked.excess), np.asarray(walked.rungs)
        excess, step_taken = b * below[:, -1].T, float(walked.step)
        if not np.isfinite(excess).all():
            lost = int((~np.isfinite(excess).all(axis=1)).sum())
            raise ArithmeticError(
                f"{lost} of {chains} chains diverged; pass a smaller `step` than "
                f"{step_taken:.2g}, or no `batch_size`: the whole sample cannot diverge."
            )
        means = excess.mean(axis=1)
        return LearningCoefficient(
            value=float(means.mean()),
            error=float(means.std(ddof=1) / np.sqrt(chains)),
            excess=leave(jnp.asarray(excess)),
            distance=leave(walked.distance),
            inverse_temperature=b,
            localisation=float(localisation),
            ladder=leave(walked.rungs),
            by_rung=leave(jnp.asarray(rungs[:, None] * below.mean(axis=0))),
            step=step_taken,
            acceptance=None if batch_size is not None else float(walked.accepted),
            rank=_rank_of_fit(f, loss, params, x, y, b),
        )


class _Plan(NamedTuple):
    """How many chains walk how far."""

    chains: int
    draws: int
    burn_in: int
    leaps: int
    batch_size: int | None
    ladder: int
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


def _check_counts(
    chains: int, draws: int, leaps: int, ladder: int, batch_size: int | None, n: int
) -> None:
    if chains < 2:
        raise ValueError(f"`chains` is {chains}; pass at least 2: the error is read from them.")
    if draws < 4:
        raise ValueError(f"`draws` is {draws}; pass at least 4.")
    if leaps < 1:
        raise ValueError(f"`leaps` is {leaps}; pass at least 1.")
    if ladder < 1:
        raise ValueError(f"`ladder` is {ladder}; pass 1 (no exchange) or more.")
    if ladder > 1 and batch_size is not None:
        raise ValueError(
            f"`ladder` is {ladder} and `batch_size` is {batch_size}; exchanges compare losses on "
            "the whole sample: leave one of them out."
        )
    if batch_size is not None and not 1 <= batch_size <= n:
        raise ValueError(f"`batch_size` is {batch_size}; pass 1 to {n}, the number of samples.")


def _frame(f: Model, loss: Loss, params: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The eigenvalues of H₊ and its eigenvectors; the sharpness and 1 for many parameters."""
    if ravel_pytree(params)[0].size > _DENSE:
        top = max(float(sharpness(f, params, x, y, loss=loss, rtol=1e-3)), 0.0)
        return jnp.asarray(top), jnp.asarray(1.0)
    values, vectors = np.linalg.eigh(np.asarray(_hessian(f, loss, params, x, y)))
    return jnp.asarray(np.maximum(values, 0.0)), jnp.asarray(vectors)


@compiled("f", "loss")
def _hessian(f: Model, loss: Loss, params: Any, x: Any, y: Any) -> Any:
    flat, unravel = ravel_pytree(params)
    gradient = jax.grad(lambda v: loss(call(f, unravel(v), x), y))
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
    """exp(−b(L(θ) − L(θ*)) − (γ/2)‖θ − θ*‖²) in w, θ = θ* + Vw, V orthogonal or the number 1."""

    f: Model
    loss: Loss
    params: Any
    x: Any
    y: Any
    gamma: Any
    basis: Any

    def excess(self, w: Any, rows: Any = None) -> Any:
        """L(θ) − L(θ*), on some rows."""
        flat, unravel = ravel_pytree(self.params)
        x, y = (self.x, self.y) if rows is None else _rows((self.x, self.y), rows)
        change = self.basis @ w if self.basis.ndim else self.basis * w
        here, start = (self.loss(call(self.f, unravel(v), x), y) for v in (flat + change, flat))
        return here - start

    def energy(self, w: Any, b: Any, rows: Any = None) -> tuple[Any, Any]:
        """−log of the density at the inverse temperature b, and the excess."""
        excess = self.excess(w, rows)
        return b * excess + self.gamma / 2 * jnp.sum(w**2), excess

    def force(self, w: Any, b: Any, rows: Any = None) -> Any:
        """The gradient of the energy, and the excess."""
        return jax.grad(self.energy, has_aux=True)(w, b, rows)


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda a: a[rows], tree)


class _State(NamedTuple):
    """Where the walks are, [rung, chain, coordinate], and what the burn-in tunes."""

    w: Any
    excess: Any
    log_step: Any
    log_gaps: Any


class _Walked(NamedTuple):
    """L − L* at each draw, rung and chain; ‖θ − θ*‖² of the last rung's chains at each draw, the
    share it accepted, and its step; the inverse temperatures.
    """

    excess: Any
    distance: Any
    accepted: Any
    rungs: Any
    step: Any


@compiled("f", "loss", "plan")
def _walk(f: Model, loss: Loss, plan: _Plan, params: Any, x: Any, y: Any, numbers: Any) -> _Walked:
    """Tune in the burn-in, then draw; `numbers` are b, γ, the first step, the frame and the key."""
    b, gamma, step, curvature, basis, key = numbers
    posterior = _Posterior(f, loss, params, x, y, gamma, basis)
    K = plan.ladder

    def hamiltonian(w: Any, key: Any, b: Any, step: Any, leaps: Any) -> Any:
        push, luck = jax.random.split(key)
        start = jax.random.normal(push, w.shape, w.dtype)
        reach = step / jnp.sqrt(b * curvature + gamma)

        def leap(_: Any, state: Any) -> Any:
            w, momentum, force = state
            momentum = momentum - reach / 2 * force
            w = w + reach * momentum
            force = posterior.force(w, b)[0]
            return w, momentum - reach / 2 * force, force

        new, momentum, _ = jax.lax.fori_loop(0, leaps, leap, (w, start, posterior.force(w, b)[0]))
        (before, old), (after, excess) = posterior.energy(w, b), posterior.energy(new, b)
        gained = before - after + (jnp.sum(start**2) - jnp.sum(momentum**2)) / 2
        ratio = jnp.where(jnp.isfinite(gained), jnp.exp(jnp.minimum(gained, 0.0)), 0.0)
        taken = jax.random.uniform(luck) < ratio
        return jnp.where(taken, new, w), jnp.where(taken, excess, old), ratio

    def stochastic(w: Any, key: Any, b: Any, step: Any, _: Any) -> Any:
        noise, choice = jax.random.split(key)
        rows = jax.random.choice(choice, len(y), (plan.batch_size or len(y),), replace=False)
        force, excess = posterior.force(w, b, rows)
        reach = step / (b * curvature + gamma)
        kick = jax.random.normal(noise, w.shape, w.dtype)
        return w - reach / 2 * force + jnp.sqrt(reach) * kick, excess, 1.0

    one = hamiltonian if plan.batch_size is None else stochastic
    each = jax.vmap(jax.vmap(one, (0, 0, None, None, None)), (0, 0, 0, 0, None))

    def advance(state: _State, t: Any) -> Any:
        length, exchange, walk, jitter = jax.random.split(jax.random.fold_in(key, t), 4)
        leaps = jax.random.randint(length, (), 1, 2 * plan.leaps)
        rungs = _rungs(b, state.log_gaps, K)
        keys = jax.random.split(walk, (K, plan.chains))
        steps = jnp.exp(state.log_step - _SPREAD * jax.random.uniform(jitter))
        w, excess, ratio = each(state.w, keys, rungs, steps, leaps)
        w, excess, swapped = _exchange(w, excess, rungs, exchange, t)
        rate = jnp.where(plan.tuned & (t < plan.burn_in), (t + 1.0) ** -0.4, 0.0)
        tuned = _State(
            w,
            excess,
            state.log_step + rate * (jnp.mean(ratio, axis=1) - _ACCEPTANCE),
            state.log_gaps + rate * jnp.diff(swapped),
        )
        distance = jnp.sum(w[-1] ** 2, axis=1)
        return tuned, (excess, distance, jnp.mean(ratio[-1]))

    start = jnp.zeros((K, plan.chains, ravel_pytree(params)[0].size))
    gaps = jnp.zeros(max(K - 2, 0))
    if K > 2:
        ball = jax.random.normal(jax.random.fold_in(key, 2**32 - 1), (64, start.shape[-1]))
        typical = jnp.median(jax.vmap(posterior.excess)(ball / jnp.sqrt(gamma)))
        hottest = jnp.clip(jnp.where(typical > 0, 1 / typical, b), 1e-9 * b, b / 2)
        temperatures = 1 / jnp.geomspace(hottest, b, K - 1)
        gaps = jnp.log(-jnp.diff(temperatures))
    state = _State(
        start,
        jnp.zeros(start.shape[:2]),
        jnp.full(K, jnp.log(jnp.asarray(step, start.dtype))),
        gaps,
    )
    state, traces = jax.lax.scan(advance, state, jnp.arange(plan.burn_in + plan.draws))
    excess, distance, ratio = (trace[plan.burn_in :] for trace in traces)
    rungs, step = _rungs(b, state.log_gaps, K), jnp.exp(state.log_step[-1])
    return _Walked(excess, distance.T, jnp.mean(ratio), rungs, step)


def _rungs(b: Any, log_gaps: Any, K: int) -> Any:
    """The inverse temperatures, from zero to b, of gaps between temperatures 1/b."""
    if K == 1:
        return jnp.asarray(b)[None]
    temperatures = 1 / b + jnp.append(jnp.cumsum(jnp.exp(log_gaps)[::-1])[::-1], 0.0)
    return jnp.append(0.0, 1 / temperatures)


def _exchange(w: Any, excess: Any, rungs: Any, key: Any, t: Any) -> Any:
    """Let neighbouring rungs exchange their walks, even and odd pairs in turn; the mean
    probability of each pair.
    """
    K, chains = excess.shape
    gained = (rungs[1:] - rungs[:-1])[:, None] * (excess[1:] - excess[:-1])
    ratio = jnp.exp(jnp.minimum(gained, 0.0))
    turn = (jnp.arange(K - 1) + t) % 2 == 0
    taken = turn[:, None] & (jax.random.uniform(key, ratio.shape) < ratio)
    none = jnp.zeros((1, chains), bool)
    source = jnp.arange(K)[:, None] + jnp.append(taken, none, 0) - jnp.append(none, taken, 0)
    moved = jnp.take_along_axis(w, source[:, :, None], axis=0)
    return moved, jnp.take_along_axis(excess, source, axis=0), jnp.mean(ratio, axis=1)


def _rank_of_fit(f: Model, loss: Loss, params: Any, x: Any, y: Any, b: float) -> Rank | None:
    """The functional dimension where the outputs fit the targets: moving them against the loss's
    gradient by a Newton step changes b·L by less than 1e-6.
    """
    outputs = call(f, params, x)
    pull = jax.grad(loss)(outputs, y)
    curved = jax.jvp(lambda z: jax.grad(loss)(z, y), (outputs,), (pull,))[1]
    size, bend = float(jnp.vdot(pull, pull)), float(jnp.vdot(pull, curved))
    fitted = size == 0 or (bend > 0 and b * size**2 / bend < 1e-6)
    return functional_dimension(f, params, x) if fitted else None
