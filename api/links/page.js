// The page of a personal link: the answer is sent to the address of the page.

import {card} from "/inbox/card.js";
import {Fault, jsonForm, showFaults} from "/inbox/form.js";
import {parse, write} from "/inbox/json.js";
import {at, button, clock, element, visible} from "/inbox/markup.js";

const form = at("answer");

function say(problem) {
  at("problem").textContent = visible(problem);
}

async function send(answer) {
  const response = await fetch(location.pathname, {
    method: "POST",
    headers: {"Content-Type": "application/json", Accept: "application/json"},
    body: write(answer),
    cache: "no-store",
    credentials: "omit",
  });
  const content = parse((await response.text()) || "{}");
  return {ok: response.ok, content};
}

function open(question) {
  let way = card(question);
  const note = element("input", {id: "note", autocomplete: "off", maxlength: 2000});
  const raw = element("input", {type: "checkbox"});
  const place = element("div");
  const buttons = element("p", {class: "buttons"});

  async function submit(kind) {
    say("");
    try {
      const answer = {response: way.ways.find((each) => each.kind === kind).read()};
      if (note.value.trim()) answer.note = note.value.trim();
      const {ok, content} = await send(answer);
      if (ok) return done(content.receipts[0]);
      const left = content.code === "invalid_answer" ? way.show(content.errors ?? []) : [content];
      if (left.length) say(content.detail ?? "The service did not respond: try again.");
    } catch (error) {
      say(error instanceof Fault ? showFaults(error).join("\n") : "The service was not reached: try again.");
    }
  }

  function done(receipt) {
    let text = "Your answer was accepted.";
    if (receipt.status === "voted") text = `Your vote was counted. Approvals that are missing: ${receipt.missing}.`;
    if (receipt.status === "held") text = `Your answer was accepted. What it allows begins at ${clock(receipt.held_until)}: sign in to take it back before.`;
    if (receipt.asked_again) text = "You changed the call, so it is asked again: sign in to approve what would happen now. Nothing is done before that.";
    at("status").textContent = visible(receipt.replayed ? "You have answered this before." : text);
    form.hidden = true;
  }

  function draw() {
    way.parts.send = submit;
    place.replaceChildren(...way.parts.filter(Boolean));
    buttons.replaceChildren(...way.ways.filter(({label}) => label).map(({label, kind}) => button(label, () => submit(kind), {class: kind === "reject" ? "reject" : "send"})));
  }

  raw.addEventListener("change", () => {
    const json = raw.checked ? jsonForm() : null;
    way = json ? {parts: [json.element], show: json.show, ways: [{label: "Send answer", kind: "answer", read: json.read}]} : card(question);
    draw();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (way.ways.length === 1) submit(way.ways[0].kind);
  });
  draw();
  form.append(
    place,
    element("details", {},
      element("summary", {}, "Note, or the answer as JSON"),
      element("div", {class: "field"}, element("label", {for: "note"}, "Note (kept with the answer)"), note),
      element("p", {}, element("label", {}, raw, " Write the answer as JSON")),
    ),
    buttons,
  );
  form.hidden = false;
}

if (form.dataset.question) open(parse(form.dataset.question));
