"""Groups of members that train side by side: one for each device, or for each core where the only device is the CPU."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.numerics.precision import arithmetic


def devices() -> list[Any]:
    """The devices to train on, one entry for each group that runs at a time.

    XLA runs the many small operations of a training step on one core, so a CPU is worth as many groups as it has cores.
    """
    config: Any = jax.config
    default = config.jax_default_device
    found = (
        jax.local_devices() if default is None else [jax.devices(default)[0] if isinstance(default, str) else default]
    )
    return found * _cores() if len(found) == 1 and found[0].platform == "cpu" else found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """OpenBLAS on one thread in the block: jaxlib spreads a batch of matrices over the cores already.

    Its threads wait by spinning, which made the singular values of a 100×361 matrix a hundred times slower on a busy
    machine, and they have been seen to return nan for a finite matrix (scipy 1.17's OpenBLAS called by jaxlib).
    """
    import scipy.linalg  # noqa: F401  jaxlib takes its LAPACK from scipy, and only what is loaded can be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@dataclass(frozen=True, eq=False)
class Lanes:
    """`members` cut into groups of equal length (so that one program serves them all), each bound to a device.

    Where the last group is short, it repeats the last member.
    """

    members: int
    groups: int
    devices: tuple[Any, ...]

    @property
    def length(self) -> int:
        """The number of members in a group."""
        return -(-self.members // self.groups)

    def scatter(self, tree: Any) -> list[Any]:
        """Arrays with the axis of members in front, cut and put onto the devices."""
        at = np.minimum(np.arange(self.groups * self.length), self.members - 1).reshape(self.groups, self.length)
        return [self.put(group, jax.tree.map(lambda a, i=i: np.asarray(a)[i], tree)) for group, i in enumerate(at)]

    def put(self, group: int, tree: Any) -> Any:
        """`tree` on the group's device."""
        return jax.device_put(tree, self.devices[group % len(self.devices)])

    def gather(self, trees: list[Any]) -> Any:
        """The inverse of `scatter`, on the host."""
        return jax.tree.map(lambda *parts: np.concatenate([np.asarray(p) for p in parts])[: self.members], *trees)

    def each(self, work: Callable[..., Any], *columns: list[Any]) -> list[Any]:
        """`work` on one group after another."""
        return [_settled(work, *row) for row in zip(*columns, strict=True)]

    def together(self, work: Callable[..., Any], *columns: list[Any]) -> list[Any]:
        """`work` on the groups, as many at a time as there are devices.

        Only for programs that stay inside XLA: a call to LAPACK waits for threads of the pool that it occupies one of, so
        that two at a time wait for each other for ever where the pool has two.
        """
        with ThreadPoolExecutor(len(self.devices)) as pool:
            return list(pool.map(lambda row: _settled(work, *row), zip(*columns, strict=True)))


def _settled(work: Callable[..., Any], *row: Any) -> Any:
    with arithmetic():  # JAX's contexts are local to the thread
        return jax.block_until_ready(work(*row))


def plan(members: int, bytes_each: int, budget: int) -> Lanes:
    """As many groups as devices, or more where groups of that size would not fit into the budget together."""
    places = devices()
    at_once = max(1, budget // max(1, bytes_each * len(places)))
    groups = max(min(len(places), members), -(-members // at_once))
    return Lanes(members, groups, tuple(places[:groups]))
