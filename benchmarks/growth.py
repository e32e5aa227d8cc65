"""How the time of a kernel grows with samples, width, depth and outputs, against the
multiplications it takes.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from benchmarks.harness import Routine, interleave, median_seconds
from benchmarks.row import Row

SIZES = {
    "N": (512, 1024, 2048, 4096),
    "width": (128, 256, 512, 1024),
    "depth": (2, 4, 8, 16),
    "outputs": (2, 4, 8, 16),
}
QUICK = {"N": (128, 256, 512), "width": (64, 128, 256), "depth": (2, 4, 8), "outputs": (2, 4, 8)}
FIXED = {"N": 512, "width": 128, "depth": 3, "outputs": 4}


@dataclass(frozen=True)
class Growth:
    """Seconds at growing sizes along one axis. `work` counts multiplications."""

    axis: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    work: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """s of seconds ≈ c · size^s, by least squares of the logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    @property
    def row(self) -> Row:
        """The largest size against the smallest, grown as its multiplications are: a ratio below
        1 grows faster than they.
        """
        expected = self.seconds[0] * self.work[-1] / self.work[0]
        name = f"kernel, {self.axis} from {self.sizes[0]} to {self.sizes[-1]}"
        note = f"seconds grow as {self.axis}^{self.exponent:.2f}"
        return Row(
            name, self.seconds[-1], "the smallest, grown as its products", expected, 0.5, note=note
        )


def problem(n: int, width: int, depth: int, outputs: int) -> tuple[Any, Any, np.ndarray]:
    """A ReLU network of `depth` layers with as many inputs as its hidden layers are wide."""
    net = nm.MLP((width,) * depth + (outputs,))
    x = np.random.default_rng(0).standard_normal((n, width), dtype=np.float32)
    return net, net.init(key=jax.random.key(0), scheme=nm.init.he_bias), x


def multiplications(n: int, width: int, depth: int, outputs: int) -> float:
    """Of the trace kernel: n(n+1)/2 pairs, and for every sample one forward pass and a backward
    pass for each output.
    """
    layers = list(itertools.pairwise((width,) * depth + (outputs,)))
    pair = sum(a + outputs * b for a, b in layers)
    return n * (n + 1) / 2 * pair + n * (1 + outputs) * sum(a * b for a, b in layers)


def measured(axis: str, sizes: tuple[int, ...], repeats: int) -> Growth:
    """The medians at all sizes, taken in turns."""
    sides = [FIXED | {axis: size} for size in sizes]
    routines = [_routine(side) for side in sides]
    for routine in routines:
        routine.repeat()
    seconds = tuple(median_seconds(column) for column in interleave([*routines], repeats))
    return Growth(axis, sizes, seconds, tuple(multiplications(*side.values()) for side in sides))


def _routine(side: dict[str, int]) -> Routine:
    net, params, x = problem(*side.values())
    return Routine(
        "ours",
        lambda: nm.ntk(net, params, x, trace=True),
        lambda kernel: float(np.asarray(kernel)[0, 0]),
    )


def rows(*, quick: bool) -> Iterator[Row]:
    """One row for each axis."""
    for axis, sizes in (QUICK if quick else SIZES).items():
        yield measured(axis, sizes, 3 if quick else 7).row


def plot(growths: list[Growth], path: str | Path) -> Path:
    """Seconds against each size, with the line of its exponent and what the multiplications
    alone would say.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3), layout="constrained")
    for axes, growth in zip(
        np.ravel(figure.subplots(1, len(growths), squeeze=False)), growths, strict=True
    ):
        sizes, seconds, work = (np.array(v) for v in (growth.sizes, growth.seconds, growth.work))
        axes.loglog(
            sizes, seconds, "o-", color="#0072b2", label=f"measured, exponent {growth.exponent:.2f}"
        )
        axes.loglog(
            sizes,
            seconds[0] * work / work[0],
            "--",
            color="#999999",
            label="as its multiplications",
        )
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(growth.axis)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    np.ravel(figure.axes)[0].set_ylabel("seconds")
    figure.savefig(path, dpi=160)
    return Path(path)
