"""Training's record as an `xarray.Dataset` that says how it was made."""

from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.dynamics.epochs import Recipe
from neuromanifold.dynamics.lanes import Lanes
from neuromanifold.dynamics.optimizers import describe
from neuromanifold.dynamics.probes import Probe
from neuromanifold.dynamics.sweep import Sweep

PACKAGES = ("neuromanifold", "jax", "optax", "numpy")


def history(
    sweep: Sweep, probes: tuple[Probe, ...], records: dict[int, Any], attributes: dict[str, Any]
) -> Any:
    """Variables of dimensions (the sweep's axes, `epoch`, the probe's own), with coordinates and
    attributes.
    """
    import xarray

    variables = {}
    for probe in probes:
        a = sweep.unflatten(np.stack([record[probe.name] for record in records.values()], axis=1))
        variables[probe.name] = (
            (*sweep.axes, "epoch", *_own_dims(probe, a.ndim - len(sweep.axes) - 1)),
            a,
        )
    return xarray.Dataset(variables, {**sweep.axes, "epoch": np.array(list(records))}, attributes)


def _own_dims(probe: Probe, ndim: int) -> tuple[str, ...]:
    if probe.dims and len(probe.dims) != ndim:
        raise ValueError(
            f"probe {probe.name!r} names the axes {probe.dims} but its values have {ndim}; name "
            "each of them."
        )
    return probe.dims or tuple(f"{probe.name}_{axis}" for axis in range(ndim))


def attributes(recipe: Recipe, key: Any, dtype: Any, epochs: int, lanes: Lanes) -> dict[str, Any]:
    """How a training was made, in words and numbers that a NetCDF file can hold."""
    device, count = lanes.devices[0], len(lanes.devices[: lanes.groups]) * lanes.processes
    return {
        "title": "training",
        "model": describe(recipe.f),
        "loss": describe(recipe.loss),
        "optimizer": describe(recipe.optimizer),
        "batch_size": "full" if recipe.batch_size is None else recipe.batch_size,
        "epochs": epochs,
        "key": key_text(key),
        "dtype": str(dtype),
        "device": f"{count} × {device.device_kind} ({device.platform})",
        "chunk": lanes.length,
        "groups": lanes.groups * lanes.processes,
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def key_text(key: Any) -> str:
    """The key's implementation and words: what `jax.random.wrap_key_data` needs to make it
    again.
    """
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key).ravel().tolist()
    return f"{jax.random.key_impl(key) if typed else 'raw'} {' '.join(map(str, words))}"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(name)
    except PackageNotFoundError:
        return "from source"
