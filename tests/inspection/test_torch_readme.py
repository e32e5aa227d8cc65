"""The first lines of the README run, on the network of the tutorial, and print what they show."""

import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def _without_rounding(text: str) -> str:
    """The words, without the last digits and however the lines are broken."""
    return " ".join(re.sub(r"deviation \d\S*", "deviation", text).split())


def test_the_first_lines_of_the_readme_print_what_they_show(capsys):
    readme = (ROOT / "README.md").read_text()
    code, shown = re.search(r"```py\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL).groups()
    trained = (ROOT / "docs/tutorials/torch-shrink.py").read_text().split("# %%")[2]
    space: dict[str, Any] = {}
    exec(trained.partition("\n")[2], space)
    capsys.readouterr()
    exec(code, space)
    assert _without_rounding(capsys.readouterr().out) == _without_rounding(shown)
    assert len(code.strip().splitlines()) <= 10
    small, module, x, torch = (space[name] for name in ("small", "module", "x", "torch"))
    assert sum(tensor.numel() for tensor in small.parameters()) == 85
    assert torch.allclose(small(x), module(x), atol=1e-6)


def test_the_digits_of_the_readme(capsys):
    """Training depends on the processor's rounding, so the counts are compared within a tenth of the
    parameters; that nothing moved is not a matter of luck.
    """
    readme = (ROOT / "README.md").read_text()
    [shown] = re.findall(r"```text\n(perceptron: .*?)```", readme, re.DOTALL)
    runpy.run_path(str(ROOT / "examples" / "torch_digits.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.sub(r"[\d.,e+-]+", "", printed) == re.sub(r"[\d.,e+-]+", "", shown)
    for (whole, left), (same, promised) in zip(_counts(printed), _counts(shown), strict=True):
        assert whole == same and left < 0.95 * whole and abs(left - promised) < 0.1 * whole
    for size, moved in re.findall(r"up to (\S+) moved by (\S+)", printed):
        assert float(moved) < 1e-6 * float(size)


def _counts(text: str) -> list[tuple[int, int]]:
    found = re.findall(r"([\d,]+) → ([\d,]+) parameters", text)
    return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in found]
