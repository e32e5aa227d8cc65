"""The images of the teleport study, and the folder that takes them, with a launcher, to a
machine without network.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.data import fashion
from neuromanifold.data.folders import folders
from neuromanifold.runtime.checksummed import read_archive, write_archive
from neuromanifold.runtime.files import write_text
from neuromanifold.runtime.packages import need

CARRIED = "teleport_fashion_mnist.npz"
TRAIN, TEST = 5000, 1000


@dataclass(frozen=True, eq=False)
class Sample:
    """Training and test images as float32 rows in [0, 1], classes one-hot."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def __repr__(self) -> str:
        return (
            f"{self.name}: {len(self.x)} training and {len(self.x_test)} test images of "
            f"{self.x.shape[1]} pixels"
        )


def load(train: int, test: int, *, pool: int = 1) -> Sample:
    """The first images of Fashion-MNIST's two parts where this machine has them, else the digits
    bundled with scikit-learn.

    A carried file in `NEUROMANIFOLD_DATA` comes first; nothing is downloaded (`neuromanifold data
    fetch` does that). `pool` averages the images of Fashion-MNIST over squares of so many pixels a
    side.
    """
    carried = next((folder / CARRIED for folder in folders() if (folder / CARRIED).is_file()), None)
    if carried is not None:
        return _sample(read_archive(carried, "carry it again")[1], train, test, pool)
    if fashion.find() is not None:
        return _sample(_fashion_bytes(train, test), train, test, pool)
    return _digits(train, test)


def _sample(images: dict[str, np.ndarray], train: int, test: int, pool: int) -> Sample:
    found = len(images["x"]), len(images["x_test"])
    if train > found[0] or test > found[1]:
        raise ValueError(
            f"`train`, `test` are {train}, {test} but there are {found} images here; ask for fewer."
        )
    classes = np.eye(10, dtype=np.float32)
    x, x_test = (_grey(a, pool) for a in (images["x"][:train], images["x_test"][:test]))
    return Sample(
        "Fashion-MNIST", x, classes[images["y"][:train]], x_test, classes[images["y_test"][:test]]
    )


def _grey(images: np.ndarray, pool: int) -> np.ndarray:
    side = images.shape[1] // pool
    pooled = (
        images.reshape(len(images), side, pool, side, pool).astype(np.float32).mean(axis=(2, 4))
    )
    return pooled.reshape(len(images), -1) / 255


def _fashion_bytes(train: int, test: int) -> dict[str, np.ndarray]:
    folder = fashion.fetch()

    def first(part: str, kind: str, count: int) -> np.ndarray:
        return fashion.read_idx(folder / f"{part}-{kind}-ubyte.gz")[:count]

    return {
        "x": first("train", "images-idx3", train),
        "y": first("train", "labels-idx1", train),
        "x_test": first("t10k", "images-idx3", test),
        "y_test": first("t10k", "labels-idx1", test),
    }


def _digits(train: int, test: int) -> Sample:
    bunch: Any = need("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.data))
    x, y = (
        (bunch.data[order] / 16).astype(np.float32),
        np.eye(10, dtype=np.float32)[bunch.target[order]],
    )
    test = min(test, 400)
    train = min(train, len(x) - test)
    return Sample(
        "digits (Fashion-MNIST is not on this machine)",
        x[test:][:train],
        y[test:][:train],
        x[:test],
        y[:test],
    )


def carry(folder: Path) -> list[Path]:
    """Fill `folder` with what the paper-scale runs need elsewhere: the images as bytes (5 MB) and a
    launcher.

    The launcher imports the modules of the study without the package's `__init__` files, so that a
    machine with jax, numpy and jaxtyping alone can run them: `python carry/teleport.py alignment
    --out DIR`.
    """
    images = _fashion_bytes(TRAIN, TEST)
    data = write_archive(folder / CARRIED, {}, images)
    write_text(folder / ".gitignore", "*\n")
    return [data, write_text(folder / "teleport.py", LAUNCHER)]


LAUNCHER = '''"""Runs the teleport study where only jax, numpy and jaxtyping are installed."""

import os
import sys
import types
from pathlib import Path

here = Path(__file__).resolve().parent
source = here.parent / "src"
os.environ.setdefault("NEUROMANIFOLD_DATA", str(here))
sys.path.insert(0, str(source))
for room in ("", ".numerics", ".models", ".data", ".tangent", ".dynamics", ".symmetry", ".papers", ".papers.teleport"):
    package = types.ModuleType("neuromanifold" + room)
    package.__path__ = [str(source / ("neuromanifold" + room).replace(".", "/"))]
    sys.modules["neuromanifold" + room] = package

from neuromanifold_papers.teleport.runs import main  # noqa: E402

main()
'''


def main() -> None:
    """`python -m neuromanifold_papers.teleport.data [FOLDER]` fills FOLDER (`carry` when
    absent).
    """
    import sys

    for path in carry(Path(sys.argv[1] if len(sys.argv) > 1 else "carry")):
        print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
