"""Colours for the parts of a whole: told apart by everybody, and by texture where there are more
parts than colours.

Each has a contrast of at least 3 with its ground (WCAG 2.2, 1.4.11), and any two differ by at least
25 in CIELAB (ΔE 1976), also as protanopes, deuteranopes and tritanopes see them (Machado, Oliveira
and Fernandes 2009).
"""

LIGHT = ("#0072b2", "#d55e00", "#869168", "#014136", "#956682", "#7c3710", "#2e1a48")
DARK = ("#56b4e9", "#ea7f38", "#8db392", "#2d7544", "#b33e95", "#e7db92", "#8869e1")
MIDDLE = ("#0071ba", "#f36c03", "#805d57", "#8c14fb", "#9690ab", "#c67f53")
"""For pictures that do not know their ground, as in a notebook: they stand out from both."""
GROUNDS = ("#ffffff", "#16181c")
TEXTURES = ("", "striped", "dotted")
MOST = len(LIGHT) * len(TEXTURES)
_HATCHES = {"": "", "striped": "///", "dotted": "..."}


def colour_and_texture(index: int) -> tuple[int, str]:
    """Which colour and which texture the part `index` has; beyond `MOST` they come again.

    >>> colour_and_texture(0), colour_and_texture(8)
    ((0, ''), (1, 'striped'))
    """
    return index % len(LIGHT), TEXTURES[index // len(LIGHT) % len(TEXTURES)]


def hatch(index: int) -> dict[str, str]:
    """The same as matplotlib's options for a bar on white.

    >>> hatch(7)
    {'color': '#0072b2', 'hatch': '///'}
    """
    colour, texture = colour_and_texture(index)
    return {"color": LIGHT[colour], "hatch": _HATCHES[texture]}


def gather_parts(
    parts: tuple[tuple[str, int], ...], most: int = MOST
) -> tuple[tuple[str, int], ...]:
    """The parts as they are, or, where there are more than `most`, which can be told apart, the
    smallest of them as one.

    >>> gather_parts((("a", 2), ("b", 1)))
    (('a', 2), ('b', 1))
    """
    if len(parts) <= most:
        return parts
    kept = sorted(range(1, len(parts)), key=lambda i: -parts[i][1])[: most - 2]
    others = [part for i, part in enumerate(parts) if i and i not in kept]
    shown = [part for i, part in enumerate(parts) if not i or i in kept]
    return (*shown, (f"{len(others)} smaller kinds", sum(count for _, count in others)))
