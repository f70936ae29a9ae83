// Events of a job as marks in its graphs: over a key, a mark stands at the X of the records around it.

import { look } from "./api.js";
import { visible } from "./dom.js";
import { fetchGraphs } from "./graph_data.js";

const MARKS = 200; // in a graph, the newest
// losses, as in Grafana, and late heartbeats
const BAD = new Set(["lines_lost", "lines_left_out", "segment_damaged", "record_left_out", "events_left_out",
  "user_events_left_out", "measurements_left_out", "records_lost", "heartbeat_lost"]);
// only in the list
const UNMARKED = new Set(["json_hint", "metadata_pattern_off", "series_left_out", "series_off", "series_rename_conflict", "values_masked", "output_slowed", "output_slowed_no_longer"]);

/** @typedef {{x: number, secs: number, look: "bad" | "user" | "state", label: string}} Mark an event in a graph; secs:
 * since the job's start, as x in a graph over time */
/** @typedef {{xs: number[], ys: number[]}} Course a key over time: of one attempt, step and task */
/** @typedef {(xKey: string | null) => Mark[]} MarksOver the marks of a graph over this key, null for time */

export const NO_MARKS = () => [];

/** @param {{kind: string}} event */
export function lookOf(event) {
  if (BAD.has(event.kind)) return "bad";
  return event.kind === "user_event" ? "user" : "state";
}

/** Returns the same value until something changes, so that graphs need no redraw. */
export class JobMarks {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.seen = [];
    /** @type {MarksOver} */
    this.over = NO_MARKS;
  }

  /** @param {string[]} xKeys the X axes of graphs @param {AbortSignal} signal @returns {Promise<MarksOver>} */
  async fetch(xKeys, signal) {
    const { document } = await look(["jobs", this.id, "events"], { limit: MARKS }, signal);
    const isWanted = document.events.length && xKeys.length;
    const { graphs } = isWanted ? await fetchGraphs(this.id, xKeys, { x: "time", smooth: 0 }, signal) : { graphs: new Map() };
    const seen = [document, ...graphs.values()];
    if (seen.length !== this.seen.length || seen.some((one, at) => one !== this.seen[at])) {
      const marks = marksOf(document.events);
      const byKey = new Map([[null, marks]]);
      for (const [key, { series }] of graphs) {
        byKey.set(key, placed(marks, series.map((one) => ({ xs: one.x, ys: one.y }))));
      }
      this.seen = seen;
      this.over = (xKey) => byKey.get(xKey) || [];
    }
    return this.over;
  }
}

function marksOf(events) {
  const marked = events.filter((event) => !UNMARKED.has(event.kind));
  return marked.map((event) => ({ x: event.secs, secs: event.secs, look: lookOf(event), label: wordsOf(event) }));
}

function wordsOf(event) {
  const change = event.to_state ? [event.from_state, event.to_state].filter(Boolean).join(" → ") : "";
  return visible([change, event.words].filter(Boolean).join(": ") || event.kind);
}

/** Places marks at the values of a key at their times. Between two attempts, a mark stands at the last value before it;
 * before all records, at the first value. @param {Mark[]} marks @param {Course[]} courses @returns {Mark[]} */
export function placed(marks, courses) {
  const known = courses.filter((one) => one.xs.length);
  if (!known.length) return [];
  const first = known.reduce((least, one) => (one.xs[0] < least.xs[0] ? one : least));
  return marks.map((mark) => {
    const begun = known.filter((one) => one.xs[0] <= mark.secs);
    if (!begun.length) return { ...mark, x: first.ys[0] };
    const going = begun.find((one) => one.xs.at(-1) >= mark.secs);
    const last = () => begun.reduce((most, one) => (one.xs.at(-1) > most.xs.at(-1) ? one : most));
    return { ...mark, x: valueAt(going || last(), mark.secs) };
  });
}

/** Interpolates linearly; after the last point, returns its value. */
function valueAt({ xs, ys }, secs) {
  let [low, high] = [0, xs.length - 1];
  if (secs >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= secs) low = middle;
    else high = middle;
  }
  const share = (secs - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + share * (ys[high] - ys[low]);
}
