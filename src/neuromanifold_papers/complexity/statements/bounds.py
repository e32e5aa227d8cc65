"""complexity, Thm 1, Prop 4.6, Prop C.3: bounds on the functional dimension from fixed neurons
and from linear regions.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from neuromanifold.graph.residues import ResidueArithmetic
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.regions.generic import orbit_directions
from neuromanifold.regions.patterns import sampled_regions
from neuromanifold.symmetry.account.equivalence import hidden_equivalence
from neuromanifold.tangent.rank.dimension import functional_dimension
from neuromanifold.tangent.rank.fields import ParameterLayout, VectorFields, join, mixing
from neuromanifold_papers.check import Check, Drops, at_most, equal, outside
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.action import first_two_mixed, two_bent
from neuromanifold_papers.complexity.statements.cases import Network, Status, Widths, network
from neuromanifold_papers.complexity.statements.kernel import parameter_count
from neuromanifold_papers.statement import control, statement

PRIME = 2**61 - 1


def theorem1(widths: Widths, fixed: list[int]) -> int:
    """D − Σ(n_l − k_l) − Σ k_l².   [complexity, Thm 1]"""
    moved = [(n - k) + k**2 for n, k in zip(widths[1:-1], fixed, strict=True)]
    return parameter_count(widths) - sum(moved)


def _roughly_monotonic(widths: Widths) -> bool:
    return any(cast.roughly(widths))


def _theorem_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    for widths in filter(_roughly_monotonic, cast.architectures([1], 3)):
        samples = parameter_count(widths) + 3
        yield from (cast.staged(rng, widths, status, samples) for status in cast.statuses(widths))
    for widths in cast.drawn_where(_roughly_monotonic, rng, 3, 5, draws):
        yield cast.random_network(rng, widths, int(rng.integers(1, parameter_count(widths) + 3)))


def _at_a_kink(case: Network) -> Drops:
    why = "a pre-activation is exactly zero, on a set of measure zero"
    return outside(why, when=case.at_a_kink)


_ALL_ACTIVE = control(
    "(1, 3 | 1), not roughly monotonic, all three active: rank 2, and the formula gives 1",
    lambda: cast.staged(np.random.default_rng(0), (1, 3, 1), (("active",) * 3,), 6),
)


@statement("Thm 1", _theorem_cases, _ALL_ACTIVE, draws=60)
def theorem(case: Network) -> Check:
    """Roughly monotonic ⇒ for almost every θ the functional dimension on X is at most D − Σ(n_l −
    k_l) − Σ k_l², k_l the fixed neurons of layer l (its proof uses A.8 and that all fixed
    neurons mix, which fail; the conclusion survives).
    """
    bound = theorem1(case.net.widths, case.fixed)
    hypotheses = case.counts | {"samples": len(case.x), "slack": bound - case.rank}
    return at_most(case.rank, bound, drops=_at_a_kink(case), hypotheses=hypotheses)


@cache
def _free_parameters(widths: Widths, linear: tuple[int, ...]) -> int:
    """Parameters of a mixed network less its generic orbit of scalings, linear maps and
    translations: no rank is larger.
    """
    vectors = orbit_directions(widths, linear, PRIME)
    return parameter_count(widths) - (modular_rank(vectors, PRIME) if len(vectors) else 0)


def _reduced(widths: Widths, status: Status) -> tuple[Widths, tuple[int, ...]]:
    """The network without its inactive neurons, and without all neurons before a layer that is
    inactive throughout.
    """
    counts = [Counter(layer) for layer in status]
    last = max((l for l, c in enumerate(counts) if c["inactive"] == sum(c.values())), default=-1)
    live = [c if l >= last else Counter() for l, c in enumerate(counts)]
    inner = tuple(c["bent"] + c["active"] for c in live)
    return (widths[0], *inner, widths[-1]), tuple(c["active"] for c in live)


def _possible(status: Status) -> bool:
    """Beyond a layer that is inactive throughout everything is constant: nothing there bends."""
    dead = [l for l, layer in enumerate(status) if set(layer) == {"inactive"}]
    return not any("bent" in layer for l, layer in enumerate(status) if dead and l > dead[0])


def _status_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    for hidden in (1, 2, 3):
        yield from filter(_roughly_monotonic, cast.architectures([hidden], 5 - hidden))
    yield from cast.drawn_where(_roughly_monotonic, rng, 2, 5, draws // 10)


@statement(
    "Thm 1 (every status)",
    _status_cases,
    control("(1, 3 | 1), not roughly monotonic", lambda: (1, 3, 1)),
    source="ours",
)
def every_status(widths: Widths) -> Check:
    """For every number of bent, active and inactive neurons in each layer, symmetries
    (translations of active neurons and free parameters of inactive ones among them) bound the
    rank by D − Σ(n_l − k_l) − Σ k_l².

    The status with the least slack: a bound from symmetries alone against the printed one.
    """
    pairs = []
    for status in filter(_possible, cast.statuses(widths)):
        fixed = [len(layer) - layer.count("bent") for layer in status]
        pairs.append((_free_parameters(*_reduced(widths, status)), theorem1(widths, fixed)))
    left, right = max(pairs, key=lambda pair: pair[0] - pair[1])
    return at_most(left, right, cases=len(pairs), hidden_layers=len(widths) - 2)


def proof_fields(case: Network) -> VectorFields:
    """Generators of Π D₊(n_l − k_l) × GL(k_l), GL mixing all k_l fixed neurons, the
    always-inactive ones too.
    """
    layout, parts = ParameterLayout(case.net), []
    for layer, status in enumerate(hidden_equivalence(case.net, case.params, case.x).layers):
        parts += [mixing(layout, layer, int(i), int(i), 1.0, 1.0) for i in status.scaled]
        fixed = [int(i) for i in (*status.linear, *status.inactive)]
        parts += [mixing(layout, layer, i, j, 1.0, 1.0) for i in fixed for j in fixed]
    return join(case.net, parts)


def _proof_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    yield network([[[1], [1]], [[1, 1]]], [[2, -2], [0]], [0, 1])
    for widths in filter(_roughly_monotonic, cast.architectures([1], 3)):
        yield from (cast.staged(rng, widths, status, 6) for status in cast.statuses(widths))
    for widths in cast.drawn_where(_roughly_monotonic, rng, 3, 4, draws):
        yield cast.random_network(rng, widths, 6)


def rational_outputs(params: Any, x: np.ndarray) -> list[list[Fraction]]:
    """f_θ(X) of a ReLU network in rational arithmetic."""
    exact = np.vectorize(Fraction, otypes=[object])
    a = exact(np.array(x, object)).T
    for index, (weight, bias) in enumerate(params):
        z = exact(weight) @ a + exact(bias)[:, None]
        a = z if index == len(params) - 1 else np.maximum(z, 0)
    return a.T.tolist()


def finite_change(case: Network, t: Fraction = Fraction(1, 8)) -> Check:
    """f(gθ) − f(θ) in rational arithmetic for g = 1 + t E_ij, i an active and j an inactive
    neuron of the first hidden layer.
    """
    status = hidden_equivalence(case.net, case.params, case.x).layers[0]
    i, j = int(status.linear[0]), int(status.inactive[0])
    before, moved = np.array(rational_outputs(case.params, case.x)), _moved(case, 0, i, j, t)
    return equal(np.abs(before - np.array(moved)).max(), Fraction(0))


def _moved(case: Network, layer: int, i: int, j: int, t: Fraction) -> list[list[Fraction]]:
    """f(gθ) on X for g = 1 + tE_ij in hidden layer `layer`, in rational arithmetic."""
    params = [tuple(part.astype(int).astype(object) for part in layer) for layer in case.params]
    (weight, bias), (after, _) = params[layer : layer + 2]
    weight[i] += t * weight[j]
    bias[i] += t * bias[j]
    after[:, j] = after[:, j] / (1 + t) if i == j else after[:, j] - t * after[:, i]
    return rational_outputs(params, case.x)


_BENT_AS_LINEAR = control("two bent neurons, mixed", two_bent, fields=first_two_mixed)


@statement("Thm 1 (proof)", _proof_cases, _BENT_AS_LINEAR, confirm=finite_change)
def proof(case: Any, fields: Any = proof_fields) -> Check:
    """(in the proof) ReLU may be replaced by the identity at every fixed neuron, so that Π D₊(n_l
    − k_l) × GL(k_l) acts by equivalences on X.
    """
    return equal(case.changes(fields(case)), 0, hypotheses=case.counts)


@proof.amend(
    control(
        "−1 ∈ GL(1), far from the identity: f = max(x + 2, 0) = (2, 3, 4) becomes 0",
        lambda: network([[[1]], [[1]]], [[2], [0]], [0, 1, 2]),
        t=Fraction(-2),
    ),
    id="Thm 1 (proof, active neurons)",
)
def near_the_identity(case: Network, t: Fraction = Fraction(1, 2**40)) -> Check:
    """A neighbourhood of the identity in Π D₊(bent) × GL(active), translations of the active and
    free parameters of the inactive neurons act by equivalences on X.

    Entries of Jv that are not zero, v over the Lie algebra, and outputs that 1 + tE_ij changes,
    i and j active neurons of one layer.
    """
    status = hidden_equivalence(case.net, case.params, case.x)
    before = rational_outputs(case.params, case.x)
    changed = sum(
        _moved(case, layer, int(i), int(j), t) != before
        for layer, found in enumerate(status.layers)
        for i in found.linear
        for j in found.linear
    )
    return equal(case.changes(status.fields) + changed, 0, hypotheses=case.counts)


def _bent(status: Any) -> list[int]:
    return [*status.linear, *status.scaled]


@statement(
    "Sec 4.2 (ReLU)",
    _proof_cases,
    control("two bent neurons taken for active", two_bent, active=_bent),
)
def replaced(case: Network, active: Any = lambda status: list(status.linear)) -> Check:
    """On X ReLU is the identity at always-active neurons, and f is as without the always-inactive
    ones: by how much f(X) changes, in rational numbers.
    """
    exact = np.vectorize(Fraction, otypes=[object])
    a, layers = exact(case.x), hidden_equivalence(case.net, case.params, case.x).layers
    for status, (weight, bias) in zip(layers, case.params[:-1], strict=True):
        z = a @ exact(weight).T + exact(bias)
        a, kept = np.maximum(z, 0), active(status)
        a[:, kept], a[:, list(status.inactive)] = z[:, kept], Fraction(0)
    weight, bias = case.params[-1]
    gap = a @ exact(weight).T + exact(bias) - np.array(rational_outputs(case.params, case.x))
    return equal(np.abs(gap).max(), 0, hypotheses=case.counts)


def affine_pieces(case: Network) -> list[np.ndarray]:
    """Which samples lie on each distinct affine piece x ↦ Ax + c of f_θ that X meets.
    [complexity, Sec. 4.3]
    """
    A = ResidueArithmetic(modular.random_prime())
    slope, value = case.problem.input_jacobian(A).values, case.problem.values(A).values
    x, p = modular.from_floats(case.x, A.p), A.p
    through = modular.matmul(slope, x[:, :, None], p)[:, :, 0]
    pieces = np.concatenate([slope.reshape(len(x), -1), (value - through) % p], axis=1)
    found, which = np.unique(pieces, axis=0, return_inverse=True)
    return [np.flatnonzero(which.ravel() == piece) for piece in range(len(found))]


def spanned(case: Network, samples: np.ndarray) -> int:
    """1 + the dimension of the affine space that these samples span."""
    points = modular.from_floats(case.x[samples], PRIME)
    return modular_rank(np.concatenate([points, np.ones_like(points[:, :1])], axis=1), PRIME)


def printed_region_bound(case: Network) -> int:
    """(n_0 + 1) · (affine pieces sampled), for any number of outputs.   [complexity, Prop 4.6]"""
    return (case.net.widths[0] + 1) * len(affine_pieces(case))


def amended_region_bound(case: Network) -> int:
    """o · Σ over sampled pieces of 1 + the affine dimension of the samples on it, which is at most
    o (n_0 + 1) · pieces.
    """
    return case.net.widths[-1] * sum(spanned(case, piece) for piece in affine_pieces(case))


def cell_bound(case: Network) -> int:
    """(n_0 + 1) · (cells of the canonical polyhedral complex that X meets).
    [complexity, Prop C.3]
    """
    return (case.net.widths[0] + 1) * sampled_regions(case.net, case.params, case.x, exact=True)


def _region_cases(rng: np.random.Generator, draws: int, outputs: int = 3) -> Iterator[Network]:
    if outputs > 1:
        yield network([[[1]], [[1], [1]]], [[0], [0, 0]], [1, 2])
    for widths in [*cast.architectures([1], 3), *cast.architectures([2], 2)]:
        if widths[-1] <= outputs:
            samples = int(rng.integers(2, 3 * widths[0] + 6))
            for kind in ("bent", "active"):
                yield cast.staged(rng, widths, cast.throughout(widths, kind), samples)
    for _ in range(draws):
        widths = cast.random_widths(rng, 3, 4)
        widths = (*widths[:-1], min(widths[-1], outputs))
        yield cast.random_network(rng, widths, int(rng.integers(1, 25)))


def _region_check(case: Network, bound: Any) -> Check:
    found = {"inputs": case.net.widths[0], "outputs": case.net.widths[-1]}
    found |= {"hidden layers": case.net.depth - 1, "samples": len(case.x)}
    return at_most(case.rank, bound(case), drops=_at_a_kink(case), hypotheses=found)


def _fewer_samples(case: Network) -> Iterator[Network]:
    for i in range(len(case.x) if len(case.x) > 1 else 0):
        yield Network(case.net, case.params, np.delete(case.x, i, axis=0))


def _two_points(outputs: int) -> Network:
    """One active neuron, so one piece, at x = 1, 2: every output is a line of its own."""
    return network([[[1]], [[1]] * outputs], [[0], [0] * outputs], [1, 2])


@statement(
    "4.6",
    _region_cases,
    control(
        "n_0 instead of n_0 + 1, at (1, 1 | 1)",
        lambda: _two_points(1),
        bound=lambda case: len(affine_pieces(case)),
    ),
    show=lambda case: (
        f"{case}\nint(nm.functional_dimension(net, params, x, exact=True)), "
        "nm.sampled_regions(net, params, x)"
    ),
    smaller=_fewer_samples,
    confirm=lambda case: at_most(
        int(functional_dimension(case.net, case.params, case.x, smallest_gap=0.0)),
        printed_region_bound(case),
    ),
)
def regions(case: Any, bound: Any = printed_region_bound) -> Check:
    """For almost every θ the functional dimension on Z is at most (n_0 + 1) times the number of
    affine pieces of f_θ that Z meets.
    """
    return _region_check(case, bound)


s_4_6_several_outputs = regions.amend(
    control(
        "without the factor o, at (1, 1 | 2)", lambda: _two_points(2), bound=printed_region_bound
    ),
    id="4.6 (several outputs)",
    bound=amended_region_bound,
)(
    "With o outputs the functional dimension is at most o Σ (1 + the affine dimension of the "
    "samples on the piece) over the pieces met, so at most o (n_0 + 1) times their number."
)


def _one_input(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    for width, layers in itertools.product((1, 2, 3, 4), (1, 2)):
        widths = (1, *(width,) * layers, 1)
        yield cast.staged(rng, widths, cast.throughout(widths), 20)
    for _ in range(draws):
        widths = (1, *cast.random_widths(rng, 3, 5)[1:-1], 1)
        yield cast.random_network(rng, widths, int(rng.integers(1, 40)))


@statement(
    "C.3",
    partial(_region_cases, outputs=1),
    control(
        "two outputs, (1, 1 | 2), at −1, 1, 2: rank 5 on two cells",
        lambda: network([[[1]], [[1], [1]]], [[0], [0, 0]], [-1, 1, 2]),
    ),
)
def scalar(case: Any, bound: Any = cell_bound) -> Check:
    """One output: the functional dimension on Z is at most (n_0 + 1) times the number of cells
    that Z meets.
    """
    return _region_check(case, bound)


@statement(
    "C.3 (one input)",
    _one_input,
    control(
        "once the number of regions, at (1, 1 | 1)",
        lambda: _two_points(1),
        bound=lambda case: sampled_regions(case.net, case.params, case.x),
    ),
    draws=30,
)
def one_input(case: Any, bound: Any = cell_bound) -> Check:
    """One input and one output: the functional dimension is at most twice the number of linear
    regions sampled.
    """
    return _region_check(case, bound)
