// The console's search: its field and switches, what was found, and where in a line it is. A text is looked for in lines as
// they are here; where an expression is, the server knows, which takes no longer for one than for another.

import { Failure, get } from "./api.js";
import { el, fill } from "./dom.js";
import { grouped, plural } from "./format.js";

const TYPED_MS = 150;

/** @typedef {{id: string, words: URLSearchParams, view: () => {[name: string]: string | null}, here: () => number, total: () => number,
 *   isFollowing: () => boolean, goTo: (hit: {line: number, at: number}) => void, changed: () => void, redraw: () => void, keep: () => void,
 *   leave: () => void, failed: (error: Error) => void}} Host
 * view: streams and attempt; here: the number of the first line that is seen; changed: other lines may be shown; leave: the
 * field is left */

export class ConsoleSearch {
  /** @param {Host} host */
  constructor(host) {
    this.host = host;
    const { words } = host;
    this.text = ""; // that was looked for last
    this.hits = 0;
    this.printed = 0;
    this.at = null; // which hit one is at, from 0
    this.line = null; // its number
    this.complete = true;
    this.limited = false;
    this.sought = 0; // lines that there were
    this.problem = ""; // of the expression
    this.marks = new Map(); // by the line's number: where the expression is
    this.marksOf = ""; // what they are of
    this.typing = 0;
    const button = (name, text, title) => {
      this[name] = words.get(name) === "1";
      const node = el("button", {
        type: "button", "aria-pressed": String(this[name]), "aria-label": title, title, on: { click: () => this.#switch(name, node) },
      }, text);
      return node;
    };
    this.field = el("input", {
      type: "search", placeholder: "Search", "aria-label": "Search in the log", "aria-describedby": "search-problem", maxlength: 200,
      spellcheck: "false", value: words.get("q") ?? "",
      on: { input: () => this.#typed(), keydown: (event) => this.#key(event) },
    });
    this.count = el("output", { class: "hits", "aria-live": "polite" });
    this.fault = el("p", { class: "failure search-problem", id: "search-problem", role: "alert", hidden: true });
    this.tools = el("span", { class: "group search" },
      this.field, button("exact", "Aa", "Upper and lower case differ"), button("regex", ".*", "Regular expression"),
      el("button", { type: "button", "aria-label": "Previous hit", title: "Previous hit (Shift+Enter, p)", on: { click: () => this.step(true) } }, "↑"),
      el("button", { type: "button", "aria-label": "Next hit", title: "Next hit (Enter, n)", on: { click: () => this.step(false) } }, "↓"),
      (this.onlyButton = button("only", "Only these lines", "Show only the lines that match")), this.count);
  }

  close() {
    this.searching?.abort();
    this.marking?.abort();
    clearTimeout(this.typing);
  }

  /** What the address keeps. */
  get settings() {
    return { q: this.field.value, exact: this.exact ? 1 : "", regex: this.regex ? 1 : "", only: this.only ? 1 : "" };
  }

  /** What is asked for. */
  get query() {
    return { q: this.text, exact: this.exact ? 1 : null, regex: this.regex ? 1 : null };
  }

  /** Words of the lines that are shown: none where all are. */
  get filter() {
    return this.only && this.text && !this.problem ? { ...this.query, only: 1 } : {};
  }

  /** What is looked for, as a text that differs where that does. */
  get key() {
    return this.text ? `${this.exact}${this.regex}${this.text}` : "";
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  showAll() {
    this.only = false;
    this.onlyButton.setAttribute("aria-pressed", "false");
    this.host.changed();
  }

  step(back) {
    if (!this.text) return;
    this.seek({ near: this.line === null ? this.host.here() : this.line + (back ? -1 : 1), back });
  }

  /** There are other lines, or more. first: for the first time. */
  linesChanged(total, first, silent) {
    if (first && total && this.field.value && !this.text) this.seek({ silent }); // the address has it
    else if (this.text && this.complete && !this.problem && this.sought !== total) this.seek({ silent: true });
  }

  /** Looks for what the field has. anew: from what is seen on; near, back: on from a hit; silent: only counts. */
  async seek({ anew = false, near = null, back = false, silent = false }) {
    const { host } = this;
    this.searching?.abort();
    const searching = (this.searching = new AbortController());
    this.text = this.field.value;
    if (anew) {
      Object.assign(this, { hits: 0, at: null, line: null });
      host.keep();
    }
    if (!this.text) {
      this.complete = true;
      fill(this.count);
      this.#showProblem("");
      host.changed();
      host.redraw();
      return;
    }
    this.complete &&= silent; // what only counts doesn't end what is to be gone to
    let from = near ?? this.line ?? Math.max(host.here(), 0);
    if (from < 0) from = back ? Math.max(host.total() - 1, 0) : 0; // round the beginning
    try {
      do {
        const found = await get(["jobs", host.id, "search"], { ...host.view(), ...this.query, near: from, back: back ? 1 : null }, searching.signal);
        Object.assign(this, { hits: found.hits, printed: found.printed, complete: found.complete, sought: found.total, limited: found.limited });
        if (!silent || this.line !== null) Object.assign(this, { at: found.at, line: found.line });
        this.#showProblem("");
        this.#showHits(found.scanned);
        host.changed();
      } while (!this.complete);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error instanceof Failure && error.status === 400) {
        fill(this.count);
        this.#showProblem(error.message);
        host.changed();
        host.redraw();
      } else host.failed(error);
      this.complete = true;
      return;
    }
    if (!silent && this.line !== null) host.goTo(this);
    host.redraw();
    if (!silent) this.linesChanged(host.total(), false, true); // others came meanwhile
  }

  #showProblem(words) {
    this.problem = words;
    this.fault.hidden = !words;
    fill(this.fault, words);
    this.field.setAttribute("aria-invalid", String(Boolean(words)));
  }

  #showHits(scanned) {
    const { hits, printed, at, complete, limited } = this;
    const repeats = printed > hits ? `, printed ${grouped(printed)} times` : "";
    const most = limited ? "; more aren't looked for" : complete ? "" : ` (${Math.floor(scanned * 100)} % looked through)`;
    const place = at === null ? "" : `${grouped(at + 1)} of `;
    fill(this.count, hits ? `${place}${plural(hits, "line")}${repeats}${most}` : complete ? "nothing found" : most.trim());
  }

  #typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.seek({ anew: true }), TYPED_MS);
  }

  #switch(name, node) {
    this[name] = !this[name];
    node.setAttribute("aria-pressed", String(this[name]));
    this.seek({ anew: true, silent: name === "only" && this.host.isFollowing() });
  }

  #key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(this.typing);
      if (this.field.value !== this.text) this.seek({ anew: true });
      else this.step(event.shiftKey);
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.seek({ anew: true });
      this.host.leave();
    }
  }

  // ---- where it is in a line

  /** Places [begin, end] of what is looked for in a line without its colours. */
  hitsIn(text, number) {
    if (!this.text || this.problem) return [];
    if (this.regex) return this.marks.get(number) ?? [];
    const needle = this.exact ? this.text : this.text.toLowerCase();
    const within = this.exact ? text : text.toLowerCase();
    if (within.length !== text.length) return []; // lower case of another length: places would be wrong
    const found = [];
    for (let at = within.indexOf(needle); at >= 0; at = within.indexOf(needle, at + needle.length)) found.push([at, at + needle.length]);
    return found;
  }

  /** Asks where the expression is in lines that are seen. lines: their words; numbers: of each from the first on. */
  async wantMarks(words, generation, first, numbers) {
    if (!this.text || !this.regex || this.problem) return;
    const key = JSON.stringify([words, this.key, generation]);
    if (key !== this.marksOf) {
      this.marks.clear();
      this.marksOf = key;
    }
    if (numbers.every((number) => this.marks.has(number))) return;
    this.marking?.abort();
    const marking = (this.marking = new AbortController());
    try {
      const { marks } = await get(["jobs", this.host.id, "marks"], { ...words, ...this.query, from: first, count: numbers.length }, marking.signal);
      if (key !== this.marksOf) return;
      numbers.forEach((number, at) => this.marks.set(number, marks[at] ?? []));
      this.host.redraw();
    } catch (error) {
      if (error.name !== "AbortError") this.host.failed(error);
    }
  }
}
