"""`--factory package.module:function`: the user's own function builds the network, the file
fills it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import neuromanifold as nm
from neuromanifold import cli

CODE = """
import jax.numpy as jnp

def build():
    return lambda params, x: jnp.tanh(x @ params["mix"]) @ params["readout"]

def number():
    return 3

def broken():
    raise RuntimeError("no such thing")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "ownnet.py").write_text(CODE)
    np.savez(
        tmp_path / "weights.npz",
        mix=rng.standard_normal((2, 3)),
        readout=rng.standard_normal((3, 1)),
    )
    np.save(tmp_path / "x.npy", rng.standard_normal((9, 2)))
    monkeypatch.delitem(__import__("sys").modules, "ownnet", raising=False)
    return tmp_path


def test_a_function_of_jax_with_the_arrays_of_a_file(folder: Path):
    import sys

    before = list(sys.path)
    f, params = nm.load("weights.npz", factory="ownnet:build")
    assert sys.path == before
    x = np.load("x.npy")
    np.testing.assert_allclose(
        f(params, x), np.tanh(x @ params["mix"]) @ params["readout"], rtol=1e-6
    )
    assert nm.ntk(f, params, x).shape == (9, 9)


@pytest.mark.parametrize(
    "factory, text",
    [
        ("ownnet", r"`factory` is 'ownnet'; pass package\.module:function"),
        (
            "nonet:build",
            r"`factory` nonet:build cannot be called \(ModuleNotFoundError: .*must be importable from here",
        ),
        ("ownnet:nothing", r"`factory` ownnet:nothing cannot be called \(AttributeError"),
        (
            "ownnet:broken",
            r"`factory` ownnet:broken cannot be called \(RuntimeError: no such thing\)",
        ),
        (
            "ownnet:number",
            r"`factory` ownnet:number returned an int; return a torch\.nn\.Module or a function f\(params, x\)",
        ),
    ],
)
def test_a_factory_that_builds_nothing_is_refused(factory: str, text: str, folder: Path):
    with pytest.raises((ValueError, TypeError), match=text):
        nm.load("weights.npz", factory=factory)


def test_at_the_command_line(folder: Path):
    arguments: list[Any] = [
        "inspect",
        "weights.npz",
        "x.npy",
        "--factory",
        "ownnet:build",
        "--out",
        "report",
    ]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "functional dimension" in result.output
    assert (folder / "report" / "index.html").is_file()
