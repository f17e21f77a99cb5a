// Versions of the rules: which is in force, what a change means, and roll back.
import { $, el, fill, name, say, table, time } from "./dom.js";
import { get, change } from "./api.js";
import { chosen, confirm, may, path } from "./world.js";

const shownMost = 50;

export async function show() {
  const { versions } = await get(`${path("versions")}?limit=${shownMost}`);
  const now = chosen()?.version;
  say($("versions-note"), versions.length === shownMost ? `The newest ${shownMost} are listed.` : "");
  fill($("version-list"), table("Versions", ["version", "rules", "made by", "when", "note", ""], versions.map(v => [
    [`${v.version} `, v.version === now ? el("span", { class: "pill good" }, "in force") : null].filter(Boolean),
    String(v.rules), name(v.created_by), time(v.created_at), name(v.note), buttons(v, now)])));
}

function buttons(v, now) {
  if (v.version === now) return [];
  return [el("span", { class: "row" },
    now ? el("button", { class: "small", onclick: () => compare(now, v.version), "aria-label": `Compare version ${v.version} with what is in force` }, "Compare") : null,
    may("admin") ? el("button", { class: "small", "data-publish": v.version, onclick: () => publish(v), "aria-label": `Publish version ${v.version}` }, now > v.version ? "Roll back…" : "Publish…") : null)];
}

// meaning is what a change from one version to another means, as elements.
async function meaning(from, to) {
  const diff = await get(`${path("diff")}?from=${from}&to=${to}`);
  const changes = (diff.changes || []).map(c => el("li", {}, el("span", { class: "pill" }, c.kind), " ", `${c.what || "rule"} `, el("b", {}, name(c.name)), ...(c.details || []).map(text => el("div", { class: "quiet" }, name(text)))));
  const treated = (diff.treated || []).map(t => el("li", {}, name(treatment(t))));
  if (!changes.length && !treated.length) return [el("p", {}, "The two do the same.")];
  return [el("ul", { class: "changes" }, ...changes), treated.length ? el("h3", {}, "Who is treated otherwise") : null, treated.length ? el("ul", {}, ...treated) : null].filter(Boolean);
}

const treatment = t => `${[t.who].flat().join(", ")}, ${[t.requests].flat().join(", ")}: ${t.was} → ${t.is}`;

async function compare(from, to) {
  try {
    fill($("diff"), el("h3", {}, `From version ${from}, which is in force, to version ${to}`), ...await meaning(from, to));
  } catch (wrong) {
    fill($("diff"), el("p", { class: "notice bad" }, wrong.message));
  }
}

async function publish(v) {
  const before = chosen();
  let what;
  try {
    what = before?.version ? await meaning(before.version, v.version) : [];
  } catch (wrong) {
    what = [el("p", { class: "notice warn" }, wrong.message)];
  }
  confirm({
    title: [`Publish version ${v.version}`], button: "Publish", note: "Why, for the audit",
    what: [el("p", {}, `Version ${v.version} takes the place of ${before?.version ? "version " + before.version : "nothing"}, on every sidecar within a second.`), ...what],
    act: async note => {
      await change("PUT", path("published"), note ? { version: v.version, note } : { version: v.version }, before?.publication);
      return `Version ${v.version} is in force.`;
    },
  });
}
