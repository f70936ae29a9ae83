// Draws a graph on a canvas: on the page, and again, larger, as a PNG.

import { place, ticksOf } from "./scale.js";

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3]]; // of the first eight series, the next eight, all others
const FONT = "12px system-ui, sans-serif";
const LEAST_GAP = 16; // pixels between points that are marked on their line
const WIDTHS = { thin: 1.2, thick: 2.6 };

/** @typedef {{colours: string[], axis: string, grid: string, text: string, faint: string, ground: string,
 *   marks: {[look: string]: string}}} Theme */
/** @typedef {{xs: ArrayLike<number>, ys: ArrayLike<number>, number: number, faint: boolean, dots: boolean, weight?: "thin" | "thick",
 *   band: {low: ArrayLike<number>, high: ArrayLike<number>} | null}} Curve
 * number: of the series, for colour and dashes; faint: behind its smoothed one; band: around it */
/** @typedef {{left: number, top: number, width: number, height: number}} Frame where points lie, in CSS pixels */
/** @typedef {import("./scale.js").Scale} Scale */
/** @typedef {{width: number, height: number, title: string, x: Scale, y: Scale, xKind: string, yKind: string,
 *   xLabel: string, curves: Curve[], best: {x: number, y: number, number: number} | null, gaps: import("./curve.js").Gap[], marks: import("./marks.js").Mark[], hover: {x: number, points: {x: number, y: number, number: number}[]} | null,
 *   drag: {left: number, right: number, top: number, bottom: number} | null}} Scene */

/** The colours of the page's theme, from its CSS variables. @param {Element} element @returns {Theme} */
export function themeOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim() || "gray";
  const colours = [];
  for (let number = 1; number <= COLOURS; number += 1) colours.push(colour(`--chart-${number}`));
  return {
    colours,
    axis: colour("--chart-axis"),
    grid: colour("--chart-grid"),
    text: colour("--chart-text"),
    faint: colour("--chart-faint"),
    ground: colour("--chart-ground"),
    marks: { state: colour("--chart-faint"), user: colour("--odd"), bad: colour("--bad") },
  };
}

/** @param {Theme} theme @param {number} number */
export function colourOf(theme, number) {
  return theme.colours[number % COLOURS];
}

/** The dashes of a series' line, in pixels; none for the first eight. @param {number} number */
export function dashesOf(number) {
  return DASHES[Math.min(Math.floor(number / COLOURS), DASHES.length - 1)];
}

/** Paints a scene; gives the frame and the ticks. The context is scaled to CSS pixels already.
 * @param {CanvasRenderingContext2D} context @param {Scene} scene @param {Theme} theme */
export function paint(context, scene, theme) {
  context.fillStyle = theme.ground;
  context.fillRect(0, 0, scene.width, scene.height);
  context.font = FONT;
  const top = scene.title ? 30 : 10;
  const height = Math.max(scene.height - top - 38, 20);
  const yTicks = ticksOf(scene.y, Math.max(Math.floor(height / 30), 2), scene.yKind);
  const widest = Math.max(24, ...yTicks.map((tick) => context.measureText(tick.label).width));
  const left = Math.min(Math.ceil(widest) + 14, Math.floor(scene.width / 2));
  const frame = { left, top, width: Math.max(scene.width - left - 14, 20), height };
  const xTicks = ticksOf(scene.x, Math.max(Math.floor(frame.width / 76), 2), scene.xKind);
  if (scene.title) title(context, scene, theme);
  axes(context, scene, theme, frame, xTicks, yTicks);
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top - 2, frame.width, frame.height + 4);
  context.clip();
  for (const mark of scene.marks) moment(context, scene, theme, frame, mark);
  for (const gap of scene.gaps) band(context, scene, theme, frame, gap);
  for (const curve of scene.curves) if (curve.band) spread(context, scene, theme, frame, curve);
  for (const curve of scene.curves) line(context, scene, theme, frame, curve);
  if (scene.best) ring(context, scene, theme, frame);
  context.restore();
  if (scene.hover) crosshair(context, scene, theme, frame);
  if (scene.drag) selection(context, theme, scene.drag);
  return { frame, xTicks, yTicks };
}

/** @param {Frame} frame @param {Scale} scale @param {number} x */
export function xPixel(frame, scale, x) {
  return frame.left + place(scale, x) * frame.width;
}

/** @param {Frame} frame @param {Scale} scale @param {number} y */
export function yPixel(frame, scale, y) {
  return frame.top + (1 - place(scale, y)) * frame.height;
}

function title(context, scene, theme) {
  context.fillStyle = theme.text;
  context.font = "600 14px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(fitted(context, scene.title, scene.width - 24), 12, 15);
  context.font = FONT;
}

/** The text, cut where it is too wide. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let letters = [...text.slice(0, 400)];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > room) {
    letters = letters.slice(0, Math.floor(letters.length * 0.9));
  }
  return `${letters.join("")}…`;
}

function axes(context, scene, theme, frame, xTicks, yTicks) {
  const { left, top, width, height } = frame;
  context.lineWidth = 1;
  context.setLineDash([]);
  context.strokeStyle = theme.grid;
  context.fillStyle = theme.faint;
  context.beginPath();
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const tick of yTicks) {
    const y = Math.round(yPixel(frame, scene.y, tick.at)) + 0.5;
    if (y < top - 1 || y > top + height + 1) continue;
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.fillText(tick.label, left - 6, y);
  }
  context.textBaseline = "top";
  context.textAlign = "center";
  let free = -Infinity; // labels that would run into the one before are left out
  for (const tick of xTicks) {
    const x = Math.round(xPixel(frame, scene.x, tick.at)) + 0.5;
    if (x < left - 1 || x > left + width + 1) continue;
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    const half = context.measureText(tick.label).width / 2;
    const centre = Math.min(x, scene.width - half - 2);
    if (centre - half < free) continue;
    context.fillText(tick.label, centre, top + height + 6);
    free = centre + half + 8;
  }
  context.stroke();
  context.strokeStyle = theme.axis;
  context.beginPath();
  context.moveTo(left + 0.5, top);
  context.lineTo(left + 0.5, top + height + 0.5);
  context.lineTo(left + width, top + height + 0.5);
  context.stroke();
  context.textAlign = "right";
  context.fillStyle = theme.text;
  context.fillText(fitted(context, scene.xLabel, width), left + width, top + height + 22);
}

/** A dashed line from top to bottom. */
function upright(context, frame, x, colour, dash) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x, frame.top);
  context.lineTo(x, frame.top + frame.height);
  context.stroke();
  context.setLineDash([]);
}

/** An event: a line from top to bottom, with a wedge at its top. */
function moment(context, scene, theme, frame, mark) {
  const x = Math.round(xPixel(frame, scene.x, mark.x)) + 0.5;
  if (!Number.isFinite(x)) return;
  context.fillStyle = theme.marks[mark.look];
  upright(context, frame, x, context.fillStyle, [2, 3]);
  context.beginPath();
  context.moveTo(x - 4, frame.top);
  context.lineTo(x + 4, frame.top);
  context.lineTo(x, frame.top + 6);
  context.fill();
}

/** Values that are no numbers: a band over their X, a cross at the bottom of each end. */
function band(context, scene, theme, frame, gap) {
  const [from, to] = [gap.from, gap.to].map((x) => xPixel(frame, scene.x, x));
  if (!Number.isFinite(from + to)) return;
  const bottom = frame.top + frame.height;
  context.fillStyle = context.strokeStyle = theme.marks.bad;
  context.globalAlpha = 0.1;
  context.fillRect(from - 2, frame.top, to - from + 4, frame.height);
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const x of new Set([from, to])) {
    context.moveTo(x - 4, bottom - 9);
    context.lineTo(x + 4, bottom - 1);
    context.moveTo(x - 4, bottom - 1);
    context.lineTo(x + 4, bottom - 9);
  }
  context.moveTo(from, bottom - 5);
  context.lineTo(to, bottom - 5);
  context.stroke();
}

/** The band around a curve; on a log scale what isn't above 0 is at the bottom. */
function spread(context, scene, theme, frame, { xs, band, number }) {
  const place = (at, edge) => {
    const y = yPixel(frame, scene.y, edge[at]);
    return [xPixel(frame, scene.x, xs[at]), Number.isFinite(y) ? y : frame.top + frame.height];
  };
  const drawn = Array.from(xs.keys()).filter((at) => Number.isFinite(xPixel(frame, scene.x, xs[at])));
  context.fillStyle = colourOf(theme, number);
  context.globalAlpha = 0.18;
  context.beginPath();
  for (const at of drawn) context.lineTo(...place(at, band.high));
  for (const at of drawn.reverse()) context.lineTo(...place(at, band.low));
  context.fill();
  context.globalAlpha = 1;
}

function line(context, scene, theme, frame, curve) {
  const { xs, ys } = curve;
  context.strokeStyle = context.fillStyle = colourOf(theme, curve.number);
  context.globalAlpha = curve.faint ? 0.28 : 1;
  context.lineWidth = curve.faint ? 1 : WIDTHS[curve.weight] ?? 1.8;
  context.lineJoin = "round";
  context.setLineDash(curve.faint ? [] : dashesOf(curve.number));
  const drawable = (value, scale) => Number.isFinite(value) && (!scale.log || value > 0);
  const dotted = curve.dots || (!curve.faint && isSparse(xs, scene.x, frame));
  let pen = false;
  context.beginPath();
  for (let at = 0; at < xs.length; at += 1) {
    if (!drawable(xs[at], scene.x) || !drawable(ys[at], scene.y)) {
      pen = false;
      continue;
    }
    const x = xPixel(frame, scene.x, xs[at]);
    const y = yPixel(frame, scene.y, ys[at]);
    if (!curve.dots) {
      if (pen) context.lineTo(x, y);
      else context.moveTo(x, y);
    }
    const alone = !pen && !drawable(ys[at + 1], scene.y);
    if (dotted || alone) dot(context, x, y, 2.2);
    pen = true;
  }
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** Whether the points in view lie so far apart that marks do not hide the line. */
function isSparse(xs, scale, frame) {
  const most = frame.width / LEAST_GAP;
  let seen = 0;
  for (let at = 0; at < xs.length && seen <= most; at += 1) if (xs[at] >= scale.low && xs[at] <= scale.high) seen += 1;
  return seen <= most;
}

/** A ring around the best point. */
function ring(context, scene, theme, frame) {
  const { x, y, number } = scene.best;
  const [left, top] = [xPixel(frame, scene.x, x), yPixel(frame, scene.y, y)];
  if (!Number.isFinite(left + top)) return;
  context.lineWidth = 2;
  for (const [colour, radius] of [[theme.ground, 6.5], [colourOf(theme, number), 5]]) {
    context.strokeStyle = colour;
    context.beginPath();
    context.arc(left, top, radius, 0, 2 * Math.PI);
    context.stroke();
  }
}

function dot(context, x, y, radius) {
  context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
}

function crosshair(context, scene, theme, frame) {
  const x = Math.round(xPixel(frame, scene.x, scene.hover.x)) + 0.5;
  upright(context, frame, x, theme.axis, [4, 3]);
  for (const point of scene.hover.points) {
    const px = xPixel(frame, scene.x, point.x);
    const py = yPixel(frame, scene.y, point.y);
    if (!Number.isFinite(px + py) || py < frame.top - 3 || py > frame.top + frame.height + 3) continue;
    context.fillStyle = theme.ground;
    context.beginPath();
    context.arc(px, py, 5.5, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = colourOf(theme, point.number);
    context.beginPath();
    context.arc(px, py, 3.8, 0, 2 * Math.PI);
    context.fill();
  }
}

function selection(context, theme, drag) {
  context.fillStyle = context.strokeStyle = theme.text;
  context.globalAlpha = 0.12;
  context.fillRect(drag.left, drag.top, drag.right - drag.left, drag.bottom - drag.top);
  context.globalAlpha = 0.6;
  context.strokeRect(drag.left + 0.5, drag.top + 0.5, drag.right - drag.left, drag.bottom - drag.top);
  context.globalAlpha = 1;
}
