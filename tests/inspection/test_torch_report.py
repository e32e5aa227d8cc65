"""The smaller network that a report offers stands alone: PyTorch reads it, statistics included."""

import pytest
import torch
from safetensors.torch import load

import neuromanifold as nm
from neuromanifold.report.reduction import _file


def build(width: int) -> torch.nn.Sequential:
    layers = torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 2))


@pytest.fixture
def trained() -> torch.nn.Sequential:
    """Batch normalisation with running means that are not 0, one dead unit and one copy."""
    torch.manual_seed(0)
    module = build(6)
    for _ in range(50):
        module(torch.randn(64, 4) * 2 + 1)
    norm = module[1]
    with torch.no_grad():
        norm.bias[0] = -99.0
        for t in (*module[0].parameters(), *norm.parameters(), norm.running_mean, norm.running_var):
            t[1] = t[2]
    return module.eval()


def test_the_file_of_a_network_with_batch_normalisation_stands_alone(trained):
    x = torch.randn(1400, 4) * 2 + 1
    f, params = nm.from_torch(trained, example=x[:3])
    found = nm.inspect(f, params, x.numpy(), samples=100)
    assert (found.n_samples, found.n_reduced, found.reduction.neurons_saved) == (100, 1400, 2)
    assert [s.off for s in found.layers] == [1]
    assert len(found.conserved) == 6  # (γ, β)·c with the next weights / c, for each channel
    small = build(4)
    keys = small.load_state_dict(load(_file(found.reduction)), strict=False)
    assert not keys.unexpected_keys and keys.missing_keys in ([], ["1.num_batches_tracked"])
    with torch.no_grad():
        moved = (small.eval()(x) - trained(x)).abs().max() / trained(x).abs().max()
    assert moved < 64 * torch.finfo(torch.float32).eps
