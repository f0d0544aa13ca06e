// Who reads: the name of a signed-in reader, or a field for one where the service has no authentication.

import {me, rename, signOut} from "./api.js";
import {at, button, element} from "./markup.js";

/** Show the reader; `changed()` is called when they took another name. */
export function showReader(changed) {
  if (me.authenticated_by !== "nothing") {
    const text = me.groups.length ? `You are ${me.subject} (${me.groups.join(", ")})` : `You are ${me.subject}`;
    at("who").replaceChildren(element("span", {id: "me"}, text), button("Sign out", signOut, {class: "plain"}));
    return;
  }
  const name = element("input", {id: "name", autocomplete: "off", spellcheck: "false", placeholder: "local"});
  name.value = me.subject === "local" ? "" : me.subject;
  const form = element("form", {}, element("label", {for: "name"}, "Your name"), name, element("button", {}, "Use"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await rename(name.value.trim());
    await changed();
  });
  at("who").replaceChildren(form);
}
