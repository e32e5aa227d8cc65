"""Probes `probe(f, params, x, y) → value`: what is watched while networks train."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.graph.reading import call
from neuromanifold.models.arguments import Model, Params, Samples, Targets
from neuromanifold.models.losses import Loss


@dataclass(frozen=True)
class Probe:
    """A function `fn(f, params, x, y)` with the name its values have in the history and the names
    of their axes.

    `fn` returns a number or an array. It is traced and runs on all networks at once, unless
    `host=True`: then it is called with NumPy arrays, one network at a time. A plain function is as
    good where its own name will do (with an attribute `host = True`, it runs on the host).
    """

    fn: Callable[..., Any]
    name: str
    dims: tuple[str, ...] = ()
    host: bool = False

    def __call__(self, f: Any, params: Any, x: Any, y: Any) -> Any:
        """The value at one network."""
        return self.fn(f, params, x, y)


def as_probes(probes: Any) -> tuple[Probe, ...]:
    """The probes of a sequence, or of a mapping that names them; names must differ."""
    if isinstance(probes, Mapping):
        found = tuple(_as_probe(probe, name) for name, probe in probes.items())
    elif isinstance(probes, Iterable):
        found = tuple(_as_probe(probe) for probe in probes)
    else:
        raise TypeError(
            f"`probes` is {probes!r}; pass a sequence of functions (f, params, x, y), such as "
            "[nm.dynamics.r_squared]."
        )
    names = [probe.name for probe in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"`probes` has {names.count(name)} entries named {name!r}; name them: "
                f"{{'a': probe, 'b': probe}}."
            )
    return found


def _as_probe(probe: Any, name: str | None = None) -> Probe:
    if not callable(probe):
        raise TypeError(f"`probes` contains {probe!r}; pass functions (f, params, x, y) → value.")
    if isinstance(probe, Probe):
        return Probe(probe.fn, name or probe.name, probe.dims, probe.host)
    given = name or getattr(probe, "__name__", type(probe).__name__)
    if not _takes_four(probe):
        raise TypeError(
            f"`probes` contains {given}, which does not take (f, params, x, y); pass a function "
            "that does "
            "(a maker of probes is called first: nm.probes.loss(nm.losses.mse))."
        )
    return Probe(probe, given, getattr(probe, "dims", ()), getattr(probe, "host", False))


def _takes_four(probe: Callable[..., Any]) -> bool:
    """Whether `probe(f, params, x, y)` is a call that its signature allows."""
    try:
        signature(probe).bind(None, None, None, None)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=64)
def loss_probe(loss: Loss) -> Probe:
    """Return the loss on all the data, in the history as `loss`."""
    return Probe(lambda f, params, x, y: loss(call(f, params, x), y), "loss")


def r_squared(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return r² = 1 − Σ(y − f)² / Σ(y − ȳ)², sums over samples and outputs, ȳ the mean of each
    output.

    >>> line = lambda params, x: params * x
    >>> float(r_squared(line, 1.0, np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])))
    1.0
    """
    residual = jnp.sum((y - call(f, params, x)) ** 2)
    return 1 - residual / jnp.sum((y - jnp.mean(jnp.asarray(y), axis=0)) ** 2)


def weight_norm(f: Model, params: Params, x: Samples, y: Targets) -> Any:
    """Return ‖θ‖ = √Σθ², over all parameters, biases included.

    >>> float(weight_norm(None, (np.array([3.0]), np.array([[4.0]])), None, None))
    5.0
    """
    return jnp.sqrt(sum(jnp.sum(jnp.asarray(leaf) ** 2) for leaf in jax.tree.leaves(params)))
