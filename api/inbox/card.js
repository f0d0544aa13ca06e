// How a question is decided: the fields of its card, and the buttons with the answers that they give.

import {me} from "./api.js";
import {Fault, formFor, isYesOrNo} from "./form.js";
import {isObject, parse, same} from "./json.js";
import {button, difference, duration, element, icon, shownValue, visible} from "./markup.js";

export const isCall = (question) => Boolean(question.reason?.tool) && "arguments" in question.reason;
export const isDigestOnly = (payload) => isObject(payload) && "digest" in payload && Object.keys(payload).every((name) => name === "digest" || name === "number");

/**
 * Return the card of a question: `parts` are its elements, `ways` the answers that it offers
 * (`{label, kind, key, read}`, where `read(note)` returns the answer), and `show(faults)` puts faults beside their fields and returns the others.
 */
export function card(question) {
  const schema = question.response_schema;
  if (question.kind === "approval" && isCall(question)) return approvalCard(question);
  if (question.kind === "static") return breakpointCard(question);
  const root = schema && typeof schema === "object" ? schema : {};
  if (root.type === "boolean") return yesOrNo(root.title ?? null, (value) => value, []);
  if (root.type === "object" && isYesOrNo(root.properties?.approved, root)) return gateCard(question, root);
  const form = formFor(root, {label: "Answer", start: startOf(question), isPatch: question.kind === "error"});
  return {parts: [form.element], show: form.show, ways: [{label: "Send answer", kind: "answer", read: form.read}], read: form.read};
}

// An author may show values under the names of the answer's fields, to be edited. What others have approved so far
// counts over them: who changes nothing agrees.
function startOf({payload, votes}) {
  const approved = (votes ?? []).map(({answer}) => answer).find((answer) => answer?.approved === true);
  return isObject(payload) && !isDigestOnly(payload) ? {...payload, ...approved} : approved;
}

function yesOrNo(hint, made, parts) {
  return {
    parts: [hint ? element("p", {}, hint) : null, ...parts],
    show: (faults) => faults,
    ways: [
      {label: "Approve", kind: "approve", key: "a", read: () => made(true)},
      {label: "Reject", kind: "reject", key: "r", read: () => made(false)},
    ],
  };
}

function gateCard(question, schema) {
  const {approved, ...others} = schema.properties;
  const rest = {...schema, properties: others, required: (schema.required ?? []).filter((name) => name !== "approved")};
  const form = Object.keys(others).length ? formFor(rest, {label: "Decision", start: startOf(question), root: schema}) : null;
  const made = (yes) => ({approved: yes, ...(form ? form.read() : {})});
  const both = yesOrNo(approved.description ?? null, made, form ? [form.element] : []);
  return {...both, show: form ? form.show : both.show};
}

function approvalCard(question) {
  const schema = question.response_schema ?? {};
  const {arguments: asked} = question.reason;
  const decisions = new Set(question.decisions ?? ["approve", "edit", "reject"]);
  // The owner of a tool may take arguments that do not fit their shape, which is then the first alternative.
  const shape = schema.properties?.arguments?.type ? schema.properties.arguments : schema.properties?.arguments?.anyOf?.[0];
  const form = decisions.has("edit") && shape ? formFor(shape, {label: "Arguments", start: asked, root: schema, isWhole: true}) : null;
  const result = element("textarea", {id: "in-place", rows: 3});
  const edited = () => {
    const read = form ? form.read() : asked;
    return same(read, asked) ? null : read;
  };
  const shown = form && !question.isShared ? editable("Arguments", asked, form, () => [asked, edited() ?? asked]) : null;
  const ways = [];
  if (decisions.has("approve") || decisions.has("edit")) {
    ways.push({label: "Approve", kind: "approve", key: "a", read: () => {
      const changed = edited();
      return changed === null ? {approved: true} : {approved: true, arguments: changed};
    }});
  }
  if (decisions.has("reject")) {
    ways.push({label: "Reject", kind: "reject", key: "r", read: (why) => (why ? {approved: false, reason: why} : {approved: false})});
  }
  const parts = question.isShared ? [] : shown?.parts ?? [element("h3", {}, "Arguments"), shownValue(asked)];
  if (decisions.has("respond")) {
    parts.push(element("details", {}, element("summary", {}, "Answer in place of the call"), labelled(result, "Result that the agent reads (text or JSON)"), button("Send this result", () => parts.send("respond"))));
    ways.push({label: null, kind: "respond", read: () => ({approved: false, result: textOrJson(result.value)})});
  }
  // By a personal link nothing is remembered, and neither is what `*` may.
  const isOwn = me && (!me.capabilities.includes("*") || me.capabilities.includes(question.requested_capability));
  if (question.remember && isOwn && !question.isShared && decisions.has("approve")) {
    const {element: chosen, read} = remembering(question.remember, () => parts.send("remember"));
    parts.push(chosen);
    ways.push({label: null, kind: "remember", read: () => {
      const changed = edited();
      return {approved: true, ...(changed === null ? {} : {arguments: changed}), remember: read()};
    }});
  }
  return {parts, show: shown?.show ?? ((faults) => faults), ways};
}

const USUAL = "8h";
const SPANS = [["1h", "1 hour", 3600], ["8h", "8 hours", 28800], ["1d", "1 day", 86400], ["7d", "7 days", 604800]];
const PLACES = {run: "in this run", graph: "in every run of this graph"};

// Approve, and the next calls like this too, for as long as the author of the tool allows.
function remembering({most, where, same: fields, below}, send) {
  const spans = SPANS.filter(([, , seconds]) => seconds <= most);
  const choice = (id, options) => element("select", {id}, ...options.map(([value, text]) => element("option", {value}, text)));
  if (!spans.some(([, , seconds]) => seconds === most)) spans.push([String(most), duration(most)]);
  const length = choice("remember-for", spans);
  if (spans.some(([span]) => span === USUAL)) length.value = USUAL;
  const place = choice("remember-where", where.map((each) => [each, PLACES[each]]));
  const uses = element("input", {id: "remember-uses", type: "number", min: 1, step: 1, placeholder: "any number"});
  const limits = [...fields.map((name) => `the same ${name}`), ...Object.entries(below).map(([name, bound]) => `${name} below ${bound}`)];
  const summary = element("summary");
  const tell = () => (summary.textContent = visible(`Approve, and the next ones for ${length.selectedOptions[0].textContent}…`));
  length.addEventListener("change", tell);
  tell();
  const shown = element(
    "details",
    {},
    summary,
    limits.length ? element("p", {class: "quiet"}, `Calls with ${limits.join(" and ")} are then not asked about.`) : null,
    labelled(length, "For"),
    labelled(place, "Where"),
    labelled(uses, "At most so many calls"),
    button("Approve and remember", send),
  );
  const read = () => ({
    for: /^\d+(\.\d+)?$/.test(length.value) ? Number(length.value) : length.value, where: place.value,
    ...(uses.value ? {uses: Number(uses.value)} : {}),
  });
  return {element: shown, read};
}

// Go on as it is, or with values of which only those that were changed are sent.
function breakpointCard({payload, response_schema: schema}) {
  const values = payload?.values ?? {};
  const allowed = schema?.then?.properties?.values;
  const form = payload && allowed ? formFor(allowed, {label: "Values", start: values, root: schema, isPatch: true}) : null;
  const changed = () => Object.fromEntries(Object.entries(form?.read() ?? {}).filter(([name, value]) => !Object.hasOwn(values, name) || !same(value, values[name])));
  const read = () => {
    const edits = changed();
    return Object.keys(edits).length ? {values: edits, version: payload.version} : null;
  };
  // Within an item of a fan-out nothing can be edited.
  const shown = form ? editable("Values", values, form, () => [values, {...values, ...changed()}]) : {parts: payload ? [element("h3", {}, "Values"), shownValue(values)] : [], show: (faults) => faults};
  return {...shown, ways: [{label: "Go on", kind: "go", key: "a", read}]};
}

// Values as text, and as a form once somebody wants to change them.
function editable(title, values, form, read) {
  const shown = shownValue(values);
  const edit = button([icon("pencil"), "Edit"], () => {
    form.element.hidden = false;
    shown.hidden = edit.hidden = true;
    form.element.querySelector("input, textarea, select")?.focus();
    form.element.dispatchEvent(new Event("input", {bubbles: true}));
  }, {class: "plain", "data-key": "e", "aria-keyshortcuts": "e"});
  form.element.hidden = true;
  const show = (faults) => {
    if (faults.length && form.element.hidden) edit.click();
    return form.show(faults);
  };
  return {parts: [element("div", {class: "titled"}, element("h3", {}, title), edit), shown, form.element, changesOf(form, read)], show};
}

// What somebody has changed in a form so far. `read()` returns the values before and after.
function changesOf(form, read) {
  const place = element("div", {class: "changes", "aria-live": "polite"});
  const draw = () => {
    let shown = null;
    try {
      shown = difference(...read());
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
    }
    place.replaceChildren(...(shown ? [element("h3", {}, "Your changes"), shown] : []));
  };
  form.element.addEventListener("input", draw);
  form.element.addEventListener("click", draw);
  return place;
}

function labelled(control, label) {
  return element("div", {class: "field"}, element("label", {for: control.id}, label), control);
}

function textOrJson(text) {
  try {
    return parse(text);
  } catch {
    return text;
  }
}
