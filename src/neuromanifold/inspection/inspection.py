"""`Inspection`: what a network's parameters do on a sample, as numbers, as a table, and in three
sentences.
"""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.bottleneck.structure import BottleneckStructure
from neuromanifold.inspection.descent import Descent
from neuromanifold.inspection.units import LayerStatus
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.rank import Rank, rank_from_spectrum
from neuromanifold.numerics.results import counted
from neuromanifold.symmetry.account.dimension_account import DimensionAccount
from neuromanifold.symmetry.conservation.conserved import ConservedQuantities
from neuromanifold.symmetry.reduction.reduce import Reduction
from neuromanifold.tangent.kernel.spectrum import Spectrum

Row = tuple[str, str, str]
INTERRUPTED = "interrupted"
_SETTLED = 0.05
"""A rank that stands still for this share of the samples is said to have settled."""


@dataclass(frozen=True)
class Part:
    """One section: how long it took, or why there is nothing of it."""

    title: str
    seconds: float
    left_out: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Inspection:
    """What a network's parameters do on a sample. `print` it for a table; `nm.report.write` makes
    the page.

    `exact` is the functional dimension with its certificate, `float64` and `float32` what a
    numerical rank says, `growth` the exact rank on the first 1, …, n samples, `closed` how many
    parameters no open path runs through. `regions` and `layers` belong to piecewise-linear
    networks, `bottleneck` to perceptrons; `account` is that of exact graphs, `reduction` goes by
    neurons or channels. `fit` is r² (or what `fit_name` says) where targets were given, `descent`
    alignment and learning rate. `program` says what the network is as a program, `tensors` names
    its parameters. What was not computed is `None`, and `parts` says why.
    """

    model: str
    n_params: int
    n_samples: int
    n_given: int
    n_outputs: int
    n_inputs: int
    sample: Any
    parts: tuple[Part, ...]
    seconds: float
    affine_dimension: int = 0
    program: tuple[str, ...] = ()
    tensors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    curve: tuple[np.ndarray, np.ndarray] | None = None
    fit: float | None = None
    fit_name: str = "r²"
    descent: Descent | None = None
    exact: Rank | None = None
    growth: np.ndarray | None = None
    float64: Rank | None = None
    float32: Rank | None = None
    spectrum: Spectrum | None = None
    regions: int | None = None
    layers: tuple[LayerStatus, ...] | None = None
    closed: int | None = None
    account: DimensionAccount | None = None
    conserved: ConservedQuantities | None = None
    reduction: Reduction | None = None
    bottleneck: BottleneckStructure | None = None

    @property
    def dimension(self) -> Rank | None:
        """The functional dimension: exact where that was possible, else by float64, else by a
        kernel without small eigenvalues.
        """
        return next(
            (rank for rank in (self.exact, self.float64, self._by_kernel()) if rank is not None),
            None,
        )

    def _by_kernel(self) -> Rank | None:
        """n·o, where every eigenvalue of the kernel lies above rounding; a kernel's small
        eigenvalues decide nothing.
        """
        if self.spectrum is None or not self.spectrum.complete:
            return None
        size = self.spectrum.size
        rank = rank_from_spectrum(self.spectrum.eigenvalues, (size, size))
        return rank if int(rank) == size else None

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before its end."""
        return any(part.left_out == INTERRUPTED for part in self.parts)

    @property
    def rows_of_jacobian(self) -> int:
        """n·o: no more directions than this can be seen on the sample."""
        return self.n_samples * self.n_outputs

    @property
    def saturated_at(self) -> int | None:
        """After how many samples the rank was what it is; `None` where that is not known."""
        return (
            None if self.growth is None else int(np.searchsorted(self.growth, self.growth[-1])) + 1
        )

    @property
    def singular_values(self) -> np.ndarray | None:
        """Those of the Jacobian, or the roots of the kernel's eigenvalues; largest first."""
        if self.float64 is not None:
            return np.asarray(self.float64.spectrum)
        return (
            None if self.spectrum is None else np.sqrt(np.maximum(self.spectrum.eigenvalues, 0.0))
        )

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """(where they went, how many) of the D parameter directions, as far as it is known."""
        used = self.n_params if self.dimension is None else int(self.dimension)
        if self.account is None:
            limited = used == self.rows_of_jacobian
            rest = "not to be seen on so few samples" if limited else "change nothing here"
            return (("change the function", used), (rest, self.n_params - used))
        return (
            ("change the function", used),
            *((name, count) for name, count in self.account.rows[1:] if count),
        )

    def plot(self) -> Any:
        """A figure: the rank against samples, the singular values with what counts, and where
        the parameters went.
        """
        from neuromanifold.inspection.picture import picture

        return picture(self)

    @property
    def rows(self) -> tuple[Row, ...]:
        """(quantity, value, remark) for a table."""
        parts = (
            self._size_rows(), self._rank_rows(), self._account_rows(), self._region_rows(), self._kernel_rows(),
            self._descent_rows(), self._bottleneck_rows(), self._left_out_rows(),
        )  # fmt: skip
        return tuple(row for part in parts for row in part)

    @property
    def headline(self) -> str:
        """The finding in one sentence, which begins with what the sample allows."""
        rows, D = self.rows_of_jacobian, self.n_params
        allowed = (
            f"{counted(self.n_samples, 'sample')} × {counted(self.n_outputs, 'output')} can show "
            f"at most {min(rows, D):,}"
        )
        seen = f"{allowed} of {counted(D, 'parameter direction')}"
        if self.dimension is None:
            return f"{seen}; the rank was not computed."
        found = int(self.dimension)
        if found == D:
            return f"{seen}, and all of them change the function."
        if found == rows:
            return (
                f"{seen}, and all {found:,} of these are seen: the sample is the limit, and more "
                "samples may show more."
            )
        if rows < D and not self._settled():
            return (
                f"{seen}; {found:,} change the function on the sample, {rows - found:,} fewer "
                "than it could show."
            )
        free = D - found
        return (
            f"{seen}; {found:,} change the function on the sample, and {free:,} "
            f"({_percent(free, D)}) change nothing there."
        )

    @property
    def verdict(self) -> tuple[str, ...]:
        """The finding in about three sentences: the dimension, whether more samples would raise
        it, and what could go.
        """
        sentences = (self._saturation() or self._reason(), self._surplus() or self._kept())
        return (self.headline, *(sentence for sentence in sentences if sentence))

    def _reason(self) -> str:
        """Why the rank is not known, where it is not."""
        reasons = [
            p for p in self.parts if p.left_out and p.title in ("exact rank", "float64 rank")
        ]
        if self.dimension is not None or not reasons:
            return ""
        return (
            "; ".join(
                f"{'no' if k else 'No'} {p.title}: {p.left_out}" for k, p in enumerate(reasons)
            )
            + "."
        )

    def _kept(self) -> str:
        count = 0 if self.conserved is None else len(self.conserved)
        return (
            f"Gradient flow keeps {counted(count, 'number')} made of the parameters, whatever the "
            "data."
            if count
            else ""
        )

    def _saturation(self) -> str:
        at, n = self.saturated_at, self.n_samples
        if (
            at is None
            or self.dimension is None
            or int(self.dimension) in (self.rows_of_jacobian, self.n_params)
        ):
            return ""
        if self._settled():
            shown = (
                f"The first {counted(at, 'sample')} already {'show' if at > 1 else 'shows'} all "
                "of it"
            )
            return f"{shown}; the other {n - at:,} add nothing."
        last = f"the last of the {n:,} samples" if at == n else f"sample {at:,} of {n:,}"
        return f"The rank still grows with {last}: more may show more."

    def _settled(self) -> bool:
        """Whether the rank is known to have stood still over the last samples."""
        return (
            self.saturated_at is not None
            and self.n_samples - self.saturated_at > self.n_samples * _SETTLED
        )

    def _surplus(self) -> str:
        if self.layers is None:
            return ""
        dead, width = sum(s.inactive for s in self.layers), sum(s.width for s in self.layers)
        text = f"{dead:,} of {width:,} units {'is' if dead == 1 else 'are'} off on the whole sample"
        if self.reduction is not None and self.reduction.neurons_saved:
            saved = (
                f"a network with {counted(self.reduction.parameters_saved, 'parameter')} fewer "
                "computes the same there"
            )
            return f"{text}; {saved}."
        return f"{text}."

    def _size_rows(self) -> list[Row]:
        size, few = self.rows_of_jacobian, self.n_samples < self.n_given
        chosen = (
            f"; {self.n_samples:,} of the {self.n_given:,} samples, evenly spaced" if few else ""
        )
        rows = [
            ("parameters", f"{self.n_params:,}", "D, all numbers that training may change"),
            (
                "samples × outputs",
                f"{self.n_samples:,} × {self.n_outputs:,}",
                f"{size:,} rows of the Jacobian{chosen}",
            ),
        ]
        return (
            rows
            if self.fit is None
            else [*rows, ("fit", f"{self.fit:.4f}", f"{self.fit_name} on the sample")]
        )

    def _rank_rows(self) -> list[Row]:
        rows: list[Row] = []
        if self.exact is not None:
            rows.append(
                ("functional dimension", f"{int(self.exact):,}", str(self.exact.certificate))
            )
        elif self.dimension is not None:
            how = (
                _gap(self.dimension)
                if self.float64 is not None
                else "every eigenvalue of the kernel is above rounding"
            )
            rows.append(("functional dimension", f"{int(self.dimension):,}", f"numerical, {how}"))
        if self.saturated_at is not None and int(self.dimension or 0) < self.rows_of_jacobian:
            rest = (
                "the others add nothing"
                if self.saturated_at < self.n_samples
                else "the last one still adds"
            )
            remark = f"of {self.n_samples:,} samples, in the order given; {rest}"
            rows.append(("  reached after", f"{self.saturated_at:,}", remark))
        if self.exact is not None and self.float64 is not None:
            rows.append(("  float64 would say", f"{int(self.float64):,}", _gap(self.float64)))
        if self.float32 is not None:
            rows.append(("  float32 would say", f"{int(self.float32):,}", _gap(self.float32)))
        return rows

    def _account_rows(self) -> list[Row]:
        rows: list[Row] = []
        if self.closed is not None:
            remark = "their derivative is zero at every sample: units that are off shut every path"
            rows.append(("parameters without effect", f"{self.closed:,}", remark))
        if self.account is not None:
            explained = ", ".join(
                f"{count:,} {name}" for name, count in self.account.rows[1:] if count
            )
            free = self.n_params - int(self.account.functional)
            rows.append(("directions that change nothing", f"{free:,}", explained))
        if self.conserved is not None:
            count = len(self.conserved)
            rows.append(
                (
                    "conserved quantities",
                    f"{count:,}",
                    "what gradient flow keeps, whatever the data and the loss",
                )
            )
        if self.reduction is not None:
            size = f"{self.n_params - self.reduction.parameters_saved:,}"
            rows.append(("equivalent smaller network", size, _reduction_remark(self.reduction)))
        return rows

    def _region_rows(self) -> list[Row]:
        rows: list[Row] = []
        if self.regions is not None:
            bound = self.affine_dimension * self.regions * self.n_outputs
            binding = bound < min(self.rows_of_jacobian, self.n_params)
            allowed = (
                f"they allow a functional dimension of at most {bound:,}"
                if binding
                else "patterns of units on and off"
            )
            rows.append(("linear regions sampled", f"{self.regions:,}", allowed))
        if self.layers:
            of = f"{sum(s.width for s in self.layers):,}"
            for kind, counts in (
                ("active", [s.active for s in self.layers]),
                ("inactive", [s.inactive for s in self.layers]),
            ):
                rows.append(
                    (
                        f"always-{kind} units",
                        f"{sum(counts):,} of {of}",
                        f"by layer: {_listed(counts)}",
                    )
                )
            channels = [s for s in self.layers if s.channels]
            if channels:
                dead, total = (
                    sum(s.dead_channels for s in channels),
                    sum(s.channels for s in channels),
                )
                by = f"by layer: {_listed(s.dead_channels for s in channels)}"
                rows.append(("  dead channels", f"{dead:,} of {total:,}", by))
        return rows

    def _kernel_rows(self) -> list[Row]:
        s = self.spectrum
        if s is None:
            return []
        trace = (
            "their sum was not computed: it needs more memory"
            if np.isnan(s.trace)
            else f"their sum is {s.trace:.4g}"
        )
        how = (
            f"of {s.size:,}, all computed"
            if s.complete
            else f"the {len(s.eigenvalues):,} largest of {s.size:,} by {s.method}"
        )
        rows = [("NTK largest eigenvalue", f"{s.eigenvalues[0]:.4g}", f"{how}; {trace}")]
        if not np.isnan(s.effective_rank):
            rows.append(
                (
                    "  effective rank",
                    f"{s.effective_rank:.2f}",
                    "about how many directions carry the sum",
                )
            )
        return (
            rows
            if np.isnan(s.trace)
            else [
                *rows,
                ("  stable rank", f"{s.stable_rank:.2f}", "the sum over the largest eigenvalue"),
            ]
        )

    def _descent_rows(self) -> list[Row]:
        d = self.descent
        if d is None:
            return []
        return [
            (
                "largest stable learning rate",
                f"{d.largest_lr:.4g}",
                f"2 / sharpness of {d.loss}, {d.sharpness:.4g}",
            ),
            (
                "  alignment",
                f"{d.alignment:.4g}",
                f"of the kernel with the gradient; with the targets {d.kernel_alignment:.3f} of 1",
            ),
        ]

    def _bottleneck_rows(self) -> list[Row]:
        if self.bottleneck is None:
            return []
        found = self.bottleneck
        norm = (
            f"squared parameters sum to {found.squared_norm:.4g}, and must to "
            f"{found.norm_bound:.4g} at least for this function"
        )
        if not found.layers or not found.rank:
            return [
                ("bottleneck", "none", f"no layer has its singular values near 0 and 1; {norm}")
            ]
        layers = f"layer{'s' if len(found.layers) > 1 else ''} {_listed(found.layers)}"
        where = f"in {layers} of {found.net.depth}; {norm}"
        return [("bottleneck", f"rank {found.rank}", where)]

    def _left_out_rows(self) -> list[Row]:
        reasons: dict[str, list[str]] = {}
        for part in self.parts:
            if part.left_out:
                reasons.setdefault(part.left_out, []).append(part.title)
        return [(", ".join(titles), "not computed", why) for why, titles in reasons.items()]

    def __repr__(self) -> str:
        return f"Inspection({self.headline})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        wide = [max(len(row[i]) for row in self.rows) for i in (0, 1)]
        lines = [
            f"{name:<{wide[0]}}  {value:>{wide[1]}}  {remark}" for name, value, remark in self.rows
        ]
        return "\n".join([self.model, *lines, *self.verdict])


def _percent(part: int, whole: int) -> str:
    """Whole per cent; none is rounded to all or to nothing."""
    share = 100 * part / whole
    return (
        "more than 99%"
        if 99.5 <= share < 100
        else "less than 1%"
        if 0 < share < 0.5
        else f"{share:.0f}%"
    )


def _gap(rank: Rank) -> str:
    gap = float(rank.gap)
    sketched = ", sketched" if rank.sketched else ""
    return f"{'nothing dropped' if np.isinf(gap) else f'gap in the spectrum {gap:.2g}'}{sketched}"


def _listed(counts: Iterable[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts)


def _reduction_remark(reduction: Reduction) -> str:
    if not reduction.neurons_saved and reduction.left_out:
        return f"none found; not looked at: the channels of {', '.join(reduction.left_out)}"
    if not reduction.neurons_saved:
        return "none found: no neuron or channel is redundant on the sample"
    deviation = f"deviation {reduction.deviation:.0e}" if reduction.deviation else "equal"
    if (net := perceptron(reduction.net)) is None:
        return f"parameters: {reduction.neurons_saved} channels fewer, {deviation} on the sample"
    widths = "-".join(str(w) for w in net.widths)
    return (
        f"parameters in {widths}: {reduction.neurons_saved} neurons fewer, {deviation} on the "
        "sample"
    )
