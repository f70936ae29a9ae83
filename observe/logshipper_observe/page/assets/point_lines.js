// Leads from a point of a graph to its line.

import { get } from "./api.js";
import { readSoFar } from "./graph_data.js";

const PAUSE_MS = 300; // between two requests during the search

/** Returns the address of a point's line in the console. Without a line, throws the reason.
 * @param {import("./graph_data.js").Source} source of its series @param {number} x @param {number} y
 * @param {(words: string) => void} progress shows the progress @param {AbortSignal} signal @returns {Promise<string>} */
export async function addressOfLine({ id, words }, x, y, progress, signal) {
  for (;;) {
    const answer = await get(["jobs", id, "point"], { ...words, at_x: x, at_y: y }, signal);
    if (answer.line !== null) return `#/job/${encodeURIComponent(id)}/console?line=${answer.line + 1}`;
    if (answer.complete) throw new Error(answer.words);
    progress(readSoFar(answer) || "Reading the job's lines …");
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    signal.throwIfAborted();
  }
}
