"""`Rank`: an integer that carries its evidence."""

import abc
import html
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from neuromanifold.numerics.drawing import (
    Curve,
    axes_of,
    bar,
    card,
    chart,
    colours_of,
    plot_bar,
    table_of,
)
from neuromanifold.numerics.precision import is_traced
from neuromanifold.numerics.results import Shown

Array = jax.Array | np.ndarray | np.generic
SMALLEST_GAP = 1e3
_ERROR_OF_SVD = 16.0


class Certificate(Shown, eqx.Module):
    """Why an exact rank is right, in a form that can be checked again."""

    rank: eqx.AbstractVar[int]

    @property
    def most(self) -> int | None:
        """The largest rank that the size of the matrix allows, where the certificate records it."""
        return None

    def headline(self) -> str:
        """Return the rank, and why."""
        return f"{self.rank}, {self}"

    @abc.abstractmethod
    def verify(self, net: Any, params: Any, x: Any) -> bool:
        """Return whether an independent recomputation agrees."""


class Rank(eqx.Module):
    """A rank, with what it was read from. It acts as the integer it is, from both sides, also under
    `jit` and `vmap`.

    Numerically (`exact` is False): the number of entries of `spectrum` (singular values, largest
    first) above `threshold`; `gap` is the smallest kept over the largest dropped, infinite when
    nothing was dropped. `rounding` is what errors of float64 may have added to a singular value,
    and `rescaled` the rank of the matrix whose rows and columns were multiplied by powers of two
    until they are of one size, which changes no rank; nan and `None` where nobody asked. `doubt`
    compares all of them. Exactly: no spectrum was needed, and `certificate` says why.

    >>> rank = rank_from_spectrum(np.array([1.0, 1e-3, 1e-17]), (3, 3))
    >>> rank + 1, 10 - rank, "abc"[rank], f"{rank:03d}", rank
    (3, 8, 'c', '002', Rank(2, gap 1e+14, threshold 6.7e-16))
    """

    value: Int[Array, "..."]
    spectrum: Float[Array, "... k"]
    threshold: Float[Array, "..."]
    gap: Float[Array, "..."]
    certificate: Certificate | None = None
    sketched: bool = eqx.field(static=True, default=False)
    rounding: float = eqx.field(static=True, default=math.nan)
    rescaled: int | None = eqx.field(static=True, default=None)

    @property
    def exact(self) -> bool:
        """Whether the value was computed in exact arithmetic."""
        return self.certificate is not None

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the number (see `doubt`)."""
        return not self.doubt()

    def doubt(self, smallest_gap: float = SMALLEST_GAP) -> str:
        """Say why the number may be wrong; empty where nothing speaks against it.

        Singular values of J + E lie within ‖E‖ of those of J. So a kept one above `rounding` is not
        zero, a dropped one above it is not zero either, and the count can only be trusted where all
        kept ones lie above it and all dropped ones below, with a gap between.

        >>> rank_from_spectrum(np.array([1.0, 1e-13, 1e-16]), (3, 3)).doubt(smallest_gap=1e4)
        'rests on a gap of only 1e+03 in the spectrum: it depends on the threshold'
        """
        if self.exact:
            return ""
        kept = np.asarray(self.spectrum) > np.asarray(self.threshold)
        smallest = float(np.min(self.spectrum, where=kept, initial=np.inf)) if kept.any() else 0.0
        largest = float(np.max(self.spectrum, where=~kept, initial=0.0))
        if float(self.gap) < smallest_gap:
            return (
                f"rests on a gap of only {float(self.gap):.2g} in the spectrum: it depends on the "
                "threshold"
            )
        if self.rescaled is not None and self.rescaled > int(self):
            return (
                f"is {self.rescaled} when rows and columns of the Jacobian are scaled to one size, "
                "which changes no rank: some are too small for float64 beside the others"
            )
        if smallest <= self.rounding > 0:
            return (
                f"belongs to a Jacobian that changes by {self.rounding:.2g} with the last bits of "
                f"its arguments, and the smallest singular value counted is {smallest:.2g}: "
                "rounding errors are as large, or an input lies on a kink"
            )
        if largest > max(self.rounding, error_of_svd(self.spectrum)):
            return (
                f"leaves out a singular value of {largest:.2g} that rounding, {self.rounding:.2g}, "
                "does not explain"
            )
        return ""

    def __index__(self) -> int:
        return int(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        return np.asarray(self.value).__array__(*args, **options)

    def __add__(self, other: Any) -> Any:
        return _number(self) + _number(other)

    def __radd__(self, other: Any) -> Any:
        return _number(other) + _number(self)

    def __sub__(self, other: Any) -> Any:
        return _number(self) - _number(other)

    def __rsub__(self, other: Any) -> Any:
        return _number(other) - _number(self)

    def __mul__(self, other: Any) -> Any:
        return _number(self) * _number(other)

    def __rmul__(self, other: Any) -> Any:
        return _number(other) * _number(self)

    def __truediv__(self, other: Any) -> Any:
        return _number(self) / _number(other)

    def __rtruediv__(self, other: Any) -> Any:
        return _number(other) / _number(self)

    def __floordiv__(self, other: Any) -> Any:
        return _number(self) // _number(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _number(other) // _number(self)

    def __mod__(self, other: Any) -> Any:
        return _number(self) % _number(other)

    def __rmod__(self, other: Any) -> Any:
        return _number(other) % _number(self)

    def __neg__(self) -> Any:
        return -_number(self)

    def __abs__(self) -> Any:
        return abs(_number(self))

    def __eq__(self, other: object) -> Any:
        return _number(self) == _number(other)

    def __lt__(self, other: Any) -> Any:
        return _number(self) < _number(other)

    def __le__(self, other: Any) -> Any:
        return _number(self) <= _number(other)

    def __gt__(self, other: Any) -> Any:
        return _number(self) > _number(other)

    def __ge__(self, other: Any) -> Any:
        return _number(self) >= _number(other)

    def __hash__(self) -> int:
        return hash(int(self.value))

    def __format__(self, specification: str) -> str:
        return format(_number(self), specification) if specification else str(self)

    def __str__(self) -> str:
        if is_traced(self.value) or np.ndim(self.value):
            return str(self.value)
        return f"{int(self)} ({self._evidence})"

    @property
    def _evidence(self) -> str:
        if self.exact:
            return str(self.certificate)
        sketched = ", sketched" if self.sketched else ""
        doubt = "" if self.trusted else ", doubtful"
        return f"gap {float(self.gap):.2g}, threshold {float(self.threshold):.2g}{sketched}{doubt}"

    def __repr__(self) -> str:
        if is_traced(self.value) or np.ndim(self.value):
            return f"Rank({self.value})"
        return f"Rank({int(self)}, {self._evidence})"

    def _repr_html_(self) -> str:
        if is_traced(self.value) or np.ndim(self.value):
            return f"<pre>{html.escape(str(self))}</pre>"
        if self.certificate is not None:
            parts = self._parts
            total = sum(count for _, count in parts)
            return card(
                "Rank",
                [f"{int(self):,}, {self.certificate}."],
                [bar(parts, "Rank")],
                table_of(parts, total),
                colours=colours_of(parts),
            )
        values = np.asarray(self.spectrum, float)
        threshold, gap = float(self.threshold), float(self.gap)
        points = Curve("singular values", np.arange(1, len(values) + 1), values, points=True)
        picture = chart([points], x="order", y="singular values", log=True, rule=threshold)
        rows = [
            ("singular values", f"{len(values):,}"),
            ("counted", f"{int(self):,}"),
            ("threshold", f"{threshold:.2g}"),
            ("gap", "infinite: nothing was dropped" if math.isinf(gap) else f"{gap:.2g}"),
        ]
        doubt = self.doubt()
        said = f"{int(self):,}{', sketched' if self.sketched else ''}" + (
            f"; it {doubt}." if doubt else "; nothing speaks against it."
        )
        return card("Rank", [said], [picture] if picture else [], rows)

    @property
    def _parts(self) -> list[tuple[str, int]]:
        """An exact rank, and what is missing to the largest that the matrix allows."""
        most = None if self.certificate is None else self.certificate.most
        return [
            ("rank", int(self)),
            *([("below the most that the matrix allows", most - int(self))] if most else []),
        ]

    def plot(self, axes: Any = None) -> Any:
        """Draw the singular values on a logarithmic scale with the threshold; of an exact rank a
        bar, beside what the size of the matrix allows. Returns the axes.
        """
        if is_traced(self.value) or np.ndim(self.value):
            raise ValueError(f"this holds ranks of shape {np.shape(self.value)}; plot one of them.")
        if self.exact:
            total = sum(count for _, count in self._parts)
            return plot_bar(axes_of(axes, (6, 1.5)), self._parts, total, x="directions")
        axes = axes_of(axes, (6, 3.5))
        values = np.asarray(self.spectrum, float)
        order, positive = np.arange(1, len(values) + 1), values > 0
        for which, label in ((order <= int(self), "counted"), (order > int(self), "dropped")):
            at = which & positive
            axes.semilogy(order[at], values[at], ".", ms=4, label=f"{label}: {which.sum():,}")
        if float(self.threshold) > 0:
            axes.axhline(float(self.threshold), color="0.4", ls=":", label="threshold")
        axes.set(xlabel="order", ylabel="singular value", title=f"rank {int(self):,}")
        axes.legend(frameon=False, fontsize=8)
        return axes


def _number(other: Any) -> Any:
    """A rank's value as Python has it, or as an array where there are several; anything else as
    it is.
    """
    if not isinstance(other, Rank):
        return other
    return (
        int(other.value)
        if np.ndim(other.value) == 0 and not is_traced(other.value)
        else other.value
    )


def rank_from_spectrum(spectrum: Any, shape: tuple[int, int], rtol: Any = None) -> Rank:
    """How many singular values exceed `rtol · σ_max`; by default `rtol = max(shape) · eps`, as
    LAPACK's users have it.

    Backward stability gives the default: a computed singular value is off by a modest multiple of
    `eps · σ_max`. Works on tracers. A matrix without rows or columns has rank 0; a spectrum with
    nan has rank −1, so that no count can hide it.

    >>> rank = rank_from_spectrum(np.array([1.0, 1e-3, 1e-17]), (3, 3))
    >>> int(rank), float(rank.gap) > 1e13
    (2, True)
    """
    if spectrum.shape[-1] == 0:
        return Rank(np.int64(0), spectrum, np.float64(0.0), np.float64(np.inf))
    xp = jnp if isinstance(spectrum, jax.Array) else np  # on the host nothing is compiled
    rtol = max(shape) * jnp.finfo(spectrum.dtype).eps if rtol is None else rtol
    threshold = xp.asarray(rtol * spectrum[..., 0])
    kept = spectrum > threshold[..., None]
    smallest_kept = xp.min(xp.where(kept, spectrum, np.inf), axis=-1)
    largest_dropped = xp.max(xp.where(kept, 0.0, spectrum), axis=-1)
    undropped = kept.all(axis=-1) | (largest_dropped == 0)
    gap = xp.where(undropped, np.inf, smallest_kept / xp.where(undropped, 1.0, largest_dropped))
    undefined = xp.isnan(spectrum).any(axis=-1)
    return Rank(
        xp.where(undefined, -1, kept.sum(axis=-1)),
        spectrum,
        threshold,
        xp.where(undefined, np.nan, gap),
    )


def error_of_svd(spectrum: Any) -> float:
    """Return what computing singular values adds to them: 16·eps·σ_max, as measured, where the
    proven bound has a factor of the matrix's size.
    """
    return _ERROR_OF_SVD * float(np.finfo(np.float64).eps) * float(np.max(spectrum, initial=0.0))


def exact_rank(value: int, certificate: Certificate) -> Rank:
    """A rank known exactly: nothing was measured against a threshold, so the spectrum is empty
    and the gap infinite.
    """
    return Rank(np.int64(value), np.empty(0), np.float64(0.0), np.float64(np.inf), certificate)


def numerical_rank(matrix: Any, *, rtol: float | None = None) -> Rank:
    """Return the rank of a matrix from its singular values in float64, on the host."""
    matrix = np.asarray(matrix, np.float64)
    spectrum = np.linalg.svd(matrix, compute_uv=False) if matrix.size else np.zeros(0)
    return rank_from_spectrum(spectrum, matrix.shape, rtol)
