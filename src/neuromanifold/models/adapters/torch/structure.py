"""Nested tuples, lists and dictionaries, with numbers where arrays go."""

from collections.abc import Iterator, Mapping
from typing import Any

from neuromanifold.numerics.validation import indefinite


def leaves(template: Any, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) for each number of the template, refused where `value` is shaped otherwise.

    >>> dict(leaves({"ids": 0, "mask": 1}, {"mask": "m", "ids": "i"}))
    {"['ids']": 'i', "['mask']": 'm'}
    """
    if isinstance(template, int):
        yield path, value
    elif isinstance(template, dict):
        if not isinstance(value, Mapping) or set(value) != set(template):
            raise TypeError(
                f"`x{path}` is {_show(value)}; pass a dictionary with "
                f"{', '.join(map(repr, template))}."
            )
        for key, part in template.items():
            yield from leaves(part, value[key], f"{path}[{key!r}]")
    elif isinstance(template, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(template):
            raise TypeError(
                f"`x{path}` is {_show(value)}; pass {indefinite(template)} of {len(template)}."
            )
        for index, part in enumerate(template):
            yield from leaves(part, value[index], f"{path}[{index}]")


def fill(template: Any, values: Any) -> Any:
    """The template with `values[number]` in the place of each number.

    >>> fill({"a": 1, "b": (0, None)}, "xy")
    {'a': 'y', 'b': ('x', None)}
    """
    if isinstance(template, int):
        return values[template]
    if isinstance(template, dict):
        return {key: fill(part, values) for key, part in template.items()}
    if isinstance(template, (tuple, list)):
        return type(template)(fill(part, values) for part in template)
    return template


def number_leaves(value: Any, is_leaf: Any, found: list[Any], path: str) -> Any:
    """The template of `value`; its leaves are appended to `found`. Mappings become dictionaries,
    None stays.
    """
    if value is None:
        return None
    if is_leaf(value):
        found.append(value)
        return len(found) - 1
    if isinstance(value, Mapping):
        return {
            str(key): number_leaves(part, is_leaf, found, f"{path}[{key!r}]")
            for key, part in value.items()
        }
    if isinstance(value, (tuple, list)):
        parts = [
            number_leaves(part, is_leaf, found, f"{path}[{index}]")
            for index, part in enumerate(value)
        ]
        return tuple(parts) if isinstance(value, tuple) else parts
    raise TypeError(f"{path} is {indefinite(value)}")


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dictionary with {', '.join(map(repr, value)) or 'nothing'}"
    return f"{len(value)} parts" if isinstance(value, (tuple, list)) else indefinite(value)
