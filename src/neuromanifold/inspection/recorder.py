"""`Recorder`: what is measured of a network at one step after another."""

import hashlib
import warnings
from typing import Any

import jax
import numpy as np

from neuromanifold.inspection.inspect import failure, subject_of, too_much
from neuromanifold.inspection.measures import MEASURES, Measure, Reference, Values
from neuromanifold.inspection.sections import LeftOut
from neuromanifold.inspection.subject import Subject
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.models.losses import Loss, mse
from neuromanifold.numerics.pickling import ByName
from neuromanifold.numerics.validation import check_param_types, refuse_tracers

_MOST_ROWS = 1_000
_DIMS = {"always_off": "layer", "always_on": "layer", "conserved_quantities": "quantity"}


class Recorder(ByName):
    """Measures networks on one sample and keeps the values by step; what the first one cannot give is not tried again."""

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
        self._reference, self._records, self._left_out = Reference(), dict[int, Values](), dict[str, str]()
        self._prints = dict[int, bytes]()

    def add(self, step: int, f: Any, params: Any) -> bool:
        """Measure at this step, unless these parameters were measured at it: loops that accumulate gradients come by twice.

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
                f"`step` {step} was measured before, at other parameters, and is replaced; count the steps over all epochs.",
                stacklevel=4,
            )
        self._prints[step] = own
        if all(np.isfinite(np.asarray(leaf, np.float64)).all() for leaf in leaves):
            self._records[step] = self._measured(subject_of(f, params, self._x, self._y, **self._options))
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
        return Timeline(_dataset(dict(sorted(self._records.items())), self._reference.labels, self._left_out))

    def _measured(self, subject: Subject) -> Values:
        found: Values = {}
        for measure in MEASURES:
            if measure.title in self._left_out:
                continue
            if why := measure.obstacle(subject) or too_much(measure, subject, self._patience):
                self._left_out[measure.title] = why
            else:
                found |= self._tried(measure, subject)
        return found

    def _tried(self, measure: Measure, subject: Subject) -> Values:
        """A loop that trains must not end because a number overflows, or something fails that nobody foresaw."""
        try:
            return measure.compute(subject, self._reference)
        except LeftOut as reason:
            self._left_out[measure.title] = str(reason)
            return {}
        except ArithmeticError as error:
            self._left_out[f"{measure.title} at some steps"] = str(error)
            return {}
        except Exception as error:
            self._left_out[measure.title] = failure("Tracker", measure.title, error, "the other measures")
            return {}


def _fingerprint(leaves: list[np.ndarray]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        found.update(leaf.tobytes())
    return found.digest()


def _dataset(records: dict[int, Values], labels: dict[str, tuple[str, ...]], left_out: dict[str, str]) -> Any:
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
