"""`from_equinox`: an Equinox module as `(f, params)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax

from neuromanifold.models.adapters.model import AdaptedModel, arguments, follow
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.pickling import ByName


def from_equinox(
    module: Any, state: Any = None, *, kwargs: Mapping[str, Any] | None = None
) -> tuple[AdaptedModel, Any]:
    """Return `(f, params)` of an Equinox module in inference mode, mapped over the samples.

    An Equinox module takes one sample; `f` takes any number. `params` are its floating arrays, in
    the module's own form; `state` is what `eqx.nn.make_with_state` returned beside the module, and
    is read but not changed. `x` is one array, a tuple of positional arguments or a dictionary of
    named ones; `kwargs` are arguments of every call.

    >>> f, params = from_equinox(eqx.nn.Linear(2, 3, key=jax.random.key(0)))
    >>> f(params, jax.numpy.ones((5, 2))).shape
    (5, 3)
    """
    if not isinstance(module, eqx.Module):
        raise TypeError(f"`module` is {indefinite(module)}; pass an equinox.Module.")
    params, rest = eqx.partition(eqx.nn.inference_mode(module), eqx.is_inexact_array)
    kept = jax.tree.map(
        lambda leaf: leaf, state
    )  # Equinox makes a state useless once a loop has changed it
    apply = _Applied(dict(kwargs or {}))
    return AdaptedModel(
        apply, (kept, rest), f"{type(module).__name__} from Equinox", "the module's own code"
    ), params


@dataclass(frozen=True, eq=False)
class _Applied(ByName):
    """The module with parameters in place of its own; with its state comes what it holds beside
    them.
    """

    fixed: dict[str, Any]

    def __call__(self, params: Any, both: Any, x: Any) -> Any:
        state, rest = both
        network = eqx.combine(params, rest)
        given = () if state is None else (follow(state, params, x),)

        def sample(x: Any) -> Any:
            args, named = arguments(x)
            y = network(*args, *given, **named, **self.fixed)
            return y if state is None else y[0]

        return jax.vmap(sample)(x)
