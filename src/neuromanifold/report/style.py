"""The look of every page: light and dark, narrow and wide, on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #555; --line: #e1e4e8; --ground: #fff; --tint: #f3f4f6; --accent: #0072B2;
  --good: #00664a; --sampled: #005f96; --bad: #a33d00; --amended: #7a4f00; --differs: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #b0b5bd; --line: #3a3f47; --ground: #16181c; --tint: #24272d;
  --accent: #56B4E9; --good: #4fd0a5; --sampled: #7cc4f2; --bad: #ff9a62; --amended: #e6b450; --differs: #3d2320; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto; padding: 1.5rem 1.2rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p, li, td, th, figcaption { overflow-wrap: anywhere; }
code, pre { font-size: .9em; background: var(--tint); border-radius: .25em; overflow-wrap: anywhere; } code { padding: .1em .35em; }
pre { padding: .6rem; white-space: pre-wrap; }
a { color: var(--accent); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; font-weight: 400; }
figure { margin: .6rem 0; max-width: 36rem; } figure svg { width: 100%; height: auto; color: var(--ink); }
figcaption, footer, .soft { color: var(--soft); font-size: .92rem; } footer { margin-top: 2.5rem; }
details { margin: .2rem 0; color: var(--soft); font-size: .92rem; } summary { cursor: pointer; }
@media print { body { max-width: none; font-size: 11pt; } figure, tr { break-inside: avoid; } details { display: block; } }
"""
