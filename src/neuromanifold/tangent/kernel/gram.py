"""`gram`: the kernel of more samples than memory holds, on a disk, and what is asked of it
there.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import select
from neuromanifold.models.arguments import (
    Model,
    Params,
    Samples,
    Targets,
    check_arguments,
    check_rows,
    output_size,
)
from neuromanifold.numerics import krylov
from neuromanifold.numerics.precision import (
    arithmetic,
    dtype_of,
    product_precision,
    to_host,
    widest,
)
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import check_rtol, leading_axis, refuse_tracers
from neuromanifold.runtime.checksummed import LENGTH, check_checksum, write_checksummed
from neuromanifold.runtime.cluster import cluster, complete
from neuromanifold.runtime.devices import where_it_runs
from neuromanifold.runtime.files import check_folder, room_for
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.kernel.contraction import factors_of
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.kernel.routes import plan
from neuromanifold.tangent.kernel.spectrum import Spectrum
from neuromanifold.tangent.kernel.tiles import Tiles

_ARRAY, _MARK = "kernel.zarr", "gram.json"


class OtherDigits(UserWarning):
    """A store holds tiles that round otherwise than those that are computed now."""


@dataclass(frozen=True)
class Store:
    """A folder that holds the kernel of `size` rows in square tiles of `tile` rows, or with
    `columns` a matrix with so many, in strips of `tile` rows.

    A tile is there or absent, since it gets its name when it is complete; its last four bytes are a
    CRC-32C.
    """

    folder: Path
    size: int
    tile: int
    dtype: str
    columns: int | None = None

    @property
    def side(self) -> int:
        """The number of strips."""
        return -(-self.size // self.tile)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Tiles (i, j): all strips, or of a symmetric kernel those with i ≤ j."""
        if self.columns is not None:
            return [(i, 0) for i in range(self.side)]
        return [(i, j) for i in range(self.side) for j in range(i, self.side)]

    def at(self, i: int, j: int) -> tuple[slice, slice]:
        """The rows and columns of a tile."""
        return self.rows(i), self.rows(j) if self.columns is None else slice(None)

    def rows(self, i: int) -> slice:
        """The rows of the i-th strip."""
        return slice(i * self.tile, min((i + 1) * self.tile, self.size))

    def has(self, i: int, j: int) -> bool:
        return (self.folder / _ARRAY / "c" / str(i) / str(j)).is_file()

    def missing(self) -> list[tuple[int, int]]:
        """Tiles that are not there."""
        return [place for place in self.places if not self.has(*place)]

    def write(self, i: int, j: int, block: np.ndarray) -> None:
        with room_for(self.folder):
            self.array("r+")[self.at(i, j)] = block

    def read(self, i: int, j: int) -> np.ndarray:
        """The tile, refused where its checksum is not that of its content."""
        remedy = "make the call again with the same arguments, which computes it anew"
        if not self.has(i, j):
            raise ValueError(f"tile ({i}, {j}) of {self.folder} is missing; {remedy}.")
        try:
            return np.asarray(self.array()[self.at(i, j)])
        except (ValueError, RuntimeError, OSError) as error:
            raise ValueError(
                f"tile ({i}, {j}) of {self.folder} is damaged ({error}); {remedy}."
            ) from None

    def tiles(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Return all tiles."""
        for i, j in self.places:
            yield i, j, self.read(i, j)

    def compare(self, client: Any, compute: Callable[..., np.ndarray], *given: Any) -> None:
        """Say so where a tile that is there, computed again, has other digits: then the store
        will hold those of two machines.
        """
        there = [place for place in self.places if self.has(*place)]
        if not there or len(there) == len(self.places):
            return
        [(_, again)] = complete(client, compute, {"again": (*given, *there[0])})
        found = self.read(*there[0])
        if not np.array_equal(found, again, equal_nan=True):
            off = np.abs(found - again).max() / np.abs([found, again]).max()
            warnings.warn(
                f"`store` {self.folder} was begun elsewhere: tile {there[0]}, computed again "
                f"here, differs by {off:.0e} of its largest entry (another processor, or another "
                "number of threads or devices); the missing tiles get the digits of here.",
                OtherDigits,
                stacklevel=3,
            )

    def drop_damaged(self) -> list[tuple[int, int]]:
        """Delete tiles whose checksum fails, and say which they were."""
        damaged = [p for p in self.places if self.has(*p) and not self._intact(*p)]
        for i, j in damaged:
            (self.folder / _ARRAY / "c" / str(i) / str(j)).unlink()
        if damaged:
            warnings.warn(
                f"{len(damaged)} tiles of {self.folder} were damaged and are computed anew.",
                stacklevel=3,
            )
        return damaged

    def _intact(self, i: int, j: int) -> bool:
        try:
            self.read(i, j)
        except ValueError:
            return False
        return True

    def array(self, mode: Any = "r") -> Any:
        """The Zarr array."""
        return _zarr().open_array(
            self.folder / _ARRAY, mode=mode, config={"write_empty_chunks": True}
        )


def open_store(
    folder: str | Path,
    size: int,
    tile: int,
    dtype: Any,
    identity: dict[str, Any],
    columns: int | None = None,
) -> Store:
    """The store in `folder`, made where there is none; refused where it holds something else or
    its description is damaged.
    """
    name = np.dtype(dtype).name
    store = Store(check_folder(folder, "store").resolve(), size, tile, name, columns)
    mark = store.folder / _MARK
    wanted = identity | {"size": size, "tile": tile, "dtype": name}
    wanted |= {} if columns is None else {"columns": columns}
    if not mark.exists():
        _refuse_strangers(store.folder)
        with room_for(store.folder):
            _create(store)
        text = json.dumps(wanted | {"layout": _layout(store)}, indent=1, sort_keys=True)
        write_checksummed(mark, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return store
    check_checksum(mark, "delete the folder and compute the kernel anew")
    found = json.loads(mark.read_bytes()[:-LENGTH])
    differing = [name for name in wanted if found.get(name) != wanted[name]]
    if differing:
        told = ", ".join(
            f"{name} {found.get(name)!r} there and {wanted[name]!r} here" for name in differing
        )
        raise ValueError(
            f"`store` {store.folder} holds something else ({told}); name another folder, or "
            "delete it."
        )
    if found["layout"] != _layout(store):
        raise ValueError(
            f"`store` {store.folder} is damaged: its zarr.json has changed; delete it and compute "
            "the kernel anew."
        )
    return store


def _refuse_strangers(folder: Path) -> None:
    """Only an empty folder, or one where a kill came before the description was written, becomes
    a store.
    """
    strangers = sorted(
        path.name
        for path in folder.iterdir()
        if path.name != _ARRAY and not path.name.startswith(".")
    )
    if strangers:
        raise ValueError(
            f"`store` {folder} holds other files ({strangers[0]}, …); name an empty or a new "
            "folder."
        )


def _create(store: Store) -> None:
    zarr = _zarr()
    zarr.create_array(
        store.folder / _ARRAY,
        shape=(store.size, store.columns or store.size),
        chunks=(store.tile, store.columns or store.tile),
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
            "`store` needs Zarr, which is not installed; install it: pip install "
            "'neuromanifold[cluster]'."
        ) from None
    return zarr


_DENSE_LIMIT = 4096


class EigenvalueBounds(NamedTuple):
    """Between which numbers a functional dimension lies; the lower counts the eigenvalues of
    `spectrum` above `threshold`.
    """

    lower: int
    upper: int
    spectrum: Spectrum
    threshold: float


@dataclass(frozen=True, eq=False, repr=False)
class Gram(Shown):
    """Θ on a disk. `gram @ v` reads every stored tile once, for both halves; everything else is
    made of such passes.
    """

    store: Store
    f: Model
    params: Any
    x: Any
    trace_over_outputs: bool
    memory: int

    def headline(self) -> str:
        """Return its size, its tiles, and where they are."""
        size, tile = self.store.size, self.store.tile
        return (
            f"{size:,}×{size:,} {self.store.dtype} in tiles of {tile:,} rows, {self.store.folder}"
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.size, self.store.size

    def __matmul__(self, v: Float[np.ndarray, "size ..."]) -> Float[np.ndarray, "size ..."]:
        if np.shape(v)[:1] != (self.store.size,):
            raise ValueError(
                f"`v` has shape {np.shape(v)} but the kernel has {self.store.size} rows; pass as "
                "many."
            )
        v = np.asarray(v, np.float64)
        out = np.zeros_like(v)
        for i, j, tile in self.store.tiles():
            rows, columns = self.store.rows(i), self.store.rows(j)
            out[rows] += tile @ v[columns]
            if i != j:
                out[columns] += tile.T @ v[rows]
        return out

    def dense(self) -> Float[np.ndarray, "size size"]:
        """Return the whole kernel in memory, in the dtype of the store."""
        needed = self.store.size**2 * np.dtype(self.store.dtype).itemsize
        if needed > self.memory:
            raise ValueError(
                f"`dense` needs {needed:,} bytes but `memory` is {self.memory:,}; use products, "
                "or raise `memory`."
            )
        kernel = np.empty(self.shape, self.store.dtype)
        for i, j, tile in self.store.tiles():
            rows, columns = self.store.rows(i), self.store.rows(j)
            kernel[rows, columns] = tile
            kernel[columns, rows] = tile.T
        return kernel

    @cached_property
    def trace(self) -> float:
        """The sum of all eigenvalues."""
        diagonal = (self.store.read(i, i) for i in range(self.store.side))
        return float(sum(np.trace(tile.astype(np.float64)) for tile in diagonal))

    def spectrum(
        self, k: int | None = None, *, vectors: bool = False, rtol: float = 1e-10
    ) -> Spectrum:
        """Return the `k` largest eigenvalues (by default 20) by blocked Lanczos, with `vectors` also
        their eigenvectors; all of them by `eigh` where k is the size.
        """
        k = min(20, self.store.size) if k is None else k
        if k == self.store.size <= _DENSE_LIMIT:
            values, rows = np.linalg.eigh(self.dense().astype(np.float64))
            rounding = np.full(k, k * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0))
            return Spectrum(
                values[::-1], k, self.trace, "dense", rounding, rows.T[::-1] if vectors else None
            )
        found = krylov.largest_eigenpairs(self.__matmul__, self.store.size, k, rtol=rtol)
        rows = found.vectors if vectors else None
        return Spectrum(
            found.values, self.store.size, self.trace, "blocked Lanczos", found.residuals, rows
        )

    def effective_rank(self, k: int | None = None) -> tuple[float, float]:
        """Return between which numbers exp(−Σ p log p), p = λ/Σλ, lies, from the `k` largest
        eigenvalues and the trace.

        What the others carry together is known. Entropy is least where they are as large as they
        may be, λ_k, and greatest where they are all equal.
        """
        known = self.spectrum(k)
        top = np.maximum(known.eigenvalues, 0.0)
        rest, others = max(self.trace - top.sum(), 0.0), self.store.size - len(top)
        if others == 0 or rest <= self.store.size * np.finfo(np.float64).eps * self.trace:
            value = float(np.exp(_entropy(top / top.sum())))
            return value, value
        p, q, left = top / self.trace, float(top[-1]) / self.trace, rest / self.trace
        few, remainder = divmod(left, q) if q > 0 else (0.0, left)
        low = _entropy(p) + few * _term(q) + _term(remainder)
        return float(np.exp(low)), float(np.exp(_entropy(p) + others * _term(left / others)))

    def functional_dimension_bounds(
        self, k: int | None = None, *, rtol: float | None = None
    ) -> EigenvalueBounds:
        """Return between which numbers rank J lies, from the eigenvalues of Θ = JJᵀ and the sizes
        of J.

        Ritz values never exceed eigenvalues, and rounding moves an eigenvalue by at most ‖E‖ ≤
        Dε·tr Θ for D parameters: what exceeds `rtol`·tr Θ (by default Dε) counts. Squaring costs
        half of the digits: singular values of J below √(Dε) of the largest are not seen, so that
        the lower bound may be far below the rank. The `k` largest eigenvalues are computed; by
        default all of up to 4,096, else as many as exceed the threshold. Of a kernel summed over o
        outputs (`trace=True`), whose rank is at most o·rank J, the lower bound is a count divided
        by o.
        """
        if np.dtype(self.store.dtype) != np.float64:
            raise ValueError(
                f"`store` holds a {self.store.dtype} kernel, too coarse for a rank; make it from "
                "float64 parameters and samples."
            )
        parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(self.params))
        outputs = output_size(self.f, self.params, self.x)
        rows = leading_axis(self.x) * outputs
        check_rtol(rtol)
        threshold = (parameters * np.finfo(np.float64).eps if rtol is None else rtol) * self.trace
        known = self._above(threshold, k)
        count = int((known.eigenvalues > threshold).sum())
        lower = -(-count // outputs) if self.trace_over_outputs else count
        return EigenvalueBounds(lower, min(rows, parameters), known, float(threshold))

    def _above(self, threshold: float, k: int | None) -> Spectrum:
        """The `k` largest eigenvalues, or as many as reach down to the threshold."""
        size = self.store.size
        known = self.spectrum(min(size, k or (size if size <= _DENSE_LIMIT else 20)))
        while k is None and len(known.eigenvalues) < size and known.eigenvalues[-1] > threshold:
            known = self.spectrum(min(size, 2 * len(known.eigenvalues)))
        return known

    def solve(
        self, b: Any, *, ridge: float, rtol: float = 1e-8, deflated: int = 20
    ) -> krylov.Solution:
        """Return (Θ + ridge·1)⁻¹ b by conjugate gradients, preconditioned by the `deflated` largest
        eigenpairs.
        """
        if not ridge > 0:
            raise ValueError(
                f"`ridge` is {ridge!r}; pass a positive number, which makes the system definite."
            )
        b = np.asarray(b, np.float64)
        if b.shape[:1] != (self.store.size,):
            raise ValueError(
                f"`b` has shape {b.shape} but the kernel has {self.store.size} rows; pass as many."
            )
        columns = b.reshape(len(b), -1)
        known = self._deflation(min(deflated, self.store.size))
        weights = (known.eigenvalues[-1] + ridge) / (known.eigenvalues + ridge) - 1.0
        V = np.asarray(known.vectors)

        def precondition(r: np.ndarray) -> np.ndarray:
            return r + V.T @ (weights[:, None] * (V @ r))

        found = krylov.solve(
            lambda v: self @ v + ridge * v, columns, precondition=precondition, rtol=rtol
        )
        return found._replace(x=found.x.reshape(b.shape))

    def _deflation(self, k: int) -> Spectrum:
        return self.spectrum(k, vectors=True, rtol=1e-3)

    def regression(self, y: Targets, other: Any, *, ridge: float, rtol: float = 1e-8) -> np.ndarray:
        """Solve a kernel regression: Θ(X′, X)(Θ + ridge·1)⁻¹ y at the samples `other`, in the shape
        of `y`.
        """
        y = np.asarray(y, np.float64)
        rows = y if self.trace_over_outputs else y.reshape(self.store.size, -1)
        weights = self.solve(rows, ridge=ridge, rtol=rtol).x
        found = self._cross(other) @ weights
        return (
            found if self.trace_over_outputs else found.reshape(leading_axis(other), *y.shape[1:])
        )

    def posterior(
        self, y: Targets, other: Any, *, noise: float, rtol: float = 1e-8
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the covariance at `other` of a Gaussian process with covariance Θ and
        noise of variance `noise`.
        """
        y = np.asarray(y, np.float64).reshape(self.store.size, -1)
        cross = self._cross(other)
        found = self.solve(np.hstack([y, cross.T]), ridge=noise, rtol=rtol).x
        prior = np.asarray(
            ntk(self.f, self.params, other, trace=self.trace_over_outputs), np.float64
        )
        return cross @ found[:, : y.shape[1]], prior - cross @ found[:, y.shape[1] :]

    def _cross(self, other: Any) -> np.ndarray:
        """Θ(X′, X), strip by strip."""
        n = leading_axis(self.x)
        parts = (
            jax.tree.map(lambda a, p=p: a[p], self.x) for p in blocks(n, max(1, self.store.tile))
        )
        columns = [
            ntk(self.f, self.params, other, part, trace=self.trace_over_outputs) for part in parts
        ]
        return np.concatenate([np.asarray(c, np.float64) for c in columns], axis=1)


def _term(p: float) -> float:
    return -p * np.log(p) if p > 0 else 0.0


def _entropy(p: np.ndarray) -> float:
    return float(sum(_term(float(q)) for q in p))


@dataclass(frozen=True)
class _Task:
    """What a process needs to compute tiles."""

    f: Model
    params: Any
    x: Any
    kind: str
    precision: str
    budget: int
    samples: int
    store: Store


def gram(
    f: Model,
    params: Params,
    x: Samples,
    *,
    store: str | Path,
    tile: int | None = None,
    trace: bool = False,
    precision: str = "highest",
    memory: int | str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Gram:
    """Return the tangent kernel of any number of samples, tile by tile, in a Zarr array in the
    folder `store`.

    The tiles have `tile` samples a side. Those on and above the diagonal are stored, each with a
    checksum, in the widest dtype passed. Tiles that `store` holds are not computed again: if a call
    was killed, make it again and it goes on. A damaged tile is noticed and computed again. A store
    of another model, parameters, samples, platform or flags of the compiler is refused. One tile
    that is there is computed again; if its digits differ (another number of threads, say), a
    warning says so.
    `workers` processes, or the Dask cluster at `scheduler`, share the strips. `trace=True` sums
    over outputs, as in `ntk`.

    `precision` is as for `ntk`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kernel = nm.gram(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]]), store=folder, tile=1)
    ...     (kernel @ np.array([1.0, 1.0])).tolist()
    [4.0, 12.0]
    """
    refuse_tracers((params, x), "`gram`")
    budget, kind = memory_budget(memory, device=True), "trace" if trace else "all"
    with arithmetic(product_precision(precision, widest(params, x))):
        params, x = check_arguments(f, params, x)
        check_rows(f, params, x)
        dtype = widest(params, x)
        made = plan(f, params, x, select(params, None), kind)
        fitting = Tiles(made, params, x, x, kind, budget // 2, dtype).largest
        samples = tile_size(tile, fitting, leading_axis(x))
        each = output_size(f, params, x) if kind == "all" else 1
        identity = _identity(made, params, x, kind, precision)
        place = open_store(store, leading_axis(x) * each, samples * each, dtype, identity)
        place.drop_damaged()
        task = _Task(f, to_host(params), to_host(x), kind, precision, budget, samples, place)
    todo = sorted({i for i, _ in place.missing()})
    with cluster(workers, scheduler) as client:
        shared = task if client is None or not todo else client.scatter(task, broadcast=True)
        place.compare(client, _tile, shared)
        for _ in complete(client, _strip, {str(i): (shared, i) for i in todo}):
            pass
    return Gram(place, f, task.params, task.x, trace, memory_budget(memory))


def tile_size(tile: int | None, fitting: int, n: int) -> int:
    """The samples of a tile: `tile`, else as many as fit."""
    if tile is None:
        return min(fitting, n)
    if not isinstance(tile, (int, np.integer)) or tile < 1:
        raise ValueError(f"`tile` is {tile!r}; pass a number of samples, 1 or more, or None.")
    if tile > fitting and n > fitting:
        raise ValueError(
            f"`tile` is {tile} but `memory` holds {fitting} samples a side; pass tile={fitting}, "
            "or raise `memory`."
        )
    return min(int(tile), n)


def _strip(task: _Task, i: int) -> None:
    """Compute and write the tiles of one strip that are missing."""
    missing = {j for row, j in task.store.missing() if row == i}
    for j, block in _tiles(task, i, sorted(missing)):
        task.store.write(i, j, block)


def _tile(task: _Task, i: int, j: int) -> np.ndarray:
    """One tile."""
    [(_, block)] = _tiles(task, i, [j])
    return block


def _tiles(task: _Task, i: int, columns: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(j, tile) of the i-th strip with each of `columns`."""
    with arithmetic(product_precision(task.precision, widest(task.params, task.x))):
        params, x = check_arguments(task.f, task.params, task.x)
        made = plan(task.f, params, x, select(params, None), task.kind)
        tiles = Tiles(made, params, x, None, task.kind, task.budget, widest(params, x))
        n = leading_axis(x)
        cuts = [slice(start, min(start + task.samples, n)) for start in range(0, n, task.samples)]
        for j, block in tiles.of(cuts, i, columns):
            yield j, np.asarray(block)


def _identity(made: Any, params: Any, x: Any, kind: str, precision: str) -> dict[str, Any]:
    """What the digits of a kernel depend on: program, parameters, samples, precision, and where
    it runs.
    """
    one = jax.tree.map(lambda a: a[:1], x)
    return {
        "model": digest_text(factors_of.lower(made, params, one).as_text()),
        "params": digest(params),
        "x": digest(x),
        "kind": kind,
        "precision": precision,
    } | where_it_runs()


def digest_text(text: str) -> str:
    """Sixteen digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(tree: Any) -> str:
    """Sixteen digits that tell trees of arrays apart."""
    state = hashlib.sha256(str(jax.tree.structure(tree)).encode())
    for leaf in jax.tree.leaves(tree):
        state.update(
            f"{dtype_of(leaf)}{leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes()
        )
    return state.hexdigest()[:16]
