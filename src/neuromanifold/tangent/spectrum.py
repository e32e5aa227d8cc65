"""The spectrum of the kernel and the numbers read off it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from neuromanifold.models.function import output_shape
from neuromanifold.numerics.lanczos import largest_eigenvalues
from neuromanifold.numerics.memory import blocks, memory_budget
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.validation import refuse_tracers
from neuromanifold.tangent.arguments import Model, checked
from neuromanifold.tangent.jacobian import n_columns, sample_jacobians
from neuromanifold.tangent.ntk import ntk
from neuromanifold.tangent.operator import kernel_product

_DENSE_LIMIT = 4096
_DEFAULT_COUNT = 64


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues λ of Θ, largest first, in float64; all of them, or the largest when `method` is Lanczos.

    `size` is n·o and `trace` is Σλ over all of them.
    """

    eigenvalues: Float[np.ndarray, " k"]
    size: int
    trace: float
    method: str

    @property
    def complete(self) -> bool:
        """Whether every eigenvalue was computed."""
        return len(self.eigenvalues) == self.size

    @property
    def stable_rank(self) -> float:
        """Σλ / λ_max."""
        return self.trace / self.eigenvalues[0] if self.eigenvalues[0] > 0 else 0.0

    @property
    def effective_rank(self) -> float:
        """exp(−Σ p log p) with p = λ/Σλ: the number of directions that carry the trace. Needs the complete spectrum."""
        if not self.complete:
            return math.nan
        positive = self.eigenvalues[self.eigenvalues > 0]
        p = positive / positive.sum()
        return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0

    @property
    def condition(self) -> float:
        """λ_max / λ_min over all eigenvalues, infinite when λ_min is not positive. Needs the complete spectrum."""
        if not self.complete:
            return math.nan
        return float(self.eigenvalues[0] / self.eigenvalues[-1]) if self.eigenvalues[-1] > 0 else math.inf


def spectrum(f: Model, params: Any, x: Any, *, k: int | None = None, memory: int | str | None = None) -> Spectrum:
    """The eigenvalues of the kernel Θ = JJᵀ on the sample, in float64.

    Dense `eigh` up to a few thousand rows when `k` is not given; otherwise the `k` largest by Lanczos on the operator.

    >>> nm.spectrum(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).eigenvalues[:1].round(12).tolist()
    [10.0]
    """
    refuse_tracers((params, x), "`spectrum`")
    if k is not None and not isinstance(k, int):
        raise TypeError(f"`k` is {k!r}; pass a whole number of eigenvalues.")
    with arithmetic():
        params, x = checked(f, params, x, dtype=np.float64)
        size = x.shape[0] * math.prod(output_shape(f, params, x))
        if k is None and size <= _DENSE_LIMIT:
            values = np.linalg.eigvalsh(ntk(f, params, x, memory=memory))[::-1]
            return Spectrum(values, size, float(values.sum()), "dense")
        k = min(_DEFAULT_COUNT, size - 1) if k is None else k
        values = largest_eigenvalues(lambda v: np.asarray(kernel_product(f, params, x, v)), size, k)
        return Spectrum(values, size, _trace(f, params, x, memory_budget(memory)), "Lanczos")


def _trace(f: Model, params: Any, x: Any, budget: int) -> float:
    """‖J‖², block by block."""
    per_sample = 3 * 8 * n_columns(params) * math.prod(output_shape(f, params, x))
    parts = blocks(x.shape[0], budget // per_sample)
    return sum(float((sample_jacobians(f, params, x[part]) ** 2).sum()) for part in parts)
