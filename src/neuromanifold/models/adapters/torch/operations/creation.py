"""Operations that make arrays from numbers, arithmetic on sizes, and assertions, which make
nothing.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Refusal, Table, table


def arange(*bounds: Any, dtype: Any = None) -> Any:
    """Numbers in equal steps."""
    return jnp.arange(*bounds, dtype=dtype)


def full(size: Sequence[int], value: Any = 0, dtype: Any = None) -> Any:
    """An array of the given shape that holds one value."""
    return jnp.broadcast_to(value, tuple(size))


def full_like(x: Any, value: Any = 0, dtype: Any = None) -> Any:
    """An array shaped like another that holds one value."""
    return jnp.broadcast_to(value, x.shape)


def new_full(x: Any, size: Sequence[int], value: Any = 0, dtype: Any = None) -> Any:
    """The same, with its own shape."""
    return jnp.broadcast_to(value, tuple(size))


def ones(size: Sequence[int], dtype: Any = None) -> Any:
    """Ones."""
    return jnp.broadcast_to(1, tuple(size))


def linspace(start: Any, end: Any, steps: int, dtype: Any = None) -> Any:
    """`steps` numbers in equal distances, both ends included."""
    return jnp.linspace(start, end, steps, dtype=dtype)


def eye(n: int, m: int | None = None, dtype: Any = None) -> Any:
    """The identity matrix."""
    return jnp.eye(n, m)


def random(*_: Any, **__: Any) -> Any:
    """Refused: a model is a function."""
    raise Refusal(
        "draws random numbers; a model must be a function of its parameters and its input"
    )


def item(*_: Any, **__: Any) -> Any:
    """Refused: the program would depend on the values."""
    raise Refusal(
        "turns a value of the data into a Python number; keep it a tensor, or use torch.where"
    )


def branch(*_: Any, **__: Any) -> Any:
    """Refused: which branch runs would depend on the values."""
    raise Refusal(
        "decides by the values of the data; use torch.where, so that one graph serves all values"
    )


def nothing(*_: Any, **__: Any) -> None:
    """An assertion: it has no value."""


def on_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arithmetic on the lengths of axes: numbers only, and none that no axis could have."""

    def operation(*numbers: Any) -> Any:
        if not all(isinstance(number, (int, float)) and abs(number) < 2**63 for number in numbers):
            raise Refusal("computes with something else than the lengths of axes")
        return function(*numbers)

    return operation


_SIZES: Table = {
    f"_operator.{name}": on_sizes(getattr(operator, name))
    for name in [
        "add",
        "sub",
        "mul",
        "floordiv",
        "mod",
        "neg",
        "truediv",
        "and_",
        "or_",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ]
}

_PYTHON: Table = {
    "_operator.getitem": operator.getitem,
    "torch.sym_max": on_sizes(max),
    "torch.sym_min": on_sizes(min),
    "torch.sym_not": on_sizes(operator.not_),
    "torch.sym_float": on_sizes(float),
    "torch.sym_int": on_sizes(int),
    "math.ceil": on_sizes(math.ceil),
    "math.floor": on_sizes(math.floor),
    "math.trunc": on_sizes(math.trunc),
    "higher_order.cond": branch,
    "higher_order.while_loop": branch,
}

CREATION: Table = (
    _SIZES
    | _PYTHON
    | table(
        {
            "sym_size.int": lambda x, dim: x.shape[dim],
            "sym_numel.default": lambda x: math.prod(x.shape),
            "arange.default arange.start arange.start_step": arange,
            # What nobody has written yet is zero here.
            "zeros.default full.default empty.memory_format": full,
            "empty_permuted.default": lambda size, layout, dtype=None: full(size, 0, dtype),
            "ones.default": ones,
            "zeros_like.default full_like.default empty_like.default": full_like,
            "ones_like.default": lambda x, dtype=None: full_like(x, 1),
            "new_zeros.default new_full.default new_empty.default": new_full,
            # Zeros in forward derivatives: of one's batch axes and the other's shape.
            "_new_zeros_with_same_feature_meta.default": lambda x, y, *, self_num_batch_dims=0: (
                jnp.zeros(x.shape[:self_num_batch_dims] + y.shape, y.dtype)
            ),
            "new_ones.default": lambda x, size, dtype=None: new_full(x, size, 1),
            "scalar_tensor.default": lambda value, dtype=None: jnp.asarray(value),
            "linspace.default": linspace,
            "eye.default eye.m": eye,
            "rand.default randn.default rand_like.default randn_like.default bernoulli.default "
            "bernoulli.p "
            "randint.default randint.low randint_like.default normal_functional.default "
            "uniform.default "
            "multinomial.default randperm.default poisson.default rrelu_with_noise_functional.default": random,
            "item.default _local_scalar_dense.default nonzero.default masked_select.default": item,
            "_assert_async.msg _assert_scalar.default _assert_tensor_metadata.default "
            "_linalg_check_errors.default "
            "sym_constrain_range.default sym_constrain_range_for_size.default": nothing,
        }
    )
)
