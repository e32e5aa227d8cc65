"""Functional dimensions that can be worked out by hand."""

from itertools import product

import numpy as np
import pytest

import naive
import neuromanifold as nm


def exact(net: nm.MLP, params, x: np.ndarray) -> int:
    return int(nm.functional_dimension(net, params, x, exact=True))


def linear(
    rng: np.random.Generator, d: int, r: int, c: int, *, bias: bool
) -> tuple[nm.MLP, tuple[nm.Layer, ...]]:
    layers = [
        nm.Layer(rng.normal(size=(b, a)), rng.normal(size=b) if bias else None)
        for a, b in [(d, r), (r, c)]
    ]
    return nm.MLP((d, r, c), "identity", bias=bias), tuple(layers)


SIZES = [(d, r, c) for d, c in product(range(1, 5), repeat=2) for r in range(1, min(d, c) + 1)]


@pytest.mark.parametrize("d, r, c", SIZES)
def test_two_layer_linear_nets_without_biases(d: int, r: int, c: int, rng: np.random.Generator):
    """W₂W₁ moves in the matrices of rank r, whose dimension is r(d+c−r); d generic samples see
    all of it.
    """
    net, params = linear(rng, d, r, c, bias=False)
    for n in (d, d + 3):
        assert exact(net, params, rng.normal(size=(n, d))) == r * (d + c - r)
    # One sample fewer loses c − r dimensions: the part of Q in W₂P + QW₁ that only the lost sample
    # sees.
    if d > 1:
        seen = naive.functional_dimension(
            naive.Network(((naive.IDENTITY,) * r,)), params, x := rng.normal(size=(d - 1, d))
        )
        assert exact(net, params, x) == seen < r * (d + c - r)


@pytest.mark.parametrize("d, r, c", SIZES)
def test_two_layer_linear_nets_with_biases(d: int, r: int, c: int, rng: np.random.Generator):
    """The last bias adds all constants, c dimensions; the first adds only some of the same. That
    needs d + 1 samples: on d of them the constants v equal the linear maps vwᵀ with Xw = 1, and
    those with v in the image of W₂ (r of
    them; all c where W₁ is injective) are counted already."""
    net, params = linear(rng, d, r, c, bias=True)
    for n in (d + 1, d + 4):
        assert exact(net, params, rng.normal(size=(n, d))) == r * (d + c - r) + c
    assert exact(net, params, rng.normal(size=(d, d))) == r * (d + c - r) + (c - r if r < d else 0)


@pytest.mark.parametrize("d, r, c", [(2, 3, 2), (1, 2, 3), (3, 4, 1)])
def test_the_formula_is_one_for_ranks_that_matrices_can_have(
    d: int, r: int, c: int, rng: np.random.Generator
):
    net, params = linear(rng, d, r, c, bias=False)
    assert exact(net, params, rng.normal(size=(d + 2, d))) == d * c != r * (d + c - r)


def kinked(
    rng: np.random.Generator, neurons: int, outputs: int
) -> tuple[nm.MLP, tuple[nm.Layer, ...], np.ndarray]:
    """One input, kinks exactly at 1, …, m in either direction, two samples in each of the m + 1
    intervals.
    """
    weight = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], size=(neurons, 1))
    bias = -weight[:, 0] * np.arange(1, neurons + 1)
    params = (
        nm.Layer(weight, bias),
        nm.Layer(rng.normal(size=(outputs, neurons)), rng.normal(size=outputs)),
    )
    x = (np.arange(neurons + 1)[:, None] + [0.25, 0.75]).reshape(-1, 1)
    return nm.MLP((1, neurons, outputs)), params, x


@pytest.mark.parametrize("neurons", [1, 2, 5, 9])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_one_hidden_layer_with_distinct_well_sampled_kinks(
    neurons: int, outputs: int, rng: np.random.Generator
):
    """Each neuron's derivatives jump at its own kink, so that only its positive rescaling is
    lost: D − m.
    """
    net, params, x = kinked(rng, neurons, outputs)
    assert exact(net, params, x) == net.n_params - neurons
    leaky = nm.MLP(net.widths, nm.leaky_relu(0.25))
    assert exact(leaky, params, x) == net.n_params - neurons


def test_kinks_that_coincide_or_are_not_sampled_lose_more(rng: np.random.Generator):
    net, (first, last), x = kinked(rng, 4, 1)
    same = nm.Layer(first.weight, first.bias.copy())
    same.bias[1] = same.bias[0] * same.weight[1, 0] / same.weight[0, 0]
    assert exact(net, (same, last), x) < net.n_params - 4
    assert exact(net, (first, last), x[2:]) < net.n_params - 4
    # Opposite neurons with one kink: everything piecewise affine with a jump there, 4 of D − m = 5
    # dimensions.
    opposite = (
        nm.Layer(np.array([[1.0], [-1.0]]), np.array([-1.0, 1.0])),
        nm.Layer(np.ones((1, 2)), np.zeros(1)),
    )
    assert exact(nm.MLP((1, 2, 1)), opposite, np.array([[0.25], [0.5], [1.5], [2.0]])) == 4


@pytest.mark.parametrize("outputs", [1, 2])
def test_distinct_lines_in_the_plane(outputs: int, rng: np.random.Generator, draws, tally):
    """The same count in the plane, where every line is crossed by samples on both sides in
    general position.
    """
    x, full = (np.stack(np.meshgrid(*[np.arange(-8, 9)] * 2), -1).reshape(-1, 2) + 1 / 16) / 2, 0
    for _ in range(draws(10)):
        angles = np.round(64 * np.linspace(0, np.pi, 5, endpoint=False) + rng.uniform(0, 8)) / 64
        weight = (
            np.round(64 * np.stack([np.cos(angles), np.sin(angles)], 1))
            / 64
            * rng.choice([-1, 1], (5, 1))
        )
        params = (
            nm.Layer(weight, rng.integers(-64, 65, 5) / 64),
            nm.Layer(rng.normal(size=(outputs, 5)), np.ones(outputs)),
        )
        net = nm.MLP((2, 5, outputs))
        full += exact(net, params, x) == net.n_params - 5
    tally(full, of=draws(10), what="drawn arrangements of five lines")
    assert full == draws(10)


def test_a_bias_free_net_loses_the_scaling_too(rng: np.random.Generator):
    """Lines through the origin: each neuron spans wᵢ-halfplane times linear functions, D − m =
    m(d + o − 1).
    """
    weight = np.array([[1.0, 0.0], [1.0, 2.0], [-1.0, 1.0]])
    net, params = (
        nm.MLP((2, 3, 2), bias=False),
        (nm.Layer(weight, None), nm.Layer(rng.normal(size=(2, 3)), None)),
    )
    assert exact(net, params, rng.normal(size=(40, 2))) == net.n_params - 3


def test_rank_of_the_kernel_is_rank_of_the_jacobian_over_the_rationals_but_not_in_floats(
    rng: np.random.Generator,
):
    """[complexity, Lemma 3.3]: true in exact arithmetic; squaring the condition number loses
    ranks in float64.
    """
    net = naive.Network(((naive.RELU,) * 3,))
    params = [
        (rng.integers(-4, 5, (3, 2)) / 4, rng.integers(-4, 5, 3) / 4),
        (np.array([[2.0**-30, 1, 1]]), np.zeros(1)),
    ]
    x = rng.integers(-9, 10, (8, 2)) / 4
    jacobian = naive.jacobian(net, naive.exact(params), naive.exact(x))
    assert naive.exact_rank(jacobian @ jacobian.T) == naive.exact_rank(jacobian)
    floats = np.diag([1.0, 2.0**-30])
    assert naive.singular_rank(floats)[0] == 2 > naive.singular_rank(floats @ floats.T)[0]
