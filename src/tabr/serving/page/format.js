// Numbers and cells as people read them, with as many digits as tell them apart.

export const NOTHING = "–";
const DAY = 864e5; // milliseconds

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Write a number with so many decimals; huge ones as powers of ten. */
export function fixed(value, decimals, signed = false) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  const words = size >= 1e15 ? size.toPrecision(4) : size.toLocaleString("en", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
    useGrouping: size >= 1e4, // a year has no comma
  });
  if (!/[1-9]/.test(words)) return words;
  return (value < 0 ? "−" : signed ? "+" : "") + words;
}

/** Decimals that show a number of this size with so many digits. */
export function decimalsOf(size, digits) {
  if (!(size > 0) || !Number.isFinite(size)) return 0;
  return clamp(digits - 1 - Math.floor(Math.log10(size)), 0, 8);
}

export function percent(share) {
  if (!isNumber(share)) return NOTHING;
  const isFine = (share > 0 && share < 0.1) || (share > 0.95 && share < 1);
  return `${fixed(100 * share, isFine ? 1 : 0)}%`;
}

/** Write a value that is no number. */
export function text(value) {
  if (value === null || value === undefined) return NOTHING;
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/** Write a date, with its time if that is not midnight. */
export const day = (value) => String(value)
  .replace(/[T ]00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?$/, "").replace("T", " ");

const moment = (value) => Date.parse(`${day(value).slice(0, 10)}T00:00:00Z`);

/** Give a column that only a rule reads the kind that its example has. */
export function completed(column) {
  if (column.kind) return column;
  const isDate = /^\d{4}-\d\d-\d\d/.test(column.example);
  const kind = isNumber(column.example) ? "numeric" : isDate ? "date" : "categorical";
  return { ...column, kind };
}

/** Between which values most lie, and how they are best written. */
export function usual(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const [low, high] = [0.05, 0.95].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const span = high - low || Math.abs(high) || 1;
  const whole = sorted.every(Number.isInteger);
  return { low, high, span, whole, decimals: whole ? 0 : decimalsOf(span, 3) };
}

/** How columns and labels of a model are written, learnt from examples. */
export class Formats {
  constructor(model, columns, examples) {
    const labels = examples.map((example) => example.label);
    this.label = model.classes ? null : usual(labels); // null for classes
    this.decimals = this.label ? decimalsOf(this.label.span, 3) : 0;
    this.usual = new Map(columns.map(({ name, kind }) => {
      const cells = examples.map((example) => example.row[name]);
      return [name, usual(kind === "date" ? cells.map(moment) : cells)];
    }));
  }

  /** A prediction, or a step towards it. Of classes: a probability, or points. */
  answer(value, signed = false) {
    if (this.label) return fixed(value, this.decimals, signed);
    return fixed(100 * value, 0, signed) + (signed ? " pt" : "%");
  }

  /** An effect, with the digits that the largest of them needs. */
  effect(value, largest) {
    if (this.label) return fixed(value, decimalsOf(largest, 2), true);
    return `${fixed(100 * value, decimalsOf(100 * largest, 2), true)} pt`;
  }

  labelOf(value) {
    if (!this.label || !isNumber(value)) return text(value);
    return fixed(value, this.label.whole && Number.isInteger(value) ? 0 : this.decimals);
  }

  cell({ name, kind, levels }, value) {
    const range = this.usual.get(name);
    if (value === null || value === undefined) return NOTHING;
    if (kind === "date") return day(value);
    if (!isNumber(value) || levels || !range) return text(value);
    return fixed(value, range.whole && Number.isInteger(value) ? 0 : range.decimals);
  }

  /** How far b lies from a: {apart: shares of what is usual, words}. */
  difference({ name, kind, levels }, a, b) {
    const range = this.usual.get(name);
    const gap = kind === "date" ? moment(b) - moment(a) : Number(b) - Number(a);
    const isMeasured = kind === "date" || (isNumber(a) && isNumber(b) && !levels);
    if (!isMeasured || !range || Number.isNaN(gap)) {
      return text(a) === text(b) ? { apart: 0, words: "" } : { apart: 1, words: "≠" };
    }
    const decimals = range.whole && Number.isInteger(gap) ? 0 : range.decimals;
    const size = kind === "date" ? `${fixed(Math.abs(gap) / DAY, 0)} d`
      : fixed(Math.abs(gap), decimals);
    if (!/[1-9]/.test(size)) return { apart: 0, words: "" };
    return { apart: Math.abs(gap) / range.span, words: `${gap > 0 ? "▲" : "▼"} ${size}` };
  }
}
