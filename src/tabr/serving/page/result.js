// The prediction in words and bars.

import { find, make, say } from "./dom.js";
import { percent, text } from "./format.js";

const MOST_BARS = 8;
export const RARE = 0.05; // typicality under which a prediction is a guess

/** How typical the row is, in a sentence. */
function typicalWords(typicality) {
  if (!Number.isFinite(typicality)) return "";
  if (typicality < RARE) return "Unlike anything the model remembers: treat this as a guess.";
  if (typicality < 0.2) return "Somewhat unusual: few remembered rows are close to it.";
  if (typicality < 0.5) return "Fairly typical: the memory holds rows close to it.";
  return "Typical: the memory holds many rows like it.";
}

/** The probability of a class; keys are text as Python writes it. */
function shareOf({ probabilities }, label) {
  const isSame = (key) => key === String(label)
    || (typeof label === "number" && Number(key) === label)
    || (typeof label === "boolean" && key.toLowerCase() === String(label));
  return probabilities[Object.keys(probabilities).find(isSame)] ?? 0;
}

/** Add to an answer the probability of the class that it predicts. */
export const withChance = (answer) => (answer.probabilities
  ? { ...answer, chance: shareOf(answer, answer.prediction) } : answer);

/** How sure it is: the interval or the probability, and what that means. */
function spanWords(answer, formats, coverage) {
  if (answer.interval) {
    const [low, high] = answer.interval.map((end) => formats.answer(end));
    return [`${low} to ${high}`, `${percent(coverage)} of such intervals hold the true value`];
  }
  const others = answer.set.filter((label) => label !== answer.prediction).map(text);
  const list = others.join(", ").replace(/, ([^,]*)$/, " or $1");
  return [`${percent(answer.chance)} likely`,
    list ? `could also be ${list}` : "no other class is plausible"];
}

export function drawAnswer(answer, formats, model) {
  const value = formats.label ? formats.answer(answer.prediction) : text(answer.prediction);
  const [span, more] = spanWords(answer, formats, model.coverage);
  const words = typicalWords(answer.typicality);
  find("answer").textContent = value;
  find("span").replaceChildren(span, " ", make("small", {}, more));
  find("typical").textContent = words;
  find("typical").classList.toggle("rare", answer.typicality < RARE);
  find("spoken").textContent = `${model.target ?? "Prediction"} ${value}, ${span}. ${words}`;
  find("steps-words").textContent = stepWords(answer, formats);
  if (answer.interval) drawGauge(answer, formats);
  else drawBars(answer, model);
}

function stepWords(answer, formats) {
  const now = answer.chance ?? answer.prediction;
  const what = formats.label ? "one would say"
    : `the chance of ${text(answer.prediction)} would be`;
  const alone = formats.answer(answer.alone - answer.usual, true);
  const shared = formats.answer(now - answer.alone, true);
  return `Knowing nothing, ${what} ${formats.answer(answer.usual)}. This row by itself changes `
    + `that by ${alone}, its neighbours by ${shared}.${memberWords(answer, formats)} Larger dots weigh more; `
    + (formats.label ? "stronger blue is a higher label." : "full ones have the predicted class.");
}

/** From where to where the networks of a model go; nothing of one alone. */
function memberWords({ members }, formats) {
  if (members.length === 1) return "";
  const said = members.map(({ prediction }) => prediction);
  const [low, high] = [Math.min(...said), Math.max(...said)].map((end) => formats.answer(end));
  return ` Its ${members.length} members say ${low} to ${high}.`;
}

/** The interval among labels that are usual. */
function drawGauge({ interval: [from, to], prediction }, formats) {
  const low = Math.min(from, formats.label.low);
  const high = Math.max(to, formats.label.high);
  const share = (value) => (value - low) / (high - low || 1);
  const [first, track, last] = find("gauge").children;
  for (const [name, value] of [["--from", from], ["--to", to], ["--at", prediction]]) {
    track.style.setProperty(name, share(value));
  }
  first.textContent = formats.answer(low);
  last.textContent = formats.answer(high);
  find("gauge").hidden = false;
}

function drawBars(answer, { classes, coverage }) {
  const shares = classes.map((label) => ({ label, share: shareOf(answer, label) }));
  shares.sort((a, b) => b.share - a.share);
  find("bars").hidden = false;
  find("bars").replaceChildren(...shares.slice(0, MOST_BARS).map(({ label, share }) => {
    const isIn = answer.set.includes(label);
    return make("li", { class: isIn && "in" },
      make("span", { class: "class" }, text(label),
        isIn && make("span", { class: "check", title: "in the set" }, "✓")),
      make("span", { class: "track" }, make("i", { "--size": share })),
      make("span", { class: "share" }, percent(share)));
  }));
  const left = classes.length - MOST_BARS;
  say(find("bars-note"),
    `✓ marks the set: it holds the true class of ${percent(coverage)} of rows.`
    + (left > 0 ? ` ${left} less likely classes are not shown.` : ""));
}
