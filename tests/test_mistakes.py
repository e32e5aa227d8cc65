"""Fifty mistakes that people make at the command line: each ends in one sentence that says what to
do, with status 2, in this process.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import neuromanifold as nm
from neuromanifold import cli

MISTAKES = [
    # no such file, or not the file that is meant
    ("inspect absent.safetensors x.npy", "'absent.safetensors', which does not exist"),
    ("inspect net.safetensors absent.npy", "does not exist"),
    ("inspect net.safetensors absent", "'absent'; pass a .npy, .npz or .csv file, or a data set"),
    ("inspect . x.npy", "'.'"),
    ("inspect net.safetensors .", "'.'"),
    ("inspect x.npy net.safetensors", "'net.safetensors'; pass a .npy, .npz or .csv file"),
    ("inspect text.txt x.npy", "text.txt"),
    ("inspect broken.safetensors x.npy", "broken.safetensors"),
    ("inspect broken.pt x.npy --activation relu", "broken.pt"),
    ("inspect broken.pt2 x.npy", "broken.pt2"),
    ("inspect empty.safetensors x.npy", "empty.safetensors"),
    ("inspect net.safetensors broken.npy", "broken.npy"),
    ("inspect net.safetensors text.txt", "text.txt"),
    # samples that do not fit
    ("inspect net.safetensors", "`DATA` is missing"),
    ("inspect net.safetensors three.npy", "samples have 3 features; the network takes 2"),
    ("inspect net.safetensors one.npy", "samples have 1 feature; the network takes 2"),
    ("inspect nobias.npz three.npy --activation relu", "samples have 3 features; the network takes 2"),
    ("inspect net.safetensors images.npy", "takes 2"),
    ("inspect net.safetensors flat.npy", "takes 2"),
    ("inspect net.safetensors none.npy", "none.npy"),
    ("inspect net.safetensors nan.npy", "nan"),
    ("inspect net.safetensors words.csv", "words.csv"),
    ("inspect net.safetensors three.csv", "samples have 3 features; the network takes 2"),
    ("inspect net.safetensors objects.npy", "objects.npy"),
    # what the file does not say
    ("inspect bare.npz x.npy", "`activation` is needed"),
    ("inspect bare.npz x.npy --activation rellu", "rellu"),
    ("inspect net.safetensors x.npy --batchnorm sometimes", "sometimes"),
    ("inspect bare.npz x.npy --factory nothing", "nothing"),
    ("inspect bare.npz x.npy --factory no.such:build", "no.such"),
    # targets and losses
    ("inspect net.safetensors x.npy --loss huber", "`--loss` is 'huber' and there is nothing to measure it against"),
    ("inspect net.safetensors x.npy --loss hinge --targets y.npy", "`--loss` is 'hinge'; pass one of mse"),
    ("inspect net.safetensors x.npy --targets three.npy", "`--targets` has shape (8, 3)"),
    ("inspect net.safetensors x.npy --targets absent.npy", "does not exist"),
    ("inspect net.safetensors x.npy --targets one.npy --loss cross_entropy", "`--loss` is cross_entropy and the network has 1 output"),
    # options
    ("inspect net.safetensors x.npy --samples 0", "--samples"),
    ("inspect net.safetensors x.npy --samples many", "--samples"),
    ("inspect net.safetensors x.npy --outputs 0", "`outputs` is 0; pass how many of the 1 to look at"),
    ("inspect net.safetensors x.npy --outputs last", "`--outputs` is 'last'; pass how many, such as 8, or an index"),
    ("inspect net.safetensors x.npy --outputs 7,7", "one sample's output has shape (1,)"),
    ("inspect net.safetensors x.npy --memory lots", "lots"),
    ("inspect net.safetensors x.npy --memory -1", "-1"),
    ("inspect net.safetensors x.npy --patience soon", "--patience"),
    ("inspect net.safetensors x.npy --format pdf", "`--format` is 'pdf'; pass html or md"),
    ("inspect net.safetensors x.npy --format md --open", "`--open` shows the page"),
    ("inspect net.safetensors x.npy --out net.safetensors", "net.safetensors"),
    ("inspect net.safetensors x.npy --json x.npy", "x.npy"),
    ("inspect net.safetensors x.npy --checkpoints absent", "has no file of weights"),
    ("inspect net.safetensors x.npy --epoch 3", "--epoch"),
    # the other commands
    ("reduce", "Missing argument 'model'"),
    ("reduce net.safetensors three.npy", "samples have 3 features; the network takes 2"),
    ("reduce net.safetensors x.npy --out smaller", "pass a file that ends in .safetensors"),
    ("reduce net.safetensors x.npy --out net.safetensors", "net.safetensors"),
    ("reduce bare.npz x.npy", "`activation` is needed"),
    ("inspekt net.safetensors x.npy", "inspekt"),
    ("data fetch mnists", "the data sets are f1, f2"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the mistakes are made with."""
    home, rng = tmp_path_factory.mktemp("mistakes"), np.random.default_rng(0)
    net = nm.MLP((2, 4, 1))
    nm.save(home / "net.safetensors", net, net.init(key=jax.random.key(0)))
    arrays = {
        "x": rng.normal(size=(8, 2)), "y": rng.normal(size=(8, 1)), "three": rng.normal(size=(8, 3)), "one": rng.normal(size=(8, 1)),
        "images": rng.normal(size=(8, 1, 5, 5)), "flat": rng.normal(size=8), "none": np.zeros((0, 2)), "nan": np.full((8, 2), np.nan),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(home / f"{name}.npy", array)
    np.save(home / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.savetxt(home / "three.csv", arrays["three"], delimiter=",")
    (home / "words.csv").write_text("name,value\nfirst,a\nsecond,b\n")
    layers = {"0.weight": np.ones((3, 2)), "0.bias": np.zeros(3), "1.weight": np.ones((1, 3))}
    np.savez(home / "nobias.npz", **layers)
    np.savez(home / "bare.npz", **layers, **{"1.bias": np.zeros(1)})
    for name in ("broken.safetensors", "broken.pt", "broken.pt2", "broken.npy", "text.txt"):
        (home / name).write_bytes(b"this is no such file" * 4)
    (home / "empty.safetensors").write_bytes(b"")
    return home


def said(line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The status of a command, run in this process, and what it says on standard error."""
    monkeypatch.setattr(sys, "argv", ["neuromanifold", *shlex.split(line)])
    monkeypatch.setenv("NO_COLOR", "1")
    before, errors = signal.getsignal(signal.SIGTERM), io.StringIO()
    with (
        contextlib.redirect_stderr(errors),
        contextlib.redirect_stdout(io.StringIO()),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    signal.signal(signal.SIGTERM, before)
    return int(ended.value.code or 0), errors.getvalue()


@pytest.mark.parametrize(("line", "says"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence(line, says, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    status, text = said(line, monkeypatch)
    assert status == 2, text
    plain = re.sub(r"[│╭╮╰╯─]+|\s+", " ", text)
    assert re.sub(r"\s+", " ", says) in plain
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1 or "Usage:" in text
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_there_are_fifty_mistakes_and_none_of_them_twice():
    assert len({line for line, _ in MISTAKES}) == len(MISTAKES) >= 50


def test_the_same_command_without_the_mistake_runs(folder, monkeypatch):
    """The control, and what `reduce` takes because `inspect` does: a layer without a bias."""
    monkeypatch.chdir(folder)
    status, text = said(
        "reduce nobias.npz x.npy --activation relu --out small.safetensors", monkeypatch
    )
    assert status == 0, text
    small, params = nm.load(folder / "small.safetensors")
    x = np.load(folder / "x.npy")
    stack, given = nm.load(folder / "nobias.npz", activation="relu")
    np.testing.assert_allclose(small(params, x), stack(given, x), rtol=1e-12)
    assert small.widths == (2, 1, 1)  # three equal neurons are one
    (folder / "small.safetensors").unlink()


STOPPED = """
import os, signal, sys
import neuromanifold.inspection.sections as sections
sections.spectrum = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
from neuromanifold import cli
sys.argv = ["neuromanifold", "inspect", "net.safetensors", "x.npy", "--out", sys.argv[1]]
cli.main()
"""


def test_sigterm_keeps_what_ctrl_c_keeps(folder, tmp_path):
    source = {**os.environ, "PYTHONPATH": str(Path(nm.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(tmp_path)], env=source, cwd=folder, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "interrupted; what was finished is above and in the report" in done.stderr
    assert "parameters" in done.stdout
    assert "interrupted" in (tmp_path / "index.html").read_text()


def test_open_shows_the_page(folder, tmp_path, monkeypatch):
    shown = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr("webbrowser.open", shown.append)
    line = f"inspect net.safetensors x.npy --samples 2 --patience 0 --open --out {tmp_path}"
    assert said(line, monkeypatch)[0] == 0
    assert shown == [(tmp_path / "index.html").as_uri()]
