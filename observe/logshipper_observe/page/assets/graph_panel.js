// One graph with all around it: title, buttons, legend, notes, and its numbers in a table for those who don't see it.

import { Chart } from "./chart.js";
import { summaryOf } from "./curve.js";
import { el, fill, visible } from "./dom.js";
import { bestOf } from "./families.js";
import { grouped, short } from "./format.js";
import { notSeriesButton } from "./found_series.js";
import { FullScreen } from "./full_screen.js";
import { Legend } from "./legend.js";
import { NO_MARKS } from "./marks.js";
import { addressOfLine } from "./point_lines.js";
import { fileName, saveBlob, saveFrom } from "./save.js";

const ZOOM_MS = 250; // after the last move
const SHOWN_SERIES = 64; // of the table of numbers

/** A key that can be seen, even an empty one. @param {string} key */
export function named(key) {
  return visible(key) || '""';
}

/** @typedef {{title: string, xLabel: string, xKey: string | null, markable: boolean, xKind: string, yKind: string, series: import("./curve.js").Series[],
 *   notes: string[], goal?: string}} Drawing what a panel shows; goal: which number is the best, "least" or "largest" */

export class GraphPanel {
  /** @param {{title: string, name: string[], csv?: () => string[],
   *   found?: string[], address?: string, detail?: (x: [number, number]) => Promise<Drawing | null | undefined>}} options
   * name: what a picture's file is called after; csv: the addresses of the exact numbers; found: the keys of series; address: of all graphs, for a small panel without
   * buttons; detail: what there is to
   * draw between two X; undefined where it was given up, null where it failed */
  constructor(options) {
    this.options = options;
    this.title = named(options.title);
    this.log = el("button", { type: "button", "aria-pressed": "false", on: { click: () => this.#toggleLog() } }, "Log");
    this.reset = el("button", { type: "button", disabled: true, on: { click: () => this.chart.reset() } }, "Show all");
    const label = (verb) => `${verb} ${this.title}`;
    this.log.setAttribute("aria-label", label("Log scale of"));
    this.reset.setAttribute("aria-label", label("Show all of"));
    const save = (text, call) =>
      el("button", { type: "button", "aria-label": label(`${text} of`), on: { click: call } }, text);
    this.host = el("div");
    this.legendHost = el("div");
    this.best = el("p", { class: "graph-best" });
    this.lineStatus = el("p", { class: "graph-line-status", role: "status" });
    this.notes = el("div", { class: "graph-notes" });
    this.values = el("details", { class: "graph-values", on: { toggle: () => this.#showValues() } },
      el("summary", {}, "Numbers"), el("div"));
    const content = el("div", { class: "graph-content" });
    this.root = el("figure", { class: "graph-panel", "aria-label": this.title }, content);
    const full = new FullScreen(this.root, content, this.title);
    if (options.address) content.append(
      el("div", { class: "graph-head" }, el("h3", { title: this.title }, el("a", { href: options.address }, el("bdi", {}, this.title))), this.best),
      this.host, this.legendHost);
    else content.append(
      el("div", { class: "graph-head" },
        el("h3", { title: this.title }, el("bdi", {}, this.title)), this.log, this.reset, full.button,
        save("PNG", () => this.#savePng()), options.csv && save("CSV", () => options.csv().forEach((address) => saveFrom(address))),
        options.found && notSeriesButton(options.found, (words) => fill(this.lineStatus, words))),
      this.best, this.host, this.legendHost, this.lineStatus, this.notes, this.values);
    this.host.className = "graph-waits";
    fill(this.host, "…");
    /** @type {Chart | null} */
    this.chart = null;
    /** @type {(object | undefined)[]} of the answers that the drawing was made from */
    this.graphs = [];
    /** @type {Drawing | null} what is drawn in place of the drawing: more of what is zoomed to */
    this.detail = null;
    this.smooth = 0;
    this.debias = false;
    this.isLog = false;
    /** @type {import("./marks.js").MarksOver} */
    this.marks = NO_MARKS;
  }

  /** Keeps the graphs of answers; whether they are others than before. @param {(object | undefined)[]} graphs */
  takes(graphs) {
    const before = this.graphs;
    this.graphs = graphs;
    return before.length !== graphs.length || graphs.some((graph, at) => graph !== before[at]);
  }

  /** @param {Drawing} drawing */
  show(drawing) {
    this.drawing = drawing;
    if (!this.chart) {
      this.host.className = "";
      this.chart = new Chart(this.host, { title: this.title, xLabel: named(drawing.xLabel) });
      this.chart.onView = () => this.#viewed();
      this.chart.onPick = (source, x, y) => this.#goToLine(source, x, y);
      this.legend = new Legend(this.legendHost, this.chart);
    }
    const { chart } = this;
    if (chart.xLabel !== named(drawing.xLabel)) chart.view = this.detail = null;
    chart.xLabel = named(drawing.xLabel);
    chart.xKind = drawing.xKind;
    chart.yKind = drawing.yKind;
    chart.smooth = this.smooth;
    chart.debias = this.debias;
    chart.logY = this.isLog;
    // what is zoomed to stays as it is until there is more of it
    this.#draw(chart.view && this.detail ? this.detail : drawing);
    this.#showMarks();
    this.#showValues();
    if (chart.view) this.#viewed();
  }

  /** Where one zooms into a series of which few points are drawn, more of them are asked for. */
  #viewed() {
    const { view } = this.chart;
    this.reset.disabled = view === null;
    clearTimeout(this.zooming);
    if (!this.options.detail || !this.drawing.series.some((one) => one.isPart)) return;
    if (view) this.zooming = setTimeout(() => this.#showDetail(view), ZOOM_MS);
    else this.#draw(this.drawing);
  }

  async #showDetail(view) {
    let drawing;
    do drawing = await this.options.detail(view.x); // given up where other numbers are wanted
    while (drawing === undefined && this.chart?.view === view);
    if (drawing && this.chart?.view === view) this.#draw(drawing);
  }

  /** @param {Drawing} drawing all there is, or more of what is zoomed to */
  #draw(drawing) {
    const { chart } = this;
    const seriesOf = ({ series }) => series.map((one) => ({ ...one, label: visible(one.label) }));
    this.detail = drawing === this.drawing ? null : drawing;
    if (this.detail) chart.setDetail(seriesOf(drawing), seriesOf(this.drawing));
    else chart.setSeries(seriesOf(drawing));
    this.#showBest();
    this.legend.show();
    this.#showNotes(drawing.notes);
  }

  /** Marks the best number of all there is. */
  #showBest() {
    const { chart, drawing } = this;
    chart.best = bestOf(drawing);
    if (!chart.best) fill(this.best);
    else fill(this.best, el("bdi", {}, chart.bestWords(drawing.series)));
  }

  /** Opens the console at a point's line, or says why there is none. */
  async #goToLine(source, x, y) {
    this.lineSearch?.abort();
    const lineSearch = (this.lineSearch = new AbortController());
    fill(this.lineStatus, "Looking for the line …");
    try {
      const address = await addressOfLine(source, x, y, (words) => fill(this.lineStatus, words), lineSearch.signal);
      fill(this.lineStatus);
      location.hash = address;
    } catch (error) {
      if (!lineSearch.signal.aborted) fill(this.lineStatus, error.message);
    }
  }

  /** @param {import("./marks.js").MarksOver} marks */
  setMarks(marks) {
    if (this.marks === marks) return;
    this.marks = marks;
    this.#showMarks();
  }

  #showMarks() {
    if (this.chart) this.chart.setMarks(this.drawing.markable ? this.marks(this.drawing.xKey) : []);
  }

  /** @param {number} smooth its weight @param {boolean} debias */
  setSmooth(smooth, debias) {
    Object.assign(this, { smooth, debias });
    this.chart?.setLook({ smooth, debias });
  }

  /** @param {boolean} on */
  setLog(on) {
    if (on === this.isLog) return;
    this.isLog = on;
    this.log.setAttribute("aria-pressed", String(on));
    this.chart?.setLook({ logY: on });
    this.chart?.reset();
    this.#showNotes();
  }

  close() {
    clearTimeout(this.zooming);
    this.lineSearch?.abort();
    this.chart?.close();
    this.chart = null;
  }

  #toggleLog() {
    this.setLog(!this.isLog);
  }

  #showNotes(said = this.drawing?.notes || []) {
    const below = this.chart?.notOnLog || 0;
    const notes = [...said];
    if (below) notes.push(`${grouped(below)} point${below === 1 ? " isn't" : "s aren't"} above 0: not on a log scale.`);
    fill(this.notes, notes.map((note) => el("p", {}, note)));
  }

  #showValues() {
    if (!this.values.open || !this.drawing) return;
    const rows = this.drawing.series.slice(0, SHOWN_SERIES).map((one) => {
      const { seen, low, high, last } = summaryOf(one);
      const cells = [seen, low, high, last].map((value) => el("td", { title: Number.isFinite(value) ? String(value) : null },
        typeof value === "string" ? value : Number.isFinite(value) ? short(value) : "none"));
      return el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, one.label || this.title)), cells);
    });
    const head = ["Series", "points", "lowest", "highest", "last"].map((name) => el("th", { scope: "col" }, name));
    fill(this.values.lastElementChild, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
  }

  #file(suffix) {
    return fileName([...this.options.name, this.options.title], suffix);
  }

  async #savePng() {
    if (this.chart) saveBlob(await this.chart.png(), this.#file("png"));
  }
}
