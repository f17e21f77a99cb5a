// Usage of a domain or of one user, by hour or by day.
import { $, fill, say, count } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { path } from "./world.js";

const hour = 3600_000, day = 24 * hour;

const kinds = {
  day: { columns: 24, step: "hour", length: hour, times: ["24 hours ago", "12 hours", "now"], about: "Requests an hour", when: ago => ago === null ? "In this hour:" : `${ago} hours ago:` },
  month: { columns: 30, step: "day", length: day, times: ["30 days ago", "15 days", "today"], about: "Requests a day", when: ago => ago === null ? "Today (UTC):" : `${ago} days ago:` },
};

const labels = { allowed: "allowed", exempt: "exempt", no_limit: "no limit applied", unknown_domain: "domain without rules", shadowed: "would be refused (shadow)", malformed: "malformed", blocked: "blocked", refused: "refused" };

export async function show() {
  const kind = kinds[document.querySelector("input[name=span]:checked").value];
  const now = Math.floor(Date.now() / kind.length) * kind.length, first = now - (kind.columns - 1) * kind.length;
  const params = { from: new Date(first).toISOString(), step: kind.step };
  const user = $("usage-user").value.trim();
  if (user) params.user = user;
  let view;
  try {
    view = await get(`${path("usage")}?${new URLSearchParams(params)}`);
  } catch (wrong) {
    if (wrong.status === 404) return; // a control without a record
    throw wrong;
  }
  $("usage").hidden = false;
  const took = view.latency?.p50 == null ? "" : ` Decisions took ${["p50", "p95", "p99"].map(q => `${q} ${view.latency[q].toPrecision(3)} ms`).join(", ")}, by ${count(view.latency.samples)} events.`;
  say($("usage-note"), `${count(view.admitted)} admitted with the cost ${count(view.cost)}, ${count(view.refused)} refused.${took}`);
  const samples = Array.from({ length: kind.columns }, () => new Map());
  for (const p of view.points) samples[Math.floor((Date.parse(p.at) - first) / kind.length)]?.set(p.outcome, p.requests);
  const seen = Object.keys(labels).filter(o => o === "allowed" || o === "refused" || view.points.some(p => p.outcome === o));
  fill($("usage-chart"));
  new Chart($("usage-chart"), kind).draw(samples, seen.map(o => ({ id: o, label: labels[o], mark: "o-" + o })));
}

const fail = wrong => say($("usage-note"), wrong.message);

$("usage-of").addEventListener("submit", event => {
  event.preventDefault();
  show().catch(fail);
});
for (const choice of document.querySelectorAll("input[name=span]")) choice.addEventListener("change", () => show().catch(fail));
