"""Which parts of an operation's operands a part of its result needs, along each axis.

A part of an array is a range of places for each of its axes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
Part = tuple[range, ...]
Options = Mapping[str, Any]
PartRule = Callable[[Options, Sequence[Shape], Shape, Part], list[Part] | None]
"""Options, the shapes of the operands and of the result, a part of the result: the operands' parts;
`None` where it takes the whole result to have that part.
"""


def whole(shape: Shape) -> Part:
    """All of an array."""
    return tuple(map(range, shape))


def hull(a: Part, b: Part) -> Part:
    """A part that holds both: the same range where they agree, else all places between their ends."""
    return tuple(map(_span_of, a, b))


def _span_of(one: range, two: range) -> range:
    if one == two or not one or not two:
        return one or two
    return range(min(one.start, two.start), 1 + max(one[-1], two[-1]))


def within(part: Part, of: Part) -> Part:
    """A part of an array in the places of a part that holds it."""
    return tuple(
        range(held.index(r.start), held.index(r[-1]) + 1, max(1, r.step // held.step)) if r else r
        for r, held in zip(part, of, strict=True)
    )


def entrywise(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """The same places of every operand; axes of one place are repeated, and so are scalars."""
    return [
        tuple(r if n == m else range(n) for r, n, m in zip(part, shape, out, strict=False))
        for shape in shapes
    ]


def slices(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """`lax.slice`."""
    strides = options["strides"] or (1,) * len(out)
    cut = zip(options["start_indices"], options["limit_indices"], strides, part, strict=True)
    return [tuple(range(a, b, s)[r.start : r.stop : r.step] for a, b, s, r in cut)]


def broadcast(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """`lax.broadcast_in_dim`: an axis of one place stays whole."""
    places = options["broadcast_dimensions"]
    kept = (part[d] if n == out[d] else range(n) for n, d in zip(shapes[0], places, strict=True))
    return [tuple(kept), *map(whole, shapes[1:])]


def transpose(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """`lax.transpose`."""
    found = dict(zip(options["permutation"], part, strict=True))
    return [tuple(found[d] for d in range(len(part)))]


def squeeze(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """`lax.squeeze`, and `lax.reduce_sum` and its like: axes that the result has not stay whole."""
    gone = options["axes"] if "axes" in options else options["dimensions"]
    kept = iter(part)
    return [
        tuple(range(n) if d in gone else next(kept) for d, n in enumerate(shape))
        for shape in shapes
    ]


def reshape(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part] | None:
    """`lax.reshape`: axes that stay axes, with as many entries before them as before."""
    if options["dimensions"] is not None:
        return None
    kept = {(math.prod(out[:d]), n): r for d, (n, r) in enumerate(zip(out, part, strict=True))}
    shape = shapes[0]
    found = tuple(
        kept.get((math.prod(shape[:d]), n), range(n)) if n > 1 else range(n)
        for d, n in enumerate(shape)
    )
    long = [r for n, r in zip(out, part, strict=True) if r != range(n)]
    lost = [r for r in long if not any(r is mine for mine in found)]
    return None if lost else [found, *map(whole, shapes[1:])]


def dot(options: Options, shapes: Sequence[Shape], out: Shape, part: Part) -> list[Part]:
    """`lax.dot_general`: axes in pairs, then those of one operand after those of the other."""
    summed, batched = options["dimension_numbers"]
    parts, asked = [list(whole(shape)) for shape in shapes], iter(part)
    for pair in zip(*batched, strict=True):
        r = next(asked)
        for operand, axis in enumerate(pair):
            parts[operand][axis] = r
    for operand, mine in enumerate(parts):
        for axis in range(len(mine)):
            if axis not in (*summed[operand], *batched[operand]):
                mine[axis] = next(asked)
    return [tuple(mine) for mine in parts]
