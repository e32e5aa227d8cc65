"""`lie_closure`: the directions in which gradient flow can move a point at all, over all data
and losses.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.graph import trace
from neuromanifold.models.activation import per_neuron
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments
from neuromanifold.models.model_kind import filters, perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.rank import Certificate, Rank, exact_rank, numerical_rank
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.spaces import exact_spaces
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.orbits.bounds import UpperBound, closure_upper_bound
from neuromanifold.orbits.family import (
    Brackets,
    Family,
    family_of,
    has_fast_brackets,
    walked_family,
)
from neuromanifold.orbits.partition import flatten_on_host
from neuromanifold.orbits.rings import Residues
from neuromanifold.orbits.transport import Transport, transport
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.reach import gate_rows, known_regions
from neuromanifold.runtime.memory import memory_budget
from neuromanifold.symmetry.account.chain import ExactRows, further_regions

_SPREAD = 1.5  # standard deviation of drawn inputs
_LANES = 8  # brackets beyond the number of directions that may still be missing
_CANCELLATION = (
    1e2  # how much smaller than its factors a bracket may be before it is taken down in weight
)
_MARGIN = 10  # rounding errors that a field's own evaluation adds up
_DEEPEST_TRACED = 4
_DEEPEST = 12


class ClosureCertificate(Certificate):
    """Why Lie_θ has dimension `rank`, or at least that.

    Lower bound, always a proof: brackets of at most `depth` fields at the recorded inputs, rational
    vectors all, have this rank modulo `prime`, and reduction never raises a rank. Upper bound:
    `upper_bound` linear forms' count, computed modulo the same prime, where a rank too small only
    weakens it; `proved` says whether the two meet.
    """

    rank: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    prime: int = eqx.field(static=True)
    upper_bound: int = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    fingerprint: str = eqx.field(static=True)

    @property
    def proved(self) -> bool:
        """Whether lower and upper bound meet."""
        return self.rank == self.upper_bound

    def verify(self, net: Any, params: Params, x: Samples) -> bool:
        """Recompute modulo another prime with other brackets; False for another network, point
        or inputs.
        """
        problem = RationalProblem(
            net, params, np.asarray(x, np.float64), _another_prime(self.prime)
        )
        if problem.fingerprint != self.fingerprint:
            return False
        rng = np.random.default_rng()
        rows = np.concatenate(
            [problem.vectors(k, problem.n_params + 8, rng) for k in range(1, self.depth + 1)]
        )
        return (
            modular_rank(rows, problem.ring.p) == self.rank
            and problem.bound().value == self.upper_bound
        )

    def __str__(self) -> str:
        upper = f"proved: {self.reason}" if self.proved else f"at least; at most {self.upper_bound}"
        return f"exact, depth {self.depth}, {upper}"


class RationalProblem:
    """A rational network, its parameters and inputs modulo a prime."""

    def __init__(self, net: Any, params: Any, inputs: Float[np.ndarray, "n ..."], p: int):
        self.net, self.params, self.inputs, self.ring = net, params, inputs, Residues(p)
        self.theta = self.ring.embed(flatten_on_host(params))
        self.graph = trace(net, params, inputs)
        self.family = walked_family(self.graph, inputs, self.ring)

    @property
    def n_params(self) -> int:
        """D."""
        return len(self.theta)

    @property
    def fingerprint(self) -> str:
        """What the certificate is about."""
        digest = hashlib.sha256(self.graph.text.encode())
        for a in (flatten_on_host(self.params), self.inputs):
            digest.update(np.ascontiguousarray(a, np.float64).tobytes())
        return digest.hexdigest()

    def vectors(self, depth: int, lanes: int, rng: np.random.Generator) -> np.ndarray:
        """All fields at θ for depth one, random brackets of that depth beyond."""
        if depth == 1:
            return self.family.jacobian(self.theta)
        return self.family.brackets(self.theta, depth, lanes, rng).vectors

    def bound(self) -> UpperBound:
        """The upper bound, modulo the prime."""
        return closure_upper_bound(self.net, self.params, self.ring)


@dataclass(frozen=True, eq=False, repr=False)
class LieClosure(Result):
    """Lie_θ, the tangent space of the orbit through θ, with its evidence.

    - `dimension`: the larger of what the two routes found, each of them a lower bound.
    - `by_depth`: dimension of the span of brackets of at most 1, 2, … fields at θ, each a `Rank`
      with spectrum and gap.
    - `along_orbit`: dimension by transport along a trajectory; `None` where f is not analytic.
    - `upper_bound`, `reason`: no closure is larger here, in words; `certified` where `dimension`
      meets it.
    - `basis`: orthonormal rows that span Lie_θ, columns in `ravel_pytree(params)` order.
    - `misfit`: sine of the largest angle between the spaces of the two routes, where their
      dimensions agree.
    - `route`: how the numbers were computed; `inputs`: where the fields were taken; `regions`: how
      many regions of f these meet (`None` where f does not bend). Fields of regions that were not
      met are not in the family.
    """

    dimension: Rank
    by_depth: tuple[Rank, ...]
    along_orbit: Rank | None
    upper_bound: int
    reason: str
    basis: Float[np.ndarray, "k D"]
    misfit: float | None
    route: str
    inputs: np.ndarray
    regions: int | None = None

    @property
    def certified(self) -> bool:
        """Whether lower and upper bound meet."""
        return int(self.dimension) == self.upper_bound

    @property
    def agree(self) -> bool:
        """Whether brackets and transport found the same dimension; brackets alone agree with
        themselves.
        """
        return self.along_orbit is None or int(self.along_orbit) == int(self.by_depth[-1])

    @property
    def depth(self) -> int:
        """The smallest depth whose brackets have the dimension that `by_depth` ends with."""
        return 1 + [int(rank) for rank in self.by_depth].index(int(self.by_depth[-1]))

    def residual(self, vector: Any) -> float:
        """Return |v − Pv| / |v| for v = `vector`, P the projection onto Lie_θ: zero for the gradient of every loss.
        [invariant, Thm 3.1]
        """
        v = flatten_on_host(vector)
        norm = float(np.linalg.norm(v))
        return float(np.linalg.norm(v - self.basis.T @ (self.basis @ v))) / norm if norm else 0.0

    def __str__(self) -> str:
        depths = ", ".join(str(int(rank)) for rank in self.by_depth)
        known = (
            f"certified: {self.reason}"
            if self.certified
            else f"at most {self.upper_bound}: {self.reason}"
        )
        met = "" if self.regions is None else f"; fields of the {self.regions} regions met"
        return (
            f"Lie closure of dimension {int(self.dimension)} of {self.basis.shape[1]} (by depth "
            f"{depths}; {known}{met})"
        )


def lie_closure(
    f: Model,
    params: Params,
    *,
    key: Key,
    depth: int | None = None,
    inputs: Samples | None = None,
    exact: bool | None = None,
    bracket_rtol: float = 1e-10,
    rtol: float | None = None,
    flow_rtol: float = 1e-12,
    memory: int | str | None = None,
) -> LieClosure:
    """Compute Lie_θ = span of all iterated brackets at θ of the fields X_x = ∇_θ f_θ(x), one family
    for each output.   [invariant, Def 2.7]

    The orbit of θ, hence every trajectory of gradient flow from θ, whatever data and loss, lies in
    a manifold with this tangent space; D − dim Lie_θ functions are conserved on it. Two routes.
    Brackets at θ, depth after depth, as far as the second route or the upper bound says there is
    more to come: at degenerate points the dimension pauses, so that a depth without growth means
    nothing. And transport of the fields along a random trajectory (analytic models), where no
    growth does mean the end. Depth counts fields: depth 1 are the fields, a depth of 4 nests three
    brackets.

    `inputs`: where fields are taken, by default drawn N(0, 1.5²), twice as many as parameters, and
    where f bends also n_0 + 1 in each further region that a search finds; a function needs them.
    `depth`: brackets of exactly that many depths. `exact`: brackets modulo a random prime, for
    networks of rational operations without bends (there the default); their rank proves the lower
    bound. `bracket_rtol`: a bracket below this fraction of its factors' lengths, or of the terms it
    is the difference of, is zero. `rtol`: threshold of ranks, by default 10³·max(rows, D)·2.2e-16,
    since two digits may be lost before a bracket is weighted down and the fields add a few
    roundings of their own. `flow_rtol`: tolerance of the flows.

    >>> net = nm.MLP((1, 2, 1), "exp", bias=False)                                          # [invariant, Ex 3.1]
    >>> params = (nm.Layer(np.array([[1.0], [1.0]])), nm.Layer(np.array([[1.0, 2.0]])))     # w₁ = w₂, a₁ ≠ a₂
    >>> closure = lie_closure(net, params, key=jax.random.key(0))
    >>> [int(rank) for rank in closure.by_depth], closure.certified
    ([2, 3, 4], True)
    """
    params, points = _check(f, params, key, depth, inputs)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().astype(np.uint32))
    if points is None:
        points = _draw_inputs(f, rng)
        points = (
            points if _is_analytic(f, params, points) else reaching_inputs(f, params, points, rng)
        )
    exact = _exactly(f, params, points, exact)
    theta, family = flatten_on_host(params), family_of(f, params, points)
    problem = RationalProblem(f, params, points, modular.random_prime()) if exact else None
    bound = closure_upper_bound(f, params) if problem is None else problem.bound()
    analytic = _is_analytic(f, params, points)
    second = _second_route(family, theta, bound.value, flow_rtol, rng) if analytic else None
    if depth is None:
        enough = bound.value if second is None else min(bound.value, int(second.rank))
        deepest = _deepest(family, len(theta), memory_budget(memory))
        plan = _Plan(bound.value, enough, deepest, patience=2 if second is None else deepest)
    else:
        plan = _Plan(bound.value, len(theta) + 1, depth, patience=depth)
    numeric = _numeric(family, theta, bracket_rtol, rtol, rng)
    if problem is None:
        ranks, rows = _climb(*numeric, plan)
    else:
        values, _ = _climb(*_modular(problem, rng), plan)
        ranks = [_certify(problem, value, k, bound) for k, value in enumerate(values, start=1)]
        _, rows = _climb(*numeric, replace(plan, enough=int(values[-1]), deepest=len(values)))
    own = _span(rows, int(ranks[-1]))
    behind = second is not None and second.rank > ranks[-1]
    return LieClosure(
        dimension=second.rank if second is not None and behind else ranks[-1],
        by_depth=tuple(ranks),
        along_orbit=None if second is None else second.rank,
        upper_bound=bound.value,
        reason=bound.reason,
        basis=second.basis if second is not None and behind else own,
        misfit=None
        if second is None or len(second.basis) != len(own)
        else _largest_sine(own, second.basis),
        route=_route(exact, second),
        inputs=points,
        regions=None if analytic else regions_met(f, params, points),
    )


@dataclass(frozen=True)
class _Plan:
    """When to stop: at `enough` dimensions, at the depth `deepest`, or after `patience` depths
    without growth.
    """

    bound: int
    enough: int
    deepest: int
    patience: int

    def goes_on(self, ranks: list[Any]) -> bool:
        if len(ranks) >= self.deepest or int(ranks[-1]) >= self.enough:
            return False
        return (
            len({int(rank) for rank in ranks[-self.patience - 1 :]}) > 1
            or len(ranks) <= self.patience
        )


Vectors = Callable[[int, int], np.ndarray]
RankOf = Callable[[np.ndarray], Any]


def _climb(vectors: Vectors, rank_of: RankOf, plan: _Plan) -> tuple[list[Any], np.ndarray]:
    """The rank at each depth of all vectors so far, and the vectors."""
    rows = vectors(1, 0)
    ranks = [rank_of(rows)]
    while plan.goes_on(ranks):
        lanes = max(0, plan.bound - int(ranks[-1])) + _LANES
        rows = np.concatenate([rows, vectors(len(ranks) + 1, lanes)])
        ranks.append(rank_of(rows))
    return ranks, rows


def _numeric(
    family: Family,
    theta: np.ndarray,
    bracket_rtol: float,
    rtol: float | None,
    rng: np.random.Generator,
) -> tuple[Vectors, RankOf]:
    def vectors(depth: int, lanes: int) -> np.ndarray:
        if depth == 1:
            rows = family.jacobian(theta)
            largest = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
            return _weigh(Brackets(rows / (largest or 1.0), np.zeros(len(rows))), bracket_rtol)
        return _weigh(family.brackets(theta, depth, lanes, rng), bracket_rtol)

    def rank_of(rows: np.ndarray) -> Rank:
        if not np.isfinite(rows).all():
            raise ArithmeticError(
                "the fields of `f` hold nan or inf at these parameters; check the model's values "
                "there."
            )
        threshold = (
            _MARGIN * _CANCELLATION * max(rows.shape) * np.finfo(np.float64).eps
            if rtol is None
            else rtol
        )
        return numerical_rank(rows, rtol=threshold)

    return vectors, rank_of


def _weigh(brackets: Brackets, bracket_rtol: float) -> np.ndarray:
    """Brackets of length one, shorter in proportion where digits were lost, without those that are
    zero.

    Digits are lost where the bracket is small beside its factors, which have length one, or the
    terms it is made of.
    """
    lengths, sizes = np.linalg.norm(brackets.vectors, axis=1), np.maximum(1.0, brackets.sizes)
    kept = ~(lengths <= bracket_rtol * sizes)
    scale = np.maximum(lengths, sizes / _CANCELLATION)[kept, None]
    return brackets.vectors[kept] / scale


def _modular(problem: RationalProblem, rng: np.random.Generator) -> tuple[Vectors, RankOf]:
    return (
        lambda depth, lanes: problem.vectors(depth, lanes, rng),
        lambda rows: modular_rank(rows, problem.ring.p),
    )


def _certify(problem: RationalProblem, value: int, depth: int, bound: UpperBound) -> Rank:
    certificate = ClosureCertificate(
        rank=value,
        depth=depth,
        prime=problem.ring.p,
        upper_bound=bound.value,
        reason=bound.reason,
        fingerprint=problem.fingerprint,
    )
    return exact_rank(value, certificate)


def _second_route(
    family: Family, theta: np.ndarray, bound: int, flow_rtol: float, rng: np.random.Generator
) -> Transport:
    return transport(
        family.jacobian,
        lambda: family.draw(rng),
        theta,
        length=max(1.0, 0.5 * float(np.linalg.norm(theta))),
        rtol=flow_rtol,
        pieces=2 * _DEEPEST,
        bound=bound,
    )


def _is_analytic(f: Model, params: Any, points: np.ndarray) -> bool:
    """Whether flows may be followed across θ-space: a perceptron's activations say so, of other
    networks the graph does.
    """
    if (net := perceptron(f)) is not None:
        return all(a.analytic for entry in net.activations for a, _ in per_neuron(entry, 1))
    return trace(f, params, points).analytic


def _exactly(f: Model, params: Any, points: np.ndarray, exact: bool | None) -> bool:
    rational = exact is not False and _has_rational_fields(f, params, points)
    if exact and not rational:
        raise TypeError(
            "`exact=True` needs a network of rational operations without bends; leave it out for "
            "float64."
        )
    return rational


def _deepest(family: Family, D: int, budget: int) -> int:
    """The largest depth to try: as far as 3^depth products of brackets fit into a quarter of the
    memory.
    """
    if not has_fast_brackets(family):
        return _DEEPEST_TRACED
    fits = math.floor(math.log(max(3.0, budget / 4 / (8 * D * (D + _LANES))), 3))
    return max(2, min(_DEEPEST, 1 + fits))


def _span(rows: np.ndarray, dimension: int) -> Float[np.ndarray, "_ D"]:
    if dimension == 0:
        return np.zeros((0, rows.shape[1]))
    return np.linalg.svd(rows, full_matrices=False)[2][:dimension]


def _largest_sine(A: np.ndarray, B: np.ndarray) -> float:
    """sin of the largest principal angle between two spaces of one dimension."""
    return float(np.linalg.norm(A - (A @ B.T) @ B, 2)) if len(A) else 0.0


def _route(exact: bool, second: Transport | None) -> str:
    first = "brackets modulo a 61-bit prime" if exact else "brackets in float64"
    return (
        f"{first}, and transport along the orbit"
        if second is not None
        else f"{first} alone: f is not analytic"
    )


def _draw_inputs(f: Model, rng: np.random.Generator) -> np.ndarray:
    if (net := perceptron(f)) is not None:
        shape, outputs = net.widths[:1], net.widths[-1]
    elif (net := filters(f)) is not None:
        shape, outputs = net.signal_shape((1,) * net.dimension), 1
    else:
        raise ValueError(
            "`inputs` is None but `f` is a function; pass an array of shape (n, *in) of samples "
            "for it."
        )
    return _SPREAD * rng.standard_normal((math.ceil(2 * net.n_params / outputs) + _LANES, *shape))


def _check(f: Model, params: Any, key: Any, depth: Any, inputs: Any) -> tuple[Any, Any]:
    refuse_tracers((params, inputs), "`lie_closure`")
    if not isinstance(key, jax.Array):
        raise TypeError(f"`key` is {key!r}; pass a JAX key such as jax.random.key(0).")
    if depth is not None and (not isinstance(depth, int) or depth < 1):
        raise ValueError(
            f"`depth` is {depth!r}; pass a positive whole number, or None to go as deep as needed."
        )
    if depth is not None and depth > _DEEPEST:
        raise ValueError(
            f"`depth` is {depth}, and each depth takes three times as many products; pass at most "
            f"{_DEEPEST}, or None to go as deep as needed."
        )
    if (net := perceptron(f) or filters(f)) is not None:
        net.check_params(params)
    with arithmetic():
        example = _draw_inputs(f, np.random.default_rng(0)) if inputs is None else inputs
        params, points = check_arguments(f, params, example, dtype=np.float64)
    host = jax.tree.map(np.asarray, params)
    return host, None if inputs is None else np.asarray(points, np.float64)


_PATIENCE = 4  # batches without a new region
_MOST_BATCHES = 40
_NEARER = 6  # times that neighbours of an input are drawn closer before its region is taken to be too thin for them


def regions_met(f: Model, params: object, inputs: np.ndarray) -> int | None:
    """How many regions of f the inputs meet; `None` where f does not bend or cannot be decided
    exactly.
    """
    graph = trace(f, params, inputs)
    if not (graph.units and graph.exact):
        return None
    problem = Problem.of(f, params, inputs)
    return known_regions(problem.data, problem.decisions.gates)[0].count


def reaching_inputs(
    f: Model, params: object, inputs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The inputs, and n_0 + 1 more in every further region that wide draws and segments between
    known inputs find.

    Kinks may lie anywhere: inputs of one size miss the regions beyond, and the closure is then that
    of a smaller family.
    """
    graph = trace(f, params, inputs)
    if not (graph.units and graph.exact):
        return inputs
    problem = Problem.of(f, params, inputs)
    rows = ExactRows(problem, exact_spaces())
    known, first = known_regions(problem.data, problem.decisions.gates)
    met, idle, most = tuple(g[first] for g in problem.decisions.gates), 0, len(inputs)
    sampled = known.count
    for batch in range(_MOST_BATCHES):
        if idle == _PATIENCE or known.count - sampled >= most:
            break
        known, met, (fresh, _) = further_regions(rows, known, met, batch, most, rng)
        idle = 0 if len(fresh[0]) else idle + 1
    new = known.data[0][sampled:]
    return np.concatenate([inputs, new, _neighbours(rows, new, known.rows[sampled:], rng)])


def _neighbours(
    rows: ExactRows, new: np.ndarray, names: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """n_0 further inputs in the region of each, as far away as it allows."""
    wanted = np.repeat(np.arange(len(new)), new[0].size if len(new) else 0)
    found, size = [new[:0]], 0.25
    for _ in range(_NEARER):
        if not len(wanted):
            break
        base = new[wanted]
        lengths = np.maximum(1.0, np.abs(base).max(axis=tuple(range(1, base.ndim)), keepdims=True))
        moved = base + size * lengths * rng.standard_normal(base.shape)
        gates = rows.decided_all((moved,))
        same = (gate_rows(gates, (moved,)) == names[wanted]).all(axis=1)
        found.append(moved[same])
        wanted, size = wanted[~same], size / 8
    return np.concatenate(found)


def _has_rational_fields(f: Any, params: Any, inputs: Any) -> bool:
    """Whether f_θ(x) is a rational function of θ and x without bends, so that its fields are
    rational at floats.
    """
    graph = trace(f, params, inputs)
    return graph.exact and graph.analytic


def _another_prime(p: int) -> int:
    q = modular.random_prime()
    return q if q != p else _another_prime(p)
