"""PyTorch networks in JAX: outputs and gradients to 1e-12 in float64, at numbers of samples the
export never saw.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuromanifold as nm
from neuromanifold.numerics.precision import arithmetic, promote
from torch_agreement import agree, as_numpy, called, doubled, jax_gradient, torch_gradient
from torch_zoo import GPT, ZOO, Classifier, MobileNetV3Block, masked, tokens


@pytest.mark.parametrize("name", sorted(ZOO))
def test_outputs_and_gradients_are_the_modules(name: str, rng: np.random.Generator):
    example = ZOO[name]
    module = example.module().double()
    f, params = nm.from_torch(module, example=doubled(example.draw(2)))
    reference = module
    if isinstance(module, MobileNetV3Block):
        # PyTorch's backward pass of hardsigmoid has 1/6 in float32; relu6 does not.
        reference = example.module().double()
        reference.gate = lambda x: F.relu6(x + 3) / 6
    for n in (1, 2, 5):
        x = doubled(example.draw(n))
        y = as_numpy(called(module, x))
        agree(f(params, as_numpy(x)), y)
        weights = [rng.standard_normal(leaf.shape) for leaf in jax.tree.leaves(y)]
        found = jax_gradient(f, params, as_numpy(x), weights)
        agree(found, torch_gradient(reference, x, weights))
        assert set(params) == {parameter for parameter, _ in module.named_parameters()}


def test_the_hardsigmoid_of_pytorch_has_a_gradient_in_float32():
    """Negative control of the exception above: 5e-9 is the rounding of 1/6, not an error of the
    translation.
    """
    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    [slope] = torch.autograd.grad(F.hardsigmoid(x).sum(), x)
    np.testing.assert_array_equal(slope.numpy(), float(np.float32(1) / np.float32(6)))


def test_a_float32_module_is_computed_in_float64_where_the_parameters_are():
    example = ZOO["encoder, GELU first"]
    module, x = example.module(), example.draw(4)
    f, params = nm.from_torch(module, example=x)
    assert all(leaf.dtype == np.float32 for leaf in params.values())
    assert f(params, x.numpy()).dtype == np.float32
    wide = {name: leaf.astype(np.float64) for name, leaf in params.items()}
    y = f(wide, x.numpy())
    assert y.dtype == np.float64
    agree(y, as_numpy(module.double()(x.double())))


def test_tied_weights_are_one_parameter(rng: np.random.Generator):
    module = GPT().double().eval()
    f, params = nm.from_torch(module, example=tokens(2))
    assert "wte.weight" in params
    assert "head.weight" not in params
    x = tokens(3)
    weights = [rng.standard_normal((3, 8, 17))]
    found = jax_gradient(f, params, x.numpy(), weights)["wte.weight"]
    untied = GPT().double().eval()
    untied.head.weight = nn.Parameter(module.wte.weight.detach().clone())
    untied.load_state_dict({name: tensor.clone() for name, tensor in module.state_dict().items()})
    parts = torch_gradient(untied, x, weights)
    agree(found, parts["wte.weight"] + parts["head.weight"])
    assert np.abs(found - parts["wte.weight"]).max() > 0.1 * np.abs(found).max()


def test_weights_that_share_memory_without_being_one_object_are_one_parameter():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = nn.Parameter(a.weight.data)
    _, params = nm.from_torch(nn.Sequential(a, nn.Tanh(), b), example=torch.randn(2, 3))
    assert set(params) == {"0.weight", "0.bias", "2.bias"}
    b.weight = nn.Parameter(a.weight.data.T)
    with pytest.raises(
        ValueError,
        match=r"`module` has the parameters '0\.weight' and '2\.weight' in one memory but laid",
    ):
        nm.from_torch(nn.Sequential(a, nn.Tanh(), b), example=torch.randn(2, 3))


def test_named_inputs_masks_and_nested_outputs(rng: np.random.Generator):
    """A float32 module that names float32 in its code, computed in float64 throughout."""
    torch.manual_seed(1)
    module = Classifier().eval()
    f, params = nm.from_torch(module, example=masked(2), kwargs={"use_cache": False})
    logits, _ = nm.from_torch(module, example=masked(2), output=lambda y: y["logits"])
    params = {name: leaf.astype(np.float64) for name, leaf in params.items()}
    module.double().softmax_dtype = torch.float64
    for n in (1, 4):
        x = masked(n)
        y = as_numpy(module(**x, use_cache=False))
        agree(f(params, as_numpy(x)), y)
        agree(logits(params, as_numpy(x)), y["logits"])
        weights = [rng.standard_normal(leaf.shape) for leaf in jax.tree.leaves(y)]
        agree(
            jax_gradient(f, params, as_numpy(x), weights),
            torch_gradient(module, x, weights, use_cache=False),
        )


def test_the_padding_row_of_an_embedding_has_no_gradient_as_in_pytorch():
    module = nn.Sequential(
        nn.Embedding(5, 3, padding_idx=2), nn.Flatten(), nn.Linear(6, 1)
    ).double()
    f, params = nm.from_torch(module, example=torch.tensor([[0, 2]]))
    gradient = jax_gradient(f, params, np.array([[0, 2], [2, 2]]), [np.ones((2, 1))])["0.weight"]
    assert np.any(gradient[0])
    assert not np.any(gradient[2])


@pytest.mark.parametrize("name", ["MLP", "LeNet", "GPT", "LSTM", "MobileNetV3", "encoder, ReLU"])
def test_a_translated_network_is_a_function_of_jax(name: str, rng: np.random.Generator):
    """jit, vmap over parameters, and derivatives of second order by two routes, forward and
    backward.
    """
    example = ZOO[name]
    f, params = nm.from_torch(example.module().double(), example=doubled(example.draw(2)))
    assert hash(f) == hash(f)
    x = as_numpy(doubled(example.draw(2)))
    with arithmetic():
        theta = promote(params, np.float64)
        u, v = (
            jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape)), params)
            for _ in range(2)
        )
        stacked = jax.tree.map(lambda a, b: jnp.stack([a, a + 0.01 * b]), theta, u)
        many = jax.jit(jax.vmap(f, (0, None)))(stacked, x)
        agree(np.asarray(many[0]), np.asarray(f(theta, x)))

        def energy(theta: Any) -> Any:
            return jnp.sum(jnp.sin(f(theta, x)))

        def product(a: Any, b: Any) -> Any:
            return sum(
                jnp.sum(p * q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
            )

        over = jax.jit(lambda t: jax.jvp(lambda t: jax.jvp(energy, (t,), (u,))[1], (t,), (v,))[1])(
            theta
        )
        back = product(jax.jit(jax.grad(lambda t: product(jax.grad(energy)(t), u)))(theta), v)
    np.testing.assert_allclose(over, back, rtol=1e-9)


def test_the_library_takes_a_translated_network(key: jax.Array):
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    f, params = nm.from_torch(module, example=torch.randn(2, 2).double())
    net = nm.MLP((2, 3, 1))
    layers = tuple(nm.Layer(params[f"{i}.weight"], params[f"{i}.bias"]) for i in (0, 2))
    x = np.asarray(jax.random.normal(key, (7, 2)), np.float64)
    np.testing.assert_allclose(nm.ntk(f, params, x), nm.ntk(net, layers, x), rtol=1e-12)
    assert int(nm.functional_dimension(f, params, x).value) == int(
        nm.functional_dimension(net, layers, x).value
    )


def test_tensors_with_a_history_are_data_like_others(rng: np.random.Generator):
    """As are those on a GPU: the same call brings both to the host."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32, requires_grad=True)
    f, params = nm.from_torch(module, example=x)
    assert (nm.ntk(f, params, x) == nm.ntk(f, params, x.detach().numpy())).all()
    assert x.requires_grad and x.grad is None


def test_frozen_parameters_are_constants(rng: np.random.Generator):
    """18 of 50 numbers may change; the kernel is the one of those 18, as `wrt` has it."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x = rng.normal(size=(5, 3))
    whole, everything = nm.from_torch(module, example=x)
    module[0].requires_grad_(False)
    f, params = nm.from_torch(module, example=x)
    assert {name: leaf.size for name, leaf in params.items()} == {"2.weight": 16, "2.bias": 2}
    kernel = nm.ntk(f, params, x)
    np.testing.assert_allclose(kernel, nm.ntk(whole, everything, x, wrt="2"), rtol=1e-13)
    assert np.abs(kernel - nm.ntk(whole, everything, x)).max() > 1e-3
    by_name = nm.inspect(whole, everything, x, wrt="2", patience=1)
    assert nm.inspect(f, params, x, patience=1).n_params == by_name.n_params == 18
    doubled = nm.to_torch(module, {name: 2 * leaf for name, leaf in params.items()})
    assert torch.equal(doubled[0].weight, module[0].weight)
    np.testing.assert_allclose(
        doubled(torch.tensor(x)).detach(), 2 * module(torch.tensor(x)).detach()
    )
    with pytest.raises(ValueError, match=r"no parameter that training may change"):
        nm.from_torch(module.requires_grad_(False), example=x)


def test_the_callers_module_is_not_touched():
    module = ZOO["ResNet-18"].module()
    for parameter in module.layers.parameters():
        parameter.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    flags = {name: (p.requires_grad, p.dtype, p.grad) for name, p in module.named_parameters()}
    default = (
        torch.get_default_dtype(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.random.get_rng_state(),
    )
    f, params = nm.from_torch(
        module, example=torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    )
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert flags == {
        name: (p.requires_grad, p.dtype, p.grad) for name, p in module.named_parameters()
    }
    assert default[:2] == (torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled())
    assert torch.equal(default[2], torch.random.get_rng_state())
    params["fc.bias"][:] = 7.0
    assert not torch.any(module.fc.bias == 7.0), "params are copies"
    assert "float64" in f.evidence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_parameters_go_back(dtype: torch.dtype, rng: np.random.Generator):
    module = GPT().to(dtype).eval()
    f, params = nm.from_torch(module, example=tokens(2))
    moved = {
        name: np.asarray(leaf, np.float64) + rng.standard_normal(leaf.shape)
        for name, leaf in params.items()
    }
    back = nm.to_torch(module, moved)
    assert back is not module
    assert back.head.weight is back.wte.weight
    assert back.wte.weight.dtype == dtype
    assert torch.equal(
        back.wpe.weight.double(), torch.from_numpy(moved["wpe.weight"]).to(dtype).double()
    )
    x = tokens(3)
    rounded = {name: p.detach().double().numpy() for name, p in back.named_parameters()}
    agree(f(rounded, x.numpy()), as_numpy(back.double()(x)))
    for name, parameter in module.named_parameters():
        assert np.array_equal(
            parameter.detach().double().numpy(), np.asarray(params[name], np.float64)
        )


def test_shared_memory_survives_the_way_back():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = nn.Parameter(a.weight.data)
    module = nn.Sequential(a, b)
    _, params = nm.from_torch(module, example=torch.randn(2, 3))
    back = nm.to_torch(module, {**params, "0.weight": np.full((3, 3), 2.0)})
    assert back[0].weight.data_ptr() == back[1].weight.data_ptr()
    assert torch.all(back[1].weight == 2.0)


@pytest.mark.parametrize(
    "change, text",
    [
        (
            lambda p: {**p, "3.weight": p["0.weight"]},
            r"`params` are not this module's: missing nothing, unknown 3\.weight; pass one array for each of its 2",
        ),
        (
            lambda p: {"0.weight": p["0.weight"]},
            r"`params` are not this module's: missing 0\.bias, unknown nothing",
        ),
        (
            lambda p: {**p, "0.bias": np.zeros(3)},
            r"`params\['0\.bias'\]` has shape \(3,\); the module needs \(2,\)",
        ),
        (
            lambda p: {**p, "0.bias": np.full(2, 1e300)},
            r"`params\['0\.bias'\]` has entries that are not finite in torch\.float32",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(change: Any, text: str):
    module = nn.Sequential(nn.Linear(3, 2))
    _, params = nm.from_torch(module, example=torch.randn(2, 3))
    with pytest.raises(ValueError, match=text):
        nm.to_torch(module, change(params))
