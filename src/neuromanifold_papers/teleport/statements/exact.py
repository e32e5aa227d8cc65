"""Symmetries of small networks over the rationals: second-order jets, and the law by which
derivatives change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, reduce
from itertools import product
from typing import Any

import jax
import numpy as np

from neuromanifold.models.activation import Activation, activation_named, power
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP
from neuromanifold.symmetry.groups.hadamard import flatten, unflatten
from neuromanifold.symmetry.groups.monomial import Monomial, monomial

# Not homogeneous, so that a move which depends on the data is needed; over the rationals, so that
# it can be taken exactly.
BENT = Activation(
    lambda z: z + z * z, name="z + z²", polynomial=(0.0, 1.0, 1.0), degree=None, scalars=None
)


@dataclass(frozen=True, eq=False)
class Jet:
    """A rational number with its first and second derivatives by D parameters: `value + slope·δ
    + ½ δᵀ curve δ`.
    """

    value: Fraction
    slope: np.ndarray
    curve: np.ndarray

    def __add__(self, other: Any) -> "Jet":
        if isinstance(other, Jet):
            return Jet(self.value + other.value, self.slope + other.slope, self.curve + other.curve)
        return Jet(self.value + Fraction(other), self.slope, self.curve)

    __radd__ = __add__

    def __neg__(self) -> "Jet":
        return Jet(-self.value, -self.slope, -self.curve)

    def __sub__(self, other: Any) -> "Jet":
        return self + (-other)

    def __rsub__(self, other: Any) -> "Jet":
        return other + (-self)

    def __mul__(self, other: Any) -> "Jet":
        if not isinstance(other, Jet):
            c = Fraction(other)
            return Jet(c * self.value, c * self.slope, c * self.curve)
        cross = np.outer(self.slope, other.slope)
        return Jet(
            self.value * other.value,
            self.value * other.slope + other.value * self.slope,
            self.value * other.curve + other.value * self.curve + cross + cross.T,
        )

    __rmul__ = __mul__

    @property
    def reciprocal(self) -> "Jet":
        """1/·, where the value is not zero."""
        r = 1 / self.value
        return Jet(
            r, -(r**2) * self.slope, 2 * r**3 * np.outer(self.slope, self.slope) - r**2 * self.curve
        )

    def __truediv__(self, other: Any) -> "Jet":
        return self * (other.reciprocal if isinstance(other, Jet) else 1 / Fraction(other))

    def __rtruediv__(self, other: Any) -> "Jet":
        return self.reciprocal * other


def variables(values: Sequence[Fraction]) -> np.ndarray:
    """The parameters as jets: each with slope 1 by itself."""
    unit = rationals(np.eye(len(values), dtype=int))
    pairs = zip(values, unit, strict=True)
    return objects([Jet(Fraction(value), row, 0 * unit) for value, row in pairs])


def rationals(array: Any) -> np.ndarray:
    """The entries as fractions, exactly."""
    array = np.asarray(array)
    return objects([Fraction(value) for value in array.ravel().tolist()]).reshape(array.shape)


def objects(values: Sequence[Any]) -> np.ndarray:
    """A vector of whatever is given, which NumPy must not look into."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def activated(activation: Activation, z: Any) -> Any:
    """σ(z) for σ a polynomial or linear on either side of 0; z a fraction or a jet."""
    if activation.polynomial is not None:
        return reduce(lambda value, c: value * z + Fraction(c), activation.polynomial[::-1], 0 * z)
    if activation.slopes is None:
        raise ValueError(
            f"{activation} is neither a polynomial nor piecewise linear; it has no rational values."
        )
    size = z.value if isinstance(z, Jet) else z
    return z * Fraction(activation.slopes[1 if size > 0 else 0])


def outputs(net: MLP, params: Any, x: Sequence[Sequence[Fraction]]) -> list[Any]:
    """f_θ(x), one sample after the other, in rational arithmetic."""
    found: list[Any] = []
    for sample in x:
        a = rationals(sample)
        for layer, activation in zip(params, net.activations, strict=True):
            z = layer.weight @ a if layer.bias is None else layer.weight @ a + layer.bias
            a = objects([activated(activation, entry) for entry in z])  # pyright: ignore[reportArgumentType]
        found += a.tolist()
    return found


def layers(net: MLP, flat: np.ndarray) -> Any:
    """A vector of parameters as those of `net`."""
    shapes = zip(net.widths[:-1], net.widths[1:], strict=True)
    empty = tuple(Layer(np.empty((b, a)), np.empty(b) if net.bias else None) for a, b in shapes)
    return unflatten(empty, flat)


@dataclass(frozen=True, eq=False)
class Move:
    """A symmetry g of `net` at the point θ, with samples.

    `act` takes the layers of θ, as arrays of any numbers; `back` is its inverse where g is
    nonlinear, `element` the library's g.
    """

    kind: str
    net: MLP
    act: Callable[[Any], Any]
    theta: tuple[Fraction, ...]
    x: tuple[tuple[Fraction, ...], ...]
    element: Monomial | None = None
    back: Callable[[Any], Any] | None = None

    @property
    def hypotheses(self) -> dict[str, Any]:
        """Which part of the range this is."""
        return {
            "symmetry": self.kind,
            "activation": str(self.net.activation[0]),
            "hidden layers": self.net.depth - 1,
            "arithmetic": "rational",
        }

    def __str__(self) -> str:
        g = self.element
        hidden = [] if g is None else zip(g.order[:-1], g.into[:-1], strict=True)
        order = "".join(
            f"; layer {k}: order {p.tolist()}, factors {[float(c) for c in u]}"
            for k, (p, u) in enumerate(hidden)
        )
        return (
            f"# {self.kind} of {self.net}{order}\n"
            f"theta = {_text(self.theta)}\nmoved = {_text(moved(self))}\nx = "
            f"[{', '.join(map(_text, self.x))}]"
        )


def _text(values: Any) -> str:
    return "[" + ", ".join(str(value) for value in values) + "]"


@dataclass(frozen=True, eq=False)
class Law:
    """What g does at θ, exactly: Γ, T_{μρσ} = ∂_μ∂_ρ g_σ, and outputs (as jets) before and
    after.
    """

    gamma: np.ndarray
    second: np.ndarray
    before: list[Jet]
    after: list[Jet]


def moved(case: Move) -> list[Fraction]:
    """g(θ)."""
    return flatten(case.act(layers(case.net, rationals(case.theta)))).tolist()


def derivatives(
    net: MLP, act: Callable[[Any], Any], theta: Sequence[Fraction]
) -> tuple[np.ndarray, np.ndarray]:
    """Γ⁻¹_{αβ} = ∂_α g_β and T_{μρσ} = ∂_μ∂_ρ g_σ.   [teleport, Eq. 15, 66]"""
    image = flatten(act(layers(net, variables(theta))))
    slopes, curves = [jet.slope for jet in image], [jet.curve for jet in image]
    return np.stack(slopes, axis=1), np.stack(curves, axis=2)


@lru_cache(maxsize=512)
def law(case: Move) -> Law:
    """Γ, T and the network's derivatives on both sides of the symmetry."""
    derivative, second = derivatives(case.net, case.act, case.theta)
    points = (layers(case.net, variables(at)) for at in (case.theta, moved(case)))
    return Law(inverse(derivative), second, *(outputs(case.net, at, case.x) for at in points))


def inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse over the rationals."""
    import flint

    found = flint.fmpq_mat(
        [[flint.fmpq(v.numerator, v.denominator) for v in row] for row in matrix.tolist()]
    ).inv()
    return objects([Fraction(int(v.p), int(v.q)) for v in found.entries()]).reshape(matrix.shape)


def largest(array: Any) -> Any:
    """The largest absolute entry."""
    return max((abs(value) for value in np.ravel(array)), default=Fraction(0))


def half_square(values: Sequence[Jet]) -> Jet:
    """L = ½ Σ (F − 1)², a loss on rational outputs with rational derivatives."""
    total: Any = sum((value - 1) * (value - 1) for value in values)
    return total * HALF


_NUMBERS = [-7, -5, -2, 2, 5, 7]
HALF, TWO, THREE = Fraction(1, 2), Fraction(2), Fraction(3)
REAL = (activation_named("identity"), power(2), power(3))
POSITIVE = (activation_named("relu"), activation_named("abs"), activation_named("leaky_relu"))


def rational_monomial(net: MLP, into: Any, out: Any, orders: Any = None) -> Monomial:
    """The library's element with rational factors before and after the hidden activations."""
    factors = [*map(rationals, into), rationals(np.ones(net.widths[-1], int))]
    order = None if orders is None else [np.array(p) for p in orders]
    return monomial(net, order=order, into=factors, out=[*map(rationals, out)])


def rounded(tree: Any) -> Any:
    """Rational arrays as float64; indices as they are."""
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float64) if leaf.dtype == object else leaf, tree
    )


def monomial_move(
    net: MLP,
    orders: Any,
    factors: Any,
    theta: Sequence[Any],
    x: Sequence[Sequence[Any]],
    *,
    kind: str,
) -> Move:
    """Hidden neurons reordered and multiplied by factors c, their outgoing weights by c^{−d};
    `orders`, `factors` by layer.
    """
    degrees = [int(activation.degree or 0) for activation in net.activation]  # pyright: ignore[reportAttributeAccessIssue]
    out = [rationals(c) ** d for c, d in zip(factors, degrees, strict=True)]
    g = rational_monomial(net, factors, out, orders)
    return Move(kind, net, g.act, _exact(theta), tuple(map(_exact, x)), element=g)


def _exact(values: Sequence[Any]) -> tuple[Fraction, ...]:
    return tuple(Fraction(value) for value in values)


def _small_moves() -> Iterator[Move]:
    """Scalings of one neuron, then swaps, cycles and scaled swaps of two and three: the smallest
    first, fixed parameters.
    """
    for activation, c in product((*REAL, *POSITIVE), (TWO, -TWO)):
        if c > 0 or activation.scalars == "real":
            net = MLP((1, 1, 1), activation, bias=False)
            yield monomial_move(net, [[0]], [[c]], (1, 3), [[1]], kind="scaling")
    for activation in (*REAL, *POSITIVE):
        net = MLP((1, 2, 1), activation, bias=False)
        for factors, kind in (([1, 1], "permutation"), ([TWO, 1], "scaled permutation")):
            yield monomial_move(net, [[1, 0]], [factors], (1, 2, 3, 1), [[1]], kind=kind)
    for activation in (*REAL, *POSITIVE):
        net = MLP((1, 3, 1), activation)
        theta = (1, 2, -1, HALF, 1, 3, 2, -1, 1, HALF)
        yield monomial_move(
            net, [[1, 2, 0]], [[1, 1, 1]], theta, [[1], [-2]], kind="cyclic permutation"
        )
    yield mixing_move(((1, 1), (0, 1)), (1, 2, 3, 1), [[1]])
    yield mixing_move(((2, 1), (1, 1)), (1, 2, 3, -1), [[1], [2]])


small_moves = cache(lambda: tuple(_small_moves()))


def mixing_move(matrix: Any, theta: Sequence[Any], x: Sequence[Sequence[Any]]) -> Move:
    """(W, V) ↦ (AW, VA⁻¹) for a 1-2-1 network of linear neurons."""
    a = rationals(matrix)
    back = inverse(a)

    def act(params: Any) -> Any:
        first, last = params
        return Layer(a @ first.weight, None), Layer(last.weight @ back, None)

    net = MLP((1, 2, 1), "identity", bias=False)
    return Move("general linear", net, act, _exact(theta), tuple(map(_exact, x)))


def drawn_move(rng: np.random.Generator, *, kind: str = "scaled permutation") -> Move:
    """A random scaling, permuted unless `kind` is "scaling", of one or two hidden layers at a
    random rational point.
    """
    activation = (*REAL, *POSITIVE)[rng.integers(6)]
    widths = ((2, 2, 2), (1, 3, 1), (1, 2, 2, 1))[rng.integers(3)]
    net = MLP(widths, activation, bias=bool(rng.integers(2)))
    signs = (-1, 1) if activation.scalars == "real" else (1,)
    orders = [np.arange(w) if kind == "scaling" else rng.permutation(w) for w in widths[1:-1]]
    factors = [
        [rng.choice(signs) * (HALF, Fraction(1), TWO, THREE)[rng.integers(4)] for _ in range(w)]
        for w in widths[1:-1]
    ]
    theta = [Fraction(int(v), 2) for v in rng.choice([-5, -3, -1, 1, 2, 3, 5], net.n_params)]
    x = [[Fraction(int(v), 7) for v in rng.integers(-9, 10, widths[0])] for _ in range(2)]
    return monomial_move(net, orders, factors, theta, x, kind=kind)


def nonlinear_moves() -> Iterator[Move]:
    """Symmetries whose factors depend on the parameters, or on the data; over the rationals,
    smallest first.
    """
    line = MLP((1, 1, 1), "identity", bias=False)
    for theta in ((1, 2), (-3, HALF), (2, -3)):
        yield Move("inversion", line, inverted, _exact(theta), (_exact([1]),), back=inverted)
    bent = MLP((1, 1, 1), BENT, bias=False)
    for theta, c, x in (((1, 2), TWO, 1), ((2, -1), HALF, 3), ((-3, 1), -THREE, HALF)):
        act, back = (batch(factor, Fraction(x)) for factor in (c, 1 / c))
        yield Move("data-dependent", bent, act, _exact(theta), (_exact([x]),), back=back)
    pair = MLP((1, 2, 1), "identity", bias=False)
    for theta in ((1, 0, 2, 0), (1, 2, 3, 1)):
        at, x, back = _exact(theta), (_exact([1]),), swapped_back
        yield Move("inversion and swap", pair, inverted_and_swapped, at, x, back=back)


def drawn_nonlinear_move(rng: np.random.Generator) -> Move:
    """One of the above at random parameters, none of them zero."""
    kinds = {move.kind: move for move in nonlinear_moves()}
    found = list(kinds.values())[rng.integers(len(kinds))]
    values = [Fraction(int(p), 3) for p in rng.choice(_NUMBERS, 4)]
    if found.kind != "data-dependent":
        return replace(found, theta=tuple(values[: len(found.theta)]))
    c, x = values[2] + 8, values[3]
    act, back = (batch(factor, x) for factor in (c, 1 / c))
    return replace(found, act=act, back=back, theta=tuple(values[:2]), x=((x,),))


def inverted(params: Any) -> Any:
    """(w, v) ↦ (wv², 1/v) keeps wv and is its own inverse."""
    first, last = params
    w, v = first.weight[0, 0], last.weight[0, 0]
    return _neuron([w * v * v], [1 / v])


def inverted_and_swapped(params: Any) -> Any:
    """The first neuron inverted as above, then exchanged with the second."""
    first, last = params
    (w, u), (v, t) = first.weight[:, 0], last.weight[0]
    return _neuron([u, w * v * v], [t, 1 / v])


def swapped_back(params: Any) -> Any:
    """The inverse of `inverted_and_swapped`."""
    first, last = params
    (a, b), (c, d) = first.weight[:, 0], last.weight[0]
    return _neuron([b * d * d, a], [1 / d, c])


def batch(c: Fraction, x: Fraction) -> Callable[[Any], Any]:
    """(w, u) ↦ (cw, uσ(wx)/σ(cwx)) with σ(z) = z + z²: `BatchGroup` for one neuron and one
    sample.
    """

    def act(params: Any) -> Any:
        first, last = params
        w, u = first.weight[0, 0], last.weight[0, 0]
        return _neuron([c * w], [u * activated(BENT, w * x) / activated(BENT, c * w * x)])

    return act


def _neuron(into: list[Any], out: list[Any]) -> Any:
    first, last = np.empty((len(into), 1), object), np.empty((1, len(out)), object)
    first[:, 0], last[0] = into, out
    return Layer(first, None), Layer(last, None)
