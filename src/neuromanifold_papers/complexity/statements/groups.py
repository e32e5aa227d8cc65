"""complexity, Sec. 4.2 and App. A: dimensions of groups, orbits and stabilisers."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from neuromanifold.models.activation import Mixed
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.elimination import modular_rank
from neuromanifold.regions.generic import orbit_directions
from neuromanifold.symmetry.groups.linear import GeneralLinearGroup
from neuromanifold.symmetry.groups.product import SymmetryGroup
from neuromanifold.symmetry.groups.scaling import ScalingGroup
from neuromanifold_papers.check import Check, at_least, equal, outside
from neuromanifold_papers.complexity.statements import cases as cast
from neuromanifold_papers.complexity.statements.cases import Network, Widths, roughly
from neuromanifold_papers.statement import Cases, bind, control, statement

PRIME = 2**61 - 1


@dataclass(frozen=True)
class Mix:
    """A mixed ReLU–linear architecture: of the n_l neurons of hidden layer l the last
    `linear[l]` are linear.   [complexity, Def A.9]
    """

    widths: Widths
    linear: tuple[int, ...]

    @property
    def relu(self) -> tuple[int, ...]:
        """n_l^R."""
        return tuple(n - a for n, a in zip(self.widths[1:-1], self.linear, strict=True))

    @property
    def net(self) -> MLP:
        """The network."""
        return MLP(self.widths, tuple(Mixed(relu=r, identity=a) for r, a in self.layers))

    @property
    def group(self) -> SymmetryGroup:
        """H = Π D₊(n_l^R) × GL(n_l^L)."""
        general = [GeneralLinearGroup(self.net)] if any(self.linear) else []
        return SymmetryGroup(self.net, (ScalingGroup(self.net), *general))

    @property
    def orbit_dimension(self) -> int:
        """dim Hθ at a random θ modulo a prime: that of almost every θ."""
        return _generic_orbit(self.widths, self.linear)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(n_l^R, n_l^L) of every hidden layer."""
        return list(zip(self.relu, self.linear, strict=True))

    @property
    def hypotheses(self) -> dict[str, int]:
        relu, linear = sum(self.relu), sum(self.linear)
        return {"hidden layers": len(self.linear), "ReLU": relu, "linear": linear}

    @property
    def dimension(self) -> int:
        """dim H = Σ_{l≥1} n_l^R + Σ_{l≥1} (n_l^L)²."""
        return sum(self.relu) + sum(a**2 for a in self.linear)

    def __str__(self) -> str:
        layers = ", ".join(f"nm.Mixed(relu={r}, identity={a})" for r, a in self.layers)
        group = "GeneralLinearGroup" if any(self.linear) else "ScalingGroup"
        orbit = f"nm.symmetry.{group}(net).orbit_dimension(net.init(key=jax.random.key(0)))"
        return f"net = nm.MLP({self.widths}, ({layers},))\n{orbit}"


@cache
def _generic_orbit(widths: Widths, linear: tuple[int, ...]) -> int:
    return modular_rank(orbit_directions(widths, linear, PRIME, translations=False), PRIME)


def stated_dimension(case: Mix) -> int:
    """Σ_{l=1}^{d-1} n_l^R + Σ_{l=1}^{d-1} (n_l^L)², as the proof has it; the print starts at l = 0,
    where n_0^R is not defined.

    [complexity, Prop 4.5, A.10]
    """
    return case.dimension


def with_inputs(case: Mix) -> int:
    """The sum begun at l = 0 with n_0 for n_0^R."""
    return case.widths[0] + case.dimension


def mixes(widths: Widths) -> Iterator[Mix]:
    """Every choice of linear neurons."""
    yield from (Mix(widths, a) for a in itertools.product(*(range(n + 1) for n in widths[1:-1])))


def random_mix(rng: np.random.Generator, hidden: int, widest: int) -> Mix:
    """An architecture with random numbers of linear neurons."""
    widths = cast.random_widths(rng, hidden, widest)
    return Mix(widths, tuple(int(rng.integers(n + 1)) for n in widths[1:-1]))


def _mixed_cases(rng: np.random.Generator, draws: int) -> Iterator[Mix]:
    for widths in [*cast.architectures([1], 3), *cast.architectures([2], 2)]:
        yield from mixes(widths)
    yield from (random_mix(rng, 3, 5) for _ in range(draws))


@cache
def commutant_dimension(relu: int, linear: int) -> int:
    """The dimension of {A : σ'(z)·Az = Aσ(z) for all z}: the Lie algebra of all matrices that
    commute with σ_{[1:k]}.
    """
    n = relu + linear
    rng = np.random.default_rng(n)
    sign = np.array(list(itertools.product((-1, 1), repeat=n)))
    z = np.concatenate([sign * rng.integers(1, 1000, sign.shape) for _ in range(n + 1)])
    slope = np.where((z > 0) | (np.arange(n) >= relu), 1, 0)
    # Row (sample, i), column (i, j): slope_i z_j − σ(z)_j.
    entries = slope[:, :, None] * z[:, None, :] - (slope * z)[:, None, :]
    equations = np.zeros((len(z), n, n, n), np.int64)
    equations[:, np.arange(n), np.arange(n), :] = entries
    return n * n - modular_rank(equations.reshape(-1, n * n) % PRIME, PRIME)


_A_LINEAR_NEURON_MORE = control(
    "one linear neuron more in the formula than in the network",
    lambda: Mix((1, 2, 1), (1,)),
    formula=lambda case: Mix((1, 2, 1), (2,)).dimension,
)

_FROM_ZERO = control(
    "the sum begun at l = 0, with the inputs: even Π GL(n_l) has only dimension Σ n_l²",
    lambda: Mix((1, 3, 1), (2,)),
    formula=with_inputs,
)


@statement(
    "4.5",
    _mixed_cases,
    _A_LINEAR_NEURON_MORE,
    confirm=lambda case: at_least(sum(r + a * a for r, a in case.layers), with_inputs(case)),
)
def s_4_5(case: Any, formula: Any = with_inputs) -> Check:
    """The hidden equivalence group of a mixed network has dimension at least Σ_{l≥0} n_l^R +
    Σ_{l≥1} (n_l^L)², from l = 0 as printed, n_0^R being the inputs.
    """
    found = sum(commutant_dimension(r, a) for r, a in case.layers)
    return at_least(found, formula(case))


s_4_5_amended = s_4_5.amend(_FROM_ZERO, formula=stated_dimension)(
    "The dimension is at least Σ_{l≥1} n_l^R + Σ_{l≥1} (n_l^L)², as in the proof."
)


@statement(
    "A.10 (equivalence)",
    _mixed_cases,
    control(
        "GL(2) on two ReLU neurons that bend",
        lambda: Mix((1, 2, 1), (0,)),
        group=lambda case: Mix((1, 2, 1), (2,)).group,
    ),
)
def acts(case: Mix, group: Any = lambda case: case.group) -> Check:
    """H = Π D₊(n_l^R) × GL(n_l^L) acts by equivalences on a mixed ReLU–linear network: Jv = 0 for
    its generators.

    Jv = 0 for every generator v of H, at a random integer network that bends where it can.
    """
    rng = np.random.default_rng([0, *case.widths, *case.linear])
    base = cast.staged(rng, case.widths, cast.throughout(case.widths), 8, size=99)
    mixed = Network(case.net, base.params, base.x)
    return equal(mixed.changes(group(case).fields), 0)


@statement(
    "A.10 (dimension)",
    _mixed_cases,
    _A_LINEAR_NEURON_MORE,
    confirm=lambda case: equal(sum(r + a * a for r, a in case.layers), with_inputs(case)),
)
def dimension(case: Any, formula: Any = with_inputs) -> Check:
    """dim H = Σ_{l≥0} n_l^R + Σ_{l≥1} (n_l^L)², from l = 0 as the proposition prints it."""
    return equal(case.group.dimension, formula(case))


dimension_amended = dimension.amend(formula=stated_dimension)(
    "dim H = Σ_{l≥1} n_l^R + Σ_{l≥1} (n_l^L)², as the proof has it."
)


in_the_proof = statement(
    "A.10 (dimension, proof)", _mixed_cases, _A_LINEAR_NEURON_MORE, says=dimension_amended.says
)(dimension_amended.measure)


def generic_stabiliser(widths: Widths) -> int:
    """The dimension of the stabiliser of almost every θ in G_hid.

    1 + X fixes θ when X vanishes on U, which the inputs and the biases generate, and maps into K,
    which the output does not see: X is a homomorphism V/U → K of representations of 1 → … → d − 1,
    and Hom([a, b], [c, e]) has dimension 1 when c ≤ a ≤ e ≤ b, and else 0.
    """
    d = len(widths) - 1

    def grown(i: int, j: int) -> int:
        """dim of what all of layer i and the biases after it generate in layer j."""
        return min(widths[m] + j - m for m in range(i, j + 1))

    def quotient(i: int, j: int) -> int:
        return grown(i, j) - grown(0, j) if 0 < i <= j < d else 0

    def kernel(i: int, j: int) -> int:
        return min(widths[i : j + 1]) - min(widths[i:]) if 0 < i <= j < d else 0

    def intervals(rank: Callable[[int, int], int]) -> dict[tuple[int, int], int]:
        """How often each interval occurs, from the ranks of the maps between layers."""
        inner = itertools.combinations_with_replacement(range(1, d), 2)
        return {
            (a, b): rank(a, b) - rank(a - 1, b) - rank(a, b + 1) + rank(a - 1, b + 1)
            for a, b in inner
        }

    pairs = itertools.product(intervals(quotient).items(), intervals(kernel).items())
    return sum(q * k for ((a, b), q), ((c, e), k) in pairs if c <= a <= e <= b)


def stabiliser_at_least(widths: Widths) -> int:
    """(n_l − n_{l-1} − 1)₊ (n_l − n_{l+1})₊ summed over layers: g_l = 1 + A with A(W_l | b_l) =
    0 and W_{l+1}A = 0, at every θ.
    """
    triples = zip(widths[:-2], widths[1:-1], widths[2:], strict=True)
    return sum(max(0, n - before - 1) * max(0, n - after) for before, n, after in triples)


def _stabiliser(
    widths: Widths, predicted: Any = lambda widths: 0, half: int | None = None
) -> Check:
    """The linear equations of the stabiliser are those of its Lie algebra: it is trivial exactly
    when that is zero. `half` is 0 for (i) and 1 for (ii), where one of them is the hypothesis.
    """
    case = Mix(widths, widths[1:-1])
    kinds = {(True, True): "both", (True, False): "(i)", (False, True): "(ii)"}
    condition = kinds.get(roughly(widths), "neither")
    found = case.dimension - case.orbit_dimension
    drops = outside(
        "neither (i) nor (ii) as assumed", when=half is not None and not roughly(widths)[half]
    )
    said = {"hidden layers": len(case.linear), "condition": condition}
    return equal(found, predicted(widths), drops=drops, hypotheses=said)


def _where(holds: Callable[[Widths], bool]) -> Cases:
    """The architectures on which a condition holds: widths 1 to 4 with up to three hidden
    layers, then larger ones.
    """

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Widths]:
        yield from filter(holds, [*cast.architectures([1, 2], 4), *cast.architectures([3], 4)])
        yield from cast.drawn_where(holds, rng, 4, 7, draws)

    return cases


_TOO_WIDE = control(
    "(1, 3 | 1), which is not roughly monotonic", lambda: (1, 3, 1), passes=lambda: (1, 2, 1)
)


def _show_stabiliser(widths: Widths) -> str:
    return (
        f'net = nm.MLP({widths}, "identity")\n'
        "nm.symmetry.GeneralLinearGroup(net).stabiliser_dimension(net.init(key=jax.random.key(0)))"
    )


stabiliser_i = statement(
    "A.8 (i)",
    _where(lambda widths: roughly(widths)[0]),
    _TOO_WIDE,
    says="n_l − 1 ≤ n_{l-1} for all l ⇒ almost every θ has trivial stabiliser in G_hid",
)(bind(_stabiliser, {"half": 0}))
stabiliser_ii = statement(
    "A.8 (ii)",
    _where(lambda widths: roughly(widths)[1]),
    _TOO_WIDE,
    show=_show_stabiliser,
    confirm=lambda widths: equal(stabiliser_at_least(widths), 0),
    says="n_{l-1} − 1 ≤ n_l for all l ⇒ almost every θ has trivial stabiliser in G_hid",
)(bind(_stabiliser, {"half": 1}))


@stabiliser_ii.amend(
    control(
        "one layer at a time, at (1, 4, 4 | 1)",
        lambda: (1, 4, 4, 1),
        predicted=stabiliser_at_least,
    ),
    id="A.8 (every architecture)",
    cases=_where(lambda widths: True),
)
def stabiliser_exactly(widths: Widths, predicted: Any = generic_stabiliser) -> Check:
    """Almost every θ has a stabiliser of dimension Σ q[a, b]k[c, e] over c ≤ a ≤ e ≤ b, q and k how often
    intervals occur in V/U and in K; it is trivial exactly when that is 0.
    """
    return _stabiliser(widths, predicted)


def _orbit(case: Mix) -> Check:
    return equal(case.orbit_dimension, case.dimension)


def _mixes_where(holds: Callable[[Widths], bool]) -> Cases:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Mix]:
        for hidden in (1, 2, 3):
            for widths in filter(holds, cast.architectures([hidden], 5 - hidden)):
                yield from mixes(widths)
        drawn = (random_mix(rng, 4, 6) for _ in itertools.count())
        yield from itertools.islice((case for case in drawn if holds(case.widths)), draws)

    return cases


_WIDE_ORBIT = control(
    "(1, (0, 3) | 1), which is not roughly monotonic", lambda: Mix((1, 3, 1), (3,))
)
orbits = statement(
    "A.10 (orbit)",
    _mixes_where(lambda widths: any(roughly(widths))),
    _WIDE_ORBIT,
    confirm=lambda case: equal(case.dimension - stabiliser_at_least(case.widths), case.dimension),
    says="roughly monotonic ⇒ for almost all θ of a mixed network dim Hθ = dim H",
)(_orbit)

a_10_orbit_trivial = orbits.amend(
    id="A.10 (orbit, trivial)",
    cases=_mixes_where(lambda widths: generic_stabiliser(widths) == 0),
)(
    "where almost every θ has a trivial stabiliser in G_hid by A.8 (every architecture), dim Hθ = "
    "dim H for almost all θ"
)
