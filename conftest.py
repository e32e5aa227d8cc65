import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Compiled programs are kept between runs and shared with the processes that tests start.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "neuromanifold" / "jax"
for name, value in {
    "JAX_COMPILATION_CACHE_DIR": str(CACHE),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(name, value)


@pytest.fixture(scope="session", autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import neuromanifold as nm

    doctest_namespace.update(nm=nm, jax=jax, jnp=jnp, np=np)


@pytest.fixture(scope="module", autouse=True)
def few_compiled_programs() -> Iterator[None]:
    """Every compiled program maps memory, and Linux ends a process with more than 65,530 maps:
    forget them in time.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 25_000:
        import jax

        jax.clear_caches()
        gc.collect()
