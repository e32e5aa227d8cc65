"""Products that are linear in each operand, in one canonical form:
y[b, t, c] = Σ_k a[b, t, k] W[b, c, k], t the positions that share W.

W is the operand that a parameter is, a the other one. Kernels, Jacobian blocks and sketches are
written once for this form; matrix products, convolutions and look-ups of rows say how they come
to it.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.index_maps import Options

Shape = tuple[int, ...]


class Canonical(NamedTuple):
    """Sizes: `batch` products side by side, `positions` that share W, `inner` (k) and `outer` (c)
    sizes of each.
    """

    batch: int
    positions: int
    inner: int
    outer: int


class Product(abc.ABC):
    """How a product comes to the canonical form; `operand` is 0 or 1, the place of W."""

    @abc.abstractmethod
    def sizes(self, options: Options, shapes: Sequence[Shape], operand: int) -> Canonical | None:
        """The canonical sizes at operands of these shapes; None where it has no such form."""

    @abc.abstractmethod
    def weight(self, options: Options, operand: int, sizes: Canonical, w: Any) -> Any:
        """The operand w as W[b, c, k], in NumPy."""

    @abc.abstractmethod
    def signal(
        self, options: Options, operand: int, sizes: Canonical, other: Any, shape: Shape
    ) -> Any:
        """The other operand as a[b, t, k], in JAX; `shape` is that of W's operand."""

    @abc.abstractmethod
    def cotangent(self, options: Options, operand: int, sizes: Canonical, d: Any) -> Any:
        """The cotangents (o, *shape of y) as d[o, b, t, c], in JAX."""

    @abc.abstractmethod
    def summed(self, options: Options) -> tuple[Shape, Shape]:
        """The axes of both operands that are summed over in pairs."""

    @abc.abstractmethod
    def batched(self, options: Options) -> tuple[Shape, Shape]:
        """The axes of both operands that run in pairs along the result."""

    def window(self, options: Options) -> Shape:
        """The axes of the second operand that slide over the first."""
        return ()

    def groups(self, options: Options) -> int:
        """In how many groups channels are multiplied."""
        return 1

    def copies(self, options: Options, shapes: Sequence[Shape], out: Shape) -> int:
        """How many entries a walk holds beside the operands while it multiplies."""
        return math.prod(out)


class Dot(Product):
    """`lax.dot_general`."""

    def sizes(self, options: Options, shapes: Sequence[Shape], operand: int) -> Canonical:
        batch = math.prod(shapes[0][d] for d in self.batched(options)[0])
        inner = math.prod(shapes[0][d] for d in self.summed(options)[0])
        free = [math.prod(s) // max(1, batch * inner) for s in shapes]
        return Canonical(batch, free[1 - operand], inner, free[operand])

    def weight(self, options: Options, operand: int, sizes: Canonical, w: Any) -> Any:
        order = self._order(options, operand, w.ndim)
        return np.transpose(w, order).reshape(sizes.batch, sizes.outer, sizes.inner)

    def signal(
        self, options: Options, operand: int, sizes: Canonical, other: Any, shape: Shape
    ) -> Any:
        order = self._order(options, 1 - operand, other.ndim)
        return jnp.transpose(other, order).reshape(sizes.batch, sizes.positions, sizes.inner)

    def _order(self, options: Options, operand: int, ndim: int) -> list[int]:
        """Batch axes, free axes, summed axes."""
        summed, batched = self.summed(options)[operand], self.batched(options)[operand]
        return [*batched, *(d for d in range(ndim) if d not in (*summed, *batched)), *summed]

    def cotangent(self, options: Options, operand: int, sizes: Canonical, d: Any) -> Any:
        if operand == 1:
            return d.reshape(d.shape[0], sizes.batch, sizes.positions, sizes.outer)
        return jnp.swapaxes(d.reshape(d.shape[0], sizes.batch, sizes.outer, sizes.positions), 2, 3)

    def summed(self, options: Options) -> tuple[Shape, Shape]:
        return options["dimension_numbers"][0]

    def batched(self, options: Options) -> tuple[Shape, Shape]:
        return options["dimension_numbers"][1]


class Convolution(Product):
    """`lax.conv_general_dilated`, with W the filters."""

    def sizes(self, options: Options, shapes: Sequence[Shape], operand: int) -> Canonical | None:
        if operand == 0 or options["batch_group_count"] != 1:
            return None
        spec, groups = options["dimension_numbers"], options["feature_group_count"]
        out, inner, *window = (shapes[1][d] for d in spec.rhs_spec)
        positions = shapes[0][spec.lhs_spec[0]] * math.prod(_counts(options, *shapes))
        return Canonical(groups, positions, inner * math.prod(window), out // groups)

    def weight(self, options: Options, operand: int, sizes: Canonical, w: Any) -> Any:
        filters = np.transpose(w, options["dimension_numbers"].rhs_spec)
        return filters.reshape(sizes.batch, sizes.outer, sizes.inner)

    def signal(
        self, options: Options, operand: int, sizes: Canonical, other: Any, shape: Shape
    ) -> Any:
        patches = _patches(options, other, shape)
        n, _, *_, offsets = patches.shape
        grouped = patches.reshape(
            n, sizes.batch, -1, sizes.positions // n, offsets
        )  # (n, groups, channels, places, offsets)
        return jnp.transpose(grouped, (1, 0, 3, 2, 4)).reshape(
            sizes.batch, sizes.positions, sizes.inner
        )

    def cotangent(self, options: Options, operand: int, sizes: Canonical, d: Any) -> Any:
        spec, o = options["dimension_numbers"], d.shape[0]
        moved = jnp.transpose(d, [0, *(1 + s for s in spec.out_spec)])  # (o, n, channels, *places)
        grouped = moved.reshape(o, moved.shape[1], sizes.batch, sizes.outer, -1)
        return jnp.transpose(grouped, (0, 2, 1, 4, 3)).reshape(
            o, sizes.batch, sizes.positions, sizes.outer
        )

    def summed(self, options: Options) -> tuple[Shape, Shape]:
        spec = options["dimension_numbers"]
        return (spec.lhs_spec[1],), (spec.rhs_spec[1],)

    def batched(self, options: Options) -> tuple[Shape, Shape]:
        return (), ()

    def window(self, options: Options) -> Shape:
        return tuple(options["dimension_numbers"].rhs_spec[2:])

    def groups(self, options: Options) -> int:
        return options["feature_group_count"] * options["batch_group_count"]

    def copies(self, options: Options, shapes: Sequence[Shape], out: Shape) -> int:
        """All windows, each at its place."""
        filters = shapes[1][options["dimension_numbers"].rhs_spec[0]]
        windows = math.prod(out) // filters * math.prod(shapes[1]) // filters
        return windows * options["feature_group_count"]


class Lookup(Product):
    """Rows of a table W looked up by `lax.gather`: y[t, c] = W[i_t, c], the product of W with unit
    vectors, of which only the index i_t is kept (−1 for none).
    """

    def sizes(self, options: Options, shapes: Sequence[Shape], operand: int) -> Canonical | None:
        table, indices = shapes[0], shapes[1]
        numbers, offset = options["dimension_numbers"], len(indices) - 1
        rows = (
            operand == 0
            and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
            and numbers.offset_dims == tuple(range(offset, offset + len(table) - 1))
            and tuple(options["slice_sizes"]) == (1, *table[1:])
            and indices[-1] == 1
        )
        return Canonical(1, math.prod(indices), table[0], math.prod(table[1:])) if rows else None

    def weight(self, options: Options, operand: int, sizes: Canonical, w: Any) -> Any:
        return w.reshape(1, sizes.inner, sizes.outer).swapaxes(1, 2)

    def signal(
        self, options: Options, operand: int, sizes: Canonical, other: Any, shape: Shape
    ) -> Any:
        rows = shape[0]
        if options["mode"] == jax.lax.GatherScatterMode.CLIP:
            found = jnp.clip(other, 0, rows - 1)
        else:
            found = jnp.where((other >= 0) & (other < rows), other, -1)
        return found.reshape(1, sizes.positions, 1)

    def cotangent(self, options: Options, operand: int, sizes: Canonical, d: Any) -> Any:
        return d.reshape(d.shape[0], 1, sizes.positions, sizes.outer)

    def summed(self, options: Options) -> tuple[Shape, Shape]:
        return (0,), ()

    def batched(self, options: Options) -> tuple[Shape, Shape]:
        return (), ()


def _counts(options: Options, signal: Shape, filters: Shape) -> list[int]:
    """How many windows fit, along each axis of space."""
    spec = options["dimension_numbers"]
    sizes = [
        (signal[d] - 1) * dilation + 1 + lo + hi
        for d, dilation, (lo, hi) in zip(
            spec.lhs_spec[2:], options["lhs_dilation"], options["padding"], strict=True
        )
    ]
    reach = [
        (filters[d] - 1) * w + 1
        for d, w in zip(spec.rhs_spec[2:], options["rhs_dilation"], strict=True)
    ]
    strides = options["window_strides"]
    return [(n - r) // s + 1 for n, r, s in zip(sizes, reach, strides, strict=True)]


def _patches(options: Options, signal: Any, filters: Shape) -> Any:
    """(n, channels, *places, offsets): slices of the padded signal, one for each place in the
    window.
    """
    spec = options["dimension_numbers"]
    config = [(0, 0, 0)] * 2 + [
        (lo, hi, d - 1)
        for (lo, hi), d in zip(options["padding"], options["lhs_dilation"], strict=True)
    ]
    full = jax.lax.pad(jnp.transpose(signal, spec.lhs_spec), jnp.zeros((), signal.dtype), config)
    counts, strides = _counts(options, signal.shape, filters), (1, 1, *options["window_strides"])
    parts = []
    for offset in np.ndindex(*(filters[d] for d in spec.rhs_spec[2:])):
        start = [0, 0, *(o * w for o, w in zip(offset, options["rhs_dilation"], strict=True))]
        stop = [
            *full.shape[:2],
            *(b + s * (n - 1) + 1 for b, s, n in zip(start[2:], strides[2:], counts, strict=True)),
        ]
        parts.append(jax.lax.slice(full, start, stop, strides))
    return jnp.stack(parts, axis=-1)
