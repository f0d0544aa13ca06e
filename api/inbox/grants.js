// Remembered approvals: which calls run unasked, by whose yes and until when, and which have run.

import {call, called, failureText, listen, may, me, problemText, serviceTime} from "./api.js";
import {at, avatar, button, clock, confirmed, distance, element, icon, pairs, redraw, shownValue, spoken} from "./markup.js";
import {begin, say} from "./shell.js";

const SOON_MS = 500;
const FIRST = 5;

let grants = [];
// Also those that are over.
let isAll = false;
// The grants of which all uses are shown.
const whole = new Set();

async function start() {
  at("main").replaceChildren(element("article", {"aria-label": "Grants"},
    element("p", {id: "fault", role: "alert"}), element("p", {id: "told", role: "status", tabindex: "-1"}), element("div", {id: "grants"})));
  if (!(await begin("Grants", read))) return;
  await read();
  // A row of the report leads to its grant, which may be over by now.
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted && !at(wanted)) await show(true);
  if (wanted) at(wanted)?.scrollIntoView({block: "center"});
  let soon = null;
  listen(`/events?type=approval.*&since=${new Date(serviceTime()).toISOString()}`, () => {
    soon ??= setTimeout(() => {
      soon = null;
      read();
    }, SOON_MS);
  });
}

async function read() {
  try {
    grants = (await call(isAll ? "/grants?status=all" : "/grants")).items.reverse();
    at("fault").textContent = "";
    draw();
  } catch (error) {
    say("");
    at("fault").textContent = problemText(error);
  }
}

async function show(all) {
  isAll = all;
  await read();
}

function draw() {
  say(`${grants.length} grant${grants.length === 1 ? "" : "s"}`);
  const isForAll = may("runs:control") || may("admin");
  const none = isForAll ? "No approval is remembered." : "You had no approval remembered. Where its author allows that, an approval offers “Approve, and the next ones”.";
  const others = button(isAll ? "Hide those that are over" : "Show those that are over too", () => show(!isAll), {class: "plain", "data-stay": "over"});
  redraw(at("grants"), ...(grants.length ? grants.map(card) : [element("p", {class: "quiet empty"}, icon("key-round"), none)]), others);
}

function card(grant) {
  const title = `grant-${grant.id}`;
  const options = {class: "reject", "data-stay": `revoke ${grant.id}`, "aria-describedby": title};
  const revoke = grant.status === "standing" ? button("Revoke…", () => ask(grant), options) : null;
  return element("section", {class: "grant", "aria-labelledby": title},
    element("div", {class: "heading"}, element("h2", {id: title}, grant.tool), left(grant), element("span", {class: "grow"}), revoke),
    element("div", {class: "parts"}, covered(grant), used(grant)));
}

function left({status, uses, used: runs, revoked_by: by}) {
  if (status === "revoked") return element("span", {class: "badge warn"}, by ? `revoked by ${called(by)}` : "revoked");
  if (status === "expired") return element("span", {class: "badge quiet"}, "expired");
  if (status === "void") return element("span", {class: "badge warn"}, "void: its maker may not approve this any more");
  if (status === "used-up") return element("span", {class: "badge warn"}, `all ${uses} uses taken`);
  if (uses === null) return element("span", {class: "badge quiet"}, "any number of calls");
  return element("span", {class: "badge good"}, `${uses - runs.length} of ${uses} uses left`);
}

const runLink = (run) => element("a", {href: `/inbox/runs/${encodeURIComponent(run)}`}, run);

function covered({graph, run_id: run, same, below, by, capability, made_at: since, until}) {
  const limits = [
    ...Object.entries(same).map(([name, value]) => [spoken(name), shownValue(value, 1)]),
    ...Object.entries(below).map(([name, bound]) => [spoken(name), `less than ${bound}`]),
  ];
  return element("div", {},
    element("h3", {}, limits.length ? "Runs unasked if the call has" : "Runs unasked, whatever its arguments"),
    limits.length ? pairs(limits, {class: "values"}) : null,
    pairs([
      ["Where", run ? element("span", {}, "in the run ", runLink(run)) : `in every run of ${graph}`],
      ["Until", element("time", {datetime: until}, `${clock(until)} (${distance(until)})`)],
      ["Approved", element("span", {}, avatar(by), ` ${called(by)}, `, element("time", {datetime: since}, clock(since)))],
      ["As one who has", capability],
    ]));
}

function used({id, used: runs}) {
  const shown = whole.has(id) ? runs : runs.slice(-FIRST);
  const items = shown.toReversed().map(({run_id: run, at: when}) =>
    element("li", {}, runLink(run), " ", element("time", {class: "quiet", datetime: when, title: clock(when)}, distance(when))));
  const more = button(`Show all ${runs.length}`, () => {
    whole.add(id);
    draw();
  }, {class: "plain", "data-stay": `all ${id}`});
  return element("div", {},
    element("h3", {}, runs.length ? `${runs.length} call${runs.length === 1 ? " has" : "s have"} run` : "No call has run yet"),
    element("ul", {class: "plain-list"}, ...items), shown.length < runs.length ? more : null);
}

async function ask({id, tool, by}) {
  const whose = by === me.subject ? "" : ` that ${by} gave`;
  const body = [element("p", {class: "quiet"}, "Calls that it covers are asked about again. What has run under it stays done. This cannot be taken back.")];
  if (!(await confirmed({title: `Revoke the grant for ${tool}${whose}?`, body, label: "Revoke", kind: "danger"}))) return;
  try {
    await call(`/grants/${encodeURIComponent(id)}`, {method: "DELETE"});
    at("told").replaceChildren(element("span", {class: "outcome"}, icon("circle-check"), `The grant for ${tool} is revoked: such calls are asked about again.`));
    await read();
    at("told").focus();
  } catch (error) {
    at("fault").textContent = failureText(error);
  }
}

document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && me && read());

await start();
