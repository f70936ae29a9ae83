// The visible rows of the console: reuses an element for each.

import { marked, pieces, plain } from "./ansi.js";
import { el, fill, visible } from "./dom.js";
import { clock, grouped } from "./format.js";
import { GOES_ON, KIND, LEFT_OUT, LEVEL, STREAM, TEXT, TIME } from "./lines.js";

const SIGNS = { debug: "D", info: "I", warning: "W", error: "E", critical: "C" };

export class LineRows {
  /** layer: their parent; search: marks hits in them. */
  constructor(layer, search) {
    this.layer = layer;
    this.search = search;
    this.rows = [];
    this.first = 0; // the row of the first element
  }

  /** Shows lines. first: the first row; entries: number and line of each, undefined before they are loaded; picked: the
   * first and last selected number, or null. */
  draw(first, entries, picked) {
    while (this.rows.length < entries.length) this.rows.push(this.#newRow());
    this.#rotate(first - this.first);
    this.first = first;
    this.rows.forEach((row, at) => this.#fill(row, entries[at], picked));
  }

  /** The heights of drawn rows, in pixels. */
  get heights() {
    return this.rows.filter(({ node }) => !node.hidden).map(({ node }) => node.getBoundingClientRect().height);
  }

  /** Returns an element's line. */
  lineOf(node) {
    return this.rows.find((row) => row.node === node)?.line;
  }

  /** Moves elements from one end to the other. The others keep their lines, focus and selection. */
  #rotate(by) {
    if (by === 0 || Math.abs(by) >= this.rows.length) return;
    if (by > 0) this.rows.push(...this.rows.splice(0, by));
    else this.rows.unshift(...this.rows.splice(by));
    const nodes = this.rows.map(({ node }) => node);
    if (by > 0) this.layer.append(...nodes.slice(-by));
    else this.layer.prepend(...nodes.slice(0, -by));
  }

  #newRow() {
    const number = el("span", { class: "number" });
    const sign = el("span", { class: "sign" });
    const time = el("span", { class: "time" });
    const text = el("span", { class: "text" });
    const node = el("div", { class: "row" }, number, sign, time, text);
    this.layer.append(node);
    return { node, number, sign, time, text, line: null, sought: "" };
  }

  #fill(row, entry, picked) {
    row.node.hidden = !entry;
    if (!entry) {
      if (row.line) this.#empty(row);
      row.line = undefined;
      return;
    }
    const { number, line } = entry;
    const { key, line: hit } = this.search;
    row.node.classList.toggle("picked", picked !== null && number >= picked[0] && number <= picked[1]);
    row.node.classList.toggle("found", key !== "" && number === hit);
    if (row.place !== number) {
      row.place = number;
      row.node.dataset.number = number === undefined ? "" : String(number);
      row.number.textContent = number === undefined ? "" : grouped(number + 1);
    }
    const marks = this.search.marks.get(number);
    if (row.line === line && row.sought === key && row.marks === marks) return; // unchanged
    Object.assign(row, { line, sought: key, marks });
    if (line === undefined) {
      this.#empty(row);
      return;
    }
    row.node.dataset.stream = line[STREAM];
    row.node.dataset.kind = line[KIND];
    this.#showSign(row, line);
    row.time.textContent = clock(line[TIME], true);
    if (row.time.title) row.time.title = ""; // of the previous line
    this.#fillText(row.text, line, number);
  }

  #empty(row) {
    row.time.textContent = row.text.textContent = row.sign.textContent = "";
    row.node.dataset.stream = row.node.dataset.kind = row.node.dataset.level = "";
    nameSign(row.sign, "");
  }

  /** Shows stream and level as letters, not by colour alone. */
  #showSign(row, line) {
    const level = line[LEVEL] ?? "";
    const isError = line[STREAM] === "stderr";
    const words = [level, isError && "stderr"].filter(Boolean).join(", ");
    row.node.dataset.level = level;
    row.sign.textContent = (SIGNS[level] ?? "").padEnd(1) + (isError ? "2>" : "");
    nameSign(row.sign, words);
  }

  #fillText(node, line, number) {
    const text = line[TEXT];
    const hits = this.search.hitsIn(plain(text), number);
    if (!hits.length && !text.includes("\x1b")) node.textContent = visible(text);
    else fill(node, marked(pieces(text), hits));
    if (line[GOES_ON]) node.prepend(el("span", { class: "goes-on", title: "The line before goes on" }, "↳"));
    if (line[LEFT_OUT]) node.append(el("button", { type: "button", class: "more" }, `… ${grouped(line[LEFT_OUT])} more characters`));
  }
}

function nameSign(node, words) {
  node.title = words;
  for (const [name, value] of [["role", "img"], ["aria-label", words]]) {
    if (words) node.setAttribute(name, value);
    else node.removeAttribute(name);
  }
}
