"""All linear regions of a small network, enumerated by splitting cells unit by unit.

Where the units before it are decided, the quantity that decides a unit is affine in the input. A
cell (a polyhedron on which the first k units are decided) is cut by the next one if its hyperplane
meets the interior, which a linear program answers. What remains after the last unit are the
activation regions.   [Hanin & Rolnick 2019; Serra, Tjandraatmadja & Ramalingam 2018]
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.graph import Graph, trace
from neuromanifold.graph.numbers import Rationals
from neuromanifold.graph.walk import walk
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import arithmetic, is_floating
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import check_params, refuse_tracers, sample_arrays
from neuromanifold.regions.decisions import decide
from neuromanifold.regions.patterns import pattern_columns, require_piecewise_linear

_SOLVED = 1e-10
_FLAT = 1e-12  # of the largest row: a quantity that does not depend on the input in a cell
_AT_ONCE = 256


@dataclass(frozen=True, eq=False, repr=False)
class LinearRegions(Result):
    """The activation regions of a network on a domain, and how certain their number is.

    Each has its row of `patterns` (columns as in `nm.activation_patterns`), one of its interior
    `points`, the `radii` of a ball around it in the region (at most 1 where no domain was given),
    and whether it is `bounded`. Exact arithmetic has confirmed every point's pattern, away from
    every boundary, so that `lower` regions exist. Cells that a linear program found empty by more
    than its tolerance are left out; `thin` counts those nearer to that, for which no exact proof
    was found either. `upper` adds what these, and those that `limit` left unopened, can hold.
    """

    patterns: Array
    points: Array
    radii: Array
    bounded: Array
    upper: int
    thin: int
    programs: int

    @property
    def lower(self) -> int:
        """How many were found and confirmed."""
        return len(self.patterns)

    @property
    def exact(self) -> bool:
        """Whether both bounds are one number."""
        return self.lower == self.upper

    @property
    def count(self) -> int:
        """The number of regions, where it is known."""
        if not self.exact:
            raise ValueError(
                f"the number is between {self.lower:,} and {self.upper:,}; read `.lower` and "
                "`.upper`, or pass a larger `limit`."
            )
        return self.lower

    def headline(self) -> str:
        """Return how many there are."""
        if not self.exact:
            thin = f", {self.thin} cells too thin to decide" if self.thin else ""
            return f"between {self.lower:,} and {self.upper:,} regions{thin}"
        bounded = int(np.sum(self.bounded))
        inside = "" if bounded == self.lower else f", {bounded:,} of them bounded"
        return f"{self.lower:,} regions{inside}"


@follows
def enumerate_regions(
    f: Model, params: Params, *, x: Samples | None = None, domain: Any = None, limit: int = 10_000
) -> LinearRegions:
    """Return all activation regions of `f_θ` on the whole input space, or on the box `domain=(low,
    high)`.

    Two inputs share a region when every unit agrees on them; regions are convex, and f is affine on
    each. Full-dimensional regions count. For networks of switches (relu, leaky_relu, abs, clamps)
    and linear operations, from one array of real inputs; `x`, whose shape alone is read, is needed
    where f is no `nm.MLP`. The search stops when it has `limit` cells; bounds remain. The number of
    regions grows like (units)^inputs. Found regions are confirmed by exact arithmetic; that there
    are no others rests on linear programs solved to 1e-10 (normals below 1e-12 of the largest count
    as zero), and on exact proofs where they come within ten times that.

    >>> net = nm.MLP((2, 3, 1))              # three lines in the plane in general position
    >>> first = nm.Layer(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([0.0, 0.0, -1.0]))
    >>> params = (first, nm.Layer(np.ones((1, 3)), np.zeros(1)))
    >>> found = nm.regions.enumerate_regions(net, params)
    >>> found.count, int(found.bounded.sum())
    (7, 1)
    """
    refuse_tracers((params, x), "`enumerate_regions`")
    check_params(params)
    if not isinstance(limit, int) or limit < 1:
        raise ValueError(f"`limit` is {limit!r}; pass a whole number of cells, 1 or more.")
    x = _sample(f, x)
    with arithmetic():
        check_arguments(f, params, x)
    graph = trace(f, params, x)
    require_piecewise_linear(graph)
    _require_switches(graph)
    sides = _sides(domain, graph)
    leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(params))
    return _Search(f, graph, leaves, sides, limit).found()


def _sample(f: Model, x: Any) -> Any:
    if x is None:
        if (net := perceptron(f)) is None:
            raise TypeError(
                "`x` is None; pass a sample: what a network other than an nm.MLP takes cannot be "
                "read from its parameters."
            )
        x = np.zeros((1, net.widths[0]))
    x = sample_arrays(x)
    if len(jax.tree.leaves(x)) != 1 or not is_floating(jax.tree.leaves(x)[0]):
        raise TypeError("`x` is no array of real numbers; regions are sought in one such space.")
    return x


def _require_switches(graph: Graph) -> None:
    for units in graph.units:
        if not units.switches or not units.exact:
            raise ValueError(
                f"`f` has {units.operation} over several candidates ({units.name}), and regions "
                "are enumerated for switches; use relu, leaky_relu, abs and linear layers."
            )


def _sides(domain: Any, graph: Graph) -> tuple[np.ndarray, np.ndarray] | None:
    if domain is None:
        return None
    if not isinstance(domain, tuple) or len(domain) != 2:
        raise TypeError(
            f"`domain` is a {type(domain).__name__}; pass a pair (low, high) of numbers or of "
            "arrays in the shape of one sample."
        )
    shape = jax.tree.leaves(graph.sample)[0].shape
    try:
        low, high = (np.broadcast_to(np.asarray(a, np.float64), shape).ravel() for a in domain)
    except ValueError:
        raise ValueError(
            f"`domain` has arrays of shapes {[np.shape(a) for a in domain]}; one sample has "
            f"{shape}: pass numbers or arrays of that shape."
        ) from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise ValueError(
            "`domain` has a lower bound that is not below the upper one, or no finite number; pass "
            "(low, high)."
        )
    return low, high


@dataclass(frozen=True, eq=False)
class _Cell:
    """A polyhedron {x : rows·x + offsets > 0}, the rows of length 1, on which the first gates are
    decided, with a ball in it. `asked` says which decision each row is (−1 − k: side k of the
    domain), `signs` on which side of it the cell is.
    """

    gates: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray
    asked: np.ndarray
    signs: np.ndarray
    point: np.ndarray
    radius: float

    def beyond(self, unit: int, row: np.ndarray, offset: float, on: bool) -> "_Cell":
        """The part on one side of a hyperplane, still with the old ball."""
        sign = 1.0 if on else -1.0
        gates = self.gates.copy()
        gates[unit] = on
        return replace(
            self,
            gates=gates,
            rows=np.concatenate([self.rows, sign * row[None]]),
            offsets=np.append(self.offsets, sign * offset),
            asked=np.append(self.asked, unit),
            signs=np.append(self.signs, sign),
        )


class _Ball:
    """The largest ball in a polyhedron: its centre and radius (negative: by how much the sides miss
    each other), and the multipliers that prove it largest; at most 1 where nothing bounds it.
    """

    def __init__(self, rows: np.ndarray, offsets: np.ndarray, largest: float):
        from scipy.optimize import linprog

        n = rows.shape[1]
        solved = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.concatenate([-rows, np.ones((len(rows), 1))], axis=1),
            b_ub=offsets,
            bounds=[(None, None)] * n + [(None, largest)],
            method="highs",
            options={"primal_feasibility_tolerance": _SOLVED, "dual_feasibility_tolerance": _SOLVED},
        )  # fmt: skip
        self.known = solved.status == 0
        self.centre = solved.x[:n] if self.known else np.zeros(n)
        self.radius = float(solved.x[n]) if self.known else 0.0
        self.multipliers = -solved.ineqlin.marginals if self.known else np.zeros(len(rows))


@dataclass(eq=False)
class _Search:
    """Cells level by level: a level is the units of one bend, which do not depend on each other."""

    f: Model
    graph: Graph
    leaves: tuple[np.ndarray, ...]
    sides: tuple[np.ndarray, np.ndarray] | None
    limit: int
    solved: int = 0
    thin: int = 0
    hidden: int = 0
    whole: list[_Cell] = field(default_factory=list[_Cell])

    def __post_init__(self) -> None:
        self.ends = np.cumsum([0, *(units.size for units in self.graph.units)]).tolist()
        self.n = math.prod(self.shape)
        size = 1.0 if self.sides is None else float(max(1.0, *map(np.max, map(np.abs, self.sides))))
        self.tolerance = 10 * _SOLVED * size
        self.largest = 1.0 if self.sides is None else np.inf

    @property
    def shape(self) -> tuple[int, ...]:
        return jax.tree.leaves(self.graph.sample)[0].shape

    def found(self) -> LinearRegions:
        cells = [self._start()]
        for level in range(len(self.graph.units)):
            cells = self._open_cells(cells, level)
        return self._confirm([self._centre(cell) for cell in [*self.whole, *cells]])

    def _start(self) -> _Cell:
        none = np.zeros(0)
        rows, offsets, asked = np.zeros((0, self.n)), none, np.zeros(0, int)
        point, radius = np.zeros(self.n), 1.0
        if self.sides is not None:
            low, high = self.sides
            rows = np.concatenate([np.eye(self.n), -np.eye(self.n)])
            offsets, asked = np.concatenate([-low, high]), -1 - np.arange(2 * self.n)
            point, radius = (low + high) / 2, float((high - low).min() / 2)
        gates = np.zeros(self.ends[-1], bool)
        return _Cell(gates, rows, offsets, asked, np.ones(len(rows)), point, radius)

    def _open_cells(self, cells: list[_Cell], level: int) -> list[_Cell]:
        """The cells cut by all units of a level. At the limit they stay whole from now on: each
        holds one region or more, and at most as many as its missing hyperplanes can make.
        """
        found: list[_Cell] = []
        for start in range(0, len(cells), _AT_ONCE):
            part = cells[start : start + _AT_ONCE]
            maps = self._affine(np.array([cell.gates for cell in part]), level)
            for k, (cell, rows, offsets) in enumerate(zip(part, *maps, strict=True)):
                if len(self.whole) + len(found) + len(cells) - start - k >= self.limit:
                    self.hidden += self._most(level, 0) - 1
                    self.whole.append(cell)
                else:
                    found += self._cut(cell, level, rows, offsets)
        return found

    def _cut(self, cell: _Cell, level: int, rows: np.ndarray, offsets: np.ndarray) -> list[_Cell]:
        lengths = np.linalg.norm(rows, axis=1)
        flat = lengths <= _FLAT * max(1.0, lengths.max(initial=0.0))
        cells = [cell]
        for j, (row, offset, length) in enumerate(zip(rows, offsets, lengths, strict=True)):
            unit = self.ends[level] + j
            if flat[j]:
                for each in cells:
                    each.gates[unit] = offset > 0
                continue
            halves = [self._halves(c, unit, row / length, offset / length, level, j) for c in cells]
            cells = [half for pair in halves for half in pair]
        return cells

    def _halves(
        self, cell: _Cell, unit: int, row: np.ndarray, offset: float, level: int, j: int
    ) -> Iterator[_Cell]:
        """The parts of a cell on both sides of a hyperplane that have an interior."""
        height = float(row @ cell.point + offset)
        for on in (True, False):
            part, above = cell.beyond(unit, row, offset, on), height if on else -height
            if abs(above) < 0.8 * cell.radius:  # the hyperplane cuts the ball
                step = (cell.radius - above) / 2 * (1.0 if on else -1.0)
                yield replace(part, point=cell.point + step * row, radius=(cell.radius + above) / 2)
            elif above > 0:
                yield replace(part, radius=min(cell.radius, above))
            else:
                self.solved += 1
                ball = _Ball(part.rows, part.offsets, self.largest)
                if ball.known and ball.radius > self.tolerance:
                    yield replace(part, point=ball.centre, radius=ball.radius)
                elif not self._is_empty(part, ball, level):
                    self.thin += 1
                    self.hidden += self._most(level, j + 1)

    def _centre(self, cell: _Cell) -> _Cell:
        """The cell with its largest ball: halving made it smaller than it could be."""
        if not len(cell.rows):
            return cell
        self.solved += 1
        ball = _Ball(cell.rows, cell.offsets, self.largest)
        larger = ball.known and ball.radius > cell.radius
        return replace(cell, point=ball.centre, radius=ball.radius) if larger else cell

    def _most(self, level: int, cut: int) -> int:
        """How many regions a cell can hold: each later level is an arrangement of hyperplanes,
        Σ_{i ≤ n} C(m, i) cells for m of them in n dimensions.
        """
        sizes = [units.size for units in self.graph.units[level:]]
        sizes[0] -= cut
        return math.prod(sum(math.comb(m, i) for i in range(self.n + 1)) for m in sizes)

    def _affine(self, gates: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows and offsets of a level's quantities in cells, by their gates."""
        padded = np.concatenate([gates, np.zeros((_AT_ONCE - len(gates), self.ends[-1]), bool)])
        with arithmetic():
            leaves = [np.asarray(leaf, np.float64) for leaf in self.leaves]
            found = _quantities(self.graph, leaves, self._split(padded))
        own = slice(self.ends[level], self.ends[level + 1])
        rows, offsets = (np.asarray(part)[: len(gates), own] for part in found)
        return rows, offsets

    def _split(self, gates: np.ndarray) -> list[np.ndarray]:
        """Flat gates, as one array for each bend."""
        parts = np.split(gates, self.ends[1:-1], axis=1) if self.graph.units else []
        return [part.reshape(len(gates), *units.shape)
                for part, units in zip(parts, self.graph.units, strict=True)]  # fmt: skip

    def _is_empty(self, cell: _Cell, ball: _Ball, level: int) -> bool:
        """Whether a cell has no interior: clearly by the linear program, or by proof. Proved it is
        where rational numbers λ ≥ 0, not all zero, have Σ λ_j a_j = 0 and Σ λ_j c_j ≤ 0 for
        sides a_j·x + c_j > 0 of the cell, which then has no point [Motzkin]; a's and c's as the
        floats mean them. The linear program says which sides to try.
        """
        import flint

        if ball.known and ball.radius <= -self.tolerance:
            return True
        chosen = np.flatnonzero(ball.multipliers > _SOLVED)
        A, c = self._rational(cell, level, chosen)
        null, pivots = _null_vector(flint.fmpq_mat(A)) if A else (None, 0)
        if null is None or pivots != len(chosen) - 1:
            return False
        if all(v <= 0 for v in null):
            null = [-v for v in null]
        return all(v >= 0 for v in null) and sum(v * o for v, o in zip(null, c, strict=True)) <= 0

    def _rational(self, cell: _Cell, level: int, chosen: np.ndarray) -> tuple[Any, Any]:
        """The chosen sides exactly: columns of A, and c. Affine functions are known by their values
        at 0 and at unit vectors.
        """
        A = Rationals()
        points = np.concatenate([np.zeros((1, self.n)), np.eye(self.n)]).reshape(-1, *self.shape)
        gates = self._split(np.repeat(cell.gates[None], self.n + 1, axis=0))
        program = programs.exact_quantities(self.graph, self.n + 1)
        values = walk(program, A, [*map(A.lift, self.leaves), A.lift(points), *gates])
        flat = np.concatenate([v.reshape(self.n + 1, -1) for v in values[: level + 1]], axis=1)
        rows, offsets = [], []
        for j in chosen:
            if cell.asked[j] >= 0:
                first, *others = (int(cell.signs[j]) * v for v in flat[:, cell.asked[j]])
                rows.append([v - first for v in others])
            else:
                [first] = A.lift(cell.offsets[j : j + 1])
                rows.append(A.lift(cell.rows[j]).tolist())
            offsets.append(first)
        return [list(column) for column in zip(*rows, strict=True)], offsets

    def _confirm(self, cells: Sequence[_Cell]) -> LinearRegions:
        """The regions of the cells' points by exact arithmetic; a cell whose gates are others, or
        whose point lies on a boundary, is thin.
        """
        points = np.array([cell.point for cell in cells]).reshape(-1, *self.shape)
        sample = jax.tree.unflatten(jax.tree.structure(self.graph.sample), [points])
        found = decide(self.graph, list(self.leaves), sample)
        kept, seen = [], set[bytes]()
        for k, cell in enumerate(cells):
            name = b"".join(gate[k].tobytes() for gate in found.gates)
            ties = np.concatenate([np.zeros(0, bool), *(tie[k].ravel() for tie in found.ties)])
            if name in seen or ties[cell.asked[cell.asked >= 0]].any():
                self.thin += 1
                self.hidden += 1
            else:
                seen.add(name)
                kept.append(k)
        taken = found.take(np.array(kept, int))
        columns = pattern_columns(self.f, self.graph, taken.gates, len(kept))
        patterns = np.concatenate(columns, axis=1)
        return LinearRegions(
            patterns=patterns,
            points=points[kept],
            radii=np.array([cells[k].radius for k in kept]),
            bounded=np.array([self._is_bounded(cells[k]) for k in kept]),
            upper=len(kept) + self.hidden,
            thin=self.thin,
            programs=self.solved,
        )

    def _is_bounded(self, cell: _Cell) -> bool:
        """Whether no direction d ≠ 0 has rows·d ≥ 0, by a linear program."""
        if self.sides is not None:
            return True
        if np.linalg.matrix_rank(cell.rows) < self.n:
            return False
        from scipy.optimize import linprog

        self.solved += 1
        solved = linprog(
            -cell.rows.sum(axis=0), A_ub=-cell.rows, b_ub=np.zeros(len(cell.rows)),
            bounds=[(-1.0, 1.0)] * self.n, method="highs",
        )  # fmt: skip
        return bool(-solved.fun <= 1e-9)


@partial(jax.jit, static_argnums=0)
def _quantities(graph: Graph, leaves: Any, gates: Any) -> tuple[Any, Any]:
    """The gradient by the input, and the value at 0, of what every decision is about, with gates
    held.
    """
    params = jax.tree.unflatten(jax.tree.structure(graph.params), leaves)
    structure = jax.tree.structure(graph.sample)
    zero = jnp.zeros(jax.tree.leaves(graph.sample)[0].shape)

    def flat(x: Any, gates: Any) -> Any:
        found = graph.quantities(params, structure.unflatten([x]), gates)
        return jnp.concatenate([q.reshape(-1) for q in found])

    def one(gates: Any) -> tuple[Any, Any]:
        rows = jax.jacfwd(flat)(zero, gates)
        return rows.reshape(rows.shape[0], -1), flat(zero, gates)

    return jax.vmap(one)(gates)


def _null_vector(matrix: Any) -> tuple[list[Any] | None, int]:
    """A vector of the kernel where it is a line, by FLINT's reduced echelon form, and the rank."""
    reduced, rank = matrix.rref()
    columns = reduced.ncols()
    if rank != columns - 1:
        return None, rank
    pivots = [next(j for j in range(columns) if reduced[i, j] != 0) for i in range(rank)]
    [free] = set(range(columns)) - set(pivots)
    null = [reduced[0, 0] * 0] * columns
    null[free] = null[free] + 1
    for i, j in enumerate(pivots):
        null[j] = -reduced[i, free]
    return null, rank
