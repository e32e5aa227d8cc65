"""A PyTorch network, reduced: its own layers at smaller widths, with the same outputs."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import neuromanifold as nm


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 4, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16, 3)).double().eval()


def planted(module: nn.Module) -> nn.Module:
    """A dead channel and one twice another in the first layer, one that nothing reads in the second."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        module[0].bias[1] = -50.0
        module[0].weight[4], module[0].bias[4] = 2 * module[0].weight[2], 2 * module[0].bias[2]
        module[6].weight.view(3, 4, 4)[:, 3] = 0.0
    return module


def test_a_reduced_network_comes_back_in_the_layers_of_its_module(rng):
    module, x = planted(network()), rng.normal(size=(30, 1, 8, 8))
    f, params = nm.from_torch(module, example=torch.from_numpy(x[:2]))
    small = nm.reduce_width(f, params, x)
    twin = nm.to_torch(module, small.params, resize=True)
    assert (twin[0].out_channels, twin[3].in_channels, twin[3].out_channels, twin[6].in_features) == (3, 3, 3, 12)
    new = torch.from_numpy(rng.normal(size=(50, 1, 8, 8)))
    with torch.no_grad():
        assert (twin(new) - module(new)).abs().max() < 1e-13
    assert module[0].out_channels == 5
    assert (
        sum(p.numel() for p in twin.parameters())
        == sum(p.numel() for p in module.parameters()) - small.parameters_saved
    )


def test_what_cannot_be_resized_says_so():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).double().eval()
    params = {name: p.detach().numpy() for name, p in module.named_parameters()}
    narrow = {**params, "0.weight": params["0.weight"][:2], "0.bias": params["0.bias"][:2]}
    narrow |= {"1.weight": params["1.weight"][:2], "1.bias": params["1.bias"][:2]}
    with pytest.raises(
        ValueError, match="a BatchNorm1d cannot be resized; linear layers and convolutions without groups can"
    ):
        nm.to_torch(module, narrow, resize=True)
    with pytest.raises(ValueError, match="the network is constant behind it"):
        nm.to_torch(module, {**params, "0.weight": np.zeros((0, 2)), "0.bias": np.zeros(0)}, resize=True)
    with pytest.raises(ValueError, match=r"has shape .* the module needs"):
        nm.to_torch(module, narrow)
    assert np.shape(params["0.weight"]) == (3, 2)
