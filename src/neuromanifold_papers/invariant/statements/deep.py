"""invariant, Sec. 4.2: symmetries of deep networks, global and to first order, and the manifolds
they hold.

Networks are those of definition 2.3: with biases, one output, and the activation at the output too.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuromanifold.models.activation import Activation, activation_named
from neuromanifold.models.init import Layer
from neuromanifold.models.mlp import MLP, Params
from neuromanifold.numerics.precision import arithmetic
from neuromanifold.orbits.partition import flatten_on_host, leaf_of
from neuromanifold.orbits.zeros import ZeroManifold, zero_blocks, zero_rows
from neuromanifold.symmetry.groups.hadamard import template, unflatten
from neuromanifold.symmetry.groups.monomial import Monomial, monomial
from neuromanifold_papers.check import Check, at_most, equal
from neuromanifold_papers.invariant.statements.cases import ANALYTIC, ROUNDING, Trained, trained
from neuromanifold_papers.invariant.statements.maps import signed_permutations
from neuromanifold_papers.statement import Cases, by_integration, control, in_float64

Widths = tuple[int, ...]
Sets = tuple[tuple[int, ...], ...]

SPREAD = 0.4
"""Standard deviation of parameters."""
SHAPES: tuple[Widths, ...] = ((1, 1, 1), (1, 2, 1), (2, 2, 1))
SHAPES += ((1, 1, 1, 1), (1, 2, 2, 1), (2, 1, 2, 1))
VANISHING = ("tanh", "silu", "1 - cos(z)", "1 - cos(z) + z - sin(z)", "identity", "power(2)")
"""σ(0) = 0: odd, even and neither, slope zero and not, polynomials."""
FLAT = ("cos", "1 - cos(z)", "z - sin(z) + cos(z)")
FLAT += ("1 - cos(z) + z - sin(z)", "z - sin(z)", "power(2)")
"""σ'(0) = 0."""


def _activation(name: str) -> Activation:
    return ANALYTIC[name] if name in ANALYTIC else activation_named(name)


def network(widths: Widths, name: str) -> MLP:
    """F(θ)(x) = σ(W⁽ᴸ⁾ … σ(W⁽¹⁾x + b⁽¹⁾) … + b⁽ᴸ⁾).   [invariant, Def 2.3]"""
    sigma = _activation(name)
    return MLP(widths, sigma, output_activation=sigma)


def drawn(rng: np.random.Generator, net: MLP) -> Params:
    """Normal parameters."""
    return unflatten(template(net), SPREAD * rng.standard_normal(net.n_params))


@dataclass(frozen=True)
class Silenced:
    """A network, a set of neurons in each layer, and a seed for the point, the data and the
    loss.
    """

    name: str
    widths: Widths
    sets: Sets
    seed: int = 0

    @property
    def hypotheses(self) -> dict[str, Any]:
        chosen, layers = sum(map(len, self.sets)), len(self.widths) - 1
        return {"σ": self.name, "layers": layers, "chosen": chosen, "widest": max(self.widths)}

    def blocks(self) -> tuple[ZeroManifold, Params]:
        """The manifold of theorem 4.2 (iii) with random c_ij, and a point of it."""
        net, rng = network(self.widths, self.name), np.random.default_rng(self.seed)
        return _with_point(zero_blocks(net, self.sets, drawn(rng, net)), self.seed)

    def rows(self) -> tuple[ZeroManifold, Params]:
        """The manifold of theorem 4.2 (iv), and a point of it."""
        return _with_point(zero_rows(network(self.widths, self.name), self.sets), self.seed)


def _with_point(manifold: ZeroManifold, seed: int) -> tuple[ZeroManifold, Params]:
    """A point whose free coordinates are small enough for three exponentials inside each other."""
    small = SPREAD * flatten_on_host(manifold.sample(key=jax.random.key(seed)))
    return manifold, manifold.project(unflatten(template(manifold.net), small))


def _hidden_sets(
    names: Sequence[str], rng: np.random.Generator, draws: int, last: int
) -> Iterator[Silenced]:
    """All sets of hidden neurons, of output neurons too where `last` is 0, for every shape and
    activation; then wider networks.
    """
    for widths, name in itertools.product(SHAPES, names):
        layers = widths[1:-1] if last else widths[1:]
        choices = [
            [c for k in range(n + 1) for c in itertools.combinations(range(n), k)] for n in layers
        ]
        yield from (Silenced(name, widths, sets) for sets in itertools.product(*choices))
    for _ in range(draws):
        widths = (*rng.integers(1, 4, int(rng.integers(2, 5))).tolist(), 1)
        layers = widths[1:-1] if last else widths[1:]
        sets = tuple(tuple(np.flatnonzero(rng.random(n) < 0.5).tolist()) for n in layers)
        yield Silenced(str(rng.choice(names)), widths, sets, int(rng.integers(2**31)))


def first_order_defect(flip: Callable[[Any], Any], net: MLP, params: Params) -> float:
    """max |Λ∇F − ∇F| at a fixed point of Λ, over three inputs, relative to the largest entry."""
    x = np.random.default_rng(0).standard_normal((3, net.widths[0]))
    run = Trained(net, params, x, np.zeros(3), "−s")
    gradients = run.family.jacobian(run.start)
    flipped = np.stack([flatten_on_host(flip(unflatten(params, v))) for v in gradients])
    return float(np.abs(flipped - gradients).max() / max(1.0, float(np.abs(gradients).max())))


Make = Callable[[Silenced], tuple[ZeroManifold, Params]]


def _first_order(make: Make) -> Callable[..., Check]:
    def measure(case: Silenced, net: Any = lambda manifold: manifold.net) -> Check:
        manifold, params = make(case)
        defect = first_order_defect(manifold.flip, net(manifold), params)
        return equal(defect, 0.0)

    return measure


_HALF: dict[str, Any] = {"net": lambda manifold: network((1, 2, 1), "sigmoid")}
"""Breaks σ(0) = 0."""
_SLOPED: dict[str, Any] = {"net": lambda manifold: network((1, 2, 1), "tanh")}
"""Breaks σ'(0) = 0."""


p_4_1_i = in_float64(
    "P 4.1 (i)",
    lambda rng, draws: _hidden_sets(VANISHING, rng, draws, 1),
    control("sigmoid(0) = ½", lambda: Silenced("silu", (1, 2, 1), ((0,),), 1), **_HALF),
    draws=10,
    says="σ(0) = 0: every sign flip of G_sign is infinitesimally invariant, D(F∘Λ) = DF at its fixed points",
)(_first_order(Silenced.blocks))


p_4_1_ii = in_float64(
    "P 4.1 (ii)",
    lambda rng, draws: _hidden_sets(FLAT, rng, draws, 0),
    control(
        "the output row where the output is linear",
        lambda: Silenced("cos", (1, 1, 1), ((), (0,))),
        net=lambda manifold: MLP((1, 1, 1), _activation("cos")),
    ),
    draws=10,
    says="σ'(0) = 0: the same for the flips of rows of G'_sign, the output row included",
)(_first_order(Silenced.rows))


@dataclass(frozen=True)
class Acting:
    """Elements g, h of the group: a signed permutation for each layer; `even` where outgoing
    weights keep their signs.
    """

    name: str
    widths: Widths
    g: tuple[int, ...]
    h: tuple[int, ...]
    kind: str
    seed: int = 0

    @property
    def net(self) -> MLP:
        """The network."""
        return network(self.widths, self.name)

    def matrices(self, which: tuple[int, ...]) -> list[np.ndarray]:
        """The chosen element of S_n or S_2ⁿ ⋊ S_n for each hidden layer."""
        return [elements(n, self.kind)[k] for n, k in zip(self.widths[1:-1], which, strict=True)]


def elements(n: int, kind: str) -> np.ndarray:
    """The group of one layer: permutations, or signed ones."""
    every = signed_permutations(n)
    return every[(every >= 0).all(axis=(1, 2))] if kind == "permutations" else every


def printed_action(matrices: list[np.ndarray], kind: str, params: Params) -> Params:
    """(W⁽ˡ⁾, b⁽ˡ⁾) ↦ (M_l W⁽ˡ⁾ M_{l−1}ᵀ, M_l b⁽ˡ⁾), M = ΛP; for even σ with |M_{l−1}| = P.
    [invariant, Def 4.2]
    """
    g = [np.eye(params[0].weight.shape[1]), *matrices, np.eye(len(params[-1].weight))]
    sides = [np.abs(before) if kind == "even" else before for before in g[:-1]]
    return tuple(
        Layer(after @ layer.weight @ before.T, after @ layer.bias)
        for before, after, layer in zip(sides, g[1:], params, strict=True)
    )


def library_element(net: MLP, matrices: list[np.ndarray], kind: str) -> Monomial:
    """The library's element with these matrices."""
    orders = [np.abs(M).argmax(axis=1) for M in matrices]
    signs = [M.sum(axis=1).astype(float) for M in matrices]
    out = [np.abs(s) for s in signs] if kind == "even" else signs
    return monomial(net, order=orders, into=signs, out=out)


def _distance(a: Params, b: Params) -> float:
    return float(np.abs(flatten_on_host(a) - flatten_on_host(b)).max())


def half_action(matrices: list[np.ndarray], kind: str, params: Params) -> Params:
    """Incoming weights moved and outgoing weights not."""
    after = [*matrices, np.eye(len(params[-1].weight))]
    return tuple(
        Layer(M @ layer.weight, M @ layer.bias) for M, layer in zip(after, params, strict=True)
    )


def _symmetry(case: Acting, action: Any = printed_action) -> Check:
    """The largest of: change of F, change of |θ|, g(hθ) against (gh)θ, library against print,
    and a flow's distance from Fix(g).
    """
    rng, net = np.random.default_rng(case.seed), case.net
    G, H = case.matrices(case.g), case.matrices(case.h)
    g, h = library_element(net, G, case.kind), library_element(net, H, case.kind)
    run = trained(rng, net, drawn(rng, net))
    moved = action(G, case.kind, run.template)
    F = run.outputs(run.start)
    theta, image = run.start, flatten_on_host(moved)
    fixed = leaf_of(net, (g,))
    end = trained(rng, net, fixed.sample(key=jax.random.key(case.seed))).end(steps=4)
    product = action([a @ b for a, b in zip(G, H, strict=True)], case.kind, run.template)
    rounding = max(1.0, float(np.abs(F).max()))
    defects = [
        float(np.abs(run.outputs(image) - F).max() / rounding),
        abs(float(np.linalg.norm(image) / np.linalg.norm(theta)) - 1),
        _distance(g(run.template), moved),
        _distance((g @ h)(run.template), product),
        fixed.distance(end),
    ]
    dimension = {"dimension of Fix(g)": fixed.dimension}
    hypotheses = {"σ": case.name, "widths": str(case.widths)} | dimension
    return at_most(max(defects), 0.0, ROUNDING, hypotheses=hypotheses)


def _group_cases(name: str, kind: str, *small: Widths) -> Cases:
    def cases(rng: np.random.Generator, draws: int) -> Iterator[Acting]:
        for widths in small:
            orders = [range(len(elements(n, kind))) for n in widths[1:-1]]
            for g in itertools.product(*orders):
                h = tuple(int(rng.integers(len(order))) for order in orders)
                yield Acting(name, widths, g, h, kind)
        for _ in range(draws):
            widths = (*rng.integers(1, 4, int(rng.integers(3, 5))).tolist(), 1)
            sizes = [len(elements(n, kind)) for n in widths[1:-1]]
            g, h = (tuple(int(rng.integers(size)) for size in sizes) for _ in range(2))
            yield Acting(name, widths, g, h, kind, int(rng.integers(2**31)))

    return cases


thm_4_2_i = in_float64(
    "Thm 4.2 (i)",
    _group_cases("sigmoid", "permutations", (1, 2, 1), (2, 3, 1), (1, 2, 2, 1)),
    control(
        "incoming weights exchanged and outgoing weights not",
        lambda: Acting("sigmoid", (1, 2, 1), (1,), (0,), "permutations"),
        action=half_action,
    ),
    draws=5,
    says="permutations of the neurons of each layer are an orthogonal symmetry group, and flows keep their fixed sets",
)(_symmetry)


thm_4_2_ii = in_float64(
    "Thm 4.2 (ii)",
    _group_cases("tanh", "odd", (1, 1, 1), (1, 2, 1), (1, 1, 1, 1)),
    control(
        "the flip of a neuron of silu, which is not odd",
        lambda: Acting("silu", (1, 1, 1), (1,), (0,), "odd"),
    ),
    draws=5,
    says="for odd σ flips of neurons are too, and with permutations they generate (S_2 ≀ S_n) for each layer",
)(_symmetry)


thm_4_2_ii_even = in_float64(
    "Thm 4.2 (ii) (even)",
    _group_cases("cos", "even", (1, 1, 1), (1, 2, 1), (1, 1, 1, 1)),
    control(
        "the flip of incoming weights of tanh, which is odd",
        lambda: Acting("tanh", (1, 1, 1), (1,), (0,), "even"),
    ),
    draws=5,
    says="footnote 5: for even σ the same holds of flips of the incoming weights alone",
)(_symmetry)


def _stays(make: Make) -> Callable[..., Check]:
    """The distance from the manifold after a flow with random data and loss."""

    def measure(case: Silenced, net: Any = lambda manifold: manifold.net) -> Check:
        manifold, params = make(case)
        run = trained(np.random.default_rng(case.seed), net(manifold), params)
        end = run.flow(steps=2)
        moves = bool(np.linalg.norm(end - run.start) > 0)
        hypotheses = case.hypotheses | {"θ moves": moves}
        return equal(manifold.distance(unflatten(params, end)), 0.0, hypotheses=hypotheses)

    return measure


def _some(cases: Iterator[Silenced], names: Sequence[str]) -> Iterator[Silenced]:
    """Every shape and set of the activations named, each with its own data and loss."""
    chosen = (case for case in cases if case.name in names and any(case.sets))
    for seed, case in enumerate(chosen):
        yield case if case.seed else Silenced(case.name, case.widths, case.sets, seed + 1)


def _one_row(rng: np.random.Generator, draws: int) -> Iterator[Silenced]:
    cases = _hidden_sets(FLAT, rng, draws, 0)
    yield from _some((case for case in cases if sum(map(len, case.sets)) == 1), FLAT[:3])


thm_4_2_iii = by_integration(
    "Thm 4.2 (iii)",
    lambda rng, draws: _some(_hidden_sets(VANISHING, rng, draws, 1), VANISHING[:3]),
    control("sigmoid(0) = ½", lambda: Silenced("silu", (1, 2, 1), ((0,),), 1), **_HALF),
    draws=10,
    says="σ(0) = 0: W_ij = 0 between chosen and other neurons, b_i = 0 and W_ij = c_ij, any number, among chosen ones is a SIM",
)(_stays(Silenced.blocks))


thm_4_2_iv = by_integration(
    "Thm 4.2 (iv)",
    _one_row,
    control("tanh'(0) = 1", lambda: Silenced("cos", (1, 2, 1), ((0,), ()), 1), **_SLOPED),
    draws=10,
    says="σ'(0) = 0: (W, b)_j⁽ˡ⁾ = 0 for one neuron of any layer, the output included, is a SIM",
)(_stays(Silenced.rows))


def _residual(p: Any, x: Any) -> Any:
    A, W, V, a = p
    h = A @ x[0]
    return a @ (h + V @ jnp.tanh(W @ h))


def _convolutional(p: Any, x: Any) -> Any:
    w, u, a = p
    h = jnp.stack([jnp.tanh(w @ x.ravel()[i : i + 3]) for i in range(4)])
    h = jnp.stack([jnp.tanh(jnp.einsum("oik,ki->o", u, h[i : i + 2])) for i in range(3)])
    return a @ h.mean(axis=0)


def _attention(p: Any, x: Any) -> Any:
    Q, K, V, a = p
    heads = [jax.nn.softmax((x @ q) @ (x @ k).T) @ x @ v for q, k, v in zip(Q, K, V, strict=True)]
    return jnp.einsum("hnd,hd->", jnp.stack(heads), a)


ARCHITECTURES: dict[str, tuple[Any, tuple[Widths, ...], tuple[int | None, ...]]] = {
    "ResNet, hidden neurons": (_residual, ((3, 2), (3, 3), (3, 3), (3,)), (None, 0, 1, None)),
    "ResNet, residual stream": (_residual, ((3, 2), (3, 3), (3, 3), (3,)), (0, 1, 0, 0)),
    "convolutional, first channels": (_convolutional, ((3, 3), (3, 3, 2), (3,)), (0, 1, None)),
    "convolutional, second channels": (_convolutional, ((3, 3), (3, 3, 2), (3,)), (None, 0, 0)),
    "Transformer, heads": (_attention, ((3, 2, 2),) * 3 + ((3, 2),), (0, 0, 0, 0)),
}
"""A network with one output, the shapes of its parameters, and the axes on which three neurons,
channels or heads are exchanged.
"""


@in_float64(
    "Rem 4.2",
    lambda rng, draws: itertools.product(ARCHITECTURES, itertools.permutations(range(3))),
    control(
        "the residual stream exchanged in the embedding alone",
        lambda: ("ResNet, residual stream", (1, 0, 2)),
        axes=(0, None, None, None),
    ),
)
def rem_4_2(case: tuple[str, tuple[int, ...]], axes: Any = ()) -> Check:
    """The symmetries of Theorem 4.2 extend to ResNets, convolutional networks and Transformers.

    The change of F under a permutation g, and of ∇F under g at the mean over the powers of g, which
    g fixes.
    """
    model, shapes, own = ARCHITECTURES[case[0]]
    rng, order = np.random.default_rng(0), np.array(case[1])
    theta, x = [rng.standard_normal(shape) for shape in shapes], rng.standard_normal((3, 2))

    def moved(params: Any) -> list[np.ndarray]:
        pairs = zip(params, axes or own, strict=True)
        return [p if axis is None else np.take(p, order, axis) for p, axis in pairs]

    orbit = [theta := moved(theta) for _ in range(6)]
    with arithmetic():
        values = [float(model(p, x)) for p in (orbit[0], orbit[1])]
        fixed = [np.mean(parts, axis=0) for parts in zip(*orbit, strict=True)]
        gradient = list(map(np.asarray, jax.grad(model)(list(map(jnp.asarray, fixed)), x)))
    apart = [float(np.abs(a - b).max()) for a, b in zip(moved(gradient), gradient, strict=True)]
    return at_most(max(abs(values[0] - values[1]), *apart), 0.0, ROUNDING, architecture=case[0])
