"""What `make docs` adds to the pages: tutorials from their notebooks, and the verdict on every
statement of a paper.
"""

import base64
import html
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from markdown.extensions.toc import slugify, unique
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbformat import NotebookNode

sys.path.insert(0, str(Path(__file__).parent))
import site_names
from site_formulas import in_formulas, raised

ROOT = Path(__file__).parents[1]
VERDICTS = re.compile(r"^<!-- verdicts: (\w+) -->$", re.MULTILINE)
NAMES = re.compile(r"^<!-- names: ([\w.]+) -->$", re.MULTILINE)
CLAIMS = re.compile(r"^<!-- claims: (\w+) -->$", re.MULTILINE)
BADGE = re.compile(r"⟨([^⟩\n]+)⟩")
LISTS = re.compile(r"^\| (?:statement \| change|paper \| id) \|.*(?:\n\|.*)*", re.MULTILINE)
ALIGNED = re.compile(r"\S {2,}\S")
TALLY = re.compile(r"^<!-- verdicts of all papers -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page, and its pictures, for every notebook."""
    for path in sorted(Path(config.docs_dir, "tutorials").glob("*.ipynb")):
        text, pictures = page(nbformat.read(path, as_version=4), path.stem)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def page(notebook: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, with its pictures by name."""
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in joined(cell.outputs):
            if image := output.get("data", {}).get("image/png"):
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(image)
                parts.append(f"![{cell.metadata.get('alt', name)}]({picture})")
            else:
                text = output.get("text") or output.get("data", {}).get("text/plain", "")
                kind = "output" if len(ALIGNED.findall(text)) > 1 else "output sentences"
                parts.append(
                    f'<div class="{kind}" markdown>\n\n```text\n{text.rstrip()}\n```\n\n</div>'
                )
    heading, *rest = parts
    seconds = notebook.metadata.get("seconds")
    files = f"[script]({name}.py) · [notebook]({name}.ipynb)"
    note = f"*Takes {seconds} s of processor time.* {files}" if seconds else files
    title, _, body = heading.partition("\n")
    return "\n\n".join([title, note, body.strip(), *rest]), pictures


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs of a cell, where text that was printed in pieces is one."""
    found: list[NotebookNode] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1] = NotebookNode({**found[-1], "text": found[-1].text + output.text})
        else:
            found.append(output)
    return found


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The recorded verdicts and the public names, where a page asks for them; on a paper's page
    ⟨Thm 1⟩ is a statement with its verdict.
    """
    if page.file.src_uri.startswith("paper/"):
        paper = Path(page.file.src_uri).stem
        badges = verdict_badges(paper)
        # In the margin a badge leaves no gap before the full stop.
        markdown = re.sub(rf" ?{BADGE.pattern}", lambda found: badges[found.group(1)], markdown)
        before, heading, after = markdown.partition("\n## ")
        markdown = f"{before}\n{standing(paper)}\n{heading}{after}"
    if page.file.src_uri == "errata.md":
        markdown = in_formulas(raised(markdown))
    markdown = LISTS.sub(lambda found: stacked([found.group()], "list"), markdown)
    markdown = NAMES.sub(lambda found: site_names.listing(found.group(1)), markdown)
    markdown = markdown.replace("<!-- names on nm -->", site_names.table())
    markdown = VERDICTS.sub(lambda found: verdict_table(found.group(1)), markdown)
    markdown = CLAIMS.sub(lambda found: claim_table(found.group(1)), markdown)
    return TALLY.sub(lambda _: tally_table(), markdown)


def entries(paper: str) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """Statement, record and verdict in words, of one paper."""
    from neuromanifold_papers import errata, ledger

    recorded = ledger.recorded_verdicts()
    for statement in ledger.statements():
        if statement.paper == paper:
            entry = dict(recorded[statement.paper][statement.id])
            yield statement, entry, errata.shown_verdict(statement, entry["verdict"])


def verdict_table(paper: str) -> str:
    """Every statement of one paper, what was found and where it is executed; the failing ones
    linked to their counterexamples.
    """
    chapters = errata_anchors(paper)
    rows = ["| statement | says | verdict | executed in |", "|---|---|---|---|"]
    for row, (statement, _, verdict) in enumerate(entries(paper), 1):
        shown = f'<span class="{colour(verdict)}">{verdict}</span>'
        name = escaped(statement.id)
        if anchor := chapters.get(statement.id):
            name = f"[{name}](../errata.md#{anchor})"
        file = statement.measure.__module__.rpartition(".")[2]
        rows.append(
            f'| <span id="statement-{row}"></span>{name} | {escaped(statement.says)} | {shown} | '
            f"`{file}.py` |"
        )
    return folded(stacked(rows, "verdicts"), f"{len(rows) - 2} statements")


def standing(paper: str) -> str:
    """What stands, then what does not: the statements of one paper as a bar, and in numbers."""
    counts = Counter(colour(verdict) for *_, verdict in entries(paper))
    words = (
        ("holds", "stand: they hold, or no counterexample was found"),
        ("open", "are open, or were not reproduced"),
        ("fails", "fail as printed, most of them mended"),
    )
    shown = [(name, counts[name], text) for name, text in words if counts[name]]
    parts = "".join(f'<span class="{name}" style="flex:{n}"></span>' for name, n, _ in shown)
    listed = " ".join(
        f'<span class="{name}">{n}</span> {text}{"." if k == len(shown) - 1 else ";"}'
        for k, (name, n, text) in enumerate(shown)
    )
    label = f"Of {counts.total()} statements"
    return (
        f'<div class="standing"><div class="whole" role="img" aria-label="{label}">{parts}</div>'
        f"<p>{label} {listed}</p></div>\n"
    )


def folded(text: str, summary: str) -> str:
    """What is long, folded; a link into it opens it."""
    return f'<details class="fold" markdown>\n<summary>{summary}</summary>\n\n{text}\n\n</details>'


def verdict_badges(paper: str) -> dict[str, str]:
    """For every statement of a paper its name and recorded verdict as a link: to the
    counterexample, or to its row in the table.
    """
    chapters = errata_anchors(paper)
    badges = {}
    for row, (statement, _, verdict) in enumerate(entries(paper), 1):
        anchor = chapters.get(statement.id)
        target = f"../errata.html#{anchor}" if anchor else f"#statement-{row}"
        words = html.escape(f"{statement.id}: {verdict.partition(';')[0]}")
        badges[statement.id] = f'<a class="verdict {colour(verdict)}" href="{target}">{words}</a>'
    return badges


def errata_anchors(paper: str) -> dict[str, str]:
    """Where the Errata page works out each statement of a paper that fails or was not
    reproduced.
    """
    anchors, taken, chapter = {}, set(), ""
    for mark, title in re.findall(
        r"^(##+) (.*)$", (ROOT / "docs" / "errata.md").read_text(), re.MULTILINE
    ):
        anchor = unique(slugify(title, "-"), taken)
        if mark == "##":
            chapter = title
        elif chapter == paper or title.startswith(f"{paper}, "):
            anchors[title.rpartition(":")[0].removeprefix(f"{paper}, ")] = anchor
    return anchors


def claim_table(paper: str) -> str:
    """What the paper prints about its figures and tables beside what the recorded study
    measured, none left out.
    """
    from neuromanifold.report.terminal import in_words
    from neuromanifold_papers.recorded import read_claims

    rows = ["| where | the paper says | measured | borne out | |", "|---|---|---|---|---|"]
    for claim in read_claims(paper):
        cells = (
            in_words(claim[name]) for name in ("figure", "claim", "measured", "borne_out", "note")
        )
        rows.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    return folded(stacked(rows, "claims"), f"{len(rows) - 2} claims of figures and tables")


def stacked(rows: list[str], kind: str) -> str:
    """A table whose cells stand under one another where the page is narrow."""
    return "\n".join([f'<div class="stacked {kind}" markdown>', "", *rows, "", "</div>"])


def tally_table() -> str:
    """How many statements of each paper have which verdict."""
    from neuromanifold_papers.ledger import PAPERS

    counts = {paper: Counter(verdict for *_, verdict in entries(paper)) for paper in PAPERS}
    kinds = sorted(
        {kind for count in counts.values() for kind in count},
        key=lambda kind: ("fails" in kind, kind),
    )
    counts["all"] = sum(counts.values(), Counter())
    heads = [f"[{name}](paper/{name}.md)" if name in PAPERS else name for name in counts]
    rows = [f"| verdict | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    rows += [
        f"| {kind} | {' | '.join(str(count[kind]) for count in counts.values())} |"
        for kind in kinds
    ]
    return "\n".join(
        [*rows, f"| all | {' | '.join(str(count.total()) for count in counts.values())} |"]
    )


def colour(verdict: str) -> str:
    """A class of the style sheet."""
    if "fails" in verdict:
        return "fails"
    return "holds" if verdict.startswith(("holds", "no counterexample")) else "open"


def escaped(cell: str) -> str:
    """Text that stays in one cell of a table, with its brackets."""
    plain = cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
    return raised(plain).replace("_", "\\_").replace("*", "\\*")
