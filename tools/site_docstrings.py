"""What `make docs` does to docstrings: examples become code blocks, citations links to the paper's
page, and the parameters of a function a table.
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


KNOWN = {
    "f": "the model: any `f(params, x)`",
    "net": "the network",
    "params": "its parameters, a pytree of arrays",
    "x": "the samples; the first axis counts them",
    "x1": "the samples; the first axis counts them",
    "x2": "further samples; the first ones when absent",
    "y": "the targets, one for each sample",
    "key": "a JAX random key; equal keys give equal results",
    "loss": "the loss, one of `nm.losses` or `loss(prediction, target)`",
    "memory": "how much memory the call may take, in bytes or as text such as `512M`",
    "wrt": "the parameters that count; the others are constants",
    "check": "compare the result with JVPs and VJPs in random directions",
    "progress": "show a bar with the time that is left",
    "rtol": "what counts as zero, relative to the largest",
    "lr": "the learning rate",
    "t1": "the time at which the flow ends",
    "epochs": "how many passes over the data",
    "batch_size": "how many samples a step takes; all when absent",
}
"""Names that mean the same everywhere."""
OTHERWISE = {
    "A": "a matrix",
    "W": "the matrix that the layers multiply to",
    "added": "what is added to the inputs of the units",
    "arithmetic": "the numbers to compute with",
    "atol": "what counts as zero",
    "b": "the right-hand sides",
    "broken": "what the control breaks, in words",
    "c": "the cotangents of the outputs",
    "case": "the case on which it must fail",
    "chosen": "the statements; all when absent",
    "control": "a case, or a broken ingredient, on which the measurement must fail",
    "cotangent": "the weights of the outputs; all ones when absent",
    "draws": "how many random draws",
    "dtype": "the dtype of the arrays",
    "event": "ends the flow where it becomes true or zero",
    "evidence": "what examining the statements gave",
    "features": "how many numbers one input has",
    "folder": "the folder",
    "friction": "the friction of the heavy ball",
    "gates": "which units are on, by layer",
    "group": "the symmetry group",
    "index": "where they are added",
    "inputs": "the inputs of the program",
    "k": "how many numbers",
    "left": "the left-hand side",
    "listed": "the statements as they are listed",
    "method": "how the scales are sought",
    "module": "the network, a module of that library",
    "name": "what the error calls it",
    "noise_std": "the standard deviation of the noise in the targets",
    "options": "the parameters of the operation",
    "paper": "the key of the paper",
    "passes": "a case just inside, which must hold",
    "points": "how many points",
    "prediction": "the outputs",
    "primitive": "the operation",
    "program": "the operations in their order",
    "rank": "the rank k",
    "reason": "why it is left out, in words",
    "recorded": "the recorded verdicts",
    "ridge": "what is added to the diagonal of the kernel",
    "right": "the right-hand side",
    "sample": "the inputs",
    "says": "the statement in our words",
    "scale": "the factor of the standard deviations",
    "scaling": "`standard` or `ntk`: where the factor 1/√fan_in stands",
    "shape": "the shape of one input",
    "small": "whether the studies ran at small scale",
    "state": "running statistics and other state",
    "statement": "the statement",
    "statements": "the statements",
    "steps": "how many steps",
    "target": "the targets",
    "text": "the text",
    "time": "the time t",
    "tolerance": "how far the sides may differ by rounding",
    "transformed": "what `haiku.transform` returned",
    "updates": "what is added",
    "v": "the end-to-end filter",
    "values": "the arguments",
    "variables": "the variables of a linen module",
    "vectors": "also compute eigenvectors",
    "velocity": "the velocity θ̇, in the form of the parameters",
}
"""What is said of a name where its docstring does not say more."""
FEWEST, LONGEST = 3, 40  # parameters that are worth a table, letters that are worth a cell


def table_of(function: griffe.Function) -> str:
    """The parameters as rows: name, type and default, and the sentence of the docstring about it."""
    mine = [
        p
        for p in function.parameters
        if p.name not in ("self", "cls") and p.kind is not griffe.ParameterKind.var_keyword
    ]
    if len(mine) < FEWEST or function.docstring is None:
        return ""
    prose = function.docstring.value.split("\n>>>")[0].split(FENCE)[0]
    rows = [f"| `{p.name}`{_type(p)} | {_meaning(p.name, prose)} |" for p in mine]
    return "\n".join(["", "", "| parameter | meaning |", "|---|---|", *rows])


def _type(parameter: griffe.Parameter) -> str:
    """On a line of its own, with the default; what is longer is in the signature."""
    text = "" if parameter.annotation is None else str(parameter.annotation)
    kind = "" if text == "Any" else text.replace(" | ", " or ")
    given = "" if parameter.default is None else f"= {parameter.default}"
    said = " ".join(part for part in (kind, given) if part and len(part) < LONGEST)
    return f"<br><small>`{said}`</small>" if said else ""


def _meaning(name: str, prose: str) -> str:
    """The first sentence that names it between backticks, or what the name means everywhere."""
    if name in ("f", "net", "params"):
        return KNOWN[name]
    items = re.split(r"\n\s*(?:- |\n)", prose)
    sentences = [s for item in items for s in _sentences(" ".join(item.split()))]
    named = rf"`{name}(=[^`]*)?`"
    first = [s for s in sentences[1:] if re.match(rf"(\S+ ){{0,3}}{named}", s)]
    about = first or [s for s in sentences if re.search(named, s) and name not in KNOWN]
    found = about[0].rstrip(";") if about else KNOWN.get(name, OTHERWISE.get(name, ""))
    return found.replace("|", "\\|")


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.;])\s+(?=[A-Z`])", text)


class Examples(griffe.Extension):
    """Rewrites each docstring once, when its object has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            table = table_of(obj) if isinstance(obj, griffe.Function) else ""
            obj.docstring.value = as_markdown(obj.docstring.value) + table
