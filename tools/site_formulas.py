"""Formulas in plain text, of docstrings, statements and counterexamples: their indices and
exponents are set as such.
"""

import re

CODE = re.compile(r"(^```.*?^```$|^#[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
BRACED = re.compile(r"(?<=\S)([_^])\{([^{}\n]+)\}")
SINGLE = re.compile(r"(?<![a-z0-9\\_])([^\W\d_])_([^\W_]|∞)(?![a-z0-9_])")
TAGS = {"_": "sub", "^": "sup"}


def raised(text: str) -> str:
    """`n_{l-1}`, `n_0` and `x^{3/2}` with their indices set; code and headings stay as they are.

    >>> raised("n_0 ≤ n_{l-1}, |θ|^{3/2} in `n_0`, W_lV_l, heating_load")
    'n<sub>0</sub> ≤ n<sub>l-1</sub>, |θ|<sup>3/2</sup> in `n_0`, W<sub>l</sub>V<sub>l</sub>, heating_load'
    """
    parts = CODE.split(text)
    parts[::2] = [_set(part) for part in parts[::2]]
    return "".join(parts)


def _set(text: str) -> str:
    text = BRACED.sub(lambda found: f"<{TAGS[found[1]]}>{found[2]}</{TAGS[found[1]]}>", text)
    for _ in range(2):  # W_lV_l: the second index is seen once the first is set
        text = SINGLE.sub(r"\1<sub>\2</sub>", text)
    return text
