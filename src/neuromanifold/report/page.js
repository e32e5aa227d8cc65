"use strict";
// Hovering, zoom and keys for drawings that read well without them. Text is only ever set as text.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);

  const number = v => v === null || v === undefined ? "–" : Number.isInteger(v) ? v.toLocaleString("en") : String(+v.toPrecision(4));
  const say = (text, left, top) => {
    tip.textContent = text;
    tip.classList.toggle("shown", Boolean(text));
    const box = tip.getBoundingClientRect();
    const most = document.documentElement.clientWidth - box.width - 8;
    tip.style.left = scrollX + Math.max(4, Math.min(left + 12, most)) + "px";
    tip.style.top = scrollY + Math.max(4, top - box.height - 12) + "px";
  };
  const hush = () => say("", 0, 0);
  const place = (svg, x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
  const within = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const drawn = (name, attributes, text) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  function ticks(lo, hi, whole, count = 5) {
    const power = 10 ** Math.floor(Math.log10((hi - lo) / count));
    let step = [1, 2, 5, 10].map(m => m * power).find(s => s * count >= hi - lo);
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let k = Math.ceil(lo / step); k <= Math.floor(hi / step); k++) found.push(k * step);
    return found;
  }
  const power = e => "10" + String(Math.round(e)).replace(/./g, c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const short = v => Math.abs(v) >= 1e6 || (v && Math.abs(v) < 1e-3) ? v.toExponential(1) : (+v.toFixed(9)).toLocaleString("en");

  function chart(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const svg = figure.querySelector("svg"), inner = svg.querySelector(".inner"), plot = figure.querySelector(".plot");
    const [L, T, W, H] = data.box, level = y => data.log ? Math.log10(y) : y;
    let [x0, x1, y0, y1] = data.range, at = -1;
    const xs = [...new Set(data.series.flatMap(s => s.x))].sort((a, b) => a - b);
    const sx = x => L + (x - x0) / (x1 - x0) * W, sy = y => T + H - (level(y) - y0) / (y1 - y0) * H;
    const usable = y => y !== null && (!data.log || y > 0);

    function path(s) {
      let text = "", before = false;
      s.x.forEach((x, i) => {
        const here = usable(s.y[i]);
        if (here) {
          const a = sx(x).toFixed(1), b = sy(s.y[i]).toFixed(1);
          text += s.kind === "points" ? `M${a} ${b}h0` : !before ? `M${a} ${b}` : s.kind === "line" ? `L${a} ${b}` : `H${a}V${b}`;
        }
        before = here;
      });
      return text;
    }
    function rule(r) {
      if (r.width) return `M${sx(r.at - r.width / 2)} ${T}H${sx(r.at + r.width / 2)}V${T + H}H${sx(r.at - r.width / 2)}Z`;
      return r.vertical ? `M${sx(r.at)} ${T}v${H}` : `M${L} ${sy(r.at)}h${W}`;
    }
    function draw() {
      svg.querySelectorAll(".curves path").forEach((element, i) => element.setAttribute("d", path(data.series[i])));
      svg.querySelectorAll(".rules path").forEach((element, i) => element.setAttribute("d", rule(data.rules[i])));
      const xt = ticks(x0, x1, data.whole, 6), yt = ticks(y0, y1, data.log), high = t => T + H - (t - y0) / (y1 - y0) * H;
      svg.querySelector(".xt").replaceChildren(...xt.map(t => drawn("text", { x: sx(t), y: T + H + 17, "text-anchor": "middle" }, short(t))));
      svg.querySelector(".yt").replaceChildren(...yt.map(t =>
        drawn("text", { x: L - 6, y: high(t) + 4, "text-anchor": "end" }, data.log ? power(t) : short(t))));
      svg.querySelector(".grid").replaceChildren(...yt.map(t => drawn("line", { x1: L, x2: L + W, y1: high(t), y2: high(t) })));
    }
    // The vertical range follows what is visible; too few points to zoom on leave things as they are.
    function zoom(a, b) {
      const [lo, hi] = data.range;
      [a, b] = [Math.max(a, lo), Math.min(b, hi)];
      if (!(b > a) || xs.filter(x => x >= a && x <= b).length < 2) return;
      [x0, x1] = [a, b];
      const seen = data.series.flatMap(s => s.y.filter((y, i) => usable(y) && s.x[i] >= a && s.x[i] <= b)).map(level);
      const whole = a === lo && b === hi, low = Math.min(...seen), top = Math.max(...seen);
      const room = 0.06 * (top - low) || 0.5 * Math.abs(low) || 1;
      [y0, y1] = whole ? data.range.slice(2) : [low - room, top + room];
      draw();
      mark(-1);
      figure.classList.toggle("zoomed", !whole);
    }
    const around = factor => {
      const middle = at < 0 ? (x0 + x1) / 2 : xs[at], half = (x1 - x0) / 2 * factor;
      zoom(middle - half, middle + half);
    };
    const cursor = drawn("path", { class: "cursor" }), dots = drawn("g", { class: "dots" }), frame = drawn("rect", { class: "selection" });
    inner.append(cursor, dots, frame);

    function mark(index) {
      at = index;
      cursor.setAttribute("d", index < 0 ? "" : `M${sx(xs[index])} ${T}v${H}`);
      dots.replaceChildren();
      if (index < 0) return hush();
      const x = xs[index], lines = [`${data.x}: ${number(x)}`];
      let top = T + H;
      for (const s of data.series) {
        const i = s.x.indexOf(x);
        if (i < 0) continue;
        lines.push(`${s.name || data.y}: ${number(s.y[i])}`);
        if (!usable(s.y[i])) continue;
        dots.append(drawn("circle", { cx: sx(x), cy: sy(s.y[i]), r: 4 }));
        top = Math.min(top, sy(s.y[i]));
      }
      const where = place(svg, sx(x), top);
      say(lines.join("\n"), where.x, where.y);
    }
    const nearest = x => xs.reduce((best, v, i) => Math.abs(v - x) < Math.abs(xs[best] - x) ? i : best, 0);
    const value = event => x0 + (Math.min(Math.max(within(svg, event).x, L), L + W) - L) / W * (x1 - x0);
    let from = null;
    plot.addEventListener("pointermove", event => {
      if (from !== null) {
        const [a, b] = [sx(from), sx(value(event))].sort((p, q) => p - q);
        for (const [k, v] of Object.entries({ x: a, y: T, width: b - a, height: H })) frame.setAttribute(k, v);
      }
      mark(nearest(value(event)));
    });
    plot.addEventListener("pointerleave", () => mark(-1));
    plot.addEventListener("pointerdown", event => { from = value(event); });
    addEventListener("pointerup", event => {
      if (from === null) return;
      const [a, b] = [from, value(event)].sort((p, q) => p - q);
      from = null;
      frame.setAttribute("width", 0);
      if (sx(b) - sx(a) > 8) zoom(a, b);
    });
    plot.addEventListener("dblclick", () => zoom(...data.range));
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", "Plot. Arrow keys read the values, plus and minus zoom, Escape shows all.");
    plot.addEventListener("keydown", event => {
      const inside = i => i >= 0 && i < xs.length && xs[i] >= x0 && xs[i] <= x1 ? i : at;
      const first = xs.findIndex(x => x >= x0);
      const acts = {
        ArrowRight: () => mark(at < 0 ? first : inside(at + 1)), ArrowLeft: () => mark(at < 0 ? first : inside(at - 1)),
        Home: () => mark(first), End: () => mark(xs.findLastIndex(x => x <= x1)),
        "+": () => around(0.5), "=": () => around(0.5), "-": () => around(2), Escape: () => zoom(...data.range),
      };
      if (acts[event.key] === undefined || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      acts[event.key]();
    });
    plot.addEventListener("blur", () => mark(-1));
    const bar = document.createElement("div");
    bar.className = "tools";
    for (const [text, label, act] of [["+", "zoom in", () => around(0.5)], ["−", "zoom out", () => around(2)], ["all", "show all", () => zoom(...data.range)]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      bar.append(button);
    }
    const hint = document.createElement("span");
    hint.textContent = "drag to zoom";
    bar.append(hint);
    plot.after(bar);
  }

  function cells(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent), svg = figure.querySelector("svg");
    const cursor = drawn("rect", { class: "cell", width: data.size, height: data.size, visibility: "hidden" });
    svg.append(cursor);
    let at = -1;
    const state = share => share === 0 ? "always off" : share === 1000 ? "always on" : `on at ${(share / 10).toFixed(1)}%`;
    function mark(index) {
      at = index;
      cursor.setAttribute("visibility", index < 0 ? "hidden" : "visible");
      if (index < 0) return hush();
      const x = index % data.columns * data.size, y = Math.floor(index / data.columns) * data.size;
      cursor.setAttribute("x", x);
      cursor.setAttribute("y", y);
      const where = place(svg, x + data.size, y);
      say(`${data.name}, ${data.kind} ${index}: ${state(data.shares[index])}`, where.x, where.y);
    }
    svg.addEventListener("pointermove", event => {
      const { x, y } = within(svg, event);
      const index = Math.floor(y / data.size) * data.columns + Math.min(Math.max(Math.floor(x / data.size), 0), data.columns - 1);
      mark(index >= 0 && index < data.shares.length ? index : -1);
    });
    svg.addEventListener("pointerleave", () => mark(-1));
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("blur", () => mark(-1));
    svg.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: data.columns, ArrowUp: -data.columns }[event.key];
      if (event.key === "Escape") return mark(-1);
      if (by === undefined) return;
      event.preventDefault();
      const next = at < 0 ? 0 : at + by;
      if (next >= 0 && next < data.shares.length) mark(next);
    });
  }

  document.querySelectorAll("[data-tip]").forEach(element => {
    const show = () => { const box = element.getBoundingClientRect(); say(element.dataset.tip, box.left + box.width / 2, box.top); };
    for (const name of ["pointerenter", "focus"]) element.addEventListener(name, show);
    for (const name of ["pointerleave", "blur"]) element.addEventListener(name, hush);
  });
  document.querySelectorAll("figure.chart").forEach(chart);
  document.querySelectorAll("figure.cells").forEach(cells);
})();
