// What all parts of the page know: the domain, the caller, and the dialog that asks before a change.
import { last } from "./api.js";
import { $, el, fill, name, say } from "./dom.js";

const roles = ["none", "viewer", "operator", "admin"];

export const rank = role => roles.indexOf(role);
export const caller = { role: 0 };

// may reports whether the caller has a role, or one above it.
export const may = role => caller.role >= rank(role);

// base.changed shows everything anew, after a change.
export const base = { changed: () => {} };

let inForce = []; // publications, one for each domain

// choose fills in which domains there are.
export function choose(publications) {
  inForce = publications;
  const names = publications.map(p => p.domain), have = [...$("domain").options].map(o => o.value);
  if (JSON.stringify(names) === JSON.stringify(have)) return;
  const before = $("domain").value;
  fill($("domain"), ...names.map(one => el("option", { value: one }, one)));
  if (names.includes(before)) $("domain").value = before;
}

// chosen is what is in force in the domain that is shown.
export const chosen = () => inForce.find(p => p.domain === $("domain").value);

// path is a path of the API below the domain that is shown.
export const path = (...words) => ["/v1/domains", ...[$("domain").value, ...words].map(encodeURIComponent)].join("/");

let before = Promise.resolve();

// inTurn is a function that begins when those before it have ended, so that a list is not changed by two at once.
export const inTurn = what => () => before = before.catch(() => {}).then(what);

let make = null;

// confirm asks before a change. What will happen is shown as elements; act makes the change, and gets the note.
export function confirm({ title, button, harms, what, note, act }) {
  make = act;
  fill($("confirm-title"), ...title, " of the domain ", name($("domain").value));
  say($("confirm-yes"), button);
  $("confirm-yes").className = harms ? "danger" : "main";
  $("confirm-yes").disabled = false;
  fill($("confirm-fields"), note ? el("p", { class: "full" }, el("label", { for: "confirm-note" }, note), el("input", { id: "confirm-note", spellcheck: "false", autocomplete: "off", maxlength: 1000 })) : null);
  fill($("confirm-what"), ...what);
  $("confirm").showModal();
}

$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", async () => {
  $("confirm-yes").disabled = true;
  try {
    const done = await make($("confirm-note")?.value.trim() || "");
    $("confirm").close();
    const late = last.waitsFor;
    fill($("changed"), el("span", { class: late ? "notice warn" : "notice good" }, late ? `The change is kept, and in force once ${late}.` : done));
    await base.changed();
  } catch (wrong) {
    fill($("confirm-what"), el("p", { class: "notice bad" }, wrong.message));
  }
});
// Enter in a field leads to the button, and does not press it: what will happen is to be read first.
$("confirm-fields").addEventListener("keydown", event => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  $("confirm-yes").focus();
});
