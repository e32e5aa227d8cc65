"""`Rank`: an integer that carries its evidence."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

Array = jax.Array | np.ndarray | np.generic


class Certificate(eqx.Module):
    """Why an exact rank is right, in a form that can be checked again."""

    @abc.abstractmethod
    def verify(self, net: Any, params: Any, x: Any) -> bool:
        """Whether an independent recomputation agrees."""


class Rank(eqx.Module):
    """A rank, with what it was read from.

    Numerically (`exact` is False): the number of entries of `spectrum` (singular values, largest first) above
    `threshold`; `gap` is the smallest kept over the largest dropped, infinite when nothing was dropped. A gap near 1
    means that the number depends on the threshold. Exactly: no spectrum was needed, and `certificate` says why.
    """

    value: Int[Array, "..."]
    spectrum: Float[Array, "... k"]
    threshold: Float[Array, "..."]
    gap: Float[Array, "..."]
    certificate: Certificate | None = None
    sketched: bool = eqx.field(static=True, default=False)

    @property
    def exact(self) -> bool:
        """Whether the value was computed in exact arithmetic."""
        return self.certificate is not None

    def __index__(self) -> int:
        return int(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> Any:
        return self.value == _value(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < _value(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _value(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _value(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _value(other)

    def __hash__(self) -> int:
        return hash(int(self.value))

    def __str__(self) -> str:
        if self.exact:
            return f"{int(self)} ({self.certificate})"
        sketched = ", sketched" if self.sketched else ""
        return f"{int(self)} (gap {float(self.gap):.2g}, threshold {float(self.threshold):.2g}{sketched})"


def _value(other: Any) -> Any:
    return other.value if isinstance(other, Rank) else other


def rank_from_spectrum(spectrum: Any, shape: tuple[int, int], rtol: Any = None) -> Rank:
    """How many singular values exceed `rtol · σ_max`; by default `rtol = max(shape) · eps`, as LAPACK's users have it.

    Backward stability gives the default: a computed singular value is off by a modest multiple of `eps · σ_max`.
    Works on tracers. A matrix without rows or columns has rank 0; a spectrum with nan has rank −1, so that no count can
    hide it.

    >>> rank = rank_from_spectrum(np.array([1.0, 1e-3, 1e-17]), (3, 3))
    >>> int(rank), float(rank.gap) > 1e13
    (2, True)
    """
    if spectrum.shape[-1] == 0:
        return Rank(np.int64(0), spectrum, np.float64(0.0), np.float64(np.inf))
    rtol = max(shape) * jnp.finfo(spectrum.dtype).eps if rtol is None else rtol
    threshold = rtol * spectrum[..., 0]
    kept = spectrum > threshold[..., None]
    smallest_kept = jnp.min(jnp.where(kept, spectrum, jnp.inf), axis=-1)
    largest_dropped = jnp.max(jnp.where(kept, 0.0, spectrum), axis=-1)
    undropped = kept.all(axis=-1) | (largest_dropped == 0)
    gap = jnp.where(undropped, jnp.inf, smallest_kept / jnp.where(undropped, 1.0, largest_dropped))
    undefined = jnp.isnan(spectrum).any(axis=-1)
    return Rank(jnp.where(undefined, -1, kept.sum(axis=-1)), spectrum, threshold, jnp.where(undefined, jnp.nan, gap))


def exact_rank(value: int, certificate: Certificate) -> Rank:
    """A rank known exactly: nothing was measured against a threshold, so the spectrum is empty and the gap infinite."""
    return Rank(np.int64(value), np.empty(0), np.float64(0.0), np.float64(np.inf), certificate)
