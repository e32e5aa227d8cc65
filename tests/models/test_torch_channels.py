"""Channels of PyTorch networks: scalings behind batch normalisation, and reductions that find what
was planted.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

import neuromanifold as nm
from torch_architectures import VGG11, MobileNetV3Small, ResNet18, trained_like
from torch_planting import Planting, plant
from torch_zoo import GPT


def normalised() -> nn.Module:
    """Linear(4, 6), batch normalisation with trained statistics, ReLU, Linear: unit 1 dead, 4 a copy
    of 2.
    """
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    first, norm = module[0], module[1]
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        norm.weight.normal_(1.0, 0.2)
        norm.bias.normal_(1.0, 0.2)
        norm.bias[1] = -50.0
        for a in (first.weight, first.bias, norm.weight, norm.bias):
            a[4] = a[2]
        norm.running_mean[4], norm.running_var[4] = norm.running_mean[2], norm.running_var[2]
    return module.eval()


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("fold", [False, True])
def test_units_behind_trained_statistics_go_by_default(statistics, fold, rng):
    x = 5 * rng.normal(size=(50, 4)).astype(np.float32)  # no unit is on at all of them
    f, params = nm.from_torch(normalised(), example=x, statistics=statistics)
    small = nm.reduce_width(f, params, x, fold=fold)
    assert small.neurons_saved == 2 and not small.left_out
    assert small.deviation < 1e-14
    control = normalised()
    with torch.no_grad():
        control[1].bias[1] = 1.0
        control[1].running_mean[4] += 0.5
    f, params = nm.from_torch(control, example=x, statistics=statistics)
    assert nm.reduce_width(f, params, x, fold=fold).neurons_saved == 0


@pytest.mark.parametrize("statistics", [False, True])
def test_gains_and_shifts_scale_against_the_next_weights(statistics, rng):
    """(γ, β)·c with the next weights over c, for each of 6 channels; with statistics among the
    parameters the first layer scales with its mean and variance too.
    """
    x = rng.normal(size=(50, 4)).astype(np.float32)
    f, params = nm.from_torch(normalised(), example=x, statistics=statistics)
    found = nm.symmetry.channel_scalings(f, params, x)
    assert found.count == (12 if statistics else 6)
    assert not found.left_out and found.deviation < 1e-14


def networks() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    yield "ResNet", lambda: ResNet18(8)
    yield "VGG", lambda: VGG11(4, hidden=64)
    yield "MobileNet", lambda: MobileNetV3Small(blocks=3, hidden=64, classes=10)
    yield "GPT", lambda: GPT(17, 32, 4, 2, 8)


NETWORKS = dict(networks())


def inputs(kind: str, rng: np.random.Generator) -> np.ndarray:
    images = rng.normal(size=(16, 3, 32, 32)).astype(np.float32)
    return rng.integers(0, 17, (16, 8)) if kind == "GPT" else images


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_planted_channel_is_found(kind, rng):
    torch.manual_seed(0)
    plan, module = Planting(rng), trained_like(NETWORKS[kind](), 0)
    plant(module, plan, 1 / 16)
    x = inputs(kind, rng)
    f, params = nm.from_torch(module, example=x)
    small = nm.reduce_width(f, params, x, rtol=1e-6)
    names = enumerate(small.whole.names)
    kept = {name: small.whole.kept[k][0] for k, name in names if small.whole.shapes[k]}
    assert plan.count > 10 and not plan.missed(kept)
    with torch.no_grad():
        outputs = module(torch.as_tensor(x)).numpy()
    assert small.deviation < 1e-5 * np.abs(outputs).max()


@pytest.mark.parametrize("kind", ["ResNet", "GPT"])
def test_a_network_without_redundant_channels_keeps_them(kind, rng):
    torch.manual_seed(0)
    module, x = trained_like(NETWORKS[kind](), 0), inputs(kind, rng)
    f, params = nm.from_torch(module, example=x)
    small = nm.reduce_width(f, params, x, everywhere=True, rtol=1e-6)
    assert small.neurons_saved == 0 and {r.what for r in small.removed} <= {"parameter"}


def shaken(module: nn.Module) -> nn.Module:
    """The module at generic parameters."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return module.eval()


def test_the_rules_of_a_transformer_are_all_its_directions():
    """Queries and keys, values and outputs GL(3) of 2 heads each; key biases fall out of softmax,
    value biases go into the output's; gains and offsets fold; LayerNorm removes the ones direction
    of what writes the stream and of what reads it. Together they are the kernel of J, by its rank.
    """
    rng = np.random.default_rng(0)
    f, params = nm.from_torch(shaken(GPT(9, 6, 2, 1, 5)), example=rng.integers(0, 9, (2, 5)))
    x = rng.integers(0, 9, (60, 5))
    found = nm.symmetry.structural_symmetries(f, params, x)
    ones = 5 + (6 + 1) + (24 + 1) + 18 + 24
    assert list(found.kinds.values()) == [4 * 6, 2 * 3**2, 2 * 3**2, 6, 6, ones]
    rank = nm.functional_dimension(f, params, x)
    assert float(rank.gap) > 1e6
    assert found.exact and found.orbit == found.parameters - int(rank)
    assert found.deviation < 1e-13 and not found.left_out


def test_rules_of_a_transformer_grow_with_its_width():
    """The closed forms at another odd width, and that its control, a head with an activation on its
    values, loses the values' matrices.
    """

    class Bent(nn.Module):
        def __init__(self, bend: bool) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(10, 15) for _ in range(3))
            self.proj, self.bend = nn.Linear(15, 4), bend

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, t, _ = x.shape
            q, k, v = (
                part(x).view(n, t, 3, 5).transpose(1, 2) for part in (self.q, self.k, self.v)
            )
            v = torch.tanh(v) if self.bend else v
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.proj(y.transpose(1, 2).reshape(n, t, 15))

    x = np.random.default_rng(0).normal(size=(3, 6, 10))
    counts = []
    for bend in (False, True):
        f, params = nm.from_torch(shaken(Bent(bend).double()), example=x)
        counts.append(nm.symmetry.structural_symmetries(f, params, x).kinds)
    heads, keys = "GL(5) of each of 3 heads", "key biases, which softmax removes"
    assert counts[0] == {
        f"{heads}, queries and keys": 3 * 5**2,
        f"{heads}, values and outputs": 3 * 5**2,
        keys: 15,
        "a shift that the next shift takes over": 15,
    }
    assert counts[1] == {f"{heads}, queries and keys": 3 * 5**2, keys: 15}
