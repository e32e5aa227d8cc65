"""`gradient_flow`: training with infinitely small steps, as an ordinary differential equation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.dynamics.checks import check_hashable, check_targets
from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params, Samples, Targets, check_model
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.numerics.precision import arithmetic, follower, is_traced, promote, to_host
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import check_params, check_sample
from neuromanifold.runtime.memory import memory_budget

Metric = Callable[[Any], Callable[[Any], Any]]
Event = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Equation:
    """dθ/dt = −metric(θ)(∇ loss(f_θ(x), y)), the identity for `metric` where it is `None`; and
    when to stop.
    """

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
        """Return the loss at θ."""
        return self.loss(call(self.f, params, x), y)

    def velocity(self, params: Any, x: Any, y: Any) -> Any:
        """Return dθ/dt."""
        gradient = jax.grad(self.value)(params, x, y)
        step = gradient if self.metric is None else self.metric(params)(gradient)
        return jax.tree.map(jnp.negative, step)


@dataclass(frozen=True)
class Tolerance:
    """Error of a step: at most `atol` + `rtol`·|θ|, in the mean over the parameters; steps of
    `dtmin` pass with any error.
    """

    rtol: float
    atol: float
    dtmin: float
    max_steps: int


class Piece(NamedTuple):
    """A stretch of the solution: its steps (the first point excluded), their losses, the
    interpolation between them.
    """

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
    equation: Equation,
    length: int,
    params: Any,
    data: Any,
    t0: Any,
    t1: Any,
    rtol: Any,
    atol: Any,
    dtmin: Any,
) -> Any:
    """At most `length` steps, as parameters with their losses; what did not happen is inf. The
    solver sees one vector.
    """
    import diffrax

    start, unravel = ravel_pytree(params)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(
            lambda t, point, _: ravel_pytree(equation.velocity(unravel(point), *data))[0]
        ),
        getattr(diffrax, equation.solver)(),
        t0,
        t1,
        None,
        start,
        saveat=diffrax.SaveAt(steps=True, dense=True),
        stepsize_controller=diffrax.PIDController(
            rtol=rtol, atol=atol, dtmin=dtmin, force_dtmin=True
        ),
        event=_event(equation, params, unravel, rtol, atol),
        max_steps=length,
        throw=False,
    )
    points = jax.vmap(unravel)(jnp.asarray(solution.ys))
    return solution, points, jax.vmap(lambda point: equation.value(point, *data))(points)


def _event(
    equation: Equation, params: Any, unravel: Callable[[Any], Any], rtol: Any, atol: Any
) -> Any:
    event = equation.event
    if event is None:
        return None
    import diffrax
    import optimistix

    kind = jax.eval_shape(event, 0.0, params)
    if kind.shape or not (kind.dtype == bool or jnp.issubdtype(kind.dtype, jnp.floating)):
        raise TypeError(
            f"`event` returns {kind.dtype} of shape {kind.shape}; it must return one truth value "
            "or real number."
        )
    finder = None if kind.dtype == bool else optimistix.Bisection(rtol=rtol, atol=atol)
    return diffrax.Event(lambda t, y, args, **_: event(t, unravel(y)), finder)


@jax.jit
def interpolate(interpolation: Any, like: Any, t: Any) -> Any:
    """The point at time t between the steps, a pytree like `like`."""
    return ravel_pytree(like)[1](interpolation.evaluate(t))


def solve(
    equation: Equation, params: Any, data: Any, t1: float, tolerance: Tolerance, length: int
) -> Iterator[Piece]:
    """The pieces of the solution from 0 to `t1` or the event, of at most `length` steps each, on
    the host.
    """
    t, tried, outcome = 0.0, 0, "max_steps_reached"
    while outcome == "max_steps_reached":
        if tried >= tolerance.max_steps:
            raise ArithmeticError(
                f"the flow needs more than {tried} steps, having come to t = {t:.6g} of {t1:g}; "
                "pass `stiff=True` if it is "
                "stiff, `dtmin=` if it may slide along a kink (of ReLU, say), or raise "
                "`max_steps`, loosen `rtol`, `atol`."
            )
        error = (tolerance.rtol, tolerance.atol, tolerance.dtmin)
        solution, states, losses = _solve(equation, length, params, data, t, t1, *error)
        outcome = _outcome(solution.result, t)
        times, states, losses, between = to_host(
            (solution.ts, states, losses, solution.interpolation)
        )
        accepted, rejected = (
            int(solution.stats[f"num_{kind}_steps"]) for kind in ("accepted", "rejected")
        )
        took = np.isfinite(times)
        states = jax.tree.map(lambda a, took=took: a[took], states)
        yield Piece(
            t,
            times[took],
            states,
            losses[took],
            between,
            accepted,
            rejected,
            outcome == "event_occurred",
        )
        tried += accepted + rejected
        if took.any():
            t, params = float(times[took][-1]), jax.tree.map(lambda a: a[-1], states)


def _outcome(result: Any, t: float) -> str:
    import diffrax

    for name in ("successful", "event_occurred", "max_steps_reached"):
        if bool(result == getattr(diffrax.RESULTS, name)):
            return name
    raise ArithmeticError(
        f"the flow cannot be followed far beyond t = {t:.6g} "
        f"({str(result).split('<')[-1].strip('>')})."
    )


STEPS_PER_PIECE = 256
STAGES = 20
"""Parameter vectors that a step's interpolation holds, rounded up."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Result):
    """θ(t) for 0 ≤ t ≤ `t1`, in float64; parameters as they came, the rest NumPy.

    `times` (T,), `params` (with a leading axis of times) and `losses` (T,) are what was saved;
    `at(t)` is θ at any time. `stopped` says whether the event ended the flow. `stats` has the
    solver, its tolerances, accepted and rejected steps.
    """

    t1: float
    times: Array
    params: Any
    losses: Array
    stopped: bool
    stats: dict[str, Any]
    interpolations: tuple[tuple[float, Any], ...]

    def at(self, t: Any) -> Any:
        """Return θ(t) by the solver's own interpolation; an array of times puts its axes in front
        of the parameters'.
        """
        times = np.asarray(t, np.float64)
        if not self.interpolations:
            raise ValueError(
                "`at` needs a trajectory computed with `dense=True`; this one has only its saved "
                "`params`."
            )
        outside = times[~((times >= 0) & (times <= self.t1))]
        if outside.size:
            raise ValueError(f"`t` is {outside.flat[0]}; the trajectory runs from 0 to {self.t1}.")
        if not times.size:
            raise ValueError("`t` is empty; pass at least one time.")
        like = jax.tree.map(lambda a: a[0], self.params)
        points = _interpolate(self.interpolations, like, times.ravel())
        stacked = jax.tree.map(
            lambda *leaves: np.stack(leaves).reshape(times.shape + leaves[0].shape), *points
        )
        return follower(self.params)(stacked)

    def plot(self, axes: Any = None) -> Any:
        """Draw the loss at the saved times; returns the axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
        axes.plot(
            self.times, self.losses, color="#0072B2", marker="." if len(self.times) < 50 else None
        )
        axes.set(
            xlabel="time t", ylabel="loss", yscale="log" if self.losses.min() > 0 else "linear"
        )
        return axes

    def to_xarray(self) -> Any:
        """Return the losses and parameter leaves over the saved times, as an `xarray.Dataset`."""
        import xarray as xr

        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        data: dict[str, Any] = {"loss": ("time", self.losses)}
        for path, leaf in leaves:
            name = f"params{jax.tree_util.keystr(path)}"
            data[name] = (
                ("time", *(f"{name}_{axis}" for axis in range(np.ndim(leaf) - 1))),
                np.asarray(leaf),
            )
        return xr.Dataset(
            data, {"time": self.times}, {key: str(value) for key, value in self.stats.items()}
        )

    def __repr__(self) -> str:
        ended = "stopped by its event" if self.stopped else "complete"
        losses = f"loss {self.losses[0]:.6g} → {self.losses[-1]:.6g}"
        return (
            f"Trajectory(t ≤ {self.t1:.6g}, {ended}, {losses}, {self.stats['accepted']} steps of "
            f"{self.stats['solver']})"
        )


@follows
def gradient_flow(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets,
    *,
    t1: float | int,
    loss: Loss = mse,
    rtol: float | int = 1e-10,
    atol: float | int = 1e-12,
    saveat: Any = None,
    metric: Metric | None = None,
    event: Event | None = None,
    stiff: bool = False,
    dtmin: float | int = 0.0,
    dense: bool = True,
    max_steps: int = 100_000,
    memory: int | str | None = None,
) -> Trajectory:
    """Solve  dθ/dt = −∇_θ loss(f_θ(x), y)  from `params` at t = 0 to `t1`, adaptively, in float64.

    - `saveat`: the times to save; without it every step of the solver is saved.
    - `metric`: makes the flow  dθ/dt = −metric(θ)(∇loss): a function of the parameters that returns
      a linear map of pytrees like them (the inverse of a Riemannian metric, say).
    - `event(t, params)`: the flow stops after the step in which it becomes true, or, where it is a
      real number, at its zero.
    - `stiff`: an implicit solver (Kvaerno's of order 5) in place of the explicit one (Dormand and
      Prince's of order 8).
    - `dtmin`: the smallest step, accepted whatever its error. Where a kink attracts the flow from
      both sides, as kinks of ReLU networks may, the flow slides along it; smaller and smaller steps
      would never pass.
    - `dense=False` keeps nothing for `at`; `memory` bounds the buffers.
    - `rtol`, `atol`: the error that a step may make; `max_steps`: how many there may be.

    The flow of ½(θ − 2)² from 0 is θ(t) = 2(1 − e⁻ᵗ):

    >>> line = lambda params, x: params * x
    >>> one, two, error = np.array([[1.0]]), np.array([[2.0]]), nm.losses.half_squared_error
    >>> flow = nm.gradient_flow(line, np.array(0.0), one, two, t1=1.0, loss=error)
    >>> round(float(flow.at(np.log(2.0))), 9)
    1.0
    """
    if is_traced((params, x, y)):
        raise TypeError(
            "`gradient_flow` chooses its steps by value, so not inside jit, vmap or grad; call it "
            "outside."
        )
    check_model(f)
    check_params(params)
    x, y = check_sample(x), check_sample(y, "y")
    check_hashable(f=f, metric=metric, event=event)
    times = _check_times(saveat, t1)
    tolerance = _check_tolerance(rtol, atol, dtmin, max_steps)
    equation = Equation(f, loss, metric, event, stiff)
    follow = follower(params)
    with arithmetic():
        params, *data = promote((params, x, y), np.float64)
        check_targets(f, params, *data)
        check_loss(loss, data[1])
        length = _steps_per_piece(params, memory_budget(memory))
        pieces = solve(equation, params, tuple(data), float(t1), tolerance, length)
        found = _assemble(equation, params, tuple(data), tolerance, pieces, times, dense)
    return replace(found, params=follow(found.params))


def _check_times(saveat: Any, t1: float | int) -> np.ndarray | None:
    if not 0 < t1 < np.inf:
        raise ValueError(f"`t1` is {t1}; pass a positive, finite time.")
    if saveat is None:
        return None
    times = np.asarray(saveat, np.float64)
    if (
        times.ndim != 1
        or times.size == 0
        or not ((times >= 0) & (times <= t1)).all()
        or (np.diff(times) <= 0).any()
    ):
        raise ValueError(
            f"`saveat` is {saveat!r}; pass increasing times between 0 and `t1` = {t1}."
        )
    return times


def _check_tolerance(
    rtol: float | int, atol: float | int, dtmin: float | int, max_steps: int
) -> Tolerance:
    for name, value in (("rtol", rtol), ("atol", atol), ("max_steps", max_steps)):
        if not 0 < value < np.inf:
            raise ValueError(f"`{name}` is {value}; pass a positive number.")
    if not 0 <= dtmin < np.inf:
        raise ValueError(
            f"`dtmin` is {dtmin}; pass a time, or 0 for steps as small as the tolerances demand."
        )
    return Tolerance(float(rtol), float(atol), float(dtmin), int(max_steps))


def _steps_per_piece(params: Any, budget: int) -> int:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return max(1, min(STEPS_PER_PIECE, budget // (STAGES * size)))


def _assemble(
    equation: Equation,
    params: Any,
    data: Any,
    tolerance: Tolerance,
    pieces: Any,
    times: np.ndarray | None,
    dense: bool,
) -> Trajectory:
    """Collect the pieces as they are solved; only what is asked for is kept."""
    saved = [_point(equation, 0.0, params, data)] if times is None or times[0] == 0 else []
    interpolations, accepted, rejected, last = [], 0, 0, None
    for piece in pieces:
        steps = (piece.times, piece.params, piece.losses)
        saved += [steps] if times is None else _sample_piece(equation, params, data, piece, times)
        interpolations += [(piece.start, piece.interpolation)] if dense else []
        accepted, rejected, last = accepted + piece.accepted, rejected + piece.rejected, piece
    assert last is not None
    if times is not None and last.stopped:
        saved.append(jax.tree.map(lambda a: a[-1:], (last.times, last.params, last.losses)))
    stats = {
        "solver": equation.solver,
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "dtmin": tolerance.dtmin,
    }
    stats |= {"accepted": accepted, "rejected": rejected}
    when, points, losses = jax.tree.map(lambda *parts: np.concatenate(parts), *saved)
    return Trajectory(
        float(last.times[-1]), when, points, losses, last.stopped, stats, tuple(interpolations)
    )


def _point(
    equation: Equation, t: float, params: Any, data: Any
) -> tuple[np.ndarray, Any, np.ndarray]:
    value = to_host(_value(equation, params, data))
    return (
        np.array([t]),
        jax.tree.map(lambda a: np.asarray(a)[None], params),
        np.asarray(value)[None],
    )


def _sample_piece(
    equation: Equation, params: Any, data: Any, piece: Piece, times: np.ndarray
) -> list[Any]:
    due = (
        times[(times > piece.start) & (times <= piece.times[-1])] if len(piece.times) else times[:0]
    )
    points = _interpolate(((piece.start, piece.interpolation),), params, due)
    return [_point(equation, t, point, data) for t, point in zip(due, points, strict=True)]


def _interpolate(interpolations: Any, like: Any, times: np.ndarray) -> list[Any]:
    piece = np.searchsorted([start for start, _ in interpolations], times, side="right") - 1
    with arithmetic():
        return [
            to_host(interpolate(interpolations[k][1], like, t))
            for k, t in zip(piece, times, strict=True)
        ]


@partial(jax.jit, static_argnums=0)
def _value(equation: Equation, params: Any, data: Any) -> Any:
    return equation.value(params, *data)
