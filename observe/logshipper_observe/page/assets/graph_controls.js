// What one chooses about graphs: the X axis, smoothing, log scale, which keys.

import { el, fill, visible } from "./dom.js";
import { grouped, plural } from "./format.js";
import { xOf } from "./graph_data.js";
import { listen } from "./keys.js";

const SETTLE_MS = 250; // after the last move of the slider
const CLOCK = "time";
const NAME_CHARS = 60;
const MOST_SMOOTH = 0.99;

// what chart_input.js and legend.js do
const GRAPH_KEYS = [
  { keys: ["ArrowLeft", "ArrowRight"], words: "along the points, with Shift by ten" },
  { keys: ["Home", "End"], words: "the first and the last point" },
  { keys: ["+", "-"], words: "zoom in and out" },
  { keys: ["Enter"], words: "the point's line, in the console" },
  { keys: ["PageUp", "PageDown"], words: "move what is zoomed to" },
  { keys: ["Escape", "0"], words: "see all again" },
  { keys: ["Enter", "Ctrl+Enter"], words: "on the legend: one series only; switch it on or off" },
];

export class GraphControls {
  /** @param {URLSearchParams} words of the address
   * @param {{changed: () => void, look: () => void, keep: () => void}} calls changed: other numbers are wanted; look:
   * only drawn again; keep: other settings belong to the address
   * @param {Node[]} more controls of a view's own */
  constructor(words, calls, more = []) {
    this.keys = listen("A graph, in focus", GRAPH_KEYS);
    this.calls = calls;
    this.x = words.get("x") ?? "";
    this.smooth = Math.min(Math.max(Number(words.get("smooth")) || 0, 0), MOST_SMOOTH);
    this.debias = words.get("debias") === "1";
    this.log = words.get("log") === "1";
    this.filter = words.get("keys") ?? "";
    this.select = el("select", { on: { change: (event) => this.#set({ x: event.target.value }) } });
    this.weight = el("input", { type: "range", min: 0, max: MOST_SMOOTH, step: 0.01, value: this.smooth,
      on: { input: (event) => this.#setSmooth(Number(event.target.value)) } });
    this.debiasBox = el("input", { type: "checkbox", checked: this.debias, on: { change: (event) => this.#setDebias(event.target.checked) } });
    this.weightText = el("span", {}, this.#smoothWords());
    this.logBox = el("input", { type: "checkbox", checked: this.log, on: { change: (event) => this.#setLog(event.target.checked) } });
    this.shown = el("span", {}, "Keys");
    this.search = el("input", { type: "search", placeholder: "key", value: this.filter, "aria-label": "Search keys", autocomplete: "off",
      spellcheck: "false", on: { input: (event) => this.#set({ filter: event.target.value }) } });
    this.root = el("div", { class: "graph-controls", role: "group", "aria-label": "Graphs" },
      el("label", {}, "X axis", this.select), more,
      el("label", {}, this.weightText, this.weight),
      el("label", { class: "row", title: "The first value weighs no more than others" }, this.debiasBox, "Debiased"),
      el("label", { class: "row" }, this.logBox, "Log scale"),
      el("label", {}, this.shown, this.search));
  }

  close() {
    this.keys.close();
    clearTimeout(this.settling);
  }

  /** The keys that X may be. @param {string[]} keys */
  offer(keys) {
    const clock = keys.includes(CLOCK) ? "time (the clock)" : "time";
    const options = [["", "auto"], [CLOCK, clock], ...keys.map((key) => [xOf(key), visible(key) || '""'])];
    fill(this.select, options.map(([value, name]) =>
      el("option", { value }, name.length > NAME_CHARS ? `${name.slice(0, NAME_CHARS)}…` : name)));
    this.select.value = this.x;
  }

  /** Those of the keys that are searched for, said next to the search. @param {string[]} keys */
  found(keys) {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const found = keys.filter((key) => words.every((word) => visible(key).toLowerCase().includes(word)));
    const hidden = keys.length - found.length;
    fill(this.shown, plural(found.length, "key"), hidden ? `, ${grouped(hidden)} hidden` : "");
    return found;
  }

  /** What was chosen, for the address. */
  get settings() {
    return { x: this.x, smooth: this.smooth, debias: this.debias ? 1 : "", log: this.log ? 1 : "", keys: this.filter };
  }

  /** How numbers are smoothed, for what asks for them. */
  get smoothing() {
    return { smooth: this.smooth, debias: this.debias };
  }

  #smoothWords() {
    return this.smooth ? `Smoothing: ${this.smooth.toFixed(2)}` : "Smoothing: off";
  }

  #set(values) {
    Object.assign(this, values);
    this.calls.keep();
    this.calls.changed();
  }

  #setSmooth(weight) {
    this.smooth = weight;
    this.weightText.textContent = this.#smoothWords();
    this.calls.keep();
    this.calls.look();
    clearTimeout(this.settling);
    this.settling = setTimeout(this.calls.changed, SETTLE_MS);
  }

  #setDebias(on) {
    this.debias = on;
    this.#setSmooth(this.smooth);
  }

  #setLog(on) {
    this.log = on;
    this.calls.keep();
    this.calls.look();
  }
}
