// Tables: neighbours with what each weighs and does, and predictions of pasted rows.

import { calm, make } from "./dom.js";
import { NOTHING, decimalsOf, fixed, percent } from "./format.js";
import { RARE } from "./result.js";

const OFF = 0.15; // of what is usual in a column: a difference to notice
const FAR = 0.4; // and a large one

/** Columns, those first in which heavy neighbours differ most from the row. */
function ranked({ columns, row, answer, formats }) {
  const apart = (column) => answer.neighbors.reduce((sum, { row: other, weight }) => {
    const { apart: size } = formats.difference(column, row[column.name], other[column.name]);
    return sum + weight * Math.min(1, size);
  }, 0);
  const sizes = new Map(columns.map((column) => [column, apart(column)]));
  return [...columns].sort((a, b) => sizes.get(b) - sizes.get(a));
}

const number = (words, className = "") => make("td", { class: `number ${className}` }, words);

const barred = (words, bar) => make("td", {}, make("span", { class: "amount" }, words), bar);

const bar = (size, className = "") => make("i", {
  class: `bar ${className}`, "--size": Math.abs(size), "aria-hidden": "true",
});

function cell(column, rowValue, neighborValue, formats) {
  const { apart, words } = formats.difference(column, rowValue, neighborValue);
  const grade = apart > FAR ? "far" : apart > OFF ? "off" : words ? "" : "equal";
  const value = formats.cell(column, neighborValue);
  const title = value.length > 24 ? value : null;
  return make("td", { class: `value ${grade}`, title }, value, words && make("small", {}, words));
}

function head(names, classOf) {
  return make("thead", {}, make("tr", {}, ...names.map((name, k) =>
    make("th", { scope: "col", class: classOf(k) }, name))));
}

/**
 * Draw the table. `state` has row, answer, columns, formats, added and exampleId (ids or null)
 * and change (called with a neighbour; null if nothing may be changed).
 */
export function drawNeighbors(table, state) {
  const { row, answer, formats } = state;
  const { neighbors, others } = answer;
  const columns = ranked(state);
  const heaviest = Math.max(...neighbors.map((n) => n.weight), 1e-12);
  const largest = Math.max(...neighbors.map((n) => Math.abs(n.effect)), 1e-12);
  const effect = (value) => formats.effect(value, largest);
  const rowLine = make("tr", { class: "own" },
    make("th", { scope: "row" }, "This row"), number(formats.labelOf(answer.prediction)),
    make("td", { colspan: 3 }),
    ...columns.map((column) =>
      make("td", { class: "value" }, formats.cell(column, row[column.name]))));
  const line = (n) => make("tr", { "data-id": n.id, class: n.id === state.added && "added" },
    nameCell(n, state),
    number(formats.labelOf(n.label)),
    barred(percent(n.weight), bar(n.weight / heaviest)),
    barred(effect(n.effect), bar(n.effect / largest, n.effect < 0 ? "both minus" : "both plus")),
    number(fixed(n.distance, decimalsOf(n.distance, 3))),
    ...columns.map((column) => cell(column, row[column.name], n.row[column.name], formats)));
  const rest = make("tr", {}, make("th", { scope: "row" }, `${others.count} others`),
    number(NOTHING), barred(percent(others.weight)), barred(effect(others.effect)),
    make("td", { colspan: columns.length + 1 }));
  const nobody = make("tr", {}, make("td", { colspan: columns.length + 5, class: "nobody" },
    "No remembered row may be its neighbour."));
  const names = ["Row", "Label", "Weight", "Effect", "Distance",
    ...columns.map(({ name }) => name)];
  const before = tops(table);
  table.replaceChildren(
    make("caption", { class: "unseen" }, "Neighbours of the row, heaviest first"),
    head(names, (k) => (k === 2 || k === 3 ? "barred" : k > 0 && "number")),
    make("tbody", {}, rowLine, ...neighbors.map(line)),
    make("tfoot", {}, others.count > 0 && rest, !neighbors.length && nobody));
  glide(table, before);
}

/** The first cell of a line: the id, what is special, and the way to the menu. */
function nameCell(neighbor, { added, exampleId, change }) {
  const { id } = neighbor;
  const badge = id === added ? "added" : id === exampleId ? "the same" : null;
  return make("th", { scope: "row" }, make("span", { class: "who" },
    make("span", {}, String(id), badge && make("span", { class: "badge" }, badge)),
    change && make("button", {
      type: "button", class: "more", "aria-label": `Change row ${id}`,
      title: "Relabel or remove", click: () => change(neighbor),
    }, "⋯")));
}

const tops = (table) => new Map([...table.querySelectorAll("tr[data-id]")].map((line) =>
  [line.dataset.id, line.offsetTop]));

/** Let lines that have moved glide from where they were, and new ones appear. */
function glide(table, before) {
  if (calm() || !before.size) return;
  for (const line of table.querySelectorAll("tr[data-id]")) {
    const old = before.get(line.dataset.id);
    const start = old === undefined ? { opacity: 0 }
      : { transform: `translateY(${old - line.offsetTop}px)` };
    if (old !== line.offsetTop) line.animate([start, {}], { duration: 250, easing: "ease-out" });
  }
}

/** Draw predictions of several rows; `choose` is called with the number of one. */
export function drawBatch(table, { predictions, labels, chosen, formats, target }, choose) {
  const sure = ({ chance, interval }) => (interval
    ? interval.map((end) => formats.answer(end)).join(" to ") : percent(chance));
  const lines = predictions.map((result, k) => make("tr", { class: k === chosen && "chosen" },
    make("th", { scope: "row" }, make("button", {
      type: "button", class: "link", "aria-pressed": String(k === chosen), click: () => choose(k),
    }, `Row ${k + 1}`)),
    number(formats.labelOf(result.prediction)), number(sure(result)),
    number(fixed(result.typicality, 2), result.typicality < RARE ? "rare" : ""),
    labels && number(formats.labelOf(labels[k]))));
  const names = ["Show", target, formats.label ? "Interval" : "Probability", "Typicality",
    ...(labels ? ["Given label"] : [])];
  table.replaceChildren(
    make("caption", { class: "unseen" }, "Predictions of the pasted rows"),
    head(names, (k) => k > 0 && "number"), make("tbody", {}, ...lines));
}
