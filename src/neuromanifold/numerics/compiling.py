"""`jax.jit` as the device at hand wants it."""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

from neuromanifold.numerics.precision import is_traced, products_are
from neuromanifold.runtime.devices import devices

# What makes compiling shorter: on a GPU without Triton's matrix products, on a CPU without XLA's
# second compiler for fused loops (half the time to the first kernel, as fast afterwards).
_QUICKLY: dict[str, dict[str, Any]] = {
    "gpu": {"xla_gpu_enable_triton_gemm": False},
    "cpu": {"xla_cpu_use_fusion_emitters": False},
}
_LIBRARY = "neuromanifold."
ONCE: dict[str, Any] = {"xla_backend_optimization_level": 0, **_QUICKLY["cpu"]}


@lru_cache
def accept_options(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """These options of XLA, or none where this version does not know them all."""
    try:
        jax.jit(lambda x: x).lower(0).compile(compiler_options=dict(options))
    except Exception:
        return {}
    return dict(options)


def run_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function under `jax.jit` that is called once: quickly compiled, slower to run."""
    return jax.jit(function, compiler_options=accept_options(tuple(ONCE.items())))


class Compiled:
    """A function under `jax.jit`, quickly compiled where it is called from outside of any trace.

    XLA would search 10 to 20 s among Triton's matrix products for 4 % of speed (H200, JAX 0.11.2).
    Products of three passes need them, and inside a trace the caller's own `jit` decides.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...]) -> None:
        self.__wrapped__, self.__doc__ = function, function.__doc__
        self._plain = jax.jit(function, static_argnames=static)
        self._quick = {
            platform: jax.jit(function, static_argnames=static, compiler_options=options)
            for platform, options in _QUICKLY.items()
        }

    def __call__(self, *args: Any, **options: Any) -> Any:
        platform = devices()[0].platform
        options_of = _QUICKLY.get(platform, {})
        plain = (
            not accept_options(tuple(options_of.items()))
            or products_are("tf32x3", "bf16x3")
            or is_traced((args, options))
        )
        return (self._plain if plain else self._quick[platform])(*args, **options)

    def clear_cache(self) -> None:
        """Forget what was compiled, as the method of `jax.jit(…)` does."""
        programs: tuple[Any, ...] = (self._plain, *self._quick.values())
        for program in programs:
            program.clear_cache()

    def lower(self, *args: Any, **options: Any) -> Any:
        """As `jax.jit(…).lower`."""
        return self._plain.lower(*args, **options)


def compiled(*static: str) -> Callable[[Callable[..., Any]], Compiled]:
    """A decorator; `static` names the arguments that are no arrays.

    >>> @compiled("power")
    ... def raised(x, power):
    ...     return x**power
    >>> float(raised(2.0, 3)), float(jax.jit(lambda x: raised(x, power=3))(2.0))
    (8.0, 8.0)
    """
    return lambda function: Compiled(function, static)


def release_programs() -> None:
    """Forget every program of the library that was compiled for a function: `jax.jit` keeps up to
    4096 of each kind, with the functions and about two megabytes apiece. The caller's own stay.
    """
    rooms = [each for name, each in sys.modules.copy().items() if name.startswith(_LIBRARY)]
    for value in (value for room in rooms for value in vars(room).copy().values()):
        if not isinstance(value, type) and callable(clear := getattr(value, "clear_cache", None)):
            clear()
