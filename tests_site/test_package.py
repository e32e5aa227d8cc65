"""Wheel and sdist: built, installed into an empty environment, and used from elsewhere."""

import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import neuromanifold as nm

ROOT = Path(__file__).parents[1]
USE = """
import jax, neuromanifold as nm
net = nm.MLP((1, 4, 1))
x = nm.data.load("f2").x
rank = nm.functional_dimension(net, net.init(key=jax.random.key(0)), x, exact=True)
print(int(rank), rank.certificate.proved)
"""


def run(*command: object, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


def test_the_wheel_has_the_package_its_types_and_its_records(built: Path):
    [wheel] = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "neuromanifold/py.typed",
        "neuromanifold/cli.py",
        "neuromanifold_papers/riemann/verdicts.toml",
    } <= names
    assert not [name for name in names if not name.startswith("neuromanifold")]
    assert wheel.stat().st_size < 5_000_000


def test_the_sdist_has_what_a_packager_needs(built: Path):
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "tests/cast.py",
        "docs/index.md",
        "examples/conserved.py",
    } <= names
    assert not [name for name in names if name.startswith((".venv", "site/"))]


def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path):
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/neuromanifold"
    [wheel] = built.glob("*.whl")
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        ROOT / "constraints.txt",
        wheel,
        cwd=tmp_path,
    )
    assert run(command, "--version", cwd=tmp_path).startswith(f"neuromanifold {nm.__version__} ")
    assert run(python, "-c", USE, cwd=tmp_path).split()[1] in ("True", "False")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert "inspect" in run(command, "--help", cwd=tmp_path)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2
