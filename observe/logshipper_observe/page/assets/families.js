// Graphs of families of keys, such as train/loss and val/loss: one colour, a thin and a thick line, and the best number.

import { FOUND } from "./found_series.js";
import { visible } from "./dom.js";

/** @typedef {{title: string, section: string, goal: "least" | "largest" | "", members: {key: string, part: string}[]}} Family
 * of the server's answer `axes`; goal: which number is the best; part: of the data, "train", "validation", "test" or "" */

const TESTED = ["validation", "test"]; // parts whose best number counts

/** The keys of a family, in order. @param {Family} family @returns {string[]} */
export const keysOf = ({ members }) => members.map(({ key }) => key);

/** The name of a family's panel: another one if a key joins. @param {Family} family */
export const nameOf = (family) => JSON.stringify(keysOf(family));

/** Returns the families of these keys. together: keys that differ only in the part of the data share one.
 * @param {{families: Family[], found: string[]}} axes @param {string[]} keys @param {boolean} together @returns {Family[]} */
export function familiesOf(axes, keys, together) {
  const wanted = new Set(keys);
  const found = new Set(axes.found);
  const some = axes.families.flatMap((family) => {
    const members = family.members.filter(({ key }) => wanted.has(key));
    const section = found.has(members[0]?.key) ? FOUND : family.section;
    const parts = together ? [members] : members.map((member) => [member]);
    return parts.filter((one) => one.length)
      .map((one) => ({ ...family, section, members: one, title: one.length > 1 ? family.title : one[0].key }));
  });
  const sections = [...new Set(["", ...some.map(({ section }) => section)])].filter((section) => section !== FOUND);
  return [...sections, FOUND].flatMap((section) => some.filter((family) => family.section === section));
}

/** Joins the drawings of a family's members. @param {Family} family
 * @param {import("./graph_panel.js").Drawing[]} drawings of its members, in their order
 * @returns {import("./graph_panel.js").Drawing} */
export function familyDrawing({ title, goal, members }, drawings) {
  if (members.length === 1) return { ...drawings[0], goal };
  const labels = [...new Set(drawings.flatMap((one) => one.series.map(({ label }) => label)))];
  const seen = {}; // members so far, by part
  const series = drawings.flatMap((drawing, at) => {
    const { key, part } = members[at];
    const isTested = TESTED.includes(part);
    const side = isTested ? part : "train";
    const shift = (seen[side] = (seen[side] ?? -1) + 1) * labels.length;
    return drawing.series.map((one) => ({ ...one, isTested, weight: isTested ? "thick" : "thin",
      label: one.label ? `${key}, ${one.label}` : key, colour: shift + labels.indexOf(one.label) }));
  });
  const notes = drawings.flatMap((one, at) => one.notes.map((note) => `${visible(members[at].key)}: ${note}`));
  return { ...drawings[0], title, goal, series, notes };
}

/** Returns the best point of a drawing, of the tested parts if there are any; null if nobody knows which is best.
 * @param {import("./graph_panel.js").Drawing} drawing @returns {{x: number, y: number, number: number} | null} */
export function bestOf({ goal, series }) {
  if (!goal) return null;
  const hasTested = series.some((one) => one.isTested);
  let best = null;
  series.forEach(({ xs, ys, isTested }, number) => {
    if (hasTested && !isTested) return;
    for (let at = 0; at < ys.length; at += 1) {
      const isBetter = goal === "least" ? ys[at] < (best?.y ?? Infinity) : ys[at] > (best?.y ?? -Infinity);
      if (Number.isFinite(ys[at]) && isBetter) best = { x: xs[at], y: ys[at], number };
    }
  });
  return best;
}
