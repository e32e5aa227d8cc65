import gc
import importlib.metadata
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
    # A test runs a program a few times: compiling costs more than it saves. `make acceptance` and
    # `make test-types` compile as users do.
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}.items():
    os.environ.setdefault(name, value)
# XLA ends a process at a flag that it does not know.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )


@pytest.fixture(scope="session", autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import neuromanifold as nm

    doctest_namespace.update(nm=nm, jax=jax, jnp=jnp, np=np)


@pytest.fixture(scope="module", autouse=True)
def few_compiled_programs() -> Iterator[None]:
    """Every compiled program keeps 1 MB and three maps of memory, of which Linux allows 65,530:
    forget them in time.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 8_000:
        import jax

        jax.clear_caches()
        gc.collect()


def pytest_collection_finish() -> None:
    """What collecting has made stays: the garbage collector need not look at it again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
