// Jobs side by side: #/compare/ID,ID. Curves over an X that they share, a colour for each job, and what tells them
// apart; a graph for each key, or for each key and each value of one of these.

import { look, path, repeat } from "./api.js";
import { Asking } from "./asking.js";
import { el, fill, visible } from "./dom.js";
import { isRunning, shortText } from "./format.js";
import { FOUND } from "./found_series.js";
import { GraphControls } from "./graph_controls.js";
import { drawingOf, fetchGraphs, xOf } from "./graph_data.js";
import { fetchGroups, groupDrawing } from "./group_data.js";
import { GraphPanel } from "./graph_panel.js";
import { PanelGrid } from "./panel_grid.js";
import { colourOf, dashesOf, themeOf } from "./paint.js";
import { keepSettings } from "./settings.js";

const MOST_CHARS = 60; // of what graphs are told apart by

/** The address of jobs side by side. @param {string[]} ids */
const addressOf = (ids) => `#/compare/${ids.map(encodeURIComponent).join(",")}`;

const shortened = (text) => (text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}…` : text);

export function show(root, context) {
  const view = new CompareView(root, context);
  return { close: () => view.close() };
}

class CompareView {
  constructor(root, context) {
    this.context = context;
    this.ids = [...new Set((context.parts[1] || "").split(",").filter(Boolean))];
    this.differing = context.words.get("only") === "differing";
    this.facet = context.words.get("facet") ?? "";
    this.by = context.words.get("by") ?? ""; // what runs are grouped by
    this.mean = context.words.get("mean") !== "0";
    this.settings = location.hash.replace(/^[^?]*/, ""); // their part of the address
    /** Keys, and values of the facet (null without one), by the names of panels. */
    this.places = new Map();
    context.crumbs("Compare");
    this.facets = el("select", { on: { change: (event) => this.#setFacet(event.target.value) } });
    this.groups = el("select", { on: { change: (event) => this.#setGroups(event.target.value, this.mean) } });
    this.meanBox = el("input", { type: "checkbox", checked: this.mean, on: { change: (event) => this.#setGroups(this.by, event.target.checked) } });
    this.controls = new GraphControls(context.words,
      { changed: () => this.#again(), look: () => this.grid.each((panel) => this.#dress(panel)), keep: () => this.#keep() },
      [el("label", {}, "One graph per value of", this.facets), el("label", {}, "Group by", this.groups),
        el("label", { class: "row" }, this.meanBox, "Mean and deviation")]);
    this.jobs = el("ul", { class: "compare-jobs", "aria-label": "Jobs" });
    this.table = el("table", { class: "records differences" });
    const only = el("input", { type: "checkbox", checked: this.differing,
      on: { change: (event) => { this.differing = event.target.checked; this.#keep(); this.#showTable(); } } });
    this.rule = el("p", { class: "graph-rule", role: "status" });
    this.host = el("div", { class: "graph-grid" });
    root.append(
      el("h1", {}, "Compare"), this.jobs, this.controls.root, this.rule, this.host,
      el("h2", { class: "compare-heading" }, "Configuration"),
      el("div", { class: "graph-controls" }, el("label", { class: "row" }, only, "Only what differs")),
      el("div", { class: "records-scroll", tabindex: 0, role: "region", "aria-label": "Configuration" }, this.table));
    this.asking = new Asking((error) => this.context.failed(error));
    this.grid = new PanelGrid(this.host, (name) => this.#panel(name), () => this.asking.quietly(this.#fillPanels(true)));
    this.looking = repeat(() => this.#turn(), () => this.asking.secs);
  }

  close() {
    this.looking.stop();
    this.asking.close();
    this.controls.close();
    this.grid.close();
  }

  #again() {
    this.asking.anew();
    this.grid.outdate();
    this.asking.quietly(this.#turn());
  }

  async #turn() {
    const { signal } = this.asking;
    await this.asking.quietly((async () => {
      const { document } = await look(["compare"], { jobs: JSON.stringify(this.ids) }, signal);
      if (signal.aborted) return;
      if (this.found !== document) this.#show(document);
      this.#layOut();
      await this.#fillPanels(false);
      if (!document.jobs.some((job) => isRunning(job.state))) this.asking.secs = Math.max(this.asking.secs, 5);
      this.context.answered();
    })());
  }

  /** The settings are part of the address, and of those with a job left out. */
  #keep() {
    this.settings = keepSettings(addressOf(this.ids),
      { ...this.controls.settings, facet: this.facet, by: this.by, mean: this.by && !this.mean ? "0" : "", only: this.differing ? "differing" : "" });
    for (const link of this.jobs.querySelectorAll("a.leave-out")) link.href = link.hash.replace(/\?.*/s, "") + this.settings;
  }

  #setFacet(facet) {
    this.facet = facet;
    this.#keep();
    this.#again();
  }

  /** @param {string} by what runs are grouped by, "" for nothing @param {boolean} mean */
  #setGroups(by, mean) {
    Object.assign(this, { by, mean });
    this.meanBox.disabled = !by;
    this.#keep();
    this.#again();
  }

  /** What runs can be grouped by; what the address names in any case. */
  #offerGroups() {
    const names = [...new Set([...this.found.groups, this.by])].filter(Boolean);
    fill(this.groups, el("option", { value: "" }, "nothing: each run a curve"), names.map((name) =>
      el("option", { value: name }, shortened(visible(name)))));
    this.groups.value = this.by;
    this.meanBox.disabled = !this.by;
  }

  /** What tells the jobs apart, by names that nothing else has. */
  #differing() {
    const groups = { job: this.found.facts, first: this.found.constants, start: this.found.context };
    return new Map(Object.entries(groups).flatMap(([group, rows]) =>
      rows.filter((row) => row.differs).map((row) => [`${group}/${row.name}`, row])));
  }

  #offerFacets() {
    const rows = this.#differing();
    if (!rows.has(this.facet)) this.facet = "";
    fill(this.facets, el("option", { value: "" }, "nothing: all jobs in one"), [...rows].map(([value, row]) =>
      el("option", { value }, shortened(visible(row.name)) || '""')));
    this.facets.value = this.facet;
  }

  #layOut() {
    const over = this.found.changing.filter((key) => this.#x(key).key !== null || this.#x(key).x === "time");
    const drawn = over.length ? over.filter((key) => key !== this.#x(key).key) : this.found.changing;
    const keys = this.controls.found(drawn);
    const values = this.facet ? [...new Set(this.#differing().get(this.facet).values)] : [undefined];
    this.places = new Map(keys.flatMap((key) => values.map((value) => {
      const place = { key, value, jobs: this.#having(key, value) };
      return [JSON.stringify([key, this.facet, value]), place];
    })).filter(([, place]) => !this.facet || place.jobs.length > 0));
    const found = [...this.places].filter(([, { key }]) => this.found.found.includes(key)).map(([token]) => token);
    this.grid.layOut([...this.places.keys()], (name) => (found.includes(name) ? FOUND : ""));
  }

  #titleOf({ key, value }) {
    if (!this.facet) return key;
    return `${key}, ${this.#differing().get(this.facet).name}=${shortened(value ?? "none")}`;
  }

  /** The X of a key's graph: as requests name it, and its key; the chosen one, or what the jobs that have it share. */
  #x(key) {
    const x = this.controls.x;
    if (!x) return this.found.axes[key] ?? this.found.x;
    return { x, key: this.found.shared.find((name) => xOf(name) === x) ?? null, words: "" };
  }

  #show(found) {
    this.found = found;
    this.labels = found.labels;
    const theme = themeOf(this.jobs);
    fill(this.jobs, found.jobs.map((job, at) => {
      const swatch = el("span", { class: dashesOf(at).length ? "swatch dashed" : "swatch" });
      swatch.style.setProperty("--swatch", colourOf(theme, at));
      const rest = this.ids.filter((id) => id !== job.job_id);
      return el("li", {}, swatch,
        el("a", { href: `#/job/${encodeURIComponent(job.job_id)}` }, el("bdi", {}, this.labels[at])),
        !this.labels[at].includes(job.job_id) && el("span", { class: "dim id", title: job.name }, job.job_id),
        el("span", { class: `state ${job.state}` }, job.state),
        rest.length > 0 && el("a",
          { class: "leave-out", href: addressOf(rest) + this.settings, "aria-label": `Leave out ${visible(this.labels[at])}` }, "✕"));
    }), Object.values(found.unknown).map((words) => el("li", { class: "failure" }, words)));
    this.controls.offer(found.shared);
    this.#offerFacets();
    this.#offerGroups();
    this.#showTable();
  }

  #showTable() {
    if (!this.found) return;
    const groups = [["Job", this.found.facts], ["First records", this.found.constants]];
    // of keys that change, as `diff` has them: what is equal there says nothing
    const first = this.found.first_values.filter((one) => one.differs);
    if (first.length) groups.push(["First values of keys that change", first]);
    if (this.found.context.length > 0) groups.push(["How it was started", this.found.context]);
    const cell = (value, words) => el("td", { title: words === value ? null : value },
      value === null ? el("span", { class: "dim" }, "none") : el("bdi", {}, words));
    const wordsOf = (values, differs) => {
      const words = values.map((value) => (value === null ? null : shortText(value)));
      return differs && new Set(words).size < new Set(values).size ? values : words; // they differ in a later digit
    };
    const row = ({ name, values, differs }) => el("tr", { class: differs ? "differs" : "same" },
      el("th", { scope: "row" }, el("bdi", {}, visible(name) || '""')), wordsOf(values, differs).map((words, at) => cell(values[at], words)));
    const bodies = groups.map(([title, rows]) => {
      const shown = rows.filter((one) => one.differs || !this.differing);
      return el("tbody", {},
        el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: this.labels.length + 1 },
          rows.length ? title : `${title}: no value that never changes`)),
        shown.map(row));
    });
    const heads = this.labels.map((label) => el("th", { scope: "col" }, el("bdi", {}, label)));
    fill(this.table, el("thead", {}, el("tr", {}, el("td", {}), heads)), bodies);
  }

  #panel(name) {
    const title = this.#titleOf(this.places.get(name));
    const panel = new GraphPanel({ title, name: ["compare", ...this.ids], csv: () => this.#csvAddresses(name) });
    this.#dress(panel);
    return panel;
  }

  #dress(panel) {
    panel.setSmooth(this.controls.smooth, this.controls.debias);
    panel.setLog(this.controls.log);
  }

  /** The exact numbers of a panel, a file for each job. */
  #csvAddresses(name) {
    const { key, jobs } = this.places.get(name);
    return jobs.map((job) =>
      path(["jobs", job.job_id, "graph.csv"], { y: JSON.stringify([key]), x: this.#x(key).x }));
  }

  /** The jobs that have a key, the X, and this value of the facet; undefined: any. */
  #having(key, value) {
    const x = this.#x(key);
    const values = value === undefined ? [] : this.#differing().get(this.facet).values;
    return this.found.jobs.filter((job, at) => {
      const keys = this.found.keys[job.job_id];
      const chosen = value === undefined || values[at] === value;
      return chosen && keys.includes(key) && (x.key === null || keys.includes(x.key));
    });
  }

  async #fillPanels(newOnly) {
    const { signal } = this.asking;
    const names = this.grid.wanted(newOnly);
    if (!names.length) return;
    if (this.by) {
      await this.#fillGroups(names, signal);
      return;
    }
    const byJob = new Map(this.found.jobs.map((job) => [job.job_id, new Map()]));
    let missing = "";
    do {
      let secs = 0;
      missing = "";
      for (const job of this.found.jobs) {
        const here = names.map((name) => this.places.get(name)).filter((place) => place?.jobs.includes(job));
        const keys = [...new Set(here.map((place) => place.key))];
        for (const x of new Set(keys.map((key) => this.#x(key).x))) {
          const some = keys.filter((key) => this.#x(key).x === x);
          const answer = await fetchGraphs(job.job_id, some, { x, ...this.controls.smoothing }, signal);
          for (const [key, graph] of answer.graphs) byJob.get(job.job_id).set(key, graph);
          secs += answer.secs;
          missing ||= answer.missing && `${job.job_id}: ${answer.missing}`;
        }
      }
      if (signal.aborted) return;
      this.asking.took(secs);
      for (const name of names) this.#showPanel(name, byJob);
      fill(this.rule, missing || (this.controls.x ? "" : this.found.x.words));
    } while (missing);
  }

  /** Panels of groups: those with the same jobs and X are asked for together. */
  async #fillGroups(names, signal) {
    const byQuestion = new Map();
    for (const name of names) {
      const place = this.places.get(name);
      if (!place) continue;
      const question = JSON.stringify([this.#x(place.key).x, place.value]);
      byQuestion.set(question, [...(byQuestion.get(question) || []), name]);
    }
    let missing = "";
    do {
      let secs = 0;
      missing = "";
      for (const some of byQuestion.values()) {
        const places = some.map((name) => this.places.get(name)).filter(Boolean);
        const here = this.found.jobs.filter((job) => places.some((place) => place.jobs.includes(job)));
        const jobs = { ids: here.map((job) => job.job_id), labels: here.map((job) => this.labels[this.found.jobs.indexOf(job)]) };
        const how = { x: this.#x(places[0].key).x, by: this.by, mean: this.mean, ...this.controls.smoothing };
        const answer = await fetchGroups(jobs, places.map((place) => place.key), how, signal);
        if (signal.aborted) return;
        secs += answer.secs;
        missing ||= answer.missing;
        for (const name of some) this.#showGroups(name, answer.graphs);
      }
      this.asking.took(secs);
      fill(this.rule, missing || (this.controls.x ? "" : this.found.x.words));
    } while (missing);
  }

  #showGroups(name, graphs) {
    const panel = this.grid.panels.get(name);
    const place = this.places.get(name);
    const graph = place && graphs.get(place.key);
    if (!panel || !graph) return;
    this.grid.stale.delete(name);
    if (!panel.takes([graph])) return;
    const drawing = groupDrawing(graph);
    const { words } = this.#x(place.key);
    if (words && words !== this.found.x.words) drawing.notes = [words, ...drawing.notes];
    panel.show({ ...drawing, title: this.#titleOf(place) });
  }

  #showPanel(name, byJob) {
    const panel = this.grid.panels.get(name);
    const place = this.places.get(name);
    if (!panel || !place) return;
    const { key, value, jobs } = place;
    this.grid.stale.delete(name);
    const graphs = this.found.jobs.map((job) => (jobs.includes(job) ? byJob.get(job.job_id)?.get(key) : undefined));
    if (!panel.takes(graphs)) return;
    const series = [];
    const notes = [];
    let first = null;
    graphs.forEach((graph, at) => {
      const label = this.labels[at];
      if (!graph) {
        if (value === undefined) notes.push(`${label}: not in this graph, it lacks the key or X.`);
        return;
      }
      const drawing = drawingOf(graph, { id: this.found.jobs[at].job_id, x: this.#x(key).x });
      if (graph.own_x) {
        notes.push(`${label}: not in this graph, the key never stands in a record with X.`);
        return;
      }
      first ||= drawing;
      for (const one of drawing.series) {
        series.push({ ...one, label: one.label ? `${label}, ${one.label}` : label, colour: at });
      }
      notes.push(...drawing.notes.map((note) => `${label}: ${note}`));
    });
    if (this.#x(key).words !== this.found.x.words && this.#x(key).words) notes.unshift(this.#x(key).words);
    const empty = { xLabel: this.#x(key).key ?? "time", xKind: "number", yKind: "number" };
    panel.show({ ...empty, ...first, title: this.#titleOf(place), series, notes });
  }
}
