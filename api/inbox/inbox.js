// The inbox: what is asked, by deadline; one question in full; and the answer to it. All of it is asked
// from the API, as whoever's token (or name, where there is no authentication) was put in.

import {answerForm, element, Fault, jsonForm, visible} from "./form.js";

const EVERY_MS = 5000;
const PAGE = 50;
const DAY_MS = 24 * 3600 * 1000;

const at = (id) => document.getElementById(id);
const sorts = [
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
// Of a tab, so that it is gone with it.
let token = sessionStorage.getItem("token") ?? "";
let name = sessionStorage.getItem("name") ?? "";
let isTokenNeeded = token !== "";

class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The service answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
  }
}

async function call(path, {body} = {}) {
  const headers = {Accept: "application/json"};
  if (isTokenNeeded && token) headers.Authorization = `Bearer ${token}`;
  // A header holds bytes: names are sent in UTF-8.
  if (!isTokenNeeded && name) headers["X-Abeyance-Principal"] = String.fromCharCode(...new TextEncoder().encode(name));
  const options = {headers, cache: "no-store"};
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, {method: "POST", body: JSON.stringify(body)});
  }
  const response = await fetch(path, options);
  const found = await response.json().catch(() => ({}));
  if (response.ok) return found;
  if (response.status === 401) askForToken();
  throw new Problem(response.status, found);
}

// Who is looking

function askForToken() {
  isTokenNeeded = true;
  showWho();
}

function showWho() {
  at("name-label").textContent = isTokenNeeded ? "Token" : "You are";
  const field = at("name");
  field.type = isTokenNeeded ? "password" : "text";
  field.placeholder = isTokenNeeded ? "" : "local";
  if (document.activeElement !== field) field.value = isTokenNeeded ? token : name;
}

at("who").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("name").value.trim();
  if (isTokenNeeded) token = given;
  else name = given;
  sessionStorage.setItem(isTokenNeeded ? "token" : "name", given);
  refresh();
});

// The list

async function refresh() {
  try {
    let cursor = null;
    const found = [];
    for (let page = 0; page < pages; page += 1) {
      const query = new URLSearchParams({limit: PAGE, ...(cursor ? {cursor} : {})});
      const listed = await call(`/interrupts?${query}`);
      found.push(...listed.items);
      cursor = listed.next_cursor;
      if (!cursor) break;
    }
    hasMore = Boolean(cursor);
    // The list is a moment late: what was answered here is not shown again meanwhile.
    questions = found.filter((each) => !answered.has(each.id));
    const told = questions.length === 1 ? "1 question is open." : `${questions.length} questions are open.`;
    tell(questions.length ? told : "Nothing is asked.");
    drawList();
    if (shown && !questions.some((each) => each.id === shown.id) && shown.status === "open") await lookAgain();
  } catch (error) {
    tell(error instanceof Problem ? error.message : "The service cannot be reached. It is tried again.");
  }
}

async function lookAgain() {
  const now = await call(`/interrupts/${encodeURIComponent(shown.id)}`);
  if (now.status !== "open") drawQuestion(now);
}

function tell(said) {
  const [state, text] = [at("state"), visible(said)];
  if (state.textContent !== text) state.textContent = text;
}

function drawList() {
  const now = Date.now();
  const grouped = sorts.map(([title]) => [title, []]);
  for (const each of questions) {
    const left = each.deadline ? Date.parse(each.deadline) - now : Infinity;
    grouped[sorts.findIndex(([, holds]) => holds(left))][1].push(each);
  }
  const wanted = JSON.stringify([grouped, hasMore, shown?.id, Math.floor(now / 60000)]);
  if (wanted === drawn) return;
  drawn = wanted;
  const focused = document.activeElement?.dataset?.id;
  at("questions").replaceChildren(
    ...grouped
      .filter(([, members]) => members.length)
      .flatMap(([title, members]) => [element("h3", {}, title), element("ul", {}, ...members.map(entry))]),
  );
  at("more").hidden = !hasMore;
  if (focused) document.querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function entry(each) {
  const link = element(
    "a",
    {href: `#${encodeURIComponent(each.id)}`, "data-id": each.id, "aria-current": shown?.id === each.id && "true"},
    each.prompt,
    element("small", {}, ...parted([each.graph, each.run_id, each.requested_capability].filter(Boolean))),
    each.deadline ? moment(each.deadline) : null,
  );
  return element("li", {}, link);
}

// Each in an element of its own, so that the direction of one does not turn the others.
function parted(texts) {
  return texts.flatMap((text, index) => [index ? " · " : null, element("span", {}, text)]);
}

function moment(text) {
  const left = Date.parse(text) - Date.now();
  const sizes = [["day", DAY_MS], ["hour", 3600000], ["minute", 60000]];
  const [unit, size] = sizes.find(([, each]) => Math.abs(left) >= each) ?? sizes[2];
  const told = new Intl.RelativeTimeFormat("en", {numeric: "auto"}).format(Math.round(left / size), unit);
  const attributes = {datetime: text, title: text, class: left < 0 ? "late" : null};
  return element("small", {}, element("time", attributes, left < 0 ? `was due ${told}` : `due ${told}`));
}

at("more").addEventListener("click", () => {
  pages += 1;
  refresh();
});

// One question

async function open() {
  const id = named(location.hash.slice(1));
  if (!id) return;
  try {
    drawQuestion(await call(`/interrupts/${encodeURIComponent(id)}`));
  } catch (error) {
    const told = error instanceof Problem ? error.message : "The service cannot be reached.";
    at("question").replaceChildren(element("p", {role: "alert"}, told));
  }
}

// What no link of ours says is taken as it stands: the service answers that there is no such question.
function named(text) {
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
    ...section("Why", question.reason),
    ...section("What it is about", question.payload),
    question.status === "open" ? answering(question) : settled(question),
  );
  heading.focus({preventScroll: true});
  drawList();
}

function about(question) {
  const rows = [
    ["Graph", question.graph],
    ["Run", question.run_id],
    ["Where", question.address.replaceAll(";", " › ")],
    ["Part of", question.parents.map((each) => each.address ?? each.id).join(", ")],
    ["May answer", question.requested_capability ? `who has ${question.requested_capability}` : "anybody"],
    ["Asked", clock(question.created_at)],
    ["Until", question.deadline && `${clock(question.deadline)}; then: ${asText(question.on_timeout)}`],
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
  const send = element("button", {class: "send"}, "Send the answer");
  const form = element(
    "form",
    {class: "answer", novalidate: true},
    place,
    element("p", {class: "choices"}, element("label", {}, raw, "Write the answer as JSON")),
    element("div", {class: "field"}, element("label", {for: "note"}, "Note, kept with the answer"), note),
    fault,
    send,
  );
  raw.addEventListener("change", () => {
    fields = raw.checked ? jsonForm(read()) : answerForm(question.response_schema, question.payload);
    place.replaceChildren(fields.element);
  });
  // What was put in so far, if it is an answer already.
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
      // The answer is to what was shown here, and to nothing else.
      if (question.digest) body.digests = {[question.id]: question.digest};
      const {receipts} = await call(`/interrupts/${encodeURIComponent(question.id)}/respond`, {body});
      done(question, receipts[0]);
    } catch (error) {
      fault.textContent = visible(complaint(error, fields));
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

function complaint(error, fields) {
  if (error instanceof Fault) {
    mark(error.element);
    return error.message;
  }
  if (!(error instanceof Problem)) {
    return "The service cannot be reached, so it is not known whether the answer has arrived. Sending it again is safe.";
  }
  for (const {pointer} of error.errors) {
    const field = fields.fields.find((each) => (pointer ?? "").endsWith(each.path) && each.path);
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
  questions = questions.filter((each) => each.id !== question.id);
  shown = null;
  history.replaceState(null, "", location.pathname);
  const told = receipt.replayed ? "It was answered so before" : "The answer is accepted";
  const line = element("p", {role: "status", tabindex: "-1"}, `${told}: ${question.prompt}`);
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
