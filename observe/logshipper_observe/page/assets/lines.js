// A cache of a job's lines by number, which loads missing ones.

import { get, look } from "./api.js";

const PAGE = 200;
const MAX_PAGES = 60;

/** A line of the server's answer is a list (observe/logshipper_observe/page/api/console.py). */
export const TIME = 0, STREAM = 1, KIND = 2, TEXT = 3, ATTEMPT = 4, CAPTURE = 5, LEFT_OUT = 6, GOES_ON = 7, NUMBER = 8, LEVEL = 9;

export class Lines {
  /** changed: called for new or other lines. failed: called with a Failure. */
  constructor(id, changed, failed) {
    this.id = id;
    this.view = {};
    this.changed = changed;
    this.failed = failed;
    this.reset();
  }

  /** Selects lines: `streams`, `attempt`; with `only`, hits of a search by their index. */
  reset(view = this.view) {
    this.view = view;
    this.total = 0; // shown lines
    this.linesTotal = 0; // includes lines without a hit
    this.limited = false; // the search has stopped at its limit
    this.generation = -1;
    this.problem = "";
    this.complete = true;
    this.known = false; // whether the server has answered
    this.pages = new Map(); // by number
    this.busy = new Set(); // loading pages
    this.fetching?.abort();
    this.fetching = new AbortController();
  }

  get path() {
    return ["jobs", this.id, "lines"];
  }

  /** Returns a line, undefined for a missing one. */
  line(number) {
    const page = this.pages.get(Math.floor(number / PAGE));
    return page?.[number % PAGE];
  }

  /** Loads the newest lines. count: the number of visible ones. */
  async refresh(count, signal) {
    const view = this.view;
    const { document, changed } = await look(this.path, { ...view, from: -count, count }, signal);
    if (view !== this.view || (!changed && this.known)) return;
    this.#note(document);
    document.lines.forEach((line, at) => this.#put(document.from + at, line));
    this.changed();
  }

  /** Loads missing lines from first to end. */
  want(first, end) {
    end = Math.min(end, this.total);
    for (let page = Math.floor(first / PAGE); page * PAGE < end; page += 1) {
      const had = this.pages.get(page);
      if (had) {
        this.pages.delete(page); // the most recently used page is the last one
        this.pages.set(page, had);
      }
      const begin = Math.max(first, page * PAGE);
      if (!this.busy.has(page) && !this.#has(begin, Math.min(end, (page + 1) * PAGE))) this.#fetch(page);
    }
  }

  #has(first, end) {
    for (let number = first; number < end; number += 1) if (this.line(number) === undefined) return false;
    return true;
  }

  /** Aborts running requests. */
  giveUp() {
    this.fetching.abort();
    this.fetching = new AbortController();
    this.busy = new Set();
  }

  async #fetch(page) {
    const { view, fetching, busy } = this;
    busy.add(page);
    try {
      const document = await get(this.path, { ...view, from: page * PAGE, count: PAGE }, fetching.signal);
      if (view !== this.view) return;
      this.#note(document);
      this.pages.set(page, document.lines);
      while (this.pages.size > MAX_PAGES) this.pages.delete(this.pages.keys().next().value);
      busy.delete(page);
      this.changed();
    } catch (error) {
      if (error.name === "AbortError") return;
      busy.delete(page);
      this.failed(error);
    }
  }

  #note(document) {
    if (document.generation !== this.generation) this.pages.clear(); // renumbered
    this.generation = document.generation;
    this.total = document.total;
    this.linesTotal = document.lines_total ?? document.total;
    this.limited = document.limited ?? false;
    this.problem = document.problem;
    this.complete = document.complete;
    this.known = true;
  }

  #put(number, line) {
    const page = Math.floor(number / PAGE);
    let lines = this.pages.get(page);
    if (!lines) this.pages.set(page, (lines = []));
    lines[number % PAGE] = line;
  }
}
