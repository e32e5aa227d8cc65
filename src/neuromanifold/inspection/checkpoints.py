"""`checkpoints`: the geometry over training, read from a folder of weights."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuromanifold.inspection.recorder import Recorder
from neuromanifold.inspection.timeline import Timeline
from neuromanifold.models.arguments import Samples, Targets
from neuromanifold.models.storage import load

_FORMATS = (".safetensors", ".npz", ".pt", ".pth", ".pt2")


def checkpoints(
    folder: str | Path,
    x: Samples,
    y: Targets | None = None,
    *,
    read: Callable[[Path], tuple[Any, Any]] = load,
    begin: Callable[[Path, int, int], None] = lambda path, index, count: None,
    **options: Any,
) -> Timeline:
    """Return a `Timeline` from the model files of a folder, in the order of the last number in
    their names (`epoch-12.pt`).

    A folder with a file whose name has no number, or the number of another, is refused.
    `read` gives `(f, params)` of a file, `begin` is told of each; the options are those of
    `nm.Tracker`.
    """
    found = number_files(Path(folder))
    recorder = Recorder(x, y, **options)
    for index, (step, path) in enumerate(found):
        begin(path, index, len(found))
        recorder.add(step, *read(path))
    return recorder.timeline


def number_files(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) in order; refused where a name does not tell its step.

    Where the folder has no such file, those of Hugging Face's `Trainer` are read:
    `checkpoint-500/model.safetensors`.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix in _FORMATS) if folder.is_dir() else []
    names = {path: path.stem for path in files} or {
        p: p.parent.name for p in sorted(folder.glob("*/model.safetensors"))
    }
    files = list(names)
    if not files:
        raise FileNotFoundError(
            f"`checkpoints` is {str(folder)!r}, which has no file of weights "
            f"({', '.join(_FORMATS)}); name the folder that has them."
        )
    steps = [
        (int(numbers[-1]) if (numbers := re.findall(r"\d+", names[path])) else None, path)
        for path in files
    ]
    named = {step: path for step, path in steps if step is not None}
    if len(named) < len(files):
        odd = next(path for step, path in steps if step is None or named[step] != path)
        raise ValueError(
            f"`checkpoints` holds {str(odd.relative_to(folder))!r}, whose name does not tell its "
            "step; "
            "end the names in different numbers, as epoch-12.pt."
        )
    return sorted((step, path) for step, path in named.items())
