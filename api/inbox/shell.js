// What every page has: the product, the way to the other pages, its own state, and who reads.

import {identify, me, Problem, problemText, rename, signInAddress, signOut} from "./api.js";
import {at, avatar, button, element, icon, visible} from "./markup.js";

const PAGES = [
  ["/inbox?tab=open", "Inbox", "inbox"],
  ["/inbox/runs", "Runs", "activity"],
  ["/inbox/approvals", "Approvals", "clipboard-check"],
  ["/inbox/grants", "Grants", "key-round"],
];

/**
 * Show the header of a page and find out who reads it; `changed()` is called when they took another name.
 * Returns false if they have to sign in first, or the service is away.
 */
export async function begin(title, changed) {
  document.title = `${title} · Abeyance`;
  const skip = (event) => {
    event.preventDefault();
    at("main").focus();
  };
  const isListed = PAGES.some(([, name]) => name === title);
  at("top").replaceChildren(...[
    element("a", {class: "skip", href: "#main", onclick: skip}, "Skip to the content"),
    element("a", {class: "brand", href: "/inbox?tab=open"}, element("img", {src: "/inbox/icon.svg", alt: "", width: 20, height: 20}), element("span", {}, "Abeyance")),
    element("nav", {"aria-label": "Pages"}, ...PAGES.map(([href, name, sign]) =>
      element("a", {href, "aria-current": name === title && "page"}, icon(sign), element("span", {}, name)))),
    isListed ? element("h1", {class: "hidden"}, title) : null,
    element("p", {id: "state", role: "status"}, "Loading"),
    element("div", {id: "who"}),
  ].filter(Boolean));
  try {
    await identify();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) location.replace(signInAddress());
    else say(problemText(error));
    return false;
  }
  showReader(changed);
  return true;
}

/** Say what state the page is in. */
export function say(text) {
  if (at("state").textContent !== text) at("state").textContent = visible(text);
}

function showReader(changed) {
  if (me.authenticated_by !== "nothing") {
    const text = me.groups.length ? `You are ${me.subject} (${me.groups.join(", ")})` : `You are ${me.subject}`;
    at("who").replaceChildren(avatar(me.subject), element("span", {id: "me", title: visible(text)}, me.subject), button("Sign out", signOut, {class: "plain"}));
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
