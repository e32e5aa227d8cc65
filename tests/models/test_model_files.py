"""Files that PyTorch wrote, read where PyTorch is absent: tests/torch_files.py made them, with
the outputs beside.
"""

import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
from neuromanifold import cli
from neuromanifold.models.files.tensors import read_tensors
from neuromanifold.numerics.precision import arithmetic, promote

FILES = Path(__file__).parents[1] / "data" / "torch"
EXPECTED = np.load(FILES / "expected.npz")


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)


@pytest.mark.parametrize("file", ["mlp.pt", "checkpoint.pth"])
def test_a_state_dict_is_read_without_pytorch(file: str):
    net, params = nm.load(FILES / file, activation="ReLU")
    assert net == nm.MLP((3, 4, 2))
    np.testing.assert_allclose(net(params, EXPECTED["x"]), EXPECTED["y"], rtol=1e-14)


def test_every_layout_of_a_tensor_is_read_bit_by_bit():
    tensors, _ = read_tensors(FILES / "views.pt")
    assert list(tensors) == [
        name.removeprefix("views.") for name in EXPECTED if name.startswith("views.")
    ]
    for name, tensor in tensors.items():
        expected = EXPECTED[f"views.{name}"]
        assert tensor.shape == expected.shape
        np.testing.assert_array_equal(tensor.astype(expected.dtype), expected)
    assert tensors["bfloat16"].dtype.name == "bfloat16"
    assert tensors["half"].dtype == np.float16


@pytest.mark.parametrize(
    "file, text",
    [
        (
            "module.pt",
            r"holds a torch\.nn\.modules\.container\.Sequential, whose code would have to run; save its state dict instead",
        ),
        (
            "legacy.pt",
            r"no archive of torch\.save since PyTorch 1\.6 .*torch\.save\(torch\.load\(path, weights_only=True\)",
        ),
        (
            "script.pt",
            r"a TorchScript program; save its state dict instead: torch\.save\(model\.state_dict\(\), path\)",
        ),
        (
            "fixed.pt2",
            r"a program for inputs of shapes \[\(5, 1, 4, 4\)\]; the first axis must be free, or 1: torch\.export\.export\(",
        ),
        (
            "views.pt",
            r"holds base \(4, 6\), transposed \(6, 4\), .* and 3 more; a file alone is enough for stacked linear layers .*--factory",
        ),
    ],
)
def test_other_files_of_pytorch_are_named_with_the_line_that_would_work(file: str, text: str):
    with pytest.raises(ValueError, match=text):
        nm.load(FILES / file, activation=None if file.endswith("pt2") else "relu")


@pytest.mark.parametrize("file", ["net.pt2", "functional.pt2", "single.pt2"])
def test_a_program_is_read_and_run_without_pytorch(file: str):
    """Exported as it is (with in-place steps), made functional, and for a single sample: any
    number of samples goes in.
    """
    f, params = nm.load(FILES / file)
    assert set(params) == {
        "conv.weight",
        "conv.bias",
        "bn.weight",
        "bn.bias",
        "query.weight",
        "out.bias",
    }
    for n in (1, 5):
        y = f(params, EXPECTED["images"][:n])
        np.testing.assert_allclose(y["logits"], EXPECTED["logits"][:n], rtol=1e-12)
        np.testing.assert_allclose(y["parts"][0], EXPECTED["part0"][:n], rtol=1e-12)
        np.testing.assert_allclose(y["parts"][1], EXPECTED["part1"][:n], rtol=1e-12)
    assert "not compared" in f.evidence


def test_the_gradient_of_a_program_sees_the_tie(rng: np.random.Generator):
    """Central differences in the tied weight against the gradient, by two of the files."""
    slopes = []
    for file in ("net.pt2", "functional.pt2"):
        f, params = nm.load(FILES / file)
        with arithmetic():
            theta, x = promote((params, EXPECTED["images"]), np.float64)

            def energy(theta: Any, f: Any = f, x: Any = x) -> Any:
                return (f(theta, x)["logits"] ** 2).sum()

            slopes.append(jax.grad(energy)(theta)["query.weight"])
            step = 1e-6 * rng.standard_normal(params["query.weight"].shape)
            up, down = (
                {**theta, "query.weight": theta["query.weight"] + s * step} for s in (1, -1)
            )
            np.testing.assert_allclose(
                (slopes[-1] * step).sum(), (energy(up) - energy(down)) / 2, rtol=1e-6
            )
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)


def test_an_activation_for_a_whole_program_is_refused():
    with pytest.raises(
        ValueError,
        match=r"`activation` is 'relu' but net\.pt2 is a whole program; leave the argument out",
    ):
        nm.load(FILES / "net.pt2", activation="relu")


def edited(
    source: Path,
    target: Path,
    change: dict[str, bytes | None],
    extra: dict[str, bytes] | None = None,
) -> Path:
    """A copy of an archive with members replaced (by name's end), left out (None) or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            ends = [end for end in change if member.filename.endswith(end)]
            content = change[ends[0]] if ends else old.read(member)
            if content is not None:
                new.writestr(member.filename, content)
        for name, content in (extra or {}).items():
            new.writestr(name, content)
    return target


def member(source: Path, end: str) -> bytes:
    with zipfile.ZipFile(source) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(end)))


@pytest.mark.parametrize(
    "old, new, text",
    [
        (
            b'"use_pickle": false',
            b'"use_pickle": true ',
            r"whose tensor '.*' is pickled, that is, code; export it again with a current PyTorch",
        ),
        (b'"as_int": 4}', b'"as_int": 5}', r"damaged: '.*' claims the shape .* in \d+ bytes"),
        (
            b'"as_int": 4}',
            b'"as_int": -4}',
            r"cannot be read \(damaged, or of an unknown version: TypeError impossible sizes",
        ),
        (
            b'"path_name": "weight_0"',
            b'"path_name": "weight_99"',
            r"cannot be read \(damaged, or of an unknown version: KeyError",
        ),
        (
            b'"config"',
            b'"konfig"',
            r"cannot be read \(damaged, or of an unknown version: KeyError 'config'",
        ),
    ],
)
def test_a_program_with_other_weights_is_refused(old: bytes, new: bytes, text: str, tmp_path: Path):
    config = member(FILES / "net.pt2", "model_weights_config.json")
    assert old in config
    path = edited(
        FILES / "net.pt2",
        tmp_path / "net.pt2",
        {"model_weights_config.json": config.replace(old, new)},
    )
    with pytest.raises(ValueError, match=text):
        nm.load(path)


@pytest.mark.parametrize(
    "old, new, text",
    [
        (
            b"torch.ops.aten.max_pool2d.default",
            b"torch.ops.aten.median.default",
            r"uses aten\.median\.default at .*, which is not in the table",
        ),
        (
            b"torch.ops.aten.max_pool2d.default",
            b"torch.ops.os.system",
            r"uses os\.system at .*, which is not in the table",
        ),
        (
            b"torch.ops.aten.relu_.default",
            b"builtins.eval",
            r"uses builtins\.eval at .*, which is not in the table",
        ),
        (
            b'"as_ints": [2, 2]',
            b'"as_ints": [9999999999]',
            r"has a window of 9999999999 where only \d entries are",
        ),
        (
            b"user_output",
            b"buffer_mutation",
            r"a program that changes its state when it runs \(buffer_mutation\)",
        ),
        (
            b'"nodes"',
            b'"knots"',
            r"cannot be read \(damaged, or of an unknown version: KeyError 'nodes'",
        ),
        (
            b"builtins.dict",
            b"posix.system!",
            r"with a posix\.system! among its inputs or outputs; use tuples, lists and dictionaries",
        ),
    ],
)
def test_a_program_with_another_graph_is_refused(old: bytes, new: bytes, text: str, tmp_path: Path):
    graph = member(FILES / "net.pt2", "model.json")
    assert old in graph
    path = edited(FILES / "net.pt2", tmp_path / "net.pt2", {"model.json": graph.replace(old, new)})
    with pytest.raises(ValueError, match=text):
        nm.load(path)


def test_older_programs_are_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.pt", "pickled")
    with pytest.raises(
        ValueError,
        match=r"old\.pt2', an older export whose weights are pickled, that is, code; export it again",
    ):
        nm.load(tmp_path / "old.pt2")
    with zipfile.ZipFile(tmp_path / "middle.pt2", "w") as archive:
        archive.writestr("middle/models/model.json", "{}")
        archive.writestr("middle/data/weights/model.pt", "pickled")
    with pytest.raises(
        ValueError, match=r"middle\.pt2', an older export whose weights are pickled"
    ):
        nm.load(tmp_path / "middle.pt2")
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("nothing", "{}")
    with pytest.raises(
        ValueError, match=r"other\.pt2', which holds 0 graphs, where torch\.export\.save writes one"
    ):
        nm.load(tmp_path / "other.pt2")


def test_without_pytorch_the_sentence_says_how_to_get_it():
    for adapter in (lambda: nm.from_torch(None, example=None), lambda: nm.to_torch(None, {})):
        with pytest.raises(
            ImportError,
            match=r"PyTorch is not installed; get its CPU build with `pip install torch --index-url https://",
        ):
            adapter()


def test_reducing_a_program_needs_pytorch_and_says_so_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("the file was read first")

    monkeypatch.setattr("neuromanifold.inspection.reducing.load", read)
    monkeypatch.setattr("neuromanifold.inspection.reducing.samples", read)
    with pytest.raises(ImportError, match="PyTorch is not installed; get its CPU build"):
        CliRunner().invoke(
            cli.app, ["reduce", str(FILES / "net.pt2"), "x.npy"], catch_exceptions=False
        )


def test_statistics_of_normalisations_are_parameters_where_asked_for():
    f, params = nm.load(FILES / "net.pt2")
    g, more = nm.load(FILES / "net.pt2", statistics=True)
    assert set(params) <= set(more) and set(g.state) <= set(f.state)
    assert set(more) - set(params) == set(f.state) - set(g.state)
    with pytest.raises(ValueError, match=r"`statistics` is True but mlp\.pt is a state dict"):
        nm.load(FILES / "mlp.pt", activation="relu", statistics=True)
    with pytest.raises(
        ValueError, match=r"`batchnorm` is 'before' but net\.pt2 is a whole program"
    ):
        nm.load(FILES / "net.pt2", batchnorm="before")
