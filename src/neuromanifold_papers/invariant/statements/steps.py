"""invariant: steps of its proofs and the facts of its appendix on flows, orbits and brackets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import fmpq, fmpq_mat
from scipy.integrate import solve_ivp

from neuromanifold.numerics.precision import arithmetic
from neuromanifold_papers.check import EPS, Check, at_least, at_most, equal
from neuromanifold_papers.statement import by_integration, control, in_float64, statement

Array = jax.Array
Map = Callable[[Array], Array]


@dataclass(frozen=True)
class Sphere:
    """X(p) = Ap − λ(pᵀAp)p on the unit sphere, tangent to it for λ = 1; A is drawn."""

    size: int
    seed: int
    scale: float = 1.0

    def field(self) -> Callable[[np.ndarray], np.ndarray]:
        A = np.random.default_rng(self.seed).normal(size=(self.size, self.size))
        return lambda p: A @ p - self.scale * (p @ A @ p) * p

    def start(self) -> np.ndarray:
        p = np.random.default_rng(self.seed + 1).normal(size=self.size)
        return p / np.linalg.norm(p)


@by_integration(
    "Lem 3.1",
    lambda rng, draws: [Sphere(n, seed) for n in (2, 3, 5) for seed in range(max(draws // 6, 2))],
    control("half of the normal part left in the field", lambda: Sphere(3, 0, 0.5)),
    draws=24,
)
def lem_3_1(case: Sphere) -> Check:
    """A field tangent to a closed manifold keeps it for all times: on the sphere | |p(t)| − 1 |
    stays 0, and Dψ(DψᵀDψ)⁻¹DψᵀX = X for a local parametrisation ψ.
    """
    field, start = case.field(), case.start()
    found = solve_ivp(lambda t, p: field(p), (0.0, 3.0), start, rtol=1e-10, atol=1e-12)
    drift = float(np.abs(np.linalg.norm(found.y, axis=0) - 1).max())
    tangent = np.linalg.svd(start[None])[2][1:].T
    X = field(start)
    projected = tangent @ np.linalg.solve(tangent.T @ tangent, tangent.T @ X)
    return at_most(max(drift, float(np.abs(projected - X).max())), 0.0, 1e-7, size=case.size)


@statement(
    "Thm 3.1 (sign)",
    lambda rng, draws: [Fraction(n, 2) for n in range(5)],
    control("x = 3", lambda: Fraction(3)),
    confirm=lambda x: at_least(
        float(jax.grad(lambda theta: -theta * (1 + float(x) ** 2))(0.0)), 1.0, 1e-6
    ),
)
def thm_3_1_sign(x: Fraction) -> Check:
    """With ℓ(s, t) = −s the gradient ∇L itself is a field of the family; for F(θ)(x) = θ(1 + x²),
    whose fields are the constants from 1 on.
    """
    return at_least(-(1 + x * x), 1)


@thm_3_1_sign.amend(
    control("∇L for −∇L", lambda: Fraction(3), sign=1),
    cases=lambda rng, draws: [Fraction(n, 2) for n in range(-4, 5)],
)
def thm_3_1_sign_amended(x: Fraction, sign: int = -1) -> Check:
    """−∇L is a field of the family: ∇F(·)(x)."""
    gradient = -(1 + x * x)
    return equal(sign * gradient, 1 + x * x)


@dataclass(frozen=True)
class Chosen:
    """A network with σ(z) = z + z² or z² and whole weights, at a fixed point of the sign flips of
    the chosen neurons.
    """

    widths: tuple[int, ...]
    flipped: tuple[tuple[int, ...], ...]
    kind: str
    seed: int

    def sides(self) -> list[np.ndarray]:
        """The diagonal of each Λ^(l), from the inputs to the output."""
        return [
            np.array([-1 if i in chosen else 1 for i in range(width)])
            for width, chosen in zip(self.widths, self.flipped, strict=True)
        ]

    def params(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Drawn, and averaged over the flip: W = ΛWΛ' (or ΛW), b = Λb."""
        rng, sides, found = np.random.default_rng(self.seed), self.sides(), []
        for before, after in zip(sides, sides[1:], strict=False):
            W = rng.integers(-2, 3, (len(after), len(before))).astype(float)
            b = rng.integers(-2, 3, len(after)).astype(float)
            right = before if self.kind == "odd" else np.ones(len(before))
            found.append(((W + after[:, None] * W * right) / 2, (b + after * b) / 2))
        return found

    @property
    def functions(self) -> tuple[Callable[[np.ndarray], np.ndarray], ...]:
        if self.kind == "odd":
            return lambda z: z + z * z, lambda z: 1 + 2 * z
        return lambda z: z * z, lambda z: 2 * z


def _flips(rng: np.random.Generator, draws: int) -> Iterator[Chosen]:
    for first, second in product(((), (0,), (1,), (0, 1)), repeat=2):
        for seed in range(2):
            yield Chosen((2, 2, 2, 1), ((), first, second, ()), "odd", seed)
            yield Chosen((2, 2, 2, 1), ((), first, second, (0,)), "even", seed)


def _propagated(case: Chosen) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Activations, the printed δ^(l), and the input."""
    sigma, slope = case.functions
    x = np.array([1.0, -2.0])
    activations, pre = [x], []
    for W, b in case.params():
        pre.append(W @ activations[-1] + b)
        activations.append(sigma(pre[-1]))
    deltas = [slope(pre[-1])]
    for (W, _), z in zip(case.params()[:0:-1], pre[-2::-1], strict=True):
        deltas.insert(0, slope(z) * (W.T @ deltas[0]))
    return activations, deltas, x


@in_float64(
    "P 4.1 (proof)",
    _flips,
    control(
        "flips of the first layer at parameters of the second's",
        lambda: _Mismatched((2, 2, 2, 1), ((), (0,), (1,), ()), "odd", 0),
    ),
)
def p_4_1_proof(case: Chosen) -> Check:
    """δ^(l) by the printed recursion gives ∂F/∂W^(l) = δ^(l)a^(l−1)ᵀ; at fixed points of the flips
    the activations (σ(0) = 0) and the δ of chosen neurons vanish in every layer.
    """
    sigma, _ = case.functions
    activations, deltas, x = _propagated(case)
    with arithmetic():

        def network(params: Sequence[tuple[Array, Array]]) -> Array:
            a = jnp.asarray(x)
            for W, b in params:
                z = W @ a + b
                a = z + z * z if case.kind == "odd" else z * z
            return a[0]

        given = [(jnp.asarray(W), jnp.asarray(b)) for W, b in case.params()]
        slopes = jax.grad(network)(given)
    triples = zip([np.asarray(dW) for dW, _ in slopes], deltas, activations, strict=False)
    wrong = [float(np.abs(dW - np.outer(delta, a)).max()) for dW, delta, a in triples]
    for level, chosen in enumerate(case.flipped):
        if level:
            wrong += [abs(float(deltas[level - 1][i])) for i in chosen]
            wrong += [abs(float(activations[level][i])) for i in chosen if sigma(np.zeros(1)) == 0]
    scale = 1 + max(float(np.abs(delta).max()) for delta in deltas)
    return at_most(max(wrong), 0.0, 100 * EPS * scale**2, kind=case.kind)


@dataclass(frozen=True)
class _Mismatched(Chosen):
    def params(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return Chosen(self.widths, ((), (1,), (0,), ()), self.kind, self.seed).params()


@statement(
    "P 4.1 (I_L)",
    lambda rng, draws: [(1, 1), (1, -1)],
    control("the flip of the output", lambda: (2, -1), passes=lambda: (2, 1)),
    confirm=lambda case: equal(int(np.diag([case[1]])[0, 0] == -1), 0),
)
def p_4_1_output(case: tuple[int, int]) -> Check:
    """In the proof of (ii) the set I_L of flipped outputs is empty, for every element of G'_sign;
    G'_sign holds Λ^(L), so that of one output the flip may be −1.
    """
    return equal([case[1]].count(-1), 0, flip=case[1])


@p_4_1_output.amend(
    control("σ(z) = z + z², σ'(0) = 1", lambda: Chosen((2, 2, 2, 1), ((), (), (), (0,)), "odd", 0)),
    cases=lambda rng, draws: [case for case in _flips(rng, draws) if case.kind == "even"],
    method="float64",
)
def p_4_1_output_amended(case: Chosen) -> Check:
    """Where σ'(0) = 0 the δ^(L) of a flipped output vanishes too: δ^(L) = σ'(z^(L)) = σ'(0)."""
    _, deltas, _ = _propagated(case)
    return equal(float(deltas[-1][0]), 0.0)


def _taylor_rank(weights: Sequence[int], terms: int = 24) -> int:
    """The rank of e^{wx} and xe^{wx}, w in `weights`, by their Taylor coefficients."""
    series = [[fmpq(w**n, factorial(n)) for n in range(terms)] for w in weights]
    return fmpq_mat(series + [[fmpq(0), *row[:-1]] for row in series]).rank()


def _sampled_rank(weights: Sequence[int]) -> int:
    x = np.linspace(-1, 1, 40)
    rows = [f for w in weights for f in (np.exp(w * x), x * np.exp(w * x))]
    return int(np.linalg.matrix_rank(np.array(rows), 1e-9))


@statement(
    "Lem 5.1 (e.g.)",
    lambda rng, draws: [(1, 1), (2, 2), (1, 2), (-1, 1)],
    control("three equal weights", lambda: (1, 1, 1), passes=lambda: (1, 2, 3)),
    confirm=lambda weights: equal(_sampled_rank(weights), 2 * len(weights)),
)
def lem_5_1_example(weights: tuple[int, ...]) -> Check:
    """Independence holds under conditions, for example w_i = ±w_j: e^{w_i x} and xe^{w_i x} with
    such weights are independent.
    """
    return equal(_taylor_rank(weights), 2 * len(weights))


lem_5_1_example_amended = lem_5_1_example.amend(
    control("equal weights", lambda: (3, 3)),
    cases=lambda rng, draws: [(1, 2), (1, -2), (3, 5), (1, 2, -4), (2, 5, 7, 11)],
)("They are independent where w_i ≠ ±w_j.")


def _alike(neurons: Sequence[tuple[int, ...]], same: bool) -> int:
    """How many pairs i, j, with i = j if `same`, have (a_i, w_i) = ±(a_j, w_j)."""
    size = len(neurons)
    pairs = ((i, j) for i in range(size) for j in range(size) if same or i != j)
    negative = [tuple(-v for v in neuron) for neuron in neurons]
    return sum(neurons[i] in (neurons[j], negative[j]) for i, j in pairs)


@statement(
    "Cor 5.2 (i = j)",
    lambda rng, draws: [((1, 2),), ((1, 2), (3, 1)), ((1, 1), (2, 0), (0, 3))],
    control("two equal neurons", lambda: ((1, 2), (1, 2))),
    confirm=lambda neurons: equal(sum(a == b for a, b in product(neurons, repeat=2)), 0),
)
def cor_5_2_diagonal(neurons: tuple[tuple[int, ...], ...], same: bool = True) -> Check:
    """Different nonzero neurons satisfy the hypothesis of (ii), (a_i, w_i) ≠ ±(a_j, w_j) for any i
    and j, as printed without i ≠ j.
    """
    return equal(_alike(neurons, same=same), 0, neurons=len(neurons))


cor_5_2_diagonal_amended = cor_5_2_diagonal.amend(same=False)(
    "Different nonzero neurons satisfy it for i ≠ j; that none is zero is to be added."
)


def _local_flow(t: Fraction, x: Fraction) -> Fraction:
    """Φ(t, x) = x/(1 − tx), the flow of X = x² ∂/∂x, for tx < 1."""
    return x / (1 - t * x)


def _shear(t: Fraction, p: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """The flow of X = (y, −1): (x + ty − t²/2, y − t)."""
    x, y = p
    return x + t * y - t * t / 2, y - t


Times = tuple[Fraction, Fraction, Fraction]


def _times(rng: np.random.Generator, draws: int) -> Iterator[Times]:
    halves = [Fraction(n, 4) for n in range(-2, 3)]
    yield from product(halves, halves, [Fraction(n, 3) for n in range(-2, 3)])


@statement(
    "Rem A.1",
    _times,
    control("a flow with t²/3", lambda: (Fraction(1, 2), Fraction(1, 4), Fraction(1)), bend=3),
)
def rem_a_1(case: Times, bend: int = 2) -> Check:
    """A complete field's flow has Φ(0, p) = p, Φ(t + s, p) = Φ(t, Φ(s, p)), ∂Φ/∂t = X∘Φ, and e^{tX}
    has the inverse e^{−tX}.
    """
    t, s, x = case
    point = (x, 1 - x)

    def flow(time: Fraction, p: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
        a, b = _shear(time, p)
        return a + time * time * (Fraction(1, 2) - Fraction(1, bend)), b

    wrong = flow(Fraction(0), point) != point
    wrong += flow(t + s, point) != flow(t, flow(s, point))
    wrong += flow(-t, flow(t, point)) != point
    h = Fraction(1, 7)
    ahead, behind = flow(t + h, point), flow(t - h, point)
    slope = tuple((a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True))
    wrong += slope != (flow(t, point)[1], Fraction(-1))
    return equal(int(wrong), 0, comparisons=4)


@statement(
    "Rem A.2",
    lambda rng, draws: [c for c in _times(rng, draws) if abs(c[2]) < 1],
    control("the flow of 2x²", lambda: (Fraction(1, 2), Fraction(1, 4), Fraction(1, 3)), rate=2),
)
def rem_a_2(case: Times, rate: int = 1) -> Check:
    """A local flow has Φ(t + s, p) = Φ(t, Φ(s, p)) where both are defined, and ∂Φ/∂t = X∘Φ: the
    difference quotient of x/(1 − tx) is Φ(t)Φ(t + h), which tends to Φ².
    """
    t, s, x = case
    wrong = _local_flow(Fraction(0), x) != x
    wrong += _local_flow(t + s, x) != _local_flow(t, _local_flow(rate * s, x))
    h = Fraction(1, 9)
    quotient = (_local_flow(t + h, x) - _local_flow(t, x)) / h
    wrong += quotient != rate * _local_flow(t, x) * _local_flow(t + h, x)
    return equal(int(wrong), 0, comparisons=3)


@statement(
    "Rem A.2 (domain)",
    lambda rng, draws: [1, 2, 3],
    control("a manifold of dimension 5", lambda: 5),
    confirm=lambda n: equal(np.zeros((1, n + 1)).shape[1], np.zeros((1, n)).shape[1]),
)
def rem_a_2_domain(dimension: int) -> Check:
    """Φ(0, p) = p for all p in Δ: the points of Δ ⊂ ℝ × M have as many coordinates as those of M."""
    return equal(dimension + 1, dimension)


@rem_a_2_domain.amend(
    control("Φ(1/3, x)", lambda: Fraction(1, 2), time=Fraction(1, 3)),
    cases=lambda rng, draws: [Fraction(n, 7) for n in range(-6, 7)],
)
def rem_a_2_domain_amended(x: Fraction, time: Fraction = Fraction(0)) -> Check:
    """Φ(0, p) = p for all p in M."""
    return equal(_local_flow(time, x), x)


def _orbits(points: int, arrows: Sequence[tuple[int, int, int]]) -> list[set[int]]:
    """The orbit of each of 0, …, points − 1 under shifts by `by` of low, …, high − 1 and their
    inverses.
    """
    found = []
    for start in range(points):
        orbit, waiting = {start}, [start]
        while waiting:
            x = waiting.pop()
            images = [x + by for low, high, by in arrows if low <= x < high]
            images += [x - by for low, high, by in arrows if low <= x - by < high]
            new = [y for y in images if 0 <= y < points and y not in orbit]
            orbit.update(new)
            waiting += new
        found.append(orbit)
    return found


def _arrows(rng: np.random.Generator, draws: int) -> Iterator[tuple[tuple[int, int, int], ...]]:
    yield ((0, 3, 2),)
    for _ in range(draws):
        count = int(rng.integers(1, 4))
        drawn = [rng.integers(*ends, count).tolist() for ends in ((0, 8), (1, 4), (1, 5))]
        yield tuple((a, a + b, c) for a, b, c in zip(*drawn, strict=True))


@statement(
    "Rem A.3",
    _arrows,
    control("images without inverse images", lambda: ((0, 3, 2),), inverses=False),
)
def rem_a_3(arrows: tuple[tuple[int, int, int], ...], inverses: bool = True) -> Check:
    """Being in one orbit of a pseudogroup is an equivalence relation: orbits of two points are equal
    or disjoint, and cover everything.
    """
    orbits = _orbits(12, arrows)
    if not inverses:
        orbits = [{x, *(x + by for low, high, by in arrows if low <= x < high)} for x in range(12)]
    wrong = sum(bool(a & b) and a != b for a in orbits for b in orbits)
    return equal(wrong, 0, comparisons=len(orbits) ** 2)


@dataclass(frozen=True)
class Fields:
    """Two analytic fields and a function of three variables, drawn."""

    seed: int

    def drawn(self) -> tuple[Map, ...]:
        rng = np.random.default_rng(self.seed)
        A, B = jnp.asarray(rng.normal(size=(2, 3, 3)))
        c = jnp.asarray(rng.normal(size=3))
        return (
            lambda p: jnp.sin(A @ p) + p * p[::-1],
            lambda p: jnp.cos(B @ p) * p,
            lambda p: jnp.tanh(c @ p) + p[0] * p[1] * p[2],
        )


@in_float64(
    "Def A.12",
    lambda rng, draws: [Fields(seed) for seed in range(draws)],
    control("X(Yh) − Y(Xh)", lambda: Fields(0), sign=-1),
    draws=4,
)
def def_a_12(case: Fields, sign: int = 1) -> Check:
    """The bracket defined by [X, Y]h = Y(Xh) − X(Yh) has the coordinates of Eq 9, Σ_j ∂_ja_i b_j −
    ∂_jb_i a_j (both have the sign opposite to the usual one).
    """
    with arithmetic():
        X, Y, h = case.drawn()
        p = jnp.asarray([0.3, -0.7, 0.5])

        def along(field: Map, g: Map) -> Map:
            return lambda q: jax.jvp(g, (q,), (field(q),))[1]

        left = float(sign * (along(Y, along(X, h))(p) - along(X, along(Y, h))(p)))
        bracket = jax.jacobian(X)(p) @ Y(p) - jax.jacobian(Y)(p) @ X(p)
        right = float(jax.grad(h)(p) @ bracket)
        return equal(left, right, 1e-12 * (1 + abs(right)))


@dataclass(frozen=True)
class Neuronwise:
    """Gradient fields of a two-layer tanh network with inputs x_1, x_2, x_3, d = 2."""

    width: int
    seed: int

    def drawn(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(self.seed)
        return jnp.asarray(rng.normal(size=(self.width, 3))), jnp.asarray(rng.normal(size=(3, 2)))


def _bracket(X: Map, Y: Map) -> Map:
    return lambda p: jax.jvp(X, (p,), (Y(p),))[1] - jax.jvp(Y, (p,), (X(p),))[1]


@in_float64(
    "Cor 5.3 (neuronwise)",
    lambda rng, draws: [Neuronwise(2, 0), Neuronwise(3, 1)],
    control("the outputs tanh of the sum", lambda: Neuronwise(2, 0), outer=jnp.tanh),
)
def cor_5_3_neuronwise(case: Neuronwise, outer: Map = lambda total: total) -> Check:
    """Nested brackets of the fields of a wide network are those of one neuron, neuron by neuron.

    And [X, X] = 0.
    """
    with arithmetic():
        theta, inputs = case.drawn()

        def field(x: Array, shape: tuple[int, ...], last: Map) -> Map:
            def model(p: Array) -> Array:
                rows = p.reshape(shape)
                return last(jnp.sum(rows[:, 0] * jnp.tanh(rows[:, 1:] @ x)))

            return jax.grad(model)

        def nested(shape: tuple[int, ...], last: Map) -> Map:
            X, Y, Z = (field(x, shape, last) for x in inputs)
            return _bracket(X, _bracket(Y, Z))

        whole = nested(theta.shape, outer)(theta.ravel()).reshape(theta.shape)
        single = jnp.stack([nested((1, 3), lambda total: total)(row) for row in theta])
        size = float(jnp.abs(single).max())
        X = field(inputs[0], theta.shape, outer)
        apart = jnp.abs(whole - single).max() + jnp.abs(_bracket(X, X)(theta.ravel())).max()
        return at_most(float(apart), 0.0, 1e-11 * (1 + size), width=case.width)


Signed = tuple[Any, tuple[int, ...]]


def _matrix(element: Signed) -> np.ndarray:
    signs, order = element
    return np.diag(signs) @ np.eye(len(order), dtype=int)[list(order)]


def _product(first: Signed, second: Signed, conjugated: bool = True) -> Signed:
    """(Λ₁P₁Λ₂P₁ᵀ, P₁P₂).   [invariant, Def. 4.2]"""
    (a, p), (b, q) = first, second
    P, Q = (_matrix((np.ones(len(p)), order)).astype(int) for order in (p, q))
    signs = a * (P @ b if conjugated else np.array(b))
    return tuple(signs.tolist()), tuple((P @ Q).argmax(axis=1).tolist())


def _pairs(rng: np.random.Generator, draws: int) -> Iterator[tuple[Signed, Signed]]:
    elements = list(product(product((1, -1), repeat=2), permutations(range(2))))
    yield from product(elements, elements)
    larger = list(product(product((1, -1), repeat=3), permutations(range(3))))
    for _ in range(draws):
        i, j = rng.integers(len(larger), size=2)
        yield larger[i], larger[j]


@statement(
    "Def 4.2",
    _pairs,
    control(
        "signs that are not permuted",
        lambda: (((1, 1), (1, 0)), ((1, -1), (0, 1))),
        conjugated=False,
    ),
)
def def_4_2(case: tuple[Signed, Signed], conjugated: bool = True) -> Check:
    """The printed product of sign and permutation matrices is a semidirect product: (Λ, P) ↦ ΛP
    carries it to the product of matrices, which is how the actions compose.
    """
    composed = _matrix(_product(*case, conjugated=conjugated))
    return equal(int(np.abs(composed - _matrix(case[0]) @ _matrix(case[1])).max()), 0)


@dataclass(frozen=True)
class Moved:
    """Neurons (a, w) of F = Σ a σ(w) at input 1 with σ(z) = z + z², and a map of them."""

    neurons: tuple[tuple[int, int], ...]
    flipped: int
    swapped: bool


@statement(
    "Def 4.1",
    [
        case
        for n in product((-1, 0, 2), (1, 3))
        for case in (Moved((n, n), -1, True), Moved(((0, 0), n), 0, False))
    ],
    control("a flip of a neuron that is not zero", lambda: Moved(((1, 2), (1, 1)), 0, False)),
)
def def_4_1(case: Moved) -> Check:
    """Global invariant maps (swapping neurons) and maps that are not global (flipping one, σ not odd)
    have D(F∘g) = DF at their fixed points, D(F∘g) = DgᵀDF.
    """
    gradient = np.array([(w + w * w, a * (1 + 2 * w)) for a, w in case.neurons])
    signs = np.where(np.arange(len(gradient)) == case.flipped, -1, 1)
    moved = gradient[::-1] if case.swapped else signs[:, None] * gradient
    return equal(int((gradient != moved).sum()), 0, swapped=case.swapped)
