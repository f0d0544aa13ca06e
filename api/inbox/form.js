// A form for a JSON Schema, filled in with what is known. It only helps with the input: the run validates the
// answer against the whole schema. A decision is never preselected.

import {Exact, isNumber, isObject, number, parse, same, write} from "./json.js";
import {button, element, jsonText, spoken, visible} from "./markup.js";

const DEEPEST = 6;
const MOST_RADIOS = 6;
const LONG_TEXT = 80;
// Names of fields that hold more than a line.
const PROSE = /(note|comment|text|reason|description|message|body|remark|letter|content)s?$/i;
const ZONED = /(Z|[+-]\d\d:?\d\d)$/i;
const PICKERS = {date: "date", time: "time", "date-time": "datetime-local", email: "email", uri: "url"};

let count = 0;
const unique = (kind) => `${kind}-${(count += 1)}`;

/** An input that must be corrected before the answer can be sent. `all` are it and the others of its form. */
export class Fault extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
    this.all = [this];
  }

  static of(faults) {
    return Object.assign(new Fault(faults[0].message, faults[0].field), {all: faults});
  }
}

/**
 * Create a form for values of a schema. `start` is what the fields are filled with. What nobody touches is
 * read as it was there. With `isWhole`, `start` is the whole value: nothing of it is left out, and nothing
 * that it lacks is added unless somebody fills it in; `isPatch` is the same without defaults. `read()`
 * returns the value or throws a Fault; `show(faults)` puts faults (`{pointer, message}`) beside their
 * fields, and returns those that have none.
 */
export function formFor(schema, {start, label = "Answer", root = schema, isPatch = false, isWhole = isPatch} = {}) {
  const fields = [];
  const field = fieldOf(schema, {root, label, required: true, depth: 0, start, path: () => "", fields, isWhole, isPatch});
  return {
    element: field.element,
    read: () => {
      fields.forEach(clear);
      return field.read().value;
    },
    show: (faults) => {
      fields.forEach(clear);
      return faults.toReversed().filter(({pointer, message}) => !fault(nearest(fields, pointer ?? ""), message)).toReversed();
    },
  };
}

/** Create a form whose value is written as JSON. */
export function jsonForm(start) {
  return formFor({}, {start, label: "Answer as JSON"});
}

/** Put the faults of an error beside their fields, and move to the first. Returns those that have none. */
export function showFaults(error) {
  if (!(error instanceof Fault)) throw error;
  return error.all.toReversed().filter(({field, message}) => !fault(field, message)).map(({message}) => message);
}

// Put a fault beside its field, and move to it. Returns whether there is such a field.
function fault(field, message) {
  if (!field) return false;
  const {control, problem} = field;
  problem.textContent = visible(message);
  problem.hidden = false;
  control.setAttribute("aria-invalid", "true");
  const described = new Set((control.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
  control.setAttribute("aria-describedby", [...described.add(problem.id)].join(" "));
  control.focus();
  return true;
}

function clear({control, problem}) {
  problem.hidden = true;
  problem.textContent = "";
  control.removeAttribute("aria-invalid");
}

// Rows may have been removed since, and those after them have another path.
function nearest(fields, pointer) {
  const there = fields.filter(({control}) => control.isConnected).map((field) => ({field, path: field.path()}));
  const matching = there.filter(({path}) => path && (pointer === path || pointer.endsWith(path) || pointer.startsWith(`${path}/`)));
  return matching.sort((one, other) => other.path.length - one.path.length)[0]?.field;
}

// A field whose controls are as they were made gives back what it was filled with.
function fieldOf(declared, about) {
  const field = madeFor(declared, about);
  if (!about.isWhole || (about.start === undefined && about.required)) return field;
  const untouched = stateOf(field.element);
  const given = about.start === undefined ? {present: false} : {present: true, value: about.start};
  return {...field, read: () => (stateOf(field.element) === untouched ? given : field.read())};
}

const stateOf = (frame) =>
  JSON.stringify([...frame.querySelectorAll("input, textarea, select")].map((each) => (/radio|checkbox/.test(each.type) ? each.checked : each.value)));

function madeFor(declared, about) {
  const {schema, nullable} = plain(declared, about.root);
  const isOptional = !about.required || nullable;
  const inner = {
    ...about,
    nullable,
    required: !isOptional,
    // The title of what is referred to is that of a type, which several fields may have.
    label: titleOf(declared?.title, about.label),
    hint: schema.description ?? declared?.description,
    start: about.start === undefined && !about.isPatch ? (declared?.default ?? schema.default) : about.start,
  };
  if ("const" in schema) {
    const isGiven = inner.required || (!nullable && inner.start !== undefined);
    return isGiven ? constField(schema.const, inner) : choiceField([option(schema.const)], inner);
  }
  if (Array.isArray(schema.enum) && schema.enum.length) return choiceField(schema.enum.map(option), inner);
  const named = constants(schema, about.root);
  if (named) return choiceField(named, inner);
  const decimal = decimalOf(schema);
  if (decimal) return numberField(decimal, inner, true);
  switch (schema.type) {
    case "boolean":
      return choiceField([{label: "Yes", value: true}, {label: "No", value: false}], inner);
    case "integer":
    case "number":
      return numberField(schema, inner);
    case "string":
      return textField(schema, inner);
    case "array":
      if (schema.items && !schema.prefixItems && about.depth < DEEPEST) return arrayField(schema, inner);
      break;
    case "object":
      if (isPlainObject(schema) && about.depth < DEEPEST && !(about.isWhole && hasOthers(inner.start, schema))) return objectField(schema, inner);
  }
  return jsonField(inner);
}

function isPlainObject(schema) {
  return schema.properties && Object.keys(schema.properties).length > 0 && !schema.anyOf && !schema.oneOf;
}

// A title that pydantic has made of the name of a field (`Vat Id`) says no more than the name does.
const titleOf = (title, label) => (title === undefined || title === label.toLowerCase().replaceAll(/(^|[^a-z])[a-z]/g, (each) => each.toUpperCase()) ? label : title);

// A Decimal is a number, or a text that says one: return what the schema says of the number.
function decimalOf(schema) {
  const options = Array.isArray(schema.type) ? schema.type.map((type) => ({...schema, type})) : (schema.anyOf ?? []);
  const found = options.find(({type}) => type === "number" || type === "integer");
  const isDecimal = options.length === 2 && options.some(({type, format}) => type === "string" && !PICKERS[format]);
  return found && isDecimal ? found : null;
}

const hasOthers = (value, schema) => Object.keys(value ?? {}).some((name) => !Object.hasOwn(schema.properties, name));

const option = (value) => ({label: typeof value === "string" ? value : write(value), value});

// The alternatives of a schema all of which are constants, with their titles.
function constants(schema, root) {
  const options = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(options) || !options.length) return null;
  const found = options.map((each) => plain(each, root).schema);
  if (!found.every((each) => "const" in each)) return null;
  return found.map((each) => ({label: each.title ?? option(each.const).label, value: each.const}));
}

// Resolve the references of a schema, and separate the alternative of null.
function plain(schema, root) {
  let found = schema && typeof schema === "object" ? schema : {};
  let nullable = false;
  for (let step = 0; step < DEEPEST; step += 1) {
    const options = found.anyOf ?? found.oneOf;
    if (typeof found.$ref === "string") {
      found = {...resolved(found.$ref, root), ...without(found, "$ref")};
    } else if (Array.isArray(found.allOf) && found.allOf.length === 1) {
      found = {...found.allOf[0], ...without(found, "allOf")};
    } else if (Array.isArray(options) && options.length === 2 && options.some(isNull)) {
      nullable = true;
      found = {...options.find((option) => !isNull(option)), ...without(found, "anyOf", "oneOf")};
    } else if (Array.isArray(found.type) && found.type.length === 2 && found.type.includes("null")) {
      nullable = true;
      found = {...found, type: found.type.find((type) => type !== "null")};
    } else {
      break;
    }
  }
  return {schema: found, nullable};
}

/** Return whether a part of a schema is a yes or a no. */
export const isYesOrNo = (part, root) => plain(part, root).schema.type === "boolean";

const isNull = (schema) => schema?.type === "null" || (schema && "const" in schema && schema.const === null);
const without = (found, ...names) => Object.fromEntries(Object.entries(found).filter(([name]) => !names.includes(name)));

function resolved(reference, root) {
  let found = root;
  for (const part of reference.replace(/^#\/?/, "").split("/").filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    found = found && Object.hasOwn(found, name) ? found[name] : {};
  }
  return found && typeof found === "object" ? found : {};
}

// What an empty field means: null, nothing, or a fault.
function emptyValue(about, field, problem) {
  if (about.nullable) return {present: true, value: null};
  if (!about.required) return {present: false};
  throw new Fault(`${about.label}: ${problem}`, field);
}

const sentence = (text) => text.replace(/([^.!?:])$/, "$1.");

// A labelled control with its hint and a place for its fault.
function framed(about, control, hint) {
  const id = unique("field");
  const help = [about.hint, hint].filter(Boolean).map(sentence).join(" ");
  control.id = id;
  if (help) control.setAttribute("aria-describedby", `${id}-hint`);
  const problem = element("p", {class: "fault", id: `${id}-fault`, hidden: true});
  const field = {path: about.path, control, problem};
  about.fields.push(field);
  const frame = element(
    "div",
    {class: about.required ? "field" : "field optional"},
    element("label", {for: id}, about.label),
    help ? element("small", {id: `${id}-hint`}, help) : null,
    control,
    problem,
  );
  return {frame, field};
}

function constField(value, about) {
  const shown = element("p", {class: "field"}, `${about.label}: ${option(value).label}`);
  return {element: shown, read: () => ({present: true, value})};
}

function choiceField(options, about) {
  const chosen = options.findIndex(({value}) => about.start !== undefined && same(value, about.start));
  if (options.length > MOST_RADIOS) {
    const blank = element("option", {value: ""}, about.required ? "Choose" : "None");
    const select = element("select", {}, blank, ...options.map(({label}, index) => element("option", {value: index}, label)));
    if (chosen >= 0) select.value = chosen;
    const {frame, field} = framed(about, select);
    const read = () => (select.value === "" ? emptyValue(about, field, "choose one") : {present: true, value: options[select.value].value});
    return {element: frame, read};
  }
  const name = unique("choice");
  const inputs = options.map((_, index) => element("input", {type: "radio", name, value: index}));
  if (chosen >= 0) inputs[chosen].checked = true;
  const problem = element("p", {class: "fault", id: `${name}-fault`, hidden: true});
  const field = {path: about.path, control: inputs[0], problem};
  about.fields.push(field);
  const unset = about.required ? null : button("Clear", () => inputs.forEach((input) => (input.checked = false)), {class: "plain"});
  const frame = element(
    "fieldset",
    {class: about.required ? "choices" : "choices optional"},
    element("legend", {}, about.label),
    about.hint ? element("small", {}, about.hint) : null,
    element("div", {}, ...options.map(({label}, index) => element("label", {}, inputs[index], label)), unset),
    problem,
  );
  const read = () => {
    const index = inputs.findIndex((input) => input.checked);
    return index < 0 ? emptyValue(about, field, "choose one") : {present: true, value: options[index].value};
  };
  return {element: frame, read};
}

// `isText`: what is typed is sent as text, which says a Decimal exactly.
function numberField(schema, about, isText = false) {
  const input = element("input", {inputmode: "decimal", autocomplete: "off"});
  if (isNumber(about.start) || typeof about.start === "string") input.value = about.start;
  const untouched = input.value;
  const bounds = [
    schema.minimum === undefined ? null : `At least ${schema.minimum}.`,
    schema.exclusiveMinimum === undefined ? null : `More than ${schema.exclusiveMinimum}.`,
    schema.maximum === undefined ? null : `At most ${schema.maximum}.`,
    schema.exclusiveMaximum === undefined ? null : `Less than ${schema.exclusiveMaximum}.`,
  ];
  const {frame, field} = framed(about, input, bounds.filter(Boolean).join(" "));
  const read = () => {
    if (input.value === untouched && (isNumber(about.start) || (isText && untouched))) return {present: true, value: about.start};
    const text = input.value.trim();
    if (text === "") return emptyValue(about, field, "enter a number");
    const written = text.replace(/^\+/, "").replace(/^(-?)0+(?=\d)/, "$1").replace(/^(-?)\./, "$10.").replace(/\.$/, "");
    const value = number(written);
    if (value === undefined) throw new Fault(`${about.label}: ${text} is not a number`, field);
    if (schema.type === "integer" && !isInteger(value)) throw new Fault(`${about.label}: enter a whole number`, field);
    return {present: true, value: isText ? written : value};
  };
  return {element: frame, read};
}

const isInteger = (value) => (value instanceof Exact ? /^-?\d+$/.test(value.text) : Number.isInteger(value));

function textField(schema, about) {
  const format = schema.format ?? schema.anyOf?.find((option) => option.format)?.format;
  // No picker says a zone beside the time.
  const picker = format === "time" && !takes(schema, "10:00:00") ? undefined : PICKERS[format];
  const start = typeof about.start === "string" ? about.start : "";
  const isLong = about.depth === 0 || start.length > LONG_TEXT || start.includes("\n") || PROSE.test(about.path());
  const control = picker
    ? element("input", {type: picker, step: /time/.test(format) ? 1 : null})
    : isLong
      ? element("textarea", {rows: about.depth === 0 ? 4 : 2, maxlength: schema.maxLength})
      : element("input", {autocomplete: "off", maxlength: schema.maxLength});
  const isLocal = format === "date-time" && (start ? ZONED.test(start) : takes(schema, "2026-01-31T10:00:00Z"));
  control.value = isLocal ? localTime(start) : start;
  if (start && !control.value) {
    // No picker shows it, so it is shown as it is.
    control.type = "text";
    control.value = start;
  }
  const isPicked = control.type === "datetime-local" || control.type === "time";
  const untouched = control.value;
  const {frame, field} = framed(about, control, isPicked && isLocal ? "In your own time zone." : null);
  const read = () => {
    const text = control.value;
    if (text === untouched && typeof about.start === "string") return {present: true, value: about.start};
    // An empty string is a valid answer if the field is required and takes any text.
    if (text === "" && (about.nullable || !about.required || picker)) return emptyValue(about, field, "enter a value");
    if (!isPicked) return {present: true, value: text};
    const whole = /:\d\d:\d\d/.test(text) ? text : `${text}:00`;
    return {present: true, value: isLocal ? new Date(text).toISOString() : whole};
  };
  return {element: frame, read};
}

// Whether a text has a form that the schema allows, as far as patterns say.
const takes = (schema, text) => (schema.anyOf ?? [schema]).some(({pattern}) => !pattern || new RegExp(pattern, "u").test(text));

// The picker takes a time without a zone, which it means in the reader's own.
function localTime(text) {
  const moment = new Date(text);
  if (Number.isNaN(moment.valueOf())) return "";
  const shifted = new Date(moment.valueOf() - moment.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}

function objectField(schema, about) {
  const needed = new Set(Array.isArray(schema.required) ? schema.required : []);
  const start = isObject(about.start) ? about.start : {};
  const parts = Object.entries(schema.properties).map(([name, part]) => [
    name,
    fieldOf(part, {
      ...about,
      isRow: false,
      hint: undefined,
      label: spoken(name),
      required: needed.has(name),
      depth: about.depth + 1,
      path: () => `${about.path()}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
      start: Object.hasOwn(start, name) ? start[name] : undefined,
    }),
  ]);
  const frame = element(
    "fieldset",
    {class: about.required ? null : "optional"},
    element("legend", {class: about.depth === 0 || about.isRow ? "hidden" : null}, about.label),
    about.hint && about.depth > 0 ? element("small", {}, about.hint) : null,
    ...parts.map(([, field]) => field.element),
  );
  const isExcluded = (name) => branch(schema, Object.fromEntries(parts))?.properties?.[name] === false;
  // What one of two decisions has no place for is shown once the other is made.
  const isUndecided = () => branch(schema, Object.fromEntries(parts)) === null;
  const isExcludedByAny = (name) => [schema.then, schema.else].some((each) => each?.properties?.[name] === false);
  const draw = () => parts.forEach(([name, field]) => (field.element.hidden = isUndecided() ? isExcludedByAny(name) : isExcluded(name)));
  const untouched = stateOf(frame);
  if (schema.if) {
    ["input", "click"].forEach((kind) => frame.addEventListener(kind, draw));
    draw();
  }
  const read = () => {
    if (about.nullable && about.depth > 0 && !isPresent(about.start) && stateOf(frame) === untouched) return emptyValue(about, null, "");
    const value = {};
    let isEmpty = true;
    const faults = [];
    for (const [name, field] of parts) {
      if (isExcluded(name)) continue;
      let part;
      try {
        part = field.read();
      } catch (error) {
        // An optional part may be left empty as a whole.
        if (!(error instanceof Fault)) throw error;
        if (!about.required && about.depth > 0 && isEmptied(frame)) return emptyValue(about, null, "");
        faults.push(...error.all);
        continue;
      }
      if (!part.present) continue;
      isEmpty = isEmpty && part.value === null;
      Object.defineProperty(value, name, {value: part.value, enumerable: true});
    }
    if (faults.length) throw Fault.of(faults);
    if (isEmpty && !about.required && about.depth > 0 && !isPresent(about.start)) return emptyValue(about, null, "");
    return {present: true, value};
  };
  return {element: frame, read};
}

// What else a schema says of an object, `then` or `else`, once the fields that decide it are filled in. Of
// conditions only values of fields are understood.
function branch({if: condition, then, else: otherwise}, fields) {
  const {properties, ...others} = condition ?? {};
  const cases = Object.entries(properties ?? {}).map(([name, {const: only, enum: several = [only]}]) => [attempt(fields[name]), several]);
  const isDecided = cases.length && !Object.keys(others).length && cases.every(([value, several]) => value !== undefined && several[0] !== undefined);
  if (!isDecided) return null;
  return cases.every(([value, several]) => several.includes(value)) ? then : otherwise;
}

// The value of a field so far, if it has one.
function attempt(field) {
  try {
    return field?.read().value;
  } catch {
    return undefined;
  }
}

const isPresent = (value) => value !== null && value !== undefined;
const isEmptied = (frame) =>
  [...frame.querySelectorAll("input, textarea, select")].every((each) => (each.type === "radio" || each.type === "checkbox" ? !each.checked : each.value === ""));

function arrayField(schema, about) {
  const {schema: items} = plain(schema.items, about.root);
  if (Array.isArray(items.enum) && schema.uniqueItems) return severalField(items.enum.map(option), about);
  const rows = [];
  const list = element("ol", {class: "rows"});
  const add = (start) => {
    const row = {};
    row.field = fieldOf(schema.items, {
      ...about,
      isRow: true,
      hint: undefined,
      label: `${about.label} ${rows.length + 1}`,
      required: true,
      depth: about.depth + 1,
      path: () => `${about.path()}/${rows.indexOf(row)}`,
      start,
      isWhole: about.isWhole && start !== undefined,
    });
    const remove = button("Remove", () => {
      rows.splice(rows.indexOf(row), 1);
      row.item.remove();
      more.focus();
    }, {class: "plain", "aria-label": `Remove ${about.label} ${rows.length + 1}`});
    row.item = element("li", {}, row.field.element, remove);
    rows.push(row);
    list.append(row.item);
    return row;
  };
  const more = button(`Add to ${about.label}`, () => add(undefined).item.querySelector("input, textarea, select")?.focus(), {class: "plain"});
  for (const each of Array.isArray(about.start) ? about.start : []) add(each);
  const problem = element("p", {class: "fault", id: unique("fault"), hidden: true});
  about.fields.push({path: about.path, control: more, problem});
  const frame = element("fieldset", {}, element("legend", {}, about.label), about.hint ? element("small", {}, about.hint) : null, list, more, problem);
  const read = () => {
    if (!rows.length && !about.required && !Array.isArray(about.start)) return emptyValue(about, null, "");
    const faults = [];
    const value = rows.map((row) => {
      try {
        return row.field.read().value;
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        return faults.push(...error.all);
      }
    });
    if (faults.length) throw Fault.of(faults);
    return {present: true, value};
  };
  return {element: frame, read};
}

function severalField(options, about) {
  const start = new Set((Array.isArray(about.start) ? about.start : []).map((value) => write(value)));
  const inputs = options.map(({value}) => {
    const input = element("input", {type: "checkbox"});
    input.checked = start.has(write(value));
    return input;
  });
  const problem = element("p", {class: "fault", id: unique("fault"), hidden: true});
  about.fields.push({path: about.path, control: inputs[0], problem});
  const frame = element(
    "fieldset",
    {class: "choices"},
    element("legend", {}, about.label),
    about.hint ? element("small", {}, about.hint) : null,
    element("div", {}, ...options.map(({label}, index) => element("label", {}, inputs[index], label))),
    problem,
  );
  return {element: frame, read: () => ({present: true, value: options.filter((_, index) => inputs[index].checked).map(({value}) => value)})};
}

function jsonField(about) {
  const area = element("textarea", {class: "json", rows: about.depth > 0 ? 3 : 8, spellcheck: "false"});
  if (about.start !== undefined) area.value = jsonText(about.start);
  const untouched = area.value;
  const {frame, field} = framed(about, area, "JSON.");
  const read = () => {
    if (about.start !== undefined && area.value === untouched) return {present: true, value: about.start};
    if (area.value.trim() === "") return emptyValue(about, field, "enter JSON; null is valid too");
    try {
      return {present: true, value: parse(area.value)};
    } catch (error) {
      throw new Fault(`${about.label}: invalid JSON: ${error.message}`, field);
    }
  };
  return {element: frame, read};
}
