"""Random numbers on the host from JAX keys."""

from typing import Any

import jax
import numpy as np

Key = Any
"""A JAX key, such as `jax.random.key(0)`."""


def host_generator(key: Any) -> np.random.Generator:
    """NumPy's generator seeded by a JAX key: nothing is compiled. `None` is a fixed seed, for
    searches that must repeat.

    >>> a, b = (host_generator(jax.random.key(7)).integers(1 << 30) for _ in range(2))
    >>> bool(a == b)
    True
    """
    if key is None:
        return np.random.default_rng(0)
    check_key(key)
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32))


def check_key(key: Any) -> None:
    """Refuse what is no JAX key."""
    if not isinstance(key, jax.Array):
        raise TypeError(f"`key` is {key!r}; pass a JAX key such as jax.random.key(0).")
