// The sign-in page: says who is signed in, signs in with a token, and signs out. Where the page leads next
// was checked by the service.

const at = (id) => document.getElementById(id);

async function call(path, options = {}) {
  const headers = {Accept: "application/json"};
  if (options.method) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {...options, headers, cache: "no-store", credentials: "same-origin"});
  const content = await response.json().catch(() => ({}));
  return {ok: response.ok, content};
}

function show(problem) {
  at("problem").textContent = problem;
  at("problem").hidden = problem === "";
}

async function showWho() {
  const {ok, content} = await call("/me");
  at("me").hidden = !ok || content.authenticated_by === "nothing";
  if (!ok) return;
  at("who").textContent = `You are ${content.subject}.`;
  at("sign-out").hidden = content.authenticated_by !== "session";
}

at("with-token").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  const {ok, content} = await call("/signin", {method: "POST", body: JSON.stringify({token})});
  at("token").value = "";
  if (ok) window.location.assign(document.body.dataset.next);
  else show(content.detail ?? "The service did not respond: try again.");
});

at("sign-out").addEventListener("click", async () => {
  await call("/signout", {method: "POST", body: "{}"});
  window.location.reload();
});

showWho();
