// Columns of options and metrics in the list of jobs: the reader's choice, from the address or the browser's storage, or
// the differing options.

import { ColumnChooser } from "./column_chooser.js";
import { el } from "./dom.js";
import { kept, keep } from "./storage.js";

const MOST = 24; // the server's limit
const PLACE = "columns"; // in the browser's storage
const LAST = "*"; // the column of each job's last values

export class JobColumns {
  /** @param {URLSearchParams} words of the address @param {() => void} changed */
  constructor(words, changed) {
    const names = words.has("column") ? words.getAll("column") : kept(PLACE, null);
    /** @type {string[] | null} null: the server's choice */
    this.chosen = Array.isArray(names) ? names.filter((name) => name && typeof name === "string").slice(0, MOST) : null;
    /** @type {{name: string, title: string}[]} of the server's answer */
    this.shown = [];
    this.changed = changed;
    this.chooser = new ColumnChooser({
      byDefault: (column) => this.#names().includes(column.path[0]),
      changed: () => this.#take(),
      more: el("button", { type: "button", title: "Those in which the jobs differ", on: { click: () => { this.#choose(null); this.chooser.drawList(); } } }, "Default"),
    });
    this.chooser.take([{ path: [LAST], name: "last values" }]);
  }

  /** The parameter of the request, undefined for the server's choice. */
  get request() {
    return this.chosen ? JSON.stringify(this.chosen.filter((name) => name !== LAST)) : undefined;
  }

  get hasLast() {
    return this.#names().includes(LAST);
  }

  /** @param {URLSearchParams} query of the address, which gets the choice */
  addTo(query) {
    if (!this.chosen) return;
    for (const name of this.chosen.length ? this.chosen : [""]) query.append("column", name);
  }

  /** Takes the available and the shown columns. */
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

  /** Takes the ticked columns, in order of ticking. */
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
