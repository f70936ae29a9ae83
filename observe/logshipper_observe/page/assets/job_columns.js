// Columns of options and metrics in the list of jobs: those that the reader chose, kept in the address and for the next
// visit, or those in which the jobs differ.

import { ColumnChooser } from "./column_chooser.js";
import { el } from "./dom.js";
import { kept, keep } from "./storage.js";

const MOST = 24; // as the server takes
const PLACE = "columns"; // in the browser's storage
export const LAST = "*"; // the column of each job's last values

export class JobColumns {
  /** @param {URLSearchParams} words of the address @param {() => void} changed */
  constructor(words, changed) {
    const names = words.has("column") ? words.getAll("column") : kept(PLACE, null);
    /** @type {string[] | null} null: as the server says */
    this.chosen = Array.isArray(names) ? names.filter((name) => name && typeof name === "string").slice(0, MOST) : null;
    /** @type {{name: string, title: string}[]} as the server answered */
    this.shown = [];
    this.changed = changed;
    this.chooser = new ColumnChooser({
      byDefault: (column) => this.#names().includes(column.path[0]),
      changed: () => this.#take(),
      more: el("button", { type: "button", title: "Those in which the jobs differ", on: { click: () => { this.#choose(null); this.chooser.drawList(); } } }, "Default"),
    });
    this.chooser.take([{ path: [LAST], name: "last values" }]);
  }

  /** What the server is asked for: undefined for its own choice. */
  get request() {
    return this.chosen ? JSON.stringify(this.chosen.filter((name) => name !== LAST)) : undefined;
  }

  get hasLast() {
    return this.#names().includes(LAST);
  }

  /** @param {URLSearchParams} query the address, which gets what was chosen */
  addTo(query) {
    if (!this.chosen) return;
    for (const name of this.chosen.length ? this.chosen : [""]) query.append("column", name);
  }

  /** Learns what there is, and what is shown. */
  answer({ columns, offer }) {
    this.shown = columns;
    const column = (name) => ({ path: [name], name: name.replace(/^start\./, "") });
    this.chooser.take([
      ...columns.map(({ name }) => column(name)), ...offer.options.map(column),
      ...offer.metrics.flatMap((name) => [name, `${name}.min`, `${name}.max`].map(column)),
    ]);
    this.chooser.draw();
  }

  #names() {
    return this.chosen ?? [...this.shown.map(({ name }) => name), LAST];
  }

  /** What is ticked now, in the order in which it was. */
  #take() {
    const ticked = this.chooser.shown().map((column) => column.path[0]);
    const before = this.#names().filter((name) => ticked.includes(name));
    this.#choose([...before, ...ticked.filter((name) => !before.includes(name))].slice(0, MOST));
  }

  #choose(names) {
    this.chosen = names;
    keep(PLACE, names);
    this.chooser.asked.clear();
    this.changed();
    this.chooser.draw();
  }
}
