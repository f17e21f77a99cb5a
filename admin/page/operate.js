// One client: what is left to it, and what an operator may change. Each change is shown by a dry run before it is made.
import { $, el, fill, leftText, name, place, say, table, time, span, limitText, unfold } from "./dom.js";
import { get, post } from "./api.js";
import { countedBy } from "./lists.js";

const kindWords = { user: "user", tenant: "tenant", api_key: "API key", ip: "address", key: "key" };

// domains fills in which domains there are.
export function domains(names) {
  for (const id of ["who-domain", "ask-domain"]) {
    const chosen = $(id).value;
    fill($(id), ...names.map(one => el("option", { value: one }, one)));
    if (names.includes(chosen)) $(id).value = chosen;
  }
}

// allow shows the buttons of the caller's role.
export function allow(caller) {
  const may = caller.role === "operate";
  $("changes").hidden = !may;
  $("may-not").hidden = may;
  say($("may-not"), may ? "" : `${caller.name} has the role view: it sees all and changes nothing. A token with the role operate may block, unblock, reset, pardon and set a tier.`);
}

// look shows one client, as a button of a list asks for it.
export function look(domain, kind, who) {
  $("who-domain").value = domain;
  $("who-kind").value = kind;
  $("who-name").value = who;
  $("who-endpoint").value = "";
  kindChanged();
  unfold("client");
  $("client").scrollIntoView();
  $("who-name").focus({ preventScroll: true });
  usage();
}

// whom is the client that the form names, as the API takes it.
function whom() {
  const who = { domain: $("who-domain").value };
  who[$("who-kind").value] = $("who-name").value.trim();
  return who;
}

// holder is whom, for counters.
function holder() {
  const who = whom();
  if (who.key) return { domain: who.domain, keys: [who.key] };
  const endpoint = $("who-endpoint").value.trim();
  return endpoint ? { ...who, endpoint } : who;
}

const spoken = () => [kindWords[$("who-kind").value] + " ", el("b", {}, name($("who-name").value.trim())), " in the domain ", el("b", {}, name($("who-domain").value))];

async function usage() {
  const { keys, ...who } = holder();
  if (keys) who.key = keys[0];
  try {
    fill($("left"), ...usageView(await get("/v1/usage?" + new URLSearchParams(Object.entries(who).filter(([, value]) => value)))));
  } catch (wrong) {
    fill($("left"), el("p", { class: "notice bad" }, wrong.message));
  }
}

function usageView(view) {
  const parts = [el("p", {}, ...profileText(view.profile))];
  const used = view.counters.filter(one => !one.idle), idle = view.counters.filter(one => one.idle);
  parts.push(used.length ? counters("Counters", used) : el("p", { class: "quiet" }, "No limit counts this client by what was given."));
  if (idle.length) parts.push(el("p", { class: "quiet" }, "Not used: ", ...idle.flatMap((one, i) => [i ? ", " : "", name(countedBy(one)), ` (${one.idle})`]), "."));
  return parts.concat(unlisted(view.unlisted));
}

function unlisted(all) {
  if (!all.length) return [];
  return [el("p", { class: "quiet" }, "Not listed: ", ...all.flatMap((one, i) => [i ? ", " : "", name(one.rule), ` (it counts by ${one.scope}: ${one.lacks.join(" and ")} is missing)`]), ".")];
}

function counters(caption, all) {
  return table(caption, ["rule", "limit", "left", "of", "written in"], all.map(one => [
    name(countedBy(one)), limitText(one.limit),
    [one.unknown ? `not known: ${one.unknown}` : leftText(one.left, one.limit, one.reset_after), one.cool_down ? el("span", { class: "bad" }, `, cools down for ${span(one.cool_down)}`) : null].filter(Boolean),
    el("span", { title: one.key }, name(one.who.map(w => w.name).join(", ") || "all requests")), place(one.at)]));
}

// profileText says what the profile of a client holds.
function profileText(profile) {
  if (!profile) return ["There is no profile: the rule file alone holds."];
  const words = [];
  if (profile.block) words.push(...blockText(profile.block));
  if (profile.tier) words.push("It has the tier ", el("b", {}, name(profile.tier)), ". ");
  if (profile.limits) words.push(`It has limits of its own: ${profile.limits.map(limitText).join("; ")}. `);
  if (profile.note) words.push("Note: ", name(profile.note), ". ");
  if (profile.by) words.push(el("span", { class: "quiet" }, "Last changed by ", name(profile.by), ...(profile.at ? [" at ", time(profile.at)] : []), "."));
  return words.length ? words : ["The profile is empty: the rule file alone holds."];
}

function blockText(block) {
  if (block.lifted) return ["Blocks of the rule file are lifted. "];
  return [el("b", { class: "bad" }, "It is blocked"), ...(block.until ? [" until ", time(block.until)] : [" until it is unblocked"]), block.reason ? ". It is told: " : ". ", block.reason ? name(block.reason) : "", block.reason ? ". " : ""];
}

const everywhere = " It is in force on every sidecar within a second.";

const field = (id, label, props) => el("p", { class: "grow" }, el("label", { for: id }, label), el("input", { id, spellcheck: "false", autocomplete: "off", ...props }));
const value = id => $(id)?.value.trim() || "";
const given = fields => Object.fromEntries(Object.entries(fields).filter(([, text]) => text !== "" && text !== false));

// changes are what the buttons do: the fields of the dialog, the body of the request, and what its dry run means in words.
const changes = {
  block: {
    title: "Block", harms: true, fields: () => [field("block-for", "For how long (empty: until it is unblocked)", { placeholder: "such as 10m, 1h or 7d" }), field("block-reason", "What the client is told", { maxlength: 1024 })],
    body: () => ({ ...whom(), ...given({ for: value("block-for"), reason: value("block-reason") }) }),
    what: ({ after }) => [el("p", {}, "All requests of ", ...spoken(), " are refused, ", ...(after.block.until ? ["until ", time(after.block.until), "."] : ["until it is unblocked."]), everywhere), after.block.reason ? el("p", {}, "The client is told: ", name(after.block.reason)) : null],
  },
  unblock: {
    title: "Unblock", fields: () => [el("p", { class: "full" }, el("label", { class: "check" }, el("input", { type: "checkbox", id: "unblock-lift" }), "Also lift blocks of the rule file that name it"))],
    body: () => ({ ...whom(), ...given({ lift: $("unblock-lift").checked }) }),
    what: ({ before, after }) => [el("p", {}, ...(before?.block && !before.block.lifted ? ["The block of ", ...spoken(), " ends.", everywhere] : ["There is no block of ", ...spoken(), " on profile. "])),
      el("p", {}, after?.block?.lifted ? "Blocks of the rule file that name it are lifted, too." : "Blocks of the rule file stay.")],
  },
  reset: {
    title: "Reset", harms: true, fields: () => [], body: holder,
    what: ({ before, unlisted: others }) => before.length
      ? [el("p", {}, before.length === 1 ? "This counter of " : `These ${before.length} counters of `, ...spoken(), " become full.", everywhere), counters("Counters that become full", before), ...unlisted(others)]
      : [el("p", {}, "No counter of ", ...spoken(), " is found, so nothing will happen."), ...unlisted(others)],
  },
  pardon: {
    title: "Pardon", fields: () => [], body: holder,
    what: ({ before, unlisted: others }) => before.length
      ? [el("p", {}, "The cool-downs of ", ...spoken(), " end, and its refusals are forgotten, under ", before.length === 1 ? "this limit." : `these ${before.length} limits.`, everywhere), counters("Limits with a penalty", before), ...unlisted(others)]
      : [el("p", {}, "No limit of ", ...spoken(), " has a penalty, so nothing will happen."), ...unlisted(others)],
  },
  tier: {
    title: "Set the tier of", fields: () => [field("tier-name", "Tier (empty: the one of the rule file)", { maxlength: 256 })],
    body: () => ({ ...whom(), tier: value("tier-name") }),
    what: ({ before, after }) => [el("p", {}, "The tier of ", ...spoken(), " becomes ", after?.tier ? el("b", {}, name(after.tier)) : "the one of the rule file", before?.tier ? " and was " : "", before?.tier ? el("b", {}, name(before.tier)) : "", ".", everywhere)],
  },
};

let change = null; // that the dialog is about
let asked = 0; // dry runs, so that a late one is not shown

const nothing = answer => Array.isArray(answer.before) && answer.before.length === 0;

// preview asks what would happen, and shows it.
async function preview() {
  const mine = ++asked, yes = $("confirm-yes");
  yes.disabled = true;
  try {
    const answer = await post(`/v1/${change}`, { ...changes[change].body(), dry_run: true });
    if (mine !== asked) return;
    fill($("confirm-what"), ...changes[change].what(answer), ...(answer.warnings || []).map(text => el("p", { class: "notice warn" }, name(text))));
    yes.disabled = nothing(answer);
  } catch (wrong) {
    if (mine === asked) fill($("confirm-what"), el("p", { class: "notice bad" }, wrong.message));
  }
}

async function open(which) {
  if (!$("who").reportValidity()) return;
  change = which;
  fill($("confirm-title"), changes[which].title, " ", ...spoken());
  say($("confirm-yes"), changes[which].title.split(" ")[0]);
  $("confirm-yes").className = changes[which].harms ? "danger" : "main";
  fill($("confirm-fields"), ...changes[which].fields());
  fill($("confirm-what"), el("p", { class: "quiet" }, "Asking…"));
  for (const input of $("confirm-fields").querySelectorAll("input")) input.addEventListener("input", preview);
  $("confirm").showModal();
  await preview();
}

// make makes the change that the dialog shows.
async function make() {
  const { title, body } = changes[change];
  const yes = $("confirm-yes");
  yes.disabled = true;
  try {
    await post(`/v1/${change}`, body());
  } catch (wrong) {
    fill($("confirm-what"), el("p", { class: "notice bad" }, wrong.message));
    return;
  }
  $("confirm").close();
  fill($("changed"), el("span", { class: "notice good" }, `${title} `, ...spoken(), ": done."));
  usage();
}

function kindChanged() {
  const key = $("who-kind").value === "key";
  $("who-endpoint-field").hidden = key;
  for (const which of ["block", "unblock", "tier"]) document.querySelector(`[data-change=${which}]`).disabled = key;
}

$("who").addEventListener("submit", event => {
  event.preventDefault();
  fill($("changed"));
  usage();
});
$("who-kind").addEventListener("change", kindChanged);
for (const button of document.querySelectorAll("[data-change]")) button.addEventListener("click", () => open(button.dataset.change));
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", make);
// Enter in a field leads to the button, and does not press it: what will happen is to be read first.
$("confirm-fields").addEventListener("keydown", async event => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  await preview();
  $("confirm-yes").focus();
});
