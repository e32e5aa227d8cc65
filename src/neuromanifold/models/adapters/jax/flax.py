"""`from_flax`: a Flax module, linen or nnx, as `(f, params)`."""

from collections.abc import Mapping
from typing import Any

import jax

from neuromanifold.models.adapters.model import AdaptedModel, arguments, follow
from neuromanifold.numerics.validation import indefinite
from neuromanifold.runtime.packages import need

_SAME = "the module's own code"


def from_flax(
    module: Any,
    variables: Mapping[str, Any] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[AdaptedModel, dict[str, Any]]:
    """Return `(f, params)` of a Flax module: a linen module with its variables, or an nnx module
    alone.

    `kwargs` are arguments of every call; a linen module gets its mode there, under the name its
    author gave it (`{"train": False}`). An nnx module is cloned and the clone put into evaluation
    mode. `params` is the collection `"params"`, or the nnx module's `Param`s; everything else is
    state, kept as it is and cast with the parameters. `x` is one array, a tuple of positional
    arguments or a dictionary of named ones.
    """
    linen, nnx = need("flax.linen"), need("flax.nnx")
    if isinstance(module, linen.Module):
        return _from_linen(module, variables, dict(kwargs or {}))
    if not isinstance(module, nnx.Module):
        raise TypeError(
            f"`module` is {indefinite(module)}; pass a flax.linen.Module or a flax.nnx.Module."
        )
    if variables is not None:
        raise TypeError(
            "`variables` belong to linen; an nnx module holds its own: leave the argument out."
        )
    return _from_nnx(module, dict(kwargs or {}))


def _from_linen(
    module: Any, variables: Any, kwargs: dict[str, Any]
) -> tuple[AdaptedModel, dict[str, Any]]:
    if not isinstance(variables, Mapping) or "params" not in variables:
        found = sorted(variables) if isinstance(variables, Mapping) else type(variables).__name__
        raise TypeError(
            f"`variables` is {found}; pass what `module.init` returned, a dictionary with 'params'."
        )
    unfrozen = need("flax.core").unfreeze(dict(variables))
    params = unfrozen.pop("params")
    refused = need("flax.errors").FlaxError

    def apply(params: Any, state: Any, x: Any) -> Any:
        args, named = arguments(x)
        try:
            return module.apply(
                {"params": params, **follow(state, params, x)}, *args, **named, **kwargs
            )
        except refused as error:
            raise ValueError(_training(type(module).__name__, error)) from None

    return AdaptedModel(apply, unfrozen, f"{type(module).__name__} from Flax", _SAME), params


def _from_nnx(module: Any, kwargs: dict[str, Any]) -> tuple[AdaptedModel, dict[str, Any]]:
    nnx = need("flax.nnx")
    clone = nnx.clone(module)
    clone.eval()
    definition, own, rest = nnx.split(clone, nnx.Param, ...)

    def apply(params: Any, state: Any, x: Any) -> Any:
        filled = jax.tree.map(lambda leaf: leaf, own)
        nnx.replace_by_pure_dict(filled, params)
        given = follow(state, params, x)
        before = jax.tree_util.tree_leaves_with_path(given)
        network = nnx.merge(definition, filled, given)
        args, named = arguments(x)
        y = network(*args, **named, **kwargs)
        _refuse_change(type(module).__name__, before, nnx.split(network, nnx.Param, ...)[2])
        return y

    return AdaptedModel(apply, rest, f"{type(module).__name__} from Flax", _SAME), nnx.to_pure_dict(
        own
    )


def _refuse_change(name: str, before: list[Any], after: Any) -> None:
    for (path, old), new in zip(before, jax.tree.leaves(after), strict=True):
        if old is not new:
            raise ValueError(_training(name, f"it writes {jax.tree_util.keystr(path)}"))


def _training(name: str, problem: Any) -> str:
    reason = str(problem).partition(". ")[0].partition(" (https")[0]
    return (
        f"`module` {name} is not in evaluation mode ({reason}); pass its own switch, for example "
        f"kwargs={{'train': False}}."
    )
