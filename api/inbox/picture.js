// The picture of a graph: its nodes in layers from the top with what is in them, its edges, and what each is doing.

import {button, element, icon, inWords, visible} from "./markup.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, BESIDE, BELOW, EDGE] = [160, 36, 28, 52, 12];
const [ROW, GAP, MOST_ROWS] = [24, 8, 8];
const MOST_CHARS = 20;
const [LEAST, STEP, MOST] = [0.25, 1.25, 4];
const WORDS = {done: "done", running: "running", waiting: "waits for a person", failed: "failed", blocked: "blocked"};

// How large it is drawn, also when it is drawn anew; null fits it to the page.
let scale = null;

/** Return the edges of a graph, as `[source, target, label]`; every end is a node, START or END. Only what always follows has no label. */
export function edgesOf(spec) {
  const found = new Map();
  const add = (source, target, label) => {
    const [, , before] = found.get(`${source} ${target}`) ?? [];
    found.set(`${source} ${target}`, [source, target, [...new Set([before, label].filter(Boolean))].join(", or ")]);
  };
  for (const {sources, target, condition} of spec.edges ?? []) for (const source of sources) add(source, target, inShort(condition));
  for (const {source, targets, name} of spec.routes ?? []) for (const target of targets) add(source, target, /^route(_\d+)?$/.test(name) ? "by code" : `${name}()`);
  for (const [name, node] of Object.entries(spec.nodes)) {
    for (const target of node.to ?? []) add(name, target, "by code");
    if (node.on_error?.kind === "goto") add(name, node.on_error.node, "on error");
    if (node.question?.on_timeout?.kind === "goto") add(name, node.question.on_timeout.node, "deadline");
  }
  return [...found.values()];
}

function inShort(condition) {
  if (condition?.kind === "else") return "else";
  if (condition?.kind !== "when") return "";
  return Object.entries(condition.equals).map(([path, value]) => `${path.split(".").at(-1)} = ${inWords(value)}`).join(", ");
}

// The layer of each node: one more than the deepest of those before it, where edges back do not count.
function layersOf(names, edges) {
  const next = new Map(names.map((name) => [name, edges.filter(([source]) => source === name).map(([, target]) => target)]));
  const back = new Set();
  const states = new Map();
  const visit = (name) => {
    states.set(name, "open");
    for (const target of next.get(name) ?? []) {
      if (states.get(target) === "open") back.add(`${name} ${target}`);
      else if (!states.has(target)) visit(target);
    }
    states.set(name, "closed");
  };
  names.forEach((name) => states.has(name) || visit(name));
  const layer = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    let isMoved = false;
    for (const [source, target] of edges) {
      if (back.has(`${source} ${target}`) || layer.get(target) > layer.get(source)) continue;
      layer.set(target, layer.get(source) + 1);
      isMoved = true;
    }
    if (!isMoved) break;
  }
  return {layer, back};
}

// What is in a node: the tools of an agent, or the nodes of a nested graph.
function innerOf(node) {
  if (node?.kind !== "subgraph") return [];
  return Object.keys(node.graph.nodes).filter((name) => !(node.agent && name === "model"));
}

// What of it there is room for, as `[text, name]`; of the rest there is only the number.
function rowsOf(node) {
  const inner = innerOf(node);
  const rows = inner.slice(0, inner.length > MOST_ROWS ? MOST_ROWS - 1 : MOST_ROWS).map((name) => [name, name]);
  return rows.length < inner.length ? [...rows, [`and ${inner.length - rows.length} more`, null]] : rows;
}

function heightOf(node) {
  const count = rowsOf(node).length;
  return HEIGHT + (count ? count * ROW + GAP : 0);
}

// The place of each node: in its layer it stands below the middle of those that lead to it.
function placed(names, edges, heights) {
  const {layer, back} = layersOf(names, edges);
  const rows = [];
  for (const name of names) (rows[layer.get(name)] ??= []).push(name);
  const places = new Map();
  const widest = Math.max(...rows.map((row) => row.length));
  let top = EDGE;
  rows.forEach((row) => {
    const wish = (name) => {
      const before = edges.filter(([source, target]) => target === name && places.has(source)).map(([source]) => places.get(source).x);
      return before.length ? before.reduce((sum, x) => sum + x, 0) / before.length : 0;
    };
    const start = ((widest - row.length) * (WIDTH + BESIDE)) / 2;
    [...row].sort((one, other) => wish(one) - wish(other)).forEach((name, index) => {
      places.set(name, {x: EDGE + start + index * (WIDTH + BESIDE), y: top, height: heights.get(name)});
    });
    top += Math.max(...row.map((name) => heights.get(name))) + BELOW;
  });
  return {places, back, width: widest * (WIDTH + BESIDE) - BESIDE + 2 * EDGE + 40, height: top - BELOW + EDGE};
}

function draw(name, attributes, ...children) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

function line({places, back}, [source, target, label]) {
  const [from, to] = [places.get(source), places.get(target)];
  const [x1, y1, x2, y2] = [from.x + WIDTH / 2, from.y + from.height, to.x + WIDTH / 2, to.y];
  const isBack = back.has(`${source} ${target}`);
  const side = Math.max(from.x, to.x) + WIDTH + 24;
  const path = isBack
    ? `M ${from.x + WIDTH} ${from.y + HEIGHT / 2} C ${side} ${from.y + HEIGHT / 2} ${side} ${to.y + HEIGHT / 2} ${to.x + WIDTH} ${to.y + HEIGHT / 2}`
    : `M ${x1} ${y1} C ${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
  const short = label.length > MOST_CHARS ? `${label.slice(0, MOST_CHARS - 1)}…` : label;
  const middle = isBack ? {x: side - 8, y: (from.y + to.y + HEIGHT) / 2} : {x: x1 + (x2 - x1) * 0.62, y: y1 + (y2 - y1) * 0.62};
  const text = draw("text", {...middle, class: "label", "text-anchor": "middle", "dominant-baseline": "central"});
  text.textContent = visible(short);
  return [draw("path", {d: path, class: label ? "edge choice" : "edge", "marker-end": "url(#arrow)"}), text];
}

function box(name, place, state, kind) {
  const radius = kind === "end" ? HEIGHT / 2 : 6;
  return draw("g", {class: `node ${kind} ${state ?? "ahead"}`}, draw("rect", {x: place.x, y: place.y, width: WIDTH, height: place.height, rx: radius}), labelled(name, place, HEIGHT));
}

function labelled(name, {x, y}, height) {
  const label = draw("text", {x: x + WIDTH / 2, y: y + height / 2, "text-anchor": "middle", "dominant-baseline": "central"});
  label.textContent = visible(name.length > MOST_CHARS ? `${name.slice(0, MOST_CHARS - 1)}…` : name);
  return label;
}

function rowsIn(name, node, {x, y}, states) {
  return rowsOf(node).map(([text, inner], index) => {
    const top = y + HEIGHT + index * ROW;
    const rect = draw("rect", {x: x + GAP, y: top, width: WIDTH - 2 * GAP, height: ROW - 4, rx: 4});
    const state = inner === null ? "rest" : (states.get(`${name}/${inner}`) ?? "ahead");
    return draw("g", {class: `inner ${state}`}, rect, labelled(text, {x, y: top}, ROW - 4));
  });
}

/**
 * Create the picture of a graph, and a list of the same for those who do not see it. `states` are by node, and
 * by `<node>/<what is in it>`.
 */
export function picture(spec, states) {
  const edges = edgesOf(spec);
  const inner = Object.keys(spec.nodes);
  const ends = ["START", "END"].filter((end) => edges.some(([source, target]) => source === end || target === end));
  const names = [...ends.filter((end) => end === "START"), ...inner, ...ends.filter((end) => end === "END")];
  const known = edges.filter(([source, target]) => names.includes(source) && names.includes(target));
  const layout = placed(names, known, new Map(names.map((name) => [name, heightOf(spec.nodes[name])])));
  const lines = known.map((edge) => line(layout, edge));
  const arrow = draw("marker", {id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse"}, draw("path", {d: "M 0 0 L 8 4 L 0 8 z"}));
  const svg = draw(
    "svg",
    {viewBox: `0 0 ${layout.width} ${layout.height}`, width: layout.width, height: layout.height, role: "img", "aria-label": `The graph ${visible(spec.name)}`},
    draw("defs", {}, arrow),
    ...lines.map(([path]) => path),
    ...lines.map(([, text]) => text),
    ...names.map((name) => box(name, layout.places.get(name), states.get(name), ends.includes(name) ? "end" : (spec.nodes[name]?.kind ?? "function"))),
    ...inner.flatMap((name) => rowsIn(name, spec.nodes[name], layout.places.get(name), states)),
  );
  const said = (name, place = name) => `${name}: ${WORDS[states.get(place)] ?? "not reached"}`;
  const spoken = inner.map((name) => element("li", {}, said(name), innerOf(spec.nodes[name]).map((each) => `, in it ${said(each, `${name}/${each}`)}`)));
  return element("div", {class: "drawing"}, zoom(svg, layout.width), element("div", {class: "wide picture", tabindex: "0"}, svg), element("ul", {class: "hidden"}, ...spoken));
}

function zoom(svg, width) {
  const fit = () => {
    svg.style.maxWidth = scale === null ? "100%" : "none";
    svg.setAttribute("width", width * (scale ?? 1));
  };
  const by = (factor) => () => {
    scale = Math.min(MOST, Math.max(LEAST, (svg.getBoundingClientRect().width / width) * factor));
    fit();
  };
  const whole = () => {
    scale = null;
    fit();
  };
  fit();
  const tool = (id, label, act) => button([icon(id)], act, {id, class: "plain", "aria-label": label, title: label});
  return element("div", {class: "zoom"}, tool("zoom-out", "Zoom out", by(1 / STEP)), tool("zoom-in", "Zoom in", by(STEP)), tool("maximize", "Fit to the page", whole));
}
