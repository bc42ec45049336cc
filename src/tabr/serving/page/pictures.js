// The way from the usual value to the prediction: steps, labels of neighbours, effects.

import { decimalsOf, fixed, percent, text } from "./format.js";

const ROW = 32; // height of a line
const SWARM = 58; // and of a line of dots
const NAMES = ["Usual", "This row alone", "Its neighbours", "Prediction",
  "Neighbours’ labels", "Neighbours’ effects"];
const SHORT = ["Usual", "Row alone", "Neighbours", "Prediction", "Labels", "Effects"];

// Where lines have their middles, from the top.
const STEP = [0, 1, 2, 3].map((k) => k * ROW + ROW / 2);
const LABELS = 4 * ROW + SWARM / 2;
const AXIS = 4 * ROW + SWARM + 4;
const EFFECTS = AXIS + 34 + SWARM / 2;
const HEIGHT = EFFECTS + SWARM / 2 + 18;

/** Round numbers from under low to over high, about as many as given. */
function ticks(low, high, most) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => span / size <= most);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  const n = Math.max(last - first, 1) + 1;
  return Array.from({ length: n }, (_, k) => (first + k) * step);
}

export const radius = (weight, heaviest) => 3.5 + 7.5 * Math.sqrt(weight / (heaviest || 1));

/** The look of a label: a class of CSS, and a share from low to high. */
export function tint(formats, answer, label) {
  if (!formats.label) return [label === answer.prediction ? "same" : "other", 0];
  const share = (label - formats.label.low) / formats.label.span;
  return ["graded", Math.min(1, Math.max(0, share)).toFixed(3)];
}

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

/** What all parts of the picture share: the answer, its words and the scale. */
function frameOf(canvas, answer, formats) {
  const width = Math.max(260, canvas.svg.parentElement.clientWidth - 2);
  const isNarrow = width < 480;
  const [left, right] = isNarrow ? [92, width - 58] : [148, width - 70];
  const classes = !formats.label;
  const now = classes ? answer.chance : answer.prediction;
  const labels = classes ? [] : answer.neighbors.map((neighbor) => neighbor.label);
  const all = [answer.usual, answer.alone, now, ...(answer.interval ?? []), ...labels]
    .filter(Number.isFinite);
  const longest = Math.max(...all.map((value) => formats.labelOf(value).length));
  const most = (right - left) / (7 * longest + 16);
  const marks = classes ? [0, 0.25, 0.5, 0.75, 1]
    : ticks(Math.min(...all), Math.max(...all), most);
  const [low, high] = [marks[0], marks.at(-1)];
  const x = (value) => left + ((value - low) / (high - low)) * (right - left);
  const names = isNarrow ? SHORT : NAMES;
  return { canvas, answer, formats, width, left, right, classes, now, marks, x, names };
}

export function drawSteps(canvas, answer, formats) {
  const frame = frameOf(canvas, answer, formats);
  canvas.begin(frame.width, HEIGHT);
  drawAxis(frame);
  drawWaterfall(frame);
  drawLabels(frame);
  drawEffects(frame);
  canvas.end();
}

function drawAxis({ canvas, classes, marks, x }) {
  const decimals = decimalsOf(marks[1] - marks[0], 1);
  marks.forEach((mark, k) => {
    canvas.box(0, `grid-${k}`, x(mark), 0, 1, AXIS, "grid");
    const words = classes ? percent(mark) : fixed(mark, decimals);
    canvas.text(`tick-${k}`, x(mark), AXIS + 14, words, "tick");
  });
}

/** A name on the left and a value on the right. */
function line({ canvas, names, width }, k, y, value, className = "") {
  canvas.text(`name-${k}`, 0, y + 4, names[k], className);
  canvas.text(`value-${k}`, width, y + 4, value, `end ${className}`);
}

function drawWaterfall(frame) {
  const { canvas, answer: { usual, alone, interval }, formats, now, x } = frame;
  const bar = (k, from, to) => {
    const size = Math.max(1.5, Math.abs(x(to) - x(from)));
    const way = to < from ? "down" : "up";
    canvas.box(1, `bar-${k}`, x(Math.min(from, to)), STEP[k] - 7, size, 14, way, 2);
  };
  line(frame, 0, STEP[0], formats.answer(usual));
  canvas.box(1, "usual", x(usual) - 1.5, STEP[0] - 9, 3, 18, "ink", 1.5);
  line(frame, 1, STEP[1], formats.answer(alone - usual, true));
  bar(1, usual, alone);
  line(frame, 2, STEP[2], formats.answer(now - alone, true));
  bar(2, alone, now);
  [usual, alone, now].forEach((value, k) =>
    canvas.box(0, `link-${k}`, x(value) - 0.5, STEP[k], 1, ROW, "link"));
  line(frame, 3, STEP[3], formats.answer(now), "strong");
  if (interval) {
    const [low, high] = interval.map(x);
    canvas.box(1, "interval", low, STEP[3] - 8, high - low, 16, "interval", 8);
  }
  canvas.box(1, "mark", x(now) - 2, STEP[3] - 11, 4, 22, "up", 2);
  canvas.box(0, "now", x(now) - 0.75, STEP[3], 1.5, AXIS - STEP[3], "now");
}

/** A dot for each neighbour, at the place that `at` gives it. */
function drawDots({ canvas, answer, formats }, name, y, at) {
  const { neighbors } = answer;
  const heaviest = Math.max(...neighbors.map(({ weight }) => weight));
  const largest = Math.max(...neighbors.map(({ effect }) => Math.abs(effect)));
  const dots = neighbors.map((n) => ({ n, x: at(n), r: radius(n.weight, heaviest) }));
  for (const dot of swarm(dots, SWARM / 2 - 1)) {
    const { id, label, weight, effect } = dot.n;
    const [className, share] = tint(formats, answer, label);
    canvas.dot(`${name}-${id}`, dot.x, y + dot.y, dot.r, className, share, id,
      `row ${id}: label ${formats.labelOf(label)}, weight ${percent(weight)}, `
      + `effect ${formats.effect(effect, largest)}`);
  }
}

function drawLabels(frame) {
  line(frame, 4, LABELS, "");
  if (frame.classes) drawShares(frame);
  else drawDots(frame, "label", LABELS, ({ label }) => frame.x(label));
}

/** For classes: whose labels the weight lies on, the predicted class first. */
function drawShares({ canvas, answer: { prediction, neighbors, others }, x }) {
  const weights = new Map([[prediction, 0]]);
  for (const { label, weight } of neighbors) {
    weights.set(label, (weights.get(label) ?? 0) + weight);
  }
  let from = 0;
  for (const [label, weight] of [...weights, [null, others.weight]]) {
    if (!weight) continue;
    const wide = Math.max(1, x(from + weight) - x(from) - 2);
    const words = label === null ? "all others" : text(label);
    const look = label === null ? "rest" : label === prediction ? "up" : "down";
    canvas.box(1, `share-${words}`, x(from), LABELS - 14, wide, 28, look, 2);
    if (wide > 7 * words.length + 8) {
      canvas.text(`share-${words}-name`, x(from) + wide / 2, LABELS + 4, words, `inside ${look}`);
    }
    from += weight;
  }
}

/** Effects are far smaller than labels: they have a scale of their own. */
function drawEffects(frame) {
  const { canvas, answer, formats, left, right } = frame;
  const largest = Math.max(...answer.neighbors.map(({ effect }) => Math.abs(effect)), 1e-12);
  const zero = (left + right) / 2;
  const reach = (right - left) / 2 - 12;
  line(frame, 5, EFFECTS, "");
  canvas.box(0, "zero", zero - 0.5, EFFECTS - SWARM / 2, 1, SWARM, "link");
  drawDots(frame, "effect", EFFECTS, ({ effect }) => zero + (effect / largest) * reach);
  for (const sign of answer.neighbors.length ? [-1, 0, 1] : []) {
    const words = sign ? formats.effect(sign * largest, largest) : "0";
    canvas.text(`effect-${sign}`, zero + sign * reach, EFFECTS + SWARM / 2 + 14, words, "tick");
  }
}
