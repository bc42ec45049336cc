// The API, read off openapi.json: each route with an example that can be tried.

import { keepToken, token, watchAddress } from "./token.js";

const routes = document.getElementById("routes");
const problem = document.getElementById("problem");
const form = document.getElementById("token-form");

function headers(more = {}) {
  return token() ? { ...more, authorization: `Bearer ${token()}` } : more;
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function start() {
  problem.hidden = form.hidden = true;
  const answers = await Promise.all(
    ["/openapi.json", "/v1/model"].map((path) => fetch(path, { headers: headers() })),
  );
  if (answers.some((answer) => answer.status === 401)) {
    form.hidden = false;
    if (token()) say("That token is not the right one.");
    return;
  }
  const [description, model] = await Promise.all(answers.map((a) => a.json()));
  const row = Object.fromEntries(model.columns.map((c) => [c.name, c.example]));
  const label = model.classes ? model.classes[0] : 1;
  const examples = {
    "POST /v1/predict": { rows: [row] },
    "POST /v1/explain": { rows: [row], top: 3 },
    "POST /v1/candidates": { rows: [row], labels: [label] },
    "PATCH /v1/candidates": { ids: [0], labels: [label] },
    "DELETE /v1/candidates": { ids: [0] },
  };
  routes.replaceChildren(
    ...Object.entries(description.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, about]) =>
        show(method.toUpperCase(), path, about, examples),
      ),
    ),
  );
}

function say(text) {
  problem.textContent = text;
  problem.hidden = false;
}

function show(method, path, about, examples) {
  const example = examples[`${method} ${path}`];
  const body = element("div", { className: "body" });
  body.append(element("p", { textContent: about.description || about.summary }));
  const parameters = (about.parameters || []).map(
    (p) => `${p.name} (${p.in}${p.required ? ", required" : ""}): ${p.description || ""}`,
  );
  if (parameters.length) {
    body.append(element("h3", { textContent: "Parameters" }));
    body.append(element("pre", { textContent: parameters.join("\n") }));
  }
  if (example || method === "GET") body.append(...trial(method, path, example));
  else {
    const kinds = Object.keys(about.requestBody?.content || {}).join(" or ");
    if (kinds) body.append(element("p", { textContent: `The body is ${kinds}.` }));
  }
  const name = element("code", { textContent: path });
  const verb = element("span", { className: "method", textContent: method });
  return element("details", {}, element("summary", {}, verb, name), body);
}

function trial(method, path, example) {
  const parts = [];
  let input = null;
  if (example) {
    input = element("textarea", { value: JSON.stringify(example, null, 1) });
    input.spellcheck = false;
    input.setAttribute("aria-label", `Body of ${method} ${path}`);
    parts.push(element("h3", { textContent: "Body" }), input);
  }
  const output = element("pre", { hidden: true });
  output.setAttribute("aria-live", "polite");
  const button = element("button", { type: "button", textContent: "Try it" });
  button.addEventListener("click", async () => {
    const options = { method, headers: headers() };
    if (input) {
      options.headers = headers({ "content-type": "application/json" });
      options.body = input.value;
    }
    const answer = await fetch(path, options);
    const text = await answer.text();
    let shown = text;
    try {
      shown = JSON.stringify(JSON.parse(text), null, 1);
    } catch {
      // not every answer is JSON
    }
    output.textContent = `${answer.status} ${answer.statusText}\n${shown}`;
    output.hidden = false;
  });
  return [...parts, button, output];
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(document.getElementById("token").value);
  start().catch((error) => say(String(error)));
});

watchAddress(() => location.reload());
start().catch(() => say("The service cannot be reached."));
