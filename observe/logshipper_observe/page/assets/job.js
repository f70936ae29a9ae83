// One job: its head, and below it one of the tabs.

import { look, repeat } from "./api.js";
import * as consoleTab from "./console.js";
import { el, fill, visible } from "./dom.js";
import { duration, grouped, isRunning, local, size, when } from "./format.js";

// a tab is a module with `show(root, context)`; context has `job`, the newest document of `api/jobs/ID`, as well, and
// `follow(call)`, which calls with each newer one
const TABS = {
  overview: ["Overview", () => import("./overview.js")],
  console: ["Console", () => consoleTab],
  graphs: ["Graphs", () => import("./graphs.js")], // loaded on demand: the console is seen sooner
  metadata: ["Metadata", () => import("./metadata.js")],
  events: ["Events", () => import("./events.js")],
};

const FIRST_TAB = "overview";

export function show(root, context) {
  const id = context.parts[1];
  const head = el("section", { class: "head", "aria-label": "The job" });
  const tabs = el("nav", { class: "tabs", "aria-label": "Parts of the job" });
  const body = el("div", { class: "tab" });
  root.className = "job";
  root.append(head, tabs, body);
  let drawn = null;
  context.crumbs(id);

  let job = null;
  let open = null;
  let name = "";
  let closed = false;
  let turns = 0; // tabs that were opened
  const followers = new Set();

  let { words } = context;
  let wantedTab = context.parts[2] || FIRST_TAB; // before the job is known

  function openTab(next) {
    const wanted = TABS[next] ? next : FIRST_TAB;
    if (wanted === name || !job) return;
    open?.close();
    name = wanted;
    followers.clear();
    body.replaceChildren();
    body.className = `tab ${name}`;
    fill(tabs, Object.entries(TABS).map(([tab, [title]]) =>
      el("a", { href: `#/job/${encodeURIComponent(id)}/${tab}`, "aria-current": tab === name && "page" }, title)));
    open = null;
    const found = TABS[name][1]();
    turns += 1;
    const turn = turns;
    if (found instanceof Promise) found.then((module) => { if (turn === turns && !closed) showTab(module); }, (error) => context.failed(error));
    else showTab(found);
  }

  function showTab(module) {
    open = module.show(body, {
      ...context,
      words,
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
      if (changed || !drawn) {
        context.crumbs(job.name);
        drawn ??= new Head(head);
        drawn.draw(job);
        for (const call of followers) call(job);
      }
      openTab(name || wantedTab);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      context.failed(error);
      if (!job) fill(head, el("p", { class: "failure" }, error.message));
    }
  }, () => (job === null || isRunning(job.state) ? job?.poll_secs ?? 1 : 5));

  return {
    move(next) {
      if (next.parts[1] !== id) return false;
      ({ words } = next);
      wantedTab = next.parts[2] || FIRST_TAB;
      name = ""; // the same tab with other settings is another one
      openTab(wantedTab);
      return true;
    },
    close() {
      closed = true;
      looking.stop();
      open?.close();
    },
  };
}

/** The head of a job's page. Only what has changed is drawn: a running job changes all the time. */
class Head {
  constructor(root) {
    this.title = el("div", { class: "title" });
    this.words = el("div");
    this.facts = el("dl", { class: "facts" });
    this.account = el("details", { on: { toggle: () => this.#drawAccount() } }, el("summary", {}, "Account of lines and captures"));
    this.shown = new Map(); // by part: what it was drawn from
    fill(root, this.title, this.words, this.facts, this.account);
  }

  draw(job) {
    this.job = job;
    this.#part(this.title, [job.name, job.state, job.exit_code, job.signal, job.tags, job.starred], () => title(job));
    this.#part(this.words, [job.reason, job.note], () => [
      job.reason ? el("p", { class: "failure" }, job.reason) : null,
      job.note ? el("p", { class: "note" }, job.note) : null,
    ]);
    const facts = factsOf(job, Date.now());
    if (this.#part(this.facts, facts.map(([name]) => name), () => facts.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))))) this.shown.delete("values");
    const before = this.shown.get("values") ?? [];
    facts.forEach(([, value], at) => { if (value !== before[at]) fill(this.facts.children[at].lastChild, value); });
    this.shown.set("values", facts.map(([, value]) => value));
    this.#drawAccount();
  }

  #drawAccount() {
    if (!this.account.open) return;
    const { job } = this;
    const had = this.account.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    const body = this.account.children[1] ?? this.account.appendChild(el("div"));
    if (this.#part(body, [job.ledger, job.captures], () => [ledger(job), captures(job)]) && had) body.querySelector(`[aria-label="${had}"]`)?.focus();
  }

  /** Draws a part where it isn't drawn from the same already; whether it did. */
  #part(node, from, make) {
    const key = JSON.stringify(from);
    if (this.shown.get(node) === key) return false;
    this.shown.set(node, key);
    fill(node, make());
    return true;
  }
}

function title(job) {
  const tags = Object.entries(job.tags).map(([name, value]) => el("span", { class: "tag" }, value ? `${name}=${value}` : name));
  return [
    el("h1", {}, job.starred ? el("span", { class: "star", title: "starred" }, "★ ") : null, job.name),
    el("span", { class: "dim id" }, job.job_id),
    el("span", { class: `state ${job.state}` }, job.state), el("span", {}, job.outcome), tags,
  ];
}

function factsOf(job, now) {
  return [
    ["Started", `${local(job.started_ns / 1e6)} (${when(job.started_ns / 1e6, now)})`],
    ["Took", duration(job.duration_secs) + (job.limit_secs ? ` of ${duration(job.limit_secs)}` : "") + (isRunning(job.state) ? " so far" : "")],
    ["Mode", job.mode],
    ["Where", [job.user && `${job.user}@`, job.host, job.cluster && ` (${job.cluster})`].filter(Boolean).join("")],
    ["Lines", grouped(job.lines) + (job.lost ? `, ${grouped(job.lost)} lost` : "")],
    ["Records", grouped(job.records)],
    job.bytes_printed ? ["Printed", `${size(job.bytes_printed)}, logged ${size(job.bytes_logged)}`] : null,
    job.masked ? ["Masked", visible(job.masked)] : null,
    job.missed ? ["Not captured", job.missed] : null,
    job.attempts > 1 ? ["Attempts", grouped(job.attempts)] : null,
  ].filter(Boolean);
}

function ledger(job) {
  const columns = Object.keys(job.ledger.stdout);
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Account of lines" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "Lines"), columns.map((name) => el("th", {}, name)))),
    el("tbody", {}, ["stdout", "stderr"].map((stream) => el("tr", {},
      el("th", {}, stream), columns.map((name) => el("td", { class: name === "lost" && job.ledger[stream][name] ? "failure" : null }, grouped(job.ledger[stream][name]))))))));
}

function captures(job) {
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Captures" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Attempt", "Step", "Task", "Host", "State", "Started", "Mode"].map((title) => el("th", {}, title)))),
    el("tbody", {}, job.captures.map((capture) => el("tr", {},
      [capture.attempt, capture.step, capture.task, capture.host, capture.state, local(capture.started_ns / 1e6), capture.mode].map((value) => el("td", {}, value)))))));
}
