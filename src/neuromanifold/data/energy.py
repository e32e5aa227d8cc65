"""The UCI energy-efficiency data: 768 buildings, 8 features, heating and cooling load.
[complexity, Sec. 5]
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from neuromanifold.data.dataset import Dataset
from neuromanifold.data.folders import ENVIRONMENT_VARIABLE, cache, folders, from_openml
from neuromanifold.data.tables import read_csv
from neuromanifold.runtime.files import write_text

FILE = "energy_efficiency.csv"
OPENML_ID = 44960
FEATURES = (
    "relative_compactness",
    "surface_area",
    "wall_area",
    "roof_area",
    "overall_height",
    "orientation",
    "glazing_area",
    "glazing_area_distribution",
)
TARGETS = ("heating_load", "cooling_load")
ROWS = 768
SHA256 = "02ccc922844a4018cb948cdb58cbe0c0eb3894882fce846a999dee31ca7d3f24"
"""Of the table in float64, little-endian, its rows sorted."""
LICENCE = "CC BY 4.0"
ORIGIN = "UCI 242 (Tsanas and Xifara, 2012), OpenML 44960"
REMEDY = (
    f"connect to the network, or put {FILE} (https://archive.ics.uci.edu/dataset/242 saved as CSV: "
    "8 features, heating load, cooling load) into a folder and name that folder in "
    f"{ENVIRONMENT_VARIABLE}"
)


def find() -> Path | None:
    """The file, where it is on this machine."""
    return next((folder / FILE for folder in folders() if (folder / FILE).is_file()), None)


def fetch() -> Path:
    """The file, downloaded into the cache where the machine has none."""
    return find() or _download()


def load() -> Dataset:
    """Inputs standardised to mean 0 and variance 1 (over the 768 buildings); targets in kWh/m²,
    as they are.
    """
    path = fetch()
    table, _ = read_csv(path)
    if table.shape != (ROWS, len(FEATURES) + len(TARGETS)):
        raise ValueError(
            f"{path} holds a table of shape {table.shape}; needed are {ROWS} rows: 8 features, "
            "heating, cooling load."
        )
    x, y = table[:, : len(FEATURES)], table[:, len(FEATURES) :]
    return Dataset(
        name="energy",
        x=(x - x.mean(0)) / x.std(0),
        y=y,
        features=FEATURES,
        targets=TARGETS,
        licence=LICENCE,
        source=f"{ORIGIN}; read from {path}",
        notes="features standardised to mean 0 and variance 1; loads in kWh/m²",
    )


def _download() -> Path:
    def table(fetch_openml: Any) -> np.ndarray:
        frame = fetch_openml(
            data_id=OPENML_ID, target_column=list(TARGETS), as_frame=True, n_retries=1
        ).frame
        return frame[[*FEATURES, *TARGETS]].astype(float).to_numpy()

    rows = from_openml("energy", REMEDY, table)
    if table_hash(rows) != SHA256:
        raise ValueError(
            f"OpenML {OPENML_ID} gives another table than UCI's (its checksum differs); {REMEDY}."
        )
    lines = [",".join(FEATURES + TARGETS), *(",".join(map(repr, row)) for row in rows.tolist())]
    return write_text(cache() / FILE, "\n".join(lines) + "\n")


def table_hash(rows: np.ndarray) -> str:
    """SHA-256 of the table, whatever the order of its rows."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    return hashlib.sha256(np.ascontiguousarray(ordered, "<f8").tobytes()).hexdigest()
