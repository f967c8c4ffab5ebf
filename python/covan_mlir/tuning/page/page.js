"use strict";
// A section for each model: its kernels with their curves, and the roofline with a point before and after for each.

const SVG = "http://www.w3.org/2000/svg";

function element(parent, name, attributes = {}, text = "") {
  const node = name in SHAPES ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return parent.appendChild(node);
}
const SHAPES = { svg: 1, path: 1, circle: 1, text: 1, line: 1 };

const milliseconds = (seconds) => (seconds === null ? "-" : (seconds * 1e3).toPrecision(4));

// Best time over the default's, by schedules that were tried; dashed: what the roofline has.
function curve(parent, row) {
  const width = 220, height = 60, points = [[0, 1], ...row.curve.map(([, tried, best]) => [tried, best])];
  const svg = element(parent, "svg", { width, height, role: "img", "aria-label": `best so far: ${row.best.toFixed(3)}` });
  const last = Math.max(1, ...points.map(([tried]) => tried));
  const x = (tried) => 4 + (tried / last) * (width - 8), y = (ratio) => 4 + (1 - ratio) * (height - 8);
  let path = `M${x(points[0][0])} ${y(points[0][1])}`;
  for (const [tried, best] of points.slice(1)) path += `H${x(tried)}V${y(best)}`;
  element(svg, "path", { class: "curve", d: path });
  if (row.roof !== null && row.seconds) {
    const level = y(Math.min(1, row.roof / row.seconds));
    element(svg, "line", { class: "roof", x1: 4, x2: width - 4, y1: level, y2: level });
  }
}

// Operations a second by operations a byte, both as powers of ten.
function roofline(parent, model, light) {
  const rows = model.rows.filter((row) => row.flops > 0 && row.seconds);
  if (!rows.length || !model.peak) return [];
  const width = 640, height = 280, edge = 36;
  const svg = element(parent, "svg", { width, height, class: "roofline", role: "img", "aria-label": "roofline" });
  const ridge = Math.log10(model.peak / model.bandwidth);
  const xs = rows.map((row) => Math.log10(row.flops / row.moved));
  const rates = rows.flatMap((row) => [row.flops / row.seconds, row.flops / (row.seconds * row.best)]).map(Math.log10);
  const left = Math.floor(Math.min(ridge, ...xs)), right = Math.ceil(Math.max(ridge, ...xs) + 0.1);
  const top = Math.ceil(Math.max(Math.log10(model.peak), ...rates)), bottom = Math.floor(Math.min(top - 2, ...rates));
  const x = (value) => edge + ((value - left) / (right - left)) * (width - 2 * edge);
  const y = (value) => edge + ((top - value) / (top - bottom)) * (height - 2 * edge);
  element(svg, "path", { class: "axis", d: `M${x(left)} ${y(top)}V${y(bottom)}H${x(right)}` });
  element(svg, "text", { x: x(left), y: height - 12 }, `10^${left} operations a byte`);
  element(svg, "text", { x: x(right) - 30, y: height - 12 }, `10^${right}`);
  element(svg, "text", { x: 4, y: 16 }, `GFLOP/s, 10^${bottom - 9} to 10^${top - 9}`);
  const start = Math.max(left, ridge + bottom - Math.log10(model.peak));
  const level = Math.log10(model.bandwidth) + start;
  element(svg, "path", {
    class: "roof", d: `M${x(start)} ${y(level)}L${x(ridge)} ${y(Math.log10(model.peak))}H${x(right)}`,
  });
  return rows.flatMap((row) =>
    [1, row.best].map((ratio, best) => {
      const [cx, cy] = [Math.log10(row.flops / row.moved), Math.log10(row.flops / (row.seconds * ratio))];
      const dot = element(svg, "circle", { class: best ? "best" : "default", cx: x(cx), cy: y(cy), r: 5 });
      dot.addEventListener("pointerenter", () => light(row.kernel));
      return [row.kernel, dot];
    }),
  );
}

function section(parent, model) {
  element(parent, "h1", {}, model.model);
  const faster = model.ratio < 1 ? `${(1 / model.ratio).toFixed(3)} times as fast with what was measured` : "nothing is faster";
  element(parent, "p", {}, `a call takes ${milliseconds(model.seconds)} ms as predicted; ${faster}`);
  const marked = [];
  const light = (kernel) => {
    for (const [name, node] of marked) node.toggleAttribute("data-lit", name === kernel);
  };
  const table = element(parent, "table");
  const head = element(element(table, "thead"), "tr");
  for (const name of ["kernel", "ms", "best ms", "roofline ms", "runs", "tried", "best so far", "schedule"]) element(head, "th", {}, name);
  const body = element(table, "tbody");
  for (const row of model.rows) {
    const line = element(body, "tr", { tabindex: 0 });
    element(line, "td", {}, row.what || row.kernel);
    const best = row.seconds === null ? null : row.seconds * row.best;
    for (const text of [milliseconds(row.seconds), milliseconds(best), milliseconds(row.roof), row.count, `${row.tried}/${row.points}`])
      element(line, "td", { class: "number" }, String(text));
    curve(element(line, "td"), row);
    element(element(line, "td"), "code", {}, row.chosen || `${row.default}, as predicted`);
    for (const event of ["pointerenter", "focus"]) line.addEventListener(event, () => light(row.kernel));
    marked.push([row.kernel, line]);
  }
  marked.push(...roofline(element(parent, "p"), model, light));
  for (const [kernel, why] of Object.entries(model.left)) element(parent, "p", {}, `${kernel} was not tuned: ${why}`);
}

for (const model of JSON.parse(document.getElementById("content").textContent))
  section(element(document.getElementById("models"), "section"), model);
