"""What every study leaves behind: figures as PNG and SVG, the data behind them as NetCDF, and `summary.json`."""

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import xarray as xr

from neuromanifold.numerics.files import write_atomically, write_text

# Okabe and Ito's palette, told apart by colour-blind readers and in print.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


@dataclass(frozen=True)
class Claim:
    """A paper's claim beside our number: `borne_out` is True, False or "partly"; `note` says how it was measured."""

    figure: str
    claim: str
    measured: Any
    borne_out: bool | str
    note: str = ""


def save_figure(figure: Any, out: Path, name: str) -> list[Path]:
    """`name.png` (150 dpi) and `name.svg` in `out`, atomically."""
    return [
        write_atomically(out / f"{name}.{suffix}", lambda path: figure.savefig(path, dpi=150, bbox_inches="tight"))
        for suffix in ("png", "svg")
    ]


def save_data(dataset: xr.Dataset, out: Path, name: str) -> Path:
    """`name.nc` in `out`, atomically."""
    return write_atomically(out / f"{name}.nc", lambda path: dataset.to_netcdf(path, engine="h5netcdf"))


def write_summary(out: Path, paper: str, scale: str, claims: Iterable[Claim]) -> dict[str, Any]:
    """`summary.json` in `out`: the claims, where and with what they were measured, and the hash of the claims."""
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
    return hashlib.sha256(json.dumps(claims, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
