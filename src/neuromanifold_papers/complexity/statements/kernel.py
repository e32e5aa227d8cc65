"""complexity, Sec. 3: the parameter count, rank J = rank JJᵀ, and which architectures are
roughly monotonic.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.rank import numerical_rank
from neuromanifold.regions.bounds import is_roughly_monotonic
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.rank.dimension import functional_dimension, single_precision_rank
from neuromanifold_papers.check import Check, at_least, equal
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.cases import Network, Widths
from neuromanifold_papers.statement import control, in_float64, statement

PRINTED_COUNTS = {1: 361, 2: 371, 8: 431}
ROUGHLY_MONOTONIC: dict[Widths, bool] = {(1, 5, 4, 3, 2, 1): True, (1, 5, 5, 5, 5, 1): False}


def parameter_count(widths: Widths) -> int:
    """D = Σ n_l (n_{l-1} + 1)."""
    return sum(out * (fan_in + 1) for fan_in, out in zip(widths[:-1], widths[1:], strict=True))


def _count_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from cast.architectures([0, 1, 2, 3], 4)
    yield from (cast.random_widths(rng, 6, 40) for _ in range(draws))


@statement("count", _count_cases, control("no biases in (1, 2 | 1)", lambda: (1, 2, 1), bias=False))
def count(widths: Widths, bias: bool = True) -> Check:
    """A fully connected network has D = Σ n_l (n_{l-1} + 1) parameters."""
    return equal(MLP(widths, bias=bias).n_params, parameter_count(widths), layers=len(widths) - 1)


@statement(
    "count (networks)",
    lambda rng, draws: PRINTED_COUNTS,
    control("the count for one input, asked of two", lambda: 2, printed={2: PRINTED_COUNTS[1]}),
)
def count_networks(inputs: int, printed: Mapping[int, int] = PRINTED_COUNTS) -> Check:
    """(n_0, 10, 10, 10, 10 | 1) has 361, 371 and 431 parameters for n_0 = 1, 2, 8."""
    net = MLP((inputs, 10, 10, 10, 10, 1))
    drawn = jax.eval_shape(lambda key: net.init(key=key), jax.random.key(0))
    entries = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(drawn))
    return equal(entries, printed[inputs], inputs=inputs)


def _rank_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    for widths in cast.architectures([1], 2):
        yield from (cast.staged(rng, widths, status, 5, size=4) for status in cast.statuses(widths))
    for _ in range(draws):
        yield cast.random_network(
            rng, cast.random_widths(rng, 2, 3), int(rng.integers(1, 9)), size=9
        )


def scalar_product(n: int) -> np.ndarray:
    """The diagonal of the form that makes JJᵀ."""
    return np.ones(n, int)


def indefinite_form(n: int) -> np.ndarray:
    """1, −1, 1, …: Σ ± x_i y_i, which vanishes on (1, 1), as the plain transpose over ℂ does on
    (1, i).
    """
    return (-1) ** np.arange(n)


@statement(
    "3.3",
    _rank_cases,
    control(
        "an indefinite form, f = wx + b at x = 1, where J = (1, 1)",
        lambda: cast.network([[[1]]], [[0]], [1]),
        form=indefinite_form,
    ),
)
def gram_rank(case: Network, form: Any = scalar_product) -> Check:
    """The rank of the Gram matrix JJᵀ of the NTK is the functional dimension rank J.

    The rank of JJᵀ over the rationals, against the functional dimension by the modular route.
    """
    J = case.jacobian.astype(object)
    found, net = cast.integer_rank(J * form(J.shape[1]) @ J.T), case.net
    hypotheses = {"inputs": net.widths[0], "outputs": net.widths[-1], "layers": net.depth}
    return equal(found, case.rank, hypotheses=hypotheses, rank=case.rank)


def _matrices(rng: np.random.Generator, draws: int) -> Iterator[np.ndarray]:
    shapes = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2)]
    for rows, columns in shapes:
        for entries in itertools.product((-1, 0, 1), repeat=rows * columns):
            yield np.array(entries).reshape(rows, columns)
    for _ in range(draws):
        r, m, n = rng.integers(1, 6, 3)
        yield rng.integers(-99, 100, (m, r)) @ rng.integers(-99, 100, (r, n))


@statement(
    "3.3 (matrices)",
    _matrices,
    control("an indefinite form, M = (1, 1)", lambda: np.array([[1, 1]]), form=indefinite_form),
)
def matrices(M: np.ndarray, form: Any = scalar_product) -> Check:
    """Rk M = rk MMᵀ for every real matrix."""
    gram = M * form(M.shape[1]) @ M.T
    return equal(cast.integer_rank(gram), cast.integer_rank(M), rows=M.shape[0], columns=M.shape[1])


@dataclass(frozen=True)
class Offset:
    """The line f(x) = wx + b at x = 1 and x = 1 + 2^−k, in one of two precisions."""

    k: int
    precision: str

    @property
    def x(self) -> np.ndarray:
        """The two inputs."""
        return np.array([[1.0], [1.0 + 2.0**-self.k]])


LINE, THETA = MLP((1, 1)), (Layer(np.ones((1, 1)), np.zeros(1)),)
BETWEEN = {"float64": range(25, 48), "float32": range(11, 20)}
"""Where 2^−k is larger than the threshold for J, and its square smaller than that for JJᵀ."""


def computed_ranks(case: Offset) -> tuple[int, int]:
    """The ranks of J and of JJᵀ by singular values above max(n, m)·ε·σ_max."""
    if case.precision == "float64":
        J = functional_dimension(LINE, THETA, case.x, smallest_gap=0.0)
        return int(J), int(numerical_rank(ntk(LINE, THETA, case.x)))
    single = (Layer(np.ones((1, 1), np.float32), np.zeros(1, np.float32)),)
    kernel = np.linalg.svd(ntk(LINE, single, case.x.astype(np.float32)), compute_uv=False)
    return int(single_precision_rank(LINE, single, case.x)), int(
        (kernel > 2 * np.float32(2**-23) * kernel[0]).sum()
    )


@in_float64(
    "3.3 (floating point)",
    lambda rng, draws: [Offset(k, precision) for precision, ks in BETWEEN.items() for k in ks],
    control("well-separated inputs, k = 4: both ranks are 2", lambda: Offset(4, "float64")),
    source="ours",
)
def floating(case: Offset) -> Check:
    """Computed with the usual threshold the two ranks differ: J keeps a singular value whose
    square JJᵀ drops.
    """
    rank, kernel = computed_ranks(case)
    exact = int(functional_dimension(LINE, THETA, case.x, exact=True))
    hypotheses = {"exact rank": exact, "computed rank of J": rank}
    return at_least(rank - kernel, 1, hypotheses=vars(case) | hypotheses)


def _monotonic_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from ROUGHLY_MONOTONIC
    yield from cast.architectures([0, 1, 2, 3], 5)
    yield from (cast.random_widths(rng, 5, 9) for _ in range(draws))


@statement(
    "Ass 3.1",
    _monotonic_cases,
    control(
        "(1, 3 | 1), which rises by two and falls by two, taken for roughly monotonic",
        lambda: (1, 3, 1),
        examples={(1, 3, 1): True},
    ),
)
def monotonic(widths: Widths, examples: Mapping[Widths, bool] = ROUGHLY_MONOTONIC) -> Check:
    """Roughly monotonic means n_l − 1 ≤ n_{l-1} for all l, or n_{l-1} − 1 ≤ n_l for all l; (1, 5,
    4, 3, 2 | 1) is, (1, 5, 5, 5, 5 | 1) is not.
    """
    printed = examples.get(widths, any(cast.roughly(widths)))
    return equal(int(is_roughly_monotonic(widths)), int(printed), layers=len(widths) - 1)
