// The form of a row, made from the model's columns.

import { make, say } from "./dom.js";
import { day, decimalsOf, fixed, text as textOf } from "./format.js";

const MOST_RADIOS = 4;
const MOST_LETTERS = 16; // of radios in one line; the frame of each takes three
const MOST_OPTIONS = 12; // with more levels one types, and may choose

/**
 * One value to be entered. `box` is what is shown; `read` and `write` speak text, and
 * `parse` makes a value of it.
 */
class Field {
  constructor(column, usual, onInput) {
    this.column = column;
    this.usual = usual;
    this.id = `field-${++Field.count}`;
    this.error = make("p", { class: "error", id: `${this.id}-error`, hidden: true });
    this.hint = make("p", { class: "hint", id: `${this.id}-hint` });
    this.box = this.build();
    this.box.append(this.hint, this.error);
    this.box.addEventListener("input", () => { this.refresh(); onInput(this); });
    this.refresh();
  }

  static count = 0;

  get described() {
    return { "aria-describedby": `${this.id}-hint ${this.id}-error` };
  }

  labelled(...inputs) {
    const label = make("label", { for: this.id }, this.column.name);
    return make("div", { class: "field" }, label, ...inputs);
  }

  /** The value. What was not touched is sent as it came, not as it was shown. */
  get value() {
    const now = this.read();
    return this.kept && now === this.kept.text ? this.kept.value : this.parse(now);
  }

  set value(value) {
    this.write(value);
    this.kept = { value: value ?? null, text: this.read() };
    this.complain();
    this.refresh();
  }

  get isUnreadable() { return false; }

  refresh() {}

  complain(words) {
    say(this.error, words);
    this.box.classList.toggle("wrong", Boolean(words));
    this.input?.setAttribute("aria-invalid", Boolean(words));
  }
}

class NumberField extends Field {
  build() {
    const { low, high } = this.usual ?? this.column;
    const whole = this.usual?.whole;
    const fine = 10 ** Math.floor(Math.log10((high - low) / 50 || 1));
    this.step = whole ? Math.max(1, fine) : fine;
    this.input = make("input", {
      id: this.id, type: "number", step: this.step, inputmode: low < 0 ? null : "decimal",
      placeholder: this.column.median === null ? null : "unknown", ...this.described,
    });
    // A second way to the same value, for pointers: the keyboard has the number.
    const isSliding = low < high && this.column.median !== null;
    this.slider = isSliding && make("input", {
      type: "range", min: low, max: high, step: whole ? 1 : "any", tabindex: -1,
      "aria-hidden": "true", input: () => this.slide(),
    });
    const rough = whole ? 0 : decimalsOf(high - low, 2);
    this.range = `${fixed(low, rough)} to ${fixed(high, rough)}`;
    return this.labelled(this.input, this.slider);
  }

  show(value) { return fixed(value, this.usual?.decimals ?? decimalsOf(Math.abs(value), 3)); }

  slide() {
    const decimals = this.usual?.decimals ?? 2;
    this.input.value = Number(Number(this.slider.value).toFixed(decimals));
  }

  get isUnreadable() { return this.input.validity.badInput; }
  read() { return this.input.value; }

  parse(text) {
    const isLong = /^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text));
    return text.trim() === "" ? null : isLong ? BigInt(text) : Number(text);
  }

  write(value) {
    const isLong = typeof value === "bigint"; // of which each digit counts
    const short = typeof value === "number" ? Number(value.toPrecision(7)) : "";
    this.input.value = isLong ? String(value) : short;
  }

  refresh() {
    const { low, high, median } = this.column;
    const now = this.input.value === "" ? null : Number(this.input.value);
    if (this.slider && document.activeElement !== this.slider) this.slider.value = now ?? median;
    const outside = now !== null && low !== null && (now < low || now > high);
    this.hint.textContent = outside
      ? `never seen: ${this.show(low)} to ${this.show(high)} is known`
      : `usually ${this.range}`;
    this.box.classList.toggle("outside", outside);
  }
}

class DateField extends Field {
  build() {
    this.timed = day(this.column.example ?? "").length > 10;
    this.input = make("input", {
      id: this.id, type: this.timed ? "datetime-local" : "date", ...this.described,
    });
    if (this.usual) {
      const [low, high] = [this.usual.low, this.usual.high].map((time) =>
        new Date(time).toISOString().slice(0, 10));
      this.hint.textContent = `usually ${low} to ${high}`;
    }
    return this.labelled(this.input);
  }

  read() { return this.input.value; }
  parse(text) { return text || null; }
  write(value) {
    const iso = value == null ? "" : String(value).replace(" ", "T");
    this.input.value = iso.slice(0, this.timed ? 16 : 10);
  }
}

/** Levels are values of JSON; the text of one stands for it. */
class LevelField extends Field {
  get texts() { return this.column.levels.map(textOf); }

  parse(text) {
    if (text === "") return null;
    const place = this.texts.indexOf(text);
    if (place >= 0) return this.column.levels[place];
    const numbers = this.column.levels.every((level) => typeof level === "number");
    return numbers && Number.isFinite(Number(text)) ? Number(text) : text;
  }
}

class RadioField extends LevelField {
  build() {
    this.choices = this.texts.map((text) =>
      make("input", { type: "radio", name: this.id, value: text }));
    const labels = this.choices.map((input, k) =>
      make("label", {}, input, make("span", {}, this.texts[k])));
    return make("fieldset", { class: "field", ...this.described },
      make("legend", {}, this.column.name), make("div", { class: "choices" }, ...labels));
  }

  read() { return this.choices.find((input) => input.checked)?.value ?? ""; }
  write(value) {
    const text = value == null ? "" : textOf(value);
    for (const input of this.choices) input.checked = input.value === text;
  }
}

class SelectField extends LevelField {
  build() {
    const options = this.texts.map((text) => make("option", { value: text }, text));
    this.input = make("select", { id: this.id, ...this.described },
      make("option", { value: "" }, "unknown"), ...options);
    return this.labelled(this.input);
  }

  read() { return this.input.value; }
  write(value) {
    const text = value == null ? "" : textOf(value);
    const isOption = [...this.input.options].some((option) => option.value === text);
    if (!isOption) this.input.append(make("option", { value: text }, text));
    this.input.value = text;
  }
}

class TextField extends LevelField {
  build() {
    const list = `${this.id}-list`;
    const options = this.texts.map((text) => make("option", { value: text }));
    this.input = make("input", {
      id: this.id, type: "text", list, placeholder: "unknown", ...this.described,
    });
    this.hint.textContent = this.texts.length ? `such as ${this.texts.slice(0, 2).join(", ")}` : "";
    return this.labelled(this.input, make("datalist", { id: list }, ...options));
  }

  read() { return this.input.value.trim(); }
  write(value) { this.input.value = value == null ? "" : textOf(value); }
}

/** Choose how a column is entered. */
function makeField(column, usual, onInput) {
  if (column.kind === "date") return new DateField(column, usual, onInput);
  if (column.kind === "numeric") return new NumberField(column, usual, onInput);
  const levels = column.levels ?? [];
  const short = levels.join("").length + 3 * levels.length <= MOST_LETTERS;
  const Kind = !levels.length || levels.length > MOST_OPTIONS ? TextField
    : levels.length <= MOST_RADIOS && short ? RadioField : SelectField;
  return new Kind({ ...column, levels }, usual, onInput);
}

/** A field for a label: classes to choose from, or a number. */
export function labelField(name, classes, formats) {
  const kind = classes ? "categorical" : "numeric";
  const column = { name, kind, levels: classes, low: null, high: null, median: null };
  return makeField(column, formats.label, (field) => field.complain());
}

export class RowForm {
  constructor(root, columns, formats, onInput) {
    this.fields = new Map(columns.map((column) => {
      const field = makeField(column, formats.usual.get(column.name), (changed) => {
        changed.complain(changed.isUnreadable ? "This is not a number." : "");
        onInput();
      });
      return [column.name, field];
    }));
    root.replaceChildren(...[...this.fields.values()].map((field) => field.box));
  }

  get isReadable() { return [...this.fields.values()].every((field) => !field.isUnreadable); }

  get row() {
    return Object.fromEntries([...this.fields].map(([name, field]) => [name, field.value]));
  }

  set row(row) {
    for (const [name, field] of this.fields) field.value = row[name];
  }

  /** Put words of a failure next to their fields; return those that have no field. */
  complain(failure) {
    const left = [];
    for (const field of this.fields.values()) if (!field.isUnreadable) field.complain();
    for (const [name, words] of failure?.columns ?? []) {
      if (this.fields.has(name)) this.fields.get(name).complain(words);
      else left.push(`${name}: ${words}`);
    }
    const quoted = failure && [...this.fields.values()].find(({ column }) =>
      failure.status === 422 && failure.message.includes(`'${column.name}'`));
    if (quoted) quoted.complain(failure.message);
    else if (failure?.message) left.push(failure.message);
    return left.join(" ");
  }
}
