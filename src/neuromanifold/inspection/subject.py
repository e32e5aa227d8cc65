"""What is inspected: a network at its parameters on a sample, with what several sections share
computed once.
"""

import contextlib
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.interpret import interpret
from neuromanifold.graph.products import Convolution
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.reading import call, evaluate
from neuromanifold.graph.selection import select
from neuromanifold.graph.uses import entering, leaves
from neuromanifold.graph.walk import NoExactAnswer
from neuromanifold.models.arguments import Model, RowByRow, Signature
from neuromanifold.models.function import flat_outputs, output_shape
from neuromanifold.models.losses import Loss, cross_entropy, mse
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import require_perceptron
from neuromanifold.numerics.compiling import compiled
from neuromanifold.numerics.precision import arithmetic, is_floating, promote, widest
from neuromanifold.numerics.rank import Rank
from neuromanifold.numerics.validation import leading_axis
from neuromanifold.regions.decisions import Decisions
from neuromanifold.regions.patterns import pattern_columns, unit_patterns
from neuromanifold.regions.problem import Problem
from neuromanifold.symmetry.conservation.balances import Scalings, channel_scalings
from neuromanifold.tangent.kernel.routes import Plan, plan
from neuromanifold.tangent.rank.geometry import Geometry
from neuromanifold.tangent.rank.jacobian import n_columns

MOST_ROWS = 5_000
FEW_OUTPUTS = 8
"""So many outputs are looked at where one sample has more than `MOST_ROWS`."""
_BATCH = 1_000
_PULLS = 16  # products Jᵀv at single samples, or as many as there are samples


@dataclass(frozen=True)
class ChosenOutputs(RowByRow):
    """Some entries of what `f` gives for a sample, by their places in the flat output."""

    f: Model
    places: tuple[int, ...]

    def __call__(self, params: Any, x: Any) -> Any:
        """The chosen entries, (n, count), and no others are computed."""
        params, x = jax.tree.map(jnp.asarray, (params, x))
        graph = _choose_outputs(
            self, Signature.of(params), Signature.of_sample(x), widest(params, x)
        )

        def one(sample: Any) -> Any:
            inputs = [*jax.tree.leaves(params), *jax.tree.leaves(sample)]
            return interpret(graph.program, inputs, None)[0]

        return jax.vmap(one)(x)

    def of(self, params: Any, x: Any) -> Any:
        """The chosen entries of all, (n, count)."""
        outputs = call(self.f, params, x)
        parts = _box(self.places, np.shape(outputs)[1:]) if isinstance(outputs, jax.Array) else None
        if parts is None:
            return flat_outputs(self.f, params, x)[:, np.array(self.places)]
        ends = [(r.start, r.stop, r.step) for r in (range(len(outputs)), *parts)]
        return jax.lax.slice(outputs, *zip(*ends, strict=True)).reshape(len(outputs), -1)


@lru_cache(maxsize=16)
def _choose_outputs(
    chosen: ChosenOutputs, params: Signature, x: Signature, dtype: np.dtype
) -> Graph:
    """The program of the chosen outputs at one sample."""
    graph = trace(chosen.of, params.structs(), x.structs(), dtype=dtype, whole=True)
    return graph.with_needed_parts()


def _box(places: Sequence[int], shape: tuple[int, ...]) -> tuple[range, ...] | None:
    """The places as a range along each axis, where they are that."""
    axes = [sorted(set(map(int, axis))) for axis in np.unravel_index(np.array(places), shape)]
    ranges = [range(a[0], a[-1] + 1, a[1] - a[0] if len(a) > 1 else 1) for a in axes]
    grid = np.ravel(np.arange(math.prod(shape)).reshape(shape)[np.ix_(*ranges)])
    return tuple(ranges) if np.array_equal(grid, places) else None


def places_of(
    outputs: Any, shape: tuple[int, ...], most: int, *, words: bool = False
) -> tuple[int, ...] | None:
    """The places of the outputs that are looked at; `None` stands for all of them.

    A number is how many, drawn at random; anything else is an index into one sample's output.
    Nobody's choice is all, or `FEW_OUTPUTS` where there are more than `most`: drawn at random, or
    evenly spaced `words` after the last token.

    >>> places_of(np.s_[-1, :2], (3, 4), 100), places_of(None, (3, 4), 100), len(places_of(5, (3, 4), 100))
    ((8, 9), None, 5)
    >>> places_of(None, (2, 800), 100, words=True)
    (800, 900, 1000, 1100, 1200, 1300, 1400, 1500)
    """
    size = math.prod(shape)
    if outputs is ... or (outputs is None and size <= most):
        return None
    if outputs is None and words and len(shape) > 1 and shape[-1] >= FEW_OUTPUTS:
        step = shape[-1] // FEW_OUTPUTS
        return tuple(range(size - shape[-1], size, step)[:FEW_OUTPUTS])
    count = FEW_OUTPUTS if outputs is None else outputs
    if isinstance(count, int) and not isinstance(count, bool):
        if count < 1:
            raise ValueError(f"`outputs` is {count}; pass how many of the {size:,} to look at.")
        drawn = np.random.default_rng(0).choice(size, min(count, size), replace=False)
        return None if count >= size else tuple(map(int, np.sort(drawn)))
    try:
        found = np.ravel(np.arange(size).reshape(shape)[outputs])
    except (IndexError, TypeError, ValueError):
        found = np.zeros(0, int)
    if not found.size or isinstance(outputs, bool):
        raise ValueError(
            f"`outputs` is {outputs!r}, and one sample's output has shape {shape}; pass how many "
            "to look at, or an index of them such as np.s_[-1, :8]."
        )
    return tuple(dict.fromkeys(map(int, found)))


@dataclass(frozen=True, eq=False)
class Subject:
    """A network on a sample `x`, which was chosen from the samples `given`; `budget` is in bytes,
    `patience` in seconds. `places` are the outputs whose derivatives are rows of the Jacobian, all
    where it is None.
    """

    f: Model
    params: Any
    x: Any
    y: Any
    given: Any
    exactly: bool
    budget: int
    loss: Loss = mse
    patience: float = math.inf
    places: tuple[int, ...] | None = None

    @cached_property
    def seen(self) -> "Subject":
        """The same network with those outputs alone that are looked at."""
        if self.places is None:
            return self
        return replace(self, f=ChosenOutputs(self.f, self.places), places=None)

    @property
    def samples(self) -> int:
        """n."""
        return leading_axis(self.x)

    @cached_property
    def outputs(self) -> int:
        """o."""
        return int(np.prod(output_shape(self.f, self.params, self.x), dtype=int))

    @property
    def rows(self) -> int:
        """Rows of the Jacobian, n·o."""
        return self.samples * self.outputs

    @cached_property
    def columns(self) -> int:
        """Its columns, D."""
        return n_columns(self.params)

    @cached_property
    def classifies(self) -> bool:
        """Whether the targets are classes: by the loss, or as rows of one 1 among zeros."""
        if self.y is None or np.ndim(self.y) != 2 or np.shape(self.y)[1] < 2:
            return False
        y = np.asarray(self.y)
        return self.loss is cross_entropy or bool(
            ((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all()
        )

    @property
    def graph(self) -> Graph:
        """The network as a program."""
        return self.geometry.graph

    @cached_property
    def geometry(self) -> Geometry:
        """Bends and rank: once, for all that ask."""
        return Geometry(self.f, self.params, self.x, memory=self.budget)

    @property
    def problem(self) -> Problem:
        """The exact Jacobian with every bend decided."""
        return self.geometry.problem

    @cached_property
    def head_rows(self) -> int:
        """How many rows of J the columns of the last layer can have in a basis, o·rank(h, 1) for its
        input h at one position; 0 where it is none.
        """
        program = self.graph.program
        found = entering(
            program,
            leaves(program, len(self.graph.parameters)),
            range(len(self.graph.parameters)),
        ).uses
        last = max((use for _, use in found), key=lambda use: use.output, default=None)
        if last is None or last.batch * last.all_positions > 1 or last.outer != self.outputs:
            return 0
        return self.outputs * min(self.samples, last.inner + (last.constant is not None))

    @cached_property
    def sketch_costs(self) -> tuple[float, int]:
        """Multiplications of residues that a sketch of J takes, and entries that it makes,
        counted before anything is decided.
        """
        arrays, data = (
            [np.asarray(a) for a in jax.tree.leaves(tree)] for tree in (self.params, self.x)
        )
        undecided = Decisions(self.graph, (), (), (), 0)
        problem = Problem(
            self.f, self.graph, tuple(arrays), tuple(data), undecided, select(self.params, None)
        )
        m = min(self.rows, self.columns)
        return problem.sketch_operations(m), self.samples * problem.sketch_entries(m)

    @property
    def rank(self) -> Rank:
        """The exact rank of J with its certificate."""
        return self.geometry.rank

    @cached_property
    def perceptron(self) -> tuple[MLP, Params, np.ndarray]:
        """Network, parameters and sample in float64 where the network is an `MLP`."""
        net = require_perceptron(self.f, "pass an nm.MLP")
        params = jax.tree.map(lambda a: np.asarray(a, np.float64), self.params)
        return net, params, np.asarray(self.x, np.float64)

    @cached_property
    def patterns(self) -> list[np.ndarray]:
        """Which units of each layer are on at each sample: decided exactly where that is
        possible.
        """
        if self.exactly or not self.graph.exact:
            with contextlib.suppress(NoExactAnswer):
                gates = self.geometry.decided.decisions.gates
                return pattern_columns(self.f, self.graph, gates, self.samples)
        return self._round_patterns(self.x)

    def _round_patterns(self, x: Any) -> list[np.ndarray]:
        return [np.asarray(a) for a in unit_patterns(self.f, self.params, x)]

    def other_patterns(self) -> Iterator[list[np.ndarray]]:
        """The patterns of the samples that were given and not chosen, in batches of one size."""
        n = leading_axis(self.given)
        others = np.setdiff1d(np.arange(n), chosen_samples(n, self.samples))
        size = min(max(1, self.budget // (64 * self.activations)), _BATCH)
        for start in range(0, len(others), size):
            batch = np.resize(others[start : start + size], size)
            found = self._round_patterns(jax.tree.map(lambda a, b=batch: a[b], self.given))
            yield [a[: len(others) - start] for a in found]

    @cached_property
    def scalings(self) -> Scalings:
        """The scalings of channels that leave the network unchanged."""
        return channel_scalings(self.f, self.params, self.x)

    @cached_property
    def values(self) -> np.ndarray:
        """f_θ at the sample, computed in the widest precision among parameters and sample."""
        with arithmetic():
            return np.asarray(evaluate(self.f, *self._alike(self.x)), np.float64)

    @cached_property
    def kernel(self) -> Plan:
        """How the kernel of all outputs is computed in float64."""
        with arithmetic():
            params, x = (jax.tree.map(_wide, part) for part in (self.params, self.x))
            return plan(self.f, params, x, select(self.params, None), "all")

    @cached_property
    def activations(self) -> int:
        """Numbers that a pass at one sample computes."""
        program = self.graph.program
        growing = program.depending(program.inputs[len(self.graph.parameters) :])
        return sum(math.prod(program.values[i].shape) for i in growing)

    @cached_property
    def operations(self) -> float:
        """Floating-point operations of f at one sample, as XLA counts them."""
        with arithmetic():
            arguments = self._alike(jax.tree.map(lambda a: a[:1], self.x))
            found = _operations(self.f, *map(Signature.of, arguments))
        return max(found, 2.0 * self.columns)

    @cached_property
    def convolving(self) -> float:
        """Those of them that are in convolutions, which float64 takes several times as long for
        as for matrix products.
        """
        program = self.graph.program
        nodes = [n for n in program.nodes if isinstance(n.primitive.product, Convolution)]
        return min(self.operations, 2.0 * sum(_multiplications(program, node) for node in nodes))

    @cached_property
    def pulled(self) -> tuple[np.ndarray, int]:
        """‖J_lᵀv‖² for each array of parameters, summed over random v at every sample, and how many
        columns of J are zero: those where Jᵀv is 0.0, which no rounding makes of another number.
        """
        with arithmetic():
            often = -(-_PULLS // self.samples)
            repeated = jax.tree.map(lambda a: np.repeat(a, often, axis=0), self.x)
            params, x = promote((self.params, repeated), np.float64)
            squares, closed = _pull_back(self.f, params, x, jax.random.key(0))
            return np.asarray(squares), int(closed)

    def _alike(self, x: Any) -> tuple[Any, Any]:
        """Parameters and samples in one precision: convolutions do not take two."""
        return promote((self.params, x), widest(self.params, x))


@compiled("f")
def _pull_back(f: Model, params: Any, x: Any, key: Any) -> tuple[Any, Any]:
    """One sample after another, so that one gradient at a time is held."""

    def one(carried: Any, sample: Any) -> tuple[Any, None]:
        squares, seen, key = carried
        key, own = jax.random.split(key)
        values, pull = jax.vjp(
            lambda p: flat_outputs(f, p, jax.tree.map(lambda a: a[None], sample)), params
        )
        (moved,) = pull(jax.random.normal(own, values.shape, values.dtype))
        moved = jax.tree.leaves(moved)
        squares = squares + jnp.stack([jnp.vdot(leaf, leaf) for leaf in moved])
        return (squares, [a | (b != 0) for a, b in zip(seen, moved, strict=True)], key), None

    leaves = jax.tree.leaves(params)
    start = (jnp.zeros(len(leaves)), [jnp.zeros(np.shape(a), bool) for a in leaves], key)
    (squares, seen, _), _ = jax.lax.scan(one, start, x)
    return squares, sum((~a).sum() for a in seen)


@lru_cache(maxsize=64)
def _operations(f: Model, params: Signature, x: Signature) -> float:
    """The floating-point operations that XLA counts in `f` at arguments of these shapes."""
    lowered = evaluate.lower(f, params.structs(), x.structs())
    return float((lowered.cost_analysis() or {}).get("flops", 0.0))


def _multiplications(program: Program, node: Node) -> int:
    """Each entry of the output takes as many as the kernel has for one of its channels."""
    kernel = program.values[node.inputs[1]].shape
    channels = kernel[node.options["dimension_numbers"].rhs_spec[0]]
    return math.prod(program.values[node.outputs[0]].shape) * math.prod(kernel) // channels


def wide_leaf(leaf: Any) -> Any:
    """Reals in float64, other arrays as they are."""
    return np.asarray(leaf, np.float64 if is_floating(leaf) else None)


def _wide(leaf: Any) -> jax.ShapeDtypeStruct:
    """Its shape, reals in float64."""
    return jax.ShapeDtypeStruct(
        np.shape(leaf), np.float64 if is_floating(leaf) else np.asarray(leaf).dtype
    )


def exact_bytes(rows: int, shapes: Sequence[tuple[int, ...]]) -> int:
    """What the exact rank keeps: three matrices with as many columns as the smaller side of J and
    the random tensors of a sketch,
    or five copies of J."""
    columns = sum(math.prod(shape) for shape in shapes)
    m, sides = min(rows, columns), sum(map(sum, shapes))
    return 8 * min(3 * rows * m + 2 * m * sides, 5 * rows * columns)


def default_samples(
    outputs: int, shapes: Sequence[tuple[int, ...]], budget: int, most_rows: int = MOST_ROWS
) -> int:
    """How many samples are looked at when nobody says: up to so many rows of the Jacobian, fewer
    where the budget is small.
    """
    counts = range(1, max(1, most_rows // outputs) + 1)
    fitting = bisect_right(counts, budget, key=lambda n: exact_bytes(n * outputs, shapes))
    return max(1, fitting)


def thin(tree: Any, samples: int) -> Any:
    """That many samples, evenly spaced, the first one among them."""
    n = leading_axis(tree)
    return tree if samples >= n else jax.tree.map(lambda a: a[chosen_samples(n, samples)], tree)


def chosen_samples(n: int, samples: int) -> np.ndarray:
    """Which of n samples are taken, evenly spaced."""
    return np.arange(samples) * n // samples
