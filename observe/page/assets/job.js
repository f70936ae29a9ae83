// One job: its head, and below it one of the tabs.

import { look, repeat } from "./api.js";
import * as consoleTab from "./console.js";
import { el, fill } from "./dom.js";
import { duration, grouped, isRunning, local, outcome, size, when } from "./format.js";
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
  const open = head.querySelector("details")?.open ?? false;
  const focused = head.contains(document.activeElement);
  const now = Date.now();
  const tags = Object.entries(job.tags).map(([name, value]) => el("span", { class: "tag" }, value ? `${name}=${value}` : name));
  const facts = [
    ["Started", `${local(job.started_ns / 1e6)} (${when(job.started_ns / 1e6, now)})`],
    ["Took", duration(job.duration_secs) + (isRunning(job.state) ? " so far" : "")],
    ["Mode", job.mode],
    ["Where", [job.user && `${job.user}@`, job.host, job.cluster && ` (${job.cluster})`].filter(Boolean).join("")],
    ["Lines", grouped(job.lines) + (job.lost ? `, ${grouped(job.lost)} lost` : "")],
    ["Records", grouped(job.records)],
    job.bytes_printed ? ["Printed", `${size(job.bytes_printed)}, logged ${size(job.bytes_logged)}`] : null,
    job.attempts > 1 ? ["Attempts", grouped(job.attempts)] : null,
  ].filter(Boolean);
  fill(
    head,
    el("div", { class: "title" },
      el("h1", {}, job.starred ? el("span", { class: "star", title: "starred" }, "★ ") : null, job.name),
      el("span", { class: "dim id" }, job.job_id),
      el("span", { class: `state ${job.state}` }, job.state), el("span", {}, outcome(job)), tags),
    job.reason ? el("p", { class: "failure" }, job.reason) : null,
    job.note ? el("p", { class: "note" }, job.note) : null,
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("details", { open }, el("summary", {}, "Account of lines and captures"), ledger(job), captures(job)),
  );
  if (focused) head.querySelector("summary").focus({ preventScroll: true });
}

const ACCOUNTS = ["read", "stored", "collapsed", "blank", "dropped", "commands", "pending", "lost"];

function ledger(job) {
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Account of lines" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "Lines"), ACCOUNTS.map((name) => el("th", {}, name)))),
    el("tbody", {}, ["stdout", "stderr"].map((stream) => el("tr", {},
      el("th", {}, stream), ACCOUNTS.map((name) => el("td", { class: name === "lost" && job.ledger[stream][name] ? "failure" : null }, grouped(job.ledger[stream][name]))))))));
}

function captures(job) {
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Captures" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Attempt", "Step", "Task", "Host", "State", "Started", "Mode"].map((title) => el("th", {}, title)))),
    el("tbody", {}, job.captures.map((capture) => el("tr", {},
      [capture.attempt, capture.step, capture.task, capture.host, capture.state, local(capture.started_ns / 1e6), capture.mode].map((value) => el("td", {}, value)))))));
}
