"""Checks of what the caller passes: one clear sentence each, nothing computed yet."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from neuromanifold.dynamics.sweep import RESERVED
from neuromanifold.models.arguments import check_model, target_remedy
from neuromanifold.models.function import output_shape
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.precision import dtype_of, promote, widest
from neuromanifold.numerics.validation import (
    check_params,
    check_sample,
    indefinite,
    leading_axis,
    refuse_tracers,
)


def check_hyper(hyper: Any) -> dict[str, np.ndarray]:
    """The values of each hyperparameter as a non-empty list of numbers."""
    if hyper is not None and not isinstance(hyper, Mapping):
        raise TypeError(f"`hyper` is {hyper!r}; pass a dictionary of lists of numbers.")
    checked = {}
    for name, values in dict(hyper or {}).items():
        a = np.asarray(values)
        if name in RESERVED:
            raise ValueError(
                f"`hyper` has an axis {name!r}, a name the history uses itself; rename it."
            )
        if a.ndim != 1 or a.size == 0 or a.dtype.kind not in "fiu":
            raise ValueError(f"`hyper[{name!r}]` is {values!r}; pass a non-empty list of numbers.")
        checked[name] = a
    return checked


class TrainingProblem(NamedTuple):
    """Parameters with a run axis, data sets (S, n, …) in their dtype; and whether the caller had
    given these axes.
    """

    params: Any
    x: np.ndarray
    y: np.ndarray
    stacked: bool
    single: bool


def check_problem(
    f: Any, params: Any, x: Any, y: Any, stacked: bool | None, single: bool | None
) -> TrainingProblem:
    """Decide by shapes what the leading axes of `x`, `y` and `params` count, where the caller
    has not said it.
    """
    refuse_tracers((params, x, y), "`train`")
    check_model(f)
    check_params(params)
    x, y = check_sample(x), check_sample(y, "y")
    if isinstance(x, dict | tuple):
        raise TypeError(
            f"`x` is a {type(x).__name__} of {len(x)} arrays, and `train` takes one; "
            "join them on their last axis and take them apart in `f`."
        )
    stacked = _is_stacked(f, np.ndim(x)) if stacked is None else stacked
    axes = 2 if stacked else 1
    if np.shape(x)[:axes] != np.shape(y)[:axes] or np.ndim(x) < axes:
        what = "(data sets, samples)" if stacked else "(samples,)"
        raise ValueError(
            f"`x` has shape {np.shape(x)} but `y` has {np.shape(y)}; both must begin with the "
            f"same {what}."
        )
    x, y = np.asarray(promote(x, _own_dtype(params))), np.asarray(promote(y, widest(params)))
    x, y = (x, y) if stacked else (x[None], y[None])
    single = _is_single(f, params, x[0], y[0], single)
    return TrainingProblem(
        jax.tree.map(lambda a: np.asarray(a)[None] if single else a, params), x, y, stacked, single
    )


def _own_dtype(params: Any) -> np.dtype:
    """The dtype of the parameters where they have one alone, bfloat16 and float16 too; else the
    widest.
    """
    own = {dtype_of(leaf) for leaf in jax.tree.leaves(params)}
    return own.pop() if len(own) == 1 else widest(params)


def _is_stacked(f: Any, ndim: int) -> bool:
    if ndim <= 2 or perceptron(f):
        return ndim > 2
    raise ValueError(
        f"`x` has {ndim} axes: say `stacked=True` if the first one counts data sets, "
        "`stacked=False` if it counts samples."
    )


def _is_single(f: Any, params: Any, x: np.ndarray, y: np.ndarray, single: bool | None) -> bool:
    """Whether `params` is one network: the reading under which `f` takes them and returns the
    shape of `y`.
    """
    runs = _runs(params)
    readings = {True: params} | ({} if runs is None else {False: _without_axis(params)})
    if single is False and runs is None:
        raise ValueError(
            f"`single` is False but `params` has no common run axis in front ({_shapes(params)}); "
            f"{_REMEDY}."
        )
    found = {kind: _error(f, one, x, y) for kind, one in readings.items() if single in (None, kind)}
    fitting = [kind for kind, error in found.items() if error is None]
    if len(fitting) == 2:
        raise ValueError(
            f"`params` ({_shapes(params)}) may be one network or {runs} of them: say "
            "`single=True` or `single=False`."
        )
    if not fitting:
        errors = [error for error in (found.get(False), found.get(True)) if error is not None]
        raise next((error for error in errors if str(error).startswith("`y`")), errors[0])
    return fitting[0]


_REMEDY = "draw runs with `net.init(key=key, runs=R)`, or pass one network with `single=True`"


def _runs(params: Any) -> int | None:
    """The length of the axis that all arrays have in front, `None` where they have none in
    common.
    """
    lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    return lengths.pop()[0] if len(lengths) == 1 and lengths.isdisjoint({(), (0,)}) else None


def _shapes(params: Any) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    shown = ", ".join(
        f"params{jax.tree_util.keystr(path)} {np.shape(leaf)}" for path, leaf in leaves[:3]
    )
    return shown if len(leaves) <= 3 else f"{shown}, …"


def _without_axis(params: Any) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a)[1:], dtype_of(a)), params)


def _error(f: Any, params: Any, x: np.ndarray, y: np.ndarray) -> Exception | None:
    try:
        check_targets(f, params, x, y)
    except (ValueError, TypeError) as error:
        return error
    return None


def check_targets(f: Any, params: Any, x: Any, y: Any) -> None:
    """Refuse targets of another shape than the model's outputs."""
    shape = output_shape(f, params, x, single=True)
    expected = (leading_axis(x), *shape)
    if expected != np.shape(y):
        raise ValueError(
            f"`y` has shape {np.shape(y)} but `f` returns {expected}; {target_remedy(y, expected)}."
        )


def check_hashable(**parts: Any) -> None:
    """Refuse functions that cannot be part of a compiled program's name."""
    for name, part in parts.items():
        try:
            hash(part)
        except TypeError:
            raise TypeError(
                f"`{name}` is {indefinite(part)}, which cannot be hashed; pass a function, for "
                "example "
                "`lambda params, x: …`, that takes all its arrays as arguments."
            ) from None
