"""Complex numbers and Fourier transforms."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from neuromanifold.models.adapters.torch.operations.base import Table, table


def view_as_complex(x: Any) -> Any:
    """Pairs on the last axis as complex numbers."""
    return jax.lax.complex(x[..., 0], x[..., 1])


def view_as_real(z: Any) -> Any:
    """Complex numbers as pairs on a new last axis."""
    return jnp.stack([jnp.real(z), jnp.imag(z)], axis=-1)


def polar(size: Any, angle: Any) -> Any:
    """r exp(iφ)."""
    return jax.lax.complex(*jnp.broadcast_arrays(size * jnp.cos(angle), size * jnp.sin(angle)))


def _scale(y: Any, normalisation: int, n: int) -> Any:
    """ATen's numbers for a transform as it is, divided by √n, divided by n."""
    return y if normalisation == 0 else y / (math.sqrt(n) if normalisation == 1 else n)


def _count(shape: Sequence[int], dim: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dim)


def transform_real(x: Any, dim: Sequence[int], normalisation: int, onesided: bool) -> Any:
    """The Fourier transform of real numbers, its last axis halved on request."""
    y = (jnp.fft.rfftn if onesided else jnp.fft.fftn)(x, axes=tuple(dim))
    return _scale(y, normalisation, _count(x.shape, dim))


def transform_back(z: Any, dim: Sequence[int], normalisation: int, last: int) -> Any:
    """The inverse transform to real numbers, `last` of them on the last axis."""
    sizes = [*(z.shape[d] for d in dim[:-1]), last]
    return _scale(
        jnp.fft.irfftn(z, s=sizes, axes=tuple(dim), norm="forward"), normalisation, math.prod(sizes)
    )


def transform(z: Any, dim: Sequence[int], normalisation: int, forward: bool) -> Any:
    """The Fourier transform or its inverse, neither with a factor of its own."""
    y = (
        jnp.fft.fftn(z, axes=tuple(dim))
        if forward
        else jnp.fft.ifftn(z, axes=tuple(dim), norm="forward")
    )
    return _scale(y, normalisation, _count(z.shape, dim))


SPECTRAL: Table = table(
    {
        "complex.default": jax.lax.complex,
        "polar.default": polar,
        "view_as_complex.default": view_as_complex,
        "view_as_real.default": view_as_real,
        "real.default": jnp.real,
        "imag.default": jnp.imag,
        "_fft_r2c.default": transform_real,
        "_fft_c2r.default": transform_back,
        "_fft_c2c.default": transform,
    }
)
