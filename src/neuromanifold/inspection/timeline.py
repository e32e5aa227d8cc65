"""`Timeline`: the geometry of a network over its training, as xarray, CSV, TensorBoard events
and a figure.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.inspection.events import write_events
from neuromanifold.numerics.results import Result
from neuromanifold.runtime.files import write_text

TITLES = {
    "loss": "loss",
    "functional_dimension": "functional dimension",
    "effective_rank": "effective rank of the kernel",
    "always_off": "units always off",
    "always_on": "units always on",
    "alignment": "alignment",
    "sharpness": "sharpness",
    "kernel_drift": "kernel drift",
    "conserved_drift": "drift of conserved quantities",
}
"""What is drawn, in this order, with its title."""


@dataclass(frozen=True, repr=False, eq=False)
class Timeline(Result):
    """What was measured at each step.

    `data` is an `xarray.Dataset` with the dimension `step`; units are counted by `layer`, conserved
    quantities by `quantity`. Its attributes say how things were measured, what was left out, and
    why.
    """

    data: Any

    @property
    def steps(self) -> np.ndarray:
        """The steps at which something was measured."""
        return np.asarray(self.data["step"])

    @property
    def left_out(self) -> dict[str, str]:
        """What was not measured, with the reason."""
        return {
            name[9:]: text for name, text in self.data.attrs.items() if name.startswith("left_out_")
        }

    def headline(self) -> str:
        """Return how many steps, and what was measured at them."""
        names = ", ".join(name for name in TITLES if name in self.data)
        return f"{len(self.steps)} steps of {names or 'nothing'}"

    def to_xarray(self) -> Any:
        """Return the data themselves."""
        return self.data

    def scalars(self, *, quantities: bool = True) -> dict[str, np.ndarray]:
        """Return every curve under a flat name: `loss`, `always_off/layer 1`, and with `quantities`
        `conserved_quantities/balance[1, 0]`.
        """
        return dict(self._scalars(quantities))

    def _scalars(self, quantities: bool) -> Iterator[tuple[str, np.ndarray]]:
        for name, variable in self.data.data_vars.items():
            if variable.dims == ("step",):
                yield str(name), np.asarray(variable)
            elif variable.dims[1] != "quantity" or quantities:
                labels = np.asarray(variable[variable.dims[1]])
                yield from (
                    (f"{name}/{label}", np.asarray(variable)[:, k])
                    for k, label in enumerate(labels)
                )

    def to_csv(self, path: str | Path) -> Path:
        """Write one line for each step and one column for each curve to `path`, with all digits; a cell
        is empty where nothing was measured."""
        text, curves = io.StringIO(), self.scalars()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *curves])
        for row, step in enumerate(self.steps.tolist()):
            writer.writerow(
                [step, *("" if np.isnan(a[row]) else repr(a[row].item()) for a in curves.values())]
            )
        return write_text(path, text.getvalue())

    def to_tensorboard(self, folder: str | Path) -> Path:
        """Write an event file for `tensorboard --logdir` into `folder`; of the conserved quantities only
        how far they moved.
        """
        return write_events(folder, self.records())

    def records(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Return (step, curves at it) without what is not a number."""
        curves = self.scalars(quantities=False)
        for row, step in enumerate(self.steps.tolist()):
            yield step, {name: float(a[row]) for name, a in curves.items() if not np.isnan(a[row])}

    def panels(self) -> list[tuple[str, dict[str, np.ndarray]]]:
        """Return (title, curves by label) of what there is to draw."""
        return panels_of(self.scalars(quantities=False))

    def plot(self) -> Any:
        """Draw a figure with one panel for each quantity."""
        from matplotlib.figure import Figure

        panels = self.panels()
        rows = max(1, -(-len(panels) // 2))
        figure = Figure(figsize=(8, 2.3 * rows), layout="constrained")
        for axes, (title, curves) in zip(np.ravel(figure.subplots(rows, 2)), panels, strict=False):
            for label, values in curves.items():
                axes.plot(self.steps, values, ".-", lw=1.2, ms=4, label=label)
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("step")
            if len(curves) > 1:
                axes.legend(fontsize=8, frameon=False)
        for axes in figure.axes[len(panels) :]:
            axes.remove()
        return figure


def panels_of(curves: Mapping[str, np.ndarray]) -> list[tuple[str, dict[str, np.ndarray]]]:
    """(title, curves by label) of curves by their flat names, in the order of `TITLES`."""
    found = [
        (
            title,
            {
                n.removeprefix(f"{name}/"): a
                for n, a in curves.items()
                if n in (name,) or n.startswith(f"{name}/")
            },
        )
        for name, title in TITLES.items()
    ]
    return [
        (title, {label: a for label, a in of.items() if not np.isnan(a).all()})
        for title, of in found
        if of
    ]
