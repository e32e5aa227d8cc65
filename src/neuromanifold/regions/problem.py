"""A graph at float parameters and float data with every bend decided: what exact questions about
its Jacobian are asked of.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.bends import Gated
from neuromanifold.graph.factors import factors
from neuromanifold.graph.footprint import footprint
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.heights import Heights
from neuromanifold.graph.numbers import Support
from neuromanifold.graph.program import Program
from neuromanifold.graph.programs import gate_structs, stack_shapes
from neuromanifold.graph.residues import Residue, ResidueArithmetic
from neuromanifold.graph.selection import Selection, select
from neuromanifold.graph.tracing import program_of
from neuromanifold.graph.uses import Entering, Use, entering, leaves
from neuromanifold.graph.walk import refuse_inexact, walk
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.precision import is_floating
from neuromanifold.regions.decisions import Decisions, decide
from neuromanifold.regions.signs import Signs, layer_slopes, signs_of
from neuromanifold.regions.status import LayerStatus, statuses
from neuromanifold.runtime.memory import blocks, memory_budget


@lru_cache(maxsize=64)
def entering_exactly(graph: Graph, wrt: tuple[int, ...]) -> Entering:
    """How the leaves `wrt` enter the exact program."""
    return entering(graph.program, leaves(graph.program, len(graph.parameters)), wrt)


@lru_cache(maxsize=64)
def factor_program(graph: Graph, n: int, wrt: tuple[int, ...]) -> Program:
    """(params, x, gates) ↦ inputs, cotangents and Jacobians of how the leaves `wrt` enter, at n
    samples.
    """
    how = entering_exactly(graph, wrt)
    uses, direct = [use for _, use in how.uses], [i for i, _ in how.direct]

    def one(params: Any, sample: Any, gates: Sequence[Any]) -> Any:
        return factors(graph, uses, direct, params, sample, Gated(gates))

    with jax.enable_x64(True):
        shapes = (graph.params, stack_shapes(graph.sample, n), gate_structs(graph, n))
        return program_of(jax.vmap(one, (None, 0, 0)), *shapes)


class Sketch(NamedTuple):
    """Random tensors: for each use (u, v, u of the bias or None), for each leaf by itself a
    matrix.
    """

    uses: tuple[tuple[Residue, Residue, Residue | None], ...]
    direct: tuple[Residue, ...]
    columns: int


def draw_sketch(A: ResidueArithmetic, graph: Graph, wrt: tuple[int, ...], m: int) -> Sketch:
    """Return R with m columns, made of rank-one tensors: J·R tells the rank of a wide Jacobian without
    its columns.

    For a product y[b, t, c] = Σ_k a[b, t, k] W[b, c, k] the column r of R is u_r ⊗ v_r for each b,
    and (J·R)[o, r] = Σ_{b,t} (d[o, b, t]·u_br)(a[b, t]·v_br).
    """
    how = entering_exactly(graph, wrt)
    sizes = [
        int(np.prod(graph.program.values[graph.program.inputs[i]].shape, dtype=int))
        for i, _ in how.direct
    ]
    return Sketch(
        tuple(_tensors(A, use, m) for _, use in how.uses),
        tuple(A.random((size, m)) for size in sizes),
        m,
    )


def _tensors(A: ResidueArithmetic, use: Use, m: int) -> tuple[Residue, Residue, Residue | None]:
    u, v = A.random((use.batch, use.outer, m)), A.random((use.batch, use.inner, m))
    return u, v, None if use.constant is None else A.random((use.batch, use.outer, m))


def sketch_jacobian(
    A: ResidueArithmetic,
    graph: Graph,
    wrt: tuple[int, ...],
    sketch: Sketch,
    inputs: Sequence[Any],
    n: int,
) -> np.ndarray:
    """Return the (n·o, m) residues of J·R at n samples; `inputs` are those of `factor_program`."""
    *found, _ = walk(factor_program(graph, n, wrt), A, inputs)
    k = len(sketch.uses)
    total = Residue(np.zeros((n, graph.outputs, sketch.columns), np.int64))
    for a, d, tensors in zip(found[:k], found[k : 2 * k], sketch.uses, strict=True):
        total = A.add(total, _use_part(A, a, d, *tensors))
    for jacobian, matrix in zip(found[2 * k :], sketch.direct, strict=True):
        total = A.add(
            total, A.dot(jacobian, A.rearrange(lambda R: np.broadcast_to(R, (n, *R.shape)), matrix))
        )
    return total.values.reshape(-1, total.values.shape[-1])


def _use_part(
    A: ResidueArithmetic, a: Residue, d: Residue, u: Residue, v: Residue, w: Residue | None
) -> Residue:
    """Σ_{b,t} (d·u)(a·v + [bias's own]): a (n, b, t, k), d (n, o, b, t, c) → (n, o, m)."""
    n, o, batch, t, c = A.shape(d)
    cotangents = A.rearrange(lambda z: np.moveaxis(z, 2, 0).reshape(batch, n * o * t, c), d)
    signals = A.rearrange(lambda z: np.moveaxis(z, 1, 0).reshape(batch, n * t, -1), a)
    left = A.rearrange(lambda z: z.reshape(batch, n, o, t, -1), A.dot(cotangents, u))
    right = A.rearrange(lambda z: z.reshape(batch, n, 1, t, -1), A.dot(signals, v))
    part = A.sum(A.multiply(left, right), (0, 3))
    if w is None:
        return part
    return A.add(
        part,
        A.sum(A.rearrange(lambda z: z.reshape(batch, n, o, t, -1), A.dot(cotangents, w)), (0, 3)),
    )


Model = Callable[[Any, Any], Any]
_PRIMES_BETWEEN = 2.0**54  # fewer than the primes between 2⁶⁰ and 2⁶¹ (2.7·10¹⁶)
_ENTRIES_AT_ONCE = 2**21


@dataclass(frozen=True, eq=False)
class Problem:
    """The exact Jacobian, implicitly: leaves and data as NumPy arrays, the gates proved.

    Of a network with smooth operations (`require_exact=False`) only what needs no values is
    answered: the gates, and the columns that no open path reaches. What several questions share
    (signs, status of neurons, columns that vanish) is made when first asked for, and kept.
    """

    model: Model
    graph: Graph
    leaves: tuple[np.ndarray, ...]
    data: tuple[np.ndarray, ...]
    decisions: Decisions
    chosen: Selection
    budget: int | None = None

    @staticmethod
    def of(
        f: Model,
        params: Any,
        x: Any,
        *,
        wrt: Any = None,
        balls_only: bool = False,
        before_output: bool = False,
        require_exact: bool = True,
        memory: int | str | None = None,
    ) -> "Problem":
        """Trace, refuse what has no exact answer, decide. `before_output` leaves out functions
        that outputs pass through last.
        """
        graph = trace(f, params, x)
        graph = graph.before_output() if before_output else graph
        if require_exact:
            refuse_inexact(graph, "exact arithmetic needs")
        leaves = tuple(_real(leaf) for leaf in jax.tree.leaves(params))
        data = tuple(_real(leaf) for leaf in jax.tree.leaves(x))
        found = decide(graph, leaves, data, balls_only=balls_only, memory=memory)
        return Problem(f, graph, leaves, data, found, select(params, wrt), memory_budget(memory))

    @property
    def samples(self) -> int:
        """n."""
        return len(self.data[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of J."""
        return self.samples * self.graph.outputs, self.chosen.size

    @cached_property
    def signs(self) -> Signs:
        """The sign of every pre-activation, where the network is a perceptron."""
        return signs_of(
            require_perceptron(self.model, "pass an nm.MLP"), self.decisions, self.samples
        )

    @cached_property
    def slopes(self) -> list[np.ndarray]:
        """σ' of every neuron at every sample, layer by layer; nan where it is no constant.
        Perceptrons.
        """
        return layer_slopes(require_perceptron(self.model, "pass an nm.MLP"), self.signs)

    @cached_property
    def layers(self) -> tuple[LayerStatus, ...]:
        """What the neurons of each hidden layer are on the sample. Perceptrons."""
        return statuses(require_perceptron(self.model, "pass an nm.MLP"), self.slopes)

    @cached_property
    def fingerprint(self) -> str:
        """A name for network, parameters and data."""
        digest = hashlib.sha256(repr((self.shape, self.chosen.names, self.graph.text)).encode())
        for a in (*self.leaves, *self.data):
            digest.update(f"{a.dtype}{a.shape}".encode() + np.ascontiguousarray(a).tobytes())
        return digest.hexdigest()

    def inputs(self, A: Arithmetic, part: Any, params: list[Any] | None = None) -> list[Any]:
        """Return (params, x, gates) of some samples, as a program takes them."""
        lifted = [A.lift(a) for a in self.leaves] if params is None else params
        data = [A.lift(a[part]) if a.dtype.kind == "f" else a[part] for a in self.data]
        return [*lifted, *data, *(gate[part] for gate in self.decisions.gates)]

    def jacobian(self, A: Arithmetic, params: list[Any] | None = None) -> Any:
        """Return J in an arithmetic, (n·o, D), block by block of samples; at other parameters where
        they are given.
        """
        return A.rearrange(lambda *a: np.concatenate(a), *self.jacobian_blocks(A, params))

    def jacobian_blocks(self, A: Arithmetic, params: list[Any] | None = None) -> Iterator[Any]:
        """Yield the rows of J, block by block of samples."""
        for part, at in self.parts(self.graph.outputs * self.chosen.size):
            program = programs.jacobians(self.graph, len(at), self.chosen.leaves)
            [block] = walk(program, A, self.inputs(A, at, params))
            yield A.rearrange(
                lambda a, k=part.stop - part.start: a[:k].reshape(-1, a.shape[-1]), block
            )

    def values(self, A: Arithmetic) -> Any:
        """Return f at every sample, (n, o)."""
        return self._walk_blocks(A, programs.values, self.graph.outputs)

    def input_jacobian(self, A: Arithmetic) -> Any:
        """Return ∂f/∂x at every sample, (n, o, d)."""
        return self._walk_blocks(
            A, programs.input_jacobians, self.graph.outputs * self.graph.inputs
        )

    def _walk_blocks(
        self, A: Arithmetic, program: Callable[[Graph, int], Any], per_sample: int
    ) -> Any:
        found = []
        for part, at in self.parts(per_sample):
            [block] = walk(program(self.graph, len(at)), A, self.inputs(A, at))
            found.append(A.rearrange(lambda a, k=part.stop - part.start: a[:k], block))
        return A.rearrange(lambda *a: np.concatenate(a), *found)

    def parts(self, per_sample: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of equal length, the last filled up by repeating a sample, so that one
        program serves all.
        """
        n, size = self.samples, footprint(self.graph)
        copies = max(self.graph.outputs + 1, -(-per_sample // size.entries))
        fitting = size.samples(memory_budget(self.budget), copies=copies)
        count = len(list(blocks(n, min(fitting, max(1, _ENTRIES_AT_ONCE // max(1, per_sample))))))
        size = -(-n // count)
        for start in range(0, n, size):
            yield (
                slice(start, min(start + size, n)),
                np.minimum(np.arange(start, start + size), n - 1),
            )

    def residues(self, p: int) -> np.ndarray:
        """Return J modulo p."""
        return self.jacobian(ResidueArithmetic(p)).values

    def sketch(
        self, p: int, params: list[Any] | None = None, *, columns: int | None = None
    ) -> tuple[np.ndarray, bool]:
        """Return J times a random matrix with so many columns (by default as many as the smaller
        side of J has), modulo p; tall ones are mixed from the left too.

        Also whether its rows are still those of J.
        """
        A, (height, width) = ResidueArithmetic(p), self.shape
        m = min(height, width) if columns is None else columns
        tensors = draw_sketch(A, self.graph, self.chosen.leaves, m)
        lifted = [A.lift(a) for a in self.leaves] if params is None else params
        rows, mixed = [], np.zeros((m, m), np.int64)
        for part, at in self.parts(self.sketch_size(m)):
            block = sketch_jacobian(
                A, self.graph, self.chosen.leaves, tensors, self.inputs(A, at, lifted), len(at)
            )
            block = block[: (part.stop - part.start) * self.graph.outputs]
            if height > width:
                mixed = modular.add(
                    mixed, modular.matmul(modular.random_residues((m, len(block)), p), block, p), p
                )
            else:
                rows.append(block)
        return (np.concatenate(rows), True) if height <= width else (mixed, False)

    def sketch_size(self, m: int) -> int:
        """Return how many numbers one sample takes in a sketch with m columns."""
        uses = [use for _, use in entering_exactly(self.graph, self.chosen.leaves).uses]
        most = max(
            (use.batch * use.all_positions * (self.graph.outputs + 1) * m for use in uses),
            default=0,
        )
        return most + self.graph.outputs * m

    def sketch_entries(self, m: int) -> int:
        """Return how many numbers are made entry by entry for one sample of a sketch with m columns."""
        uses = [use for _, use in entering_exactly(self.graph, self.chosen.leaves).uses]
        return sum(use.batch * use.all_positions for use in uses) * (self.graph.outputs + 1) * m

    def sketch_operations(self, m: int) -> float:
        """Return how many multiplications are in the matrix products of a sketch with m columns."""
        how, o = entering_exactly(self.graph, self.chosen.leaves), self.graph.outputs
        by_use = (
            u.batch * u.all_positions * m * (o * u.outer * (1 + (u.constant is not None)) + u.inner)
            for _, u in how.uses
        )
        by_leaf = (self.leaves[i].size * o * m for i, _ in how.direct)
        return self.samples * float(sum(by_use) + sum(by_leaf))

    def products(self, p: int, directions: np.ndarray) -> np.ndarray:
        """Return J·v modulo p for stacked directions (k, D), shape (k, n·o): forward mode, another
        route than `jacobian`.
        """
        A = ResidueArithmetic(p)
        none = np.empty((0, self.shape[0]), np.int64)
        return np.concatenate(
            [none, *(self._products(A, directions[part]) for part in blocks(len(directions), 32))]
        )

    def _products(self, A: ResidueArithmetic, directions: np.ndarray) -> np.ndarray:
        k, columns = len(directions), np.cumsum([0, *self.chosen.sizes])
        mine = {
            i: directions[:, a:b].reshape(k, *self.leaves[i].shape)
            for i, a, b in zip(self.chosen.leaves, columns, columns[1:], strict=False)
        }
        tangents = [
            type(A.lift(np.zeros(())))(mine.get(i, np.zeros((k, *leaf.shape), np.int64)))
            for i, leaf in enumerate(self.leaves)
        ]
        found = []
        for part, at in self.parts(k * self.graph.outputs):
            program = programs.products(self.graph, len(at), k)
            [block] = walk(program, A, [*self.inputs(A, at), *tangents])
            found.append(block.values[:, : part.stop - part.start].reshape(k, -1))
        return np.concatenate(found, axis=1)

    @cached_property
    def zero_columns(self) -> np.ndarray:
        """Columns of J that vanish at every sample because no open path runs through their
        parameter.
        """
        A, closed = Support(), np.ones(self.shape[1], bool)
        # The samples' sums need room for their values, not for a row of J each.
        for _, at in self.parts(footprint(self.graph).entries):
            program = programs.pullbacks(self.graph, len(at), self.chosen.leaves)
            [block] = walk(
                program, A, [*self.inputs(A, at), A.lift(np.ones((len(at), self.graph.outputs)))]
            )
            closed &= ~block.flags
        return closed

    def region_bound(self) -> int:
        """Σ over regions of o·min(samples in it, affine dimension of the data).
        [complexity, Prop C.3]

        On a region each row of J is an affine function of the sample, a linear one where f has no
        constant term.
        """
        return self.graph.outputs * int(
            np.minimum(self.region_counts(), self.graph.affine_dimension).sum()
        )

    def wrt(self, chosen: Selection) -> "Problem":
        """Return the problem with other parameters that count: bends do not depend on these."""
        return replace(self, chosen=chosen)

    def region_counts(self) -> np.ndarray:
        """Return how many samples each sampled region holds."""
        rows = self.decisions.rows()
        return (
            np.unique(rows, axis=0, return_counts=True)[1]
            if rows.size
            else np.array([self.samples])
        )

    def minor_bits(self) -> float:
        """Return log₂ of any minor of full order (Hadamard), denominators cleared."""
        A, order = Heights(), min(self.shape)
        height = self.jacobian(A)
        other = height.other * order
        return order * (
            max(0.0, height.magnitude) + height.bits + other + math.log2(max(1, order)) / 2
        )

    def failure_probability(self, was_sketched: bool) -> float:
        """Return how likely a random 61-bit prime (and sketch) hides a larger rank: prime divisors
        of a minor over all primes.
        """
        by_prime = self.minor_bits() / 60 / (_PRIMES_BETWEEN / 2)
        return min(1.0, by_prime + (2 * min(self.shape) / 2.0**60 if was_sketched else 0.0))


def _real(leaf: Any) -> np.ndarray:
    """Return floats of any width as float64, which holds them exactly."""
    return np.asarray(leaf).astype(np.float64) if is_floating(leaf) else np.asarray(leaf)
