// Makes elements. Text from clients only ever becomes text: nothing here reads markup.

export const $ = id => document.getElementById(id);

// el makes an element. A property that begins with "on" is a listener; children are elements, texts, or null for none.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

// svg makes an element of a drawing.
export function svg(tag, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// name shows a name that a client or a file chose. Its direction of writing stays within it.
export const name = (text, kind = "") => el("bdi", { class: `name ${kind}`.trim() }, text);

// place shows where a rule is written: the file without its folders, which the title has, and the line.
export function place(at) {
  const [, file, line] = (at || "").split("/").pop().match(/^(.*?)(:\d+)?$/);
  return el("bdi", { class: "name mono", title: at }, file, line ? el("span", { class: "whole" }, line) : null);
}

// time shows a time in UTC, as the command does; its title has the local time. from is the first character that is shown.
export function time(at, from = 0) {
  if (!at) return "";
  const date = new Date(at);
  return el("time", { datetime: at, title: date.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" }) }, date.toISOString().replace(/\.\d+Z$/, "Z").slice(from));
}

const room = matchMedia("(min-width: 40.01rem)"); // for open folds

// folds opens the folded parts of the page where there is room, and the one that a link leads to.
export function folds() {
  const suit = () => { for (const one of document.querySelectorAll(".fold, .part")) one.open = room.matches; };
  room.addEventListener("change", suit);
  suit();
  addEventListener("hashchange", () => unfold(location.hash.slice(1)));
  for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => unfold(link.hash.slice(1)));
  unfold(location.hash.slice(1));
}

export const unfold = id => $(id)?.querySelector(":scope > details.fold")?.setAttribute("open", "");

// fold is a part of a list that is folded where there is little room.
export const fold = (title, note, ...children) => el("details", { class: "part", open: room.matches }, el("summary", {}, title, " ", el("span", { class: "quiet" }, note)), ...children);

export const fill = (node, ...children) => node.replaceChildren(...children.filter(child => child !== null && child !== undefined));

// say sets a text only when it differs, so that a screen reader is not told the same again.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// table makes a table whose cells carry the names of their columns, for narrow screens.
export function table(caption, columns, rows) {
  const head = el("tr", {}, ...columns.map(column => el("th", { scope: "col" }, column)));
  const body = rows.map(cells => el("tr", {}, ...cells.map((cell, i) => el("td", { "data-column": columns[i] }, el("div", {}, ...[cell].flat())))));
  return el("table", {}, el("caption", { class: "hide" }, caption), el("thead", {}, head), el("tbody", {}, ...body));
}

export function count(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(n >= 1e7 ? 0 : 1) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + " k";
  if (n >= 100 || Number.isInteger(n)) return Math.round(n).toString();
  return n.toFixed(1);
}

// span writes a number of seconds.
export function span(seconds) {
  if (seconds < 1e-3) return Math.round(seconds * 1e6) + " µs";
  if (seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 100) return (Number.isInteger(seconds) ? seconds : seconds.toFixed(1)) + " s";
  if (seconds < 6000) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  return Math.round(seconds / 86400) + " days";
}

export const since = (at, now = Date.now()) => span(Math.max(0, Math.round((now - Date.parse(at)) / 1000)));

// limitText writes a limit as a rule file does.
export function limitText(limit) {
  if (!limit) return "";
  if (limit.unlimited) return "unlimited";
  const burst = limit.burst && limit.burst !== limit.count ? `, burst ${limit.burst}` : "";
  return `${limit.count} per ${short(limit.per)}${burst}`;
}

// leftText says what is left of a limit, and when more comes: a window ends, and a bucket or a sliding window fills.
export function leftText(left, limit, reset) {
  const most = limit.burst || limit.count, share = `${left} of ${most}`;
  if (limit.algorithm === "fixed_window" && reset) return `${share}, ends in ${span(reset)}`;
  return left >= most || !reset ? share + (left >= most ? ", full" : "") : `${share}, full in ${span(reset)}`;
}

// short leaves out the zeros of a duration: 1h0m0s is 1h.
const short = per => (per || "").replace(/([hm])0s$/, "$1").replace(/h0m$/, "h");
