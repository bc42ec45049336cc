// The page of `tabr serve`: ask, show, and ask again when something changes.

import { Api, newKey } from "./api.js";
import { readTable } from "./csv.js";
import { Canvas, find, make, say } from "./dom.js";
import { Formats } from "./format.js";
import { RowForm, makeField } from "./form.js";
import { drawBatch, drawNeighbors } from "./neighbors.js";
import { drawMap, drawSteps } from "./pictures.js";
import { complete, drawAnswer } from "./result.js";

const TOP = 12; // neighbours shown one by one
const WAIT = 150; // milliseconds after the last change before the server is asked
const EXAMPLES = 40;
const MOST_PASTED = 500;

const api = new Api(askToken);
const steps = new Canvas(find("steps"));
const map = new Canvas(find("map"));
const page = { model: null, formats: null, form: null, label: null, examples: [], batch: null };
const shown = { row: null, answer: null, own: null, added: null };
let timer = null;
let asking = new AbortController();

// --- trouble ------------------------------------------------------------------------

let again = start; // what the button of the banner does

function showBanner(words, retry) {
  again = retry;
  find("banner-text").textContent = words;
  find("banner").hidden = false;
}

/** Show a failure where it belongs: at a field, under the form, or in the banner. */
function report(failure, retry) {
  if (failure.name === "AbortError") return;
  if (failure.status === undefined) throw failure; // a mistake of ours, for the console
  const isTheirs = failure.status >= 400 && failure.status < 500 && failure.status !== 401;
  if (isTheirs && page.form) say(find("form-error"), page.form.complain(failure));
  else showBanner(failure.status === 0 ? `${failure.message} What you see may be out of date.` : failure.message, retry);
}

async function guarded(action, retry = () => guarded(action)) {
  try {
    await action();
    find("banner").hidden = true;
  } catch (failure) {
    report(failure, retry);
  }
}

// --- asking -------------------------------------------------------------------------

function askSoon() {
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
}

/** Ask about the row in the form; an answer to an older question is dropped. */
async function ask() {
  clearTimeout(timer);
  asking.abort();
  if (!page.form.isReadable) return;
  const mine = asking = new AbortController();
  const row = page.form.row;
  find("main").setAttribute("aria-busy", "true");
  await guarded(async () => {
    const said = await api.call("POST", "v1/explain", { rows: [row], top: TOP }, { signal: mine.signal });
    if (mine !== asking) return;
    say(find("form-error"), page.form.complain(null));
    Object.assign(shown, { row, answer: complete(said.explanations[0]) });
    draw();
    if (said.version !== page.model.version) await refreshModel();
  }, ask);
  if (mine === asking) find("main").removeAttribute("aria-busy");
}

async function refreshModel() {
  Object.assign(page.model, await api.call("GET", "v1/model"));
  drawAbout();
}

// --- drawing ------------------------------------------------------------------------

function draw() {
  if (!shown.answer) return;
  drawAnswer(shown.answer, page.formats, page.model);
  drawPictures();
  drawNeighbors(find("neighbors"), {
    ...shown, ...page, columns: page.model.columns, change: mayWrite() ? changeNeighbor : null,
  });
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
  find("library").textContent = `tabr ${model.library}`;
}

const mayWrite = () => page.model.rights === "write";

// --- the row ------------------------------------------------------------------------

function fill(row, own = null) {
  shown.own = own;
  page.form.row = row;
  find("example-note").textContent = own === null ? ""
    : "This row is in the memory, so it finds itself. Change a value for a fair guess.";
  ask();
}

function typicalOf(column) {
  const { decimals = 3 } = page.formats.usual.get(column.name) ?? {};
  if (column.median !== null) return Number(column.median.toFixed(decimals));
  return column.levels?.[0] ?? column.example;
}

function fillExamples() {
  const { model, formats, examples } = page;
  const typical = Object.fromEntries(model.columns.map((column) => [column.name, typicalOf(column)]));
  const sorted = [...examples].sort((a, b) => (a.label > b.label) - (a.label < b.label));
  const options = sorted.map((example) => make("option", { value: example.id }, `Row ${example.id}: ${formats.labelOf(example.label)}`));
  const select = find("example");
  select.replaceChildren(make("option", { value: "typical" }, "Typical values"),
    make("option", { value: "empty" }, "Nothing known"),
    make("option", { value: "own", hidden: true }, "Your own values"),
    make("optgroup", { label: "Rows of the memory" }, ...options));
  select.onchange = () => {
    const example = examples.find(({ id }) => String(id) === select.value);
    if (example) fill(example.row, example.id);
    else fill(select.value === "typical" ? typical : {});
  };
  fill(typical);
}

function onInput() {
  shown.own = null;
  find("example").value = "own";
  find("example-note").textContent = "";
  askSoon();
}

// --- pasted tables ------------------------------------------------------------------

async function readCsv() {
  let table;
  try {
    table = readTable(find("csv").value, page.model.columns, page.model.target);
  } catch (error) {
    find("csv-note").textContent = error.message;
    return;
  }
  const most = table.rows.length > MOST_PASTED ? ` Only the first ${MOST_PASTED} are predicted.` : "";
  find("csv-note").textContent = table.note + most;
  const rows = table.rows.slice(0, MOST_PASTED);
  page.batch = null;
  find("batch").hidden = true;
  find("example").value = "own";
  fill(rows[0]);
  if (table.labels) page.label.value = page.label.parse(table.labels[0]);
  if (rows.length > 1) await guarded(() => askBatch(rows, table.labels), readCsv);
}

async function askBatch(rows, labels) {
  const said = await api.call("POST", "v1/predict", { rows });
  page.batch = { rows, labels, predictions: said.predictions.map(complete), chosen: 0 };
  showBatch();
}

function showBatch() {
  const { batch, formats, model } = page;
  find("batch").hidden = false;
  drawBatch(find("batch-table"), {
    ...batch, formats, target: model.target,
    choose: (k) => {
      batch.chosen = k;
      find("example").value = "own";
      fill(batch.rows[k]);
      if (batch.labels) page.label.value = page.label.parse(batch.labels[k]);
      showBatch();
      find("batch-table").querySelectorAll("button")[k].focus();
    },
  });
}

// --- the memory ---------------------------------------------------------------------

/** A field for a label: classes to choose from, or a number. */
function labelField(name) {
  const { model, formats } = page;
  const column = { name, kind: model.classes ? "categorical" : "numeric", levels: model.classes, low: null, high: null };
  return makeField(column, formats.label, () => {});
}

/** Send a change once: a second try after a failure has the same key. */
async function change(method, body) {
  const content = method + JSON.stringify(body);
  if (change.content !== content) Object.assign(change, { content, key: newKey() });
  const said = await api.call(method, "v1/candidates", body, { key: change.key });
  change.content = null;
  Object.assign(page.model, { version: said.version, n_candidates: said.n_candidates });
  drawAbout();
  return said.ids[0];
}

function done(words, undo) {
  find("done-text").textContent = words;
  find("done").hidden = false;
  find("undo").hidden = !undo;
  find("undo").onclick = () => guarded(async () => {
    const told = await undo();
    shown.added = null;
    done(told, null);
    await ask();
  });
}

async function add(event) {
  event.preventDefault();
  const [row, label] = [page.form.row, page.label.value];
  if (label === null || page.label.isUnreadable || !page.form.isReadable) {
    page.label.complain("A row is remembered with its label: enter it.");
    page.label.box.querySelector("input, select").focus();
    return;
  }
  await guarded(async () => {
    const id = await change("POST", { rows: [row], labels: [label] });
    shown.added = id;
    await ask();
    const isNear = shown.answer.neighbors.some((neighbor) => neighbor.id === id);
    done(`Remembered as row ${id}.${isNear ? "" : ` It is not among the ${TOP} heaviest neighbours here.`}`, async () => {
      await change("DELETE", { ids: [id] });
      return `Row ${id} is forgotten again.`;
    });
  }, () => add(event));
}

/** The small menu of a neighbour: another label, or away with it. */
async function changeNeighbor(neighbor) {
  const dialog = find("change-dialog");
  const { id, label, row } = neighbor;
  const field = labelField("Label");
  find("change-title").textContent = `Row ${id}`;
  find("change-field").replaceChildren(...field.box.childNodes);
  find("confirm-remove").hidden = true;
  find("ask-remove").hidden = false;
  field.value = label;
  const choice = await open(dialog);
  const value = field.value;
  find("scroll").focus({ preventScroll: true });
  if (choice === "remove") {
    await guarded(async () => {
      await change("DELETE", { ids: [id] });
      await ask();
      done(`Row ${id} is forgotten.`, async () =>
        `Remembered again, as row ${await change("POST", { rows: [row], labels: [label] })}.`);
    });
  } else if (choice === "relabel" && value !== null && value !== label) {
    const relabel = (to) => change("PATCH", { ids: [id], labels: [to] });
    await guarded(async () => {
      await relabel(value);
      await ask();
      done(`Row ${id} now has the label ${page.formats.labelOf(value)}.`, async () => {
        await relabel(label);
        return `Row ${id} has its old label again.`;
      });
    });
  }
}

// --- dialogs ------------------------------------------------------------------------

/** Open a dialog; resolves to the value of the button that closed it, or "". */
function open(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

async function askToken(wasWrong) {
  find("token-note").textContent = wasWrong ? "That token was not accepted." : "It is kept until you close this tab.";
  find("token").value = "";
  const choice = await open(find("token-dialog"));
  return choice ? find("token").value.trim() : null;
}

// --- start --------------------------------------------------------------------------

async function start() {
  await guarded(async () => {
    const model = await api.call("GET", "v1/model");
    const { rows } = await api.call("GET", `v1/candidates?n=${EXAMPLES}`);
    const formats = new Formats(model, rows);
    Object.assign(page, { model, formats, examples: rows });
    page.form = new RowForm(find("fields"), model.columns, formats, onInput);
    page.label = labelField(model.target ?? "Label");
    find("label-field").replaceWith(page.label.box);
    page.label.box.id = "label-field";
    find("add").hidden = !mayWrite();
    find("read-only").hidden = mayWrite();
    find("place").hidden = !model.place;
    drawAbout();
    find("main").hidden = false;
    fillExamples();
  }, start);
}

find("retry").addEventListener("click", () => again());
find("fields").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
find("add").addEventListener("submit", add);
find("read-csv").addEventListener("click", readCsv);
find("ask-remove").addEventListener("click", () => {
  find("ask-remove").hidden = true;
  find("confirm-remove").hidden = false;
  find("confirm-remove").querySelector("button").focus();
});
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}

// The same neighbour is marked wherever it is shown.
document.addEventListener("pointerover", ({ target }) => {
  const id = target.closest?.("[data-id]")?.dataset.id;
  for (const mark of document.querySelectorAll("[data-id]")) mark.classList.toggle("hot", mark.dataset.id === id);
});
new ResizeObserver(drawPictures).observe(document.querySelector(".pictures"));
start();
