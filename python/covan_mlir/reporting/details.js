"use strict";
// What is said of the selected thing: facts, the chain of passes, counterparts, proofs.

const FATES = {
  dispatched: "kernels compute it", view: "only changes how kernels index", folded: "became a constant",
  merged: "its value is another's", dead: "no result needs it",
};

/** A button that selects something. */
function jump(item, label) {
  return h("button", { type: "button", class: "link", "data-item": key(item) }, label ?? title[item.kind](item.id));
}

const SHOWN = 200;
function jumps(kind, ids, label) {
  const rest = ids.length > SHOWN ? [h("span", { class: "dim" }, `and ${ids.length - SHOWN} more`)] : [];
  return h("div", { class: "items" }, ids.slice(0, SHOWN).map((id) => jump({ kind, id }, label?.(id))), rest);
}

function facts(...pairs) {
  return h("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function section(heading, ...children) {
  return h("div", {}, h("h3", {}, heading), ...children);
}

function passes(links, heading) {
  if (!links.length) return section(heading, h("p", { class: "dim" }, "nothing was recorded"));
  const lines = links.map((index) => {
    const [step, text] = data.links[index];
    return h("tr", {}, h("th", { scope: "row" }, step), h("td", {}, text));
  });
  return section(heading, h("table", { class: "chain" }, h("tbody", {}, lines)));
}

function fusion(record) {
  const proofs = record.certificates.map(([claim, result, text]) =>
    h("details", { class: "certificate" }, h("summary", {}, `${claim}: ${result}`), h("pre", {}, text)));
  const sweeps = record.sweeps.map(([axes, why, lines], number) =>
    [axes.length ? `sweep ${number} over ${axes.join(", ")}` : `computation ${number} per row`,
      why && `, because ${why}`, "\n", ...lines.map((line) => `  ${line}\n`)].filter(Boolean).join(""));
  const schedule = Object.entries(record.schedule).map(([name, value]) => `${name}=${value}`).join("  ");
  return h("details", { class: "fusion", open: "" },
    h("summary", {}, record.kernel ? `${record.what}: kernel ${record.kernel}` : `${record.what}: no kernel`),
    record.reason && h("p", {}, record.reason),
    facts(["schedule", schedule], ["predicted", record.seconds ? duration(record.seconds) : null]),
    record.chain.length ? section("Steps", h("pre", {}, record.chain.join("\n"))) : null,
    sweeps.length ? section("Sweeps", h("pre", {}, sweeps.join(""))) : null,
    proofs.length ? section("Certificates", ...proofs) : null,
    record.refusals.length ? section("No repair", h("pre", {}, record.refusals.join("\n"))) : null,
    record.guards.length ? section("Guards", h("pre", {}, record.guards.join("\n"))) : null);
}

const measured = (item) => [
  ["time", times && (times[item.kind][item.id] === null ? "not measured"
    : duration(times[item.kind][item.id]) + (item.kind === "site" ? "" : ", of all sites that perform it"))],
  ["error", errors && (errors[item.kind][item.id] === null ? "not compared" : magnitude(errors[item.kind][item.id]))],
];

const describe = {
  action(id) {
    const action = actions[id];
    const fate = action.fate && [action.rewritten.length ? `rewritten by ${action.rewritten.join(", ")}; ` : "", h("strong", {}, action.fate), `: ${FATES[action.fate]}; decided by ${action.by}`,
      action.twin === null ? "" : "; the value of ", action.twin === null ? "" : jump({ kind: "action", id: action.twin })];
    return h("div", { class: "columns" },
      h("div", {},
        facts(["operator", action.op], ["module", action.module], ["for", action.role], ["result", action.types.join(", ")],
          ["fate", fate && h("span", { class: "fate" }, fate)], ...measured({ kind: "action", id }),
          ["tags", action.tags.join(", ")], ["parts", action.parts.join(", ")]),
        section("Lines", h("div", { class: "items" }, action.rows.length
          ? action.rows.map((row, depth) => jump({ kind: "row", id: row }, action.frames[depth])) : "not known"))),
      h("div", {},
        passes(action.links, "Chain of passes"),
        section("Sites", sitesOf[id].length ? h("div", { class: "items" }, sitesOf[id].map(([site, how]) =>
          h("span", {}, how === "performed" ? "" : `${how} `, jump({ kind: "site", id: site })))) : "none"),
        section("Reads", jumps("action", action.inputs)), section("Read by", jumps("action", readers.action[id]))),
      fusionsOf[id].length ? h("div", {}, h("h3", {}, "Fusion"), fusionsOf[id].map(fusion)) : null);
  },
  site(id) {
    const site = sites[id];
    const by = (how) => actionsOf[id].filter(([, relation]) => relation === how).map(([action]) => action);
    const label = (action) => `${actions[action].name} (${actions[action].op})`;
    const same = sites.flatMap((other, index) => (index !== id && other.kernel === site.kernel ? [index] : []));
    const fused = fusionsOfKernel.get(site.kernel) ?? [];
    return h("div", { class: "columns" },
      h("div", {},
        facts(["kernel", site.kernel], ["kind", site.kind],
          ["runs", site.phase === "init" ? "once, when the program is loaded" : "at each call"],
          ...measured({ kind: "site", id }), ["tags", site.tags.join(", ")]),
        ...["performed", "viewed", "folded", "merged"].filter((how) => by(how).length).map((how) =>
          section({ performed: "Performs", viewed: "Indexes by", folded: "Reads constants of", merged: "Shares values with" }[how],
            jumps("action", by(how), label))),
        same.length ? section("Other sites of this kernel", jumps("site", same)) : null),
      h("div", {}, passes(site.links, "Chain of passes"), section("Reads", jumps("site", site.inputs)),
        section("Read by", jumps("site", readers.site[id]))),
      fused.length ? h("div", {}, h("h3", {}, "Fusion"), fused.map(fusion)) : null);
  },
  row(id) {
    const [file, , text] = rows[id];
    const all = [...counterparts({ kind: "row", id }).site.keys()].sort((a, b) => a - b);
    return h("div", { class: "columns" },
      h("div", {}, h("pre", {}, (text ?? "").trim()), facts(["file", files[file][1]], ["note", files[file][2]],
        ...measured({ kind: "row", id }))),
      h("div", {}, section("Actions", jumps("action", actionsAt[id].map(([action]) => action))), section("Sites", jumps("site", all))));
  },
};

/** What is shown while nothing is selected: the fates of all actions, and which chains were fused. */
function overview() {
  const names = Object.keys(FATES).filter((name) => actions.some((action) => action.fate === name));
  const lines = names.map((name) => {
    const ids = actions.flatMap((action, id) => (action.fate === name ? [id] : []));
    return h("tr", {},
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-search": `fate:${name}` }, `${ids.length} ${name}`)),
      h("td", {}, FATES[name]), h("td", {}, name === "dispatched" ? "" : jumps("action", ids)));
  });
  const rewritten = data.substitutions;
  return [
    section("Fates of the model's actions", h("table", { class: "fates" }, h("tbody", {}, lines))),
    fusions.length ? section(`Chains of reductions: ${fusions.filter((one) => one.kernel).length} of ${fusions.length} in a kernel of their own`,
      h("div", { class: "items" }, fusions.filter((one) => one.actions.length).map((one) =>
        jump({ kind: "action", id: one.actions[0] }, `${one.what}${one.kernel ? "" : " (not fused)"}`)))) : null,
    rewritten ? section(rewritten.head, h("div", {}, h("p", {}, `before: ${rewritten.gone}`), h("p", {}, `after: ${rewritten.new}`),
      rewritten.steps.map(([rule, ids, text]) => h("details", {}, h("summary", {}, rule, " ", jumps("action", ids)), h("pre", {}, text))))) : null,
  ].filter(Boolean);
}
