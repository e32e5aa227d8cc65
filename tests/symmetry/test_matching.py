"""Two networks: the nearest element of the symmetry group, against planted elements and all
elements tried.
"""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import neuromanifold as nm
from neuromanifold.graph.selection import leaf_names
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


def apart(p, x):
    """Two heads of three on axes of their own."""
    q, k, v = (jnp.einsum("ntd,dhe->nhte", x, p[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("nhse,nhte->nhst", q, k), -1)
    return jnp.einsum("nhst,nhte,hed->nsd", weights, v, p["o"])


HEADED = {
    "one axis": (nets.two_heads, (6, 6, 6, 6), lambda a, axis: a.reshape(*a.shape[:axis], 2, 3, *a.shape[axis + 1 :])),
    "two axes": (apart, ((2, 3),) * 4, lambda a, axis: a),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADED)
def test_each_head_has_an_order_and_signs_of_its_own(name, rng):
    """Planted by hand: heads exchanged, three channels of each head in another order, with signs."""
    f, widths, split = HEADED[name]
    shapes = {"q": (3, widths[0]), "k": (3, widths[1]), "v": (3, widths[2]), "o": (widths[3], 3)}
    draw = {k: rng.normal(size=np.hstack(shape).astype(int)) for k, shape in shapes.items()}
    views = {k: split(a, 0 if k == "o" else 1).copy() for k, a in draw.items()}
    orders = [[[1, 2, 0], [0, 2, 1]], [[2, 1, 0], [1, 0, 2]]]  # of q and k, of v and o; head 0, 1
    signs = rng.choice([-1.0, 1.0], (2, 2, 3))
    moved = {}
    for k, view in views.items():
        kind, first = int(k in "vo"), np.moveaxis(view, (0, 1) if k == "o" else (1, 2), (0, 1))
        rows = [(first[h][orders[kind][h]].T * signs[kind][h]).T for h in (1, 0)]
        back = np.moveaxis(np.stack(rows), (0, 1), (0, 1) if k == "o" else (1, 2))
        moved[k] = back.reshape(draw[k].shape)
    x = rng.normal(size=(5, 4, 3))
    found = match(f, draw, moved, x=x)
    assert found.distance.before > 1 and found.distance.after < 1e-12 and found.deviation < 1e-12
    assert sorted(move.head for move in found.moves if move.head is not None) == [0, 0, 1, 1]
    back = found.element.inverse(found.params)
    for k in draw:
        np.testing.assert_allclose(found.params[k], draw[k], atol=1e-12)
        np.testing.assert_allclose(back[k], moved[k], atol=1e-12)
    twice = (found.element @ found.element)(moved)
    assert all(np.allclose(twice[k], found.element(found.params)[k], atol=1e-12) for k in draw)
    assert any("GL(3) of each of 2 heads" in each for each in found.not_searched)
    assert "not searched: GL(3)" in str(found) and ", head 1: " in str(found)


class Normed(eqx.Module):
    """Two dense layers with batch normalisation between, in inference."""

    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    last: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(3, 5, key=a), eqx.nn.Linear(5, 2, key=b)
        self.norm = eqx.nn.BatchNorm(5, "batch", mode="batch")

    def __call__(self, x, state):
        h, state = self.norm(self.first(x), state)
        return self.last(jax.nn.relu(h)), state


def with_statistics(f, mean, variance):
    """The adapted network with other running statistics, first mean, then variance."""
    leaves, structure = jax.tree.flatten(f.state)
    new = iter((mean, variance))
    return replace(
        f, state=structure.unflatten([next(new) if np.shape(a) == (5,) else a for a in leaves])
    )


def test_running_statistics_follow_their_channels(rng, key):
    f, params = nm.from_equinox(*eqx.nn.make_with_state(Normed)(key))
    leaves, structure = jax.tree.flatten(params)
    a = [rng.normal(size=leaf.shape) for leaf in leaves]
    order, sign = np.array([3, 0, 4, 1, 2]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    mean, variance = rng.normal(size=5), rng.uniform(0.5, 2, 5)
    first = with_statistics(f, mean, variance)
    other = with_statistics(f, sign * mean[order], variance[order])
    # What normalises is odd in (weight, bias, mean, gain) of a channel, and its shift is apart.
    names = leaf_names(params)
    moved = []
    for name, leaf in zip(names, a, strict=True):
        if name.startswith("last"):
            moved.append(leaf[:, order] if leaf.ndim == 2 else leaf)
        elif name == "norm.bias":
            moved.append(leaf[order])
        else:
            moved.append((leaf[order].T * sign).T)
    a, b = structure.unflatten(a), structure.unflatten(moved)
    x = rng.normal(size=(7, 3))
    np.testing.assert_allclose(other(b, x), first(a, x), atol=1e-12)
    found = match(first, a, b, x=x, other=other)
    assert found.distance.before > 1 and found.distance.after < 1e-12 and found.deviation < 1e-12
    np.testing.assert_allclose(found.model(found.params, x), first(a, x), atol=1e-12)
    for own, theirs in zip(found.statistics[0], found.statistics[2], strict=True):
        np.testing.assert_allclose(theirs, own, atol=1e-12)
    assert found.barrier(x, first(a, x), points=3).height.after < 1e-20
    # The control: with the statistics of a the moved parameters are another function.
    assert np.abs(first(b, x) - first(a, x)).max() > 0.1
    with pytest.raises(ValueError, match="pass the model that was made together with `b`"):
        match(first, a, b, x=x, other=lambda params, x: f(params, x))


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
