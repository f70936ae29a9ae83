// A graph: lines over a number or over time, on a canvas of its own. Hover and arrow keys show exact values; dragging,
// the wheel and keys zoom. It asks nobody for data: whoever makes it hands it series.

import { ChartInput } from "./chart_input.js";
import { bandOf, extent, firstFrom, isSorted, nearest, smoothed, summaryOf } from "./curve.js";
import { colourOf, paint, themeOf, xPixel, yPixel } from "./paint.js";
import { short } from "./format.js";
import { elapsedLabel, padded, scaleOf, valueAt } from "./scale.js";

/** @typedef {import("./curve.js").Series} Series */

const PNG_SIZE = { width: 900, height: 460, ratio: 2 };
const NEAR_MARK = 12; // pixels to what is hovered
const NEAR_GAP = 3;
const MARK_STEP = 60; // seconds that times beyond the first hour are told apart by
const NEAR_POINT = 12; // pixels to a point that a click means
const CLOSEST_SHARE = 1e-9; // of all there is, that can be zoomed to
const KEYS_SAY =
  "Arrow keys move along the points, with Shift by ten; plus and minus zoom, page up and page down move what is " +
  "zoomed to, Escape or zero shows all.";
const LINES_SAY = "Enter opens the console at the point's line.";

/** @typedef {{x: number, y: number, number: number, at: number}} Point of a series, by its number and its place there */

/** The charts that stand on the page, by their element: for tests and for who looks closer. */
export const charts = new WeakMap();

export class Chart {
  /** @param {HTMLElement} host it becomes the graph
   * @param {{title: string, xLabel: string, xKind?: string, yKind?: string, height?: number}} options
   * xKind: "number", "integer" or "elapsed" (seconds) */
  constructor(host, options) {
    this.host = host;
    this.title = options.title;
    this.xLabel = options.xLabel;
    this.xKind = options.xKind || "number";
    this.yKind = options.yKind || "number";
    /** @type {Series[]} */
    this.series = [];
    /** @type {boolean[]} which series are shown */
    this.shown = [];
    this.logX = false;
    this.logY = false;
    this.smooth = 0;
    this.debias = false;
    /** @type {{x: [number, number], y: [number, number] | null} | null} what is zoomed to */
    this.view = null;
    /** @type {{x: number, points: Point[]} | null} */
    this.hover = null;
    /** @type {import("./marks.js").Mark[]} what happened, and where */
    this.marks = [];
    /** @type {{x: number, y: number, number: number} | null} the best point */
    this.best = null;
    this.onView = () => {};
    /** @type {Point | null} whose line a click or Enter leads to */
    this.target = null;
    /** @type {(source: import("./graph_data.js").Source, x: number, y: number) => void} called for such a point */
    this.onPick = () => {};
    this.#build();
    charts.set(host, this);
  }

  #build() {
    this.host.classList.add("chart");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "graph");
    this.tip = document.createElement("div");
    this.tip.className = "chart-tip";
    this.tip.hidden = true;
    this.live = document.createElement("div");
    this.live.className = "chart-spoken";
    this.live.setAttribute("aria-live", "polite");
    this.host.replaceChildren(this.canvas, this.tip, this.live);
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.host);
    this.darkness = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.darkness.addEventListener("change", this.redraw);
    this.themes = new MutationObserver(this.redraw);
    this.themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
    this.input = new ChartInput(this);
  }

  /** Takes the graph away for good. */
  close() {
    this.input.close();
    this.resizes.disconnect();
    this.themes.disconnect();
    this.darkness.removeEventListener("change", this.redraw);
    this.host.replaceChildren();
    charts.delete(this.host);
  }

  /** @param {Series[]} series all of them, in place of those there were; which are shown stays as it is */
  setSeries(series) {
    const hidden = new Set(this.series.filter((_, at) => !this.shown[at]).map((one) => one.label));
    this.series = series;
    this.shown = series.map((one) => !hidden.has(one.label));
    if (series.length && !this.shown.includes(true)) this.shown.fill(true);
    this.bands = series.map((one) => (one.spread ? bandOf(one) : null));
    this.sorted = series.map((one) => isSorted(one.xs));
    this.hover = this.target = null;
    this.whole = null;
    this.draw();
  }

  /** The same series, more of their points where one has zoomed to. @param {Series[]} series
   * @param {Series[]} all those that they are of: where one zooms out to */
  setDetail(series, all) {
    this.setSeries(all);
    const whole = this.extents(0);
    this.setSeries(series);
    this.whole = whole;
  }

  /** Lowest and highest X of all there is. @returns {[number, number]} */
  wholeX() {
    return this.whole || this.extents(0);
  }

  /** @param {import("./marks.js").Mark[]} marks */
  setMarks(marks) {
    if (!marks.length && !this.marks.length) return;
    this.marks = marks;
    this.draw();
  }

  /** @param {boolean[]} shown */
  setShown(shown) {
    this.shown = shown;
    this.draw();
  }

  /** @param {{logX?: boolean, logY?: boolean, smooth?: number, debias?: boolean}} how */
  setLook(how) {
    if (how.logX !== undefined && how.logX !== this.logX) this.view = null;
    Object.assign(this, how);
    this.draw();
  }

  reset() {
    this.view = null;
    this.onView();
    this.draw();
  }

  /** Shows this range only. @param {[number, number]} x @param {[number, number] | null} y null: what fits */
  zoomTo(x, y = null) {
    const [low, high] = this.wholeX();
    const least = (high - low) * CLOSEST_SHARE;
    if (!(x[1] - x[0] > least) || (y && !(y[1] > y[0]))) return;
    this.view = { x, y };
    this.onView();
    this.draw();
  }

  /** How many numbers can't be shown on a log scale: those that aren't above zero. */
  get notOnLog() {
    if (!this.logY) return 0;
    return this.series.reduce((sum, one) => sum + Array.prototype.filter.call(one.ys, (y) => y <= 0).length, 0);
  }

  /** Lowest and highest of all shown X (axis 0) or Y (axis 1), Y only where X is in view. */
  extents(axis) {
    const above = (axis ? this.logY : this.logX) ? 0 : -Infinity;
    const inside = axis && this.view ? this.view.x : null;
    let [low, high] = [Infinity, -Infinity];
    this.series.forEach((one, at) => {
      if (!this.shown[at]) return;
      const band = this.bands[at];
      const rows = !axis ? [one.xs] : band ? [one.ys, band.low, band.high] : [one.ys];
      const isInside = (_, i) => one.xs[i] >= inside[0] && one.xs[i] <= inside[1];
      const values = inside ? rows.map((row) => Array.prototype.filter.call(row, isInside)) : rows;
      const ends = axis ? [] : (one.gaps || []).flatMap((gap) => [gap.from, gap.to]);
      for (const [least, most] of [...values, ends].map((row) => extent(row, above))) {
        low = Math.min(low, least);
        high = Math.max(high, most);
      }
    });
    return [low, high];
  }

  #scales() {
    const x = this.view ? { low: this.view.x[0], high: this.view.x[1], log: this.logX }
      : scaleOf(...this.wholeX(), this.logX);
    const y = this.view && this.view.y ? { low: this.view.y[0], high: this.view.y[1], log: this.logY }
      : padded(scaleOf(...this.extents(1), this.logY), 0.04);
    return { x, y };
  }

  /** Which of the theme's colours a series has. @param {number} number of the series */
  colourNumber(number) {
    return this.series[number].colour ?? number;
  }

  #curves() {
    const curves = [];
    this.series.forEach((one, number) => {
      if (!this.shown[number]) return;
      const dots = Boolean(one.dots);
      const curve = { xs: one.xs, ys: one.ys, number: this.colourNumber(number), faint: this.smooth > 0 && !one.isTreated, dots, weight: one.weight, band: this.bands[number] };
      curves.push(curve);
      if (!this.smooth || one.isTreated) return;
      const thin = one.smooth || { xs: one.xs, ys: smoothed(one.ys, this.smooth, this.debias) };
      curves.push({ ...curve, xs: thin.xs, ys: thin.ys, faint: false, dots: false });
    });
    return curves.sort((a, b) => Number(b.faint) - Number(a.faint));
  }

  /** Where values of the shown series are no numbers. */
  #gaps() {
    return this.series.flatMap((one, at) => (this.shown[at] ? one.gaps || [] : []).map((gap) => ({ ...gap, label: one.label })));
  }

  #scene(width, height, title) {
    const { x, y } = this.#scales();
    return { width, height, title, x, y, xKind: this.xKind, yKind: this.yKind, xLabel: this.xLabel,
      curves: this.#curves(), best: this.#shownBest(), gaps: this.#gaps(), marks: this.marks, hover: this.hover && this.#marked(), drag: null };
  }

  #shownBest() {
    return this.best && this.shown[this.best.number] ? { ...this.best, number: this.colourNumber(this.best.number) } : null;
  }

  /** The best point in words: `best 0.262 at epoch 27 of 60`. @param {Series[]} series all there is */
  bestWords(series) {
    const { x, y, number } = this.best;
    const last = Math.max(...series.filter(({ xs }) => xs.length).map(({ xs }) => xs[xs.length - 1]));
    const isElapsed = this.xKind === "elapsed";
    const place = isElapsed ? `after ${elapsedLabel(x, MARK_STEP)}` : `at ${this.xLabel} ${short(x)}`;
    const of = isElapsed ? elapsedLabel(last, MARK_STEP) : short(last);
    const label = series.length > 1 ? `${series[number].label}: ` : "";
    return `${label}best ${short(y)} ${place} of ${of}`;
  }

  /** What is hovered, with the numbers of its colours. */
  #marked() {
    const points = this.hover.points.map((point) => ({ ...point, number: this.colourNumber(point.number) }));
    return { x: this.hover.x, points };
  }

  /** Draws again, at the next frame. */
  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.#drawNow();
    });
  }

  #drawNow() {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const scene = this.#scene(width, height, "");
    scene.drag = this.input.dragged();
    this.painted = { ...scene, ...paint(context, scene, themeOf(this.host)) };
    this.canvas.classList.toggle("on-point", this.target !== null);
    this.canvas.setAttribute("aria-label", `${this.title}. ${this.summary()} ${KEYS_SAY}${this.hasLines ? ` ${LINES_SAY}` : ""}`);
    this.#showTip();
  }

  /** The graph in a sentence or two. */
  summary() {
    const shown = this.series.filter((_, at) => this.shown[at]);
    if (!shown.length) return "No point to show.";
    const words = shown.slice(0, 8).map((one) => {
      const { seen, low, high, last } = summaryOf(one);
      const name = one.label ? `${one.label}: ` : "";
      const gaps = (one.gaps || []).slice(0, 4).map((gap) => `; ${gap.value} from ${short(gap.from)} to ${short(gap.to)}`).join("");
      return `${name}${seen} point${seen === 1 ? "" : "s"}, from ${short(low)} to ${short(high)}, last ${typeof last === "string" ? last : short(last)}${gaps}`;
    });
    const more = shown.length > words.length ? `; ${shown.length - words.length} more series` : "";
    const marks = this.marks.length ? ` ${this.marks.length} event${this.marks.length === 1 ? " is" : "s are"} marked.` : "";
    return `Over ${this.xLabel}. ${words.join("; ")}${more}.${marks}`;
  }

  /** What is shown now, in plain values. */
  model() {
    const { x, y, frame, xTicks, yTicks } = this.painted || {};
    return { title: this.title, x, y, frame, xTicks, yTicks, hover: this.#hovered(), shown: [...this.shown],
      labels: this.series.map((one) => one.label), smooth: this.smooth, curves: this.#curves(), gaps: this.#gaps(), marks: this.marks,
      zoomed: this.view !== null };
  }

  /** Where a point lies on the canvas, in CSS pixels. @param {number} x @param {number} y */
  pixelOf(x, y) {
    const { frame, x: xScale, y: yScale } = this.painted;
    return [xPixel(frame, xScale, x), yPixel(frame, yScale, y)];
  }

  /** The graph as a PNG of its own, with its title. @returns {Promise<Blob>} */
  png() {
    const canvas = document.createElement("canvas");
    canvas.width = PNG_SIZE.width * PNG_SIZE.ratio;
    canvas.height = PNG_SIZE.height * PNG_SIZE.ratio;
    const context = canvas.getContext("2d");
    context.scale(PNG_SIZE.ratio, PNG_SIZE.ratio);
    const scene = this.#scene(PNG_SIZE.width, PNG_SIZE.height, this.title);
    scene.hover = null;
    paint(context, scene, themeOf(this.host));
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  // ---- looking at points

  #hovered() {
    if (!this.hover) return null;
    const points = this.hover.points.map(({ x, y, number }) => ({ label: this.series[number].label, x, y, number }));
    return { x: this.hover.x, points };
  }

  /** The X at a place on the canvas. @param {number} left in CSS pixels */
  valueHere(left) {
    const { frame, x } = this.painted;
    return valueAt(x, (left - frame.left) / frame.width);
  }

  /** Shows what is nearest to a place on the canvas. @param {[number, number] | null} here in CSS pixels */
  look(here) {
    this.hover = here && this.painted ? this.#nearest(here) : null;
    this.lookAt(here && this.painted ? this.pointNear(here) : null);
  }

  /** Means a point by what comes: a click or Enter leads to its line. @param {Point | null} point */
  lookAt(point) {
    this.target = point && this.series[point.number].source ? point : null;
    this.draw();
  }

  /** Whether a point of what is shown leads to its line. */
  get hasLines() {
    return this.series.some((one, at) => this.shown[at] && one.source);
  }

  /** The point of a shown series that is nearest to a place on the canvas, of those that have lines; null where none is
   * near. A smoothed curve's is the number at that X. @param {[number, number]} here in CSS pixels @returns {Point | null} */
  pointNear([left, top]) {
    const { frame, x: xScale, y: yScale } = this.painted;
    const ends = [this.valueHere(left - NEAR_POINT), this.valueHere(left + NEAR_POINT)];
    let best = null;
    let least = NEAR_POINT;
    this.series.forEach((one, number) => {
      if (!this.shown[number] || !one.source) return;
      const { xs, ys } = one;
      const sorted = this.sorted[number];
      const means = this.smooth > 0 && !one.isTreated ? this.#smoothOf(one) : null;
      for (let at = sorted ? firstFrom(xs, ends[0]) : 0; at < xs.length && !(sorted && xs[at] > ends[1]); at += 1) {
        if (!Number.isFinite(ys[at])) continue;
        const across = xPixel(frame, xScale, xs[at]) - left;
        if (Math.abs(across) > NEAR_POINT) continue;
        for (const y of means ? [ys[at], means(at)] : [ys[at]]) {
          const far = Math.hypot(across, yPixel(frame, yScale, y) - top);
          if (!(far <= least)) continue; // nor what isn't on a log scale
          least = far;
          best = { x: xs[at], y: ys[at], number, at };
        }
      }
    });
    return best;
  }

  /** Where the smoothed curve of a series is, at each place of its points. */
  #smoothOf({ xs, ys, smooth }) {
    if (!smooth) {
      const means = smoothed(ys, this.smooth, this.debias);
      return (at) => means[at];
    }
    const sorted = isSorted(smooth.xs);
    return (at) => smooth.ys[nearest(smooth.xs, smooth.ys, xs[at], (other) => Math.abs(smooth.xs[other] - xs[at]), sorted)];
  }

  #nearest([left, top]) {
    const { frame, x: xScale, y: yScale } = this.painted;
    const aim = this.valueHere(left);
    const found = [];
    this.series.forEach((one, number) => {
      if (!this.shown[number]) return;
      const sorted = this.sorted[number] && !one.dots;
      const away = (at) => {
        const dx = xPixel(frame, xScale, one.xs[at]) - left;
        const dy = sorted ? 0 : yPixel(frame, yScale, one.ys[at]) - top;
        return Math.hypot(dx, dy);
      };
      const at = nearest(one.xs, one.ys, aim, away, sorted);
      if (at >= 0) found.push({ x: one.xs[at], y: one.ys[at], number, at, far: away(at) });
    });
    if (!found.length) return null;
    const first = found.reduce((best, one) => (one.far < best.far ? one : best));
    const column = xPixel(frame, xScale, first.x);
    const points = found.filter((one) => Math.abs(xPixel(frame, xScale, one.x) - column) < 12);
    const gaps = this.#gaps().filter((gap) =>
      xPixel(frame, xScale, gap.from) - NEAR_GAP <= left && left <= xPixel(frame, xScale, gap.to) + NEAR_GAP);
    return { x: first.x, points, gaps };
  }

  #showTip() {
    this.tip.hidden = !this.hover;
    if (!this.hover) return;
    const rows = [element("div", "chart-tip-x", `${this.xLabel}: ${this.xWords(this.hover.x)}`)];
    const theme = themeOf(this.host);
    for (const point of this.hover.points.slice(0, 16)) {
      const row = element("div", "chart-tip-row");
      const swatch = element("span", `swatch ${this.series[point.number].weight ?? ""}`);
      swatch.style.setProperty("--swatch", colourOf(theme, this.colourNumber(point.number)));
      const elsewhere = point.x === this.hover.x ? "" : ` at ${this.xWords(point.x)}`;
      const label = this.series[point.number].label || this.title;
      row.append(swatch, element("span", "chart-tip-name", label), element("b", "", `${this.valueWords(point)}${elsewhere}`));
      rows.push(row);
    }
    for (const gap of this.hover.gaps.slice(0, 4)) {
      const to = gap.to === gap.from ? "" : ` to ${this.xWords(gap.to)}`;
      rows.push(element("div", "chart-tip-mark bad", `${gap.label || this.title} is ${gap.value} at ${this.xWords(gap.from)}${to}`));
    }
    const { frame, x: scale } = this.painted;
    const column = xPixel(frame, scale, this.hover.x);
    const near = this.marks.filter((mark) => Math.abs(xPixel(frame, scale, mark.x) - column) < NEAR_MARK);
    for (const mark of near.slice(0, 4)) rows.push(element("div", `chart-tip-mark ${mark.look}`, `${elapsedLabel(mark.secs, MARK_STEP)} ${mark.label}`));
    if (near.length > 4) rows.push(element("div", "chart-tip-mark", `and ${near.length - 4} more`));
    if (this.target) rows.push(element("div", "chart-tip-line", `Click or Enter: the line of ${this.#pointWords(this.target)}`));
    this.tip.replaceChildren(...rows);
    this.tip.classList.toggle("at-left", column > this.host.clientWidth / 2);
  }

  /** A point's Y in words; of a mean with the deviation and of how many values it is.
   * @param {{y: number, number: number, at: number}} point */
  valueWords({ y, number, at }) {
    const { spread } = this.series[number];
    if (!spread) return short(y);
    const deviation = spread.deviations[at];
    return `${short(y)}, deviation ${Number.isFinite(deviation) ? short(deviation) : "none"}, n ${spread.counts[at]}`;
  }

  /** A point by its value, and by its series and X where these aren't clear. @param {Point} point */
  #pointWords(point) {
    const label = this.hover.points.length > 1 ? `${this.series[point.number].label || this.title} ` : "";
    return `${label}${short(point.y)}${point.x === this.hover.x ? "" : ` at ${this.xWords(point.x)}`}`;
  }

  /** An X in words. @param {number} x */
  xWords(x) {
    return this.xKind === "elapsed" ? `${elapsedLabel(x, MARK_STEP)} (${short(x)} s)` : short(x);
  }
}

/** @param {string} tag @param {string} name its class @param {string} text */
function element(tag, name, text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  return made;
}
