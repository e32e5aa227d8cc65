"""complexity, Sec. 3: the parameter count, rank J = rank JJᵀ, and which architectures are
roughly monotonic.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.regions.bounds import is_roughly_monotonic
from neuromanifold.symmetry.groups.base import numerical_rank
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.rank.dimension import functional_dimension, single_precision_rank
from neuromanifold_papers.check import Check
from neuromanifold_papers.complexity.statements.cases import (
    Network,
    Widths,
    architectures,
    integer_rank,
    network,
    random_network,
    random_widths,
    roughly,
    staged,
    statuses,
)
from neuromanifold_papers.statement import Control, Statement

PAPER = "complexity"
PRINTED_COUNTS = {1: 361, 2: 371, 8: 431}
ROUGHLY_MONOTONIC: dict[Widths, bool] = {(1, 5, 4, 3, 2, 1): True, (1, 5, 5, 5, 5, 1): False}


def parameter_count(widths: Widths) -> int:
    """D = Σ n_l (n_{l-1} + 1)."""
    return sum(out * (fan_in + 1) for fan_in, out in zip(widths[:-1], widths[1:], strict=True))


def _count_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from architectures([0, 1, 2, 3], 4)
    yield from (random_widths(rng, 6, 40) for _ in range(draws))


def _count(widths: Widths, bias: bool = True) -> Check:
    return Check(
        MLP(widths, bias=bias).n_params,
        parameter_count(widths),
        hypotheses={"layers": len(widths) - 1},
    )


COUNT = Statement(
    paper=PAPER,
    row="count",
    id="count",
    says="a fully connected network has D = Σ n_l (n_{l-1} + 1) parameters",
    method="exact",
    cases=_count_cases,
    measure=_count,
    control=Control(
        "no biases in (1, 2 | 1)",
        case=lambda: (1, 2, 1),
        breaks={"bias": False},
    ),
    exhaustive="widths 1 to 4, one to four layers",
    show=lambda widths: f"nm.MLP({widths}).n_params",
)


def _drawn_count(inputs: int, printed: Mapping[int, int] = PRINTED_COUNTS) -> Check:
    net = MLP((inputs, 10, 10, 10, 10, 1))
    drawn = jax.eval_shape(lambda key: net.init(key=key), jax.random.key(0))
    entries = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(drawn))
    return Check(entries, printed[inputs], hypotheses={"inputs": inputs})


COUNT_NETWORKS = Statement(
    paper=PAPER,
    row="count",
    id="count (networks)",
    says="(n_0, 10, 10, 10, 10 | 1) has 361, 371 and 431 parameters for n_0 = 1, 2, 8",
    method="exact",
    cases=lambda rng, draws: PRINTED_COUNTS,
    measure=_drawn_count,
    control=Control(
        "the count for one input, asked of two",
        case=lambda: 2,
        breaks={"printed": {2: PRINTED_COUNTS[1]}},
    ),
    exhaustive="the three networks",
    show=lambda inputs: f"nm.MLP(({inputs}, 10, 10, 10, 10, 1)).n_params",
)


def _rank_cases(rng: np.random.Generator, draws: int) -> Iterator[Network]:
    for widths in architectures([1], 2):
        yield from (staged(rng, widths, status, 5, size=4) for status in statuses(widths))
    for _ in range(draws):
        yield random_network(rng, random_widths(rng, 2, 3), int(rng.integers(1, 9)), size=9)


Form = Callable[[int], np.ndarray]


def scalar_product(n: int) -> np.ndarray:
    """The diagonal of the form that makes JJᵀ."""
    return np.ones(n, int)


def indefinite_form(n: int) -> np.ndarray:
    """1, −1, 1, …: Σ ± x_i y_i, which vanishes on (1, 1), as the plain transpose over ℂ does on
    (1, i).
    """
    return (-1) ** np.arange(n)


def _gram_rank(case: Network, form: Form = scalar_product) -> Check:
    """The rank of JJᵀ over the rationals, against the functional dimension by the modular route."""
    J = case.jacobian.astype(object)
    found = {"inputs": case.net.widths[0], "outputs": case.net.widths[-1], "layers": case.net.depth}
    return Check(
        integer_rank(J * form(J.shape[1]) @ J.T), case.rank, hypotheses=found | {"rank": case.rank}
    )


GRAM = Statement(
    paper=PAPER,
    row="3.3",
    id="3.3",
    says="the rank of the Gram matrix JJᵀ of the NTK is the functional dimension rank J",
    method="exact",
    cases=_rank_cases,
    measure=_gram_rank,
    control=Control(
        "an indefinite form, f = wx + b at x = 1, where J = (1, 1)",
        case=lambda: network([[[1]]], [[0]], [1]),
        breaks={"form": indefinite_form},
    ),
    show=str,
)


def _matrices(rng: np.random.Generator, draws: int) -> Iterator[np.ndarray]:
    shapes = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2)]
    for rows, columns in shapes:
        for entries in itertools.product((-1, 0, 1), repeat=rows * columns):
            yield np.array(entries).reshape(rows, columns)
    for _ in range(draws):
        r, m, n = rng.integers(1, 6, 3)
        yield rng.integers(-99, 100, (m, r)) @ rng.integers(-99, 100, (r, n))


def _matrix_rank(M: np.ndarray, form: Form = scalar_product) -> Check:
    gram = M * form(M.shape[1]) @ M.T
    return Check(
        integer_rank(gram), integer_rank(M), hypotheses={"rows": M.shape[0], "columns": M.shape[1]}
    )


MATRICES = Statement(
    paper=PAPER,
    row="3.3",
    id="3.3 (matrices)",
    says="rk M = rk MMᵀ for every real matrix",
    method="exact",
    cases=_matrices,
    measure=_matrix_rank,
    control=Control(
        "an indefinite form, M = (1, 1)",
        case=lambda: np.array([[1, 1]]),
        breaks={"form": indefinite_form},
    ),
    exhaustive="matrices of −1, 0, 1 up to 2×3 and 3×2",
    show=lambda M: f"M = np.array({M.tolist()})",
)


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


def _floating(case: Offset) -> Check:
    rank, kernel = computed_ranks(case)
    exact = int(functional_dimension(LINE, THETA, case.x, exact=True))
    hypotheses = {
        "precision": case.precision,
        "k": case.k,
        "exact rank": exact,
        "computed rank of J": rank,
    }
    return Check(rank - kernel, 1, ">=", hypotheses=hypotheses)


FLOATING = Statement(
    paper=PAPER,
    row="3.3",
    id="3.3 (floating point)",
    says="computed with the usual threshold the two ranks differ: J keeps a singular value whose "
    "square JJᵀ drops",
    method="float64",
    cases=lambda rng, draws: [
        Offset(k, precision) for precision, ks in BETWEEN.items() for k in ks
    ],
    measure=_floating,
    control=Control(
        "well-separated inputs, k = 4: both ranks are 2", case=lambda: Offset(4, "float64")
    ),
    exhaustive="f(x) = wx + b at 1 and 1 + 2^−k; float64: k = 25 … 47, float32: k = 11 … 19",
    source="THEORY",
    show=lambda case: f"x = np.array([[1.0], [1.0 + 2.0**-{case.k}]])  # {case.precision}",
)


def _monotonic(widths: Widths, examples: Mapping[Widths, bool] = ROUGHLY_MONOTONIC) -> Check:
    printed = examples.get(widths, any(roughly(widths)))
    return Check(
        int(is_roughly_monotonic(widths)), int(printed), hypotheses={"layers": len(widths) - 1}
    )


def _monotonic_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from ROUGHLY_MONOTONIC
    yield from architectures([0, 1, 2, 3], 5)
    yield from (random_widths(rng, 5, 9) for _ in range(draws))


MONOTONIC = Statement(
    paper=PAPER,
    row="Ass 3.1",
    id="Ass 3.1",
    says="roughly monotonic means n_l − 1 ≤ n_{l-1} for all l, or n_{l-1} − 1 ≤ n_l for all l; "
    "(1, 5, 4, 3, 2 | 1) "
    "is, (1, 5, 5, 5, 5 | 1) is not",
    method="exact",
    cases=_monotonic_cases,
    measure=_monotonic,
    control=Control(
        "(1, 3 | 1), which rises by two and falls by two, taken for roughly monotonic",
        case=lambda: (1, 3, 1),
        breaks={"examples": {(1, 3, 1): True}},
    ),
    exhaustive="widths 1 to 5, one to four layers, and the two examples",
    show=lambda widths: f"nm.regions.is_roughly_monotonic({widths})",
)
