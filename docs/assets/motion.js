// Moving pictures, drawn as SVG from a slider; no library. Each figure is a <div class="motion" id="…"> on the page.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const COLOURS = ["#0072B2", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#882255", "#44AA99", "#999933", "#AA7744"];
  const tag = (name, attributes, parent, text) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  };
  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  const minus = (number) => number.toFixed(2).replace("-", "−");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  // A button that moves a slider from where it is to its end, in about six seconds.
  function player(input, update) {
    const button = document.createElement("button");
    let timer = 0;
    const shown = (playing) => {
      button.textContent = playing ? "❚❚" : "▶";
      button.setAttribute("aria-label", playing ? "Pause" : "Play");
    };
    const stop = () => {
      timer = clearInterval(timer);
      shown(false);
    };
    const forward = () => {
      input.stepUp();
      update();
      if (Number(input.value) >= Number(input.max)) stop();
    };
    button.type = "button";
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(input.value) >= Number(input.max)) input.value = input.min;
      shown(true);
      timer = setInterval(forward, 6000 / ((input.max - input.min) / input.step));
    });
    input.addEventListener("pointerdown", stop);
    input.addEventListener("keydown", stop);
    shown(false);
    return button;
  }

  // A canvas with a slider, a button and a sentence; draw(svg, value) returns the sentence.
  function figure(id, { width, height, label, min, max, step, value, draw, describe }) {
    const home = document.getElementById(id);
    if (!home) return;
    const svg = tag("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe });
    const row = document.createElement("div");
    const name = document.createElement("label");
    const input = document.createElement("input");
    const said = document.createElement("p");
    Object.assign(input, { type: "range", min, max, step, value });
    const update = () => {
      svg.replaceChildren();
      said.textContent = draw(svg, Number(input.value));
    };
    row.className = "controls";
    said.setAttribute("aria-live", "polite");
    name.append(label, input);
    row.append(name);
    if (!still) row.append(player(input, update));
    home.append(svg, row, said);
    input.addEventListener("input", update);
    update();
  }

  // 1. f = v·w at one sample, target 1: the flow keeps v² − w², descent with rate η does not.
  const start = [0.9, 0.1];
  const plane = ([w, v]) => [40 + 150 * w, 300 - 150 * v];
  const balance = ([w, v]) => v * v - w * w;
  const move = ([w, v], rate) => [w - rate * (v * w - 1) * v, v - rate * (v * w - 1) * w];
  figure("leaf", {
    width: 430, height: 330, label: "learning rate", min: 0.01, max: 0.85, step: 0.01, value: 0.5,
    describe: "Gradient flow moves along a hyperbola; gradient descent leaves it.",
    draw(svg, rate) {
      tag("path", { d: `M40 300H420M40 300V20`, stroke: "currentColor", fill: "none", opacity: 0.5 }, svg);
      tag("text", { x: 402, y: 318 }, svg, "w");
      tag("text", { x: 20, y: 30 }, svg, "v");
      const range = [...Array(200).keys()].map((i) => i / 80);
      const fits = range.filter((w) => w > 0.5).map((w) => plane([w, 1 / w]));
      tag("path", { d: path(fits), stroke: "#009E73", "stroke-width": 2, fill: "none", "stroke-dasharray": "5 4" }, svg);
      const leaf = range.filter((w) => w * w + balance(start) >= 0).map((w) => plane([w, Math.sqrt(w * w + balance(start))]));
      tag("path", { d: path(leaf), stroke: "#0072B2", "stroke-width": 2, fill: "none" }, svg);
      let at = start;
      const steps = [at];
      for (let i = 0; i < 400 && Math.abs(at[0] * at[1] - 1) > 1e-3; i += 1) steps.push((at = move(at, rate)));
      tag("path", { d: path(steps.map(plane)), stroke: "#D55E00", "stroke-width": 1.5, fill: "none" }, svg);
      for (const point of steps.slice(0, 60)) {
        const [cx, cy] = plane(point);
        tag("circle", { cx, cy, r: 3, fill: "#D55E00" }, svg);
      }
      const lost = balance(at) - balance(start);
      return `Blue: the leaf v² − w² = ${minus(balance(start))}, which gradient flow never leaves. Green: where v·w = 1, the fits. Orange: gradient descent, ${steps.length - 1} steps; it ends at v² − w² = ${minus(balance(at))}, off by ${minus(lost)}.`;
    },
  });

  // 2. All factorisations of a real cubic into a quadratic and a linear filter, with the balanced kernel of each.
  const multiply = (a, b) => {
    const out = Array(a.length + b.length - 1).fill(0);
    a.forEach((p, i) => b.forEach((q, j) => (out[i + j] += p * q)));
    return out;
  };
  const norm = (a) => Math.hypot(...a);
  const kernel = (quadratic, linear) => {
    const scale = Math.sqrt(norm(linear) / norm(quadratic));
    const [a, b] = [quadratic.map((t) => t * scale), linear.map((t) => t / scale)];
    const columns = [];
    for (let i = 0; i < 3; i += 1) columns.push(multiply(b, [0, 1, 2].map((j) => +(i === j))));
    for (let i = 0; i < 2; i += 1) columns.push(multiply(a, [0, 1].map((j) => +(i === j))));
    return [0, 1, 2, 3].map((i) => [0, 1, 2, 3].map((j) => columns.reduce((sum, c) => sum + c[i] * c[j], 0)));
  };
  figure("fibre", {
    width: 430, height: 300, label: "middle of the cubic", min: -0.6, max: 0.6, step: 0.02, value: 0.3,
    describe: "A cubic, its real roots, and the tangent kernel of each of its factorisations.",
    draw(svg, t) {
      const double = Math.abs(t) < 1e-9;
      const middle = double ? [0.3, 0.3] : t > 0 ? [0.3 - Math.sqrt(t), 0.3 + Math.sqrt(t)] : [];
      const all = [-0.9, ...middle];
      const roots = [...new Set(all)];
      const quadratic = [0.09 - t, -0.6, 1];
      const cubic = (z) => (z + 0.9) * (quadratic[0] + quadratic[1] * z + z * z);
      const curve = [...Array(121).keys()].map((i) => -1.4 + i / 43).map((z) => [20 + (z + 1.4) * 139, 80 - 40 * cubic(z)]).filter(([, y]) => y > 5 && y < 155);
      tag("path", { d: "M20 80H410", stroke: "currentColor", opacity: 0.4 }, svg);
      tag("path", { d: path(curve), stroke: "currentColor", fill: "none", "stroke-width": 2 }, svg);
      const kernels = roots.map((root, i) => {
        tag("circle", { cx: 20 + (root + 1.4) * 139, cy: 80, r: 5, fill: COLOURS[i] }, svg);
        const rest = middle.length ? multiply(...all.toSpliced(all.indexOf(root), 1).map((r) => [-r, 1])) : quadratic;
        return kernel(rest, [-root, 1]);
      });
      kernels.forEach((K, n) => {
        const left = 20 + n * 135;
        K.forEach((row, i) => row.forEach((entry, j) => {
          const fill = entry >= 0 ? "#0072B2" : "#D55E00";
          tag("rect", { x: left + 26 * j, y: 165 + 26 * i, width: 25, height: 25, fill, "fill-opacity": Math.min(1, Math.abs(entry) / 4) }, svg);
        }));
        tag("rect", { x: left - 2, y: 163, width: 107, height: 107, fill: "none", stroke: COLOURS[n], "stroke-width": 2 }, svg);
        tag("text", { x: left, y: 290 }, svg, `K₁₁ = ${K[0][0].toFixed(2)}`);
      });
      if (double) return "A double root: two ways to take out one of the roots, two kernels. Here two of the three parameters meet.";
      return roots.length === 1
        ? "One real root: one factorisation into a quadratic and a linear filter (up to sign), one kernel. Gradient flow is a flow on functions here."
        : "Three real roots: the linear filter may take any of them. Three parameters (up to sign) give this same function with the same balance, and three different kernels: where training goes depends on more than the function.";
    },
  });

  // 3 and 4. A recorded training.
  const record = window.MOTION;
  if (!record) return;
  const last = record.frames.length - 1;
  figure("fold", {
    width: 430, height: 260, label: "training", min: 0, max: last, step: 1, value: 0,
    describe: "The function of a small ReLU network as it is trained, with the kinks of its first layer.",
    draw(svg, index) {
      const frame = record.frames[index];
      const values = [...record.target, ...record.frames.flatMap((each) => each.f)];
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const place = (v, i, all) => [20 + (390 * i) / (all.length - 1), 225 - (200 * (v - low)) / (high - low)];
      tag("path", { d: path(record.target.map(place)), stroke: "#009E73", fill: "none", "stroke-width": 2, "stroke-dasharray": "5 4" }, svg);
      tag("path", { d: path(frame.f.map(place)), stroke: "#0072B2", fill: "none", "stroke-width": 2.5 }, svg);
      tag("path", { d: "M20 240H410", stroke: "currentColor", opacity: 0.5 }, svg);
      for (const kink of frame.kinks) tag("path", { d: `M${20 + 195 * (kink + 1)} 232v16`, stroke: "#D55E00", "stroke-width": 2 }, svg);
      return `Epoch ${frame.epoch}: the sample of 60 points meets ${frame.regions} linear regions. Orange: where neurons of the first layer fold the line; green: the target.`;
    },
  });
  const names = [...new Set(record.frames.flatMap((frame) => frame.account.map(([name]) => name)))];
  const colour = (name) => (name === "unexplained" ? "#999999" : COLOURS[names.indexOf(name) % COLOURS.length]);
  figure("account", {
    width: 430, height: 200, label: "training", min: 0, max: last, step: 1, value: 0,
    describe: "Where the parameters of the network are: functional dimension, symmetries, unexplained.",
    draw(svg, index) {
      const frame = record.frames[index];
      let left = 20;
      frame.account.forEach(([name, count], i) => {
        const width = (390 * count) / record.parameters;
        tag("rect", { x: left, y: 20, width, height: 40, fill: colour(name) }, svg);
        left += width;
        const [x, y] = [20 + 192 * (i % 2), 90 + 24 * Math.floor(i / 2)];
        tag("rect", { x, y: y - 11, width: 12, height: 12, fill: colour(name) }, svg);
        tag("text", { x: x + 18, y }, svg, `${name}: ${count}`);
      });
      return `Epoch ${frame.epoch}: ${record.parameters} parameters, every number an exact rank.`;
    },
  });
})();
