"""`Inspection`: what a network's parameters do on a sample, as numbers, as a table, and in three
sentences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuromanifold.bottleneck.along import RanksAlong
from neuromanifold.bottleneck.structure import BottleneckStructure
from neuromanifold.inspection.descent import Descent
from neuromanifold.inspection.units import LayerUnits, kinds_of
from neuromanifold.models.model_kind import perceptron
from neuromanifold.numerics.drawing import Curve, bar, card, chart, colours_of, table_of
from neuromanifold.numerics.rank import Rank, rank_from_spectrum
from neuromanifold.numerics.results import count_of
from neuromanifold.symmetry.account.dimension_account import FEW, DimensionAccount
from neuromanifold.symmetry.account.equivalence import INACTIVE
from neuromanifold.symmetry.account.rules import StructuralSymmetries
from neuromanifold.symmetry.conservation.conserved import ConservedQuantities
from neuromanifold.symmetry.reduction.reduce import Reduction
from neuromanifold.tangent.kernel.spectrum import Spectrum

Row = tuple[str, str, str]
INTERRUPTED = "interrupted"
_SETTLED = 0.05
"""A rank that stands still for this share of the samples is said to have settled."""
_TRIED = "at every input tried"
_CLEAR_GAP = 1e3
"""Below, a numerical rank depends on where the line is drawn."""


@dataclass(frozen=True)
class Part:
    """One section: how long it took, or why there is nothing of it."""

    title: str
    seconds: float
    left_out: str = ""


@dataclass(frozen=True)
class LayerRank:
    """The parameters of one layer: the rank of the Jacobian's columns that belong to them (None
    where the Jacobian is large), and their share of the tangent kernel's trace.
    """

    name: str
    parameters: int
    rank: int | None
    share: float


@dataclass(frozen=True, eq=False, repr=False)
class Inspection:
    """What a network's parameters do on a sample. `print` it for a table; `nm.report.write` makes
    the page.

    `exact` is the functional dimension with its certificate, `float64` and `float32` what a
    numerical rank says, `growth` the exact rank on the first 1, …, n samples, `closed` how many
    parameters no open path runs through. Rank and kernel are about `n_outputs` of `n_all_outputs`
    outputs. `regions` belongs to piecewise-linear networks, `layers` to those with units that
    switch (on all `n_given` samples), `bottleneck` to perceptrons, `ranks` along the network to all
    others. `account` is that of exact graphs of at most 5,000 parameters, `symmetries` are those by
    structure of larger networks, `reduction` goes by neurons or channels and holds on `n_reduced`
    samples. `blocks` are the parameters by layer. `fit` is r² (or what `fit_name` says) where
    targets were given, `descent` alignment and learning rate. `program` says what the network is as
    a program, `tensors` names its parameters. What was not computed is `None`; `parts` says why.
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
    layers: tuple[LayerUnits, ...] | None = None
    closed: int | None = None
    account: DimensionAccount | None = None
    symmetries: StructuralSymmetries | None = None
    conserved: ConservedQuantities | None = None
    reduction: Reduction | None = None
    n_reduced: int = 0
    n_all_outputs: int = 0
    blocks: tuple[LayerRank, ...] | None = None
    bottleneck: BottleneckStructure | None = None
    ranks: RanksAlong | None = None

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
            return ((f"change {self.changed}", used), (rest, self.n_params - used))
        return (
            ("change the function", used),
            *((name, count) for name, count in self.account.rows[1:] if count),
        )

    @property
    def bottleneck_layers(self) -> tuple[int, ...]:
        """The layers of the bottleneck, counted from 1: those that could have a higher rank."""
        found = self.bottleneck
        if found is None or not found.rank:
            return ()
        return tuple(l for l in found.layers if found.rank < min(found.net.widths[l - 1 : l + 1]))

    @property
    def units(self) -> str:
        """What is counted in `layers`: units, channels or features."""
        return kinds_of(self.layers or ())

    def plot(self) -> Any:
        """Draw a figure: the rank against samples, the singular values with what counts, and where
        the parameters went.
        """
        from neuromanifold.inspection.picture import picture

        return picture(self)

    @property
    def rows(self) -> tuple[Row, ...]:
        """(quantity, value, remark) for a table."""
        ranks = [*self._rank_rows(), *self._account_rows(), *self._region_rows()]
        kernel = self._kernel_rows()
        limited = self.dimension is not None and int(self.dimension) == self.rows_of_jacobian
        return (
            *self._size_rows(),
            *([*kernel, *ranks] if limited else [*ranks, *kernel]),
            *self._descent_rows(),
            *self._bottleneck_rows(),
            *self._ranks_rows(),
            *self._left_out_rows(),
        )

    @property
    def headline(self) -> str:
        """The finding in one sentence: how many directions matter on the sample, and whether other
        inputs would reveal more.
        """
        rows, D = self.rows_of_jacobian, self.n_params
        allowed = f"{count_of(self.n_samples, 'sample')} × {self._outputs}"
        whole = count_of(D, "parameter direction")
        if self.dimension is None:
            return f"{allowed} can show at most {min(rows, D):,} of {whole}; the rank was not computed."
        here, found = self._here(self.n_samples), int(self.dimension)
        if found == D:
            return f"{here} all of the {whole} change {self.changed}."
        if found == rows:
            return self._say_limited(here, allowed, whole)
        if self.exact is None and float(self.dimension.gap) < _CLEAR_GAP:
            return (
                f"{here} about {found:,} of {whole} change {self.changed} in float64; the singular "
                "values have no clear gap there."
            )
        change = "changes" if found == 1 else "change"
        return f"{here} {found:,} of {whole} {change} {self.changed}{self._elsewhere(found)}"

    @property
    def _chosen(self) -> bool:
        return self.n_outputs < self.n_all_outputs

    @property
    def _outputs(self) -> str:
        """How many outputs, and of how many where some were chosen."""
        if self._chosen:
            return f"{self.n_outputs:,} of {count_of(self.n_all_outputs, 'output')}"
        return count_of(self.n_outputs, "output")

    @property
    def changed(self) -> str:
        """What the directions that count change: the function, or the outputs looked at."""
        return f"the {self._outputs} looked at" if self._chosen else "the function"

    def _here(self, n: int) -> str:
        return "On this one sample" if n == 1 else f"On these {n:,} samples"

    def _say_limited(self, here: str, allowed: str, whole: str) -> str:
        """The headline where the rank is all that the sample can show: what still says something
        comes first.
        """
        rows = self.rows_of_jacobian
        limit = f"{allowed} can show at most {rows:,} of {whole}, and all of these show"
        if rows == 1 or self.spectrum is None or np.isnan(self.spectrum.effective_rank):
            return f"{limit}: the sample is the limit."
        rank = f"about {self.spectrum.effective_rank:.1f}"
        return f"{here} {rank} directions make up the tangent kernel (its effective rank); {limit}."

    def _elsewhere(self, found: int) -> str:
        """The end of the headline: what inputs beyond the sample would reveal."""
        if self.account is None and self.rows_of_jacobian < self.n_params:
            return f"; these samples can show at most {self.rows_of_jacobian:,}."
        if self.account is None:
            free = self.n_params - found
            return (
                f", and the other {free:,} ({_percent(free, self.n_params)}) change nothing there."
            )
        reached = self.account.chain[2]
        return (
            f"; other inputs would reveal at least {reached:,}."
            if reached > found
            else "; no other input that was tried reveals more."
        )

    @property
    def verdict(self) -> tuple[str, ...]:
        """The finding in about three sentences: the dimension, whether more samples would raise
        it, and what could go.
        """
        sentences = (self._more() or self._reason(), self._surplus() or self._say_kept())
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

    def _say_kept(self) -> str:
        count = 0 if self.conserved is None else len(self.conserved)
        return (
            f"Gradient flow keeps {count_of(count, 'number')} made of the parameters, whatever the "
            "data."
            if count
            else ""
        )

    def _more(self) -> str:
        """Whether more samples would show more: known where there is an account, else as far as
        the rank's growth tells.
        """
        if self.dimension is None or int(self.dimension) == self.n_params:
            return ""
        if self.account is not None:
            return self._in_the_same_regions(self.account)
        at, n = self.saturated_at, self.n_samples
        if at is None or int(self.dimension) == self.rows_of_jacobian:
            return ""
        if self._is_settled():
            last = "The last sample" if n - at == 1 else f"The last {n - at:,} samples"
            return f"{last} added nothing; samples of another kind still may."
        return f"The rank still grew at sample {at:,} of {n:,}: more samples may show more."

    def _in_the_same_regions(self, account: DimensionAccount) -> str:
        if self.regions is None:
            return ""
        found, enough = account.chain[:2]
        regions = f"{account.regions:,} linear regions" if account.regions > 1 else "linear region"
        where = f"More samples in the same {regions}"
        return (
            f"{where} would show {enough:,}." if enough > found else f"{where} would show no more."
        )

    def _is_settled(self) -> bool:
        """Whether the rank is known to have stood still over the last samples."""
        return (
            self.saturated_at is not None
            and self.n_samples - self.saturated_at > self.n_samples * _SETTLED
        )

    def _surplus(self) -> str:
        """Which units are off, and the smaller network, each with the samples it holds on."""
        parts = []
        if self.layers:
            off, cells = sum(s.off for s in self.layers), sum(s.cells for s in self.layers)
            verb = "is" if off == 1 else "are"
            some = (
                "the one sample" if self.n_given == 1 else f"some of the {self.n_given:,} samples"
            )
            parts.append(
                f"{off:,} of {cells:,} {self.units} {verb} off {_all_of(self.n_given)}"
                if off
                else f"all {cells:,} {self.units} are on at {some}"
            )
        if self.reduction is not None and self.reduction.parameters_saved:
            left = self.n_params - self.reduction.parameters_saved
            same = f"a network with {left:,} of the {self.n_params:,} parameters computes the same "
            parts.append(same + (_all_of(self.n_reduced) if self.n_reduced else "everywhere"))
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}." if text else ""

    def _size_rows(self) -> list[Row]:
        size, few = self.rows_of_jacobian, self.n_samples < self.n_given
        chosen = (
            f"; {self.n_samples:,} of the {self.n_given:,} samples, evenly spaced" if few else ""
        )
        outputs = (
            f"; rank and kernel are about {self._outputs}, and `outputs` chooses which"
            if self._chosen
            else ""
        )
        rows = [
            ("parameters", f"{self.n_params:,}", "D, all numbers that training may change"),
            (
                "samples × outputs",
                f"{self.n_samples:,} × {self.n_outputs:,}",
                f"{count_of(size, 'row')} of the Jacobian{chosen}{outputs}",
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
            late = "" if self._is_settled() else "; too late to say that it has settled"
            remark = f"of {self.n_samples:,} samples, in the order given{late}"
            rows.append(("  reached after", f"{self.saturated_at:,}", remark))
        if self.exact is not None and self.float64 is not None:
            rows.append(("  float64 would say", f"{int(self.float64):,}", _gap(self.float64)))
        if self.float32 is not None:
            rows.append(("  float32 would say", f"{int(self.float32):,}", _gap(self.float32)))
        return rows

    def _account_rows(self) -> list[Row]:
        rows: list[Row] = []
        if self.closed is not None:
            zero = "zero" if self.exact is not None else "0.0 in float64"
            remark = (
                f"their derivative is {zero} at every sample: no path through them is open"
                if self.closed
                else "each moves the outputs at some sample"
            )
            rows.append(("parameters without effect", f"{self.closed:,}", remark))
        if self.account is not None:
            free = self.n_params - int(self.account.functional)
            rows.append(
                ("directions that change nothing", f"{free:,}", self._reasons(self.account))
            )
        if self.symmetries is not None:
            found = self.symmetries
            rows.append(("symmetries by structure", f"{found.orbit:,}", _by_kind(found)))
        if self.conserved is not None:
            count = len(self.conserved)
            remark = (
                "what gradient flow keeps, whatever the data and the loss"
                if count
                else "no scaling or rotation of units is known to leave such a network unchanged"
            )
            rows.append(("conserved quantities", f"{count:,}", remark))
        if self.reduction is not None:
            size = f"{self.n_params - self.reduction.parameters_saved:,}"
            rows.append(
                ("equivalent smaller network", size, self._reduction_remark(self.reduction))
            )
        return rows

    def _reasons(self, account: DimensionAccount) -> str:
        """Directions by the reason why they change nothing: at every input tried first, as they
        are counted first.
        """
        few = account.chain[1] - account.chain[0]
        parts = (
            (_TRIED, account.everywhere, account.unexplained_everywhere),
            ("on the sample's regions only", account.on_regions, account.unexplained_on_regions),
            ("on the sample only", {FEW: few}, 0),
        )
        texts = []
        for where, counts, unexplained in parts:
            named = [(name, count) for name, count in counts.items() if count]
            named += [("unexplained", unexplained)] if unexplained else []
            if named:
                listed = ", ".join(
                    f"{count:,} {self._name_source(name, everywhere=where == _TRIED)}"
                    for name, count in named
                )
                texts.append(f"{where}: {listed}")
        return "; ".join(texts) or "all of them change the function"

    def _name_source(self, name: str, *, everywhere: bool) -> str:
        """A source of the account as the end of "182 directions …". How many units are inactive is
        known for the sample, not for every input tried.
        """
        if name == INACTIVE and self.layers:
            units = count_of(sum(s.inactive for s in self.layers), "inactive unit")
            return f"directions of {'inactive units' if everywhere else units}"
        if name == FEW:
            return "because a region has too few samples"
        return name if name.startswith(("confined", "unexplained")) else f"of {name}"

    def _reduction_remark(self, reduction: Reduction) -> str:
        """What went, and how far the outputs moved."""
        where = f"on {count_of(self.n_reduced, 'sample')}" if self.n_reduced else "everywhere"
        if not reduction.parameters_saved:
            unseen = ", ".join(dict.fromkeys(reduction.left_out))
            besides = f"; not looked at: the channels of {unseen}" if unseen else ""
            return f"no smaller one found: no unit or channel is off, constant or a copy {where}{besides}"
        net = perceptron(reduction.net)
        noun = "channel" if self.units == "channels" else "unit"
        fewer = (
            f"{count_of(reduction.neurons_saved, noun)} fewer"
            if reduction.neurons_saved
            else "no channel fewer, but scales and shifts folded into the weights beside them"
        )
        widths = "" if net is None else f" in {'-'.join(map(str, net.widths))}"
        deviation = f"deviation {reduction.deviation:.0e}" if reduction.deviation else "equal"
        return f"parameters{widths}: {fewer}, {deviation} {where}"

    def _region_rows(self) -> list[Row]:
        rows: list[Row] = []
        if self.regions is not None:
            bound = self.affine_dimension * self.regions * self.n_outputs
            binding = bound < min(self.rows_of_jacobian, self.n_params)
            allowed = (
                f"they allow a functional dimension of at most {bound:,}, however many samples they hold"
                if binding
                else "different patterns of units on and off"
            )
            rows.append(("linear regions sampled", f"{self.regions:,}", allowed))
        if self.layers:
            of, units = f"{sum(s.cells for s in self.layers):,}", kinds_of(self.layers)
            over = (
                f"; on all {self.n_given:,} samples given" if self.n_given > self.n_samples else ""
            )
            for kind, counts in (
                ("on", [s.on for s in self.layers]),
                ("off", [s.off for s in self.layers]),
            ):
                remark = f"by layer: {_list_counts(counts)}{over}"
                rows.append((f"{units} always {kind}", f"{sum(counts):,} of {of}", remark))
        return rows

    def _kernel_rows(self) -> list[Row]:
        s = self.spectrum
        if s is None:
            return []
        trace = (
            "their sum would need more memory"
            if np.isnan(s.trace)
            else f"they sum to {s.trace:.4g}"
        )
        if s.size == 1:
            return [("NTK eigenvalue", f"{s.eigenvalues[0]:.4g}", "the only one")]
        how = (
            f"of {s.size:,} eigenvalues"
            if s.complete
            else f"of {s.size:,} eigenvalues, the {len(s.eigenvalues):,} largest by {s.method}"
        )
        rows = [("NTK largest eigenvalue", f"{s.eigenvalues[0]:.4g}", f"{how}; {trace}")]
        if not np.isnan(s.effective_rank):
            rows.append(
                (
                    "  effective rank",
                    f"{s.effective_rank:.2f}",
                    "about how many directions make up the kernel",
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
                "of the kernel with the gradient"
                + (
                    f"; with the targets {d.kernel_alignment:.3f} of 1"
                    if np.isfinite(d.kernel_alignment)
                    else "; the targets are zero"
                ),
            ),
        ]

    def _bottleneck_rows(self) -> list[Row]:
        if self.bottleneck is None:
            return []
        found = self.bottleneck
        norm = (
            f"the squared parameters sum to {found.squared_norm:.4g}, and no network of this depth "
            f"computes the function with less than {found.norm_bound:.4g}"
        )
        narrower = self.bottleneck_layers
        if not narrower:
            why = (
                f"only layers that have no more than {count_of(found.rank, 'singular value')} look like one"
                if found.layers and found.rank
                else "no layer has its singular values near 0 and 1"
            )
            return [("bottleneck", "none", f"{why}; {norm}")]
        layers = f"layer{'s' if len(narrower) > 1 else ''} {_list_counts(narrower)}"
        where = f"in {layers} of {found.net.depth}; {norm}"
        return [("bottleneck", f"rank {found.rank}", where)]

    def _ranks_rows(self) -> list[Row]:
        """What is below full rank: in the weights, the representations, on the way to the output."""
        if self.ranks is None or not self.ranks.layers:
            return []
        found = self.ranks
        layers, short = found.layers, found.deficient
        low = [
            layer.name
            for layer in layers
            if int(layer.representation) < min(*layer.shape, found.samples * layer.positions)
        ]
        narrow = found.narrowest
        assert narrow is not None
        samples = count_of(found.samples, "sample")
        rows = [
            (
                "ranks along the network",
                f"{len(short)} of {len(layers)}",
                f"weight matrices below full rank{_list_names(short)}"
                + (f"; not looked at{_list_names(found.left_out)}" if found.left_out else ""),
            ),
            (
                "  representations",
                f"{len(low)} of {len(layers)}",
                f"below what the size of the layer and {samples} allow{_list_names(low)}; the smallest rank "
                f"is {int(narrow.representation)}, in {narrow.name}",
            ),
        ]
        if found.cuts:
            least = min(found.cuts, key=lambda cut: int(cut.to_output))
            blocks = [int(cut.block) for cut in found.cuts if cut.block is not None]
            smallest = (
                f"; of {len(blocks)} blocks formed the smallest has rank {min(blocks)}"
                if blocks
                else ""
            )
            cuts = f"{count_of(len(found.cuts), 'cut')} of the network"
            at = count_of(found.jacobians_at, "sample")
            remark = f"smallest rank over {cuts}, on {at}{smallest}"
            least_of = f"{int(least.to_output)} of {least.of}"
            rows.append(("  Jacobians to the output", least_of, remark))
        return rows

    def _left_out_rows(self) -> list[Row]:
        reasons: dict[str, list[str]] = {}
        for part in self.parts:
            if part.left_out:
                reasons.setdefault(part.left_out, []).append(part.title)
        return [(", ".join(titles), "not computed", why) for why, titles in reasons.items()]

    def __repr__(self) -> str:
        return f"Inspection({self.headline})"

    def _repr_html_(self) -> str:
        parts = [(name, count) for name, count in self.shares if count]
        known, values = self.dimension is not None, self.singular_values
        pictures = [bar(parts, "Where the parameters went")] if known else []
        if self.growth is not None:
            n = np.arange(1, len(self.growth) + 1)
            rank = Curve("functional dimension", n, self.growth)
            pictures.append(chart([rank], x="samples", y="functional dimension"))
        if values is not None and len(values):
            order = np.arange(1, len(values) + 1)
            spectrum = Curve("singular values", order, values, points=True)
            pictures.append(chart([spectrum], x="order", y="singular values of J", log=True))
        return card(
            self.model,
            self.verdict,
            pictures,
            table_of(parts, self.n_params) if known else (),
            colours=colours_of(parts),
            details=self.rows,
        )

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
    return f"{'no singular value counts as zero' if np.isinf(gap) else f'gap in the spectrum {gap:.2g}'}{sketched}"


def _list_counts(counts: Iterable[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts)


def _list_names(names: Sequence[str]) -> str:
    """After a colon, the first three and how many others."""
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f": {', '.join(names[:3])}{others}" if names else ""


def _all_of(n: int) -> str:
    return "on the one sample" if n == 1 else f"on all {n:,} samples"


def _by_kind(found: StructuralSymmetries) -> str:
    """Where the directions are that no input sees, and how far f moved along elements drawn."""
    listed = ", ".join(
        f"{count:,} of {kind} ({found.known(kind)})" for kind, count in found.kinds.items() if count
    )
    unseen = ", ".join(found.left_out)
    least = "" if found.exact else "at least; "
    besides = f"; not looked at: the channels of {unseen}" if unseen else ""
    if not listed:
        return f"{least}no rule of structure applies{besides}"
    return f"{least}{listed}; random ones moved f by {found.deviation:.0e}{besides}"
