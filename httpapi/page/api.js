// Asks the API of the sidecar or the control that served the page.

const kept = "spillway-token";

let token = sessionStorage.getItem(kept) || "";

export const hasToken = () => token !== "";

// useToken keeps a token for as long as the tab is open; an empty one is forgotten.
export function useToken(text) {
  token = text.trim();
  if (token) sessionStorage.setItem(kept, token);
  else sessionStorage.removeItem(kept);
}

// Refusal is an answer of the API that is not the one asked for. Its message says what to do.
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function headers(more) {
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

async function refusal(answer) {
  let detail = `${answer.status} ${answer.statusText}`;
  try {
    detail = (await answer.json()).detail || detail;
  } catch {
    // The answer is not a problem of the API. Its status has to do.
  }
  return new Refusal(answer.status, detail);
}

async function send(path, options, within = 10000) {
  const answer = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(within) });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

const read = answer => answer.status === 204 ? null : answer.json();

// get asks for a document, and waits so many milliseconds for it.
export const get = async (path, within) => read(await send(path, { headers: headers({}) }, within));

export const post = (path, body) => change("POST", path, body);

// last.waitsFor is what has to come before the last change is in force; empty: it is.
export const last = { waitsFor: "" };

// change changes something; of what exists, the revision that was read is given.
export async function change(method, path, body, revision) {
  const match = revision ? { "if-match": `"${revision}"` } : {};
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await send(path, { method, headers: headers({ "content-type": "application/json", ...match }), ...sent });
  last.waitsFor = answer.headers.get("spillway-in-force-once") || "";
  return read(answer);
}

// follow reads a stream of server-sent events until it ends, and hands each to take(kind, data). An EventSource could not send the token.
export async function follow(path, take, began, signal) {
  const answer = await fetch(path, { headers: headers({ accept: "text/event-stream" }), cache: "no-store", signal });
  if (!answer.ok) throw await refusal(answer);
  began();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) event(block, take);
  }
}

function event(block, take) {
  let kind = "message", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) kind = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) take(kind, JSON.parse(data));
}
