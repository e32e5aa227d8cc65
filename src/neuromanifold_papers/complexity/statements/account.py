"""complexity, Sec. 4: the account D = d + s, where it closes and what is left where it does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.account.equivalence import hidden_equivalence
from neuromanifold.tangent.rank.certificate import certify_rank
from neuromanifold_papers.check import Check, equal, inside
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.cases import Network, Widths
from neuromanifold_papers.statement import control, statement


def residual(inputs: int, outputs: int, active: int) -> int:
    """D − d − s of one hidden layer with `active` ≥ 1 always-active neurons: (k − min(n_0, o))₊
    (max(n_0, o) − k)₊.

    These neurons add an affine map VW x + …, and VW ranges over all matrices of rank ≤ k. While o ≤
    k ≤ n_0, say, it ranges over all o×n_0 of them, so that ker J has k(n_0 + 1 + o) − o n_0
    dimensions there; GL(k) and translations account for k² + k.
    """
    low, high = sorted((inputs, outputs))
    return max(0, active - low) * max(0, high - active) if active else 0


@dataclass(frozen=True)
class Shallow:
    """One hidden layer of ReLUs of which `active` are always active and the others bend, their
    kinks amid the sample.
    """

    inputs: int
    width: int
    outputs: int
    active: int
    seed: int = 0

    @property
    def network(self) -> Network:
        """A random one, on 30(n_0 + 1) samples."""
        rng = np.random.default_rng([self.seed, self.inputs, self.width, self.outputs, self.active])
        kinds = ("active",) * self.active + ("bent",) * (self.width - self.active)
        return cast.staged(
            rng, (self.inputs, self.width, self.outputs), (kinds,), 30 * (self.inputs + 1)
        )

    def __str__(self) -> str:
        return (
            f"({self.inputs}, {self.width} | {self.outputs}), {self.active} neurons always active"
        )


@dataclass(frozen=True)
class Counted:
    """D, the exact functional dimension d, and s, the dimension of the hidden equivalence's
    orbit, on one sample.
    """

    parameters: int
    functional: int
    symmetric: int

    @property
    def left(self) -> int:
        """D − d − s."""
        return self.parameters - self.functional - self.symmetric


def counted(net: MLP, params: Any, x: np.ndarray) -> Counted:
    """D, d and s."""
    group = hidden_equivalence(net, params, x)
    rank = certify_rank(group.problem, prove=False).rank
    return Counted(net.n_params, rank, int(group.orbit_dimension()))


@lru_cache(maxsize=512)
def account(case: Shallow) -> tuple[Counted, bool]:
    """D, d, s, and whether each bent neuron, and each pair, is told apart by more than n_0 + 2
    samples in every way.
    """
    drawn = case.network
    on = drawn.signs.layers[0][:, case.active :] > 0
    differ = [on[:, i] ^ on[:, j] for i in range(on.shape[1]) for j in range(i)]
    counts = [int(part.sum()) for mask in (*on.T, *differ) for part in (mask, ~mask)]
    return counted(drawn.net, drawn.params, drawn.x), min(counts, default=99) > case.inputs + 2


def _shallow(rng: np.random.Generator, draws: int) -> Iterator[Shallow]:
    for inputs, width, outputs in cast.architectures([1], 3):
        yield from (Shallow(inputs, width, outputs, k) for k in range(width + 1))
    for seed in range(1, draws + 1):
        inputs, outputs, width = (int(n) for n in rng.integers(1, 5, 3))
        yield Shallow(inputs, width, outputs, int(rng.integers(width + 1)), seed)


def _check(case: Shallow, right: int) -> Check:
    found, sampled = account(case)
    hypotheses = {name: value for name, value in vars(case).items() if name != "seed"}
    drops = inside("the sample does not tell all bent neurons apart", when=not sampled)
    right += found.functional + found.symmetric
    return equal(found.parameters, right, drops=drops, hypotheses=hypotheses)


def favourable(inputs: int, outputs: int, active: int) -> bool:
    """At most as many always-active neurons as the smaller of inputs and outputs, or at least as
    many as the larger.
    """
    low, high = sorted((inputs, outputs))
    return not low < active < high


@statement(
    "D = d + s",
    _shallow,
    control(
        "(3, 2 | 1) with both neurons always active, where one dimension is left, called favourable",
        lambda: Shallow(3, 2, 1, 2),
        criterion=lambda *_: True,
    ),
    draws=20,
)
def closes(case: Shallow, criterion: Any = favourable) -> Check:
    """In favourable situations the parameters are the functional dimension plus the dimension of
    the symmetries: with one hidden layer, all kinks sampled and k always-active neurons
    exactly when k ≤ min(n_0, o) or k ≥ max(n_0, o).

    Whether D = d + s, against the criterion: both ways, so that it names all favourable
    situations of this kind.
    """
    closed, wanted = account(case)[0].left == 0, criterion(case.inputs, case.outputs, case.active)
    return replace(_check(case, 0), left=int(closed), right=int(wanted))


@statement(
    "D = d + s (where it does not close)",
    _shallow,
    control(
        "(3, 2 | 1) with both always active, the residual left out",
        lambda: Shallow(3, 2, 1, 2),
        left_over=lambda *_: 0,
    ),
    draws=20,
    source="ours",
)
def with_residual(case: Shallow, left_over: Any = residual) -> Check:
    """With k always-active neurons in one hidden layer D = d + s + (k − min(n_0, o))₊ (max(n_0,
    o) − k)₊.
    """
    return _check(case, left_over(case.inputs, case.outputs, case.active))


def running_minima_allow(widths: Widths) -> bool:
    """Running minima from the left are n_0 or r, from the right n_d or r, r the smallest width."""
    r = min(widths)
    left, right = np.minimum.accumulate(widths), np.minimum.accumulate(widths[::-1])
    return set(left.tolist()) <= {widths[0], r} and set(right.tolist()) <= {widths[-1], r}


def _linear_cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
    yield from [*cast.architectures([1], 3), *cast.architectures([2], 2)]
    yield from (cast.random_widths(rng, 3, 5) for _ in range(draws))


@statement(
    "D = d + s (linear)",
    _linear_cases,
    control("(3, 2 | 1) counted as closing", lambda: (3, 2, 1), allow=lambda widths: True),
    draws=20,
    source="ours",
)
def linear(widths: Widths, allow: Any = running_minima_allow) -> Check:
    """A generic deep linear network has D = d + s exactly when the running minima of the widths
    are n_0 or r from the left, n_d or r from the right, r the smallest.

    Whether the account of a generic deep linear network closes, against the criterion.
    """
    rng = np.random.default_rng(list(widths))
    params = tuple(
        Layer(rng.integers(-999, 1000, (out, fan_in)) * 1.0, rng.integers(-999, 1000, out) * 1.0)
        for fan_in, out in zip(widths[:-1], widths[1:], strict=True)
    )
    x = rng.integers(-999, 1000, (widths[0] + 2, widths[0])) * 1.0
    left = counted(MLP(widths, "identity"), params, x).left
    hypotheses = {"hidden layers": len(widths) - 2, "unexplained": left}
    return equal(int(left == 0), int(allow(widths)), hypotheses=hypotheses)
