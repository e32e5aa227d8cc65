"""What `make docs` does to docstrings: examples become code blocks, and citations links to the
paper's page.
"""

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from site_formulas import raised

PAPERS = "complexity|invariant|teleport|riemann|bottleneck"
CITATION = re.compile(rf"\[(({PAPERS}), [^\]]+)\]")
FENCE = "```"


def as_markdown(docstring: str) -> str:
    """The docstring with its examples fenced; a blank line ends an example, as it does for doctest.

    >>> as_markdown("One.\\n>>> 1 + 1\\n2\\n\\nTwo.").splitlines()
    ['One.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'Two.']
    """
    lines: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if line.lstrip().startswith(">>>") and not inside:
            lines += ["", f"{FENCE}pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append(FENCE)
            inside = False
        lines.append(
            line.lstrip()
            if inside and line.lstrip().startswith((">>>", "..."))
            else _prose(line, inside)
        )
    return "\n".join([*lines, FENCE] if inside else lines)


def _prose(line: str, inside: bool) -> str:
    if inside or line.startswith("    "):
        return line
    outside_code = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else _linked(part) for part in outside_code)


def _linked(text: str) -> str:
    plain = re.sub(r"(?<=\S)_(?=\S)", r"\\_", raised(text))
    return CITATION.sub(r"[[\1]](../paper/\2.md)", plain)


class Examples(griffe.Extension):
    """Rewrites each docstring once, when its object has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
