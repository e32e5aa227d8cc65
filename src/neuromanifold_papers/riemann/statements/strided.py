"""`riemann`, Thm 4, Lem 5, Cor 6: one-dimensional networks with strides above one."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.linalg import svdvals

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.metric import level_set_tangents
from neuromanifold.functionspace.search import join, search_fiber
from neuromanifold.models.convolution import LinearConvNet
from neuromanifold_papers.check import Check, Drops, at_most, equal, outside
from neuromanifold_papers.riemann.statements import exact
from neuromanifold_papers.riemann.statements.algebra import rescalings
from neuromanifold_papers.riemann.statements.conserved import RUNNING, data_loss
from neuromanifold_papers.riemann.statements.locus import is_singular
from neuromanifold_papers.statement import control

STRIDE_ONE = LinearConvNet((3, 2), (1, 1))
CUBIC = (np.array([0, 1, 0]), np.array([1, 1]))
SMOOTH = (np.array([1, 2, 3]), np.array([1, 10]))
SMALLEST = (LinearConvNet((2, 2), (2, 1)), RUNNING, LinearConvNet((3, 2, 2), (2, 2, 1)))
"""Whose filters with entries −1, 0, 1 are enumerated: zeros, repeated and shared roots, several
tuples and rank drops occur.
"""


def strided_nets() -> list[LinearConvNet]:
    """Sizes 2–4 with strides 2, 3 (H ≤ 2), sizes 2–3 with strides 2, 3 (H = 3), and one net of
    four layers.
    """
    return [
        *exact.all_nets((2, 3, 4), (2, 3), (1, 2)),
        *exact.all_nets((2, 3), (2, 3), (3,)),
        LinearConvNet((2, 2, 2, 2), (2, 2, 2, 1)),
    ]


def _sign_name(delta: Any) -> str:
    delta = np.asarray(delta, float)
    signs = {"0": not delta.any(), "positive": (delta >= 0).all(), "negative": (delta <= 0).all()}
    return next((name for name, holds in signs.items() if holds), "mixed")


def fibre_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Filters with entries −1, 0, 1, all of them; every small net with small integer filters and
    δ = 0, one sign, mixed; then Gaussians.
    """
    nets, deltas = strided_nets(), (0.0, 2.0, -1.5)
    for net in SMALLEST:
        for index, params in enumerate(exact.signed_filters(net)):
            yield net, params, np.full(net.depth - 1, deltas[index % 3])
    for index, net in enumerate(nets):
        yield net, exact.integer_filters(net, rng, 1), np.full(net.depth - 1, deltas[index % 3])
        yield net, exact.integer_filters(net, rng, 4), 3 * rng.normal(size=net.depth - 1)
    for _ in range(draws):
        net = nets[rng.integers(len(nets))]
        yield net, exact.gaussian_filters(net, rng), 3 * rng.normal(size=net.depth - 1)


def not_smooth(net: LinearConvNet, v: np.ndarray) -> Drops:
    """The drop of a filter near which tangent spaces of M are apart.

    Not the library's `is_smooth`: that asks for one tuple over v, which is what the theorems
    conclude.
    """
    return outside("v is not smooth", when=is_singular(net, v))


_STRIDE_ONE = control("stride one: x²y + xy², δ = 0", lambda: (STRIDE_ONE, CUBIC, np.zeros(1)))


@exact.in_float64("Thm 4 (count)", fibre_cases, _STRIDE_ONE)
def thm_4_count(case: Any) -> Check:
    """D = 1, inner strides above one: over a smooth v and any δ lie exactly 2^{H−1} parameter
    tuples.
    """
    net, params, delta = case
    v = net.end_to_end(params)
    found, drops = len(fs.fiber(net, v, delta)), not_smooth(net, v)
    return equal(found, rescalings(net.depth), drops=drops, delta=_sign_name(delta))


def condition(net: LinearConvNet, params: Any) -> float:
    """σ_1/σ_{dim M} of dμ: how an error of v, relative, grows into one of θ."""
    spectrum = svdvals(fs.filter_jacobian(net, params))
    least = max(spectrum[fs.neuromanifold_dimension(net) - 1], exact.EPS * spectrum[0])
    return float(spectrum[0] / least)


def kernel_check(case: Any, **said: Any) -> Check:
    """The largest relative distance between the kernel of θ rescaled to δ and those of all tuples
    over (μ(θ), δ).
    """
    net, params, delta = case
    planted, v = fs.rescale(net, params, delta).params, net.end_to_end(params)
    K = fs.filter_kernel(net, planted)
    gaps = [fs.kernel_distance(K, fs.filter_kernel(net, p)) for p in fs.fiber(net, v, delta)]
    gap, rounding = max(gaps, default=float("nan")), 64 * exact.EPS * condition(net, planted)
    return equal(gap, 0.0, rounding, drops=not_smooth(net, v), **said)


@exact.in_float64("Thm 4 (kernel)", fibre_cases, _STRIDE_ONE)
def thm_4_kernel(case: Any) -> Check:
    """D = 1, inner strides above one: all parameters over a smooth v and δ have the same NTK."""
    return kernel_check(case, delta=_sign_name(case[2]))


_SEARCHED = (
    RUNNING,
    LinearConvNet((2, 2), (3, 1)),
    LinearConvNet((3, 3), (2, 1)),
    LinearConvNet((2, 2, 2), (2, 2, 1)),
)


@exact.in_float64(
    "Thm 4 (search)",
    exact.gaussian_cases(_SEARCHED, lambda net, rng: rng.normal(size=net.depth - 1)),
    _STRIDE_ONE,
    draws=6,
)
def thm_4_search(case: Any) -> Check:
    """Least squares from many starts, which knows no algebra, finds the same 2^{H−1} tuples over
    (v, δ).
    """
    net, params, delta = case
    found = search_fiber(net, net.end_to_end(params), delta, starts=24)
    return equal(len(found), rescalings(net.depth), delta=_sign_name(delta))


_flow_cases = exact.gaussian_cases((RUNNING, LinearConvNet((2, 2, 2), (2, 2, 1))), data_loss)


def _parting() -> Any:
    """Stride one: the flow of one tuple against the function-space branch of another tuple over
    the same (v, δ).
    """
    first, second = fs.fiber(STRIDE_ONE, np.array([0.0, 1.0, 1.0, 0.0]), 0.5).up_to_signs[:2]
    loss = fs.FilterLoss(np.eye(4), np.array([1.0, -1.0, 0.5, 2.0]))
    return STRIDE_ONE, first, loss, second


_SHEETS = (
    RUNNING,
    (np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0])),
    fs.FilterLoss(np.eye(5), np.array([1.0, -3.0, 2.0, -1.0, 1.0])),
    (np.array([2.0, 0.0, 1.0]), np.array([1.0, 2.0])),
)
"""Two tuples over v = (2, 0, 5, 0, 2) and δ = 0, and ℓ = |v − u|²."""


def _velocities(case: Any) -> Check:
    """The largest entry of v̇ − v̇' = −(K_θ − K_θ')∇ℓ(v) over both tuples, in integers."""
    net, params, _, start = case
    away = 2 * np.array([1, 3, 3, 1, 1], object)
    thetas = (tuple(w.astype(int).astype(object) for w in theta) for theta in (params, start))
    rates = [fs.filter_kernel(net, theta) @ away for theta in thetas]
    return equal(max(abs(rates[0] - rates[1])), 0)


@exact.by_integration(
    "Thm 4 (flow)",
    lambda rng, draws: (_SHEETS, *_flow_cases(rng, draws)),
    control("stride one, two tuples over one (v, δ)", _parting),
    draws=2,
    show=lambda case: exact.written((*case[:2], *map(list, case[3:]))),
    confirm=_velocities,
)
def thm_4_flow(case: Any) -> Check:
    """D = 1, inner strides above one: gradient flow is a Riemannian gradient flow on function space,
    given by v and δ, regardless of the initialisation.

    The flow in function space of one tuple, and of filters that start there or at another tuple.
    """
    net, params, loss, *others = case
    start = others[0] if others else params
    v, delta = net.end_to_end(params), fs.norm_differences(net, params)
    options: dict[str, Any] = {"loss": loss, "t1": 0.5, "times": 4}
    down = fs.parameter_flow(net, start, **options)
    up = fs.riemannian_flow(net, v, delta, params=params, **options)
    rounding = 1e-12 * (down.evaluations + up.evaluations) * float(np.abs(down.v[0]).max())
    return equal(float(np.abs(down.v - up.v).max()), 0.0, rounding, delta="positive")


thm_4_flow_on_one_sheet = thm_4_flow.amend(
    control("two tuples over a singular v, and the same δ", lambda: _SHEETS),
    id="Thm 4 (flow on one sheet)",
    cases=_flow_cases,
)(
    "D = 1, inner strides above one: as long as v(t) is smooth, gradient flow is given by v and "
    "δ; where it crosses the singular locus it stays on the sheet of M that θ names"
)


def level_set_rows(net: LinearConvNet, params: Any) -> np.ndarray:
    """The equations ⟨w_{l+1}, ẇ_{l+1}⟩ − ⟨w_l, ẇ_l⟩ = 0 of T_θΘ_δ.   [riemann, Eq 9]"""
    signs = [{l: -1, l + 1: 1} for l in range(net.depth - 1)]
    rows = [join(tuple(sign.get(l, 0) * w for l, w in enumerate(params))) for sign in signs]
    return np.array(rows, object).reshape(net.depth - 1, net.n_params)


def integer_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    nets = strided_nets()
    for net in nets:
        for size in (1, 3, 20):
            yield net, exact.integer_filters(net, rng, size)
    for _ in range(draws):
        net = nets[rng.integers(len(nets))]
        yield net, exact.integer_filters(net, rng, 10**4)


def _lemma_5_cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
    """Filters with entries −1, 0, 1, all of them, then larger integers."""
    yield from ((net, params) for net in SMALLEST for params in exact.signed_filters(net))
    yield from integer_cases(rng, draws)


@exact.statement(
    "Lem 5",
    _lemma_5_cases,
    control(
        "filters that share a factor, where v is singular",
        lambda: (RUNNING, (np.array([1, 0, 1], object), np.array([1, 1], object))),
    ),
)
def lem_5(case: Any) -> Check:
    """D = 1, inner strides above one: d_θμ restricted to T_θΘ_δ is a bijection onto T_vM for
    every θ over a smooth v.

    dμ is injective on T_θΘ_δ exactly when J and the equations of T_θΘ_δ together have rank Σ
    k_l.
    """
    net, params = case
    J = fs.filter_jacobian(net, params)
    stacked = np.concatenate([J, level_set_rows(net, params)])
    drops = not_smooth(net, net.end_to_end(params))
    return equal(exact.rank(stacked), net.n_params, drops=drops)


@exact.statement(
    "Lem 5 (Θ_δ)",
    integer_cases,
    control("both filters zero", lambda: (RUNNING, (np.zeros(3, object), np.zeros(2, object)))),
)
def lem_5_level(case: Any) -> Check:
    """Θ_δ is a manifold of dimension dim M with the tangent spaces of Eq 9."""
    net, params = case
    tangents = level_set_tangents(net, tuple(np.asarray(w, float) for w in params)).shape[1]
    equations = exact.rank(level_set_rows(net, params)) if net.depth > 1 else 0
    dimension = fs.neuromanifold_dimension(net)
    return equal(abs(tangents - dimension) + abs(net.n_params - equations - dimension), 0)


def pushforward(net: LinearConvNet, over: Any, basis: np.ndarray) -> np.ndarray:
    """The average over the fibre of ‖(d_θμ|_{TΘ_δ})⁻¹ v̇‖², as a matrix in the basis of T_vM.
    [riemann, proof of Cor 6]
    """
    total = np.zeros((basis.shape[1],) * 2)
    for theta in over:
        tangents = level_set_tangents(net, theta)
        lifts = np.linalg.lstsq(fs.filter_jacobian(net, theta) @ tangents, basis, rcond=None)[0]
        total += lifts.T @ lifts
    return total / len(over)


@exact.in_float64(
    "Cor 6",
    fibre_cases,
    control(
        "the sum over the fibre instead of the average",
        lambda: (RUNNING, SMOOTH, np.ones(1)),
        factor=2.0,
    ),
)
def cor_6(case: Any, factor: float = 1.0) -> Check:
    """D = 1, inner strides above one: the Euclidean metric of Θ_δ pushed forward by μ is K⁻¹ on
    T_vM.

    K⁻¹ on T_vM against the pushforward of the Euclidean metric of Θ_δ.
    """
    net, params, delta = case
    v = net.end_to_end(params)
    if drops := not_smooth(net, v):
        return equal(0.0, 0.0, drops=drops, delta=_sign_name(delta))
    over = fs.fiber(net, v, delta)
    J = fs.filter_jacobian(net, over[0])
    basis = np.linalg.svd(J)[0][:, : fs.neuromanifold_dimension(net)]
    inverse = np.linalg.inv(basis.T @ fs.filter_kernel(net, over[0]) @ basis)
    pushed = factor * pushforward(net, over, basis)
    gap = float(np.linalg.norm(inverse - pushed) / np.linalg.norm(inverse))
    rounding = 64 * exact.EPS * condition(net, over[0]) ** 2
    return equal(gap, 0.0, rounding, delta=_sign_name(delta))


def lost_digits(matrix: np.ndarray) -> float:
    """log10 of the condition number of a symmetric matrix; infinite where it is not positive
    definite.
    """
    values = np.linalg.eigvalsh(matrix)
    return float(np.log10(values[-1] / values[0])) if values[0] > 0 else float("inf")


# Beyond this condition number float64 does not tell a positive definite matrix from a degenerate
# one.
_DIGITS = -float(np.log10(64 * exact.EPS))


def _degenerate(net: LinearConvNet, v: np.ndarray, delta: Any) -> Any:
    """K of the running example where dμ drops rank, on a space of dimension dim M: it has no
    inverse there.
    """
    K = fs.filter_kernel(RUNNING, (np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0])))
    basis = np.linalg.eigh(K)[1][:, -fs.neuromanifold_dimension(RUNNING) :]
    return SimpleNamespace(matrix=basis.T @ K @ basis)


@exact.in_float64(
    "Cor 6 (metric)",
    fibre_cases,
    control(
        "the kernel of a filter at which dμ drops rank",
        lambda: (RUNNING, SMOOTH, np.ones(1)),
        metric=_degenerate,
    ),
    draws=10,
)
def cor_6_metric(case: Any, metric: Callable[..., Any] = fs.metric) -> Check:
    """For every δ, K^(δ)(v)⁻¹ is positive definite on T_vM at every smooth v."""
    net, params, delta = case
    v = net.end_to_end(params)
    if drops := not_smooth(net, v):
        return equal(0.0, 0.0, drops=drops, delta=_sign_name(delta))
    return at_most(lost_digits(metric(net, v, delta).matrix), _DIGITS, delta=_sign_name(delta))
