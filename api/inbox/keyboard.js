// The inbox by keyboard alone.

import {at, button, element} from "./markup.js";

const HELP = [
  ["j, k", "next, previous question"],
  ["Enter", "open the question"],
  ["a, r", "approve, reject; Enter confirms"],
  ["e", "edit"],
  ["c", "claim"],
  ["x", "select the question; with shift all from the last one"],
  ["/", "search"],
  ["Escape", "back to the list"],
  ["?", "this help"],
];

/**
 * Act on keys. `places()` are the links of the list, `back()` goes back to it, and `peek(link)` is called
 * when one moves to a question.
 */
export function listenToKeys({places, back, peek}) {
  const keys = {
    j: () => move(places(), 1, peek),
    k: () => move(places(), -1, peek),
    x: () => pick(false),
    X: () => pick(true),
    "/": () => at("by-text")?.focus(),
    "?": help,
    Escape: back,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const isTyping = event.target.matches("input:not([type=checkbox], [type=radio]), textarea, select");
    if (isTyping && event.key !== "Escape") return;
    const shortcut = document.querySelector(`#question [data-key="${CSS.escape(event.key)}"]`);
    // A button may have a key ask first.
    const act = shortcut ? () => shortcut.dispatchEvent(new CustomEvent("shortcut", {cancelable: true})) && shortcut.click() : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

// The focus may be on the box of a question too.
function move(links, step, peek) {
  if (!links.length) return;
  const row = document.activeElement?.closest("li");
  const here = links.findIndex((link) => link === document.activeElement || row?.contains(link));
  const now = here < 0 ? links.findIndex((link) => link.getAttribute("aria-current")) : here;
  const next = links[Math.max(0, Math.min(links.length - 1, now + step))];
  next.focus();
  next.scrollIntoView({block: "nearest"});
  peek(next);
}

// The question that has the focus, or the one that is shown.
function pick(isRange) {
  const row = document.activeElement?.closest("#questions li") ?? document.querySelector("#questions li:has(a[aria-current])");
  row?.querySelector("input")?.dispatchEvent(new MouseEvent("click", {shiftKey: isRange, bubbles: true, cancelable: true}));
}

/** Show the keys. */
export function help() {
  at("help").replaceChildren(
    element("h2", {id: "help-title"}, "Keyboard"),
    element("dl", {}, ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)])),
    element("p", {class: "buttons"}, button("Close", () => at("help").close())),
  );
  at("help").showModal();
}
