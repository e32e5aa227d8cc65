// Formulas: pymdownx.arithmatex leaves \( … \) and \[ … \] in the page; KaTeX, served from here, sets them.
for (const node of document.querySelectorAll(".arithmatex")) {
  renderMathInElement(node, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
}

// Names in tables break at their joints, so that a table stays as wide as a telephone and words stay whole.
for (const code of document.querySelectorAll(".md-typeset td code")) {
  const texts = [];
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const parts = text.data.split(/(?<=[._(\/=-])|(?<=[a-z])(?=[A-Z])/);
    text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  }
}
