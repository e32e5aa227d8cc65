"""`inspect`: everything that the library can say about one network on one sample, as one result."""

import gc
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.inspection.costs import duration
from neuromanifold.inspection.inspection import INTERRUPTED, Inspection, Part
from neuromanifold.inspection.sections import SECTIONS, LeftOut, Section, samples_to_reduce_on
from neuromanifold.inspection.subject import (
    MOST_ROWS,
    Subject,
    default_samples,
    places_of,
    thin,
)
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_model,
    check_target,
)
from neuromanifold.models.function import output_shape, restrict
from neuromanifold.models.losses import Loss, check_loss, mse
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import boundary, is_floating
from neuromanifold.numerics.validation import (
    check_param_types,
    leading_axis,
    refuse_tracers,
    sample_arrays,
)
from neuromanifold.runtime.memory import give_back, memory_budget
from neuromanifold.runtime.untrusted_files import first_line

Bar = Callable[[int], None]
_LONG = 5.0
_TRUSTED, _MOST = 2.0, 4.0


@dataclass
class Clock:
    """What is left, by the estimates and by how they have done so far. `seconds` are those of the
    sections, in their order.

    >>> clock = Clock((10.0, 20.0), now=lambda: 0.0)
    >>> clock.begin(1, at=15.0)                     # the first took half as long again as it should have
    >>> clock.left(at=20.0), round(clock.done(at=20.0), 3)
    (25.0, 0.444)
    """

    seconds: Sequence[float]
    now: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._started = self._begun = self.now()
        self._index, self._pace = 0, 1.0

    def begin(self, index: int, at: float | None = None) -> None:
        """Section `index` begins. The pace is what the finished ones took over their estimates,
        once these are long enough to tell.
        """
        self._index, self._begun = index, self.now() if at is None else at
        planned = sum(self.seconds[:index])
        if planned >= _TRUSTED:
            self._pace = min(_MOST, max(1 / _MOST, (self._begun - self._started) / planned))

    def left(self, at: float | None = None) -> float:
        """Seconds that are left, the section at work counted down to nothing."""
        at = self.now() if at is None else at
        present, later = self.seconds[self._index], sum(self.seconds[self._index + 1 :])
        return max(0.0, self._pace * present - (at - self._begun)) + self._pace * later

    def done(self, at: float | None = None) -> float:
        """The share of the time that has gone."""
        at = self.now() if at is None else at
        gone = at - self._started
        return gone / max(gone + self.left(at), 1e-9)


@contextmanager
def show_progress(progress: bool | None, sections: Sequence[tuple[str, float]]) -> Generator[Bar]:
    """A function that takes the index of the section which begins; the estimate is written first
    where it is long. Without an answer (`None`) it is shown where standard error is a terminal.
    """
    if not (sys.stderr.isatty() if progress is None else progress) or not sections:
        yield lambda index: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    if (total := sum(seconds for _, seconds in sections)) > _LONG:
        parts = ", ".join(f"{title} {seconds:.0f} s" for title, seconds in sections if seconds >= 1)
        console.print(
            f"about {total:.0f} s in all ({parts}); Ctrl-C keeps what is done", markup=False
        )
    clock = Clock([seconds for _, seconds in sections])

    class Left(ProgressColumn):
        """About how many seconds are left."""

        def render(self, task: Task) -> Text:
            bar.update(task.id, completed=clock.done())
            return Text(f"about {round(clock.left())} s left")

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), Left())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def begin(index: int) -> None:
            title, seconds = sections[index]
            clock.begin(index)
            bar.update(task, description=f"{title}, about {max(1, round(seconds))} s")

        yield begin


class SectionFailed(UserWarning):
    """A section of an inspection, or a measure of a tracker, ended in an error that nobody
    foresaw.
    """


_CURVE_POINTS = 400
_LARGE = 10**6  # parameters
_OF_TARGETS = ("fit", "descent")


def inspect(
    f: Model,
    params: Params,
    x: Samples,
    y: Targets | None = None,
    *,
    exact: bool | None = None,
    loss: Loss = mse,
    samples: int | None = None,
    outputs: Any = None,
    memory: int | str | None = None,
    patience: float | int = 600,
    wrt: Any = None,
    progress: bool | None = None,
) -> Inspection:
    """Look at a network on a sample: how many parameter directions matter, why the others do not,
    which units are off, and whether a smaller network computes the same.

    Any model is accepted. A section that needs a perceptron, piecewise-linear activations, more
    `memory` or more than `patience` seconds is left out, and the result says why. Cheap sections run
    first; in a terminal a bar shows them with an estimate of the time (`progress=False`: never,
    `True`: always). Ctrl-C stops the section that is running, and returns what is finished.

    `exact=None` uses exact arithmetic wherever the network allows it. If there are more samples than
    give 5,000 rows of the Jacobian, or fit the memory, evenly spaced ones are taken; `samples` says
    how many. `outputs` says which outputs rank and kernel are about: how many, drawn at random, or an
    index of one sample's output, such as `np.s_[-1, :8]` for eight logits of the last token. By default
    all are, or eight where one sample has more than 5,000 (of a language model evenly spaced words
    after the last token). `wrt` names the parameters that count, as
    in `nm.ntk`; the others are constants. `loss` is the loss for alignment and learning rate; where
    the rows of `y` are indicators of classes, the fit is the accuracy.

    >>> net = nm.MLP((1, 3, 1))
    >>> inspection = nm.inspect(net, net.init(key=jax.random.key(0)), np.linspace(-2, 2, 50)[:, None])
    >>> inspection.n_params, inspection.exact.exact
    (10, True)
    """
    started, whole = time.perf_counter(), f
    if not patience >= 0:
        raise ValueError(f"`patience` is {patience!r}; pass seconds, 0 or more.")
    if wrt is not None:
        check_model(f)
        check_param_types(params)
        f, params = restrict(f, params, wrt)
    subject = subject_of(f, params, x, y, exact, samples, memory, loss, outputs, patience=patience)
    asked = [
        s for s in SECTIONS if (y is not None or s.field not in _OF_TARGETS) and s.concerns(subject)
    ]
    left_out = {
        s.field: why
        for s in asked
        if (why := s.obstacle(s.asked(subject)) or too_much(s, s.asked(subject), patience, s.grows))
    }
    chosen = _by_cost([s for s in asked if s.field not in left_out], subject)
    with show_progress(progress, [(s.title, s.seconds(s.asked(subject))) for s in chosen]) as bar:
        found, parts = _compute_sections(chosen, subject, bar)
    others = [Part(s.title, 0.0, left_out[s.field]) for s in asked if s.field in left_out]
    return Inspection(
        model=repr(f) if perceptron(f) else getattr(whole, "__name__", type(whole).__name__),
        n_params=subject.columns,
        n_samples=subject.samples,
        n_given=leading_axis(subject.given),
        n_outputs=subject.seen.outputs,
        n_all_outputs=subject.outputs,
        n_inputs=subject.graph.inputs,
        n_reduced=leading_axis(samples_to_reduce_on(subject)),
        affine_dimension=subject.graph.affine_dimension if found.get("regions") else 0,
        program=_program(subject.graph),
        tensors=_tensors(subject.graph),
        sample=(subject.x, subject.y),
        fit_name="accuracy" if subject.classifies else "r²",
        curve=_curve(subject),
        parts=(*parts, *others),
        seconds=time.perf_counter() - started,
        **found,
    )


def subject_of(
    f: Model,
    params: Any,
    x: Any,
    y: Any,
    exact: bool | None,
    samples: Any,
    memory: Any,
    loss: Loss,
    outputs: Any = np.s_[...],
    most_rows: int = MOST_ROWS,
    patience: float = math.inf,
) -> Subject:
    """What is to be inspected, checked, with as many of the samples as are asked for or can be
    afforded.
    """
    refuse_tracers((params, x, y), "`inspect`")
    budget = memory_budget(memory)
    check_model(f)
    check_param_types(params)
    x = jax.tree.map(np.asarray, sample_arrays(x))
    if y is not None:
        y = check_target(f, params, x, y, loss)
        check_loss(loss, y)
    given = leading_axis(x)
    if samples is not None and not (isinstance(samples, int) and samples > 0):
        raise ValueError(
            f"`samples` is {samples!r}; pass how many of the {given} samples to look at."
        )
    with boundary(params, x):
        shape = output_shape(f, params, x)
    words = not any(map(is_floating, jax.tree.leaves(x)))
    places = places_of(outputs, shape, most_rows, words=words)
    looked_at = math.prod(shape) if places is None else len(places)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(params)]
    n = min(given, samples or default_samples(looked_at, shapes, budget, most_rows))
    whole, x, y = x, thin(x, n), None if y is None else thin(np.asarray(y), n)
    with boundary(params, x):
        check_arguments(f, params, x)
    exactly = trace(f, params, x).exact if exact is None else exact
    return Subject(f, params, x, y, whole, exactly, budget, loss, patience, places)


def too_much(section: Any, subject: Subject, patience: float | int, grows: bool = True) -> str:
    """Why a section or a measure costs more than it may, where it does; `grows` says whether its
    memory does with the samples.
    """
    seconds, size = section.seconds(subject), section.bytes(subject)
    fewer = " or fewer `samples`" if subject.samples > 1 else ""
    if size > subject.budget:
        return (
            f"it would take {_amount(size)} and the budget is {_amount(subject.budget)}: pass "
            f"more `memory`{fewer if grows else ''}"
        )
    if seconds > patience:
        return f"it would take about {duration(seconds)}: pass more `patience`{fewer}"
    return ""


def _amount(size: int) -> str:
    if size < 2**10:
        return f"{size:,} bytes"
    unit, name = next(
        ((u, n) for u, n in ((2**30, "GB"), (2**20, "MB")) if size >= u), (2**10, "KB")
    )
    return f"{size / unit:.{int(unit == 2**30)}f} {name}"


def _by_cost(sections: list[Section], subject: Subject) -> list[Section]:
    """Cheapest first, each after the one that it needs."""
    cost = {s.field: s.seconds(s.asked(subject)) for s in sections}
    return sorted(
        sections, key=lambda s: (max(cost[s.field], cost.get(s.needs, 0.0)), bool(s.needs))
    )


def _compute_sections(
    sections: list[Section], subject: Subject, bar: Bar
) -> tuple[dict[str, Any], list[Part]]:
    found: dict[str, Any] = {}
    parts: list[Part] = []
    for index, section in enumerate(sections):
        bar(index)
        if subject.columns > _LARGE:
            gc.collect()  # copies of the parameters wait in cycles
        give_back()
        begun = time.perf_counter()
        try:
            found[section.field] = section.compute(section.asked(subject))
            parts.append(Part(section.title, time.perf_counter() - begun))
        except LeftOut as reason:
            parts.append(Part(section.title, time.perf_counter() - begun, str(reason)))
        except KeyboardInterrupt:
            return found, [*parts, *(Part(s.title, 0.0, INTERRUPTED) for s in sections[index:])]
        except Exception as error:  # what one section cannot do must not cost the others
            parts.append(
                Part(
                    section.title,
                    time.perf_counter() - begun,
                    failure("inspect", section.title, error, "the other sections"),
                )
            )
    return found, parts


def failure(verb: str, title: str, error: Exception, others: str) -> str:
    """Why something has no result, said aloud: nobody foresaw it."""
    reason = f"it failed ({type(error).__name__}: {first_line(error)})"
    warnings.warn(
        f"`{verb}` has no {title}: {reason}; {others} are complete.", SectionFailed, stacklevel=4
    )
    return reason


def _program(graph: Graph) -> tuple[str, ...]:
    """What the network is as a program, in a few clauses."""
    kinds = [
        ("piecewise linear in its input", graph.piecewise_linear),
        ("a polynomial", graph.polynomial),
        ("analytic", graph.analytic and not graph.polynomial),
        ("made of operations that exact arithmetic knows", graph.exact),
    ]
    used = Counter(node.operation for node in graph.program.nodes)
    listed = ", ".join(
        f"{count} × {name}" if count > 1 else name for name, count in used.most_common()
    )
    units = [graph.units[mine[0]] for mine in graph.stages if graph.units[mine[0]].switches]
    size = sum(unit.size for unit in units)
    bends = f"{len(graph.units):,} of them have kinks (ReLU, maximum, absolute value), with {size:,} units"
    return (
        *(f"it is {name}" for name, holds in kinds if holds),
        f"{len(graph.program.nodes):,} operations: {listed}",
        *([bends] if size else []),
    )


def _tensors(graph: Graph) -> tuple[tuple[str, tuple[int, ...]], ...]:
    leaves = jax.tree.leaves(graph.params)
    return tuple(
        (name, tuple(leaf.shape)) for name, leaf in zip(graph.parameters, leaves, strict=True)
    )


def _curve(s: Subject) -> tuple[np.ndarray, np.ndarray] | None:
    """The function itself, where it is one of a single real variable."""
    net = perceptron(s.f)
    if net is None or net.widths[0] != 1 or net.widths[-1] != 1:
        return None
    grid = np.linspace(float(np.min(s.x)), float(np.max(s.x)), _CURVE_POINTS)[:, None]
    return grid[:, 0], np.asarray(net(s.params, grid))[:, 0]
