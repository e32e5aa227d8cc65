"""`jax.jit` as the device at hand wants it."""

from collections.abc import Callable
from typing import Any

import jax

from neuromanifold.numerics.precision import is_traced, products_are
from neuromanifold.runtime.devices import devices

_QUICKLY: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
_ONCE: dict[str, Any] = {"xla_backend_optimization_level": 0}


class Compiled:
    """A function under `jax.jit`. Called from outside of any trace on a GPU it is compiled without
    Triton's matrix products.

    XLA would search 10 to 20 s among them for 4 % of speed (H200, JAX 0.11.2). Products of three
    passes need them, and inside a trace the caller's own `jit` decides.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...], once: bool) -> None:
        self.__wrapped__, self.__doc__ = function, function.__doc__
        self._plain = jax.jit(
            function, static_argnames=static, compiler_options=_ONCE if once else None
        )
        self._quick = jax.jit(function, static_argnames=static, compiler_options=_QUICKLY)

    def __call__(self, *args: Any, **options: Any) -> Any:
        plain = (
            devices()[0].platform != "gpu"
            or products_are("tf32x3", "bf16x3")
            or is_traced((args, options))
        )
        return (self._plain if plain else self._quick)(*args, **options)

    def lower(self, *args: Any, **options: Any) -> Any:
        """As `jax.jit(…).lower`."""
        return self._plain.lower(*args, **options)


def compiled(*static: str, once: bool = False) -> Callable[[Callable[..., Any]], Compiled]:
    """A decorator; `static` names the arguments that are no arrays. What is called `once`, from
    outside of any trace, is not optimised: half of a compilation is.

    >>> @compiled("power")
    ... def raised(x, power):
    ...     return x**power
    >>> float(raised(2.0, 3)), float(jax.jit(lambda x: raised(x, power=3))(2.0))
    (8.0, 8.0)
    """
    return lambda function: Compiled(function, static, once)
