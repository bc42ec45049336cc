// The page of `tabr serve`: ask, show, and ask again when something changes.

import { Api } from "./api.js";
import { readTable } from "./csv.js";
import { Canvas, find, make, open, say } from "./dom.js";
import { Formats, completed } from "./format.js";
import { RowForm, labelField } from "./form.js";
import { drawMap } from "./map.js";
import { Changes } from "./changes.js";
import { drawBatch, drawNeighbors } from "./neighbors.js";
import { drawSteps } from "./pictures.js";
import { drawAnswer, withChance } from "./result.js";
import { watchAddress } from "./token.js";

const TOP = 12; // neighbours shown one by one
const WAIT = 150; // milliseconds after the last change before the server is asked
const EXAMPLES = 40;
const MOST_PASTED = 500;

const api = new Api(askToken);
const steps = new Canvas(find("steps"));
const map = new Canvas(find("map"));
// Once loaded: model, columns, formats, examples, form, label and changes.
const page = { ask, guarded, drawAbout };
// What is on the screen; exampleId is set while the row is an unchanged example.
const shown = { row: null, answer: null, exampleId: null };
let timer = null;
let asking = new AbortController();

// --- trouble ------------------------------------------------------------------------

let again = start; // what the button of the banner does

/** Show a failure where it belongs: at a field, under the form, or in the banner. */
function report(failure, retry) {
  if (failure.name === "AbortError") return;
  if (failure.status === undefined) throw failure; // a mistake of ours, for the console
  const isTheirs = failure.status >= 400 && failure.status < 500 && failure.status !== 401;
  if (isTheirs && page.form) {
    if (failure.label) page.label.complain(failure.label);
    say(find("form-error"), page.form.complain(failure));
    return;
  }
  const stale = failure.status === 0 && shown.answer ? " What you see may be out of date." : "";
  again = retry;
  find("banner-text").textContent = failure.message + stale;
  find("banner").hidden = false;
}

async function guarded(action, retry = () => guarded(action)) {
  try {
    await action();
    find("banner").hidden = true;
  } catch (failure) {
    report(failure, retry);
  }
}

async function askToken(wasWrong) {
  find("token-note").textContent = wasWrong
    ? "That token was not accepted. A service makes a new one whenever it starts without one."
    : "It is kept until you close this tab.";
  find("token").value = "";
  return (await open(find("token-dialog"))) ? find("token").value.trim() : null;
}

// --- asking and drawing -------------------------------------------------------------

function askSoon() {
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
}

/** Ask about the row in the form; an answer to an older question is dropped. */
async function ask() {
  clearTimeout(timer);
  asking.abort();
  if (!page.form.isReadable) return;
  const request = asking = new AbortController();
  const row = page.form.row;
  find("main").setAttribute("aria-busy", "true");
  await guarded(async () => {
    const question = { rows: [row], top: TOP };
    const result = await api.call("POST", "v1/explain", question, { signal: request.signal });
    if (request !== asking) return;
    say(find("form-error"), page.form.complain(null));
    Object.assign(shown, { row, answer: withChance(result.explanations[0]) });
    draw();
    if (result.version !== page.model.version) await refreshModel();
  }, ask);
  if (request === asking) find("main").removeAttribute("aria-busy");
}

/** Somebody else has changed the memory. */
async function refreshModel() {
  Object.assign(page.model, await api.call("GET", "v1/model"));
  drawAbout();
}

function draw() {
  const { changes, columns, formats, model } = page;
  drawAnswer(shown.answer, formats, model);
  drawPictures();
  const change = model.rights === "write" ? (neighbor) => changes.menu(neighbor) : null;
  drawNeighbors(find("neighbors"), { ...shown, columns, formats, change, added: changes.added });
}

function drawPictures() {
  if (!shown.answer) return;
  drawSteps(steps, shown.answer, page.formats);
  if (!page.model.place) return;
  const words = drawMap(map, shown.row, shown.answer, page.model.place, page.formats);
  find("map-words").textContent = words ?? "The row has no place yet.";
}

function drawAbout() {
  const { model } = page;
  const name = model.target ?? "the answer";
  document.title = `Predict ${name} · tabr`;
  find("title").textContent = `Predict ${name}`;
  find("target").textContent = model.target ?? "Prediction";
  find("about").textContent = `From ${model.n_candidates.toLocaleString("en")} remembered rows. `
    + "Change a value and see which of them speak for the answer.";
  find("made-by").textContent = `tabr ${model.tabr}`;
}

// --- the row ------------------------------------------------------------------------

function fill(row, source, exampleId = null) {
  shown.exampleId = exampleId;
  page.form.row = row;
  find("example").value = source;
  find("example-note").textContent = exampleId === null ? ""
    : "This row is in the memory, so it finds itself. Change a value for a fair guess.";
  ask();
}

function onInput() {
  shown.exampleId = null;
  find("example").value = "own";
  find("example-note").textContent = "";
  askSoon();
}

function typicalRow() {
  return Object.fromEntries(page.columns.map(({ name, median, levels, example }) => {
    const { decimals = 3 } = page.formats.usual.get(name) ?? {};
    const typical = median === null ? levels?.[0] ?? example : Number(median.toFixed(decimals));
    return [name, typical];
  }));
}

function offerExamples() {
  const { examples, formats } = page;
  const sorted = [...examples].sort((a, b) => (a.label > b.label) - (a.label < b.label));
  const select = find("example");
  select.replaceChildren(
    make("option", { value: "typical" }, "Typical values"),
    make("option", { value: "empty" }, "Nothing known"),
    make("option", { value: "own", hidden: true }, "Your own values"),
    make("optgroup", { label: "Rows of the memory" }, ...sorted.map(({ id, label }) =>
      make("option", { value: id }, `Row ${id}: ${formats.labelOf(label)}`))));
  select.onchange = () => {
    const source = select.value;
    const example = examples.find(({ id }) => String(id) === source);
    if (example) fill(example.row, source, example.id);
    else fill(source === "typical" ? typicalRow() : {}, source);
  };
}

// --- pasted tables ------------------------------------------------------------------

async function readCsv() {
  const note = find("csv-note");
  let table;
  try {
    table = readTable(find("csv").value, page.columns, page.label.column);
  } catch (error) {
    note.textContent = error.message;
    return;
  }
  const isLong = table.rows.length > MOST_PASTED;
  note.textContent = table.note + (isLong ? ` The first ${MOST_PASTED} are predicted.` : "");
  table.rows.length = Math.min(table.rows.length, MOST_PASTED);
  find("batch").hidden = true;
  choose(table, 0);
  if (table.rows.length === 1) return;
  await guarded(async () => {
    try {
      const result = await api.call("POST", "v1/predict", { rows: table.rows });
      table.predictions = result.predictions.map(withChance);
      showBatch(table, 0);
    } catch (failure) {
      if (failure.status !== 422) throw failure;
      const [[name, words] = []] = failure.columns;
      note.textContent = name ? `Row ${failure.row + 1}, ${name}: ${words}` : failure.message;
    }
  }, readCsv);
}

/** Put a pasted row into the form. */
function choose(table, k) {
  fill(table.rows[k], "own");
  if (table.labels) page.label.value = table.labels[k];
}

function showBatch(table, chosen) {
  find("batch").hidden = false;
  const target = page.model.target ?? "Prediction";
  drawBatch(find("batch-table"), { ...table, chosen, target, formats: page.formats }, (k) => {
    choose(table, k);
    showBatch(table, k);
    find("batch-table").querySelectorAll("button")[k].focus();
  });
}

// --- start --------------------------------------------------------------------------

async function start() {
  await guarded(async () => {
    const model = await api.call("GET", "v1/model");
    const { rows: examples } = await api.call("GET", `v1/candidates?n=${EXAMPLES}`);
    const columns = model.columns.map(completed);
    const formats = new Formats(model, columns, examples);
    Object.assign(page, { model, columns, formats, examples });
    page.form = new RowForm(find("fields"), columns, formats, onInput);
    page.label = labelField(model.target ?? "Label", model.classes, formats);
    page.changes = new Changes(api, page, shown);
    find("label-field").replaceChildren(page.label.box);
    find("add").hidden = model.rights !== "write";
    find("read-only").hidden = model.rights === "write";
    find("place").hidden = !model.place;
    drawAbout();
    find("main").hidden = false;
    offerExamples();
    fill(typicalRow(), "typical");
  }, start);
}

find("retry").addEventListener("click", () => again());
find("fields").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
find("read-csv").addEventListener("click", readCsv);
find("add").addEventListener("submit", (event) => {
  event.preventDefault();
  page.changes.add();
});
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}
// The same neighbour is marked wherever it is shown.
document.addEventListener("pointerover", ({ target }) => {
  const id = target.closest?.("[data-id]")?.dataset.id;
  for (const mark of document.querySelectorAll("[data-id]")) {
    mark.classList.toggle("hot", mark.dataset.id === id);
  }
});
new ResizeObserver(drawPictures).observe(document.querySelector(".pictures"));
watchAddress(() => location.reload());
start();
