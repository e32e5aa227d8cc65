"""`invariant_leaf`: the manifold on which symmetry keeps a network, whatever the data and the
loss.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.models.model_kind import perceptron, require_perceptron
from neuromanifold.numerics.randomness import host_generator
from neuromanifold.numerics.results import Shown
from neuromanifold.numerics.validation import check_params, refuse_tracers
from neuromanifold.orbits.stabiliser import components, images, stabiliser
from neuromanifold.symmetry.groups.hadamard import flatten, template, unflatten
from neuromanifold.symmetry.groups.monomial import Monomial


@dataclass(frozen=True)
class Block:
    """Neurons of a layer that the leaf holds equal up to the given signs.

    `zero` says that the stabiliser also holds the block equal to its own negative: its
    pre-activations vanish on the leaf.

    >>> print(Block((0, 2), (1, -1)), Block((1,), (1,), zero=True))
    {0, −2} 0·{1}
    """

    neurons: tuple[int, ...]
    signs: tuple[int, ...]
    zero: bool = False

    def __len__(self) -> int:
        return len(self.neurons)

    def __str__(self) -> str:
        signed = [
            ("" if s > 0 else "−") + str(i) for i, s in zip(self.neurons, self.signs, strict=True)
        ]
        return ("0·" if self.zero else "") + "{" + ", ".join(signed) + "}"


@dataclass(frozen=True, eq=False, repr=False)
class InvariantLeaf(Shown):
    """The parameters with one stabiliser S: the linear space  Fix(S) = {θ : gθ = θ, g ∈ S}  less
    smaller leaves.   [invariant, Lem 4.1]

    `partition` has the blocks of each hidden layer, `generators` generate S. Fix(S) is spanned by
    coordinates that are held equal up to sign: coordinate k is `signs[k]` times the value number
    `labels[k]`, or zero where the label is −1.
    """

    net: MLP
    generators: tuple[Monomial, ...]
    partition: tuple[tuple[Block, ...], ...]
    labels: np.ndarray
    signs: np.ndarray

    @property
    def dimension(self) -> int:
        """dim Fix(S), the number of independent values."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def basis(self) -> np.ndarray:
        """An orthonormal basis of Fix(S), one row for each vector, columns in
        `ravel_pytree(params)` order.
        """
        rows = np.zeros((self.dimension, len(self.labels)))
        kept = self.labels >= 0
        rows[self.labels[kept], np.flatnonzero(kept)] = self.signs[kept]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def project(self, params: Params) -> Params:
        """Return the nearest point of Fix(S): means of the values that are held equal, which come
        out exactly equal.
        """
        theta = vector(self.net, params)
        kept = self.labels >= 0
        sums = np.bincount(self.labels[kept], (self.signs * theta)[kept], minlength=self.dimension)
        means = np.append(sums / np.bincount(self.labels[kept], minlength=self.dimension), 0.0)
        agreed = np.append(np.full(self.dimension, np.nan), 0.0)
        agreed[self.labels[kept]] = (self.signs * theta)[kept]
        same = np.append(self._spread(theta) == 0, True)
        return unflatten(on_host(params), self.signs * np.where(same, agreed, means)[self.labels])

    def _spread(self, theta: np.ndarray) -> np.ndarray:
        """How far apart the coordinates are that should be equal; a mean of equal numbers must
        be that number.
        """
        low, high = np.full(self.dimension, np.inf), np.full(self.dimension, -np.inf)
        kept = self.labels >= 0
        np.minimum.at(low, self.labels[kept], (self.signs * theta)[kept])
        np.maximum.at(high, self.labels[kept], (self.signs * theta)[kept])
        return high - low

    def distance(self, params: Params) -> float:
        """Return |θ − P θ|, P the projection onto Fix(S)."""
        return float(
            np.linalg.norm(vector(self.net, params) - vector(self.net, self.project(params)))
        )

    def contains(self, params: Params, *, atol: float = 0.0) -> bool:
        """Return whether θ lies on the leaf itself, that is: has S for its stabiliser and no more."""
        return self == invariant_leaf(self.net, params, atol=atol)

    def sample(self, *, key: Any) -> Params:
        """Return a random point: independent standard normal values, so almost surely on the leaf
        itself.
        """
        values = np.append(host_generator(key).standard_normal(self.dimension), 0.0)
        return unflatten(template(self.net), self.signs * values[self.labels])

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Return which of the parameter vectors `points` (k, D) lie in Fix(S), exactly."""
        values = self.signs * points
        first = np.unique(self.labels, return_index=True)[1][
            np.unique(self.labels, return_inverse=True)[1]
        ]
        return np.where(self.labels < 0, values == 0, values == values[:, first]).all(axis=1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InvariantLeaf):
            return NotImplemented
        same = self.net == other.net and np.array_equal(self.labels, other.labels)
        return bool(same and np.array_equal(self.signs, other.signs))

    def __hash__(self) -> int:
        return hash((self.net, self.labels.tobytes(), self.signs.tobytes()))

    def __le__(self, other: "InvariantLeaf") -> bool:
        """Whether Fix(S) is contained in the other's: every point here is a limit of points
        there.
        """
        if self.net != other.net:
            raise ValueError(
                f"`other` is a leaf of {other.net}, not of {self.net}; compare leaves of one "
                "network."
            )
        return bool(other.holds(generic_point(self)[None])[0])

    def __str__(self) -> str:
        layers = "; ".join(" ".join(map(str, blocks)) for blocks in self.partition)
        return f"leaf of dimension {self.dimension} of {len(self.labels)}: {layers}"


def invariant_leaf(net: MLP, params: Params, *, atol: float | int = 0.0) -> InvariantLeaf:
    """Return the invariant leaf of θ under permutations and sign flips of neurons: gradient flow
    never leaves it.   [invariant, Lem 4.1, Thm 4.2]

    [θ] = {θ' : S(θ') = S(θ)},  S(θ) = {g : gθ = θ}.  Permutations exchange neurons of equal
    activation; odd neurons may flip (a, w, b) → (−a, −w, −b), even ones (w, b) → (−w, −b). S(θ) is
    that of the whole group: in deep networks neurons of several layers may be equal only jointly.

    Equality is exact. With `atol` parameters within it count as equal: the leaf is that of the
    point to which the elements that move no parameter by more than `atol` take θ on average, and
    `leaf.distance(params)` says how far that is.

    >>> net = nm.MLP((1, 3, 1), "tanh", bias=False)
    >>> params = (nm.Layer(np.array([[1.0], [-1.0], [0.0]])), nm.Layer(np.array([[2.0, -2.0, 0.0]])))
    >>> print(invariant_leaf(net, params))
    leaf of dimension 2 of 6: {0, −1} 0·{2}
    """
    _check(net, params, atol)
    params = on_host(params)
    if atol > 0:
        params = leaf_of(net, stabiliser(net, params, atol=float(atol))).project(params)
    return leaf_of(net, stabiliser(net, params))


def _check(net: Any, params: Any, atol: float | int) -> None:
    require_perceptron(net, "pass an nm.MLP, whose neurons have symmetries")
    if not 0 <= atol < np.inf:
        raise ValueError(f"`atol` is {atol}; pass a finite number, 0 or more.")
    refuse_tracers(params, "`invariant_leaf`")
    check_params(params)
    net.check_params(params)


def leaf_of(net: MLP, generators: tuple[Monomial, ...]) -> InvariantLeaf:
    """The leaf whose points the generated group fixes."""
    labels, signs = _fixed_space(net, generators)
    return InvariantLeaf(net, generators, _partition(net, generators), labels, signs)


def _fixed_space(net: MLP, generators: tuple[Monomial, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Orbits of signed coordinates: a coordinate in one orbit with its negative is zero."""
    moves = [images(net, g) for g in generators]
    return signed_orbits(net.n_params, moves)


def signed_orbits(
    size: int, moves: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """(labels, signs) of {0, …, size−1} under  k → s_k · p_k:  orbits numbered by first member,
    whose sign is 1; −1 for zero.

    >>> labels, signs = signed_orbits(3, [(np.array([-1.0, -1.0, -1.0]), np.array([1, 0, 2]))])       # 0 ↔ −1, 2 → −2
    >>> labels.tolist(), signs.tolist()
    ([0, 0, -1], [1.0, -1.0, 1.0])
    """
    positive = [np.where(s > 0, p, p + size) for s, p in moves]
    whole = [np.concatenate([t, np.where(t < size, t + size, t - size)]) for t in positive]
    component = components(2 * size, *whole)
    plus, minus = component[:size], component[size:]
    orbit = np.minimum(plus, minus)
    zero = plus == minus
    found, first, inverse = np.unique(orbit, return_index=True, return_inverse=True)
    signs = np.where(plus == plus[first][inverse.reshape(-1)], 1.0, -1.0)
    order = np.argsort(np.where(zero[first], size, first), kind="stable")
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return np.where(zero, -1, rank[inverse.reshape(-1)]), np.where(zero, 1.0, signs)


def _partition(net: MLP, generators: tuple[Monomial, ...]) -> tuple[tuple[Block, ...], ...]:
    """The orbits of the signed neurons of each hidden layer."""
    return tuple(
        _blocks(width, [(g.into[layer], g.order[layer]) for g in generators])
        for layer, width in enumerate(net.widths[1:-1])
    )


def _blocks(width: int, moves: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Block, ...]:
    labels, signs = signed_orbits(width, moves)
    orbits = components(width, *(p for _, p in moves))
    blocks = []
    for orbit in dict.fromkeys(orbits.tolist()):
        members = np.flatnonzero(orbits == orbit)
        chosen = tuple(int(s) for s in signs[members])
        blocks.append(Block(tuple(members.tolist()), chosen, zero=bool(labels[members[0]] < 0)))
    return tuple(blocks)


def generic_point(leaf: InvariantLeaf) -> np.ndarray:
    """A vector of Fix(S) that only the elements of S fix: its values are distinct whole numbers."""
    values = np.append(np.arange(1.0, leaf.dimension + 1), 0.0)
    return leaf.signs * values[leaf.labels]


def on_host(params: Params) -> Params:
    """The parameters as NumPy arrays in float64."""
    return tuple(
        Layer(*(None if a is None else np.asarray(a, np.float64) for a in layer))
        for layer in params
    )


def vector(net: MLP, params: Params) -> np.ndarray:
    """The parameters as one float64 vector in `ravel_pytree` order; refused where shapes are not
    the network's.
    """
    net.check_params(params)
    return flatten(on_host(params))


def flatten_on_host(tree: Any) -> Float[np.ndarray, " D"]:
    """A pytree as one float64 vector in `ravel_pytree` order."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def input_features(f: Any, features: int | None) -> int:
    """How many inputs f takes: an MLP says so itself, any other function must be told."""
    if (net := perceptron(f)) is not None:
        return net.widths[0]
    if features is None:
        raise ValueError(
            "`features` is None; say how many inputs `f` takes, since only an nm.MLP tells."
        )
    return features
