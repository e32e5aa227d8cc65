"""The sections of an inspection: what each computes, why it is left out where it is, and about
what it costs.
"""

import contextlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.bottleneck.along import RanksAlong, ranks_along
from neuromanifold.bottleneck.structure import BottleneckStructure, bottleneck_structure
from neuromanifold.graph.walk import NoExactAnswer, refuse_inexact
from neuromanifold.inspection.costs import (
    LANCZOS_COUNT,
    RANKED,
    account_seconds,
    blocks_bytes,
    blocks_seconds,
    bottleneck_seconds,
    curvature_seconds,
    deciding_bytes,
    deciding_seconds,
    dense_kernel,
    duration,
    exact_bytes_of,
    exact_seconds,
    float32_seconds,
    float64_bytes,
    float64_seconds,
    growth_seconds,
    passes,
    path_bytes,
    path_seconds,
    ranks_bytes,
    ranks_seconds,
    reduction_bytes,
    reduction_seconds,
    scalings_bytes,
    scalings_seconds,
    spectrum_bytes,
    spectrum_seconds,
    symmetries_bytes,
    symmetries_seconds,
    units_seconds,
    whole_rank_seconds,
)
from neuromanifold.inspection.descent import Descent, descent
from neuromanifold.inspection.inspection import LayerRank
from neuromanifold.inspection.subject import Subject, thin, wide_leaf
from neuromanifold.inspection.units import statuses
from neuromanifold.models.model_kind import filters, perceptron
from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import first_rows
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.numerics.rank import Rank, rank_from_spectrum
from neuromanifold.numerics.validation import leading_axis
from neuromanifold.regions.patterns import require_piecewise_linear
from neuromanifold.symmetry.account.dimension_account import (
    LARGEST,
    DimensionAccount,
    account_of,
)
from neuromanifold.symmetry.account.rules import structural_symmetries
from neuromanifold.symmetry.conservation.balances import Scalings
from neuromanifold.symmetry.conservation.conserved import ConservedQuantities, conserved_quantities
from neuromanifold.symmetry.reduction.reduce import Reduction, reduction_of
from neuromanifold.tangent.kernel.spectrum import Spectrum, spectrum
from neuromanifold.tangent.rank.dimension import (
    UntrustworthyRank,
    functional_dimension,
    single_precision_rank,
)
from neuromanifold.tangent.rank.geometry import Geometry
from neuromanifold.tangent.rank.jacobian import jacobian

_LONGEST_ACCOUNT = 90.0  # seconds
_BATCHES = 6  # of inputs that seek regions beyond the sample's
_SMALL = 2**22  # entries of a Jacobian whose singular values are had in passing
_LARGE = 2**25  # entries of a Jacobian that residues are computed of in passing
_LONGEST_PASS = 1.0  # seconds of a pass over all samples that a reduction may hold on


class LeftOut(Exception):
    """A section that does not apply, with the reason as a clause."""


@dataclass(frozen=True)
class Section:
    """`field` of the inspection that it fills; `needs` is the section whose result it starts
    from, `concerns` says of which networks it is asked; `of_rows` are those that read rows of the
    Jacobian.
    """

    field: str
    title: str
    compute: Callable[[Subject], Any]
    obstacle: Callable[[Subject], str]
    seconds: Callable[[Subject], float]
    bytes: Callable[[Subject], int] = lambda s: 0
    needs: str = ""
    concerns: Callable[[Subject], bool] = lambda s: True
    of_rows: bool = False

    @property
    def grows(self) -> bool:
        """Whether its memory grows with the samples: others take one sample after another."""
        return self.of_rows and self.field != "blocks"

    def asked(self, s: Subject) -> Subject:
        """The network with the outputs that the section is about: where those were chosen, what is
        read off rows of the Jacobian is about them alone.
        """
        return s.seen if self.of_rows else s


def bent(s: Subject) -> str:
    """Why a network has no units that are on or off, where it has none."""
    units = any(unit.switches for unit in s.graph.units)
    return "" if units else "the network has no units that switch, as ReLU does"


def _linear_regions(s: Subject) -> str:
    try:
        require_piecewise_linear(s.graph)
    except ValueError as refusal:
        return _without_lines(str(refusal).partition(";")[0])
    return bent(s)


def _without_lines(reason: str) -> str:
    """Without lines of our own code, which a user of another library did not write."""
    return re.sub(r" \(\S*neuromanifold\S* \([\w.]+\)\)", "", reason)


def _exactly(s: Subject) -> str:
    try:
        refuse_inexact(s.graph, "it needs")
    except NoExactAnswer as refusal:
        operation = str(refusal).partition("`f` uses ")[2].partition(";")[0]
        return (
            "exact arithmetic is that of fractions, and the network uses "
            f"{_without_lines(operation)}"
        )
    return "" if s.exactly else "no exact arithmetic was asked for"


def _fit(s: Subject) -> float:
    """r²; for classes, the share of samples whose largest output is theirs."""
    if s.classifies:
        return float(np.mean(np.argmax(s.values, axis=-1) == np.argmax(s.y, axis=-1)))
    target = np.asarray(s.y, np.float64)
    spread = ((target - target.mean(axis=0)) ** 2).sum()
    if not spread:
        raise LeftOut("the targets are the same at all samples, so that there is no r²")
    return float(1 - ((s.values - target) ** 2).sum() / spread)


def _regions(s: Subject) -> int:
    patterns = np.concatenate(s.patterns, axis=1)
    return len(np.unique(np.packbits(patterns, axis=1), axis=0)) if patterns.shape[1] else 1


def _count_zero_columns(s: Subject) -> int:
    """How many columns of J are zero: by the decided bends, else those where Jᵀv is 0.0 for a random
    v, which no rounding makes zero unless every path is shut. A place outside an array stands for
    none where fewer rows are chosen than there is room for.
    """
    with contextlib.suppress(NoExactAnswer, IndexError):
        return int(s.geometry.decided.zero_columns.sum())
    return s.pulled[1]


def _blocks(s: Subject) -> tuple[LayerRank, ...]:
    """Layer by layer, the rank of J_l and ‖J_l‖²/‖J‖²: of J itself where it is small, else from
    Σ‖J_liᵀv‖² over random v, one or more at each sample i, whose mean is ‖J_l‖².
    """
    names = [name.rpartition(".")[0] or name for name in s.graph.parameters]
    if perceptron(s.f):
        names = [f"layer {int(name) + 1}" for name in names]
    sizes = [int(np.size(leaf)) for leaf in jax.tree.leaves(s.params)]
    members = {name: [k for k, other in enumerate(names) if other == name] for name in names}
    ranks: dict[str, int | None] = dict.fromkeys(members)
    if _cheap(s):
        squares = s.pulled[0]
    else:
        with arithmetic():
            rows = np.asarray(jacobian(s.f, *jax.tree.map(wide_leaf, (s.params, s.x))))
        if np.isfinite(rows).all():
            rows = rows / (np.abs(rows).max(initial=0.0) or 1.0)
            parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
            for name, mine in members.items():
                ranks[name] = _rank_of(np.concatenate([parts[k] for k in mine], axis=1))
            squares = np.array([(part**2).sum() for part in parts])
        else:
            squares = np.full(len(sizes), np.inf)
    if not np.isfinite(squares).all():
        raise LeftOut("its entries overflow float64 at these values")
    whole = float(squares.sum()) or 1.0
    return tuple(
        LayerRank(name, count, ranks[name], float(squares[mine].sum()) / whole)
        for name, mine in members.items()
        if (count := sum(sizes[k] for k in mine))
    )


def _rank_of(J: np.ndarray) -> int:
    return int(rank_from_spectrum(np.linalg.svd(J, compute_uv=False), J.shape))


def _exact_rank(s: Subject) -> Rank:
    """By the last layers where they prove it, by all columns where that is not too long."""
    seconds = whole_rank_seconds(s)
    if seconds > s.patience and s.geometry.by_last_layers is None:
        raise LeftOut(
            f"the last layers do not show it, and all together take about {duration(seconds)}: "
            "pass more `patience` or fewer `samples`"
        )
    return s.rank


def _growth(s: Subject) -> np.ndarray:
    """Ranks of J on the first 1, …, n samples: the rows that are independent of those before
    them, counted.
    """
    rows = _exact_rank(s).certificate.rows  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    if s.rows > s.columns:
        p = modular.random_prime(bits=modular.SMALL_BITS)
        rows = first_rows(s.problem.residues(p), p)
    return np.searchsorted(np.array(rows, int), s.outputs * np.arange(1, s.samples + 1))


def _growth_obstacle(s: Subject) -> str:
    large = s.exactly and s.rows > s.columns and s.rows * s.columns > _LARGE
    return _exactly(s) or (f"the Jacobian has {s.rows:,} × {s.columns:,} entries" if large else "")


def float64_rank(s: Subject) -> Rank:
    """The rank by singular values, its gap being part of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyRank)
        return functional_dimension(s.f, s.params, s.x, memory=s.budget)


def _cheap(s: Subject) -> str:
    large = s.rows * s.columns > _SMALL
    return f"left out of large Jacobians ({s.rows:,} × {s.columns:,} entries)" if large else ""


def _float64_obstacle(s: Subject) -> str:
    if s.exactly:
        return _cheap(s)
    held = 24 * s.rows * s.columns <= s.budget
    return (
        ""
        if held or not dense_kernel(s)
        else f"the Jacobian has {s.rows:,} × {s.columns:,} entries; the kernel's eigenvalues say it"
    )


def _spectrum(s: Subject) -> Spectrum:
    try:
        return spectrum(
            s.f,
            s.params,
            s.x,
            memory=s.budget,
            k=None if dense_kernel(s) else min(LANCZOS_COUNT, s.rows),
        )
    except ArithmeticError:
        raise LeftOut("its entries overflow float64 at these values") from None


def _descent(s: Subject) -> Descent:
    try:
        return descent(s.f, s.params, s.x, s.y, s.loss)
    except (ArithmeticError, ValueError) as error:
        raise LeftOut(str(error)) from None


def _account(s: Subject) -> DimensionAccount:
    groups = () if perceptron(s.f) else (s.scalings,)
    return account_of(s.geometry, groups=groups, batches=_BATCHES)


def _is_large(s: Subject) -> bool:
    return s.columns > LARGEST


def _account_obstacle(s: Subject) -> str:
    long = account_seconds(s) > _LONGEST_ACCOUNT
    chosen = "it is about all outputs, and some were chosen" if s.places else ""
    return (
        _exactly(s)
        or chosen
        or ("it would take minutes: `nm.dimension_account(f, params, x)` makes it" if long else "")
    )


def find_conserved(s: Subject, scalings: Callable[[], Scalings]) -> ConservedQuantities:
    """Those of an `nm.MLP` or `nm.LinearConvNet` by its description, of any other network the
    balances of its channels.
    """
    net: Any = s.f
    if perceptron(net) or filters(net):
        return conserved_quantities(
            net, jax.tree.map(lambda a: np.asarray(a, np.float64), s.params)
        )
    try:
        found = scalings().quantities(s.params)
    except ArithmeticError as error:
        raise LeftOut(str(error).removesuffix(".")) from None
    if not len(found):
        unseen = scalings().left_out
        besides = f" (not looked at: the channels of {', '.join(unseen)})" if unseen else ""
        raise LeftOut(
            f"no scaling of a channel leaves the network unchanged{besides}; "
            "`nm.symmetry.discover` seeks other symmetries"
        )
    return found


def samples_to_reduce_on(s: Subject) -> Any:
    """The samples that the smaller network agrees on: all that were given where one pass over
    them is short.
    """
    short = passes(s, 1) / s.samples * leading_axis(s.given) <= _LONGEST_PASS
    return s.given if short else s.x


def _reduction(s: Subject) -> Reduction:
    try:
        whole = samples_to_reduce_on(s)
        geometry = s.geometry if whole is s.x else Geometry(s.f, s.params, whole, memory=s.budget)
        return reduction_of(geometry)
    except ValueError as refusal:
        raise LeftOut(str(refusal).partition(";")[0]) from None


def _reduction_obstacle(s: Subject) -> str:
    """Perceptrons are reduced exactly, others by their channels."""
    return _exactly(s) if perceptron(s.f) else ""


def _bottleneck(s: Subject) -> BottleneckStructure:
    try:
        with np.errstate(over="raise"):
            return bottleneck_structure(*s.perceptron)
    except FloatingPointError:
        raise LeftOut("its numbers overflow float64 at these values") from None
    except ValueError as error:
        raise LeftOut(str(error)) from None


def _ranks(s: Subject) -> RanksAlong:
    """Representations on at most `RANKED` samples, Jacobians at a few of them."""
    some = thin(s.x, min(s.samples, RANKED))
    try:
        found = ranks_along(s.f, s.params, some, memory=s.budget)
    except np.linalg.LinAlgError:
        raise LeftOut("its numbers overflow float64 at these values") from None
    if not found.layers:
        raise LeftOut("no parameter enters by one product of matrices")
    return found


SECTIONS = (
    Section("fit", "fit", _fit, lambda s: "", lambda s: 0.1 + passes(s, 1)),
    Section("regions", "linear regions", _regions, _linear_regions, deciding_seconds, deciding_bytes),
    Section(
        "layers", "units", lambda s: statuses(s.f, s.graph, s.patterns, s.other_patterns()), bent,
        units_seconds, deciding_bytes, "regions",
    ),
    Section("exact", "exact rank", _exact_rank, _exactly, exact_seconds, exact_bytes_of, of_rows=True),
    Section("growth", "rank by number of samples", _growth, _growth_obstacle, growth_seconds, exact_bytes_of, "exact", of_rows=True),
    Section(
        "closed", "parameters without effect", _count_zero_columns, lambda s: "",
        path_seconds, path_bytes, "regions",
    ),
    Section("blocks", "parameters by layer", _blocks, lambda s: "", blocks_seconds, blocks_bytes, of_rows=True),
    Section("float64", "float64 rank", float64_rank, _float64_obstacle,
            float64_seconds, float64_bytes, of_rows=True),
    Section("float32", "float32 rank", lambda s: single_precision_rank(s.f, s.params, s.x), _cheap, float32_seconds, of_rows=True),
    Section("descent", "alignment and learning rate", _descent, lambda s: "", curvature_seconds),
    Section("spectrum", "kernel", _spectrum, lambda s: "", spectrum_seconds, spectrum_bytes, of_rows=True),
    Section(
        "account", "account of the parameters", _account, _account_obstacle, account_seconds,
        lambda s: 6 * 8 * s.columns**2, "exact", lambda s: not _is_large(s),
    ),
    Section(
        "symmetries", "symmetries by structure",
        lambda s: structural_symmetries(s.f, s.params, s.x), lambda s: "",
        symmetries_seconds, symmetries_bytes, concerns=_is_large,
    ),
    Section(
        "conserved", "conserved quantities", lambda s: find_conserved(s, lambda: s.scalings), lambda s: "",
        scalings_seconds, scalings_bytes,
    ),
    Section(
        "reduction", "equivalent smaller network", _reduction, _reduction_obstacle,
        reduction_seconds, reduction_bytes, "regions",
    ),
    Section(
        "bottleneck", "bottleneck", _bottleneck, lambda s: "", bottleneck_seconds,
        concerns=lambda s: bool(perceptron(s.f)),
    ),
    Section(
        "ranks", "ranks along the network", _ranks, lambda s: "", ranks_seconds, ranks_bytes,
        concerns=lambda s: not perceptron(s.f),
    ),
)  # fmt: skip
"""In no order: `inspect` sorts them by cost."""
