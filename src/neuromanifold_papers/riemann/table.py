"""Table 1 of `riemann`, measured over the whole range of its hypotheses."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold import functionspace as fs
from neuromanifold.functionspace.smoothness import layer_permutations
from neuromanifold.models.convolution import LinearConvNet

INDEPENDENT = 1e-7


def _nets(*described: tuple[Any, ...]) -> list[LinearConvNet]:
    return [LinearConvNet(*entry) for entry in described]


def _same(shape: Any, stride: Any, depth: int = 2) -> tuple[Any, ...]:
    return (shape,) * depth, (stride,) * depth


# (D, strides, filter shapes, what Table 1 prints) → architectures
CONVOLUTIONS: list[tuple[int, str, str, str, list[LinearConvNet]]] = [
    (
        1,
        "all > 1",
        "different",
        "yes",
        _nets(
            ((3, 2), (2, 1)), ((2, 4), (3, 1)), ((2, 3, 4), (2, 3, 1)), ((4, 3, 2, 2), (2, 2, 2, 1))
        ),
    ),
    (
        1,
        "all > 1",
        "equal",
        "yes",
        _nets(((2, 2), (2, 1)), ((3, 3), (2, 1)), ((2, 2, 2), (3, 2, 1))),
    ),
    (
        1,
        "all 1",
        "different",
        "no",
        _nets(((3, 2), (1, 1)), ((4, 3), (1, 1)), ((4, 3, 2), (1, 1, 1))),
    ),
    (1, "all 1", "equal, size 2", "no", _nets(((2, 2), (1, 1)), ((2, 2, 2), (1, 1, 1)))),
    (1, "all 1", "equal, size > 2", "no", _nets(((3, 3), (1, 1)), ((4, 4), (1, 1)))),
    (1, "some 1", "different", "no", _nets(((3, 3, 2), (2, 1, 1)), ((3, 2, 3), (1, 2, 1)))),
    (
        2,
        "all > 1",
        "different",
        "yes",
        _nets(
            (((2, 2), (3, 2)), ((2, 2),) * 2), (((2, 3), (2, 2), (3, 2)), ((2, 2), (2, 2), (1, 1)))
        ),
    ),
    (2, "all > 1", "equal", "yes", _nets(_same((2, 2), (2, 2)), _same((3, 2), (2, 3)))),
    (
        2,
        "all 1",
        "different",
        "yes",
        _nets(
            (((2, 2), (3, 2)), ((1, 1),) * 2),
            (((2, 3), (3, 2)), ((1, 1),) * 2),
            (((2, 2), (2, 3), (3, 2)), ((1, 1),) * 3),
        ),
    ),
    (
        2,
        "all 1",
        "equal",
        "yes",
        _nets(_same((2, 2), (1, 1)), _same((3, 3), (1, 1)), _same((2, 2), (1, 1), 3)),
    ),
    (
        2,
        "some 1",
        "equal",
        "yes",
        _nets(_same((2, 2), (2, 1)), (((2, 2),) * 3, ((2, 1), (1, 2), (1, 1)))),
    ),
    (
        2,
        "all 1",
        "one size > 1",
        "yes",
        _nets((((3, 1), (2, 1)), ((1, 1),) * 2), (((1, 4), (1, 3)), ((1, 1),) * 2)),
    ),
    (3, "all > 1", "different", "yes", _nets((((2, 2, 1), (1, 2, 2)), ((2, 2, 2),) * 2))),
    (3, "all > 1", "equal", "yes", _nets(_same((2, 2, 1), (2, 2, 2)))),
    (
        3,
        "all 1",
        "different",
        "yes",
        _nets(
            (((2, 2, 1), (2, 1, 2)), ((1, 1, 1),) * 2), (((2, 2, 2), (2, 2, 1)), ((1, 1, 1),) * 2)
        ),
    ),
    (3, "all 1", "equal", "yes", _nets(_same((2, 2, 2), (1, 1, 1)))),
    (3, "1 where sizes > 1", "equal", "yes", _nets((((2, 2, 1),) * 2, ((1, 1, 2),) * 2))),
    (3, "all 1", "one size > 1", "yes", _nets((((3, 1, 1), (2, 1, 1)), ((1, 1, 1),) * 2))),
]


@dataclass(frozen=True)
class Cell:
    """One cell of the measured table: the largest relative kernel distance over any fibre, and
    the fibres' sizes.
    """

    architecture: str
    dimension: int
    strides: str
    shapes: str
    invariants: str
    cases: int
    several: int
    fewest: int
    most: int
    expected: str
    spread: float
    printed: str

    @property
    def measured(self) -> str:
        """Whether the kernel is a function of (v, δ) on all drawn cases."""
        return "yes" if self.spread <= INDEPENDENT else "no"

    @property
    def agrees(self) -> bool:
        """Whether the printed answer is the measured one."""
        return self.printed == self.measured


def convolution_cells(
    draws: int, seed: int = 1, note: Callable[[], None] = lambda: None
) -> Iterator[Cell]:
    """For each family: draw filters, list the whole fibre over (μ(θ), δ), compare all its
    kernels.
    """
    rng = np.random.default_rng(seed)
    for D, strides, shapes, printed, nets in CONVOLUTIONS:
        for balanced in (True, False):
            sizes, expected, spread, several = [], set(), 0.0, 0
            for net in nets:
                expected.add(2 ** (net.depth - 1))
                for _ in range(draws):
                    v = net.end_to_end(tuple(rng.normal(size=shape) for shape in net.filter_shapes))
                    over = fs.fiber(net, v, 0.0 if balanced else 2 * rng.normal(size=net.depth - 1))
                    sizes.append(len(over))
                    several += over.factorisations > 1
                    spread = max(spread, over.kernel_spread)
            printed_here = printed
            yield Cell(
                "convolution",
                D,
                strides,
                shapes,
                "δ = 0" if balanced else "δ ≠ 0",
                len(sizes),
                several,
                min(sizes),
                max(sizes),
                "/".join(map(str, sorted(expected))),
                spread,
                printed_here,
            )
            note()


def dense_cells(
    draws: int, seed: int = 2, note: Callable[[], None] = lambda: None
) -> Iterator[Cell]:
    """Dense networks: other members of the level set over the same product, found by least
    squares.
    """
    rng = np.random.default_rng(seed)
    cases = {
        ("hidden widths ≥ 2", "Δ = 0", "yes"): lambda d, H: fs.balanced_factors(
            rng.normal(size=(d, d)), H
        ),
        ("hidden widths ≥ 2", "Δ generic", "no"): lambda d, H: tuple(
            rng.normal(size=(d, d)) for _ in range(H)
        ),
        ("hidden widths ≥ 2", "Δ = c·I ≠ 0", "no"): lambda d, H: _scalar_level(
            rng.normal(size=(d, d)), rng.normal()
        ),
        ("hidden width 1", "Δ generic", "no"): lambda d, H: (
            rng.normal(size=(1, d)),
            *(rng.normal(size=(1, 1)) for _ in range(H - 2)),
            rng.normal(size=(d, 1)),
        ),
    }
    for (shapes, invariants, printed), draw in cases.items():
        spread, count = 0.0, 0
        for d, H in ((2, 2), (3, 2)) if "c·I" in invariants else ((2, 2), (2, 3), (3, 2)):
            for _ in range(max(draws // 4, 2)):
                params = draw(d, H)
                K = fs.dense_kernel(params).matrix
                mates = fs.level_set_sample(
                    params, 3, key=jax.random.key(int(rng.integers(1 << 31)))
                )
                spread = max(
                    [
                        spread,
                        *(fs.kernel_distance(K, fs.dense_kernel(mate).matrix) for mate in mates),
                    ]
                )
                count += len(mates)
        yield Cell("dense", 0, "–", shapes, invariants, count, count, 0, 0, "∞", spread, printed)
        note()


def _scalar_level(W: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Two layers with W_2ᵀW_2 − W_1W_1ᵀ = c²·I."""
    values, U = np.linalg.eigh(W @ W.T + c * c * np.eye(len(W)))
    return W, (U * np.sqrt(values)) @ U.T


@dataclass(frozen=True)
class SwapLaw:
    """How often the corrected statement for like layers held: count 2^{H−1}·(permutations), one
    kernel iff the norms of
    interchangeable filters agree."""

    cases: int
    counts: int
    kernels: int


def corrected_theorem_13(draws: int, seed: int = 13) -> SwapLaw:
    """Draws networks with interchangeable layers and δ with and without Σ_{i=l}^{L−1} δ_i = 0
    for those pairs.
    """
    rng = np.random.default_rng(seed)
    nets = _nets(
        _same((2, 2), (1, 1)),
        _same((2, 2), (1, 1), 3),
        (((2, 2), (2, 2), (2, 3)), ((1, 1),) * 3),
        (((2, 2), (3, 2), (2, 2)), ((1, 1),) * 3),
    )
    cases = counts = kernels = 0
    for net in nets:
        orders = list(layer_permutations(net))
        pairs = [(i, j) for order in orders for i, j in enumerate(order) if i < j]
        for draw in range(draws):
            squared = rng.uniform(1, 5, net.depth)
            if draw % 2:
                for i, j in sorted(set(pairs)):
                    squared[j] = squared[i]
            delta = np.diff(squared)
            v = net.end_to_end(tuple(rng.normal(size=shape) for shape in net.filter_shapes))
            over = fs.fiber(net, v, delta)
            cases += 1
            counts += len(over) == 2 ** (net.depth - 1) * len(orders)
            kernels += (over.kernel_spread <= INDEPENDENT) == bool(draw % 2)
    return SwapLaw(cases, counts, kernels)
