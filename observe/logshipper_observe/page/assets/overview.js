// The first look at a job: its running bars, its last errors, its most telling graphs, how it was started, and its last
// lines. Called by job.js: context has `job`, `follow`, `failed`, `answered`.

import { get, look, repeat } from "./api.js";
import { Asking } from "./asking.js";
import { el, fill, visible } from "./dom.js";
import { familiesOf, familyDrawing, keysOf, nameOf } from "./families.js";
import { barsOf, fractionOf, isFailed, isRunning, shortText } from "./format.js";
import { drawingOf, fetchGraphs } from "./graph_data.js";
import { GraphPanel } from "./graph_panel.js";
import { LineRows } from "./line_rows.js";
import { LEVEL, NUMBER, STREAM } from "./lines.js";

const MOST_GRAPHS = 6;
const LEAST_GRAPHS = 4; // rates and counters fill up to so many
const MOST_TELLING = 2; // the rank of keys that are no rates and counters
const LAST_LINES = 10;
const ERROR_LINES = 6;
const SEARCHED_LINES = 200; // for errors, at the end of the log
const MOST_OPTIONS = 12;
const FIRST_RECORDS = 100; // with the configuration (model/options.py)
const AUTO = { x: "", smooth: 0 };
const NO_SEARCH = { key: "", line: undefined, marks: new Map(), hitsIn: () => [] };

export function show(root, context) {
  const view = new Overview(root, context);
  return { close: () => view.close() };
}

class Overview {
  constructor(root, context) {
    this.context = context;
    this.id = context.job.job_id;
    /** @type {Map<string, GraphPanel>} by the family's name */
    this.panels = new Map();
    this.asking = new Asking((error) => context.failed(error));
    this.bars = el("ul", { class: "bars", "aria-label": "Running bars" });
    this.errors = section("Last errors", "overview-errors");
    this.graphs = el("div", { class: "overview-graphs" });
    this.start = el("aside", { class: "overview-start", "aria-label": "How it was started" });
    this.lines = section("Last lines", "overview-lines");
    root.append(this.bars, this.errors.root, el("div", { class: "overview-middle" }, this.graphs, this.start), this.lines.root);
    this.#showBars(context.job);
    context.follow((job) => this.#showBars(job));
    this.looking = repeat(() => this.asking.quietly(this.#turn()), () => (isRunning(context.job.state) ? this.asking.secs : 5));
  }

  close() {
    this.looking.stop();
    this.asking.close();
    for (const panel of this.panels.values()) panel.close();
  }

  #showBars(job) {
    const texts = barsOf(job);
    this.bars.hidden = !texts.length;
    fill(this.bars, texts.map((text) => {
      const fraction = fractionOf(text);
      return el("li", {}, fraction !== null && el("progress", { value: fraction, max: 1, "aria-label": "Progress" }), el("code", {}, text));
    }));
  }

  async #turn() {
    const { signal } = this.asking;
    const { document: axes } = await look(["jobs", this.id, "axes"], {}, signal);
    await this.#showStart(axes, signal);
    if (signal.aborted) return;
    this.axes = axes;
    await Promise.all([this.#showGraphs(signal), this.#showLines(signal)]);
    this.context.answered();
  }

  /** Shows how the job was started. Its configuration changes with the first records and with keys that begin to change. */
  async #showStart(axes, signal) {
    const from = JSON.stringify([axes.keys, axes.y, Math.min(axes.records, FIRST_RECORDS)]);
    if (from === this.startedFrom) return;
    const { options, configuration } = await get(["jobs", this.id, "start"], {}, signal);
    this.startedFrom = from;
    const { command, cwd, "git.commit": commit } = options;
    const rows = [...Object.entries(configuration), ["folder", cwd], ["commit", commit?.slice(0, 12)]];
    const shown = rows.filter(([, value]) => value).slice(0, MOST_OPTIONS);
    this.start.hidden = !command && !shown.length;
    fill(this.start, command && [el("h2", {}, "Command"), el("code", { class: "command" }, command)],
      shown.length > 0 && [el("h2", {}, "Configuration"), el("table", {}, el("tbody", {}, shown.map(([name, value]) =>
        el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, visible(name) || '""')), el("td", { title: value }, el("bdi", {}, shortText(value)))))))]);
  }

  /** The most telling families: rates and counters only where there are few others, and no counter over itself. */
  #families() {
    const { axes } = this;
    const all = familiesOf(axes, axes.y.filter((key) => key !== axes.x?.key), true).sort((a, b) => a.rank - b.rank);
    const telling = all.filter(({ rank }) => rank <= MOST_TELLING).length;
    return all.slice(0, Math.min(Math.max(telling, LEAST_GRAPHS), MOST_GRAPHS));
  }

  async #showGraphs(signal) {
    const families = this.#families();
    const names = families.map(nameOf);
    this.graphs.hidden = !families.length;
    this.graphs.dataset.count = String(families.length);
    for (const [name, panel] of this.panels) {
      if (names.includes(name)) continue;
      panel.close();
      this.panels.delete(name);
    }
    const panels = families.map((family, at) => this.#panel(family, names[at]));
    if (panels.some((panel, at) => this.graphs.children[at] !== panel.root)) fill(this.graphs, panels.map((panel) => panel.root));
    if (!families.length) return;
    const { graphs, secs } = await fetchGraphs(this.id, families.flatMap(keysOf), AUTO, signal);
    if (signal.aborted) return;
    this.asking.took(secs);
    families.forEach((family, at) => {
      const found = keysOf(family).map((key) => graphs.get(key));
      if (found.includes(undefined) || !panels[at].takes(found)) return;
      panels[at].show(familyDrawing(family, found.map((graph) => drawingOf(graph, { id: this.id, x: AUTO.x }))));
    });
  }

  #panel(family, name) {
    if (!this.panels.has(name)) {
      this.panels.set(name, new GraphPanel({ title: family.title, name: [this.context.job.name, this.id],
        address: `#/job/${encodeURIComponent(this.id)}/graphs` }));
    }
    return this.panels.get(name);
  }

  async #showLines(signal) {
    const count = SEARCHED_LINES;
    const { document, changed } = await look(["jobs", this.id, "lines"], { from: -count, count }, signal);
    if (signal.aborted || (!changed && this.lines.rows.rows.length)) return;
    const lines = document.lines;
    this.lines.show(lines.slice(-LAST_LINES), this.id);
    const isError = (line) => ["error", "critical"].includes(line[LEVEL]) || line[STREAM] === "stderr";
    this.errors.show(isFailed(this.context.job.state) ? lines.filter(isError).slice(-ERROR_LINES) : [], this.id);
  }
}

/** Some lines below a heading, which links to them in the console. */
function section(title, name) {
  const host = el("div", { class: "log", tabindex: 0, role: "region", "aria-label": title });
  const link = el("a", {}, title);
  const rows = new LineRows(host, NO_SEARCH);
  const root = el("section", { class: name, hidden: true }, el("h2", {}, link), host);
  const show = (lines, id) => {
    root.hidden = !lines.length;
    link.href = `#/job/${encodeURIComponent(id)}/console${lines.length ? `?line=${lines[0][NUMBER] + 1}` : ""}`;
    rows.draw(0, lines.map((line) => ({ number: line[NUMBER], line })), null);
    for (const { node } of rows.rows.slice(lines.length)) node.hidden = true;
  };
  return { root, rows, show };
}
