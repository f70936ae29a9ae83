// The job's lines: scrolled through by their numbers, followed while the job runs, searched, copied and saved.

import { Failure, get, path, repeat } from "./api.js";
import { marked, pieces, plain } from "./ansi.js";
import { el, fill, isTyping, visible } from "./dom.js";
import { clock, grouped, isRunning, local, plural } from "./format.js";
import { ATTEMPT, GOES_ON, KIND, LEFT_OUT, Lines, STREAM, TEXT, TIME } from "./lines.js";
import { Scroller } from "./scroller.js";
import { keepSettings } from "./settings.js";

const ROW = 20; // pixels, as in style.css
const SETTLE_MS = 40; // without movement: then what is seen is fetched
const TYPED_MS = 150;
const MAX_COPIED = 100_000;
const POLL_SECS = 0.7; // while the job runs
const WIDE = 800; // pixels of a window that has room for times

export function show(root, context) {
  return new Console(root, context);
}

class Console {
  constructor(root, context) {
    this.context = context;
    this.id = context.parts[1];
    this.following = true;
    this.picked = null; // lines that are picked out: [first, last]
    this.search = { text: "", exact: false, hits: 0, printed: 0, at: null, line: null, complete: true, sought: 0 };
    this.rows = [];
    this.settling = 0;
    this.typing = 0;
    this.lines = new Lines(this.id, () => this.#changed(), (error) => context.failed(error));
    this.#build(root);
    this.scroller = new Scroller(this.box, this.layer, ROW, (position) => this.#draw(position));
    this.scroller.onmove = () => this.#moved();
    this.scroller.onresize = () => {
      if (this.following) this.scroller.position = Infinity;
    };
    this.onkey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onkey);
    this.lines.reset(this.#view());
    this.#showSave();
    const line = Number(context.words.get("line"));
    if (Number.isInteger(line) && line > 0) {
      this.following = false;
      this.wanted = line - 1;
      this.picked = [line - 1, line - 1];
    }
    this.looking = repeat((signal) => this.#refresh(signal), () => (isRunning(context.job.state) || !this.lines.complete ? POLL_SECS : 3));
    this.#showFollowing();
    context.follow(() => this.#showLive());
    this.#showLive();
  }

  close() {
    this.looking.stop();
    this.scroller.close();
    this.lines.giveUp();
    this.searching?.abort();
    clearTimeout(this.settling);
    clearTimeout(this.typing);
    document.removeEventListener("keydown", this.onkey);
  }

  // ---- what there is

  #build(root) {
    const on = (event, call) => ({ [event]: call });
    const { words } = this.context;
    this.search.exact = words.get("exact") === "1";
    this.field = el("input", {
      type: "search", placeholder: "Search", "aria-label": "Search in the log", maxlength: 200, spellcheck: "false", value: words.get("q") ?? "",
      on: { input: () => this.#typed(), keydown: (event) => this.#searchKey(event) },
    });
    this.count = el("output", { class: "hits", "aria-live": "polite" });
    this.exact = el("button", {
      type: "button", "aria-pressed": String(this.search.exact), "aria-label": "Upper and lower case differ", title: "Upper and lower case differ",
      on: on("click", () => {
        this.search.exact = !this.search.exact;
        this.exact.setAttribute("aria-pressed", String(this.search.exact));
        this.#seek({ anew: true });
      }),
    }, "Aa");
    const previous = el("button", { type: "button", "aria-label": "Previous hit", title: "Previous hit (Shift+Enter, p)", on: on("click", () => this.#step(true)) }, "↑");
    const next = el("button", { type: "button", "aria-label": "Next hit", title: "Next hit (Enter, n)", on: on("click", () => this.#step(false)) }, "↓");
    this.streams = el("select", { "aria-label": "Streams", on: on("change", () => this.#choose()) },
      [["both", "Both streams"], ["stdout", "Only stdout"], ["stderr", "Only stderr"]].map(([value, words]) => el("option", { value }, words)));
    const attempts = [...new Set(this.context.job.captures.map((capture) => capture.attempt))].sort((a, b) => a - b);
    this.attempt = attempts.length < 2 ? null : el("select", { "aria-label": "Attempt", on: on("change", () => this.#choose()) },
      el("option", { value: "" }, "All attempts"), attempts.map((attempt) => el("option", { value: attempt }, `Attempt ${attempt}`)));
    choose(this.streams, words.get("streams"));
    if (this.attempt) choose(this.attempt, words.get("attempt"));
    this.time = el("input", { type: "datetime-local", step: 1, "aria-label": "Go to a time", title: "Go to a time", on: on("change", () => this.#goToTime()) });
    this.times = el("button", { type: "button", "aria-pressed": "false", title: "Show each line's time", on: on("click", () => this.#toggleTimes()) }, "Times");
    this.follow = el("button", { type: "button", on: on("click", () => this.#follow(!this.following)) }, "Follow");
    this.copy = el("button", { type: "button", title: "Copy the picked lines, or those that are seen", on: on("click", () => this.#copy()) }, "Copy");
    this.save = el("a", { class: "button", download: true }, "Download");
    this.tools = el("div", { class: "tools", role: "toolbar", "aria-label": "The log" },
      el("span", { class: "group search" }, this.field, this.exact, previous, next, this.count),
      el("span", { class: "group" }, this.streams, this.attempt),
      el("span", { class: "group" }, this.time, this.times),
      el("span", { class: "group" }, this.follow, this.copy, this.save));
    this.layer = el("div", { class: "layer" });
    this.box = el("div", { class: "log", tabindex: 0, role: "region", "aria-label": "The job's lines" }, el("div", { class: "window" }, this.layer));
    this.live = el("p", { class: "live" });
    this.foot = el("p", { class: "foot", role: "status" });
    this.layer.addEventListener("click", (event) => this.#clicked(event));
    this.layer.addEventListener("mouseover", (event) => this.#tell(event));
    root.append(this.tools, this.box, this.live, this.foot);
    this.#setTimes(words.has("times") ? words.get("times") === "1" : window.innerWidth > WIDE);
  }

  async #refresh(signal) {
    const seen = this.scroller.rows + 1;
    try {
      await this.lines.refresh(Math.min(this.following || !this.lines.known ? Math.max(seen, 20) : 1, 1000), signal);
      this.context.answered();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.context.failed(error);
    }
  }

  /** There are other lines, or more. */
  #changed() {
    const first = !this.total;
    this.total = this.lines.total;
    this.scroller.setTotal(this.total);
    if (this.wanted !== undefined && this.total > this.wanted) {
      this.scroller.show(this.wanted);
      this.wanted = undefined;
    } else if (this.following) this.scroller.goTo(this.scroller.end);
    if (first) this.#setTimeRange();
    this.scroller.redraw();
    this.#showFoot();
    if (first && this.total && this.field.value && !this.search.text) this.#seek({ silent: this.picked !== null }); // the address has it
    else if (this.search.text && this.search.complete && this.search.sought !== this.total) this.#seek({ silent: true });
  }

  /** Which lines are shown. */
  #view() {
    return { streams: this.streams.value === "both" ? null : this.streams.value, attempt: this.attempt?.value || null };
  }

  #keep() {
    const hasTimes = this.times.getAttribute("aria-pressed") === "true";
    keepSettings(`#/job/${encodeURIComponent(this.id)}/console`, {
      line: this.picked ? this.picked[0] + 1 : "", ...this.#view(), q: this.field.value, exact: this.search.exact ? 1 : "",
      times: hasTimes === window.innerWidth > WIDE ? "" : hasTimes ? "1" : "0",
    });
  }

  #choose() {
    this.lines.reset(this.#view());
    this.lines.giveUp();
    this.picked = null;
    this.total = 0;
    this.looking.stop();
    this.following = true;
    this.looking = repeat((signal) => this.#refresh(signal), () => (isRunning(this.context.job.state) || !this.lines.complete ? POLL_SECS : 3));
    this.#showFollowing();
    this.#showSave();
    this.#seek({ anew: true });
  }

  #showFoot() {
    const { total, problem, complete } = this.lines;
    const words = [plural(total, "line")];
    if (this.picked) {
      const [first, last] = this.picked;
      words.push(first === last ? `line ${grouped(first + 1)} is picked` : `lines ${grouped(first + 1)} to ${grouped(last + 1)} are picked`);
    }
    if (!complete) words.push("more are being read");
    fill(this.foot, words.join(", "), problem && el("span", { class: "failure" }, ` ${problem}`));
  }

  #showLive() {
    const { job } = this.context;
    const bars = Object.values(job.live_status).filter((bar) => bar.text);
    this.live.hidden = !bars.length;
    fill(this.live, bars.map((bar) => el("span", {}, bar.text)));
    this.follow.hidden = !isRunning(job.state);
  }

  #showSave() {
    const words = { ...this.lines.view, times: this.times.getAttribute("aria-pressed") === "true" ? 1 : null };
    this.save.href = path(["jobs", this.id, "text"], words);
  }

  // ---- where one is

  #moved() {
    const follows = this.scroller.atEnd;
    if (follows !== this.following) {
      this.following = follows;
      this.#showFollowing();
    }
  }

  #follow(follows) {
    this.following = follows;
    if (follows) this.scroller.goTo(this.scroller.end);
    this.#showFollowing();
  }

  #showFollowing() {
    this.follow.setAttribute("aria-pressed", String(this.following));
  }

  #goTo(row) {
    this.following = false;
    this.scroller.show(row);
    this.#moved();
    this.scroller.redraw();
  }

  #setTimeRange() {
    const { job } = this.context;
    const stamp = (ns) => local(ns / 1e6).replace(" ", "T");
    this.time.min = stamp(job.started_ns);
    this.time.value = stamp(job.started_ns);
  }

  async #goToTime() {
    const ms = new Date(this.time.value).getTime();
    if (!Number.isFinite(ms)) return;
    try {
      const { line } = await get(["jobs", this.id, "at"], { ...this.lines.view, time: ms });
      const row = Math.min(line, this.lines.total - 1);
      this.#pick(row, row);
      this.following = false;
      this.scroller.goTo(row - 2);
      this.#moved();
    } catch (error) {
      this.context.failed(error);
    }
  }

  // ---- search

  #typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.#seek({ anew: true }), TYPED_MS);
  }

  #searchKey(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(this.typing);
      if (this.field.value !== this.search.text) this.#seek({ anew: true });
      else this.#step(event.shiftKey);
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.#seek({ anew: true });
      this.box.focus();
    }
  }

  #step(back) {
    const { line, text } = this.search;
    if (!text) return;
    const from = line === null ? Math.floor(this.scroller.position) : line + (back ? -1 : 1);
    this.#seek({ near: from, back });
  }

  /** Looks for what the field has. anew: from what is seen on; near, back: on from a hit; silent: only counts. */
  async #seek({ anew = false, near = null, back = false, silent = false }) {
    const search = this.search;
    this.searching?.abort();
    const searching = (this.searching = new AbortController());
    search.text = this.field.value;
    if (anew) {
      Object.assign(search, { hits: 0, at: null, line: null });
      this.#keep();
    }
    if (!search.text) {
      Object.assign(search, { complete: true });
      fill(this.count);
      this.scroller.redraw();
      return;
    }
    let from = near ?? search.line ?? Math.max(Math.ceil(this.scroller.position), 0);
    if (from < 0) from = back ? Math.max(this.lines.total - 1, 0) : 0; // round the beginning
    try {
      do {
        const found = await get(["jobs", this.id, "search"], {
          ...this.lines.view, q: search.text, exact: search.exact ? 1 : null, near: from, back: back ? 1 : null,
        }, searching.signal);
        Object.assign(search, { hits: found.hits, printed: found.printed, complete: found.complete, sought: found.total });
        if (!silent || search.line !== null) Object.assign(search, { at: found.at, line: found.line });
        this.#showHits(found.scanned);
      } while (!search.complete);
    } catch (error) {
      if (error.name !== "AbortError") this.context.failed(error);
      return;
    }
    if (!silent && search.line !== null) this.#goTo(search.line);
    this.scroller.redraw();
  }

  #showHits(scanned) {
    const { hits, printed, at, complete } = this.search;
    const repeats = printed > hits ? `, printed ${grouped(printed)} times` : "";
    const most = complete ? "" : ` (${Math.floor(scanned * 100)} % looked through)`;
    const place = at === null ? "" : `${grouped(at + 1)} of `;
    fill(this.count, hits ? `${place}${plural(hits, "line")}${repeats}${most}` : complete ? "nothing found" : most.trim());
  }

  // ---- picking, copying, keys

  #pick(first, last) {
    this.picked = first === null ? null : [Math.min(first, last), Math.max(first, last)];
    this.#keep();
    this.#showFoot();
    this.scroller.redraw();
  }

  #clicked(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const number = Number(row.dataset.number);
    if (event.target.closest(".more")) this.#showWhole(number);
    else if (event.target.closest(".number")) {
      if (event.shiftKey && this.picked) this.#pick(this.picked[0] === number ? this.picked[1] : this.picked[0], number);
      else if (this.picked?.[0] === number && this.picked[1] === number) this.#pick(null);
      else this.#pick(number, number);
    }
  }

  /** The whole time of a line that is pointed at. */
  #tell(event) {
    const node = event.target.closest(".time");
    const line = node && this.lines.line(Number(node.parentNode.dataset.number));
    if (line) node.title = `${local(line[TIME], true)}${line[ATTEMPT] > 1 ? `, attempt ${line[ATTEMPT]}` : ""}`;
  }

  async #copy() {
    const seen = Math.ceil(this.scroller.position);
    const [first, last] = this.picked ?? [seen, Math.min(seen + Math.floor(this.scroller.height / ROW), this.lines.total) - 1];
    const count = Math.min(last - first + 1, MAX_COPIED);
    if (count < 1) return;
    try {
      await navigator.clipboard.writeText(await this.#textOf(first, count));
      this.#say(`${plural(count, "line")} copied`);
    } catch (error) {
      this.#say(`can't be copied: ${error.message}`);
    }
  }

  async #textOf(first, count) {
    const response = await fetch(path(["jobs", this.id, "text"], { ...this.lines.view, from: first, count }));
    if (!response.ok) throw new Failure(response.status, (await response.json()).error);
    return response.text();
  }

  /** A line that is too long for a row, in a window of its own. */
  async #showWhole(number) {
    const text = el("pre", { tabindex: 0 }, "…");
    const dialog = el("dialog", { class: "whole", "aria-label": `Line ${grouped(number + 1)}`, on: { close: () => dialog.remove() } },
      el("header", {}, el("h2", {}, `Line ${grouped(number + 1)}`),
        el("button", { type: "button", on: { click: () => dialog.close() } }, "Close")),
      text);
    document.body.append(dialog);
    dialog.showModal();
    try {
      fill(text, (await this.#textOf(number, 1)).replace(/\n$/, ""));
    } catch (error) {
      fill(text, error.message);
    }
  }

  #say(words) {
    fill(this.foot, words);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && this.picked && !isTyping(event)) this.#pick(null);
    if (isTyping(event) || document.querySelector("dialog[open]")) return;
    const calls = {
      "/": () => { this.field.focus(); this.field.select(); },
      n: () => this.#step(false),
      p: () => this.#step(true),
      f: () => this.#follow(!this.following),
      t: () => this.#toggleTimes(),
      g: () => this.#goTo(0),
      G: () => this.#follow(true),
    };
    if (calls[event.key]) {
      event.preventDefault();
      calls[event.key]();
    }
  }

  #toggleTimes() {
    this.#setTimes(this.times.getAttribute("aria-pressed") !== "true");
    this.#keep();
  }

  #setTimes(shown) {
    this.times.setAttribute("aria-pressed", String(shown));
    this.box.classList.toggle("with-times", shown);
    this.#showSave();
  }

  // ---- drawing

  #draw(position) {
    const first = Math.floor(position);
    const end = Math.min(first + this.scroller.rows, this.lines.total);
    while (this.rows.length < end - first) this.rows.push(this.#newRow());
    this.rows.forEach((row, at) => this.#fillRow(row, first + at, first + at < end));
    this.layer.style.setProperty("--digits", String(grouped(this.lines.total).length));
    this.layer.style.transform = `translateY(${Math.round((first - position) * ROW)}px)`;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.lines.want(first, end), SETTLE_MS);
  }

  #newRow() {
    const number = el("span", { class: "number" });
    const time = el("span", { class: "time" });
    const text = el("span", { class: "text" });
    const node = el("div", { class: "row" }, number, time, text);
    this.layer.append(node);
    return { node, number, time, text, shown: null, sought: "" };
  }

  #fillRow(row, number, seen) {
    row.node.hidden = !seen;
    if (!seen) {
      if (row.shown) row.time.textContent = row.text.textContent = "";
      row.shown = undefined;
      return;
    }
    const line = this.lines.line(number);
    const sought = this.search.text ? `${this.search.exact}${this.search.text}` : "";
    const isPicked = this.picked !== null && number >= this.picked[0] && number <= this.picked[1];
    row.node.classList.toggle("picked", isPicked);
    row.node.classList.toggle("found", sought !== "" && number === this.search.line);
    if (row.place !== number) {
      row.place = number;
      row.node.dataset.number = String(number);
      row.number.textContent = grouped(number + 1);
    }
    if (row.shown === line && row.sought === sought) return; // as it is already
    row.shown = line;
    row.sought = sought;
    if (line === undefined) {
      row.time.textContent = row.text.textContent = "";
      row.node.dataset.stream = row.node.dataset.kind = "";
      return;
    }
    row.node.dataset.stream = line[STREAM];
    row.node.dataset.kind = line[KIND];
    row.time.textContent = clock(line[TIME], true);
    if (row.time.title) row.time.title = ""; // it was another line's
    this.#fillText(row.text, line);
  }

  #fillText(node, line) {
    const text = line[TEXT];
    const hits = this.#hitsIn(plain(text));
    if (!hits.length && !text.includes("\x1b")) node.textContent = visible(text);
    else fill(node, marked(pieces(text), hits));
    if (line[GOES_ON]) node.prepend(el("span", { class: "goes-on", title: "The line before goes on" }, "↳"));
    if (line[LEFT_OUT]) node.append(el("button", { type: "button", class: "more" }, `… ${grouped(line[LEFT_OUT])} more characters`));
  }

  /** Where a line has what is looked for: [begin, end] each. */
  #hitsIn(text) {
    const { text: wanted, exact } = this.search;
    if (!wanted) return [];
    const needle = exact ? wanted : wanted.toLowerCase();
    const within = exact ? text : text.toLowerCase();
    if (within.length !== text.length) return []; // lower case of another length: places would be wrong
    const found = [];
    for (let at = within.indexOf(needle); at >= 0; at = within.indexOf(needle, at + needle.length)) found.push([at, at + needle.length]);
    return found;
  }
}

/** Chooses what an address asks for, where there is such a choice. */
function choose(select, value) {
  if ([...select.options].some((option) => option.value === value)) select.value = value;
}
