// Lines of a job's log by their numbers: those that were fetched, and those that are to be.

import { get, look } from "./api.js";

const PAGE = 200;
const MAX_PAGES = 60;

/** A line as the server gives it: a list (observe/logshipper_observe/page/api/console.py). */
export const TIME = 0, STREAM = 1, KIND = 2, TEXT = 3, ATTEMPT = 4, CAPTURE = 5, LEFT_OUT = 6, GOES_ON = 7, NUMBER = 8, LEVEL = 9;

export class Lines {
  /** changed: is called when there are more, or others. failed: with a Failure. */
  constructor(id, changed, failed) {
    this.id = id;
    this.view = {};
    this.changed = changed;
    this.failed = failed;
    this.reset();
  }

  /** Shows other lines of the job: `streams`, `attempt`; with `only`, those that match, by their place among these. */
  reset(view = this.view) {
    this.view = view;
    this.total = 0; // that are shown
    this.linesTotal = 0; // those that don't match included
    this.limited = false; // more that match aren't looked for
    this.generation = -1;
    this.problem = "";
    this.complete = true;
    this.known = false; // whether the server has answered
    this.pages = new Map(); // by number
    this.busy = new Set(); // pages that are being fetched
    this.fetching?.abort();
    this.fetching = new AbortController();
  }

  get path() {
    return ["jobs", this.id, "lines"];
  }

  /** The line with a number; undefined where it isn't here. */
  line(number) {
    const page = this.pages.get(Math.floor(number / PAGE));
    return page?.[number % PAGE];
  }

  /** What the newest lines are. count: how many are seen. */
  async refresh(count, signal) {
    const view = this.view;
    const { document, changed } = await look(this.path, { ...view, from: -count, count }, signal);
    if (view !== this.view || (!changed && this.known)) return;
    this.#note(document);
    document.lines.forEach((line, at) => this.#put(document.from + at, line));
    this.changed();
  }

  /** Fetches what isn't here of the lines from first to end. */
  want(first, end) {
    end = Math.min(end, this.total);
    for (let page = Math.floor(first / PAGE); page * PAGE < end; page += 1) {
      const had = this.pages.get(page);
      if (had) {
        this.pages.delete(page); // the one that was wanted last goes last
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

  /** Drops fetches of what isn't seen any more. */
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
    if (document.generation !== this.generation) this.pages.clear(); // lines have other numbers now
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
