"""The look of every page: light and dark, narrow and wide, on paper. Text has a contrast of at
least 4.5 to its ground.
"""

from neuromanifold.numerics.palette import DARK, LIGHT


def _name_colours(colours: tuple[str, ...]) -> str:
    return " ".join(f"--p{k}: {colour};" for k, colour in enumerate(colours, 1))


_PARTS = f"""
:root {{ {_name_colours(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_name_colours(DARK)} }} }}
{" ".join(f".p{k} {{ --k: var(--p{k}); }}" for k in range(1, len(LIGHT) + 1))}
"""

STYLE = (
    _PARTS
    + """
:root { color-scheme: light dark; --ink: #222; --soft: #555; --line: #e1e4e8; --ground: #fff; --tint: #f3f4f6; --accent: #005f96;
  --good: #00664a; --sampled: #005f96; --bad: #a33d00; --amended: #7a4f00; --open: #5b4a8a; --differs: #fdecea;
  --c1: #0072b2; --c2: #c04f00; --c3: #00805d; --c5: #56b4e9; --off: #c3c8cf; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #b0b5bd; --line: #3a3f47; --ground: #16181c;
  --tint: #24272d; --accent: #7cc4f2; --good: #4fd0a5; --sampled: #7cc4f2; --bad: #ff9a62; --amended: #e6b450;
  --open: #b8a6f0; --differs: #3d2320;
  --c1: #56b4e9; --c2: #ff9a62; --c3: #35c399; --c5: #2f7fb3; --off: #4a5058; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto; padding: 1.5rem 1.2rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p, li, td, th, dt, dd, figcaption, summary, h1, h2, h3 { overflow-wrap: anywhere; }
code, pre { font-size: .9em; background: var(--tint); border-radius: .25em; overflow-wrap: anywhere; } code { padding: .1em .35em; }
pre { padding: .6rem; white-space: pre-wrap; }
a { color: var(--accent); } a:focus-visible, button:focus-visible, summary:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; } .skip:focus { position: static; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; font-weight: 400; }
h3 small { font-weight: 400; color: var(--soft); font-size: .92em; }
figcaption, footer, .soft { color: var(--soft); font-size: .92rem; } footer { margin-top: 2.5rem; }
details { margin: .2rem 0; color: var(--soft); font-size: .92rem; } summary { cursor: pointer; }
.tip { position: absolute; left: 0; top: 0; z-index: 9; max-width: min(22rem, 92vw);
  padding: .3rem .55rem; border-radius: .3rem; background: var(--ink);
  color: var(--ground); font-size: .85rem; line-height: 1.35; white-space: pre-line; pointer-events: none; opacity: 0; }
.tip.shown { opacity: 1; }
@page { margin: 16mm; }
@media print { :root { color-scheme: light; } body { max-width: none; font-size: 10.5pt; padding: 0; }
  figure, tr, .verdict { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .tip, .tools, .skip, .download, nav { display: none !important; }
  a { color: inherit; } * { print-color-adjust: exact; } }
"""
)

PAGE_STYLE = """
body { max-width: 64rem; }
.big { list-style: none; padding: 0; margin: 1.2rem 0; display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); }
.big li { background: var(--tint); border-radius: .5rem; padding: .7rem 1rem; }
.big b { display: block; font-size: 2.6rem; line-height: 1.15; color: var(--accent); font-variant-numeric: tabular-nums; }
.big span { color: var(--soft); }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1.5rem; }
figure.net, figure.wide { max-width: none; } .net svg { max-width: 31rem; } .net circle, .net rect { fill: var(--k); } .net .title { font-weight: 600; }
.net .join { fill: var(--tint); }
.steps li { margin: .35rem 0; overflow-wrap: anywhere; } .scroll { overflow-x: auto; }
.blocks { width: auto; } .blocks td { text-align: right; white-space: nowrap; } .blocks th { overflow-wrap: normal; } .blocks thead th { color: var(--soft); }
.blocks svg { display: block; } .blocks rect { fill: var(--k); }
.model { margin: .2rem 0; } .model code { font-size: .85em; }
.verdict { border-left: 4px solid var(--accent); padding: .1rem 0 .1rem .9rem; margin: 1.2rem 0; }
.verdict p { margin: .3rem 0; } .verdict p:first-child { font-size: 1.15rem; }
nav ul { list-style: none; padding: 0; margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .92rem; }
.term { color: inherit; text-decoration: underline dotted; text-underline-offset: .2em; }
@media (min-width: 40.01rem) { .facts th { white-space: nowrap; width: 1%; } .facts .none th { white-space: normal; } }
.facts td { text-align: right; white-space: nowrap; font-weight: 600; }
.facts td + td { text-align: left; white-space: normal; font-weight: 400; color: var(--soft); }
.facts .sub th { padding-left: 1.6rem; color: var(--soft); } .facts .none td { font-weight: 400; color: var(--soft); }
.pairs { width: auto; } .pairs td { text-align: right; }
dt { font-weight: 600; margin-top: .6rem; scroll-margin-top: 1rem; }
dd { margin: 0; color: var(--soft); } dt:target { color: var(--accent); }
figure { margin: .6rem 0; max-width: 40rem; position: relative; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
svg .inner { overflow: hidden; } svg text { fill: var(--ink); font: 11.5px system-ui, sans-serif; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: .5rem 0 .3rem; padding: 0; font-size: .88rem; }
.key { display: inline-block; width: 1.4em; margin-right: .45em; vertical-align: .2em; border-top: 3px solid var(--k); }
.key.dashed, .key.rule { border-top: 2px dashed var(--k); }
.key.dot { width: .9em; height: .9em; vertical-align: -.1em; border: 0; border-radius: 2px; background-color: var(--k); }
.key.striped { background-image: repeating-linear-gradient(45deg, var(--ground) 0 1.5px, transparent 1.5px 4px); }
.key.dotted { background-image: radial-gradient(var(--ground) 28%, transparent 32%); background-size: 4px 4px; }
.gap { fill: var(--ground); }
.c1 { --k: var(--c1); } .c2 { --k: var(--c2); } .c3 { --k: var(--c3); } .c5 { --k: var(--c5); }
.soft { --k: var(--soft); } .off { --k: var(--off); }
.on { --k: var(--c3); }
.s1 { --k: color-mix(in srgb, var(--c1) 35%, var(--ground)); } .s2 { --k: color-mix(in srgb, var(--c1) 65%, var(--ground)); }
.s3 { --k: var(--c1); }
.plot { touch-action: pan-y; cursor: crosshair; user-select: none; border-radius: .3rem; }
.grid line { stroke: var(--line); } .frame { fill: none; stroke: var(--soft); }
.line, .step { fill: none; stroke: var(--k); stroke-width: 1.8; stroke-linejoin: round; }
path.dashed { stroke-dasharray: 5 4; stroke-width: 1.3; }
path.hidden { stroke-width: 6; opacity: .45; }
.points { fill: none; stroke: var(--k); stroke-width: 4.2; stroke-linecap: round; }
path.rule { fill: none; stroke: var(--k); stroke-dasharray: 4 3; } .band { fill: var(--k); opacity: .25; }
.bar > rect[class] { fill: var(--k); }
.cells path { fill: var(--k); } .cell { fill: none; stroke: var(--ink); stroke-width: 1.6; }
.cursor { stroke: var(--soft); stroke-width: 1; } .dots circle { fill: var(--ground); stroke: var(--ink); stroke-width: 1.6; }
.selection { fill: var(--accent); opacity: .18; }
.tools { display: flex; gap: .35rem; align-items: center; font-size: .82rem; color: var(--soft); margin: .1rem 0 .3rem; }
.tools button { font: inherit; min-width: 2.2rem; padding: .15rem .5rem; color: var(--ink); background: var(--tint);
  border: 1px solid var(--line); border-radius: .3rem; cursor: pointer; }
.download { display: inline-block; padding: .35rem .8rem; border: 1px solid var(--accent); border-radius: .3rem; text-decoration: none; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 0 1.5rem; }
.panels > div { min-width: 0; }
@media (max-width: 40rem) {
  .blocks svg { display: none; } .blocks td, .blocks th { padding: .3rem .25rem; font-size: .88rem; }
  svg text { font-size: 14.5px; }
  .facts tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--line); padding: .3rem 0; }
  .facts th, .facts td { border: 0; padding: 0 .2rem; } .facts td + td { grid-column: 1 / -1; font-size: .92rem; } }
"""
