// The list: which questions there are, in which order, and which of them are equal.

import {clock, distance, dueTime, element, promptLine, visible} from "./markup.js";
import {barrier} from "./standing.js";

const DAY_MS = 86_400_000;
const FAR = Number.MAX_SAFE_INTEGER;
const RANKS = {high: 0, normal: 1, low: 2};
const SPANS = [
  ["Overdue", (ms) => ms < 0],
  ["Within a day", (ms) => ms < DAY_MS],
  ["Within a week", (ms) => ms < 7 * DAY_MS],
  ["Later", (ms) => ms < FAR],
  ["Without a deadline", () => true],
];
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
  question.searched ??= [question.prompt, question.graph, question.run_id, question.name, question.requested_capability, ...(question.assignees ?? [])]
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

/** Return the questions in sections, each `[title, questions]`: by deadline, or by what is equal. */
export function sections(questions, {order, isGrouped}) {
  if (isGrouped) return equals(questions);
  if (order !== "deadline") return questions.length ? [[null, questions]] : [];
  const now = Date.now();
  const parts = SPANS.map(([title]) => [title, []]);
  for (const question of questions) {
    const left = due(question) === FAR ? FAR : due(question) - now;
    parts[SPANS.findIndex(([, fits]) => fits(left))][1].push(question);
  }
  return parts.filter(([, members]) => members.length);
}

/** Return what equal questions have in common: their graph, their name, and of approvals their tool. */
export function topic({graph, name, kind, address}) {
  const tool = kind === "approval" ? address?.split(";").at(-1).match(/^tool:([^:]+)/)?.[1] : null;
  return [graph, name, tool].filter(Boolean).join(" › ");
}

function equals(questions) {
  const parts = new Map();
  for (const question of questions) {
    const key = topic(question);
    if (!parts.has(key)) parts.set(key, []);
    parts.get(key).push(question);
  }
  return [...parts].sort((one, other) => other[1].length - one[1].length);
}

/** Create the entry of a question. `pick(id, isPicked)` is called when its box is checked. */
export function entry(question, {isShown, isPicked, pick}) {
  // A claim is said by itself, and what is decided is past.
  const isBarred = !question.outcome && !question.claim && barrier(question) !== null;
  const facts = [
    question.priority && question.priority !== "normal" ? `${question.priority} priority` : null,
    isPresent(question.risk) ? `risk ${question.risk}` : null,
    question.status === "held" && question.answered_by ? `approved by ${question.answered_by}` : null,
    question.quorum ? approvals(question) : null,
    question.claim ? `claimed by ${question.claim.by}` : null,
    isBarred ? "not for you" : null,
  ].filter(Boolean);
  const place = [question.graph, question.run_id, question.requested_capability].filter(Boolean);
  const begins = question.status === "held" && `begins ${distance(question.held_until)}`;
  const time = begins || (question.deadline ? dueTime(question.deadline) : `asked ${clock(question.created_at)}`);
  const link = element(
    "a",
    {href: `#${encodeURIComponent(question.id)}`, "data-stay": question.id, "aria-current": isShown && "true"},
    element("span", {class: "prompt"}, promptLine(question)),
    element("small", {}, ...separated(place)),
    facts.length ? element("small", {class: "facts"}, ...separated(facts)) : null,
    element("small", {}, question.outcome ? [...separated([question.outcome, clock(question.created_at)])] : time),
  );
  if (isBarred) link.classList.add("barred");
  const box = pick && element("input", {type: "checkbox", "data-stay": `select ${question.id}`, "aria-label": `Select ${visible(question.prompt)}`, onchange: (event) => pick(question.id, event.target.checked)});
  if (box) box.checked = isPicked;
  return element("li", {}, box, link);
}

function approvals({quorum: {count}, missing, votes}) {
  const have = isPresent(missing) ? count - missing : (votes?.length ?? 0);
  return `${have} of ${count} approvals`;
}

const isPresent = (value) => value !== null && value !== undefined;

// Each text has its own element, so that its writing direction does not affect the others.
function separated(texts) {
  return texts.flatMap((text, index) => [index ? " · " : null, element("span", {}, text)]);
}
