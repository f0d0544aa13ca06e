// What was decided lately, the newest first: who decided, when, and what.

import {call, Problem, serviceTime} from "./api.js";
import {changesInWords, inWords} from "./markup.js";

const DAY_MS = 86_400_000;
const PAGE = 500;
const MOST_PAGES = 40;
const MOST = 2_000;
// A decision is an event, which has no values: of the newest ones the questions are read too.
const MOST_READ = 30;
const TYPES = ["interrupt.answered", "interrupt.expired", "interrupt.opened"];
const read = new Map();
// What was read of so many days, and where the next events begin.
let known = {days: 0, events: [], after: null};

/**
 * Yield the decisions of the last days as questions with an `outcome`, each time with more of them. Of the
 * same days as before only what has come since is read.
 */
export async function* readDecided(days) {
  const since = new Date(serviceTime() - days * DAY_MS).toISOString();
  const types = TYPES.map((type) => ["type", type]);
  const story = known.days === days ? known : {days, events: [], after: null};
  // Unless it is read to its end, it is read anew the next time.
  known = {days: 0, events: [], after: null};
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams([...types, ["limit", PAGE], ["since", since], ...(story.after ? [["after", story.after]] : [])]);
    const {items, next_cursor: next} = await call(`/events?${query}`);
    story.events = [...story.events, ...items].slice(-MOST);
    if (items.length) yield newest(story.events);
    if (next === story.after) break;
    story.after = next;
  }
  known = story;
  const {events} = story;
  const decisions = newest(events);
  yield decisions;
  for (const decision of decisions.slice(0, MOST_READ)) {
    if (read.has(decision.id)) continue;
    try {
      read.set(decision.id, await call(`/interrupts/${encodeURIComponent(decision.id)}`));
    } catch (error) {
      // Of a run that was erased meanwhile, for example.
      if (!(error instanceof Problem)) throw error;
      read.set(decision.id, null);
    }
  }
  while (read.size > 10 * MOST_READ) read.delete(read.keys().next().value);
  yield newest(events);
}

// What was asked again about the same call was not decided: nothing was done.
function newest(events) {
  const decisions = [];
  const opened = new Set();
  for (const event of events.toReversed()) {
    const place = `${event.run_id} ${event.address} ${event.data.name}`;
    if (event.type === "interrupt.opened") {
      if (event.data.kind === "approval") opened.add(place);
    } else if (!opened.delete(place)) decisions.push(decisionOf(event));
  }
  return decisions;
}

function decisionOf({run_id: run, graph, time, type, actor, data}) {
  const whole = read.get(data.id);
  const by = whole?.on_behalf_of ? `${actor} for ${whole.on_behalf_of}` : actor;
  const outcome = type === "interrupt.expired" ? "expired" : `${verb(whole ?? {})} by ${by === "timeout" ? "its deadline" : by}`;
  return {
    ...whole, id: data.id, run_id: run, graph, name: data.name, prompt: whole?.prompt ?? data.name,
    deadline: null, status: type.replace("interrupt.", ""), created_at: time, quorum: null,
    outcome: data.note ? `${outcome}: ${inWords(data.note)}` : outcome,
  };
}

function verb({answer, reason}) {
  const approved = typeof answer === "boolean" ? answer : answer?.approved;
  const changes = approved === true && answer.arguments ? changesInWords(reason?.arguments, answer.arguments) : "";
  if (approved === true) return changes ? `approved with ${changes}` : "approved";
  if (approved === false) return "rejected";
  return answer === undefined || answer === null ? "answered" : `answered ${inWords(answer)}`;
}
