// The inbox by keyboard alone.

import {at, button, element} from "./markup.js";

const HELP = [
  ["j, k", "next, previous question"],
  ["Enter", "open the question"],
  ["a, r", "approve, reject"],
  ["c", "claim"],
  ["x", "select the question"],
  ["/", "search"],
  ["Escape", "back to the list"],
  ["?", "this help"],
];

/** Act on keys. `places()` are the links of the list, and `back()` goes back to it. */
export function listenToKeys({places, back}) {
  const keys = {
    j: () => move(places(), 1),
    k: () => move(places(), -1),
    x: () => document.activeElement?.closest("#questions li")?.querySelector("input")?.click(),
    "/": search,
    "?": help,
    Escape: back,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
    const isTyping = event.target.matches("input:not([type=checkbox], [type=radio]), textarea, select");
    if (isTyping && event.key !== "Escape") return;
    const shortcut = document.querySelector(`#question [data-key="${CSS.escape(event.key)}"]`);
    const act = shortcut ? () => shortcut.click() : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

// The focus may be on the box of a question too.
function move(links, step) {
  if (!links.length) return;
  const row = document.activeElement?.closest("li");
  const here = links.findIndex((link) => link === document.activeElement || row?.contains(link));
  const now = here < 0 ? links.findIndex((link) => link.getAttribute("aria-current")) : here;
  const next = links[Math.max(0, Math.min(links.length - 1, now + step))];
  next.focus();
  next.scrollIntoView({block: "nearest"});
}

function search() {
  at("filters").open = true;
  at("by-text")?.focus();
}

function help() {
  at("help").replaceChildren(
    element("h2", {id: "help-title"}, "Keyboard"),
    element("dl", {}, ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)])),
    button("Close", () => at("help").close()),
  );
  at("help").showModal();
}
