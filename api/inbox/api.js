// Calls of the API. The session's cookie says who calls; a service without authentication takes a name.

import {parse, write} from "./json.js";
import {setClock, visible} from "./markup.js";

export {serviceTime} from "./markup.js";

const HEARTBEAT_MS = 60_000;

/** What the service refused, with its code and the faults of each field. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The service responded with ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
    this.details = body;
  }
}

/** The caller: `{subject, capabilities, groups, reads, authenticated_by}`; null until it is known. */
export let me = null;
let name = sessionStorage.getItem("name") ?? "";

const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** Call the API and return the JSON of its response. Throws a Problem if the service refuses. */
export async function call(path, {method, body, key} = {}) {
  const headers = {Accept: "application/json"};
  // Headers are bytes: encode the name as UTF-8.
  if (me?.authenticated_by !== "token" && name) headers["X-Abeyance-Principal"] = bytes(name);
  if (key) headers["Idempotency-Key"] = key;
  const options = {headers, cache: "no-store", credentials: "same-origin", method: method ?? "GET"};
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, {method: method ?? "POST", body: write(body)});
  } else if (method) {
    // Shows the service that no page of another site sends this.
    headers["X-Abeyance-Request"] = "1";
  }
  const response = await fetch(path, options);
  const told = Date.parse(response.headers.get("Date"));
  if (told) setClock(told);
  const content = response.status === 204 ? {} : await read(response);
  if (response.ok) return content;
  throw new Problem(response.status, content);
}

/** Return the JSON of a response; an empty object if it has none. */
export async function read(response) {
  try {
    return parse(await response.text());
  } catch {
    return {};
  }
}

/** Find out who the caller is. Throws a Problem with status 401 if they have to sign in. */
export async function identify() {
  me = await call("/me");
  return me;
}

/** Use another name, where the service has no authentication. */
export async function rename(chosen) {
  name = chosen;
  sessionStorage.setItem("name", chosen);
  return identify();
}

/** Return what the page calls somebody: the reader is "you". */
export const called = (who) => (who === me?.subject ? "you" : who);

/** Return whether the caller has a capability. */
export const may = (capability) => Boolean(me?.capabilities.some((each) => each === "*" || each === capability));

/** Leave the session, and go to the page where one signs in. */
export async function signOut() {
  await call("/signout", {method: "POST"});
  location.assign("/signin");
}

/** Return the address of the page where one signs in, and comes back to this one. */
export const signInAddress = () => `/signin?next=${encodeURIComponent(location.pathname + location.search + location.hash)}`;

/** Return a text for a person about what went wrong. */
export function problemText(error, then = "This page tries again.") {
  return error instanceof Problem ? visible(error.message) : `The service cannot be reached. ${then}`;
}

/** What went wrong with something that one has done, which no page does again by itself. */
export const failureText = (error) => problemText(error, "It may have done this or not: look, and try again.");

/**
 * Call `heard(event)` for each event of a stream, and reconnect after breaks. `changed(isConnected)` says
 * whether the stream is there. Returns a function that ends it.
 */
export function listen(path, heard, changed = () => {}) {
  const stop = new AbortController();
  follow(path, heard, changed, stop.signal);
  return () => stop.abort();
}

async function follow(path, heard, changed, signal) {
  let last = null;
  for (let failures = 0; !signal.aborted && failures < 1000; failures += 1) {
    try {
      const headers = {Accept: "text/event-stream"};
      if (me?.authenticated_by !== "token" && name) headers["X-Abeyance-Principal"] = bytes(name);
      if (last) headers["Last-Event-ID"] = last;
      const response = await fetch(path, {headers, signal, cache: "no-store", credentials: "same-origin"});
      if (!response.ok || !response.body) {
        if (response.status === 404) return;
        // What happened since the last id cannot be had: go on from now, and have the list read.
        if (response.status === 410) last = null;
      } else {
        changed(true);
        for await (const event of messages(response.body)) {
          failures = 0;
          last = event.id ?? last;
          if (event.data) heard(event);
        }
      }
    } catch {
      if (signal.aborted) return;
    }
    changed(false);
    const pause = Math.min(HEARTBEAT_MS, 1000 * 2 ** Math.min(failures, 6));
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    waiting += value.replaceAll("\r\n", "\n");
    const blocks = waiting.split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) yield parsed(block);
  }
}

function parsed(block) {
  const fields = {type: "message"};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const [field, text] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    if (field === "event") fields.type = text;
    else if (field === "data") fields.data = fields.data === undefined ? text : `${fields.data}\n${text}`;
    else if (field === "id") fields.id = text;
  }
  try {
    return {...fields, data: fields.data === undefined ? null : parse(fields.data)};
  } catch {
    return {...fields, data: null};
  }
}
