"""Exact arithmetic for the statements of `riemann`: filters with symbols for entries, integer
ranks, enumerated networks.
"""

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from neuromanifold.functionspace.polynomial import primitive
from neuromanifold.models.convolution import LinearConvNet, Shape
from neuromanifold_papers.statement import paste
from neuromanifold_papers.statement import statement as stated

EPS = float(np.finfo(np.float64).eps)


class Symbol(SimpleNamespace):
    """A polynomial with integer coefficients that NumPy takes for a number, so that the library's
    own formulas run on symbols.

    An identity between symbols is one between polynomials: it holds for all real values. The
    operations are lambdas because they are many and tiny, and the tests check the types of every
    call of a `def`.
    """

    _with: Any = lambda operation: (
        lambda a, b: (
            NotImplemented
            if isinstance(b, np.ndarray)
            else Symbol(value=operation(a.value, getattr(b, "value", b)))
        )
    )
    __add__: Any = _with(operator.add)
    __mul__: Any = _with(operator.mul)
    __sub__: Any = _with(operator.sub)
    __rsub__: Any = lambda a, b: Symbol(value=b - a.value)
    __neg__: Any = lambda a: Symbol(value=-a.value)
    __radd__, __rmul__ = __add__, __mul__


def symbols(shapes: Sequence[Shape]) -> tuple[np.ndarray, ...]:
    """One array of independent indeterminates for each shape, all in one ring.

    >>> a, b = symbols([(2,), (2,)])
    >>> str((a[0] * b[1] - b[1] * a[0]).value), str((a[0] + 2 * b[1]).value)
    ('0', 'z0 + 2*z3')
    """
    import flint

    sizes = [prod(shape) for shape in shapes]
    names = [f"z{i}" for i in range(sum(sizes))]
    entries = [Symbol(value=g) for g in flint.fmpz_mpoly_ctx.get(names, flint.Ordering.lex).gens()]
    bounds = np.cumsum([0, *sizes])
    return tuple(
        array_of(entries[a:b], shape)
        for a, b, shape in zip(bounds, bounds[1:], shapes, strict=False)
    )


def array_of(entries: Sequence[Any], shape: Shape) -> np.ndarray:
    """The entries as an object array, whatever they are."""
    array = np.empty(len(entries), object)
    array[:] = entries
    return array.reshape(shape)


def diagonal(entries: Sequence[Any]) -> np.ndarray:
    """The diagonal matrix of exact entries."""
    matrix = np.zeros((len(entries),) * 2, int).astype(object)
    for i, entry in enumerate(entries):
        matrix[i, i] = entry
    return matrix


def differing(left: Any, right: Any) -> int:
    """How many entries of two exact arrays differ, symbols compared as polynomials."""
    pairs = zip(np.asarray(left, object).ravel(), np.asarray(right, object).ravel(), strict=True)
    return sum(bool(getattr(a, "value", a) != getattr(b, "value", b)) for a, b in pairs)


def along(point: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """point + ε·direction, entries being integer polynomials in ε."""
    import flint

    pairs = zip(point.ravel().tolist(), direction.ravel().tolist(), strict=True)
    return array_of(
        [Symbol(value=flint.fmpz_poly([int(a), int(b)])) for a, b in pairs], point.shape
    )


def slope(values: Any) -> np.ndarray:
    """The coefficient of ε: the exact derivative of what was computed from `along`."""
    return np.array(
        [int(entry.value[1]) if isinstance(entry, Symbol) else 0 for entry in np.ravel(values)],
        object,
    )


def rank(matrix: np.ndarray) -> int:
    """The rank of a rational matrix.

    >>> rank(np.array([[1, 2], [2, 4]], object))
    1
    """
    import flint

    rows, columns = matrix.shape
    return flint.fmpz_mat(rows, columns, primitive(matrix)).rank()


def integer_filters(
    net: LinearConvNet, rng: np.random.Generator, size: int = 9
) -> tuple[np.ndarray, ...]:
    """Nonzero integer filters with entries up to `size`, as exact objects."""
    filters = []
    for shape in net.filter_shapes:
        w = rng.integers(-size, size + 1, shape)
        while not w.any():
            w = rng.integers(-size, size + 1, shape)
        filters.append(w.astype(object))
    return tuple(filters)


def signed_filters(net: LinearConvNet) -> Iterator[tuple[np.ndarray, ...]]:
    """All nonzero filters with entries −1, 0, 1, one of each pair ±w."""
    each = [
        [
            np.array(entries, object).reshape(shape)
            for entries in product((-1, 0, 1), repeat=prod(shape))
            if next((e for e in entries if e), 0) > 0
        ]
        for shape in net.filter_shapes
    ]
    yield from product(*each)


def gaussian_filters(net: LinearConvNet, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Filters with independent standard normal entries."""
    return tuple(rng.normal(size=shape) for shape in net.filter_shapes)


def gaussian_cases(
    nets: Sequence[LinearConvNet], *more: Any, least: int = 0, share: int = 1
) -> Any:
    """Cases of the networks in turn with Gaussian filters and what each of `more` draws for them: a
    `share` of the draws and at least so many.
    """

    def cases(rng: np.random.Generator, draws: int) -> Iterator[Any]:
        for index in range(max(draws // share, least)):
            net = nets[index % len(nets)]
            yield net, gaussian_filters(net, rng), *(draw(net, rng) for draw in more)

    return cases


def seed(net: Any, rng: np.random.Generator) -> int:
    """A seed for what the measure itself draws."""
    return int(rng.integers(1 << 31))


def units(w: np.ndarray) -> np.ndarray:
    """All arrays of the shape of `w` with one entry 1 and the others 0."""
    return np.eye(w.size, dtype=w.dtype).reshape(-1, *w.shape)


def sizes_of(net: LinearConvNet) -> tuple[int, ...]:
    """The filter sizes of a one-dimensional net."""
    return tuple(k for (k,) in net.filter_shapes)


def all_nets(
    shapes: Sequence[Any], strides: Sequence[Any], depths: Sequence[int] = (2,)
) -> Iterator[LinearConvNet]:
    """All nets with these filter shapes, or sizes, and inner strides, the smallest first; the last
    stride is 1.
    """
    last = np.ones_like(strides[0]).tolist()
    last = 1 if last == 1 else tuple(last)
    found = [
        LinearConvNet(k, (*s, last))
        for depth in depths
        for k in product(shapes, repeat=depth)
        for s in product(strides, repeat=depth - 1)
    ]
    yield from sorted(
        found, key=lambda net: (net.n_params, net.depth, net.end_to_end_shape, net.filter_shapes)
    )


def written(case: Any) -> str:
    """A case as Python one can paste; where it begins with a network as `nm.LinearConvNet(…),
    ([…], …), …`, arrays as lists.
    """
    parts = case if isinstance(case, tuple) else (case,)
    return ", ".join(map(_part, parts)) if _is_net(parts[0]) else paste(case)


def _is_net(value: Any) -> bool:
    return type(value).__module__.startswith("neuromanifold.models")


def _part(value: Any) -> str:
    if _is_net(value):
        return f"nm.{value!r}"
    if isinstance(value, tuple | list):
        inside = ", ".join(map(_part, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def hypotheses(net: LinearConvNet, **more: Any) -> dict[str, Any]:
    """What every statement about convolutions reports to have covered."""
    inner = sorted({entry for s in net.strides[:-1] for entry in s})
    return {
        "D": net.dimension,
        "H": net.depth,
        "sizes": str(tuple(k[0] if net.dimension == 1 else k for k in net.filter_shapes)),
        "inner strides": "none"
        if not inner
        else "one"
        if inner == [1]
        else "above one"
        if inner[0] > 1
        else "mixed",
        **more,
    }


def covers(case: Any) -> dict[str, Any]:
    """What a case that is a network, or begins with one, covers; so with what knows its hypotheses."""
    first = case[0] if isinstance(case, tuple) else case
    if _is_net(first):
        return hypotheses(first)
    return dict(getattr(first, "hypotheses", {}))


statement = partial(stated, show=written, covers=covers)
in_float64 = partial(statement, method="float64")
by_integration = partial(statement, method="integration")
by_training = partial(statement, method="training")
