"""Two networks: the nearest element of the symmetry group, against planted elements and all
elements tried.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import neuromanifold as nm
from neuromanifold.symmetry import channel_scalings, match, symmetry_group
from symmetry import nets


def looped(p, x):
    """A stream whose square block writes where it reads: one leaf meets one axis twice."""
    h = x @ p["w"]
    return (h + nets.relu(h @ p["a"])) @ p["v"]


def function(f, shapes, sample):
    return f, lambda rng: {k: rng.normal(size=s) for k, s in shapes.items()}, sample


def perceptron(widths, activation="relu"):
    net = nm.MLP(widths, activation)

    def draw(rng):
        pairs = itertools.pairwise(widths)
        return tuple(nm.Layer(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairs)

    return net, draw, (widths[0],)


CASES = {
    "deep relu": perceptron((3, 8, 8, 7, 2)),
    "tanh": perceptron((3, 8, 8, 2), "tanh"),
    "convolutions": function(
        nets.cnn,
        {"w": (3, 3, 2, 4), "b": (4,), "v": (3, 3, 4, 5), "d": (5,), "u": (5, 3)},
        (6, 6, 2),
    ),
    "residual": function(nets.bent_stream, {"w": (3, 6), "a": (6, 5), "b": (5, 6), "v": (6, 2)}, (3,)),
    "square": function(lambda p, x: (x @ p["w"]) ** 2 @ p["v"], {"w": (3, 4), "v": (4, 2)}, (3,)),
    "heads": function(nets.two_heads, {"q": (3, 6), "k": (3, 6), "v": (3, 6), "o": (6, 3)}, (4, 3)),
    "looped": function(looped, {"w": (3, 6), "a": (6, 6), "v": (6, 2)}, (3,)),
}  # fmt: skip


def planted(f, params, x, key, rng):
    """g(θ) for a random g: permutations, signs, factors between 1/3 and 3."""
    group = symmetry_group(f, params, x)
    leaves, structure = jax.tree.flatten(group.sample(key=key)(params))
    for balance in channel_scalings(f, params, x).balances:
        leaves = balance.acted(leaves, rng.uniform(-1, 1, balance.channels.size))
    return structure.unflatten(leaves)


@pytest.mark.parametrize("name", CASES)
def test_a_planted_element_is_found_exactly(name, rng, key):
    f, draw, sample = CASES[name]
    params, x = draw(rng), rng.normal(size=(5, *sample))
    moved = planted(f, params, x, key, rng)
    found = match(f, params, moved, x=x)
    size = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(params)))
    assert found.distance.before > 0.1 * size
    assert found.distance.after < 1e-12 * size and found.deviation < 1e-12
    for p, q in zip(*map(jax.tree.leaves, (params, found.params)), strict=True):
        np.testing.assert_allclose(q, p, rtol=0, atol=1e-12 * size)
    back = found.element.inverse(found.params)
    for p, q in zip(*map(jax.tree.leaves, (moved, back)), strict=True):
        np.testing.assert_allclose(q, p, rtol=1e-12)
    assert sum(move.moved for move in found.moves) > 0


@pytest.mark.parametrize("name", CASES)
def test_another_network_is_brought_nearer_and_keeps_its_function(name, rng):
    """The control: no symmetry makes one of two random networks the other."""
    f, draw, sample = CASES[name]
    a, b, x = draw(rng), draw(rng), rng.normal(size=(5, *sample))
    found = match(f, a, b, x=x, starts=2)
    assert 0.1 * found.distance.before < found.distance.after < found.distance.before
    assert found.deviation < 1e-12 and min(found.starts) == found.distance.after


def test_two_layers_reach_the_least_of_all_permutations_and_signs(rng):
    net, draw, _ = perceptron((2, 3, 3, 1), "tanh")
    orders = np.array(list(itertools.permutations(range(3))))
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    elements = [np.eye(3)[p] * s[:, None] for p in orders for s in signs]

    def distance(a, b):
        """min over P, Q of ‖a − (P, Q) b‖, written out."""
        least = np.inf
        for P, Q in itertools.product(elements, elements):
            layers = ((P @ b[0].weight, P @ b[0].bias), (Q @ b[1].weight @ P.T, Q @ b[1].bias))
            layers = (*layers, (b[2].weight @ Q.T, b[2].bias))
            squares = [((p - q) ** 2).sum() for x, y in zip(a, layers, strict=True)
                       for p, q in zip((x.weight, x.bias), y, strict=True)]  # fmt: skip
            least = min(least, sum(squares))
        return np.sqrt(least)

    a, b = draw(rng), draw(rng)
    assert match(net, a, b, starts=20).distance.after == pytest.approx(distance(a, b), rel=1e-12)


def test_one_layer_reaches_the_least_of_all_permutations_and_factors(rng):
    net, draw, _ = perceptron((2, 4, 1))

    def least(a, b, i, j):
        """min over t of what unit j of b costs as unit i of a, by a search over log t."""
        into = [np.append(p[0].weight[k], p[0].bias[k]) for p, k in ((a, i), (b, j))]
        out = [p[1].weight[:, k] for p, k in ((a, i), (b, j))]

        def cost(s):
            return ((into[0] - np.exp(s) * into[1]) ** 2).sum() + (
                (out[0] - np.exp(-s) * out[1]) ** 2
            ).sum()

        grid = np.linspace(-8, 8, 400)
        s = grid[np.argmin([cost(s) for s in grid])]
        return minimize_scalar(cost, bounds=(s - 0.1, s + 0.1), method="bounded").fun

    a, b = draw(rng), draw(rng)
    costs = np.array([[least(a, b, i, j) for j in range(4)] for i in range(4)])
    best = min(sum(costs[i, p[i]] for i in range(4)) for p in itertools.permutations(range(4)))
    expected = np.sqrt(best + ((a[1].bias - b[1].bias) ** 2).sum())
    found = match(net, a, b, starts=0)
    assert found.distance.after == pytest.approx(expected, rel=1e-8) and len(found.starts) == 1


def test_the_path_between_equal_functions_is_flat_only_after_matching(rng, key):
    net, draw, _ = perceptron((2, 8, 1), "tanh")
    a, x = draw(rng), rng.normal(size=(20, 2))
    found = match(net, a, planted(net, a, x, key, rng))
    barrier = found.barrier(x, net(a, x), loss=nm.losses.mse, points=5)
    assert barrier.height.before > 1e-3 and barrier.height.after < 1e-24
    theta = found.path(0.5)
    np.testing.assert_allclose(theta[0].weight, (a[0].weight + found.params[0].weight) / 2)
    half = nm.losses.mse(net(found.path(1.0), x), net(a, x))
    assert barrier.t[-1] == 1 and barrier.after[-1] == pytest.approx(float(half), abs=1e-24)
    middle = jax.tree.map(lambda p, q: (p + q) / 2, a, found.b)
    expected = nm.losses.mse(net(middle, x), net(a, x))
    assert barrier.before[2] == pytest.approx(float(expected), rel=1e-6)


def test_results_follow_their_inputs():
    net = nm.MLP((2, 5, 1))
    a, b = (net.init(key=jax.random.key(k)) for k in (0, 1))
    found = match(net, a, b)
    assert isinstance(found.params[0].weight, jax.Array)
    assert found.params[0].weight.dtype == jnp.float32
    assert isinstance(found.path(0.3)[0].weight, jax.Array)
    assert "of 5 moved" in str(found) and "distance" in repr(found)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda net, a, b: match(lambda p, x: net(p, x), a, b), "`x` is None; pass samples"),
        (lambda net, a, b: match(net, a, b[:1]), "`b` has another structure than `a`"),
        (lambda net, a, b: match(net, a, (nm.Layer(b[0].weight[:4], b[0].bias[:4]), b[1])), "`b` has shape"),
        (lambda net, a, b: match(net, a, b, starts=-1), "`starts` is -1; pass a whole number"),
        (lambda net, a, b: match(net, a, b).barrier(np.ones((2, 2)), np.ones((2, 1)), points=2), "`points` is 2"),
    ],
)  # fmt: skip
def test_mistakes_are_named(change, message, rng):
    net, draw, _ = perceptron((2, 5, 1))
    with pytest.raises((ValueError, TypeError), match=message):
        change(net, draw(rng), draw(rng))
