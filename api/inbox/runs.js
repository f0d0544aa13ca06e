// All runs, the newest first: searched, filtered, and read again when something happens to one.

import {call, listen, problemText, serviceTime} from "./api.js";
import {at, avatar, badge, button, clock, dayTime, distance, duration, element, icon, promptLine, reasonInWords, redraw, visible} from "./markup.js";
import {begin, say} from "./shell.js";

const PAGE = 50;
const SOON_MS = 1_000;
const STATUSES = ["running", "awaiting-input", "paused", "ending", "completed", "failed", "halted", "cancelled", "terminated", "timed-out"];
const DAYS = ["from", "to"];
const FILTERS = ["q", "status", "graph", "blocked", "started_by", ...DAYS];

let criteria = {};
let graphs = [];
let page = {items: [], next_cursor: null, total: 0};

async function start() {
  const address = new URLSearchParams(location.search);
  criteria = Object.fromEntries(FILTERS.map((name) => [name, address.get(name) ?? ""]));
  for (const name of DAYS) if (!isDay(criteria[name])) criteria[name] = "";
  at("main").replaceChildren(
    element("form", {id: "toolbar", role: "search", onsubmit: (event) => event.preventDefault()}),
    element("div", {id: "runs"}),
    element("p", {}, button("Show more", () => read(page.next_cursor), {id: "more", hidden: true})),
  );
  if (!(await begin("Runs", () => read()))) return;
  await read();
  call("/graphs").then(({items}) => {
    graphs = items.map(({name}) => name);
    drawCriteria();
  }, () => {});
  let soon = null;
  listen(`/events?type=run.*&type=interrupt.*&since=${new Date(serviceTime()).toISOString()}`, () => {
    soon ??= setTimeout(() => {
      soon = null;
      // Who reads on keeps what they have.
      if (document.visibilityState === "visible" && page.items.length <= PAGE) read();
    }, SOON_MS);
  });
}

let latest = 0;
async function read(cursor = null) {
  const own = (latest += 1);
  const days = Object.fromEntries(DAYS.filter((name) => criteria[name]).map((name) => [name, dayTime(criteria[name], {isEnd: name === "to"})]));
  const query = new URLSearchParams({limit: PAGE, ...present(), ...days, ...(cursor ? {cursor} : {})});
  try {
    const found = await call(`/runs?${query}`);
    if (own !== latest) return;
    page = cursor ? {...found, items: [...page.items, ...found.items]} : found;
    draw();
  } catch (error) {
    say(problemText(error));
  }
}

const isDay = (text) => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(`${text}T00:00`));
const present = () => Object.fromEntries(Object.entries(criteria).filter(([, value]) => value));

function set(change) {
  criteria = {...criteria, ...change};
  history.replaceState(null, "", `${location.pathname}?${new URLSearchParams(present())}`);
  drawCriteria();
  read();
}

function drawCriteria() {
  if (at("toolbar").contains(document.activeElement) && document.activeElement.matches("input")) return;
  const choice = (name, label, values) => {
    const field = element("select", {class: criteria[name] ? "chip on" : "chip", "aria-label": label, "data-stay": name}, element("option", {value: ""}, label),
      ...[...new Set([...values, ...(criteria[name] ? [criteria[name]] : [])])].map((value) => element("option", {value}, value)));
    field.value = criteria[name];
    field.addEventListener("change", () => set({[name]: field.value}));
    return field;
  };
  const text = (name, label) => {
    const field = element("input", {type: "search", id: `by-${name}`, autocomplete: "off", placeholder: label, "aria-label": label});
    field.value = criteria[name];
    field.addEventListener(name === "q" ? "input" : "change", () => set({[name]: field.value.trim()}));
    return field;
  };
  const day = (name, label) => {
    const field = element("input", {type: "date", class: criteria[name] ? "on" : null, "aria-label": label, "data-stay": name});
    field.value = criteria[name];
    field.addEventListener("change", () => {
      field.classList.toggle("on", Boolean(field.value));
      set({[name]: field.value});
    });
    return element("label", {class: "day"}, label, field);
  };
  const blocked = button("Blocked", () => set({blocked: criteria.blocked ? "" : "true"}), {class: criteria.blocked ? "chip on" : "chip", "aria-pressed": criteria.blocked ? "true" : "false", "data-stay": "blocked"});
  redraw(at("toolbar"), text("q", "Search  /"), choice("status", "Status", STATUSES), choice("graph", "Graph", graphs), blocked, text("started_by", "Started by"),
    day("from", "Started from"), day("to", "to"));
}

function draw() {
  say(`${page.total} run${page.total === 1 ? "" : "s"}`);
  if (!at("toolbar").childElementCount) drawCriteria();
  const head = ["Status", "Run", "What it waits for, or why it ended", "Started by", "Started", "How long"].map((each) => element("th", {scope: "col"}, each));
  const table = element("table", {class: "list"}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...page.items.map(row)));
  redraw(at("runs"), page.items.length ? table : element("p", {class: "quiet empty"}, icon("activity"), Object.keys(present()).length ? "No run passes the filters." : "No run was started yet."));
  at("more").hidden = !page.next_cursor;
}

function row(run) {
  const labels = Object.entries(run.labels).map(([name, value]) => `${name}=${value}`);
  const [question] = run.interrupts;
  const told = run.blocked.length ? run.blocked[0].message : run.error ? run.error.message : question ? promptLine(question) : reasonInWords(run.reason) ?? "";
  const end = run.ended_at ? Date.parse(run.ended_at) : serviceTime();
  return element("tr", {},
    element("td", {}, badge(run.status), run.blocked.length ? badge("blocked") : null),
    element("td", {}, element("a", {href: `/inbox/runs/${encodeURIComponent(run.run_id)}`, "data-stay": run.run_id}, run.run_id), element("small", {class: "quiet"}, [run.graph, ...labels].join(" · "))),
    element("td", {class: "told"}, element("span", {class: "short", title: visible(told)}, told), run.open > 1 ? element("small", {class: "quiet"}, ` and ${run.open - 1} more`) : null),
    element("td", {}, ...(run.started_by ? [avatar(run.started_by), " ", run.started_by] : [])),
    element("td", {}, element("time", {datetime: run.created_at, title: clock(run.created_at)}, distance(run.created_at))),
    element("td", {}, duration(Math.max(0, end - Date.parse(run.created_at)) / 1000)));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
  event.preventDefault();
  at("by-q")?.focus();
});

await start();
