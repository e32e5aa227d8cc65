"""Which parameters share memory: equal ones are one parameter, overlapping ones none that a
pytree could hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class StoragePlace(NamedTuple):
    """Where a tensor lies: a storage, the first byte in it and the byte after the last, and how
    its entries are laid out.
    """

    storage: Any
    start: int
    stop: int
    layout: Any


def place(
    storage: Any, start: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]
) -> StoragePlace:
    """The place of a tensor whose first entry stands at byte `start` of its storage."""
    if 0 in shape:
        return StoragePlace(storage, start, start, (tuple(shape), tuple(strides)))
    span = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
    return StoragePlace(storage, start, start + span * itemsize, (tuple(shape), tuple(strides)))


def ties(
    places: Mapping[str, StoragePlace], constants: Mapping[str, StoragePlace]
) -> dict[str, str]:
    """For every parameter the name that stands for it: the first at the same place.

    >>> a = place("s", 0, 4, (2, 3), (3, 1))
    >>> ties({"embedding": a, "head": a, "other": place("s", 24, 4, (2,), (1,))}, {})
    {'embedding': 'embedding', 'head': 'embedding', 'other': 'other'}
    """
    first: dict[StoragePlace, str] = {}
    tied = {
        name: first.setdefault(where, name) if where.stop > where.start else name
        for name, where in places.items()
    }
    spans = sorted(
        (str(where.storage), where.start, where.stop, name) for where, name in first.items()
    )
    for (storage, _, stop, name), (other_storage, start, _, other) in zip(
        spans[:-1], spans[1:], strict=True
    ):
        if storage == other_storage and start < stop:
            raise ValueError(
                f"`module` has the parameters {name!r} and {other!r} in one memory but laid out "
                "differently (a view or a "
                "transpose); make one of them a step of forward."
            )
    for name, where in constants.items():
        for storage, start, stop, other in spans:
            if storage == str(where.storage) and start < where.stop and where.start < stop:
                raise ValueError(
                    f"`module` has the buffer {name!r} in the memory of the parameter {other!r}; "
                    "clone it."
                )
    return tied
