"""Checks of what the caller passes: one clear sentence each, nothing computed yet."""

from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics.sweep import RESERVED
from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import promote, widest
from neuromanifold.numerics.validation import check_params, check_sample


def checked_runs(params: Any) -> int:
    """The length of the run axis that every array of `params` must have in front."""
    check_params(params)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    lengths = {jax.tree_util.keystr(path): np.shape(leaf)[:1] for path, leaf in leaves}
    if len(set(lengths.values())) > 1 or () in lengths.values() or (0,) in lengths.values():
        shown = ", ".join(f"params{path} {np.shape(leaf)}" for path, leaf in leaves[:3])
        raise ValueError(
            f"`params` has no common run axis in front ({shown}, …); draw runs with `net.init(key=key, runs=R)`, "
            "or give one network the axis by `jax.tree.map(lambda a: a[None], params)`."
        )
    return next(iter(lengths.values()))[0]


def checked_hyper(hyper: Any) -> dict[str, np.ndarray]:
    """The values of each hyperparameter as a non-empty list of numbers."""
    checked = {}
    for name, values in dict(hyper or {}).items():
        a = np.asarray(values)
        if name in RESERVED:
            raise ValueError(f"`hyper` has an axis {name!r}, a name the history uses itself; rename it.")
        if a.ndim != 1 or a.size == 0 or a.dtype.kind not in "fiu":
            raise ValueError(f"`hyper[{name!r}]` is {values!r}; pass a non-empty list of numbers.")
        checked[name] = a
    return checked


def checked_data(f: Any, params: Any, x: Any, y: Any, stacked: bool | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Data sets (S, n, …) in the dtype of the parameters, and whether the caller had stacked them."""
    check_sample(x)
    check_sample(y, "y")
    stacked = _is_stacked(f, np.ndim(x)) if stacked is None else stacked
    axes = 2 if stacked else 1
    if np.shape(x)[:axes] != np.shape(y)[:axes] or np.ndim(x) < axes:
        what = "(data sets, samples)" if stacked else "(samples,)"
        raise ValueError(
            f"`x` has shape {np.shape(x)} but `y` has {np.shape(y)}; both must begin with the same {what}."
        )
    x, y = (np.asarray(a) for a in promote((x, y), widest(params)))
    x, y = (x, y) if stacked else (x[None], y[None])
    _check_model(f, params, x[0], y[0])
    return x, y, stacked


def _is_stacked(f: Any, ndim: int) -> bool:
    if ndim <= 2 or isinstance(f, MLP):
        return ndim > 2
    raise ValueError(
        f"`x` has {ndim} axes: say `stacked=True` if the first one counts data sets, `stacked=False` if it counts samples."
    )


def _check_model(f: Any, params: Any, x: np.ndarray, y: np.ndarray) -> None:
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a)[1:], a.dtype), params)
    try:
        check_targets(f, one, x, y)
    except (ValueError, TypeError):
        if _accepts(f, params, x):
            raise ValueError(
                "`params` is one network without a run axis; draw runs with `net.init(key=key, runs=R)`, "
                "or give it the axis by `jax.tree.map(lambda a: a[None], params)`."
            ) from None
        raise


def _accepts(f: Any, params: Any, x: np.ndarray) -> bool:
    try:
        output_shape(f, params, x)
    except (ValueError, TypeError):
        return False
    return True


def check_targets(f: Any, params: Any, x: Any, y: Any) -> None:
    """Refuse targets of another shape than the model's outputs."""
    shape = output_shape(f, params, x)
    if (len(x), *shape) != np.shape(y):
        raise ValueError(f"`y` has shape {np.shape(y)} but `f` returns {(len(x), *shape)}; pass equal shapes.")


def check_hashable(**parts: Any) -> None:
    """Refuse functions that cannot be part of a compiled program's name."""
    for name, part in parts.items():
        try:
            hash(part)
        except TypeError:
            raise TypeError(
                f"`{name}` is a {type(part).__name__}, which cannot be hashed; pass a function, for example "
                "`lambda params, x: …`, that takes all its arrays as arguments."
            ) from None
