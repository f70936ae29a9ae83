// What a person does to a graph: pointer, wheel and keys become looks at points and zooms.

import { xPixel, yPixel } from "./paint.js";
import { place, scaleOf, valueAt } from "./scale.js";

const LEAST_DRAG = 6; // pixels; less is a click
const SECOND_MS = 350; // after a click: a second one within makes it a double click
const ALONG = 30; // pixels that a drag may wander up or down, and still zooms X alone

export class ChartInput {
  /** @param {import("./chart.js").Chart} chart */
  constructor(chart) {
    this.chart = chart;
    /** @type {{from: [number, number], to: [number, number]} | null} */
    this.drag = null;
    this.isDrag = false; // whether the pointer has moved since the last press: then no click is meant
    this.clickTimer = 0; // the timer of a click that no second one has followed yet, 0 for none
    const on = (name, call, options) => chart.canvas.addEventListener(name, call, options);
    on("pointerdown", (event) => this.#press(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", () => this.#release());
    on("pointercancel", () => this.#endDrag());
    on("pointerleave", () => chart.look(null));
    on("click", (event) => this.#click(event));
    on("dblclick", () => chart.reset());
    on("blur", () => chart.look(null));
    on("wheel", (event) => this.#wheel(event), { passive: false });
    on("keydown", (event) => this.#key(event));
  }

  #place(event) {
    const box = this.chart.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** What is under way has no effect any more. */
  close() {
    clearTimeout(this.clickTimer);
    this.clickTimer = 0;
  }

  #press(event) {
    this.close();
    if (event.button !== 0 || !this.chart.painted) return;
    const here = this.#place(event);
    this.drag = { from: here, to: here };
    this.isDrag = false;
    if (event.pointerType !== "touch") this.chart.canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const here = this.#place(event);
    if (this.drag) {
      this.drag.to = here;
      this.isDrag ||= Math.hypot(here[0] - this.drag.from[0], here[1] - this.drag.from[1]) >= LEAST_DRAG;
    }
    this.chart.look(here);
  }

  /** The rectangle that is being dragged; as high as the graph where one drags along. */
  dragged() {
    if (!this.drag || !this.chart.painted) return null;
    const { frame } = this.chart.painted;
    const clamp = (value, low, size) => Math.min(Math.max(value, low), low + size);
    const { from, to } = this.drag;
    const [x0, x1] = [from[0], to[0]].map((x) => clamp(x, frame.left, frame.width)).sort((a, b) => a - b);
    const [y0, y1] = [from[1], to[1]].map((y) => clamp(y, frame.top, frame.height)).sort((a, b) => a - b);
    if (x1 - x0 < LEAST_DRAG) return null;
    if (y1 - y0 >= ALONG) return { left: x0, right: x1, top: y0, bottom: y1, along: false };
    return { left: x0, right: x1, top: frame.top, bottom: frame.top + frame.height, along: true };
  }

  #release() {
    const box = this.dragged();
    this.#endDrag();
    if (!box) return;
    const { frame, y } = this.chart.painted;
    const yHere = (top) => valueAt(y, 1 - (top - frame.top) / frame.height);
    const x = [this.chart.valueHere(box.left), this.chart.valueHere(box.right)];
    this.chart.zoomTo(x, box.along ? null : [yHere(box.bottom), yHere(box.top)]);
  }

  #endDrag() {
    this.drag = null;
    this.chart.draw();
  }

  /** A single click near a point leads to its line, as soon as no second one has followed. */
  #click(event) {
    this.close();
    if (this.isDrag || event.detail > 1 || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    this.chart.look(this.#place(event));
    const pick = this.#pick();
    if (pick) this.clickTimer = setTimeout(() => { this.clickTimer = 0; pick(); }, SECOND_MS);
  }

  /** What leads to the line of the point that is meant now, null where none is. */
  #pick() {
    const { target, series, onPick } = this.chart;
    if (!target) return null;
    const { source } = series[target.number];
    return () => onPick(source, target.x, target.y);
  }

  /** Zooms where the graph is in use (it has the focus) or Ctrl is held: otherwise the page scrolls. */
  #wheel(event) {
    const { painted, canvas } = this.chart;
    if (!painted || !(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
    event.preventDefault();
    const share = place(painted.x, this.chart.valueHere(this.#place(event)[0]));
    this.#zoomBy(event.deltaY > 0 ? 1.25 : 0.8, share);
  }

  /** @param {number} factor of what is in view @param {number} share the place that stays where it is */
  #zoomBy(factor, share) {
    const all = scaleOf(...this.chart.wholeX(), this.chart.logX);
    const { x } = this.chart.painted;
    const low = Math.max(valueAt(x, share - share * factor), all.low);
    const high = Math.min(valueAt(x, share + (1 - share) * factor), all.high);
    if (low <= all.low && high >= all.high) this.chart.reset();
    else this.chart.zoomTo([low, high]);
  }

  /** @param {number} share of what is in view */
  #pan(share) {
    const all = scaleOf(...this.chart.wholeX(), this.chart.logX);
    const { x } = this.chart.painted;
    const room = share < 0 ? place(x, all.low) : place(x, all.high) - 1;
    const by = share < 0 ? Math.max(share, Math.min(room, 0)) : Math.min(share, Math.max(room, 0));
    this.chart.zoomTo([valueAt(x, by), valueAt(x, 1 + by)], this.chart.view.y);
  }

  // ---- keyboard

  #key(event) {
    if (!this.chart.painted || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const share = this.chart.hover ? place(this.chart.painted.x, this.chart.hover.x) : 0.5;
    const page = { PageUp: -0.5, PageDown: 0.5 }[event.key];
    if (page && this.chart.view) this.#pan(page);
    else if (arrow) this.#step(arrow * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") this.#step(-Infinity);
    else if (event.key === "End") this.#step(Infinity);
    else if (event.key === "+" || event.key === "=") this.#zoomBy(0.5, share);
    else if (event.key === "-") this.#zoomBy(2, share);
    else if (event.key === "Enter" && this.chart.target) this.#pick()();
    else if (event.key === "0" || event.key === "Escape") this.chart.reset();
    else return;
    event.preventDefault();
  }

  /** Moves along the points in view of the first series that is shown. @param {number} by how many of them */
  #step(by) {
    const { chart } = this;
    const number = chart.shown.indexOf(true);
    if (number < 0) return;
    const { xs, ys } = chart.series[number];
    const { frame, x, y } = chart.painted;
    const places = [];
    for (let at = 0; at < xs.length; at += 1) {
      if (Number.isFinite(ys[at]) && xs[at] >= x.low && xs[at] <= x.high && !(y.log && ys[at] <= 0)) places.push(at);
    }
    if (!places.length) return;
    const now = places.indexOf(chart.hover?.points.find((one) => one.number === number)?.at ?? -1);
    const begins = by === Infinity || by < 0 ? places.length - 1 : 0;
    const next = by === -Infinity ? 0 : now < 0 ? begins : now + by;
    const at = places[Math.min(Math.max(next, 0), places.length - 1)];
    chart.look([xPixel(frame, x, xs[at]), yPixel(frame, y, ys[at])]);
    if (!chart.hover) return;
    const own = chart.hover.points.find((one) => one.number === number);
    if (own) Object.assign(own, { x: xs[at], y: ys[at], at }); // of two that share an X the one that was meant
    chart.hover.x = xs[at];
    chart.lookAt({ x: xs[at], y: ys[at], number, at });
    const said = chart.hover.points.slice(0, 4).map((one) => `${chart.series[one.number].label} ${chart.valueWords(one)}`);
    chart.live.textContent = `${chart.xLabel} ${chart.xWords(xs[at])}: ${said.join(", ")}`;
  }
}
