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
    x = rng.normal(size=(50, 4)).astype(np.float32)
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
