"""What every study leaves behind: figures as PNG and SVG, the data behind them as NetCDF, and
`summary.json`.
"""

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from neuromanifold.runtime.checksummed import check_checksum, write_checksummed
from neuromanifold.runtime.files import write_atomically, write_text

REMEDY = "delete it, or name another folder"
# Okabe and Ito's palette, told apart by colour-blind readers and in print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


@dataclass(frozen=True)
class Claim:
    """A paper's claim beside our number: `borne_out` is True, False or "partly"; `note` says how
    it was measured.
    """

    figure: str
    claim: str
    measured: Any
    borne_out: bool | str
    note: str = ""


def subplots(*grid: int, figsize: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure that no window shows, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", figsize=figsize)
    return figure, figure.subplots(*grid, **options)


def save_figure(figure: Any, out: Path, name: str) -> list[Path]:
    """`name.png` (150 dpi) and `name.svg` in `out`, atomically."""
    return [
        write_atomically(
            out / f"{name}.{suffix}",
            lambda path: figure.savefig(path, dpi=150, bbox_inches="tight"),
        )
        for suffix in ("png", "svg")
    ]


def save_data(dataset: Any, out: Path, name: str) -> Path:
    """`name.nc` in `out`, atomically, with a checksum at its end, which other programs ignore."""
    return write_checksummed(
        out / f"{name}.nc", lambda path: dataset.to_netcdf(path, engine="h5netcdf")
    )


def read_data(path: Path) -> Any:
    """What `save_data` wrote, in memory; refused where a bit has changed, or where it claims
    more than the file holds.
    """
    import xarray as xr

    check_checksum(path, REMEDY)
    try:
        with xr.open_dataset(path, engine="h5netcdf") as file:
            if file.nbytes > path.stat().st_size:
                raise ValueError(f"it claims {file.nbytes} bytes")
            return file.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); {REMEDY}.") from None


def write_record(path: Path, content: dict[str, Any]) -> Path:
    """A small table as JSON, with its own hash in it."""
    text = json.dumps(content | {"sha256": _record_hash(content)}, indent=2, ensure_ascii=False)
    return write_text(path, text + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """What `write_record` wrote; refused where it has changed since."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}); {REMEDY}."
        ) from None
    if found != _record_hash(content):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content; {REMEDY}.")
    return content


def _record_hash(content: dict[str, Any]) -> str:
    # As JSON reads it back: keys that were integers are strings there.
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(
        json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()


def write_summary(out: Path, paper: str, scale: str, claims: Iterable[Claim]) -> dict[str, Any]:
    """`summary.json` in `out`: the claims, where and with what they were measured, and the hash
    of the claims.
    """
    # As JSON reads them back: the hash must not depend on keys that were integers.
    listed = json.loads(json.dumps([asdict(claim) for claim in claims]))
    summary = {
        "paper": paper,
        "scale": scale,
        "device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})",
        "versions": {"python": platform.python_version(), "jax": jax.__version__},
        "claims": listed,
        "sha256": claims_hash(listed),
    }
    write_text(out / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def claims_hash(claims: list[dict[str, Any]]) -> str:
    """What `summary.json` records, so that an edited file is noticed."""
    return hashlib.sha256(
        json.dumps(claims, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()
