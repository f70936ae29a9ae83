// What happened to the job, newest first: changes of state and mode, late heartbeats, lost lines, its own events. Called by
// job.js: context has `job`, `failed`, `answered`. Graphs over time show the same as marks.

import { look, repeat } from "./api.js";
import { el, fill, visible } from "./dom.js";
import { isRunning, local, plural } from "./format.js";

const SECS = 2; // between two looks at a running job
const MOST = 1000; // that are listed
const MARKS = 200; // in a graph, the newest
const BAD = new Set(["lines_lost", "lines_left_out", "segment_damaged", "heartbeat_lost", "record_left_out"]);
const UNMARKED = new Set(["json_hint", "output_slowed", "output_slowed_no_longer"]); // they only stand in the list

/** @typedef {{x: number, look: "bad" | "user" | "state", label: string}} Mark a moment in a graph over time, in seconds */

/** The job's newest events as marks. @param {string} id @param {AbortSignal} signal @returns {Promise<Mark[]>} */
export async function fetchMarks(id, signal) {
  const { document } = await look(["jobs", id, "events"], { limit: MARKS }, signal);
  if (last.document !== document) last = { document, marks: marksOf(document.events) };
  return last.marks;
}

let last = { document: null, marks: [] }; // the same marks as long as the answer is the same: nothing is drawn anew

function marksOf(events) {
  const marked = events.filter((event) => !UNMARKED.has(event.kind));
  return marked.map((event) => ({ x: event.secs, look: lookOf(event), label: wordsOf(event) }));
}

function lookOf(event) {
  if (BAD.has(event.kind)) return "bad";
  return event.kind === "user_event" ? "user" : "state";
}

function wordsOf(event) {
  const change = event.to_state ? [event.from_state, event.to_state].filter(Boolean).join(" → ") : "";
  return visible([change, event.words].filter(Boolean).join(": ") || event.kind);
}

export function show(root, context) {
  const id = context.job.job_id;
  let kind = "";
  let drawn = null;
  const select = el("select", { on: { change: (event) => choose(event.target.value) } });
  const said = el("p", { class: "graph-rule", role: "status" });
  const body = el("tbody");
  const head = ["Time", "Event", "From", "To", "What", "Data"].map((name) => el("th", { scope: "col" }, name));
  root.append(
    el("div", { class: "graph-controls", role: "group", "aria-label": "Events" }, el("label", {}, "Kind", select)), said,
    el("div", { class: "records-scroll", tabindex: 0, role: "region", "aria-label": "Events" },
      el("table", { class: "records events" }, el("thead", {}, el("tr", {}, head)), body)));

  async function turn(signal) {
    try {
      const { document } = await look(["jobs", id, "events"], { kind, limit: MOST }, signal);
      context.answered();
      if (signal?.aborted || document === drawn) return;
      drawn = document;
      draw(document);
    } catch (error) {
      if (error.name !== "AbortError") context.failed(error);
    }
  }

  function draw(document) {
    const kinds = [["", "all"], ...Object.entries(document.kinds).map(([name, count]) => [name, `${nameOf(name)} (${count})`])];
    fill(select, kinds.map(([value, text]) => el("option", { value }, text)));
    select.value = kind;
    const left = document.matching - document.events.length;
    fill(said, document.matching ? plural(document.matching, "event") : "No events yet", left > 0 ? `, the newest ${MOST} are shown` : "");
    fill(body, document.events.map((event) => el("tr", { class: `event-${lookOf(event)}` },
      el("td", {}, local(event.time_ms, true)), el("td", {}, nameOf(event.kind)),
      el("td", {}, visible(event.from_state)), el("td", {}, event.to_state ? el("span", { class: `state ${event.to_state}` }, visible(event.to_state)) : ""),
      el("td", {}, el("bdi", {}, visible(event.words))), el("td", { class: "dim" }, el("bdi", {}, event.data)))));
  }

  function choose(value) {
    kind = value;
    turn();
  }

  const looking = repeat(turn, () => (isRunning(context.job.state) ? SECS : 5));
  return { close: () => looking.stop() };
}

const nameOf = (kind) => visible(kind.replaceAll("_", " "));
