// A form for a JSON Schema. It only helps with the input: the run validates the answer against the whole
// schema. No option is preselected, so that an approval is always a decision.

const DEEPEST = 6;
const MOST_RADIOS = 6;
// Numbers outside of strings with so many digits that JavaScript rounds them.
const INEXACT = /(?<![\w"])-?\d[\d.]{15,}/;

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

let count = 0;

/** An input that must be corrected before the answer can be sent. */
export class Fault extends Error {
  constructor(message, element) {
    super(message);
    this.element = element;
  }
}

/** Return the text with invisible characters replaced by code points, such as <U+202E>. */
export function visible(text) {
  const codePoint = (character) => `<U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
  return String(text).replaceAll("\r\n", "\n").replace(UNSEEN, codePoint);
}

// The value as JSON with invisible characters escaped, so that it parses to the same value.
function jsonText(value) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value, null, 2)?.replace(UNSEEN, (character) => character.split("").map(escape).join(""));
}

/** Create an element. Text is set as text, never as markup, with invisible characters replaced. */
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) created.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) created.setAttribute(key, value);
  }
  const present = children.filter((child) => child !== null && child !== undefined);
  created.append(...present.map((child) => (child instanceof Node ? child : visible(child))));
  return created;
}

/**
 * Create a form for answers to this schema. `shown` is the payload of the question, which a user can edit.
 * `read()` returns the answer or throws a Fault.
 */
export function answerForm(schema, shown) {
  const field = fieldOf(schema, {root: schema, label: "Answer", required: true, depth: 0, shown, path: ""});
  return {element: field.element, fields: field.fields, read: () => field.read().value};
}

/** Create a field for an answer in JSON. */
export function jsonForm(start) {
  const field = jsonField({label: "Answer as JSON", required: true, path: ""}, start);
  return {element: field.element, fields: field.fields, read: () => field.read().value};
}

function fieldOf(declared, about) {
  const {schema, nullable} = plain(declared, about.root);
  const inner = {
    ...about,
    nullable,
    required: about.required && !nullable,
    hint: schema.description ?? declared?.description,
    label: about.label,
  };
  if ("const" in schema) return constField(schema.const, inner);
  if (Array.isArray(schema.enum) && schema.enum.length) return choiceField(schema.enum.map(option), inner);
  switch (schema.type) {
    case "boolean":
      return choiceField([{label: "Yes", value: true}, {label: "No", value: false}], inner);
    case "integer":
    case "number":
      return numberField(schema, inner);
    case "string":
      return textField(schema, inner);
    case "object":
      if (isPlainObject(schema) && about.depth < DEEPEST && (about.depth === 0 || inner.required)) {
        return objectField(schema, inner);
      }
  }
  return jsonField(inner, "default" in schema ? schema.default : undefined);
}

function isPlainObject(schema) {
  return schema.properties && Object.keys(schema.properties).length > 0 && !schema.anyOf && !schema.oneOf;
}

function option(value) {
  return {label: typeof value === "string" ? value : JSON.stringify(value), value};
}

// Resolve the references of a schema, and separate the alternative of null.
function plain(schema, root) {
  let found = schema && typeof schema === "object" ? schema : {};
  let nullable = false;
  for (let step = 0; step < DEEPEST; step += 1) {
    const options = found.anyOf ?? found.oneOf;
    if (typeof found.$ref === "string") {
      found = {...resolved(found.$ref, root), ...without(found, "$ref")};
    } else if (Array.isArray(options) && options.length === 2 && options.some(isNull)) {
      nullable = true;
      found = {...without(found, "anyOf", "oneOf"), ...options.find((option) => !isNull(option))};
    } else if (Array.isArray(found.type) && found.type.length === 2 && found.type.includes("null")) {
      nullable = true;
      found = {...found, type: found.type.find((type) => type !== "null")};
    } else {
      break;
    }
  }
  return {schema: found, nullable};
}

function isNull(schema) {
  return schema?.type === "null" || (schema && "const" in schema && schema.const === null);
}

function without(found, ...names) {
  return Object.fromEntries(Object.entries(found).filter(([name]) => !names.includes(name)));
}

function resolved(reference, root) {
  let found = root;
  for (const part of reference.replace(/^#\/?/, "").split("/").filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    found = found && Object.hasOwn(found, name) ? found[name] : {};
  }
  return found && typeof found === "object" ? found : {};
}

// The value of an empty field.
function emptyValue(about, problem) {
  if (about.nullable) return {present: true, value: null};
  if (!about.required) return {present: false};
  throw new Fault(`${about.label}: ${problem}`, about.element);
}

function framed(about, control, hint) {
  const id = `field-${(count += 1)}`;
  const help = [about.hint, hint, about.required ? null : "Optional."].filter(Boolean).join(" ");
  control.id = id;
  if (help) control.setAttribute("aria-describedby", `${id}-hint`);
  about.element = control;
  return element(
    "div",
    {class: "field"},
    element("label", {for: id}, about.label),
    help ? element("small", {id: `${id}-hint`}, help) : null,
    control,
  );
}

function constField(value, about) {
  const shown = element("p", {}, `${about.label}: ${JSON.stringify(value)}`);
  return {element: shown, fields: [], read: () => ({present: true, value})};
}

function choiceField(options, about) {
  if (options.length > MOST_RADIOS) {
    const select = element("select", {}, element("option", {value: ""}, "Choose"));
    options.forEach(({label}, index) => select.append(element("option", {value: index}, label)));
    const frame = framed(about, select);
    const read = () =>
      select.value === "" ? emptyValue(about, "choose one") : {present: true, value: options[select.value].value};
    return {element: frame, fields: [{path: about.path, element: select}], read};
  }
  const name = `choice-${(count += 1)}`;
  const inputs = options.map((_, index) => element("input", {type: "radio", name, value: index}));
  const frame = element(
    "fieldset",
    {class: "choices"},
    element("legend", {}, about.label),
    about.hint ? element("small", {}, about.hint) : null,
    element("div", {}, ...options.map(({label}, index) => element("label", {}, inputs[index], label))),
  );
  about.element = inputs[0];
  const read = () => {
    const index = inputs.findIndex((input) => input.checked);
    return index < 0 ? emptyValue(about, "choose one") : {present: true, value: options[index].value};
  };
  return {element: frame, fields: [{path: about.path, element: inputs[0]}], read};
}

function numberField(schema, about) {
  const input = element("input", {inputmode: "decimal", autocomplete: "off"});
  const bounds = [
    schema.minimum === undefined ? null : `At least ${schema.minimum}.`,
    schema.maximum === undefined ? null : `At most ${schema.maximum}.`,
  ];
  const frame = framed(about, input, bounds.filter(Boolean).join(" "));
  const read = () => {
    const text = input.value.trim();
    if (text === "") return emptyValue(about, "enter a number");
    const value = Number(text);
    if (!Number.isFinite(value)) throw new Fault(`${about.label}: ${text} is not a number`, input);
    demandExact(text, about, input);
    if (schema.type === "integer" && !Number.isSafeInteger(value)) {
      throw new Fault(`${about.label}: enter a whole number`, input);
    }
    return {present: true, value};
  };
  return {element: frame, fields: [{path: about.path, element: input}], read};
}

function textField(schema, about) {
  const area = element("textarea", {rows: about.depth === 0 ? 4 : 2, maxlength: schema.maxLength});
  const frame = framed(about, area);
  const read = () => {
    // An empty string is a valid answer if the field is required.
    if (area.value === "" && (about.nullable || !about.required)) return emptyValue(about, "");
    return {present: true, value: area.value};
  };
  return {element: frame, fields: [{path: about.path, element: area}], read};
}

function objectField(schema, about) {
  const needed = new Set(Array.isArray(schema.required) ? schema.required : []);
  const parts = Object.entries(schema.properties).map(([name, part]) => [
    name,
    fieldOf(part, {
      ...about,
      label: name,
      required: needed.has(name),
      depth: about.depth + 1,
      path: `${about.path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
      shown: about.shown && typeof about.shown === "object" ? about.shown[name] : undefined,
    }),
  ]);
  const frame = element(
    "fieldset",
    {},
    element("legend", {}, about.label),
    ...parts.map(([, field]) => field.element),
  );
  const read = () => {
    const value = {};
    for (const [name, field] of parts) {
      const part = field.read();
      if (part.present) Object.defineProperty(value, name, {value: part.value, enumerable: true});
    }
    return {present: true, value};
  };
  return {element: frame, fields: parts.flatMap(([, field]) => field.fields), read};
}

function jsonField(about, start) {
  const area = element("textarea", {class: "json", rows: about.depth > 0 ? 3 : 8, spellcheck: "false"});
  if (start !== undefined) area.value = jsonText(start);
  const frame = framed(about, area, "JSON.");
  if (about.shown !== undefined && about.depth > 0) {
    const fill = element("button", {type: "button", class: "plain"}, "Copy from the question");
    fill.addEventListener("click", () => {
      area.value = jsonText(about.shown);
      area.focus();
    });
    frame.append(fill);
  }
  const read = () => {
    if (area.value.trim() === "") {
      if (about.nullable || !about.required) return emptyValue({...about, nullable: false, required: false}, "");
      throw new Fault(`${about.label}: enter JSON; null is valid too`, area);
    }
    let value;
    try {
      value = JSON.parse(area.value);
    } catch (error) {
      throw new Fault(`${about.label}: invalid JSON: ${error.message}`, area);
    }
    demandExact(area.value.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""'), about, area);
    return {present: true, value};
  };
  return {element: frame, fields: [{path: about.path, element: area}], read};
}

// Refuse numbers that JavaScript would round.
function demandExact(text, about, control) {
  const number = text.match(INEXACT)?.[0];
  if (number) {
    throw new Fault(`${about.label}: ${number} has too many digits for a browser: use the command line`, control);
  }
}
