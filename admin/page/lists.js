// Lists: refusals, top keys, the fleet, the rules.
import { $, el, fill, fold, name, place, say, table, time, count, span, since, limitText } from "./dom.js";

const refusalsKept = 100; // that wait, and groups of them
const rulesShown = 300;
const ranksShown = 8;

// hooks are what the buttons of the lists do.
export const hooks = { client: () => {}, explain: () => {} };

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
  for (const event of waiting.splice(0)) group(event);
  feedNote("");
}

const groups = new Map(); // refusals of one client by one rule, the newest group last

// group adds a refusal to those of its client and rule. A group keeps its place, so that its buttons can be reached.
function group(event) {
  const id = JSON.stringify([event.domain, event.rule, event.outcome, whoIs(event) || requestText(event)]);
  const before = groups.get(id), row = before?.row || el("li");
  groups.set(id, { row, n: (before?.n || 0) + 1, event });
  if (!before) $("refusal-list").prepend(row);
  refusalRow(id);
  if (groups.size <= refusalsKept) return;
  const [oldest, { row: gone }] = [...groups].reduce((a, b) => a[1].event.at < b[1].event.at ? a : b);
  gone.remove();
  groups.delete(oldest);
}

// feedNote says what is wrong with the list, or what it leaves out.
export function feedNote(wrong) {
  const left = missed ? ` ${count(missed)} more came too fast to be listed.` : "";
  const none = $("refusal-list").children.length ? "" : "None since the page was opened.";
  say($("refusals-note"), wrong || (none + left).trim());
}

// requestText is the request without its client, who is shown beside it.
function requestText(e) {
  if (e.path) return `${e.method} ${e.path}`;
  const [, client] = whoIs(e) || [];
  return Object.entries(e.entries || {}).filter(([, value]) => value !== client).map(([key, value]) => `${key}=${value}`).join(", ");
}

// countedBy is the rule of a counter, or that it is of a limit of the client's own.
export const countedBy = one => one.own ? "own limit" : one.rule;

// identity writes whom a counter is of, with its rule and its domain.
const identity = (who, rule, domain) => [el("b", {}, name(who)), el("span", { class: "quiet" }, " / ", name(rule || "no rule"), " / ", name(domain))];

// refusalRow shows a group by its last refusal.
function refusalRow(id) {
  const { row, n, event: e } = groups.get(id), who = whoIs(e), what = requestText(e);
  const wait = e.retry_after ? `, again in ${span(Math.ceil(e.retry_after))}` : "";
  const shown = [
    el("p", {}, ...identity(who ? who[1] : what, e.rule, e.domain)),
    el("p", { class: "quiet" }, el("b", { class: "mark o-" + e.outcome }, `${count(n)} × ${e.outcome}`), ", last ", time(e.at, 11), " ", name(what), el("span", { class: "whole" }, wait), e.degraded ? `, without the store (${e.degraded})` : "")];
  if (row.firstChild) return fill(row.firstChild, ...shown);
  const last = () => groups.get(id).event;
  row.append(el("div", {}, ...shown), el("span", { class: "row" },
    who ? el("button", { class: "small", onclick: () => hooks.client(e.domain, ...who), "aria-label": `Look up ${who[1]}` }, "Look up") : null,
    el("button", { class: "small", onclick: () => hooks.explain(last()), "aria-label": `Explain ${what || who[1]}` }, "Explain")));
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

// owner is whom a key counts, in words, and as the form of a client takes it.
function owner(one) {
  const known = one.who.filter(w => ["user", "tenant", "api_key", "ip"].includes(w.kind));
  const text = one.who.map(w => w.name).join(", ") || (one.key.includes("{") ? "all requests" : one.key);
  return [text, known.length === 1 ? [known[0].kind, known[0].name] : ["key", one.key]];
}

function rank(one, most) {
  const [text, whom] = owner(one);
  const bar = el("i", { "aria-hidden": "true" });
  bar.style.width = one.count / most * 100 + "%";
  return el("li", {}, bar,
    el("button", { class: "plain", title: `What is left? ${one.key}`, onclick: () => hooks.client(one.domain, ...whom) }, ...identity(text, countedBy(one), one.domain)),
    el("b", {}, count(one.count), one.error ? el("small", { class: "quiet" }, ` ± ${count(one.error)}`) : null));
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
  const columns = ["rule", "limit", "counts by", "how", "written in"];
  const parts = [];
  let all = 0, found = 0;
  for (const domain of inUse.domains) {
    const rows = [];
    for (const one of domain.limits) {
      all++;
      const cells = [one.rule, one.limit ? limitText(one.limit) : one.action, one.scope || "", how(one), one.at || ""];
      if (![domain.name, ...cells].join(" ").toLowerCase().includes(wanted) || found++ >= rulesShown) continue;
      rows.push([...cells.slice(0, 4).map(cell => name(cell)), place(one.at)]);
    }
    if (!rows.length) continue;
    const part = fold(name(domain.name), rows.length === 1 ? "1 rule" : `${rows.length} rules`, table(`Rules of ${domain.name}`, columns, rows));
    part.open ||= wanted !== "";
    parts.push(part);
  }
  const more = found > rulesShown ? ` The first ${rulesShown} are listed: write more to see others.` : "";
  say($("rules-note"), `${all} in ${inUse.domains.length === 1 ? "1 domain" : inUse.domains.length + " domains"}${wanted ? `, ${found} with “${wanted}”` : ""}.${more}`);
  fill($("rule-list"), ...parts);
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
