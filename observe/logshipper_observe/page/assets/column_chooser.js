// Which columns of a table are shown: a list to tick, with a search for where there are many.

import { el, fill, visible } from "./dom.js";
import { grouped, plural } from "./format.js";

/** @typedef {{path: string[], name: string}} Column */

const tokenOf = (column) => JSON.stringify(column.path);

export class ColumnChooser {
  /** @param {number} most columns that are shown unasked @param {() => void} changed */
  constructor(most, changed) {
    this.most = most;
    this.changed = changed;
    /** @type {Map<string, Column>} all that were met, in that order */
    this.known = new Map();
    /** @type {Map<string, boolean>} those that somebody has ticked or not */
    this.asked = new Map();
    this.search = el("input", { type: "search", placeholder: "key", "aria-label": "Search columns",
      on: { input: () => this.#list() } });
    this.list = el("div", { class: "column-list", role: "group", "aria-label": "Columns" });
    this.summary = el("summary", {}, "Columns");
    const all = (text, on) => el("button", { type: "button", on: { click: () => this.#askAll(on) } }, text);
    const head = el("div", { class: "column-head" }, this.search, all("All", true), all("None", false));
    this.root = el("details", { class: "columns",
      on: { toggle: () => this.#list(), keydown: (event) => this.#key(event) } },
    this.summary, el("div", { class: "column-panel" }, head, this.list));
  }

  /** Learns columns. @param {Column[]} columns */
  take(columns) {
    for (const column of columns) {
      if (!this.known.has(tokenOf(column))) this.known.set(tokenOf(column), column);
    }
  }

  /** @param {Column} column */
  rankOf(column) {
    return [...this.known.keys()].indexOf(tokenOf(column));
  }

  /** @param {Column} column */
  isShown(column) {
    const asked = this.asked.get(tokenOf(column));
    return asked === undefined ? this.rankOf(column) < this.most : asked;
  }

  /** What isn't shown, in words; "" where all is. */
  words() {
    const hidden = [...this.known.values()].filter((column) => !this.isShown(column)).length;
    return hidden ? `. ${plural(hidden, "column")} hidden: see Columns` : "";
  }

  draw() {
    const shown = [...this.known.values()].filter((column) => this.isShown(column)).length;
    fill(this.summary, `Columns: ${grouped(shown)} of ${grouped(this.known.size)}`);
  }

  #matching() {
    const needle = this.search.value.toLowerCase();
    return [...this.known.values()].filter((column) => visible(column.name).toLowerCase().includes(needle));
  }

  #list() {
    if (!this.root.open) return;
    fill(this.list, this.#matching().map((column) =>
      el("label", { class: "row" },
        el("input", { type: "checkbox", checked: this.isShown(column),
          on: { change: (event) => this.#ask([column], event.target.checked) } }),
        el("bdi", {}, visible(column.name) || '""'))));
  }

  #askAll(on) {
    this.#ask(this.#matching(), on);
    this.#list();
  }

  #ask(columns, on) {
    for (const column of columns) this.asked.set(tokenOf(column), on);
    this.changed();
  }

  #key(event) {
    if (event.key !== "Escape") return;
    this.root.open = false;
    this.summary.focus();
  }
}
