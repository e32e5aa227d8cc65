"""What gradient flow does in the kernel regime: outputs at any time, on training and on other
samples.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import check_rtol, check_sample, refuse_tracers
from neuromanifold.tangent.kernel.ntk import ntk


class Outputs(NamedTuple):
    """Predicted outputs on the training samples and on the others (`None` where there are none)."""

    train: Array
    other: Array | None


@dataclass(frozen=True, eq=False, repr=False)
class KernelFlow(Result):
    """Gradient flow of a model whose kernel Θ does not move:  f(X) = f₀(X) − Θa,  f(X') = f₀(X') −
    Θ(X', X)a,  ȧ = g − ρa.

    g = ∂loss/∂f(X), and ρ is `ridge`: the flow of loss + (ρ/2)‖θ − θ₀‖². With `friction` γ it is
    the heavy ball ä + γȧ = g − ρa (see `Relaxation` for what that says of momentum). `kernel` is
    Θ(X, X), of shape (n·o, n·o), or (n, n) where outputs are independent (as those of
    `infinite_ntk`); `cross` is Θ(X', X) likewise. Where the loss is κ/2 ‖f − y‖² (squared errors in
    any normalisation: recognised by its gradient) the solution is exact; for any other loss an ODE
    is solved, to `rtol`.

    >>> squared = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> flow = KernelFlow(np.eye(1), np.array([[1.0]]), np.array([[2.0]]), squared)
    >>> float(flow.at(np.log(2.0)).train[0, 0])      # 1 e^{-t}·(-1) + 2 at e^{-t} = 1/2
    1.5
    """

    kernel: Array
    start: Array
    target: Array
    loss: Loss
    cross: Array | None = None
    other_start: Array | None = None
    rtol: float = 1e-9
    ridge: float = 0.0
    friction: float | None = None

    def __post_init__(self):
        check_rtol(self.rtol)
        check_sample(self.start, "start")
        if np.shape(self.start) != np.shape(self.target):
            raise ValueError(
                f"`target` has shape {np.shape(self.target)} but `start` has "
                f"{np.shape(self.start)}; pass equal shapes."
            )
        if np.shape(self.kernel) not in ((self.start.size,) * 2, (len(self.start),) * 2):
            raise ValueError(
                f"`kernel` has shape {np.shape(self.kernel)}; for outputs of shape "
                f"{np.shape(self.start)} pass "
                f"{(self.start.size,) * 2}, or {(len(self.start),) * 2} for independent outputs."
            )
        if (self.cross is None) != (self.other_start is None):
            raise ValueError("`cross` and `other_start` belong together; pass both, or neither.")
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise ValueError(f"`ridge` is {self.ridge}; pass zero or a positive number.")
        Relaxation(self.friction)

    def at(self, t: Any) -> Outputs:
        """Return the outputs at time t ≥ 0; at t = ∞ the `limit`."""
        if np.ndim(t):
            raise TypeError(
                f"`t` has shape {np.shape(t)}; pass one time: `[flow.at(t) for t in times]`."
            )
        if not t >= 0:
            raise ValueError(f"`t` is {t}; pass a time, zero or later.")
        if math.isinf(t):
            return self.limit()
        if self.curvature is None:
            return self._move(self._impulse_by_ode(float(t)))
        return self._move(self._filter(t))

    def early(self, t: float) -> Outputs:
        """Return the outputs to leading order in t: f(0) − tΘg(0), or with friction f(0) −
        (t²/2)Θg(0).
        """
        return self._move((t if self.friction is None else t**2 / 2) * self._gradient(self.start))

    def limit(self) -> Outputs:
        """Return the outputs at infinite time, for squared errors: f'(0) − Θ(X', X)(Θ + ρ/κ)⁺(f(0)
        − y).

        Directions in which Θ vanishes to rounding are never learned. Other losses have no finite
        limit in general, and an undamped ball never rests.
        """
        if self.curvature is None:
            raise ValueError(
                "`loss` is no squared error, so its flow need not converge; pass a finite time to "
                "`at`."
            )
        if self.friction == 0:
            raise ValueError(
                "`friction` is 0, so that the flow never comes to rest; pass a finite time to `at`."
            )
        return self._move(self._filter(math.inf))

    def largest_stable_lr(self, *, momentum: float = 0.0) -> float:
        """Return 2(1 + β)/(κλ_max(Θ) + ρ): beyond it gradient descent with momentum β on squared
        errors diverges.
        """
        if not 0 <= momentum < 1:
            raise ValueError(f"`momentum` is {momentum}; pass a number in [0, 1).")
        if self.curvature is None:
            raise ValueError(
                "`loss` is no squared error, so its curvature changes on the way; use "
                "nm.largest_stable_lr."
            )
        stiffness = self.curvature * float(self.modes[0].max()) + self.ridge
        return 2 * (1 + momentum) / stiffness if stiffness > 0 else math.inf

    @cached_property
    def curvature(self) -> float | None:
        """κ where the loss's gradient is κ(f − y), else `None`; tested at three points along a
        random direction.
        """
        direction = np.random.default_rng(0).standard_normal(np.shape(self.start))
        ratios = []
        for size in (0.3, 1.0, 4.0):
            gradient = self._gradient(self.target + size * direction)
            ratios.append((gradient / (size * direction)).ravel())
        spread = np.ptp(ratios)
        kappa = float(np.mean(ratios))
        return kappa if spread <= 1e-9 * abs(kappa) and kappa > 0 else None

    @cached_property
    def modes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the kernel, none negative, and its eigenvectors."""
        values, vectors = np.linalg.eigh(np.asarray(self.kernel, np.float64))
        return np.maximum(values, 0.0), vectors

    def _filter(self, t: float) -> Array:
        """a(t) = V diag(κ g(s, t)/s) Vᵀ (f(0) − y) with the stiffnesses s = κλ + ρ."""
        values, vectors = self.modes
        residual = self._columns(self.start - self.target)
        gain = mode_gains(values, self.curvature or 0.0, self.ridge, self.friction, t)
        return (vectors @ (gain[:, None] * (vectors.T @ residual))).reshape(np.shape(self.start))

    def _move(self, impulse: Array) -> Outputs:
        """f(t) = f(0) − Θa for the training samples and the others."""
        columns = self._columns(impulse)
        train = self.start - (self.kernel @ columns).reshape(np.shape(self.start))
        if self.cross is None or self.other_start is None:
            return Outputs(train, None)
        return Outputs(
            train, self.other_start - (self.cross @ columns).reshape(np.shape(self.other_start))
        )

    def _columns(self, a: Array) -> Array:
        return np.asarray(a, np.float64).reshape(len(self.kernel), -1)

    def _gradient(self, outputs: Array) -> Array:
        with arithmetic():
            return np.asarray(
                jax.grad(self.loss)(jnp.asarray(outputs, jnp.float64), jnp.asarray(self.target))
            )

    def _impulse_by_ode(self, t: float) -> Array:
        """a(t), the solution of ȧ = g(f(0) − Θa) − ρa; one state for training and other samples
        alike.
        """
        with arithmetic():
            kernel, start, target = (
                jnp.asarray(v, jnp.float64) for v in (self.kernel, self.start, self.target)
            )
            numbers = (
                jnp.asarray(v, jnp.float64)
                for v in (t, self.rtol, self.ridge, self.friction or 0.0)
            )
            solution = _solve(self.loss, self.friction is not None, kernel, start, target, *numbers)
            return np.asarray(solution)


def mode_gains(
    values: Array, curvature: float, ridge: float, friction: float | None, t: float
) -> Array:
    """κ g(s, t)/s for the eigenvalues λ of a kernel, s = κλ + ρ; at t = ∞ what is 0 to rounding
    stays unlearned.
    """
    stiffness = curvature * values + ridge
    if not math.isinf(t):
        return curvature * Relaxation(friction).impulse(stiffness, t)
    smallest = values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
    learned = (values > smallest) | (ridge > 0)
    return np.where(learned, curvature / np.where(learned, stiffness, 1.0), 0.0)


@jax.jit(static_argnums=(0, 1))
def _solve(
    loss: Loss,
    heavy: bool,
    kernel: Any,
    start: Any,
    target: Any,
    t: Any,
    rtol: Any,
    ridge: Any,
    friction: Any,
):
    import diffrax

    def force(impulse: Any):
        moved = start - (kernel @ impulse.reshape(len(kernel), -1)).reshape(start.shape)
        return jax.grad(loss)(moved, target) - ridge * impulse

    def velocity(time: Any, state: Any, _):
        if not heavy:
            return force(state)
        impulse, speed = state
        return speed, force(impulse) - friction * speed

    rest = jnp.zeros_like(start)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        t0=0.0,
        t1=t,
        dt0=None,
        y0=(rest, rest) if heavy else rest,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * 1e-3),
        max_steps=1_000_000,
        adjoint=diffrax.ForwardMode(),
    )
    return (solution.ys[0] if heavy else solution.ys)[0]  # pyright: ignore[reportOptionalSubscript]


@follows
def kernel_flow(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    loss: Loss = mse,
    other: Samples | None = None,
    ridge: float = 0.0,
    friction: float | None = None,
    kernel: Callable[..., Any] | None = None,
    memory: int | str | None = None,
    rtol: float = 1e-9,
) -> KernelFlow:
    """Return the gradient flow of f linearised at `params`, through its tangent kernel; `other`
    samples are predicted along.

    With `kernel=nm.infinite_ntk` the flow starts at the same outputs but follows the kernel that f,
    an `nm.MLP` or `nm.Sequential`, has at infinite width; `nm.infinite.ensemble_flow` is the mean and
    covariance over all starts.

    `ridge`, `friction` and `rtol` are as for `KernelFlow`.

    >>> squared = lambda prediction, target: ((prediction - target) ** 2).sum() / 2
    >>> flow = kernel_flow(lambda params, x: params * x, 0.0, np.array([[1.0]]), np.array([[2.0]]), loss=squared, other=np.array([[3.0]]))
    >>> float(flow.limit().other[0, 0])
    6.0
    """
    refuse_tracers((params, x, y, other), "`kernel_flow`")
    with arithmetic():
        params, x, *rest = check_arguments(
            f, params, x, *([] if other is None else [other]), dtype=np.float64
        )
        y = check_target(f, params, x, y, loss)
        check_loss(loss, y)
        others = rest[0] if rest else None
        theta = partial(ntk, f, params) if kernel is None else partial(kernel, f)
        return KernelFlow(
            kernel=np.asarray(theta(x, memory=memory)),
            start=np.asarray(call(f, params, x), np.float64),
            target=np.asarray(y, np.float64),
            loss=loss,
            cross=None if others is None else np.asarray(theta(others, x, memory=memory)),
            other_start=None if others is None else np.asarray(call(f, params, others), np.float64),
            rtol=rtol,
            ridge=ridge,
            friction=friction,
        )


@dataclass(frozen=True)
class Relaxation:
    """The share g(s, t) of its way to rest that a mode of stiffness s has gone at time t.

    Without `friction` ȧ = 1 − sa, so that g = 1 − e^{−st}. With friction γ it is the heavy ball ä +
    γȧ + sa = 1 from rest:

    g = (s₊(1 − e^{s₋t}) − s₋(1 − e^{s₊t}))/(s₊ − s₋),   s± = −γ/2 ± √(γ²/4 − s).

    Gradient descent with step η and momentum β follows it with γ = (1 − β)/√η, at t = √η times the
    number of steps.

    >>> float(Relaxation(None).share(np.array([1.0]), np.log(2.0))[0])
    0.5
    >>> float(Relaxation(0.0).share(np.array([1.0]), np.pi)[0])        # an undamped ball has overshot by as much again
    2.0
    """

    friction: float | None

    def __post_init__(self):
        if self.friction is not None and not (np.isfinite(self.friction) and self.friction >= 0):
            raise ValueError(
                f"`friction` is {self.friction}; pass zero, a positive number, or None for "
                "gradient flow."
            )

    def share(self, stiffness: np.ndarray, t: float) -> np.ndarray:
        """g(s, t) for s > 0."""
        if self.friction is None:
            return -np.expm1(-stiffness * t)
        if np.isinf(t):
            return np.ones_like(stiffness)
        half = self.friction / 2
        # At critical damping the two roots meet; a relative distance of 1e-8 changes g by its
        # square.
        discriminant = half**2 - stiffness
        discriminant = np.where(
            np.abs(discriminant) < 1e-16 * stiffness, -1e-16 * stiffness, discriminant
        )
        omega = np.sqrt(discriminant.astype(np.complex128))
        fast = -(half + omega)
        slow = stiffness / fast
        return np.real((slow * -np.expm1(fast * t) + fast * np.expm1(slow * t)) / (slow - fast))

    def impulse(self, stiffness: np.ndarray, t: float) -> np.ndarray:
        """g(s, t)/s, with its limit where s vanishes."""
        tiny = np.finfo(np.float64).tiny ** 0.5
        positive = stiffness > tiny
        safe = np.where(positive, stiffness, 1.0)
        return np.where(positive, self.share(safe, t) / safe, self._at_zero(t))

    def _at_zero(self, t: float) -> float:
        """t, or with friction t/γ − (1 − e^{−γt})/γ²; t²/2 without any damping."""
        if self.friction is None or np.isinf(t):
            return t
        if self.friction * t < 1e-6:
            return t**2 / 2
        return (t + np.expm1(-self.friction * t) / self.friction) / self.friction
