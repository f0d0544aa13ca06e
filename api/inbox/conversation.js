// What an agent did up to its question, read when somebody wants it.

import {call, problemText} from "./api.js";
import {element, shownValue, spoken} from "./markup.js";

const PAGE = 100;
const MOST_PAGES = 20;

/** Create the conversation before a question of an agent; null for any other question. */
export function conversation(question) {
  if (!question.address?.includes(";agent:") && question.kind !== "approval") return null;
  const place = element("div", {"aria-live": "polite"});
  const box = element("details", {class: "conversation"}, element("summary", {}, "The agent's conversation so far"), place);
  // Beside the question there is room for it.
  box.open = matchMedia("(min-width: 70rem)").matches;
  box.addEventListener("toggle", () => {
    if (box.open && !place.childElementCount) fill(place, question);
  });
  return box;
}

async function fill(place, {run_id: run, address}) {
  place.replaceChildren(element("p", {}, "Loading"));
  try {
    const items = await transcript(run, address);
    place.replaceChildren(items.length ? element("ol", {class: "transcript"}, ...items.map(turn)) : element("p", {}, "Nothing was said yet."));
  } catch (error) {
    place.replaceChildren(element("p", {role: "alert"}, problemText(error)));
  }
}

/** Return all items of a transcript. */
export async function transcript(run, address) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams({limit: PAGE, ...(address ? {address} : {}), ...(cursor ? {cursor} : {})});
    const found = await call(`/runs/${encodeURIComponent(run)}/transcript?${query}`);
    items.push(...found.items);
    cursor = found.next_cursor;
    if (!cursor || !found.items.length) break;
  }
  return items;
}

/** Create an item of a transcript. */
export function turn(item) {
  const parts = [];
  if (item.text) parts.push(element("p", {class: "said"}, item.text));
  for (const {tool, arguments: given} of item.calls ?? []) parts.push(element("div", {}, element("p", {}, "calls ", element("b", {}, tool)), shownValue(given)));
  if (item.approval) parts.push(element("p", {class: "quiet"}, `ran unasked, under a grant of ${item.approval.by}`));
  if (item.result !== null && item.result !== undefined) parts.push(shownValue(item.result));
  for (const media of item.media ?? []) parts.push(element("p", {class: "quiet"}, media.url ?? media.media_type));
  const who = [spoken(item.role ?? item.kind ?? ""), item.tool, item.sender].filter(Boolean).join(" · ");
  return element("li", {}, element("p", {class: "quiet"}, who), ...parts);
}
