"""Optimisers: any of optax, torch-style Adam by name, and functions of hyperparameters that
return one.
"""

import re
from functools import lru_cache
from typing import Any, cast

import optax

from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.validation import indefinite

Optimizer = Any
"""An `optax.GradientTransformation`, or a function of hyperparameters (by keyword) that returns
one.
"""


def adam_l2(lr: Any = 0.01, weight_decay: Any = 0.0) -> optax.GradientTransformation:
    """Return Adam with learning rate `lr` on the gradient of  loss + weight_decay/2 · ‖θ‖²: what
    `torch.optim.Adam(weight_decay=…)` does.

    The decay enters the gradient before Adam's moments (`optax.adamw` applies it after them). The
    defaults are the
    paper's learning rate and no decay; it used 1e-4.   [complexity, Sec. 5]
    Equal calls return one object, so that training with it compiles once.

    >>> adam_l2(0.01, 1e-4) is adam_l2(0.01, weight_decay=1e-4)
    True
    """
    if is_traced((lr, weight_decay)):
        return _adam_l2.__wrapped__(lr, weight_decay)
    rate = lr if callable(lr) else float(lr)
    return _adam_l2(rate, float(weight_decay))


@lru_cache(maxsize=256)
def _adam_l2(lr: Any, weight_decay: Any) -> optax.GradientTransformation:
    # Flattened: one operation on one vector instead of one for each array makes small networks
    # train faster.
    chain = optax.flatten(optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(lr)))

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        return chain.update(gradient, state, params)

    update.__qualname__ = f"adam_l2(lr={lr}, weight_decay={weight_decay})"
    return optax.GradientTransformation(chain.init, cast(Any, update))


def is_optimizer(optimizer: Any) -> bool:
    """Whether this is an optax optimiser already, and not a function that returns one."""
    return isinstance(optimizer, optax.GradientTransformation)


def check_optimizer(optimizer: Any, hyper: dict[str, Any]) -> None:
    """Refuse what is neither an optax optimiser nor a function of exactly these hyperparameters."""
    if is_optimizer(optimizer):
        if hyper:
            raise TypeError(
                f"`optimizer` is an optax optimiser but `hyper` varies {', '.join(hyper)}; pass a "
                "function of "
                f"{', '.join(hyper)} that returns one, for example `lambda {', '.join(hyper)}: "
                "optax.adam(…)`."
            )
        return
    if not callable(optimizer):
        raise TypeError(
            f"`optimizer` is {optimizer!r}; pass an optax optimiser, or a function of `hyper` "
            "returning one."
        )
    try:
        found = optimizer(**{name: values[0] for name, values in hyper.items()})
    except TypeError as error:
        raise TypeError(
            f"`optimizer` cannot be called with {', '.join(hyper) or 'nothing'} ({error})."
        ) from None
    if not is_optimizer(found):
        raise TypeError(
            f"`optimizer` returns {indefinite(found)}; it must return an optax optimiser."
        )


def optimizer_at(optimizer: Optimizer, hyper: dict[str, Any]) -> Any:
    """The optimiser at these values of the hyperparameters; it takes the extra arguments of line
    searches.
    """
    return optax.with_extra_args_support(
        optimizer if is_optimizer(optimizer) else optimizer(**hyper)
    )


def describe(function: Any) -> str:
    """What a function, optimiser or model calls itself, without memory addresses.

    >>> describe(adam_l2(0.01, 1e-4))
    'adam_l2(lr=0.01, weight_decay=0.0001)'
    """
    if is_optimizer(function):
        text = function.update.__qualname__.removesuffix(".<locals>.update_fn")
    else:
        text = getattr(function, "__qualname__", None) or repr(function).split(" at 0x")[0].lstrip(
            "<"
        )
    return re.sub(r" at 0x[0-9a-f]+", "", text)
