"""`Dataset`: samples, targets, and where they come from."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples `x` (n, i) and targets `y` (n, o) in float64, with the names of their columns and
    their provenance.

    >>> nm.data.load("diabetes")
    Dataset('diabetes', 442 samples, 10 features, 1 target)
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    targets: tuple[str, ...]
    licence: str
    source: str
    notes: str = ""

    def __post_init__(self):
        for field, names in (("x", self.features), ("y", self.targets)):
            a = np.ascontiguousarray(getattr(self, field), np.float64).view()
            if a.ndim != 2 or len(a) == 0 or a.shape[1] != len(names):
                raise ValueError(
                    f"`{field}` of {self.name} has shape {a.shape}; pass (n, {len(names)}) with n "
                    "≥ 1."
                )
            a.setflags(write=False)
            object.__setattr__(self, field, a)
        if len(self.x) != len(self.y):
            raise ValueError(
                f"`x` has {len(self.x)} samples but `y` has {len(self.y)}; pass as many of each."
            )

    def __len__(self) -> int:
        return len(self.x)

    def target(self, name: str) -> "Dataset":
        """Return the same samples with the one target column `name`:
        `nm.data.load("energy").target("heating_load")`.
        """
        if name not in self.targets:
            raise ValueError(
                f"`name` is {name!r}; the targets of {self.name} are {', '.join(self.targets)}."
            )
        column = self.targets.index(name)
        return replace(self, name=f"{self.name}.{name}", y=self.y[:, [column]], targets=(name,))

    def take(self, n: int) -> "Dataset":
        """Return the first `n` samples.

        >>> len(nm.data.load("digits").take(5))
        5
        """
        if not 1 <= n <= len(self):
            raise ValueError(
                f"`n` is {n}; {self.name} has {len(self)} samples: pass 1 to {len(self)}."
            )
        return replace(self, x=self.x[:n], y=self.y[:n])

    def __repr__(self) -> str:
        features, targets = _count(self.x.shape[1], "feature"), _count(self.y.shape[1], "target")
        return f"Dataset({self.name!r}, {_count(len(self), 'sample')}, {features}, {targets})"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
