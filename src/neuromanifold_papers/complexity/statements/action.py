"""complexity, Sec. 4.1: the action of the hidden symmetry group, what commutes with the
activation, and the generators of both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.models.activation import Mixed, leaky_relu
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.regions.patterns import fixed_neurons
from neuromanifold.symmetry.groups.dense import AffineElement
from neuromanifold.symmetry.groups.hadamard import flatten
from neuromanifold.symmetry.groups.linear import random_invertible
from neuromanifold.tangent.rank.fields import ParameterLayout, VectorFields, join, mixing
from neuromanifold_papers.check import EPS, Check, equal, outside
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.cases import Network
from neuromanifold_papers.statement import control, in_float64, statement

ROUNDING = 64
"""Roundings that a number goes through here, in units of ε times the condition numbers of the
matrices applied.
"""

Matrices = list[np.ndarray]


def printed_action(matrices: Matrices, params: Params) -> Params:
    """(W_l, b_l) ↦ (g_l W_l g_{l-1}⁻¹, g_l b_l), g_0 and g_d the identity.   [complexity, Eq. 3]"""
    g = [np.eye(params[0].weight.shape[1]), *matrices, np.eye(len(params[-1].bias))]
    return tuple(
        Layer(after @ layer.weight @ np.linalg.inv(before), after @ layer.bias)
        for before, after, layer in zip(g[:-1], g[1:], params, strict=True)
    )


def element(net: MLP, matrices: Matrices) -> AffineElement:
    """The library's element that acts by these matrices."""
    shifts = tuple(np.zeros(len(g)) for g in matrices)
    return AffineElement(tuple(matrices), tuple(matrices), shifts, shifts, net.weight_scales)


@dataclass(frozen=True, eq=False)
class Move:
    """g (and h) acting on the parameters of a network."""

    net: MLP
    params: Params
    g: Matrices
    h: Matrices

    @property
    def condition(self) -> float:
        """The product of all condition numbers: by how much roundings may grow."""
        return float(np.prod([np.linalg.cond(m) for m in (*self.g, *self.h)]))


def _normal(rng: np.random.Generator, net: MLP) -> Params:
    pairs = zip(net.widths[:-1], net.widths[1:], strict=True)
    return tuple(
        Layer(rng.standard_normal((out, fan_in)), rng.standard_normal(out)) for fan_in, out in pairs
    )


def _moves(rng: np.random.Generator, draws: int) -> Iterator[Move]:
    drawn = [cast.random_widths(rng, 4, 6) for _ in range(draws)]
    for widths in [*cast.architectures([1, 2], 3), *drawn]:
        g, h = ([random_invertible(rng, n) for n in widths[1:-1]] for _ in range(2))
        yield Move(net := MLP(widths), _normal(rng, net), g, h)


def _distance(first: Params, second: Params) -> float:
    one, other = flatten(first), flatten(second)
    return float(np.abs(one - other).max() / np.abs(one).max())


def _one_move() -> Move:
    rng, net = np.random.default_rng(0), MLP((2, 3, 2))
    return Move(net, _normal(rng, net), [random_invertible(rng, 3)], [random_invertible(rng, 3)])


@in_float64(
    "4.1 (action)",
    _moves,
    control(
        "the factors in the wrong order: g·(h·θ) against (hg)·θ",
        _one_move,
        product=lambda g, h: h @ g,
    ),
)
def action(move: Move, product: Any = np.matmul) -> Check:
    """g·(W_l, b_l) = (g_l W_l g_{l-1}⁻¹, g_l b_l) is an action of Π GL(n_l): g·(h·θ) = (gh)·θ,
    1·θ = θ.

    The largest of |g(hθ) − (gh)θ|, |gθ − printed|, |1θ − θ|, relative to the largest entry.
    """
    g, h = element(move.net, move.g), element(move.net, move.h)
    both = [product(a, b) for a, b in zip(move.g, move.h, strict=True)]
    unit = element(move.net, [np.eye(len(a)) for a in move.g])
    found = max(
        _distance(g(h(move.params)), printed_action(both, move.params)),
        _distance(g(move.params), printed_action(move.g, move.params)),
        _distance(unit(move.params), move.params),
    )
    tolerance = ROUNDING * EPS * move.condition
    return equal(found, 0.0, tolerance, hidden_layers=len(move.g), widest=max(move.net.widths))


@dataclass(frozen=True, eq=False)
class Commuting:
    """A network on a sample, and matrices that commute with its activation there."""

    kind: str
    net: MLP
    params: Params
    x: np.ndarray
    g: Matrices


SHAPE = (2, 3, 3, 2)
FAMILIES: dict[str, Any] = {
    "ReLU: permutations and positive scalings": "relu",
    "leaky ReLU: permutations and positive scalings": leaky_relu(0.1),
    "absolute value: permutations and positive scalings": "abs",
    "tanh: signed permutations": "tanh",
    "identity: all of GL": "identity",
    "mixed: positive scalings and GL of the linear neurons": Mixed(relu=1, identity=2),
    "ReLU: GL of the always-active neurons": "relu",
    "ReLU: positive mixtures of neurons with one sign pattern": "relu",
}


def _matrix(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    permutation = np.eye(n)[rng.permutation(n)]
    if kind.startswith("tanh"):
        return permutation * rng.choice([-1.0, 1.0], n)
    if kind.startswith("identity"):
        return random_invertible(rng, n)
    if kind.startswith("mixed") or "always-active" in kind:
        g = np.diag(np.exp(rng.uniform(-1, 1, n)))
        near = np.eye(n - 1) + rng.uniform(-0.2, 0.2, (n - 1, n - 1)) / n
        g[1:, 1:] = random_invertible(rng, n - 1) if kind.startswith("mixed") else near
        return g
    if "one sign pattern" in kind:
        g = np.diag(np.exp(rng.uniform(-1, 1, n)))
        g[1:, 1:] += np.triu(rng.uniform(0, 1, (n - 1, n - 1)), 1)
        return g
    return permutation * np.exp(rng.uniform(-1, 1, n))


def _commuting(rng: np.random.Generator, draws: int) -> Iterator[Commuting]:
    for _ in range(draws):
        for kind, activation in FAMILIES.items():
            net = MLP(SHAPE, activation)
            params = _normal(rng, net)
            if "always-active" in kind:
                # Biases that keep all neurons but the first of each layer active on a sample of
                # this size.
                params = (
                    Layer(params[0].weight, params[0].bias + np.array([0, 20, 20])),
                    Layer(params[1].weight, params[1].bias + np.array([0, 200, 200])),
                    params[2],
                )
            if "one sign pattern" in kind:
                params = tuple(map(_last_like_the_second, params[:2])) + params[2:]
            x, g = rng.uniform(-2, 2, (12, 2)), [_matrix(rng, kind, n) for n in SHAPE[1:-1]]
            yield Commuting(kind, net, params, x, g)


def _last_like_the_second(layer: Layer) -> Layer:
    """The last of three neurons nearly twice the second: the signs of both agree but on a thin
    set.
    """
    weight, bias = layer.weight.copy(), layer.bias.copy()
    weight[2] += 2000 * weight[1]
    bias[2] += 2000 * bias[1]
    return Layer(weight / np.array([[1], [1], [1000]]), bias / np.array([1, 1, 1000]))


def activity(params: Params, x: np.ndarray) -> list[np.ndarray]:
    """Which hidden ReLUs are active on which samples, layer by layer."""
    found = []
    for weight, bias in params[:-1]:
        x = np.maximum(x @ weight.T + bias, 0)
        found.append(x > 0)
    return found


def _size(params: Params, x: np.ndarray) -> float:
    """A bound on all intermediate numbers: the network with absolute values throughout."""
    a = np.abs(x)
    for weight, bias in params:
        a = a @ np.abs(weight).T + np.abs(bias)
    return float(a.max())


def fixed_active(case: Commuting, moved: Params) -> list[np.ndarray]:
    """Which neurons are always active before and after the move."""
    both = [fixed_neurons(case.net, params, case.x).active for params in (case.params, moved)]
    return [np.logical_and(before, after) for before, after in zip(*both, strict=True)]


def _sheared() -> Commuting:
    rng, net, shear = np.random.default_rng(2), MLP(SHAPE), np.eye(3)
    shear[0, 1] = 0.5
    params, x = _normal(rng, net), rng.uniform(-2, 2, (12, 2))
    return Commuting("ReLU: a shear", net, params, x, [shear, shear])


@in_float64(
    "4.1 (equivalence)",
    _commuting,
    control("a shear of ReLU neurons, which does not commute", _sheared),
    draws=20,
)
def equivalence(case: Commuting) -> Check:
    """Elements that commute with the activation on X leave f on X unchanged."""
    moved = element(case.net, case.g)(case.params)
    scale = max(_size(case.params, case.x), _size(moved, case.x))
    found = float(np.abs(case.net(moved, case.x) - case.net(case.params, case.x)).max()) / scale
    condition, agree = float(np.prod([np.linalg.cond(g) for g in case.g])), [True]
    if "always-active" in case.kind:
        agree = [m[1:].all() for m in fixed_active(case, moved)]
    if "one sign pattern" in case.kind:
        agree = [(on[:, 1] == on[:, 2]).all() for on in activity(case.params, case.x)]
    drops = outside("g does not commute with the activation on X", when=not all(agree))
    tolerance, hypotheses = ROUNDING * EPS * condition, {"activation and subgroup": case.kind}
    return equal(found, 0.0, tolerance, drops=drops, hypotheses=hypotheses)


Classes = list[list[list[int]]]


def pattern_classes(case: Network) -> Classes:
    """The hidden neurons of each layer in classes of one sign pattern on the sample."""
    found: Classes = []
    for active in case.active:
        classes: dict[bytes, list[int]] = {}
        for i, column in enumerate(active.T):
            classes.setdefault(column.tobytes(), []).append(i)
        found.append(list(classes.values()))
    return found


def class_pairs(classes: Classes) -> list[tuple[int, int, int]]:
    """(layer, i, j) for neurons i and j of one class."""
    groups = [(layer, group) for layer, groups in enumerate(classes) for group in groups]
    return [(layer, i, j) for layer, group in groups for i in group for j in group]


def equivalence_fields(case: Network, classes: Any = pattern_classes) -> VectorFields:
    """The Lie algebra of H_eq ⊆ G_hid on the sample: neurons of one sign pattern mix freely, gl(m)
    for each layer and pattern.

    Where m neurons have one sign pattern, σ(z) = s(x)z for all of them, and g ∈ GL(m) near 1
    commutes with it on X: always-active and
    always-inactive neurons are two of the patterns.   [complexity, Def 4.1]
    """
    layout, pairs = ParameterLayout(case.net), class_pairs(classes(case))
    return join(case.net, [mixing(layout, layer, i, j, 1.0, 1.0) for layer, i, j in pairs])


def all_statuses(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    """Every status of one hidden layer with widths up to 3, then deeper networks."""
    for widths in cast.architectures([1], 3):
        yield from (cast.staged(rng, widths, status, 8, size=9) for status in cast.statuses(widths))
    for _ in range(draws):
        yield cast.random_network(rng, cast.random_widths(rng, 3, 4), 10, size=9)


def two_bent() -> Network:
    """(1, 2 | 1) with two neurons that change their signs on the sample."""
    return cast.network([[[2], [2]], [[2, 2]]], [[3, -3], [1]], [-3, 0, 1, 3])


def first_two_mixed(case: Network) -> VectorFields:
    """The field that adds the second hidden neuron to the first: a symmetry where both are
    linear.
    """
    return mixing(ParameterLayout(case.net), 0, 0, 1, 1.0, 1.0)


@statement(
    "4.1 (generators)",
    all_statuses,
    control("mixing two neurons that change their signs", two_bent, fields=first_two_mixed),
)
def generators(case: Network, fields: Any = equivalence_fields) -> Check:
    """Every generator v of the hidden equivalence group on X is in the kernel of J: Jv = 0 (gl(m)
    for each layer and sign pattern of m neurons).
    """
    found, outputs = case.changes(fields(case)), case.net.widths[-1]
    return equal(found, 0, hypotheses=case.counts, outputs=outputs)


def all_as_one(case: Network) -> Classes:
    """All neurons of a layer taken for one class."""
    return [[list(range(n))] for n in case.net.widths[1:-1]]


def commuting_dimension(case: Network) -> int:
    """The dimension of {A : σ'(z(x))·Az(x) = Aσ(z(x)) for x ∈ X}, layer by layer: row i asks Σ_j
    A_ij (s_i − s_j)z_j = 0.
    """
    x, total = case.x.astype(np.int64).astype(object), 0
    for weight, bias in case.params[:-1]:
        z = x @ weight.astype(np.int64).astype(object).T + bias.astype(np.int64)
        on = (z > 0).astype(int)
        rows = [(on[:, i : i + 1] - on) * z for i in range(z.shape[1])]
        total += sum(z.shape[1] - cast.integer_rank(row) for row in rows)
        x = on * z
    return total


def _well_sampled(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    for widths in cast.architectures([1], 3):
        yield from (
            cast.staged(rng, widths, status, 60, size=9) for status in cast.statuses(widths)
        )
    for _ in range(draws):
        yield cast.random_network(rng, cast.random_widths(rng, 2, 3), 60, size=9)


@statement(
    "4.1 (H_eq)",
    _well_sampled,
    control("two neurons of different patterns taken for one", two_bent, classes=all_as_one),
    source="ours",
    draws=20,
)
def algebra(case: Network, classes: Any = pattern_classes) -> Check:
    """The Lie algebra of the hidden equivalence group on X (Def 4.1) is gl(m) for each layer and
    each sign pattern that m of its neurons share.
    """
    squares = len(class_pairs(classes(case)))
    return equal(commuting_dimension(case), squares, hypotheses=case.counts)
