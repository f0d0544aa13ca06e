// Elements, texts and values on the page. Text is set as text, never as markup; only HTML that the service
// made safe (members named `..._html`) is markup.

import {isFlat, isNumber, isObject, write} from "./json.js";

const SVG = "http://www.w3.org/2000/svg";
const MINUTE_MS = 60_000;
const SOON_MS = 60 * MINUTE_MS;
const SIZES = [["day", 86_400_000], ["hour", 3_600_000], ["minute", MINUTE_MS]];
const DEEPEST_TABLE = 4;
const LONGEST_WORD = 16;
// A time with its zone: what it is in the reader's own stands beside it.
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;
const ADDRESS = /^https?:\/\/[^\s<>"]+$/;

// Invisible characters and those that reorder text: the same as UNSEEN in abeyance/core/text.py.
const UNSEEN = new RegExp(
  "[" +
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f" +
    "\\xad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200d\\u2060-\\u2065\\u206a-\\u206f\\u2800" +
    "\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\u{e0000}-\\u{e0fff}" +
    "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069" +
    "\\u2028\\u2029" +
    "\\ud800-\\udfff" +
    "]",
  "gu",
);

let ahead = 0;

/** Return the time of the service, in milliseconds: the clock of this machine may be wrong. */
export const serviceTime = () => Date.now() + ahead;

/** Set the clock by the time that the service has now. */
export function setClock(time) {
  ahead = time - Date.now();
}

export const at = (id) => document.getElementById(id);

/** Return the text with invisible characters replaced by code points, such as <U+202E>. */
export function visible(text) {
  const codePoint = (character) => `<U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
  return String(text).replaceAll("\r\n", "\n").replace(UNSEEN, codePoint);
}

/** Return a value as JSON with invisible characters escaped, so that it parses to the same value. */
export function jsonText(value) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return write(value, 2)?.replace(UNSEEN, (character) => character.split("").map(escape).join(""));
}

/** Create an element. Children that are not nodes are text; null ones are left out. */
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (value === true) created.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) created.setAttribute(key, value);
  }
  const present = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  created.append(...present.map((child) => (child instanceof Node ? child : visible(child))));
  return created;
}

/** Replace what is in an element, and leave the focus on what has the same `data-stay` as before. */
export function redraw(place, ...parts) {
  const stay = place.contains(document.activeElement) ? document.activeElement.dataset.stay : undefined;
  place.replaceChildren(...parts);
  if (stay === undefined) return true;
  const same = place.querySelector(`[data-stay="${CSS.escape(stay)}"]`);
  same?.focus({preventScroll: true});
  return Boolean(same);
}

/** Create a button that does not send the form around it. */
export function button(label, act, attributes = {}) {
  return element("button", {type: "button", onclick: act, ...attributes}, label);
}

/** Create an icon of `icons.svg`. One with a label says something by itself. */
export function icon(name, label = null) {
  const created = document.createElementNS(SVG, "svg");
  created.setAttribute("class", `icon ${name}`);
  if (label) created.setAttribute("aria-label", visible(label));
  created.setAttribute(...(label ? ["role", "img"] : ["aria-hidden", "true"]));
  created.append(document.createElementNS(SVG, "use"));
  created.firstChild.setAttribute("href", `/inbox/icons.svg#${name}`);
  return created;
}

/** Create the initials of somebody, or of a group. */
export function avatar(name) {
  const plain = name.replace(/^group:/, "");
  const words = plain.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const initials = words.length > 1 ? words.slice(0, 2).map(([first]) => first).join("") : [...plain].slice(0, 2).join("");
  const created = element("span", {class: plain === name ? "avatar" : "avatar group", title: visible(plain), "aria-hidden": "true"}, initials.toUpperCase());
  created.style.setProperty("--hue", [...plain].reduce((sum, each) => (sum * 31 + each.codePointAt(0)) % 360, 7));
  return created;
}

/** Have somebody confirm what they are about to do; Enter confirms. Returns whether they do. */
export function confirmed({title, body = [], label, kind = "send"}) {
  return new Promise((resolve) => {
    const box = element("dialog", {class: "confirm", "aria-labelledby": "confirm-title"},
      element("h2", {id: "confirm-title"}, title), ...body,
      element("p", {class: "buttons"}, button("Back", () => box.close("")), button(label, () => box.close("yes"), {class: kind, autofocus: true})));
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue === "yes");
    });
    document.body.append(box);
    box.showModal();
  });
}

const BADGES = {
  running: ["mark", "loader"], "awaiting-input": ["warn", "circle-help"], paused: ["warn", "circle-pause"], ending: ["warn", "loader"],
  completed: ["good", "circle-check"], failed: ["alarm", "circle-x"], blocked: ["alarm", "octagon-x"], approved: ["good", "circle-check"],
  rejected: ["alarm", "circle-x"], answered: ["good", "circle-check"], voted: ["quiet", "check"], pending: ["quiet", "circle-dot"], held: ["warn", "hourglass"],
  expired: ["warn", "alarm-clock"], withdrawn: ["quiet", "undo-2"], granted: ["good", "key-round"],
};

/** Create the badge of a status: of a run, a question or a vote. */
export function badge(status, text = String(status).replaceAll("-", " ")) {
  const [tone, sign] = BADGES[status] ?? ["quiet", "ban"];
  return element("span", {class: `badge ${tone}`}, icon(sign), text);
}

/** Create an element with HTML that the service made safe, or with the text if it made none. */
export function prose(html, text, attributes = {}) {
  if (!html) return element("div", {class: "prose plain-text", ...attributes}, text);
  const created = element("div", {class: "prose", ...attributes});
  created.innerHTML = html;
  return created;
}

/** Return a time in the reader's own zone; a `medium` one has seconds. */
export function clock(text, timeStyle = "short") {
  return new Date(text).toLocaleString(undefined, {dateStyle: "medium", timeStyle});
}

/** Return the time at which a day (`2026-03-02`) begins in the reader's own zone, or the day after it ends, as the API takes times. */
export function dayTime(day, {isEnd = false} = {}) {
  const time = new Date(`${day}T00:00`);
  if (isEnd) time.setDate(time.getDate() + 1);
  return time.toISOString();
}

/** Return how far away a time is, such as "in 2 hours". */
export function distance(text) {
  const left = Date.parse(text) - serviceTime();
  if (Math.abs(left) < MINUTE_MS / 2) return "now";
  const [unit, size] = SIZES.find(([, ms]) => Math.abs(left) >= ms) ?? SIZES[2];
  return new Intl.RelativeTimeFormat("en", {numeric: "auto"}).format(Math.round(left / size), unit);
}

/** Return how long so many seconds are, such as "2 hours". */
export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  const [unit, size] = SIZES.find(([, ms]) => seconds * 1000 >= ms) ?? ["second", 1000];
  return new Intl.NumberFormat("en", {style: "unit", unit, unitDisplay: "long", maximumSignificantDigits: 2}).format((seconds * 1000) / size);
}

/** Create the time at which a question is due. */
export function dueTime(text) {
  const left = Date.parse(text) - serviceTime();
  const isLate = left < 0;
  const attributes = {datetime: text, title: clock(text), class: isLate ? "late" : left < SOON_MS ? "soon" : null};
  return element("time", attributes, isLate ? icon("alarm-clock") : null, isLate ? `was due ${distance(text)}` : `due ${distance(text)}`);
}

/** Create a list of terms and what they are; pairs without a value are left out. */
export function pairs(rows, attributes = {}) {
  const present = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return element("dl", attributes, ...present.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

/** Return a name of a field as a person writes it. */
export function spoken(name) {
  const words = String(name).replaceAll(/[_-]+/g, " ").trim();
  return words ? words[0].toUpperCase() + words.slice(1) : String(name);
}

// Fewer digits are read at a glance, and more are those of an id.
const LIKELY = /^[+-]?\d{5,12}$/;

/** Return whether a name says that its number counts nothing, and so is neither added up nor grouped. */
export const isLabel = (name) => /(^|_)(id|number|no|year|age|zip|code|phone|account)$/i.test(name);

/**
 * Return the parts of a number: with its thousands apart for who sees it, and whole for who hears it. The gap is no
 * character, so that the number is copied as it is. Another text is one part.
 */
export function digits(text, name = "") {
  const [, first, others, fraction = ""] = /^([+-]?\d{1,3}?)((?:\d{3})+)(\.\d+)?$/.exec(text) ?? [];
  if (!others || !LIKELY.test(`${first}${others}`) || isLabel(name)) return [text];
  const apart = others.match(/\d{3}/g).map((each) => element("span", {class: "thousand"}, each));
  return [element("span", {class: "hidden"}, text), element("span", {class: "seen", "aria-hidden": "true"}, first, ...apart, fraction)];
}

/** Create what shows a JSON value: a table of its fields, a table of equal rows, a list, or a text. */
export function shownValue(value, depth = 0, name = "") {
  if (isFlat(value)) return shownText(value, name);
  if (depth >= DEEPEST_TABLE) return element("pre", {tabindex: "0"}, write(value, 2));
  if (isObject(value)) {
    if (FILE.test(value.$file)) return attachment(value);
    const entries = Object.entries(value);
    if (!entries.length) return element("span", {class: "quiet"}, "nothing");
    const shown = pairs(entries.map(([name, part]) => [spoken(name), shownValue(part, depth + 1, name)]), {class: "values"});
    shown.style.setProperty("--digits", align([...shown.children]));
    return shown;
  }
  if (!value.length) return element("span", {class: "quiet"}, "none");
  if (value.every((row) => isObject(row) && Object.values(row).every(isFlat))) return shownRows(value);
  return element("ul", {class: "values"}, ...value.map((part) => element("li", {}, shownValue(part, depth + 1))));
}

/** Put the points of numbers that stand below each other below each other. Returns how wide that is. */
export function align(places) {
  const numbers = places.map((place) => place.firstElementChild).filter((each) => each?.matches(".number"));
  const [wholes, fractions] = [0, 1].map((part) => numbers.map((each) => ((each.querySelector(".seen") ?? each).textContent.split(".")[part] ?? "").length));
  const most = Math.max(0, ...fractions);
  numbers.forEach((each, index) => (each.dataset.pad = `${fractions[index] || !most ? "" : "."}${"0".repeat(most - fractions[index])}`));
  const gaps = Math.max(0, ...numbers.map((each) => each.querySelectorAll(".thousand").length));
  return numbers.length > 1 ? `calc(${Math.max(...wholes) + most + (most && 1)}ch + ${gaps} * var(--gap))` : "0";
}

const AMOUNT = /^-?\d+\.\d+$/;

/** Return whether a value is a number. An amount may be a text, to be exact. */
export const isAmount = (value) => isNumber(value) || (typeof value === "string" && AMOUNT.test(value));

function shownRows(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const kind = (name) => ({class: rows.every((row) => !(name in row) || isAmount(row[name])) ? "number" : null});
  const head = element("tr", {}, ...names.map((name) => element("th", {scope: "col", ...kind(name)}, spoken(name))));
  const body = rows.map((row) => element("tr", {}, ...names.map((name) => element("td", kind(name), name in row ? shownText(row[name], name) : ""))));
  names.forEach((_, index) => align(body.map((row) => row.children[index])));
  return element("div", {class: "wide", tabindex: "0"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function shownText(value, name = "") {
  if (value === null) return element("span", {class: "quiet"}, "none");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string" && ADDRESS.test(value)) {
    return element("a", {href: value, rel: "noreferrer noopener", target: "_blank"}, value);
  }
  const text = String(value);
  if (MOMENT.test(text)) return element("span", {class: "text"}, text, element("small", {class: "quiet"}, ` (${clock(text)} here)`));
  // A date or an id is read as one word.
  return element("span", {class: `text${isAmount(value) && !isLabel(name) ? " number" : ""}${text.length <= LONGEST_WORD && !/\s/.test(text) ? " word" : ""}`}, ...(isAmount(value) ? digits(text, name) : [text]));
}

// A file in the storage: `{"$file": <address>, "name", "type"}`; pictures are shown.
const FILE = /^\/runs\/[\w.:~-]+\/files\/[0-9a-f]{64}$/;

function attachment({$file: href, name, type}) {
  const label = name ?? href.slice(href.lastIndexOf("/") + 1);
  if (/^image\/(png|jpeg|gif|webp)$/.test(type ?? "")) return element("img", {src: href, alt: label, loading: "lazy"});
  return element("a", {href, download: label}, label);
}

/** Create what differs between two objects: each field with what it was and what it is. */
export function difference(before, after) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const changed = names.filter((name) => write(before?.[name]) !== write(after?.[name]));
  if (!changed.length) return null;
  const text = (value) => (value === undefined ? "nothing" : shownValue(value, 1));
  const rows = changed.map((name) => [
    spoken(name),
    element("span", {class: "change"}, element("del", {}, text(before?.[name])), " → ", element("ins", {}, text(after?.[name]))),
  ]);
  return pairs(rows, {class: "values"});
}

/** Return what differs between two objects in one sentence. */
export function changesInWords(before, after) {
  const names = Object.keys(after ?? {}).filter((name) => write(before?.[name]) !== write(after[name]));
  return names.map((name) => `${name} ${inWords(after[name])} (was ${inWords(before?.[name])})`).join(", ");
}

/** Return a text on one line. */
export const oneLine = (text) => text.replaceAll(/\s+/g, " ").trim();

// A link of Markdown, and one whose address leads elsewhere without a doubt.
const LINK = /\[([^[\]]+)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+"[^"]*")?\)/g;
const CERTAIN_LINK = /\[([^[\]]+)\]\((?:https?:\/\/|mailto:)(?:[^()\s]|\([^()\s]*\))*(?:\s+"[^"]*")?\)/g;

/**
 * Return the prompt of a question on one line, without the addresses of its links. Of what its author wrote the
 * marks of Markdown are left out; a value is text, and so is a prompt without values, which code may have written.
 */
export function promptLine({prompt, prompt_values: values}) {
  if (!values?.length) return oneLine(prompt.replace(/^\s*#+\s+/, "").replaceAll(CERTAIN_LINK, "$1"));
  const characters = [...prompt];
  const parts = values.map(([begin], index) => characters.slice(index ? values[index - 1][1] : 0, begin).join(""));
  // The values are put back after the marks are gone. Each has its number: one in an address is left out.
  const marked = [...parts, characters.slice(values.at(-1)[1]).join("")].reduce((text, part, index) => `${text}\0${index - 1}\0${part}`);
  const texts = values.map(([begin, end]) => characters.slice(begin, end).join(""));
  return oneLine(marked.replaceAll(/^\s*#+\s+/gm, "").replaceAll(LINK, "$1").replaceAll(/\*\*|__|`/g, "").replaceAll(/\0(\d+)\0/g, (_, index) => texts[index] ?? ""));
}

/** Return why a run ended; the service has a name for one of the reasons. */
export const reasonInWords = (reason) => (reason === "interrupt-timeout" ? "A question was not answered before its deadline." : reason);

/** Return a short text of a value. */
export function inWords(value) {
  if (value === undefined) return "nothing";
  const text = typeof value === "string" ? value : write(value);
  return visible(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
