// Series that logshipper found in the output: their heading, and the line for ~/.logoptin that ignores one.

import { el } from "./dom.js";

export const FOUND = "Found in the output";
const MARK = " (auto)"; // the end of their keys' names

/** Returns a button that copies the line. @param {string[]} keys of one graph @param {(words: string) => void} say */
export function notSeriesButton(keys, say) {
  const quoted = keys.map((key) => `'${key.slice(0, -MARK.length).replaceAll("'", "''")}'`);
  const line = `ignore: [${quoted.join(", ")}]`;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      say(`Copied for ~/.logoptin, and for later jobs: ${line}`);
    } catch {
      say(`Put this line into ~/.logoptin, for later jobs: ${line}`);
    }
  };
  return el("button", { type: "button", class: "quiet", "aria-label": `${keys.join(" and ")} is not a series`,
    title: `Copies the line ${line}`, on: { click: copy } }, "Not a series");
}
