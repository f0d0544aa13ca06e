// The page of a run: where it stands in its graph, what happened, its values, and what one may have it do.

import {call, identify, listen, may, me, Problem, problemText, signInLink} from "./api.js";
import {transcript, turn} from "./conversation.js";
import {picture} from "./picture.js";
import {at, button, clock, distance, element, inWords, pairs, promptLine, shownValue, spoken, visible} from "./markup.js";
import {showReader} from "./reader.js";

const REDRAW_MS = 500;
const MOST_EVENTS = 500;
const ENDED = new Set(["completed", "failed", "cancelled", "halted", "terminated", "timed-out", "timed_out"]);
const run = decodeURIComponent(location.pathname.split("/").pop());
const path = `/runs/${encodeURIComponent(run)}`;
const events = [];
const nodes = new Map();
// What models say while they speak, by the address of the turn.
const said = new Map();
let view = null;
let spec = null;

async function start() {
  try {
    await identify();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) {
      at("state").textContent = visible("Sign in to see the run.");
      return at("who").replaceChildren(signInLink());
    }
    return fail(error);
  }
  showReader(() => location.reload());
  document.title = `${visible(run)} · Abeyance`;
  try {
    await read();
  } catch (error) {
    return fail(error);
  }
  draw();
  stop = listen(`${path}/events`, heard);
  return undefined;
}

function fail(error) {
  at("state").textContent = visible("");
  at("run").replaceChildren(element("h1", {tabindex: "-1"}, run), element("p", {role: "alert"}, problemText(error)));
}

async function read() {
  view = await call(path);
  if (spec) return;
  try {
    spec = await call(`/graphs/${encodeURIComponent(view.graph)}`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
}

// Events

let waiting = null;
let stop = null;
function heard(event) {
  if (!event.data?.type) return;
  if (event.data.type === "model.delta") return speak(event.data);
  said.delete(event.data.address);
  // The last event of a run: the stream is over.
  if (ENDED.has(event.data.type.replace("run.", ""))) stop();
  events.push(event.data);
  follow(event.data);
  if (waiting) return;
  waiting = setTimeout(async () => {
    waiting = null;
    try {
      await read();
      draw();
    } catch (error) {
      at("state").textContent = visible(problemText(error));
    }
  }, REDRAW_MS);
}

function speak({address, data: {offset, text}}) {
  // Offsets count code points.
  const before = [...(said.get(address) ?? "")];
  said.set(address, before.slice(0, offset).join("") + (offset > before.length ? "…" : "") + text);
  at("speech")?.replaceWith(speech());
}

function speech() {
  const texts = [...said].filter(([, text]) => text);
  return element("section", {id: "speech", "aria-label": "Live text"},
    ...texts.flatMap(([address, text]) => [element("h2", {}, `${labelOf(address)} says`), element("p", {class: "said"}, text)]));
}

// The node of the outermost graph that an event is about.
function nodeOf({address}) {
  return /^graph:[^;]*;node:([^;:]+)/.exec(address ?? "")?.[1];
}

function follow(event) {
  const node = nodeOf(event);
  if (!node) return;
  const isOwn = /^graph:[^;]*;node:[^;]+$/.test(event.address);
  if (event.type === "node.finished" && isOwn) nodes.set(node, "done");
  else if (event.type === "node.failed" && isOwn) nodes.set(node, "failed");
  else if (!nodes.has(node) || nodes.get(node) !== "done") nodes.set(node, event.type === "interrupt.answered" && isOwn ? "done" : "running");
}

function states() {
  const now = new Map(nodes);
  const isOver = view.ended_at !== null;
  for (const [name, state] of now) if (state === "running" && (isOver || !view.running.some((address) => nodeOf({address}) === name))) now.set(name, isOver && view.status !== "completed" ? "failed" : "done");
  for (const address of view.running) now.set(nodeOf({address}), "running");
  for (const {address} of view.interrupts) now.set(nodeOf({address}), "waiting");
  for (const {address} of view.blocked) now.set(nodeOf({address}), "blocked");
  if (view.error?.address) now.set(nodeOf(view.error), "failed");
  if (events.length) now.set("START", "done");
  if (view.status === "completed") now.set("END", "done");
  return now;
}

// The page

function draw() {
  const open = new Set([...document.querySelectorAll("details[data-part][open]")].map((each) => each.dataset.part));
  const typed = new Map([...document.querySelectorAll("#run input, #run textarea")].map((each) => [each.id, each.value]));
  const focused = document.activeElement?.id;
  at("state").textContent = visible(`${view.status}${view.outcome && view.outcome !== view.status ? ` as ${view.outcome}` : ""}${view.degraded ? " (no worker answers: this may be old)" : ""}`);
  at("run").replaceChildren(
    element("h1", {tabindex: "-1"}, view.run_id),
    ...[facts(), ...waits(), graph(), control(), rewinding(), steering(), speech(), part("Values", "values", shownValue(view.values)), timeline(), conversationOf()].filter(Boolean),
  );
  for (const each of document.querySelectorAll("details[data-part]")) each.open = open.has(each.dataset.part) || each.open;
  for (const [id, value] of typed) if (id && at(id)) at(id).value = value;
  if (focused) at(focused)?.focus();
}

function facts() {
  return pairs([
    ["Graph", view.graph],
    ["Status", view.reason ? `${view.status}: ${view.reason}` : view.status],
    ["Failed at", view.error && `${view.error.message} (${view.error.code})`],
    ["Paused", view.pause && `by ${view.pause.actor}, ${distance(view.pause.since)}${view.pause.reason ? `: ${view.pause.reason}` : ""}`],
    ["Blocked", view.blocked.map(({node, message}) => `${node}: ${message}`).join("; ")],
    ["Started", `${clock(view.created_at)}${view.started_by ? ` by ${view.started_by}` : ""}`],
    ["Ended", view.ended_at && clock(view.ended_at)],
    ["Conversation", view.conversation_id],
    ["Labels", Object.entries(view.labels).map(([name, value]) => `${name}=${value}`).join(", ")],
  ]);
}

function waits() {
  if (!view.interrupts.length) return [];
  const items = view.interrupts.map((question) =>
    element("li", {}, element("a", {href: `/inbox#${encodeURIComponent(question.id)}`}, promptLine(question)), question.deadline ? ` (due ${distance(question.deadline)})` : null));
  return [element("h2", {}, "Waits for"), element("ul", {}, ...items)];
}

function graph() {
  if (!spec) return null;
  const isOld = spec.version !== view.graph_version;
  return element("section", {"aria-label": "Graph"}, element("h2", {}, "Graph"),
    isOld ? element("p", {class: "quiet"}, "This is today's version of the graph; the run has an earlier one.") : null, picture(spec, states()));
}

function part(title, name, ...body) {
  return element("details", {"data-part": name, open: name === "values"}, element("summary", {}, element("h2", {class: "inline"}, title)), ...body);
}

function control() {
  if (ENDED.has(view.status)) return null;
  const fault = element("p", {role: "alert"});
  const send = (verb, question) => async () => {
    if (question && !window.confirm(question)) return;
    await attempt(fault, () => call(`${path}/${verb}?wait=PT5S`, {body: {}}));
  };
  const buttons = [];
  if (may("runs:control") || may("runs:pause")) buttons.push(view.paused ? button("Resume", send("resume")) : button("Pause", send("pause")));
  if (may("runs:control") || may("runs:cancel")) buttons.push(button("Cancel the run…", send("cancel", `Cancel the run ${visible(run)}? This cannot be undone.`), {class: "reject"}));
  return buttons.length ? element("section", {"aria-label": "Control"}, element("p", {class: "buttons"}, ...buttons), fault) : null;
}

// First what a rewind would discard, then the rewind. It stays as it is when the page is drawn anew.
let rewinds = null;
function rewinding() {
  if (!may("runs:control") || !may("runs:read")) return null;
  return (rewinds ??= rewindForm());
}

function rewindForm() {
  const fault = element("p", {role: "alert"});
  const shown = element("div", {"aria-live": "polite"});
  const to = element("select", {id: "rewind-to"}, element("option", {value: "start"}, "the start of the run"));
  const rewind = (dry_run) => call(`${path}/rewind`, {body: {to: to.value, dry_run}});
  const trial = button("Show what would be discarded", () => attempt(fault, async () => {
    const {discards, effects} = await rewind(true);
    const did = effects.map(({node, at: since, attempts}) => element("li", {}, `${node}: ${attempts === 1 ? "once" : `${attempts} times`} since ${clock(since)}`));
    const lost = discards.map(({time, type, actor}) => element("li", {}, `${clock(time)} ${spoken(type.replace(".", " "))}${actor ? ` by ${actor}` : ""}`));
    const carryOut = button("Rewind the run", () => attempt(fault, async () => {
      await rewind(false);
      location.reload();
    }), {class: "reject"});
    shown.replaceChildren(
      element("p", {}, did.length ? "This has run since, and may run again. Its idempotency keys will be the same as before, so that a provider sees a repeat as one." : "No code has run since."),
      element("ul", {}, ...did), element("p", {}, lost.length ? "This would be discarded:" : "Nothing has happened since."), element("ul", {}, ...lost),
      ...(lost.length ? [element("p", {class: "buttons"}, carryOut)] : []));
  }, false));
  const box = part("Rewind", "rewind", element("div", {class: "field"}, element("label", {for: "rewind-to"}, "Rewind the run to"), to), element("p", {class: "buttons"}, trial), shown, fault);
  box.addEventListener("toggle", () => box.open && to.length === 1 && attempt(fault, async () => {
    for (const {id, prompt, status} of (await call(`${path}/interrupts?status=all`)).items) to.append(element("option", {value: id}, `${prompt} (${status})`));
  }, false));
  return box;
}

function steering() {
  if (ENDED.has(view.status) || !(may("runs:steer") || may("runs:control"))) return null;
  const fault = element("p", {role: "alert"});
  const text = element("textarea", {id: "message", rows: 2});
  const form = element("form", {class: "field", onsubmit: async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    if (await attempt(fault, () => call(`${path}/messages`, {body: {text: text.value}}))) text.value = "";
  }}, element("label", {for: "message"}, "Message to the run"), text, element("p", {class: "buttons"}, element("button", {}, "Send message")), fault);
  const queue = view.queue_depth ? element("p", {class: "quiet"}, `${view.queue_depth} unread`) : null;
  return element("section", {"aria-label": "Messages"}, form, queue);
}

async function attempt(fault, act, isChange = true) {
  fault.textContent = "";
  try {
    await act();
    if (isChange) {
      await read();
      draw();
    }
    return true;
  } catch (error) {
    fault.textContent = problemText(error);
    return false;
  }
}

function timeline() {
  const last = events.slice(-MOST_EVENTS).reverse();
  const rows = last.map(({time, type, address, actor, data}) => element("li", {},
    element("time", {datetime: time, title: time}, clock(time)), " ",
    element("b", {}, spoken(type.replace(".", " "))), address ? ` ${labelOf(address)}` : "", actor ? ` by ${actor}` : "",
    data?.reason ? `: ${inWords(data.reason)}` : ""));
  return part(`Timeline (${events.length})`, "timeline", element("ol", {class: "timeline"}, ...rows));
}

const labelOf = (address) => address.split(";").slice(1).map((each) => each.slice(each.indexOf(":") + 1)).join(" › ");

// An agent's conversation, read when it is opened.
function conversationOf() {
  const agents = new Set(events.map(({address}) => /^.*?;agent:[^;]+/.exec(address ?? "")?.[0]).filter(Boolean));
  if (!agents.size) return null;
  const boxes = [...agents].map((address) => {
    const place = element("div", {"aria-live": "polite"});
    const box = part(`Conversation of ${labelOf(address)}`, address, place);
    box.addEventListener("toggle", async () => {
      if (!box.open) return;
      try {
        place.replaceChildren(element("ol", {class: "transcript"}, ...(await transcript(run, address)).map(turn)));
      } catch (error) {
        place.replaceChildren(element("p", {role: "alert"}, problemText(error)));
      }
    });
    return box;
  });
  return element("section", {"aria-label": "Conversations"}, ...boxes);
}

await start();
