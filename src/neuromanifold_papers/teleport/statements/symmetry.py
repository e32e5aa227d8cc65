"""[teleport] on symmetries: how gradient, Hessian and kernel change.   Eq. 15, 16, 22, 24"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold import symmetry as S
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.symmetry.groups.hadamard import flatten
from neuromanifold_papers.check import EPS, Check, equal
from neuromanifold_papers.statement import control, in_float64, statement
from neuromanifold_papers.teleport.statements import exact
from neuromanifold_papers.teleport.statements.exact import Move, largest

TANH, RELU, LINEAR = (MLP((2, 3, 2), name) for name in ("tanh", "relu", "identity"))
GROUPS: dict[str, tuple[Callable[[], Any], bool]] = {
    "permutation": (lambda: S.PermutationGroup(TANH), True),
    "sign": (lambda: S.SignGroup(TANH), True),
    "signed permutation": (lambda: S.SignedPermutationGroup(TANH), True),
    "scaling": (lambda: S.ScalingGroup(RELU), True),
    "general linear": (lambda: S.GeneralLinearGroup(LINEAR), True),
    "orthogonal": (lambda: S.OrthogonalGroup(LINEAR), True),
    "affine": (lambda: S.AffineGroup(LINEAR), True),
    "batch": (lambda: S.BatchGroup(TANH, _BATCH), False),
}
_BATCH = np.array([[1.0, 0.5], [-0.7, 1.1], [0.3, -1.2]])


@dataclass(frozen=True)
class Draw:
    """A random element of one of the library's groups at random parameters, in float64."""

    group: str
    seed: int

    def __str__(self) -> str:
        return (
            "from neuromanifold_papers.teleport.statements.symmetry import Draw, float_law\n"
            f"float_law(Draw({self.group!r}, {self.seed}))"
        )

    @property
    def hypotheses(self) -> dict[str, str]:
        return {"symmetry": self.group, "arithmetic": "float64"}


@dataclass(frozen=True, eq=False)
class FloatLaw:
    """The library's Γ of g at θ (with T, and T of g⁻¹ at g(θ), where g is nonlinear); J, ∇L,
    ∇²L, ∇²F on both sides.
    """

    law: S.Transformation
    back: S.Transformation | None
    before: tuple[np.ndarray, ...]
    after: tuple[np.ndarray, ...]
    columns: np.ndarray | None

    @property
    def tolerance(self) -> float:
        """Rounding grows with the condition of Γ: twice in a product ΓHΓᵀ, once in the inverse."""
        condition = np.linalg.cond(self.law.gamma)
        bend = 0.0 if self.law.second is None else np.abs(self.law.second).max()
        return float(64 * len(self.law.gamma) * EPS * condition**2 * (1 + bend))


@lru_cache(maxsize=256)
def float_law(draw: Draw) -> FloatLaw:
    """One draw, differentiated on both sides of the symmetry by JAX."""
    make, linear = GROUPS[draw.group]
    group, rng = make(), np.random.default_rng(draw.seed)
    params = group.extend(_parameters(group.net, rng))
    g = group.sample(key=jax.random.key(draw.seed))
    there = g(params)
    law = S.transformation(g, params, second=not linear)
    back = None if linear else S.transformation(g.inverse, there, second=True)
    start, rest = flatten(params), flatten(there)
    moved = [flatten(g(exact.unflatten(params, start + e))) - rest for e in np.eye(len(rest))]
    before, after = (_derivatives(group.net, at) for at in (params, there))
    return FloatLaw(law, back, before, after, np.stack(moved) if linear else None)


def _parameters(net: MLP, rng: np.random.Generator) -> Any:
    shapes = zip(net.widths[:-1], net.widths[1:], strict=True)
    return tuple(Layer(rng.normal(size=(b, a)), 0.5 * rng.normal(size=b)) for a, b in shapes)


def _derivatives(net: MLP, params: Any) -> tuple[np.ndarray, ...]:
    with arithmetic():
        found = _differentiate(net, promote(params, np.float64), jnp.asarray(_BATCH))
        return tuple(np.asarray(part) for part in found)


@jax.jit(static_argnums=0)
def _differentiate(net: MLP, params: Any, x: Any) -> Any:
    """J, ∇L and ∇²L of L = ½Σ(F − 1)², and the Hessian of Σ k F_k over the outputs, at the three
    samples of `_BATCH`.
    """
    start, unravel = ravel_pytree(params)
    f = lambda theta: net(unravel(theta), x).ravel()  # noqa: E731
    loss = lambda theta: ((f(theta) - 1) ** 2).sum() / 2  # noqa: E731
    mixed = lambda theta: jnp.arange(1.0, 7.0) @ f(theta)  # noqa: E731
    hessians = (jax.hessian(g)(start) for g in (loss, mixed))
    return jax.jacrev(f)(start), jax.grad(loss)(start), *hessians


def draws(rng: np.random.Generator, count: int, names: Iterable[str]) -> Iterator[Draw]:
    """`count` random elements, the groups in turn."""
    listed = list(names)
    for k in range(count):
        yield Draw(listed[k % len(listed)], int(rng.integers(2**31)))


LINEAR_GROUPS = [name for name, (_, linear) in GROUPS.items() if linear]


def linear_cases(rng: np.random.Generator, count: int) -> Iterator[Move | Draw]:
    """Linear symmetries: the small ones and random products over the rationals, then the
    library's groups in float64.
    """
    yield from exact.small_moves()
    for _ in range(count // 2):
        yield exact.drawn_move(rng)
    yield from draws(rng, count, LINEAR_GROUPS)


def all_cases(rng: np.random.Generator, count: int) -> Iterator[Move | Draw]:
    """Every symmetry, linear or not."""
    yield from exact.small_moves()
    yield from exact.nonlinear_moves()
    for _ in range(count // 4):
        yield exact.drawn_move(rng)
        yield exact.drawn_nonlinear_move(rng)
    yield from draws(rng, count, GROUPS)


def compared(case: Move | Draw, left: Any, right: Any, tolerance: float = 0.0) -> Check:
    """Two arrays, entry by entry: their largest difference; `tolerance` is relative to the
    largest entry.
    """
    difference = largest(np.asarray(left) - np.asarray(right))
    if isinstance(case, Move):
        return equal(difference, 0)
    size = float(max(largest(left), largest(right)))
    return equal(float(difference), 0.0, tolerance * size)


def _gamma_cases(rng: np.random.Generator, count: int) -> Iterator[Move | Draw]:
    listed = {}
    for move in exact.small_moves():
        if move.element is not None:
            listed.setdefault(move.net.widths, move)
    yield from listed.values()
    yield from draws(rng, count, LINEAR_GROUPS)


@in_float64(
    "Eq 15",
    _gamma_cases,
    control(
        "Γ⁻¹_{αβ} = ∂g_α/∂θ_β, for GL(3)",
        lambda: Draw("general linear", 1),
        inverse=lambda g: np.linalg.inv(g).T,
    ),
)
def eq_15(case: Move | Draw, inverse: Any = np.linalg.inv) -> Check:
    """Γ⁻¹_{αβ} = ∂g_β/∂θ_α (definition): the library's Γ is its inverse for every group.

    The library's Γ against the inverse of ∂g_β/∂θ_α, exact, or read off g column by column
    where g is linear.
    """
    if isinstance(case, Move):
        derivative, _ = exact.derivatives(case.net, case.act, case.theta)
        assert case.element is not None
        params = exact.rounded(exact.layers(case.net, exact.rationals(case.theta)))
        found = S.transformation(exact.rounded(case.element), params).gamma
        expected = exact.inverse(derivative).astype(np.float64)
        difference = np.abs(found - expected).max() / np.abs(expected).max()
        tolerance = float(64 * len(found) * EPS * np.linalg.cond(expected))
        hypotheses = {**case.hypotheses, "arithmetic": "float64"}
        return equal(float(difference), 0.0, tolerance, hypotheses=hypotheses)
    both = float_law(case)
    return compared(case, inverse(both.law.gamma), both.columns, both.tolerance)


def gradient_law(g: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """∇F ↦ Γ∇F, one row for each output.   [teleport, Eq. 16]"""
    return jacobian @ g.T


def _slopes(case: Move) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Γ, and J before and after."""
    found = exact.law(case)
    old, new = (np.stack([jet.slope for jet in side]) for side in (found.before, found.after))
    return found.gamma, old, new


@in_float64(
    "Eq 16",
    all_cases,
    control(
        "Γ left out, scaling of one linear neuron by 2",
        lambda: exact.small_moves()[0],
        law=lambda g, jacobian: jacobian,
    ),
    draws=24,
)
def eq_16(case: Move | Draw, law: Any = gradient_law) -> Check:
    """After a symmetry ∇F becomes Γ∇F."""
    if isinstance(case, Move):
        gamma, old, new = _slopes(case)
        return compared(case, law(gamma, old), new)
    both = float_law(case)
    return compared(case, law(both.law.gamma, both.before[0]), both.after[0], both.tolerance)


def printed_hessian(g: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """ΓᵀHΓ.   [teleport, Eq. 22]"""
    return g.T @ hessian @ g


def indexed_hessian(g: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """Γ_{αμ}Γ_{βν}H_{μν} = ΓHΓᵀ.   [teleport, first term of Eq. 67]"""
    return g @ hessian @ g.T


def _hessian_by_jax(case: Move) -> Check:
    """The same move in float64: the library's Γ, and JAX's Hessians on both sides."""
    assert case.element is not None
    exactly = exact.layers(case.net, exact.rationals(case.theta))
    params, g = map(exact.rounded, (exactly, case.element))
    x, law = np.array(case.x, float), S.transformation(g, params)
    with arithmetic():
        old, new = (
            np.asarray(_hessian(case.net, promote(p, np.float64), jnp.asarray(x)))
            for p in (params, g(params))
        )
    return equal(float(np.abs(printed_hessian(law.gamma, old) - new).max()), 0.0, 1e-10)


@jax.jit(static_argnums=0)
def _hessian(net: MLP, params: Any, x: Any) -> Any:
    start, unravel = ravel_pytree(params)
    return jax.hessian(lambda theta: net(unravel(theta), x)[0, 0])(start)


_HALVED = control(
    "half of ΓHΓᵀ, where Γ is diagonal",
    lambda: exact.small_moves()[0],
    formula=lambda g, hessian: indexed_hessian(g, hessian) / 2,
)


@statement("Eq 22", linear_cases, _HALVED, draws=24, confirm=_hessian_by_jax)
def eq_22(case: Any, formula: Any = printed_hessian) -> Check:
    """After a linear symmetry the Hessian H of F becomes ΓᵀHΓ.

    Over the rationals those of each output, in float64 that of their sum with weights.
    """
    if isinstance(case, Move):
        found = exact.law(case)
        pairs = zip(found.before, found.after, strict=True)
        return equal(max(largest(formula(found.gamma, a.curve) - b.curve) for a, b in pairs), 0)
    both = float_law(case)
    return compared(case, formula(both.law.gamma, both.before[3]), both.after[3], both.tolerance)


eq_22_amended = eq_22.amend(method="float64", formula=indexed_hessian)(
    "After a linear symmetry the Hessian H of F becomes ΓHΓᵀ, as the indices of Eq. 67 have it."
)


def kernel_law(g: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """Θ ↦ ∇FᵀΓᵀΓ∇F with η = 1.   [teleport, Eq. 24]"""
    return jacobian @ g.T @ g @ jacobian.T


@in_float64(
    "Eq 24",
    all_cases,
    control(
        "ΓΓᵀ in place of ΓᵀΓ, a shear of two linear neurons",
        lambda: next(move for move in exact.small_moves() if move.kind == "general linear"),
        law=lambda g, jacobian: kernel_law(g.T, jacobian),
    ),
    draws=24,
)
def eq_24(case: Move | Draw, law: Any = kernel_law) -> Check:
    """After a symmetry the kernel η∇Fᵀ∇F becomes η∇FᵀΓᵀΓ∇F."""
    if isinstance(case, Move):
        gamma, old, new = _slopes(case)
        return compared(case, law(gamma, old), new @ new.T)
    both = float_law(case)
    new = both.after[0]
    return compared(case, law(both.law.gamma, both.before[0]), new @ new.T, both.tolerance)
