"""Further modules that one meets: outputs and gradients to 1e-12 in float64 at three numbers of
samples, or one sentence.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuromanifold as nm
from torch_agreement import agree, as_numpy, jax_gradient, torch_gradient


class Function(nn.Module):
    """A function of a square matrix of parameters and the samples."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]):
        super().__init__()
        self.function, self.w = function, nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Any:
        return self.function(self.w, x)


def rotated(w: Tensor, x: Tensor) -> Tensor:
    """Rotary positions by complex numbers."""
    angles = torch.outer(torch.arange(5, dtype=x.dtype), torch.tensor([1.0, 0.01], dtype=x.dtype))
    turned = torch.view_as_complex((x @ w).unflatten(-1, (2, 2))) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).flatten(2)


def filtered(w: Tensor, x: Tensor) -> Tensor:
    """A filter in the frequency domain, as in GFNet and FNO."""
    return torch.fft.irfft(
        torch.fft.rfft(x, dim=1) * torch.view_as_complex(w[:3, :2].contiguous())[:, None],
        n=5,
        dim=1,
    )


def routed(w: Tensor, x: Tensor) -> Tensor:
    """A mixture of experts that keeps the two largest gates."""
    values, places = (x @ w).topk(2)
    return torch.zeros_like(x).scatter(-1, places, torch.softmax(values, -1)) * x


def sequences(n: int) -> Tensor:
    return torch.randn(n, 5, 4, dtype=torch.float64)


def images(n: int) -> Tensor:
    return torch.randn(n, 2, 5, 7, dtype=torch.float64)


def bags(n: int) -> Tensor:
    return torch.randint(0, 7, (n, 4))


def derived(w: Tensor, x: Tensor) -> Tensor:
    """A network and its derivatives, as those that are fitted to differential equations have."""
    return torch.func.vmap(torch.func.jacrev(lambda t: torch.tanh(t @ w) @ w))(x[:, 0])


def residual(w: Tensor, x: Tensor) -> Tensor:
    t = x[:, 0].detach().requires_grad_(True)
    u = torch.tanh(t @ w).sum(-1)
    (first,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), t, create_graph=True)
    return torch.cat([u[:, None], first, second], 1)


def by_experts(w: Tensor, x: Tensor) -> Tensor:
    """Each sample goes to one expert, picked by a mask and written back by it."""
    x, chosen = x[:, 0], x[:, 0].argmax(-1)
    y, z = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(4):
        mine = chosen == k
        y[mine] = torch.tanh(x[mine] @ w) * w[k]
        (places,) = torch.where(mine)
        z.index_add_(0, places, x[places] @ w.T)
    return y + z


def standardised(w: Tensor, x: Tensor) -> Tensor:
    """Scaled weight standardisation: batch normalisation of weights, which are no batch."""
    return x @ F.batch_norm(w[None], None, None, training=True)[0]


def resampled(w: Tensor, x: Tensor) -> Tensor:
    points = 1.4 * torch.tanh(x @ w[:, :2])[:, :, None]
    return torch.cat(
        [
            F.grid_sample((x @ w)[:, None], points, mode, padding, corners)
            for mode, padding, corners in [
                ("bilinear", "zeros", False),
                ("bilinear", "reflection", True),
                ("bicubic", "border", False),
                ("nearest", "reflection", False),
            ]
        ],
        1,
    )


def factorised(w: Tensor, x: Tensor) -> Tensor:
    a = w @ w.T + torch.eye(4, dtype=w.dtype)
    lower = torch.linalg.cholesky(a)
    u, s, v = torch.linalg.svd(w + x[:, 0, :, None] * x[:, 0, None], full_matrices=False)
    values, vectors = torch.linalg.eigh(a + x[:, 0, :, None] * x[:, 0, None])
    parts = [
        x @ torch.linalg.inv(a),
        torch.linalg.solve(a, x.mT).mT,
        x @ lower,
        torch.cholesky_solve(x.mT, lower).mT,
        torch.linalg.solve_triangular(lower, x.mT, upper=False).mT,
        (u * s.tanh()[:, None]) @ v,
        (vectors * values.log()[:, None]) @ vectors.mT,
        x @ torch.linalg.pinv(w[:, :3]).mT @ w[:, :3].mT,
    ]
    return torch.cat(parts, 1)


class Decoder(nn.Module):
    """A causal mask made in the forward pass, which the layer looks at."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.decoder(x, x.flip(1), tgt_mask=mask)


CONVOLUTION = {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": 1}
MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "rotary positions": (lambda: Function(rotated), sequences),
    "frequencies": (lambda: Function(filtered), sequences),
    "Fourier mixing": (lambda: Function(lambda w, x: torch.fft.fft2(x @ w).real), sequences),
    "experts": (lambda: Function(routed), sequences),
    "derivatives by torch.func": (lambda: Function(derived), sequences),
    "derivatives by autograd": (lambda: Function(residual), sequences),
    "experts by masks": (lambda: Function(by_experts), sequences),
    "standardised weights": (lambda: Function(standardised), sequences),
    "grid_sample": (lambda: Function(resampled), sequences),
    "linear algebra": (lambda: Function(factorised), sequences),
    "generated causal mask": (Decoder, sequences),
    "histogram": (
        lambda: Function(lambda w, x: (x @ w) * torch.histc(torch.arange(4.0), 4, 0, 4).to(x)),
        sequences,
    ),
    "random slopes": (lambda: nn.Sequential(nn.Linear(4, 3), nn.RReLU()), sequences),
    "bags": (
        lambda: nn.Sequential(nn.EmbeddingBag(7, 3, mode="mean", padding_idx=1), nn.Linear(3, 2)),
        bags,
    ),
    "orthogonal": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), sequences),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), sequences),
    "bicubic": (
        lambda: nn.Sequential(
            nn.Conv2d(**CONVOLUTION), nn.Upsample(scale_factor=2, mode="bicubic")
        ),
        images,
    ),
    "odd bins": (
        lambda: nn.Sequential(nn.Conv2d(**CONVOLUTION), nn.AdaptiveMaxPool2d((3, 4))),
        images,
    ),
}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_outputs_and_gradients_are_the_modules(name: str, rng: np.random.Generator):
    torch.manual_seed(0)
    make, draw = MODULES[name]
    module = make().double().eval()
    f, params = nm.from_torch(module, example=draw(2))
    for n in (1, 2, 5):
        x = draw(n)
        y = as_numpy(module(x))
        agree(f(params, x.numpy()), y)
        weights = [rng.standard_normal(y.shape)]
        agree(jax_gradient(f, params, x.numpy(), weights), torch_gradient(module, x, weights))


@pytest.mark.parametrize(
    "make, draw, text",
    [
        (
            lambda: nn.Sequential(nn.Embedding(7, 3, max_norm=1.0), nn.Flatten()),
            bags,
            r"aten\.embedding_renorm",
        ),
        (
            lambda: Function(lambda w, x: (x @ w).masked_scatter(x > 0, x)),
            sequences,
            r"aten\.masked_scatter",
        ),
    ],
    ids=["renormalised embedding", "masked_scatter"],
)
def test_what_is_not_in_the_table_is_named(make: Any, draw: Any, text: str):
    with pytest.raises(
        ValueError,
        match=f"`module` uses .*{text}.*not in the table; write that step with others, or wrap",
    ):
        nm.from_torch(make().double().eval(), example=draw(2))


def positions(w: Tensor, x: Tensor) -> Tensor:
    """Sinusoidal positions as everyone writes them: 10000 to the power of a constant tensor."""
    rates = 1 / 10000 ** (torch.arange(0, 4, 2) / 4)
    angles = torch.arange(5)[:, None] * rates
    return torch.tanh(x @ w + torch.cat([angles.sin(), angles.cos()], -1)).mean(1)


def test_constants_of_another_precision_are_folded():
    torch.manual_seed(0)
    module, x = Function(positions), torch.randn(3, 5, 4)
    f, params = nm.from_torch(module, example=x)
    wide = nm.ntk(f, {"w": params["w"].astype(np.float64)}, x.double().numpy())
    narrow = nm.ntk(f, params, x.numpy())
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-5 * np.abs(wide).max())


def smallest(module: nn.Module, x: Tensor) -> int:
    """A unit that is the smallest at s samples in general position moves min(s, 4) directions."""
    return int(module[0](x).argmin(-1).bincount().clamp(max=4).sum())


@pytest.mark.parametrize(
    "step, expected",
    [
        (lambda z: z.min(-1).values, smallest),
        # z₁z₂ and z₁z₂z₃: three rows of four numbers but the scaling of z₁ against z₂.
        (lambda z: z.cumprod(-1)[:, 1:3], lambda module, x: 11),
    ],
    ids=["min", "cumprod"],
)
def test_ranks_of_minima_and_running_products(step: Any, expected: Any):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6, bias=False), _Step(step)).double()
    x = torch.randn(40, 4).double()
    f, params = nm.from_torch(module, example=x)
    ranks = [int(nm.functional_dimension(f, params, x.numpy(), exact=e)) for e in (False, True)]
    assert ranks == [expected(module, x)] * 2


class _Step(nn.Module):
    def __init__(self, step: Callable[[Tensor], Tensor]):
        super().__init__()
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(4, 3, batch_first=True, proj_size=2)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[:, :, 0] > -9).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        return self.cells(packed)[1][0][0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Function(lambda w, x: (x @ w)[x > 0].sum() + x @ w), "a mask picks"),
        (Packed, "packs sequences.*torch.gather"),
    ],
    ids=["sum over a mask", "packed, with projections"],
)
def test_what_depends_on_values_or_numbers_of_samples_is_told_what_to_change(make: Any, text: str):
    with pytest.raises(ValueError, match=text):
        nm.from_torch(make().double().eval(), example=sequences(3))


class Bent(nn.Module):
    """A convolutional network whose biases are zero: on a black margin bends are met exactly."""

    def __init__(self, bend: Callable[[Tensor], Tensor]):
        super().__init__()
        self.first, self.second = (nn.Conv2d(n, 3, 3, padding=1) for n in (1, 3))
        self.last, self.bend = nn.Linear(3 * 25, 2), bend
        for layer in (self.first, self.second):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.bend(self.second(self.bend(self.first(x)))).flatten(1))


BENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "clamp": lambda z: z.clamp(min=0),
    "clamp on both sides": lambda z: z.clamp(-0.25, 0.25),
    "maximum": lambda z: torch.maximum(z, torch.zeros_like(z)),
    "leaky_relu": F.leaky_relu,
    "max_pool": lambda z: F.max_pool2d(z, 3, 1, padding=1),
}


@pytest.mark.parametrize("bend", BENDS)
def test_a_kernel_where_bends_are_met_exactly_is_pytorchs(bend: str):
    """Nine of ten pixels are black, so most pre-activations are zero; JAX's own |z| would have
    slope one there.
    """
    torch.manual_seed(0)
    module, x = Bent(BENDS[bend]).double(), torch.zeros(4, 1, 5, 5).double()
    x[:, :, :2, :2] = torch.randn(4, 1, 2, 2)
    f, params = nm.from_torch(module, example=x)
    weights, rows = list(module.parameters()), module(x).ravel()
    slopes = [torch.autograd.grad(y, weights, retain_graph=True) for y in rows]
    J = torch.stack([torch.cat([g.ravel() for g in row]) for row in slopes]).numpy()
    K = nm.ntk(f, params, x.numpy())
    np.testing.assert_allclose(K, J @ J.T, rtol=0, atol=1e-12 * np.abs(J @ J.T).max())


def test_an_exact_rank_names_the_bends_that_are_met():
    """At a bend float64 takes PyTorch's derivative (half of each side for a maximum) and the exact
    rank one side; what is exact says where.
    """
    torch.manual_seed(0)
    x = torch.zeros(4, 1, 5, 5).double()
    x[:, :, :2, :2] = torch.randn(4, 1, 2, 2)
    ranks = {}
    for bend in ("maximum", "leaky_relu"):
        f, params = nm.from_torch(Bent(BENDS[bend]).double(), example=x)
        ranks[bend] = nm.functional_dimension(f, params, x.numpy(), exact=True)
        assert ranks[bend].certificate.kinks
        assert "kinks met exactly" in str(ranks[bend])
    moved = nm.functional_dimension(f, params, torch.randn(4, 1, 5, 5).numpy(), exact=True)
    assert not moved.certificate.kinks
