// Two pictures: the way from the usual value to the prediction, and a map.

import { percent, fixed, decimalsOf } from "./format.js";

const ROW = 32; // height of a line of the first picture
const SWARM = 58; // and of a line of dots

/** Round steps that cover low to high. */
export function ticks(low, high, most) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => span / size <= most);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  return Array.from({ length: Math.max(last, first + 1) - first + 1 }, (_, k) => (first + k) * step);
}

const radius = (weight, heaviest) => 3.5 + 7.5 * Math.sqrt(weight / (heaviest || 1));

/** Give dots heights at which they overlap little, the first in the middle. */
function swarm(dots, reach) {
  const placed = [];
  for (const dot of dots) {
    const crowd = (y) => placed.reduce((sum, other) => sum + Math.max(0,
      dot.r + other.r - Math.hypot(dot.x - other.x, y - other.y)), Math.abs(y) / 100);
    const heights = [0, -0.5, 0.5, -1, 1].map((share) => share * Math.max(0, reach - dot.r));
    placed.push({ ...dot, y: heights.reduce((a, b) => (crowd(b) < crowd(a) ? b : a)) });
  }
  return placed;
}

/** The colour of a label: {className, share}, where share is from low to high. */
export function tint(formats, answer, label) {
  if (!formats.label) return { className: label === answer.prediction ? "same" : "other", share: 0 };
  const share = (label - formats.label.low) / formats.label.span;
  return { className: "graded", share: Math.min(1, Math.max(0, share)).toFixed(3) };
}

export function drawSteps(canvas, answer, formats) {
  const width = Math.max(260, canvas.svg.parentElement.clientWidth);
  const narrow = width < 480;
  const [left, right] = narrow ? [92, width - 58] : [148, width - 70];
  const classes = !formats.label;
  const now = classes ? answer.chance : answer.prediction;
  const { usual, alone, interval, neighbors, others } = answer;
  const labels = classes ? [] : neighbors.map((neighbor) => neighbor.label);
  const all = [usual, alone, now, ...(interval ?? []), ...labels].filter(Number.isFinite);
  const longest = Math.max(...all.map((value) => formats.labelOf(value).length));
  const marks = classes ? [0, 0.25, 0.5, 0.75, 1]
    : ticks(Math.min(...all), Math.max(...all), (right - left) / (7 * longest + 16));
  const [low, high] = [marks[0], marks.at(-1)];
  const x = (value) => left + ((value - low) / (high - low)) * (right - left);
  const names = narrow
    ? ["Usual", "Row alone", "Neighbours", "Prediction", "Labels", "Effects"]
    : ["Usual", "This row alone", "Its neighbours", "Prediction", "Neighbours’ labels", "Neighbours’ effects"];
  const labelY = 4 * ROW + SWARM / 2;
  const axisY = 4 * ROW + SWARM + 4;
  const effectY = axisY + 34 + SWARM / 2;
  const middle = (k) => k * ROW + ROW / 2;
  canvas.begin(width, effectY + SWARM / 2 + 18);
  const line = (key, y, name, value, className = "") => {
    canvas.text(`${key}-name`, 0, y + 4, name, `name ${className}`);
    canvas.text(`${key}-value`, width, y + 4, value, `end ${className}`);
  };
  const bar = (key, k, from, to) => canvas.put(1, key, "rect", {
    x: x(Math.min(from, to)), y: middle(k) - 7, height: 14, rx: 2,
    width: Math.max(1.5, Math.abs(x(to) - x(from))), class: to >= from ? "up" : "down",
  });
  const decimals = decimalsOf(marks[1] - marks[0], 1);
  marks.forEach((mark, k) => {
    canvas.put(0, `grid-${k}`, "rect", { x: x(mark), y: 0, width: 1, height: axisY, class: "grid" });
    const words = classes ? percent(mark) : fixed(mark, decimals);
    canvas.text(`tick-${k}`, x(mark), axisY + 14, words, "tick");
  });
  canvas.put(0, "now", "rect", { x: x(now) - 0.75, y: middle(3), width: 1.5, height: axisY - middle(3), class: "now" });
  line("usual", middle(0), names[0], formats.answer(usual));
  canvas.put(1, "usual", "rect", { x: x(usual) - 1.5, y: middle(0) - 9, width: 3, height: 18, rx: 1.5, class: "ink" });
  line("alone", middle(1), names[1], formats.answer(alone - usual, true));
  bar("alone", 1, usual, alone);
  line("rest", middle(2), names[2], formats.answer(now - alone, true));
  bar("rest", 2, alone, now);
  [usual, alone, now].forEach((value, k) => canvas.put(0, `link-${k}`, "rect", {
    x: x(value) - 0.5, y: middle(k), width: 1, height: ROW, class: "link",
  }));
  line("now", middle(3), names[3], formats.answer(now), "strong");
  if (interval) {
    canvas.put(1, "interval", "rect", {
      x: x(interval[0]), y: middle(3) - 8, width: x(interval[1]) - x(interval[0]), height: 16, rx: 8, class: "interval",
    });
  }
  canvas.put(1, "mark", "rect", { x: x(now) - 2, y: middle(3) - 11, width: 4, height: 22, rx: 2, class: "up" });

  const heaviest = Math.max(...neighbors.map((neighbor) => neighbor.weight));
  const title = (n) => `row ${n.id}: label ${formats.labelOf(n.label)}, weight ${percent(n.weight)}, `
    + `effect ${formats.answer(n.effect, true)}`;
  const dots = (name, value, at, y) => {
    const made = neighbors.map((n) => ({ n, x: at(value(n)), r: radius(n.weight, heaviest) }));
    for (const dot of swarm(made, SWARM / 2 - 1)) {
      const { className, share } = tint(formats, answer, dot.n.label);
      canvas.dot(`${name}-${dot.n.id}`, dot.x, y + dot.y, dot.r, className, share, dot.n.id, title(dot.n));
    }
  };
  if (classes) drawShares(canvas, answer, x, labelY, others);
  else dots("label", (n) => n.label, x, labelY);
  line("label", labelY, names[4], "");

  // Effects are far smaller than labels: they have a scale of their own.
  const largest = Math.max(...neighbors.map((n) => Math.abs(n.effect)), 1e-12);
  const zero = (left + right) / 2;
  const reach = (right - left) / 2 - 12;
  line("effect", effectY, names[5], "");
  canvas.put(0, "zero", "rect", { x: zero - 0.5, y: effectY - SWARM / 2, width: 1, height: SWARM, class: "link" });
  dots("effect", (n) => n.effect, (effect) => zero + (effect / largest) * reach, effectY);
  for (const sign of [-1, 0, 1]) {
    const words = sign ? formats.effect(sign * largest, largest) : "0";
    canvas.text(`effect-tick-${sign}`, zero + sign * reach, effectY + SWARM / 2 + 14, words, "tick");
  }
  canvas.end();
}

/** For classes: whose labels the weight lies on, the predicted class first. */
function drawShares(canvas, answer, x, y, others) {
  const weights = new Map([[answer.prediction, 0]]);
  for (const { label, weight } of answer.neighbors) weights.set(label, (weights.get(label) ?? 0) + weight);
  let from = 0;
  for (const [label, weight] of [...weights, [null, others.weight]]) {
    if (!weight) continue;
    const key = `share-${label}`;
    const className = label === null ? "rest" : label === answer.prediction ? "up" : "down";
    const wide = x(from + weight) - x(from) - 2;
    canvas.put(1, key, "rect", { x: x(from), y: y - 14, width: Math.max(1, wide), height: 28, rx: 2, class: className });
    const words = label === null ? "all others" : String(label);
    if (wide > 7 * words.length + 8) canvas.text(`${key}-name`, x(from) + wide / 2, y + 4, words, `inside ${className}`);
    from += weight;
  }
}

const KM = 111.32; // of a degree of latitude

/** Pixels of a kilometre; one or two far neighbours may not squeeze the others. */
function scaleOf(spots, wide, high) {
  const fits = spots.map(({ east, north }) => Math.min(wide / Math.abs(east), high / Math.abs(north)));
  fits.sort((a, b) => a - b);
  const most = fits[Math.floor(fits.length / 6)] ?? 1;
  const all = fits[0] ?? 1;
  return Math.min(all * 2 < most ? most : all, wide / 0.05);
}

/** Draw neighbours around the row; returns words, or null if the row has no place. */
export function drawMap(canvas, row, answer, place, formats) {
  const [latitude, longitude] = [row[place.latitude], row[place.longitude]];
  const size = Math.max(220, canvas.svg.parentElement.clientWidth);
  const height = Math.min(size, 330);
  canvas.begin(size, height);
  if (!Number.isFinite(latitude) || !Number.isFinite(longitude)) {
    canvas.end();
    return null;
  }
  const around = answer.neighbors.filter(({ row: other }) =>
    Number.isFinite(other[place.latitude]) && Number.isFinite(other[place.longitude]));
  const shrink = Math.cos((latitude * Math.PI) / 180);
  const spots = around.map((n) => ({
    n, // kilometres to the east and to the north; the short way around the Earth
    east: ((((n.row[place.longitude] - longitude) % 360) + 540) % 360 - 180) * KM * shrink,
    north: (n.row[place.latitude] - latitude) * KM,
  }));
  const [cx, cy] = [size / 2, height / 2];
  const scale = scaleOf(spots, cx - 22, cy - 22);
  const power = 10 ** Math.floor(Math.log10(size / 3 / scale));
  const length = [5, 2, 1].map((k) => k * power).find((km) => km * scale <= size / 3);
  for (const k of [1, 2, 3, 4]) {
    const r = k * length * scale;
    if (r < Math.hypot(cx, cy)) canvas.put(0, `ring-${k}`, "circle", { cx, cy, r, class: "ring" });
  }
  const heaviest = Math.max(...around.map((n) => n.weight));
  for (const { n, east, north } of spots) {
    const { className, share } = tint(formats, answer, n.label);
    const km = Math.hypot(east, north);
    const back = Math.min(1, (cx - 14) / Math.abs(east * scale), (cy - 14) / Math.abs(north * scale));
    canvas.dot(`dot-${n.id}`, cx + east * scale * back, cy - north * scale * back,
      radius(n.weight, heaviest), `${className} ${back < 1 ? "away" : ""}`, share, n.id, `row ${n.id}: label ${formats.labelOf(n.label)}, ${fixed(km, decimalsOf(km, 2))} km away`);
  }
  canvas.put(2, "here", "path", { d: `M${cx - 9} ${cy}h18M${cx} ${cy - 9}v18`, class: "here" });
  canvas.put(2, "bar", "path", { d: `M12 ${height - 16}v5h${length * scale}v-5`, class: "ruler" });
  canvas.text("km", 16 + length * scale, height - 10, `${fixed(length, decimalsOf(length, 1))} km`, "small");
  canvas.put(2, "north", "path", { d: `M${size - 18} 12l5 12-5-3-5 3z`, class: "north" });
  canvas.text("north-name", size - 18, 38, "N", "tick");
  canvas.end();
  return "The cross is this row. Larger dots weigh more."
    + (canvas.svg.querySelector(".away") ? " Dashed ones lie farther out." : "");
}
