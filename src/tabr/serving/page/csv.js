// Pasted tables: text with a header becomes rows of the model's columns.

const MISSING = new Set(["", "na", "nan", "n/a", "null", "none"]);

/** Split text into lines of cells; cells in double quotes may hold anything. */
export function split(text, delimiter) {
  const lines = [];
  let [line, cell, quoted] = [[], "", false];
  const endCell = () => { line.push(cell); cell = ""; };
  const endLine = () => { endCell(); lines.push(line); line = []; };
  for (let k = 0; k < text.length; k++) {
    const sign = text[k];
    if (quoted && sign === '"' && text[k + 1] === '"') { cell += '"'; k++; }
    else if (quoted && sign === '"') quoted = false;
    else if (sign === '"' && !cell.trim()) { quoted = true; cell = ""; }
    else if (!quoted && sign === delimiter) endCell();
    else if (!quoted && sign === "\n") endLine();
    else if (quoted || sign !== "\r") cell += sign;
  }
  if (cell || line.length) endLine();
  return lines.filter((cells) => cells.some((content) => content.trim()));
}

function readCell(content, column, delimiter) {
  const text = content.trim();
  const levels = column.levels ?? [];
  // " x", "NA" and "null" are texts where the model knows them.
  const knowsMissing = levels.some((value) => value !== "" && MISSING.has(String(value).toLowerCase()));
  if (text === "" || (!knowsMissing && MISSING.has(text.toLowerCase()))) return null;
  const level = levels.find((value) => value === content) ?? levels.find((value) => String(value) === text
    || (typeof value === "boolean" && String(value) === text.toLowerCase())
    || (typeof value === "number" && Number(text) === value));
  if (level !== undefined) return level;
  const isNumeric = column.kind === "numeric" || typeof (levels[0] ?? column.example) === "number";
  if (!isNumeric) return text;
  // In tables with semicolons the decimal sign is often a comma.
  const number = Number(delimiter === ";" ? text.replace(",", ".") : text);
  return Number.isNaN(number) ? text : number; // the server says what is wrong with it
}

/**
 * Read a table: {rows, labels or null, note}, or throw an Error with a sentence. `label`
 * is what columns are, with the name of the target.
 */
export function readTable(text, columns, label) {
  const first = text.trim().split("\n")[0];
  const delimiter = [",", ";", "\t"].reduce((a, b) =>
    first.split(b).length > first.split(a).length ? b : a);
  const [head = [], ...lines] = split(text.trim(), delimiter);
  const names = head.map((name) => name.trim());
  const columnNames = new Set(columns.map((column) => column.name));
  const missing = columns.filter((column) => !names.includes(column.name));
  if (missing.length === columns.length) {
    throw new Error("The first line must hold column names, but it has none of the model's.");
  }
  if (!lines.length) throw new Error("There is no row under the column names.");
  const short = lines.findIndex((cells) => cells.length !== names.length);
  if (short >= 0) {
    throw new Error(`Each line must have ${names.length} cells as the first one has, `
      + `but row ${short + 1} has ${lines[short].length}.`);
  }
  const rows = lines.map((cells) => Object.fromEntries(columns.map((column) =>
    [column.name, readCell(cells[names.indexOf(column.name)] ?? "", column, delimiter)])));
  const place = columnNames.has(label.name) ? -1 : names.indexOf(label.name);
  const labels = place < 0 ? null
    : lines.map((cells) => readCell(cells[place], label, delimiter));
  const extra = names.filter((name, k) => !columnNames.has(name) && k !== place);
  const list = (items) => items.slice(0, 5).join(", ") + (items.length > 5 ? ", …" : "");
  const note = [
    lines.length === 1 ? "Read one row." : `Read ${lines.length} rows; the first is in the form.`,
    missing.length && `Left empty: ${list(missing.map((column) => column.name))}.`,
    extra.length && `Not used: ${list(extra)}.`,
  ];
  return { rows, labels, note: note.filter(Boolean).join(" ") };
}
