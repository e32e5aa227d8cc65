"""The kernel tile by tile: the factors of a strip of samples are made once where they fit,
products go to all devices.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from neuromanifold.numerics.validation import explain_not_finite, leading_axis
from neuromanifold.runtime.devices import devices, in_halves, mesh, spread, whole
from neuromanifold.runtime.memory import blocks
from neuromanifold.tangent.kernel.contraction import all_finite, factors_of, kernel_block, tile
from neuromanifold.tangent.kernel.routes import Plan

_SMALLEST = {"cpu": 512}
"""Samples of the smallest tile a symmetric kernel is cut into to save products; below, products
are too small for the device.
"""
_SMALLEST_ELSEWHERE = 2048
_STRIPS = 16
"""Of a symmetric kernel in s strips a share of (s+1)/2s is computed."""
_FEWEST_PER_DEVICE = 32
_ALIGNED = 256
"""On an accelerator tiles have a multiple of so many samples a side: products of three passes
are then twice as fast.
"""


class Strip(NamedTuple):
    """Some samples and the rows of the kernel that are theirs."""

    samples: slice
    rows: slice


@dataclass(frozen=True, eq=False)
class Tiles:
    """The kernel of `x1` and `x2` (`None`: of `x1` with itself) in tiles; iterate over (row strip,
    column strip, tile).

    Of a symmetric kernel only tiles on and above the diagonal come. Within `budget` bytes as far as
    one sample allows.
    """

    plan: Plan
    params: Any
    x1: Any
    x2: Any
    kind: str
    budget: int
    dtype: np.dtype

    def __call__(
        self, largest: int, mine: Callable[[int], bool] = lambda number: True
    ) -> Iterator[tuple[Any, ...]]:
        """The tiles of at most `largest` samples a side whose number is `mine`."""
        over, made = self._prepare(largest)
        left = self._strips(self.x1, largest, over)
        right = left if self.x2 is None else self._strips(self.x2, largest, over)
        number = -1
        for i, row in enumerate(left):
            for column in right[i:] if self.x2 is None else right:
                number += 1
                if mine(number):
                    yield row, column, self._tile(made, row, column, over)

    def of(self, cuts: list[slice], i: int, columns: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """(j, tile) of the given strips of a symmetric kernel: the i-th with each of `columns`,
        in pieces where memory runs out.
        """
        size = cuts[0].stop
        over, made = self._prepare(size)
        for j in columns:
            size, block = in_halves(
                lambda b, j=j: (b, self._pieces(made, cuts[i], cuts[j], over, b)), size, "samples"
            )
            yield j, block

    def _pieces(self, made: Any, row: slice, column: slice, over: Mesh | None, largest: int) -> Any:
        """A tile, computed whole or in pieces of at most that many samples a side."""
        if max(row.stop - row.start, column.stop - column.start) <= largest:
            return self._tile(made, Strip(row, row), Strip(column, column), over)
        made.cache_clear()
        left, right = ([Strip(p, p) for p in _parts(whole, largest)] for whole in (row, column))
        return np.block([[np.asarray(self._tile(made, a, b, over)) for b in right] for a in left])

    def _prepare(self, largest: int) -> tuple[Mesh | None, Callable[..., Any]]:
        """The devices that share the work, and the factors of a strip, remembered as far as half
        the budget goes.
        """
        over = mesh() if leading_axis(self.x1) >= _FEWEST_PER_DEVICE * len(devices()) else None
        keep = max(2, int(self.budget / 2 // (self.plan.held * self.dtype.itemsize * largest)))
        params = self.params if over is None else whole(self.params, over)
        return over, functools.lru_cache(maxsize=keep)(
            functools.partial(self._factors, params, over)
        )

    def _strips(self, x: Any, largest: int, over: Mesh | None) -> list[Strip]:
        """Strips whose samples the devices share evenly, and what is left."""
        n, each = leading_axis(x), 1 if over is None else over.size
        parts = [
            slice(p.start * each, p.stop * each) for p in _cut(n // each, max(1, largest // each))
        ]
        parts += [slice(n - n % each, n)] if n % each else []
        o = self.plan.outputs if self.kind == "all" else 1
        return [Strip(part, slice(part.start * o, part.stop * o)) for part in parts]

    def _factors(self, params: Any, over: Mesh | None, start: int, stop: int, second: bool) -> Any:
        x = jax.tree.map(lambda a: a[start:stop], self.x2 if second else self.x1)
        together = self.together(stop - start) if over is None else None
        return factors_of(
            self.plan, params, x if over is None else spread(x, over), together=together
        )

    def _tile(self, made: Callable[..., Any], row: Strip, column: Strip, over: Mesh | None) -> Any:
        symmetric = self.x2 is None
        same = symmetric and row == column
        left = made(row.samples.start, row.samples.stop, False)
        right = left if same else made(column.samples.start, column.samples.stop, not symmetric)
        block, finite = tile(
            self.plan,
            left,
            right if over is None else whole(right, over),
            kind=self.kind,
            same=same,
        )
        if not bool(finite):
            self.refuse()
        first = devices()[0]
        return block if block.devices() == {first} else jax.device_put(block, first)

    def refuse(self) -> None:
        """Say what is not finite."""
        for tree, name in ((self.params, "params"), (self.x1, "x"), (self.x2, "x2")):
            explain_not_finite(tree, name)
        raise ArithmeticError(
            "the kernel of `f` holds nan or inf at these parameters; check the model's values "
            "there."
        )

    @property
    def _room(self) -> float:
        """The budget in numbers, less a copy of the parameters."""
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(self.params))
        return max(0, self.budget - held) / self.dtype.itemsize

    def together(self, n: int) -> int | None:
        """At how many of n samples factors are made at once; `None` for all. Long passes take a
        quarter of the memory, in equal parts: what is left over would be compiled by itself.
        """
        if not self.plan.long or n * self.plan.per_sample <= self._room:
            return None
        most = max(1, int(self._room // 4 // (2.0 * self.plan.passes)))
        return None if most >= n else next(b for b in range(most, 0, -1) if n % b == 0)

    @property
    def largest(self) -> int:
        """The largest b with c·b·(per sample) + b²·(per pair) numbers within the budget, less a
        copy of the parameters; a symmetric kernel computed at once has one side only. Long passes
        go by themselves.
        """
        n, room, plan = leading_axis(self.x1), self._room, self.plan
        linear, quadratic = _caution() * plan.per_sample, plan.per_pair
        if plan.long and n * plan.per_sample > room:
            linear = _caution() * (plan.held + 2.0 * plan.formed)
            room -= max(room / 4, 2.0 * plan.passes)
        fitting = int(
            (math.sqrt(linear**2 + 4 * quadratic * max(0.0, room)) - linear) / (2 * quadratic)
        )
        if self.x2 is None and n * linear / 2 + n**2 * quadratic <= room:
            fitting = n
        most = max(1, min(fitting, self._saving))
        return (
            most
            if most >= leading_axis(self.x1) or most < _tile_multiple()
            else most - most % _tile_multiple()
        )

    @property
    def _saving(self) -> int:
        """The side of a tile that leaves out most of a symmetric kernel's second half."""
        n = leading_axis(self.x1)
        smallest = _SMALLEST.get(devices()[0].platform, _SMALLEST_ELSEWHERE)
        share = -(-n // _STRIPS)
        return (
            n
            if self.x2 is not None or n <= 2 * smallest
            else max(smallest, share + -share % _tile_multiple())
        )


def _caution() -> float:
    """By how much two sides may exceed one side's count of numbers. An accelerator without memory
    halves the tile; a host is taken by its operating system.
    """
    return 2.0 if devices()[0].platform == "cpu" else 1.0


def _tile_multiple() -> int:
    """Of how many samples the side of a tile is a multiple."""
    return 1 if devices()[0].platform == "cpu" else _ALIGNED


def _cut(n: int, largest: int) -> Iterator[slice]:
    """`blocks`, but where they are aligned all have that length except the last."""
    if _tile_multiple() == 1 or largest % _tile_multiple():
        return blocks(n, largest)
    return (slice(start, min(n, start + largest)) for start in range(0, n, largest))


def _parts(whole: slice, largest: int) -> list[slice]:
    return [
        slice(whole.start + p.start, whole.start + p.stop)
        for p in blocks(whole.stop - whole.start, largest)
    ]


def assemble(tiles: Tiles) -> Any:
    """The whole kernel, where it was computed; each of several processes computes its share and
    all receive the whole.
    """
    n1, n2 = leading_axis(tiles.x1), leading_axis(tiles.x1 if tiles.x2 is None else tiles.x2)
    alone = len(devices()) == 1 and jax.process_count() == 1

    def kernel(largest: int) -> Any:
        return (
            _at_once(tiles)
            if alone and max(n1, n2) <= largest
            else _assemble(tiles, n1, n2, largest)
        )

    return in_halves(kernel, min(tiles.largest, max(n1, n2)), "samples")


def _at_once(tiles: Tiles) -> Any:
    second = tiles.x1 if tiles.x2 is None else tiles.x2
    block, finite = kernel_block(
        tiles.plan,
        tiles.params,
        tiles.x1,
        second,
        kind=tiles.kind,
        same=tiles.x2 is None,
        together=tiles.together(max(leading_axis(tiles.x1), leading_axis(second))),
    )
    if not bool(finite):
        tiles.refuse()
    return block


def _assemble(tiles: Tiles, n1: int, n2: int, largest: int) -> Any:
    if not bool(all_finite((tiles.params, tiles.x1, tiles.x2))):
        tiles.refuse()
    tail = (tiles.plan.outputs,) if tiles.kind == "diagonal" else ()
    each = tiles.plan.outputs if tiles.kind == "all" else 1
    kernel = jnp.zeros((n1 * each, n2 * each, *tail), tiles.dtype, device=devices()[0])
    processes, process = jax.process_count(), jax.process_index()
    for row, column, block in tiles(largest, lambda number: number % processes == process):
        kernel = _place(kernel, block, row.rows.start, column.rows.start)
        if tiles.x2 is None and row != column:
            kernel = _place(kernel, block.swapaxes(0, 1), column.rows.start, row.rows.start)
    return kernel if processes == 1 else _sum_over_processes(kernel)


@functools.partial(jax.jit, donate_argnums=0)
def _place(kernel: Any, block: Any, row: Any, column: Any) -> Any:
    return jax.lax.dynamic_update_slice(kernel, block, (row, column, *(0,) * (kernel.ndim - 2)))


def _sum_over_processes(kernel: Any) -> Any:
    """The sum over the processes: each entry is zero in all but one of them, so that nothing is
    rounded.
    """
    from jax.experimental.multihost_utils import process_allgather

    return jnp.asarray(np.asarray(process_allgather(np.asarray(kernel))).sum(axis=0))
