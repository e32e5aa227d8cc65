"""A printed statement as software: cases over its hypotheses, a measurement of its conclusion,
and a negative control.

A statement is written as the function that measures it. The docstring is what the paper says, in
our words; the body takes both sides; the decorator names the cases and the control:

    @statement("C.3", networks, control("two outputs", lambda: two_lines(2)))
    def cells(case, bound=cell_bound):
        "One output: the functional dimension on Z is at most (n_0 + 1) times the cells met."
        return at_most(case.rank, bound(case), inputs=case.net.widths[0])
"""

import importlib
import pkgutil
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files
from inspect import cleandoc
from types import FunctionType
from typing import Any, Literal

import numpy as np

from neuromanifold_papers.check import Check

Method = Literal["exact", "float64", "integration", "training"]
Source = Literal["printed", "ours"]
Severity = Literal["", "misprint", "constant", "missing hypothesis", "gap in a proof", "false"]
SEVERITIES: tuple[Severity, ...] = (
    "false",
    "missing hypothesis",
    "gap in a proof",
    "constant",
    "misprint",
)
"""What is wrong with a statement that fails as printed, the gravest first."""
NO_PROOF = "no proof"
_KEPT = ("paper", "cases", "method", "draws", "show", "covers")
"""The fields that an amendment has from the printed statement."""
Cases = Callable[[np.random.Generator, int], Iterable[Any]]


def paste(case: Any) -> str:
    """The case as Python one can paste, after the imports of the classes in it; a class of ours
    that has its own `__str__` writes itself.

    >>> paste((1, "relu", np.array([1.0, 2.0])))
    "(1, 'relu', np.array([1.0, 2.0]))"
    """
    if is_dataclass(case) and "__str__" in type(case).__dict__:
        return str(case)
    found: dict[str, set[str]] = defaultdict(set)
    text = _written(case, found)
    lines = [
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(found.items())
    ]
    return "\n".join([*lines, text])


def named(names: str) -> Callable[[Any], str]:
    """How to show cases that are tuples: what `paste` writes of the entries, under these names.

    >>> named("x, y")((1, np.array([2.0])))
    'x, y = 1, np.array([2.0])'
    """

    def shown(case: Any) -> str:
        *imports, entries = paste(tuple(case)).splitlines()
        return "\n".join([*imports, f"{names} = {entries[1:-1]}"])

    return shown


def _written(value: Any, found: dict[str, set[str]]) -> str:
    kind = type(value)
    if kind is FunctionType:
        raise TypeError(f"a case is a value that can be written down, not {value.__qualname__}")
    if isinstance(value, np.ndarray):
        return f"np.array({_written(value.tolist(), found)})"
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        parts = [_written(entry, found) for entry in value]
        inside = ", ".join(parts)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(parts) == 1)})"
    if kind.__module__.startswith("neuromanifold."):
        return f"nm.{value!r}"
    if is_dataclass(value) or isinstance(value, Fraction):
        found[kind.__module__].add(kind.__name__)
    if is_dataclass(value):
        parts = [
            f"{entry.name}={_written(getattr(value, entry.name), found)}" for entry in fields(value)
        ]
        return f"{kind.__name__}({', '.join(parts)})"
    return repr(value)


@dataclass(frozen=True)
class Control:
    """A case just outside the hypotheses, or the conclusion broken: the statement's own `measure`
    must be seen to fail on it.

    `case()` is the case. `breaks` replaces named ingredients of `measure`, which takes them as
    keyword arguments with the true ones as defaults: where the control breaks the conclusion and
    not the hypotheses. There is no control by hand: it would show that a number differs and not
    that `measure` notices. `passes()` is a case just inside, on which `measure` must be seen to
    hold: where the recorded numbers have room, it notices a threshold that moved away from them.

    >>> def measure(n, offset=1):
    ...     return Check(n * n % 8, offset)
    >>> print(control("an even number", lambda: 2).measured(measure))
    4 ≠ 1
    >>> print(control("a remainder of 2", lambda: 3, offset=2).measured(measure))
    1 ≠ 2
    >>> print(control("an even number", lambda: 2, passes=lambda: 5).inside(measure))
    1 = 1
    """

    broken: str
    case: Callable[[], Any]
    breaks: Mapping[str, Any] = field(default_factory=dict)
    passes: Callable[[], Any] | None = None

    def measured(self, measure: Callable[..., Check]) -> Check:
        """The check that must fail."""
        return measure(self.case(), **self.breaks)

    def inside(self, measure: Callable[..., Check]) -> Check | None:
        """The check that must hold, where there is one."""
        return None if self.passes is None else measure(self.passes())


def control(
    broken: str,
    case: Callable[[], Any],
    /,
    *,
    passes: Callable[[], Any] | None = None,
    **breaks: Any,
) -> Control:
    """The control on `case()`, with the named ingredients of the measure replaced."""
    return Control(broken, case, breaks, passes)


@dataclass(frozen=True)
class Listed:
    """Cases that are a list, without random ones."""

    listed: Sequence[Any]

    def __call__(self, rng: np.random.Generator, draws: int) -> Iterable[Any]:
        return self.listed


@dataclass(frozen=True)
class Statement:
    """One statement of a paper.

    `cases(rng, draws)` yields the enumerated cases, smallest first, then `draws` random ones;
    `measure(case)` takes both sides. `exhaustive` names the range that is enumerated wholly or
    settled by exact algebra; without it the cases are a sample. A statement that fails as printed
    has a `severity`, `confirm` (the same case by an independent route), `worked` (the
    counterexample by hand), `smaller(case)` (simpler cases to try when minimising) and, where there
    is one, `amended`, the nearby true statement, whose `proof` is ours; one that begins with
    `NO_PROOF` may say why there is none. `narrower` says where the check covers less than the
    print; it must where a measure drops cases inside the hypotheses. `source` is whose sentence it
    is: the paper's ("printed") or our own ("ours"). `constructive` names the explicit object whose
    cost stands for the quantity, and so bounds it from above only. `missing` names what the print
    leaves out and one would need (loss, optimiser, epochs): where our run disagrees, the claim is
    then not reproduced rather than false. `show(case)` is the case as Python one can
    paste, `covers(case)` names the values it takes, beside those that its check names.
    """

    paper: str
    id: str
    says: str
    cases: Cases
    measure: Callable[..., Check]
    control: Control
    method: Method = "exact"
    draws: int = 40
    exhaustive: str = ""
    narrower: str = ""
    source: Source = "printed"
    constructive: str = ""
    missing: str = ""
    show: Callable[[Any], str] = paste
    covers: Callable[[Any], Mapping[str, Any]] = lambda case: getattr(case, "hypotheses", {})
    smaller: Callable[[Any], Iterable[Any]] = lambda case: ()
    confirm: Callable[[Any], Check] | None = None
    route: str = ""
    severity: Severity = ""
    worked: str = ""
    amends: tuple[str, ...] = ()
    amended: "Statement | None" = None
    proof: str = NO_PROOF

    def __call__(self, case: Any, **broken: Any) -> Check:
        """Both sides on one case: a statement is the function that measures it."""
        return self.measure(case, **broken)

    def amend(
        self, control: "Control | None" = None, /, **changed: Any
    ) -> "Callable[[Callable[..., Check] | str], Statement]":
        """The true statement instead: this one, with another `control` and what `changed` names.
        A name of a field replaces the field, any other an ingredient of `measure`. What it says is
        given last: by the function that measures it, or in words alone where `measure` is the same.

        Cases, control, `draws`, `method` and `show` are the printed statement's unless named; its
        texts stand in `words.toml` under `X (amended)`, or `X (y, amended)` for `X (y)`.

        >>> def square(n, offset=2):
        ...     return Check(n * n % 8, offset)
        >>> odd = [1, 3, 5]
        >>> even = control("an even number", lambda: 2)
        >>> printed = Statement("complexity", "P 1", "The square has rest 2", Listed(odd), square, even)
        >>> true = printed.amend(offset=1)("The square of an odd number has rest 1.")
        >>> true.id, true.amends, true.says, true(3).holds, true(2).holds
        ('P 1 (amended)', ('P 1',), 'The square of an odd number has rest 1', True, False)
        """
        names = {entry.name for entry in fields(self)}
        ingredients = {name: value for name, value in changed.items() if name not in names}
        known: dict[str, Any] = {
            "id": amended_id(self.id),
            "amends": self.id,
            "control": control or self.control,
            **{name: getattr(self, name) for name in _KEPT},
            **{name: value for name, value in changed.items() if name in names},
        }

        def made(said: Callable[..., Check] | str) -> Statement:
            words = first_paragraph(said if isinstance(said, str) else said.__doc__ or "")
            measure = self.measure if isinstance(said, str) else said
            all_fields: dict[str, Any] = {"says": words, **known}
            return statement(**all_fields)(bind(measure, ingredients) if ingredients else measure)

        return made

    def answers_to(self, name: str) -> bool:
        """Whether `name` means this statement: its id or the number that it begins with.
        `P9`, `Thm 3`, `Theorem 3`, `thm3(2)`

        >>> def nothing(*_): return ()
        >>> found = Statement("bottleneck", "Thm 3 (2)", "", nothing, nothing, control("", list))
        >>> [found.answers_to(name) for name in ("thm3(2)", "Theorem 3", "Thm 31", "Thm 3 (1)")]
        [True, True, False, False]
        """
        wanted = _plain(name)
        return bool(re.match(re.escape(wanted) + r"(?![\w.])", _plain(self.id)))


def statement(
    id: str,
    cases: Cases | Sequence[Any],
    control: Control,
    *,
    amends: str | tuple[str, ...] = (),
    says: str = "",
    paper: str = "",
    **others: Any,
) -> Callable[[Callable[..., Check]], Statement]:
    """Make a statement of the function that measures it; its docstring is what the paper says.

    `cases` is a list or a function of `(rng, draws)`. `amends` is the id of the
    printed statement that this true one replaces (`Statement.amend` says it shorter). `others` are
    the fields of `Statement`. The texts for authors (`worked`, `proof`, `severity`) stand in the
    paper's `words.toml` under `id`.
    """

    def made(measure: Callable[..., Check]) -> Statement:
        of = paper or measure.__module__.split(".")[1]
        drawn = cases if callable(cases) else Listed(cases)
        words = says or first_paragraph(measure.__doc__ or "")
        known: dict[str, Any] = texts(of).get(id, {}) | others
        amended = (amends,) if isinstance(amends, str) else amends
        return Statement(of, id, words, drawn, measure, control, amends=amended, **known)

    return made


in_float64 = partial(statement, method="float64")
by_training = partial(statement, method="training")
by_integration = partial(statement, method="integration")


def amended_id(id: str) -> str:
    """The id of the true statement instead.

    >>> amended_id("Eq 22"), amended_id("Lem 3.1 (ReLU)")
    ('Eq 22 (amended)', 'Lem 3.1 (ReLU, amended)')
    """
    return f"{id[:-1]}, amended)" if id.endswith(")") else f"{id} (amended)"


def bind(measure: Callable[..., Check], ingredients: Mapping[str, Any]) -> Callable[..., Check]:
    """`measure` with these ingredients as its defaults, which a control may break as before.

    >>> bind(lambda n, offset=1: Check(n * n % 8, offset), {"offset": 2})(3).fails
    True
    """
    own: Any = measure
    first = own.__code__.co_argcount - len(own.__defaults__ or ())
    listed = own.__code__.co_varnames[first : own.__code__.co_argcount]
    defaults = dict(zip(listed, own.__defaults__ or (), strict=True))
    keywords = dict(own.__kwdefaults__ or {})
    if unknown := ingredients.keys() - defaults.keys() - keywords.keys():
        raise ValueError(
            f"`changed` names {sorted(unknown)}; {own.__qualname__} has no such default."
        )
    bound = FunctionType(own.__code__, own.__globals__, own.__name__, closure=own.__closure__)
    bound.__defaults__ = tuple((defaults | {**ingredients})[name] for name in listed)
    bound.__kwdefaults__ = {name: (keywords | {**ingredients})[name] for name in keywords}
    return bound


def first_paragraph(text: str) -> str:
    """The first paragraph of a docstring in one line, without its full stop.

    >>> first_paragraph('''One output: the rank is at most
    ...     two.
    ...
    ...     By elimination.''')
    'One output: the rank is at most two'
    """
    return " ".join(cleandoc(text).partition("\n\n")[0].split()).removesuffix(".")


@cache
def texts(paper: str) -> dict[str, dict[str, str]]:
    """What authors read about each statement: `papers/<paper>/words.toml`."""
    path = files(f"neuromanifold_papers.{paper}") / "words.toml"
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        id: {name: _unwrapped(text) for name, text in entry.items()}
        for id, entry in written.items()
    }


def _unwrapped(text: str) -> str:
    """Each paragraph in one line."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def collect(package: str) -> tuple[Statement, ...]:
    """The statements that the modules of `package` hold, module by module in the order of their
    names, each with the statement that amends it.
    """
    names = sorted(
        module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
    )
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    found = {entry.id: entry for module in modules for entry in _held(vars(module).values())}
    amended = {id: replace(entry, amends=()) for entry in found.values() for id in entry.amends}
    return tuple(
        replace(entry, amended=amended.pop(entry.id, None))
        for entry in found.values()
        if not entry.amends
    )


def _held(values: Iterable[Any]) -> Iterator[Statement]:
    for value in values:
        if isinstance(value, Statement):
            yield value
        elif isinstance(value, tuple | list):
            yield from _held(value)


_WORDS = {
    "theorem": "thm",
    "proposition": "p",
    "prop": "p",
    "lemma": "lem",
    "corollary": "cor",
    "equation": "eq",
    "section": "sec",
    "example": "ex",
    "observation": "obs",
    "remark": "rem",
    "definition": "def",
    "figure": "fig",
    "appendix": "app",
}


def _plain(name: str) -> str:
    plain = re.sub(r"\s+", "", name).lower()
    return re.sub(
        rf"^({'|'.join(_WORDS)})\.?(?=\d|[a-z]\.|\()", lambda found: _WORDS[found[1]], plain
    )
