// JSON with numbers as they are written. JavaScript's own numbers have 53 bits: what does not fit into one is
// an `Exact`, which shows and writes the text that was read.

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
// Stands before the text of a number where JSON has a string. Nobody can guess it, and so forge a number.
const MARK = `number:${crypto.getRandomValues(new Uint32Array(4)).join(":")}:`;
const MARKED = new RegExp(`"${MARK}([^"]*)"`, "g");

/** A number that is not exactly one of JavaScript's. */
export class Exact {
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }

  toJSON() {
    return MARK + this.text;
  }
}

/** Return the number that a JSON text says; undefined if it says none. */
export function number(text) {
  if (!NUMBER.test(text)) return undefined;
  const value = Number(text);
  return decimal(text) === decimal(String(value)) ? value : new Exact(text);
}

// Equal numbers have one such text, whatever their zeros and exponents.
function decimal(text) {
  const [, sign, whole, fraction = "", exponent = 0] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  if (whole === undefined) return text;
  const digits = (whole + fraction).replace(/^0+/, "");
  const short = digits.replace(/0+$/, "");
  return short ? `${sign}${short}e${Number(exponent) - fraction.length + digits.length - short.length}` : `${sign}0`;
}

/** Return the value of a JSON text. Throws a SyntaxError if it is none. */
export function parse(text) {
  const marked = text.replace(TOKENS, (token) => (number(token) instanceof Exact ? `"${MARK}${token}"` : token));
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (name, value) => {
    if (name.startsWith(MARK)) throw new SyntaxError("the name of a field has to be in quotes");
    return typeof value === "string" && value.startsWith(MARK) ? new Exact(value.slice(MARK.length)) : value;
  });
}

/**
 * Return the JSON text of a value; undefined if it has none. A fraction with more digits than the service keeps
 * of a number is written as a text, which a Decimal reads.
 */
export function write(value, indent) {
  return JSON.stringify(value, null, indent)?.replace(MARKED, (marked, text) => (/^-?\d+$/.test(text) ? text : `"${text}"`));
}

export const isNumber = (value) => typeof value === "number" || value instanceof Exact;
export const isFlat = (value) => value === null || typeof value !== "object" || value instanceof Exact;
export const isObject = (value) => !isFlat(value) && !Array.isArray(value);

/** Return the exact sum of numbers without exponents, as text; null if one has an exponent. */
export function sum(values) {
  const parts = values.map((value) => /^(-?)(\d+)(?:\.(\d+))?$/.exec(String(value)));
  if (!parts.every(Boolean)) return null;
  const places = Math.max(...parts.map(([, , , fraction = ""]) => fraction.length));
  const total = parts.reduce((so, [, sign, whole, fraction = ""]) => so + BigInt(sign + whole + fraction.padEnd(places, "0")), 0n);
  const digits = String(total < 0n ? -total : total).padStart(places + 1, "0");
  return (total < 0n ? "-" : "") + (places ? `${digits.slice(0, -places)}.${digits.slice(-places)}` : digits);
}

/** Return whether two values are equal, in whatever order their fields are. */
export const same = (one, other) => write(sorted(one)) === write(sorted(other));

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}
