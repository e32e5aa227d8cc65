"""What every function of a model does first: refuse bad arguments, bring good ones to one dtype,
once for each shape.
"""

import inspect
import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.graph.reading import coarsest
from neuromanifold.models.function import flat_outputs, output_shape
from neuromanifold.models.losses import Loss, cross_entropy
from neuromanifold.numerics.compiling import release_programs, run_once
from neuromanifold.numerics.precision import dtype_of, is_traced, promote, widest
from neuromanifold.numerics.validation import (
    check_finite,
    check_param_types,
    check_sample,
    indefinite,
    leading_axis,
    sample_arrays,
)
from neuromanifold.runtime.packages import find_loaded

Model = Callable[[Any, Any], Any]
"""A network as a function `f(params, x)`: row i of the result depends on row i of `x` alone."""
Params = Any
"""A network's parameters: a pytree of floating-point arrays."""
Samples = Any
"""An array whose first axis counts the samples, or a pytree of such arrays."""
Targets = Any
"""What the outputs should be: an array of their shape, or one class for each sample."""
_SAFETY, _ROUNDED_INSIDE = 1000.0, 16.0


class Signature(NamedTuple):
    """Shapes and dtypes of a pytree, hashable."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], np.dtype], ...]

    @staticmethod
    def of(tree: Any) -> "Signature":
        """Return the signature of a pytree of arrays."""
        leaves, structure = jax.tree.flatten(tree)
        return Signature(structure, tuple((a.shape, a.dtype) for a in leaves))

    @staticmethod
    def of_sample(x: Any) -> "Signature":
        """Return the signature of a batch of one sample of `x`."""
        leaves, structure = jax.tree.flatten(x)
        return Signature(structure, tuple(((1, *a.shape[1:]), a.dtype) for a in leaves))

    def structs(self) -> Any:
        """Return the pytree of shapes and dtypes."""
        return jax.tree.unflatten(
            self.structure, [jax.ShapeDtypeStruct(*leaf) for leaf in self.leaves]
        )


_ADAPTERS = (
    ("torch.nn", "Module", "from_torch(module, example=x)"),
    ("flax.linen", "Module", "from_flax(module, variables)"),
    ("flax.nnx", "Module", "from_flax(module)"),
    ("haiku", "Transformed", "from_haiku(transformed, params)"),
    ("haiku", "TransformedWithState", "from_haiku(transformed, params, state)"),
)


def _refuse_foreign(f: Any) -> None:
    """Modules of other libraries are no functions of parameters; each has its adapter."""
    for package, name, call in _ADAPTERS:
        if (found := find_loaded(package)) is not None and isinstance(f, getattr(found, name)):
            raise TypeError(
                f"`f` is {indefinite(f)} of {package.partition('.')[0]}; make a function of it: "
                f"`f, params = nm.{call}`."
            )


def check_model(f: Any) -> None:
    """Refuse what is no function, models that cannot be remembered, and functions of other
    arguments.
    """
    _refuse_foreign(f)
    if not callable(f) or isinstance(f, type):
        raise TypeError(f"`f` is {indefinite(f)}; pass a model or any function (params, x) → y.")
    try:
        hash(f)
    except TypeError:
        raise TypeError(
            f"`f` is {indefinite(f)}, which cannot be hashed, as modules that hold arrays; keep "
            "arrays in the parameters: "
            "`f, params = nm.from_equinox(module)`, or `f = lambda params, x: …`."
        ) from None
    _check_arguments(f)


_KEPT = 64
"""Functions whose programs are kept, at most."""
_new_functions = itertools.count(1)
_one_network = ContextVar("one network", default=False)


@contextmanager
def one_network() -> Generator[None]:
    """Inside, new functions are one network at its next step: its programs stay."""
    before = _one_network.set(True)
    try:
        yield
    finally:
        _one_network.reset(before)


@lru_cache(maxsize=_KEPT)
def _check_arguments(f: Any) -> None:
    if not _one_network.get() and next(_new_functions) % _KEPT == 0:
        release_programs()
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # some builtins do not say
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        name = getattr(f, "__name__", type(f).__name__)
        raise TypeError(
            f"`f` is {name}{signature}, which cannot be called as f(params, x) ({error}); "
            "fix the other arguments: `lambda params, x: …`."
        ) from None


def check_arguments(
    f: Model, params: Any, x: Any, *more: Any, dtype: Any = None
) -> tuple[Any, ...]:
    """(params, x, *more) as JAX arrays of the widest dtype among them (or `dtype`). Call inside
    `boundary`.
    """
    check_model(f)
    check_param_types(params)
    names = ("x", "x2")
    samples = [sample_arrays(sample, name) for name, sample in zip(names, (x, *more), strict=False)]
    dtype = widest(params, *samples) if dtype is None else dtype
    arguments = tuple(promote(argument, dtype) for argument in (params, *samples))
    for argument, name in zip(arguments, ("params", *names), strict=False):
        check_finite(argument, name)
    for name, sample in zip(names, arguments[1:], strict=False):
        output_size(f, arguments[0], sample, name)
    check_rows(f, arguments[0], arguments[1])
    return arguments


def output_size(f: Model, params: Any, x: Any, name: str = "x") -> int:
    """o: how many numbers f gives at one sample. Asked once for each shape; what f says against
    `x` is said of `name`.
    """
    try:
        return int(np.prod(output_shape(f, params, x), dtype=int))
    except (TypeError, ValueError) as error:
        kept = [note for note in getattr(error, "__notes__", ()) if note.startswith("`f`")]
        error.__notes__ = kept  # without JAX's remark about its own frames
        if isinstance(error, TypeError) and "same dtypes" in str(error):
            said = str(error.__cause__ or error).partition(". ")[0]
            raise TypeError(
                f"`f` casts a part of what it is given ({said}): arrays come in the widest dtype "
                "among parameters and samples; "
                "cast both sides, as in `w.astype(h.dtype)`."
            ) from None
        if name != "x" and str(error).startswith("`x`"):
            raise type(error)(str(error).replace("`x`", f"`{name}`", 1)) from None
        raise


EVALUATION = "pass a model in evaluation mode, without batch statistics"


def check_rows(f: Model, params: Any, x: Any, *, remedy: str = EVALUATION) -> None:
    """Refuse models whose rows influence each other; tried once for each model and shape of a
    sample.
    """
    if is_traced((params, x)) or leading_axis(x) == 1:
        return
    from neuromanifold.models.adapters.model import AdaptedModel  # its room imports this module

    if isinstance(f, RowByRow) or (isinstance(f, AdaptedModel) and f.separate):
        return
    key = (f, Signature.of(params), Signature.of_sample(x))
    if key not in _SEPARATE:
        _compare_rows(f, params, x, remedy)
        _SEPARATE[key] = True
        if len(_SEPARATE) > 4096:
            _SEPARATE.clear()


class RowByRow:
    """A model that takes one sample after the other, so that no row of it sees another."""


_SEPARATE: dict[Any, bool] = {}


def spare_rows(new: Model, old: Model) -> None:
    """Take the rows of `new` as compared where those of `old` were: the same program with other
    constants.
    """
    for _, *shapes in [key for key in _SEPARATE if key[0] is old]:
        _SEPARATE[(new, *shapes)] = True


def _compare_rows(f: Model, params: Any, x: Any, remedy: str) -> None:
    def of_first(params: Any, x: Any) -> tuple[Any, Any]:
        return _row_error(f, params, jax.tree.map(lambda a: a[:3], x))

    error, scale = map(float, run_once(of_first)(params, x))
    eps = float(jnp.finfo(widest(params, x)).eps)
    if error > max(
        _SAFETY * eps * scale * np.sqrt(sum(leaf.size for leaf in jax.tree.leaves(params))),
        _ROUNDED_INSIDE * coarsest(f, params, x) * scale,
    ):
        raise ArithmeticError(
            f"`f` mixes its rows: outputs change by {error:.2g} when other samples are removed; "
            f"{remedy}."
        )


def _row_error(f: Model, params: Any, x: Any) -> tuple[Any, Any]:
    """The largest difference between f on all rows and f on each alone, infinite where one of
    them is finite, and the size of f.
    """
    whole = flat_outputs(f, params, x)
    alone = jax.vmap(lambda row: flat_outputs(f, params, jax.tree.map(lambda a: a[None], row))[0])(
        x
    )
    one, other = jnp.isfinite(whole), jnp.isfinite(alone)
    difference = jnp.where(
        one & other, jnp.abs(whole - alone), jnp.where(one == other, 0.0, jnp.inf)
    )
    sizes = [
        jnp.where(finite, jnp.abs(y), 0.0).max() for finite, y in ((one, whole), (other, alone))
    ]
    return difference.max(), jnp.maximum(*sizes)


def check_target(f: Model, params: Any, x: Any, y: Any, loss: Loss | None = None) -> Any:
    """The target as an array, refused where its shape is not the model's output shape; classes
    become indicators for `cross_entropy`.
    """
    y = check_sample(y, "y")
    expected = (leading_axis(x), *output_shape(f, params, x, single=True))
    if (
        loss is cross_entropy
        and expected[-1] > 1
        and np.shape(y) == expected[:-1]
        and dtype_of(y).kind in "iu"
    ):
        return _indicators(y, expected[-1])
    if np.shape(y) != expected:
        raise ValueError(
            f"`y` has shape {np.shape(y)} but the model's output has {expected}; "
            f"{target_remedy(y, expected)}."
        )
    return y


def _indicators(y: Any, classes: int) -> Any:
    """A row of zeros with a one at the class.

    >>> np.asarray(_indicators(np.array([1, 0]), 3)).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if not is_traced(y) and (
        (odd := np.asarray(y)[(np.asarray(y) < 0) | (np.asarray(y) >= classes)]).size
    ):
        raise ValueError(
            f"`y` has the class {odd[0]}, but the model gives {classes} numbers a sample; count "
            f"the classes 0, …, {classes - 1} and "
            "leave out samples without one."
        )
    return jax.nn.one_hot(y, classes)


def target_remedy(y: Any, expected: tuple[int, ...]) -> str:
    """How targets of another shape become those of the outputs.

    >>> target_remedy(np.array([2, 0, 1, 1]), (4, 3))
    'pass one row for each class: `np.eye(3)[y]`'
    """
    y = np.asarray(y)
    if len(expected) == 2 and expected[1] > 1 and y.size == expected[0] and y.dtype.kind in "iub":
        return (
            "pass one row for each class: "
            f"`np.eye({expected[1]})[{'y' if y.ndim == 1 else 'y.ravel()'}]`"
        )
    return (
        f"pass `y.reshape{expected}`"
        if y.size == np.prod(expected)
        else "pass one row for each sample"
    )
