// Changes of the candidates: add, relabel, remove, and undo the last one.

import { newKey, write } from "./api.js";
import { find, open } from "./dom.js";
import { labelField } from "./form.js";

export class Changes {
  constructor(api, page, shown) {
    Object.assign(this, { api, page, shown, added: null, tried: null });
    find("ask-remove").onclick = () => {
      find("ask-remove").hidden = true;
      find("confirm-remove").hidden = false;
      find("confirm-remove").querySelector("button").focus();
    };
  }

  /** Send a change; a second try after a failure has the same key, so it counts once. */
  async send(method, body) {
    const content = method + write(body);
    if (this.tried?.content !== content) this.tried = { content, key: newKey() };
    const result = await this.api.call(method, "v1/candidates", body, { key: this.tried.key });
    this.tried = null;
    Object.assign(this.page.model, { version: result.version, n_candidates: result.n_candidates });
    this.page.drawAbout();
    this.doubt = result.doubt ? ` But ${result.doubt}.` : "";
    return result.ids[0];
  }

  /** Say what was done, with a button that undoes it. */
  told(words, undo) {
    find("done-text").textContent = words;
    find("done").hidden = false;
    find("undo").hidden = !undo;
    find("done").scrollIntoView({ block: "nearest" });
    find("undo").onclick = () => this.page.guarded(async () => {
      const reply = await undo();
      this.added = null;
      await this.page.ask();
      this.told(reply, null);
    });
  }

  /** Remember the row in the form. */
  async add() {
    const { form, label } = this.page;
    const [row, value] = [form.row, label.value];
    if (value === null || label.isUnreadable || !form.isReadable) {
      label.complain("A row is remembered with its label: enter it.");
      label.box.querySelector("input, select").focus();
      return;
    }
    await this.page.guarded(async () => {
      const id = await this.send("POST", { rows: [row], labels: [value] });
      label.complain();
      this.added = id;
      await this.page.ask();
      const isNear = this.shown.answer?.neighbors.some((neighbor) => neighbor.id === id);
      const more = isNear ? "" : " It is not among the heaviest neighbours here.";
      this.told(`Remembered as row ${id}.${more}${this.doubt}`, async () => {
        await this.send("DELETE", { ids: [id] });
        return `Row ${id} is forgotten again.`;
      });
    }, () => this.add());
  }

  /** The small menu of a neighbour: another label, or away with it. */
  async menu(neighbor) {
    const { classes } = this.page.model;
    const field = labelField("Label", classes, this.page.formats);
    const dialog = find("change-dialog");
    find("change-title").textContent = `Row ${neighbor.id}`;
    find("change-field").replaceChildren(field.box);
    find("confirm-remove").hidden = true;
    find("ask-remove").hidden = false;
    field.value = neighbor.label;
    dialog.firstElementChild.onsubmit = (event) => {
      if (event.submitter?.value === "remove" || field.value !== null) return;
      event.preventDefault();
      field.complain("Enter a label.");
    };
    const choice = await open(dialog);
    // The button that opened the menu may be gone with the old table.
    find("scroll").focus({ preventScroll: true });
    if (choice === "remove") await this.remove(neighbor);
    else if (choice === "relabel" && field.value !== neighbor.label) {
      await this.relabel(neighbor, field.value);
    }
  }

  async remove({ id, label, row }) {
    await this.page.guarded(async () => {
      await this.send("DELETE", { ids: [id] });
      await this.page.ask();
      this.told(`Row ${id} is forgotten.`, async () => {
        const again = await this.send("POST", { rows: [row], labels: [label] });
        return `Remembered again, as row ${again}.`;
      });
    });
  }

  async relabel({ id, label }, value) {
    await this.page.guarded(async () => {
      await this.send("PATCH", { ids: [id], labels: [value] });
      await this.page.ask();
      this.told(`Row ${id} now has the label ${this.page.formats.labelOf(value)}.${this.doubt}`, async () => {
        await this.send("PATCH", { ids: [id], labels: [label] });
        return `Row ${id} has its old label again.`;
      });
    });
  }
}
