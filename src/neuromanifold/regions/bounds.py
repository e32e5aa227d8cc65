"""Upper bounds on the functional dimension that follow from activation signs, without a
Jacobian.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from neuromanifold.graph.graph import trace
from neuromanifold.models.activation import per_neuron
from neuromanifold.models.arguments import Model, Samples, check_arguments
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import boundary, is_traced
from neuromanifold.numerics.validation import check_params, check_sample, refuse_tracers
from neuromanifold.regions.generic import generic_rank, symmetry_bound
from neuromanifold.regions.patterns import (
    activation_patterns,
    fixed_neurons,
    ordered_patterns,
    require_piecewise_linear,
)
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.signs import Signs


class Bound(int):
    """An integer, with whether the hypothesis of the theorem behind it holds (`applies`) and,
    where it does not, `why`.
    """

    why: str

    def __new__(cls, value: int, why: str = "") -> "Bound":
        bound = super().__new__(cls, value)
        bound.why = why
        return bound

    @property
    def applies(self) -> bool:
        """Whether the theorem speaks about this network; if not, the number is its formula and
        bounds nothing.
        """
        return not self.why

    def __repr__(self) -> str:
        return f"{int(self)}" if self.applies else f"{int(self)} (no bound: {self.why})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Bound, (int(self), self.why)


@dataclass(frozen=True)
class DimensionBounds:
    """How large the functional dimension rank J can be, by several arguments; each field is a
    number of dimensions.

    - `theorem1`: the paper's bound, a `Bound` that says whether its hypothesis holds.
      [complexity, Thm 1]
    - `regions`: o·Σ over sampled regions of min(samples in it, n_0 + 1).   [complexity, Prop C.3]
    - `regions_printed`: (n_0 + 1)·regions sampled, as printed for any number of outputs; a bound
      for one output
      only.   [complexity, Prop 4.6]
    - `samples`: n·o, the number of rows of J.
    - `symmetry`: the parameters of the reduced network, less its generic orbit of symmetries.
    - `generic`: the rank of J at almost every θ with these signs on X.
    - `tight`: ours, the smallest of those that hold.
    """

    theorem1: Bound
    regions: int
    regions_printed: Bound
    samples: int
    symmetry: int
    generic: int

    @property
    def tight(self) -> int:
        """min(generic, symmetry, regions, samples, and Theorem 1 where it applies)."""
        paper = (int(self.theorem1),) if self.theorem1.applies else ()
        return min(self.generic, self.symmetry, self.regions, self.samples, *paper)

    def __repr__(self) -> str:
        return (
            f"DimensionBounds(tight={self.tight}, generic={self.generic}, "
            f"symmetry={self.symmetry}, regions={self.regions}, "
            f"samples={self.samples}, theorem1={self.theorem1!r})"
        )


def dimension_bounds(f: Model, params: Any, x: Samples) -> DimensionBounds:
    """Return upper bounds on rank J from the exact activation signs on the sample.

    `tight` is the smallest bound that depends on (θ, X) through signs and data alone, up to the
    failure probability (about 10⁻¹³) of a random prime. Its argument, for every θ:

    1. Hold the sign of each neuron at each sample. f_θ(X) becomes a polynomial map of θ whose
       Jacobian at our θ is J.
    2. A neuron that is off on all of X multiplies by zero in this map: its incoming and outgoing
       parameters are free columns. One that is on throughout is the identity. This is the reduced
       mixed model.
    3. A minor of J that is nonzero at one θ is a nonzero polynomial, so the rank at any θ is at
       most the rank at almost every θ: `generic`. Where no pre-activation is exactly zero, the
       parameters with these signs form an open set, on which almost every θ attains it. Hence also
       `generic` ≤ every bound that holds for almost every θ.
    4. Orbits of symmetries of the reduced model lie in its fibres, so `generic` ≤ d − dim orbit =
       `symmetry`.
    5. On a region a_{l-1} is affine in x and the back-propagated slope constant, so each row of J
       is affine in x: min(samples, n_0 + 1) rows for each output span the others. Without biases it
       is linear: min(samples, n_0). An output activation multiplies rows by numbers, which enlarges
       no span.

    For every graph that is piecewise linear in its inputs, of any number of outputs; 2 and 4 are
    counted for `nm.MLP`. Host only.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(np.array([[1.0], [1.0]]), np.array([3.0, 2.0])), nm.Layer(np.ones((1, 2)), np.zeros(1)))
    >>> bounds = dimension_bounds(net, params, np.linspace(-1.0, 1.0, 9)[:, None])
    >>> bounds.tight, bounds.regions, bounds.theorem1         # both neurons are on: f is a line
    (2, 2, 3)
    """
    refuse_tracers((params, x), "`dimension_bounds`")
    check_params(params)
    x = check_sample(x)
    with boundary(params, x):
        check_arguments(f, params, x)
    require_piecewise_linear(trace(f, params, x))
    problem = Problem.of(f, params, x, before_output=True)
    counts, o = problem.region_counts(), problem.graph.outputs
    inputs = problem.graph.inputs
    return DimensionBounds(
        theorem1=_theorem1(problem),
        regions=problem.region_bound(),
        regions_printed=Bound(
            (inputs + 1) * len(counts), "" if o == 1 else f"the network has {o} outputs"
        ),
        samples=problem.shape[0],
        symmetry=_symmetry_bound(problem),
        generic=generic_rank(problem),
    )


def _theorem1(problem: Problem) -> Bound:
    if (net := perceptron(problem.model)) is None:
        return Bound(problem.shape[1], "the theorem is about fully connected networks")
    return Bound(_theorem1_value(net, _count_fixed(problem.signs)), theorem1_obstacle(net))


def _symmetry_bound(problem: Problem) -> int:
    """Return the bound by symmetries; of other networks than perceptrons no orbit is subtracted."""
    if (net := perceptron(problem.model)) is None:
        return problem.shape[1]
    return symmetry_bound(net, problem.layers)


def _counts(patterns: np.ndarray) -> np.ndarray:
    if not patterns.shape[1]:
        return np.array([len(patterns)])
    return np.unique(np.packbits(patterns, axis=1), axis=0, return_counts=True)[1]


def _count_fixed(signs: Signs) -> list[int]:
    return [int(((s > 0).all(axis=0) | (s <= 0).all(axis=0)).sum()) for s in signs.layers[:-1]]


def is_roughly_monotonic(widths: tuple[int, ...]) -> bool:
    """Return whether `widths` n satisfy (i) n_l − 1 ≤ n_{l-1} for all layers l, or
    (ii) n_{l-1} − 1 ≤ n_l for all of them.
    [complexity, Ass 3.1]

    >>> is_roughly_monotonic((1, 5, 4, 3, 2, 1)), is_roughly_monotonic((1, 5, 5, 5, 5, 1))
    (True, False)
    """
    steps = np.diff(widths)
    return bool((steps <= 1).all() or (steps >= -1).all())


def theorem1_obstacle(net: MLP) -> str:
    """Say which hypothesis of Theorem 1 the network misses; empty when it misses none."""
    names = {activation.name for entry in net.activation for activation, _ in per_neuron(entry, 1)}
    if not is_roughly_monotonic(net.widths):
        return f"the widths {net.widths} are not roughly monotonic"
    if not net.bias:
        return "the network has no biases"
    if other := sorted(names - {"relu", "identity"}):
        return f"{other[0]} is neither ReLU nor the identity"
    return (
        ""
        if net.output_activation.name == "identity"
        else f"the output passes through {net.output_activation.name}"
    )


def _theorem1_value(net: MLP, fixed: Any) -> Any:
    hidden = zip(net.widths[1:-1], fixed, strict=True)
    return net.n_params - sum((n - k) + k * k for n, k in hidden)


def theorem1_bound(net: MLP, params: Params, x: Samples) -> int | Int[Any, ""]:
    """Return D − Σ(n_l − k_l) − Σ k_l², with k_l the neurons of hidden layer l that are fixed on X.
    [complexity, Thm 1]

    The formula, whether or not its hypothesis holds (`theorem1_obstacle` tells); signs in floating
    point, so that it works under `jit` and `vmap`.

    >>> net = nm.MLP((1, 10, 1))
    >>> params = (nm.Layer(np.ones((10, 1)), np.full(10, 2.0)), nm.Layer(np.ones((1, 10)), np.zeros(1)))
    >>> theorem1_bound(net, params, np.array([[0.0], [1.0]]))         # negative: the widths are not roughly monotonic
    -69
    """
    value = _theorem1_value(net, fixed_neurons(net, params, x).fixed_by_layer)
    return value if is_traced(value) else int(value)


def region_bound(f: Model, params: Any, x: Samples) -> int | Int[Any, ""]:
    """Return o·Σ over sampled regions of min(samples in it, n_0 + 1); without biases n_0.
    [complexity, Prop C.3]

    Signs in floating point, so that it works under `jit` and `vmap`.

    >>> net = nm.MLP((1, 1, 2))
    >>> params = (nm.Layer(np.ones((1, 1)), np.zeros(1)), nm.Layer(np.ones((2, 1)), np.zeros(2)))
    >>> region_bound(net, params, np.array([[-1.0], [1.0], [2.0], [3.0]]))         # 2 outputs × (1 + 2)
    6
    """
    patterns = activation_patterns(f, params, x)
    graph = trace(f, params, x)
    if is_traced(patterns):
        return graph.outputs * _count_kept_rows(patterns, graph.affine_dimension)
    return graph.outputs * int(
        np.minimum(_counts(np.asarray(patterns)), graph.affine_dimension).sum()
    )


def _count_kept_rows(patterns: Any, largest: int) -> Any:
    """Return Σ over distinct rows of min(how often, largest): in sorted order, rows within
    `largest` of the first of their kind.
    """
    rows = ordered_patterns(patterns)
    place = jnp.arange(rows.shape[0])
    fresh = jnp.concatenate([jnp.ones(1, bool), (rows[1:] != rows[:-1]).any(axis=1)])
    first = jax.lax.cummax(jnp.where(fresh, place, 0))
    return (place - first < largest).sum(dtype=jnp.int32)
