// Matching lines of the listed jobs. A new search aborts the one before.

import { get } from "./api.js";
import { Asking } from "./asking.js";
import { el, fill } from "./dom.js";
import { grouped, plural, when } from "./format.js";

const MAX_JOBS = 200; // with a match

export class LineSearch {
  /** @param {(error: Error) => void} failed handles errors */
  constructor(failed) {
    this.asking = new Asking(failed);
    this.note = el("p", { class: "dim", role: "status" });
    this.found = el("div");
    this.root = el("section", { class: "line-search", "aria-label": "Matching lines", hidden: true }, this.note, this.found);
  }

  stop() {
    this.asking.close();
  }

  /** Searches the lines of jobs. text: "" hides the results; filters: as in `api/jobs`. */
  search(text, filters) {
    this.asking.anew();
    this.root.hidden = text === "";
    fill(this.found);
    fill(this.note, "Searching…");
    if (text) this.asking.quietly(this.#search(text, filters, this.asking.signal));
  }

  async #search(text, filters, signal) {
    const problems = [];
    let after = "";
    do {
      const answer = await get(["grep"], { text, after, ...filters }, signal);
      if (signal.aborted) return;
      this.found.append(...answer.jobs.map((job) => this.#job(job, text)));
      problems.push(...answer.problems);
      after = this.found.children.length < MAX_JOBS ? answer.after : null;
      const { searched, total } = answer;
      fill(this.note, `${plural(this.found.children.length, "job")} with matching lines, `,
        searched < total ? `${grouped(searched)} of ${plural(total, "job")} searched${after === null ? "" : "…"}` : `of ${grouped(total)}`,
        problems.map((problem) => el("span", { class: "failure" }, ` ${problem}`)));
    } while (after !== null);
  }

  #job(job, text) {
    const link = (line) => `#/job/${encodeURIComponent(job.job_id)}/console?${new URLSearchParams({ q: text, ...(line ? { line } : {}) })}`;
    return el("article", { data: { id: job.job_id } },
      el("h2", {}, el("a", { href: link(job.lines[0].number) }, job.name), " ", el("span", { class: "dim id" }, job.job_id), " ",
        el("span", { class: `state ${job.state}` }, job.state), " ", el("span", { class: "dim" }, when(job.started_ns / 1e6, Date.now()))),
      job.lines.map((line) => el("a", { class: "match", href: link(line.number) },
        line.number === null ? null : el("span", { class: "dim" }, `${line.number} `), ...marked(line.text, text))),
      job.has_more ? el("a", { class: "dim", href: link(job.lines[0].number) }, "more in the job") : null);
  }
}

/** Marks the first place of a text in a line, in any case. */
function marked(line, text) {
  const at = line.toLowerCase().indexOf(text.toLowerCase());
  if (at < 0) return [line];
  return [line.slice(0, at), el("mark", {}, line.slice(at, at + text.length)), line.slice(at + text.length)];
}
