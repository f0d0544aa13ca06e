// The report of approvals: what was settled in a time, by whom, with columns that one picks and their sum.

import {call, may, me, problemText} from "./api.js";
import {isObject} from "./json.js";
import {align, at, avatar, badge, button, clock, dayTime, digits, duration, element, isAmount, promptLine, shownValue, spoken} from "./markup.js";
import {PERIODS, period} from "./period.js";
import {begin, say} from "./shell.js";

const OUTCOMES = ["approved", "rejected", "answered", "expired", "withdrawn", "granted"];
const FIELDS = [
  ["from", "From", {type: "date"}],
  ["to", "To, that day included", {type: "date"}],
  ["person", "Person", {}],
  ["capability", "Capability", {placeholder: "refunds:*"}],
  ["graph", "Graph", {}],
  ["fields", "Columns", {placeholder: "reason.amount, payload.order"}],
  ["sum", "Sum of", {placeholder: "reason.amount"}],
];

const OWN = ["When", "Outcome", "Who", "Question", "Answer", "Note"];

let rows = [];
let report = null;
let turn = 0;

async function start() {
  at("main").replaceChildren(element("article", {"aria-label": "Approvals"},
    element("form", {id: "criteria"}), element("p", {id: "fault", role: "alert"}), element("div", {id: "report"})));
  if (!(await begin("Approvals", show))) return;
  drawForm(new URLSearchParams(location.search));
  await show();
}

function drawForm(given) {
  const fields = FIELDS.map(([name, label, about]) =>
    element("label", {}, label, element("input", {name, value: given.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...about})));
  const options = OUTCOMES.map((each) => element("option", {value: each, selected: each === given.get("outcome")}, each));
  const outcome = element("label", {}, "Outcome", element("select", {name: "outcome"}, element("option", {value: ""}, "any"), ...options));
  const form = at("criteria");
  const periods = PERIODS.map((name) => button(name, () => choose(name), {class: "chip", name}));
  form.replaceChildren(element("div", {class: "periods", role: "group", "aria-label": "Time"}, ...periods), ...fields, outcome, element("p", {class: "buttons"}, element("button", {class: "send"}, "Show"), button("Print", () => window.print())));
  form.addEventListener("change", markPeriod);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // The address has the report, so that it can be sent to somebody.
    history.replaceState(null, "", `?${new URLSearchParams(chosen())}`);
    show();
  });
}

// The dates that a time has today, as if one had typed them.
function choose(name) {
  const {elements} = at("criteria");
  [elements.from.value, elements.to.value] = period(name);
  at("criteria").requestSubmit();
}

function markPeriod() {
  const {from, to} = at("criteria").elements;
  for (const each of at("criteria").querySelectorAll(".periods button")) {
    const isOn = String(period(each.name)) === String([from.value, to.value]);
    each.classList.toggle("on", isOn);
    each.setAttribute("aria-pressed", isOn);
  }
}

const chosen = () => [...new FormData(at("criteria"))].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);

function query() {
  return new URLSearchParams(chosen().map(([name, value]) => {
    if (name === "fields" || name === "sum") return [name, value.split(",").map((each) => each.trim()).filter(Boolean).map(pathOf).join(",")];
    return [name, name === "from" || name === "to" ? dayTime(value, {isEnd: name === "to"}) : value];
  }));
}

// `amount` is as good as `reason.amount`.
const pathOf = (text) => (/^(reason|payload|preview|answer)(\.|$)/.test(text) ? text : `reason.${text}`);

async function show() {
  markPeriod();
  rows = [];
  report = null;
  at("report").replaceChildren();
  await more(query());
}

async function more(asked) {
  at("fault").textContent = "";
  const cursor = report?.next_cursor;
  const own = (turn += 1);
  try {
    const page = await call(`/approvals?${cursor ? new URLSearchParams([...asked, ["cursor", cursor]]) : asked}`);
    // Meanwhile another report was asked for.
    if (own !== turn) return;
    rows = [...rows, ...page.items];
    // A row of another page may have what none of this one has. Of sums only the first page says so.
    const picked = (asked.get("fields") ?? "").split(",");
    const unknown = (report ?? page).unknown_fields.filter((each) => page.unknown_fields.includes(each) || !picked.includes(each));
    report = {...page, unknown_fields: unknown, sums: report?.sums ?? page.sums, partial: page.partial || Boolean(report?.partial)};
    draw(asked);
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  say("");
  at("fault").textContent = problemText(error);
}

function draw(asked) {
  say(counted(report.total));
  const columns = (asked.get("fields") ?? "").split(",").filter(Boolean);
  const sums = Object.entries(report.sums ?? {}).map(([name, {sum, rows: count}]) => element("p", {class: "sum", title: name}, `Sum of ${titleOf(name, Object.keys(report.sums))}: `, element("b", {}, ...digits(sum)), ` in ${counted(count)}`));
  const csv = new URLSearchParams([...asked].filter(([name]) => name !== "sum").concat([["format", "csv"]]));
  at("report").replaceChildren(
    element("div", {class: "titled"}, element("p", {class: "quiet"}, `From ${clock(report.from)} to ${clock(report.to)}, newest first`),
      element("a", {class: "button", href: `/approvals?${csv}`, download: "approvals.csv"}, "Download as CSV")),
    ...(report.partial ? [element("p", {class: "warning"}, "This is not the whole report: your labels hide rows, or you may not read something of it.")] : []),
    ...(report.unknown_fields?.length ? [element("p", {class: "warning"}, `No row here has ${report.unknown_fields.join(", ")}.`)] : []),
    ...sums,
    rows.length ? table(columns) : element("p", {class: "quiet"}, "Nothing was settled in this time."),
    element("p", {class: "buttons"}, report.next_cursor ? button("Show more", () => more(asked)) : null),
  );
}

const counted = (count) => `${count} ${count === 1 ? "row" : "rows"}`;

function table(columns) {
  const hasAmounts = (name) => rows.some((row) => isAmount(row.fields[name]));
  const head = element("tr", {}, ...OWN.map((name) => element("th", {scope: "col"}, name)),
    ...columns.map((name) => element("th", {scope: "col", title: name, class: hasAmounts(name) ? "number" : null}, titleOf(name, columns))));
  const lines = rows.map((row) => line(row, columns));
  columns.forEach((_, index) => align(lines.map((each) => each.children[OWN.length + index])));
  return element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "Report"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines)));
}

function line(row, columns) {
  const who = row.on_behalf_of ? `${row.by} for ${row.on_behalf_of}` : row.by;
  const others = (row.voters ?? []).filter((each) => each !== row.by);
  const question = row.prompt ? promptLine(row) : spoken(row.name ?? "");
  return element("tr", {},
    element("td", {class: "when"}, element("time", {datetime: row.at}, clock(row.at))),
    element("td", {}, badge(row.outcome, row.rewound_by ? `${row.outcome}, rewound since` : row.outcome), row.grant ? element("small", {}, " ", grantOf(row)) : null),
    element("td", {class: "who"}, ...(row.by ? [avatar(row.by), " "] : []), who ?? "", others.length ? element("small", {}, ` with ${others.join(", ")}`) : null),
    element("td", {}, element("a", {href: `/inbox/runs/${encodeURIComponent(row.run_id)}`}, row.degraded ? "cannot be read here" : question)),
    element("td", {}, row.redacted ? element("span", {class: "quiet"}, "not for you") : cell(inShort(row))),
    element("td", row.note ? {"data-name": "Note"} : {}, row.note ?? ""),
    ...columns.map((name) => element("td", {class: isAmount(row.fields[name]) ? "number" : null, "data-name": titleOf(name, columns)}, cell(row.fields[name], name.split(".").at(-1)))));
}

// Whose grant let a call run unasked, and for what. Only its maker and who controls runs find it among theirs.
function grantOf({grant, by, name: tool}) {
  const text = `under ${by === me.subject ? "your" : `${by}’s`} grant for ${tool}`;
  const isListed = by === me.subject || may("runs:control") || may("admin");
  return isListed ? element("a", {href: `/inbox/grants#grant-${grant}`}, text) : text;
}

// What an answer says beside its outcome; what an approver had remembered in one line.
function inShort({answer, outcome}) {
  if (outcome !== "approved" && outcome !== "rejected") return answer;
  if (!isObject(answer)) return typeof answer === "boolean" ? null : answer;
  const {approved, ...others} = answer;
  if (isObject(others.remember)) {
    const {for: span, where, uses} = others.remember;
    others.remember = `for ${typeof span === "number" ? duration(span) : span}, ${where === "run" ? "in this run" : "in every run"}${uses ? `, ${uses} calls` : ""}`;
  }
  return Object.keys(others).length ? others : null;
}

// The last part of a path, unless several end alike.
function titleOf(path, paths) {
  const last = (each) => each.split(".").at(-1);
  return paths.filter((each) => last(each) === last(path)).length > 1 ? path : spoken(last(path));
}

const cell = (value, name) => (value === null || value === undefined ? "" : shownValue(value, 2, name));

await start();
