"""Groups of members that are compiled together, and the devices, cores and processes that train
them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from neuromanifold.numerics.precision import arithmetic
from neuromanifold.runtime.devices import devices
from neuromanifold.runtime.threads import beside, cores, lapack

LARGEST_ON_CPU = 16
"""A step of 16 small networks costs a core hardly more per network than one of 100, so that
cores beyond need not idle.
"""
SIDE_BY_SIDE = 4
"""So many groups must fit into the memory budget on any machine; with more cores, as many run at
a time as fit.
"""


@dataclass(frozen=True, eq=False)
class Lanes:
    """`members` cut into groups of equal `length`, so that one program serves them all; groups take
    turns on `devices`.

    The digits of a result depend on the length, and not on how many groups run at a time
    (`workers`), nor where. Where the last group is short it repeats the last member. Of several
    processes each has its own share of the groups.
    """

    members: int
    length: int
    devices: tuple[Any, ...]
    workers: int
    processes: int = 1
    process: int = 0

    @property
    def groups(self) -> int:
        """The number of groups of this process."""
        return -(-self.members // (self.length * self.processes))

    @property
    def index(self) -> np.ndarray:
        """(groups, length): which members this process trains."""
        slots = self.groups * self.length
        at = np.arange(self.process * slots, (self.process + 1) * slots)
        return np.minimum(at, self.members - 1).reshape(self.groups, self.length)

    def scatter(self, tree: Any) -> list[Any]:
        """Arrays with the axis of members in front, cut and put onto the devices."""
        return [
            self.put(group, jax.tree.map(lambda a, i=i: np.asarray(a)[i], tree))
            for group, i in enumerate(self.index)
        ]

    def put(self, group: int, tree: Any) -> Any:
        """`tree` on the group's device."""
        return jax.device_put(tree, self.devices[group % len(self.devices)])

    def shared(self, tree: Any) -> list[Any]:
        """`tree` for every group, once on each device."""
        copies = [jax.device_put(tree, device) for device in self.devices[: self.groups]]
        return [copies[group % len(copies)] for group in range(self.groups)]

    def gather(self, trees: list[Any]) -> Any:
        """What the groups of this process hold, one after the other, on the host."""
        return jax.tree.map(lambda *parts: np.concatenate([np.asarray(p) for p in parts]), *trees)

    def everywhere(self, tree: Any) -> Any:
        """What `gather` gives in each process, joined in all of them, without what the last
        group repeats.
        """
        if self.processes > 1:
            tree = jax.tree.map(_join_parts, tree)
        return jax.tree.map(lambda a: a[: self.members], tree)

    def each(self, work: Callable[..., Any], *columns: list[Any]) -> list[Any]:
        """`work` on one group after another, while no other thread calls LAPACK."""
        return beside(_alone, [(work, *row) for row in zip(*columns, strict=True)])

    def together(self, work: Callable[..., Any], *columns: list[Any]) -> list[Any]:
        """`work` on the groups, `workers` at a time. Only for programs that stay inside XLA: see
        `lapack`.
        """
        return beside(_finish, [(work, *row) for row in zip(*columns, strict=True)], self.workers)


def _finish(work: Callable[..., Any], *row: Any) -> Any:
    with arithmetic():  # JAX's contexts are local to the thread
        return jax.block_until_ready(work(*row))


def _alone(work: Callable[..., Any], *row: Any) -> Any:
    with lapack:
        return _finish(work, *row)


def _join_parts(a: np.ndarray) -> np.ndarray:
    from jax.experimental.multihost_utils import process_allgather

    # As bytes, so that no dtype is changed on the way.
    raw = np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8)
    parts = np.asarray(process_allgather(raw))
    return np.concatenate(
        [np.frombuffer(part.tobytes(), a.dtype).reshape(a.shape) for part in parts]
    )


def plan(members: int, bytes_each: int, budget: int, length: int | None = None) -> Lanes:
    """The groups. Their length follows from the members and the budget alone where the device is a
    CPU, on any number of cores.

    On accelerators a group is what one device takes. `length` says otherwise.
    """
    places = tuple(devices())
    length = length or _length(
        members, max(1, budget // (SIDE_BY_SIDE * max(1, bytes_each))), places
    )
    fitting = max(1, budget // max(1, length * bytes_each))
    side_by_side = cores() if len(places) == 1 and places[0].platform == "cpu" else len(places)
    return Lanes(
        members,
        length,
        places,
        min(side_by_side, fitting),
        jax.process_count(),
        jax.process_index(),
    )


def _length(members: int, largest: int, places: tuple[Any, ...]) -> int:
    if places[0].platform == "cpu":
        # A power of two groups, which most numbers of cores share evenly; four from eight members
        # on.
        needed = 1 << (-(-members // LARGEST_ON_CPU) - 1).bit_length()
        groups = max(needed, 1 << min(members // 2, 4).bit_length() >> 1, 1)
    else:
        groups = min(members, len(places) * jax.process_count())
    return min(-(-members // groups), largest)
