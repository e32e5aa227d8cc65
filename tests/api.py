"""The public functions that take a model `f`, drawn from the rooms' names, and how each is
called. A new one must join.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import neuromanifold as nm

ROOMS = (
    "numerics", "graph", "models", "data", "regions", "tangent", "dynamics", "symmetry", "orbits", "functionspace",
    "bottleneck", "inspection", "report",
)  # fmt: skip
KEY = jax.random.key(0)


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function with its name in its room."""
    for room in ROOMS:
        module = getattr(nm, room)
        for name in module.__all__:
            if inspect.isfunction(found := getattr(module, name)):
                yield f"{room}.{name}", found


def taking(parameter: str) -> set[str]:
    """The public functions that take an argument of that name."""
    return {name for name, found in functions() if parameter in inspect.signature(found).parameters}


def described(f: Any, params: Any, x: Any) -> None:
    """Networks of constants that differ from entry to entry have no description."""
    with pytest.raises(ValueError, match="combines the data with constants"):
        nm.describe(f, params, x)


DESCRIBED = {"orbits.leaf_distance"}
"""Probes of a description, which they do not call."""

VERBS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "graph.trace": lambda f, p, x, y, folder: nm.graph.trace(f, p, x),
    "regions.activation_patterns": lambda f, p, x, y, folder: nm.activation_patterns(f, p, x),
    "regions.dimension_bounds": lambda f, p, x, y, folder: nm.dimension_bounds(f, p, x),
    "regions.enumerate_regions": lambda f, p, x, y, folder: nm.regions.enumerate_regions(
        f, p, x=x, limit=8
    ),
    "regions.fixed_neurons": lambda f, p, x, y, folder: nm.fixed_neurons(f, p, x, exact=True),
    "regions.region_bound": lambda f, p, x, y, folder: nm.regions.region_bound(f, p, x),
    "regions.sampled_regions": lambda f, p, x, y, folder: nm.sampled_regions(f, p, x),
    "tangent.alignment": lambda f, p, x, y, folder: nm.alignment(f, p, x, y),
    "tangent.balancing_weights": lambda f, p, x, y, folder: nm.tangent.balancing_weights(
        (f,), p, (x,)
    ),
    "tangent.curvatures": lambda f, p, x, y, folder: nm.tangent.curvatures(
        f, p, x, y, k=2, kind="hessian"
    ),
    "tangent.describe": lambda f, p, x, y, folder: described(f, p, x),
    "tangent.empirical_nngp": lambda f, p, x, y, folder: nm.tangent.empirical_nngp(f, p, x),
    "tangent.functional_dimension": lambda f, p, x, y, folder: nm.functional_dimension(
        f, p, x, exact=True
    ),
    "tangent.gram": lambda f, p, x, y, folder: nm.gram(f, p, x, store=folder / "gram"),
    "tangent.features": lambda f, p, x, y, folder: nm.features(f, p, x, y, key=KEY, k=4),
    "tangent.influence": lambda f, p, x, y, folder: nm.influence(f, p, x, y, x, ridge=0.1),
    "tangent.jacobian": lambda f, p, x, y, folder: nm.jacobian(f, p, x),
    "tangent.kernel_alignment": lambda f, p, x, y, folder: nm.kernel_alignment(f, p, x, y),
    "tangent.kernel_flow": lambda f, p, x, y, folder: nm.kernel_flow(f, p, x, y),
    "tangent.kernel_plan": lambda f, p, x, y, folder: nm.tangent.kernel_plan(f, p, x),
    "tangent.largest_stable_lr": lambda f, p, x, y, folder: nm.largest_stable_lr(f, p, x, y),
    "tangent.linearize": lambda f, p, x, y, folder: nm.linearize(f, p)(p, x),
    "tangent.ntk": lambda f, p, x, y, folder: nm.ntk(f, p, x, check=True),
    "tangent.ntk_operator": lambda f, p, x, y, folder: nm.ntk_operator(f, p, x).mv(y.ravel()),
    "tangent.output_hessian_norm": lambda f, p, x, y, folder: nm.tangent.output_hessian_norm(
        f, p, x
    ),
    "tangent.gauss_newton_curvature": lambda f, p, x, y, folder: nm.tangent.gauss_newton_curvature(
        f, p, x, y
    ),
    "tangent.sharpness": lambda f, p, x, y, folder: nm.sharpness(f, p, x, y),
    "tangent.single_precision_rank": lambda f, p, x, y, folder: nm.tangent.single_precision_rank(
        f, p, x
    ),
    "tangent.spectral_density": lambda f, p, x, y, folder: nm.tangent.spectral_density(f, p, x),
    "tangent.spectrum": lambda f, p, x, y, folder: nm.spectrum(f, p, x),
    "dynamics.gradient_flow": lambda f, p, x, y, folder: nm.gradient_flow(
        f, p, x, y, t1=0.1, rtol=1e-4, atol=1e-4
    ),
    "dynamics.learning_coefficient": lambda f, p, x, y, folder: nm.learning_coefficient(
        f, p, x, y, key=KEY, chains=2, draws=4
    ),
    "dynamics.r_squared": lambda f, p, x, y, folder: nm.dynamics.r_squared(f, p, x, y),
    "dynamics.train": lambda f, p, x, y, folder: nm.train(f, p, x, y, key=KEY, epochs=1),
    "dynamics.weight_norm": lambda f, p, x, y, folder: nm.dynamics.weight_norm(f, p, x, y),
    "symmetry.channel_scalings": lambda f, p, x, y, folder: nm.symmetry.channel_scalings(f, p, x),
    "symmetry.dimension_account": lambda f, p, x, y, folder: nm.dimension_account(f, p, x),
    "symmetry.structural_symmetries": lambda f, p, x, y, folder: nm.symmetry.structural_symmetries(
        f, p, x
    ),
    "symmetry.discover": lambda f, p, x, y, folder: nm.symmetry.discover(f, p, x, key=KEY, keys=1),
    "symmetry.match": lambda f, p, x, y, folder: nm.symmetry.match(f, p, p, x=x, starts=0),
    "symmetry.reduce_width": lambda f, p, x, y, folder: nm.reduce_width(f, p, x),
    "orbits.closure_upper_bound": lambda f, p, x, y, folder: nm.orbits.closure_upper_bound(f, p),
    "orbits.induced_field": lambda f, p, x, y, folder: nm.orbits.induced_field(f, x)(p),
    "orbits.induces_invariant_manifold": lambda f, p, x, y, folder: nm.induces_invariant_manifold(
        f, lambda p: p, p, features=2, points=1, samples=2
    ),
    "orbits.invariance_residual": lambda f, p, x, y, folder: nm.orbits.invariance_residual(
        f,
        p,
        lambda p: 0.0,
        key=KEY,
        draws=1,
        samples=2,
        features=2,
        saves=1,
        steps=1,
        rtol=1e-3,
        atol=1e-3,
    ),
    "orbits.lie_closure": lambda f, p, x, y, folder: nm.lie_closure(f, p, key=KEY, inputs=x),
    "bottleneck.jacobian_rank": lambda f, p, x, y, folder: nm.bottleneck.jacobian_rank(f, p, x),
    "bottleneck.ranks_along": lambda f, p, x, y, folder: nm.bottleneck.ranks_along(f, p, x),
    "inspection.inspect": lambda f, p, x, y, folder: nm.inspect(f, p, x, y),
}

NET = nm.MLP((2, 3, 1))
DEEP = nm.MLP((2, 3, 3, 1), bias=False)
FILTERS = nm.LinearConvNet((2, 2), (1, 1))


def quadratic(v: Any) -> Any:
    return ((v - 1) ** 2).sum()


def descriptions(array: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
    """Public functions of a described network or of matrices alone, on arrays made by `array`."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4, 2))
    x, other, y = array(drawn), array(drawn + 1), array(drawn[:, :1])
    params, deep, filters = (
        jax.tree.map(array, net.init(key=KEY, dtype="float64")) for net in (NET, DEEP, FILTERS)
    )
    v, delta, W = array([1.0, 3.0, 2.0]), array([0.0]), array([[1.0, 0.2], [0.3, 0.8]])
    factors = (W, array([[0.5, 0.2], [0.1, 0.9]]))
    space, cost = nm.functionspace, nm.bottleneck
    flow = {"loss": quadratic, "t1": 0.1, "times": 3, "rtol": 1e-4, "atol": 1e-4}
    return {
        "regions.exact_signs": lambda: nm.regions.exact_signs(NET, params, x),
        "tangent.ensemble_flow": lambda: nm.infinite.ensemble_flow(NET, x, y, other=other).at(1.0),
        "tangent.gp_posterior": lambda: nm.infinite.gp_posterior(NET, x, y, other, noise_std=0.1),
        "tangent.infinite_kernels": lambda: nm.infinite.infinite_kernels(NET, x),
        "tangent.infinite_ntk": lambda: nm.infinite_ntk(NET, x),
        "tangent.monte_carlo_kernels": lambda: nm.infinite.monte_carlo_kernels(
            NET, x, key=KEY, runs=4
        ),
        "tangent.nngp": lambda: nm.nngp(NET, x),
        "symmetry.conserved_quantities": lambda: nm.conserved_quantities(NET, params),
        "symmetry.teleport": lambda: nm.teleport(NET, params, x, y, steps=2),
        "orbits.condensation": lambda: nm.condensation(NET, params),
        "functionspace.balanced_factors": lambda: space.balanced_factors(W, 2),
        "functionspace.balanced_flow": lambda: space.balanced_flow(W, 2, **flow),
        "functionspace.balanced_operator": lambda: space.balanced_operator(W, 2),
        "functionspace.dense_kernel": lambda: space.dense_kernel(factors),
        "functionspace.dense_parameter_flow": lambda: space.dense_parameter_flow(factors, **flow),
        "functionspace.end_to_end_matrix": lambda: space.end_to_end_matrix(factors),
        "functionspace.fiber": lambda: space.fiber(FILTERS, v),
        "functionspace.filter_jacobian": lambda: space.filter_jacobian(FILTERS, filters),
        "functionspace.filter_kernel": lambda: space.filter_kernel(FILTERS, filters),
        "functionspace.filter_kernel_blocks": lambda: space.filter_kernel_blocks(FILTERS, filters),
        "functionspace.gauge_between": lambda: space.gauge_between(factors, factors),
        "functionspace.gram_differences": lambda: space.gram_differences(factors),
        "functionspace.level_set_sample": lambda: space.level_set_sample(factors, 2, key=KEY),
        "functionspace.metric": lambda: space.metric(FILTERS, v),
        "functionspace.nearest_filter": lambda: space.nearest_filter(FILTERS, v, key=KEY, starts=2),
        "functionspace.norm_differences": lambda: space.norm_differences(FILTERS, filters),
        "functionspace.parameter_flow": lambda: space.parameter_flow(FILTERS, filters, **flow),
        "functionspace.rescale": lambda: space.rescale(FILTERS, filters, delta),
        "functionspace.riemannian_flow": lambda: space.riemannian_flow(FILTERS, v, delta, **flow),
        "functionspace.rotate_factors": lambda: space.rotate_factors(factors, [array(np.eye(2))]),
        "functionspace.search_fiber": lambda: space.search_fiber(
            FILTERS, v, delta, starts=2, key=KEY
        ),
        "bottleneck.balance": lambda: cost.balance(DEEP, deep),
        "bottleneck.balanced_factors": lambda: cost.balanced_factors(W, 2),
        "bottleneck.bottleneck_frames": lambda: cost.bottleneck_frames(DEEP, deep, x[:1], rank=1),
        "bottleneck.bottleneck_structure": lambda: cost.bottleneck_structure(DEEP, deep, x, rank=1),
        "bottleneck.completely_positive": lambda: cost.completely_positive(abs(x)),
        "bottleneck.kernel_curvature": lambda: cost.kernel_curvature(DEEP, deep, x),
        "bottleneck.linear_construction": lambda: cost.linear_construction(W, abs(x), 3),
        "bottleneck.log_plus": lambda: cost.log_plus(W @ W.T),
        "bottleneck.norm_bound": lambda: cost.norm_bound(DEEP, deep, x),
        "bottleneck.ntk_trace_by_layer": lambda: cost.ntk_trace_by_layer(DEEP, deep, x),
        "bottleneck.polyline_interpolant": lambda: cost.polyline_interpolant(abs(x), 3),
        "bottleneck.segment_bound": lambda: cost.segment_bound(DEEP, deep, x[:2]),
    }


STAYING = {
    "graph.trace": "a program: its constants are on the host",
    "tangent.kernel_plan": "a program",
    "tangent.gram": "a store on disk, whose tiles are read from there",
    "inspection.inspect": "a report: its evidence was gathered on the host",
    "symmetry.discover": "groups found in float64, whose elements follow the parameters they act "
    "on",
    "orbits.lie_closure": "exact numbers and a certificate",
    "orbits.closure_upper_bound": "exact numbers",
    "orbits.invariance_residual": "records of many draws",
    "orbits.induces_invariant_manifold": "records of many draws",
}
"""Public functions whose result stays on the host whatever came in (docs/concepts.md says it)."""
