"""`from_haiku`: a Haiku function as `(f, params)`."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax

from neuromanifold.models.adapters.model import AdaptedModel, arguments, follow
from neuromanifold.models.arguments import Params
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.packages import need


def from_haiku(
    transformed: Any, params: Params, state: Any = None, *, kwargs: Mapping[str, Any] | None = None
) -> tuple[AdaptedModel, Any]:
    """Return `(f, params)` of what `hk.transform` or `hk.transform_with_state` returned, with the
    values its `init` gave.

    `kwargs` are arguments of every call, the mode among them (`{"is_training": False}`). The state
    is read and not changed. `x` is one array, a tuple of positional arguments or a dictionary of
    named ones.
    """
    haiku = need("haiku")
    if not isinstance(transformed, (haiku.Transformed, haiku.TransformedWithState)):
        raise TypeError(
            f"`transformed` is {indefinite(transformed)}; pass what hk.transform returned."
        )
    stateful = isinstance(transformed, haiku.TransformedWithState)
    if stateful and state is None:
        raise TypeError("`state` is missing; pass the second value of `transformed.init`.")
    key = (None,) if "rng" in inspect.signature(transformed.apply).parameters else ()
    fixed = dict(kwargs or {})

    def apply(params: Any, state: Any, x: Any) -> Any:
        args, named = arguments(x)
        given = follow(state, params, x)
        try:
            y = transformed.apply(
                params, *((given,) if stateful else ()), *key, *args, **named, **fixed
            )
        except ValueError as error:
            if type(error).__name__ != "MissingRNGError":  # Haiku does not export the class
                raise
            raise ValueError(_training(str(error))) from None
        return _keep_output(given, *y) if stateful else y

    return AdaptedModel(apply, state, "a network from Haiku", "the network's own code"), params


def _keep_output(before: Any, y: Any, after: Any) -> Any:
    if any(
        old is not new
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ):
        raise ValueError(_training("it updates its state"))
    return y


def _training(reason: str) -> str:
    return (
        f"`transformed` is not in evaluation mode ({reason}); pass its own switch, for example "
        f"kwargs={{'is_training': False}}."
    )
