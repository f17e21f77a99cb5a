// The page: asks once a second, and says when there is no answer.
import { $, el, fill, folds, name, say, since } from "./dom.js";
import { get, follow, useToken, hasToken } from "./api.js";
import * as live from "./live.js";
import * as lists from "./lists.js";
import * as explain from "./explain.js";
import * as operate from "./operate.js";

const every = { stats: 1000, top: 2000, fleet: 3000, patience: 3000 }; // milliseconds; patience is for an answer with stats

let rulesKnown = null; // the hash of those that are shown
let started = null; // when the sidecar did
let reader = null; // of events
const notices = new Map(); // what an operator has to know, by what it is about

function notice(about, text) {
  if ((notices.get(about) || "") === (text || "")) return;
  if (text) notices.set(about, text);
  else notices.delete(about);
  fill($("notices"), ...[...notices.values()].map(one => el("p", { class: "notice bad" }, name(one))));
}

// reasons are those for which Redis cannot decide, in words.
const reasons = {
  dial: "it cannot be reached", closed: "it ends connections", timeout: "it does not answer in time", breaker: "it failed a moment ago", noauth: "its user or password is wrong",
  noperm: "its user may not do what is needed", loading: "it reads its data", readonly: "it is a replica that takes no writes", oom: "it is out of memory", misconf: "it cannot save, and takes no writes",
  clients: "it takes no more connections", overload: "more requests wait than it can answer", "breaker open": "it failed several times in a row",
};

// degradedText says what a part of /readyz that is degraded means. What it does not know, it shows as it is.
function degradedText(part) {
  const [, about, what] = part.match(/^(\w+): (.*)$/) || [];
  if (about === "redis" && !what.includes("version")) {
    return `Redis does not decide: ${reasons[what] || reasons[what.split(",")[0]] || what}. Each sidecar decides alone, by the failure policies of the rules. (${part})`;
  }
  if (about === "jwks") return `Keys for tokens cannot be read anew: ${what}. Those that are known stay in use.`;
  if (about === "xds") return `Rules cannot be updated: there is ${what}. The last good ones stay in use.`;
  return `Degraded: ${part}.`;
}

// state says whether the numbers are of now: live, away (no answer), or shut (no permission).
function state(now, text) {
  document.body.dataset.state = now;
  const pill = $("state");
  pill.className = "pill " + { live: "good", away: "bad", shut: "warn" }[now];
  say(pill, text);
}

// again calls a function for ever, so long after it has ended. It rests while the page is not seen.
async function again(after, what) {
  for (;;) {
    if (!document.hidden) await what();
    await new Promise(go => setTimeout(go, after));
  }
}

async function stats() {
  let view;
  try {
    view = await get("/v1/stats?limit=500", every.patience);
  } catch (wrong) {
    failed(wrong);
    return;
  }
  $("sign").hidden = true;
  $("forget").hidden = !hasToken();
  state("live", view.degraded.length ? "live, degraded" : "live");
  if (view.degraded.length) $("state").className = "pill bad";
  say($("sidecar"), `${view.host}, ${view.version}, up for ${since(view.started, Date.parse(view.at))}`);
  say($("caller"), `${view.caller.name}, role ${view.caller.role}`);
  notice("degraded", view.degraded.map(degradedText).join(" "));
  live.show(view);
  operate.allow(view.caller);
  events(view.caller);
  if (view.rules !== rulesKnown || view.started !== started) await rules(view);
}

// failed shows why there are no numbers.
function failed(wrong) {
  live.gap();
  endEvents();
  const shut = wrong.status === 401 || wrong.status === 403;
  state(shut ? "shut" : "away", shut ? "no permission" : "not connected");
  if (wrong.status === 403) notice("degraded", wrong.message);
  if (wrong.status !== 401 || !$("sign").hidden && document.activeElement === $("token")) return;
  $("sign").hidden = false;
  say($("sign-why"), hasToken() ? "The token is not one that it knows." : wrong.message);
}

async function rules(view) {
  try {
    const names = lists.rules(await get("/v1/rules"));
    operate.domains(names);
    explain.domains(names);
    [rulesKnown, started] = [view.rules, view.started];
  } catch (wrong) {
    say($("rules-note"), wrong.message);
  }
}

// events follows the refusals, unless that is under way.
async function events(caller) {
  if (reader) return;
  if (!caller.events) {
    lists.feedNote(`${caller.name} may not read events: ADMIN_EVENTS sets the role that may.`);
    return;
  }
  const mine = reader = new AbortController();
  try {
    await follow("/v1/events", (kind, data) => kind === "refusal" ? lists.refusal(data) : lists.dropped(data.count), () => {
      document.body.dataset.events = "on";
      lists.feedNote("");
    }, mine.signal);
  } catch (wrong) {
    if (wrong.status) lists.feedNote(wrong.message);
  }
  if (reader === mine) endEvents();
}

function endEvents() {
  delete document.body.dataset.events;
  reader?.abort();
  reader = null;
}

const connected = () => document.body.dataset.state === "live";

async function top() {
  if (!connected()) return;
  try {
    lists.top(await get(`/v1/top?limit=10${$("whole").checked ? "&all=true" : ""}`));
  } catch (wrong) {
    lists.topFailed(wrong.status ? wrong.message : "");
  }
}

async function fleet() {
  if (!connected()) return;
  try {
    notice("fleet", lists.fleet(await get("/v1/sidecars")));
  } catch (wrong) {
    if (wrong.status) say($("fleet-note"), wrong.message);
  }
}

$("sign").addEventListener("submit", event => {
  event.preventDefault();
  useToken($("token").value);
  $("token").value = "";
  $("token").blur();
  stats();
});
$("forget").addEventListener("click", () => {
  useToken("");
  location.reload();
});
$("whole").addEventListener("change", top);
lists.hooks.client = operate.look;
lists.hooks.explain = explain.from;

folds();
stats().then(() => {
  again(every.top, top);
  again(every.fleet, fleet);
  setTimeout(() => again(every.stats, stats), every.stats);
});
