// A job's events, newest first: changes of state and mode, late heartbeats, lost lines, its own events. Called by job.js:
// context has `job`, `failed`, `answered`. Graphs show events as marks (marks.js).

import { look, repeat } from "./api.js";
import { el, fill, visible } from "./dom.js";
import { grouped, isRunning, local, plural } from "./format.js";
import { lookOf } from "./marks.js";
import { keepSettings } from "./settings.js";

const SECS = 2; // polling interval of a running job
const MOST = 1000; // in the list

export function show(root, context) {
  const id = context.job.job_id;
  let kind = context.words.get("kind") ?? "";
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
    const among = document.complete ? "" : ` among the newest ${grouped(document.total)}`;
    fill(said, document.matching ? plural(document.matching, "event") + among : `No events${among || " yet"}`, left > 0 ? `, the newest ${MOST} are shown` : "");
    fill(body, document.events.map((event) => el("tr", { class: `event-${lookOf(event)}` },
      el("td", {}, local(event.time_ms, true)), el("td", {}, nameOf(event.kind)),
      el("td", {}, visible(event.from_state)), el("td", {}, event.to_state ? el("span", { class: `state ${event.to_state}` }, visible(event.to_state)) : ""),
      el("td", {}, el("bdi", {}, visible(event.words))), el("td", { class: "dim" }, el("bdi", {}, event.data)))));
  }

  function choose(value) {
    kind = value;
    keepSettings(`#/job/${encodeURIComponent(id)}/events`, { kind });
    turn();
  }

  const looking = repeat(turn, () => (isRunning(context.job.state) ? SECS : 5));
  return { close: () => looking.stop() };
}

const nameOf = (kind) => visible(kind.replaceAll("_", " "));
