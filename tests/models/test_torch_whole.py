"""`from_torch(…, whole=True)`: the first axis counts no samples, as in a network on a fixed graph."""

import numpy as np
import pytest
import torch

import neuromanifold as nm

EDGES = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 2]])  # the last one is a loop


class Convolution(torch.nn.Module):
    """σ(D⁻¹ A X W) over the edges that are no loops, as graph libraries write it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 2))

    def forward(self, x, edges):
        source, target = edges[:, edges[0] != edges[1]]
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros(len(x), dtype=x.dtype).scatter_add_(0, target, ones)
        scale = degree.pow(-1).masked_fill_(degree == 0, 0.0)[target]
        sent = (x @ self.weight)[source] * scale[:, None]
        return torch.zeros(len(x), 2, dtype=x.dtype).index_add(0, target, sent).tanh()


class Thresholded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.read(x[x[:, 0] > 0]).sum(0)


def test_a_graph_network_is_its_formula():
    module, x = Convolution(), torch.randn(4, 3)
    f, params = nm.from_torch(module, example=x, kwargs={"edges": EDGES}, whole=True)
    A = np.zeros((4, 4))
    for source, target in EDGES.T.tolist():
        A[target, source] += source != target
    A /= A.sum(1, keepdims=True).clip(1)
    graphs = np.random.default_rng(0).standard_normal((5, 4, 3))
    W = params["weight"].astype(np.float64)
    y = np.tanh(A @ graphs @ W)
    assert np.abs(np.asarray(f({"weight": W}, graphs)) - y).max() < 1e-14
    # ∂y_nc/∂W_kc = (1 − y²) (A X)_nk, and nothing of another column.
    slopes = (1 - y**2)[..., None, None] * (A @ graphs)[:, :, None, :, None] * np.eye(2)[:, None]
    J = slopes.reshape(40, 6)
    kernel = np.asarray(nm.ntk(f, {"weight": W}, graphs))
    assert np.abs(kernel - J @ J.T).max() < 1e-13


def test_nodes_are_no_samples():
    with pytest.raises(ValueError, match="whole=True"):
        nm.from_torch(Convolution(), example=torch.randn(4, 3), kwargs={"edges": EDGES})


def test_edges_that_are_inputs_and_masks_of_inputs_are_refused():
    with pytest.raises(ValueError, match="entries that a mask picks"):
        nm.from_torch(Convolution(), example=(torch.randn(4, 3), EDGES), whole=True)
    with pytest.raises(ValueError, match="entries that a mask picks"):
        nm.from_torch(Thresholded(), example=torch.randn(4, 3), whole=True)
