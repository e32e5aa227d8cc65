"""`inspect`: the geometry of one network on one sample, asked of the rooms above and returned as one result."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.bottleneck.structure import BottleneckStructure, bottleneck_structure
from neuromanifold.graph.graph import trace
from neuromanifold.models.arguments import Model, check_target
from neuromanifold.models.function import output_shape
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics.rank import Rank
from neuromanifold.numerics.validation import check_sample
from neuromanifold.regions.patterns import fixed_neurons, sampled_regions
from neuromanifold.symmetry.account import DimensionAccount, dimension_account
from neuromanifold.symmetry.reduce import Reduction, reduce_width
from neuromanifold.tangent.dimension import UntrustworthyRank, functional_dimension, single_precision_rank
from neuromanifold.tangent.jacobian import n_columns
from neuromanifold.tangent.spectrum import Spectrum, spectrum

_CURVE_POINTS = 400
_LARGEST_ACCOUNT = 5_000  # parameters; generators of wide linear layers number the square of their width


@dataclass(frozen=True)
class LayerStatus:
    """The neurons of one hidden layer by what they do on the sample."""

    width: int
    active: int
    inactive: int

    @property
    def switching(self) -> int:
        """Neurons that are on at some samples and off at others."""
        return self.width - self.active - self.inactive


@dataclass(frozen=True)
class Inspection:
    """What a network's parameters do on a sample. `print` it for a table; `nm.report.write` makes the page.

    `exact` is the functional dimension with its certificate (`None` where the activation allows no exact arithmetic),
    `float64` and `float32` what a numerical rank says. `regions` and `layers` are `None` for networks that are not
    piecewise linear. `account` says where the other parameters went and `reduction` is an equivalent smaller network;
    both need exact arithmetic, and the account is kept to networks of a few thousand parameters. `bottleneck` is `None`
    for activations steeper than 1. `fit` is r² where targets were given.
    """

    model: str
    n_params: int
    n_samples: int
    n_outputs: int
    exact: Rank | None
    float64: Rank
    float32: Rank
    spectrum: Spectrum | None
    regions: int | None
    n_inputs: int | None
    layers: tuple[LayerStatus, ...] | None
    account: DimensionAccount | None
    reduction: Reduction | None
    bottleneck: BottleneckStructure | None
    fit: float | None
    curve: tuple[np.ndarray, np.ndarray] | None
    sample: tuple[np.ndarray, np.ndarray | None]
    seconds: float

    @property
    def dimension(self) -> Rank:
        """The functional dimension: exact where that was possible, else by float64."""
        return self.exact if self.exact is not None else self.float64

    @property
    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """(quantity, value, remark) for a table."""
        return tuple(
            row
            for part in (
                self._size_rows(),
                self._rank_rows(),
                self._account_rows(),
                self._region_rows(),
                self._kernel_rows(),
            )
            for row in part
        )

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        free = self.n_params - int(self.dimension)
        return (
            f"On these {self.n_samples:,} samples the {self.n_params:,} parameters move the network in {int(self.dimension):,} "
            f"independent directions; {free:,} ({free / self.n_params:.0%}) directions change nothing."
        )

    def _size_rows(self) -> list[tuple[str, str, str]]:
        rows = [
            ("parameters", f"{self.n_params:,}", "D"),
            ("samples × outputs", f"{self.n_samples:,} × {self.n_outputs:,}", "rows of the Jacobian"),
        ]
        return rows if self.fit is None else [*rows, ("fit", f"{self.fit:.4f}", "r² on the sample")]

    def _rank_rows(self) -> list[tuple[str, str, str]]:
        says = f"{int(self.float32):,}" if int(self.float32) >= 0 else "nothing"
        float32 = ("  float32 would say", says, _gap(self.float32) if int(self.float32) >= 0 else "it overflows")
        if self.exact is None:
            return [("functional dimension", f"{int(self.float64):,}", f"numerical, {_gap(self.float64)}"), float32]
        return [
            ("functional dimension", f"{int(self.exact):,}", str(self.exact.certificate)),
            ("  float64 would say", f"{int(self.float64):,}", _gap(self.float64)),
            float32,
        ]

    def _account_rows(self) -> list[tuple[str, str, str]]:
        rows = []
        if self.account is not None:
            explained = ", ".join(f"{count:,} {name}" for name, count in self.account.rows[1:] if count)
            rows.append(("directions that change nothing", f"{self.n_params - int(self.dimension):,}", explained))
        if self.reduction is not None:
            rows.append(
                (
                    "equivalent smaller network",
                    f"{self.reduction.net.n_params:,}",
                    self._reduction_remark(self.reduction),
                )
            )
        return rows

    def _reduction_remark(self, reduction: Reduction) -> str:
        if not reduction.neurons_saved:
            return "none found: no neuron is redundant on the sample"
        widths = "-".join(str(w) for w in reduction.net.widths)
        deviation = f"deviation {reduction.deviation:.0e}" if reduction.deviation else "equal"
        return f"parameters in {widths}: {reduction.neurons_saved} neurons fewer, {deviation} on the sample"

    def _region_rows(self) -> list[tuple[str, str, str]]:
        if self.regions is None or self.layers is None or self.n_inputs is None:
            return []
        bound = (self.n_inputs + 1) * self.regions * self.n_outputs
        active, inactive = sum(s.active for s in self.layers), sum(s.inactive for s in self.layers)
        hidden = sum(s.width for s in self.layers)
        return [
            ("linear regions sampled", f"{self.regions:,}", f"they allow a functional dimension of at most {bound:,}"),
            (
                "always-active neurons",
                f"{active:,} of {hidden:,}",
                f"by layer: {_by_layer(s.active for s in self.layers)}",
            ),
            (
                "always-inactive neurons",
                f"{inactive:,} of {hidden:,}",
                f"by layer: {_by_layer(s.inactive for s in self.layers)}",
            ),
        ]

    def _kernel_rows(self) -> list[tuple[str, str, str]]:
        s = self.spectrum
        if s is None:
            return [("NTK", "beyond float64", "its entries overflow at these values")]
        effective = (
            []
            if np.isnan(s.effective_rank)
            else [("  effective rank", f"{s.effective_rank:.2f}", "exp of the spectral entropy")]
        )
        return [
            ("NTK largest eigenvalue", f"{s.eigenvalues[0]:.4g}", f"{s.method}, trace {s.trace:.4g}"),
            *effective,
            ("  stable rank", f"{s.stable_rank:.2f}", "trace / largest eigenvalue"),
            *self._bottleneck_rows(),
        ]

    def _bottleneck_rows(self) -> list[tuple[str, str, str]]:
        if self.bottleneck is None:
            return []
        found = self.bottleneck
        norm = f"‖θ‖² = {found.squared_norm:.4g}, at least {found.norm_bound:.4g} for this function"
        if not found.layers or not found.rank:
            return [("bottleneck", "none", f"no layer is near a partial isometry; {norm}")]
        return [
            ("bottleneck", f"rank {found.rank}", f"in layers {_by_layer(found.layers)} of {found.net.depth}; {norm}")
        ]

    def __str__(self) -> str:
        wide = [max(len(row[i]) for row in self.rows) for i in (0, 1)]
        lines = [f"{name:<{wide[0]}}  {value:>{wide[1]}}  {remark}" for name, value, remark in self.rows]
        return "\n".join([self.model, *lines, self.headline])


def _gap(rank: Rank) -> str:
    gap = float(rank.gap)
    return "nothing dropped" if np.isinf(gap) else f"gap in the spectrum {gap:.2g}"


def _by_layer(counts: Any) -> str:
    return ", ".join(str(count) for count in counts)


def inspect(
    f: Model, params: Any, x: Any, y: Any = None, *, exact: bool | None = None, memory: int | str | None = None
) -> Inspection:
    """The geometry of a network on a sample: functional dimension with its proof, regions, fixed neurons, kernel.

    `exact=None` uses exact arithmetic wherever the network allows it. Any model is accepted; what needs an MLP or
    piecewise-linear activations is left out for others.

    >>> net = nm.MLP((1, 3, 1))
    >>> inspection = nm.inspect(net, net.init(key=jax.random.key(0)), np.linspace(-2, 2, 50)[:, None])
    >>> inspection.n_params, inspection.exact.exact
    (10, True)
    """
    started = time.perf_counter()
    x = check_sample(x)
    if y is not None:
        y = check_sample(y, "y")
        check_target(f, params, x, y)
    graph = trace(f, params, x)
    exactly = graph.exact if exact is None else exact
    bent = graph.piecewise_linear and bool(graph.units)
    hidden = f if isinstance(f, MLP) and len(f.widths) > 2 and exactly else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyRank)  # the gap is part of the table
        float64 = functional_dimension(f, params, x, memory=memory)
        with np.errstate(over="ignore"):  # what float32 makes of large values is the point of asking it
            float32 = single_precision_rank(f, params, x)
    kernel = _spectrum(f, params, x, memory)
    return Inspection(
        model=repr(f) if isinstance(f, MLP) else getattr(f, "__name__", type(f).__name__),
        n_params=n_columns(params),
        n_samples=int(np.shape(x)[0]),
        n_outputs=int(np.prod(output_shape(f, params, x), dtype=int)),
        exact=functional_dimension(f, params, x, exact=True, memory=memory) if exactly else None,
        float64=float64,
        float32=float32,
        spectrum=kernel,
        regions=int(sampled_regions(f, params, x, exact=exactly)) if bent else None,
        n_inputs=graph.inputs,
        layers=_layers(f, params, x, exactly) if bent else None,
        account=dimension_account(hidden, params, x) if hidden and hidden.n_params <= _LARGEST_ACCOUNT else None,
        reduction=reduce_width(hidden, params, x) if hidden else None,
        bottleneck=None if kernel is None else _bottleneck(f, params, x),
        fit=None if y is None else _r_squared(np.asarray(f(params, x)), np.asarray(y)),
        curve=_curve(f, params, x),
        sample=(np.asarray(x), None if y is None else np.asarray(y)),
        seconds=time.perf_counter() - started,
    )


def _spectrum(f: Model, params: Any, x: Any, memory: int | str | None) -> Spectrum | None:
    """The kernel's spectrum, `None` where entries of the kernel overflow although exact arithmetic can do without them."""
    try:
        return spectrum(f, params, x, memory=memory)
    except ArithmeticError:
        return None


def _bottleneck(f: Model, params: Any, x: Any) -> BottleneckStructure | None:
    if not isinstance(f, MLP):
        return None
    try:
        return bottleneck_structure(f, params, x)
    except ValueError:
        return None


def _layers(net: Model, params: Any, x: Any, exact: bool) -> tuple[LayerStatus, ...]:
    fixed = fixed_neurons(net, params, x, exact=exact)
    return tuple(
        LayerStatus(len(a), int(a.sum()), int(i.sum())) for a, i in zip(fixed.active, fixed.inactive, strict=True)
    )


def _r_squared(prediction: np.ndarray, target: np.ndarray) -> float:
    residual = ((prediction - target) ** 2).sum()
    return float(1 - residual / ((target - target.mean(axis=0)) ** 2).sum())


def _curve(f: Model, params: Any, x: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The function itself, where it is one of a single real variable."""
    if not isinstance(f, MLP) or f.widths[0] != 1 or f.widths[-1] != 1:
        return None
    low, high = float(np.min(x)), float(np.max(x))
    grid = np.linspace(low, high, _CURVE_POINTS)[:, None]
    return grid[:, 0], np.asarray(f(params, grid))[:, 0]
