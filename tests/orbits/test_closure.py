"""The Lie closure of two-layer networks at every leaf, degenerate points included, and what it
says about gradients.
"""

import time
from itertools import cycle, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuromanifold as nm
from cast import unchecked
from neuromanifold.orbits import closure_upper_bound, invariant_leaf, lie_closure
from neuromanifold.orbits.bounds import zero_neurons

GENERIC, ODD = ("exp", "sigmoid", "softplus"), ("tanh", "erf", "sin")


def two_layer(activation, neurons):
    """The net Σ a_i σ(w_i·x) with rows (a_i, w_i)."""
    neurons = np.asarray(neurons, float)
    net = nm.MLP((neurons.shape[1] - 1, len(neurons), 1), activation, bias=False)
    return net, (nm.Layer(neurons[:, 1:].copy()), nm.Layer(neurons[None, :, 0].copy()))


def closure_of(activation, neurons, key, **options):
    """Without the type checker, which the smaller tests run through: here are some seven hundred
    closures.
    """
    with unchecked():
        return lie_closure(*two_layer(activation, neurons), key=key, **options)


def dimensions(closure):
    return [int(rank) for rank in closure.by_depth]


def set_partitions(items):
    """All partitions of a list into blocks: 1, 2, 5, 15, …"""
    if not items:
        yield []
        return
    first, *rest = items
    for partition in set_partitions(rest):
        yield [[first], *partition]
        for i in range(len(partition)):
            yield [*partition[:i], [first, *partition[i]], *partition[i + 1 :]]


def signed_partitions(m):
    """(zero block, blocks, signs) with the first neuron of a block positive: 2, 6, 24, 116, …"""
    for zeros in product((False, True), repeat=m):
        for blocks in set_partitions([i for i in range(m) if not zeros[i]]):
            free = [i for block in blocks for i in block[1:]]
            for choice in product((1.0, -1.0), repeat=len(free)):
                signs = np.ones(m)
                signs[free] = choice
                yield [i for i in range(m) if zeros[i]], blocks, signs


def point(m, blocks, signs, values):
    """Neurons of a block equal up to sign; neurons of no block zero."""
    neurons = np.zeros((m, values.shape[1]))
    for block, value in zip(blocks, values, strict=True):
        neurons[block] = signs[block, None] * value
    return neurons


def expect(closure, dimension):
    assert int(closure.dimension) == closure.upper_bound == dimension
    assert closure.certified and closure.agree
    # A direction with relative singular value s is known to rounding over s.
    assert (
        closure.misfit * min(map(smallest_kept, (closure.by_depth[-1], closure.along_orbit)))
        < 1e-10
    )
    assert min(float(rank.gap) for rank in closure.by_depth) > 1e4
    return True


def smallest_kept(rank):
    return float(rank.spectrum[int(rank) - 1] / rank.spectrum[0]) if int(rank) else 1.0


@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_leaf_of_generic_activations_is_an_orbit(d, rng, key, tally):
    """dim Lie_θ = (d+1)s on all Bell(m) leaves.   [invariant, Cor 5.3 (i), Thm 5.1]"""
    count, activations = 0, cycle(GENERIC)
    for m in range(1, 5):
        partitions = list(set_partitions(list(range(m))))
        assert len(partitions) == (1, 2, 5, 15)[m - 1]
        for blocks in partitions:
            values = rng.normal(size=(len(blocks), d + 1))
            closure = closure_of(next(activations), point(m, blocks, np.ones(m), values), key)
            count += expect(closure, (d + 1) * len(blocks))
    tally(count, of=23, what=f"leaves with d = {d}, m ≤ 4 have closure dimension (d+1)s")


@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_leaf_of_odd_activations_is_an_orbit(d, rng, key, tally):
    """dim Lie_θ = (d+1)(s−1), the zero block counted in s, on all 2, 6, 24, 116 leaves.
    [invariant, Cor 5.3 (ii), Thm 5.1]
    """
    count, activations = 0, cycle(ODD)
    for m in range(1, 5):
        leaves = list(signed_partitions(m))
        assert len(leaves) == (2, 6, 24, 116)[m - 1]
        for _, blocks, signs in leaves:
            values = rng.normal(size=(len(blocks), d + 1))
            closure = closure_of(next(activations), point(m, blocks, signs, values), key)
            count += expect(closure, (d + 1) * len(blocks))
    tally(count, of=148, what=f"leaves with d = {d}, m ≤ 4 have closure dimension (d+1)(s−1)")


DEGENERATE = {
    "w_i = w_j": lambda a, w: (a, np.repeat(w[:1], len(w), axis=0)),
    "a = 0": lambda a, w: (0 * a, w),
    "w = 0": lambda a, w: (a, 0 * w),
    "w_i = ±w_j": lambda a, w: (a, w[:1] * (-1.0) ** np.arange(len(w))[:, None]),
    "a_0 = 0, w_j = 0": lambda a, w: (
        a * (np.arange(len(a)) > 0),
        w * (np.arange(len(w)) == 0)[:, None],
    ),
}


def shapes(m):
    """Block sizes with a zero block in front: one leaf for each way to tell leaves apart up to
    symmetry.
    """
    for _, blocks, signs in signed_partitions(m):
        sizes = [len(block) for block in blocks]
        if sizes == sorted(sizes) and [i for block in blocks for i in block] == list(
            range(m - sum(sizes), m)
        ):
            yield blocks, signs


@pytest.mark.parametrize(
    "activations, odd", [(GENERIC, False), (ODD, True)], ids=["generic", "odd"]
)
def test_degenerate_points_have_the_dimension_of_their_leaf(
    activations, odd, rng, key, draws, tally
):
    """Cor 5.2, 5.3 at points where the fields alone span less: brackets must make up for it."""
    cases = [
        (d, m, blocks, signs if odd else np.ones(m), kind, activation)
        for d, m in product((1, 2, 3), (1, 2, 3, 4))
        for blocks, signs in shapes(m)
        for kind in DEGENERATE
        for activation in activations
        if blocks and (odd or len(np.concatenate(blocks)) == m)
    ]
    cheap = [case for case in cases if not (odd and case[4] == "w = 0" and len(case[2]) > 2)]
    chosen = rng.choice(len(cheap), size=min(len(cheap), draws(16)), replace=False)
    deeper = 0
    for d, m, blocks, signs, kind, activation in (cheap[i] for i in chosen):
        s = len(blocks)
        values = np.concatenate(
            [np.linspace(0.6, 1.5, s)[:, None], rng.normal(size=(s, d))], axis=1
        )
        values[:, 0], values[:, 1:] = DEGENERATE[kind](values[:, 0], values[:, 1:])
        closure = closure_of(activation, point(m, blocks, signs, values), key)
        expect(closure, (d + 1) * s)
        deeper += closure.depth > 1
    tally(deeper, of=len(chosen), what="degenerate points that need brackets")


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_depth_grows_with_degeneracy(m, key):
    """All w_i = 0 and σ odd: 2m + 1 nested brackets, and depths on the way at which nothing
    grows.
    """
    neurons = np.stack([np.linspace(0.6, 1.5, m), np.zeros(m)], axis=1)
    closure = closure_of("tanh", neurons, key)
    expect(closure, 2 * m)
    assert dimensions(closure) == [1, 1, *range(2, 2 * m), 2 * m - 1, 2 * m]
    assert closure.depth == 2 * m + 2


PAIRS = [
    ("exp", [[1.0, 0.7], [2.0, 0.7]], 4),
    ("exp", [[1.0, 0.7], [1.0, 0.7]], 2),
    ("sigmoid", [[1.0, 0.7], [-1.0, -0.7]], 4),
    ("softplus", [[1.0, 0.7], [1.0, -0.7]], 4),
    ("tanh", [[1.0, 0.7], [-1.0, -0.7]], 2),
    ("tanh", [[1.0, 0.7], [1.0, -0.7]], 4),
    ("erf", [[1.0, 0.7], [0.0, 0.0]], 2),
    ("sin", [[0.0, 0.0], [0.0, 0.0]], 0),
    ("cos", [[1.0, 0.7], [1.0, -0.7]], 2),
    ("cos", [[1.0, 0.7], [-1.0, -0.7]], 4),
    ("cos", [[1.0, 0.7], [2.0, 0.0]], 3),
    ("cos", [[1.0, 0.0], [2.0, 0.0]], 1),
    ("silu", [[0.0, 0.0], [1.0, 0.7]], 2),
    ("silu", [[0.0, 0.0], [1.0, 0.0]], 2),
    ("gelu", [[0.0, 0.0], [0.0, 0.0]], 0),
    ("gelu", [[1.0, 0.7], [-1.0, -0.7]], 4),
    ("exp", [[0.0, 0.0], [1.0, 0.7]], 4),
]


def test_pairs_of_neurons_of_every_class(key, tally):
    """Lemma 5.2 (i)–(iv): which coincidences the orbit keeps depends on parity, σ(0) and σ'(0)."""
    kept = [
        expect(closure_of(activation, neurons, key), dimension)
        for activation, neurons, dimension in PAIRS
    ]
    tally(sum(kept), of=len(PAIRS), what="pairs with the dimension the lemma says")


@pytest.mark.parametrize("idle", [2, 3])
def test_even_neurons_at_zero_move_together(idle, rng, key):
    """cos: with w = 0 the outgoing weights all change by the same amount, so the closure is
    smaller than the leaf.
    """
    neurons = rng.normal(size=(4, 3))
    neurons[:idle, 1:] = 0
    net, params = two_layer("cos", neurons)
    closure = lie_closure(net, params, key=key)
    expect(closure, 3 * (4 - idle) + 1)
    assert invariant_leaf(net, params).dimension == 3 * (4 - idle) + idle > int(closure.dimension)
    assert "bound together" in closure.reason


def test_zero_neurons_are_frozen_where_sigma_vanishes(rng, key):
    """silu(0) = 0 without parity: zero neurons are frozen, which no symmetry says; exp moves
    them.
    """
    neurons = rng.normal(size=(4, 3))
    neurons[:2] = 0
    closure = closure_of("silu", neurons, key)
    expect(closure, 6)
    assert "frozen by zero neurons" in closure.reason
    expect(closure_of("exp", neurons, key), 9)


def test_frozen_sets_of_deep_nets(key):
    """Theorem 4.2 (iii) with index sets in two layers and c_ij ≠ 0 between them; (iii) fails
    when one weight leads out.
    """
    net = nm.MLP((1, 2, 2, 1), "gelu", bias=False)
    W = np.array([[0.5, 0.0], [0.0, 3.0]])
    params = (nm.Layer(np.array([[1.0], [0.0]])), nm.Layer(W), nm.Layer(np.array([[0.7, 0.0]])))
    zero = zero_neurons(net, params)
    assert [int(part.sum()) for part in zero.silent] == [0, 1, 1, 0]
    closure = lie_closure(net, params, key=key)
    assert int(closure.dimension) == closure.upper_bound == 3 and closure.agree
    led_out = (params[0], params[1], nm.Layer(np.array([[0.7, 0.1]])))
    assert not any(part.any() for part in zero_neurons(net, led_out).silent)
    assert int(lie_closure(net, led_out, key=key).dimension) == 8


def test_example_3_1_as_a_plain_function(key, rng):
    """a₁e^{w₁x} + a₂e^{w₂x}: 4 off the diagonal, 2 on it; for a function the upper bound is D."""

    def f(theta, x):
        return theta["a"] @ jnp.exp(theta["w"][:, None] * x)

    x = rng.normal(size=16)
    off = lie_closure(f, {"a": np.array([1.0, 2.0]), "w": np.array([0.7, 0.7])}, key=key, inputs=x)
    assert dimensions(off) == [2, 3, 4] and off.certified and off.agree and off.misfit < 1e-6
    on = lie_closure(f, {"a": np.array([1.0, 1.0]), "w": np.array([0.7, 0.7])}, key=key, inputs=x)
    assert (
        int(on.dimension) == int(on.along_orbit) == 2 and on.upper_bound == 4 and not on.certified
    )
    np.testing.assert_allclose(on.basis @ [[1, 0], [-1, 0], [0, 1], [0, -1]], 0, atol=1e-12)


def test_linear_models_have_the_trivial_orbit(key, rng, tally):
    """Proposition 3.3: closure dimension M everywhere; with dependent features it is their rank."""
    x, hits = rng.normal(size=16), 0
    for theta in (np.zeros(3), np.array([1.0, 0.0, -2.0]), rng.normal(size=3)):
        closure = lie_closure(
            lambda t, x: t[0] * jnp.sin(x) + t[1] * x + t[2] * x**2,
            theta,
            key=key,
            inputs=x,
            depth=2,
        )
        assert dimensions(closure) == [3, 3] and closure.certified
        hits += 1
    dependent = lie_closure(
        lambda t, x: (t[0] + t[1]) * x + t[2], np.ones(3), key=key, inputs=x, depth=2
    )
    assert dimensions(dependent) == [2, 2] and int(dependent.along_orbit) == 2
    tally(hits, of=3, what="points with the whole space for orbit")


def test_gradients_of_losses_lie_in_the_closure(key, rng, draws, tally):
    """Theorem 3.1: random data, several losses, on a leaf; a random direction does not lie in
    it.
    """
    neurons = rng.normal(size=(4, 3))
    neurons[1], neurons[3] = -neurons[0], 0
    net, params = two_layer("tanh", neurons)
    closure = lie_closure(net, params, key=key)
    assert int(closure.dimension) == 6
    losses = [
        nm.losses.mse,
        nm.losses.huber,
        lambda p, y: jnp.mean(jnp.cosh(p - y)),
        lambda p, y: jnp.mean(p**3 * y),
    ]
    residuals = []
    with jax.enable_x64(True):
        theta = jax.tree.map(jnp.asarray, params)
        for loss in losses:
            gradient = jax.jit(jax.grad(lambda p, x, y, loss=loss: loss(net(p, x), y)))
            for _ in range(draws(5)):
                x, y = rng.normal(size=(7, 2)), rng.normal(size=(7, 1))
                residuals.append(closure.residual(gradient(theta, x, y)))
    assert max(residuals) < 1e-12
    assert closure.residual(rng.normal(size=12)) > 0.1
    tally(len(residuals), of=len(residuals), what="loss gradients inside the closure")


def test_commuting_fields_do_not_yield_noise(key):
    """σ(z) = z², d = 1: all fields are parallel, brackets cancel, and a bracket that is rounding
    must not be normalised.
    """
    neurons = [[0.3, 1.1], [0.7, -0.4]]
    honest = closure_of(nm.power(2), neurons, key, exact=False, depth=3)
    assert (
        dimensions(honest) == [1, 1, 1]
        and honest.certified
        and "one function of x" in honest.reason
    )
    normalised = closure_of(
        nm.power(2), neurons, key, exact=False, depth=3, bracket_rtol=0.0, rtol=1e-30
    )
    assert dimensions(normalised)[-1] > 1


def test_deep_networks_with_biases_and_outputs(key, rng):
    """Brackets add what the Jacobian lacks; condensed networks have the dimension of their leaf."""
    net = nm.MLP((1, 2, 2, 1), "sigmoid")
    params = jax.tree.map(lambda a: rng.normal(size=a.shape), net.init(key=key, dtype="float64"))
    closure = lie_closure(net, params, key=key)
    assert closure.agree and closure.certified and int(closure.dimension) == 13
    pair = nm.MLP((2, 3, 2), "tanh", scaling="ntk")
    params = jax.tree.map(lambda a: rng.normal(size=a.shape), pair.init(key=key, dtype="float64"))
    params[0].weight[1], params[0].bias[1], params[1].weight[:, 1] = (
        params[0].weight[0],
        params[0].bias[0],
        params[1].weight[:, 0],
    )
    expect(lie_closure(pair, params, key=key), 17 - 5)


def test_eight_neurons_three_inputs_depth_four_in_seconds(key):
    net = nm.MLP((3, 8, 1), "tanh", bias=False)
    params = net.init(key=key)
    start = time.perf_counter()
    closure = lie_closure(net, params, key=key, depth=4)
    assert time.perf_counter() - start < 10.0
    assert dimensions(closure) == [32, 32, 32, 32] and closure.certified


def test_no_compilation_but_of_the_activation(key, rng):
    """Deep brackets of a network of a new shape compile nothing."""
    closure_of("tanh", rng.normal(size=(3, 3)), key, depth=4)
    start = time.perf_counter()
    closure_of("tanh", rng.normal(size=(3, 4)), key, depth=4)
    assert time.perf_counter() - start < 2.0


def test_either_global_flag(x64, key):
    closure = closure_of("exp", [[1.0, 0.7], [2.0, 0.7]], key)
    assert int(closure.dimension) == 4 and closure.basis.dtype == np.float64


def test_what_is_read_from_a_result(key):
    closure = closure_of("tanh", [[1.0, 0.0]], key)
    assert str(closure) == (
        "Lie closure of dimension 2 of 2 (by depth 1, 1, 1, 2; certified: there are 2 parameters)"
    )
    assert closure.route == "brackets in float64, and transport along the orbit"
    np.testing.assert_allclose(closure.basis @ closure.basis.T, np.eye(2), atol=1e-12)
    assert closure.inputs.shape[1] == 1 and closure.by_depth[-1] == closure.along_orbit


def test_bad_input(key):
    net, params = two_layer("exp", [[1.0, 0.7]])
    with unchecked():
        with pytest.raises(ValueError, match="`depth` is 0; pass a positive whole number"):
            lie_closure(net, params, key=key, depth=0)
        with pytest.raises(
            ValueError, match="`depth` is 1000000000000, and each depth takes three"
        ):
            lie_closure(net, params, key=key, depth=10**12)
        with pytest.raises(TypeError, match="`key` is 3; pass a JAX key"):
            lie_closure(net, params, key=3)
        with pytest.raises(
            TypeError, match="`exact=True` needs a network of rational operations without bends"
        ):
            lie_closure(net, params, key=key, exact=True)
        with pytest.raises(ValueError, match="`inputs` is None but `f` is a function"):
            lie_closure(lambda t, x: t * x, np.ones(1), key=key)
        for name in ("rtol", "bracket_rtol", "flow_rtol"):
            with pytest.raises(ValueError, match=f"`{name}` is 1000000000000; pass a fraction"):
                lie_closure(net, params, key=key, **{name: 10**12})
        with pytest.raises(ValueError, match="the network takes 1"):
            lie_closure(net, params, key=key, inputs=np.ones((4, 2)))
        with pytest.raises(ValueError, match=r"`params\[0\].weight` has shape"):
            lie_closure(net, (nm.Layer(np.ones((2, 2))), params[1]), key=key)
        with pytest.raises(TypeError, match="needs concrete values"):
            jax.jit(lambda p: lie_closure(net, p, key=key))(params)


def test_the_upper_bound_of_a_function_is_its_number_of_parameters():
    assert closure_upper_bound(lambda t, x: t[0] * x, np.ones(3)).value == 3


def test_default_inputs_reach_the_regions_of_a_relu_network_wherever_its_kinks_are():
    """Two lines cut the plane into 4 regions, three points the line into 4; few inputs inside
    one region see more conserved.
    """
    net, line = nm.MLP((2, 2, 2)), nm.MLP((1, 3, 1))
    for seed in range(3):
        closure = nm.lie_closure(net, net.init(key=jax.random.key(seed)), key=jax.random.key(0))
        assert (net.n_params - int(closure.dimension), closure.certified, closure.regions) == (
            2,
            True,
            4,
        )
        params = line.init(key=jax.random.key(seed))
        assert nm.lie_closure(line, params, key=jax.random.key(0)).regions == 4
    few = nm.lie_closure(
        line, params, key=jax.random.key(0), inputs=np.array([[100.0], [101.0], [102.0]])
    )
    assert few.regions == 1
    assert not few.certified
    assert "fields of the 1 regions met" in str(few)
    assert (
        nm.lie_closure(
            nm.MLP((1, 2, 1), "tanh"),
            nm.MLP((1, 2, 1)).init(key=jax.random.key(0)),
            key=jax.random.key(0),
        ).regions
        is None
    )
