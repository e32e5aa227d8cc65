"""What JAX compiles, as its own log reports it."""

import contextlib
import logging
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The functions compiled inside the block, known when it is left."""
    names: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: names.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        jax.config.update("jax_log_compiles", True)  # for all threads: training compiles in its own
        yield names
    finally:
        jax.config.update("jax_log_compiles", False)
        logger.removeHandler(handler)
        names[:] = [name for name in names if name.startswith("Compiling ")]
