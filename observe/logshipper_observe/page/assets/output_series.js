// A button that finds series in the job's stored output, and their graphs. Called by graphs.js and metadata.js.

import { get } from "./api.js";
import { el, fill } from "./dom.js";
import { grouped, plural } from "./format.js";
import { drawingOf } from "./graph_data.js";
import { GraphPanel } from "./graph_panel.js";

const FIND = "Find series in the output";

export class OutputSeries {
  /** @param {{job: {job_id: string, name: string}}} context of job.js */
  constructor(context) {
    this.context = context;
    this.panels = [];
    this.button = el("button", { type: "button", on: { click: () => this.#click() } }, FIND);
    this.status = el("p", { role: "status" });
    this.host = el("div", { class: "graph-grid" });
    this.root = el("section", { class: "output-series", "aria-label": "Series in the output", hidden: true },
      el("h2", {}, "Series in the output"),
      el("p", { class: "dim" }, "Numbers that recur between the same words of the log. The store keeps no records of them."),
      this.button, this.status, this.host);
    this.#offer().catch((error) => context.failed(error));
  }

  /** Shows the button, if no newest record comes from series. */
  async #offer() {
    const { rows } = await get(["jobs", this.context.job.job_id, "records"]);
    this.root.hidden = rows.some((row) => row.origin === "auto");
  }

  close() {
    this.asking?.abort();
    for (const panel of this.panels) panel.close();
    this.panels = [];
  }

  async #click() {
    if (this.asking) {
      this.asking.abort();
      return;
    }
    const { signal } = (this.asking = new AbortController());
    this.button.textContent = "Cancel";
    try {
      let answer;
      do {
        answer = await get(["jobs", this.context.job.job_id, "reread"], {}, signal);
        fill(this.status, `Read ${grouped(answer.lines)} of ${plural(answer.total, "line")} …`);
      } while (!answer.complete);
      this.#show(answer);
    } catch (error) {
      fill(this.status, signal.aborted ? "Cancelled" : error.message);
    } finally {
      this.asking = null;
      this.button.textContent = FIND;
    }
  }

  #show({ graphs, lines, records, notes }) {
    for (const panel of this.panels) panel.close();
    this.panels = graphs.map((graph) => new GraphPanel({ title: graph.key, found: [graph.key], name: [this.context.job.name, this.context.job.job_id] }));
    fill(this.host, this.panels.map((panel) => panel.root));
    this.panels.forEach((panel, at) => panel.show(drawingOf(graphs[at])));
    fill(this.status, [`${plural(records, "record")} in ${plural(lines, "line")}`, ...notes].join("; "));
  }
}
