// Graphs' points from the server: keys shared out to requests, and answers as what a panel shows.

import { get, look } from "./api.js";
import { grouped, plural } from "./format.js";

export const POINTS = 2000; // of a series
const MOST_AT_ONCE = 24; // keys of one request
const MOST_BYTES = 5000; // of the keys in an address

const smoothGraphs = new WeakMap(); // by a graph: what was made of it and its smoothed one

/** Sharing out keys to requests: few of them, and no address too long. @param {string[]} keys */
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

/** The value of an X selector for a key: `time` is the clock. @param {string} key */
export const xOf = (key) => (key === "time" || key === "" ? `key:${key}` : key);

/** @typedef {{id: string, words: object}} Source how the server is asked for the line of one of a series' points
 * (page/api/points.py): of which job, and all words but the point's place */

/** What a panel shows of an answer's graph. query: of which job the answer is, and over which X; without it points have no lines.
 * @param {{id: string, x: string} | null} query @returns {import("./graph_panel.js").Drawing} */
export function drawingOf(graph, query = null) {
  const isClock = graph.x.key === null && !graph.x.by_number;
  return {
    title: graph.key,
    xKey: graph.x.key,
    // dots of any order have no before and after, and where a record's number is isn't known
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

/** Points as a chart draws them: NaN stands where no line joins what is before and behind. */
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

/** How far an answer was read, in words; "" where that is all. */
export function readSoFar({ complete, records, total }) {
  return complete ? "" : `Read ${grouped(records)} of ${plural(total, "record")} …`;
}

/** Fetches graphs by key. Where only some of a series' points come, the server smooths all of them. Of a long job an
 * answer has what was read so far: missing says so in words, and one asks again. secs: what it has cost the server.
 * @param {string} id @param {string[]} keys @param {AbortSignal} signal
 * @param {{x: string, smooth: number, debias?: boolean, low?: number, high?: number}} how low, high: only what lies between these X
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

/** The same value for the same answers: then nothing is drawn again. */
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
