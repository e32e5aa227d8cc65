"""Plant each defect of planted_defects.toml in a copy of the tree and run its tests: a defect that
no test notices is an error of the tests. The first test that fails is named: one that has nothing
to do with the defect fails for a reason of its own.

    python tools/plant_defects.py [WORDS]     only the defects whose names hold these words
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    *("src", "tests", "tools", "docs", "examples", "benchmarks"),
    *("conftest.py", "pyproject.toml", "mkdocs.yml", "Makefile", "constraints.txt"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
)


def defects() -> list[dict[str, Any]]:
    """The list, as it stands."""
    text = (ROOT / "tools" / "planted_defects.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["defect"]


def misplaced(found: dict[str, Any], root: Path = ROOT) -> str:
    """Why a defect cannot be planted, empty where it can."""
    path = root / found["file"]
    if not path.is_file():
        return f"{found['file']} does not exist"
    count = path.read_text(encoding="utf-8").count(found["before"])
    return "" if count == 1 else f"{found['before']!r} stands {count} times in {found['file']}"


def catching_test(found: dict[str, Any], root: Path) -> str:
    """The first test that fails once the defect is in the tree `root`, which is mended
    afterwards; empty where none does.
    """
    path = root / found["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(found["before"], found["after"]), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        ran = subprocess.run(
            [*command, *found["tests"], found["file"]], cwd=root, capture_output=True, text=True
        )
    finally:
        path.write_text(whole, encoding="utf-8")
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"the tests of {found['name']!r} did not run:\n{ran.stdout[-2000:]}")
    if ran.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ran.stdout, re.MULTILINE)
    return failed[1] if failed else "a test without a name"


def main() -> int:
    """Print one line for each defect; the exit status is the number that nobody noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only the defects whose names hold these words")
    words = parser.parse_args().words
    chosen = [found for found in defects() if all(word in found["name"] for word in words)]
    unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        os.environ["PYTHONPATH"] = str(root / "src")
        for found in chosen:
            if why := misplaced(found):
                raise ValueError(f"{found['name']!r} cannot be planted: {why}.")
            test = catching_test(found, root)
            unseen += not test
            said = f"caught {found['name']}, by {test}" if test else f"UNSEEN {found['name']}"
            print(said, flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} caught")
    return unseen


if __name__ == "__main__":
    raise SystemExit(main())
