// The page of a personal link: the form for the answer, which is sent to the address of the page.

import {answerForm, element, Fault, jsonForm, visible} from "/inbox/form.js";

const at = (id) => document.getElementById(id);

const form = at("answer");

function show(problem) {
  at("problem").textContent = visible(problem);
}

async function send(answer) {
  const response = await fetch(location.pathname, {
    method: "POST",
    headers: {"Content-Type": "application/json", Accept: "application/json"},
    body: JSON.stringify(answer),
    cache: "no-store",
    credentials: "omit",
  });
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.detail ?? "The service did not respond: try again.");
  return content.receipts[0];
}

function open({schema, shown}) {
  let fields = answerForm(schema, shown);
  const place = element("div", {}, fields.element);
  const raw = element("input", {type: "checkbox", id: "raw"});
  const note = element("input", {id: "note", autocomplete: "off"});
  const button = element("button", {}, "Send answer");
  form.append(
    place,
    element("label", {for: "raw"}, raw, " Answer in JSON"),
    element("label", {for: "note"}, "Note (stored with the answer)"),
    note,
    element("div", {}, button),
  );
  raw.addEventListener("change", () => {
    fields = raw.checked ? jsonForm() : answerForm(schema, shown);
    place.replaceChildren(fields.element);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    show("");
    button.disabled = true;
    try {
      const answer = {response: fields.read()};
      if (note.value.trim()) answer.note = note.value.trim();
      const receipt = await send(answer);
      const done = receipt.status === "voted" ? "Your vote was counted." : "Your answer was accepted.";
      at("status").textContent = receipt.replayed ? "You have answered this before." : done;
      form.hidden = true;
    } catch (error) {
      if (error instanceof Fault) error.element?.focus();
      show(error instanceof TypeError ? "The service was not reached: try again." : error.message);
    } finally {
      button.disabled = false;
    }
  });
  form.hidden = false;
}

if (form.dataset.form) open(JSON.parse(form.dataset.form));
