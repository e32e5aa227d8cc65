"""Modules that PyTorch exports for one sample only, and steps that it cannot export as written."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

import neuromanifold as nm


class Laplacian(nn.Module):
    """Δu of u(x) = w·sin(Ax + b)."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 5), nn.Linear(5, 1)

    def u(self, x: Tensor) -> Tensor:
        return self.outer(torch.sin(self.inner(x))).squeeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        hessian = torch.vmap(torch.func.hessian(self.u))(x)
        return hessian.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)


def test_a_second_derivative_inside_is_its_closed_form():
    """Δu = −Σ_k w_k |a_k|² sin(a_k·x + b_k)."""
    f, params = nm.from_torch(Laplacian().double(), example=torch.randn(3, 2).double())
    x = np.random.default_rng(0).standard_normal((4, 2))

    def expected(params: Any) -> Any:
        A, b = params["inner.weight"], params["inner.bias"]
        return -(jax.numpy.sin(x @ A.T + b) * (A**2).sum(1)) @ params["outer.weight"].T

    with jax.enable_x64():
        np.testing.assert_allclose(f(params, x), expected(params), rtol=1e-12)
        J = jax.tree.leaves(jax.jacrev(expected)(params))
    J = np.concatenate([np.asarray(part).reshape(4, -1) for part in J], 1)
    assert np.abs(np.asarray(nm.ntk(f, params, x)) - J @ J.T).max() < 1e-12 * np.abs(J @ J.T).max()


class Lagrangian(nn.Module):
    """The acceleration of L = v·Mv/2 − |q|²/2 with M = I + WWᵀ."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.randn(2, 3))

    def acceleration(self, s: Tensor) -> Tensor:
        def energy(q: Tensor, v: Tensor) -> Tensor:
            return (v @ v + (v @ self.W).square().sum() - q @ q) / 2

        mass = torch.func.hessian(energy, argnums=1)(s[:2], s[2:])
        return torch.linalg.solve(mass, torch.func.grad(energy)(s[:2], s[2:]))

    def forward(self, s: Tensor) -> Tensor:
        return torch.vmap(self.acceleration)(s)


def test_a_linear_system_with_a_hessian_inside_is_its_closed_form():
    f, params = nm.from_torch(Lagrangian().double(), example=torch.randn(3, 4).double())
    s = np.random.default_rng(0).standard_normal((5, 4))
    mass = np.eye(2) + params["W"] @ params["W"].T
    with jax.enable_x64():
        np.testing.assert_allclose(f(params, s), -s[:, :2] @ np.linalg.inv(mass), rtol=1e-11)


class Packed(nn.Module):
    def __init__(self, kind: type, **options: Any):
        super().__init__()
        self.layer = kind(2, 3, num_layers=2, bidirectional=True, batch_first=True, **options)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = self.layer(packed)
        y, _ = rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        return y, (last[1] if isinstance(last, tuple) else last).transpose(0, 1)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_end_where_their_lengths_say(kind: type):
    torch.manual_seed(0)
    module = Packed(kind).double()
    f, params = nm.from_torch(module, example=(torch.randn(2, 4, 2).double(), torch.tensor([4, 2])))
    x, lengths = torch.randn(5, 4, 2).double(), torch.tensor([1, 4, 2, 3, 4])
    with jax.enable_x64():
        found = f(params, (x.numpy(), lengths.numpy()))
    for a, b in zip(found, module(x, lengths), strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-12, atol=1e-14)
    assert not np.any(np.asarray(found[0])[0, 1:])
    with torch.no_grad():  # control: the plain layer goes on behind the end
        assert torch.all(module.layer(x)[0][0, 1:] != 0)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return -2 * slopes[0]


class Turned(torch.autograd.Function):
    """No derivative entry by entry: its backward pass is not symmetric."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0].roll(1, -1)


class Through(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.inner, self.outer, self.function = nn.Linear(2, 3), nn.Linear(3, 1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.function.apply(self.inner(x)))


def test_gradients_of_a_custom_function_are_taken():
    f, params = nm.from_torch(Through(Reversed).double(), example=torch.randn(2, 2).double())
    assert "with the gradients of Reversed" in f.evidence
    x = np.random.default_rng(0).standard_normal((3, 2))
    with jax.enable_x64():
        slopes = jax.jacrev(lambda p: f(p, x))(params)
    W, out = (params[f"{name}.weight"] for name in ("inner", "outer"))
    hidden = x @ W.T + params["inner.bias"]
    np.testing.assert_allclose(slopes["outer.weight"][:, 0, 0], hidden, rtol=1e-12)
    expected = -2 * out[0][None, :, None] * x[:, None]
    np.testing.assert_allclose(slopes["inner.weight"][:, 0], expected, rtol=1e-12)


def test_a_custom_function_that_is_not_symmetric_is_refused():
    with pytest.raises(ValueError, match="gradients of its own"):
        nm.from_torch(Through(Turned), example=torch.randn(2, 2))


class Distances(nn.Module):
    """Distances to learned points, or to the other samples."""

    def __init__(self, *, mixing: bool):
        super().__init__()
        self.read, self.points, self.mixing = (
            nn.Linear(3, 2),
            nn.Parameter(torch.randn(4, 2)),
            mixing,
        )

    def forward(self, x: Tensor) -> Tensor:
        z = self.read(x)
        return torch.cdist(z, z.flip(0)[:1] if self.mixing else self.points)


def test_distances_to_points_are_distances_and_samples_do_not_mix():
    module = Distances(mixing=False).double()
    f, params = nm.from_torch(module, example=torch.randn(3, 3).double())
    x = np.random.default_rng(0).standard_normal((5, 3))
    z = x @ params["read.weight"].T + params["read.bias"]
    expected = np.linalg.norm(z[:, None] - params["points"], axis=-1)
    with jax.enable_x64():
        np.testing.assert_allclose(f(params, x), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"number of samples|mixes samples|numbers of samples"):
        nm.from_torch(Distances(mixing=True), example=torch.randn(3, 3))


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.read(x)
        prior = torch.distributions.MultivariateNormal(z.new_zeros(2), torch.eye(2, dtype=x.dtype))
        return prior.log_prob(z)


def test_a_distribution_that_checks_its_values_is_its_density():
    """log p(z) = −|z|²/2 − log 2π."""
    before = torch.distributions.Distribution._validate_args
    f, params = nm.from_torch(Gaussian().double(), example=torch.randn(3, 2).double())
    assert torch.distributions.Distribution._validate_args is before
    x = np.random.default_rng(0).standard_normal((5, 2))
    z = x @ params["read.weight"].T + params["read.bias"]
    with jax.enable_x64():
        expected = -(z**2).sum(1) / 2 - np.log(2 * np.pi)
        np.testing.assert_allclose(f(params, x), expected, rtol=1e-12)
