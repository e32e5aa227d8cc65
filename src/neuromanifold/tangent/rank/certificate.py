"""Exact functional dimension, and the certificate that says why it is right."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from neuromanifold.graph import programs
from neuromanifold.graph.arithmetic import Arithmetic
from neuromanifold.graph.dataflow import forward
from neuromanifold.graph.program import Node, Program
from neuromanifold.graph.selection import Selection, select
from neuromanifold.graph.walk import walk
from neuromanifold.models.arguments import Model, Params, Samples
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import Echelon, echelon, minor_spans, modular_rank
from neuromanifold.numerics.rank import Certificate, Rank, exact_rank
from neuromanifold.regions.problem import Problem
from neuromanifold.runtime.files import write_text
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.tangent.rank.generators import generator_count, generators, rational_generators

_GENERATOR_ENTRIES, _SMALL_JACOBIAN = 2**23, 2**26
_FIRST_SKETCH, _GROWTH = 64, 8
_SLOW, _FAST = 8e-9, 1e-10
"""Seconds for an entrywise product of residues, and for a multiplication inside a matrix
product.
"""

_IN_WORDS = {
    "full rank": "proved: no matrix of this shape has more",
    "kernel vectors": "proved: symmetries account for all the rest",
    "regions": "proved: the samples in each linear region allow no more",
    "primes": "proved: enough primes agree",
}


class JacobianCertificate(Certificate):
    """Why the rank of J is `rank`.

    Lower bound: the rank modulo `prime` is `rank`, and reduction never raises a rank; `rows` and
    `columns` name a minor that is invertible modulo the prime (absent where a sketch was taken).
    `witness` names the parameters whose columns alone have this rank, where no others were needed.
    Upper bound: `reason` is one of `"full rank"`, `"kernel vectors"` (structurally zero columns and
    symmetry generators span the rest), `"regions"` (rows of one linear region are affinely
    dependent), `"primes"` (so many primes agree that Hadamard's bound forces it), each a proof, or
    `"probability"`: the prime was drawn at random and a larger rank escapes it with at most
    `failure_probability`.

    `kinks` lists (sample, units, index) where a bend is met exactly and f_θ is not differentiable;
    J is taken on one side. `ties` counts bends met exactly where both sides are the same function
    of θ. `escalated` samples needed ball arithmetic. `rounded` lists what was computed once in
    float64 from constants alone: the only numbers that are not what f's text says.
    """

    rank: int = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    failure_probability: float = eqx.field(static=True)
    kinks: tuple[tuple[int, int, int], ...] = eqx.field(static=True)
    ties: int = eqx.field(static=True)
    escalated: int = eqx.field(static=True)
    sketched: bool = eqx.field(static=True)
    rounded: tuple[str, ...] = eqx.field(static=True)
    wrt: tuple[str, ...] | None = eqx.field(static=True)
    witness: tuple[str, ...] = eqx.field(static=True)
    fingerprint: str = eqx.field(static=True)
    problem: Problem = eqx.field(static=True, repr=False)

    @property
    def most(self) -> int:
        """The smaller side of the Jacobian."""
        return min(self.shape)

    @property
    def proved(self) -> bool:
        """Whether the upper bound is a proof and not a probability."""
        return self.failure_probability == 0.0

    def verify(self, net: Model, params: Params, x: Samples) -> bool:
        """Recompute by another prime and another route: bends by ball arithmetic alone, J by
        forward products.

        False when network, parameters or data are not those of the certificate, or a claim about
        them differs. Not recomputed: which rows and columns have the minor (their number is looked
        at), and how many samples needed balls.
        """
        problem = Problem.of(net, params, x, wrt=self.wrt, balls_only=True)
        if problem.fingerprint != self.fingerprint or not self._describes(problem):
            return False
        p, part = modular.random_prime(), problem
        if self.witness:
            part = problem.wrt(select(params, self.witness))
        columns = part.shape[1]
        directions = modular.random_residues((min(self.rank + 1, columns), columns), p)
        agrees = modular_rank(part.products(p, directions), p) == self.rank
        return agrees and self._upper_bound_holds(problem, p)

    def _describes(self, problem: Problem) -> bool:
        """Whether all that is said beside the rank is so."""
        said = (self.shape, self.kinks, self.ties, self.rounded)
        true = (problem.shape, problem.decisions.places, _ties(problem), _list_rounded(problem))
        # A sketch mixes the columns, so the minor found in it names rows alone.
        square = len(self.columns) == (0 if self.sketched else len(self.rows))
        minor = square and len(self.rows) <= self.rank <= min(problem.shape)
        return said == true and minor and modular.is_prime(self.prime)

    def save(self, path: str | Path) -> Path:
        """Write network, numbers and claims to `path`, a JSON file that `tools/check_certificate.py`
        re-checks without this library.

        For small problems: J is written out as instructions on flat arrays of exact numbers, at
        most 2·10⁷ entries.
        """
        p = modular.random_prime()
        found = echelon(self.problem.residues(p), p)
        kernel = _rational_kernel(self.problem) if self.reason == "kernel vectors" else []
        claims = Claims(
            self.rank, p, found.rows, found.columns, self.reason, self.failure_probability, kernel
        )
        return save(path, self.problem, claims)

    def _upper_bound_holds(self, problem: Problem, p: int) -> bool:
        if self.reason == "probability":
            return self.failure_probability >= problem.failure_probability(self.sketched)
        if not self.proved:
            return False
        if self.reason == "full rank":
            return self.rank == min(self.shape)
        if self.reason == "regions":
            return problem.graph.piecewise_linear and problem.region_bound() == self.rank
        if self.reason == "kernel vectors":
            free, fields = problem.zero_columns, generators(problem, p)
            weights = modular.random_residues((1, len(fields)), p)
            unit = modular.random_residues((1, len(free)), p) * free
            vector = modular.add(unit, modular.matmul(weights, fields, p), p)
            nullity = int(free.sum()) + modular_rank(fields[:, ~free], p)
            return nullity == self.shape[1] - self.rank and not problem.products(p, vector).any()
        return self.reason == "primes"

    def __str__(self) -> str:
        upper = _IN_WORDS.get(self.reason, f"failure probability ≤ {self.failure_probability:.1g}")
        kinks = f", {len(self.kinks)} kinks met exactly" if self.kinks else ""
        rounded = f", up to {' and '.join(self.rounded)} in float64" if self.rounded else ""
        by = f", by the columns of {_shorten(self.witness)}" if self.witness else ""
        return f"exact, {upper}{by}{kinks}{rounded}{', sketched' if self.sketched else ''}"


def _shorten(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]} ({len(names)} tensors)"
    )


def certify(problem: Problem, *, prove: bool) -> Rank:
    """The exact rank of J, with its certificate."""
    certificate = certify_rank(problem, prove=prove)
    return exact_rank(certificate.rank, certificate)


def certify_rank(problem: Problem, *, prove: bool) -> JacobianCertificate:
    """The rank of J at float parameters and float data, exactly.

    The last layers are asked first. Then a short prime: its rank is a lower bound, and often one
    that full rank, regions or symmetries prove to be the rank. Otherwise a random prime of 61 bits,
    with the probability that it hides a larger rank, or as many as prove it.
    """
    found = by_last_layers(problem)
    return found if found is not None else by_all_columns(problem, prove=prove)


def by_all_columns(problem: Problem, *, prove: bool) -> JacobianCertificate:
    """The rank of J without asking the last layers first; where a proof has to be looked for,
    leaves without effect on the sample are left out.
    """
    sketching = not prove and _is_wide(problem)
    p = modular.random_prime(bits=modular.SMALL_BITS)
    found = _reduce(problem, p, sketching)
    if reason := _proof(problem, found.rank):
        return _certificate(problem, p, found, reason, 0.0, sketching)
    part, p = _with_effect(problem), modular.random_prime()
    if part is problem:
        found = _by_long_prime(problem, p, found, sketching)
    else:
        sketching = not prove and _is_wide(part)
        found = _reduce(part, p, sketching)
    reason, probability = _proof(problem, found.rank), 0.0
    if not reason and prove:
        found, reason = _over_enough_primes(part, found), "primes"
    elif not reason:
        reason, probability = "probability", problem.failure_probability(sketching)
    found = found._replace(columns=_in_the_whole(problem.chosen, part.chosen, found))
    names = () if part is problem else part.chosen.names
    return _certificate(problem, p, found, reason, probability, sketching, names)


def _with_effect(problem: Problem) -> Problem:
    """The problem without the leaves whose columns all vanish because no open path runs through
    them, as behind and before a dead layer; the problem itself where there are none, or J is large.
    """
    if math.prod(problem.shape) > _SMALL_JACOBIAN or not problem.zero_columns.any():
        return problem
    ends = np.cumsum(problem.chosen.sizes)[:-1]
    closed = [part.all() for part in np.split(problem.zero_columns, ends)]
    kept = [i for i, shut in zip(problem.chosen.leaves, closed, strict=True) if not shut]
    if not kept or len(kept) == len(closed):
        return problem
    return problem.wrt(_only(problem.chosen, kept))


def _certificate(
    problem: Problem,
    p: int,
    found: Echelon,
    reason: str,
    probability: float,
    sketched: bool,
    witness: tuple[str, ...] = (),
) -> JacobianCertificate:
    decisions = problem.decisions
    return JacobianCertificate(
        rank=found.rank,
        shape=problem.shape,
        prime=p,
        rows=found.rows,
        columns=found.columns,
        reason=reason,
        failure_probability=probability,
        kinks=decisions.places,
        ties=_ties(problem),
        escalated=decisions.escalated,
        sketched=sketched,
        rounded=_list_rounded(problem),
        wrt=None if len(problem.chosen.leaves) == len(problem.leaves) else problem.chosen.names,
        witness=witness,
        fingerprint=problem.fingerprint,
        problem=problem,
    )


def _ties(problem: Problem) -> int:
    """How many bends are met exactly where both sides are the same function."""
    found = zip(problem.decisions.ties, problem.decisions.kinks, strict=True)
    return int(sum((tie & ~kink).sum() for tie, kink in found))


def _list_rounded(problem: Problem) -> tuple[str, ...]:
    """What was computed once in float64."""
    return problem.graph.program.rounded


def by_last_layers(problem: Problem) -> JacobianCertificate | None:
    """The rank of a wide J where the columns of some last layers prove that it is its number of
    rows; nothing elsewhere.

    rank J = rows if rank J_S = rows for the columns S of some leaves. S is first as few of the last
    leaves as have so many columns, which need no derivative of the layers before them; then twice
    as many leaves, as long as these are at most half of all.
    """
    rows, columns = problem.shape
    if rows > columns or not _is_wide(problem):
        return None
    order, p = _last_first(problem), modular.random_prime(bits=modular.SMALL_BITS)
    sizes = dict(zip(problem.chosen.leaves, problem.chosen.sizes, strict=True))
    count = 1 + int(np.searchsorted(np.cumsum([sizes[i] for i in order]), rows))
    while count <= max(1, len(order) // 2):
        part = problem.wrt(_only(problem.chosen, order[:count]))
        sketching = _is_wide(part)
        found = _reduce(part, p, sketching)
        if found.rank == rows:
            found = found._replace(columns=_in_the_whole(problem.chosen, part.chosen, found))
            return _certificate(problem, p, found, "full rank", 0.0, sketching, part.chosen.names)
        count *= 2
    return None


def _in_the_whole(whole: Selection, part: Selection, found: Echelon) -> tuple[int, ...]:
    """Where the columns that were found among those of some leaves are among all."""
    starts = dict(zip(whole.leaves, np.cumsum([0, *whole.sizes]), strict=False))
    mine = zip(part.leaves, part.sizes, strict=True)
    places = np.concatenate([starts[i] + np.arange(size) for i, size in mine])
    return tuple(int(k) for k in places[list(found.columns)])


def _only(chosen: Selection, leaves: Sequence[int]) -> Selection:
    rows = zip(chosen.leaves, chosen.names, chosen.sizes, strict=True)
    return Selection(*zip(*(row for row in rows if row[0] in leaves), strict=True))


def _last_first(problem: Problem) -> list[int]:
    """The leaves that count in the order of their last use, the last one first; without those that
    are not used.
    """
    program, last = problem.graph.program, dict[int, int]()

    def transfer(node: Node, given: list[frozenset[int]]) -> list[frozenset[int]]:
        carried = frozenset[int]().union(*given)
        if not node.primitive.carries:
            last.update(dict.fromkeys(carried, next(count)))
            carried = frozenset()
        return [carried] * len(node.outputs)

    count = itertools.count()
    known = {program.inputs[i]: frozenset((i,)) for i in problem.chosen.leaves}
    forward(program, known, lambda i: frozenset(), transfer)
    return sorted(last, key=lambda i: -last[i])


def _is_wide(problem: Problem) -> bool:
    """Whether a sketch of J is cheaper than J, or J is too large to be formed."""
    return _sketch_is_faster(problem) or _is_too_large(problem)


def _sketch_is_faster(problem: Problem) -> bool:
    """By counting: forming and eliminating J against products with random tensors and
    eliminating a square.
    """
    rows, columns = problem.shape
    m = min(rows, columns)
    dense = rows * columns * (_SLOW + m * _FAST)
    sketch = (
        problem.sketch_operations(m) * _FAST + problem.samples * problem.sketch_entries(m) * _SLOW
    )
    return dense > sketch + rows * m * (_SLOW + m * _FAST)


def _is_too_large(problem: Problem) -> bool:
    """Whether J and its elimination, about five copies of it, exceed the budget."""
    rows, columns = problem.shape
    return 5 * 8 * rows * columns > memory_budget(problem.budget)


def _reduce(problem: Problem, p: int, sketching: bool) -> Echelon:
    """The rank modulo p of J, or of sketches of it with more and more columns until one has fewer
    independent columns than it has: with high probability that is the rank of J then.
    """
    if not sketching:
        return echelon(problem.residues(p), p)
    most = min(problem.shape)
    columns = min(_FIRST_SKETCH, most)
    while True:
        matrix, rows_are_those_of_J = problem.sketch(p, columns=columns)
        found = echelon(matrix, p)
        if found.rank < columns or columns == most:
            return Echelon(found.rank, found.rows if rows_are_those_of_J else (), ())
        columns = min(_GROWTH * columns, most)


def _by_long_prime(problem: Problem, p: int, found: Echelon, sketching: bool) -> Echelon:
    """The rank modulo a long prime: that of a minor found already where all else depends on it,
    else by elimination.
    """
    if sketching:
        return max(found, _reduce(problem, p, sketching), key=lambda echelon: echelon.rank)
    J = problem.residues(p)
    if minor_spans(J, found.rows, found.columns, p):
        return found
    return max(found, echelon(J, p), key=lambda form: form.rank)


def _proof(problem: Problem, rank: int) -> str:
    """Why the rank is no larger, where that can be proved; else nothing."""
    if rank == min(problem.shape):
        return "full rank"
    if problem.graph.piecewise_linear and problem.region_bound() == rank:
        return "regions"
    return "kernel vectors" if _kernel_meets(problem, rank) else ""


def _kernel_meets(problem: Problem, rank: int) -> bool:
    """Whether unit vectors of structurally zero columns and symmetry generators span a space of
    dimension D − rank.
    """
    columns = problem.shape[1]
    if math.prod(problem.shape) > _SMALL_JACOBIAN:
        return False
    free = problem.zero_columns
    nullity, count = columns - rank, generator_count(problem)
    entries = count * (columns - free.sum())
    if free.sum() + count < nullity or max(entries, count * columns / 16) > _GENERATOR_ENTRIES:
        return False
    # A short prime that makes the rank too small, once in hundreds of times, is not met twice.
    primes = (modular.random_prime(bits=modular.SMALL_BITS) for _ in range(2))
    ranks = (modular_rank(generators(problem, p)[:, ~free], p) for p in primes)
    return any(int(free.sum()) + rank == nullity for rank in ranks)


def _rational_kernel(problem: Problem) -> list[dict[int, Fraction]]:
    """The nonzero entries of the kernel vectors, without vectors that depend on those before."""
    p, free = modular.random_prime(), problem.zero_columns
    kept, vectors = echelon(generators(problem, p)[:, ~free], p).rows, rational_generators(problem)
    units = [{int(k): Fraction(1)} for k in np.flatnonzero(free)]
    return [*units, *(vectors[i] for i in sorted(kept))]


def _over_enough_primes(problem: Problem, found: Echelon) -> Echelon:
    """The largest rank over so many primes that no nonzero minor could vanish modulo all of
    them.
    """
    needed = math.floor(problem.minor_bits() / 60) + 1
    primes: set[int] = set()
    while len(primes) < needed:
        p = modular.random_prime()
        if p in primes:
            continue
        primes.add(p)
        matrix = problem.residues(p)
        if modular_rank(matrix, p) > found.rank:
            found = echelon(matrix, p)
    return found


OPERATIONS = ("number", "gather", "add", "negate", "multiply", "divide", "dot", "sum", "scatter")


class ListedArray(NamedTuple):
    """The array that an instruction makes: its number in the list, and its shape."""

    index: int
    shape: tuple[int, ...]


class Listing(Arithmetic):
    """Collects `instructions`: lists [operation, arguments, details…], where arguments are
    numbers of earlier instructions.
    """

    name = "instructions"

    def __init__(self) -> None:
        self.instructions: list[list[Any]] = []

    def _add(self, shape: tuple[int, ...], *instruction: Any) -> ListedArray:
        self.instructions.append(list(instruction))
        return ListedArray(len(self.instructions) - 1, tuple(int(n) for n in shape))

    def lift(self, a: np.ndarray) -> ListedArray:
        """Numbers as hexadecimal floats, which are exact, or as integers."""
        flat = np.asarray(a).ravel()
        shown = (
            [int(v) for v in flat] if flat.dtype.kind in "iub" else [float(v).hex() for v in flat]
        )
        return self._add(np.shape(a), "number", shown)

    def rearrange(self, fn: Callable[..., np.ndarray], *values: ListedArray) -> ListedArray:
        starts = np.cumsum([1, *(math.prod(v.shape) for v in values)])
        places = fn(
            *(
                int(s) + np.arange(math.prod(v.shape)).reshape(v.shape)
                for s, v in zip(starts, values, strict=False)
            )
        )
        if (
            len(values) == 1
            and places.size == starts[1] - 1
            and (places.ravel() == np.arange(1, starts[1])).all()
        ):
            return ListedArray(values[0].index, places.shape)
        return self._add(places.shape, "gather", [v.index for v in values], places.ravel().tolist())

    def shape(self, a: ListedArray) -> tuple[int, ...]:
        return a.shape

    def _together(self, a: ListedArray, b: ListedArray) -> tuple[ListedArray, ListedArray]:
        shape = np.broadcast_shapes(a.shape, b.shape)

        def spread(v: ListedArray) -> ListedArray:
            return v if v.shape == shape else self.rearrange(lambda z: np.broadcast_to(z, shape), v)

        return spread(a), spread(b)

    def add(self, a: ListedArray, b: ListedArray) -> ListedArray:
        a, b = self._together(a, b)
        return self._add(a.shape, "add", [a.index, b.index])

    def negate(self, a: ListedArray) -> ListedArray:
        return self._add(a.shape, "negate", [a.index])

    def multiply(self, a: ListedArray, b: ListedArray) -> ListedArray:
        a, b = self._together(a, b)
        return self._add(a.shape, "multiply", [a.index, b.index])

    def divide(self, a: ListedArray, b: ListedArray) -> ListedArray:
        a, b = self._together(a, b)
        return self._add(a.shape, "divide", [a.index, b.index])

    def dot(self, a: ListedArray, b: ListedArray) -> ListedArray:
        lead, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
        return self._add((*lead, m, n), "dot", [a.index, b.index], [math.prod(lead), m, k, n])

    def sum(self, a: ListedArray, axes: tuple[int, ...]) -> ListedArray:
        axes = tuple(d % len(a.shape) for d in axes)
        kept = [d for d in range(len(a.shape)) if d not in axes]
        last = self.rearrange(lambda z: z.transpose([*kept, *axes]), a)
        return self._add(
            tuple(a.shape[d] for d in kept),
            "sum",
            [last.index],
            math.prod(a.shape[d] for d in axes),
        )

    def scatter_add(
        self, base: ListedArray, index: np.ndarray, updates: ListedArray
    ) -> ListedArray:
        return self._add(base.shape, "scatter", [base.index, updates.index], index.ravel().tolist())


FORMAT = "neuromanifold certificate 1"
_MOST_NUMBERS = 2 * 10**7


class Claims(NamedTuple):
    """What is claimed of J: its rank, a minor that is invertible modulo a prime, and why the
    rank is no larger.
    """

    rank: int
    prime: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    reason: str
    failure_probability: float
    kernel: list[dict[int, Fraction]]


def save(path: str | Path, problem: Problem, claims: Claims) -> Path:
    """Write the document, atomically. Its last entry is the SHA-256 of the others as they are
    written.
    """
    text = json.dumps(document(problem, claims), separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return write_text(path, f'{text[:-1]},"sha256":"{digest}"}}\n')


def document(problem: Problem, claims: Claims) -> dict[str, Any]:
    """What the file holds."""
    (rows, columns), graph = problem.shape, problem.graph
    if rows * columns > _MOST_NUMBERS:
        raise ValueError(
            f"the Jacobian is {rows}×{columns}, too large to be written out as instructions; save "
            "the certificate of fewer samples."
        )
    return {
        "format": FORMAT,
        "network": getattr(problem.model, "__name__", repr(problem.model)),
        "rounded": list(graph.program.rounded),
        "claims": {
            **claims._asdict(),
            "shape": [rows, columns],
            "outputs": graph.outputs,
            "affine": graph.affine_dimension,
            "regions": _regions(problem),
            "kernel": [[[i, str(v)] for i, v in sorted(row.items()) if v] for row in claims.kernel],
        },
        "bends": _bends(problem),
        "jacobian": _jacobian(problem),
    }


def _regions(problem: Problem) -> dict[str, Any]:
    """Which region each sample lies in, how many lie in each; a region is named by its gates."""
    rows = (
        problem.decisions.rows()
        if problem.graph.units
        else np.zeros((problem.samples, 1), np.uint8)
    )
    _, of, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    return {
        "of": of.ravel().tolist(),
        "gates": [row.tobytes().hex() for row in rows],
        "counts": counts.tolist(),
    }


def _list_instructions(problem: Problem, program: Program) -> tuple[Listing, list[Any], list[int]]:
    """The instructions of a program at this problem's numbers, what they end in, and which of
    them are the data.
    """
    A = Listing()
    inputs = problem.inputs(A, slice(None))
    first = len(problem.leaves)
    data = [
        v.index for v in inputs[first : first + len(problem.data)] if isinstance(v, ListedArray)
    ]
    return A, walk(program, A, inputs), data


def _bends(problem: Problem) -> dict[str, Any]:
    """What every bend is about: a sign for each comparison; no candidate above the chosen one
    for each maximum.
    """
    if not problem.graph.units:
        return {"instructions": [], "signs": [], "maxima": []}
    A, found, _ = _list_instructions(problem, programs.quantities(problem.graph, problem.samples))
    signs, maxima = [], []
    decided = zip(
        problem.graph.units, problem.decisions.gates, problem.decisions.ties, found, strict=True
    )
    for units, gate, tie, entry in decided:
        if units.candidates is None:
            signs.append([entry.index, np.where(tie, 0, np.where(gate, 1, -1)).ravel().tolist()])
        else:
            maxima.append(entry.index)
    return {"instructions": A.instructions, "signs": signs, "maxima": maxima}


def _jacobian(problem: Problem) -> dict[str, Any]:
    program = programs.jacobians(problem.graph, problem.samples, problem.chosen.leaves)
    A, [entry], data = _list_instructions(problem, program)
    return {"instructions": A.instructions, "output": entry.index, "data": data}
