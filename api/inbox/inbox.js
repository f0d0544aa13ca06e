// The inbox: the list of open questions, one question in detail, and the form for its answer. The page calls
// the API with the token that the user entered, or with a name if the service has no authentication.

import {answerForm, element, Fault, jsonForm, visible} from "./form.js";

const EVERY_MS = 5000;
const PAGE = 50;
const DAY_MS = 24 * 3600 * 1000;

const at = (id) => document.getElementById(id);
const groups = [
  ["Overdue", (ms) => ms < 0],
  ["Within a day", (ms) => ms < DAY_MS],
  ["Within a week", (ms) => ms < 7 * DAY_MS],
  ["Later", (ms) => Number.isFinite(ms)],
  ["Without a deadline", () => true],
];

let questions = [];
let pages = 1;
let hasMore = false;
let shown = null;
let answered = new Set();
let drawn = "";
// In the session storage, which ends with the tab.
let token = sessionStorage.getItem("token") ?? "";
let name = sessionStorage.getItem("name") ?? "";
let isTokenNeeded = token !== "";

class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The service responded with ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
  }
}

async function call(path, {body} = {}) {
  const headers = {Accept: "application/json"};
  if (isTokenNeeded && token) headers.Authorization = `Bearer ${token}`;
  // Headers are bytes: encode the name as UTF-8.
  if (!isTokenNeeded && name) headers["X-Abeyance-Principal"] = String.fromCharCode(...new TextEncoder().encode(name));
  const options = {headers, cache: "no-store"};
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, {method: "POST", body: JSON.stringify(body)});
  }
  const response = await fetch(path, options);
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  if (response.status === 401) askForToken();
  throw new Problem(response.status, content);
}

// The user

function askForToken() {
  isTokenNeeded = true;
  showWho();
}

function showWho() {
  at("name-label").textContent = isTokenNeeded ? "Token" : "Your name";
  const field = at("name");
  field.type = isTokenNeeded ? "password" : "text";
  field.placeholder = isTokenNeeded ? "" : "local";
  if (document.activeElement !== field) field.value = isTokenNeeded ? token : name;
}

at("who").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = at("name").value.trim();
  if (isTokenNeeded) token = value;
  else name = value;
  sessionStorage.setItem(isTokenNeeded ? "token" : "name", value);
  refresh();
});

// The list

async function refresh() {
  try {
    let cursor = null;
    const items = [];
    for (let page = 0; page < pages; page += 1) {
      const query = new URLSearchParams({limit: PAGE, ...(cursor ? {cursor} : {})});
      const listed = await call(`/interrupts?${query}`);
      items.push(...listed.items);
      cursor = listed.next_cursor;
      if (!cursor) break;
    }
    hasMore = Boolean(cursor);
    // The list lags by a moment: hide the questions that were answered on this page.
    questions = items.filter((question) => !answered.has(question.id));
    const count = questions.length === 1 ? "1 open question" : `${questions.length} open questions`;
    showState(questions.length ? count : "No open questions");
    drawList();
    if (shown?.status === "open" && !questions.some(({id}) => id === shown.id)) await reload();
  } catch (error) {
    showState(error instanceof Problem ? error.message : "The service cannot be reached. Retrying.");
  }
}

async function reload() {
  const now = await call(`/interrupts/${encodeURIComponent(shown.id)}`);
  if (now.status !== "open") drawQuestion(now);
}

function showState(message) {
  const [state, text] = [at("state"), visible(message)];
  if (state.textContent !== text) state.textContent = text;
}

function drawList() {
  const now = Date.now();
  const grouped = groups.map(([title]) => [title, []]);
  for (const question of questions) {
    const left = question.deadline ? Date.parse(question.deadline) - now : Infinity;
    grouped[groups.findIndex(([, matches]) => matches(left))][1].push(question);
  }
  const state = JSON.stringify([grouped, hasMore, shown?.id, Math.floor(now / 60000)]);
  if (state === drawn) return;
  drawn = state;
  const focused = document.activeElement?.dataset?.id;
  at("questions").replaceChildren(
    ...grouped
      .filter(([, members]) => members.length)
      .flatMap(([title, members]) => [element("h3", {}, title), element("ul", {}, ...members.map(entry))]),
  );
  at("more").hidden = !hasMore;
  if (focused) document.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function entry(question) {
  const link = element(
    "a",
    {
      href: `#${encodeURIComponent(question.id)}`,
      "data-id": question.id,
      "aria-current": shown?.id === question.id && "true",
    },
    question.prompt,
    element("small", {}, ...separated([question.graph, question.run_id, question.requested_capability].filter(Boolean))),
    question.deadline ? dueTime(question.deadline) : null,
  );
  return element("li", {}, link);
}

// Each text has its own element, so that its writing direction does not affect the others.
function separated(texts) {
  return texts.flatMap((text, index) => [index ? " · " : null, element("span", {}, text)]);
}

function dueTime(text) {
  const left = Date.parse(text) - Date.now();
  const sizes = [["day", DAY_MS], ["hour", 3600000], ["minute", 60000]];
  const [unit, size] = sizes.find(([, ms]) => Math.abs(left) >= ms) ?? sizes[2];
  const relative = new Intl.RelativeTimeFormat("en", {numeric: "auto"}).format(Math.round(left / size), unit);
  const attributes = {datetime: text, title: text, class: left < 0 ? "late" : null};
  return element("small", {}, element("time", attributes, left < 0 ? `was due ${relative}` : `due ${relative}`));
}

at("more").addEventListener("click", () => {
  pages += 1;
  refresh();
});

// One question

async function open() {
  const id = decoded(location.hash.slice(1));
  if (!id) return;
  try {
    drawQuestion(await call(`/interrupts/${encodeURIComponent(id)}`));
  } catch (error) {
    const message = error instanceof Problem ? error.message : "The service cannot be reached. Reload the page.";
    at("question").replaceChildren(element("p", {role: "alert"}, message));
  }
}

// Text that is not URL-encoded is used as it is: the service responds that the question is unknown.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function drawQuestion(question) {
  shown = question;
  const heading = element("h2", {tabindex: "-1"}, question.prompt);
  at("question").replaceChildren(
    heading,
    about(question),
    ...section("Reason", question.reason),
    ...section("Details", question.payload),
    question.status === "open" ? answering(question) : settled(question),
  );
  heading.focus({preventScroll: true});
  drawList();
}

function about(question) {
  const rows = [
    ["Graph", question.graph],
    ["Run", question.run_id],
    ["Location", question.address.replaceAll(";", " › ")],
    ["Part of", question.parents.map((parent) => parent.address ?? parent.id).join(", ")],
    ["Approvers", question.requested_capability ? `anyone with ${question.requested_capability}` : "anyone"],
    ["Asked", clock(question.created_at)],
    ["Deadline", question.deadline && `${clock(question.deadline)}, then ${asText(question.on_timeout)}`],
  ];
  return element(
    "dl",
    {},
    ...rows.filter(([, text]) => text).flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]),
  );
}

function clock(text) {
  return new Date(text).toLocaleString(undefined, {dateStyle: "medium", timeStyle: "long"});
}

function section(title, value) {
  if (value === null || value === undefined) return [];
  return [element("h3", {}, title), element("pre", {tabindex: "0"}, asText(value))];
}

function asText(value) {
  return visible(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

function settled(question) {
  const by = question.answered_by ? `${question.status} by ${question.answered_by}` : question.status;
  const reason = question.settled_reason ? ` (${question.settled_reason})` : "";
  return element("p", {role: "status"}, `This question is ${by}${reason}.`);
}

// The answer

function answering(question) {
  let fields = answerForm(question.response_schema, question.payload);
  const place = element("div", {}, fields.element);
  const raw = element("input", {type: "checkbox"});
  const note = element("input", {id: "note", autocomplete: "off"});
  const fault = element("p", {role: "alert"});
  const send = element("button", {class: "send"}, "Send answer");
  const form = element(
    "form",
    {class: "answer", novalidate: true},
    place,
    element("p", {class: "choices"}, element("label", {}, raw, "Answer in JSON")),
    element("div", {class: "field"}, element("label", {for: "note"}, "Note (stored with the answer)"), note),
    fault,
    send,
  );
  raw.addEventListener("change", () => {
    fields = raw.checked ? jsonForm(read()) : answerForm(question.response_schema, question.payload);
    place.replaceChildren(fields.element);
  });
  // The current input, if it is a complete answer.
  const read = () => {
    try {
      return fields.read();
    } catch {
      return undefined;
    }
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fault.textContent = "";
    for (const field of fields.fields) field.element.removeAttribute("aria-invalid");
    send.disabled = true;
    try {
      const body = {response: fields.read()};
      if (note.value.trim()) body.note = note.value.trim();
      // With the digest, the run refuses the answer if the question has changed since.
      if (question.digest) body.digests = {[question.id]: question.digest};
      const {receipts} = await call(`/interrupts/${encodeURIComponent(question.id)}/respond`, {body});
      done(question, receipts[0]);
    } catch (error) {
      fault.textContent = visible(explain(error, fields));
      if (error instanceof Problem && ["already_answered", "expired", "withdrawn"].includes(error.code)) {
        shown = question;
        await refresh();
      }
    } finally {
      send.disabled = false;
    }
  });
  return form;
}

function explain(error, fields) {
  if (error instanceof Fault) {
    mark(error.element);
    return error.message;
  }
  if (!(error instanceof Problem)) {
    return "The service cannot be reached, and the answer may or may not have arrived. Sending it again is safe.";
  }
  for (const {pointer} of error.errors) {
    const field = fields.fields.find(({path}) => path && (pointer ?? "").endsWith(path));
    if (field) mark(field.element);
  }
  return [error.message, ...error.errors.map(({pointer, message}) => `${pointer || "the answer"}: ${message}`)].join("\n");
}

function mark(control) {
  control.setAttribute("aria-invalid", "true");
  control.focus();
}

function done(question, receipt) {
  answered.add(question.id);
  questions = questions.filter(({id}) => id !== question.id);
  shown = null;
  history.replaceState(null, "", location.pathname);
  const result = receipt.replayed ? "Already answered" : "Answer accepted";
  const line = element("p", {role: "status", tabindex: "-1"}, `${result}: ${question.prompt}`);
  at("question").replaceChildren(line);
  line.focus();
  drawList();
  refresh();
}

window.addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
setInterval(() => document.visibilityState === "visible" && refresh(), EVERY_MS);

showWho();
await refresh();
await open();
