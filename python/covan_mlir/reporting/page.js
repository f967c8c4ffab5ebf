"use strict";
// Selection, highlights, colours, search and keys: what ties the three panes together.

const $ = (id) => document.getElementById(id);
let selected = null;
let hovered = null;

// --- colours

const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#7b5ea7"];
const modules = [...new Set(actions.map((action) => action.module.split(".").slice(0, 2).join(".")))];
const tags = [...new Set(actions.flatMap((action) => action.tags))].sort();
const own = (site) => actionsOf[site].filter(([, how]) => how === "performed").map(([action]) => action);
const pick = (index) => (index < 0 ? css("--none") : PALETTE[index % PALETTE.length]);

/** A colour between cold and hot, for 0 to 1. */
function heat(share) {
  const parse = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const [cold, hot] = [parse(css("--cold")), parse(css("--hot"))];
  return `rgb(${cold.map((c, i) => Math.round(c + (hot[i] - c) * share)).join(" ")})`;
}

/** Of each kind, a colour for each id; null where nothing is known. */
function scaled(values, share) {
  const steps = Array.from({ length: 65 }, (_, i) => heat(i / 64));
  const one = (value) => (value === null || value === undefined ? null : steps[Math.round(share(value) * 64)]);
  return Object.fromEntries(Object.entries(values).map(([kind, all]) => [kind, (id) => one(all[id])]));
}
const largest = (values) => values.reduce((a, b) => (typeof b === "number" && b > a ? b : a), 0);
const worst = errors && Math.max(largest(errors.action), data.unit ? 1 : 0); // an error far below what is allowed is cold
const least = errors && errors.action.reduce((a, b) => (typeof b === "number" && b > 0 && b < a ? b : a), worst || 1);
const byError = (value) => {
  if (typeof value === "string") return 1; // nan, inf
  if (value <= 0) return 0;
  return worst > least ? 0.1 + 0.9 * (Math.log(value / least) / Math.log(worst / least)) : 1;
};
const ramp = (from, to) => [h("span", {}, from), h("span", { class: "ramp", "aria-hidden": "true" }), h("span", {}, to)];
const swatches = (names, colour) => names.map((name, index) => {
  const box = h("span", { class: "swatch" });
  box.style.background = colour(name, index);
  return h("span", {}, box, `${GLYPHS[name] ?? ""}${name || "the model itself"}`);
});
const SCHEMES = {
  fate: {
    label: "by fate",
    paint: () => {
      const known = Object.fromEntries(Object.keys(FATES).map((name) => [name, css(`--${name}`)]));
      const [site, none] = [css("--site"), css("--none")];
      return { action: (id) => known[actions[id].fate] ?? none, site: () => site, row: () => null };
    },
    legend: () => swatches(Object.keys(FATES).filter((name) => actions.some((a) => a.fate === name)), (name) => css(`--${name}`)),
  },
  module: {
    label: "by module",
    paint: () => {
      const of = (action) => pick(modules.indexOf(actions[action].module.split(".").slice(0, 2).join(".")));
      const colours = actions.map((_, id) => of(id));
      return { action: (id) => colours[id], site: (id) => colours[own(id)[0]] ?? css("--none"), row: () => null };
    },
    legend: () => swatches(modules.slice(0, 16), (_, index) => pick(index)),
  },
  tag: tags.length && {
    label: "by tag",
    paint: () => ({
      action: (id) => pick(tags.indexOf(actions[id].tags[0])), site: (id) => pick(tags.indexOf(sites[id].tags[0])),
      row: (id) => { const found = innermost(id).find((a) => actions[a].tags.length); return found === undefined ? null : pick(tags.indexOf(actions[found].tags[0])); },
    }),
    legend: () => swatches(tags, (_, index) => pick(index)),
    fact: (kind, id) => (kind === "row" ? [...new Set(innermost(id).flatMap((a) => actions[a].tags))].join(", ") : ""),
  },
  time: times && {
    label: "by time",
    paint: () => scaled(times, ((most) => (value) => Math.sqrt(Math.min(1, value / most)))(largest(times.site) || 1)),
    legend: () => [...ramp("0", `${duration(largest(times.site))} in one site`), h("span", { class: "dim" }, `${duration(sum(times.site) ?? 0)} in all sites`)],
    fact: (kind, id) => (times[kind][id] === null ? "" : duration(times[kind][id])),
  },
  error: errors && {
    label: "by error",
    paint: () => scaled(errors, byError),
    legend: () => ramp(magnitude(least), `${magnitude(worst)} (nan and inf are worst)`),
    fact: (kind, id) => (errors[kind][id] === null ? "" : magnitude(errors[kind][id])),
  },
};
let scheme = SCHEMES.fate;
let paint = null;

function recolour() {
  paint = scheme.paint();
  graphs.action.colour = (id) => paint.action(id) ?? css("--none");
  graphs.site.colour = (id) => paint.site(id) ?? css("--none");
  $("legend").replaceChildren(...scheme.legend());
  graphs.action.draw();
  graphs.site.draw();
  lines.render();
}

// --- the listing: only the rows in view are elements

const ROW = 18;
const lines = {
  box: $("lines"),
  active: Math.max(0, actionsAt.findIndex((found) => found.length)),
  lit: new Map(),
  chosen: null,
  rail: h("div", { role: "presentation" }),
  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 10);
    const last = Math.min(rows.length, first + Math.ceil(this.box.clientHeight / ROW) + 20);
    const shown = [];
    for (let id = first; id < last; id++) shown.push(this.row(id));
    if (this.active < first || this.active >= last) shown.push(this.row(this.active)); // what the keyboard is at stays
    this.box.replaceChildren(this.rail, ...(rows.length ? shown : []));
  },
  row(id) {
    const [file, line, text] = rows[id];
    const used = line > 0 && actionsAt[id].length > 0;
    const number = h("span", { class: "number" }, line > 0 ? String(line) : "");
    const colour = used ? paint?.row(id) : null;
    if (colour) number.style.borderLeftColor = colour;
    const note = files[file][2] ? h("span", { class: "fact" }, files[file][2]) : null;
    const fact = used && scheme.fact ? h("span", { class: "fact" }, scheme.fact("row", id)) : null;
    const strength = this.lit.has(id) ? (this.lit.get(id) ? "lit" : "weak") : "";
    const classes = ["row", line === 0 && "file", used && "used", strength, id === this.chosen && "chosen", id === this.active && "active"];
    const children = line === 0 ? [files[file][0], note] : line < 0 ? [number, "⋯"] : [number, text ?? "", fact];
    const row = h("div", {
      class: classes.filter(Boolean).join(" "), id: `row-${id}`, role: "option", "data-row": id, title: line === 0 ? files[file][1] : null,
      "aria-selected": String(id === this.chosen), "aria-posinset": id + 1, "aria-setsize": rows.length, "aria-disabled": used ? null : "true",
    }, children);
    row.style.top = `${id * ROW}px`;
    return row;
  },
  reveal(ids) {
    const [top, bottom] = [this.box.scrollTop / ROW, (this.box.scrollTop + this.box.clientHeight) / ROW - 1];
    if (ids.length && !ids.some((id) => id >= top && id < bottom)) this.box.scrollTop = ids[0] * ROW - this.box.clientHeight / 3;
  },
  activate(id) {
    this.active = id;
    this.box.setAttribute("aria-activedescendant", `row-${id}`);
    this.reveal([id]);
    hover({ kind: "row", id });
  },
  step(by) {
    for (let id = this.active + by; id >= 0 && id < rows.length; id += by) if (actionsAt[id].length) return this.activate(id);
    return this.activate(this.active);
  },
};
lines.rail.style.height = `${rows.length * ROW}px`;
const rowOf = (event) => {
  // By place: rows are made anew whenever highlights change, which may be between press and release.
  const id = Math.floor((event.clientY - lines.box.getBoundingClientRect().top + lines.box.scrollTop) / ROW);
  return actionsAt[id]?.length ? id : null;
};
lines.box.addEventListener("scroll", () => requestAnimationFrame(() => lines.render()));
lines.box.addEventListener("pointermove", (event) => { const id = rowOf(event); hover(id === null ? null : { kind: "row", id }); });
lines.box.addEventListener("pointerleave", () => hover(null));
lines.box.addEventListener("click", (event) => { const id = rowOf(event); if (id !== null) { lines.active = id; select({ kind: "row", id }); } });
lines.box.addEventListener("focus", () => rows.length && lines.box.matches(":focus-visible") && lines.activate(lines.active));
lines.box.addEventListener("blur", () => hover(null));
lines.box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") lines.step(1);
  else if (event.key === "ArrowUp") lines.step(-1);
  else if ((event.key === "Enter" || event.key === " ") && actionsAt[lines.active]?.length) select({ kind: "row", id: lines.active });
  else return;
  event.preventDefault();
});
new ResizeObserver(() => lines.render()).observe(lines.box);

// --- what is lit

function light() {
  const item = hovered ?? selected;
  const found = item ? counterparts(item) : { row: new Map(), action: null, site: null };
  const chosen = (kind) => (selected?.kind === kind ? selected.id : null);
  lines.lit = found.row;
  lines.chosen = chosen("row");
  lines.render();
  graphs.action.light(found.action, chosen("action"));
  graphs.site.light(found.site, chosen("site"));
  for (const [id, count] of [["code", found.row], ["source", found.action], ["program", found.site]]) $(id).dataset.lit = count?.size ?? 0;
}

function hover(item) {
  if ((item && key(item)) === (hovered && key(hovered))) return;
  hovered = item;
  light();
}

function select(item) {
  selected = item;
  const found = item && counterparts(item);
  $("details").replaceChildren(...(item ? [h("h2", {}, `${title[item.kind](item.id)}`, " ", h("span", { class: "dim" }, subtitle[item.kind](item.id))),
    describe[item.kind](item.id)] : overview()));
  $("details").scrollTop = 0;
  if (item) {
    const strongFirst = (map) => [...map].sort((a, b) => Number(b[1]) - Number(a[1]) || a[0] - b[0]).map(([id]) => id);
    if (item.kind !== "row") lines.reveal(strongFirst(found.row));
    graphs.action.reveal(...(item.kind === "action" ? [item.id] : strongFirst(found.action)));
    graphs.site.reveal(...(item.kind === "site" ? [item.id] : strongFirst(found.site)));
    if (item.kind !== "row") graphs[item.kind].active = item.id;
    const count = (map, what) => `${map.size} ${what}${map.size === 1 ? "" : "s"}`;
    $("status").textContent = `${title[item.kind](item.id)} selected: ${count(found.row, "line")}, ${count(found.action, "action")}, ${count(found.site, "site")}`;
  } else {
    $("status").textContent = "Nothing is selected";
  }
  history.replaceState(null, "", item ? `#${key(item)}` : "#");
  hovered = null;
  light();
}

const graphs = {};
for (const [kind, pane, nodes, layout] of [["action", "source", actions, data.source], ["site", "program", sites, data.program]]) {
  graphs[kind] = new Graph($(pane), kind, nodes, layout, {
    hover: (id) => hover(id === null ? null : { kind, id }),
    select: (id) => select({ kind, id }),
  });
}
window.covan = { graphs, select, counterparts }; // for the console, and for tests

$("details").addEventListener("click", (event) => {
  const { item, search: words } = event.target.dataset;
  if (item) { const [kind, id] = item.split(":"); select({ kind, id: Number(id) }); $("details").focus(); }
  if (words) { $("query").value = words; find(); $("query").focus(); }
});

// --- search

const MOST = 100;
let results = [];
let at = -1;
function find() {
  results = search($("query").value);
  at = -1;
  const shown = results.slice(0, MOST).map((item, index) =>
    h("li", { role: "option", id: `found-${index}`, "aria-selected": "false", "data-index": index }, title[item.kind](item.id), " ",
      h("span", { class: "dim" }, subtitle[item.kind](item.id))));
  const rest = results.length > MOST ? `${results.length - MOST} more` : results.length ? "" : "nothing is called so";
  const open = $("query").value.trim() !== "";
  $("found").replaceChildren(...shown, ...(rest ? [h("li", { class: "more", "aria-disabled": "true", role: "option" }, rest)] : []));
  $("found").hidden = !open;
  $("query").setAttribute("aria-expanded", String(open));
  $("query").removeAttribute("aria-activedescendant");
  if (open) $("status").textContent = `${results.length} found`;
}
function close() {
  $("found").hidden = true;
  $("query").setAttribute("aria-expanded", "false");
  hover(null);
}
function mark(index) {
  const most = Math.min(results.length, MOST);
  if (!most) return;
  $(`found-${at}`)?.setAttribute("aria-selected", "false");
  at = (index + most) % most;
  $(`found-${at}`).setAttribute("aria-selected", "true");
  $(`found-${at}`).scrollIntoView({ block: "nearest" });
  $("query").setAttribute("aria-activedescendant", `found-${at}`);
  hover(results[at]);
}
$("query").addEventListener("input", find);
$("query").addEventListener("focus", () => $("query").value && find());
$("query").addEventListener("blur", close);
$("query").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") mark(at + 1);
  else if (event.key === "ArrowUp") mark(at < 0 ? -1 : at - 1);
  else if (event.key === "Enter" && results.length) { select(results[Math.max(at, 0)]); close(); }
  else if (event.key === "Escape") { $("query").value = ""; close(); }
  else return;
  event.preventDefault();
  event.stopPropagation();
});
$("found").addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
$("found").addEventListener("click", (event) => {
  const index = event.target.closest("[data-index]")?.dataset.index;
  if (index !== undefined) { select(results[Number(index)]); close(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(event.target.tagName)) { event.preventDefault(); $("query").focus(); }
  else if (event.key === "Escape") select(null);
});

// --- theme and start

function theme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
  recolour();
}
const remembered = (() => { try { return localStorage.getItem("covan-theme") ?? ""; } catch { return ""; } })();
$("theme").addEventListener("change", () => {
  try { localStorage.setItem("covan-theme", $("theme").value); } catch { /* a file's storage may be closed */ }
  theme($("theme").value);
});
$("colours").append(...Object.entries(SCHEMES).filter(([, value]) => value).map(([name, value]) => h("option", { value: name }, value.label)));
$("colours").addEventListener("change", () => { scheme = SCHEMES[$("colours").value]; recolour(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
$("title").textContent = [data.title, data.target && `for ${data.target}`].filter(Boolean).join(" ");
$("counts").textContent = data.counts;
$("theme").value = remembered;
if (times) scheme = SCHEMES.time;
else if (errors) scheme = SCHEMES.error;
$("colours").value = Object.keys(SCHEMES).find((name) => SCHEMES[name] === scheme);
theme(remembered);
const [, wantedKind, wantedId] = /^#(action|site|row):(\d+)$/.exec(location.hash) ?? [];
const count = { action: actions.length, site: sites.length, row: rows.length }[wantedKind] ?? 0;
select(Number(wantedId) < count ? { kind: wantedKind, id: Number(wantedId) } : null);
