"""The rules that matter, as tests: what a module may import, what is documented, and that the
documents are true.
"""

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import neuromanifold as nm

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
JAX_FAMILY = {"jax", "jaxlib", "equinox", "optax", "diffrax", "lineax", "jaxtyping"}
NOT_PUBLIC = ("jax.core", "jax.extend.core", "jax.interpreters", "equinox.internal")
ALLOWED = {
    "src/neuromanifold/numerics/precision.py": {"jax.core.Tracer"},
    "src/neuromanifold/graph/reading.py": {"jax.extend.core"},
    "src/neuromanifold/graph/tracing.py": {"jax.extend.core"},
}
LAZY = ["flint", "matplotlib", "sklearn", "dask", "torch", "zarr", "xarray", "pandas"]
PAPERS = "neuromanifold_papers"
SKIPS = {"skip", "skipif", "importorskip", "xfail"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def fenced(page: str, language: str) -> list[str]:
    """The code blocks of a Markdown page in the given language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def rooms(guide: str) -> list[str]:
    """The rooms in order, as listed in the section *The rooms* of CONTRIBUTING.md."""
    [listing] = fenced(guide.partition("## The rooms")[2].partition("\n## ")[0], "text")
    return [re.sub(r"(/|\.py)$", "", line.split()[0]) for line in listing.splitlines()]


ROOMS = rooms((ROOT / "CONTRIBUTING.md").read_text())


def imports(tree: ast.AST, module: str = "") -> Iterator[tuple[str, str]]:
    """(local name, dotted name) of everything imported at any depth; relative imports are made
    absolute.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            for alias in node.names:
                yield (
                    alias.asname or alias.name,
                    ".".join([*above, *filter(None, [node.module]), alias.name]),
                )


def names_used(tree: ast.AST) -> set[str]:
    """The dotted name of every import, and of every attribute reached through one."""
    imported = list(imports(tree))
    # `import a.b` binds `a`, every other form binds the whole dotted name.
    local = {name: full if name != full.split(".")[0] else name for name, full in imported}

    def dotted(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return local.get(node.id, "")
        base = dotted(node.value) if isinstance(node, ast.Attribute) else ""
        return base and f"{base}.{node.attr}"  # pyright: ignore[reportAttributeAccessIssue]

    return {full for _, full in imported} | {dotted(node) for node in ast.walk(tree)}


def private_names(source: str) -> list[str]:
    """Names of JAX and its family that a module uses although they are not public."""

    def private(name: str) -> bool:
        head, *rest = name.split(".")
        hidden = any(part.startswith("_") and not part.startswith("__") for part in rest)
        return head in JAX_FAMILY and (
            hidden or any(f"{name}.".startswith(f"{prefix}.") for prefix in NOT_PUBLIC)
        )

    return sorted(filter(private, names_used(ast.parse(source))))


def wrong_rooms(source: str, module: str) -> list[str]:
    """What `module` imports that lies neither in its own room nor in one above it. The library
    imports nothing of the papers, which may import all of it.
    """
    package, room = module.split(".")[:2]
    if package == PAPERS:
        return []
    own = {full for _, full in imports(ast.parse(source), module)}
    papers = {full for full in own if full.split(".")[0] == PAPERS}
    if room in {"__init__", "__main__"}:
        return sorted(papers)
    above = ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else []
    allowed = {f"{package}.{name}" for name in above}
    own = {full for full in own if full.split(".")[0] == package}
    return sorted({full for full in own if ".".join(full.split(".")[:2]) not in allowed} | papers)


def skips(source: str) -> list[str]:
    """The ways in which a test module lets pytest pass over a test."""
    return [
        name
        for name in names_used(ast.parse(source))
        if name.split(".")[0] == "pytest" and SKIPS & set(name.split("."))
    ]


def docstring_examples(source: str, module: str) -> set[str]:
    """The dotted names of the definitions whose docstrings hold examples, read from the source."""

    def visit(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ">>>" in (
            ast.get_docstring(node) or ""
        ):
            yield name
        for child in ast.iter_child_nodes(node):
            inner = isinstance(child, ast.ClassDef | ast.FunctionDef)
            yield from visit(child, f"{name}.{child.name}" if inner else name)  # pyright: ignore[reportAttributeAccessIssue]

    return set(visit(ast.parse(source), module.removesuffix(".__init__")))


def _allowed(name: str, place: str) -> bool:
    return any(f"{name}.".startswith(f"{prefix}.") for prefix in ALLOWED.get(place, ()))


def test_only_public_jax():
    assert {
        (relative(path), name)
        for path in [*MODULES, *TESTS]
        for name in private_names(path.read_text())
        if not _allowed(name, relative(path))
    } == set()


@pytest.mark.parametrize(
    "source",
    [
        "import jax._src.core",
        "from jax._src import core",
        "from jax import core",
        "import jax.interpreters.ad as ad",
        "import jax\n\ndef f():\n    return jax.core.Tracer",
        "def f():\n    import jax\n    return [jax.interpreters.ad.Zero()]",
        "import equinox as eqx\nx = eqx.internal.while_loop",
        "import equinox.internal as eqxi",
        "from optax._src import base",
    ],
)
def test_planted_private_names_are_caught(source: str):
    assert private_names(source)
    assert not private_names(
        "import jax.numpy as jnp\nfrom jax.tree_util import tree_map\nx = jnp.zeros(3)\ny = "
        "x.core._src"
    )


def test_a_models_class_is_asked_for_in_few_places():
    """Capabilities are read from graphs; descriptions are told apart in one module, and infinite
    width knows its own.
    """
    asks = re.compile(
        r"isinstance\([^)]*\b(MLP|LinearConvNet|Sequential|LinearStack|FunctionModel)\b|type\(\w+\) is (MLP|LinearConvNet)"
    )
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if asks.search(path.read_text())
    }
    assert found == {
        "neuromanifold/models/model_kind.py",
        "neuromanifold/tangent/infinite/program.py",
    }


def test_a_room_imports_only_rooms_above_it():
    found = {dotted_name(path).split(".")[1] for path in MODULES if PAPERS not in path.parts}
    assert found == {*ROOMS, "__init__", "__main__"}, "list the rooms in CONTRIBUTING.md"
    wrong = {
        dotted_name(path): wrong_rooms(path.read_text(), dotted_name(path)) for path in MODULES
    }
    assert {module: names for module, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    "source, caught",
    [
        ("from neuromanifold.{below} import x", True),
        ("def f():\n    import neuromanifold.{below}.deep", True),
        ("from neuromanifold import {below}", True),
        ("from ..{below} import x", True),
        ("from .. import {below}", True),
        ("import neuromanifold as nm", True),
        ("from neuromanifold_papers import select", True),
        ("from neuromanifold import MLP", True),
        ("from neuromanifold.{above} import x", False),
        ("from ..{above}.deep import x", False),
        ("from . import sibling", False),
        ("import numpy, neuromanifold.{above}", False),
    ],
)
def test_planted_imports_from_below_are_caught(source: str, caught: bool):
    for above, own, below in zip(ROOMS, ROOMS[1:], ROOMS[2:], strict=False):
        assert (
            bool(
                wrong_rooms(source.format(above=above, below=below), f"neuromanifold.{own}.planted")
            )
            is caught
        )


def test_no_test_is_passed_over():
    assert [relative(path) for path in TESTS if skips(path.read_text())] == []


@pytest.mark.parametrize("name", sorted(SKIPS))
def test_planted_skips_are_caught(name: str):
    assert skips(f"import pytest\npytest.{name}('later')")
    assert skips(f"import pytest\n@pytest.mark.{name}\ndef test(): ...")
    assert skips(f"from pytest import {name}")
    assert not skips("import numpy as np\nnp.skip()\nskip = 1")


def test_nothing_is_left_to_do():
    marks = re.compile(
        "|".join(rf"\b{a}{b}\b" for a, b in [("TO", "DO"), ("FIX", "ME"), ("XX", "X")])
    )
    benchmarks = [
        path for path in (ROOT / "benchmarks").rglob("*") if path.suffix in {".py", ".md"}
    ]
    files = [
        *MODULES,
        *TESTS,
        *PAGES,
        *benchmarks,
        *ROOT.glob("*.md"),
        *ROOT.glob("*.toml"),
        ROOT / "Makefile",
    ]
    assert [relative(path) for path in files if marks.search(path.read_text())] == []
    assert marks.search("# TO" + "DO: later")


def test_every_exported_name_has_a_docstring():
    docs = {name: getattr(nm, name).__doc__ or "" for name in nm.__all__ if name != "__version__"}
    # A dataclass without a docstring gets its signature for one.
    assert [
        name for name, doc in docs.items() if not doc.strip() or doc.startswith(f"{name}(")
    ] == []


def test_every_docstring_example_is_found_by_doctest():
    """pytest runs what doctest finds; an example in a nested function or behind an opaque
    decorator would never run.
    """
    unseen = {}
    for path in (path for path in MODULES if path.name != "__main__.py"):
        name = dotted_name(path).removesuffix(".__init__")
        tests = doctest.DocTestFinder().find(importlib.import_module(name))
        found = {test.name for test in tests if test.examples}
        unseen[name] = docstring_examples(path.read_text(), name) ^ found
    assert {name: examples for name, examples in unseen.items() if examples} == {}


def test_an_example_that_doctest_does_not_see_is_caught():
    source = 'def f():\n    def g():\n        """\n        >>> 1\n        2\n        """\n'
    assert docstring_examples(source, "m") == {"m.f.g"}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_python_of_a_page_runs_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(), relative(page))


ROUNDING = re.compile(r"\d[\d.]*e[+-]\d+")


def run_page(text: str, name: str) -> None:
    """Its Python, in order; a block `output` must be what the Python before it printed, up to
    powers of ten (gaps, deviations).
    """
    namespace, printed = {"__name__": "__main__"}, io.StringIO()
    for kind, block in re.findall(
        r"^```(python|output)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        if kind == "output":
            assert ROUNDING.sub("#", printed.getvalue()) == ROUNDING.sub("#", block)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), namespace)


def test_an_output_that_was_not_printed_is_caught():
    with pytest.raises(AssertionError):
        run_page("```python\nprint(1 + 1)\n```\n\n```output\n3\n```\n", "page")


def commands(page: Path) -> list[list[str]]:
    lines = [
        line.removeprefix("$ ")
        for block in fenced(page.read_text(), "sh")
        for line in block.splitlines()
    ]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def exit_code(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    from neuromanifold.cli import main

    monkeypatch.setattr(sys, "argv", ["neuromanifold", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code or 0


def test_the_commands_of_the_pages_exist(monkeypatch: pytest.MonkeyPatch):
    """`--help` is read before the arguments are used and after the names of the options are
    checked.
    """
    for program, *arguments in (words for page in PAGES for words in commands(page)):
        if program == "make":
            assert (
                subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True).returncode
                == 0
            ), arguments
        elif program == "neuromanifold":
            assert exit_code([*arguments, "--help"], monkeypatch) == 0, arguments


def test_a_command_that_does_not_exist_is_caught(monkeypatch: pytest.MonkeyPatch):
    assert exit_code(["inspekt", "--help"], monkeypatch) == 2
    assert exit_code(["inspect", "--outt", "x", "--help"], monkeypatch) == 2
    assert subprocess.run(["make", "-n", "demoo"], cwd=ROOT, capture_output=True).returncode != 0


def test_readme_shows_the_two_commands_and_runs_python():
    readme = ROOT / "README.md"
    assert {("make", "demo"), ("make", "test")} <= {tuple(words) for words in commands(readme)}
    assert fenced(readme.read_text(), "python")


def python(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that sees the source tree."""
    environment = environment or {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which modules are compiled once, as they are where the package is
    installed.
    """
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **own,
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")),
        "PYTHONPATH": str(SOURCE),
    }


@pytest.mark.parametrize("arguments", ["-c 'import neuromanifold'", "-m neuromanifold --help"])
def test_import_and_help_take_twice_the_time_of_jax_at_most(
    arguments: str, bytecode: dict[str, str]
):
    """Two seconds where JAX, Equinox, Optax and Lineax alone take one: processor time, the best
    of three after a first one. A busy machine slows both, and the ratio stays.
    """

    def seconds(arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(*shlex.split(arguments), environment=bytecode)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    dependencies = "-c 'import equinox, jax, lineax, optax'"
    for command in (arguments, dependencies):
        seconds(command)
    own, theirs = zip(*((seconds(arguments), seconds(dependencies)) for _ in range(3)), strict=True)
    assert min(own) < 2 * min(theirs)


def test_heavy_dependencies_are_imported_where_used():
    """Importing the package loads none of them, and the numerical core runs where they are
    absent.
    """
    loaded = python(
        "-c", f"import sys, neuromanifold; print(*({{*sys.modules}} & set({LAZY})))"
    ).stdout.split()
    assert loaded == []
    python(
        "-c",
        f"import sys; sys.modules.update(dict.fromkeys({LAZY}))\n"
        "import jax, neuromanifold as nm\n"
        "net = nm.MLP((2, 3, 1))\n"
        "x, params = jax.numpy.ones((4, 2)), net.init(key=jax.random.key(0))\n"
        "assert nm.ntk(net, params, x).shape == (4, 4)\n"
        "assert nm.functional_dimension(net, params, x).value >= 1\n",
    )


def test_versions_and_pins_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert nm.__version__ == project["version"]
    assert f"\nversion: {nm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert f"rev: v{pinned[1]}\n" in (ROOT / ".pre-commit-config.yaml").read_text()
    extras = project["optional-dependencies"]
    needed = {
        re.split(r"[\[><=]", line)[0]
        for line in [*project["dependencies"], *extras["dev"], *extras["docs"]]
    }
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().split()}
    assert needed <= pinned


def test_every_planted_defect_still_has_its_place(tmp_path: Path):
    """`make defects` can plant each of them; one whose line has gone is named."""
    spec = importlib.util.spec_from_file_location("plant_defects", ROOT / "tools/plant_defects.py")
    assert spec and spec.loader
    planting = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planting)
    listed = planting.defects()
    assert len(listed) == 20
    assert [why for found in listed if (why := planting.misplaced(found))] == []
    assert all((ROOT / test).exists() for found in listed for test in found["tests"])
    (tmp_path / "file.py").write_text("one\n")
    gone = {"file": "file.py", "before": "two"}
    assert planting.misplaced(gone, tmp_path) == "'two' stands 0 times in file.py"
