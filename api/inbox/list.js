// The list: which questions are shown, in which order, and which of them are equal.

import {called} from "./api.js";
import {avatar, digits, distance, dueTime, element, icon, promptLine, spoken, visible} from "./markup.js";
import {agentOf, barrier} from "./standing.js";

// So much of a prompt a row shows for certain.
const SEEN = 36;
const FAR = Number.MAX_SAFE_INTEGER;
const RANKS = {high: 0, normal: 1, low: 2};
const due = (question) => (question.deadline ? Date.parse(question.deadline) : FAR);
const asked = (question) => Date.parse(question.created_at);

/** The orders: each compares two questions; equal ones stay by age, the oldest first. */
const ORDERS = {
  deadline: (one, other) => due(one) - due(other),
  priority: (one, other) => RANKS[one.priority ?? "normal"] - RANKS[other.priority ?? "normal"],
  risk: (one, other) => (other.risk ?? -1) - (one.risk ?? -1),
  age: () => 0,
  newest: (one, other) => asked(other) - asked(one),
};

/** Return the questions that pass the filters, sorted. */
export function chosen(questions, {order, graph, capability, priority, group, text}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = (question) =>
    (!graph || question.graph === graph) &&
    (!capability || question.requested_capability === capability) &&
    (!priority || (question.priority ?? "normal") === priority) &&
    (!group || question.assignees?.includes(group)) &&
    words.every((word) => searched(question).includes(word));
  return questions.filter(passes).sort((one, other) => ORDERS[order](one, other) || asked(one) - asked(other) || (one.id < other.id ? -1 : 1));
}

function searched(question) {
  question.searched ??= [question.prompt, question.graph, question.run_id, question.name, question.requested_capability, question.started_by, ...Object.values(question.about ?? {}).map(String), ...(question.assignees ?? [])]
    .filter(Boolean).join("\n").toLowerCase();
  return question.searched;
}

/** Return the choices of a filter: the values that the questions have. */
export function choices(questions, filter) {
  const values = {
    graph: (question) => [question.graph],
    capability: (question) => [question.requested_capability],
    group: (question) => question.assignees ?? [],
  }[filter];
  return [...new Set(questions.flatMap(values).filter(Boolean))].sort();
}

/** Return what equal questions have in common: their graph, and their name, or of approvals their tool. */
export function topic({graph, name, kind, address}) {
  const tool = kind === "approval" ? address?.split(";").at(-1).match(/^tool:([^:]+)/)?.[1] : null;
  return `${graph} › ${tool ?? name}`;
}

/** Return equal questions together, the most first, each `[topic, questions]`. */
export function equals(questions) {
  const parts = new Map();
  for (const question of questions) {
    const key = topic(question);
    if (!parts.has(key)) parts.set(key, []);
    parts.get(key).push(question);
  }
  return [...parts].sort((one, other) => other[1].length - one[1].length);
}

/**
 * Create the entry of a question, in two lines: what is asked, then who asks, the gist of it, and until when.
 * `pick(id, isPicked, isRange)` is called when its box is checked.
 */
export function entry(question, {isShown, isPicked, pick}) {
  const {status, outcome, priority, risk, claim, answered_by: maker} = question;
  // A claim is said by itself, and what is decided is past.
  const isBarred = !outcome && !claim && barrier(question) !== null;
  const facts = [
    status === "held" && maker ? `approved by ${called(maker)}` : null,
    claim ? `claimed by ${called(claim.by)}` : null,
    isBarred ? "not for you" : null,
  ].filter(Boolean);
  const isSaid = (value) => inWords(promptLine(question).slice(0, SEEN)).includes(inWords(value));
  const [gist] = Object.entries(question.about ?? {}).filter(([, value]) => !isSaid(value)).map(([name, value]) => [`${spoken(name)} `, ...digits(String(value), name)]);
  const begins = status === "held" && !outcome && `begins ${distance(question.held_until)}`;
  const time = begins || (question.deadline ? dueTime(question.deadline) : distance(question.created_at));
  const line = [
    element("span", {}, outcome ?? agentOf(question) ?? question.started_by ?? question.graph),
    gist && !outcome ? element("span", {class: "gist"}, ...gist) : null,
    element("span", {class: "time"}, time),
    facts.length ? element("span", {class: "facts"}, ...separated(facts)) : null,
    question.approved ? element("span", {class: "rest"}, question.approved) : null,
  ];
  const count = question.quorum ? approvals(question) : null;
  const people = [...new Set([...(question.assignees ?? []), ...(question.quorum?.of ?? [])])];
  const link = element(
    "a",
    {href: `#${encodeURIComponent(question.id)}`, "data-stay": question.id, "aria-current": isShown && "true"},
    element("span", {class: "sign"}, SIGNS[priority] ? icon(...SIGNS[priority]) : null),
    element("span", {class: "prompt"}, promptLine(question)),
    isPresent(risk) ? element("span", {class: `risk ${risk >= 70 ? "alarm" : risk >= 40 ? "warn" : "quiet"}`}, icon("shield-alert", "risk"), String(risk)) : null,
    element("span", {class: "second"},
      element("small", {}, ...separated(line.filter(Boolean))),
      people.length || count ? element("span", {class: "people"}, count, ...people.slice(0, 3).map(avatar), people.length > 3 ? `+${people.length - 3}` : null,
        people.length ? element("span", {class: "hidden"}, ` for ${people.join(", ")}`) : null) : null),
  );
  if (isBarred) link.classList.add("barred");
  const box = pick && element("input", {type: "checkbox", "data-stay": `select ${question.id}`, "aria-label": `Select ${visible(promptLine(question))}`, onclick: (event) => pick(question.id, event.target.checked, event.shiftKey)});
  if (box) box.checked = isPicked;
  return element("li", {class: isPicked ? "picked" : null}, box, link);
}

// A text as its words, so that a value is not found within another.
const inWords = (text) => ` ${String(text).split(/[\s,;:!?()"“”]+|\.(?=\s|$)/).filter(Boolean).join(" ")} `;

const SIGNS = {high: ["chevrons-up", "high priority"], low: ["chevron-down", "low priority"]};

function approvals({quorum: {count}, missing, votes}) {
  const have = isPresent(missing) ? count - missing : (votes?.length ?? 0);
  return element("span", {class: "count", title: `${have} of ${count} approvals`}, icon("check"), `${have}/${count}`, element("span", {class: "hidden"}, " approvals"));
}

const isPresent = (value) => value !== null && value !== undefined;

// Each text has its own element, so that its writing direction does not affect the others.
function separated(texts) {
  return texts.flatMap((text, index) => [index ? element("span", {class: "dot"}, " · ") : null, text instanceof Node ? text : element("span", {}, text)]);
}
