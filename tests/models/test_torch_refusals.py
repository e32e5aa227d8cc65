"""What cannot be translated rightly is refused, by name and with the line; what looks dangerous
and is not goes through.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuromanifold as nm
from neuromanifold.models.adapters.torch.aliasing import functional
from neuromanifold.models.adapters.torch.operations import OPERATIONS
from neuromanifold.models.adapters.torch.program import Ref, TorchNode


class Step(nn.Module):
    """A linear layer followed by one step under test."""

    def __init__(self, **parts: nn.Module):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.step(self.linear(x))


class Branch(Step):
    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


class Loop(Step):
    def step(self, x: Tensor) -> Tensor:
        for _ in range(int(x[0, 0].abs())):
            x = x + 1
        return x


class Item(Step):
    def step(self, x: Tensor) -> Tensor:
        return x * x.max().item()


class Cond(Step):
    def step(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


class ThreeRows(Step):
    def step(self, x: Tensor) -> Tensor:
        return x.view(3, 3)


class ManyRows(Step):
    def step(self, x: Tensor) -> Tensor:
        return x if x.shape[0] > 2 else -x


class Mask(Step):
    def step(self, x: Tensor) -> Tensor:
        return x[x[:, 0] > -100.0]


class Drawn(nn.Module):
    """Draws a number as layer drop does, and looks at it in evaluation mode too, or does not."""

    def __init__(self, *, looks: bool):
        super().__init__()
        self.layer, self.looks = nn.Linear(3, 3), looks

    def forward(self, x: Tensor) -> Tensor:
        drawn, y = torch.rand([]), self.layer(x)
        return y * drawn if self.looks else x if self.training and drawn < 0.5 else y


def test_a_number_that_is_drawn_and_not_looked_at_makes_nothing_random():
    x = torch.randn(2, 3)
    f, _ = nm.from_torch(Drawn(looks=False).eval(), example=x)
    assert "outputs within" in f.evidence
    with pytest.raises(ValueError, match=r"uses aten\.rand\.default at .* draws random numbers"):
        nm.from_torch(Drawn(looks=True).eval(), example=x)


class Root(nn.Module):
    """√|w x| at w = 0."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (self.w * x[:, :1]).abs().sqrt()


class ForgottenFlag(Step):
    def step(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Noise(Step):
    def step(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Counter(Step):
    def step(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x


class Centred(Step):
    def step(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Bessel(Step):
    def step(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class NoGradient(Step):
    def step(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = self.linear(x)
        return x + y


class Overwritten(Step):
    def step(self, x: Tensor) -> Tensor:
        y = x.relu()
        y += 1
        return y * y.sigmoid()


class Cache(Step):
    def step(self, x: Tensor) -> Any:
        return {"y": x, "cache": object()}


class NumPy(Step):
    def step(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(x.detach().numpy())


class Nothing(Step):
    def step(self, x: Tensor) -> Tensor:
        return x.new_full(x.shape, torch.nan) + x


REFUSED = [
    (
        Branch(),
        r"`module` decides by the values of its data at test_torch_refusals\.py:\d+, `if x\.sum\(\) > 0:`; use torch\.where",
    ),
    (
        Loop(),
        r"`module` decides by the values of its data at test_torch_refusals\.py:\d+, `for _ in range",
    ),
    (
        Item(),
        r"`module` uses aten\.item\.default at the module itself \(Item\), test_torch_refusals\.py:\d+, which turns a value",
    ),
    (
        Cond(),
        r"`module` uses higher_order\.cond at .*, which decides by the values of the data; use torch\.where",
    ),
    (ThreeRows(), r"`module` computes something else for other numbers of samples"),
    (ManyRows(), r"`module` computes something else for other numbers of samples"),
    (
        Mask(),
        r"`module` computes with the entries that a mask picks at its output, another number of them for other values",
    ),
    (
        ForgottenFlag().eval(),
        r"uses aten\.dropout\.default at the module itself .*:\d+, which draws random numbers \(dropout",
    ),
    (
        Noise(),
        r"`module` uses aten\.randn_like\.default at .*, which draws random numbers; a model must be a function",
    ),
    (
        Counter(),
        r"`module` updates 'count' when it is called \(training mode\); call `module\.eval\(\)` first",
    ),
    (
        Centred(),
        r"`module` mixes samples: rows of its output \(number 1, shape \(3, 3\) for 3 samples\) change",
    ),
    (
        Bessel(),
        r"`module` uses aten\.special_bessel_j0\.default at the module itself \(Bessel\), .*, an operation that is not in the table",
    ),
    (
        NoGradient(),
        r"`module` has gradients of its own: they differ by .* or `\.detach\(\)` what has no gradient",
    ),
    (
        Root(),
        r"`module` has no finite gradient in PyTorch itself, with respect to w \(a root or a quotient",
    ),
    (
        Overwritten(),
        r"`module` cannot be differentiated by PyTorch itself \(one of the variables needed for gradient computation",
    ),
    (Cache(), r"the output of `module`\['cache'\] is an object, which is no array; pass `output=`"),
    (
        NumPy(),
        r"`module` cannot be exported \(RuntimeError at test_torch_refusals\.py:\d+, `return x \+ torch\.from_numpy",
    ),
    (
        Nothing(),
        r"`module` gives no finite output, neither on `example` nor on random inputs like it \(not a number\)",
    ),
    (
        nn.Sequential(nn.Linear(3, 3), nn.Dropout()),
        r"uses aten\.dropout\.default at 1 \(Dropout\), .*call `module\.eval\(\)`",
    ),
    (
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
        r"`module` updates '1\.running_mean' when it is called \(training mode\)",
    ),
    (
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval(),
        r"uses aten\.batch_norm\.default at 1 \(BatchNorm1d\), .*, which standardises by the batch",
    ),
    (nn.ReLU(), r"`module` has no parameters; there is nothing to differentiate by"),
    (
        nn.Linear(4, 3),
        r"`module` does not run on `example`, .* \(RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
]


@pytest.mark.parametrize(
    "module, text", REFUSED, ids=[type(module).__name__ for module, _ in REFUSED]
)
def test_a_module_that_is_no_plain_function_is_refused_by_name(
    module: nn.Module, text: str, capfd: Any
):
    with pytest.raises((ValueError, TypeError), match=text):
        nm.from_torch(module, example=torch.randn(3, 3))
    assert capfd.readouterr() == ("", ""), "PyTorch's own talk is kept off the screen"


@pytest.mark.parametrize(
    "module, example, text",
    [
        ("net", torch.ones(2, 3), "`module` is a str; pass a torch.nn.Module"),
        (
            nn.Linear(3, 2),
            3.0,
            "`example` is a float; pass tensors, and put what stays fixed into `kwargs`",
        ),
        (
            nn.Linear(3, 2),
            torch.ones(3),
            r"`module` maps 3 samples to an output of shape \(2,\); the first axis must count",
        ),
        (
            nn.Linear(3, 2),
            torch.ones(0, 3),
            r"`example` has arrays of shapes \[\(0, 3\)\]; the first axis",
        ),
        (
            nn.Bilinear(3, 3, 2),
            (torch.ones(2, 3), torch.ones(3, 3)),
            r"`example` has arrays of shapes \[\(2, 3\), \(3, 3\)\]",
        ),
        (
            nn.GRU(3, 2, batch_first=True),
            torch.ones(2, 4, 3),
            r"`module` maps 3 samples to an output of shape \(1, 3, 2\)",
        ),
        (
            nn.TransformerEncoderLayer(4, 2, 8).eval(),
            torch.randn(3, 4, 4),
            "mixes samples: .*batch_first=True",
        ),
        (
            nn.ParameterList([nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)]),
            torch.ones(2),
            "register it as a buffer",
        ),
    ],
)
def test_a_wrong_argument_is_refused(module: Any, example: Any, text: str):
    with pytest.raises((ValueError, TypeError), match=text):
        nm.from_torch(module, example=example)


@pytest.mark.parametrize(
    "x, text",
    [
        (
            np.ones((2, 4)),
            r"`x` has shape \(2, 4\); the network takes \(n, 3\), n the number of samples",
        ),
        (np.ones((2, 3), complex), r"`x` has dtype complex128; the network takes float32"),
        ([np.ones((2, 3))], r"`x` is a list; pass an array"),
    ],
)
def test_a_wrong_input_is_refused(x: Any, text: str):
    f, params = nm.from_torch(nn.Linear(3, 2), example=torch.ones(2, 3))
    with pytest.raises((ValueError, TypeError), match=text):
        f(params, x)


def test_floats_are_no_token_ids():
    f, params = nm.from_torch(nn.Embedding(5, 2), example=torch.tensor([1, 2]))
    with pytest.raises(TypeError, match=r"`x` has dtype float64; the network takes int64: cast it"):
        f(params, np.ones(3))
    assert np.isnan(f(params, np.array([1, 7]))[1]).all(), "an index outside the table is visible"


class WriteIntoView(Step):
    def step(self, x: Tensor) -> Tensor:
        column = x[:, 0]
        column.add_(1)
        return x * column[:, None]


class SetItem(Step):
    def step(self, x: Tensor) -> Tensor:
        x[:, 0] = 0.5
        return x


class Twice(Step):
    def step(self, x: Tensor) -> Tensor:
        y = x + 1
        z = y.view(-1, 3)
        z += x
        return y.mul_(2) + z


class Squeezed(Step):
    def step(self, x: Tensor) -> Tensor:
        return x[:, :1].squeeze()


class Detached(Step):
    def step(self, x: Tensor) -> Tensor:
        return x + x.detach() ** 2


class Constant(Step):
    def step(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "module",
    [WriteIntoView(), SetItem(), Twice(), Squeezed(), Detached(), Constant()],
    ids=lambda m: type(m).__name__,
)
def test_aliases_and_constants_are_right(module: nn.Module):
    """from_torch compares outputs and derivative itself; here at five samples, and at one, where
    `squeeze` may not drop the axis.
    """
    f, params = nm.from_torch(module, example=torch.randn(2, 3))
    x = torch.randn(5, 3)
    y = module(x.clone()).detach().numpy()
    np.testing.assert_allclose(f(params, x.numpy()), y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(f(params, x[:1].numpy()), y[:1], rtol=1e-5, atol=1e-6)


def node(target: str, output: str, *args: Any) -> TorchNode:
    return TorchNode(target, args, {}, (output,), (None,), False, "layer (Layer), net.py:1")


def run(nodes: tuple[TorchNode, ...], outputs: tuple[Ref, ...], x: Any) -> Any:
    values = {"x": x}
    for step in nodes:
        args = [values[a.name] if isinstance(a, Ref) else a for a in step.args]
        values[step.outputs[0]] = OPERATIONS[step.target](*args)
    return [values[output.name] for output in outputs]


def test_writes_that_nobody_else_sees_become_functional():
    """y = relu(x); y += 1; z = view(y); z *= 2: everyone reads the last value."""
    nodes = (
        node("aten.relu.default", "y", Ref("x")),
        node("aten.add_.Tensor", "a", Ref("y"), 1.0),
        node("aten.view.default", "z", Ref("y"), (2, 1)),
        node("aten.mul_.Tensor", "m", Ref("z"), 2.0),
    )
    done, outputs = functional(nodes, (Ref("z"),), {})
    assert [step.target for step in done] == [
        "aten.relu.default",
        "aten.add.Tensor",
        "aten.view.default",
        "aten.mul.Tensor",
    ]
    np.testing.assert_array_equal(run(done, outputs, np.array([-1.0, 3.0]))[0], [[2.0], [8.0]])


@pytest.mark.parametrize("reader", [Ref("y"), Ref("w")])
def test_a_write_that_another_view_sees_is_refused(reader: Ref):
    nodes = (
        node("aten.relu.default", "y", Ref("x")),
        node("aten.view.default", "z", Ref("y"), (2, 1)),
        node("aten.transpose.int", "w", Ref("y"), 0, 0),
        node("aten.mul_.Tensor", "m", Ref("z"), 2.0),
        node("aten.add.Tensor", "s", reader, 1.0),
    )
    with pytest.raises(
        ValueError,
        match=rf"writes in place by aten\.mul_\.Tensor at layer .* read later under another name \({reader.name}\)",
    ):
        functional(nodes, (Ref("s"),), {})
    with pytest.raises(
        ValueError, match=r"`module` writes into 'running_mean' by aten\.add_\.Tensor"
    ):
        functional(
            (node("aten.add_.Tensor", "a", Ref("b"), 1.0),), (Ref("a"),), {"b": "running_mean"}
        )
