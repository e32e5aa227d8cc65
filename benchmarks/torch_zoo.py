"""Eighty short PyTorch modules, each with what makes its input; `strangers.py` tries them."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Step(nn.Module):
    """A function of a tensor as a layer."""

    def __init__(self, step: Callable[[Tensor], Any]):
        super().__init__()
        self.step = step

    def forward(self, *x: Tensor) -> Any:
        return self.step(*x)


class Wrapped(nn.Module):
    """Layers by name, and a forward pass that uses them."""

    def __init__(self, forward: Callable[..., Any], **layers: Any):
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            if isinstance(layer, Tensor) and not isinstance(layer, nn.Parameter):
                self.register_buffer(name, layer)
            else:
                setattr(self, name, layer)

    def forward(self, *x: Tensor) -> Any:
        return self.run(self, *x)


def rows(*shape: int) -> Tensor:
    return torch.randn(3, *shape)


def tokens(length: int = 6, words: int = 11) -> Tensor:
    return torch.randint(0, words, (3, length))


def mlp(activation: nn.Module, *, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6, bias=bias), activation, nn.Linear(6, 2, bias=bias))


def cnn(*middle: nn.Module, channels: int = 4) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), *middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(channels, 2),
    )  # fmt: skip


ACTIVATIONS = [
    nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.ELU(), nn.SELU(), nn.CELU(), nn.Mish(),
    nn.Hardswish(), nn.Hardtanh(), nn.Softplus(), nn.Softsign(), nn.Tanhshrink(), nn.LeakyReLU(),
    nn.PReLU(), nn.RReLU(), nn.LogSigmoid(), nn.GLU(),
]  # fmt: skip
ZOO: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    f"MLP, {activation}": (
        lambda a=activation: (
            nn.Sequential(nn.Linear(4, 6), a, nn.Linear(3, 2)) if isinstance(a, nn.GLU) else mlp(a)
        ),
        lambda: rows(4),
    )
    for activation in ACTIVATIONS
}
LAYERS: dict[str, tuple[nn.Module, ...]] = {
    "BatchNorm2d": (nn.BatchNorm2d(4), nn.ReLU()),
    "GroupNorm": (nn.GroupNorm(2, 4), nn.ReLU()),
    "InstanceNorm2d": (nn.InstanceNorm2d(4, affine=True), nn.ReLU()),
    "LayerNorm over images": (nn.LayerNorm([4, 6, 6]), nn.ReLU()),
    "LocalResponseNorm": (nn.LocalResponseNorm(2), nn.ReLU()),
    "MaxPool2d": (nn.ReLU(), nn.MaxPool2d(2)),
    "AvgPool2d, padded": (nn.ReLU(), nn.AvgPool2d(3, 2, 1)),
    "LPPool2d": (nn.Softplus(), nn.LPPool2d(2, 2)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), nn.ReLU6(), nn.Conv2d(4, 4, 1)),
    "dilated": (nn.Conv2d(4, 4, 3, dilation=2, padding=2, padding_mode="reflect"), nn.ReLU()),
    "circular": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), nn.ReLU()),
    "ConvTranspose2d": (nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.ReLU()),
    "Upsample nearest": (nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3), nn.SiLU()),
    "Upsample bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), nn.SiLU()),
    "PixelShuffle": (nn.Conv2d(4, 16, 1), nn.PixelShuffle(2), nn.Tanh()),
    "Dropout2d": (nn.Dropout2d(), nn.ReLU()),
    "Softmax over channels": (nn.Softmax2d(),),
    "squeeze and excite": (
        Wrapped(
            lambda m, x: x * torch.sigmoid(m.up(F.relu(m.down(x.mean((2, 3), keepdim=True))))),
            down=nn.Conv2d(4, 2, 1),
            up=nn.Conv2d(2, 4, 1),
        ),
    ),
    "residual": (
        Wrapped(
            lambda m, x: F.relu(x + m.norm(m.conv(x))),
            conv=nn.Conv2d(4, 4, 3, padding=1),
            norm=nn.BatchNorm2d(4),
        ),
    ),
    "ConvNeXt block": (
        Wrapped(
            lambda m, x: (
                x
                + m.scale
                * m.out(F.gelu(m.wide(m.norm(m.deep(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
            ),
            deep=nn.Conv2d(4, 4, 7, padding=3, groups=4),
            norm=nn.LayerNorm(4),
            wide=nn.Linear(4, 8),
            out=nn.Linear(8, 4),
            scale=nn.Parameter(0.1 * torch.ones(4, 1, 1)),
        ),
    ),
    "dense concatenation": (
        Wrapped(
            lambda m, x: torch.cat([x, F.relu(m.conv(x))], 1)[:, ::2],
            conv=nn.Conv2d(4, 4, 3, padding=1),
        ),
    ),
    "unfold and fold": (
        Step(lambda x: F.fold(F.unfold(x, 2, stride=2).tanh(), x.shape[2:], 2, stride=2)),
    ),
}
ZOO |= {
    f"CNN, {name}": (lambda layers=layers: cnn(*layers), lambda: rows(2, 6, 6))
    for name, layers in LAYERS.items()
}


def recurrent(kind: type, **options: Any) -> Callable[[], nn.Module]:
    size = 2 if options.get("bidirectional") else 1
    return lambda: Wrapped(
        lambda m, x: m.out(m.cells(x)[0][:, -1]),
        cells=kind(4, 5, batch_first=True, **options),
        out=nn.Linear(5 * size, 2),
    )


def transformer(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **options)
    return Wrapped(
        lambda m, ids: m.head(m.blocks(m.embed(ids) + m.positions)[:, -1]),
        embed=nn.Embedding(11, 8), positions=nn.Parameter(torch.randn(6, 8)),
        blocks=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), head=nn.Linear(8, 3),
    )  # fmt: skip


def causal(m: Any, ids: Tensor) -> Tensor:
    h = m.embed(ids)
    q, k, v = m.mix(h).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    h = h + m.out(
        F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    )
    return F.linear(F.rms_norm(h, (8,)), m.embed.weight)[:, -1]


def rotary(m: Any, ids: Tensor) -> Tensor:
    h = m.embed(ids)
    angles = torch.arange(6)[:, None] / 10000 ** (torch.arange(4) / 4)
    a, b = h.chunk(2, -1)
    turned = torch.cat(
        [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1
    )
    scores = (turned @ turned.mT / 8**0.5).masked_fill(
        torch.ones(6, 6).triu(1).bool(), float("-inf")
    )
    return m.head((scores.softmax(-1) @ h).mean(1))


def pinn(m: Any, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_(True)
    u = m.net(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 1].sum(), x, create_graph=True)
    return du[:, :1] + u * du[:, 1:2] - 0.1 * ddu[:, 1:2]


def routed(m: Any, x: Tensor) -> Tensor:
    weights, chosen = m.gate(x).softmax(-1).topk(2)
    y = torch.zeros_like(x)
    for k, expert in enumerate(m.experts):
        sample, rank = torch.where(chosen == k)
        y.index_add_(0, sample, weights[sample, rank, None] * expert(x[sample]))
    return y


def neural_ode(m: Any, x: Tensor) -> Tensor:
    for _ in range(5):
        k = m.field(x)
        x = x + 0.2 * m.field(x + 0.1 * k)
    return x


def hyper(m: Any, x: Tensor) -> Tensor:
    w = m.make(x).view(-1, 2, 4)
    return torch.bmm(w, x[:, :, None])[:, :, 0]


def mixture(m: Any, x: Tensor) -> Tensor:
    mean, spread = m.mean(x).view(-1, 3, 2), F.softplus(m.spread(x)).view(-1, 3, 2)
    parts = torch.distributions.Normal(mean, spread).log_prob(x[:, None, :2]).sum(-1)
    return torch.logsumexp(parts + m.weight(x).log_softmax(-1), -1, keepdim=True)


def graph_network(m: Any, x: Tensor, adjacency: Tensor) -> Tensor:
    return m.out(F.relu(adjacency @ m.one(x))).mean(1)


def graph_attention(m: Any, x: Tensor, adjacency: Tensor) -> Tensor:
    h = m.one(x)
    scores = F.leaky_relu(m.left(h) + m.right(h).mT).masked_fill(adjacency == 0, -1e9)
    return m.out(F.elu(scores.softmax(-1) @ h)).mean(1)


def message_passing(m: Any, x: Tensor) -> Tensor:
    source, target = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    sent = F.relu(m.message(torch.cat([x[:, source], x[:, target]], -1)))
    return m.out(torch.zeros_like(sent[:, :4]).index_add(1, target, sent)).flatten(1)


def coupling(m: Any, x: Tensor) -> Any:
    a, b = x.chunk(2, -1)
    scale, shift = m.net(a).chunk(2, -1)
    return torch.cat([a, b * scale.exp() + shift], -1), scale.sum(-1, keepdim=True)


def spatial_transformer(m: Any, x: Tensor) -> Tensor:
    theta = 0.1 * m.locate(x.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3)
    grid = F.affine_grid(theta, x.shape, align_corners=False)
    return m.read(F.grid_sample(x, grid, align_corners=False)).flatten(1)


def kan(m: Any, x: Tensor) -> Tensor:
    centres = torch.linspace(-2, 2, 5)
    return torch.einsum("nik,oik->no", (-((x[..., None] - centres) ** 2)).exp(), m.coefficients)


def set_transformer(m: Any, x: Tensor) -> Tensor:
    return m.pool(m.seeds.expand(len(x), -1, -1), m.each(x), m.each(x))[0].flatten(1)


def convolution_1d(m: Any, x: Tensor) -> Tensor:
    for layer in m.layers:
        x = x + torch.tanh(layer(F.pad(x, (2 * layer.dilation[0], 0))))
    return x[:, :, -1]


def selective_scan(m: Any, x: Tensor) -> Tensor:
    state, outputs = torch.zeros(len(x), 4), []
    for t in range(x.shape[1]):
        state = torch.exp(-F.softplus(m.rate(x[:, t]))) * state + m.write(x[:, t])
        outputs.append(m.read(state))
    return torch.stack(outputs, 1)


def vision_transformer(m: Any, x: Tensor) -> Tensor:
    patches = m.patch(x).flatten(2).mT
    h = torch.cat([m.token.expand(len(x), -1, -1), patches], 1)
    h = h + m.attend(*[m.norm(h)] * 3, need_weights=False)[0]
    return m.head(h[:, 0])


def u_net(m: Any, x: Tensor) -> Tensor:
    deep = F.relu(m.down(F.max_pool2d(x, 2)))
    return m.up(torch.cat([x, F.interpolate(deep, scale_factor=2, mode="nearest")], 1)).flatten(1)


def deep_equilibrium(m: Any, x: Tensor) -> Tensor:
    z = torch.zeros(len(x), 4)
    for _ in range(20):
        z = torch.tanh(0.3 * m.inside(z) + m.outside(x))
    return z


def gaussian_process(m: Any, x: Tensor) -> Tensor:
    z, scale = m.points, m.scale.exp()
    inner = (-(torch.cdist(z, z) ** 2) / scale).exp() + 0.1 * torch.eye(4)
    cross = (-(((x[:, None] - z) ** 2).sum(-1)) / scale).exp()
    return cross @ torch.linalg.solve(inner, m.values)


def kalman(m: Any, x: Tensor) -> Tensor:
    cover = m.root @ m.root.T + torch.eye(4)
    gain = cover @ torch.linalg.inv(cover + torch.eye(4))
    return x @ gain.T + torch.logdet(cover)


def linear(*sizes: int) -> nn.Module:
    return nn.Linear(*sizes)


VECTORS: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]], Callable[[], Any]]] = {
    "GPT with tied head": (
        causal,
        lambda: dict(embed=nn.Embedding(11, 8), mix=linear(8, 24), out=linear(8, 8)),
        tokens,
    ),
    "rotary attention": (
        rotary,
        lambda: dict(embed=nn.Embedding(11, 8), head=linear(8, 2)),
        tokens,
    ),
    "PINN by autograd": (
        pinn,
        lambda: dict(net=nn.Sequential(linear(2, 6), nn.Tanh(), linear(6, 1))),
        lambda: rows(2),
    ),
    "PINN by jacrev": (
        lambda m, x: torch.func.vmap(torch.func.jacrev(lambda t: m.net(t)))(x)[:, 0],
        lambda: dict(net=nn.Sequential(linear(2, 6), nn.Tanh(), linear(6, 1))),
        lambda: rows(2),
    ),
    "mixture of experts": (
        routed,
        lambda: dict(gate=linear(4, 3), experts=nn.ModuleList(linear(4, 4) for _ in range(3))),
        lambda: rows(4),
    ),
    "neural ODE": (
        neural_ode,
        lambda: dict(field=nn.Sequential(linear(4, 5), nn.Tanh(), linear(5, 4))),
        lambda: rows(4),
    ),
    "hypernetwork": (hyper, lambda: dict(make=linear(4, 8)), lambda: rows(4)),
    "mixture density": (
        mixture,
        lambda: dict(mean=linear(4, 6), spread=linear(4, 6), weight=linear(4, 3)),
        lambda: rows(4),
    ),
    "GCN": (
        graph_network,
        lambda: dict(one=linear(3, 5), out=linear(5, 2)),
        lambda: (rows(4, 3), torch.rand(3, 4, 4)),
    ),
    "GAT": (
        graph_attention,
        lambda: dict(one=linear(3, 5), left=linear(5, 1), right=linear(5, 1), out=linear(5, 2)),
        lambda: (rows(4, 3), (torch.rand(3, 4, 4) > 0.4).long()),
    ),
    "message passing": (
        message_passing,
        lambda: dict(message=linear(6, 5), out=linear(5, 2)),
        lambda: rows(4, 3),
    ),
    "normalising flow": (
        coupling,
        lambda: dict(net=nn.Sequential(linear(2, 5), nn.Tanh(), linear(5, 4))),
        lambda: rows(4),
    ),
    "spatial transformer": (
        spatial_transformer,
        lambda: dict(locate=linear(36, 6), read=nn.Conv2d(1, 1, 3, 2)),
        lambda: rows(1, 6, 6),
    ),
    "KAN": (kan, lambda: dict(coefficients=nn.Parameter(torch.randn(2, 4, 5))), lambda: rows(4)),
    "set transformer": (
        set_transformer,
        lambda: dict(
            each=linear(3, 4),
            seeds=nn.Parameter(torch.randn(1, 2, 4)),
            pool=nn.MultiheadAttention(4, 2, batch_first=True),
        ),
        lambda: rows(5, 3),
    ),
    "temporal convolution": (
        convolution_1d,
        lambda: dict(layers=nn.ModuleList(nn.Conv1d(3, 3, 3, dilation=2**k) for k in range(3))),
        lambda: rows(3, 8),
    ),
    "selective scan": (
        selective_scan,
        lambda: dict(rate=linear(3, 4), write=linear(3, 4), read=linear(4, 1)),
        lambda: rows(5, 3),
    ),
    "vision transformer": (
        vision_transformer,
        lambda: dict(
            patch=nn.Conv2d(2, 4, 2, 2),
            token=nn.Parameter(torch.randn(1, 1, 4)),
            norm=nn.LayerNorm(4),
            attend=nn.MultiheadAttention(4, 2, batch_first=True),
            head=linear(4, 2),
        ),
        lambda: rows(2, 4, 4),
    ),
    "U-Net": (
        u_net,
        lambda: dict(down=nn.Conv2d(2, 3, 3, padding=1), up=nn.Conv2d(5, 1, 3, padding=1)),
        lambda: rows(2, 4, 4),
    ),
    "deep equilibrium": (
        deep_equilibrium,
        lambda: dict(inside=linear(4, 4), outside=linear(4, 4)),
        lambda: rows(4),
    ),
    "Gaussian process": (
        gaussian_process,
        lambda: dict(
            points=nn.Parameter(torch.randn(4, 4)),
            scale=nn.Parameter(torch.ones(())),
            values=nn.Parameter(torch.randn(4, 2)),
        ),
        lambda: rows(4),
    ),
    "Kalman gain": (kalman, lambda: dict(root=nn.Parameter(torch.randn(4, 4))), lambda: rows(4)),
    "Fourier features": (
        lambda m, x: m.out(torch.cat([(x @ m.rates).sin(), (x @ m.rates).cos()], -1)),
        lambda: dict(rates=torch.randn(4, 5), out=linear(10, 2)),
        lambda: rows(4),
    ),
    "SIREN": (
        lambda m, x: m.out(torch.sin(30 * m.one(x))),
        lambda: dict(one=linear(2, 6), out=linear(6, 1)),
        lambda: rows(2),
    ),
    "maxout": (
        lambda m, x: m.one(x).view(-1, 3, 4).max(-1).values,
        lambda: dict(one=linear(4, 12)),
        lambda: rows(4),
    ),
    "sparsemax": (
        lambda m, x: F.relu(m.one(x) - m.one(x).sort(-1, descending=True).values[:, 1:2]),
        lambda: dict(one=linear(4, 5)),
        lambda: rows(4),
    ),
    "autoencoder": (
        lambda m, x: m.out(F.silu(m.one(x))) - x,
        lambda: dict(one=linear(4, 2), out=linear(2, 4)),
        lambda: rows(4),
    ),
    "siamese cosine": (
        lambda m, x, y: F.cosine_similarity(m.one(x), m.one(y))[:, None],
        lambda: dict(one=linear(4, 5)),
        lambda: (rows(4), rows(4)),
    ),
    "low-rank adapter": (
        lambda m, x: m.base(x) + x @ m.down @ m.up / math.sqrt(2),
        lambda: dict(
            base=linear(4, 3),
            down=nn.Parameter(torch.randn(4, 2)),
            up=nn.Parameter(torch.randn(2, 3)),
        ),
        lambda: rows(4),
    ),
    "weight norm": (
        lambda m, x: m.one(x),
        lambda: dict(one=nn.utils.parametrizations.weight_norm(linear(4, 3))),
        lambda: rows(4),
    ),
    "bilinear": (
        lambda m, x, y: m.one(x, y),
        lambda: dict(one=nn.Bilinear(4, 3, 2)),
        lambda: (rows(4), rows(3)),
    ),
    "embedding bag": (
        lambda m, ids: m.out(m.bag(ids)),
        lambda: dict(bag=nn.EmbeddingBag(11, 4), out=linear(4, 2)),
        tokens,
    ),
}
ZOO |= {
    name: (lambda run=run, layers=layers: Wrapped(run, **layers()), draw)
    for name, (run, layers, draw) in VECTORS.items()
}
ZOO |= {
    "RNN": (recurrent(nn.RNN), lambda: rows(5, 4)),
    "LSTM": (recurrent(nn.LSTM), lambda: rows(5, 4)),
    "two GRUs, both ways": (
        recurrent(nn.GRU, num_layers=2, bidirectional=True),
        lambda: rows(5, 4),
    ),
    "transformer": (transformer, tokens),
    "transformer, norm first": (lambda: transformer(norm_first=True, activation="gelu"), tokens),
    "linear, no bias": (lambda: nn.Linear(4, 3, bias=False), lambda: rows(4)),
    "deep linear": (lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))), lambda: rows(4)),
    "Conv3d": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)),
        lambda: rows(1, 3, 3, 3),
    ),
}
