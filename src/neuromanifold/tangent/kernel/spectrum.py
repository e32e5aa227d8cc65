"""The spectrum of the kernel and the numbers read off it."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neuromanifold.graph.selection import select
from neuromanifold.models.arguments import Model, Params, Samples, check_arguments, output_size
from neuromanifold.numerics.drawing import Curve, axes_of, card, chart
from neuromanifold.numerics.lanczos import MatrixProduct, largest_eigenpairs
from neuromanifold.numerics.precision import boundary
from neuromanifold.numerics.results import Array, Result, follows
from neuromanifold.numerics.validation import leading_axis, refuse_tracers
from neuromanifold.runtime.memory import blocks, memory_budget
from neuromanifold.tangent.kernel.contraction import self_traces
from neuromanifold.tangent.kernel.ntk import ntk
from neuromanifold.tangent.kernel.operator import kernel_product
from neuromanifold.tangent.kernel.routes import Plan, plan

_DENSE_LIMIT = 4096
_DEFAULT_COUNT = 64


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Result):
    """Eigenvalues λ of Θ, largest first, in float64; all of them, or the largest when `method` is
    Lanczos.

    `size` is n·o and `trace` is Σλ over all of them. `vectors` has an eigenvector in each row where
    they were asked for. `residuals` bound the error of each eigenvalue: ‖Θv − λv‖, or rounding for
    the dense method.
    """

    eigenvalues: Float[Array, " k"]
    size: int
    trace: float
    method: str
    residuals: Float[Array, " k"]
    vectors: Float[Array, "k size"] | None = None

    def headline(self) -> str:
        """Return the largest and the smallest eigenvalue, how many there are, and what carries the
        trace.
        """
        which = "all" if self.complete else f"the largest {len(self.eigenvalues)} of"
        carried = f", effective rank {self.effective_rank:.4g}" if self.complete else ""
        ends = f"{self.eigenvalues[0]:.4g} … {self.eigenvalues[-1]:.4g}"
        carried = f"stable rank {self.stable_rank:.4g}{carried}"
        return (
            f"{which} {self.size} eigenvalues, {ends}, trace {self.trace:.4g}, {carried}, "
            f"{self.method}"
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw the eigenvalues on a logarithmic scale, with what their residuals leave open;
        returns the axes.
        """
        axes = axes_of(axes, (6, 3.5))
        order, positive = np.arange(1, len(self.eigenvalues) + 1), self.eigenvalues > 0
        hidden = "" if positive.all() else f" ({(~positive).sum()} not positive, not drawn)"
        axes.semilogy(
            order[positive],
            self.eigenvalues[positive],
            ".-",
            color="#0072B2",
            lw=0.8,
            label=f"eigenvalues{hidden}",
        )
        bounded = self.residuals > 0
        axes.semilogy(
            order[bounded],
            self.residuals[bounded],
            color="0.5",
            lw=0.8,
            ls=":",
            label="bound of their error",
        )
        axes.set(xlabel="order", ylabel="eigenvalue of the tangent kernel")
        axes.set_title(f"stable rank {self.stable_rank:.3g} of {self.size}", fontsize=10)
        axes.legend(frameon=False, fontsize=8)
        return axes

    def _repr_html_(self) -> str:
        count, (first, last) = len(self.eigenvalues), self.eigenvalues[[0, -1]]
        which = "all" if self.complete else f"the {count:,} largest of"
        said = f"{which} {self.size:,} eigenvalues of the tangent kernel, from {first:.4g} to {last:.4g}."
        rows = [("trace", f"{self.trace:.4g}"), ("stable rank", f"{self.stable_rank:.4g}")]
        if self.complete:
            rows.append(("effective rank", f"{self.effective_rank:.4g}"))
            rows.append(("condition number", f"{self.condition:.4g}"))
        rows += [
            ("largest bound of an error", f"{self.residuals.max():.1e}"),
            ("method", self.method),
        ]
        values = Curve("eigenvalues", np.arange(1, count + 1), self.eigenvalues, points=True)
        picture = chart([values], x="order", y="eigenvalues", log=True)
        return card("Spectrum", [said], [picture] if picture else [], rows)

    def to_xarray(self) -> Any:
        """Return eigenvalues, residuals and vectors as an `xarray.Dataset`."""
        import xarray as xr

        data: dict[str, Any] = {
            "eigenvalue": ("order", self.eigenvalues),
            "residual": ("order", self.residuals),
        }
        if self.vectors is not None:
            data["vector"] = (("order", "row"), self.vectors)
        order = np.arange(1, len(self.eigenvalues) + 1)
        return xr.Dataset(
            data, {"order": order}, {"size": self.size, "trace": self.trace, "method": self.method}
        )

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
        """exp(−Σ p log p) with p = λ/Σλ: the number of directions that carry the trace. Needs
        the complete spectrum.
        """
        if not self.complete:
            return math.nan
        positive = self.eigenvalues[self.eigenvalues > 0]
        p = positive / positive.sum()
        return float(np.exp(-(p * np.log(p)).sum())) if len(p) else 0.0

    @property
    def condition(self) -> float:
        """λ_max / λ_min over all eigenvalues, infinite when λ_min is not positive. Needs the
        complete spectrum.
        """
        if not self.complete:
            return math.nan
        return (
            float(self.eigenvalues[0] / self.eigenvalues[-1])
            if self.eigenvalues[-1] > 0
            else math.inf
        )


@follows
def spectrum(
    f: Model,
    params: Params,
    x: Samples,
    *,
    k: int | None = None,
    vectors: bool = False,
    memory: int | str | None = None,
) -> Spectrum:
    """Return the eigenvalues of the kernel Θ = JJᵀ on the sample, in float64; with `vectors=True`
    the eigenvectors too.

    Dense `eigh` up to a few thousand rows when `k` is not given; otherwise the `k` largest by
    Lanczos on the operator, and `.trace` is nan where even one sample's rows exceed `memory`.

    >>> nm.spectrum(lambda params, x: params * x, np.array([2.0]), np.array([[1.0], [3.0]])).eigenvalues[:1].round(12).tolist()
    [10.0]
    """
    refuse_tracers((params, x), "`spectrum`")
    if k is not None and not isinstance(k, int):
        raise TypeError(f"`k` is {k!r}; pass a whole number of eigenvalues.")
    with boundary(params, x):
        params, x = check_arguments(f, params, x, dtype=np.float64)
        size = leading_axis(x) * output_size(f, params, x)
        if k is None and size <= _DENSE_LIMIT:
            return _dense(np.asarray(ntk(f, params, x, memory=memory)), vectors)
        k = min(_DEFAULT_COUNT, size) if k is None else k
        found = jax.tree.map(
            np.asarray,
            largest_eigenpairs(MatrixProduct(kernel_product, (f,)), (params, x), size, k),
        )
        trace = _trace(f, params, x, memory_budget(memory, device=True))
        return Spectrum(
            found.values,
            size,
            trace,
            "Lanczos",
            found.residuals,
            found.vectors if vectors else None,
        )


def _dense(kernel: np.ndarray, vectors: bool) -> Spectrum:
    values, rows = np.linalg.eigh(kernel) if vectors else (np.linalg.eigvalsh(kernel), None)
    rounding = len(kernel) * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)
    found = None if rows is None else rows.T[::-1]
    return Spectrum(
        values[::-1],
        len(kernel),
        float(values.sum()),
        "dense",
        np.full(len(values), rounding),
        found,
    )


def trace_bytes(made: Plan) -> int:
    """Return the bytes of one sample's part of ‖J‖²: float64, and the copy of its factors that
    squares of theirs are summed from.
    """
    return int(16 * (made.per_sample + made.per_pair))


def _trace(f: Model, params: Any, x: Any, budget: int) -> float:
    """‖J‖², block by block; nan where the rows of a single sample are more than the budget
    holds.
    """
    made = plan(f, params, x, select(params, None), "trace")
    at_once = budget // trace_bytes(made)
    if not at_once:
        return math.nan
    cut = (
        jax.tree.map(lambda a, part=part: a[part], x) for part in blocks(leading_axis(x), at_once)
    )
    return float(sum(jnp.sum(self_traces(made, params, part)) for part in cut))
