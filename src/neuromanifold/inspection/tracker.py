"""`Tracker`: the geometry of a network while somebody else's loop trains it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neuromanifold.inspection import events
from neuromanifold.inspection.recorder import Recorder
from neuromanifold.inspection.source import as_arrays, source_of
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.files import check_folder


class Tracker:
    """Measures a network every so many steps of a training loop, in any framework.

    `model` is a function `f(params, x)`, and the loop calls `tracker(step, params)`; or a PyTorch or nnx module, which the tracker
    reads where it is, and the loop calls `tracker(step)`. The module is not touched, nor put into evaluation mode: a copy is.
    For a linen module the loop hands over its `variables`, for an Equinox module the module of the step or `(module, state)`, for a
    function of Haiku `params` or `(params, state)`. `kwargs` and `output` are those of `nm.from_torch`: fixed arguments of the
    module, and a function that picks what is meant from its output (`lambda y: y.logits`).
    Measured are functional dimension (exactly where the network allows it), units that are always off or always on, loss,
    alignment and sharpness (these with `y`), how far the tangent kernel has moved from the first record, and conserved quantities.
    The sample is thinned to 1,000 rows of the Jacobian, or to `samples`. What takes more than `patience` seconds a record, or more
    `memory`, is left out, and `tracker.timeline` says why. With `folder`, each record is on disk when the call returns: `timeline.csv`,
    and an event file for TensorBoard.

    >>> net, x = nm.MLP((1, 4, 1)), np.linspace(-1, 1, 20)[:, None]
    >>> tracker, params = nm.Tracker(net, x, x**2, every=10), net.init(key=jax.random.key(0))
    >>> for step in range(21):
    ...     tracker(step, params)
    >>> tracker.timeline.steps.tolist(), tracker.timeline.data["kernel_drift"].values.tolist()
    ([0, 10, 20], [0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        model: Any,
        x: Any,
        y: Any = None,
        *,
        every: int = 1,
        loss: Loss = mse,
        exact: bool | None = None,
        samples: int | None = None,
        memory: int | str | None = None,
        patience: float | int = 10,
        folder: str | Path | None = None,
        kwargs: Mapping[str, Any] | None = None,
        output: Callable[[Any], Any] | None = None,
    ):
        if not (isinstance(every, int) and every > 0):
            raise ValueError(f"`every` is {every!r}; pass how many steps lie between two records, at least 1.")
        arrays = as_arrays(x, "x"), as_arrays(y, "y")
        self._source, self._every = source_of(model, x, kwargs, output), every
        self._recorder = Recorder(*arrays, loss=loss, exact=exact, samples=samples, memory=memory, patience=patience)
        self._folder = None if folder is None else check_folder(folder, "folder")
        self._events: Path | None = None

    def __call__(self, step: int, params: Any = None) -> None:
        """Measure if `step` is a multiple of `every`; otherwise nothing happens, at no cost."""
        if int(step) % self._every == 0:
            self.record(step, params)

    def record(self, step: int, params: Any = None) -> None:
        """Measure at this step, whatever `every` says."""
        step = int(step)
        added = self._recorder.add(step, *self._source(params))
        if added and self._folder is not None:
            timeline = self.timeline
            timeline.to_csv(self._folder / "timeline.csv")
            self._events = self._events or events.new_file(self._folder)
            events.append(self._events, step, dict(timeline.records())[step])

    def __repr__(self) -> str:
        return f"Tracker({self._recorder.count} records, every {self._every} steps)"

    @property
    def timeline(self) -> Timeline:
        """What was measured so far."""
        return self._recorder.timeline
