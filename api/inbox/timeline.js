// How long what took: each visit, call and question of a run as a bar, where a question is what people took.

import {serviceTime} from "./api.js";
import {duration, element} from "./markup.js";

const MOST = 60;
const ENDS = /\.(finished|failed|stopped|answered|expired|cancelled|held)$/;

/** Create the timeline of a run. `labelOf(address)` names a place. */
export function timelineOf(events, view, labelOf) {
  const begin = Date.parse(view.created_at);
  const end = view.ended_at ? Date.parse(view.ended_at) : serviceTime();
  const spans = spansOf(events, end);
  if (!spans.length) return null;
  const rows = spans.slice(-MOST).map(({kind, address, name, from, to, isOpen}) => {
    const bar = element("span", {class: `bar ${kind}`});
    const percent = (time) => `${(100 * Math.max(0, Math.min(end, time) - begin)) / Math.max(1, end - begin)}%`;
    bar.style.setProperty("--from", percent(from));
    bar.style.setProperty("--long", percent(begin + to - from));
    const text = labelOf(address) || name;
    return element("li", {}, element("span", {class: "name", title: text}, text), element("span", {class: "lane"}, bar),
      element("span", {class: "long"}, kind === "question" ? `${isOpen ? "waits" : "waited"} ${duration((to - from) / 1000)}` : `${isOpen ? "runs " : ""}${duration((to - from) / 1000)}`));
  });
  return element("ol", {class: "spans"}, ...rows);
}

function spansOf(events, now) {
  const open = new Map();
  const spans = [];
  for (const {type, time, address, data} of events) {
    const isQuestion = type.startsWith("interrupt.");
    const key = isQuestion ? data?.id : address;
    if (/^(node|tool)\.started$/.test(type) || type === "interrupt.opened") {
      if (open.has(key)) continue;
      const span = {kind: isQuestion ? "question" : "visit", address: address ?? "", name: data?.name ?? "", from: Date.parse(time), to: now, isOpen: true};
      open.set(key, span);
      spans.push(span);
    } else if (ENDS.test(type) && open.has(key)) {
      const span = open.get(key);
      Object.assign(span, {to: Date.parse(time), isOpen: false, kind: type.endsWith(".failed") ? "failed" : span.kind});
      open.delete(key);
    }
  }
  return spans;
}
