// Draws /history.json once a second. Names come in as text, never as markup.
"use strict";
const SVG = "http://www.w3.org/2000/svg", LEFT = 62, WIDTH = 380, TOP = 10, HEIGHT = 150;

function element(name, attributes = {}, text = "") {
  const svg = ["svg", "path", "line", "text", "circle"].includes(name);
  const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const short = (v) => v === null ? "–" : Number.isInteger(v) ? v.toLocaleString("en") : Number(v.toPrecision(4)).toString();
const last = (values) => values.reduce((found, v) => v === null ? found : v, null);

function chart(steps, panel) {
  const all = panel.curves.flatMap((c) => c.values).filter((v) => v !== null);
  let low = Math.min(...all), high = Math.max(...all);
  if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
  const from = steps[0], to = steps[steps.length - 1] === from ? from + 1 : steps[steps.length - 1];
  const x = (s) => LEFT + WIDTH * (s - from) / (to - from);
  const y = (v) => TOP + HEIGHT * (high - v) / (high - low);
  const drawn = element("svg", { viewBox: `0 0 ${LEFT + WIDTH + 12} ${TOP + HEIGHT + 24}`, role: "img", "aria-label": panel.title });
  for (const v of [low, (low + high) / 2, high]) {
    drawn.append(element("line", { x1: LEFT, x2: LEFT + WIDTH, y1: y(v), y2: y(v) }));
    drawn.append(element("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, short(Number(v.toPrecision(3)))));
  }
  drawn.append(element("text", { x: LEFT, y: TOP + HEIGHT + 18 }, short(from)));
  drawn.append(element("text", { x: LEFT + WIDTH, y: TOP + HEIGHT + 18, "text-anchor": "end" }, `step ${short(steps[steps.length - 1])}`));
  panel.curves.forEach((curve, k) => {
    let path = "", open = false;
    curve.values.forEach((v, i) => {
      if (v === null) { open = false; return; }
      path += `${open ? "L" : "M"}${x(steps[i]).toFixed(1)} ${y(v).toFixed(1)}`;
      open = true;
      if (i === steps.length - 1) drawn.append(element("circle", { class: `k${k % 7}`, cx: x(steps[i]), cy: y(v), r: 3 }));
    });
    drawn.append(element("path", { class: `k${k % 7}`, d: path }));
  });
  return drawn;
}

function section(steps, panel) {
  const made = element("section"), legend = element("ul");
  panel.curves.forEach((curve, k) => {
    const item = element("li", { class: `k${k % 7}` });
    if (panel.curves.length > 1) item.append(element("i"), `${curve.label} `);
    item.append(element("b", {}, short(last(curve.values))));
    legend.append(item);
  });
  made.append(element("h2", {}, panel.title), legend, chart(steps, panel));
  return made;
}

let shown = "";
async function update() {
  const state = document.getElementById("state");
  try {
    const text = await (await fetch("history.json", { cache: "no-store" })).text();
    if (text !== shown) {
      const history = JSON.parse(text), n = history.steps.length;
      if (n) {
        document.getElementById("panels").replaceChildren(...history.panels.map((p) => section(history.steps, p)));
        state.textContent = `step ${short(history.steps[n - 1])}, ${n} record${n === 1 ? "" : "s"}`;
      }
      const out = Object.entries(history.left_out).map(([name, why]) => element("li", {}, `${name}: ${why}`));
      document.getElementById("left-out").replaceChildren(...out);
      shown = text;
    }
  } catch {
    state.textContent = "the training has ended or the page was closed; these are its last records";
    clearInterval(timer);
  }
}
const timer = setInterval(update, 1000);
update();
