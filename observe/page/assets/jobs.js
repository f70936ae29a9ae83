// All jobs: a list that is looked at again and again.

import { look, repeat } from "./api.js";
import { el, fill } from "./dom.js";
import { duration, grouped, local, outcome, plural } from "./format.js";

export function show(root, context) {
  context.crumbs();
  const list = el("div", { class: "jobs" });
  root.append(el("h1", {}, "Jobs"), list);
  const looking = repeat(async (signal) => {
    try {
      const { document, changed } = await look(["jobs"], {}, signal);
      context.answered();
      if (changed || !list.firstChild) draw(list, document);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      context.failed(error);
    }
  }, () => 1);
  return { close: looking.stop };
}

function draw(list, { jobs }) {
  fill(
    list,
    el("p", {}, plural(jobs.length, "job")),
    el("ul", {}, jobs.map((job) =>
      el("li", {},
        el("a", { href: `#/job/${encodeURIComponent(job.job_id)}` }, job.name), " ",
        el("span", { class: `state ${job.state}` }, job.state), " ", outcome(job), " ",
        local(job.started_ns / 1e6), " ", duration(job.duration_secs), " ", grouped(job.lines), " lines"))),
  );
}
