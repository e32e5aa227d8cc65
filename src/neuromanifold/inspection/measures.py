"""What a tracker measures: each quantity with the reason for leaving it out, and about what it costs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from neuromanifold.inspection.costs import (
    deciding_seconds,
    exact_bytes_of,
    exact_seconds,
    float64_bytes,
    float64_seconds,
    lanczos_seconds,
    passes,
    scalings_bytes,
    scalings_seconds,
)
from neuromanifold.inspection.sections import LeftOut, bent, conserved, float64_rank
from neuromanifold.inspection.subject import Subject
from neuromanifold.inspection.units import statuses
from neuromanifold.numerics.precision import boundary
from neuromanifold.symmetry.balances import Scalings
from neuromanifold.tangent.alignment import alignment
from neuromanifold.tangent.curvature import sharpness
from neuromanifold.tangent.ntk import ntk

Values = dict[str, Any]
_SHARPNESS_RTOL = 1e-6


@dataclass
class Reference:
    """What the first record held: the kernel and the conserved quantities, to measure drift from; the scalings of channels, found once."""

    kernel: np.ndarray | None = None
    scalings: Scalings | None = None
    conserved: np.ndarray | None = None
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """`compute` gives named values, or raises `LeftOut`; a list of values has the labels that it leaves in the reference under its name."""

    title: str
    compute: Callable[[Subject, Reference], Values]
    obstacle: Callable[[Subject], str]
    seconds: Callable[[Subject], float]
    bytes: Callable[[Subject], int] = lambda s: 0


def _targets(s: Subject) -> str:
    return "" if s.y is not None else "no `y` was given"


def _loss(s: Subject, reference: Reference) -> Values:
    with boundary(s.params, s.x):
        return {"loss": float(s.loss(s.values, np.asarray(s.y, np.float64)))}


def _dimension(s: Subject, reference: Reference) -> Values:
    """Exactly where the network allows it, else by singular values with their gap."""
    if s.exactly:
        return {"functional_dimension": int(s.rank)}
    found = float64_rank(s)
    return {"functional_dimension": int(found), "gap": float(found.gap)}


def _dimension_seconds(s: Subject) -> float:
    return exact_seconds(s) if s.exactly else float64_seconds(s)


def _dimension_bytes(s: Subject) -> int:
    return exact_bytes_of(s) if s.exactly else float64_bytes(s)


def _units(s: Subject, reference: Reference) -> Values:
    layers = statuses(s.f, s.graph, s.patterns)
    names = _distinct([layer.name for layer in layers])
    reference.labels |= {"always_off": names, "always_on": names}
    return {"always_off": [layer.inactive for layer in layers], "always_on": [layer.active for layer in layers]}


def _distinct(names: list[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)
    )


def _alignment(s: Subject, reference: Reference) -> Values:
    return {"alignment": alignment(s.f, s.params, s.x, s.y, loss=s.loss)}


def _sharpness(s: Subject, reference: Reference) -> Values:
    found = sharpness(s.f, s.params, s.x, s.y, loss=s.loss, kind="hessian", rtol=_SHARPNESS_RTOL)
    return {"sharpness": found}


def _kernel_drift(s: Subject, reference: Reference) -> Values:
    """‖Θ − Θ₀‖_F / ‖Θ₀‖_F, Θ the tangent kernel summed over outputs."""
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), s.params)
    kernel = np.asarray(ntk(s.f, params, s.x, trace=True, memory=s.budget))
    if reference.kernel is None:
        reference.kernel = kernel
    size = np.linalg.norm(reference.kernel)
    return {"kernel_drift": float(np.linalg.norm(kernel - reference.kernel) / size) if size > 0 else np.nan}


def _conserved(s: Subject, reference: Reference) -> Values:
    def scalings() -> Scalings:
        """A property of the function: those of the first record serve all."""
        reference.scalings = reference.scalings or s.scalings
        return reference.scalings

    found = conserved(s, scalings)
    if not len(found):
        raise LeftOut("no continuous symmetry of the network gives one")
    values = np.asarray(found.values)
    if reference.conserved is None:
        reference.conserved = values
    reference.labels["conserved_quantities"] = found.labels
    return {
        "conserved_quantities": values.tolist(),
        "conserved_drift": float(np.abs(values - reference.conserved).max()),
    }


MEASURES = (
    Measure("loss", _loss, _targets, lambda s: passes(s, 1)),
    Measure("alignment", _alignment, _targets, lambda s: passes(s, 3)),
    Measure("units", _units, bent, deciding_seconds),
    Measure("conserved quantities", _conserved, lambda s: "", scalings_seconds, scalings_bytes),
    Measure(
        "kernel drift", _kernel_drift, lambda s: "", lambda s: passes(s, 2 * s.outputs), lambda s: 24 * s.samples**2
    ),
    Measure("sharpness", _sharpness, _targets, lanczos_seconds),
    Measure("functional dimension", _dimension, lambda s: "", _dimension_seconds, _dimension_bytes),
)
