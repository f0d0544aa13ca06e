// The inbox: who reads it, the list of questions, one question in detail, and the keyboard.

import {call, identify, listen, me, Problem, problemText, serviceTime, signInLink} from "./api.js";
import {conversation} from "./conversation.js";
import {readDecided} from "./decided.js";
import {listenToKeys} from "./keyboard.js";
import {choices, chosen, entry, sections, topic} from "./list.js";
import {at, button, difference, element, redraw, visible} from "./markup.js";
import {askedAgain, questionPage} from "./question.js";
import {showReader} from "./reader.js";
import {isMine} from "./standing.js";
import {togetherPage} from "./together.js";

const PAGE = 200;
const MOST_PAGES = 50;
const DRAWN = 100;
const MOST_DAYS = 30;
// Without the stream the list is read this often. With it, it is read after events: soon, and once more
// when Temporal's list has them too.
const REFRESH_MS = 5_000;
const SOON_MS = 500;
const SETTLED_MS = 3_000;
const LAG_MS = 10_000;
const TABS = [["mine", "Mine"], ["open", "Open"], ["held", "Held"], ["decided", "Decided"]];

let lists = {open: [], held: [], decided: []};
let isWhole = false;
let tab = "open";
let criteria = {order: "deadline", isGrouped: false, graph: "", capability: "", priority: "", group: "", text: ""};
let shown = null;
let isTouched = false;
let said = null;
let drawnCount = DRAWN;
let drawn = "";
let reading = null;
let isReadAgain = false;
let readFor = 0;
let streams = false;
let days = 1;
const picked = new Set();
// When Temporal's list will show that these were answered: until then it may still have them.
const gone = new Map();

// The reader

async function start() {
  try {
    await identify();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return showSignIn();
    return showState(problemText(error));
  }
  showReader(async () => {
    await refresh();
    await open();
  });
  await refresh();
  // At first the reader's own, if there are any.
  if (tab === "open" && mine().length && !location.hash) tab = "mine";
  draw();
  await open();
  const since = new Date(serviceTime() - SETTLED_MS).toISOString();
  const changed = (isConnected) => (streams = isConnected);
  listen(`/events?type=interrupt.*&type=run.*&since=${since}`, heard, changed);
  setInterval(() => isWatched() && !streams && refresh(), REFRESH_MS);
  return undefined;
}

function showSignIn() {
  showState("Sign in to see the questions.");
  at("who").replaceChildren(signInLink());
}

// Which questions there are

const isWatched = () => document.visibilityState === "visible";
const mine = () => [...lists.open, ...lists.held].filter(isMine);
const listed = () => (tab === "mine" ? mine() : lists[tab]);

// One reading at a time: all that ask for one meanwhile get the next.
async function refresh() {
  if (reading) {
    isReadAgain = true;
    return reading;
  }
  reading = (async () => {
    do {
      isReadAgain = false;
      const began = Date.now();
      await read();
      readFor = Date.now() - began;
    } while (isReadAgain);
    reading = null;
  })();
  return reading;
}

async function read() {
  try {
    const isFirst = !lists.open.length;
    const begun = (items) => {
      if (!isFirst) return;
      lists.open = items;
      isWhole = false;
      draw();
    };
    const [open, held] = await Promise.all([pages({}, begun), pages({status: "held"})]);
    // The list lags by a moment: hide the questions that were answered on this page.
    lists.open = open.items.filter(({id}) => !((gone.get(id) ?? 0) > Date.now()));
    lists.held = held.items;
    isWhole = open.isWhole;
    draw();
    if (shown?.status === "open" && marks(lists.open.find(({id}) => id === shown.id)) !== marks(shown)) await reread();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) showSignIn();
    else showState(problemText(error));
  }
}

// Read all pages, and call `begun(items)` after each but the last.
async function pages(filters, begun = () => {}) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams({limit: PAGE, ...filters, ...(cursor ? {cursor} : {})});
    const found = await call(`/interrupts?${query}`);
    items.push(...found.items);
    cursor = found.next_cursor;
    if (!cursor) return {items, isWhole: true};
    begun([...items]);
  }
  return {items, isWhole: false};
}

// The events say that something changed; what is true is read. Many at once are one reading, and a list that
// takes long is read seldom.
let soon = null;
let later = null;
function heard() {
  const again = () => isWatched() && refresh();
  clearTimeout(later);
  later = setTimeout(again, SETTLED_MS + 3 * readFor);
  soon ??= setTimeout(() => {
    soon = null;
    again();
  }, SOON_MS + 3 * readFor);
}

async function showDecided() {
  at("questions").setAttribute("aria-busy", "true");
  try {
    for await (const decisions of readDecided(days)) {
      lists.decided = decisions;
      if (tab === "decided") draw();
    }
  } catch (error) {
    showState(problemText(error));
  }
  at("questions").setAttribute("aria-busy", "false");
}

// The list

function showState(message) {
  if (at("state").textContent !== message) at("state").textContent = visible(message);
}

function draw() {
  const own = {decided: {order: "newest", isGrouped: false}, held: {order: "age"}}[tab];
  const order = {...criteria, ...own};
  const questions = chosen(listed(), order);
  const count = lists.open.length;
  const number = isWhole ? `${count}` : `more than ${count}`;
  showState(count ? `${number} open question${count === 1 ? "" : "s"}` : "No open questions");
  drawTabs();
  const state = JSON.stringify([tab, criteria, questions.map(fingerprint), shown?.id, drawnCount, [...picked], Math.floor(Date.now() / 60_000)]);
  if (state === drawn) return;
  drawn = state;
  drawCriteria();
  drawTogether(questions);
  const here = places().indexOf(document.activeElement);
  let left = drawnCount;
  const parts = [];
  for (const [title, members] of sections(questions, order)) {
    if (left <= 0) break;
    const some = members.slice(0, left);
    left -= some.length;
    if (title) parts.push(element("h2", {}, order.isGrouped ? heading(title, members) : `${title} (${members.length})`));
    parts.push(element("ul", {}, ...some.map((question) => entry(question, {
      isShown: question.id === shown?.id, isPicked: picked.has(question.id), pick: own ? null : pick,
    }))));
  }
  if (!parts.length) parts.push(element("p", {class: "quiet empty"}, nothing()));
  if (questions.length && !performance.getEntriesByName("first questions").length) performance.mark("first questions");
  const isKept = redraw(at("questions"), ...parts);
  // The question is gone: go on with the one in its place.
  if (!isKept && here >= 0) places()[Math.min(here, places().length - 1)]?.focus();
  const isMore = questions.length > drawnCount;
  at("more").hidden = !isMore && (tab !== "decided" || days >= MOST_DAYS);
  at("more").textContent = visible(isMore ? "Show more" : "Show the last 30 days");
}

const places = () => [...document.querySelectorAll("#questions a")];
const fingerprint = ({id, digest, status, deadline, claim, missing, may_answer, outcome, prompt}) =>
  [id, digest, status, deadline, claim, missing, may_answer, outcome, outcome && prompt];

function nothing() {
  if (Object.entries(criteria).some(([name, value]) => value && !["order", "isGrouped"].includes(name))) return "No question passes the filters.";
  return {mine: "Nothing is for you.", open: "Nothing waits for an answer.", held: "Nothing is held.", decided: (days > 1 ? "Nothing was decided lately." : "Nothing was decided within a day.")}[tab];
}

function heading(title, members) {
  const ids = members.map(({id}) => id);
  const isAll = ids.every((id) => picked.has(id));
  const all = button(isAll ? "Select none" : `Select all ${ids.length}`, () => {
    ids.forEach((id) => (isAll ? picked.delete(id) : picked.add(id)));
    draw();
  }, {class: "plain", "data-stay": `all ${title}`});
  return [`${title} (${members.length}) `, all];
}

function drawTabs() {
  const counts = {mine: mine().length, open: lists.open.length, held: lists.held.length};
  if (!at("tabs").childElementCount) at("tabs").append(...TABS.map(([name]) => button("", () => choose(name))));
  TABS.forEach(([name, label], index) => {
    const each = at("tabs").children[index];
    const text = counts[name] === undefined ? label : `${label} ${counts[name]}${isWhole || name === "held" ? "" : "+"}`;
    if (each.textContent !== text) each.textContent = visible(text);
    each.setAttribute("aria-pressed", name === tab ? "true" : "false");
  });
}

function choose(name) {
  tab = name;
  drawnCount = DRAWN;
  picked.clear();
  draw();
  if (name === "decided") showDecided();
}

function drawCriteria() {
  const form = at("criteria");
  if (form.contains(document.activeElement)) return;
  const select = (name, label, values, blank = "All") => {
    const field = element("select", {id: `by-${name}`}, ...(blank === null ? [] : [element("option", {value: ""}, blank)]),
      ...values.map((value) => element("option", {value}, value)));
    field.value = criteria[name];
    field.addEventListener("change", () => set({[name]: field.value}));
    return element("label", {}, label, field);
  };
  const text = element("input", {type: "search", id: "by-text", autocomplete: "off"});
  text.value = criteria.text;
  text.addEventListener("input", () => set({text: text.value}));
  const grouped = element("input", {type: "checkbox", id: "grouped"});
  grouped.checked = criteria.isGrouped;
  grouped.addEventListener("change", () => set({isGrouped: grouped.checked}));
  form.replaceChildren(
    element("label", {}, "Search", text),
    select("order", "Sort by", ["deadline", "priority", "risk", "age"], null),
    select("graph", "Graph", choices(listed(), "graph")),
    select("capability", "Capability", choices(listed(), "capability")),
    select("priority", "Priority", ["high", "normal", "low"]),
    select("group", "For", choices(listed(), "group")),
    element("label", {class: "check"}, grouped, "Group equal questions"),
  );
}

function set(change) {
  criteria = {...criteria, ...change};
  drawnCount = DRAWN;
  draw();
}

at("criteria").addEventListener("submit", (event) => event.preventDefault());
at("more").addEventListener("click", () => {
  if (tab === "decided" && lists.decided.length <= drawnCount) {
    days = MOST_DAYS;
    showDecided();
  }
  drawnCount += DRAWN;
  draw();
});

// Several questions at once

function pick(id, isPicked) {
  if (isPicked) picked.add(id);
  else picked.delete(id);
  draw();
}

function drawTogether(questions) {
  const chosen = questions.filter(({id}) => picked.has(id));
  if (chosen.length < 2) return redraw(at("together"));
  const text = `${chosen.length} selected`;
  const act = new Set(chosen.map(topic)).size === 1
    ? button("Answer all selected…", () => showTogether(chosen), {"data-stay": "answer"})
    : element("span", {class: "quiet"}, "Only equal questions (same graph and name) can be answered together.");
  const none = button("Select none", () => {
    picked.clear();
    draw();
  }, {class: "plain", "data-stay": "none"});
  return redraw(at("together"), element("p", {}, text, " ", act, " ", none));
}

async function showTogether(chosen) {
  const answered = (id) => gone.set(id, Date.now() + LAG_MS);
  const over = () => {
    picked.clear();
    refresh();
  };
  try {
    showArticle(...(await togetherPage(chosen, {answered, over})));
  } catch (error) {
    showArticle(element("p", {role: "alert"}, problemText(error)));
  }
}

// One question

async function open() {
  const id = decoded(location.hash.slice(1));
  document.body.classList.toggle("reads", Boolean(id));
  if (!id) {
    shown = null;
    at("question").replaceChildren();
    return draw();
  }
  try {
    show(await call(`/interrupts/${encodeURIComponent(id)}?render=html`));
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return showSignIn();
    showArticle(element("p", {role: "alert"}, problemText(error)));
  }
  return undefined;
}

// Text that is not URL-encoded is used as it is: the service responds that the question is unknown.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function reread() {
  const now = await call(`/interrupts/${encodeURIComponent(shown.id)}?render=html`);
  if (now.id !== shown?.id) return;
  const isOther = now.status !== shown.status || now.digest !== shown.digest || now.may_answer !== shown.may_answer;
  // What somebody has begun to write is lost only if it cannot be sent any more.
  if (isOther || (marks(now) !== marks(shown) && !isTouched)) show(now);
}

// What the list and the question both have, and others can change.
const marks = (question) => JSON.stringify([question?.digest, question?.claim?.by, question?.missing, question?.may_answer, question?.assignees]);

function show(question) {
  shown = question;
  isTouched = false;
  const outcome = said?.id === question.id && said.text ? element("div", {role: "status", class: "outcome"}, said.text, said.changes) : null;
  showArticle(outcome, ...questionPage(question, after), conversation(question));
  draw();
}

function showArticle(...parts) {
  const back = element("p", {class: "back"}, button("← All questions", () => (location.hash = ""), {class: "plain"}));
  at("question").replaceChildren(back, ...parts.filter(Boolean));
  document.body.classList.add("reads");
  const heading = at("question").querySelector("h2");
  heading?.focus({preventScroll: true});
  window.scrollTo(0, 0);
}

async function after(outcome) {
  const question = shown;
  if (!outcome?.receipt) {
    gone.delete(question.id);
    said = {id: question.id, text: outcome?.text};
    await open();
    return refresh();
  }
  if (outcome.receipt.status !== "answered") {
    said = {id: question.id, text: outcome.text};
    await open();
    return refresh();
  }
  gone.set(question.id, Date.now() + LAG_MS);
  lists.open = lists.open.filter(({id}) => id !== question.id);
  const next = chosen(listed(), criteria).find(({id}) => id !== question.id);
  shown = null;
  history.replaceState(null, "", location.pathname);
  const tell = (text) => {
    const line = element("p", {role: "status", tabindex: "-1", class: "outcome"}, text);
    showArticle(line, next ? element("p", {}, element("a", {href: `#${encodeURIComponent(next.id)}`, class: "button"}, "Next question")) : null);
    line.focus();
  };
  const isApproval = outcome.isApproval && question.preview;
  tell(isApproval ? `Sent. ${outcome.receipt.asked_again ? "You changed the call, so it is asked again, with a new preview" : "The preview is compared with what would happen now"}…` : outcome.text);
  draw();
  const again = isApproval ? await askedAgain(question, outcome.receipt).catch(() => undefined) : undefined;
  // Somebody may have gone on meanwhile.
  if (shown || location.hash) return refresh();
  if (again) {
    said = {id: again.id, text: "Nothing was done yet: this is asked again. Approve it once more if it is right.", changes: difference(question.reason?.arguments, again.reason?.arguments)};
    location.hash = `#${encodeURIComponent(again.id)}`;
  } else if (isApproval) tell(outcome.receipt.asked_again ? "You changed the call, so it will be asked again, with a new preview: nothing is done before that is approved." : outcome.text);
  return refresh();
}

at("question").addEventListener("input", () => (isTouched = true));
listenToKeys({
  places,
  back: () => {
    const id = shown?.id;
    location.hash = "";
    document.body.classList.remove("reads");
    (places().find((link) => link.dataset.stay === id) ?? places()[0])?.focus();
  },
});
window.addEventListener("hashchange", () => {
  if (said?.id !== decoded(location.hash.slice(1))) said = null;
  open();
});
document.addEventListener("visibilitychange", () => isWatched() && me && refresh());

await start();
