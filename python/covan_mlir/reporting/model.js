"use strict";
// What the page knows: the content, who stands to whom, and what each thing is called.

const data = JSON.parse(document.getElementById("content").textContent);
const { actions, sites, rows, files, fusions } = data;

const sitesOf = actions.map(() => []); // of each action: [site, relation]
const actionsOf = sites.map(() => []); // of each site: [action, relation]
for (const [action, site, relation] of data.edges) {
  sitesOf[action].push([site, relation]);
  actionsOf[site].push([action, relation]);
}
const actionsAt = rows.map(() => []); // of each row: [action, whether it is the innermost of its lines]
actions.forEach((action, id) => {
  [...new Set(action.rows)].forEach((row, depth) => actionsAt[row].push([id, depth === 0]));
});
const readersOf = (nodes) => {
  const found = nodes.map(() => []);
  nodes.forEach((node, id) => node.inputs.forEach((input) => found[input].push(id)));
  return found;
};
const readers = { action: readersOf(actions), site: readersOf(sites) };
const fusionsOf = actions.map(() => []);
const fusionsOfKernel = new Map();
fusions.forEach((fusion) => {
  fusion.actions.forEach((id) => fusionsOf[id].push(fusion));
  if (fusion.kernel) fusionsOfKernel.set(fusion.kernel, [...(fusionsOfKernel.get(fusion.kernel) ?? []), fusion]);
});
const performing = (id) => sitesOf[id].filter(([, relation]) => relation === "performed").map(([site]) => site);

// --- names

const place = (row) => `${files[rows[row][0]][0]}:${rows[row][1]}`;
const title = {
  action: (id) => actions[id].name,
  site: (id) => `site ${id}`,
  row: (id) => place(id),
};
const subtitle = {
  action: (id) => [actions[id].op, actions[id].module].filter(Boolean).join("  "),
  site: (id) => sites[id].kernel,
  row: (id) => (rows[id][2] ?? "").trim(),
};
const key = (item) => `${item.kind}:${item.id}`;

/** Seconds as people write them. */
function duration(seconds) {
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (seconds >= scale) return `${(seconds / scale).toPrecision(3)} ${unit}`;
  }
  return `${(seconds * 1e9).toPrecision(3)} ns`;
}
const magnitude = (error) => [typeof error === "string" ? error : error.toPrecision(3), data.unit].filter(Boolean).join(" ");

// --- who is lit with whom: maps of ids to whether the tie is a strong one

/** The counterparts of an item on all three sides, itself included. */
function counterparts(item) {
  const found = { row: new Map(), action: new Map(), site: new Map() };
  const add = (kind, id, strong) => found[kind].set(id, strong || found[kind].get(id) === true);
  const addSites = (id) => sitesOf[id].forEach(([site, relation]) => add("site", site, relation === "performed"));
  if (item.kind === "action") {
    add("action", item.id, true);
    actions[item.id].rows.forEach((row, depth) => add("row", row, depth === 0));
    addSites(item.id);
    if (actions[item.id].twin !== null) add("action", actions[item.id].twin, false);
  } else if (item.kind === "site") {
    add("site", item.id, true);
    for (const [action, relation] of actionsOf[item.id]) {
      add("action", action, relation === "performed");
      if (actions[action].rows.length) add("row", actions[action].rows[0], relation === "performed");
    }
  } else {
    add("row", item.id, true);
    for (const [action, innermost] of actionsAt[item.id]) {
      add("action", action, innermost);
      addSites(action);
    }
  }
  return found;
}

// --- times and errors of everything, from those of sites and actions

/** The worse of two errors; words (nan, inf) are worse than numbers. */
function worse(a, b) {
  if (a === null || a === undefined) return b ?? null;
  if (b === null || b === undefined) return a;
  if (typeof a === "string" || typeof b === "string") return typeof a === "string" ? a : b;
  return Math.max(a, b);
}
const sum = (values) => {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
};
const innermost = (row) => actionsAt[row].filter(([, own]) => own).map(([action]) => action);
const times = data.seconds && {
  site: data.seconds,
  action: actions.map((_, id) => sum(performing(id).map((site) => data.seconds[site]))),
  row: rows.map((_, row) => sum([...new Set(innermost(row).flatMap(performing))].map((site) => data.seconds[site]))),
};
const errors = data.errors && {
  action: data.errors,
  site: sites.map((_, id) =>
    actionsOf[id].filter(([, how]) => how === "performed").map(([a]) => data.errors[a]).reduce(worse, null)),
  row: rows.map((_, row) => innermost(row).map((action) => data.errors[action]).reduce(worse, null)),
};

// --- search: all words have to occur in what is said of an item

const said = [
  ...actions.map((action, id) => ({
    item: { kind: "action", id },
    text: [action.name, action.op, `op:${action.op}`, `module:${action.module}`, action.role, `fate:${action.fate}`, ...action.types,
      ...action.tags.map((tag) => `tag:${tag}`), ...action.frames].join("\n").toLowerCase(),
  })),
  ...sites.map((site, id) => ({
    item: { kind: "site", id },
    text: [`site ${id}`, `site:${id}`, site.kernel, site.phase, site.kind, ...site.tags.map((tag) => `tag:${tag}`)]
      .join("\n").toLowerCase(),
  })),
  ...rows.flatMap((row, id) => (row[1] > 0 && actionsAt[id].length
    ? [{ item: { kind: "row", id }, text: `${place(id)}\n${row[2] ?? ""}`.toLowerCase() }] : [])),
];
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return said.filter(({ text }) => words.every((word) => text.includes(word))).map(({ item }) => item);
}

// --- making elements: text is always text, whatever it says

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => (child || child === 0) && child !== true));
  return element;
}
