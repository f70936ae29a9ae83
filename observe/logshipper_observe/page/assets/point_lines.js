// From a point of a graph to the line that it was printed on.

import { get } from "./api.js";
import { readSoFar } from "./graph_data.js";

const PAUSE_MS = 300; // between two questions, while what could tell is still being read

/** The address of the console at a point's line; throws where there is none, with the reason.
 * @param {import("./graph_data.js").Source} source of its series @param {number} x @param {number} y
 * @param {(words: string) => void} progress how far the search is @param {AbortSignal} signal @returns {Promise<string>} */
export async function addressOfLine({ id, words }, x, y, progress, signal) {
  for (;;) {
    const answer = await get(["jobs", id, "point"], { ...words, at_x: x, at_y: y }, signal);
    if (answer.line !== null) return `#/job/${encodeURIComponent(id)}/console?line=${answer.line + 1}`;
    if (answer.complete) throw new Error(answer.words);
    progress(readSoFar(answer) || "The job's lines are being read …");
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    signal.throwIfAborted();
  }
}
