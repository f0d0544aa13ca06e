// What was decided lately, the newest first: who decided, when, and what. The report knows it: a question that
// was asked again after its answer is none of them, because nothing was done.

import {call, called, serviceTime} from "./api.js";
import {isObject} from "./json.js";
import {changesInWords, inWords} from "./markup.js";

const DAY_MS = 86_400_000;
const PAGE = 200;
const MOST_PAGES = 10;
/** How many decisions are read at most. */
export const MOST = PAGE * MOST_PAGES;
const OUTCOMES = ["approved", "rejected", "answered", "expired"];

/** Yield the decisions of the last days as questions with an `outcome`, each time with more of them. */
export async function* readDecided(days) {
  const asked = [
    ["from", new Date(serviceTime() - days * DAY_MS).toISOString()],
    ...OUTCOMES.map((outcome) => ["outcome", outcome]),
    ["fields", "reason.tool,reason.arguments"],
    ["limit", PAGE],
  ];
  const decisions = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const found = await call(`/approvals?${new URLSearchParams(cursor ? [...asked, ["cursor", cursor]] : asked)}`);
    decisions.push(...found.items.map(decisionOf));
    yield [...decisions];
    cursor = found.next_cursor;
    if (!cursor) return;
  }
}

function decisionOf(row) {
  const {id, run_id, graph, name, prompt, prompt_values, at, note, fields} = row;
  const isCall = isObject(fields["reason.arguments"]);
  const said = [verb(row), row.rewound_by === null ? null : "rewound since", note ? inWords(note) : null].filter(Boolean);
  return {
    id, run_id, graph, name, prompt: prompt || name, prompt_values, kind: isCall ? "approval" : "question",
    status: row.outcome, created_at: at, deadline: null, quorum: null,
    reason: isCall ? {tool: fields["reason.tool"], arguments: fields["reason.arguments"]} : null,
    // What was approved as it was asked.
    approved: isCall && row.outcome === "approved" && !changesOf(row) ? listOf(fields["reason.arguments"]) : null,
    outcome: said.join("; "),
  };
}

const changesOf = ({answer, fields}) => (isObject(fields["reason.arguments"]) && isObject(answer?.arguments) ? changesInWords(fields["reason.arguments"], answer.arguments) : "");
const listOf = (values) => Object.entries(values).map(([name, value]) => `${name} ${inWords(value)}`).join(", ");

function verb(row) {
  const {outcome, by, on_behalf_of: maker, answer} = row;
  if (outcome === "expired") return "expired";
  const changes = outcome === "approved" && changesOf(row);
  const what = changes ? `approved with ${changes}` : outcome === "answered" && answer !== null ? `answered ${inWords(answer)}` : outcome;
  const who = by === "timeout" ? "its deadline" : maker ? `${called(by)} for ${called(maker)}` : called(by);
  return who ? `${what} by ${who}` : what;
}
