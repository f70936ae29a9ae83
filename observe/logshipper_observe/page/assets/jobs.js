// The list of jobs, polled from the server, which searches, filters and sorts.

import { get, look, repeat } from "./api.js";
import { el, fill } from "./dom.js";
import { duration, fractionOf, grouped, isRunning, local, plural, shortText, when } from "./format.js";
import { JobColumns } from "./job_columns.js";
import { listen } from "./keys.js";
import { LineSearch } from "./line_search.js";

const PAGE = 100;
const MAX_LIMIT = 1000;
const MAX_LAST = 50; // jobs per request of last values
const TYPED_MS = 150;
const COLUMNS = [
  ["state", "State"], ["name", "Name"], ["started", "Started"], ["took", "Took"], ["lines", "Lines"], ["records", "Records"],
];
const DESCENDING = new Set(["started", "took", "lines", "records"]); // at the first click

const ascendsFirst = (name) => !DESCENDING.has(name) && !name.endsWith(".max");

/** A column's class; `records` is the metadata's. */
const classOf = (name) => (name === "records" ? "count" : name);

export function show(root, context) {
  return new Jobs(root, context);
}

class Jobs {
  constructor(root, context) {
    this.context = context;
    this.asked = Object.fromEntries(["q", "in", "state", "tag", "starred", "sort", "ascending"].map((name) => [name, context.words.get(name) || ""]));
    this.limit = PAGE;
    this.chosen = new Set(); // ids, to be compared
    this.last = new Map(); // by id: [records, values]
    this.typing = 0;
    this.complete = true; // whether all columns' values were read
    this.columns = new JobColumns(context.words, () => this.#ask());
    context.crumbs();
    this.#build(root);
    this.keys = listen("The list of jobs", this.#keyTable());
    this.looking = this.#look();
  }

  close() {
    this.looking.stop();
    this.lineSearch.stop();
    clearTimeout(this.typing);
    this.keys.close();
  }

  #build(root) {
    const { asked } = this;
    const changed = () => this.#ask();
    this.field = el("input", {
      type: "search", placeholder: "Search", value: asked.q, maxlength: 200, spellcheck: "false",
      "aria-label": "Search in names, ids, users, hosts, tags and notes, or in lines",
      on: { input: () => { clearTimeout(this.typing); this.typing = setTimeout(changed, TYPED_MS); }, keydown: (event) => this.#searchKey(event) },
    });
    this.state = el("select", { "aria-label": "State", on: { change: changed } }, el("option", { value: asked.state }, asked.state || "Any state"));
    this.tag = el("select", { "aria-label": "Tag", on: { change: changed } }, el("option", { value: asked.tag }, asked.tag || "Any tag"));
    this.starred = el("button", {
      type: "button", "aria-pressed": String(asked.starred === "1"), "aria-label": "Only starred jobs", title: "Only starred jobs",
      on: { click: () => { this.starred.setAttribute("aria-pressed", String(this.starred.getAttribute("aria-pressed") !== "true")); changed(); } },
    }, "★");
    this.inLines = el("button", {
      type: "button", "aria-pressed": String(asked.in === "lines"), title: "Search in the lines of the jobs",
      on: { click: () => { this.inLines.setAttribute("aria-pressed", String(!this.#searchesLines)); changed(); } },
    }, "in lines");
    this.lineSearch = new LineSearch((error) => this.context.failed(error));
    this.compare = el("a", { class: "button", hidden: true }, "Compare");
    this.summary = el("p", { class: "dim", role: "status" });
    this.head = el("tr");
    this.body = el("tbody");
    this.more = el("button", { type: "button", hidden: true, on: { click: () => { this.limit = Math.min(this.limit + PAGE, MAX_LIMIT); this.#ask(); } } }, "Show more");
    root.append(
      el("h1", {}, "Jobs"),
      el("div", { class: "tools", role: "toolbar", "aria-label": "Which jobs" },
        el("span", { class: "group search" }, this.field, this.inLines), el("span", { class: "group" }, this.state, this.tag, this.starred, this.columns.chooser.root, this.compare)),
      this.summary, this.lineSearch.root,
      this.table = el("div", { class: "jobs-scroll" }, el("table", { class: "jobs" }, el("thead", {}, this.head), this.body)),
      this.more);
    this.#drawHead();
    this.#keepAddress();
  }

  #drawHead() {
    const { sort, ascending } = this.asked;
    const by = sort || "started";
    const heading = (name, title, kind) =>
      el("th", { "aria-sort": name === by ? (ascending ? "ascending" : "descending") : null, class: kind, data: { sort: name } },
        el("button", { type: "button", class: "quiet", on: { click: () => this.#sort(name) } }, el("bdi", {}, title),
          el("span", { class: "arrow", "aria-hidden": "true" }, name === by ? (ascending ? " ↑" : " ↓") : "")));
    fill(this.head, el("th", { class: "choose" }, el("span", { class: "unseen" }, "Compare")),
      COLUMNS.map(([name, title]) => heading(name, title, classOf(name))),
      this.columns.shown.map(({ name, title }) => heading(name, title, "cell")),
      el("th", { class: "last", hidden: !this.columns.hasLast }, "Last values"));
  }

  #sort(name) {
    const by = this.asked.sort || "started";
    const ascending = name === by ? !this.asked.ascending : ascendsFirst(name);
    Object.assign(this.asked, { sort: name === "started" ? "" : name, ascending: ascending ? "1" : "" });
    this.#drawHead();
    this.head.querySelector(`th[data-sort="${CSS.escape(name)}"] button`).focus();
    this.#ask();
  }

  get #searchesLines() {
    return this.inLines.getAttribute("aria-pressed") === "true";
  }

  /** Requests jobs by the fields, and updates the address. */
  #ask() {
    Object.assign(this.asked, {
      q: this.field.value, in: this.#searchesLines ? "lines" : "", state: this.state.value, tag: this.tag.value,
      starred: this.starred.getAttribute("aria-pressed") === "true" ? "1" : "",
    });
    this.#keepAddress();
    this.looking.stop();
    this.drawn = false;
    this.looking = this.#look();
  }

  #keepAddress() {
    const query = new URLSearchParams(Object.entries(this.asked).filter(([, value]) => value));
    this.columns.addTo(query);
    history.replaceState(null, "", `#/${query.size ? `?${query}` : ""}`);
  }

  #look() {
    const { q, state, tag, starred } = this.asked;
    const text = this.#searchesLines ? q : "";
    this.table.hidden = text !== "";
    this.lineSearch.search(text, { state, tag, starred });
    return repeat(async (signal) => {
      try {
        const { document, changed } = await look(["jobs"], { ...this.asked, q: this.#searchesLines ? "" : this.asked.q, in: "", columns: this.columns.request, limit: this.limit }, signal);
        this.context.answered();
        if (changed || !this.drawn) this.#draw(document);
        this.complete = document.complete;
        if (this.columns.hasLast) await this.#fetchLast(document.jobs, signal);
      } catch (error) {
        if (error.name === "AbortError") throw error;
        this.context.failed(error);
      }
    }, () => (this.complete ? 1 : 0.1));
  }

  #draw(found) {
    this.drawn = true;
    const { jobs, total, matching, states, tags, problems, place } = found;
    choices(this.state, "Any state", Object.entries(states).map(([state, count]) => [state, `${state} (${grouped(count)})`]));
    choices(this.tag, "Any tag", tags.map((tag) => [tag, tag]));
    this.tag.hidden = !tags.length && !this.asked.tag;
    fill(this.summary,
      total ? (matching === total ? plural(total, "job") : `${plural(matching, "job")} of ${grouped(total)}`) : ["No jobs yet in ", place, ". Begin with: ", el("code", {}, "logshipper run -- COMMAND")],
      problems.map((problem) => el("span", { class: "failure" }, ` ${problem}`)));
    this.columns.answer(found);
    const heads = JSON.stringify([found.columns, this.columns.hasLast]);
    if (heads !== this.heads) this.#drawHead();
    this.heads = heads;
    this.more.hidden = this.table.hidden || jobs.length >= matching || this.limit >= MAX_LIMIT;
    const focused = document.activeElement?.closest?.("tr[data-id]")?.dataset.id;
    const part = document.activeElement?.matches?.("input") ? "input" : "a";
    const now = Date.now();
    fill(this.body, jobs.map((job) => this.#row(job, now)));
    if (focused) this.body.querySelector(`tr[data-id="${CSS.escape(focused)}"] ${part}`)?.focus({ preventScroll: true });
    this.#drawLast();
  }

  #row(job, now) {
    const box = el("input", {
      type: "checkbox", checked: this.chosen.has(job.job_id), "aria-label": `Compare ${job.name}`,
      on: { change: () => { this.chosen[box.checked ? "add" : "delete"](job.job_id); this.#showCompare(); } },
    });
    const tags = Object.entries(job.tags).map(([name, value]) => el("span", { class: "tag" }, value ? `${name}=${value}` : name));
    return el("tr", { data: { id: job.job_id, records: job.records } },
      el("td", { class: "choose" }, box),
      el("td", { class: "state-of" }, el("span", { class: `state ${job.state}` }, job.state), el("span", { class: "progress" }),
        job.outcome && job.state !== "COMPLETED" ? el("span", { class: "dim outcome" }, ` ${job.outcome}`) : null),
      el("td", { class: "name" }, job.starred ? el("span", { class: "star", title: "starred" }, "★ ") : null,
        el("a", { href: `#/job/${encodeURIComponent(job.job_id)}` }, job.name), " ", el("span", { class: "dim id" }, job.job_id), " ", tags,
        job.note ? el("span", { class: "dim note" }, job.note.split("\n", 1)[0].slice(0, 200)) : null),
      el("td", { class: "started", title: local(job.started_ns / 1e6) }, when(job.started_ns / 1e6, now)),
      el("td", { class: "took" }, duration(job.duration_secs), isRunning(job.state) ? "…" : ""),
      el("td", { class: "lines" }, grouped(job.lines), el("span", { class: "unit" }, " lines"),
        job.lost ? el("span", { class: "failure" }, ` ${grouped(job.lost)} lost`) : null),
      el("td", { class: classOf("records") }, grouped(job.records), el("span", { class: "unit" }, " records")),
      job.cells.map((text, at) => this.#cell(text, this.columns.shown[at].title)),
      el("td", { class: "last", hidden: !this.columns.hasLast }));
  }

  /** Makes a cell. Hovering shows the exact value. */
  #cell(text, title) {
    const words = shortText(text);
    const isNumber = words !== "" && Number.isFinite(Number(words));
    return el("td", { class: isNumber ? "cell number" : "cell", title: words === text ? null : text },
      text && el("span", { class: "unit dim" }, `${title} `), el("bdi", {}, words));
  }

  // ---- last values

  async #fetchLast(jobs, signal) {
    const wanted = jobs.filter((job) => isRunning(job.state) || (job.records && this.last.get(job.job_id)?.[0] !== job.records));
    for (let at = 0; at < wanted.length; at += MAX_LAST) {
      const some = wanted.slice(at, at + MAX_LAST);
      const { last, bars } = await get(["last"], { jobs: some.map((job) => job.job_id).join(",") }, signal);
      for (const job of some) this.last.set(job.job_id, [job.records, last[job.job_id] ?? [], bars[job.job_id] ?? ""]);
      this.#drawLast();
    }
  }

  #drawLast() {
    for (const row of this.body.children) {
      const [, values, bar] = this.last.get(row.dataset.id) ?? [];
      const fraction = bar ? fractionOf(bar) : null;
      fill(row.querySelector(".progress"), fraction !== null && [el("progress", { value: fraction, max: 1, title: bar, "aria-label": "Progress" }), ` ${Math.floor(100 * fraction)} %`]);
      if (values) fill(row.lastChild, values.map(([key, value]) => el("span", { class: "value" }, el("span", { class: "dim" }, `${key} `), shortText(value))));
    }
  }

  // ---- comparing, keys

  #showCompare() {
    const ids = [...this.chosen];
    this.compare.hidden = ids.length < 2;
    this.compare.href = `#/compare/${ids.map(encodeURIComponent).join(",")}`;
    fill(this.compare, `Compare ${ids.length}`);
  }

  /** @returns {import("./keys.js").Key[]} */
  #keyTable() {
    return [
      { keys: ["/"], words: "search", call: () => { this.field.focus(); this.field.select(); } },
      { keys: ["j", "ArrowDown"], words: "next job", call: (event) => this.#focusJob(1, event.key === "j") },
      { keys: ["k", "ArrowUp"], words: "previous job", call: (event) => this.#focusJob(-1, event.key === "k") },
      { keys: ["Enter"], words: "open the job" },
      { keys: ["x"], words: "tick the job for a comparison", call: () => document.activeElement?.closest?.("tr[data-id]")?.querySelector("input")?.click() },
      { keys: ["c"], words: "compare the ticked jobs", call: () => (this.compare.hidden ? false : this.compare.click()) },
      { keys: ["Escape"], words: "in the search: clear it" },
    ];
  }

  #searchKey(event) {
    if (event.key !== "Escape") return;
    this.field.value = "";
    this.#ask();
  }

  /** begins: without a focused job, focus the first one instead of scrolling. */
  #focusJob(by, begins) {
    const links = [...this.body.querySelectorAll("td.name a")];
    const row = document.activeElement?.closest?.("tr[data-id]");
    const at = row ? links.indexOf(row.querySelector("td.name a")) : -1;
    if (at < 0 && !begins) return false;
    links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
    return true;
  }
}

/** Fills a select, keeping its value. */
function choices(select, any, found) {
  const value = select.value;
  const known = found.some(([name]) => name === value);
  fill(select, el("option", { value: "" }, any), value && !known ? el("option", { value }, value) : null, found.map(([name, words]) => el("option", { value: name }, words)));
  select.value = value;
}
