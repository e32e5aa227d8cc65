"""Networks for the statements of `bottleneck`: every small one with weights −1, 0, 1, then
random ones of every kind.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from neuromanifold.bottleneck.balance import balance
from neuromanifold.bottleneck.passage import passage, squared_norm
from neuromanifold.models.activation import Activation, leaky_relu
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold_papers.check import Check, Drops, Relation, at_least, at_most, equal
from neuromanifold_papers.statement import statement

PAPER = "bottleneck"
EPS = float(np.finfo(np.float64).eps)
# Slopes on the left of the kink: ReLU, leaky, leaky with a reflection, linear. The paper's setup
# allows (−1, 1).
SLOPES = (0.0, 0.5, -0.5, 1.0)
SMALL = ((1, 1), (1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2), (1, 1, 1, 1))
_POINTS = {1: [[1.0], [-1.0]], 2: [[2.0, 1.0], [-2.0, 1.0], [2.0, -1.0], [-2.0, -1.0]]}
_SHOWN = 60


@dataclass(frozen=True)
class Case:
    """A network, its parameters and a sample of points; `slope` is that of σ on the left, `kind`
    says where it comes from.
    """

    net: MLP
    params: Params
    x: np.ndarray
    slope: float = 0.0
    kind: str = "small"

    @property
    def squared_norm(self) -> float:
        return squared_norm(self.net, self.params)

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {
            "depth": self.net.depth,
            "width": max(self.net.widths),
            "slope": round(self.slope, 3),
            "biases": self.net.bias,
            "network": self.kind,
        }


def activation(slope: float) -> str | Activation:
    """σ_a: relu for 0, the identity for 1."""
    return {0.0: "relu", 1.0: "identity"}.get(slope) or leaky_relu(slope)


def network(
    weights: Sequence[Any], x: Any, *, slope: float = 0.0, biases: Any = None, kind: str = "small"
) -> Case:
    """A case from its matrices."""
    matrices = [np.asarray(W, np.float64) for W in weights]
    shifts = (
        [None] * len(matrices) if biases is None else [np.asarray(b, np.float64) for b in biases]
    )
    widths = (matrices[0].shape[1], *(len(W) for W in matrices))
    params = tuple(Layer(W, b) for W, b in zip(matrices, shifts, strict=True))
    return Case(
        MLP(widths, activation(slope), bias=biases is not None),
        params,
        np.asarray(x, np.float64),
        slope,
        kind,
    )


def chain(weight: float, depth: int, x: float, *, slope: float = 0.0, kind: str = "chain") -> Case:
    """One neuron in every layer, all weights equal, one point."""
    return network([[[weight]]] * depth, [[x]], slope=slope, kind=kind)


def lattice(
    shapes: Iterable[tuple[int, ...]] = SMALL,
    slopes: Iterable[float] = SLOPES,
    values: Sequence[float] = (1.0, -1.0, 0.0),
) -> Iterator[Case]:
    """Every network of these shapes without biases whose weights are among the values, at points
    of every sign.
    """
    listed = tuple(slopes)
    for widths, slope in itertools.product(shapes, listed):
        if len(widths) == 2 and slope != listed[0]:
            continue  # without a hidden layer σ does not act
        sizes = [(b, a) for a, b in itertools.pairwise(widths)]
        ends = np.cumsum([a * b for a, b in sizes])
        for entries in itertools.product(values, repeat=int(ends[-1])):
            parts = zip(np.split(np.array(entries), ends[:-1]), sizes, strict=True)
            weights = [part.reshape(size) for part, size in parts]
            yield network(weights, _POINTS[widths[0]], slope=slope, kind="every weight in −1, 0, 1")


def biased_lattice(slopes: Iterable[float] = SLOPES) -> Iterator[Case]:
    """The layers (1, 1, 1) with weights 1 or −1 and biases in −½, 0, 2."""
    for slope, (v, w), b in itertools.product(
        slopes,
        itertools.product((1.0, -1.0), repeat=2),
        itertools.product((0.0, -0.5, 2.0), repeat=2),
    ):
        yield network(
            [[[v]], [[w]]],
            [[1.0], [-1.0]],
            slope=slope,
            biases=[[b[0]], [b[1]]],
            kind="small with biases",
        )


def drawn(rng: np.random.Generator, widths: Sequence[int], x: Any, **said: Any) -> Case:
    """A network with standard normal weights and biases."""
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
    return network(weights, x, biases=[rng.normal(size=len(W)) for W in weights], **said)


def random_networks(
    rng: np.random.Generator,
    draws: int,
    *,
    slopes: Sequence[float] | None = None,
    biased: Sequence[bool] = (False, True),
    balanced: bool = False,
    kinds: Sequence[str] = ("gaussian", "nearly isometric", "scaled", "balanced"),
    points: int = 4,
) -> Iterator[Case]:
    """Random widths up to 5, depths up to 6, slopes over (−1, 1) (or among `slopes`), with and
    without biases.
    """
    for index in range(draws):
        kind = kinds[index % len(kinds)]
        widths = tuple(int(w) for w in rng.integers(1, 6, size=int(rng.integers(2, 8))))
        bias = bool(rng.choice(biased))
        anywhere = (0.0, float(rng.uniform(-1, 1)), float(rng.uniform(0, 1)), 1.0)
        slope = float(rng.choice(anywhere if slopes is None else slopes))
        x = rng.normal(size=(points, widths[0]))
        x[: points // 2] = np.abs(x[: points // 2])
        params = _drawn(rng, widths, kind, bias)
        net = MLP(widths, activation(slope), bias=bias)
        if balanced or kind == "balanced":
            params = balance(net, params)
        yield Case(net, params, x, slope, kind)


def _drawn(rng: np.random.Generator, widths: tuple[int, ...], kind: str, bias: bool) -> Params:
    if kind == "nearly isometric":
        return nearly_isometric(
            rng, widths, int(rng.integers(1, min(widths) + 1)), 10.0 ** rng.uniform(-5, 0), bias
        )
    size = float(np.exp(rng.normal())) if kind == "scaled" else 1.0
    return tuple(
        Layer(
            size * rng.normal(size=(b, a)) * np.sqrt(2 / a),
            0.3 * rng.normal(size=b) if bias else None,
        )
        for a, b in itertools.pairwise(widths)
    )


def nonnegative_frame(rng: np.random.Generator, width: int, rank: int) -> np.ndarray:
    """Nonnegative orthonormal columns: their supports are disjoint."""
    owner = np.concatenate([np.arange(rank), rng.integers(0, rank, size=width - rank)])
    frame = rng.uniform(0.2, 1.0, size=(width, 1)) * (owner[:, None] == np.arange(rank))
    return rng.permutation(frame / np.linalg.norm(frame, axis=0))


def nearly_isometric(
    rng: np.random.Generator, widths: Sequence[int], rank: int, noise: float, bias: bool = True
) -> Params:
    """Weights close to a chain of partial isometries of that rank on the positive orthant: cheap
    networks.
    """
    frames = [nonnegative_frame(rng, w, rank) for w in widths]
    return tuple(
        Layer(
            b @ a.T + noise * rng.normal(size=(len(b), len(a))) / np.sqrt(len(a)),
            noise * rng.normal(size=len(b)) if bias else None,
        )
        for a, b in itertools.pairwise(frames)
    )


def fractions(entries: Any) -> Any:
    """An array of fractions."""
    return np.array(entries, object) * Fraction(1)


def rational_rank(rows: Iterable[Iterable[Any]]) -> int:
    """The rank of a matrix of fractions or integers."""
    import flint

    return flint.fmpq_mat(
        [[flint.fmpq(v.numerator, v.denominator) for v in row] for row in rows]
    ).rank()


def outputs(case: Any, x: Any = None) -> np.ndarray:
    """f_θ in float64, on the host, at the points of the case or at others."""
    return passage(case.net, case.params, case.x if x is None else x).preactivations[-1]


def missed(case: Any, wanted: Any) -> float:
    """By how much the outputs at the points of the case differ from those wanted, at most."""
    return float(np.abs(outputs(case) - wanted).max())


def jacobians(case: Any) -> np.ndarray:
    """Jf at the points of the case."""
    return passage(case.net, case.params, case.x).jacobian()


def compare(left: Any, relation: Relation, right: Any, rounding: float, **said: Any) -> Check:
    """Both sides relative to their size where it exceeds 8, so that margins compare; `rounding`
    is in the units of the sides.
    """
    size = max(abs(left), abs(right))
    scale = 1.0 if size <= 8 or not np.isfinite(size) else size
    check = {"=": equal, "<=": at_most, ">=": at_least}[relation]
    return check(float(left / scale), float(right / scale), float(rounding / scale), **said)


def worst(checks: Iterable[Check], drops: Drops = (), **said: Any) -> Check:
    """The check with the smallest margin, standing for all of one case; `drops` are the parts
    left out, the whole where nothing is left; further names are hypotheses.
    """
    listed = list(checks)
    if not listed and not drops:
        raise ValueError(
            "`checks` is empty and `drops` too; say why nothing was checked, with `inside` or "
            "`outside`."
        )
    if not listed:
        return equal(0, 0, drops=tuple(replace(drop, parts=None) for drop in drops), **said)
    least = min(listed, key=lambda check: check.margin)
    known = equal(0, 0, **said).hypotheses
    return replace(least, hypotheses=known, comparisons=len(listed), drops=drops)


def show(case: Case) -> str:
    """The case as Python; the parameters of a large one are left out."""
    head = f"net = nm.MLP({case.net.widths}, {_named(case.slope)}, bias={case.net.bias})"
    if case.net.n_params > _SHOWN:
        return f"{head}  # {case.kind}, ‖θ‖² = {case.squared_norm:.6g}"
    layers = ", ".join(
        f"nm.Layer({_array(p.weight)})"
        if p.bias is None
        else f"nm.Layer({_array(p.weight)}, {_array(p.bias)})"
        for p in case.params
    )
    return f"{head}\nparams = ({layers},)\nx = {_array(case.x)}"


def _named(slope: float) -> str:
    return {0.0: '"relu"', 1.0: '"identity"'}.get(slope) or f"nm.leaky_relu({slope!r})"


def _array(values: Any) -> str:
    return f"np.array({np.asarray(values, np.float64).tolist()})"


def parameter_gradients(case: Case, step: float = 2.0**-20) -> np.ndarray:
    """∂f(x)/∂θ by moving one parameter at a time: f is affine in each inside a region, so dyadic
    numbers make it exact.
    """
    base, columns, params = outputs(case), [], list(case.params)
    for layer, part in enumerate(case.params):
        for field in ("weight", "bias"):
            values = getattr(part, field)
            for at in np.ndindex(values.shape) if values is not None else ():
                moved = np.array(values, np.float64)
                moved[at] += step
                params[layer] = part._replace(**{field: moved})
                columns.append((outputs(replace(case, params=tuple(params))) - base) / step)
        params[layer] = part
    return np.stack(columns, axis=-1)


def open_region(case: Case) -> bool:
    """Whether no hidden pre-activation is zero at any of the points."""
    return all(
        bool(np.all(z != 0)) for z in passage(case.net, case.params, case.x).preactivations[:-1]
    )


numeric = partial(statement, method="float64")
"""A statement that is measured in float64."""
of_networks = partial(numeric, show=show)
"""One whose cases are networks."""
