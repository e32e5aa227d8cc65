"""Which parameters count: all of them, a layer, an adapter, a head; the rest is frozen."""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.numerics.validation import indefinite


@dataclass(frozen=True)
class Selection:
    """Positions among the leaves of `params`, with the names and sizes of those leaves.
    Hashable, so that `jit` can hold it.
    """

    leaves: tuple[int, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters count."""
        return sum(self.sizes)

    def split(self, params: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The chosen leaves, and a function that puts others in their place."""
        found, structure = jax.tree.flatten(params)

        def rebuild(mine: list[Any]) -> Any:
            new = dict(zip(self.leaves, mine, strict=True))
            return structure.unflatten([new.get(i, leaf) for i, leaf in enumerate(found)])

        return [found[i] for i in self.leaves], rebuild

    def apart(self) -> tuple["Selection", ...]:
        """Each leaf by itself."""
        rows = zip(self.leaves, self.names, self.sizes, strict=True)
        return tuple(Selection((i,), (name,), (size,)) for i, name, size in rows)


def leaf_names(tree: Any) -> tuple[str, ...]:
    """Return the paths of the leaves of `tree`, their parts joined by dots.

    >>> leaf_names({"first": {"weight": 1.0, "bias": 0.0}, "last": 2.0})
    ('first.bias', 'first.weight', 'last')
    """
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths)


def select(params: Any, wrt: Any) -> Selection:
    """The leaves that `wrt` names: None for all; a name, a pattern or several; truth values like
    `params`; a selection.

    A leaf's name is its path with dots: `0.weight`, `layers.2.bias`. A name stands for all leaves
    below it.

    >>> params = {"first": {"weight": np.ones((2, 3)), "bias": np.ones(2)}, "last": np.ones(2)}
    >>> select(params, "first").names, select(params, "*.bias").names, select(params, {"first": False, "last": True}).names
    (('first.bias', 'first.weight'), ('first.bias',), ('last',))
    """
    if isinstance(wrt, Selection):
        return wrt
    names, sizes = leaf_names(params), [int(np.size(leaf)) for leaf in jax.tree.leaves(params)]
    kept = [i for i, keep in enumerate(_choose(params, names, wrt)) if keep]
    if not kept:
        raise ValueError(
            f"`wrt` is {wrt!r}, which names no parameter; the names are {', '.join(names)}."
        )
    return Selection(tuple(kept), tuple(names[i] for i in kept), tuple(sizes[i] for i in kept))


def by_leaf(answer: Callable[[Selection], Any], params: Any, wrt: Any) -> dict[str, Any]:
    """What is asked of the parameters that `wrt` picks, of each leaf by itself, under its name."""
    return {alone.names[0]: answer(alone) for alone in select(params, wrt).apart()}


def _choose(params: Any, names: Sequence[str], wrt: Any) -> list[bool]:
    if wrt is None:
        return [True] * len(names)
    if isinstance(wrt, str):
        wrt = (wrt,)
    if (
        isinstance(wrt, Iterable)
        and all(isinstance(name, str) for name in wrt)
        and not isinstance(wrt, dict)
    ):
        patterns = tuple(wrt)
        unknown = [p for p in patterns if not any(_answers(name, p) for name in names)]
        if unknown:
            raise ValueError(
                f"`wrt` has {unknown[0]!r}, which names no parameter; the names are "
                f"{', '.join(names)}."
            )
        return [any(_answers(name, p) for p in patterns) for name in names]
    return _by_tree(params, wrt)


def _answers(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)


def _by_tree(params: Any, wrt: Any) -> list[bool]:
    try:
        spread = jax.tree.broadcast(wrt, params)
    except ValueError:
        raise ValueError(
            "`wrt` has another structure than `params`; pass None, a name, several names, or "
            "truth values for whole branches."
        ) from None
    flags = jax.tree.leaves(spread)
    if not all(isinstance(flag, bool | np.bool_) for flag in flags):
        raise TypeError(f"`wrt` holds {indefinite(flags[0])}; pass names, or truth values.")
    return [bool(flag) for flag in flags]
