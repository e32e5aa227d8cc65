"""The public names: which room exports what, and where it is defined. `make docs` lists them,
and the tests compare.
"""

import ast
import functools
import importlib
import inspect
import re
from types import ModuleType
from typing import Any

from site_formulas import raised

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

TASKS = {
    "Bring a network": "from_torch to_torch from_flax from_equinox from_haiku load save MLP LinearConvNet Sequential "
    "FunctionModel describe",
    "Inspect it": "inspect report functional_dimension dimension_account conserved_quantities spectrum "
    "activation_patterns fixed_neurons sampled_regions dimension_bounds Rank",
    "Shrink it": "reduce_width",
    "Train it, and watch": "Tracker train gradient_flow probes largest_stable_lr sharpness learning_coefficient",
    "Tangent kernel": "ntk ntk_operator gram jacobian alignment kernel_alignment kernel_flow linearize influence features",
    "Infinite width": "infinite_ntk nngp infinite",
    "Symmetries": "symmetry_group teleport hidden_equivalence symmetry",
    "What training can never leave": "invariant_leaf invariant_leaves lie_closure lie_bracket induces_invariant_manifold condensation",
    "Build a network": "Activation Layer Mixed leaky_relu power init layers losses data",
    "Everything else, by module": "numerics graph models regions tangent dynamics orbits functionspace bottleneck inspection",
}
"""The names on `nm` by what a reader wants to do."""


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
    """The first sentence of a docstring, with its indices set.

    >>> summary(exports)
    'The public names of a module of the package, and the dotted path of each definition.'
    """
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(
        r"(?<=[a-z\d)`θ])\. (?=[A-Z`])| \[(?:complexity|invariant|teleport|riemann|bottleneck),",
        text,
    )[0]
    parts = re.split(r"(`[^`]*`)", sentence.rstrip(". :"))
    parts[::2] = [re.sub(r"([_*])", r"\\\1", raised(part)) for part in parts[::2]]
    return "".join(parts) + "."


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
    told = [name for names in TASKS.values() for name in names.split()]
    if sorted(told) != sorted(nm.__all__):
        differ = set(told) ^ set(nm.__all__) or {n for n in told if told.count(n) > 1}
        raise ValueError(f"`TASKS` lists each name on `nm` once; not so: {sorted(differ)}.")
    text = []
    for task, names in TASKS.items():
        text += [f"## {task}\n", "| name | what it is |", "|---|---|"]
        text += [_row(name, homes) for name in names.split()]
        text.append("")
    return "\n".join(text)


def _row(name: str, homes: dict[str, tuple[str, str]]) -> str:
    import neuromanifold as nm

    value = getattr(nm, name)
    page, path = homes.get(name, ("", ""))
    target = f"{name}.md" if isinstance(value, ModuleType) else f"{page}.md#{path}"
    return f"| [`nm.{name}`]({target}) | {summary(value).replace('|', chr(92) + '|')} |"
