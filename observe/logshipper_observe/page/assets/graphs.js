// Numbers of the job's metadata over an X or over time, a graph for each key or all in one. Called by job.js: context
// has `job`, `follow`, `go`, `failed`, `answered`.

import { look, path, repeat } from "./api.js";
import { Asking } from "./asking.js";
import { el, fill, visible } from "./dom.js";
import { isRunning, plural } from "./format.js";
import { familiesOf, familyDrawing, keysOf, nameOf } from "./families.js";
import { FOUND } from "./found_series.js";
import { GraphControls } from "./graph_controls.js";
import { batches, drawingOf, fetchGraphs, xOf } from "./graph_data.js";
import { GraphPanel } from "./graph_panel.js";
import { JobMarks } from "./marks.js";
import { OutputSeries } from "./output_series.js";
import { PanelGrid } from "./panel_grid.js";
import { keepSettings } from "./settings.js";

const LAYOUTS = { "": "Train and validation together", each: "One for each key", together: "All in one" };
const MOST_TOGETHER = 16; // keys in one graph
const ALL = Symbol("all keys");

export function show(root, context) {
  const view = new GraphsView(root, context);
  return { close: () => view.close() };
}

class GraphsView {
  constructor(root, context) {
    this.id = context.job.job_id;
    this.context = context;
    this.layout = context.words.get("layout") in LAYOUTS ? context.words.get("layout") : "";
    /** @type {Map<string | symbol, import("./families.js").Family>} by the panel's name */
    this.families = new Map();
    this.marks = new JobMarks(this.id);
    const layout = el("select", { on: { change: (event) => this.#setLayout(event.target.value) } },
      Object.entries(LAYOUTS).map(([value, words]) => el("option", { value }, words)));
    layout.value = this.layout;
    this.controls = new GraphControls(context.words,
      { changed: () => this.#again(), look: () => this.grid.each((panel) => this.#dress(panel)), keep: () => this.#keep() },
      [el("label", {}, "Layout", layout)]);
    this.rule = el("p", { class: "graph-rule", role: "status" });
    this.progress = el("p", { class: "graph-rule" });
    this.host = el("div", { class: this.together ? "graph-grid together" : "graph-grid" });
    this.notes = el("div", { class: "graph-notes" });
    this.outputSeries = new OutputSeries(context);
    root.append(this.controls.root, this.rule, this.progress, this.host, this.notes, this.outputSeries.root);
    this.asking = new Asking((error) => this.context.failed(error));
    this.grid = new PanelGrid(this.host, (name) => this.#panel(name), () => this.asking.quietly(this.#fillPanels(true)));
    this.looking = repeat(() => this.#turn(), () => (isRunning(context.job.state) ? this.asking.secs : 5));
  }

  close() {
    this.looking.stop();
    this.asking.close();
    this.controls.close();
    this.outputSeries.close();
    this.grid.close();
  }

  get together() {
    return this.layout === "together";
  }

  #keep() {
    keepSettings(`#/job/${encodeURIComponent(this.id)}/graphs`, { ...this.controls.settings, layout: this.layout });
  }

  #setLayout(layout) {
    this.layout = layout;
    this.#keep();
    this.host.classList.toggle("together", this.together);
    this.#again();
  }

  /** Shows what is asked for now: other keys, another X. */
  #again() {
    this.asking.anew();
    this.grid.outdate();
    this.asking.quietly(this.#turn());
  }

  async #turn() {
    const { signal } = this.asking;
    await this.asking.quietly((async () => {
      const { document: axes } = await look(["jobs", this.id, "axes"], { x: this.controls.x }, signal);
      if (signal.aborted) return;
      if (this.axes !== axes) this.#showAxes(axes);
      const keys = this.#keys();
      this.families = new Map(familiesOf(this.axes, keys, !this.layout).map((family) => [nameOf(family), family]));
      if (this.together) this.grid.layOut(keys.length ? [ALL] : []);
      else this.grid.layOut([...this.families.keys()], (name) => this.families.get(name).section);
      await this.#fillPanels(false);
      const marks = await this.marks.fetch(this.#markedOver(), signal);
      if (signal.aborted) return;
      this.grid.each((panel) => panel.setMarks(marks));
      this.context.answered();
    })());
  }

  #showAxes(axes) {
    this.axes = axes;
    this.controls.offer(axes.keys);
    fill(this.rule, axes.x ? axes.x.words : this.#nothing());
    fill(this.notes, axes.notes.map((note) => el("p", {}, note)), this.#options());
  }

  /** Keys that have one value each: a table of them in the place of graphs. */
  #options() {
    if (!this.axes.options.length) return null;
    const row = ({ key, value }) => el("tr", {},
      el("th", { scope: "row" }, el("bdi", {}, visible(key) || '""')), el("td", {}, visible(value)));
    return el("table", { class: "options" },
      el("caption", {}, "One value each, so no graph"), el("tbody", {}, this.axes.options.map(row)));
  }

  #nothing() {
    if (this.axes.options.length) return "No curve yet: each key with numbers has one value, in the table below.";
    return this.axes.records
      ? "No record holds a number: the table of metadata shows them all."
      : 'No metadata yet: a line on stdout such as {"epoch": 1, "loss": 0.5} makes a graph.';
  }

  /** The keys that are asked for, in the order of the graphs. */
  #keys() {
    return this.controls.found(this.axes.y);
  }

  /** The keys over which there are graphs that can be marked. */
  #markedOver() {
    const drawings = [...this.grid.panels.values()].map((panel) => panel.drawing);
    return [...new Set(drawings.filter((one) => one?.markable && one.xKey !== null).map((one) => one.xKey))];
  }

  #panel(name) {
    const panel = new GraphPanel({
      title: name === ALL ? "All keys" : this.families.get(name).title,
      name: [this.context.job.name, this.id],
      csv: () => this.#csvAddresses(name),
      found: this.families.get(name)?.section === FOUND ? this.#keysOf(name) : undefined,
      detail: name === ALL ? undefined : (x) => this.#detail(name, x),
    });
    this.#dress(panel);
    panel.setMarks(this.marks.over);
    return panel;
  }

  /** More of a graph's points, between two X; undefined where something else is asked for meanwhile, null where it
   * failed. */
  async #detail(name, [low, high]) {
    const { signal } = this.asking;
    const graph = this.grid.panels.get(name).graphs[0];
    const keys = this.#keysOf(name);
    const own = graph.x.key === null ? "time" : xOf(graph.x.key);
    const how = { x: graph.x.by_number ? this.controls.x : own, ...this.controls.smoothing, low, high };
    let found = null;
    await this.asking.quietly((async () => {
      let missing = "";
      do {
        const answer = await fetchGraphs(this.id, keys, how, signal);
        missing = answer.missing;
        fill(this.progress, missing);
        found = this.#drawing(name, keys.map((key) => answer.graphs.get(key)), how.x);
      } while (missing && !signal.aborted);
    })());
    return signal.aborted ? undefined : found;
  }

  #dress(panel) {
    panel.setSmooth(this.controls.smooth, this.controls.debias);
    panel.setLog(this.controls.log);
  }

  #csvAddresses(name) {
    const keys = name === ALL ? this.#keys().slice(0, MOST_TOGETHER) : this.#keysOf(name);
    return batches(keys).map((some) =>
      path(["jobs", this.id, "graph.csv"], { y: JSON.stringify(some), x: this.controls.x }));
  }

  /** Asks for the numbers of what is in view. newOnly: of graphs that have none yet. */
  async #fillPanels(newOnly) {
    const { signal } = this.asking;
    const names = this.grid.wanted(newOnly);
    if (!names.length) return;
    const keys = this.together ? this.#keys().slice(0, MOST_TOGETHER) : names.flatMap((name) => this.#keysOf(name));
    for (;;) {
      const { graphs, secs, missing } = await fetchGraphs(this.id, keys, this.controls, signal);
      if (signal.aborted) return;
      this.asking.took(secs);
      if (this.together) this.#showTogether(keys, graphs);
      else for (const name of names) this.#showPanel(name, graphs);
      fill(this.progress, missing);
      if (!missing) return;
    }
  }

  /** The keys of a panel. @param {string} name of `families` */
  #keysOf(name) {
    const family = this.families.get(name);
    return family ? keysOf(family) : [];
  }

  /** @param {string} name of a panel @param {object[]} graphs of its keys @param {string} x as requested */
  #drawing(name, graphs, x = this.controls.x) {
    return familyDrawing(this.families.get(name), graphs.map((graph) => drawingOf(graph, { id: this.id, x })));
  }

  #showPanel(name, found) {
    const panel = this.grid.panels.get(name);
    const graphs = this.#keysOf(name).map((key) => found.get(key));
    this.grid.stale.delete(name);
    if (panel && !graphs.includes(undefined) && panel.takes(graphs)) panel.show(this.#drawing(name, graphs));
  }

  /** All keys in one graph, those that share the chosen X. */
  #showTogether(keys, graphs) {
    const all = keys.map((key) => graphs.get(key)).filter(Boolean);
    const sharing = all.filter((graph) => !graph.own_x);
    const shown = sharing.length ? sharing : all.slice(0, 1);
    const drawings = shown.map((graph) => drawingOf(graph, { id: this.id, x: this.controls.x }));
    const panel = this.grid.panels.get(ALL);
    this.grid.stale.delete(ALL);
    if (!panel || !drawings.length) return;
    const notes = [...new Set(drawings.flatMap((one) => one.notes))].slice(0, 4);
    const left = this.#keys().length - keys.length;
    if (left > 0) notes.unshift(`${plural(left, "more key")} left out: one graph shows ${MOST_TOGETHER}.`);
    const others = all.filter((graph) => graph.own_x && sharing.length).map((graph) => visible(graph.key));
    if (others.length) notes.unshift(`Over another X, so not in this graph: ${others.join(", ")}.`);
    const named = (title, label) => (label ? `${title}, ${label}` : title);
    const series = drawings.flatMap((one) => one.series.map((its) => ({ ...its, label: named(one.title, its.label) })));
    panel.show({ ...drawings[0], title: "All keys", yKind: "number", series, notes });
  }
}
