// Lists: refusals, top keys, the fleet, the rules.
import { $, el, fill, name, say, table, count, span, since, limitText } from "./dom.js";

const refusalsKept = 100;
const rulesShown = 300;
const ranksShown = 8;

// hooks are what the buttons of the lists do.
export const hooks = { client: () => {}, explain: () => {} };

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

// Keys of descriptors that name clients, as rules read them.
const entryKinds = { user: "user", user_id: "user", sub: "user", tenant: "tenant", tenant_id: "tenant", org_id: "tenant", api_key: "api_key", remote_address: "ip", masked_remote_address: "ip" };

// whoIs finds whom a refusal is about: a kind and a name, or null.
function whoIs(e) {
  if (e.user) return ["user", e.user];
  if (e.api_key) return ["api_key", e.api_key];
  if (e.address) return ["ip", e.address];
  if (e.tenant) return ["tenant", e.tenant];
  const known = Object.entries(e.entries || {}).find(([key]) => Object.hasOwn(entryKinds, key));
  return known ? [entryKinds[known[0]], known[1]] : null;
}

let waiting = [];
let paused = false;
let missed = 0;

// refusal takes in an event. What comes while the list is paused waits, the newest hundred of it.
export function refusal(event) {
  waiting.push(event);
  if (waiting.length > refusalsKept) waiting.splice(0, waiting.length - refusalsKept);
  if (waiting.length === 1) requestAnimationFrame(flush);
}

export function dropped(n) {
  missed += n;
}

function flush() {
  if (paused) return;
  const list = $("refusal-list");
  list.prepend(...waiting.splice(0).reverse().map(refusalRow));
  while (list.children.length > refusalsKept) list.lastChild.remove();
  feedNote("");
}

// feedNote says what is wrong with the list, or what it leaves out.
export function feedNote(wrong) {
  const left = missed ? ` ${count(missed)} more came too fast to be listed.` : "";
  const none = $("refusal-list").children.length ? "" : "None since the page was opened.";
  say($("refusals-note"), wrong || (none + left).trim());
}

function refusalRow(e) {
  const who = whoIs(e);
  const what = e.path ? `${e.method} ${e.path}` : Object.entries(e.entries || {}).map(([key, value]) => `${key}=${value}`).join(", ");
  const wait = e.retry_after ? `, again in ${span(Math.ceil(e.retry_after))}` : "";
  return el("li", {},
    el("time", { datetime: e.at, class: "quiet" }, clock.format(new Date(e.at))),
    el("div", {},
      el("p", {}, who ? el("b", {}, name(who[1])) : null, who ? " " : null, name(what, "quiet")),
      el("p", { class: "quiet" }, el("span", { class: "mark o-" + e.outcome }, e.outcome), " by ", e.rule ? name(e.rule) : "no rule", wait, e.degraded ? `, without the store (${e.degraded})` : "")),
    el("span", { class: "row" },
      who ? el("button", { class: "small", onclick: () => hooks.client(e.domain, ...who), "aria-label": `Look up ${who[1]}` }, "Look up") : null,
      el("button", { class: "small", onclick: () => hooks.explain(e), "aria-label": `Explain ${what}` }, "Explain")));
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  say($("pause"), paused ? "Go on" : "Pause");
  if (!paused) flush();
});

// top shows the keys that are asked for and refused most.
export function top(view) {
  const sampled = view.sampled_one_in > 1 ? ` One decision in ${view.sampled_one_in} is counted.` : "";
  const missing = view.missing.length ? ` ${view.missing.length} did not answer.` : "";
  say($("keys-note"), `Of ${view.sidecars === 1 ? "this sidecar" : view.sidecars + " sidecars"}, in the last ${since(view.since)}.${sampled}${missing}`);
  ranks($("top-refused"), view.refused, "No key was refused.");
  ranks($("top-asked"), view.asked, "No key was asked for.");
}

export const topFailed = why => say($("keys-note"), why);

function ranks(list, ranked, none) {
  const most = Math.max(1, ...ranked.map(one => one.count));
  fill(list, ...(ranked.length ? ranked.slice(0, ranksShown).map(one => rank(one, most)) : [el("li", { class: "quiet" }, none)]));
}

function rank(one, most) {
  const bar = el("i", { "aria-hidden": "true" });
  bar.style.width = one.count / most * 100 + "%";
  return el("li", {}, bar,
    el("button", { class: "plain", title: "What is left?", onclick: () => hooks.client(one.domain, "key", one.key) }, name(one.key, "mono")),
    el("b", {}, count(one.count), one.error ? el("small", { class: "quiet" }, ` ± ${count(one.error)}`) : null),
    el("span", { class: "quiet" }, name(one.rule)));
}

// fleet shows every sidecar. Those whose rules differ from the most common ones are marked.
export function fleet(view) {
  const hashes = new Map();
  for (const one of view.sidecars) hashes.set(one.rules, (hashes.get(one.rules) || 0) + 1);
  const common = [...hashes].sort((a, b) => b[1] - a[1])[0]?.[0];
  const n = view.sidecars.length;
  const tile = $("tile-fleet");
  say(tile, n === 1 ? "1 sidecar" : `${n} sidecars`);
  tile.className = "big " + (view.rules_agree ? "" : "bad");
  say($("tile-fleet-note"), view.rules_agree ? "all with the same rules" : `${hashes.size} different rule sets`);
  say($("fleet-note"), view.rules_agree ? "All sidecars run the same rules." : "");
  const mark = one => view.rules_agree ? "good" : one.rules === common ? "warn" : "bad";
  fill($("fleet-list"), table("Sidecars", ["sidecar", "version", "rules", "domains", "up for", "degraded by"], view.sidecars.map(one => [
    [name(one.host), one.self ? el("span", { class: "quiet" }, " (this one)") : null, el("br"), name(one.id, "mono quiet")].filter(Boolean),
    name(one.version),
    [el("span", { class: "pill mono " + mark(one), title: one.rules }, one.rules ? one.rules.slice(0, 12) : "none"), one.loaded ? el("span", { class: "quiet" }, ` for ${since(one.loaded)}`) : ""],
    name(one.domains.join(", ") || "none"), since(one.started),
    one.degraded.length ? el("span", { class: "bad" }, name(one.degraded.join("; "))) : "nothing"])));
  return view.rules_agree ? null : `The sidecars do not run the same rules: ${[...hashes].map(([hash, k]) => `${k} with ${hash ? hash.slice(0, 12) : "none"}`).join(", ")}.`;
}

let inUse = null;

// rules shows the rules in use, and returns their domains.
export function rules(view) {
  inUse = view;
  rulesNow();
  return view.domains.map(d => d.name);
}

function rulesNow() {
  const wanted = $("filter").value.trim().toLowerCase();
  const rows = [];
  let all = 0;
  for (const domain of inUse?.domains || []) {
    for (const one of domain.limits) {
      all++;
      const cells = [domain.name, one.rule, one.scope || "", one.limit ? limitText(one.limit) : one.action, how(one), one.at || ""];
      if (cells.join(" ").toLowerCase().includes(wanted)) rows.push(cells.map((cell, i) => name(cell, i === 5 ? "mono" : "")));
    }
  }
  const more = rows.length > rulesShown ? ` The first ${rulesShown} are listed: write more to see others.` : "";
  say($("rules-note"), `${all} in ${inUse.domains.length === 1 ? "1 domain" : inUse.domains.length + " domains"}${wanted ? `, ${rows.length} shown` : ""}.${more}`);
  fill($("rule-list"), table("Rules", ["domain", "rule", "counts by", "limit", "how", "written in"], rows.slice(0, rulesShown)));
}

// how says what is special about a rule.
function how(one) {
  const words = [];
  if (one.limit && one.limit.algorithm) words.push(one.limit.algorithm.replaceAll("_", " "));
  if (one.mode !== "enforced") words.push(one.mode);
  if (one.action && !["reject", "block", "allow"].includes(one.action)) words.push(one.action);
  if (one.account) words.push(`of ${one.account}`);
  if (one.limit && !one.limit.unlimited) words.push(`${one.on_failure} without the store`);
  if (one.reason) words.push(`“${one.reason}”`);
  return words.join(", ");
}

$("filter").addEventListener("input", () => inUse && rulesNow());
