"""`Sweep`: all combinations of data set, hyperparameters and run, on one flat axis of members."""

from dataclasses import dataclass

import numpy as np

RESERVED = ("dataset", "run", "epoch")


@dataclass(frozen=True, eq=False)
class Sweep:
    """The named axes, outermost first: `dataset` where data sets are stacked, one for each
    hyperparameter, `run`.

    Member number m, in C order of the axes, trains run `index("run")[m]` on data set
    `index("dataset")[m]`.
    """

    axes: dict[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def size(self) -> int:
        """The number of members."""
        return int(np.prod(self.shape))

    def index(self, name: str) -> np.ndarray:
        """For each member its position on the axis; 0 where there is no such axis."""
        if name not in self.axes:
            return np.zeros(self.size, np.int32)
        position = np.unravel_index(np.arange(self.size), self.shape)[list(self.axes).index(name)]
        return position.astype(np.int32)

    def hyper(self, dtype: np.dtype) -> dict[str, np.ndarray]:
        """For each member the values of its hyperparameters, floats in the dtype of the
        training.
        """
        chosen = {
            name: values[self.index(name)]
            for name, values in self.axes.items()
            if name not in RESERVED
        }
        return {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in chosen.items()}

    def unflatten(self, a: np.ndarray) -> np.ndarray:
        """The leading axis of members, cut into the named axes."""
        return a.reshape((*self.shape, *a.shape[1:]))
