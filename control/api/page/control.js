// The page of the control: what is in force, and the lists of one domain.
import { $, el, fill, folds, name, say, since, table, time } from "./dom.js";
import { get, useToken, hasToken } from "./api.js";
import { base, caller, chosen, choose, rank } from "./world.js";
import * as versions from "./versions.js";
import * as users from "./users.js";
import * as keys from "./keys.js";
import * as usage from "./usage.js";

const every = { look: 2000, usage: 10000 }; // milliseconds from an answer to the next question

let shown = ""; // what the lists show: the domain, what is in force, and the newest change

function state(now, text) {
  document.body.dataset.state = now;
  const pill = $("state");
  pill.className = "pill " + { live: "good", away: "bad", shut: "warn" }[now];
  say(pill, text);
}

// failed shows why there is no answer.
function failed(wrong) {
  const shut = wrong.status === 401 || wrong.status === 403;
  state(shut ? "shut" : "away", shut ? "no permission" : "not connected");
  fill($("notices"), wrong.status && wrong.status !== 401 ? el("p", { class: "notice bad" }, wrong.message) : null);
  if (wrong.status !== 401 || !$("sign").hidden && document.activeElement === $("token")) return;
  $("sign").hidden = false;
  say($("sign-why"), hasToken() ? "The token is not one that it knows." : wrong.message);
}

async function look() {
  let status, domains, newest;
  try {
    [status, domains] = await Promise.all([get("/v1/status"), get("/v1/domains")]);
    newest = await get("/v1/audit?limit=1");
  } catch (wrong) {
    failed(wrong);
    return;
  }
  $("sign").hidden = true;
  $("forget").hidden = !hasToken();
  state("live", "live");
  caller.role = rank(status.role);
  say($("caller"), `${status.caller}, role ${status.role}`);
  fill($("notices"), status.problem ? el("p", { class: "notice bad" }, name(`It cannot publish now: ${status.problem}`)) : null);
  choose(domains.domains);
  tiles(status, chosen());
  const now = JSON.stringify([$("domain").value, chosen()?.publication, newest.entries[0]?.id, status.role]);
  if (now === shown) return;
  shown = now;
  await refresh();
}

function tiles(status, publication) {
  say($("tile-version"), publication?.version ? `version ${publication.version}` : "nothing");
  say($("tile-version-note"), publication ? `for ${since(publication.published_at)}, by ${publication.published_by}` : "no rules are published");
  say($("tile-pending"), String(status.pending));
  say($("tile-leads"), status.leads ? "leads" : "follows");
  say($("tile-leads-note"), status.walked_at ? `compared all with Redis ${since(status.walked_at)} ago` : "");
}

// refresh shows all lists anew.
async function refresh() {
  if (!$("domain").value) return;
  await Promise.all([versions.show(), users.show(), keys.show(), usage.show(), audit()].map(one => one.catch(failed)));
}

async function audit() {
  const { entries } = await get(`/v1/audit?domain=${encodeURIComponent($("domain").value)}&limit=20`);
  fill($("audit-list"), table("Last changes", ["when", "who", "what", "of"], entries.map(e => [
    time(e.at), name(e.who), e.action.replaceAll("_", " "), [`${e.kind} `, name(e.name)]])));
}

// again calls a function for ever, so long after it has ended. It rests while the page is not seen.
async function again(after, what) {
  for (;;) {
    if (!document.hidden) await what();
    await new Promise(go => setTimeout(go, after));
  }
}

$("sign").addEventListener("submit", event => {
  event.preventDefault();
  useToken($("token").value);
  $("token").value = "";
  $("token").blur();
  look();
});
$("forget").addEventListener("click", () => {
  useToken("");
  location.reload();
});
$("domain").addEventListener("change", () => {
  fill($("diff"));
  look();
});
base.changed = look;
folds();
again(every.look, look);
again(every.usage, async () => {
  if (document.body.dataset.state === "live" && $("domain").value) await usage.show().catch(failed);
});
