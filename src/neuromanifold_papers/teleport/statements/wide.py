"""Wide networks beside their linearisation: the runs behind [teleport, Lem. 3.1 and Thm. 4.1]."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.symmetry.groups.hadamard import flatten
from neuromanifold.symmetry.groups.monomial import monomial
from neuromanifold_papers.teleport.statements.exact import layers
from neuromanifold_papers.teleport.statistics import Estimate, log_slope

STEPS, EARLY, TRIALS, SAMPLES, LR = 8, 4, 12, 4, 1.0
WIDTHS = {"tanh": (64, 256, 1024), "relu": (256, 2048, 12288), "tanh, two layers": (32, 80, 200)}


@dataclass(frozen=True)
class Family:
    """Networks of growing width, and what is done to them before training, or ("later") after a
    few steps of it.
    """

    name: str
    kind: str
    seed: int = 0

    def net(self, width: int) -> MLP:
        """Without bias, in NTK scaling."""
        hidden = (width, width) if self.name.endswith("two layers") else (width,)
        return MLP((3, *hidden, 1), self.name.partition(",")[0], bias=False, scaling="ntk")


@dataclass(frozen=True, eq=False)
class Measured:
    """After `STEPS` steps, each (width, trial): ‖F − F_lin‖, ‖θ − θ₀‖, ‖∇F − ∇F₀‖, ‖∇L − ∇L₀‖,
    ‖F‖; θ₀ is where F was linearised.
    """

    widths: np.ndarray
    error: np.ndarray
    distance: np.ndarray
    function_gradient: np.ndarray
    loss_gradient: np.ndarray
    outputs: np.ndarray

    def slope(self, name: str) -> Estimate:
        """Of the quantity's logarithm against the width's, with its 95 % interval."""
        return log_slope(np.repeat(self.widths.astype(float), TRIALS), getattr(self, name).ravel())


@lru_cache(maxsize=64)
def measured(family: Family) -> Measured:
    """The runs of one family, over its widths."""
    rng = np.random.default_rng([family.seed, *f"{family.name} {family.kind}".encode()])
    x, y = rng.normal(size=(SAMPLES, 3)), np.sign(rng.normal(size=SAMPLES))
    widths = WIDTHS[family.name]
    found = [
        [_trial(family, family.net(width), rng, x, y) for _ in range(TRIALS)] for width in widths
    ]
    return Measured(np.array(widths), *np.moveaxis(np.array(found), 2, 0))


def _trial(
    family: Family, net: MLP, rng: np.random.Generator, x: np.ndarray, y: np.ndarray
) -> list[float]:
    """Gradient descent on Σ log cosh(F − y)/|X|, of the network and of its linearisation."""
    weights = rng.normal(size=net.n_params)
    ones = np.ones_like(weights)
    for _ in range(EARLY if family.kind.endswith("later") else 0):
        weights = weights - LR * loss_gradient(net, ones, weights, x, y)
    c, start = transformed(family, net, weights, rng)
    outputs, rows = value_and_rows(net, c, start, x)
    theta, linear = start, outputs
    for _ in range(STEPS):
        theta = theta - LR * loss_gradient(net, c, theta, x, y)
        linear = linear - LR * rows @ (rows.T @ signal(linear, y)) / SAMPLES
    end, end_rows = value_and_rows(net, c, theta, x)
    before, after = (r.T @ signal(f, y) / SAMPLES for f, r in ((outputs, rows), (end, end_rows)))
    parts = (end - linear, theta - start, end_rows - rows, after - before, end)
    return [float(np.linalg.norm(part)) for part in parts]


def signal(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C' of log cosh(F − y), a convex, smooth and Lipschitz loss."""
    return np.tanh(outputs - y)


def loss_gradient(
    net: MLP, c: np.ndarray, theta: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """∇_θ L of F(c ⊙ θ)."""
    outputs, rows = value_and_rows(net, c, theta, x)
    return rows.T @ signal(outputs, y) / SAMPLES


def transformed(
    family: Family, net: MLP, weights: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """c and θ₀ of F(c ⊙ θ): factors c in [½, 2]; or a scaling of the neurons by factors in e^{±½},
    and c = 1; or neither.

    "unbounded" is c = √(width/64), which no constant bounds.
    """
    ones = np.ones_like(weights)
    if family.kind == "unbounded":
        c = ones * np.sqrt(net.widths[1] / 64)
        return c, weights / c
    if family.kind.startswith("hadamard"):
        c = 2.0 ** rng.uniform(-1.0, 1.0, len(weights))
        return c, weights / c
    if family.kind.startswith("scaling"):
        factors = [np.exp(rng.uniform(-0.5, 0.5, width)) for width in net.widths[1:-1]]
        return ones, flatten(monomial(net, into=factors)(layers(net, weights)))
    return ones, weights


def value_and_rows(
    net: MLP, c: np.ndarray, theta: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F(c ⊙ θ) on the samples, and its derivatives by θ."""
    with arithmetic():
        params = promote(layers(net, c * theta), np.float64)
        outputs, rows = _value_and_rows(net, params, jnp.asarray(x))
        return np.asarray(outputs), np.asarray(rows) * c


@jax.jit(static_argnums=0)
def _value_and_rows(net: MLP, params: Any, x: Any) -> tuple[Any, Any]:
    outputs, pullback = jax.vjp(lambda p: net(p, x)[:, 0], params)
    rows = [ravel_pytree(pullback(unit)[0])[0] for unit in jnp.eye(SAMPLES)]
    return outputs, jnp.stack(rows)
