"""What every function of this room does first: refuse bad arguments, bring good ones to one dtype."""

from collections.abc import Callable
from typing import Any

import numpy as np

from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import promote, widest
from neuromanifold.numerics.validation import check_params, check_sample

Model = Callable[[Any, Any], Any]


def checked(f: Model, params: Any, x: Any, *more: Any, dtype: Any = None) -> tuple[Any, ...]:
    """(params, x, *more) as JAX arrays of the widest dtype among them (or `dtype`). Call inside `arithmetic`."""
    if not callable(f):
        raise TypeError(f"`f` is a {type(f).__name__}; pass a model or any function (params, x) → y.")
    check_params(params)
    samples = [check_sample(sample, name) for name, sample in zip(("x", "x2"), (x, *more), strict=False)]
    if isinstance(f, MLP):
        for name, sample in zip(("x", "x2"), samples, strict=False):
            f.check(params, sample, name)
    dtype = widest(params, *samples) if dtype is None else dtype
    arguments = tuple(promote(argument, dtype) for argument in (params, *samples))
    output_shape(f, arguments[0], arguments[1])
    return arguments


def check_target(f: Model, params: Any, x: Any, y: Any) -> None:
    """Refuse a target whose shape is not the model's output shape."""
    y = check_sample(y, "y")
    expected = (np.shape(x)[0], *output_shape(f, params, x))
    if np.shape(y) != expected:
        raise ValueError(f"`y` has shape {np.shape(y)} but the model's output has {expected}; reshape the target.")
