// Users: search, tier, quota, and what they used of it.
import { $, el, fill, name, say, table, time, count } from "./dom.js";
import { get } from "./api.js";
import { inTurn, path } from "./world.js";

const page = 25, most = 1000; // users that one question asks for

let listed = [];

// show lists as many users as are listed already.
export const show = inTurn(async () => {
  await tiers();
  await find("", Math.max(page, listed.length));
});

async function tiers() {
  const { tiers } = await get(path("tiers"));
  const before = $("users-tier").value;
  fill($("users-tier"), el("option", { value: "" }, "any"), ...tiers.map(t => el("option", { value: t.name }, t.display_name || t.name)));
  $("users-tier").value = tiers.some(t => t.name === before) ? before : "";
}

// find lists users: from the first, or those behind a name.
async function find(after, limit = page) {
  const params = Object.entries({ prefix: $("users-prefix").value.trim(), tier: $("users-tier").value, after, limit: Math.min(limit, most) }).filter(([, value]) => value);
  const { users } = await get(`${path("users")}?${new URLSearchParams(params)}`);
  listed = after ? [...listed, ...users] : users;
  $("users-more").hidden = users.length < Math.min(limit, most);
  say($("users-note"), listed.length ? "" : "There are none.");
  fill($("user-list"), table("Users", ["name", "tier", "quotas", "used this month", "last request", "blocked"], listed.map(row)));
  for (const u of listed) used(u);
}

function row(u) {
  const quotas = [[u.quota_hour, "an hour"], [u.quota_day, "a day"], [u.quota_month, "a month"]].filter(([n]) => n).map(([n, per]) => `${count(n)} ${per}`);
  const blocked = u.blocked ? el("span", { class: "pill bad" }, ...(u.blocked_until ? ["until ", time(u.blocked_until)] : ["for ever"])) : null;
  return [name(u.name), name(u.tier || ""), quotas.join(", ") || el("span", { class: "quiet" }, "those of the tier"), el("span", { "data-used": u.name }), time(u.last_request_at),
    [blocked, u.block_reason ? [" ", name(u.block_reason)] : null].flat().filter(Boolean)];
}

// used fills in what a user used this month, with a bar against its quota.
async function used(u) {
  let month;
  try {
    ({ month } = await get(path("users", u.name, "usage")));
  } catch {
    return; // the record may be away, and the list is right without it
  }
  const cell = document.querySelector(`[data-used="${CSS.escape(u.name)}"]`);
  if (!cell) return;
  fill(cell, month.quota ? meter(month.cost, month.quota) : null, month.quota ? `${count(month.cost)} of ${count(month.quota)}` : count(month.cost), month.refused ? el("span", { class: "quiet" }, `, ${count(month.refused)} refused`) : null);
}

function meter(part, whole) {
  const bar = el("i", { class: part >= whole ? "full" : "" });
  bar.style.width = Math.min(100, part / whole * 100) + "%";
  return el("span", { class: "meter", role: "img", "aria-label": `${Math.round(part / whole * 100)} % of the quota` }, bar);
}

const fail = wrong => say($("users-note"), wrong.message);

$("users-find").addEventListener("submit", event => {
  event.preventDefault();
  inTurn(() => find(""))().catch(fail);
});
$("users-more").addEventListener("click", () => inTurn(() => find(listed.at(-1).name))().catch(fail));
