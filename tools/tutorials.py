"""The tutorials of `docs/tutorials`: scripts of cells, run into notebooks that open with their
outputs in them.

`python tools/tutorials.py` runs all of them, `python tools/tutorials.py NAME …` the ones named. The
notebooks are kept in the tree; `make docs` turns them into pages, and `make test-docs` runs the
scripts again and compares.
"""

import os
import re
import resource
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HOME = Path(__file__).parents[1] / "docs" / "tutorials"
KERNEL = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONPATH": str(HOME.parents[1] / "src"),
    "NO_COLOR": "1",
}
BEFORE = (
    "import matplotlib.pyplot as plt\nplt.rcParams.update({'figure.dpi': 160, "
    "'figure.constrained_layout.use': True})"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def scripts() -> list[Path]:
    """The tutorials that run in the environment of `make install`, in the order of their names."""
    return sorted(path for path in HOME.glob("*.py") if not path.stem.startswith("torch"))


def read(script: Path) -> NotebookNode:
    """The cells of a script, without outputs."""
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    for position, cell in enumerate(notebook.cells):
        cell.id = f"{script.stem}-{position}"
    return notebook


def run(script: Path) -> NotebookNode:
    """The script as a notebook with its outputs, and the seconds of processor time it took, the
    start of Python included.
    """
    notebook = read(script)
    before = spent()
    notebook.cells.insert(0, nbformat.v4.new_code_cell(BEFORE))
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, **KERNEL})
    del notebook.cells[0]
    for cell in notebook.cells:
        _settle(cell)
    notebook.metadata["seconds"] = round(spent() - before)
    return notebook


def spent() -> float:
    """The processor time of all processes this one has started and seen end: what an idle core
    would take.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _settle(cell: NotebookNode) -> None:
    """Keep what a reader sees: no times of execution, no plain text beside a picture."""
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
        cell.execution_count = None
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output["execution_count"] = None
            if "image/png" in output.get("data", {}):
                output.data = {"image/png": output.data["image/png"]}


def printed(notebook: NotebookNode) -> list[str]:
    """The text that each code cell printed or returned."""
    return [
        "".join(_text(output) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _text(output: NotebookNode) -> str:
    return (
        output.text
        if output.output_type == "stream"
        else output.get("data", {}).get("text/plain", "")
    )


GAP = 1e9


def differences(old: str, new: str, *, rtol: float = 1e-2, atol: float = 1e-9) -> list[str]:
    """Where two printed texts differ: in their words, or in a number by more than `rtol`.

    Below `atol` all numbers are rounding, and so are gaps of spectra, above `GAP`, whose other side
    is such a number.

    >>> differences("width 3: 1.000e-16 0.500", "width 3: 4.000e-17 0.501")
    []
    >>> differences("rank 38", "rank 39")
    ['38 became 39']
    >>> differences("gap 4e+13", "gap 3e+13")
    []
    """
    words = [re.sub(r"\s+", " ", NUMBER.sub("#", text)) for text in (old, new)]
    if words[0] != words[1]:
        return [f"{words[0]!r} became {words[1]!r}"]
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    told = [(a, b) for a, b in pairs if min(abs(float(a)), abs(float(b))) < GAP]
    return [
        f"{a} became {b}" for a, b in told if abs(float(a) - float(b)) > atol + rtol * abs(float(a))
    ]


def main(names: list[str]) -> None:
    for script in [HOME / f"{name}.py" for name in names] or scripts():
        notebook = run(script)
        nbformat.write(notebook, script.with_suffix(".ipynb"))
        print(f"{script.stem}: {notebook.metadata['seconds']} s")


if __name__ == "__main__":
    main(sys.argv[1:])
