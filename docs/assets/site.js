// Formulas: pymdownx.arithmatex leaves \( … \) and \[ … \] in the page; KaTeX, served from here, sets them.
for (const node of document.querySelectorAll(".arithmatex")) {
  renderMathInElement(node, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
}
