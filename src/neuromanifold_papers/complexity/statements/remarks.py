"""complexity: remarks in passing that have a number or a formula in them."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import chain, product, starmap
from typing import Any

import numpy as np

from neuromanifold.symmetry.groups.hadamard import unflatten
from neuromanifold.symmetry.groups.scaling import ScalingGroup
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.rank.jacobian import jacobian
from neuromanifold_papers.check import EPS, Check, at_least, equal, outside
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.bounds import rational_outputs
from neuromanifold_papers.complexity.statements.cases import Network, network
from neuromanifold_papers.complexity.statements.setup import WAVES, printed_function
from neuromanifold_papers.statement import Listed, control, in_float64, statement


def _gram(case: Network) -> np.ndarray:
    """JJᵀ in integers: the values of the NTK on the sample."""
    J = case.jacobian.astype(object)
    return J @ J.T


def negative_kernel() -> Network:
    """f = 10 max(x + 20, 0) at x = ±10: k(10, −10) = 10²(1 − 100) + 30·10 + 1."""
    return network([[[1]], [[10]]], [[20], [0]], [-10, 10])


def _twice_one_point() -> Network:
    """The same network at 1, 1 and 2, where no value is negative."""
    return network([[[1]], [[10]]], [[20], [0]], [1, 1, 2])


def _kernels(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    """The negative value, a sample with a point taken twice, then random networks."""
    yield negative_kernel()
    yield _twice_one_point()
    yield from (
        cast.random_network(rng, (*cast.random_widths(rng, 2, 3)[:-1], 1), 8, size=9)
        for _ in range(draws)
    )


def _one_negative(case: Network) -> np.ndarray:
    """The Gram matrix with the sign of its first entry changed."""
    gram = _gram(case)
    gram[0, 0] = -gram[0, 0]
    return gram


@statement(
    "Sec 3.2 (values)",
    _kernels,
    control("k(x, x) with its sign changed at one x", _twice_one_point, form=_one_negative),
    confirm=lambda case: at_least(float(ntk(case.net, case.params, case.x).min()), 0.0),
)
def nonnegative(case: Network, form: Any = _gram) -> Check:
    """A kernel, the NTK being one, has values in ℝ_{≥0}."""
    return at_least(int(form(case).min()), 0, hidden_layers=case.net.depth - 1, samples=len(case.x))


@nonnegative.amend(
    control("k(x, x) with its sign changed at one x", negative_kernel, form=_one_negative)
)
def semidefinite(case: Network, form: Any = _gram) -> Check:
    """k(x, x) ≥ 0, and every Gram matrix of the NTK is positive semi-definite.

    The least of zᵀ(JJᵀ)z over unit vectors, e_1 − e_j and integer z: all Gram matrices are
    positive semi-definite.

    Where x_1 = x_2 it is 0 at e_1 − e_2.
    """
    gram = form(case)
    units = np.eye(len(gram), dtype=int)
    drawn = np.random.default_rng(len(gram)).integers(-9, 10, (len(gram), 20))
    z = np.hstack([units, units[:, :1] - units[:, 1:], drawn]).astype(object)
    least = min(np.diag(z.T @ gram @ z))
    return at_least(int(least), 0, comparisons=z.shape[1], samples=len(gram))


def _by_squares(case: tuple[str, Fraction]) -> Check:
    """f3(5/6) = 3/2 − (1/2 + 1/4 + 1/5)√3, and 9/4 < 3·(19/20)²."""
    q = sum(Fraction(amplitude).limit_denominator(10) / 2 for amplitude, _, _ in WAVES[case[0]])
    return at_least(Fraction(9, 4), 3 * q * q)


def _formula(case: tuple[str, Fraction]) -> str:
    """The function's value as Python."""
    name, x = case
    waves = [f"{amplitude} * np.sin({k} * np.pi * {x})" for amplitude, k, _ in WAVES[name]]
    return f"1.5 + {' + '.join(waves)}  # {name}({x})"


def _values(names: tuple[str, ...]) -> list[tuple[str, Fraction]]:
    first = [("f3", Fraction(5, 6))] * ("f3" in names)
    return first + [(name, Fraction(i, 600)) for name in names for i in range(601)]


@in_float64(
    "Sec 5 (positive)",
    _values(("f1", "f2", "f3")),
    control("without the shift, f1 at ¾", lambda: ("f1", Fraction(3, 4)), shift=0.0),
    show=_formula,
    confirm=_by_squares,
)
def positive(case: tuple[str, Fraction], shift: float = 1.5) -> Check:
    """The shift 1.5 makes f1, f2 and f3 strictly positive on [0, 1]."""
    name, x = case
    value = float(printed_function(name, np.array([[float(x)]]))[0]) + shift - 1.5
    return at_least(value, 0.0, 64 * EPS, function=name)


sec_5_positive_amended = positive.amend(
    control("f3 at 5/6", lambda: ("f3", Fraction(5, 6))), cases=Listed(_values(("f1", "f2")))
)("f1 and f2 are strictly positive on [0, 1], with least values ½ and 3/2 − 3√3/4")

SHAPES = {"univariate": (100, 361), "bivariate": (400, 371)}
PRINTED_RANKS = {"univariate": 100, "bivariate": 400}


def _paper_network(name: str, seed: int) -> Network:
    """The paper's architecture with every hidden neuron bent on as many samples as it has."""
    samples, inputs = SHAPES[name][0], {"univariate": 1, "bivariate": 2}[name]
    widths = (inputs, 10, 10, 10, 10, 1)
    rng = np.random.default_rng(seed)
    return cast.staged(rng, widths, cast.throughout(widths), samples, size=9)


def _scalings(case: Network) -> int:
    """The rank of the generators of positive scalings, if J times each of them is zero."""
    group = ScalingGroup(case.net)
    return group.orbit_dimension(case.params) * (case.changes(group.fields) == 0)


def _rank_of_a_matrix(name: str) -> Check:
    """The rank of a random integer matrix of that shape."""
    matrix = np.random.default_rng(0).integers(-9, 10, SHAPES[name])
    return equal(cast.integer_rank(matrix), PRINTED_RANKS[name])


@statement(
    "Sec 5 (largest rank)",
    lambda rng, draws: list(SHAPES),
    control("361 for the univariate data", lambda: "univariate", printed={"univariate": 361}),
    confirm=_rank_of_a_matrix,
)
def largest_rank(name: str, printed: dict[str, int] = PRINTED_RANKS) -> Check:
    """The maximum possible rank of the Jacobian is 100 in the 1D and 400 in the 2D experiments."""
    return equal(min(SHAPES[name]), printed[name], experiment=name)


@largest_rank.amend(
    control(
        "the scalings forgotten: 371",
        lambda: _paper_network("bivariate", 0),
        scalings=lambda case: 0,
    ),
    cases=lambda rng, draws: starmap(_paper_network, product(SHAPES, range(3))),
)
def rank_and_scalings(case: Network, scalings: Any = _scalings) -> Check:
    """The rank of the Jacobian is at most 100 in the 1D and 331 = 371 − 40 in the 2D experiments.

    min(samples, D − scalings in the kernel of J), or the rank of J where that is larger.
    """
    bound = min(len(case.x), case.net.n_params - scalings(case))
    stated = {1: 100, 2: 331}[case.net.widths[0]]
    return equal(max(bound, case.rank), stated, samples=len(case.x), rank=case.rank)


Combination = tuple[Network, tuple[int, ...]]


def combined_rows(case: Combination) -> np.ndarray:
    """Σ c_i J(z_i) − J(Σ c_i z_i), the sample being z_1, …, z_k and Σ c_i z_i last."""
    J = case[0].jacobian.astype(object)
    return np.array(case[1], object) @ J[:-1] - J[-1]


def one_cell(net: Network) -> bool:
    """Whether all points have the same activation pattern."""
    return all(bool((layer == layer[0]).all()) for layer in net.active)


def doubled() -> Combination:
    """x + 5 ↦ itself through one neuron that is active at z_1 = 1 and z_2 = 2 = 2z_1."""
    return network([[[1]], [[1]]], [[5], [0]], [1, 2]), (2,)


def _combinations(rng: np.random.Generator, *, affine: bool) -> Iterator[Combination]:
    """Points of one cell and integer combinations of them in the same cell."""
    for widths, k in product(((1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 3, 2, 1)), (1, 2, 3)):
        for _ in range(4):
            base = cast.random_network(rng, widths, k, size=9)
            c = rng.integers(-2, 3, k)
            c[-1] = 1 - c[:-1].sum() if affine else c[-1]
            x = np.concatenate([base.x, [c @ base.x]])
            case = Network(base.net, base.params, x)
            if one_cell(case):
                yield case, tuple(int(v) for v in c)


def _rows_in_floats(case: Combination) -> Check:
    """The same from gradients by JAX."""
    J = jacobian(case[0].net, case[0].params, case[0].x)
    return equal(float(np.abs(np.array(case[1], float) @ J[:-1] - J[-1]).max()), 0.0, 1e-9)


@statement(
    "C.3 (proof)",
    lambda rng, draws: chain([doubled()], _combinations(rng, affine=False)),
    control(
        "points of two cells, 3 = 2·1 − (−1) through max(x, 0)",
        lambda: (network([[[1]], [[1]]], [[0], [0]], [-1, 1, 3]), (-1, 2)),
    ),
    show=lambda case: f"{case[0]}\nc = {case[1]}",
    confirm=_rows_in_floats,
)
def combine(case: Combination) -> Check:
    """Points of one cell: if z_{k+1} is a linear combination of z_1, …, z_k, the row of J at z_{k+1} is
    that combination of their rows.
    """
    hypotheses = {"inputs": case[0].net.widths[0], "points": len(case[1]), "Σ c": sum(case[1])}
    return equal(int(np.count_nonzero(combined_rows(case))), 0, hypotheses=hypotheses)


c_3_proof_amended = combine.amend(
    control("a combination with Σc_i = 2", doubled),
    cases=lambda rng, draws: _combinations(rng, affine=True),
)(
    "points of one cell: if z_{k+1} = Σc_i z_i with Σc_i = 1, the row of J at z_{k+1} is Σc_i "
    "times the rows at z_i"
)


_SINGLE = partial(np.eye, dtype=int)
"""One direction for each parameter, and one for each input, by rows."""


def _bends(case: Network, directions: Any) -> int:
    """Directions of parameters and input along which f(θ)(z) has a second difference, in rational
    numbers and steps that leave no cell.
    """
    theta = [Fraction(v) for layer in case.params for part in layer for v in part.ravel().tolist()]
    step = Fraction(1, 2**40)

    def value(moved: np.ndarray) -> Fraction:
        params = unflatten(case.params, moved[: len(theta)])
        return rational_outputs(params, moved[None, len(theta) :])[0][0]

    directed = directions(len(theta) + case.x.shape[1]) * step
    return sum(
        value(start + way) - 2 * value(start) + value(start - way) != 0
        for way in directed
        for start in np.array([[*theta, *map(Fraction, sample)] for sample in case.x.tolist()])
    )


@statement(
    "C.3 (affine)",
    lambda rng, draws: (case for case, _ in _combinations(rng, affine=True)),
    control(
        "all parameters and the input moved together",
        lambda: doubled()[0],
        directions=lambda count: np.ones((1, count), dtype=int),
    ),
)
def affine(case: Network, directions: Any = _SINGLE) -> Check:
    """On one cell f is affine in the input and in every single parameter near θ."""
    layers = case.signs.layers[: case.net.depth - 1]
    drops = outside("a point on a kink", when=any((layer == 0).any() for layer in layers))
    return equal(_bends(case, directions), 0, drops=drops, hidden_layers=case.net.depth - 1)
