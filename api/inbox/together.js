// Several equal questions, decided with one answer: each gets its own, with a result.

import {call, failureText} from "./api.js";
import {card, isCall} from "./card.js";
import {showFaults} from "./form.js";
import {isObject, same, sum} from "./json.js";
import {topic} from "./list.js";
import {align, badge, button, confirmed, digits, element, isAmount, isLabel, promptLine, shownValue, spoken, visible} from "./markup.js";
import {decided, final, respond} from "./question.js";

const EFFECT = "What would happen";

/**
 * Create the page for some questions, which it reads first. `answered(id)` is called for each that took the
 * answer, and `over()` once all were sent. Throws a Problem if one cannot be read.
 */
export async function togetherPage(chosen, {answered, over}) {
  const questions = [];
  for (const {id} of chosen) questions.push(await call(`/interrupts/${encodeURIComponent(id)}`));
  const [first] = questions;
  if (!questions.every((each) => isEqual(each, first))) {
    return {main: [element("p", {role: "alert"}, "These questions take different answers: answer them one by one.")]};
  }
  const way = sharedCard(first);
  const problem = element("p", {role: "alert"});
  const note = element("textarea", {id: "note", rows: 1, maxlength: 2000, "aria-label": "Note", placeholder: "Note, kept with each answer"});
  const rows = new Map(questions.map((question) => [question.id, element("td", {class: "result"})]));
  const send = async ({label, kind, read}) => {
    problem.textContent = "";
    let answer;
    try {
      answer = read(note.value.trim());
    } catch (error) {
      problem.textContent = visible(showFaults(error).join("\n"));
      return;
    }
    if (!(await confirmed({title: `${label} ${questions.length} questions?`, body: [element("p", {class: "quiet"}, final(first))], label, kind: kind === "reject" ? "reject" : "send"}))) return;
    buttons.forEach((each) => (each.disabled = true));
    for (const question of questions) rows.get(question.id).replaceChildren(...(await resultOf(question, kind, answer, note.value.trim(), answered)));
    over();
  };
  const buttons = way.ways.filter(({label}) => label).map((each) =>
    button(`${each.label} (${questions.length})`, () => send(each), {class: each.kind === "reject" ? "reject" : "send"})).reverse();
  return {
    main: [
      element("h2", {tabindex: "-1"}, `Answer ${questions.length} questions: ${topic(first)}`),
      table(questions, rows),
      element("form", {class: "answer", "aria-label": "Answer", onsubmit: (event) => event.preventDefault()}, ...way.parts.filter(Boolean)),
    ],
    footer: element("footer", {class: "decision"}, problem, element("div", {class: "deciding"}, note, element("span", {class: "buttons"}, ...buttons)),
      element("small", {class: "quiet"}, final(first))),
  };
}

// Each question with its run, its values and its result, and the totals of what are amounts.
function table(questions, results) {
  const values = questions.map(({reason, ...question}) => (isCall({reason, ...question}) ? reason.arguments : isObject(reason) ? reason : reason === null ? {} : {why: reason}));
  // What none of them has needs no column.
  const names = [...new Set(values.flatMap((each) => Object.keys(each).filter((name) => each[name] !== null)))];
  const kinds = new Map(names.map((name) => [name, values.every((each) => !(name in each) || isAmount(each[name])) ? "number" : null]));
  // A phone has no room for a head above: there each value has its name beside it.
  const titles = new Map(names.map((name) => [name, visible(spoken(name))]));
  const hasPreview = questions.some(({preview}) => preview);
  const total = (name) => (kinds.get(name) && !isLabel(name) ? sum(values.map((each) => each[name] ?? 0)) : null);
  const totals = names.map(total);
  const head = ["Question", "Run"].map((each) => element("th", {scope: "col"}, each));
  const body = questions.map((question, index) => element("tr", {},
    element("td", {}, element("span", {class: "short"}, promptLine(question))),
    element("td", {}, element("a", {href: `/inbox/runs/${encodeURIComponent(question.run_id)}`}, question.run_id)),
    ...names.map((name) => element("td", {class: kinds.get(name), "data-name": titles.get(name)}, name in values[index] ? shownValue(values[index][name], 2, name) : "")),
    hasPreview ? element("td", {class: "effect", "data-name": EFFECT}, question.preview ? shownValue(question.preview.summary ?? question.preview, 1) : "") : null,
    results.get(question.id)));
  const foot = element("tr", {}, element("th", {scope: "row", colspan: 2}, `${questions.length} questions, in total`),
    ...totals.map((each, index) => element("td", {class: "number", "data-name": titles.get(names[index])}, each === null ? "" : element("span", {class: "number"}, ...digits(String(each))))), hasPreview ? element("td", {}) : null, element("td", {}));
  names.forEach((_, index) => align([...body.map((row) => row.children[index + 2]), foot.children[index + 1]]));
  return element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "The questions"}, element("table", {class: "together"},
    element("thead", {}, element("tr", {}, ...head, ...names.map((name) => element("th", {scope: "col", class: kinds.get(name)}, titles.get(name))),
      hasPreview ? element("th", {scope: "col"}, EFFECT) : null, element("th", {scope: "col"}, "Result"))),
    element("tbody", {"aria-live": "polite"}, ...body), element("tfoot", {}, totals.some(Boolean) ? foot : null)));
}

const isEqual = (one, other) => same([one.kind, one.response_schema], [other.kind, other.response_schema]);

// Each call has its own arguments, so those of many are approved as they are.
function sharedCard(question) {
  if (question.kind !== "approval") return card({...question, payload: null, votes: null});
  const decisions = (question.decisions ?? ["approve", "reject"]).filter((each) => each === "approve" || each === "reject");
  return card({...question, decisions, isShared: true});
}

async function resultOf(question, kind, answer, note, answered) {
  try {
    const receipt = await respond(question, answer, {note});
    if (receipt.status !== "voted") answered(question.id);
    const state = receipt.status !== "answered" ? receipt.status : kind === "approve" ? "approved" : kind === "reject" ? "rejected" : "answered";
    return [badge(state), element("small", {class: "quiet"}, ` ${decided(question, kind, answer, receipt)}`)];
  } catch (error) {
    return [badge("failed", "not sent"), element("small", {class: "warning"}, ` ${failureText(error)}`)];
  }
}
