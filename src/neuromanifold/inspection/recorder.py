"""`Recorder`: what is measured of a network at one step after another."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
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
from neuromanifold.inspection.inspect import failure, subject_of, too_much
from neuromanifold.inspection.sections import LeftOut, bent, find_conserved, float64_rank
from neuromanifold.inspection.subject import Subject
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.inspection.units import statuses
from neuromanifold.models.adapters.model import AdaptedModel
from neuromanifold.models.arguments import one_network, spare_rows
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.precision import boundary, full_products, is_traced
from neuromanifold.numerics.validation import check_param_types, refuse_tracers
from neuromanifold.runtime.pickling import ByName
from neuromanifold.symmetry.conservation.balances import Scalings
from neuromanifold.tangent.curvature import sharpness
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.prediction.alignment import alignment

Values = dict[str, Any]
_SHARPNESS_RTOL = 1e-6


@dataclass
class Reference:
    """What the first record held: the kernel and the conserved quantities, to measure drift
    from; the scalings of channels, found once.
    """

    kernel: np.ndarray | None = None
    network: "_Restated | None" = None
    scalings: Scalings | None = None
    conserved: np.ndarray | None = None
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def restate(self, s: Subject) -> Subject:
        """The same network on the same sample, as a function that serves all steps: statistics
        that have moved are arguments of what was compiled, not part of it.
        """
        if not isinstance(s.f, AdaptedModel):
            return s
        leaves = jax.tree.leaves(s.f.state)
        known = self.network or _Restated(s.f, ())
        first = jax.tree.leaves(known.f.state)
        moved = tuple(
            i
            for i, (now, then) in enumerate(zip(leaves, first, strict=True))
            if i in known.moving or not (_is_key(now) or np.array_equal(now, then))
        )
        if self.network is None or moved != known.moving:
            self.network = _Restated(known.f, moved)
        rows = [np.broadcast_to(leaves[i], (s.samples, *np.shape(leaves[i]))) for i in moved]
        return replace(s, f=self.network, x=(s.x, rows))


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is a key of random numbers, which a network in evaluation does not use."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@dataclass(frozen=True, eq=False)
class _Restated:
    """A network with those leaves of its state that move beside the samples: the same row for
    every sample.
    """

    f: AdaptedModel
    moving: tuple[int, ...]

    def __call__(self, params: Any, x: Any) -> Any:
        """f_θ(x), with the state that comes beside x."""
        if not is_traced((params, x)):
            return _apply_compiled(self, params, x)
        own, rows = x
        leaves, structure = jax.tree.flatten(self.f.state)
        for i, row in zip(self.moving, rows, strict=True):
            leaves[i] = row[0]
        with full_products():
            return self.f.apply(params, structure.unflatten(leaves), own)


@jax.jit(static_argnums=0)
def _apply_compiled(network: _Restated, params: Any, x: Any) -> Any:
    return network(params, x)


@dataclass(frozen=True)
class Measure:
    """`compute` gives named values, or raises `LeftOut`; a list of values has the labels that it
    leaves in the reference under its name.
    """

    title: str
    compute: Callable[[Subject, Reference], Values]
    obstacle: Callable[[Subject], str]
    seconds: Callable[[Subject], float]
    bytes: Callable[[Subject], int] = lambda s: 0


def _targets(s: Subject) -> str:
    return "" if s.y is not None else "no `y` was given"


def _loss(s: Subject, reference: Reference) -> Values:
    s = reference.restate(s)
    with boundary(s.params, s.x):
        return {"loss": float(s.loss(s.values, np.asarray(s.y, np.float64)))}


def _dimension(s: Subject, reference: Reference) -> Values:
    """Exactly where the network allows it, else by singular values with their gap."""
    if s.exactly:
        return {"functional_dimension": int(s.rank)}
    found = float64_rank(reference.restate(s))
    return {"functional_dimension": int(found), "gap": float(found.gap)}


def _dimension_seconds(s: Subject) -> float:
    return exact_seconds(s) if s.exactly else float64_seconds(s)


def _dimension_bytes(s: Subject) -> int:
    return exact_bytes_of(s) if s.exactly else float64_bytes(s)


def _units(s: Subject, reference: Reference) -> Values:
    layers = statuses(s.f, s.graph, s.patterns)
    names = _distinct([layer.name for layer in layers])
    reference.labels |= {"always_off": names, "always_on": names}
    return {
        "always_off": [layer.inactive for layer in layers],
        "always_on": [layer.active for layer in layers],
    }


def _distinct(names: list[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    )


def _alignment(s: Subject, reference: Reference) -> Values:
    s = reference.restate(s)
    return {"alignment": alignment(s.f, s.params, s.x, s.y, loss=s.loss)}


def _sharpness(s: Subject, reference: Reference) -> Values:
    s = reference.restate(s)
    found = sharpness(s.f, s.params, s.x, s.y, loss=s.loss, rtol=_SHARPNESS_RTOL)
    return {"sharpness": found}


def _kernel_drift(s: Subject, reference: Reference) -> Values:
    """‖Θ − Θ₀‖_F / ‖Θ₀‖_F, Θ the tangent kernel summed over outputs, and its effective rank
    exp(−Σ p log p), p = λ/Σλ of its eigenvalues.
    """
    s = reference.restate(s)
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), s.params)
    kernel = np.asarray(ntk(s.f, params, s.x, trace=True, memory=s.budget))
    if reference.kernel is None:
        reference.kernel = kernel
    size = np.linalg.norm(reference.kernel)
    return {
        "kernel_drift": float(np.linalg.norm(kernel - reference.kernel) / size)
        if size > 0
        else np.nan,
        "effective_rank": _effective_rank(kernel),
    }


def _effective_rank(kernel: np.ndarray) -> float:
    values = np.linalg.eigvalsh(kernel)
    shares = values[values > 0] / values[values > 0].sum()
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else 0.0


def _measure_conserved(s: Subject, reference: Reference) -> Values:
    def scalings() -> Scalings:
        """A property of the function: those of the first record serve all."""
        reference.scalings = reference.scalings or s.scalings
        return reference.scalings

    found = find_conserved(s, scalings)
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
    Measure(
        "conserved quantities", _measure_conserved, lambda s: "", scalings_seconds, scalings_bytes
    ),
    Measure(
        "kernel drift",
        _kernel_drift,
        lambda s: "",
        lambda s: passes(s, 2 * s.outputs),
        lambda s: 24 * s.samples**2,
    ),
    Measure("sharpness", _sharpness, _targets, lanczos_seconds),
    Measure("functional dimension", _dimension, lambda s: "", _dimension_seconds, _dimension_bytes),
)


_MOST_ROWS = 1_000
_DIMS = {"always_off": "layer", "always_on": "layer", "conserved_quantities": "quantity"}


class Recorder(ByName):
    """Measures networks on one sample and keeps the values by step; what the first one cannot
    give is not tried again.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        loss: Loss = mse,
        exact: bool | None = None,
        samples: int | None = None,
        memory: int | str | None = None,
        patience: float | int = 10,
    ):
        self._x, self._y, self._patience = x, y, patience
        self._options: dict[str, Any] = {
            "exact": exact, "samples": samples, "memory": memory, "loss": loss, "most_rows": _MOST_ROWS,
        }  # fmt: skip
        self._reference, self._records, self._left_out = (
            Reference(),
            dict[int, Values](),
            dict[str, str](),
        )
        self._prints, self._fits = dict[int, bytes](), set[str]()

    def add(self, step: int, f: Any, params: Any) -> bool:
        """Measure at this step, unless these parameters were measured at it: loops that accumulate
        gradients come by twice.

        Parameters that are not finite leave a row of missing values, not an error.
        """
        refuse_tracers(params, "`Tracker`")
        check_param_types(params)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
        own, known = _fingerprint(leaves), self._prints.get(step)
        if known == own:
            return False
        if known is not None:
            warnings.warn(
                f"`step` {step} was measured before, at other parameters, and is replaced; count "
                "the steps over all epochs.",
                stacklevel=4,
            )
        self._prints[step] = own
        if self._reference.network is not None:
            spare_rows(f, self._reference.network.f)
        if all(np.isfinite(np.asarray(leaf, np.float64)).all() for leaf in leaves):
            with one_network():
                subject = subject_of(f, params, self._x, self._y, **self._options)
                self._records[step] = self._measure(subject)
        else:
            self._records[step] = {}
            self._left_out[f"step {step}"] = "its parameters are not finite"
        return True

    @property
    def count(self) -> int:
        """How many steps were measured."""
        return len(self._records)

    @property
    def timeline(self) -> Timeline:
        """What was measured so far, in the order of the steps."""
        return Timeline(
            _dataset(dict(sorted(self._records.items())), self._reference.labels, self._left_out)
        )

    def _measure(self, subject: Subject) -> Values:
        found: Values = {}
        for measure in MEASURES:
            if measure.title in self._left_out:
                continue
            why = "" if measure.title in self._fits else self._obstacle(measure, subject)
            if why:
                self._left_out[measure.title] = why
            else:
                found |= self._try(measure, subject)
        return found

    def _obstacle(self, measure: Measure, subject: Subject) -> str:
        """Why it cannot be measured; asked once, since shapes do not change."""
        why = measure.obstacle(subject) or too_much(measure, subject, self._patience)
        if not why:
            self._fits.add(measure.title)
        return why

    def _try(self, measure: Measure, subject: Subject) -> Values:
        """A loop that trains must not end because a number overflows, or something fails that
        nobody foresaw.
        """
        try:
            return measure.compute(subject, self._reference)
        except LeftOut as reason:
            self._left_out[measure.title] = str(reason)
            return {}
        except ArithmeticError as error:
            self._left_out[f"{measure.title} at some steps"] = str(error)
            return {}
        except Exception as error:
            self._left_out[measure.title] = failure(
                "Tracker", measure.title, error, "the other measures"
            )
            return {}


def _fingerprint(leaves: list[np.ndarray]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        found.update(leaf.tobytes())
    return found.digest()


def _dataset(
    records: dict[int, Values], labels: dict[str, tuple[str, ...]], left_out: dict[str, str]
) -> Any:
    import xarray

    names = dict.fromkeys(name for record in records.values() for name in record)
    variables = {}
    for name in names:
        blank = [np.nan] * len(labels[name]) if name in labels else np.nan
        values = np.array([record.get(name, blank) for record in records.values()], float)
        variables[name] = (("step", _DIMS[name]) if name in _DIMS else ("step",), values)
    coordinates: dict[str, Any] = {"step": np.array(list(records), int)}
    coordinates |= {_DIMS[name]: list(labels[name]) for name in names if name in labels}
    attributes = {f"left_out_{name}": why for name, why in left_out.items()}
    return xarray.Dataset(variables, coordinates, {"title": "geometry over training", **attributes})
