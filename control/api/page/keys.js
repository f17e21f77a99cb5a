// API keys: whose they are, until when they hold, and revoke.
import { $, el, fill, name, say, table, time, count } from "./dom.js";
import { get, change } from "./api.js";
import { confirm, inTurn, may, path } from "./world.js";

const page = 25, most = 1000; // keys that one question asks for

let listed = [];

// show lists as many keys as are listed already.
export const show = inTurn(() => find("", Math.max(page, listed.length)));

// find lists keys: from the first, or those behind an id.
async function find(after, limit = page) {
  const params = Object.entries({ user: $("keys-user").value.trim(), after, limit: Math.min(limit, most) }).filter(([, value]) => value);
  const { keys } = await get(`${path("keys")}?${new URLSearchParams(params)}`);
  listed = after ? [...listed, ...keys] : keys;
  $("keys-more").hidden = keys.length < Math.min(limit, most);
  say($("keys-note"), listed.length ? "" : "There are none.");
  fill($("key-list"), table("API keys", ["id", "begins with", "user", "tier", "expires", "last used", "requests", "state"], listed.map(row)));
}

function row(k) {
  const over = k.expires_at && Date.parse(k.expires_at) <= Date.now();
  const state = k.revoked_at ? el("span", { class: "pill bad", title: `by ${k.revoked_by}, ${k.revoked_at}` }, "revoked") : over ? el("span", { class: "pill warn" }, "expired") : el("span", { class: "pill good" }, "valid");
  const revocable = may("operator") && !k.revoked_at;
  return [name(k.id), name(k.prefix + "…", "mono"), name(k.user), name(k.tier || ""), time(k.expires_at) || "never", time(k.last_used_at), count(k.total_requests),
    [state, revocable ? " " : null, revocable ? el("button", { class: "small danger", "data-revoke": k.id, onclick: () => revoke(k), "aria-label": `Revoke ${k.id}` }, "Revoke…") : null].filter(Boolean)];
}

function revoke(k) {
  confirm({
    title: ["Revoke the key ", name(k.id)], button: "Revoke", harms: true,
    what: [el("p", {}, "Requests with the key that begins with ", name(k.prefix, "mono"), ", of ", el("b", {}, name(k.user)), ", are refused on every sidecar within a second. A key that was revoked cannot be used again.")],
    act: async () => {
      await change("DELETE", path("keys", k.id), undefined, k.revision);
      return `The key ${k.id} is revoked.`;
    },
  });
}

const fail = wrong => say($("keys-note"), wrong.message);

$("keys-find").addEventListener("submit", event => {
  event.preventDefault();
  inTurn(() => find(""))().catch(fail);
});
$("keys-more").addEventListener("click", () => inTurn(() => find(listed.at(-1).id))().catch(fail));
