"""Fashion-MNIST: 70,000 images of clothes, 28×28 pixels, 10 classes, in the four idx files of
its authors.
"""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np

from neuromanifold.data.dataset import Dataset
from neuromanifold.data.folders import ENVIRONMENT_VARIABLE, cache, download, folders
from neuromanifold.runtime.files import write_atomically

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
FOLDER = "fashion-mnist"
ADDRESS = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
GIT_BLOBS = {
    "train-images-idx3-ubyte.gz": "e6ee0e37929b03937517cd45e65f4e8ca9de720d",
    "train-labels-idx1-ubyte.gz": "9c4aae27b27439210af73e0803a54a74af5c8756",
    "t10k-images-idx3-ubyte.gz": "667844f10bb92ae415eddb04e718f3e702547007",
    "t10k-labels-idx1-ubyte.gz": "abdddb89d6563f90ab89baf2970f67a1ffb9ad10",
}
"""The names under which git keeps the four files in their authors' repository: the SHA-1 of
`blob LENGTH\\0CONTENT`.
"""
LARGEST = 16 + 60_000 * 28 * 28
CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
PARTS = {"train": 60_000, "t10k": 10_000}
LICENCE = "MIT"
ORIGIN = "Xiao, Rasul and Vollgraf (2017), github.com/zalandoresearch/fashion-mnist"
REMEDY = (
    "connect to the network, or install Debian's package dataset-fashion-mnist, or put the four "
    "files *-ubyte.gz "
    "(https://github.com/zalandoresearch/fashion-mnist) into a folder and name that folder in "
    f"{ENVIRONMENT_VARIABLE}"
)


def _files(part: str) -> tuple[str, str]:
    return f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"


def find() -> Path | None:
    """The folder with the four files, where it is on this machine: Debian's,
    `NEUROMANIFOLD_DATA`, the cache.
    """
    candidates = [DEBIAN, *(place for folder in folders() for place in (folder, folder / FOLDER))]
    names = [name for part in PARTS for name in _files(part)]
    return next(
        (folder for folder in candidates if all((folder / name).is_file() for name in names)), None
    )


def fetch() -> Path:
    """That folder, downloaded into the cache where the machine has none."""
    return find() or _download()


def load(part: str) -> Dataset:
    """The images of one part (`train` or `t10k`) as rows of 784 grey values in [0, 1]; classes
    one-hot.
    """
    folder = fetch()
    images, labels = (read_idx(folder / name) for name in _files(part))
    if images.shape != (PARTS[part], 28, 28) or labels.shape != (PARTS[part],) or labels.max() > 9:
        raise ValueError(
            f"{folder} holds images {images.shape} and labels {labels.shape} for {part}; {REMEDY}."
        )
    return Dataset(
        name="fashion_mnist" if part == "train" else "fashion_mnist_test",
        x=images.reshape(len(images), -1) / 255.0,
        y=np.eye(10)[labels],
        features=tuple(f"pixel_{row}_{column}" for row in range(28) for column in range(28)),
        targets=CLASSES,
        licence=LICENCE,
        source=f"{ORIGIN}; read from {folder}",
        notes="grey values in [0, 1]; targets one-hot",
    )


def read_idx(path: Path) -> np.ndarray:
    """The bytes in a gzipped idx file: two zeros, type 8 (bytes), the number of axes, their
    lengths, the values.
    """
    try:
        with gzip.open(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"it holds more than {LARGEST} bytes")
        axes = content[3]
        shape = tuple(np.frombuffer(content, ">u4", axes, 4).tolist())
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
        if content[:3] != b"\0\0\x08" or values.size != np.prod(shape):
            raise ValueError("not an idx file of bytes")
        return values.reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); it is damaged: remove it, then {REMEDY}."
        ) from None


def write_idx(path: Path, a: np.ndarray) -> Path:
    """The inverse of `read_idx`, atomically."""
    header = bytes([0, 0, 8, a.ndim]) + np.array(a.shape, ">u4").tobytes()
    return write_atomically(
        path, lambda temporary: temporary.write_bytes(gzip.compress(header + a.tobytes(), mtime=0))
    )


def _download() -> Path:
    """The authors' four files, each kept only where it is the one that its checksum names."""
    folder = cache() / FOLDER
    for name, blob in GIT_BLOBS.items():
        content = download("fashion_mnist", ADDRESS + name, LARGEST, REMEDY)
        if hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() != blob:
            raise ValueError(
                f"{ADDRESS}{name} gives another file than the authors' (its checksum differs); "
                f"{REMEDY}."
            )
        write_atomically(
            folder / name, lambda temporary, content=content: temporary.write_bytes(content)
        )
    return folder
