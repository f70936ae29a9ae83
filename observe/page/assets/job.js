// One job: its head, and below it one of the tabs.

import { look, repeat } from "./api.js";
import * as consoleTab from "./console.js";
import { el, fill } from "./dom.js";
import { duration, isRunning, local, outcome } from "./format.js";
import * as graphs from "./graphs.js";
import * as metadata from "./metadata.js";

// a tab is a module with `show(root, context)`; context has `job`, the newest document of `api/jobs/ID`, as well, and
// `follow(call)`, which calls with each newer one
const TABS = { console: ["Console", consoleTab], graphs: ["Graphs", graphs], metadata: ["Metadata", metadata] };

export function show(root, context) {
  const id = context.parts[1];
  const head = el("section", { class: "head", "aria-label": "The job" });
  const tabs = el("nav", { class: "tabs", "aria-label": "Parts of the job" });
  const body = el("div", { class: "tab" });
  root.className = "job";
  root.append(head, tabs, body);
  context.crumbs(id);

  let job = null;
  let open = null;
  let name = "";
  const followers = new Set();

  function openTab(next) {
    const wanted = TABS[next] ? next : "console";
    if (wanted === name || !job) return;
    open?.close();
    name = wanted;
    followers.clear();
    body.replaceChildren();
    body.className = `tab ${name}`;
    fill(tabs, Object.entries(TABS).map(([tab, [title]]) =>
      el("a", { href: `#/job/${encodeURIComponent(id)}/${tab}`, "aria-current": tab === name && "page" }, title)));
    open = TABS[name][1].show(body, {
      ...context,
      get job() {
        return job;
      },
      follow: (call) => followers.add(call),
    });
  }

  const looking = repeat(async (signal) => {
    try {
      const { document, changed } = await look(["jobs", id], {}, signal);
      context.answered();
      job = document;
      if (changed || !head.firstChild) {
        context.crumbs(job.name);
        draw(head, job);
        for (const call of followers) call(job);
      }
      openTab(name || context.parts[2] || "console");
    } catch (error) {
      if (error.name === "AbortError") throw error;
      context.failed(error);
      if (!job) fill(head, el("p", { class: "failure" }, error.message));
    }
  }, () => (job === null || isRunning(job.state) ? job?.poll_secs ?? 1 : 5));

  return {
    move(next) {
      if (next.parts[1] !== id) return false;
      openTab(next.parts[2] || "console");
      return true;
    },
    close() {
      looking.stop();
      open?.close();
    },
  };
}

function draw(head, job) {
  fill(
    head,
    el("h1", {}, job.name),
    el("p", {},
      el("span", { class: `state ${job.state}` }, job.state), " ", outcome(job), " ",
      local(job.started_ns / 1e6), " ", duration(job.duration_secs)),
  );
}
