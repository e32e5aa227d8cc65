"""The examples run, and say what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[1] / "examples").glob("*.py")
    if not path.stem.startswith("torch")  # tests/inspection/test_torch_readme.py
)
SAYS = {"own_network": "functional dimension 38 of 44 parameters", "conserved": "largest change"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS[path.stem] in capsys.readouterr().out
