"""The devices of this process, the mesh they form, and what to do when one of them runs out of
memory.
"""

import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Result = TypeVar("Result")
AXIS = "samples"


_FUSED_SUMS = "xla_cpu_experimental_ynn_fusion_type"
_WRONG_SINCE, _NOT_KNOWN_FROM = (0, 10, 2), (0, 11)


class WrongSums(UserWarning):
    """JAX computed on a CPU before neuromanifold was imported, by sums that may be wrong."""


class BlockHalved(UserWarning):
    """A device ran out of memory, and the work went on in blocks of half the size."""


def keep_sums_right() -> None:
    """Turn off the fused sums of jaxlib 0.10.2 on a CPU: some are wrong in float32.

    Σ_j (h_ij/|h_i|) over 1,600 × 24 entries, differentiated for ten outputs at once, is off by 25 %
    there, right in float64 and in 0.10.1. XLA reads its flags before the first computation; after
    it there is only a warning.
    """
    installed = version("jaxlib")
    number = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    flags = os.environ.get("XLA_FLAGS", "")
    if not _WRONG_SINCE <= number < _NOT_KNOWN_FROM or _FUSED_SUMS in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} --{_FUSED_SUMS}=-reduce".strip()
    if _has_computed() and jax.default_backend() == "cpu":
        warnings.warn(
            f"JAX {installed} computed before neuromanifold was imported, and its float32 "
            "sums on a CPU may be wrong; import neuromanifold first, or set "
            f"XLA_FLAGS=--{_FUSED_SUMS}=-reduce.",
            WrongSums,
            stacklevel=2,
        )


def _has_computed() -> bool:
    """Whether JAX has started its devices: then their number can no longer be set."""
    config: Any = jax.config
    number = config.jax_num_cpu_devices
    try:
        jax.config.update("jax_num_cpu_devices", 1 if number != 1 else 2)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", number)
    return False


keep_sums_right()


def devices() -> list[Any]:
    """The devices of this process: all of them, or the one that `jax.default_device` names."""
    config: Any = jax.config
    default = config.jax_default_device
    if default is None:
        return jax.local_devices()
    return [jax.devices(default)[0] if isinstance(default, str) else default]


def multiplies_float64_faster() -> bool:
    """Whether the device multiplies float64 matrices faster than float32 ones at full precision
    (H200: 62 against 50 TF/s).
    """
    return any(name in devices()[0].device_kind for name in ("H100", "H200"))


_NO_DIGITS = ("--xla_force_host_platform_device_count", "--xla_dump")


def where_it_runs(device: Any = None) -> dict[str, str]:
    """What digits depend on beside the program, as far as it has a name: the device (by default
    the first), the versions of JAX, and what its compiler is told.
    """
    device = device or jax.devices()[0]
    return {
        "platform": f"{device.platform} ({device.device_kind})",
        "jax": f"{jax.__version__}, jaxlib {version('jaxlib')}",
        "compiler flags": compiler_flags(),
    }


def compiler_flags() -> str:
    """What XLA is told that changes digits: `XLA_FLAGS` but for the number of simulated devices
    and what is written for a reader, and JAX's switch for optimisations.
    """
    flags = os.environ.get("XLA_FLAGS", "").split()
    told = sorted(flag for flag in flags if not flag.startswith(_NO_DIGITS))
    few = ["few optimizations"] if jax.config.read("jax_disable_most_optimizations") else []
    return " ".join([*told, *few])


def mesh() -> Mesh | None:
    """The devices of this process in a row, or `None` where there is one."""
    places = tuple(devices())
    return _mesh(places) if len(places) > 1 else None


@lru_cache(maxsize=8)
def _mesh(places: tuple[Any, ...]) -> Mesh:
    return Mesh(np.array(places), (AXIS,))


def spread(tree: Any, over: Mesh) -> Any:
    """Arrays with their first axis shared out among the devices, or whole on each where it does
    not divide.
    """

    def placed(a: Any) -> Any:
        divides = a.ndim > 0 and a.shape[0] % over.size == 0
        return jax.device_put(
            a, NamedSharding(over, PartitionSpec(AXIS) if divides else PartitionSpec())
        )

    return jax.tree.map(placed, tree)


def whole(tree: Any, over: Mesh) -> Any:
    """Put arrays whole on every device."""
    return jax.device_put(tree, NamedSharding(over, PartitionSpec()))


def in_halves(work: Callable[[int], Result], block: int, what: str) -> Result:
    """`work(block)`; where a device has no memory for it, with half of `block`, and so on, saying
    so each time.

    >>> def work(block):
    ...     if block > 3:
    ...         raise MemoryError("RESOURCE_EXHAUSTED")
    ...     return block
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     (in_halves(work, 8, "samples"), len(said))
    (2, 2)
    """
    while True:
        try:
            return work(block)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if block == 1 or not (
                isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
            ):
                raise
        block //= 2
        warnings.warn(
            f"a device ran out of memory; going on with blocks of {block} {what}. Pass a smaller "
            "`memory` to begin there.",
            BlockHalved,
            stacklevel=2,
        )
