"""Kernels of neural-tangents 0.6.5, computed on its own old JAX in float64 and stored."""

from pathlib import Path

import numpy as np
import pytest

import naive
import neuromanifold as nm

STORED = dict(np.load(Path(__file__).parents[1] / "data" / "neural_tangents.npz"))
PARAMS = tuple(nm.Layer(STORED[f"mlp/weight{i}"], STORED[f"mlp/bias{i}"]) for i in range(3))
WIDTHS = (5, 16, 12, 3)
CASES = [
    (scaling, activation) for scaling in ("standard", "ntk") for activation in ("relu", "tanh")
]


def error(kernel: np.ndarray, scaling: str, activation: str) -> float:
    expected = STORED[f"empirical/{scaling}/{activation}"]
    assert kernel.shape == expected.shape == (18, 12)
    return np.abs(kernel - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("scaling, activation", CASES)
def test_empirical_kernels(scaling: str, activation: str, x64: bool):
    net = nm.MLP(WIDTHS, activation, scaling=scaling)
    for memory in (None, 20_000):
        assert (
            error(
                nm.ntk(net, PARAMS, STORED["x1"], STORED["x2"], memory=memory), scaling, activation
            )
            < 1e-10
        )


@pytest.mark.parametrize("scaling, activation", CASES)
def test_the_naive_kernel_agrees_as_well(scaling: str, activation: str):
    scalar = {"relu": naive.RELU, "tanh": naive.SMOOTH["tanh"]}[activation]
    reference = naive.Network(((scalar,) * 16, (scalar,) * 12), ntk=scaling == "ntk")
    kernel = naive.ntk(reference, naive.plain(PARAMS), STORED["x1"], STORED["x2"])
    assert error(kernel, scaling, activation) < 1e-13


@pytest.mark.parametrize("scaling, activation", CASES)
def test_single_precision_and_other_networks_are_told_apart(scaling: str, activation: str):
    narrow = tuple(nm.Layer(*(leaf.astype(np.float32) for leaf in layer)) for layer in PARAMS)
    x1, x2 = STORED["x1"].astype(np.float32), STORED["x2"].astype(np.float32)
    net = nm.MLP(WIDTHS, activation, scaling=scaling)
    assert 1e-10 < error(nm.ntk(net, narrow, x1, x2), scaling, activation) < 1e-5
    other = nm.MLP(WIDTHS, activation, scaling="ntk" if scaling == "standard" else "standard")
    assert error(nm.ntk(other, PARAMS, STORED["x1"], STORED["x2"]), scaling, activation) > 1e-2
