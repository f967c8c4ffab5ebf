"use strict";
// A graph on two canvases: what does not change on the lower, what is lit on the upper. Only what is in view is drawn.

const WIDTH = 150, HEIGHT = 36, ACROSS = 174, DOWN = 70;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Graph {
  /**
   * @param root the pane.
   * @param kind "action" or "site".
   * @param layout places of nodes, from covan_mlir.reporting.layout.
   * @param listen {hover(id or null), select(id)}.
   */
  constructor(root, kind, nodes, layout, listen) {
    Object.assign(this, { kind, nodes, listen, scale: 1, dx: 0, dy: 0, active: 0, lit: null, chosen: null });
    this.colour = () => "gray";
    this.size = nodes.length;
    this.x = Float64Array.from(layout.x, (x) => x * ACROSS);
    this.y = Float64Array.from(layout.layer, (layer) => layer * DOWN);
    this.layers = [];
    layout.layer.forEach((layer, id) => (this.layers[layer] ??= []).push(id));
    this.layers.forEach((row) => row.sort((a, b) => this.x[a] - this.x[b]));
    this.right = this.x.reduce((a, b) => Math.max(a, b), 0);
    this.routes = this.#routes(layout);
    this.#build(root);
    new ResizeObserver(() => this.#resize()).observe(this.box);
  }

  /** Of each edge the points that it passes, and its extent. */
  #routes(layout) {
    const routes = [];
    this.nodes.forEach((node, to) => node.inputs.forEach((from) => {
      const span = layout.layer[to] - layout.layer[from];
      const lane = layout.lanes[from];
      const passed = span > 1 && lane.length >= span - 1 ? lane.slice(0, span - 1) : [];
      const points = [this.x[from], this.y[from] + HEIGHT / 2];
      passed.forEach((x, step) => points.push(x * ACROSS, (layout.layer[from] + step + 1) * DOWN));
      points.push(this.x[to], this.y[to] - HEIGHT / 2);
      let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
      for (let i = 0; i < points.length; i += 2) {
        left = Math.min(left, points[i]); right = Math.max(right, points[i]);
        top = Math.min(top, points[i + 1]); bottom = Math.max(bottom, points[i + 1]);
      }
      routes.push({ from, to, points, left, right, top, bottom, far: span > 1 && !passed.length });
    }));
    return routes;
  }

  #build(root) {
    const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
    const heading = root.querySelector("h2");
    const bar = h("div", { class: "bar" });
    heading.replaceWith(bar);
    bar.append(heading, button("−", "Zoom out", () => this.zoom(1 / 1.4)), button("+", "Zoom in", () => this.zoom(1.4)),
      button("Fit", "Show all", () => this.fit()));
    this.option = h("div", { class: "hidden", role: "option", id: `${this.kind}-option`, "aria-selected": "false" });
    this.lower = h("canvas", { "aria-hidden": "true" });
    this.upper = h("canvas", { "aria-hidden": "true" });
    this.box = h("div", {
      class: "graph", role: "listbox", tabindex: 0, "aria-labelledby": heading.id,
      "aria-activedescendant": this.size ? this.option.id : null,
      "aria-description": "Up and down: program order. Left: an input. Right: a reader. Enter: select.",
    }, this.lower, this.upper, this.option);
    root.append(this.box);
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("focus", () => this.size && this.box.matches(":focus-visible") && this.activate(this.active));
    this.box.addEventListener("blur", () => this.listen.hover(null));
    this.box.addEventListener("pointermove", (event) => this.#move(event));
    this.box.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, y: event.clientY, moved: false };
      this.box.setPointerCapture(event.pointerId);
    });
    this.box.addEventListener("pointerup", (event) => {
      const dragged = this.drag?.moved;
      this.drag = null;
      const id = dragged ? null : this.at(event);
      if (id !== null) this.listen.select(this.active = id);
    });
    this.box.addEventListener("pointercancel", () => (this.drag = null));
    this.box.addEventListener("pointerleave", () => this.listen.hover(null));
    this.box.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 200), event);
      else this.pan(-event.deltaX, -event.deltaY);
    }, { passive: false });
  }

  #move(event) {
    if (!this.drag) {
      const id = this.at(event);
      this.box.style.cursor = id === null ? "grab" : "pointer";
      this.listen.hover(id);
      return;
    }
    const [x, y] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.moved && Math.hypot(x, y) < 4) return;
    Object.assign(this.drag, { x: event.clientX, y: event.clientY, moved: true });
    this.pan(x, y);
  }

  #key(event) {
    const { inputs } = this.nodes[this.active] ?? { inputs: [] };
    const step = {
      ArrowDown: Math.min(this.active + 1, this.size - 1), ArrowUp: Math.max(this.active - 1, 0),
      ArrowLeft: inputs[0] ?? this.active, ArrowRight: readers[this.kind][this.active]?.[0] ?? this.active,
      Home: 0, End: this.size - 1,
    }[event.key];
    if (!this.size || event.altKey || event.ctrlKey || event.metaKey) return;
    if (step !== undefined) this.activate(step);
    else if (event.key === "Enter" || event.key === " ") this.listen.select(this.active);
    else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  /** Make a node the one that the keyboard is at. */
  activate(id) {
    this.active = id;
    this.option.textContent = `${title[this.kind](id)}, ${subtitle[this.kind](id)}`;
    this.option.setAttribute("aria-posinset", id + 1);
    this.option.setAttribute("aria-setsize", this.size);
    this.option.setAttribute("aria-selected", String(this.chosen === id));
    this.reveal(id);
    this.listen.hover(id);
  }

  /** The node under the pointer, or null. */
  at(event) {
    const box = this.box.getBoundingClientRect();
    const x = (event.clientX - box.left - this.dx) / this.scale, y = (event.clientY - box.top - this.dy) / this.scale;
    const row = this.layers[Math.round(y / DOWN)] ?? [];
    let [low, high] = [0, row.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x[row[middle]] < x - WIDTH / 2) low = middle + 1; else high = middle;
    }
    const id = row[low];
    if (id === undefined || Math.abs(this.x[id] - x) > WIDTH / 2 || Math.abs(this.y[id] - y) > HEIGHT / 2) return null;
    return id;
  }

  /** Where a node is on the screen. */
  screen(id) {
    const box = this.box.getBoundingClientRect();
    return [box.left + this.x[id] * this.scale + this.dx, box.top + this.y[id] * this.scale + this.dy];
  }

  pan(x, y) {
    this.dx += x;
    this.dy += y;
    this.draw();
  }

  zoom(factor, event) {
    const box = this.box.getBoundingClientRect();
    const [x, y] = event ? [event.clientX - box.left, event.clientY - box.top] : [this.wide / 2, this.high / 2];
    const scale = Math.min(3, Math.max(0.004, this.scale * factor));
    this.dx = x - (x - this.dx) * (scale / this.scale);
    this.dy = y - (y - this.dy) * (scale / this.scale);
    this.scale = scale;
    this.draw();
  }

  fit(least = 0.004) {
    const [width, height] = [this.right + ACROSS, this.layers.length * DOWN + 20];
    this.scale = Math.max(least, Math.min(1.2, this.wide / width, this.high / height));
    const roots = this.layers[0] ?? [];
    const middle = width * this.scale <= this.wide || !roots.length ? this.right / 2 : this.x[roots[roots.length >> 1]];
    this.dx = this.wide / 2 - middle * this.scale;
    this.dy = DOWN / 2 * this.scale + 6;
    this.draw();
  }

  /** Bring nodes into view: the first of them, if none is. */
  reveal(...ids) {
    if (!this.wide) this.later = ids; // there is no view yet
    const seen = (id) => {
      const [x, y] = [this.x[id] * this.scale + this.dx, this.y[id] * this.scale + this.dy];
      return x > 40 && y > 20 && x < this.wide - 40 && y < this.high - 20;
    };
    if (!this.wide || !ids.length || (ids.some(seen) && this.scale > 0.3)) return;
    this.scale = Math.max(this.scale, 0.7);
    this.dx = this.wide / 2 - this.x[ids[0]] * this.scale;
    this.dy = this.high / 2 - this.y[ids[0]] * this.scale;
    this.draw();
  }

  #resize() {
    const first = !this.wide;
    [this.wide, this.high] = [this.box.clientWidth, this.box.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.lower, this.upper]) {
      canvas.width = Math.max(1, this.wide * ratio);
      canvas.height = Math.max(1, this.high * ratio);
    }
    if (!first) return this.draw();
    this.fit(0.5);
    this.reveal(...(this.later ?? []));
  }

  /** What is lit: a map of ids to whether strongly, or null; and which node is chosen. */
  light(lit, chosen) {
    this.lit = lit;
    this.chosen = chosen;
    this.#ask("upper");
  }

  draw() {
    this.#ask("lower");
    this.#ask("upper");
  }

  #ask(which) {
    this.wanted ??= new Set();
    if (!this.wanted.size) requestAnimationFrame(() => this.paint());
    this.wanted.add(which);
  }

  paint() {
    const start = performance.now();
    const wanted = this.wanted ?? new Set(["lower", "upper"]);
    this.wanted = null;
    this.ink = Object.fromEntries(["paper", "raised", "ink", "dim", "edge", "mark", "veil", "rule"].map((n) => [n, css(`--${n}`)]));
    if (wanted.has("lower")) this.#paint(this.lower, null);
    if (wanted.has("upper")) this.#paint(this.upper, this.lit);
    this.took = performance.now() - start;
  }

  #paint(canvas, lit) {
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (canvas === this.upper && !lit) return;
    const ratio = window.devicePixelRatio || 1;
    if (lit) {
      context.fillStyle = this.ink.veil;
      context.fillRect(0, 0, canvas.width, canvas.height);
    }
    context.setTransform(this.scale * ratio, 0, 0, this.scale * ratio, this.dx * ratio, this.dy * ratio);
    const view = {
      left: -this.dx / this.scale, right: (this.wide - this.dx) / this.scale,
      top: -this.dy / this.scale, bottom: (this.high - this.dy) / this.scale,
    };
    context.strokeStyle = lit ? this.ink.mark : this.ink.edge;
    context.lineWidth = Math.max(lit ? 1.6 : 1, 0.5 / this.scale);
    context.beginPath();
    for (const route of this.routes) {
      if (route.far && !lit) { // across many layers: only its end, until it is lit
        const [x, y] = route.points.slice(-2);
        if (x > view.left && x < view.right && y > view.top && y < view.bottom + DOWN) {
          context.moveTo(x + 10, y - 16);
          context.lineTo(x, y);
        }
        continue;
      }
      if (route.bottom < view.top || route.top > view.bottom || route.right < view.left || route.left > view.right) continue;
      if (!lit || (lit.has(route.from) && lit.has(route.to))) this.#edge(context, route.points);
    }
    context.stroke();
    const [from, to] = [Math.floor(view.top / DOWN - 1), Math.ceil(view.bottom / DOWN + 1)];
    for (let layer = Math.max(0, from); layer <= Math.min(to, this.layers.length - 1); layer++) {
      for (const id of this.layers[layer]) {
        if (this.x[id] < view.left - WIDTH || this.x[id] > view.right + WIDTH) continue;
        if (!lit || lit.has(id)) this.#node(context, id, lit);
      }
    }
  }

  #edge(context, points) {
    context.moveTo(points[0], points[1]);
    for (let i = 2; i < points.length; i += 2) {
      const [x, y, u, v] = [points[i - 2], points[i - 1], points[i], points[i + 1]];
      if (this.scale < 0.25) context.lineTo(u, v);
      else context.bezierCurveTo(x, y + (v - y) * 0.5, u, v - (v - y) * 0.5, u, v);
    }
  }

  #node(context, id, lit) {
    const [x, y] = [this.x[id] - WIDTH / 2, this.y[id] - HEIGHT / 2];
    const colour = this.colour(id);
    if (this.scale < 0.2) {
      context.fillStyle = colour;
      context.fillRect(x, y, WIDTH, HEIGHT);
      return;
    }
    const fate = this.nodes[id].fate ?? "dispatched";
    context.fillStyle = this.ink.paper;
    context.fillRect(x, y, WIDTH, HEIGHT);
    context.globalAlpha = 0.22;
    context.fillStyle = colour;
    context.fillRect(x, y, WIDTH, HEIGHT);
    context.globalAlpha = 1;
    context.fillRect(x, y, 7, HEIGHT);
    const strong = lit?.get(id);
    context.strokeStyle = lit ? this.ink.mark : this.ink.rule;
    context.lineWidth = this.chosen === id ? 3.5 : strong ? 2 : 1;
    context.setLineDash(lit ? (strong ? [] : [4, 3]) : fate === "dispatched" ? [] : [2, 2]);
    context.strokeRect(x, y, WIDTH, HEIGHT);
    context.setLineDash([]);
    context.fillStyle = this.ink.ink;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(fit(`${GLYPHS[fate] ?? ""}${title[this.kind](id)}`, 24), x + 13, y + 15, WIDTH - 18);
    context.fillStyle = this.ink.dim;
    context.font = "10.5px system-ui, sans-serif";
    context.fillText(fit(subtitle[this.kind](id).replace(/^main\$async_|^main_dispatch_\d+_/, ""), 30), x + 13, y + 29, WIDTH - 18);
  }
}

const GLYPHS = { view: "↔ ", folded: "≡ ", merged: "= ", dead: "✕ " };
const fit = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
