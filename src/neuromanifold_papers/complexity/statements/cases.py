"""Cases of the complexity paper: all small architectures, and integer networks whose neurons
have a chosen status on the sample.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import flint
import numpy as np
from jaxtyping import Int

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics import modular
from neuromanifold.regions.patterns import fixed_neurons
from neuromanifold.regions.problem import Problem
from neuromanifold.regions.signs import Signs, signs_of
from neuromanifold.tangent.rank.dimension import functional_dimension
from neuromanifold.tangent.rank.fields import VectorFields

Widths = tuple[int, ...]
Status = tuple[tuple[str, ...], ...]
"""For each hidden layer what its neurons are on the sample: bent (both signs), active or
inactive throughout.
"""
KINDS = ("bent", "active", "inactive")


def architectures(hidden: Sequence[int], widest: int) -> list[Widths]:
    """All (n_0, …, n_d) with so many hidden layers and widths 1 … `widest`, fewest neurons first.

    >>> architectures([1], 2)[:3]
    [(1, 1, 1), (1, 1, 2), (1, 2, 1)]
    """
    found = [w for h in hidden for w in itertools.product(range(1, widest + 1), repeat=h + 2)]
    return sorted(found, key=lambda w: (sum(w), len(w), w))


def random_widths(rng: np.random.Generator, hidden: int, widest: int) -> Widths:
    """(n_0, …, n_d) with at most `hidden` hidden layers."""
    return tuple(int(w) for w in rng.integers(1, widest + 1, rng.integers(3, hidden + 3)))


def drawn_where(
    holds: Callable[[Widths], bool], rng: np.random.Generator, hidden: int, widest: int, count: int
) -> Iterator[Widths]:
    """Random widths on which a condition holds."""
    drawn = (random_widths(rng, hidden, widest) for _ in itertools.count())
    return itertools.islice(filter(holds, drawn), count)


def roughly(widths: Widths) -> tuple[bool, bool]:
    """Whether (i) n_l − 1 ≤ n_{l-1} for all layers l, and whether (ii) n_{l-1} − 1 ≤ n_l for
    all.   [complexity, Ass 3.1]
    """
    falls = [before - after for before, after in itertools.pairwise(widths)]
    return min(falls) >= -1, max(falls) <= 1


def statuses(widths: Widths) -> Iterator[Status]:
    """Every status of the hidden layers, up to the order of the neurons."""
    layers = [itertools.combinations_with_replacement(KINDS, n) for n in widths[1:-1]]
    return itertools.product(*layers)


def throughout(widths: Widths, kind: str = "bent") -> Status:
    """The status of hidden layers whose neurons are all alike."""
    return tuple((kind,) * n for n in widths[1:-1])


@dataclass(frozen=True, eq=False)
class Network:
    """A ReLU network with integer parameters on integer data: nothing about it is rounded."""

    net: MLP
    params: Params
    x: np.ndarray

    @cached_property
    def rank(self) -> int:
        """The functional dimension on the sample, exactly."""
        return int(functional_dimension(self.net, self.params, self.x, exact=True))

    @cached_property
    def problem(self) -> Problem:
        """The exact Jacobian, implicitly."""
        return Problem.of(self.net, self.params, self.x)

    @cached_property
    def signs(self) -> Signs:
        """The signs of all pre-activations."""
        return signs_of(self.net, self.problem.decisions, len(self.x))

    @property
    def counts(self) -> dict[str, int]:
        return {"hidden layers": self.net.depth - 1, "fixed": sum(self.fixed)}

    @property
    def active(self) -> list[np.ndarray]:
        """Where each hidden neuron is active, (sample, neuron) for every layer."""
        return [np.asarray(layer) > 0 for layer in self.signs.layers[: self.net.depth - 1]]

    @property
    def at_a_kink(self) -> bool:
        """Whether some pre-activation is exactly zero: a set of parameters of measure zero."""
        return bool(self.signs.kinks)

    @property
    def fixed(self) -> list[int]:
        """k_l: the neurons of each hidden layer that are always active or always inactive."""
        found = fixed_neurons(self.net, self.params, self.x, exact=True)
        return [int(k) for k in found.fixed_by_layer]

    def changes(self, fields: VectorFields) -> int:
        """How many entries of J·v are not zero, v running over the fields at θ: zero when all
        are symmetries on the sample.
        """
        p = modular.random_prime()
        return int(np.count_nonzero(self.problem.products(p, fields.modulo(self.params, p))))

    @cached_property
    def jacobian(self) -> Int[np.ndarray, "rows D"]:
        """J in integers, lifted from its residues; parameters must be so small that |J| < 2⁵⁹."""
        p = modular.random_prime()
        J = self.problem.residues(p)
        return J - p * (p < 2 * J)

    def __str__(self) -> str:
        layers = ", ".join(
            f"nm.Layer(np.array({w.tolist()}), np.array({b.tolist()}))" for w, b in self.params
        )
        return (
            f"net, x = nm.MLP({self.net.widths}), np.array({self.x.tolist()})\nparams = ({layers})"
        )


def network(
    weights: Sequence[Sequence[Sequence[int]]], biases: Sequence[Sequence[int]], x: Sequence[int]
) -> Network:
    """A network written out, on inputs of one feature."""
    params = tuple(
        Layer(np.array(w, float), np.array(b, float)) for w, b in zip(weights, biases, strict=True)
    )
    widths = (len(weights[0][0]), *(len(w) for w in weights))
    return Network(MLP(widths), params, np.array(x, float)[:, None])


def staged(
    rng: np.random.Generator, widths: Widths, status: Status, samples: int, *, size: int = 499
) -> Network:
    """A random integer network whose hidden neurons have this status on its random sample; no
    pre-activation is zero.

    Weights are even and biases odd, so that a bias can put a kink between any two values of a
    neuron. A neuron whose input is constant on the sample cannot be bent: it is made active.
    """
    x = rng.integers(-2 * size, 2 * size + 1, (samples, widths[0]))
    a, params = x, []
    for layer, (fan_in, out) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        weight = 2 * rng.integers(1, size + 1, (out, fan_in)) * rng.choice([-1, 1], (out, fan_in))
        values = a @ weight.T
        if layer == len(widths) - 2:
            bias = 2 * rng.integers(-size, size, out) + 1
        else:
            bias = np.array([_bias(rng, *placed) for placed in _placed(values, status[layer])])
        a = np.maximum(values + bias, 0)
        params.append(Layer(weight.astype(float), bias.astype(float)))
    return Network(MLP(widths), tuple(params), x.astype(float))


def _placed(values: np.ndarray, kinds: tuple[str, ...]) -> Iterator[tuple[np.ndarray, str, float]]:
    """Each neuron's values and status, and for the bent ones which quantile their kink is near:
    spread out, one after another.
    """
    bent = kinds.count("bent")
    for i, kind in enumerate(kinds):
        yield values[:, i], kind, (kinds[:i].count("bent") + 1) / (bent + 1)


def _bias(rng: np.random.Generator, values: np.ndarray, kind: str, quantile: float) -> int:
    distinct = np.unique(values)
    if kind == "bent" and len(distinct) > 1:
        place = round(quantile * (len(distinct) - 1)) + rng.integers(-1, 2)
        return -int(distinct[np.clip(place, 0, len(distinct) - 2)]) - 1
    margin = 2 * int(rng.integers(0, 50)) + 1
    return -int(values.max()) - margin if kind == "inactive" else -int(values.min()) + margin


def random_network(
    rng: np.random.Generator, widths: Widths, samples: int, *, size: int = 499
) -> Network:
    """A network with random statuses, bent ones twice as likely as the others."""
    shares = [0.5, 0.25, 0.25]
    kinds = tuple(tuple(rng.choice(KINDS, n, p=shares).tolist()) for n in widths[1:-1])
    return staged(rng, widths, kinds, samples, size=size)


def integer_rank(matrix: np.ndarray) -> int:
    """The rank over the rationals, by FLINT."""
    rows, columns = matrix.shape
    return flint.fmpz_mat(rows, columns, [int(v) for v in matrix.ravel()]).rank()
