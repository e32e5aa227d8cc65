"""A `.pt2` file reduced to a smaller `.pt2` file, without the code that made it and with nothing
of it executed.
"""

import contextlib
import resource
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import neuromanifold as nm
from hostile import FILES, Bomb
from neuromanifold import cli
from neuromanifold.models.adapters.torch.program_writer import outputs_in_torch, program_module
from torch_zoo import GPT, ZOO


def exported(
    path: Path,
    module: nn.Module,
    args: tuple[Any, ...],
    free: Any,
    *,
    functional: bool,
    **kwargs: Any,
) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=free)
        torch.export.save(graph.run_decompositions({}) if functional else graph, path)
    return path


def loaded(path: Path) -> Any:
    """As PyTorch reads it; the file is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(path)


def perceptron() -> nn.Module:
    """A unit that nothing reads, and one that is twice another."""
    module = nn.Sequential(
        nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)
    ).double()
    with torch.no_grad():
        module[2].weight[:, 2] = 0.0
        module[0].weight[4], module[0].bias[4] = 2 * module[0].weight[1], 2 * module[0].bias[1]
    return module


def convolutional() -> nn.Module:
    """Batch normalisations that have seen data; a channel of each that nothing reads."""
    layers = [
        nn.Conv2d(1, 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 4, 2),
        nn.BatchNorm2d(4),
    ]
    module = nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))
    with torch.no_grad():
        for _ in range(3):
            module(1.0 + torch.randn(32, 1, 8, 8))
        module[4].weight[:, 1] = 0.0
        module[8].weight.view(3, 4, 4)[:, 2] = 0.0
    return module


class Residual(nn.Module):
    """A stream with a depthwise convolution, whose graph does not take other widths as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.up, self.depth, self.down = (
            nn.Conv2d(4, 6, 1),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.Conv2d(6, 4, 1),
        )
        self.head = nn.Linear(4, 3)
        with torch.no_grad():
            self.norm.running_var.uniform_(0.5, 2.0)
            self.down.weight[:, 2] = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.lift(x)))
        h = h + self.down(torch.relu(self.depth(torch.relu(self.up(h)))))
        return self.head(h.mean((2, 3)))


def language_model() -> nn.Module:
    """Two units of the perceptron that nothing reads; the embedding is the output layer."""
    module = GPT(vocabulary=7, d=4, heads=2, depth=1, length=6)
    with torch.no_grad():
        module.blocks[0].mlp[2].weight[:, [3, 5]] = 0.0
    return module


FREE = {0: torch.export.Dim("n")}
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor], dict[int, Any], bool, int]] = {
    "MLP": (perceptron, lambda n: torch.randn(n, 3).double(), FREE, False, 2 * (3 + 1 + 4)),
    "CNN with BatchNorm": (convolutional, lambda n: torch.randn(n, 1, 8, 8), FREE, True, 5 * 3 + (9 + 1 + 16) + (16 + 1 + 12)),
    "residual": (lambda: Residual().double(), lambda n: torch.randn(n, 1, 5, 5).double(), FREE, False, 2 * 4 + 4 + 1 + 9 + 1 + 4),
    "GPT": (
        language_model,
        lambda n: torch.randint(7, (n, 5)),
        {0: torch.export.Dim("n"), 1: torch.export.Dim("t", max=6)},
        False,
        2 * (4 + 1 + 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_reduced_and_written_as_a_program(name: str, tmp_path: Path):
    torch.manual_seed(0)
    make, draw, free, functional, least = CASES[name]
    module, x = make(), draw(12)
    path = exported(tmp_path / "net.pt2", module, (x,), (free,), functional=functional)
    f, params = nm.load(path, statistics=True)
    small = nm.reduce_width(f, params, x.numpy())
    g, fewer = nm.load(small.save(tmp_path / "smaller.pt2", example=x.numpy()))
    assert (
        sum(p.numel() for p in module.parameters()) - sum(np.size(a) for a in fewer.values())
        >= least
    )
    assert set(fewer) <= {parameter for parameter, _ in module.named_parameters()}
    again, rtol = (
        loaded(tmp_path / "smaller.pt2"),
        1e-12 if next(module.parameters()).dtype == torch.float64 else 1e-6,
    )
    assert set(again.state_dict) >= set(module.state_dict()) - {"head.weight"}
    for count in (1, 7):
        new = draw(count)
        with torch.no_grad():
            expected, found = module(new).numpy(), again.module()(new).numpy()
        for y in (found, np.asarray(g(fewer, new.numpy()))):
            np.testing.assert_allclose(y, expected, rtol=0, atol=rtol * np.abs(expected).max())
    shapes = {tuple(shape) for shape in (spec.shape for spec in g.apply.program.inputs)}
    assert shapes == {tuple(None if axis in free else n for axis, n in enumerate(x.shape))}


def test_shared_weights_and_bounds_survive(tmp_path: Path):
    torch.manual_seed(0)
    make, draw, free, _, _ = CASES["GPT"]
    module = make()
    path = exported(tmp_path / "net.pt2", module, (draw(3),), (free,), functional=False)
    f, params = nm.load(path)
    nm.reduce_width(f, params, draw(4).numpy()).save(
        tmp_path / "smaller.pt2", example=draw(2).numpy()
    )
    again = loaded(tmp_path / "smaller.pt2")
    assert again.state_dict["wte.weight"].data_ptr() == again.state_dict["head.weight"].data_ptr()
    assert sorted(str(limit.upper) for limit in again.range_constraints.values()) == ["6", "int_oo"]


def test_a_graph_computes_less_where_only_its_reshapes_name_the_widths(tmp_path: Path):
    """A functional graph says `view(x, [n, 16])` where its channels are flattened; of 16 entries
    12 are left.
    """
    torch.manual_seed(0)
    module, x = convolutional(), torch.randn(12, 1, 8, 8)
    path = exported(tmp_path / "net.pt2", module, (x,), (FREE,), functional=True)
    graph = nm.reduce_width(*nm.load(path, statistics=True), x.numpy()).to_torch(example=x.numpy())
    assert graph.get_parameter("8.weight").shape == (3, 12) and graph.get_parameter(
        "4.weight"
    ).shape == (3, 4, 2, 2)
    assert not any("index_copy" in str(node.target) for node in graph.graph.nodes)
    assert (graph(x) - module(x)).abs().max() < 1e-6 * module(x).abs().max()


@pytest.mark.parametrize("name", ["LeNet", "SwiGLU", "encoder, ReLU", "depthwise"])
def test_pytorch_runs_a_program_as_it_ran_the_module(name: str, tmp_path: Path):
    example = ZOO[name]
    module, x = example.module(), example.draw(3)
    for functional in (False, True):
        f, params = nm.load(
            exported(tmp_path / "net.pt2", module, (x,), (FREE,), functional=functional)
        )
        twin, new = program_module(f, params), example.draw(4)
        with torch.no_grad():
            [y] = outputs_in_torch(f, twin, new.numpy())
            np.testing.assert_allclose(y, module(new).double().numpy(), rtol=1e-5, atol=1e-6)


class Structured(nn.Module):
    """Every form at once: positional and named arguments, a dictionary of lists, a flag, a buffer
    that is not saved, a constant, a
    frozen parameter, a shared weight, an output that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.e, self.d = (
            nn.Linear(3, 4),
            nn.BatchNorm1d(4),
            nn.Linear(4, 4),
            nn.Linear(4, 4, bias=False),
        )
        self.d.weight, self.spare = self.e.weight, nn.Linear(2, 2)
        self.a.weight.requires_grad_(False)
        self.register_buffer("m", torch.ones(4), persistent=False)

    def forward(self, x: Any, other: Any, *, flag: bool = True, mask: Any = None) -> Any:
        h = self.b(torch.relu_(self.a(x))) * self.m + torch.tensor([1.0, 2.0, 3.0, 4.0])
        h = self.d(torch.relu(self.e(h)))
        y = h + other["u"][0] * mask if flag else h
        return {"y": y.reshape(-1, 2, 2).flatten(1), "more": (h, None, 3)}


def structured(folder: Path) -> tuple[nn.Module, Path, Any, Any]:
    torch.manual_seed(0)
    module, n = Structured(), torch.export.Dim("n", min=2, max=64)
    args, kwargs = (
        (torch.randn(5, 3), {"u": [torch.randn(5, 4)]}),
        {"mask": torch.ones(5, 4), "flag": True},
    )
    free = {"x": {0: n}, "other": {"u": [{0: n}]}, "mask": {0: n}, "flag": None}
    return (
        module,
        exported(folder / "net.pt2", module, args, free, functional=False, **kwargs),
        args,
        kwargs,
    )


def as_arrays(args: Any, kwargs: Any) -> dict[str, Any]:
    """What `structured` is called with, as the reader of its file wants it."""
    return {
        "x": args[0].numpy(),
        "other": {"u": [args[1]["u"][0].numpy()]},
        "mask": kwargs["mask"].numpy(),
        "flag": None,
    }


def test_arguments_outputs_and_buffers_keep_their_form(tmp_path: Path):
    module, path, args, kwargs = structured(tmp_path)
    f, params = nm.load(path)
    x = as_arrays(args, kwargs)
    nm.reduce_width(f, params, x).save(tmp_path / "smaller.pt2", example=x)
    old, new = loaded(path), loaded(tmp_path / "smaller.pt2")
    found, expected = new.module()(*args, **kwargs), module(*args, **kwargs)
    assert found.keys() == expected.keys() and found["more"][1:] == (None, 3)
    for a, b in ((found["y"], expected["y"]), (found["more"][0], expected["more"][0])):
        assert (a - b).abs().max() <= 1e-6 * b.abs().max()
    assert old.call_spec == new.call_spec
    assert set(old.state_dict) == set(new.state_dict) and {"m"} <= set(new.constants)
    assert torch.equal(old.state_dict["spare.weight"], new.state_dict["spare.weight"])
    assert new.state_dict["d.weight"].data_ptr() == new.state_dict["e.weight"].data_ptr()
    assert not new.state_dict["a.weight"].requires_grad and new.state_dict["a.bias"].requires_grad
    assert [str(limit) for limit in new.range_constraints.values()] == ["VR[2, 64]"]
    with pytest.raises(ValueError, match="`x` has arrays of"):
        nm.reduce_width(f, params, x).save(
            tmp_path / "other.pt2", example={**x, "mask": x["mask"][:2]}
        )


def test_a_program_for_one_sample_stays_one(tmp_path: Path):
    torch.manual_seed(0)
    module, x = perceptron(), torch.randn(20, 3).double()
    f, params = nm.load(exported(tmp_path / "net.pt2", module, (x[:1],), None, functional=False))
    small = nm.reduce_width(f, params, x.numpy())
    small.save(tmp_path / "smaller.pt2", example=x.numpy())
    assert (loaded(tmp_path / "smaller.pt2").module()(x[3:4]) - module(x[3:4])).abs().max() < 1e-12
    assert small.neurons_saved >= 2


def edited(old: Path, new: Path, change: Callable[[str, bytes], bytes]) -> Path:
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as target:
        for member in source.infolist():
            name = member.filename.replace(f"{old.stem}/", f"{new.stem}/", 1)
            target.writestr(name, change(name, source.read(member)))
    return new


def test_what_is_planted_in_a_file_does_not_reach_the_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    _, path, args, kwargs = structured(tmp_path)
    x = as_arrays(args, kwargs)
    torch.save(Bomb(), "bomb.pt")
    code = b"__import__('os').mkdir('exploded') or "

    def plant(name: str, content: bytes) -> bytes:
        if name.endswith("sample_inputs/model.pt"):
            return Path("bomb.pt").read_bytes()
        return (
            content.replace(b"Symbol('s", code + b"Symbol('s")
            if name.endswith("model.json")
            else content
        )

    f, params = nm.load(edited(path, tmp_path / "planted.pt2", plant))
    nm.reduce_width(f, params, x).save(tmp_path / "smaller.pt2", example=x)
    loaded(tmp_path / "smaller.pt2").module()(*args, **kwargs)
    assert not Path("exploded").exists()
    with contextlib.suppress(Exception):
        loaded(tmp_path / "planted.pt2")
    assert Path("exploded").exists(), "negative control: PyTorch's own reader runs it"


@pytest.mark.parametrize(
    "old, new, text",
    [
        (b'"a.weight"', rb'"a.w\"),exec(\"mkdir\"),(\""', r"`net` has the name .* among its tensors or arguments; only plain names"),
        (rb'\\\"mask\\\"', rb'\\\"mask):exec(\\\"', r"`net` has the name 'mask\):exec\(' among"),
        (rb'\\\"mask\\\"', rb'\\\"import\\\"', "`net` has an argument named 'import', which Python has no room for"),
        (b'"a.weight"', b'"a.forward"', "`net` has a tensor named 'a.forward', a name that PyTorch's modules have taken"),
    ],
    ids=["tensor", "key", "keyword", "taken"],
)  # fmt: skip
def test_names_that_could_be_code_are_not_written(
    old: bytes, new: bytes, text: str, tmp_path: Path
):
    _, path, _, _ = structured(tmp_path)
    f, params = nm.load(
        edited(path, tmp_path / "named.pt2", lambda _, content: content.replace(old, new))
    )
    with pytest.raises(ValueError, match=text):
        program_module(f, params)


def test_a_program_is_reduced_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module, x = perceptron().float(), torch.randn(20, 3)
    exported(tmp_path / "net.pt2", module, (x,), (FREE,), functional=False)
    np.save("x.npy", x.numpy())
    result = CliRunner().invoke(cli.app, ["reduce", "net.pt2", "x.npy"])
    assert result.exit_code == 0, result.output
    assert "62 → 46 parameters, 2 units fewer; equal everywhere, deviation " in result.output
    assert (
        "layer 0.weight: 1 neuron, without outgoing weights (everywhere: nothing reads it)"
        in result.output
    )
    assert (
        "in PyTorch the outputs differ by" in result.output
        and "read again from the file" in result.output
    )
    assert result.output.endswith("wrote smaller.pt2\n")
    assert torch.is_grad_enabled()  # nothing of PyTorch's state is left changed
    f, params = nm.load("smaller.pt2")
    np.testing.assert_allclose(f(params, x.numpy()), module(x).detach().numpy(), atol=1e-6)
    for arguments, text in (
        (["x.npy", "--out", "smaller.pt"], r"`--out` is 'smaller\.pt' but `MODEL` is a \.pt2"),
        ([], "`DATA` is missing"),
        (
            ["x.npy", "--batchnorm", "before"],
            "`batchnorm` is 'before' but net.pt2 is a whole program",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            CliRunner().invoke(cli.app, ["reduce", "net.pt2", *arguments], catch_exceptions=False)


def test_what_did_not_come_from_a_file_needs_its_module(tmp_path: Path):
    module, x = perceptron(), torch.randn(9, 3).double()
    small = nm.reduce_width(*nm.from_torch(module, example=x), x.numpy())
    with pytest.raises(
        TypeError,
        match=r"`module` is missing: the network came from a module, not from a \.pt2 file",
    ):
        small.to_torch(example=x)
    with pytest.raises(
        TypeError, match=r"did not come from a \.pt2 file; save the module that `to_torch` gives"
    ):
        small.save(tmp_path / "smaller.pt2", example=x)
    assert small.to_torch(module, example=x) is not None


def test_a_full_disk_is_named_and_does_not_end_the_process(tmp_path: Path):
    """PyTorch's own writer of archives calls `terminate` there."""
    f, params = nm.load(FILES / "net.pt2")
    x = np.load(FILES / "expected.npz")["images"]
    small, path = nm.reduce_width(f, params, x), tmp_path / "small.pt2"
    small.save(path, example=x)
    whole = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match=r"small\.pt2' found no room on its disk; make room"):
            small.save(path, example=x)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == whole and len(list(tmp_path.iterdir())) == 1
