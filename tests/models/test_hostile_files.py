"""Files that lie are refused early: one sentence, nothing executed, hardly any memory."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import neuromanifold as nm
from commands import run
from hostile import FILES, Bomb, hostile, write
from neuromanifold.models.files.tensors import Call, Name, parse

SOURCE = Path(__file__).parents[2] / "src"
LOADER = """
import json, resource, sys
import neuromanifold as nm
import safetensors, ml_dtypes
nm.load(sys.argv[1])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found = {}
for path in sys.argv[2:]:
    before = peak()
    try:
        nm.load(path, activation=None if path.endswith("pt2") else "relu")
        found[path] = ("loaded", 0.0)
    except (ValueError, TypeError, OSError) as error:
        found[path] = (str(error), peak() - before)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, float]]:
    """What one process says about all of the files, and by how many MiB its peak rose at each."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = [str(path) for path in write(folder)]
    command = [sys.executable, "-c", LOADER, str(FILES / "net.pt2"), *paths]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "exploded").exists(), "something in a file was executed"
    return {Path(path).name: tuple(said) for path, said in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", sorted(hostile()))
def test_a_file_that_lies_is_refused_early(name: str, outcome: dict[str, tuple[str, float]]):
    sentence, growth = outcome[name]
    assert sentence != "loaded"
    assert name in sentence or "`activation`" in sentence
    assert "\n" not in sentence
    assert sentence.endswith((".", "path)."))
    assert len(sentence) < 700
    assert growth <= 100


@pytest.mark.parametrize(
    "name, text",
    [
        ("bomb.npz", "bytes that would become 536,870,987"),
        ("directory.npz", "its table of contents alone takes 5,100,000 bytes"),
        ("trillion.npz", "claims the shape (1000000000000,) of float64 in 1"),
        ("code.npz", "Python objects are never loaded"),
        ("encrypted.npz", "is encrypted"),
        ("lzma.npz", "is compressed by method 14"),
        ("twice.npz", "it holds '0.weight.npy' twice"),
        ("twice.safetensors", "it names '0.weight' twice"),
        ("deep.safetensors", "its header is nested too deeply"),
        ("power.safetensors", "`activation` is 'power(1000000000)', which is not built"),
        ("code.pt", "holds a posix.mkdir, whose code would have to run"),
        ("nested.pt", "holds '0.weight', a posix.mkdir, where a state dict has tensors"),
        ("expanded.pt", "bytes that would become 4,000,000,000,000"),
        ("zeros.pt2", "makes an array of shape (1000000, 1000000) by aten.new_zeros.default"),
        ("sizes.pt2", "computes with something else than the lengths of axes"),
        ("weights.pt2", "is pickled, that is, code"),
    ],
)
def test_the_sentence_names_what_is_wrong(
    name: str, text: str, outcome: dict[str, tuple[str, float]]
):
    assert text in outcome[name][0]


def test_the_same_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bomb.npz", "code.pt", "deep.safetensors", "code.pt2"):
        (tmp_path / name).write_bytes(hostile()[name]())
        status, out, error = run("inspect", tmp_path / name, "f2")
        assert status == 2
        assert out == ""
        assert len(error.strip().splitlines()) == 1
        assert "Traceback" not in error
    assert not (tmp_path / "exploded").exists()


def test_pickles_beside_a_program_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An archive of torch.export holds its sample inputs pickled; here they are code."""
    monkeypatch.chdir(tmp_path)
    with (
        zipfile.ZipFile(FILES / "net.pt2") as old,
        zipfile.ZipFile(tmp_path / "net.pt2", "w") as new,
    ):
        for member in old.infolist():
            new.writestr(
                member.filename,
                pickle.dumps(Bomb()) if member.filename.endswith(".pt") else old.read(member),
            )
    assert nm.load(tmp_path / "net.pt2")[1]
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_is_read_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for protocol in (2, 3, 4, 5):
        found = parse(pickle.dumps({"a": [Bomb(), (1, 2.5, None, True)], "b": len}, protocol))
        assert isinstance(found["a"][0], Call)
        assert found["a"][0].name.endswith(".mkdir")
        assert found["a"][1] == (1, 2.5, None, True)
        assert found["b"] in (Name("builtins.len"), Name("__builtin__.len"))
    assert not (tmp_path / "exploded").exists()
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "exploded").exists(), "negative control: Python's own reader runs it"
