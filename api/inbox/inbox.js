// The inbox: the list of questions, one question in detail, and the keyboard.

import {call, listen, may, me, Problem, problemText, serviceTime, signInAddress} from "./api.js";
import {MOST, readDecided} from "./decided.js";
import {help, listenToKeys} from "./keyboard.js";
import {choices, chosen, entry, equals, topic} from "./list.js";
import {at, badge, button, difference, dueTime, element, icon, promptLine, redraw, visible} from "./markup.js";
import {same} from "./json.js";
import {askedAgain, questionPage} from "./question.js";
import {begin, say} from "./shell.js";
import {barrier, isMine} from "./standing.js";
import {togetherPage} from "./together.js";

const PAGE = 200;
const MOST_PAGES = 50;
const DRAWN = 100;
const MOST_DAYS = 30;
// Without the stream the list is read this often. With it, what events name is read soon after them.
const REFRESH_MS = 5_000;
const SOON_MS = 500;
const OVERLAP_MS = 3_000;
const LAG_MS = 10_000;
// Of more changes at once the whole list is read. The service takes so many ids.
const MOST_CHANGED = 100;
const IDS = 20;
// What ends without an event: a claim, and what may be read or answered by a delegation, for example. And time passes.
const MINUTE_MS = 60_000;
const WHOLE_MS = 900_000;
const SETTLED = ["interrupt.answered", "interrupt.expired", "interrupt.cancelled"];
const ENDED = ["run.completed", "run.halted", "run.cancelled", "run.terminated", "run.timed_out", "run.failed"];
const ANEW = ["run.rewound", "run.retried"];
const TABS = [["mine", "Mine"], ["open", "Open"], ["held", "Held"], ["decided", "Decided"]];
// What the address says beside the question: the tab, and what differs from this.
const PLAIN = {order: "deadline", isGrouped: "", graph: "", capability: "", priority: "", group: "", text: ""};
const ORDERS = ["deadline", "priority", "risk", "age"];

let lists = {open: [], held: [], decided: []};
let isWhole = false;
let tab = "open";
let criteria = {...PLAIN};
let shown = null;
let isTouched = false;
let isStarted = false;
let opening = null;
let said = null;
let drawnCount = DRAWN;
let drawn = "";
let readFor = 0;
let streams = false;
let wasConnected = false;
let days = 1;
const picked = new Set();
let lastPicked = null;
// Until when these are not listed, which were answered here: their answers may not be recorded yet.
const gone = new Map();

async function start() {
  at("main").replaceChildren(
    element("div", {id: "toolbar"},
      element("div", {id: "tabs", role: "group", "aria-label": "Which questions"}),
      element("form", {id: "criteria", role: "search", onsubmit: (event) => event.preventDefault()})),
    element("div", {id: "list", tabindex: "-1"},
      element("div", {id: "together"}),
      element("nav", {id: "questions", "aria-label": "Questions", tabindex: "-1"}),
      element("p", {}, button("Show more", showMore, {id: "more", hidden: true}))),
    element("article", {id: "question", "aria-label": "Question"}),
    element("dialog", {id: "help", "aria-labelledby": "help-title"}),
  );
  at("question").addEventListener("input", () => (isTouched = true));
  // The address of a question at which one peeks is there already.
  at("questions").addEventListener("click", ({target}) => target.closest("a")?.getAttribute("href") === location.hash && open());
  const address = new URLSearchParams(location.search);
  criteria = Object.fromEntries(Object.entries(PLAIN).map(([name, plain]) => [name, address.get(name) ?? plain]));
  if (!ORDERS.includes(criteria.order)) criteria.order = PLAIN.order;
  if (TABS.some(([name]) => name === address.get("tab"))) tab = address.get("tab");
  const begun = async () => {
    await refresh();
    await open();
  };
  if (!(await begin("Inbox", begun))) return;
  // Who operates runs and answers nothing begins with the runs.
  if (!location.search && !location.hash && may("runs:control") && !may("runs:respond")) return location.replace("/inbox/runs");
  await refresh();
  const openedIn = opening && tab;
  chooseOwn();
  draw();
  await (tab === openedIn ? opening : open());
  isStarted = true;
  const since = new Date(serviceTime() - OVERLAP_MS).toISOString();
  listen(`/events?type=interrupt.*&type=run.*&since=${since}`, heard, (isConnected) => {
    // What was missed may be too long ago to be told.
    if (isConnected && wasConnected) refresh();
    streams = isConnected;
    wasConnected ||= isConnected;
  });
  setInterval(() => isWatched() && !streams && refresh(), REFRESH_MS);
  setInterval(() => isWatched() && refresh(), WHOLE_MS);
  setInterval(() => isWatched() && passTime(), MINUTE_MS);
}

// At first the reader's own, if there are any.
function chooseOwn() {
  if (!new URLSearchParams(location.search).has("tab") && mine().length && !location.hash) tab = "mine";
}

// A session may end while somebody works: what they have begun to write stays.
function failed(error) {
  const isSignedOut = error instanceof Problem && error.status === 401;
  say(isSignedOut ? "You are signed out." : problemText(error));
  if (isSignedOut) at("who").replaceChildren(element("a", {class: "button", href: signInAddress()}, "Sign in"));
}

// Which questions there are

const isWatched = () => document.visibilityState === "visible";
const waiting = () => lists.open.filter(({id}) => !((gone.get(id) ?? 0) > Date.now()));
const mine = () => [...waiting(), ...lists.held].filter(isMine);
const listed = () => ({mine, open: waiting}[tab] ?? (() => lists[tab]))();
const isWide = () => matchMedia("(min-width: 48rem)").matches;

// One reading at a time: all that ask for one meanwhile get the next.
function inTurn(read) {
  let reading = null;
  let isAskedAgain = false;
  return () => {
    isAskedAgain = true;
    reading ??= (async () => {
      while (isAskedAgain) {
        isAskedAgain = false;
        await read().catch(failed);
      }
      reading = null;
    })();
    return reading;
  };
}

let isAllChanged = false;
// The status in which each of these may wait now, "" for none.
const changed = new Map();

async function refresh() {
  isAllChanged = true;
  if (tab === "decided") showDecided();
  return readChanges();
}

const readChanges = inTurn(async () => {
  const [isAll, now, began] = [isAllChanged || changed.size > MOST_CHANGED, new Map(changed), Date.now()];
  isAllChanged = false;
  changed.clear();
  try {
    await (isAll ? readAll() : readThese(now));
  } catch (error) {
    isAllChanged = true;
    setTimeout(readChanges, REFRESH_MS);
    throw error;
  }
  if (!isAll) readFor = Date.now() - began;
});

async function readAll() {
  const isFirst = !lists.open.length;
  const begun = (items) => {
    if (!isFirst) return;
    lists.open = items;
    isWhole = false;
    // The first question is there before a long list is read.
    if (!isStarted) chooseOwn();
    draw();
    if (!isStarted) opening ??= open();
  };
  const [unanswered, held] = await Promise.all([pages({}, begun), pages({status: "held"})]);
  isWhole = unanswered.isWhole;
  await list(unanswered.items, held.items);
}

async function readThese(now) {
  const found = {open: [], held: []};
  for (const status of ["open", "held"]) {
    const wanted = [...now].filter(([, where]) => where === status).map(([id]) => ["id", id]);
    for (let first = 0; first < wanted.length; first += IDS) {
      const query = new URLSearchParams([["status", status], ...wanted.slice(first, first + IDS)]);
      found[status].push(...(await call(`/interrupts?${query}`)).items);
    }
  }
  const others = ({id}) => !now.has(id);
  await list([...lists.open.filter(others), ...found.open], [...lists.held.filter(others), ...found.held]);
}

// Draw the lists, and the question that is shown if it has changed.
async function list(open_, held) {
  lists.open = open_;
  lists.held = held;
  draw();
  if (shown?.status === "open" && marks(waiting().find(({id}) => id === shown.id)) !== marks(shown)) await reread().catch(failed);
  else if (isStarted && isWide() && !location.hash && !at("question").childElementCount) open();
}

// Read all pages, and call `begun(items)` after each but the last.
async function pages(filters, begun = () => {}) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = new URLSearchParams({limit: cursor ? PAGE : DRAWN, ...filters, ...(cursor ? {cursor} : {})});
    const found = await call(`/interrupts?${query}`);
    items.push(...found.items);
    cursor = found.next_cursor;
    if (!cursor) return {items, isWhole: true};
    begun([...items]);
  }
  return {items, isWhole: false};
}

// The events say which questions changed; what is true is read. Many at once are one reading, and what takes
// long is read seldom.
let soon = null;
function heard({data: {type, run_id: run, data}}) {
  const ofRun = [...lists.open, ...lists.held].filter(({run_id}) => run_id === run);
  if (ANEW.includes(type)) isAllChanged = true;
  else if (ENDED.includes(type)) ofRun.forEach(({id}) => changed.set(id, ""));
  else if (type.startsWith("interrupt.") && data.id) {
    changed.set(data.id, SETTLED.includes(type) ? "" : type === "interrupt.held" ? "held" : "open");
    // Who has answered one question may be barred from the others.
    if (ofRun.length <= IDS) ofRun.forEach(({id, status}) => changed.has(id) || changed.set(id, status));
  } else return;
  soon ??= setTimeout(() => {
    soon = null;
    if (!isWatched()) return;
    readChanges();
    if (tab === "decided") showDecided();
  }, SOON_MS + 3 * readFor);
}

function passTime() {
  draw();
  for (const each of at("question").querySelectorAll(".badges time")) each.replaceWith(dueTime(each.dateTime));
  const ended = [...lists.open, ...lists.held].filter(({claim}) => claim && Date.parse(claim.until) <= serviceTime());
  ended.forEach(({id, status}) => changed.set(id, status));
  if (ended.length) readChanges();
}

let isReadingDecided = false;
const showDecided = inTurn(async () => {
  isReadingDecided = true;
  at("questions").setAttribute("aria-busy", "true");
  try {
    for await (const decisions of readDecided(days)) {
      lists.decided = decisions;
      if (tab === "decided") draw();
    }
  } finally {
    isReadingDecided = false;
    at("questions").setAttribute("aria-busy", "false");
    draw();
  }
});

// The list

function inOrder() {
  const own = {decided: {order: "newest", isGrouped: ""}, held: {order: "age", isGrouped: ""}}[tab];
  const order = {...criteria, ...own};
  const groups = order.isGrouped ? equals(chosen(listed(), order)) : [[null, chosen(listed(), order)]];
  return {groups, questions: groups.flatMap(([, members]) => members), canPick: !own};
}

// The next one that the reader may answer: after this one in the list, or else from its beginning.
function nextAfter({id}) {
  const {questions} = inOrder();
  const place = questions.findIndex((each) => each.id === id);
  const others = [...questions.slice(place + 1), ...questions.slice(0, Math.max(0, place))];
  return others.find((each) => each.status === "open" && barrier(each) === null);
}

function draw() {
  const {groups, questions, canPick} = inOrder();
  const count = waiting().length;
  const number = isWhole ? `${count}` : `more than ${count}`;
  say(count ? `${number} open question${count === 1 ? "" : "s"}` : "No open questions");
  drawTabs();
  const state = JSON.stringify([tab, isReadingDecided, criteria, questions.map(fingerprint), shown?.id, drawnCount, [...picked], Math.floor(Date.now() / 60_000)]);
  if (state === drawn) return;
  drawn = state;
  drawCriteria(canPick);
  drawTogether(questions);
  const here = places().indexOf(document.activeElement);
  let left = drawnCount;
  const parts = [];
  for (const [title, members] of groups) {
    if (left <= 0 || !members.length) break;
    const some = members.slice(0, left);
    left -= some.length;
    if (title) parts.push(element("h2", {}, heading(title, members)));
    parts.push(element("ul", {}, ...some.map((question) => entry(question, {
      isShown: question.id === shown?.id, isPicked: picked.has(question.id), pick: canPick ? pick : null,
    }))));
  }
  if (!parts.length) parts.push(element("p", {class: "quiet empty"}, icon(isFiltered() ? "search" : "circle-check"), nothing(), isFiltered() ? element("p", {}, button("Clear the filters", clearFilters)) : null));
  if (tab === "decided" && lists.decided.length >= MOST) parts.push(element("p", {class: "quiet"}, `These are of the newest ${MOST}: `, element("a", {href: "/inbox/approvals"}, "the report has all")));
  if (questions.length && !performance.getEntriesByName("first questions").length) performance.mark("first questions");
  const isKept = redraw(at("questions"), ...parts);
  // The question is gone: go on with the one in its place.
  if (!isKept && here >= 0) places()[Math.min(here, places().length - 1)]?.focus();
  const isMore = questions.length > drawnCount;
  at("more").hidden = !isMore && (tab !== "decided" || days >= MOST_DAYS);
  at("more").textContent = visible(isMore ? "Show more" : "Show the last 30 days");
}

const places = () => [...document.querySelectorAll("#questions a")];
const fingerprint = ({id, digest, status, deadline, claim, missing, may_answer, assignees, outcome, prompt}) =>
  [id, digest, status, deadline, claim, missing, may_answer, assignees, outcome, outcome && prompt];

const isFiltered = () => Object.entries(criteria).some(([name, value]) => value && !["order", "isGrouped"].includes(name));

function clearFilters() {
  const {order, isGrouped} = criteria;
  set({...PLAIN, order, isGrouped});
  at("by-text").focus();
}

function nothing() {
  if (isFiltered()) return "No question passes the filters.";
  if (tab === "decided" && isReadingDecided) return "Reading what was decided…";
  return {mine: "Nothing is for you.", open: "Nothing waits for an answer.", held: "Nothing is held.", decided: (days > 1 ? "Nothing was decided lately." : "Nothing was decided within a day.")}[tab];
}

function heading(title, members) {
  const ids = members.map(({id}) => id);
  const isAll = ids.every((id) => picked.has(id));
  const all = button(isAll ? "Select none" : `Select all ${ids.length}`, () => {
    ids.forEach((id) => (isAll ? picked.delete(id) : picked.add(id)));
    draw();
  }, {class: "plain", "data-stay": `all ${title}`});
  return [`${title} (${members.length}) `, members.length > 1 ? all : null];
}

function drawTabs() {
  const counts = {mine: mine().length, open: waiting().length, held: lists.held.length};
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
  picked.clear();
  if (name === "decided") showDecided();
  set({});
  if (name !== "decided" && !location.hash) open({isPeek: true});
}

function drawCriteria(canPick) {
  const form = at("criteria");
  if (form.contains(document.activeElement)) return;
  const select = (name, label, values, blank = label) => {
    const all = [...new Set([...values, ...(criteria[name] ? [criteria[name]] : [])])];
    const field = element("select", {class: criteria[name] !== PLAIN[name] ? "chip on" : "chip", id: `by-${name}`, "aria-label": label},
      ...(blank === null ? [] : [element("option", {value: ""}, blank)]),
      ...all.map((value) => element("option", {value}, blank === null ? `${label} ${value}` : value)));
    field.value = criteria[name];
    field.addEventListener("change", () => set({[name]: field.value}));
    return all.length || criteria[name] ? field : null;
  };
  const text = element("input", {type: "search", id: "by-text", autocomplete: "off", placeholder: "Search  /", "aria-label": "Search"});
  text.value = criteria.text;
  text.addEventListener("input", () => set({text: text.value}));
  const grouped = button("Group equal questions", () => set({isGrouped: criteria.isGrouped ? "" : "yes"}), {id: "grouped", class: criteria.isGrouped ? "chip on" : "chip", "aria-pressed": criteria.isGrouped ? "true" : "false"});
  form.replaceChildren(...[
    text,
    select("graph", "Graph", choices(listed(), "graph")),
    select("capability", "Capability", choices(listed(), "capability")),
    select("priority", "Priority", ["high", "normal", "low"]),
    select("group", "For", choices(listed(), "group")),
    // What is decided is in the order of time, and so is what is held.
    ...(canPick ? [select("order", "Sort by", ORDERS, null), grouped] : []),
    button("Keys  ?", help, {class: "plain keys"}),
  ].filter(Boolean));
}

function set(change) {
  criteria = {...criteria, ...change};
  drawnCount = DRAWN;
  const query = new URLSearchParams({tab, ...Object.fromEntries(Object.entries(criteria).filter(([name, value]) => value !== PLAIN[name]))});
  history.replaceState(null, "", `${location.pathname}?${query}${location.hash}`);
  draw();
}

function showMore() {
  if (tab === "decided" && lists.decided.length <= drawnCount) {
    days = MOST_DAYS;
    showDecided();
  }
  drawnCount += DRAWN;
  draw();
}

// Several questions at once

// With `isRange` all between the last one and this one.
function pick(id, isPicked, isRange = false) {
  const ids = places().map((link) => link.dataset.stay);
  const [one, other] = [ids.indexOf(lastPicked), ids.indexOf(id)];
  const range = isRange && one >= 0 ? ids.slice(Math.min(one, other), Math.max(one, other) + 1) : [id];
  range.forEach((each) => (isPicked ? picked.add(each) : picked.delete(each)));
  lastPicked = id;
  draw();
}

function drawTogether(questions) {
  const chosen = questions.filter(({id}) => picked.has(id));
  if (chosen.length < 2) return redraw(at("together"));
  const text = `${chosen.length} selected`;
  const act = new Set(chosen.map(topic)).size === 1
    ? button("Answer all selected…", () => showTogether(chosen), {"data-stay": "answer", class: "send"})
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
  shown = null;
  try {
    showArticle(await togetherPage(chosen, {answered, over}));
  } catch (error) {
    showArticle({main: [element("p", {role: "alert"}, problemText(error))]});
  }
}

// One question

// Without one in the address, a wide screen shows the first of the list.
async function open({isPeek = false} = {}) {
  const asked = decoded(location.hash.slice(1));
  document.body.classList.toggle("reads", Boolean(asked));
  const id = asked || (isWide() && inOrder().questions[0]?.id);
  if (!id) {
    shown = null;
    at("question").replaceChildren();
    return draw();
  }
  try {
    const found = await call(`/interrupts/${encodeURIComponent(id)}?render=html`);
    // A settled question keeps little of what was asked, and the report all.
    found.reason ??= lists.decided.find((each) => each.id === found.id)?.reason ?? null;
    // A question that is shown already keeps what somebody has begun to write.
    const isWritten = isTouched && shown?.id === found.id && shown.status === found.status && shown.digest === found.digest;
    if (asked !== decoded(location.hash.slice(1)) || isWritten) return undefined;
    // What is there already stays as it is: somebody may have begun to work on it.
    if (said?.id !== found.id && same(found, shown)) read(isPeek || !asked);
    else show(found, isPeek || !asked);
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return failed(error);
    showArticle({main: [element("p", {role: "alert"}, problemText(error))]}, !asked);
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
  if (isOther || (marks(now) !== marks(shown) && !isTouched)) show(now, true);
}

// What the list and the question both have, and others can change.
const marks = (question) => JSON.stringify([question?.digest, question?.claim?.by, question?.missing, question?.may_answer, question?.assignees]);

function show(question, isPeek = false) {
  shown = question;
  isTouched = false;
  const outcome = said?.id === question.id && said.text
    ? element("div", {role: "status", class: "outcome"}, said.text, said.changes, said.next ? element("p", {}, element("a", {href: `#${encodeURIComponent(said.next.id)}`}, "Next question")) : null) : null;
  const {main, ...others} = questionPage(question, after);
  showArticle({main: [outcome, ...main], ...others}, isPeek);
  draw();
}

// A page has its `main` part, what stands `aside`, and a `footer` that never leaves the screen.
function showArticle({main, aside = [], footer = null}, isPeek = false) {
  const back = button([icon("arrow-left"), "All questions"], toList, {class: "plain back"});
  const columns = element("div", {class: "columns"}, element("div", {class: "main"}, ...main), aside.length ? element("div", {class: "aside"}, ...aside) : null);
  at("question").replaceChildren(back, element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "What is asked"}, columns), ...(footer ? [footer] : []));
  read(isPeek);
}

function read(isPeek) {
  if (isPeek) return;
  document.body.classList.add("reads");
  at("question").querySelector("h2")?.focus({preventScroll: true});
}

// Leave the question on a narrow screen; its address may be gone already.
function toList() {
  history.replaceState(null, "", location.pathname + location.search);
  open();
}

async function after(outcome) {
  const question = shown;
  isTouched = false;
  if (!outcome?.receipt || outcome.receipt.status !== "answered") {
    if (!outcome?.receipt) gone.delete(question.id);
    said = {id: question.id, text: outcome?.text, next: outcome?.receipt && nextAfter(question)};
    if (location.hash) await open();
    else show(await call(`/interrupts/${encodeURIComponent(question.id)}?render=html`));
    return refresh();
  }
  const next = nextAfter(question);
  gone.set(question.id, Date.now() + LAG_MS);
  lists.open = lists.open.filter(({id}) => id !== question.id);
  shown = null;
  history.replaceState(null, "", location.pathname + location.search);
  const isApproval = outcome.isApproval && question.preview;
  const isAgain = outcome.receipt.asked_again;
  tell(isApproval ? `Sent. ${isAgain ? "You changed the call, so it is asked again, with a new preview" : "The preview is compared with what would happen now"}…` : outcome.text, question, next, !isApproval, outcome.isRemembered);
  draw();
  const again = isApproval ? await askedAgain(question, outcome.receipt).catch(() => undefined) : undefined;
  // Somebody may have gone on meanwhile.
  if (shown || location.hash) return streams ? undefined : refresh();
  if (again) {
    said = {id: again.id, text: "Nothing was done yet: this is asked again. Approve it once more if it is right.", changes: difference(question.reason?.arguments, again.reason?.arguments)};
    location.hash = `#${encodeURIComponent(again.id)}`;
  } else if (isApproval) {
    tell(isAgain ? "You changed the call, so it will be asked again, with a new preview: nothing is done before that is approved." : outcome.text, question, next, true);
  }
  return streams ? undefined : refresh();
}

// What was decided, what happens next, and the next question.
function tell(text, {run_id: run}, next, isOver, isRemembered = false) {
  const line = element("p", {role: "status", tabindex: "-1", class: "outcome"}, icon(isOver ? "circle-check" : "hourglass"), text);
  const goes = element("p", {"aria-live": "polite"});
  const go = next ? element("a", {href: `#${encodeURIComponent(next.id)}`, class: "button send"}, "Next question") : null;
  showArticle({main: [
    line, goes,
    element("p", {}, element("a", {href: `/inbox/runs/${encodeURIComponent(run)}`}, "The run ", run)),
    isRemembered ? element("p", {}, element("a", {href: "/inbox/grants"}, "What you had remembered")) : null,
    next ? element("p", {class: "next"}, go, element("span", {class: "quiet"}, promptLine(next))) : element("p", {class: "quiet"}, "No other question in this list is for you."),
  ]});
  (go ?? line).focus();
  if (isOver) call(`/runs/${encodeURIComponent(run)}?wait=PT3S&until=awaiting-input,paused`).then((view) => goes.replaceChildren("The run is now ", badge(view.status)), () => {});
}

listenToKeys({
  places,
  back: () => {
    const id = shown?.id;
    if (!isWide()) toList();
    (places().find((link) => link.dataset.stay === id) ?? places()[0])?.focus();
  },
  // A wide screen shows the question to which one moves, unless something was written about another.
  peek: (link) => {
    if (!isWide() || isTouched) return;
    history.replaceState(null, "", link.getAttribute("href"));
    open({isPeek: true});
  },
});
window.addEventListener("hashchange", () => {
  if (said?.id !== decoded(location.hash.slice(1))) said = null;
  open();
});
document.addEventListener("visibilitychange", () => isWatched() && me && refresh());

await start();
