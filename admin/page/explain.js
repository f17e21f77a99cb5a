// The form that explains a request.
import { $, el, fill, leftText, name, place, table, span, limitText, unfold } from "./dom.js";
import { post } from "./api.js";

const example = { domain: "", descriptors: [{ entries: [{ key: "user", value: "alice" }] }] };
let form = "http";

function choose(which) {
  form = which;
  $("ask-http").hidden = which !== "http";
  $("ask-rls").hidden = which !== "rls";
  for (const choice of document.querySelectorAll("input[name=form]")) choice.checked = choice.value === which;
}

// domains fills in which domains there are.
export function domains(names) {
  if ($("ask-json").value === "") {
    example.domain = names[0] || "";
    $("ask-json").value = JSON.stringify(example, null, 2);
  }
}

// from fills in the form with a refused request, as far as an event tells of it.
export function from(event) {
  if (event.path) {
    choose("http");
    $("ask-domain").value = event.domain;
    if (![...$("ask-method").options].some(one => one.value === event.method)) $("ask-method").append(el("option", {}, event.method));
    $("ask-method").value = event.method;
    $("ask-path").value = event.path;
    $("ask-peer").value = event.address || "";
  } else {
    choose("rls");
    const entries = Object.entries(event.entries || {}).map(([key, value]) => ({ key, value }));
    $("ask-json").value = JSON.stringify({ domain: event.domain, descriptors: event.descriptors || [{ entries }] }, null, 2);
  }
  unfold("explain");
  $("explain").scrollIntoView();
  $(event.path ? "ask-headers" : "ask-json").focus({ preventScroll: true });
}

// request is what the form holds, as the API takes it.
function request() {
  if (form === "rls") return { rls: JSON.parse($("ask-json").value) };
  const http = { method: $("ask-method").value, path: $("ask-path").value || "/" };
  if ($("ask-domain").value) http.domain = $("ask-domain").value;
  if ($("ask-peer").value.trim()) http.peer = $("ask-peer").value.trim();
  const lines = $("ask-headers").value.split("\n").map(line => line.trim()).filter(Boolean);
  if (lines.length) http.headers = Object.fromEntries(lines.map(header));
  return { http };
}

function header(line) {
  const colon = line.indexOf(":", 1); // those that begin with one are of HTTP/2
  if (colon < 0) throw new Error(`The header “${line}” has no colon: write name: value.`);
  return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
}

async function explain(event) {
  event.preventDefault();
  try {
    fill($("explained"), ...answer(await post("/v1/explain", request())));
  } catch (wrong) {
    const text = wrong instanceof SyntaxError ? `The request is not JSON: ${wrong.message}` : wrong.message;
    fill($("explained"), el("p", { class: "notice bad" }, text));
  }
}

function answer(x) {
  const v = x.verdict;
  const outcome = x.note && v.outcome === "no_limit" ? "no rule matches" : v.outcome.replaceAll("_", " ");
  const by = v.rule ? [" by ", el("b", {}, name(v.rule))] : [];
  const wait = v.retry_after ? ` The client may try again in ${span(v.retry_after)}.` : "";
  return [
    el("div", { class: "notice " + (v.refused ? "bad" : x.note ? "" : "good") }, el("p", {}, el("b", {}, outcome), ...by, `, HTTP status ${v.status}.${wait}`),
      v.reason ? el("p", {}, name(v.reason)) : null, v.degraded ? el("p", {}, `Decided without the store: ${v.degraded}.`) : null),
    ...(x.note ? [el("p", { class: "notice" }, x.note)] : []),
    el("h3", {}, "Taken for"), taken(x),
    el("h3", {}, "Rules that could apply"), considered(x.considered),
    el("h3", {}, "What is left"), charges(x.charges),
    el("details", {}, el("summary", {}, "Answers of both doors"), el("pre", {}, JSON.stringify(x.answers, null, 2))),
  ];
}

function taken(x) {
  const rows = [["domain", x.known ? x.domain : `${x.domain} (it has no rules)`]];
  const c = x.client;
  if (c) {
    for (const [word, value] of [["user", c.user], ["tenant", c.tenant], ["tier", c.tier], ["API key", c.api_key], ["address", c.address]]) if (value) rows.push([word, value]);
    rows.push(["known by", `${c.evidence}${c.authenticated ? ", verified" : ", not verified"}`]);
  } else {
    for (const a of x.attributes) rows.push([a.name, a.value]);
  }
  if (x.readings.length > 1) rows.push(["path read as", x.readings.join("  ")]);
  if (x.factor !== 1) rows.push(["cost times", String(x.factor)]);
  return el("dl", {}, ...rows.flatMap(([word, value]) => [el("dt", {}, word), el("dd", {}, name(value))]));
}

function considered(all) {
  if (!all.length) return el("p", { class: "quiet" }, "None.");
  return table("Rules that could apply", ["rule", "written in", "applies"], all.map(one => [
    [name(one.name || one.what), el("span", { class: "quiet" }, ` ${[one.what, one.scope, one.action, one.pattern].filter(Boolean).join(", ")}`)],
    place(one.at),
    one.won ? el("span", { class: "pill good" }, "yes") : lost(one)]));
}

function lost(one) {
  const by = one.beaten_by ? ["beaten by ", el("b", {}, name(one.beaten_by)), ...(one.beaten_at ? [" (", place(one.beaten_at), ")"] : [])] : ["does not apply"];
  return el("span", {}, el("span", { class: "pill" }, "no"), " ", ...by, one.because ? el("span", { class: "quiet" }, ": ", name(one.because)) : null);
}

function charges(all) {
  if (!all.length) return el("p", { class: "quiet" }, "No counter is charged.");
  return table("Counters", ["rule", "limit", "cost", "left", "of"], all.map(one => [
    [name(one.rule), one.enforced ? "" : el("span", { class: "quiet" }, " not enforced")], limitText(one.limit), String(one.cost),
    [one.left < 0 ? "not counted" : leftText(one.left, one.limit, one.refuses ? 0 : one.reset_after), el("span", { class: "bad" }, one.refuses ? `, refuses${one.retry_after ? " for " + span(one.retry_after) : ""}` : ""),
      one.degraded ? el("span", { class: "bad" }, ` store: ${one.degraded}`) : ""],
    el("span", { title: one.key }, name(one.who.map(w => w.name).join(", ") || "all requests"))]));
}

$("ask").addEventListener("submit", explain);
for (const choice of document.querySelectorAll("input[name=form]")) choice.addEventListener("change", () => choose(choice.value));
