"""The sections of an inspection: what each computes, why it is left out where it is, and about what it costs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.bottleneck.structure import BottleneckStructure, bottleneck_structure
from neuromanifold.graph.walk import NoExactAnswer, refuse_inexact
from neuromanifold.inspection.subject import Subject, exact_bytes
from neuromanifold.inspection.units import statuses
from neuromanifold.models.mlp import MLP
from neuromanifold.numerics import modular
from neuromanifold.numerics.profile import first_rows
from neuromanifold.numerics.rank import Rank
from neuromanifold.regions.signs import signs_of
from neuromanifold.symmetry.account import DimensionAccount, account_of
from neuromanifold.symmetry.reduce import Reduction, reduced_by
from neuromanifold.tangent.dimension import UntrustworthyRank, functional_dimension, single_precision_rank
from neuromanifold.tangent.spectrum import Spectrum, spectrum

_LARGEST_ACCOUNT = 5_000  # parameters; generators of wide linear layers number the square of their width
_SMALL = 2**22  # entries of a Jacobian whose singular values are had in passing
_LARGE = 2**25  # entries of a Jacobian that residues are computed of in passing
_DENSE_KERNEL, _LANCZOS_COUNT, _LANCZOS_PRODUCTS = 4096, 64, 150
_FLOP, _PRODUCT, _ENTRY = 4e-10, 2e-10, 8e-9
"""Seconds on one core: an operation of a float64 network, one in a matrix product of residues, an entry of residues."""


class LeftOut(Exception):
    """A section that does not apply, with the reason as a clause."""


@dataclass(frozen=True)
class Section:
    """`field` of the inspection that it fills; `needs` is the section whose result it starts from."""

    field: str
    title: str
    compute: Callable[[Subject], Any]
    obstacle: Callable[[Subject], str]
    seconds: Callable[[Subject], float]
    bytes: Callable[[Subject], int] = lambda s: 0
    needs: str = ""


def _bent(s: Subject) -> str:
    return "" if s.graph.piecewise_linear and s.graph.units else "the network is not piecewise linear"


def _exactly(s: Subject) -> str:
    try:
        refuse_inexact(s.graph, "it needs")
    except NoExactAnswer as refusal:
        return str(refusal).partition(";")[0]
    return "" if s.exactly else "no exact arithmetic was asked for"


def _perceptron(s: Subject) -> str:
    return "" if isinstance(s.f, MLP) else "known for perceptrons (nm.MLP) only"


def _passes(s: Subject, count: int) -> float:
    """Seconds of that many forward passes over the sample."""
    return count * s.samples * s.operations * _FLOP


def _cubes(s: Subject) -> float:
    """Seconds of some singular value decompositions of every weight matrix."""
    sides = zip(s.perceptron[0].widths, s.perceptron[0].widths[1:], strict=False)
    return 40 * _FLOP * sum(a * b * min(a, b) for a, b in sides)


def _fit(s: Subject) -> float:
    target = np.asarray(s.y, np.float64)
    residual = ((np.asarray(s.f(s.params, s.x)).astype(np.float64) - target) ** 2).sum()
    return float(1 - residual / ((target - target.mean(axis=0)) ** 2).sum())


def _regions(s: Subject) -> int:
    patterns = np.concatenate(s.patterns, axis=1)
    return len(np.unique(np.packbits(patterns, axis=1), axis=0)) if patterns.shape[1] else 1


def _exact_seconds(s: Subject) -> float:
    m = min(s.rows, s.columns)
    dense = s.rows * s.columns * (_ENTRY + m * _PRODUCT)
    sketched = s.exact_operations * _PRODUCT + s.rows * m * (_ENTRY + m * _PRODUCT)
    return min(dense, sketched)


def _exact_bytes(s: Subject) -> int:
    return exact_bytes(s.rows, [np.shape(leaf) for leaf in jax.tree.leaves(s.params)])


def _growth(s: Subject) -> np.ndarray:
    """Ranks of J on the first 1, …, n samples: the rows that are independent of those before them, counted."""
    rows = s.rank.certificate.rows  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    if s.rows > s.columns:
        p = modular.random_prime(bits=modular.SMALL_BITS)
        rows = first_rows(s.problem.residues(p), p)
    return np.searchsorted(np.array(rows, int), s.outputs * np.arange(1, s.samples + 1))


def _growth_obstacle(s: Subject) -> str:
    large = s.exactly and s.rows > s.columns and s.rows * s.columns > _LARGE
    return _exactly(s) or (f"the Jacobian has {s.rows:,} × {s.columns:,} entries" if large else "")


def _growth_seconds(s: Subject) -> float:
    return s.rows * s.columns * (_ENTRY + s.columns * _PRODUCT) if s.rows > s.columns else 0.0


def _float64(s: Subject) -> Rank:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustworthyRank)  # the gap is part of the table
        return functional_dimension(s.f, s.params, s.x, memory=s.budget)


def _cheap(s: Subject) -> str:
    large = s.rows * s.columns > _SMALL
    return f"the Jacobian has {s.rows:,} × {s.columns:,} entries" if large else ""


def _float64_seconds(s: Subject) -> float:
    m = min(s.rows, s.columns)
    if 3 * 8 * s.rows * s.columns <= s.budget:
        return 4 * s.rows * s.columns * m * _FLOP
    return _passes(s, 3 * (m + 10)) + 4 * s.rows * m * m * _FLOP


def _dense(s: Subject) -> bool:
    return s.rows <= _DENSE_KERNEL and 3 * 8 * s.rows**2 <= s.budget


def _spectrum(s: Subject) -> Spectrum:
    try:
        return spectrum(s.f, s.params, s.x, memory=s.budget, k=None if _dense(s) else min(_LANCZOS_COUNT, s.rows))
    except ArithmeticError:
        raise LeftOut("its entries overflow float64 at these values") from None


def _spectrum_seconds(s: Subject) -> float:
    if not _dense(s):
        return _passes(s, 3 * _LANCZOS_PRODUCTS)
    return _passes(s, 2 * s.outputs) + s.rows**2 * (2 * s.rows + s.samples) * _FLOP


def _account(s: Subject) -> DimensionAccount:
    return account_of(s.problem, s.params, s.rank)


def _account_obstacle(s: Subject) -> str:
    small = s.columns <= _LARGEST_ACCOUNT
    return _perceptron(s) or _exactly(s) or ("" if small else f"kept to {_LARGEST_ACCOUNT:,} parameters")


def _reduction(s: Subject) -> Reduction:
    net, params, x = s.perceptron
    return reduced_by(signs_of(net, s.problem.decisions, s.samples), net, params, x)


def _bottleneck(s: Subject) -> BottleneckStructure:
    try:
        with np.errstate(over="raise"):
            return bottleneck_structure(*s.perceptron)
    except FloatingPointError:
        raise LeftOut("its numbers overflow float64 at these values") from None
    except ValueError as error:
        raise LeftOut(str(error)) from None


SECTIONS = (
    Section("fit", "fit", _fit, lambda s: "", lambda s: _passes(s, 1)),
    Section("regions", "linear regions", _regions, _bent, lambda s: _passes(s, 20)),
    Section("layers", "units", lambda s: statuses(s.f, s.graph, s.patterns), _bent, lambda s: 0.0, needs="regions"),
    Section("exact", "exact rank", lambda s: s.rank, _exactly, _exact_seconds, _exact_bytes),
    Section("growth", "rank by number of samples", _growth, _growth_obstacle, _growth_seconds, _exact_bytes, "exact"),
    Section(
        "closed", "parameters without effect", lambda s: int(s.problem.zero_columns().sum()), _exactly,
        lambda s: s.rows * s.columns * _ENTRY, needs="regions",
    ),
    Section("float64", "float64 rank", _float64, lambda s: _cheap(s) if s.exactly else "", _float64_seconds),
    Section("float32", "float32 rank", lambda s: single_precision_rank(s.f, s.params, s.x), _cheap, _float64_seconds),
    Section("spectrum", "kernel", _spectrum, lambda s: "", _spectrum_seconds),
    Section(
        "account", "account of the parameters", _account, _account_obstacle, lambda s: s.columns**3 * _PRODUCT,
        lambda s: 3 * 8 * s.columns**2, "exact",
    ),
    Section(
        "reduction", "equivalent smaller network", _reduction, lambda s: _perceptron(s) or _exactly(s),
        lambda s: _cubes(s) / 10 + _passes(s, 20), needs="regions",
    ),
    Section(
        "bottleneck", "bottleneck", _bottleneck, _perceptron, lambda s: _cubes(s) + _passes(s, 10 * s.outputs)
    ),
)  # fmt: skip
"""In no order: `inspect` sorts them by cost."""
