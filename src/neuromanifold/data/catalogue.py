"""The data sets by name: what there is, what is on this machine, and how to get it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neuromanifold.data import energy, fashion, synthetic
from neuromanifold.data.dataset import Dataset
from neuromanifold.data.tables import read_csv, read_npy
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.validation import check_sample
from neuromanifold.runtime.packages import need
from neuromanifold.runtime.untrusted_files import read_npz


def digits() -> Dataset:
    """1,797 handwritten digits of 8×8 pixels, grey values divided by 16; targets one-hot."""
    bunch: Any = need("sklearn.datasets").load_digits()
    return Dataset(
        name="digits",
        x=bunch.data / 16.0,
        y=np.eye(10)[bunch.target],
        features=tuple(bunch.feature_names),
        targets=tuple(str(digit) for digit in range(10)),
        licence="CC BY 4.0",
        source="UCI 80 (Alpaydin and Kaynak, 1998), test part, with scikit-learn",
        notes="grey values in [0, 1]; targets one-hot",
    )


def diabetes() -> Dataset:
    """442 patients, 10 features of mean 0 and sum of squares 1, as scikit-learn scales them;
    disease progression.
    """
    bunch: Any = need("sklearn.datasets").load_diabetes()
    return Dataset(
        name="diabetes",
        x=bunch.data,
        y=bunch.target[:, None],
        features=tuple(bunch.feature_names),
        targets=("progression",),
        licence="BSD-3-Clause (with scikit-learn)",
        source="Efron, Hastie, Johnstone and Tibshirani (2004), with scikit-learn",
        notes="features of mean 0 and sum of squares 1; target as it is",
    )


Place = Path | str


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue.

    `load` takes the key of the noise; `find` says where the data are on this machine, `None` where
    they are not; `fetch` makes sure that they are.
    """

    name: str
    size: str
    licence: str
    origin: str
    load: Callable[[Any], Dataset]
    find: Callable[[], Place | None]
    fetch: Callable[[], Place]


def _on_every_machine(
    name: str, size: str, licence: str, origin: str, place: str, load: Callable[[Any], Dataset]
) -> Entry:
    return Entry(name, size, licence, origin, load, lambda: place, lambda: place)


def _univariate(name: str) -> Entry:
    load = partial(synthetic.univariate, name)
    return _on_every_machine(name, "100 × 1 → 1", "none", "[complexity, Sec. 5]", "generated", load)


def _bivariate(name: str) -> Entry:
    return _on_every_machine(
        name,
        "400 × 2 → 1",
        "none",
        "[complexity, App. B.1]",
        "generated",
        lambda key: synthetic.bivariate(name),
    )


def _bundled_entry(
    name: str, size: str, licence: str, origin: str, load: Callable[[], Dataset]
) -> Entry:
    return _on_every_machine(name, size, licence, origin, "with scikit-learn", lambda key: load())


def _fashion(name: str, size: str, part: str) -> Entry:
    return Entry(
        name,
        size,
        fashion.LICENCE,
        fashion.ORIGIN,
        lambda key: fashion.load(part),
        fashion.find,
        fashion.fetch,
    )


ENTRIES: tuple[Entry, ...] = (
    *map(_univariate, synthetic.UNIVARIATE),
    *map(_bivariate, synthetic.BIVARIATE),
    Entry(
        "energy",
        "768 × 8 → 2",
        energy.LICENCE,
        energy.ORIGIN,
        lambda key: energy.load(),
        energy.find,
        energy.fetch,
    ),
    _bundled_entry(
        "digits",
        "1,797 × 64 → 10",
        "CC BY 4.0",
        "UCI 80 (Alpaydin and Kaynak, 1998)",
        digits,
    ),
    _bundled_entry("diabetes", "442 × 10 → 1", "BSD-3-Clause", "Efron et al. (2004)", diabetes),
    _fashion("fashion_mnist", "60,000 × 784 → 10", "train"),
    _fashion("fashion_mnist_test", "10,000 × 784 → 10", "t10k"),
)


def names() -> tuple[str, ...]:
    """Return the names that `load` knows.

    >>> nm.data.names()[:6]
    ('f1', 'f2', 'f3', 'g1', 'g2', 'g3')
    """
    return tuple(entry.name for entry in ENTRIES)


def load(name: str, *, key: Key | None = None) -> Dataset:
    """Return the data set `name`, fetched where it is not on this machine.

    `key` (a JAX key or a whole number; 0 when absent) draws the noise of f1–f3; the other sets have
    none.

    >>> nm.data.load("f2", key=1)
    Dataset('f2', 100 samples, 1 feature, 1 target)
    >>> round(float(nm.data.load("g1").y.max()), 2)      # 3/2 + sin 2πx + sin 2πy at x = y = 5/19
    3.49
    """
    return _entry(name).load(
        jax.random.key(key or 0) if key is None or isinstance(key, int) else key
    )


def fetch(name: str) -> Place:
    """Make sure that the data set `name` is on this machine, and say where."""
    return _entry(name).fetch()


def catalogue() -> tuple[dict[str, str], ...]:
    """Return one row per data set: name, size (samples × features → targets), licence, present,
    origin.

    `present` says where on this machine the data are, and is empty where they are not.
    """
    return tuple(_row(entry) for entry in ENTRIES)


def _row(entry: Entry) -> dict[str, str]:
    row = {"name": entry.name, "size": entry.size, "licence": entry.licence}
    return {**row, "present": str(entry.find() or ""), "origin": entry.origin}


def read(path: str | Path) -> Any:
    """Read samples x from the `.npy`, `.npz` or `.csv` file `path`, or those of the data set of that
    name: what the command line calls DATA.

    Every column of a CSV is a feature; a first line that is not numbers is its header. The arrays
    of a `.npz` keep their dtypes (whole numbers stay tokens) and are a dictionary of named inputs;
    a single one is the input itself.
    """
    if str(path) in names():
        return load(str(path)).x
    path = Path(path)
    needed = f"pass a .npy, .npz or .csv file, or a data set: {', '.join(names())}"
    if path.suffix.lower() not in (".npy", ".npz", ".csv"):
        raise ValueError(f"`path` is {str(path)!r}; {needed}.")
    if not path.is_file():
        raise FileNotFoundError(f"`path` is {str(path)!r}, which does not exist; {needed}.")
    x = _READERS[path.suffix.lower()](path)
    check_sample(x, name=str(path))
    return x


def _read_named(path: Path) -> Any:
    arrays = read_npz(path)
    return arrays if len(arrays) > 1 else next(iter(arrays.values()), np.empty(0))


_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": read_npy,
    ".npz": _read_named,
    ".csv": lambda path: read_csv(path)[0],
}


def _entry(name: str) -> Entry:
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise ValueError(f"`name` is {name!r}; the data sets are {', '.join(names())}.")
