// A list of checkboxes for the columns of a table, with a search.

import { el, fill, visible } from "./dom.js";
import { grouped, plural } from "./format.js";

/** @typedef {{path: string[], name: string}} Column */

const tokenOf = (column) => JSON.stringify(column.path);

export class ColumnChooser {
  /** @param {{byDefault: (column: Column) => boolean, changed: () => void, more?: Node}} options byDefault: whether a
   * column appears by default; more: a further button */
  constructor({ byDefault, changed, more }) {
    this.byDefault = byDefault;
    this.changed = changed;
    /** @type {Map<string, Column>} all columns, in order of appearance */
    this.known = new Map();
    /** @type {Map<string, boolean>} the reader's choices */
    this.asked = new Map();
    this.search = el("input", { type: "search", placeholder: "key", "aria-label": "Search columns",
      on: { input: () => this.drawList() } });
    this.list = el("div", { class: "column-list", role: "group", "aria-label": "Columns" });
    this.summary = el("summary", {}, "Columns");
    const all = (text, on) => el("button", { type: "button", on: { click: () => this.#askAll(on) } }, text);
    const head = el("div", { class: "column-head" }, this.search, all("All", true), all("None", false), more ?? []);
    this.root = el("details", { class: "columns",
      on: { toggle: () => this.drawList(), keydown: (event) => this.#key(event) } },
    this.summary, el("div", { class: "column-panel" }, head, this.list));
  }

  /** Adds columns. @param {Column[]} columns */
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
    return asked ?? this.byDefault(column);
  }

  /** The shown columns, in order of appearance. */
  shown() {
    return [...this.known.values()].filter((column) => this.isShown(column));
  }

  /** A sentence about hidden columns, "" without any. */
  words() {
    const hidden = this.known.size - this.shown().length;
    return hidden ? `. ${plural(hidden, "column")} hidden: see Columns` : "";
  }

  draw() {
    fill(this.summary, `Columns: ${grouped(this.shown().length)} of ${grouped(this.known.size)}`);
  }

  #matching() {
    const needle = this.search.value.toLowerCase();
    return [...this.known.values()].filter((column) => visible(column.name).toLowerCase().includes(needle));
  }

  /** Draws the list, if it is open. */
  drawList() {
    if (!this.root.open) return;
    fill(this.list, this.#matching().map((column) =>
      el("label", { class: "row" },
        el("input", { type: "checkbox", checked: this.isShown(column),
          on: { change: (event) => this.#ask([column], event.target.checked) } }),
        el("bdi", {}, visible(column.name) || '""'))));
  }

  #askAll(on) {
    this.#ask(this.#matching(), on);
    this.drawList();
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
