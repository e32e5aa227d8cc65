"""The two data sets of the bottleneck paper.   [bottleneck, Sec. 5, App. E]"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from neuromanifold_papers.bottleneck.summary_statistics import descent, summary_statistics


def _shallow(rng: np.random.Generator, inputs: int, outputs: int, hidden: int = 100):
    """A random ReLU network with one hidden layer; weights and biases standard normal."""
    A, b, C = (
        rng.normal(size=(hidden, inputs)),
        rng.normal(size=hidden),
        rng.normal(size=(outputs, hidden)),
    )
    return lambda z: np.maximum(z @ A.T + b, 0.0) @ C.T


def _standardised(a: np.ndarray) -> np.ndarray:
    return (a - a.mean(axis=0)) / a.std(axis=0)


@dataclass(frozen=True)
class LatentTask:
    """x = g(z) and y = h(z₁, z₂) for z ~ N(0, 1) in ℝ⁸ and random shallow networks into ℝ²⁰:
    bottleneck rank 2.   [bottleneck, App. E]

    Every coordinate of x and y is standardised, so predicting nothing costs a mean squared error of
    1.
    """

    samples: int
    seed: int = 0
    latent: int = 8
    relevant: int = 2
    dimension: int = 20

    def draw(self) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
        """(x, y) in float32."""
        rng = np.random.default_rng(self.seed)
        g = _shallow(rng, self.latent, self.dimension)
        h = _shallow(rng, self.relevant, self.dimension)
        z = rng.normal(size=(self.samples, self.latent))
        x, y = _standardised(g(z)), _standardised(h(z[:, : self.relevant]))
        return x.astype(np.float32), y.astype(np.float32)


@dataclass(frozen=True)
class DescentTask:
    """From v(0) predict C(v(1)), …, C(v(T)) of gradient descent on ‖vvᵀ − (wwᵀ + E)‖².
    [bottleneck, Sec. 5]

    v(0) has a component a ~ N(0, 0.7²) along w and a component of length |N(0, 0.7²)| in a uniform
    direction across it, so that both summary statistics vary alike. E has independent N(0, noise²)
    entries. The costs are standardised for training.
    """

    samples: int
    dimension: int
    steps: int
    rate: float = 0.04
    noise: float = 0.01
    spread: float = 0.7
    seed: int = 0

    @property
    def axis(self) -> Float[np.ndarray, " d"]:
        """w: the diagonal, so that no coordinate is special."""
        return np.full(self.dimension, self.dimension**-0.5)

    def starts(self, n: int, seed: int) -> Float[np.ndarray, "n d"]:
        """n initial vectors."""
        rng = np.random.default_rng((self.seed, seed))
        w = self.axis
        across = rng.normal(size=(n, self.dimension))
        across -= (across @ w)[:, None] * w
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        along, length = self.spread * rng.normal(size=n), self.spread * np.abs(rng.normal(size=n))
        return along[:, None] * w + length[:, None] * across

    def run(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The paths (T+1, n, d) and the costs (n, T) from these starts, with this task's noise
        matrix.
        """
        E = self.noise * np.random.default_rng((self.seed, 7)).normal(
            size=(self.dimension, self.dimension)
        )
        return descent(v, self.axis, rate=self.rate, steps=self.steps, noise=E)

    def draw(self) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n T"]]:
        """(v(0), standardised costs) in float32."""
        v = self.starts(self.samples, 1)
        return v.astype(np.float32), _standardised(self.run(v)[1]).astype(np.float32)

    def statistics(self, v: np.ndarray) -> Float[np.ndarray, "n 2"]:
        """The true summary statistics."""
        return summary_statistics(v, self.axis)
