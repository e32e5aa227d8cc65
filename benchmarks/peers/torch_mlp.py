"""The ReLU network that our side stored, as a torch module."""

import numpy as np
import torch


def load(arrays: str) -> tuple[torch.nn.Sequential, dict[str, torch.Tensor]]:
    """The net of `weight0`, `bias0`, `weight1`, … in an npz, and the other arrays in it."""
    stored = {name: torch.from_numpy(array) for name, array in np.load(arrays).items()}
    layers: list[torch.nn.Module] = []
    while f"weight{len(layers) // 2}" in stored:
        index = len(layers) // 2
        weight, bias = stored.pop(f"weight{index}"), stored.pop(f"bias{index}")
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]), stored
