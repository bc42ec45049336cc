// The prediction in words and bars.

import { find, make, say } from "./dom.js";
import { percent, shareOf } from "./format.js";

const MOST_BARS = 8;
export const RARE = 0.05; // typicality under which a prediction is a guess

/** How typical the row is, in a sentence. */
export function typicalWords(typicality) {
  if (!Number.isFinite(typicality)) return "";
  if (typicality < RARE) return "Unlike anything the model remembers: treat this as a guess.";
  if (typicality < 0.2) return "Somewhat unusual: few remembered rows are close to it.";
  if (typicality < 0.5) return "Fairly typical: the memory holds rows close to it.";
  return "Typical: the memory holds many rows like it.";
}

/** How the interval or the set reads. */
function spanWords(answer, formats, coverage) {
  const sure = percent(coverage);
  if (formats.label) {
    if (!answer.interval) return ["", ""];
    const [low, high] = answer.interval.map((end) => formats.answer(end));
    return [`${low} to ${high}`, `${sure} of such intervals hold the true value`];
  }
  const chance = `${percent(answer.chance)} likely`;
  if (!answer.set) return [chance, ""];
  const others = answer.set.filter((label) => label !== answer.prediction).map(String);
  if (!others.length) return [chance, "no other class is plausible"];
  return [chance, `${others.join(" or ")} ${others.length > 1 ? "are" : "is"} plausible too`];
}

/** Add what is said of classes in the same words as of numbers. */
export function complete(answer) {
  if (!answer.probabilities) return answer;
  return { ...answer, chance: shareOf(answer.probabilities, answer.prediction) };
}

export function drawAnswer(answer, formats, model) {
  const value = formats.label ? formats.answer(answer.prediction) : String(answer.prediction);
  const [span, more] = spanWords(answer, formats, model.coverage);
  const words = typicalWords(answer.typicality);
  find("answer").textContent = value;
  find("span").replaceChildren(span, make("small", {}, more));
  if (answer.interval) drawGauge(answer, formats);
  find("typical").textContent = words;
  find("typical").classList.toggle("rare", answer.typicality < RARE);
  find("spoken").textContent = `${model.target ?? "Prediction"} ${value}, ${span}. ${words}`;
  find("steps-words").textContent = stepWords(answer, formats);
  if (!formats.label) drawBars(answer, model);
}

/** The interval among labels that are usual. */
function drawGauge(answer, formats) {
  const [from, to] = answer.interval;
  const low = Math.min(from, formats.label.low);
  const high = Math.max(to, formats.label.high);
  const share = (value) => (value - low) / (high - low || 1);
  const track = make("i", { "--from": share(from), "--to": share(to), "--at": share(answer.prediction) });
  find("gauge").hidden = false;
  find("gauge").replaceChildren(formats.answer(low), track, formats.answer(high));
}

function stepWords(answer, formats) {
  const now = formats.label ? answer.prediction : answer.chance;
  const [own, shared] = [answer.alone - answer.usual, now - answer.alone];
  const what = formats.label ? "one would say" : `the chance of ${answer.prediction} would be`;
  return `Knowing nothing, ${what} ${formats.answer(answer.usual)}. This row by itself changes that by `
    + `${formats.answer(own, true)}, its neighbours by ${formats.answer(shared, true)}. `
    + (formats.label ? "Larger dots weigh more; stronger blue is a higher label."
      : "Larger dots weigh more; full ones have the predicted class.");
}

function drawBars(answer, model) {
  const shares = model.classes.map((label) => ({ label, share: shareOf(answer.probabilities, label) ?? 0 }));
  shares.sort((a, b) => b.share - a.share);
  const inSet = (label) => (answer.set ?? []).includes(label);
  find("bars").hidden = false;
  find("bars").replaceChildren(...shares.slice(0, MOST_BARS).map(({ label, share }) =>
    make("li", { class: inSet(label) ? "in" : null },
      make("span", { class: "class" }, String(label), inSet(label) && make("span", { class: "check", title: "in the set" }, "✓")),
      make("span", { class: "track" }, make("i", { "--size": share })),
      make("span", { class: "share" }, percent(share)))));
  const more = shares.length - MOST_BARS;
  say(find("bars-note"), [
    answer.set && `✓ marks the set: it holds the true class of ${percent(model.coverage)} of rows.`,
    more > 0 && `${more} less likely classes are not shown.`,
  ].filter(Boolean).join(" "));
}
