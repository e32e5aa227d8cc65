"""`induces_invariant_manifold`: whether the common fixed points of some maps are a manifold that
training never leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.numerics.randomness import Key
from neuromanifold.numerics.results import Result
from neuromanifold.numerics.validation import check_params, refuse_tracers
from neuromanifold.orbits.partition import input_features

Map = Callable[[Any], Any]

_BATCH = 16
_LARGE = 1e50
_STRIDE = 1e-3
_NEWTON_STEPS = 12


@dataclass(frozen=True, eq=False, repr=False)
class MapInvariance(Result):
    """One map g: what it does to the function.

    `everywhere` is the largest |F(gθ) − F(θ)| at random points, relative to |F|; `at_fixed_points`
    the largest
    |Dgᵀ∇F − ∇F| at fixed points, relative to |∇F|. `linear` and `normal` describe g and its differential.
    """

    everywhere: float
    at_fixed_points: float
    linear: bool
    normal: bool
    kind: str

    def __str__(self) -> str:
        form = ("linear" if self.linear else "nonlinear") + (
            ", normal" if self.normal else ", not normal"
        )
        return f"{self.kind} ({form})"


@dataclass(frozen=True, eq=False, repr=False)
class InducedManifold(Result):
    """The answer, and why.

    `verdict` is `"induced"` (maps invariant, tangent condition holds: Theorem 4.1 applies), `"not
    invariant"` (some gradient leaves the tangent space, so the set is no SIM) or `"undecided"` (the
    theorem does not apply, and no gradient was seen to leave). `dimension` is that of the fixed set
    at θ, `cokernel` that of ∩ ker(Dg_iᵀ − id), `angle` the largest angle between the two spaces,
    `departure` the largest part of a gradient ∇F_x orthogonal to the tangent space, relative.
    """

    verdict: str
    maps: tuple[MapInvariance, ...]
    dimension: int
    cokernel: int
    angle: float
    departure: float
    fixed_points: int
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.verdict == "induced"

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.verdict}: fixed set of dimension {self.dimension}",
                *(f"  {r}" for r in self.reasons),
            ]
        )


def induces_invariant_manifold(
    f: Model,
    maps: Map | Sequence[Map],
    params: Params,
    *,
    key: Key | None = None,
    features: int | None = None,
    points: int = 8,
    samples: int = 32,
    rtol: float = 1e-7,
) -> InducedManifold:
    """Return whether  M = {θ : g_i(θ) = θ for all i}  is a structural invariant manifold, near the
    fixed point `params`.   [invariant, Thm 4.1]

    It is when every g_i leaves the function unchanged, globally or to first order at its fixed
    points (D(F∘g_i) = DF there), and  T_θM = ∩ ker(Dg_i(θ)ᵀ − id). The maps are any differentiable
    functions of the parameters. Invariance is tested at random points and at further fixed points
    found from them by Newton's method; the tangent space of M is what fixed points near θ span. All
    of it is numerical, in float64, to the relative tolerance `rtol`, with `samples` random inputs.

    `maps` is one map g or several; `points` is how many fixed points are found.

    >>> difference = lambda theta, x: (theta[0] - theta[1]) * x
    >>> shear = lambda theta: jnp.array([theta[0] + theta[1], 2 * theta[1]])           # [invariant, Ex 4.1]
    >>> induces_invariant_manifold(difference, shear, np.array([1.0, 0.0]), features=1).verdict
    'not invariant'
    """
    refuse_tracers(params, "`induces_invariant_manifold`")
    check_params(params)
    maps = (maps,) if callable(maps) else tuple(maps)
    if not maps:
        raise ValueError("`maps` is empty; pass at least one function of the parameters.")
    key = jax.random.key(0) if key is None else key
    with arithmetic():
        params = promote(params, np.float64)
        _check_fixed(maps, params, rtol)
        return _decide(_setting(f, maps, params, features, key, samples, points), rtol)


@dataclass(frozen=True, eq=False)
class _Setting:
    """Functions of batches of vectors on the host, and the points at which they are asked.

    `outputs` is F(θ) at the inputs, `moved` each F(g_i(θ)), `gradients` DF, `steps` each g_i(θ) −
    θ, `slopes` each Dg_i. `scattered` are random points near and far, `fixed` the given fixed point
    and those found from the scattered ones.
    """

    outputs: Callable[[np.ndarray], np.ndarray]
    moved: Callable[[np.ndarray], np.ndarray]
    gradients: Callable[[np.ndarray], np.ndarray]
    steps: Callable[[np.ndarray], np.ndarray]
    slopes: Callable[[np.ndarray], np.ndarray]
    scattered: np.ndarray
    fixed: np.ndarray


def _setting(
    f: Any, maps: tuple[Map, ...], params: Any, features: Any, key: Any, samples: int, points: int
) -> _Setting:
    theta, unravel = ravel_pytree(params)
    kx, kp = jax.random.split(key)
    x = jax.random.normal(kx, (samples, input_features(f, features)), jnp.float64)
    scales = np.where(np.arange(points) % 2, 1.0, 0.1)[:, None]
    scattered = np.asarray(theta) + scales * np.asarray(
        jax.random.normal(kp, (points, len(theta)), jnp.float64)
    )

    def value(v: Any) -> Any:
        return call(f, unravel(v), x).reshape(-1)

    def images(v: Any) -> Any:
        return jnp.stack([ravel_pytree(g(unravel(v)))[0] for g in maps])

    steps, slopes = _batch(lambda v: images(v) - v), _batch(jax.jacfwd(images))
    found = _newton(steps, slopes, np.concatenate([np.asarray(theta)[None], scattered]))
    return _Setting(
        outputs=_batch(value),
        moved=_batch(lambda v: jax.vmap(value)(images(v))),
        gradients=_batch(jax.jacrev(value)),
        steps=steps,
        slopes=slopes,
        scattered=scattered,
        fixed=found[np.isfinite(found).all(axis=1)],
    )


def _batch(function: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """The function on every row, compiled for one batch size."""
    compiled = jax.jit(jax.vmap(function))

    def apply(rows: np.ndarray) -> np.ndarray:
        padded = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % _BATCH, axis=0)])
        parts = [
            np.asarray(compiled(padded[k : k + _BATCH])) for k in range(0, len(padded), _BATCH)
        ]
        return np.concatenate(parts)[: len(rows)]

    return apply


def _newton(steps: Any, slopes: Any, starts: np.ndarray) -> np.ndarray:
    """Points of M from `starts` by Gauss and Newton's method with the pseudo-inverse; nan where
    none is found.
    """
    points = starts.copy()
    for _ in range(_NEWTON_STEPS):
        value, slope = steps(points), slopes(points) - np.eye(points.shape[1])
        value = value.reshape(len(points), -1)
        slope = slope.reshape(len(points), -1, points.shape[1])
        small = np.abs(value).max(axis=1) <= 1e-13 * (1 + np.abs(points).max(axis=1))
        sound = np.isfinite(value).all(axis=1) & np.isfinite(slope).all(axis=(1, 2))
        points[~sound] = np.nan
        for k in np.flatnonzero(sound & ~small):
            points[k] -= np.linalg.lstsq(slope[k], value[k], rcond=1e-9)[0]
    unfinished = ~(
        np.abs(steps(points)).max(axis=(1, 2)) <= 1e-12 * (1 + np.abs(points).max(axis=1))
    )
    points[unfinished] = np.nan
    return points


def _check_fixed(maps: tuple[Map, ...], params: Any, rtol: float) -> None:
    theta = np.asarray(ravel_pytree(params)[0])
    for index, g in enumerate(maps):
        image = g(params)
        if jax.tree.structure(image) != jax.tree.structure(params):
            raise TypeError(
                f"`maps[{index}]` does not return parameters like `params`; it must map them to "
                "their like."
            )
        moved = float(np.abs(np.asarray(ravel_pytree(image)[0]) - theta).max())
        if not moved <= rtol * (1 + float(np.abs(theta).max())):
            raise ValueError(
                f"`params` is moved by `maps[{index}]` by {moved:.3g}; pass a fixed point, where "
                "g(θ) = θ for every map."
            )


def _decide(setting: _Setting, rtol: float) -> InducedManifold:
    gradients = setting.gradients(setting.fixed)
    sound = _moderate(gradients)
    if not sound[0]:
        raise ValueError(
            "`params` is a point where the gradients of `f` overflow; pass a smaller one."
        )
    fixed, gradients = setting.fixed[sound], gradients[sound]
    setting = replace(setting, fixed=fixed)
    far = setting.gradients(setting.scattered)
    # Where F is critical on all of M its gradients vanish there: lengths are compared with those
    # elsewhere.
    lengths = [
        np.linalg.norm(part, axis=2).max(initial=0.0) for part in (gradients, far[_moderate(far)])
    ]
    size = max(*lengths, np.finfo(float).tiny)
    described = _describe(setting, gradients, float(size), rtol)
    spaces = [_spaces(setting, point) for point in setting.fixed]
    tangent, cokernel = spaces[0]
    angle = max(_angle(t, c) for t, c in spaces)
    departure = max(_departure(g, t) for g, (t, _) in zip(gradients, spaces, strict=True)) / float(
        size
    )
    # The tangent space of a curved set is known to second order in the stride.
    tolerance = rtol if all(m.linear for m in described) else 10 * _STRIDE**2
    invariant, parallel = all(m.kind != "not invariant" for m in described), angle <= tolerance
    verdict = (
        "not invariant"
        if departure > tolerance
        else "induced"
        if invariant and parallel
        else "undecided"
    )
    reasons = (
        *(f"map {i}: {m}" for i, m in enumerate(described)),
        f"tangent space of dimension {len(tangent)}, ∩ ker(Dgᵀ − id) of dimension {len(cokernel)}, "
        f"largest angle {angle:.1e}: the condition {'holds' if parallel else 'fails'}",
        f"gradients leave the tangent space by {departure:.1e} of their length at {len(spaces)} "
        "fixed points",
    )
    return InducedManifold(
        verdict,
        described,
        len(tangent),
        len(cokernel),
        angle,
        departure,
        len(setting.fixed),
        reasons,
    )


def _moderate(values: np.ndarray) -> np.ndarray:
    """For each point: whether everything there is finite and far from overflow."""
    return np.all(np.abs(values.reshape(len(values), -1)) < _LARGE, axis=1)


def _describe(
    setting: _Setting, gradients: np.ndarray, size: float, rtol: float
) -> tuple[MapInvariance, ...]:
    outputs, moved = setting.outputs(setting.scattered), setting.moved(setting.scattered)
    near, far = setting.slopes(setting.fixed), setting.slopes(setting.scattered)
    return tuple(
        _one(outputs, moved[:, i], gradients, near[:, i], far[:, i], size, rtol)
        for i in range(moved.shape[1])
    )


def _one(
    outputs: Any, moved: Any, gradients: Any, near: Any, far: Any, size: float, rtol: float
) -> MapInvariance:
    sound = _moderate(outputs) & _moderate(moved)
    outputs, moved = outputs[sound], moved[sound]
    everywhere = float(
        np.abs(moved - outputs).max(initial=0.0) / np.abs(outputs).max(initial=np.finfo(float).tiny)
    )
    first_order = float(np.abs(gradients @ near - gradients).max() / size)
    linear = all(np.allclose(slope, near[0], rtol=rtol, atol=rtol) for slope in far)
    normal = all(np.allclose(s @ s.T, s.T @ s, rtol=rtol, atol=rtol) for s in near)
    kind = "globally invariant" if everywhere <= rtol else "infinitesimally invariant"
    return MapInvariance(
        everywhere, first_order, linear, normal, kind if first_order <= rtol else "not invariant"
    )


def _spaces(setting: _Setting, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal rows of T_θM and of ∩ ker(Dg_iᵀ − id)."""
    slopes = setting.slopes(point[None])[0] - np.eye(len(point))
    kernel = _kernel(slopes.reshape(-1, len(point)))
    return _tangent_directions(setting, point, kernel), _kernel(
        slopes.transpose(0, 2, 1).reshape(-1, len(point))
    )


def _kernel(matrix: np.ndarray) -> np.ndarray:
    _, values, rows = np.linalg.svd(matrix)
    threshold = (
        1e3 * max(matrix.shape) * np.finfo(float).eps * max(1.0, float(values.max(initial=0.0)))
    )
    return rows[int((values > threshold).sum()) :]


def _tangent_directions(setting: _Setting, point: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The directions of ker(Dg − id) in which fixed points are found: the tangent space, where M
    may be smaller than the kernel.
    """
    if not len(kernel):
        return kernel
    ends = _newton(
        setting.steps, setting.slopes, point + _STRIDE * np.concatenate([kernel, -kernel])
    )
    ahead, behind = np.split(np.nan_to_num(ends - point), 2)
    _, values, rows = np.linalg.svd((ahead - behind) / (2 * _STRIDE), full_matrices=False)
    return rows[values > 0.5]


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    """The largest principal angle; π/2 between spaces of different dimension."""
    if len(a) != len(b):
        return float(np.pi / 2)
    return float(np.arcsin(min(1.0, np.linalg.norm(a - (a @ b.T) @ b, 2)))) if len(a) else 0.0


def _departure(gradients: np.ndarray, tangent: np.ndarray) -> float:
    """max_x |(1 − P)∇F_x|."""
    return float(np.linalg.norm(gradients - (gradients @ tangent.T) @ tangent, axis=1).max())
