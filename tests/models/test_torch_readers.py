"""What a new user of PyTorch stumbled over: modules and loaders where functions and arrays
belong, batches of other shapes.
"""

from typing import Any

import numpy as np
import pytest
import torch

import neuromanifold as nm


def module() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()


def test_a_module_in_place_of_its_function_is_told_the_way():
    own = module()
    with pytest.raises(
        TypeError, match=r"`f` is a Sequential of torch; .*nm\.from_torch\(module, example=x\)"
    ):
        nm.functional_dimension(own, own.state_dict(), np.ones((2, 3)))
    f, params = nm.from_torch(own, example=torch.ones(2, 3))
    assert nm.functional_dimension(f, params, torch.randn(4, 3)).value > 0


def test_a_batch_that_the_module_does_not_take_is_shown():
    said = r"`example`, three samples of shape \(5,\) in torch\.float32 \(RuntimeError: .*\); pass one batch of its input, samples first"
    with pytest.raises(ValueError, match=said):
        nm.from_torch(module(), example=torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"of shape \(3,\) in torch\.uint8 \(RuntimeError"):
        nm.from_torch(module(), example=torch.ones(2, 3, dtype=torch.uint8))


def test_a_loader_as_a_sample_is_called_by_its_name():
    f, params = nm.from_torch(module(), example=torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"`x` is a DataLoader that is no array .*; pass one array"):
        nm.functional_dimension(f, params, torch.utils.data.DataLoader(torch.ones(4, 3), 2))


def test_a_loss_of_pytorch_is_told_ours():
    f, params = nm.from_torch(module(), example=torch.ones(2, 3))
    with pytest.raises(
        TypeError, match=r"`loss` does not take \(prediction, target\) as JAX arrays .*nm\.losses"
    ):
        nm.alignment(f, params, np.ones((2, 3)), np.ones((2, 2)), loss=torch.nn.functional.mse_loss)


def test_a_reduction_in_place_of_its_parameters_is_told_them():
    own = module()
    f, params = nm.from_torch(own, example=torch.ones(2, 3))
    small = nm.reduce_width(f, params, np.random.default_rng(0).normal(size=(6, 3)), fold=False)
    with pytest.raises(TypeError, match=r"`params` is a Reduction; .*its `\.params`"):
        nm.to_torch(own, small)
    assert nm.to_torch(own, small.params, resize=True) is not own
