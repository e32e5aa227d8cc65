"""Gradient flow of linear convolutional networks, in function space and in parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.functionspace.fiber import fiber
from neuromanifold.functionspace.kernel import as_arrays, jacobian_at
from neuromanifold.functionspace.loss import FilterLoss
from neuromanifold.functionspace.metric import choose_filters
from neuromanifold.functionspace.rescale import (
    FilterLike,
    Filters,
    check_delta,
    check_filter,
    norm_differences,
    solve_squared_norms,
)
from neuromanifold.functionspace.search import join, polish, split
from neuromanifold.models.arguments import Params
from neuromanifold.models.convolution import LinearConvNet, compose
from neuromanifold.numerics.results import Array, Result, follows

_CHORDS = 6
_ROUNDS = 25


@dataclass(frozen=True, repr=False)
class FilterFlow(Result):
    """A gradient flow seen in function space: `v[i]` at time `t[i]`, with the parameters there.

    `drift` is the largest change of an invariant δ_l along the way and `off` the largest relative
    distance ‖μ(θ) − v‖/‖v‖ between v and the neuromanifold (both zero up to integration error).
    """

    t: Float[Array, " n"]
    v: Float[Array, "n ..."]
    params: tuple[Filters, ...]
    drift: float
    off: float
    evaluations: int


@follows
def riemannian_flow(
    net: LinearConvNet,
    v: FilterLike,
    delta: Any,
    *,
    loss: FilterLoss | Callable[[Any], Any],
    t1: float,
    params: Params | None = None,
    times: int = 101,
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> FilterFlow:
    """Solve v̇ = −K^{(δ)}(v) ∇ℓ(v): the flow in function space alone.
    [riemann, Sec 1.1, Thm 4, Cor 6]

    K^{(δ)}(v) is the kernel of the tuple over (v, δ), found anew from v at every evaluation. Where
    several tuples with different kernels lie over v there is no such flow; `params` then chooses
    the branch to follow. `loss` is a `FilterLoss` or any JAX function of the filter.

    `delta` are the invariants δ.
    `rtol` and `atol` are the tolerances of the solver.
    `times` is how many times from 0 to `t1` are kept, equally spaced.
    """
    theta = choose_filters(fiber(net, v, delta), params)
    numbers, gradient = np.asarray(check_filter(net, v), np.float64), gradient_of(loss)
    section = _Section(net, check_delta(net, delta), theta)

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        here = flat.reshape(numbers.shape)
        theta = section(here)
        if (
            theta is None
        ):  # a trial step went too far: the integrator takes NaN for a large error and shortens it
            return np.full_like(flat, np.nan)
        J = jacobian_at(net, theta)
        return -(J @ (J.T @ gradient(here).ravel()))

    t, states, evaluations = integrate(field, numbers.ravel(), t1, times, rtol, atol)
    path = states.reshape(len(t), *numbers.shape)
    section.restart(theta)
    tuples = tuple(follow_section(section, state, t1) for state in path)
    off = max(
        float(np.linalg.norm(compose(p, net.dilations) - w) / np.linalg.norm(w))
        for p, w in zip(tuples, path, strict=True)
    )
    return FilterFlow(t, path, tuples, 0.0, off, evaluations)


@follows
def parameter_flow(
    net: LinearConvNet,
    params: Params,
    *,
    loss: FilterLoss | Callable[[Any], Any],
    t1: float,
    times: int = 101,
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> FilterFlow:
    """Solve θ̇ = −∇(ℓ∘μ)(θ), pushed forward: v(t) = μ(θ(t)).   [riemann, Eq 3]

    `loss` is a `FilterLoss` or any JAX function of the filter.
    `rtol` and `atol` are the tolerances of the solver.
    `times` is how many times from 0 to `t1` are kept, equally spaced.
    """
    filters, gradient = as_arrays(net, params), gradient_of(loss)

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        theta = split(net, flat)
        return -(jacobian_at(net, theta).T @ gradient(compose(theta, net.dilations)).ravel())

    t, states, evaluations = integrate(field, join(filters), t1, times, rtol, atol)
    tuples = tuple(split(net, state) for state in states)
    start = norm_differences(net, filters)
    drift = max(float(np.abs(norm_differences(net, p) - start).max(initial=0.0)) for p in tuples)
    return FilterFlow(
        t, np.stack([compose(p, net.dilations) for p in tuples]), tuples, drift, 0.0, evaluations
    )


class _Section:
    """v ↦ θ(v) over fixed δ: the branch of μ⁻¹ that contains the start, by Gauss–Newton from the
    last point.

    The pseudo-inverse of dμ is kept while it converges fast, and renewed at the current point
    otherwise.
    """

    def __init__(self, net: LinearConvNet, delta: np.ndarray, start: Filters):
        self.net, self.delta = net, delta
        self.restart(start)

    def restart(self, start: Filters) -> None:
        self.last = start
        self.inverse = np.linalg.pinv(jacobian_at(self.net, start), rcond=1e-10)

    def __call__(self, v: np.ndarray) -> Filters | None:
        filters, rounds = self._follow(v)
        if rounds > _CHORDS:
            near = filters if rounds <= _ROUNDS else polish(self.net, self.last, v, steps=30)[0]
            if self._residual(near, v) > 1e-3:
                return None
            self.restart(self._rescale(near))
            filters, rounds = self._follow(v)
        if rounds > _ROUNDS or self._residual(filters, v) > 1e-3:
            return None
        self.last = self._rescale(filters)
        return self.last

    def _residual(self, filters: Filters, v: np.ndarray) -> float:
        return float(np.linalg.norm(compose(filters, self.net.dilations) - v) / np.linalg.norm(v))

    def _follow(self, v: np.ndarray) -> tuple[Filters, int]:
        theta = join(self.last)
        size = np.linalg.norm(theta)
        for rounds in range(1, _ROUNDS + 1):
            step = self.inverse @ (v - compose(split(self.net, theta), self.net.dilations)).ravel()
            theta = theta + step
            if np.linalg.norm(step) > size:
                break
            if np.linalg.norm(step) <= 8 * np.finfo(np.float64).eps * size:
                return split(self.net, theta), rounds
        return split(self.net, theta), _ROUNDS + 1

    def _rescale(self, filters: Filters) -> Filters:
        norms = np.array([np.linalg.norm(w) for w in filters])
        scales = np.sqrt(solve_squared_norms(norms, self.delta)) / norms
        return tuple(s * w for s, w in zip(scales, filters, strict=True))


def follow_section(section: "_Section", v: Array, t1: float) -> Filters:
    """θ(v), or an error where the branch ends."""
    theta = section(v)
    if theta is None:
        raise ValueError(
            f"the flow left the smooth locus of the neuromanifold before t = {t1}; start "
            "elsewhere or lower `t1`."
        )
    return theta


def gradient_of(loss: FilterLoss | Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """∇ℓ as a NumPy function, in float64."""
    if isinstance(loss, FilterLoss):
        return loss.gradient
    import jax

    from neuromanifold.numerics.precision import arithmetic

    gradient = jax.jit(jax.grad(loss))

    def evaluate(v: np.ndarray) -> np.ndarray:
        with arithmetic():
            return np.asarray(gradient(v))

    return evaluate


def integrate(
    field: Callable[..., Any], start: Array, t1: float, times: int, rtol: float, atol: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """(times, states, evaluations) of θ̇ = field(t, θ) from `start`."""
    from scipy.integrate import solve_ivp

    if not t1 > 0:
        raise ValueError(f"`t1` is {t1}; pass a positive time.")
    t = np.linspace(0.0, t1, times)
    solution = solve_ivp(field, (0.0, t1), start, method="DOP853", t_eval=t, rtol=rtol, atol=atol)
    if not solution.success:
        raise RuntimeError(
            f"the flow could not be integrated to t = {t1} ({solution.message.strip('.')}): it "
            "may have met a singular point."
        )
    return t, solution.y.T, int(solution.nfev)
