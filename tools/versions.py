"""Constraints for a test run: `newest` frees JAX and its family, `lowest` pins every requirement to
the least version that pyproject.toml admits, `own` prints the package's version.

    python tools/versions.py newest|lowest|own
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAMILY = {"jax", "jaxlib", "equinox", "optax", "diffrax", "lineax", "jaxtyping"}
FAMILY |= {"numpy", "scipy", "ml-dtypes"}


def name_of(requirement: str) -> str:
    """The package that a line names, as PyPI writes it.

    >>> name_of("h5netcdf[h5py]>=1.4"), name_of("ml_dtypes==0.5")
    ('h5netcdf', 'ml-dtypes')
    """
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found.group().lower().replace("_", "-")


def newest(pins: list[str]) -> list[str]:
    """The pins of all packages but JAX and its family.

    >>> newest(["jax==0.10.2", "rich==13.9"])
    ['rich==13.9']
    """
    return [pin for pin in pins if name_of(pin) not in FAMILY]


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement at its least version; jaxlib goes with JAX.

    >>> lowest(["jax>=0.10", "h5netcdf[h5py]>=1.4"])
    ['jax==0.10.*', 'h5netcdf==1.4.*', 'jaxlib==0.10.*']
    """
    least = {name_of(each): each.partition(">=")[2] for each in requirements if ">=" in each}
    if "jax" in least:
        least["jaxlib"] = least["jax"]
    return [f"{name}=={version}.*" for name, version in least.items()]


def main(what: str) -> None:
    """Print the constraints, or the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in pins if re.match(r"[\w.-]+==", line)]
    lines = {
        "own": [project["version"]],
        "newest": newest(pins),
        "lowest": lowest(project["dependencies"]),
    }
    print("\n".join(lines[what]))


if __name__ == "__main__":
    main(sys.argv[1])
