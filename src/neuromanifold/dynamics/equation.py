"""The differential equation of gradient flow, and its solution piece by piece."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.graph.reading import called
from neuromanifold.models.losses import Loss
from neuromanifold.numerics.precision import to_host

Metric = Callable[[Any], Callable[[Any], Any]]
Event = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Equation:
    """dθ/dt = −metric(θ)(∇ loss(f_θ(x), y)), the identity for `metric` where it is `None`; and when to stop."""

    f: Any
    loss: Loss
    metric: Metric | None
    event: Event | None
    stiff: bool

    @property
    def solver(self) -> str:
        """The name of the method: explicit of order 8, or implicit of order 5."""
        return "Kvaerno5" if self.stiff else "Dopri8"

    def value(self, params: Any, x: Any, y: Any) -> Any:
        """The loss at θ."""
        return self.loss(called(self.f, params, x), y)

    def velocity(self, params: Any, x: Any, y: Any) -> Any:
        """dθ/dt."""
        gradient = jax.grad(self.value)(params, x, y)
        step = gradient if self.metric is None else self.metric(params)(gradient)
        return jax.tree.map(jnp.negative, step)


@dataclass(frozen=True)
class Tolerance:
    """Error of a step: at most `atol` + `rtol`·|θ|, in the mean over the parameters; steps of `dtmin` pass with any error."""

    rtol: float
    atol: float
    dtmin: float
    max_steps: int


class Piece(NamedTuple):
    """A stretch of the solution: its steps (the first point excluded), their losses, the interpolation between them."""

    start: float
    times: np.ndarray
    params: Any
    losses: np.ndarray
    interpolation: Any
    accepted: int
    rejected: int
    stopped: bool


@partial(jax.jit, static_argnums=(0, 1))
def _solve(
    equation: Equation, length: int, params: Any, data: Any, t0: Any, t1: Any, rtol: Any, atol: Any, dtmin: Any
) -> Any:
    """At most `length` steps, as parameters with their losses; what did not happen is inf. The solver sees one vector."""
    import diffrax

    start, unravel = ravel_pytree(params)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, point, _: ravel_pytree(equation.velocity(unravel(point), *data))[0]),
        getattr(diffrax, equation.solver)(),
        t0,
        t1,
        None,
        start,
        saveat=diffrax.SaveAt(steps=True, dense=True),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol, dtmin=dtmin, force_dtmin=True),
        event=_event(equation, params, unravel, rtol, atol),
        max_steps=length,
        throw=False,
    )
    points = jax.vmap(unravel)(jnp.asarray(solution.ys))
    return solution, points, jax.vmap(lambda point: equation.value(point, *data))(points)


def _event(equation: Equation, params: Any, unravel: Callable[[Any], Any], rtol: Any, atol: Any) -> Any:
    event = equation.event
    if event is None:
        return None
    import diffrax
    import optimistix

    kind = jax.eval_shape(event, 0.0, params)
    if kind.shape or not (kind.dtype == bool or jnp.issubdtype(kind.dtype, jnp.floating)):
        raise TypeError(
            f"`event` returns {kind.dtype} of shape {kind.shape}; it must return one truth value or real number."
        )
    finder = None if kind.dtype == bool else optimistix.Bisection(rtol=rtol, atol=atol)
    return diffrax.Event(lambda t, y, args, **_: event(t, unravel(y)), finder)


@jax.jit
def interpolate(interpolation: Any, like: Any, t: Any) -> Any:
    """The point at time t between the steps, a pytree like `like`."""
    return ravel_pytree(like)[1](interpolation.evaluate(t))


def solve(equation: Equation, params: Any, data: Any, t1: float, tolerance: Tolerance, length: int) -> Iterator[Piece]:
    """The pieces of the solution from 0 to `t1` or the event, of at most `length` steps each, on the host."""
    t, tried, outcome = 0.0, 0, "max_steps_reached"
    while outcome == "max_steps_reached":
        if tried >= tolerance.max_steps:
            raise ArithmeticError(
                f"the flow needs more than {tried} steps, having come to t = {t:.6g} of {t1:g}; pass `stiff=True` if it is "
                "stiff, `dtmin=` if it may slide along a kink (of ReLU, say), or raise `max_steps`, loosen `rtol`, `atol`."
            )
        error = (tolerance.rtol, tolerance.atol, tolerance.dtmin)
        solution, states, losses = _solve(equation, length, params, data, t, t1, *error)
        outcome = _outcome(solution.result, t)
        times, states, losses, between = to_host((solution.ts, states, losses, solution.interpolation))
        accepted, rejected = (int(solution.stats[f"num_{kind}_steps"]) for kind in ("accepted", "rejected"))
        took = np.isfinite(times)
        states = jax.tree.map(lambda a, took=took: a[took], states)
        yield Piece(t, times[took], states, losses[took], between, accepted, rejected, outcome == "event_occurred")
        tried += accepted + rejected
        if took.any():
            t, params = float(times[took][-1]), jax.tree.map(lambda a: a[-1], states)


def _outcome(result: Any, t: float) -> str:
    import diffrax

    for name in ("successful", "event_occurred", "max_steps_reached"):
        if bool(result == getattr(diffrax.RESULTS, name)):
            return name
    raise ArithmeticError(
        f"the flow cannot be followed far beyond t = {t:.6g} ({str(result).split('<')[-1].strip('>')})."
    )
