// The job's lines: scrolled through by their numbers, followed while the job runs, searched, copied and saved.

import { Failure, get, path, repeat } from "./api.js";
import { ConsoleSearch } from "./console_search.js";
import { el, fill } from "./dom.js";
import { barsOf, grouped, isRunning, local, plural } from "./format.js";
import { listen } from "./keys.js";
import { LineRows } from "./line_rows.js";
import { ATTEMPT, Lines, NUMBER, TIME } from "./lines.js";
import { RowHeights } from "./row_heights.js";
import { Scroller } from "./scroller.js";
import { keepSettings } from "./settings.js";

const ROW = 20; // pixels, as in style.css
const SETTLE_MS = 40; // without movement: then what is seen is fetched
const MAX_COPIED = 100_000;
const POLL_SECS = 0.7; // while the job runs
const WIDE = 800; // pixels of a window that has room for times

export function show(root, context) {
  return new Console(root, context);
}

class Console {
  constructor(root, context) {
    const { words } = context;
    this.context = context;
    this.id = context.parts[1];
    this.following = true;
    this.picked = null; // lines that are picked out: [first, last]
    this.settling = 0;
    this.news = ""; // in the foot
    this.heights = new RowHeights(ROW); // of lines that are wrapped
    this.heightsFor = ""; // the lines and the width that they were measured with
    this.lines = new Lines(this.id, () => this.#changed(), (error) => context.failed(error));
    this.#build(root);
    this.rows = new LineRows(this.layer, this.search);
    this.scroller = new Scroller(this.box, this.layer, ROW, (position) => this.#draw(position));
    this.scroller.onmove = () => this.#moved();
    this.scroller.onresize = () => {
      if (this.following) this.scroller.goTo(Infinity);
    };
    this.#setWrap(words.get("wrap") === "1");
    this.keys = listen("The console", this.#keyTable());
    this.lines.reset(this.#view());
    this.#showSave();
    const line = Number(words.get("line"));
    if (Number.isInteger(line) && line > 0) {
      this.following = false;
      this.wanted = line - 1;
      this.picked = [line - 1, line - 1];
    }
    this.#restart();
    this.#showFollowing();
    context.follow(() => this.#showLive());
    this.#showLive();
  }

  close() {
    this.looking.stop();
    this.scroller.close();
    this.lines.giveUp();
    this.search.close();
    clearTimeout(this.settling);
    this.keys.close();
  }

  // ---- what there is

  #build(root) {
    const on = (event, call) => ({ [event]: call });
    const { words } = this.context;
    this.search = new ConsoleSearch({
      id: this.id, words, view: () => this.#view(), here: () => this.#numberAt(Math.ceil(this.scroller.position)) ?? 0, total: () => this.lines.linesTotal,
      isFollowing: () => this.following, goTo: (hit) => this.#goTo(this.search.filter.only ? hit.at : hit.line), changed: () => this.#refilter(),
      redraw: () => this.scroller.redraw(), keep: () => this.#keep(), leave: () => this.box.focus(), failed: (error) => this.context.failed(error),
    });
    this.streams = el("select", { "aria-label": "Streams", on: on("change", () => this.#choose()) },
      [["both", "Both streams"], ["stdout", "Only stdout"], ["stderr", "Only stderr"]].map(([value, words]) => el("option", { value }, words)));
    const attempts = [...new Set(this.context.job.captures.map((capture) => capture.attempt))].sort((a, b) => a - b);
    this.attempt = attempts.length < 2 ? null : el("select", { "aria-label": "Attempt", on: on("change", () => this.#choose()) },
      el("option", { value: "" }, "All attempts"), attempts.map((attempt) => el("option", { value: attempt }, `Attempt ${attempt}`)));
    choose(this.streams, words.get("streams"));
    if (this.attempt) choose(this.attempt, words.get("attempt"));
    this.time = el("input", { type: "datetime-local", step: 1, "aria-label": "Go to a time", title: "Go to a time", on: on("change", () => this.#goToTime()) });
    this.times = el("button", { type: "button", "aria-pressed": "false", title: "Show each line's time", on: on("click", () => this.#toggleTimes()) }, "Times");
    this.wrap = el("button", { type: "button", "aria-pressed": "false", title: "Wrap long lines", on: on("click", () => this.#toggleWrap()) }, "Wrap");
    this.follow = el("button", { type: "button", on: on("click", () => this.#follow(!this.following)) }, "Follow");
    this.copy = el("button", { type: "button", title: "Copy the picked lines, or those that are seen", on: on("click", () => this.#copy()) }, "Copy");
    this.save = el("a", { class: "button", download: true }, "Download");
    this.tools = el("div", { class: "tools", role: "toolbar", "aria-label": "The log" },
      this.search.tools,
      el("span", { class: "group" }, this.streams, this.attempt),
      el("span", { class: "group" }, this.time, this.times, this.wrap),
      el("span", { class: "group" }, this.follow, this.copy, this.save));
    this.layer = el("div", { class: "layer" });
    this.box = el("div", { class: "log", tabindex: 0, role: "region", "aria-label": "The job's lines" }, el("div", { class: "window" }, this.layer));
    this.live = el("p", { class: "live" });
    this.foot = el("p", { class: "foot", role: "status" });
    this.layer.addEventListener("click", (event) => this.#clicked(event));
    this.layer.addEventListener("mouseover", (event) => this.#tell(event));
    root.append(this.tools, this.search.fault, this.box, this.live, this.foot);
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
    this.#forgetHeights();
    this.scroller.setTotal(this.total);
    if (this.wanted !== undefined && this.total > this.wanted) {
      this.scroller.show(this.wanted);
      this.wanted = undefined;
    } else if (this.following) this.scroller.goTo(Infinity);
    if (first) this.#setTimeRange();
    this.scroller.redraw();
    this.#showFoot();
    this.search.linesChanged(this.lines.linesTotal, first, this.picked !== null);
  }

  /** Shows only the lines that match, or all again, where that isn't so already. */
  #refilter() {
    const { lines } = this;
    const view = { ...this.#view(), ...this.search.filter };
    if (JSON.stringify(view) === JSON.stringify(lines.view)) return;
    const number = this.picked?.[0] ?? this.#numberAt(Math.ceil(this.scroller.position)) ?? 0;
    lines.giveUp();
    lines.reset(view);
    this.total = 0;
    if (!this.following && !this.search.filter.only) this.wanted = number;
    this.#restart();
  }

  /** The number of a row's line; undefined where it isn't known. */
  #numberAt(row) {
    return this.lines.view.only ? this.lines.line(row)?.[NUMBER] : row;
  }

  /** Which lines are shown. */
  #view() {
    return { streams: this.streams.value === "both" ? null : this.streams.value, attempt: this.attempt?.value || null };
  }

  #keep() {
    const hasTimes = this.times.getAttribute("aria-pressed") === "true";
    keepSettings(`#/job/${encodeURIComponent(this.id)}/console`, {
      line: this.picked ? this.picked[0] + 1 : "", ...this.#view(), ...this.search.settings,
      times: hasTimes === window.innerWidth > WIDE ? "" : hasTimes ? "1" : "0",
      wrap: this.scroller.heights ? 1 : "",
    });
  }

  #choose() {
    this.lines.giveUp();
    this.lines.reset({ ...this.#view(), ...this.search.filter });
    this.picked = null;
    this.total = 0;
    this.following = true;
    this.#restart();
    this.#showFollowing();
    this.#showSave();
    this.search.seek({ anew: true });
  }

  /** Asks for the newest lines from now on. */
  #restart() {
    this.looking?.stop();
    this.looking = repeat((signal) => this.#refresh(signal), () => (isRunning(this.context.job.state) || !this.lines.complete ? POLL_SECS : 3));
  }

  #showFoot() {
    const { total, linesTotal, limited, problem, complete, view } = this.lines;
    const words = [view.only ? `${grouped(total)} of ${plural(linesTotal, "line")} match` : plural(total, "line")];
    const { job } = this.context;
    const others = total - job.lines; // which the job's head doesn't count
    const isAll = !view.only && !view.streams && !view.attempt && complete && !isRunning(job.state);
    if (isAll && others > 0) words.push(`${grouped(others)} of them logshipper's notes, commands or parts of long lines`);
    if (limited) words.push("more aren't looked for");
    if (this.picked) {
      const [first, last] = this.picked;
      words.push(first === last ? `line ${grouped(first + 1)} is picked` : `lines ${grouped(first + 1)} to ${grouped(last + 1)} are picked`);
    }
    if (!complete) words.push("more are being read");
    if (this.news) words.push(this.news);
    fill(this.foot, words.join(", "), problem && el("span", { class: "failure" }, ` ${problem}`));
  }

  #showLive() {
    const { job } = this.context;
    const bars = barsOf(job);
    this.live.hidden = !bars.length;
    fill(this.live, bars.map((bar) => el("span", {}, bar)));
    this.follow.hidden = !isRunning(job.state);
  }

  #showSave() {
    const words = { ...this.#view(), times: this.times.getAttribute("aria-pressed") === "true" ? 1 : null };
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
    if (follows) this.scroller.goTo(Infinity);
    this.#showFollowing();
  }

  #showFollowing() {
    this.follow.setAttribute("aria-pressed", String(this.following));
  }

  #goTo(row) {
    if (row < this.total) this.#lead(() => this.scroller.show(row));
    else {
      this.following = false;
      this.wanted = row; // as soon as there are so many
      this.#showFollowing();
    }
  }

  /** Moves to a line; where that leads elsewhere, the end isn't followed any more. */
  #lead(move) {
    const { position } = this.scroller;
    move();
    if (this.scroller.position !== position) this.following = false;
    this.#showFollowing();
  }

  /** From the lines that match to one of them among all. */
  #leadTo(number) {
    this.following = false;
    this.#showFollowing();
    this.#pick(number, number);
    this.search.showAll();
    this.#keep();
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
      const { line } = await get(["jobs", this.id, "at"], { ...this.#view(), time: ms });
      const number = Math.min(line, this.lines.linesTotal - 1);
      if (this.lines.view.only) {
        this.#leadTo(number);
        return;
      }
      this.#pick(number, number);
      this.#lead(() => this.scroller.goTo(number - 2));
    } catch (error) {
      this.context.failed(error);
    }
  }

  // ---- picking, copying, keys

  #pick(first, last) {
    this.news = "";
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
      if (this.lines.view.only) this.#leadTo(number);
      else if (event.shiftKey && this.picked) this.#pick(this.picked[0] === number ? this.picked[1] : this.picked[0], number);
      else if (this.picked?.[0] === number && this.picked[1] === number) this.#pick(null);
      else this.#pick(number, number);
    }
  }

  /** The whole time of a line that is pointed at. */
  #tell(event) {
    const node = event.target.closest(".time");
    const line = node && this.rows.lineOf(node.parentNode);
    if (line) node.title = `${local(line[TIME], true)}${line[ATTEMPT] > 1 ? `, attempt ${line[ATTEMPT]}` : ""}`;
  }

  async #copy() {
    const [first, last] = this.picked ?? this.#seen();
    const view = this.picked ? this.#view() : this.lines.view;
    const count = Math.min(last - first + 1, MAX_COPIED);
    if (count < 1) return;
    try {
      await navigator.clipboard.writeText(await this.#textOf(first, count, view));
      this.#say(`${plural(count, "line")} copied`);
    } catch (error) {
      this.#say(`can't be copied: ${error.message}`);
    }
  }

  /** The first and last row that are seen from top to bottom; the one that fills the window where there is none. */
  #seen() {
    const { position, height } = this.scroller;
    const end = Math.floor(this.scroller.walk(position, height + 1)); // a pixel more: fractions aren't exact
    const first = Math.min(Math.ceil(position), end);
    return [first, Math.min(Math.max(end, first + 1), this.lines.total) - 1];
  }

  async #textOf(first, count, view = this.#view()) {
    const response = await fetch(path(["jobs", this.id, "text"], { ...view, from: first, count }));
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

  /** Says what became of something; it stands in the foot until lines are picked. */
  #say(words) {
    this.news = words;
    this.#showFoot();
  }

  /** @returns {import("./keys.js").Key[]} */
  #keyTable() {
    return [
      { keys: ["/"], words: "search", call: () => this.search.focus() },
      { keys: ["Enter", "Shift+Enter"], words: "in the search: next and previous hit" },
      { keys: ["n"], words: "next hit", call: () => this.search.step(false) },
      { keys: ["p"], words: "previous hit", call: () => this.search.step(true) },
      { keys: ["g"], words: "the first line", call: () => this.#goTo(0) },
      { keys: ["G"], words: "the last line, and follow", call: () => this.#follow(true) },
      { keys: ["f"], words: "follow or not", call: () => this.#follow(!this.following) },
      { keys: ["t"], words: "times or not", call: () => this.#toggleTimes() },
      { keys: ["w"], words: "wrap long lines or not", call: () => this.#toggleWrap() },
      { keys: ["Escape"], words: "leave the search; drop what is picked", call: () => this.picked !== null && this.#pick(null) },
    ];
  }

  #toggleTimes() {
    this.#setTimes(this.times.getAttribute("aria-pressed") !== "true");
    this.#keep();
  }

  #setTimes(shown) {
    this.times.setAttribute("aria-pressed", String(shown));
    this.box.classList.toggle("with-times", shown);
    this.#showSave();
    this.scroller?.redraw();
  }

  #toggleWrap() {
    this.#setWrap(!this.scroller.heights);
    this.#keep();
  }

  #setWrap(wraps) {
    this.wrap.setAttribute("aria-pressed", String(wraps));
    this.box.classList.toggle("wrap", wraps);
    this.scroller.setHeights(wraps ? this.heights : null);
  }

  // ---- drawing

  /** Draws what is seen; of lines that are wrapped a window's height above and below it, too, which measures them before they
   * come into sight. Gives whether rows have other heights than before. */
  #draw(position) {
    const { scroller, lines } = this;
    let isOther = this.#forgetHeights();
    const margin = scroller.heights ? scroller.height : 0;
    const first = Math.max(Math.floor(scroller.walk(position, -margin)), 0);
    const end = Math.min(Math.ceil(scroller.walk(position, scroller.height + margin)), lines.total);
    const entries = [];
    for (let row = first; row < end; row += 1) entries.push({ number: this.#numberAt(row), line: lines.line(row) });
    this.rows.draw(first, entries, this.picked);
    this.layer.style.setProperty("--digits", this.#digits);
    const heights = scroller.heights ? this.rows.heights : [];
    const above = Math.floor(position) - first; // rows
    const top = heights.slice(0, above).reduce((sum, height) => sum + height, 0) + (position % 1) * (heights[above] ?? ROW);
    this.layer.style.transform = `translateY(${-Math.round(top)}px)`;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      lines.want(first, end);
      const numbers = entries.map(({ number }) => number);
      if (numbers.length && !numbers.includes(undefined)) this.search.wantMarks(lines.view, lines.generation, first, numbers);
    }, SETTLE_MS);
    heights.forEach((height, at) => {
      if (entries[at].line) isOther = this.heights.note(first + at, height) || isOther;
    });
    return isOther;
  }

  /** How many places the lines' numbers take. */
  get #digits() {
    return String(grouped(this.lines.linesTotal).length);
  }

  /** Forgets the heights where rows are other lines now, or are wrapped at another width; gives whether that is so. */
  #forgetHeights() {
    const { generation, view } = this.lines;
    const now = JSON.stringify([generation, view, this.#digits, this.box.className, this.box.clientWidth]);
    if (now === this.heightsFor) return false;
    this.heights.clear();
    this.heightsFor = now;
    return true;
  }
}

/** Chooses what an address asks for, where there is such a choice. */
function choose(select, value) {
  if ([...select.options].some((option) => option.value === value)) select.value = value;
}
