"""`Tracker`: the geometry of a network while somebody else's loop trains it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from neuromanifold.inspection import events
from neuromanifold.inspection.live import LivePage, check_writer, history_of, write_to
from neuromanifold.inspection.recorder import Recorder
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.models.adapters.jax.equinox import from_equinox
from neuromanifold.models.adapters.jax.flax import from_flax
from neuromanifold.models.adapters.jax.haiku import from_haiku
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.adapters.torch.conversion import (
    copy_for_evaluation,
    from_torch,
    unwrap,
    with_buffers,
)
from neuromanifold.models.adapters.torch.tensors import (
    frozen_parameters,
    own_parameters,
    to_numpy,
)
from neuromanifold.models.arguments import Params, check_model
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.files import check_folder
from neuromanifold.runtime.packages import find_loaded
from neuromanifold.runtime.pickling import ByName


class Tracker:
    """Measures a network every so many steps of a training loop, in any framework.

    - `model` is a function `f(params, x)`; then the loop calls `tracker(step, params)`.
    - Or it is a PyTorch or nnx module; then the loop calls `tracker(step)`, and the tracker reads the
      module where it is. The module is not changed; a copy is put into evaluation mode.
    - For a linen module the loop passes its `variables`, for an Equinox module the module of the step
      or `(module, state)`, for a function of Haiku `params` or `(params, state)`.

    The tracker measures the functional dimension (exactly where the network allows it), the units
    that are always off or always on, how far the tangent kernel has moved from the first record, and
    conserved quantities; with targets `y` also loss, alignment and sharpness.

    `kwargs` and `output` are those of `nm.from_torch`: fixed arguments of the module, and a function
    that picks one of its outputs (`lambda y: y.logits`). Of a large sample as many samples are taken
    as give 1,000 rows of the Jacobian, or `samples`. A measure that takes more than `patience`
    seconds for a record, or more `memory`, is left out, and `tracker.timeline` says why. With
    `folder`, each record is on disk when the call returns: `timeline.csv`, and an event file for
    TensorBoard.

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
            raise ValueError(
                f"`every` is {every!r}; pass how many steps lie between two records, at least 1."
            )
        arrays = as_arrays(x, "x"), as_arrays(y, "y")
        self._source, self._every = source_of(model, x, kwargs, output), every
        self._recorder = Recorder(
            *arrays, loss=loss, exact=exact, samples=samples, memory=memory, patience=patience
        )
        self._folder = None if folder is None else check_folder(folder, "folder")
        self._events: Path | None = None
        self._writers: list[Any] = []
        self._page: LivePage | None = None
        self._history = ""

    def __call__(self, step: int, params: Any = None) -> None:
        """Measure if `step` is a multiple of `every`; otherwise nothing happens, at no cost."""
        if int(step) % self._every == 0:
            self.record(step, params)

    def record(self, step: int, params: Params = None) -> None:
        """Measure at this step, whatever `every` says."""
        step = int(step)
        added = self._recorder.add(step, *self._source(params))
        if not added or not (self._folder or self._writers or self._page):
            return
        timeline = self.timeline
        scalars = dict(timeline.records())[step]
        if self._folder is not None:
            timeline.to_csv(self._folder / "timeline.csv")
            self._events = self._events or events.new_file(self._folder)
            events.append(self._events, step, scalars)
        for writer in self._writers:
            write_to(writer, step, scalars)
        if self._page is not None:
            self._history = history_of(timeline)

    def serve(self, port: int = 0) -> LivePage:
        """Serve a page that follows the training, at `port` (a free one when 0): `.url`, and `.close()`
        when done.

        Only this machine reaches it (127.0.0.1), in a thread that ends with the process. It shows
        what the timeline has, as it was after the last record.

        >>> net, x = nm.MLP((1, 4, 1)), np.linspace(-1, 1, 20)[:, None]
        >>> with nm.Tracker(net, x, x**2).serve() as page:
        ...     page.url.startswith("http://127.0.0.1:")
        True
        """
        if self._page is None or not self._page.is_open:
            self._history = history_of(self.timeline)
            self._page = LivePage(lambda: self._history, "Training", port=port)
        return self._page

    def log_to(self, writer: Any) -> None:
        """Hand every record, those so far too, to a TensorBoard writer (`add_scalar`) or a run of
        Weights & Biases (`log`).
        """
        check_writer(writer)
        for step, scalars in self.timeline.records():
            write_to(writer, step, scalars)
        self._writers.append(writer)

    def __getstate__(self) -> dict[str, Any]:
        """Without the page and the writers, which belong to this process."""
        return {**vars(self), "_page": None, "_writers": []}

    def __repr__(self) -> str:
        return f"Tracker({self._recorder.count} records, every {self._every} steps)"

    @property
    def timeline(self) -> Timeline:
        """What was measured so far."""
        return self._recorder.timeline


Source = Callable[[Any], tuple[Any, Any]]


def source_of(
    model: Any, x: Any, kwargs: Mapping[str, Any] | None = None, output: Any = None
) -> Source:
    """A function that takes what the loop handed over and gives `(f, params)`."""
    torch, linen, nnx, haiku = map(find_loaded, ("torch", "flax.linen", "flax.nnx", "haiku"))
    if torch is not None and isinstance(model, torch.nn.Module):
        return _Module(model, x, kwargs, output)
    if nnx is not None and isinstance(model, nnx.Module):
        return _Adapted(partial(_from_nnx, model, kwargs), output)
    if linen is not None and isinstance(model, linen.Module):
        return _Adapted(partial(_from_linen, model, kwargs), output)
    if haiku is not None and isinstance(model, haiku.Transformed | haiku.TransformedWithState):
        return _Adapted(partial(_from_haiku, model, kwargs), output)
    if isinstance(model, eqx.Module) and any(map(eqx.is_inexact_array, jax.tree.leaves(model))):
        return _Adapted(partial(_from_equinox, kwargs), output)
    if kwargs is not None or output is not None:
        raise TypeError(
            "`kwargs` and `output` are for modules of PyTorch, Flax, Haiku and Equinox; "
            "fix and pick in the function: `lambda params, x: …`."
        )
    check_model(model)
    return _Function(model)


def as_arrays(tree: Any, name: str) -> Any:
    """Samples as NumPy arrays: PyTorch's tensors, and mappings that are no dictionaries, as
    tokenizers give them.
    """
    torch = find_loaded("torch")
    if torch is not None and torch.is_tensor(tree):
        return to_numpy(tree)
    if isinstance(tree, Mapping):
        return {key: as_arrays(part, name) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(as_arrays(part, name) for part in tree)
    if torch is not None and isinstance(
        tree, torch.utils.data.DataLoader | torch.utils.data.Dataset
    ):
        raise TypeError(
            f"`{name}` is {indefinite(tree)}, and a tracker looks at the same samples each time; "
            "pass them as arrays, "
            "for example the inputs of one batch: `x, y = next(iter(loader))`."
        )
    return tree


@dataclass(frozen=True, eq=False)
class _Function(ByName):
    """A function, whose parameters the loop hands over."""

    model: Any

    def __call__(self, params: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "`params` is missing; the model is a function, so call `tracker(step, params)`."
            )
        return self.model, params


def _require(given: Any, what: str) -> Any:
    if given is None:
        raise ValueError(
            f"`{what}` is missing, which the tracker does not hold; call `tracker(step, {what})`."
        )
    return given


def _nothing(given: Any, model: Any, kind: str) -> Any:
    if given is not None:
        raise ValueError(
            f"`params` was given, but the model is {kind}, which is read where it is; leave it out."
        )
    return model


def _several(given: Any) -> tuple[Any, ...]:
    """Parameters, or a tuple of parameters and state."""
    return given if type(given) is tuple else (given,)


def _from_nnx(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_flax(_nothing(given, model, "an nnx module"), kwargs=kwargs)


def _from_linen(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_flax(model, _require(given, "variables"), kwargs=kwargs)


def _from_haiku(model: Any, kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_haiku(model, *_several(_require(given, "params")), kwargs=kwargs)


def _from_equinox(kwargs: Any, given: Any) -> tuple[AdaptedModel, Any]:
    return from_equinox(*_several(_require(given, "module")), kwargs=kwargs)


class _Adapted:
    """A network of Flax, Haiku or Equinox. The first serves all steps, with the state (running
    means) of each.
    """

    def __init__(self, adapt: Callable[[Any], tuple[AdaptedModel, Any]], output: Any):
        self._adapt, self._output, self._f = adapt, output, None

    def __getstate__(self) -> dict[str, Any]:
        """Without what was adapted: it is made again."""
        return {**vars(self), "_f": None}

    def __call__(self, given: Any) -> tuple[AdaptedModel, Any]:
        f, params = self._adapt(given)
        if self._f is None:
            self._f = f if self._output is None else _pick_output(f, self._output)
        elif not eqx.tree_equal(self._f.state, f.state):
            self._f = replace(self._f, state=f.state)
        return self._f, params


def _pick_output(f: AdaptedModel, output: Callable[[Any], Any]) -> AdaptedModel:
    return replace(f, apply=lambda params, state, x: output(f.apply(params, state, x)))


class _Module:
    """A PyTorch module where it is: exported once, with the buffers (running means) of each
    step.
    """

    def __init__(self, module: Any, x: Any, kwargs: Any, output: Any):
        self._module, self._options = (
            unwrap(module),
            {"example": x, "kwargs": kwargs, "output": output},
        )
        self._f, self._buffers = None, {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what was exported: it is made again from the module."""
        return {**vars(self), "_f": None}

    def __call__(self, params: Any) -> tuple[AdaptedModel, dict[str, np.ndarray]]:
        module = _nothing(params, self._module, "a PyTorch module")
        own, frozen = own_parameters(module)[0], frozen_parameters(module)
        free = {name: to_numpy(leaf) for name, leaf in own.items() if name not in frozen}
        fixed = {**dict(module.named_buffers(remove_duplicate=False)), **frozen}
        buffers = {name: to_numpy(tensor) for name, tensor in fixed.items()}
        if self._f is None or buffers.keys() != self._buffers.keys():
            self._f, _ = from_torch(copy_for_evaluation(module), **self._options)
        elif not eqx.tree_equal(buffers, self._buffers):
            self._f = with_buffers(self._f, buffers)
        self._buffers = buffers
        return self._f, free
