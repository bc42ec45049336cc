// Numbers and cells as people read them, with as many digits as tell them apart.

export const NOTHING = "–";
const MINUS = "−";

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Write a number with so many decimals; huge ones as powers of ten. */
export function fixed(value, decimals, signed = false) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  let text = size >= 1e15 ? size.toPrecision(4) : size.toLocaleString("en", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
    useGrouping: size >= 1e4, // a year has no comma
  });
  const isZero = !/[1-9]/.test(text);
  if (value < 0 && !isZero) return MINUS + text;
  return signed && !isZero ? `+${text}` : text;
}

/** Decimals that show a number of this size with so many digits. */
export function decimalsOf(size, digits) {
  if (!(size > 0) || !Number.isFinite(size)) return 0;
  return clamp(digits - 1 - Math.floor(Math.log10(size)), 0, 8);
}

export const percent = (share) => {
  if (!isNumber(share)) return NOTHING;
  const tiny = (share > 0 && share < 0.1) || (share > 0.95 && share < 1);
  return `${fixed(100 * share, tiny ? 1 : 0)}%`;
};

/** Write a date without a time that is midnight. */
export const day = (text) =>
  String(text).replace(/[T ]00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?$/, "").replace("T", " ");

export const text = (value) => (value === null || value === undefined ? NOTHING : String(value));

/** The key of a class in an answer: there, booleans and numbers are text of Python. */
export function shareOf(probabilities, label) {
  const same = (key) => key === String(label)
    || (typeof label === "number" && Number(key) === label)
    || (typeof label === "boolean" && key.toLowerCase() === String(label));
  return probabilities[Object.keys(probabilities).find(same)];
}

function quantiles(values, shares) {
  const sorted = [...values].sort((a, b) => a - b);
  return shares.map((share) => sorted[Math.round(share * (sorted.length - 1))]);
}

/** What is usual of values: most of them lie from low to high. */
export function usual(values) {
  const known = values.filter(isNumber);
  if (!known.length) return null;
  const [low, high] = quantiles(known, [0.05, 0.95]);
  const span = high - low || Math.abs(high) || 1;
  const whole = known.every(Number.isInteger);
  return { low, high, span, whole, decimals: whole ? 0 : decimalsOf(span, 3) };
}

/** Milliseconds of a date, as any time zone's own; NaN if it is none. */
export const moment = (value) => Date.parse(`${day(value).slice(0, 10)}T00:00:00Z`);

/** How the columns and the label of a model are written, learnt from its examples. */
export class Formats {
  constructor(model, examples) {
    const classes = model.task === "classification";
    this.label = classes ? null : usual(examples.map((example) => example.label));
    this.decimals = this.label ? decimalsOf(this.label.span, 3) : 0;
    this.usual = new Map(model.columns.map((column) => {
      const cells = examples.map((example) => example.row[column.name]);
      return [column.name, usual(column.kind === "date" ? cells.map(moment) : cells)];
    }));
  }

  /** A prediction or whatever is in its units; classes have probabilities. */
  answer(value, signed = false) {
    if (this.label) return fixed(value, this.decimals, signed);
    return fixed(100 * value, 0, signed) + (signed ? " pt" : "%"); // points
  }

  /** An effect, with the digits that the largest of its kind needs. */
  effect(value, largest) {
    if (this.label) return fixed(value, decimalsOf(largest, 2), true);
    return `${fixed(100 * value, decimalsOf(100 * largest, 2), true)} pt`;
  }

  labelOf(value) {
    if (!this.label || !isNumber(value)) return text(value);
    return fixed(value, Number.isInteger(value) && this.label.whole ? 0 : this.decimals);
  }

  cell(column, value) {
    if (value === null || value === undefined) return NOTHING;
    if (column.kind === "date") return day(value);
    const known = this.usual.get(column.name);
    return isNumber(value) && !column.levels && known
      ? fixed(value, Number.isInteger(value) && known.whole ? 0 : known.decimals)
      : text(value);
  }

  /** How far b lies from a: {apart: 0 to 1 or more, words: what to show}. */
  difference(column, a, b) {
    if (a === b || (a == null && b == null)) return { apart: 0, words: "" };
    const known = this.usual.get(column.name);
    const isDate = column.kind === "date";
    const gap = isDate ? moment(b) - moment(a) : b - a;
    const measured = isDate || (isNumber(a) && isNumber(b) && !column.levels);
    if (!measured || !known || Number.isNaN(gap)) {
      return { apart: String(a) === String(b) ? 0 : 1, words: String(a) === String(b) ? "" : "≠" };
    }
    const size = isDate ? `${fixed(Math.abs(gap) / 864e5, 0)} d`
      : fixed(Math.abs(gap), known.whole && Number.isInteger(gap) ? 0 : known.decimals);
    if (!/[1-9]/.test(size)) return { apart: 0, words: "" };
    return { apart: Math.abs(gap) / known.span, words: `${gap > 0 ? "▲" : "▼"} ${size}` };
  }
}
