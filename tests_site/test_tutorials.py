"""Every tutorial runs, and prints what its notebook and its page show."""

from pathlib import Path

import nbformat
import pytest

import tutorials

NOTEBOOKS = sorted(tutorials.HOME.glob("*.ipynb"))


@pytest.mark.parametrize("script", tutorials.scripts(), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tutorial_prints_what_is_shown(script: Path):
    shown = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    fresh = tutorials.run(script)
    pairs = zip(tutorials.printed(shown), tutorials.printed(fresh), strict=True)
    assert [line for old, new in pairs for line in tutorials.differences(old, new)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_with_outputs(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells] == [
        cell.source for cell in tutorials.read(path.with_suffix(".py")).cells
    ]
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(
        output.output_type == "error" or output.get("name") == "stderr" for output in outputs
    )


def test_every_script_has_its_notebook_and_pictures_say_what_they_show():
    assert {path.stem for path in NOTEBOOKS} == {path.stem for path in tutorials.HOME.glob("*.py")}
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
                assert len(cell.metadata.get("alt", "")) > 30, path.stem
