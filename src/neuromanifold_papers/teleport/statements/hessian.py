"""[teleport] on the output's Hessian in NTK scaling.   Eq. 19"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import erfc
from typing import Any, Literal

import numpy as np

from neuromanifold.models.activation import Activation, activation_named, power
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.scaling import ScalingGroup
from neuromanifold.tangent.curvature import output_hessian_norm
from neuromanifold_papers.check import Check, at_least, at_most, equal
from neuromanifold_papers.recorded import StudyCases
from neuromanifold_papers.statement import by_training, control, in_float64
from neuromanifold_papers.teleport.statements import exact
from neuromanifold_papers.teleport.statements.limit import RATE, lower_end
from neuromanifold_papers.teleport.statistics import log_slope

WIDTHS = (10**2, 10**3, 10**4, 4 * 10**4)
TRIALS = 6


@dataclass(frozen=True)
class Shape:
    """σ', σ'', and K, q, s with |σ''(z)| ≤ K max(1, |z|)^q and |σ'(z)| ≤ s max(1, |z|)^p, p = q + 1
    where σ' is not bounded and else 0.
    """

    first: Any
    second: Any
    constant: float
    power: int = 0
    slope: float = 1.0
    bounded: bool = True


SHAPES = {
    "identity": Shape(np.ones_like, np.zeros_like, 0.0),
    "relu": Shape(lambda z: (z > 0).astype(float), np.zeros_like, 0.0),
    "power(2)": Shape(lambda z: 2 * z, lambda z: 0 * z + 2.0, 2.0, slope=2.0, bounded=False),
    "tanh": Shape(
        lambda z: np.cosh(z) ** -2, lambda z: -2 * np.tanh(z) * np.cosh(z) ** -2, 4 / 27**0.5
    ),
    "sin": Shape(np.cos, lambda z: -np.sin(z), 1.0),
    "power(3)": Shape(lambda z: 3 * z**2, lambda z: 6 * z, 6.0, 1, 3.0, bounded=False),
    "power(4)": Shape(lambda z: 4 * z**3, lambda z: 12 * z**2, 12.0, 2, 4.0, bounded=False),
}


@dataclass(frozen=True)
class Layer1:
    """F = Σ v_i σ(w_i)/√n, x = 1, standard normal weights moved by a random vector of length
    `radius`.
    """

    activation: str
    radius: float
    seed: int

    @property
    def hypotheses(self) -> dict[str, Any]:
        widths = f"{WIDTHS[0]} to {WIDTHS[-1]}"
        return {"activation": self.activation, "R": self.radius, "width": widths}


def shallow(rng: np.random.Generator, count: int) -> Iterator[Layer1]:
    """Every activation at initialisation, then at distance 10 from it."""
    for radius in (0.0, 10.0):
        yield from (Layer1(name, radius, int(rng.integers(2**31))) for name in SHAPES)


def block_norm(shape: Shape, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """√n times the norm of neuron i's block of the Hessian, (vσ'' σ'; σ' 0): the Hessian has no
    other entries.
    """
    a, b = v * shape.second(w), shape.first(w)
    return np.abs(a) / 2 + np.sqrt(a**2 / 4 + b**2)


def drawn_norms(case: Layer1, shape: Shape | None = None, *, standard: bool = False) -> np.ndarray:
    """√n‖H‖, (width, trial); for F = Σ v_i σ(w_i) with v_i of size n^{−1/2} where `standard`."""
    rng, found = np.random.default_rng(case.seed), []
    for n in np.repeat(WIDTHS, TRIALS):
        weights, push = rng.normal(size=(2, 2 * n))
        w, v = np.split(weights + case.radius * push / np.linalg.norm(push), 2)
        root = np.sqrt(n) if standard else 1.0
        found.append(root * block_norm(shape or SHAPES[case.activation], w, v / root).max())
    return np.reshape(found, (len(WIDTHS), TRIALS))


_STANDARD = control(
    "standard scaling, ReLU",
    lambda: Layer1("relu", 0.0, 0),
    norms=partial(drawn_norms, standard=True),
)


def tail(shape: Shape, t: float) -> float:
    """P(|v σ''(w)| > t) for standard normal v, w: the chance that one neuron alone makes √n‖H‖ >
    t.
    """
    w, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
    bend = np.abs(shape.second(w))
    inner = np.array([erfc(t / (b * 2**0.5)) if b > 0 else 0.0 for b in bend])
    return float((inner * np.exp(-(w**2) / 2)).sum() * step / np.sqrt(2 * np.pi))


def _unbounded(case: Layer1) -> Check:
    """√n‖H‖ ≤ t for all n neurons has probability at most (1 − tail)^n, which is below ½ for
    large n, whatever t: here t = 10.
    """
    p = tail(SHAPES[case.activation], 10.0)
    n = 10.0 * np.log(2.0) / p if p else 0.0
    return at_least(float(np.exp(-n * p)), 0.5)


def bound(case: Layer1, n: int) -> float:
    """√n‖H‖ ≤ K m^{q+1} + s m^p with m = 2√(ln n) + R, which bounds all |v_i| and |w_i| but with
    probability 4/n: O((ln n)^{(q+1)/2}).
    """
    shape, m = SHAPES[case.activation], 2 * np.sqrt(np.log(n)) + case.radius
    slope = shape.slope * (1.0 if shape.bounded else m ** (shape.power + 1))
    return shape.constant * m ** (shape.power + 1) + slope


@in_float64("Eq 19", shallow, _STANDARD, confirm=_unbounded)
def eq_19(case: Layer1, norms: Any = drawn_norms) -> Check:
    """‖∇²F‖ = O(n^{−1/2}) in NTK scaling, within any fixed radius of the initialisation.

    O(n^{−1/2}) would keep √n‖H‖ from growing: the slope of its logarithm, four standard
    errors below.
    """
    found, widths = norms(case).ravel(), np.repeat(np.array(WIDTHS, float), TRIALS)
    growth = lower_end(log_slope(widths, found)) if np.ptp(found) else 0.0
    return at_most(growth, 0.0, 1e-12)


@eq_19.amend(
    control(
        "σ = exp against the bound for a bounded σ''",
        lambda: Layer1("sin", 0.0, 0),
        norms=partial(drawn_norms, shape=Shape(np.exp, np.exp, np.nan)),
    )
)
def logarithmic(case: Layer1, norms: Any = drawn_norms) -> Check:
    """Normal weights and |σ''(z)| ≤ K max(1, |z|)^q: ‖∇²F‖ = O((ln n)^{(q+1)/2} n^{−1/2}), so
    O(√(ln n / n)) where σ'' is bounded; O(n^{−1/2}) where σ'' = 0 and σ' is bounded.

    The largest √n‖H‖ over its bound, over widths and trials.
    """
    bounds = np.array([bound(case, n) for n in WIDTHS])
    ratio = (norms(case) / bounds[:, None]).max()
    return at_most(float(ratio), 1.0, 1e-12, cases=len(WIDTHS) * TRIALS)


@dataclass(frozen=True)
class Deep:
    """The paper's networks, two hidden ReLU layers, at initialisation, at distance R from it, or
    after a neuron scaling.
    """

    where: str
    seed: int


DEEP_WIDTHS, DEEP_TRIALS = (32, 128, 512), 4
_X = np.array([1.0, -0.5, 0.25, 2.0])


def deep_norms(case: Deep, scaling: Literal["ntk", "standard"] = "ntk") -> np.ndarray:
    """‖∇²F‖ at x, (width, trial); the first also by the library."""
    rng, found = np.random.default_rng(case.seed), []
    for width in DEEP_WIDTHS:
        net = MLP((4, width, width, 1), "relu", bias=False, scaling=scaling)
        drawn = [_placed(case, net, rng) for _ in range(DEEP_TRIALS)]
        factor = 1 / np.sqrt(4.0 * width * width) if scaling == "ntk" else 1.0
        weights = [[np.asarray(layer.weight) for layer in params] for params in drawn]
        found.append([factor * trilinear_norm(W1, W2, W3, _X) for W1, W2, W3 in weights])
        if width == DEEP_WIDTHS[0]:
            by_library = output_hessian_norm(net, drawn[0], _X[None], rtol=1e-4)[0]
            assert abs(by_library / found[0][0] - 1) < 1e-3
    return np.array(found)


def trilinear_norm(W1: np.ndarray, W2: np.ndarray, W3: np.ndarray, x: np.ndarray) -> float:
    """‖∇²F‖ of F = W₃D₂W₂D₁W₁x, which is linear in each matrix inside its region, by Lanczos on
    (A₁, A₂, A₃) ↦ ∇²F·A.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    d1 = W1 @ x > 0
    h1 = d1 * (W1 @ x)
    d2 = W2 @ h1 > 0
    back = d2 * W3[0]
    cuts = np.cumsum([W1.size, W2.size])

    def product(flat: np.ndarray) -> np.ndarray:
        A1, A2, A3 = (
            part.reshape(W.shape)
            for part, W in zip(np.split(flat, cuts), (W1, W2, W3), strict=True)
        )
        moved, out = d1 * (A1 @ x), d2 * A3[0]
        first = np.outer(d1 * (W2.T @ out + A2.T @ back), x)
        second = np.outer(back, moved) + np.outer(out, h1)
        third = d2 * (W2 @ moved + A2 @ h1)
        return np.concatenate([first.ravel(), second.ravel(), third])

    n = W1.size + W2.size + W3.size
    start = np.random.default_rng(0).normal(size=n)
    largest: dict[str, Any] = {"k": 1, "v0": start, "return_eigenvectors": False, "tol": 1e-6}
    values = eigsh(LinearOperator((n, n), product), **largest)
    return float(np.abs(values).max())


def _placed(case: Deep, net: MLP, rng: np.random.Generator) -> Any:
    weights = rng.normal(size=net.n_params)
    if case.where == "R = 3":
        push = rng.normal(size=net.n_params)
        weights = weights + 3 * push / np.linalg.norm(push)
    params = exact.layers(net, weights)
    if case.where == "scaled":
        group = ScalingGroup(net)
        params = group.element(rng.uniform(-0.5, 0.5, group.dimension))(params)
    return params


@in_float64(
    "Eq 19 (ReLU)",
    lambda rng, count: (
        Deep(where, int(rng.integers(2**31))) for where in ("initialisation", "R = 3", "scaled")
    ),
    control(
        "normal weights without the scaling", lambda: Deep("initialisation", 0), scaling="standard"
    ),
)
def eq_19_relu(case: Deep, scaling: Literal["ntk", "standard"] = "ntk") -> Check:
    """The same for the paper's networks, two hidden ReLU layers, also after a bounded symmetry
    (Eq. 23).
    """
    norms = deep_norms(case, scaling)
    slope = log_slope(np.repeat(np.array(DEEP_WIDTHS, float), DEEP_TRIALS), norms.ravel())
    return at_most(lower_end(slope), RATE, where=case.where)


@by_training(
    "Eq 19 (study)",
    StudyCases(
        "teleport",
        lambda claims: [
            {"kind": kind, **claim["measured"][kind]}
            for claim in claims
            if claim["figure"] == "Eq. 19"
            for kind in ("standard", "transformed")
        ],
    ),
    control(
        "no dependence on the width", lambda: {"kind": "", "points": 0, "value": 0.0, "high": 0.04}
    ),
    show=lambda case: (
        f"{case['kind']}: slope {case['value']:.3f} [{case['low']:.3f}, {case['high']:.3f}]"
    ),
    confirm=lambda case: (
        at_most(case["low"], RATE) if case["value"] > RATE else at_least(case["high"], RATE)
    ),
)
def eq_19_study(case: Any) -> Check:
    """The slope of ‖∇²F‖ against width is −1/2 on Fashion-MNIST, standard and transformed."""
    half = case["high"] - case["value"]
    return equal(case["value"], RATE, half, network=case["kind"], points=case["points"])


@dataclass(frozen=True, eq=False)
class Curved:
    """A one-neuron network v σ(wx) at (w, v), x = 1."""

    activation: Activation
    theta: tuple[int, int]

    def __str__(self) -> str:
        H = self.hessian.astype(str).tolist()
        return f"# F = v σ(w), σ = {self.activation}, (w, v) = {self.theta}\nH = {H}"

    @property
    def hessian(self) -> np.ndarray:
        """Over the rationals."""
        net = MLP((1, 1, 1), self.activation, bias=False)
        jets = exact.variables([exact.Fraction(v) for v in self.theta])
        return exact.outputs(net, exact.layers(net, jets), [[exact.Fraction(1)]])[0].curve


def curved(rng: np.random.Generator, count: int) -> Iterator[Curved]:
    activations = (activation_named("identity"), activation_named("relu"), power(2), power(3))
    for theta in ((1, 1), (1, -1), (2, -3)):
        yield from (Curved(activation, theta) for activation in activations)
    for _ in range(count):
        w, v = (int(k) for k in rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], 2))
        yield Curved(activations[rng.integers(4)], (w, v))


@in_float64(
    "Eq 19 (sup)",
    curved,
    control(
        "twice the norm, H = (0 1; 1 0)",
        lambda: Curved(activation_named("identity"), (1, 1)),
        factor=2,
    ),
    confirm=lambda case: at_least(case.hessian.trace(), 0),
)
def eq_19_sup(case: Curved, factor: int = 1, absolute: bool = False) -> Check:
    """‖H‖ = sup vᵀHv over unit vectors v.

    The largest eigenvalue, or the largest magnitude.
    """
    H = case.hessian.astype(float)
    values, norm = np.linalg.eigvalsh(H), factor * float(np.linalg.norm(H, 2))
    found = np.abs(values).max() if absolute else values.max()
    size = max(norm, 1.0)
    return equal(float(found) / size, norm / size, 1e-14 * 16, activation=str(case.activation))


eq_19_sup_amended = eq_19_sup.amend(
    control(
        "no absolute value, H = (−2 2; 2 0)", lambda: Curved(power(2), (1, -1)), absolute=False
    ),
    absolute=True,
)("‖H‖ = sup |vᵀHv| over unit vectors v.")
