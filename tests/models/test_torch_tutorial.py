"""The tutorial on PyTorch runs where PyTorch is found."""

import runpy
from pathlib import Path

import matplotlib

SCRIPT = Path(__file__).parents[2] / "docs" / "tutorials" / "torch-shrink.py"


def test_the_tutorial_shrinks_the_network_and_changes_nothing(capsys, recwarn):
    matplotlib.use("agg")
    left = runpy.run_path(str(SCRIPT))
    assert left["reduction"].net.n_params < left["net"].n_params
    assert left["reduction"].deviation < 1e-9
    assert "parameters" in capsys.readouterr().out
