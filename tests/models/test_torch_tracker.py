"""The tracker in a PyTorch loop: the module is read where it is, in evaluation mode, and is not touched."""

import numpy as np
import torch
from torch import nn

import neuromanifold as nm


def _trained(module, x, y, steps, tracker):
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    for step in range(steps):
        tracker(step)
        module.train()
        optimizer.zero_grad()
        loss = ((module(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()


def _data():
    torch.manual_seed(0)
    x = torch.randn(30, 2)
    return x, x[:, :1] * x[:, 1:]


def test_the_module_is_read_where_it_is_and_left_as_it_was():
    x, y = _data()
    module = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1))
    tracker = nm.Tracker(module, x, y, every=2)
    _trained(module, x, y, 4, tracker)
    assert module.training
    tracker.record(4)
    data = tracker.timeline.data
    assert data["step"].values.tolist() == [0, 2, 4]
    with torch.no_grad():
        assert np.isclose(float(data["loss"][-1]), float(((module(x) - y) ** 2).mean()), rtol=1e-5)
    f, params = nm.from_torch(module.eval(), example=x)
    assert int(data["functional_dimension"][-1]) == int(nm.functional_dimension(f, params, x.numpy(), exact=True))
    assert data["always_off"].sizes["layer"] == 1
    assert (np.diff(data["loss"].values) < 0).all()


def test_running_means_are_those_of_the_step():
    x, y = _data()
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    tracker = nm.Tracker(module, x, y, every=3)
    _trained(module, x, y, 4, tracker)
    tracker.record(9)
    module.eval()
    with torch.no_grad():
        expected = float(((module(x) - y) ** 2).mean())
    assert np.isclose(float(tracker.timeline.data["loss"][-1]), expected, rtol=1e-5)
