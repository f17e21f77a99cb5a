// What the sidecar decides, and how its store does.
import { $, el, fill, name, say, table, count, span, since } from "./dom.js";
import { Chart, seconds } from "./chart.js";

// outcomes from the bottom of the chart to its top, in words.
const outcomes = new Map([
  ["allowed", "allowed"], ["exempt", "exempt"], ["no_limit", "no limit applied"], ["unknown_domain", "domain without rules"],
  ["shadowed", "would be refused (shadow)"], ["malformed", "malformed"], ["blocked", "blocked"], ["refused", "refused"],
]);
const refuse = ["refused", "blocked", "malformed"];
const rulesShown = 7; // in the chart; the others are added up
const latencyOver = 10; // seconds of calls of which the latency is shown

const chart = new Chart($("chart"));
const samples = { outcome: [], rule: [] }; // of the last two minutes
let last = null; // the stats before
const past = []; // stats of the last seconds, for the latency
let by = "outcome";

const total = counts => Object.values(counts).reduce((sum, n) => sum + n, 0);
const ruleID = one => JSON.stringify([one.domain, one.rule]);

function ruleLabel(id) {
  if (id === "other") return "other rules";
  const [domain, rule] = JSON.parse(id);
  return rule || (domain ? `no rule of ${domain}` : "domains without rules");
}

// show takes in the stats of another second.
export function show(stats) {
  if (last && last.started !== stats.started) forget();
  const time = last ? Math.max(0.2, (Date.parse(stats.at) - Date.parse(last.at)) / 1000) : 0;
  if (time) {
    const rates = new Map([...outcomes.keys()].map(o => [o, ((stats.outcomes[o] || 0) - (last.outcomes[o] || 0)) / time]));
    sample(rates, ruleRates(stats, time), time);
    tiles(rates);
  }
  last = stats;
  past.push(stats);
  while (past.length > 2 && Date.parse(stats.at) - Date.parse(past[0].at) > latencyOver * 1000) past.shift();
  store(stats);
}

// forget begins anew: the sidecar has, too.
function forget() {
  last = null;
  past.length = 0;
}

// gap notes a second without an answer.
export function gap() {
  sample(null, null);
  if (last) forget();
}

function ruleRates(stats, time) {
  const before = new Map(last.decisions.map(one => [ruleID(one), total(one.outcomes)]));
  const rates = new Map();
  for (const one of stats.decisions) {
    if (last.left_out && !before.has(ruleID(one))) continue; // how many it had is not known
    const rate = (total(one.outcomes) - (before.get(ruleID(one)) || 0)) / time;
    if (rate > 0) rates.set(ruleID(one), rate);
  }
  const known = [...rates.values()].reduce((sum, rate) => sum + rate, 0);
  const other = (total(stats.outcomes) - total(last.outcomes)) / time - known;
  if (other > 1e-6) rates.set("other", other); // less is an error of rounding
  return rates;
}

// sample adds the rates of so many seconds, of which there are several after the tab was hidden.
function sample(byOutcome, byRule, time = 1) {
  const columns = Math.min(Math.max(1, Math.round(time)), seconds);
  for (const [kind, one] of [["outcome", byOutcome], ["rule", byRule]]) {
    samples[kind].push(...new Array(columns).fill(one));
    samples[kind].splice(0, samples[kind].length - seconds);
  }
  draw();
}

function draw() {
  const now = samples[by];
  if (by === "outcome") {
    const seen = [...outcomes].filter(([o]) => o === "allowed" || o === "refused" || now.some(one => one?.get(o)));
    chart.draw(now, seen.map(([o, label]) => ({ id: o, label, mark: "o-" + o })));
    return;
  }
  const sums = new Map();
  for (const one of now) for (const [id, rate] of one || []) sums.set(id, (sums.get(id) || 0) + rate);
  const order = [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([id]) => id).filter(id => id !== "other");
  const shown = new Set(order.slice(0, rulesShown));
  const grouped = now.map(one => one && merged(one, shown));
  const series = [...shown].map((id, i) => ({ id, label: ruleLabel(id), mark: "s-" + i }));
  if (grouped.some(one => one?.get("other"))) series.push({ id: "other", label: "other rules", mark: "s-other" });
  chart.draw(grouped, series);
}

// merged adds up what has no colour of its own.
function merged(rates, shown) {
  const out = new Map();
  for (const [id, rate] of rates) {
    const to = shown.has(id) ? id : "other";
    out.set(to, (out.get(to) || 0) + rate);
  }
  return out;
}

function tiles(rates) {
  const all = [...rates.values()].reduce((sum, n) => sum + n, 0);
  const refused = refuse.reduce((sum, o) => sum + rates.get(o), 0);
  say($("tile-rate"), count(all));
  say($("tile-refused"), count(refused));
  say($("tile-share"), all ? `a second, ${Math.round(refused / all * 100)} %` : "a second");
}

// quantile is how long a share of the calls took at most, by the buckets of two stats.
function quantile(share, from, to) {
  const calls = to.count - from.count;
  for (let i = 0; i < to.buckets.length; i++) {
    const n = to.buckets[i].count - (from.buckets[i]?.count || 0);
    if (n >= share * calls) return to.buckets[i].seconds;
  }
  return Infinity;
}

const bound = seconds => seconds === Infinity ? "> 1.6 s" : "≤ " + span(seconds);
const calm = { closed: "good", "half-open": "warn", open: "bad" };

function store(stats) {
  const { kind, latency, breakers } = stats.store;
  if (kind === "memory") {
    say($("tile-store"), "memory");
    say($("tile-store-note"), "counts stay in this process");
    say($("tile-breaker"), "none");
    say($("tile-breaker-note"), "there is no server to guard");
    fill($("store"), el("p", { class: "quiet" }, "Counts are kept in this process. Other sidecars do not share them."));
    return;
  }
  const from = past[0].store.latency, calls = latency.count - from.count;
  const [half, most] = calls > 0 ? [quantile(0.5, from, latency), quantile(0.99, from, latency)] : [null, null];
  const away = stats.degraded.some(part => part.startsWith("redis: "));
  say($("tile-store"), away ? "away" : calls > 0 ? bound(most) : "idle");
  $("tile-store").className = away ? "big bad" : "big";
  say($("tile-store-note"), away ? "the rules' failure policies decide" : calls > 0 ? `99 % of calls; half ${bound(half)}` : "no calls in the last seconds");
  const worst = ["open", "half-open", "closed"].find(state => breakers.some(b => b.state === state)) || "closed";
  const tile = $("tile-breaker");
  say(tile, worst);
  tile.className = "big " + (away && worst === "closed" ? "warn" : calm[worst]);
  say($("tile-breaker-note"), breakers.length === 1 ? "1 server" : `${breakers.filter(b => b.state === worst).length} of ${breakers.length} servers`);
  fill($("store"), table("Servers of the store", ["server", "breaker", "since", "opened", "calls kept back"], breakers.map(b => [
    name(b.server), el("span", { class: "pill " + calm[b.state] }, b.state),
    b.since ? since(b.since) : "start", `${count(b.opened)} ×`, count(b.rejected)])),
    el("p", { class: "quiet" }, "Calls since the start: " + (Object.entries(stats.store.calls).map(([word, n]) => `${word} ${count(n)}`).join(", ") || "none") + "."));
}

for (const choice of document.querySelectorAll("input[name=by]")) {
  choice.addEventListener("change", () => { by = choice.value; draw(); });
}
draw();
