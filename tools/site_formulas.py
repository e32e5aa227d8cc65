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


_PIECE = re.compile(r"((?:<(sub|sup)>.*?</\2>|[^\s<]|<(?!su[bp]>)(?=[\s=]))+)")
_SIGNS = re.compile(r"[=≤≥≠≈∈∉⊂⊃∪∩⇒⇔→↦Σ∏√‖∘×·±∞ℝℤℚℂℕ∇∂⊗⊕⁻⁰¹²³⁴₀₁₂₃₄α-ωΑ-Ωᵀ]|<su[bp]>|^[−+<>]$")
_WORDS = re.compile(r"[A-Za-z]{3,}")
_NAMES = {
    "dim", "rank", "ker", "max", "min", "log", "exp", "cos", "sin", "Lie", "span", "det", "sup", "inf", "diag", "arg", "Rank",
}  # fmt: skip
_SHORT = {
    "is", "of", "at", "in", "to", "by", "so", "if", "on", "as", "no", "an", "it", "or", "be", "we", "up", "do", "i", "ii", "iii", "iv", "v",
}  # fmt: skip
_RAISED = {"sup": "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ᵀ", "sub": "₀₁₂₃₄₅₆₇₈₉₊₋₍₎"}
_PLAIN = "0123456789+−()⊤"
_LETTER = re.compile(r"(?<![A-Za-zÀ-ÿ&;])(?!GL|SL|Id)([A-Za-z]{1,2})(?![A-Za-zÀ-ÿ])|([α-ω])")


def in_formulas(text: str) -> str:
    """What is a formula in plain text is set as one: its letters are those of mathematics. Code,
    headings and words stay as they are.

    >>> in_formulas("for all n ≥ 2 and each θ")
    'for all <span class="plain"><i>n</i> ≥ 2</span> and each <span class="plain"><i>θ</i></span>'
    """
    parts = CODE.split(text)
    parts[::2] = [_mathematics(part) for part in parts[::2]]
    return "".join(parts)


def _mathematics(text: str) -> str:
    found = []
    for line in text.split("\n"):
        pieces = _PIECE.split(line)[0::3], _PIECE.split(line)[1::3]
        found.append(_line(*pieces))
    return "\n".join(found)


def _line(spaces: list[str], pieces: list[str]) -> str:
    """A line from its pieces and what lies between: neighbouring formulas become one, and with
    them the names, single letters and numbers beside them.
    """
    table = bool(pieces) and pieces[0] == "|"
    out, k = spaces[0], 0
    while k < len(pieces):
        end = k
        while end < len(pieces) and _may_join(pieces, k, end, table) and spaces[end] in ("", " "):
            end += 1
        if any(_is_formula(piece) for piece in pieces[k:end]):
            found = re.fullmatch(r"(.*?)([.,;:]*)", " ".join(pieces[k:end]))
            assert found is not None
            out += f'<span class="plain">{_letters(found[1])}</span>{found[2]}{spaces[end]}'
            k = end
        else:
            out += pieces[k] + spaces[k + 1]
            k += 1
    return out


def _may_join(pieces: list[str], first: int, at: int, table: bool) -> bool:
    """Whether a piece can belong to the formula that begins at `first`: not after a full stop or a
    comma, but inside brackets, and no article.
    """
    piece, before = pieces[at], " ".join(pieces[first:at])
    if at > first and before[-1] in ".,;:" and before.count("(") <= before.count(")"):
        return False
    if piece in ("a", "A", "I"):
        return at > first and pieces[at - 1] in "=≤≥<>+−∈·×⇒"
    if piece == "|":
        return not table
    return _is_formula(piece) or piece in _NAMES or _is_beside(piece)


def _words(piece: str) -> set[str]:
    bare = re.sub(r"</?su[bp]>", " ", piece)
    short = {word for word in re.findall(r"[A-Za-z]+", bare) if word.lower() in _SHORT}
    return (set(_WORDS.findall(bare)) - _NAMES) | (short - {"v", "i"})


def _is_formula(piece: str) -> bool:
    return bool(_SIGNS.search(piece)) and _is_beside(piece)


def _is_beside(piece: str) -> bool:
    """Whether a piece has no words, and nothing that means something to Markdown."""
    return not _words(piece) and not re.search(r"[*`\[\]’'\"–—|]|&\w+;", piece)


def _letters(text: str) -> str:
    for tag, signs in _RAISED.items():
        plain = dict(zip(signs, _PLAIN, strict=False))
        text = re.sub(
            f"[{signs}]+",
            lambda found, tag=tag, plain=plain: (
                f"<{tag}>{''.join(plain[c] for c in found[0])}</{tag}>"
            ),
            text,
        )
    parts = re.split(r"(</?su[bp]>)", text)
    parts[::2] = [_LETTER.sub(r"<i>\g<0></i>", part) for part in parts[::2]]
    return "".join(parts)


def _set(text: str) -> str:
    text = BRACED.sub(lambda found: f"<{TAGS[found[1]]}>{found[2]}</{TAGS[found[1]]}>", text)
    for _ in range(2):  # W_lV_l: the second index is seen once the first is set
        text = SINGLE.sub(r"\1<sub>\2</sub>", text)
    return text
