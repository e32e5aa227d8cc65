"""[teleport] on alignment: its two definitions and what it has to do with the gradient.   Eq.
26, 28, P 5.1
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from neuromanifold import symmetry as S
from neuromanifold.models import losses
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.precision import arithmetic, promote
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.prediction.alignment import alignment, kernel_alignment
from neuromanifold_papers.check import EPS, Check, equal
from neuromanifold_papers.statement import control, in_float64

SAMPLES, OUTPUTS = 5, 2
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squared error / 2n": losses.half_squared_error,
    "cross-entropy": losses.cross_entropy,
    "huber": losses.huber,
    "log cosh": lambda f, y: jnp.sum(jnp.log(jnp.cosh(f - y))) / len(f),
}
NETS = {name: MLP((3, 4, OUTPUTS), name) for name in ("tanh", "relu")}


@dataclass(frozen=True)
class Problem:
    """A network with random parameters, inputs and targets, a loss and a learning rate."""

    activation: str
    loss: str
    lr: float
    seed: int

    @property
    def net(self) -> MLP:
        return NETS[self.activation]

    @property
    def hypotheses(self) -> dict[str, Any]:
        return {"activation": self.activation, "loss": self.loss, "η": self.lr}


@lru_cache(maxsize=512)
def drawn(case: Problem) -> tuple[Any, np.ndarray, np.ndarray]:
    """Parameters, inputs, and targets that are probabilities, so that every loss can be asked."""
    rng = np.random.default_rng(case.seed)
    widths = case.net.widths
    params = tuple(
        Layer(rng.normal(size=(b, a)) / np.sqrt(a), rng.normal(size=b))
        for a, b in zip(widths, widths[1:], strict=False)
    )
    return params, rng.normal(size=(SAMPLES, widths[0])), rng.dirichlet(np.ones(OUTPUTS), SAMPLES)


def problems(rng: np.random.Generator, count: int) -> Iterator[Problem]:
    """Every activation and loss, learning rates from 0.01 to 10; then as many random ones."""
    for activation in NETS:
        for loss in LOSSES:
            for lr in (0.01, 1.0, 10.0):
                yield Problem(activation, loss, lr, int(rng.integers(2**31)))
    for _ in range(count):
        activation, loss = (list(names)[rng.integers(len(names))] for names in (NETS, LOSSES))
        lr = float(np.round(np.exp(rng.uniform(-4, 2)), 3))
        yield Problem(activation, loss, lr, int(rng.integers(2**31)))


def signal(case: Problem, prediction: np.ndarray, target: np.ndarray) -> np.ndarray:
    """f = ∂C/∂F of every sample and output, C the loss of one sample, by hand.   [teleport, Eq. 12]"""
    r = prediction - target
    if case.loss == "cross-entropy":
        odds = np.exp(prediction - prediction.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True) - target
    # `huber` is a mean over outputs as well.
    return {"squared error / 2n": r, "huber": np.clip(r, -1, 1) / OUTPUTS, "log cosh": np.tanh(r)}[
        case.loss
    ]


def modified(kernel: np.ndarray, f: np.ndarray) -> float:
    """A = fᵀΘf / ‖f‖².   [teleport, Eq. 28]"""
    return float(f.ravel() @ kernel @ f.ravel() / (f.ravel() @ f.ravel()))


_TANH = Problem("tanh", "squared error / 2n", 1.0, 0)


@in_float64(
    "Eq 28",
    problems,
    control("y in place of f", lambda: _TANH, of=lambda case, prediction, target: target),
    draws=20,
)
def eq_28(case: Problem, of: Any = signal) -> Check:
    """A = fᵀΘf/‖f‖² with f = ∂C/∂F (definition): one vector–Jacobian product gives it.

    The library's A, by one vector–Jacobian product, against the quadratic form of the dense
    kernel.
    """
    params, x, y = drawn(case)
    kernel = case.lr * ntk(case.net, params, x)
    ours = alignment(case.net, params, x, y, loss=LOSSES[case.loss], lr=case.lr)
    theirs = modified(kernel, of(case, case.net(params, x), y))
    return equal(ours / theirs, 1.0, 1e4 * EPS)


@in_float64(
    "Eq 26",
    lambda rng, count: (case for case in problems(rng, count) if case.loss == "cross-entropy"),
    control("Frobenius norm", lambda: _TANH, norm="frobenius"),
    draws=20,
)
def eq_26(case: Problem, norm: str = "spectral") -> Check:
    """A_o = yᵀΘy/(‖y‖²‖Θ‖) (definition), with the spectral norm.

    The library's A_o, by Lanczos, against the dense kernel; the learning rate cancels.
    """
    params, x, y = drawn(case)
    ours = kernel_alignment(case.net, params, x, y, norm=norm)
    kernel = case.lr * ntk(case.net, params, x)
    theirs = modified(kernel, y) / float(np.linalg.norm(kernel, 2))
    return equal(ours / theirs, 1.0, 1e5 * EPS, activation=case.activation, η=case.lr)


def _squared_gradient(case: Problem, params: Any, x: np.ndarray, y: np.ndarray) -> float:
    with arithmetic():
        arguments = promote((params, x, y), np.float64)
        return float(_squared_norm(case.net, LOSSES[case.loss], *arguments))


@jax.jit(static_argnums=(0, 1))
def _squared_norm(net: MLP, loss: Any, params: Any, x: Any, y: Any) -> Any:
    gradient = ravel_pytree(jax.grad(lambda p: loss(net(p, x), y))(params))[0]
    return gradient @ gradient


@in_float64("P 5.1", problems, control("|X| for |X|²", lambda: _TANH, power=1), draws=20)
def p_5_1(case: Problem, power: int = 2) -> Check:
    """‖∇L‖² = ‖f‖²A/(η|X|²).

    ‖∇L‖² by differentiating the loss of the network, against the library's A and f by hand.
    """
    params, x, y = drawn(case)
    loss = LOSSES[case.loss]
    at = alignment(case.net, params, x, y, loss=loss, lr=case.lr)
    f = signal(case, case.net(params, x), y)
    formula = float((f**2).sum()) * at / (case.lr * SAMPLES**power)
    return equal(_squared_gradient(case, params, x, y) / formula, 1.0, 1e4 * EPS)


def rescaled(case: Problem, params: Any) -> Any:
    """The parameters after a scaling of the ReLU neurons."""
    return S.ScalingGroup(case.net).sample(key=jax.random.key(case.seed))(params)


@in_float64(
    "P 5.1 (∝)",
    lambda rng, count: (case for case in problems(rng, count) if case.activation == "relu"),
    control(
        "two unrelated networks, whose f differ",
        lambda: Problem("relu", "cross-entropy", 1.0, 0),
        move=lambda case, params: drawn(replace(case, seed=1))[0],
    ),
    draws=20,
)
def p_5_1_orbit(case: Problem, move: Any = rescaled) -> Check:
    """‖∇L‖² ∝ A among the parameters that symmetries lead to: maximising one is maximising the
    other.

    On the orbit of a symmetry f stays, so ‖∇L‖² and A grow by one factor: here of ReLU
    scalings.
    """
    params, x, y = drawn(case)
    first, second = (
        _squared_gradient(case, p, x, y)
        / alignment(case.net, p, x, y, loss=LOSSES[case.loss], lr=case.lr)
        for p in (params, move(case, params))
    )
    return equal(second / first, 1.0, 1e5 * EPS)
