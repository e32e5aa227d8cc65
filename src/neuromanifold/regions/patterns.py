"""Activation patterns: which hidden neurons are on at which sample, and what follows for the sample as a whole."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, UInt32

from neuromanifold.models.activation import per_neuron
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.precision import arithmetic, is_traced, promote, to_host, widest
from neuromanifold.numerics.validation import check_params, check_sample, refuse_tracers
from neuromanifold.regions.signs import exact_signs, is_kinked

_WORD = 32


def activation_patterns(net: MLP, params: Params, x: Any, *, exact: bool = False) -> Bool[Any, "n hidden"]:
    """Which hidden neurons are active (z > 0) at each sample, neurons in network order.   [complexity, Sec. 3.1]

    Neurons without a kink count as always active. `exact=True` decides the signs by exact arithmetic on the host; a
    pre-activation of exactly zero is inactive. Works under `jit` and `vmap` when `exact=False`.
    """
    require_piecewise_linear(net)
    check_params(params)
    x = check_sample(x)
    net.check(params, x)
    if exact:
        refuse_tracers((params, x), "`exact=True`")
        signs = exact_signs(net, params, np.asarray(x))
        return np.concatenate([layer > 0 for layer in signs.layers[:-1]] or [np.empty((len(x), 0), bool)], axis=1)
    with arithmetic():
        dtype = widest(params, x)
        return to_host(_patterns(net, promote(params, dtype), promote(x, dtype)))


def require_piecewise_linear(net: MLP) -> None:
    """Refuse networks without linear regions."""
    if not isinstance(net, MLP):
        raise TypeError(f"`net` is a {type(net).__name__}; linear regions need an nm.MLP.")
    for entry in net.activation:
        for activation, _ in per_neuron(entry, 1):
            if activation.slopes is None:
                raise ValueError(
                    f"`net` uses {activation.name!r}, which is not piecewise linear, so it has no linear regions; "
                    "use relu, leaky_relu, abs or identity."
                )


@jax.jit(static_argnums=0)
def _patterns(net: MLP, params: Params, x: Any) -> Any:
    z = net.preactivations(params, x)[:-1]
    active = [_active(entry, zl) for entry, zl in zip(net.activation, z, strict=True)]
    return jnp.concatenate(active, axis=1) if active else jnp.zeros((x.shape[0], 0), bool)


def _active(entry: Any, z: Any) -> Any:
    kinked = [jnp.full(run.stop - run.start, is_kinked(a)) for a, run in per_neuron(entry, z.shape[1])]
    return (z > 0) | ~jnp.concatenate(kinked)


def sampled_regions(net: MLP, params: Params, x: Any, *, exact: bool = False) -> Any:
    """How many linear regions of `f_θ` the sample meets.   [complexity, Def C.1]

    Two inputs share a region when every hidden ReLU agrees on them. An `int`; under `jit` and `vmap` a 0-d array.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(jnp.array([[1.0], [1.0]]), jnp.array([0.0, -1.0])), nm.Layer(jnp.ones((1, 2)), jnp.zeros(1)))
    >>> nm.sampled_regions(net, params, jnp.array([[-1.0], [0.5], [0.7], [2.0]]))
    3
    """
    patterns = activation_patterns(net, params, x, exact=exact)
    if is_traced(patterns):
        rows = ordered_patterns(patterns)
        return 1 + (rows[1:] != rows[:-1]).any(axis=1).sum(dtype=jnp.int32)
    return len(np.unique(np.packbits(patterns, axis=1), axis=0)) if patterns.shape[1] else 1


def ordered_patterns(patterns: Bool[Any, "n hidden"]) -> UInt32[Any, "n words"]:
    """The patterns packed into words, equal ones side by side. Traced."""
    padded = jnp.pad(patterns, ((0, 0), (0, -patterns.shape[1] % _WORD))).reshape(patterns.shape[0], -1, _WORD)
    rows = (padded.astype(jnp.uint32) << jnp.arange(_WORD, dtype=jnp.uint32)).sum(axis=-1, dtype=jnp.uint32)
    return rows[jnp.lexsort(rows.T)] if rows.shape[1] else rows


@dataclass(frozen=True)
class FixedNeurons:
    """Hidden neurons with one status on the whole sample, layer by layer.   [complexity, Sec. 3.1]

    `active[l]` and `inactive[l]` are masks over the neurons of hidden layer l.
    """

    active: tuple[Any, ...]
    inactive: tuple[Any, ...]

    @property
    def fixed_by_layer(self) -> tuple[Any, ...]:
        """k_l: how many neurons of each hidden layer are fixed."""
        return tuple(a.sum() + i.sum() for a, i in zip(self.active, self.inactive, strict=True))

    @property
    def total(self) -> Any:
        """How many hidden neurons are fixed."""
        return sum(self.fixed_by_layer)


jax.tree_util.register_dataclass(FixedNeurons, ("active", "inactive"), ())


def fixed_neurons(net: MLP, params: Params, x: Any, *, exact: bool = False) -> FixedNeurons:
    """Which hidden neurons are active on all of the sample, and which on none of it.

    >>> net = nm.MLP((1, 2, 1))
    >>> params = (nm.Layer(jnp.array([[1.0], [1.0]]), jnp.array([3.0, -1.0])), nm.Layer(jnp.ones((1, 2)), jnp.zeros(1)))
    >>> nm.fixed_neurons(net, params, jnp.array([[-1.0], [2.0]])).active[0].tolist()
    [True, False]
    """
    patterns = activation_patterns(net, params, x, exact=exact)
    stops = np.cumsum(net.widths[1:-1])
    layers = [patterns[:, stop - width : stop] for width, stop in zip(net.widths[1:-1], stops, strict=True)]
    return FixedNeurons(tuple(p.all(axis=0) for p in layers), tuple((~p).all(axis=0) for p in layers))
