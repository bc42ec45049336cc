// The table of neighbours: what each weighs and does, and how it differs from the row.

import { calm, make } from "./dom.js";
import { NOTHING, decimalsOf, fixed, percent } from "./format.js";

/** Columns, those first in which heavy neighbours differ most from the row. */
export function rank(columns, row, neighbors, formats) {
  const apart = new Map(columns.map((column) => [column, neighbors.reduce((sum, { row: other, weight }) =>
    sum + weight * Math.min(1, formats.difference(column, row[column.name], other[column.name]).apart), 0)]));
  return [...columns].sort((a, b) => apart.get(b) - apart.get(a));
}

const number = (words, bar) => make("td", {}, make("span", { class: "amount" }, words), bar);

const weightBar = (share) => make("i", { class: "bar", "--size": share, "aria-hidden": "true" });

function effectBar(share) {
  const side = share < 0 ? "minus" : "plus";
  return make("i", { class: `bar both ${side}`, "--size": Math.min(1, Math.abs(share)), "aria-hidden": "true" });
}

function cell(column, own, other, formats) {
  const { apart, words } = formats.difference(column, own, other);
  const grade = apart > 0.4 ? "far" : apart > 0.15 ? "off" : words ? "" : "equal";
  const difference = words && make("small", {}, words);
  return make("td", { class: `value ${grade}` }, formats.cell(column, other), difference);
}

/**
 * Draw the table. `state` has row, answer, columns, formats, added (id or null), own (id
 * of the example in the form, if it was not changed) and change (called with a neighbour,
 * or null if nothing may be changed).
 */
export function drawNeighbors(table, state) {
  const { row, answer, formats } = state;
  const { neighbors, others } = answer;
  const columns = rank(state.columns, row, neighbors, formats);
  const heaviest = Math.max(...neighbors.map((n) => n.weight), 1e-12);
  const largest = Math.max(...neighbors.map((n) => Math.abs(n.effect)), 1e-12);
  const effect = (value) => formats.effect(value, largest);
  const heads = ["Row", "Label", "Weight", "Effect", "Distance", ...columns.map((column) => column.name)];
  const own = make("tr", { class: "own" },
    make("th", { scope: "row" }, "This row"),
    make("td", { class: "number" }, formats.label ? formats.answer(answer.prediction) : formats.labelOf(answer.prediction)),
    make("td"), make("td"), make("td"),
    ...columns.map((column) => make("td", { class: "value" }, formats.cell(column, row[column.name]))));
  const lines = neighbors.map((n) => {
    const badge = n.id === state.added ? "added" : n.id === state.own ? "the same" : null;
    return make("tr", { "data-id": n.id, class: n.id === state.added ? "added" : null },
      make("th", { scope: "row" }, make("span", { class: "who" },
        make("span", {}, String(n.id), badge && make("span", { class: "badge" }, badge)),
        state.change && make("button", {
          type: "button", class: "more", "aria-label": `Change row ${n.id}`, title: "Relabel or remove",
          click: () => state.change(n),
        }, "⋯"))),
      make("td", { class: "number label" }, formats.labelOf(n.label)),
      number(percent(n.weight), weightBar(n.weight / heaviest)),
      number(effect(n.effect), effectBar(n.effect / largest)),
      make("td", { class: "number" }, fixed(n.distance, decimalsOf(n.distance, 3))),
      ...columns.map((column) => cell(column, row[column.name], n.row[column.name], formats)));
  });
  const rest = make("tr", {}, make("th", { scope: "row" }, `${others.count} others`),
    make("td", { class: "number" }, NOTHING), number(percent(others.weight)), number(effect(others.effect)),
    make("td", { colspan: columns.length + 1 }));
  const before = tops(table);
  table.replaceChildren(
    make("caption", { class: "unseen" }, "Neighbours of the row, heaviest first"),
    make("thead", {}, make("tr", {}, ...heads.map((head, k) =>
      make("th", { scope: "col", class: k === 2 || k === 3 ? "barred" : k > 0 ? "number" : null }, head)))),
    make("tbody", {}, own, ...lines),
    others.count > 0 && make("tfoot", {}, rest));
  glide(table, before);
}

const tops = (table) => new Map([...table.querySelectorAll("tr[data-id]")].map((line) =>
  [line.dataset.id, line.offsetTop]));

/** Let lines that have moved glide from where they were. */
function glide(table, before) {
  if (calm()) return;
  for (const line of table.querySelectorAll("tr[data-id]")) {
    const old = before.get(line.dataset.id);
    const shift = old === undefined ? 0 : old - line.offsetTop;
    const start = old === undefined ? { opacity: 0 } : { transform: `translateY(${shift}px)` };
    if (shift || (old === undefined && before.size)) line.animate([start, {}], { duration: 250, easing: "ease-out" });
  }
}

/** Draw predictions of several rows; `choose` is called with the number of one. */
export function drawBatch(table, { predictions, labels, chosen, formats, target, choose }) {
  const classes = !formats.label;
  const heads = ["Row", target ?? "Prediction", classes ? "Probability" : "Interval", "Typicality", labels && "Given label"];
  const lines = predictions.map((p, k) => make("tr", { class: k === chosen ? "chosen" : null },
    make("th", { scope: "row" }, make("button", {
      type: "button", class: "link", "aria-pressed": String(k === chosen), click: () => choose(k),
    }, `Show ${k + 1}`)),
    make("td", { class: "number" }, classes ? formats.labelOf(p.prediction) : formats.answer(p.prediction)),
    make("td", { class: "number" }, classes ? percent(p.chance) : p.interval ? p.interval.map((end) => formats.answer(end)).join(" to ") : NOTHING),
    make("td", { class: `number ${p.typicality < 0.05 ? "rare" : ""}` }, fixed(p.typicality, 2)),
    labels && make("td", { class: "number" }, labels[k] || NOTHING)));
  table.replaceChildren(
    make("caption", { class: "unseen" }, "Predictions of the pasted rows"),
    make("thead", {}, make("tr", {}, ...heads.filter(Boolean).map((head, k) =>
      make("th", { scope: "col", class: k ? "number" : null }, head)))),
    make("tbody", {}, ...lines));
}
