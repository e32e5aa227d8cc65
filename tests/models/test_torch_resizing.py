"""A PyTorch network, reduced: its own layers at smaller widths, with the same outputs."""

import copy

import jax
import numpy as np
import pytest
import torch
from torch import nn

import neuromanifold as nm
from torch_zoo import GPT


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(16, 3)).double().eval()


def planted(module: nn.Module) -> nn.Module:
    """A dead channel and one twice another in the first layer, one that nothing reads in the
    second.
    """
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
    assert (
        twin[0].out_channels,
        twin[3].in_channels,
        twin[3].out_channels,
        twin[6].in_features,
    ) == (3, 3, 3, 12)
    new = torch.from_numpy(rng.normal(size=(50, 1, 8, 8)))
    with torch.no_grad():
        assert (twin(new) - module(new)).abs().max() < 1e-13
    assert module[0].out_channels == 5
    assert (
        sum(p.numel() for p in twin.parameters())
        == sum(p.numel() for p in module.parameters()) - small.parameters_saved
    )


def normalised() -> nn.Module:
    """Convolutions and a linear layer, each followed by a batch normalisation that has seen
    data; dead and unread channels.
    """
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3),
        nn.BatchNorm2d(4, affine=False),
        nn.ReLU(),
    ]
    module = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    ).double()
    with torch.no_grad():
        module[1].weight.uniform_(0.5, 2.0)
        module(torch.randn(64, 1, 8, 8, dtype=torch.float64))
        module[1].bias[1] = -50.0
        module[7].weight.view(6, 4, 16)[:, 2] = 0.0
        module[8].bias[3] = -50.0
        module[10].weight[:, 5] = 0.0
    return module.eval()


def test_batch_normalisations_follow_their_channels(rng):
    module, x = normalised(), rng.normal(size=(30, 1, 8, 8))
    f, params = nm.from_torch(module, example=torch.from_numpy(x[:2]), statistics=True)
    small = nm.reduce_width(f, params, x, fold=False)
    twin = nm.to_torch(module, small.params, resize=True)
    assert [twin[k].num_features for k in (1, 4, 8)] == [4, 3, 4]
    assert (
        twin[0].out_channels,
        twin[3].out_channels,
        twin[7].out_features,
        twin[10].in_features,
    ) == (4, 3, 4, 4)
    assert twin[1].running_var.tolist() == [
        v for k, v in enumerate(module[1].running_var.tolist()) if k != 1
    ]
    assert twin[4].running_mean.tolist() == [
        v for k, v in enumerate(module[4].running_mean.tolist()) if k != 2
    ]
    new = torch.from_numpy(rng.normal(size=(50, 1, 8, 8)))
    with torch.no_grad():
        assert (twin(new) - module(new)).abs().max() < 1e-12
        twin[1].running_mean.copy_(
            module[1].running_mean[:4]
        )  # the control: statistics of other channels
        assert (twin(new) - module(new)).abs().max() > 1e-3
    assert module[1].num_features == 5
    state = nm.to_torch(module, params, resize=True).state_dict()
    assert all(torch.equal(state[name], value) for name, value in module.state_dict().items())


def test_statistics_are_constants_unless_asked_for(rng):
    module, x = normalised(), rng.normal(size=(4, 1, 8, 8))
    example = torch.from_numpy(x)
    f, params = nm.from_torch(module, example=example)
    g, more = nm.from_torch(module, example=example, statistics=True)
    assert set(more) - set(params) == {
        f"{k}.running_{s}" for k in (1, 4, 8) for s in ("mean", "var")
    }
    np.testing.assert_allclose(g(more, x), f(params, x), rtol=1e-13, atol=1e-13)
    moved = {**more, "8.running_mean": more["8.running_mean"] + 1.0}
    assert np.abs(np.asarray(g(moved, x)) - np.asarray(f(params, x))).max() > 1e-3
    with torch.no_grad():
        again = nm.to_torch(module, moved)(example)
    np.testing.assert_allclose(again, g(moved, x), rtol=1e-12, atol=1e-12)


def test_what_cannot_be_resized_says_so():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).double().eval()
    params = {name: p.detach().numpy() for name, p in module.named_parameters()}
    narrow = {**params, "0.weight": params["0.weight"][:2], "0.bias": params["0.bias"][:2]}
    narrow |= {"1.weight": params["1.weight"][:2], "1.bias": params["1.bias"][:2]}
    with pytest.raises(ValueError, match="does not say which of its running statistics stay"):
        nm.to_torch(module, narrow, resize=True)
    layered = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)).double().eval()
    with pytest.raises(
        ValueError,
        match="a LayerNorm cannot be resized; linear layers, convolutions without groups and "
        "batch normalisations can",
    ):
        nm.to_torch(layered, narrow, resize=True)
    with pytest.raises(ValueError, match="the network is constant behind it"):
        nm.to_torch(
            module, {**params, "0.weight": np.zeros((0, 2)), "0.bias": np.zeros(0)}, resize=True
        )
    with pytest.raises(ValueError, match=r"has shape .* the module needs"):
        nm.to_torch(module, narrow)
    assert np.shape(params["0.weight"]) == (3, 2)


class Residual(nn.Module):
    """A stream with a grouped convolution and normalisations: layers whose widths are not their
    own affair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.up, self.depth, self.down = (
            nn.Conv2d(4, 6, 1),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.Conv2d(6, 4, 1),
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.lift(x)))
        h = h + self.down(torch.relu(self.depth(torch.relu(self.up(h)))))
        return self.head(h.mean((2, 3)))


def residual() -> nn.Module:
    """One channel of the branch that nothing reads, one that nothing writes."""
    torch.manual_seed(1)
    module = Residual().double().eval()
    with torch.no_grad():
        module.norm.running_mean.normal_()
        module.norm.running_var.uniform_(0.5, 2.0)
        module.down.weight[:, 2] = 0.0
        module.up.weight[4], module.up.bias[4], module.depth.bias[4] = 0.0, 0.0, 0.0
    return module


class Named(nn.Module):
    """The number of its units is written in the graph, and one of them is read by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gain, self.head = (
            nn.Linear(5, 6),
            nn.Parameter(torch.ones(1)),
            nn.Linear(6, 2),
        )
        with torch.no_grad():
            self.head.weight[:, 3] = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.up(x)) * self.gain.expand(6))


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: planted(network()), residual], ids=["own layers", "residual"]
)
def test_a_reduced_network_comes_back_as_a_graph(make, fold, rng):
    module, x = make(), rng.normal(size=(30, 1, 8, 8))
    f, params = nm.from_torch(module, example=torch.from_numpy(x[:2]))
    small = nm.reduce_width(f, params, x, fold=fold)
    graph = small.to_torch(module, example=torch.from_numpy(x[:1]))
    assert isinstance(graph, torch.fx.GraphModule)
    assert size(graph) == size(module) - small.parameters_saved < size(module)
    new = torch.from_numpy(rng.normal(size=(7, 1, 8, 8)))
    assert (graph(new) - module(new)).abs().max() < 1e-12
    assert set(dict(graph.named_parameters())) == {
        name for name, value in small.params.items() if value is not None
    }
    graph.eval()(new).sum().backward()
    assert all(p.grad is not None for p in graph.parameters())
    with torch.no_grad():
        next(graph.parameters()).mul_(1.5)
    assert (graph(new) - module(new)).abs().max() > 1e-3


def test_a_graph_computes_less_where_its_layers_take_the_smaller_widths(rng):
    images = rng.normal(size=(30, 1, 8, 8))
    headless = GPT(5, 8, 2, 1, 4).double().eval()
    with torch.no_grad():
        headless.blocks[0].proj.weight[:, 4:] = 0.0  # the second head, whose place is counted on
    tokens = rng.integers(0, 5, (6, 4))
    for module, x, padded in (
        (planted(network()), images, False),
        (residual(), images, False),
        (headless, tokens, False),
        (Named().double(), images[:, 0, 0, :5], True),
    ):
        f, params = nm.from_torch(module, example=torch.from_numpy(x[:2]))
        small = nm.reduce_width(f, params, x, fold=False)
        graph = small.to_torch(module, example=x)
        assert small.neurons_saved
        assert any("index_copy" in str(node.target) for node in graph.graph.nodes) is padded


def test_a_graph_takes_the_statistics_of_normalisations_with_their_channels(rng):
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)]
    module, x = nn.Sequential(*layers).double().eval(), rng.normal(size=(20, 1, 4, 4))
    with torch.no_grad():
        module[1].running_mean.normal_()
        module[4].weight.view(2, 4, 4)[:, 1] = 0.0
    for statistics in (True, False):
        f, params = nm.from_torch(module, example=torch.from_numpy(x[:2]), statistics=statistics)
        graph = nm.reduce_width(f, params, x, fold=False).to_torch(module, example=x)
        assert (graph(torch.from_numpy(x)) - module(torch.from_numpy(x))).abs().max() < 1e-12
        assert not any("index_copy" in str(node.target) for node in graph.graph.nodes)
        assert size(module) - size(graph) == 10 + 2 + 8
        assert len(graph.get_buffer("1.running_mean")) == 3


def test_a_graph_keeps_names_of_arguments_and_shared_weights(rng):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
            self.second.weight = self.first.weight

        def forward(self, *, data: torch.Tensor, shift: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"y": self.head(torch.relu(self.second(torch.relu(self.first(data))) + shift))}

    torch.manual_seed(2)
    module = Tied().double().eval()
    with torch.no_grad():
        module.head.weight[:, 1] = 0.0
    data = {name: torch.from_numpy(rng.normal(size=(20, 3))) for name in ("data", "shift")}
    f, params = nm.from_torch(module, example=data)
    small = nm.reduce_width(f, params, {name: a.numpy() for name, a in data.items()})
    graph = small.to_torch(module, example=data)
    assert graph.first.weight is graph.second.weight
    assert (graph(**data)["y"] - module(**data)["y"]).abs().max() < 1e-12
    assert size(graph) == size(module) - small.parameters_saved


class _Kernels(nn.Sequential):
    """Branches as PyTorch's batch normalisation does on a GPU."""

    def forward(self, x):
        return super().forward(x if x.shape[0] <= 65_535 else x + 0)


def test_a_graph_of_up_to_65535_samples_is_better_than_none(rng):
    module = _Kernels(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    with torch.no_grad():
        module[0].bias[:3] = -50.0
    x = torch.tensor(rng.normal(size=(40, 3)))
    f, params = nm.from_torch(nn.Sequential(*module), example=x)
    with pytest.warns(UserWarning, match="the graph takes up to 65,535 samples"):
        smaller = nm.reduce_width(f, params, x).to_torch(module, example=x)
    assert torch.allclose(smaller(x), module(x), rtol=1e-12)
    assert sum(p.numel() for p in smaller.parameters()) < sum(
        p.numel() for p in module.parameters()
    )
    f, params = nm.from_torch(module, example=x)  # both branches compute the same
    assert np.allclose(f(params, x.numpy()), module(x).detach().numpy(), rtol=1e-12)


def test_what_did_not_come_from_pytorch_is_no_graph(rng):
    net = nm.MLP((1, 3, 1))
    with pytest.raises(
        TypeError, match=r"the reduced network is an MLP, not one that `nm\.from_torch` gave"
    ):
        nm.reduce_width(net, net.init(key=jax.random.key(0))).to_torch(
            nn.Linear(1, 1), example=np.ones((1, 1))
        )
    module, x = network(), rng.normal(size=(5, 1, 8, 8))
    small = nm.reduce_width(*nm.from_torch(module, example=torch.from_numpy(x)), x)
    with pytest.raises(ValueError, match="`module` has the parameters"):
        small.to_torch(nn.Linear(1, 1), example=x)
