"""Files of PyTorch where PyTorch is present: the readers against PyTorch's own, and what
PyTorch's own would have run.
"""

import contextlib
import os
import pickle
import re
import sys
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

import neuromanifold as nm
import torch_files
from hostile import Bomb
from neuromanifold import cli
from neuromanifold.models.files.tensors import read_tensors
from torch_zoo import GPT, ZOO

FREE = {0: torch.export.Dim("n")}


def exported(module: nn.Module, x: Any, path: Path, *, functional: bool) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.export.export(module, (x,), dynamic_shapes=(FREE,))
        torch.export.save(graph.run_decompositions({}) if functional else graph, path)
    return path


@pytest.mark.parametrize("functional", [False, True], ids=["as exported", "functional"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_saved_program_computes_what_the_module_does(name: str, functional: bool, tmp_path: Path):
    example = ZOO[name]
    module, x = example.module().double(), example.draw(3)
    x = x.double() if x.is_floating_point() else x
    f, params = nm.load(exported(module, x, tmp_path / "net.pt2", functional=functional))
    assert set(params) == {parameter for parameter, _ in module.named_parameters()}
    y = module(x)
    for a, b in zip(
        jax.tree.leaves(f(params, x.numpy())), y if isinstance(y, tuple) else (y,), strict=True
    ):
        b = b.detach().numpy()
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())


def test_the_files_in_the_tests_are_what_pytorch_writes(tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_files.write(tmp_path)
    for path in sorted(torch_files.FOLDER.iterdir()):
        assert (tmp_path / path.name).is_file()
    for name in ("mlp.pt", "checkpoint.pth", "views.pt"):
        new, old = read_tensors(tmp_path / name)[0], read_tensors(torch_files.FOLDER / name)[0]
        assert list(new) == list(old)
        assert all(np.array_equal(new[key], old[key]) for key in new)


def test_a_state_dict_is_read_as_pytorch_reads_it(tmp_path: Path):
    torch.save(GPT().to(torch.bfloat16).state_dict(), tmp_path / "gpt.pt")
    ours, _ = read_tensors(tmp_path / "gpt.pt")
    theirs = torch.load(tmp_path / "gpt.pt", weights_only=True)
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name].astype(np.float64), tensor.double().numpy())


def test_pytorchs_own_reader_of_programs_runs_what_a_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The reason for a reader of our own: sample inputs are pickled, and torch.export.load
    unpickles them.
    """
    monkeypatch.chdir(tmp_path)
    path = exported(ZOO["MLP"].module(), ZOO["MLP"].draw(2), tmp_path / "net.pt2", functional=True)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "planted.pt2", "w") as new:
        for member in old.infolist():
            name = member.filename.replace("net/", "planted/", 1)
            new.writestr(
                name, planted() if name.endswith("sample_inputs/model.pt") else old.read(member)
            )
    f, params = nm.load(tmp_path / "planted.pt2")
    assert f(params, np.ones((2, 3))).shape == (2, 2)
    assert not (tmp_path / "exploded").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(Exception):
            torch.export.load(tmp_path / "planted.pt2")
    assert (tmp_path / "exploded").exists(), (
        "torch.export.load no longer runs it: say so in the docs"
    )


def planted() -> bytes:
    """What torch.save makes of an object whose unpickling runs code."""
    import io

    buffer = io.BytesIO()
    torch.save(Bomb(), buffer)
    return buffer.getvalue()


def test_weights_only_refuses_what_our_reader_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    torch.save({"0.weight": Bomb()}, tmp_path / "code.pt")
    with pytest.raises(
        ValueError, match=r"holds '0\.weight', a posix\.mkdir, where a state dict has tensors"
    ):
        nm.load("code.pt", activation="relu")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load("code.pt", weights_only=True)
    assert not os.path.exists("exploded")


CODE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(8, 3))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "owncnn", raising=False)
    (tmp_path / "owncnn.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_factory_with_a_state_dict(prefix: str, dtype: torch.dtype, folder: Path):
    sys.path.insert(0, str(folder))
    from owncnn import build  # pyright: ignore[reportMissingImports]

    sys.path.remove(str(folder))
    module = build().to(dtype).eval()
    torch.save(
        {prefix + name: tensor for name, tensor in module.state_dict().items()}, "weights.pth"
    )
    x = np.random.default_rng(0).standard_normal((6, 1, 4, 4)).astype(np.float32)
    f, params = nm.load("weights.pth", factory="owncnn:build", example=x)
    assert set(params) == {name for name, _ in module.named_parameters()}
    expected = module.float()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(f(params, x), expected, rtol=1e-4, atol=1e-5)


def test_a_state_dict_of_another_module_is_refused(folder: Path):
    torch.save({"0.weight": torch.ones(2, 1, 3, 3)}, "weights.pth")
    with pytest.raises(
        ValueError,
        match=r"weights\.pth is not of the factory's module: missing 0\.bias, 1\.bias, .*unknown nothing",
    ):
        nm.load("weights.pth", factory="owncnn:build", example=np.ones((2, 1, 4, 4)))
    with pytest.raises(ValueError, match="`example` is missing; pass one batch"):
        nm.load("weights.pth", factory="owncnn:build")


def test_a_network_of_ones_own_at_the_command_line(folder: Path):
    sys.path.insert(0, str(folder))
    from owncnn import build  # pyright: ignore[reportMissingImports]

    sys.path.remove(str(folder))
    torch.save(build().state_dict(), "weights.pt")
    np.save("images.npy", np.random.default_rng(0).standard_normal((5, 1, 4, 4)))
    arguments = [
        "inspect",
        "weights.pt",
        "images.npy",
        "--factory",
        "owncnn:build",
        "--out",
        "report",
    ]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "Sequential from PyTorch" in result.output
    assert (folder / "report" / "index.html").is_file()


PLAIN = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
"""


def test_a_convolutional_network_is_reduced_at_the_command_line_and_goes_back(folder: Path):
    (folder / "plaincnn.py").write_text(PLAIN)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
    with torch.no_grad():
        module[0].weight[1], module[0].bias[1] = 0.0, -1.0  # pyright: ignore[reportIndexIssue, reportArgumentType]
    torch.save(module.state_dict(), "weights.pt")
    np.save("images.npy", np.random.default_rng(0).standard_normal((9, 1, 4, 4)).astype(np.float32))
    arguments = [
        "reduce",
        "weights.pt",
        "images.npy",
        "--factory",
        "plaincnn:build",
        "--out",
        "smaller.pt",
    ]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert (
        "69 → 47 parameters, 1 unit fewer" in result.output
        and "in PyTorch the outputs differ by" in result.output
    )
    state = torch.load("smaller.pt", weights_only=True)
    assert [tuple(t.shape) for t in state.values()] == [(2, 1, 3, 3), (2,), (3, 8), (3,)]
    result = CliRunner().invoke(cli.app, [*arguments[:-1], "smaller.pt2"])
    assert result.exit_code == 0 and "69 → 47 parameters" in result.output
    f, params = nm.load("smaller.pt2")
    new = np.random.default_rng(1).standard_normal((4, 1, 4, 4)).astype(np.float32)
    expected = module(torch.from_numpy(new)).detach().numpy()
    np.testing.assert_allclose(f(params, new), expected, rtol=1e-5, atol=1e-6)
    assert sum(np.size(a) for a in params.values()) == 47
    with pytest.raises(
        ValueError,
        match=r"`--out` is 'smaller\.npz'; pass a file that ends in \.pt, \.pth, \.safetensors or \.pt2",
    ):
        CliRunner().invoke(cli.app, [*arguments[:-1], "smaller.npz"], catch_exceptions=False)


def test_batch_normalisation_shrinks_with_its_channels_at_the_command_line(folder: Path):
    text = PLAIN.replace("nn.Conv2d(1, 3, 3),", "nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3),")
    (folder / "normedcnn.py").write_text(text)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    )
    with torch.no_grad():
        module[1].bias[1] = -50.0  # pyright: ignore[reportIndexIssue, reportArgumentType]
        module[1].running_var.copy_(torch.tensor([1.0, 2.0, 3.0]))  # pyright: ignore[reportCallIssue]
    torch.save(module.state_dict(), "weights.pt")
    np.save("images.npy", np.random.default_rng(0).standard_normal((9, 1, 4, 4)).astype(np.float32))
    arguments = [
        "reduce",
        "weights.pt",
        "images.npy",
        "--factory",
        "normedcnn:build",
        "--out",
        "smaller.pt",
    ]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "75 → 51 parameters, 1 unit fewer" in result.output
    state = torch.load("smaller.pt", weights_only=True)
    assert [tuple(t.shape) for t in state.values()] == [(2, 1, 3, 3), *[(2,)] * 5, (), (3, 8), (3,)]
    assert state["1.running_var"].tolist() == [1.0, 3.0]


def test_batch_normalisation_is_folded_as_pytorch_computes_it(tmp_path: Path):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(3, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 4),
        nn.ReLU(),
        nn.BatchNorm1d(4),
        nn.Linear(4, 2),
    )
    module.double()
    for _ in range(5):
        module(torch.randn(32, 3).double() * 2 + 1)
    torch.save(module.state_dict(), tmp_path / "net.pt")
    with pytest.warns(UserWarning, match=r"2 batch normalisations are folded"):
        net, params = nm.load(tmp_path / "net.pt", activation="ReLU")
    assert net == nm.MLP((3, 8, 4, 2))
    x = torch.randn(7, 3).double()
    np.testing.assert_allclose(
        net(params, x.numpy()), module.eval()(x).detach().numpy(), rtol=1e-12
    )


def test_the_pages_about_pytorch_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The architecture test runs the blocks marked `python`; those marked `py` need PyTorch."""
    monkeypatch.chdir(tmp_path)
    folder = Path(__file__).parents[2] / "docs"
    names = ("your-network", "track", "files", "reduce")
    page = "\n".join((folder / f"{name}.md").read_text() for name in names)
    blocks = re.findall(r"^```py\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    layers = [nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 10)]
    safetensors.torch.save_file(nn.Sequential(*layers).state_dict(), "smaller.safetensors")
    cnn = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
    with torch.no_grad():
        cnn[3].weight[:, :4] = 0.0  # pyright: ignore[reportIndexIssue]
    images, y = torch.randn(9, 1, 4, 4), np.zeros((50, 2))
    lightning = SimpleNamespace(Callback=object)
    namespace = {
        "cnn": cnn,
        "images": images,
        "y": y,
        "loader": [(images, y)],
        "lightning": lightning,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        for block in blocks:
            exec(compile(block, "pages", "exec"), namespace)
    assert len(blocks) == 9 and len(namespace["tracker"].timeline.steps) == 1
    graph = namespace["graph"]
    assert sum(p.numel() for p in graph.parameters()) < sum(p.numel() for p in cnn.parameters())
    assert (graph(images) - cnn(images)).abs().max() < 1e-5
