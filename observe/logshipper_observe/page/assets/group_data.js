// Grouped curves of several jobs: a curve for each run in the colour of its group, or for each group the mean and the
// deviation of its runs.

import { look } from "./api.js";
import { drawingOf, POINTS, readSoFar } from "./graph_data.js";

const MOST_KEYS = 4; // of one request

/** Fetches graphs by key, as `fetchGraphs` does.
 * @param {{ids: string[], labels: string[]}} jobs @param {string[]} keys
 * @param {{x: string, by: string, mean: boolean, smooth: number, debias: boolean}} how by: the criterion of the groups
 * @param {AbortSignal} signal */
export async function fetchGroups({ ids, labels }, keys, { x, by, mean, smooth, debias }, signal) {
  const found = new Map();
  let secs = 0;
  let missing = "";
  const words = { jobs: JSON.stringify(ids), labels: JSON.stringify(labels), x, by, mean: mean ? 1 : "",
    smooth: smooth || "", debias: debias ? 1 : "", points: POINTS };
  for (let at = 0; at < keys.length; at += MOST_KEYS) {
    const y = JSON.stringify(keys.slice(at, at + MOST_KEYS));
    const { document } = await look(["groups"], { ...words, y }, signal);
    secs += document.secs;
    missing ||= readSoFar(document);
    for (const graph of document.graphs) found.set(graph.key, graph);
  }
  return { graphs: found, secs, missing };
}

/** What a panel shows of groups: the server has smoothed them. @returns {import("./graph_panel.js").Drawing} */
export function groupDrawing(graph) {
  const drawing = drawingOf({ ...graph, x: graph.x ?? { key: null, by_number: false, integer: false } });
  const colours = new Map();
  for (const { group } of graph.series) if (!colours.has(group)) colours.set(group, colours.size);
  const series = drawing.series.map((one, at) => {
    const { group, deviations, counts } = graph.series[at];
    const spread = deviations && { deviations: deviations.map((deviation) => deviation ?? NaN), counts };
    return { ...one, colour: colours.get(group), isTreated: true, isPart: false, spread };
  });
  return { ...drawing, markable: false, series };
}
