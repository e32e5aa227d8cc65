"""An inspection as JSON and as Markdown."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.inspection import Inspection, LayerUnits, Timeline
from neuromanifold.numerics.rank import Rank
from neuromanifold.runtime.files import write_text

_ESCAPED = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|"})


def write_json(inspection: Inspection, path: str | Path) -> Path:
    """Write the numbers of `inspection` to `path`, with the reasons for those that are missing."""
    return write_text(path, as_json(inspection) + "\n")


def as_json(inspection: Inspection) -> str:
    """Return the numbers of `inspection` as text; numbers that JSON does not have (nan, ∞) are null."""
    return json.dumps(_finite(as_dict(inspection)), indent=1, allow_nan=False)


def as_dict(inspection: Inspection) -> dict[str, Any]:
    """Return what `--json` writes of `inspection`: plain numbers, lists and strings."""
    found = inspection
    return {
        "model": found.model,
        "parameters": found.n_params,
        "samples": found.n_samples,
        "samples_given": found.n_given,
        "outputs": found.n_outputs,
        "verdict": list(found.verdict),
        "functional_dimension": None if found.dimension is None else int(found.dimension),
        "exact": _exact(found.exact),
        "float64": _numerical(found.float64),
        "float32": _numerical(found.float32),
        "rank_by_samples": None if found.growth is None else found.growth.tolist(),
        "saturated_at": found.saturated_at,
        "parameters_without_effect": found.closed,
        "regions": found.regions,
        "layers": None if found.layers is None else [_layer(s) for s in found.layers],
        "account": None if found.account is None else dict(found.account.rows),
        "symmetries": None if found.symmetries is None else found.symmetries.kinds,
        "reduction": None
        if found.reduction is None
        else {
            "parameters": found.n_params - found.reduction.parameters_saved,
            "deviation": found.reduction.deviation,
        },
        "kernel": None
        if found.spectrum is None
        else {
            "eigenvalues": found.spectrum.eigenvalues.tolist(),
            "trace": float(found.spectrum.trace),
            "method": found.spectrum.method,
        },
        "bottleneck": None
        if found.bottleneck is None
        else {"rank": found.bottleneck.rank, "layers": list(found.bottleneck.layers)},
        "ranks": None
        if found.ranks is None
        else {
            "weights": {layer.name: int(layer.weight) for layer in found.ranks.layers},
            "representations": {
                layer.name: int(layer.representation) for layer in found.ranks.layers
            },
            "to_output": [int(cut.to_output) for cut in found.ranks.cuts],
            "blocks": [None if c.block is None else int(c.block) for c in found.ranks.cuts],
        },
        "fit": found.fit,
        "descent": None
        if found.descent is None
        else {**vars(found.descent), "largest_lr": found.descent.largest_lr},
        "conserved_quantities": None
        if found.conserved is None
        else dict(
            zip(found.conserved.labels, np.asarray(found.conserved.values).tolist(), strict=True)
        ),
        "seconds": {
            part.title: round(part.seconds, 3) for part in found.parts if not part.left_out
        },
        "left_out": {part.title: part.left_out for part in found.parts if part.left_out},
    }


def _layer(status: LayerUnits) -> dict[str, Any]:
    return {**vars(status), "switching": status.switching, "shares": status.shares.tolist()}


def _exact(rank: Rank | None) -> dict[str, Any] | None:
    if rank is None:
        return None
    certificate: Any = rank.certificate
    kept = (
        "rank",
        "shape",
        "prime",
        "reason",
        "failure_probability",
        "ties",
        "escalated",
        "sketched",
        "fingerprint",
    )
    return {name: getattr(certificate, name) for name in kept} | {"kinks": len(certificate.kinks)}


def _numerical(rank: Rank | None) -> dict[str, Any] | None:
    if rank is None:
        return None
    return {"rank": int(rank), "gap": float(rank.gap), "threshold": float(rank.threshold)}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def write_timeline(timeline: Timeline, folder: str | Path) -> tuple[Path, ...]:
    """Write the curves of `timeline` as `timeline.csv` and as an event file for TensorBoard into
    `folder`.
    """
    return timeline.to_csv(Path(folder) / "timeline.csv"), timeline.to_tensorboard(folder)


def write_markdown(inspection: Inspection, folder: str | Path) -> Path:
    """Write the verdict and the table of `inspection` to `report.md` in `folder`."""
    return write_text(Path(folder) / "report.md", as_markdown(inspection))


def as_markdown(inspection: Inspection) -> str:
    """Return what `--format md` writes of `inspection`."""
    rows = [
        f"| {' | '.join(cell.strip().translate(_ESCAPED) for cell in row)} |"
        for row in inspection.rows
    ]
    verdict = "\n".join(f"- {sentence.translate(_ESCAPED)}" for sentence in inspection.verdict)
    table = "\n".join(["| quantity | value | remark |", "|---|---:|---|", *rows])
    return (
        "# What this network's parameters "
        f"do\n\n{inspection.model.translate(_ESCAPED)}\n\n{verdict}\n\n{table}\n"
    )
