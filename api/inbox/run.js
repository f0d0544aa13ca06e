// The page of a run: where it stands in its graph, what happened, its values, and what one may have it do.

import {call, failureText, listen, may, Problem, problemText, serviceTime} from "./api.js";
import {transcript, turn} from "./conversation.js";
import {picture} from "./picture.js";
import {at, avatar, badge, button, clock, confirmed, distance, duration, element, icon, inWords, pairs, promptLine, reasonInWords, shownValue, spoken, visible} from "./markup.js";
import {begin, say} from "./shell.js";
import {timelineOf} from "./timeline.js";

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
// What went wrong with a button: it stays when the page is drawn anew.
const faults = {trouble: element("p", {role: "alert"}), control: element("p", {role: "alert"})};

async function start() {
  at("main").replaceChildren(element("article", {id: "run", "aria-label": "Run"}));
  if (!(await begin(visible(run), () => location.reload()))) return;
  try {
    await read();
  } catch (error) {
    say("");
    at("run").replaceChildren(element("h2", {tabindex: "-1"}, run), element("p", {role: "alert"}, problemText(error)));
    return;
  }
  draw();
  stop = listen(`${path}/events`, heard);
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
      say(problemText(error));
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

// What an event is about within a node: a tool of an agent, or a node of a nested graph, as `<node>/<name>`.
function innerOf({address}) {
  const [, node, inner] = /^graph:[^;]*;node:([^;:]+)[^;]*;(?:agent|graph):[^;]*;(?:tool|node):([^;:]+)/.exec(address ?? "") ?? [];
  return node && `${node}/${inner}`;
}

function follow(event) {
  const node = nodeOf(event);
  if (!node) return;
  const [, kind, what] = /^(node|tool)\.(started|finished|failed)$/.exec(event.type) ?? [];
  // The last part of its address is a visit of its own, or a call.
  if (kind && event.address.split(";").length === 4) nodes.set(innerOf(event), what === "finished" ? "done" : what === "failed" ? "failed" : "running");
  const isOwn = /^graph:[^;]*;node:[^;]+$/.test(event.address);
  if (event.type === "node.finished" && isOwn) nodes.set(node, "done");
  else if (event.type === "node.failed" && isOwn) nodes.set(node, "failed");
  else if (!nodes.has(node) || nodes.get(node) !== "done") nodes.set(node, event.type === "interrupt.answered" && isOwn ? "done" : "running");
}

function states() {
  const now = new Map(nodes);
  const isOver = view.ended_at !== null;
  const running = new Set(view.running.flatMap((address) => [nodeOf({address}), innerOf({address})]));
  for (const [name, state] of now) if (state === "running" && (isOver || !running.has(name))) now.set(name, isOver && view.status !== "completed" ? "failed" : "done");
  const set = (places, state) => places.forEach((place) => now.set(nodeOf(place), state).set(innerOf(place), state));
  set(view.running.map((address) => ({address})), "running");
  set(view.interrupts, "waiting");
  // It failed, and will run again: it is neither done nor at work.
  set(view.retrying, "failed");
  set(view.blocked, "blocked");
  if (view.error?.address) set([view.error], "failed");
  if (events.length) now.set("START", "done");
  if (view.status === "completed") now.set("END", "done");
  return now;
}

// The page

function draw() {
  const open = new Set([...document.querySelectorAll("details[data-part][open]")].map((each) => each.dataset.part));
  const typed = new Map([...document.querySelectorAll("#run input, #run textarea")].map((each) => [each.id, each.value]));
  const focused = document.activeElement?.id;
  const {scrollLeft = 0, scrollTop = 0} = document.querySelector(".picture") ?? {};
  say(`${view.status.replaceAll("-", " ")}${view.outcome && view.outcome !== view.status ? ` as ${view.outcome}` : ""}${view.degraded ? " (no worker answers: this may be old)" : ""}`);
  const main = [heading(), ...troubles(), ...waits(), graph(), timeline(), speech(), conversationOf()];
  const aside = [facts(), part("Values", "values", shownValue(view.values)), steering(), rewinding()];
  at("run").replaceChildren(element("div", {class: "columns"}, element("div", {class: "main"}, ...main.filter(Boolean)), element("div", {class: "aside"}, ...aside.filter(Boolean))));
  for (const each of document.querySelectorAll("details[data-part]")) each.open = open.has(each.dataset.part) || each.open;
  for (const [id, value] of typed) if (id && at(id)) at(id).value = value;
  if (focused) at(focused)?.focus();
  document.querySelector(".picture")?.scrollTo(scrollLeft, scrollTop);
}

function heading() {
  const end = view.ended_at ? Date.parse(view.ended_at) : serviceTime();
  const long = duration(Math.max(0, end - Date.parse(view.created_at)) / 1000);
  return element("div", {class: "heading"}, element("h1", {tabindex: "-1"}, view.run_id), badge(view.status), view.blocked.length ? badge("blocked") : null,
    element("span", {class: "quiet grow"}, ...(view.started_by ? [avatar(view.started_by), ` ${view.started_by} · `] : []), view.ended_at ? `took ${long}` : `for ${long}`), control());
}

// What is wrong, why, and what the reader may do about it.
function troubles() {
  const fault = faults.trouble;
  const send = (verb, question) => async () => {
    if (question && !(await confirmed({title: `${spoken(verb)} the run?`, body: [element("p", {class: "quiet"}, question)], label: spoken(verb)}))) return;
    await attempt(fault, () => call(`${path}/${verb}`, {body: {}}));
  };
  const panel = (tone, sign, text, why, ...acts) => element("section", {class: `trouble ${tone}`, "aria-label": "What is wrong"},
    element("p", {}, icon(sign), element("b", {}, text)), why ? element("p", {class: "said"}, why) : null, element("p", {class: "buttons"}, ...acts.filter(Boolean)), fault);
  const place = (error) => (error?.address ? ` in ${labelOf(error.address)}` : "");
  const isEnded = ["failed", "halted", "cancelled", "terminated", "timed-out"].includes(view.status);
  const panels = [];
  if (isEnded) {
    const by = view.cancelled_by ? ` by ${view.cancelled_by}` : "";
    panels.push(panel(view.status === "failed" ? "alarm" : "warn", "circle-x", `This run was ${view.status}${by}${place(view.error)}.`.replace("was failed", "failed"),
      view.error ? `${view.error.message} (${view.error.code})` : reasonInWords(view.reason),
      may("runs:control") && !/^t/.test(view.status) ? button([icon("rotate-ccw"), "Retry"], send("retry", "It goes on from where it ended: finished steps and answers are kept, and the step that failed runs again.")) : null,
      may("runs:control") ? button("Rewind…", () => openPart("rewind")) : null));
  }
  for (const {node, message, code, since} of view.blocked) {
    panels.push(panel("alarm", "octagon-x", `${node || "The run"} is blocked${since ? ` since ${clock(since)}` : ""} (${code}).`, message,
      may("runs:control") ? button("Migrate", send("migrate", "The run moves to today's graph, with its values. If it does not fit, nothing changes, and the reason is shown.")) : null));
  }
  for (const {node, message, attempts, due} of view.retrying) {
    const again = Date.parse(due) > serviceTime() ? ` ${distance(due)}` : "";
    panels.push(panel("warn", "rotate-ccw", `${node} failed ${attempts === 1 ? "once" : `${attempts} times`}, and runs again${again}.`, message));
  }
  if (view.paused && view.pause) {
    panels.push(panel("warn", "circle-pause", `Paused by ${view.pause.actor}, ${distance(view.pause.since)}.`, view.pause.reason,
      may("runs:control") || may("runs:pause") ? button([icon("play"), "Resume"], send("resume?wait=PT5S")) : null));
  }
  return panels;
}

function openPart(name) {
  const box = document.querySelector(`[data-part="${name}"]`);
  box.open = true;
  box.scrollIntoView({block: "center"});
  box.querySelector("select, input, button")?.focus();
}

function facts() {
  return element("section", {"aria-label": "About the run"}, element("h2", {}, "About"), pairs([
    ["Graph", view.graph],
    ["Outcome", view.outcome !== view.status && view.outcome],
    ["Started", `${clock(view.created_at)}${view.started_by ? ` by ${view.started_by}` : ""}`],
    ["Sent by", view.sent_by],
    ["Ended", view.ended_at && clock(view.ended_at)],
    ["Conversation", view.conversation_id],
    ["Labels", Object.entries(view.labels).map(([name, value]) => `${name}=${value}`).join(", ")],
  ]));
}

function waits() {
  if (!view.interrupts.length) return [];
  const items = view.interrupts.map((question) =>
    element("li", {}, icon("circle-help"), element("a", {href: `/inbox#${encodeURIComponent(question.id)}`}, promptLine(question)), question.deadline ? ` (due ${distance(question.deadline)})` : null));
  return [element("h2", {}, "Waits for"), element("ul", {class: "plain-list"}, ...items)];
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

// The menu of what one may do with a run that goes on.
function control() {
  if (ENDED.has(view.status)) return null;
  const fault = faults.control;
  const send = (verb) => attempt(fault, () => call(`${path}/${verb}?wait=PT5S`, {body: {}}));
  const cancel = async () => {
    const body = [element("p", {class: "quiet"}, "What it has done stays done. Open questions are withdrawn. It can be retried later.")];
    if (await confirmed({title: `Cancel the run ${visible(run)}?`, body, label: "Cancel the run", kind: "danger"})) await send("cancel");
  };
  const buttons = [];
  if ((may("runs:control") || may("runs:pause")) && !view.paused) buttons.push(button([icon("pause"), "Pause"], () => send("pause")));
  if (may("runs:control") || may("runs:cancel")) buttons.push(button([icon("ban"), "Cancel the run…"], cancel, {class: "reject"}));
  if (!buttons.length) return null;
  return element("details", {class: "menu", "data-part": "menu"}, element("summary", {}, icon("ellipsis", "Control")), element("div", {}, ...buttons, fault));
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
    for (const question of (await call(`${path}/interrupts?status=all`)).items) to.append(element("option", {value: question.id}, `${promptLine(question)} (${question.status})`));
  }, false));
  return box;
}

// It stays as it is when the page is drawn anew: somebody may be writing.
let messages = null;
function steering() {
  if (ENDED.has(view.status) || !(may("runs:steer") || may("runs:control"))) return null;
  const queue = view.queue_depth ? element("p", {class: "quiet"}, `${view.queue_depth} unread`) : null;
  return element("section", {"aria-label": "Messages"}, (messages ??= messageForm()), queue);
}

function messageForm() {
  const fault = element("p", {role: "alert"});
  const text = element("textarea", {id: "message", rows: 2});
  return element("form", {class: "field", onsubmit: async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    if (await attempt(fault, () => call(`${path}/messages`, {body: {text: text.value}}))) text.value = "";
  }}, element("label", {for: "message"}, "Message to the run"), text, element("p", {class: "buttons"}, element("button", {}, "Send message")), fault);
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
    fault.textContent = failureText(error);
    return false;
  }
}

function timeline() {
  const last = events.slice(-MOST_EVENTS).reverse();
  const rows = last.map(({time, type, address, actor, data}) => element("li", {},
    element("time", {datetime: time, title: time}, clock(time, "medium")), " ",
    element("b", {}, spoken(type.replace(".", " "))), address ? ` ${labelOf(address)}` : "", actor ? ` by ${actor}` : "",
    data?.reason ? `: ${inWords(data.reason)}` : ""));
  return element("section", {"aria-label": "Timeline"}, element("h2", {}, "Timeline"), timelineOf(events, view, labelOf),
    part(`Events (${events.length})`, "timeline", element("ol", {class: "timeline"}, ...rows)));
}

// An agent often has the name of its node: it is said once.
const labelOf = (address) => address.split(";").slice(1).map((each) => each.slice(each.indexOf(":") + 1)).filter((name, index, names) => name !== names[index - 1]).join(" › ");

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
