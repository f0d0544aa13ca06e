// Several equal questions, decided with one answer: each gets its own, with a result.

import {call, problemText} from "./api.js";
import {card, isCall} from "./card.js";
import {showFaults} from "./form.js";
import {same} from "./json.js";
import {topic} from "./list.js";
import {button, element, promptLine, shownValue, visible} from "./markup.js";
import {decided, respond} from "./question.js";

/**
 * Create the page for some questions, which it reads first. `answered(id)` is called for each that took the
 * answer, and `over()` once all were sent. Throws a Problem if one cannot be read.
 */
export async function togetherPage(chosen, {answered, over}) {
  const questions = [];
  for (const {id} of chosen) questions.push(await call(`/interrupts/${encodeURIComponent(id)}`));
  const [first] = questions;
  if (!questions.every((each) => isEqual(each, first))) {
    return [element("p", {role: "alert"}, "These questions take different answers: answer them one by one.")];
  }
  const way = sharedCard(first);
  const problem = element("p", {role: "alert"});
  const results = element("ol", {class: "results", "aria-live": "polite"});
  const send = async ({kind, read}) => {
    problem.textContent = "";
    let answer;
    try {
      answer = read();
    } catch (error) {
      problem.textContent = visible(showFaults(error).join("\n"));
      return;
    }
    buttons.forEach((each) => (each.disabled = true));
    for (const question of questions) results.append(await resultOf(question, kind, answer, answered));
    over();
  };
  const buttons = way.ways.filter(({label}) => label).map((each) =>
    button(`${each.label} (${questions.length})`, () => send(each), {class: each.kind === "reject" ? "reject" : "send"}));
  const rows = element("ul", {}, ...questions.map(row));
  return [
    element("h2", {tabindex: "-1"}, `Answer ${questions.length} questions: ${topic(first)}`),
    element("details", {open: questions.length <= 10}, element("summary", {}, "What is asked"), rows),
    element("form", {class: "answer", "aria-label": "Answer", onsubmit: (event) => event.preventDefault()},
      ...way.parts.filter(Boolean), problem, element("p", {class: "buttons"}, ...buttons)),
    results,
  ];
}

const isEqual = (one, other) => same([one.kind, one.response_schema], [other.kind, other.response_schema]);

// Each call has its own arguments, so those of many are approved as they are.
function sharedCard(question) {
  if (question.kind !== "approval") return card({...question, payload: null});
  const decisions = (question.decisions ?? ["approve", "reject"]).filter((each) => each === "approve" || each === "reject");
  return card({...question, decisions, isShared: true});
}

function row(question) {
  const {run_id: run, reason, preview} = question;
  return element("li", {}, promptLine(question), " ", element("a", {href: `/inbox/runs/${encodeURIComponent(run)}`}, run),
    reason ? shownValue(isCall(question) ? reason.arguments : reason) : null, preview ? shownValue(preview) : null);
}

async function resultOf(question, kind, answer, answered) {
  try {
    const receipt = await respond(question, answer);
    if (receipt.status !== "voted") answered(question.id);
    return element("li", {}, decided(question, kind, answer, receipt));
  } catch (error) {
    return element("li", {class: "warning"}, `${promptLine(question)} (${question.run_id}): ${problemText(error)}`);
  }
}
