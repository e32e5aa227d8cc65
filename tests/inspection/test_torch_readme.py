"""The first lines of the README run, on the network of the tutorial, and print what they show."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _without_rounding(text: str) -> str:
    return re.sub(r"deviation \d\S*", "deviation", text)


def test_the_first_lines_of_the_readme_print_what_they_show(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text()
    code, shown = re.search(r"```py\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL).groups()
    trained = (ROOT / "docs/tutorials/torch-shrink.py").read_text().split("# %%")[2]
    space: dict[str, object] = {}
    exec(trained.partition("\n")[2], space)
    capsys.readouterr()
    exec(code, space)
    assert _without_rounding(capsys.readouterr().out) == _without_rounding(shown)
    assert len(code.strip().splitlines()) <= 10
    small = space["torch"].load(tmp_path / "smaller.pt", weights_only=True)
    assert sum(tensor.numel() for tensor in small.values()) == 85
