// One question: what is asked and why, and the card on which it is decided.

import {call, called, failureText, may, me, Problem, serviceTime} from "./api.js";
import {card, isCall, isDigestOnly} from "./card.js";
import {conversation} from "./conversation.js";
import {jsonForm, showFaults} from "./form.js";
import {isObject, write} from "./json.js";
import {avatar, badge, button, changesInWords, clock, confirmed, difference, distance, dueTime, duration, element, icon, inWords, oneLine, pairs, prose, shownValue, spoken, visible} from "./markup.js";
import {agentOf, barrier, isAmong, isClaimedByMe} from "./standing.js";

// A changed call is asked about again once its preview is made; of any other its preview is only compared.
const AGAIN_MS = 30_000;
const CONFIRMED_MS = 4_000;
const POLL_MS = 300;
const SETTLED_ELSEWHERE = ["already_answered", "expired", "withdrawn", "stale", "not_running"];
const DECIDED = {approve: "approved", remember: "approved and remembered", edit: "approved", reject: "rejected", respond: "answered in place of"};

/**
 * Create the page of a question: its `main` part, what stands `aside`, and the `footer` with the decision.
 * `after(outcome)` is called with `{text}` once something was decided, or with nothing if the question has
 * to be read again.
 */
export function questionPage(question, after) {
  const isOpen = question.status === "open";
  const mayAnswer = isOpen && barrier(question) === null;
  const {form, footer} = mayAnswer ? answering(question, after) : {form: null, footer: undecidable(question, after)};
  const main = [
    element("h2", {tabindex: "-1", id: "prompt"}, headline(question)),
    badges(question),
    restOf(question),
    ...what(question),
    form,
    isOpen ? null : settled(question),
  ];
  const aside = [progress(question), isOpen ? claims(question, after) : null, details(question), conversation(question)];
  return {main, aside: aside.filter(Boolean), footer};
}

// What the prompt says below its heading. Of Markdown the heading is the first line.
function restOf(question) {
  const body = question.prompt_html ? prose(question.prompt_html, question.prompt) : null;
  const first = body?.firstElementChild;
  if (first && !first.querySelector("a") && !first.textContent.includes("\n") && oneLine(first.textContent) === headline(question)) first.remove();
  const asWritten = element("details", {}, element("summary", {}, "The question as it is written"), element("pre", {tabindex: "0"}, question.prompt));
  return body?.childElementCount ? element("div", {}, body, asWritten) : null;
}

function headline(question) {
  const first = question.prompt_html ? prose(question.prompt_html, question.prompt).firstElementChild : null;
  if (!first) return question.prompt;
  if (!/^(P|H[3-6])$/.test(first.tagName)) return spoken(question.name);
  const nodes = [...first.childNodes];
  const end = nodes.findIndex(({nodeName}) => nodeName === "BR");
  return oneLine(nodes.slice(0, end < 0 ? nodes.length : end).map(({textContent}) => textContent).join(""));
}

function badges(question) {
  const {priority, risk, deadline, status} = question;
  const mark = (tone, sign, ...text) => element("li", {class: `badge ${tone}`}, icon(sign), ...text);
  const marks = [
    priority === "high" ? mark("alarm", "chevrons-up", "high priority") : priority === "low" ? mark("quiet", "chevron-down", "low priority") : null,
    isPresent(risk) ? mark(risk >= 70 ? "alarm" : risk >= 40 ? "warn" : "quiet", "shield-alert", `risk ${risk}`) : null,
    deadline && status === "open" ? mark(Date.parse(deadline) < serviceTime() ? "alarm" : "quiet", "clock", dueTime(deadline)) : null,
    ...(question.warnings ?? []).map((warning) => mark("warn", "triangle-alert", warning)),
  ].filter(Boolean);
  return marks.length ? element("ul", {class: "badges", "aria-label": "Urgency"}, ...marks) : null;
}

function what(question) {
  const parts = [];
  if (isCall(question)) {
    const others = Object.entries(question.reason).filter(([name]) => name !== "tool" && name !== "arguments");
    if (question.kind !== "approval" || question.status !== "open") parts.push(["Arguments", shownValue(question.reason.arguments)]);
    if (others.length) parts.push(["Why", shownValue(Object.fromEntries(others))]);
  } else if (isPresent(question.reason)) {
    parts.push(["Why", shownValue(question.reason)]);
  }
  if (question.preview) parts.push(["What would happen", preview(question.preview)]);
  const isCard = question.kind === "static" && question.status === "open" && barrier(question) === null;
  if (isPresent(question.payload) && !isDigestOnly(question.payload) && !isCard) parts.push(["Details", shownValue(question.payload)]);
  return parts.flatMap(([title, body]) => [element("h3", {}, title), body]);
}

const isPresent = (value) => value !== null && value !== undefined;

function preview(shown) {
  const {summary, diff, table, cost, error, before, ...others} = shown;
  return element(
    "div",
    {class: "preview"},
    error ? element("p", {class: "warning"}, `The preview failed: ${inWords(error)}`) : null,
    summary ? element("p", {}, summary) : null,
    diff ? element("pre", {tabindex: "0", class: "diff"}, typeof diff === "string" ? diff : write(diff, 2)) : null,
    table ? shownValue(table) : null,
    isPresent(cost) ? element("p", {}, "Cost: ", shownValue(cost)) : null,
    Object.keys(others).length ? shownValue(others) : null,
    before ? element("details", {}, element("summary", {}, "What was shown before"), shownValue(before)) : null,
  );
}

function progress(question) {
  const quorum = question.quorum;
  if (!quorum) return null;
  const votes = question.votes ?? [];
  const voter = (name, state, text, ...more) => element("li", {}, avatar(name), element("span", {class: "grow"}, element("span", {}, text), ...more), badge(state));
  const said = votes.map(({by, on_behalf_of: principal, answer, note, at: when}) => {
    const name = `${principal ? `${by} for ${principal}` : by}${by === me?.subject ? " (you)" : ""}`;
    const word = isPresent(answer) ? (isYes(answer) ? "approved" : "rejected") : "voted";
    const {approved, ...others} = isObject(answer) ? answer : {};
    return voter(by, word, name, element("small", {class: "quiet", title: clock(when)}, ` ${distance(when)}`), note ? element("q", {}, note) : null,
      Object.keys(others).length ? shownValue(others, 1) : null);
  });
  const voters = votes.flatMap(({by, on_behalf_of: principal}) => [by, principal]);
  const left = (quorum.of ?? []).filter((name) => !voters.includes(name) && !Object.hasOwn(question.barred ?? {}, name));
  const missing = question.missing ?? Math.max(0, quorum.count - votes.filter(({answer}) => isYes(answer)).length);
  const of = left.length ? `, of ${left.map(called).join(", ")}` : "";
  const isOpen = question.status === "open";
  return element(
    "section",
    {"aria-label": "Votes"},
    element("h3", {}, `${quorum.count - missing} of ${quorum.count} approvals`),
    element("p", {class: "quiet"}, missing ? `${missing} missing${of}` : "complete"),
    element("ul", {class: "people-list"}, ...said, ...(isOpen ? left.map((name) => voter(name, "pending", name)) : [])),
  );
}

const isYes = (answer) => answer === true || answer?.approved === true;

const barring = (rule) => (rule === "@starter" ? "started the run" : rule.startsWith("{") ? `is the run's ${rule.slice(1, -1)}` : `answered ${rule}`);

// Whom `not_by` bars, by name; and the rules that bar nobody yet.
function barred({barred: people = {}, not_by: rules}) {
  const named = Object.entries(people ?? {});
  const others = (rules ?? []).filter((rule) => !named.some(([, why]) => why === rule));
  return [...named.map(([who, rule]) => `${called(who)}, who ${barring(rule)}`), ...others.map((rule) => `who ${barring(rule)}`)].join("; ");
}

function details(question) {
  const isOpen = question.status === "open";
  const rows = [
    ["Agent", agentOf(question)],
    ["Requested by", requester(question)],
    ["Tool", question.reason?.tool],
    ["Graph", question.graph],
    ["Run", element("a", {href: `/inbox/runs/${encodeURIComponent(question.run_id)}`}, question.run_id)],
    ["For", question.assignees?.length ? element("span", {}, ...question.assignees.map(avatar), " ", question.assignees.join(", ") + (question.assignees_only ? " only" : "")) : ""],
    ["May answer", isOpen && mayAnswer(question)],
    ["Not", isOpen && barred(question)],
    ["Asked", clock(question.created_at)],
    ["Deadline", question.deadline && `${clock(question.deadline)}${isOpen ? `, ${afterwards(question.on_timeout)}` : ""}`],
    ["Reminders", (question.reminders ?? []).map(clock).join(", ")],
    ["Then also", (question.escalations ?? []).map((step) => `${[...(step.to ?? []), step.requested_capability].filter(Boolean).join(", ")} from ${clock(step.at)}`).join("; ")],
  ];
  const place = [
    ["Name", question.name],
    ["Address", question.address?.replaceAll(";", " › ")],
    ["Part of", question.parents?.map((parent) => parent.address ?? parent.id).join(", ")],
    ["Id", question.id],
  ];
  return element(
    "section",
    {"aria-label": "About the question"},
    element("h3", {}, "About"),
    pairs(rows),
    element("details", {}, element("summary", {}, "Where it is asked"), pairs(place)),
  );
}

// What follows once the deadline has passed.
function afterwards(onTimeout) {
  if (isObject(onTimeout) && "default" in onTimeout) return `then the answer is ${typeof onTimeout.default === "boolean" ? (onTimeout.default ? "yes" : "no") : inWords(onTimeout.default)}`;
  const node = /^goto:(.*)$/.exec(onTimeout)?.[1];
  if (node) return `then the run goes on with ${node}`;
  return onTimeout === "halt" ? "then the run stops" : `then ${inWords(onTimeout)}`;
}

// Who started the run, read while the question is read.
function requester({run_id: run}) {
  const place = element("span", {}, "…");
  const tell = (...texts) => place.replaceChildren(element("span", {}, ...texts));
  call(`/runs/${encodeURIComponent(run)}`).then(({started_by: name}) => tell(...(name ? [avatar(name), name] : ["unknown"])), () => tell("unknown"));
  return place;
}

function mayAnswer({requested_capability: capability, assignees_only: isRestricted, quorum}) {
  const conditions = [
    capability ? `has ${capability}` : null,
    isRestricted ? "is one of the assignees" : null,
    quorum?.of?.length ? `is one of ${quorum.of.join(", ")}` : null,
  ].filter(Boolean);
  return conditions.length ? `whoever ${conditions.join(" and ")}` : "anyone";
}

// A yes and a no are called what they mean.
function outcomeOf({status, answer}) {
  const isDecision = status === "answered" && typeof (answer?.approved ?? answer) === "boolean";
  return isDecision ? (isYes(answer) ? "approved" : "rejected") : status;
}

function settled(question) {
  const maker = question.answered_by === "timeout" ? "its deadline" : question.answered_by;
  const by = question.on_behalf_of ? `${called(maker)} for ${called(question.on_behalf_of)}` : called(maker);
  const outcome = outcomeOf(question);
  const when = question.answered_at ?? question.settled_at;
  const edits = isCall(question) && isObject(question.answer?.arguments) ? difference(question.reason.arguments, question.answer.arguments) : null;
  const reason = question.settled_reason ? ` (${question.settled_reason})` : "";
  return element(
    "section",
    {},
    element("h3", {}, "Outcome"),
    element("p", {role: "status"}, badge(outcome), question.status === "held"
      ? ` Approved${by ? ` by ${by}` : ""}, and not yet begun.`
      : ` ${outcome === "expired" ? "Nobody answered in time" : spoken(outcome)}${by ? ` by ${by}` : ""}${when ? `, ${clock(when)}` : ""}${reason}.`),
    edits ? element("div", {class: "changed"}, element("h3", {}, "Approved with these changes"), edits) : null,
    isPresent(question.answer) ? element("div", {}, element("h3", {}, "Answer"), shownValue(question.answer)) : null,
    question.note ? element("p", {}, `Note: ${question.note}`) : null,
  );
}

// The footer of a question that the reader cannot decide: take back what is held, or why not.
function undecidable(question, after) {
  if (question.status === "open") return element("footer", {class: "decision"}, element("p", {class: "notice", role: "note"}, icon("ban"), barrier(question)));
  if (question.status !== "held") return null;
  const fault = element("p", {role: "alert"});
  const undo = button([icon("undo-2"), "Take back"], () => act(question, "take-back", {}, after, fault, "You took the answer back. The question is open again."));
  const until = question.held_until;
  const people = [question.answered_by, question.on_behalf_of, ...(question.votes ?? []).flatMap(({by, on_behalf_of: maker}) => [by, maker])];
  const isOwn = people.includes(me?.subject) || may("runs:control");
  return element("footer", {class: "decision"}, fault,
    element("div", {class: "deciding"},
      element("p", {class: "grow", role: "status"}, `What it allows begins at ${clock(until)}. Time to take it back: `, countdown(until)), isOwn ? undo : null));
}

// Counts down each second for as long as it is on the page.
function countdown(until) {
  const shown = element("span", {role: "timer"});
  const tick = () => {
    const left = Math.max(0, Math.round((Date.parse(until) - serviceTime()) / 1000));
    const [hours, minutes, seconds] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
    shown.textContent = visible([...(hours ? [hours] : []), minutes, seconds].map((part) => String(part).padStart(2, "0")).join(":"));
    if (left > 0) setTimeout(() => shown.isConnected && tick(), 1000);
  };
  tick();
  return shown;
}

function claims(question, after) {
  const fault = element("p", {role: "alert"});
  const isMine = isClaimedByMe(question);
  const buttons = [];
  if (barrier(question) === null && !question.claim && !question.quorum) {
    buttons.push(button("Claim", () => act(question, "claim", {}, after, fault, null), {"data-key": "c"}));
  }
  if (question.claim && (isMine || may("runs:control"))) {
    buttons.push(button("Release", () => act(question, "release", {}, after, fault, null)));
  }
  if (isMine || isAmong(question.assignees) || may("runs:control")) buttons.push(button("Reassign…", () => (form.hidden = !form.hidden), {"aria-expanded": "false"}));
  if (!buttons.length) return null;
  const to = element("input", {id: "reassign-to", autocomplete: "off"});
  const form = element(
    "form",
    {hidden: true, class: "inline", onsubmit: (event) => {
      event.preventDefault();
      const names = to.value.split(/[\s,]+/).filter(Boolean);
      act(question, "reassign", {to: names}, after, fault, `You gave the question to ${names.join(", ")}.`);
    }},
    element("label", {for: "reassign-to"}, "To (names, or group:name)"),
    to,
    element("button", {}, "Reassign"),
  );
  const mine = isMine ? element("p", {}, `You work on this until ${clock(question.claim.until)}.`) : null;
  return element("section", {"aria-label": "Claim"}, mine, element("p", {class: "buttons"}, ...buttons), form, fault);
}

async function act(question, verb, body, after, place, text) {
  place.textContent = "";
  try {
    await call(`/interrupts/${encodeURIComponent(question.id)}/${verb}`, {body});
    after(text ? {text} : undefined);
  } catch (error) {
    place.textContent = failureText(error);
  }
}

// The answer

function answering(question, after) {
  let way = card(question);
  const place = element("div", {}, ...way.parts.filter(Boolean));
  const isRead = isCall(question) && way.ways.some(({kind}) => kind === "reject");
  const note = element("textarea", {id: "note", rows: 1, maxlength: 2000, "aria-label": "Note", placeholder: isRead ? "Note; the agent reads it if you reject" : "Note, kept with the answer"});
  const makers = question.may_answer_for ?? [];
  const maker = makers.length > 1
    ? element("select", {id: "on-behalf-of"}, ...makers.map((name) => element("option", {value: name}, name)))
    : null;
  const problem = element("p", {role: "alert", id: "problem"});
  const buttons = element("span", {class: "buttons"});
  let isJson = false;
  const raw = button("Answer as JSON", () => toggle(), {class: "plain"});
  const form = element(
    "form",
    {class: "answer", novalidate: true, "aria-label": "Answer", onsubmit: (event) => {
      event.preventDefault();
      if (way.ways.length === 1) send(way.ways[0].kind);
    }},
    place,
  );
  const footer = element("footer", {class: "decision"}, problem,
    makers.length === 1 ? element("p", {class: "quiet"}, `You answer for ${makers[0]}.`) : null,
    maker ? element("p", {}, element("label", {for: "on-behalf-of"}, "In whose place "), maker) : null,
    element("div", {class: "deciding"}, note, buttons),
    element("div", {class: "titled"}, element("small", {class: "quiet"}, votedBefore(question) ?? final(question)), raw),
  );
  const send = (kind, isKey = false) => submit(question, way.ways.find((each) => each.kind === kind), way, {note, maker, problem, footer, after, isKey});
  const draw = () => {
    place.replaceChildren(...way.parts.filter(Boolean));
    way.parts.send = send;
    const made = way.ways.filter(({label}) => label).map(({label, kind, key}) => button(label, () => send(kind), {
      class: kind === "reject" ? "reject" : "send", "data-key": key, "aria-keyshortcuts": key, onshortcut: (event) => {
        event.preventDefault();
        send(kind, true);
      },
    }));
    buttons.replaceChildren(...made.reverse());
  };
  const toggle = () => {
    isJson = !isJson;
    raw.textContent = visible(isJson ? "Answer with the form" : "Answer as JSON");
    const json = isJson ? jsonForm(attempt(way)) : null;
    way = json ? {parts: [json.element], show: json.show, ways: [{label: "Send answer", kind: "answer", read: json.read}]} : card(question);
    draw();
  };
  draw();
  return {form, footer};
}

/** Return whether an answer can be taken back, in words. */
export function final({hold, quorum, missing}) {
  if (hold) return `An approval is held for ${duration(hold)}: nothing begins before that, and until then it can be taken back.`;
  if (quorum && missing > 1) return `You can change an approval until others have approved too.${quorum.veto === false ? "" : " One rejection rejects at once."}`;
  return "An answer cannot be taken back.";
}

function votedBefore({votes}) {
  const own = (votes ?? []).find(({by}) => by === me?.subject);
  return own ? `You ${isPresent(own.answer) ? (isYes(own.answer) ? "approved" : "rejected") : "voted"} ${distance(own.at)}; another answer replaces that.` : null;
}

// The answer so far, if it is complete.
function attempt(way) {
  try {
    return way.ways.length === 1 ? way.ways[0].read() : undefined;
  } catch {
    return undefined;
  }
}

// What a key decides is confirmed first.
async function submit(question, way, card, {note, maker, problem, footer, after, isKey}) {
  problem.textContent = "";
  let response;
  try {
    response = way.read(note.value.trim());
  } catch (error) {
    problem.textContent = visible(showFaults(error).join("\n"));
    return;
  }
  const changes = isCall(question) && response?.arguments ? difference(question.reason.arguments, response.arguments) : null;
  const body = [element("p", {}, headline(question)), changes, element("p", {class: "quiet"}, final(question))];
  if (isKey && !(await confirmed({title: `${way.label}?`, body: body.filter(Boolean), label: way.label, kind: way.kind === "reject" ? "reject" : "send"}))) return;
  const controls = [...footer.querySelectorAll("button")];
  controls.forEach((each) => (each.disabled = true));
  try {
    const receipt = await respond(question, response, {note: note.value.trim(), on_behalf_of: maker?.value});
    after({text: decided(question, way.kind, response, receipt), receipt, isApproval: way.kind === "approve", isRemembered: way.kind === "remember"});
  } catch (error) {
    if (error instanceof Problem) {
      card.show(error.errors);
      problem.textContent = visible(error.message);
      if (SETTLED_ELSEWHERE.includes(error.code)) after();
    } else {
      problem.textContent = "The service cannot be reached, and the answer may or may not have arrived. Sending it again is safe.";
    }
  } finally {
    controls.forEach((each) => (each.disabled = false));
  }
}

/**
 * Answer a question, with the digest of what was shown, and return the receipt. `more` are a note, and in
 * whose place the reader answers.
 */
export async function respond(question, response, more = {}) {
  const present = Object.entries(more).filter(([, value]) => value);
  const body = {response, ...Object.fromEntries(present)};
  // With the digest, the run refuses the answer if the question has changed since.
  if (question.digest) body.digests = {[question.id]: question.digest};
  const {receipts} = await call(`/interrupts/${encodeURIComponent(question.id)}/respond`, {body});
  return receipts[0];
}

/** Return the open question that asks again about the call of an approved one; undefined if none does soon. */
export async function askedAgain({id, run_id: run, name, address, preview}, receipt) {
  if (!preview || receipt.status !== "answered") return undefined;
  for (const end = Date.now() + (receipt.asked_again ? AGAIN_MS : CONFIRMED_MS); Date.now() < end; ) {
    const {items} = await call(`/runs/${encodeURIComponent(run)}/interrupts`);
    const again = items.find((each) => each.id !== id && each.name === name && each.address === address);
    if (again) return again;
    await new Promise((wake) => setTimeout(wake, POLL_MS));
  }
  return undefined;
}

/** Return what was decided, in words. */
export function decided(question, kind, response, receipt) {
  const time = clock(receipt.accepted_at);
  const subject = isCall(question) ? question.reason.tool : `“${inWords(headline(question))}”`;
  if (receipt.replayed) return `This was decided before, ${time}, with the same answer: ${subject}.`;
  let text;
  if (kind === "go") {
    const changes = response && changesInWords(question.payload.values, response.values);
    text = `You let the run go on${changes ? ` with ${changes}` : ""}, ${time}.`;
  } else if (kind === "answer") text = `You answered ${subject} with ${inWords(response)}, ${time}.`;
  else {
    const changes = isCall(question) && response?.arguments ? ` with ${changesInWords(question.reason.arguments, response.arguments)}` : "";
    const result = kind === "respond" ? `: the agent reads ${inWords(response.result)}` : "";
    text = `You ${DECIDED[kind]} ${subject}${changes}${result}, ${time}.`;
  }
  if (receipt.status === "voted") text += ` It is one vote: ${receipt.missing} more ${receipt.missing === 1 ? "person has" : "people have"} to approve.`;
  const until = receipt.held_until;
  if (until) text += ` It begins ${distance(until)}; until then you can take it back.`;
  return text;
}
