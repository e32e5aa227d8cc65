"""What a training computes, in a few letters: its programs with all their constants, and where they run."""

import hashlib
import os
import re
from functools import partial
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

from neuromanifold.dynamics.probes import Probe
from neuromanifold.numerics.threads import cores

_DEEPEST = 8
_CALLBACK = re.compile(r"@\w*python\w*callback")


def programs(*lowered: Any) -> str:
    """A name for what JAX has lowered: operations, shapes, literals and constants, and nothing of the names in the source.

    Optimiser, schedule, loss, model, activation, hyperparameter function and probes are all in it.
    """
    state = hashlib.sha256()
    for one in lowered:
        text = one.as_text()
        if _CALLBACK.search(text):
            raise ValueError(
                "`checkpoint` cannot tell this training from another: model, loss, optimiser or probe calls back into Python, "
                "which is no part of the program; drop `jax.pure_callback` and `jax.debug`, or train without `checkpoint`."
            )
        state.update(text.encode())
    return state.hexdigest()[:16]


def host_code(probes: tuple[Probe, ...]) -> str:
    """A name for the code of probes that run on the host: instructions, constants, defaults and what they close over."""
    state = hashlib.sha256()
    for probe in probes:
        _feed(state, probe.fn, 0)
    return state.hexdigest()[:16]


def _feed(state: Any, thing: Any, depth: int) -> None:
    """What defines a function or a constant; of an object only its class, since its attributes may be counters."""
    if isinstance(thing, np.ndarray | jax.Array):
        state.update(f"{thing.dtype}{thing.shape}".encode() + np.asarray(thing).tobytes())
    elif isinstance(thing, str | bytes | int | float | complex | None):
        state.update(f"{thing!r}\0".encode())
    elif depth < _DEEPEST:
        for part in _parts(thing):
            _feed(state, part, depth + 1)


def _parts(thing: Any) -> tuple[Any, ...]:
    if isinstance(thing, CodeType):
        return (thing.co_code, thing.co_names, thing.co_consts)
    if isinstance(thing, FunctionType):
        cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
        return (thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells)
    if isinstance(thing, partial):
        return (thing.func, thing.args, thing.keywords)
    if isinstance(thing, tuple | list | frozenset):
        return tuple(thing)
    if isinstance(thing, dict):
        return tuple(thing.items())
    call = type(thing).__call__ if callable(thing) else None
    return (type(thing).__module__, type(thing).__qualname__, call if isinstance(call, FunctionType) else None)


def platform(device: Any) -> dict[str, str]:
    """Where the digits come from, as far as it has a name."""
    versions = f"{jax.__version__}, jaxlib {version('jaxlib')}"
    return {"platform": f"{device.platform} ({device.device_kind})", "jax": versions}


def pool_size() -> int:
    """The threads of XLA's pool on this host. Large products add in an order that depends on it; `NPROC` sets it."""
    given = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or ""
    return int(given) if given.isdigit() and int(given) > 0 else cores()
