// Loads points of graphs in batches of keys, and converts answers for panels.

import { get, look } from "./api.js";
import { grouped, plural } from "./format.js";

export const POINTS = 2000; // of a series
const MOST_AT_ONCE = 24; // keys per request
const MOST_BYTES = 5000; // of the keys in an address

const smoothGraphs = new WeakMap(); // by graph: its combination with the smoothed one

/** Splits keys into few requests with short addresses. @param {string[]} keys */
export function batches(keys) {
  const found = [];
  let size = Infinity;
  for (const key of keys) {
    const bytes = encodeURIComponent(JSON.stringify(key)).length + 3;
    if (size + bytes > MOST_BYTES || found.at(-1).length >= MOST_AT_ONCE) {
      found.push([]);
      size = 0;
    }
    found.at(-1).push(key);
    size += bytes;
  }
  return found;
}

/** Returns the `x` parameter of a key: `time` alone is the clock. @param {string} key */
export const xOf = (key) => (key === "time" || key === "" ? `key:${key}` : key);

/** @typedef {{id: string, words: object}} Source request for the line of a series' point
 * (page/api/points.py): the job, and all parameters except the place */

/** Converts a graph of an answer for a panel. query: the job and X of the answer; without it, points lead to no lines.
 * @param {{id: string, x: string} | null} query @returns {import("./graph_panel.js").Drawing} */
export function drawingOf(graph, query = null) {
  const isClock = graph.x.key === null && !graph.x.by_number;
  return {
    title: graph.key,
    xKey: graph.x.key,
    // unordered dots and record numbers have no time
    markable: !graph.scattered && !graph.x.by_number,
    xLabel: isClock ? "time since the start" : graph.x.key ?? "record number",
    xKind: isClock ? "elapsed" : graph.x.integer ? "integer" : "number",
    yKind: graph.integer ? "integer" : "number",
    series: graph.series.map((one) => ({
      label: one.label, ...rowsOf(one), seen: one.seen, isPart: one.x.length < one.seen, gaps: one.gaps,
      dots: graph.scattered, smooth: one.smooth, source: query && sourceOf(graph, one, query),
    })),
    notes: graph.notes,
  };
}

/** @returns {Source} */
function sourceOf(graph, { origin, tags, curve }, { id, x }) {
  return { id, words: { y: JSON.stringify([graph.key]), x, own_x: graph.own_x ? 1 : "", origin, tags: JSON.stringify(tags), curve } };
}

/** Converts points for a chart: a NaN interrupts the line. */
function rowsOf({ x, y, breaks }) {
  if (!breaks.length) return { xs: x, ys: y };
  const [xs, ys] = [[], []];
  let begin = 0;
  for (const end of [...breaks, x.length]) {
    if (begin) {
      xs.push(x[begin - 1]);
      ys.push(NaN);
    }
    xs.push(...x.slice(begin, end));
    ys.push(...y.slice(begin, end));
    begin = end;
  }
  return { xs, ys };
}

/** Returns the progress of an answer in words, "" at the end. */
export function readSoFar({ complete, records, total }) {
  return complete ? "" : `Read ${grouped(records)} of ${plural(total, "record")} …`;
}

/** Loads graphs by key. For thinned series, the server smooths all points. An answer about a long job may be incomplete:
 * then missing has the progress, and the caller repeats the request. secs: the server's time.
 * @param {string} id @param {string[]} keys @param {AbortSignal} signal
 * @param {{x: string, smooth: number, debias?: boolean, low?: number, high?: number}} how low, high: limits of X
 * @returns {Promise<{graphs: Map<string, object>, secs: number, missing: string}>} */
export async function fetchGraphs(id, keys, { x, smooth, debias, low, high }, signal) {
  const found = new Map();
  let secs = 0;
  let missing = "";
  const take = (document) => {
    secs += document.secs;
    missing ||= readSoFar(document);
  };
  for (const some of batches(keys)) {
    const words = { y: JSON.stringify(some), x, points: POINTS, low, high };
    const { document } = await look(["jobs", id, "graphs"], words, signal);
    take(document);
    for (const graph of document.graphs) found.set(graph.key, graph);
    const isPart = (one) => low !== undefined || one.x.length < one.seen;
    const parts = document.graphs.filter((graph) => graph.series.some(isPart));
    if (!smooth || !parts.length) continue;
    const asked = { ...words, y: JSON.stringify(parts.map((graph) => graph.key)), smooth, debias: debias ? 1 : "" };
    const answer = await get(["jobs", id, "graphs"], asked, signal);
    take(answer);
    for (const graph of answer.graphs) found.set(graph.key, withSmooth(found.get(graph.key), graph));
  }
  return { graphs: found, secs, missing };
}

/** Returns the same value for the same answers, so that graphs need no redraw. */
function withSmooth(graph, smoothed) {
  const cached = smoothGraphs.get(graph);
  if (cached?.smoothed === smoothed) return cached.graph;
  const series = graph.series.map((one) => {
    const same = smoothed.series.find((other) => other.label === one.label);
    return { ...one, smooth: same ? rowsOf(same) : null };
  });
  const found = { ...graph, series };
  smoothGraphs.set(graph, { smoothed, graph: found });
  return found;
}
