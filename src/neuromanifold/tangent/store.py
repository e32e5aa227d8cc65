"""Tiles of a symmetric kernel in a Zarr array: those on and above the diagonal, each with a checksum, each written at once."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.numerics.files import check_folder
from neuromanifold.numerics.sealed import LENGTH, check_seal, write_sealed

_ARRAY, _MARK = "kernel.zarr", "gram.json"


@dataclass(frozen=True)
class Store:
    """A folder that holds the kernel of `size` rows in square tiles of `tile` rows.

    A tile is there or absent, since it gets its name when it is complete; its last four bytes are a CRC-32C.
    """

    folder: Path
    size: int
    tile: int
    dtype: str

    @property
    def side(self) -> int:
        """The number of tiles in a row."""
        return -(-self.size // self.tile)

    def rows(self, i: int) -> slice:
        """The rows of the i-th strip."""
        return slice(i * self.tile, min((i + 1) * self.tile, self.size))

    def has(self, i: int, j: int) -> bool:
        return (self.folder / _ARRAY / "c" / str(i) / str(j)).is_file()

    def missing(self) -> list[tuple[int, int]]:
        """Tiles (i, j), i ≤ j, that are not there."""
        return [(i, j) for i in range(self.side) for j in range(i, self.side) if not self.has(i, j)]

    def write(self, i: int, j: int, block: np.ndarray) -> None:
        self._array("r+")[self.rows(i), self.rows(j)] = block

    def read(self, i: int, j: int) -> np.ndarray:
        """The tile, refused where its checksum is not that of its content."""
        remedy = "call `nm.gram` again with the same arguments, which computes it anew"
        if not self.has(i, j):
            raise ValueError(f"tile ({i}, {j}) of {self.folder} is missing; {remedy}.")
        try:
            return np.asarray(self._array("r")[self.rows(i), self.rows(j)])
        except (ValueError, RuntimeError, OSError) as error:
            raise ValueError(f"tile ({i}, {j}) of {self.folder} is damaged ({error}); {remedy}.") from None

    def tiles(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """All tiles on and above the diagonal."""
        for i in range(self.side):
            for j in range(i, self.side):
                yield i, j, self.read(i, j)

    def drop_damaged(self) -> list[tuple[int, int]]:
        """Delete tiles whose checksum fails, and say which they were."""
        damaged = []
        for i in range(self.side):
            for j in range(i, self.side):
                if self.has(i, j) and not self._intact(i, j):
                    (self.folder / _ARRAY / "c" / str(i) / str(j)).unlink()
                    damaged.append((i, j))
        return damaged

    def _intact(self, i: int, j: int) -> bool:
        try:
            self.read(i, j)
        except ValueError:
            return False
        return True

    def _array(self, mode: Any) -> Any:
        return _zarr().open_array(self.folder / _ARRAY, mode=mode, config={"write_empty_chunks": True})


def opened(folder: str | Path, size: int, tile: int, dtype: Any, identity: dict[str, Any]) -> Store:
    """The store in `folder`, made where there is none; refused where it holds another kernel or its description is damaged."""
    store = Store(check_folder(folder, "store").resolve(), size, tile, np.dtype(dtype).name)
    mark = store.folder / _MARK
    wanted = identity | {"size": size, "tile": tile, "dtype": store.dtype}
    if not mark.exists():
        _refuse_strangers(store.folder)
        _create(store)
        text = json.dumps(wanted | {"layout": _layout(store)}, indent=1, sort_keys=True)
        write_sealed(mark, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return store
    check_seal(mark, "delete the folder and compute the kernel anew")
    found = json.loads(mark.read_bytes()[:-LENGTH])
    differing = [name for name in wanted if found.get(name) != wanted[name]]
    if differing:
        told = ", ".join(f"{name} {found.get(name)!r} there and {wanted[name]!r} here" for name in differing)
        raise ValueError(f"`store` {store.folder} holds another kernel ({told}); name another folder, or delete it.")
    if found["layout"] != _layout(store):
        raise ValueError(
            f"`store` {store.folder} is damaged: its zarr.json has changed; delete it and compute the kernel anew."
        )
    return store


def _refuse_strangers(folder: Path) -> None:
    """Only an empty folder, or one where a kill came before the description was written, becomes a store."""
    strangers = sorted(path.name for path in folder.iterdir() if path.name != _ARRAY and not path.name.startswith("."))
    if strangers:
        raise ValueError(f"`store` {folder} holds other files ({strangers[0]}, …); name an empty or a new folder.")


def _create(store: Store) -> None:
    zarr = _zarr()
    zarr.create_array(
        store.folder / _ARRAY,
        shape=(store.size, store.size),
        chunks=(store.tile, store.tile),
        dtype=store.dtype,
        compressors=[zarr.codecs.Crc32cCodec()],
        filters=None,
        fill_value=np.nan,
        overwrite=True,
    )


def _layout(store: Store) -> str:
    try:
        return hashlib.sha256((store.folder / _ARRAY / "zarr.json").read_bytes()).hexdigest()
    except OSError:
        return "absent"


def _zarr() -> Any:
    try:
        import zarr

        import_module("zarr.codecs")
    except ImportError:
        raise ValueError(
            "`gram` needs Zarr, which is not installed; install it: pip install 'neuromanifold[cluster]'."
        ) from None
    return zarr
