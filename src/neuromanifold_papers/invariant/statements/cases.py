"""What the statements on invariant manifolds share: activations of every class, networks,
closures, losses and flows.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation, activation_named
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.orbits.closure import LieClosure, lie_closure
from neuromanifold.orbits.derivatives import derivatives
from neuromanifold.orbits.family import family_of
from neuromanifold.orbits.partition import flatten_on_host
from neuromanifold.orbits.rings import Reals
from neuromanifold.symmetry.groups.hadamard import unflatten
from neuromanifold_papers.check import EPS
from neuromanifold_papers.invariant.statements.algebra import Neurons, Support

ROUNDING = 2**10 * EPS
"""What roundings in float64 add up to here, where values are of size 1."""
HIGHEST = 26
"""Taylor coefficients of order below this are looked at."""


def _analytic(
    fn: Callable[[Any], Any], name: str, parity: str | None, at_zero: float, slope: float
) -> Activation:
    known: dict[str, Any] = dict.fromkeys(("degree", "scalars", "polynomial", "slopes"))
    known |= {"parity": parity, "at_zero": at_zero, "slope_at_zero": slope, "analytic": True}
    return Activation(fn, name=name, **known)


OWN = (
    _analytic(lambda z: 1 + jnp.sin(z), "1 + sin(z)", None, 1.0, 1.0),
    _analytic(lambda z: z + jnp.cos(z), "z + cos(z)", None, 1.0, 1.0),
    _analytic(lambda z: jnp.sinh(z) + jnp.sin(z), "sinh(z) + sin(z)", "odd", 0.0, 2.0),
    _analytic(lambda z: z - jnp.sin(z), "z - sin(z)", "odd", 0.0, 0.0),
    _analytic(lambda z: 1 - jnp.cos(z), "1 - cos(z)", "even", 0.0, 0.0),
    _analytic(lambda z: z - jnp.sin(z) + jnp.cos(z), "z - sin(z) + cos(z)", None, 1.0, 0.0),
    _analytic(lambda z: 1 - jnp.cos(z) + z - jnp.sin(z), "1 - cos(z) + z - sin(z)", None, 0.0, 0.0),
)
ANALYTIC: dict[str, Activation] = {activation.name: activation for activation in OWN} | {
    name: activation_named(name)
    for name in ("exp", "sigmoid", "softplus", "tanh", "erf", "sin", "cos", "silu", "gelu")
}


def _orders(keep: Callable[[int], bool]) -> Support:
    return tuple(n for n in range(HIGHEST) if keep(n))


SUPPORTS: dict[str, Support] = {
    "exp": _orders(lambda n: True),
    "sigmoid": _orders(lambda n: n % 2 == 1 or n == 0),
    "softplus": _orders(lambda n: n % 2 == 0 or n == 1),
    "1 + sin(z)": _orders(lambda n: n % 2 == 1 or n == 0),
    "z + cos(z)": _orders(lambda n: n % 2 == 0 or n == 1),
    "tanh": _orders(lambda n: n % 2 == 1),
    "erf": _orders(lambda n: n % 2 == 1),
    "sin": _orders(lambda n: n % 2 == 1),
    "sinh(z) + sin(z)": _orders(lambda n: n % 4 == 1),
    "z - sin(z)": _orders(lambda n: n % 2 == 1 and n > 1),
    "cos": _orders(lambda n: n % 2 == 0),
    "1 - cos(z)": _orders(lambda n: n % 2 == 0 and n > 0),
    "silu": _orders(lambda n: n == 1 or (n % 2 == 0 and n > 0)),
    "gelu": _orders(lambda n: n == 1 or (n % 2 == 0 and n > 0)),
    "z - sin(z) + cos(z)": _orders(lambda n: n != 1),
    "1 - cos(z) + z - sin(z)": _orders(lambda n: n > 1),
}
"""The orders n < 26 with σ⁽ⁿ⁾(0) ≠ 0; each pattern continues for ever."""
GENERIC = ("exp", "sigmoid", "softplus", "1 + sin(z)", "z + cos(z)")
GENERIC_ODD = ("tanh", "erf", "sin", "sinh(z) + sin(z)")
CLASSES: dict[str, str] = {
    "exp": "generic",
    "tanh": "generic odd",
    "z - sin(z)": "odd, σ'(0) = 0",
    "cos": "even, σ(0) ≠ 0",
    "1 - cos(z)": "even, σ(0) = 0",
    "silu": "σ(0) = 0 only",
    "z - sin(z) + cos(z)": "σ'(0) = 0 only",
    "1 - cos(z) + z - sin(z)": "σ(0) = σ'(0) = 0, no parity",
}
"""One activation of each class that Remark 5.1 and Lemma 5.2 tell apart."""


def is_odd(support: Support) -> bool:
    """Whether σ is odd, from its Taylor series."""
    return all(n % 2 for n in support)


def is_even(support: Support) -> bool:
    """Whether σ is even, from its Taylor series."""
    return not any(n % 2 for n in support)


def grid(m: int, d: int, entries: Sequence[int] = (-1, 0, 1)) -> Iterator[Neurons]:
    """All m neurons (a, w) with entries from a list, up to their order."""
    return itertools.combinations_with_replacement(
        tuple(itertools.product(entries, repeat=d + 1)), m
    )


def whole_neurons(rng: np.random.Generator, m: int, d: int, size: int = 5) -> Neurons:
    """Random whole neurons, some of them zero, equal or opposite to the one before, or without a
    or w.
    """
    rows: list[tuple[int, ...]] = []
    for i in range(m):
        row = rng.integers(-size, size + 1, d + 1)
        kind = int(rng.integers(0, 8))
        before = np.array(rows[-1]) if i else row
        first = np.arange(d + 1) < 1
        changed = {0: 0 * row, 1: before, 2: -before, 3: row * ~first, 4: row * first}
        rows.append(tuple(changed.get(kind, row).tolist()))
    return tuple(rows)


def two_layer(name: str, neurons: Any) -> tuple[MLP, Params]:
    """Σ a_i σ(w_i·x) with rows (a_i, w_i).   [invariant, Def 2.4]"""
    rows = np.asarray(neurons, np.float64)
    net = MLP((rows.shape[1] - 1, len(rows), 1), ANALYTIC[name], bias=False)
    return net, (Layer(rows[:, 1:].copy()), Layer(rows[None, :, 0].copy()))


@lru_cache(maxsize=4096)
def closure(name: str, neurons: tuple[tuple[float | int, ...], ...]) -> LieClosure:
    """The library's Lie closure at these neurons."""
    return lie_closure(*two_layer(name, neurons), key=jax.random.key(0))


def by_neuron(d: int, m: int) -> np.ndarray:
    """For each neuron the places of (a_i, w_i) in `ravel_pytree` order."""
    return np.concatenate([m * d + np.arange(m)[:, None], np.arange(m * d).reshape(m, d)], axis=1)


Slope = Callable[[np.ndarray, np.ndarray], np.ndarray]

LOSSES: dict[str, Slope] = {
    "(s − t)²/2": lambda s, t: s - t,
    "−s": lambda s, t: -np.ones_like(s),
    "log cosh(s − t)": lambda s, t: np.tanh(s - t),
    "log(1 + e^(−st))": lambda s, t: -t * (1 - np.tanh(s * t / 2)) / 2,
    "sin(s + t)": lambda s, t: np.cos(s + t),
}
"""∂ℓ/∂s of analytic losses; for every s some t makes it nonzero."""
SLOPES = LOSSES | {"s²/2": lambda s, t: s}
"""And of one for which no t does at s = 0."""


class Trained:
    """The gradients −∇L of one data set and loss on a network with one output."""

    def __init__(self, net: MLP, params: Params, x: np.ndarray, y: np.ndarray, loss: str):
        self.net, self.x, self.y, self.slope = net, x, y, SLOPES[loss]
        self.start, self.template = flatten_on_host(params), params
        self.family = family_of(net, params, x)

    def outputs(self, theta: np.ndarray) -> np.ndarray:
        """F(θ)(x_i)."""
        a = self.x
        for layer, entry in zip(unflatten(self.template, theta), self.net.activations, strict=True):
            z = a @ layer.weight.T + (0.0 if layer.bias is None else layer.bias)
            a = derivatives(Reals(), entry, z, 1)[0]
        return a[:, 0]

    def field(self, theta: np.ndarray) -> np.ndarray:
        """−∇L = −Σ_i ∇ℓ(F(θ)(x_i), y_i) ∇F(θ)(x_i).   [invariant, Eq. 1]"""
        return -self.slope(self.outputs(theta), self.y) @ self.family.jacobian(theta)

    def flow(self, *, length: float = 1.0, steps: int = 8) -> np.ndarray:
        """θ after gradient flow, slowed to −∇L/√(1 + |∇L|²): the same curves, which no loss drives
        off to infinity.

        Steps of Runge and Kutta stay in a linear space that the field is tangent to, whatever their
        error.
        """
        theta, h = self.start, length / steps
        for _ in range(steps):
            k1 = self._slowed(theta)
            k2 = self._slowed(theta + h / 2 * k1)
            k3 = self._slowed(theta + h / 2 * k2)
            k4 = self._slowed(theta + h * k3)
            theta = theta + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return theta

    def _slowed(self, theta: np.ndarray) -> np.ndarray:
        v = self.field(theta)
        return v / np.sqrt(1 + v @ v)

    def end(self, **options: Any) -> Params:
        """The network after the flow."""
        return unflatten(self.template, self.flow(**options))


def trained(
    rng: np.random.Generator, net: MLP, params: Params, samples: int = 4, loss: str | None = None
) -> Trained:
    """Random data and one of the losses."""
    x, y = rng.standard_normal((samples, net.widths[0])), rng.standard_normal(samples)
    return Trained(net, params, x, y, str(rng.choice(list(LOSSES))) if loss is None else loss)


def set_partitions(members: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All partitions into blocks: 1, 2, 5, 15, …"""
    if not members:
        yield ()
        return
    first, rest = members[0], members[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            for further in set_partitions(tuple(i for i in rest if i not in others)):
                yield ((first, *others), *further)


def condensed(neurons: Neurons) -> int:
    """How many different neurons there are."""
    return len(set(neurons))


def condensed_up_to_sign(neurons: Neurons) -> int:
    """How many neurons there are, up to sign, that are not zero."""
    return len({max(n, tuple(-entry for entry in n)) for n in neurons} - {(0,) * len(neurons[0])})
