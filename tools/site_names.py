"""The public names: which room exports what, and where it is defined. `make docs` lists them,
and the tests compare.
"""

import ast
import functools
import importlib
import inspect
from types import ModuleType
from typing import Any

ROOMS = (
    "numerics",
    "graph",
    "models",
    "data",
    "regions",
    "tangent",
    "dynamics",
    "symmetry",
    "orbits",
    "functionspace",
    "bottleneck",
    "inspection",
    "report",
)
PAPERS = "neuromanifold_papers"
MODULES = {
    "models.init": "init",
    "models.layers": "layers",
    "models.losses": "losses",
    "tangent.infinite": "infinite",
    "inspection.probes": "probes",
}


@functools.cache
def exports(module: str) -> dict[str, str]:
    """The public names of a module of the package, and the dotted path of each definition.

    >>> exports("tangent")["ntk"]
    'neuromanifold.tangent.kernel.ntk.ntk'
    """
    loaded = _loaded(module)
    imported = _imported(loaded)
    names = getattr(loaded, "__all__", None) or _own(loaded)
    return {
        name: imported.get(name, f"{loaded.__name__}.{name}")
        for name in sorted(names, key=str.lower)
    }


def _loaded(module: str) -> ModuleType:
    return importlib.import_module(module if module == PAPERS else f"neuromanifold.{module}")


def _imported(module: ModuleType) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(module))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes
        for alias in node.names
    }


def _own(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_own(name, value, module)]


def _is_own(name: str, value: Any, module: ModuleType) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def home(path: str) -> str:
    """The room or module on whose page a definition is documented: the first that exports it."""
    pages = (*ROOMS, *MODULES, PAPERS)
    return next(module for module in pages if path in exports(module).values())


def summary(value: Any) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(value) or "").partition("\n")[0].partition("   [")[0]


def listing(module: str) -> str:
    """The reference of one module: every public name with its documentation, modules as links to
    their own pages.
    """
    loaded = _loaded(module)
    parts = [inspect.getdoc(loaded) or ""]
    for name, path in exports(module).items():
        if isinstance(getattr(loaded, name), ModuleType):
            parts.append(f"- [`nm.{name}`]({name}.md): {summary(getattr(loaded, name))}")
        elif home(path) != module:
            parts.append(f"- [`{name}`]({home(path)}.md#{path}): {summary(getattr(loaded, name))}")
        else:
            options = (
                f"      heading: {name}\n      toc_label: {name}\n      show_root_heading: true\n "
                "     show_root_toc_entry: true"
            )
            parts.append(f"::: {path}\n    options:\n{options}")
    return "\n\n".join(parts)


def table() -> str:
    """The names on `nm` itself, each linked to its documentation."""
    import neuromanifold as nm

    pages = {**MODULES, **{room: room for room in ROOMS}}
    homes = {
        name: (page, path)
        for module, page in pages.items()
        for name, path in exports(module).items()
        if name in nm.__all__
    }
    rows = ["| name | what it is |", "|---|---|"]
    for name in sorted(nm.__all__, key=str.lower):
        value = getattr(nm, name)
        if isinstance(value, ModuleType):
            target = f"{name}.md"
        else:
            page, path = homes[name]
            target = f"{page}.md#{path}"
        rows.append(f"| [`nm.{name}`]({target}) | {summary(value).replace('|', chr(92) + '|')} |")
    return "\n".join(rows)
