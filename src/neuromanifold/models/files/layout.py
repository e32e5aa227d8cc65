"""How a tensor lies in a run of bytes, as a file claims it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.models.adapters.torch.ties import StoragePlace, place
from neuromanifold.runtime.untrusted_files import unreadable


@dataclass(frozen=True)
class Layout:
    """Shape, strides and offset, counted in entries; whole numbers from zero on."""

    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self):
        numbers: tuple[Any, ...] = (self.offset, *self.shape, *self.strides)
        if len(self.shape) != len(self.strides) or any(
            type(n) is not int or not 0 <= n < 2**48 for n in numbers
        ):
            raise TypeError(f"impossible sizes {self.shape}")

    @property
    def nbytes(self) -> int:
        """What the tensor takes when it is copied out."""
        return math.prod(self.shape) * self.dtype.itemsize

    def place(self, storage: str) -> StoragePlace:
        """Where in which storage it lies."""
        return place(
            storage,
            self.offset * self.dtype.itemsize,
            self.dtype.itemsize,
            self.shape,
            self.strides,
        )

    def read(self, path: Path, name: str, raw: bytes) -> np.ndarray:
        """The tensor, copied, once its last entry is known to lie among the bytes."""
        if not self.nbytes:
            return np.empty(self.shape, self.dtype)
        stop = self.place("").stop
        if stop > len(raw):
            raise unreadable(
                path, f"damaged: {name!r} claims the shape {self.shape} in {len(raw):,} bytes"
            )
        size = self.dtype.itemsize
        flat = np.frombuffer(
            raw, self.dtype, count=stop // size - self.offset, offset=self.offset * size
        )
        return np.array(
            np.lib.stride_tricks.as_strided(
                flat, self.shape, [step * size for step in self.strides]
            )
        )
