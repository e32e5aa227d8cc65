"""The tracker in a PyTorch loop: the module is read where it is, in evaluation mode, and is not
touched.
"""

import copy
import time

import numpy as np
import pytest
import torch
from torch import nn

import neuromanifold as nm
from neuromanifold.inspection.recorder import MEASURES


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
    assert int(data["functional_dimension"][-1]) == int(
        nm.functional_dimension(f, params, x.numpy(), exact=True)
    )
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


@pytest.fixture
def only_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tracker measures is tested elsewhere."""
    monkeypatch.setattr("neuromanifold.inspection.recorder.MEASURES", MEASURES[:1])


@pytest.mark.usefixtures("only_the_loss")
def test_everything_of_the_module_stays_as_it_was_in_every_context():
    """Training mode, dtype, layout, gradients and their flags; under autocast and inference mode
    the numbers are those of the module.
    """
    x, _ = _data()
    y = torch.arange(30) % 3
    module = nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 3)
    )
    module[0].requires_grad_(False)
    module(x).sum().backward()
    before = {
        name: (p.clone(), p.dtype, p.requires_grad, p.grad, p.data_ptr())
        for name, p in module.named_parameters()
    }
    state = copy.deepcopy(module.state_dict())
    losses = []
    for context in (
        torch.enable_grad(),
        torch.autocast("cpu", torch.bfloat16),
        torch.inference_mode(),
    ):
        tracker = nm.Tracker(nn.DataParallel(module), x, y, loss=nm.losses.cross_entropy)
        with context:
            tracker(0)
        losses.append(float(tracker.timeline.data["loss"][0]))
    assert all(m.training for m in module.modules())
    for name, p in module.named_parameters():
        value, *flags = before[name]
        assert torch.equal(p, value)
        assert [p.dtype, p.requires_grad, p.grad, p.data_ptr()] == flags
    assert all(torch.equal(state[name], leaf) for name, leaf in module.state_dict().items())
    with torch.no_grad():
        expected = float(
            nn.functional.cross_entropy(copy.deepcopy(module).double().eval()(x.double()), y)
        )
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


@pytest.mark.usefixtures("only_the_loss")
def test_other_running_means_are_read_without_another_export():
    x, _ = _data()
    module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    tracker = nm.Tracker(module, x, torch.zeros(30, 1))
    tracker(0)
    exported = tracker._source._f.apply
    module(3 * x)
    tracker.record(1)
    assert tracker._source._f.apply is exported
    with torch.no_grad():
        expected = float((copy.deepcopy(module).eval()(x) ** 2).mean())
    np.testing.assert_allclose(float(tracker.timeline.data["loss"][1]), expected, rtol=1e-5)
    assert float(tracker.timeline.data["loss"][0]) != float(tracker.timeline.data["loss"][1])


def test_a_step_without_a_record_costs_nothing():
    x, y = _data()
    tracker = nm.Tracker(nn.Linear(2, 1), x, y, every=10**9)
    begun = time.perf_counter()
    for step in range(1, 10_001):
        tracker(step)
    assert time.perf_counter() - begun < 1.0  # 0.3 µs each where it was measured


@pytest.mark.parametrize(
    "what", [torch.utils.data.DataLoader, lambda data: data], ids=["DataLoader", "TensorDataset"]
)
def test_a_loader_is_no_sample(what):
    x, y = _data()
    given = what(torch.utils.data.TensorDataset(x, y))
    with pytest.raises(
        TypeError,
        match=r"`x` is a \w+, and a tracker looks at the same samples each time; pass them as ar",
    ):
        nm.Tracker(nn.Linear(2, 1), given)
    f, params = nm.from_torch(nn.Linear(2, 1), example=x)
    with pytest.raises(
        TypeError,
        match=r"`x` is a \w+ that is no array .*; pass one array, or a tuple or dictionary",
    ):
        nm.functional_dimension(f, params, given)


def test_modules_and_their_tensors_are_sent_to_the_adapter():
    module = nn.Linear(2, 1)
    with pytest.raises(
        TypeError,
        match=r"`f` is a Linear of torch; .*`f, params = nm\.from_torch\(module, example=x\)`",
    ):
        nm.ntk(module, {"w": np.ones(2)}, np.eye(2))
    with pytest.raises(
        TypeError, match=r"`params\['bias'\]` is a Parameter; pass a real floating-point array"
    ):
        nm.ntk(lambda params, x: x, dict(module.named_parameters()), np.eye(2))
