// Pages of the job's metadata as a table, newest first, with a column per key. Called by
// job.js: context has `job`, `follow`, `go`, `failed`, `answered`.

import { look, path, repeat } from "./api.js";
import { ColumnChooser } from "./column_chooser.js";
import { el, fill, visible } from "./dom.js";
import { FOUND, notSeriesButton } from "./found_series.js";
import { grouped, isRunning, local, plural, shortText } from "./format.js";
import { OutputSeries } from "./output_series.js";
import { saveFrom } from "./save.js";
import { keepSettings } from "./settings.js";

const ROWS = 100; // per page
const SECS = 2; // polling interval of a running job
const MOST_COLUMNS = 40; // by default
const NOTHING = "No metadata yet: it is lines on stdout that are one JSON object";
const NUMBER = /^(-?\d+(\.\d+)?([eE][-+]?\d+)?|NaN|-?Infinity)$/;

export function show(root, context) {
  const table = new MetadataTable(root, context);
  return { close: () => table.close() };
}

class MetadataTable {
  constructor(root, context) {
    this.id = context.job.job_id;
    this.context = context;
    this.search = context.words.get("search") ?? "";
    this.order = context.words.get("order") === "oldest" ? "oldest" : "newest";
    /** @type {({from: string, skip: number} | null)[]} begins of the pages up to this one; null: the start */
    this.places = [null];
    this.numbers = [0]; // rows before each of these pages
    this.open = new Set(); // rows with a visible exact line
    this.#build(root);
    this.looking = repeat((signal) => this.#turn(signal), () => (isRunning(this.context.job.state) ? SECS : 5));
  }

  close() {
    this.looking.stop();
    this.asking?.abort();
    clearTimeout(this.typing);
    this.outputSeries.close();
  }

  #build(root) {
    this.columns = new ColumnChooser({
      byDefault: (column) => this.columns.rankOf(column) < MOST_COLUMNS, changed: () => this.#draw(),
    });
    const button = (text, call, label = text) =>
      el("button", { type: "button", "aria-label": label, on: { click: call } }, text);
    this.searchBox = el("input", { type: "search", placeholder: "search records", "aria-label": "Search records",
      value: this.search, autocomplete: "off", spellcheck: "false", on: { input: () => this.#type() } });
    this.newest = button("Newest", () => this.#begin("newest"), "Newest records");
    this.newer = button("Newer", () => this.#turnPage(this.order === "newest" ? -1 : 1), "Newer records");
    this.older = button("Older", () => this.#turnPage(this.order === "newest" ? 1 : -1), "Older records");
    this.oldest = button("Oldest", () => this.#begin("oldest"), "Oldest records");
    this.status = el("p", { class: "graph-rule", role: "status" });
    this.hints = el("div", { class: "graph-notes" });
    this.tables = el("div");
    const save = (suffix) => saveFrom(path(["jobs", this.id, `records.${suffix}`]));
    root.append(
      el("div", { class: "graph-controls", role: "group", "aria-label": "Metadata" },
        this.searchBox, this.newest, this.newer, this.older, this.oldest, this.columns.root,
        button("CSV", () => save("csv"), "All records as CSV"),
        button("JSONL", () => save("jsonl"), "All records as JSONL")),
      this.status, this.hints,
      el("div", { class: "records-scroll", tabindex: 0, role: "region", "aria-label": "Records" }, this.tables),
      (this.outputSeries = new OutputSeries(this.context)).root);
  }

  #type() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      this.search = this.searchBox.value.trim();
      this.#begin(this.order);
    }, 200);
  }

  #begin(order) {
    this.order = order;
    keepSettings(`#/job/${encodeURIComponent(this.id)}/metadata`, { search: this.search, order: order === "newest" ? "" : order });
    this.places = [null];
    this.numbers = [0];
    this.#again();
  }

  #turnPage(by) {
    if (by > 0 && this.page?.next) {
      this.places.push(this.page.next);
      this.numbers.push(this.numbers.at(-1) + this.page.rows.length);
    } else if (by < 0 && this.places.length > 1) {
      this.places.pop();
      this.numbers.pop();
    } else return;
    this.#again();
  }

  #again() {
    this.asking?.abort();
    this.asking = new AbortController();
    this.#turn(this.asking.signal).catch((error) => {
      if (error.name !== "AbortError") throw error;
    });
  }

  async #turn(signal) {
    try {
      const page = await this.#fetch(signal);
      if (signal.aborted) return;
      this.context.answered();
      if (page === this.page) return;
      this.page = page;
      this.columns.take(page.columns);
      this.#draw();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.context.failed(error);
    }
  }

  /** Loads a page of rows. A search may need several answers, each over a part of the records. */
  async #fetch(signal) {
    let place = this.places.at(-1);
    let found = null;
    let left = ROWS;
    for (;;) {
      const words = { order: this.order, limit: left, search: this.search, ...place };
      const { document } = await look(["jobs", this.id, "records"], words, signal);
      if (!this.search || (!found && (document.rows.length === left || !document.next))) return document;
      found = found ? joined(found, document) : document;
      left = ROWS - found.rows.length;
      if (!left || !document.next) return found;
      place = document.next;
      const searched = `Searched ${grouped(found.searched)} of ${plural(found.total, "record")}`;
      fill(this.status, searched, `, ${grouped(found.rows.length)} found …`);
    }
  }

  #draw() {
    const { page } = this;
    if (!page) return;
    this.columns.draw();
    const columns = page.columns.map((column, at) => ({ ...column, at, number: isNumeric(page.rows, at) }))
      .filter((column) => this.columns.isShown(column))
      .sort((a, b) => this.columns.rankOf(a) - this.columns.rankOf(b));
    const several = page.rows.some((row) => row.attempt > 1);
    const rows = this.order === "newest" ? page.rows : [...page.rows].reverse();
    const parts = [false, true].map((isFound) => [isFound, rows.filter((row) => (row.origin === "auto") === isFound)]);
    const shown = parts.filter(([isFound, some]) => some.length || (!isFound && !rows.length));
    fill(this.tables, shown.flatMap(([isFound, some]) => [
      isFound && el("h3", {}, FOUND),
      this.#table(some, columns.filter((column) => column.is_auto === isFound), several)]));
    this.#say(page);
  }

  #table(rows, columns, several) {
    const heading = (column) => this.#heading(column);
    return el("table", { class: "records" },
      el("thead", {}, el("tr", {},
        el("th", { scope: "col" }, el("span", { class: "chart-spoken" }, "exact line")),
        el("th", { scope: "col" }, "printed at"),
        several && el("th", { scope: "col", class: "number" }, "attempt"),
        columns.map(heading))),
      el("tbody", {}, rows.map((row) => this.#row(row, columns, several))));
  }

  #heading(column) {
    const name = visible(column.name) || '""';
    return el("th", { scope: "col", title: name, class: column.number ? "number" : null }, el("bdi", {}, name),
      column.is_auto && notSeriesButton([column.name], (words) => fill(this.status, words)));
  }

  #row(row, columns, several) {
    const time = local(Number(BigInt(row.time_ns) / 1000000n), true);
    const token = `${row.time_ns} ${row.capture} ${row.line}`;
    const isOpen = this.open.has(token);
    const opener = el("button", { type: "button", class: "quiet opener", "aria-expanded": String(isOpen),
      "aria-label": `Exact line of ${time}`, on: { click: () => toggle() } }, "▸");
    const exact = el("tr", { class: "exact", hidden: !isOpen },
      el("td", { colspan: columns.length + (several ? 3 : 2) }, el("code", {}, row.line)));
    const toggle = () => {
      exact.hidden = !exact.hidden;
      opener.setAttribute("aria-expanded", String(!exact.hidden));
      if (exact.hidden) this.open.delete(token);
      else this.open.add(token);
    };
    const cells = columns.map(({ at }) => {
      const value = row.cells[at];
      if (value === null) return el("td");
      const words = shortText(value);
      return el("td", { class: NUMBER.test(value) ? "number" : null, title: words === value ? null : value },
        el("bdi", {}, words));
    });
    return [
      el("tr", {}, el("td", {}, opener), el("td", { class: "time" }, time),
        several && el("td", { class: "number" }, row.attempt), cells),
      exact,
    ];
  }

  #say(page) {
    const first = this.numbers.at(-1) + 1;
    const range = `${grouped(first)} to ${grouped(first + page.rows.length - 1)}`;
    const newestFirst = this.order === "newest";
    let words = `${newestFirst ? "Newest" : "Oldest"} first: ${range} of ${plural(page.total, "record")}`;
    if (this.search) words = `Found: ${range}${page.next ? " and more" : ""}, of ${plural(page.total, "record")}`;
    if (!page.rows.length) words = this.search ? `None of ${plural(page.total, "record")} has this text` : NOTHING;
    fill(this.status, words, this.columns.words());
    fill(this.hints, page.hints.map((hint) => el("p", {}, el("bdi", {}, visible(hint)))));
    this.newer.disabled = newestFirst ? this.places.length < 2 : !page.next;
    this.older.disabled = newestFirst ? !page.next : this.places.length < 2;
  }
}

/** Whether a column has only numbers. */
function isNumeric(rows, at) {
  return rows.every((row) => row.cells[at] === null || NUMBER.test(row.cells[at]));
}

/** Joins two pages. New columns of the second come last. */
function joined(one, other) {
  const places = new Map(one.columns.map((column, at) => [JSON.stringify(column.path), at]));
  const columns = [...one.columns];
  const of = other.columns.map((column) => {
    const token = JSON.stringify(column.path);
    if (!places.has(token)) places.set(token, columns.push(column) - 1);
    return places.get(token);
  });
  const widened = (row, at) => {
    const cells = Array(columns.length).fill(null);
    row.cells.forEach((cell, number) => { cells[at ? at[number] : number] = cell; });
    return { ...row, cells };
  };
  const rows = [...one.rows.map((row) => widened(row, null)), ...other.rows.map((row) => widened(row, of))];
  return { ...other, columns, rows, searched: one.searched + other.searched };
}
