"""`lie_closure`: the directions in which gradient flow can move a point at all, over all data
and losses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.graph import trace
from neuromanifold.models.activation import per_neuron
from neuromanifold.models.arguments import Model, Params, checked
from neuromanifold.models.model_kind import filters, perceptron
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.rank import Rank, exact_rank
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.orbits.bounds import UpperBound, closure_upper_bound
from neuromanifold.orbits.exact import (
    ClosureCertificate,
    Problem,
    draw_problem,
    has_rational_fields,
)
from neuromanifold.orbits.family import Brackets, Family, family_of, has_fast_brackets
from neuromanifold.orbits.host import flatten_on_host, host_rank
from neuromanifold.orbits.reached import reaching_inputs, regions_met
from neuromanifold.orbits.transport import Transport, transport
from neuromanifold.runtime.memory import memory_budget

_SPREAD = 1.5  # standard deviation of drawn inputs
_LANES = 8  # brackets beyond the number of directions that may still be missing
_CANCELLATION = (
    1e2  # how much smaller than its factors a bracket may be before it is taken down in weight
)
_MARGIN = 10  # rounding errors that a field's own evaluation adds up
_DEEPEST_TRACED = 4
_DEEPEST = 12


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
        """|v − Pv| / |v|, P the projection onto Lie_θ: zero for the gradient of every loss.
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
    key: Any,
    depth: int | None = None,
    inputs: Any = None,
    exact: bool | None = None,
    bracket_rtol: float = 1e-10,
    rtol: float | None = None,
    flow_rtol: float = 1e-12,
    memory: int | str | None = None,
) -> LieClosure:
    """Lie_θ = span of all iterated brackets at θ of the fields X_x = ∇_θ f_θ(x), one family for
    each output.   [invariant, Def 2.7]

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
    params, points = _checked(f, params, key, depth, inputs, bracket_rtol)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().astype(np.uint32))
    if points is None:
        points = _draw_inputs(f, rng)
        points = (
            points if _is_analytic(f, params, points) else reaching_inputs(f, params, points, rng)
        )
    exact = _exactly(f, params, points, exact)
    theta, family = flatten_on_host(params), family_of(f, params, points)
    problem = draw_problem(f, params, points) if exact else None
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
        ranks = [_certified(problem, value, k, bound) for k, value in enumerate(values, start=1)]
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
            return _weighted(Brackets(rows / (largest or 1.0), np.zeros(len(rows))), bracket_rtol)
        return _weighted(family.brackets(theta, depth, lanes, rng), bracket_rtol)

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
        return host_rank(rows, rtol=threshold)

    return vectors, rank_of


def _weighted(brackets: Brackets, bracket_rtol: float) -> np.ndarray:
    """Brackets of length one, shorter in proportion where digits were lost, without those that are
    zero.

    Digits are lost where the bracket is small beside its factors, which have length one, or the
    terms it is made of.
    """
    lengths, sizes = np.linalg.norm(brackets.vectors, axis=1), np.maximum(1.0, brackets.sizes)
    kept = ~(lengths <= bracket_rtol * sizes)
    scale = np.maximum(lengths, sizes / _CANCELLATION)[kept, None]
    return brackets.vectors[kept] / scale


def _modular(problem: Problem, rng: np.random.Generator) -> tuple[Vectors, RankOf]:
    return (
        lambda depth, lanes: problem.vectors(depth, lanes, rng),
        lambda rows: modular_rank(rows, problem.ring.p),
    )


def _certified(problem: Problem, value: int, depth: int, bound: UpperBound) -> Rank:
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
    rational = exact is not False and has_rational_fields(f, params, points)
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


def _checked(
    f: Model, params: Any, key: Any, depth: Any, inputs: Any, bracket_rtol: float
) -> tuple[Any, Any]:
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
    if not 0 <= bracket_rtol < 1:
        raise ValueError(
            f"`bracket_rtol` is {bracket_rtol}; pass a fraction, at least 0 and below 1."
        )
    if (net := perceptron(f) or filters(f)) is not None:
        net.check_params(params)
    with arithmetic():
        example = _draw_inputs(f, np.random.default_rng(0)) if inputs is None else inputs
        params, points = checked(f, params, example, dtype=np.float64)
    host = jax.tree.map(np.asarray, params)
    return host, None if inputs is None else np.asarray(points, np.float64)
