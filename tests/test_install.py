"""`make install`, with stand-ins for Python and pip, and `.ci/run`, with one for make."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make_install(home: Path) -> subprocess.CompletedProcess[str]:
    """`make install` with nothing on PATH but what the test put into `home/bin`."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        if not (home / name).exists():
            shutil.copy(ROOT / name, home)
    environment = {"PATH": f"{home / 'bin'}:{home / 'tools'}"}
    command = [str(shutil.which("make")), "install"]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)


def test_make_install_says_what_is_missing(tmp_path: Path):
    absent = make_install(tmp_path)
    assert absent.returncode != 0
    assert "neuromanifold needs Python 3.11 or newer, and none of python3.14" in absent.stderr
    script(tmp_path / "bin" / "python3.12", "exit 127")
    script(tmp_path / "bin" / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    bare = make_install(tmp_path)
    assert bare.returncode != 0
    assert (
        "python3 cannot create a virtual environment: its modules venv and ensurepip are missing; "
        "install them" in bare.stderr
    )


def test_make_install_repeats_exactly_when_it_must(tmp_path: Path):
    """A stand-in for Python whose venv holds a stand-in for pip that counts its calls and can be
    told to fail.
    """
    (tmp_path / "tools").mkdir()
    for tool in ("cp", "echo", "mkdir", "touch"):
        (tmp_path / "tools" / tool).symlink_to(str(shutil.which(tool)))
    script(tmp_path / "pip", 'case "$2" in pip) echo install >> log; test ! -e broken;; esac')
    script(
        tmp_path / "bin" / "python3",
        'case "$2" in venv) mkdir -p .venv/bin; cp pip .venv/bin/python;; esac',
    )

    def installs() -> int:
        make_install(tmp_path)
        log = (tmp_path / "log").read_text().split()
        (tmp_path / "log").write_text("")
        return len(log)

    (tmp_path / "broken").touch()
    assert [installs(), installs()] == [1, 1], "an install that failed is repeated"
    (tmp_path / "broken").unlink()
    assert [installs(), installs()] == [1, 0], "an install that succeeded is not"
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(tmp_path / "constraints.txt", (later, later))
    assert installs() == 1, "a changed pin is installed"


def test_ci_stops_before_it_is_killed_and_says_what_it_did_not_do(tmp_path: Path):
    script(
        tmp_path / "bin" / "make",
        'case "$1" in lint) exit 2;; test) echo "== 3 passed in 1.00s ==";; '
        "test-docs) exec sleep 60;; esac",
    )
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env=environment | {"CI_SECONDS": "2"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    *_, install, lint, tests, torch, docs, browser, closing = done.stdout.splitlines()
    assert install.startswith("passed in") and install.endswith("make install")
    assert lint.startswith("failed (2) in")
    assert tests.startswith("passed in") and torch.startswith("passed in")
    assert docs.startswith("stopped after") and "make test-docs" in docs
    assert browser.startswith("not run, the 2 s being over: make test-browser")
    assert closing == "== 3 passed in 1.00s =="
