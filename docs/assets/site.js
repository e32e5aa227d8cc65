// Formulas: pymdownx.arithmatex leaves \( … \) and \[ … \] in the page; KaTeX, served from here, sets them.
for (const node of document.querySelectorAll(".arithmatex")) {
  renderMathInElement(node, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
}

// A comma or a full stop stays with a short formula before it; long ones may break.
for (const node of document.querySelectorAll("span.arithmatex")) {
  const text = node.nextSibling;
  const found = text?.nodeType === Node.TEXT_NODE && text.data.match(/^[.,;:!?)\]’”]+|^-\p{L}*/u);
  if (!found || node.offsetWidth > 160) continue;
  const joined = document.createElement("span");
  joined.className = "joined";
  node.replaceWith(joined);
  joined.append(node, found[0]);
  text.data = text.data.slice(found[0].length);
}

// A number stays with its exponent and its unit.
const MEASURE = /\d[\d.,]*(?:e[-−+]\d+|[\s\u00a0](?:ms|µs|s|min|h|%|[kMG]B|[KMG]iB|TF\/s)(?![\p{L}\d]))/gu;
for (const part of document.querySelectorAll(".md-content :is(p, li, td, th)")) {
  const texts = [...part.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
  for (const text of texts) {
    const pieces = [];
    let from = 0;
    for (const found of text.data.matchAll(MEASURE)) {
      const joined = document.createElement("span");
      joined.className = "joined";
      joined.append(found[0]);
      pieces.push(text.data.slice(from, found.index), joined);
      from = found.index + found[0].length;
    }
    if (pieces.length) text.replaceWith(...pieces, text.data.slice(from));
  }
}

// A picture opens by itself, to be enlarged.
for (const picture of document.querySelectorAll(".md-content :not(a) > img")) {
  const link = document.createElement("a");
  link.className = "picture";
  link.href = picture.src;
  picture.replaceWith(link);
  link.append(picture);
}

// Names in tables break at their joints, so that a table stays as wide as a telephone and words stay whole.
for (const code of document.querySelectorAll(".md-typeset td code")) {
  const texts = [];
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const parts = text.data.split(/(?<=\w[._(\/=-])|(?<=[a-z])(?=[A-Z])/);
    text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  }
}

// A table that is wider than a telephone is told row by row, each entry after the name of its column.
function words(cell) {
  const copy = cell.cloneNode(true);
  for (const hidden of copy.querySelectorAll(".katex-mathml")) hidden.remove();
  return copy.textContent.trim();
}
const frames = [...document.querySelectorAll(".md-content table")]
  .filter((table) => table.tHead && !table.closest(".stacked, .highlight"))
  .map((table) => {
    const names = [...table.tHead.rows[0].cells].map(words);
    for (const row of table.tBodies[0].rows)
      [...row.cells].forEach((cell, i) => { if (i && names[i] && cell.textContent.trim()) cell.dataset.column = names[i]; });
    const frame = document.createElement("div");
    table.replaceWith(frame);
    frame.append(table);
    return [frame, table];
  });
function fit() {
  for (const [frame, table] of frames) {
    frame.classList.remove("stacked");
    frame.classList.toggle("stacked", window.innerWidth < 720 && table.offsetWidth > frame.clientWidth + 1);
  }
}
window.addEventListener("load", fit);
window.addEventListener("resize", fit);

// A link into something folded opens it.
function unfold() {
  const goal = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = goal && goal.closest("details:not([open])");
  if (folded) { folded.open = true; goal.scrollIntoView(); }
}
window.addEventListener("hashchange", unfold);
window.addEventListener("load", unfold);
