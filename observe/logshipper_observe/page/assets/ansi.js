// Colours that were kept in a line (SGR sequences, docs/rendering.md) as pieces of text with a style.

import { el, visible } from "./dom.js";

const SEQUENCE = /\x1b\[([0-9;]{0,64})m/g;
const FLAGS = { 1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "reverse", 9: "struck", 53: "overline" };
const ENDS = { 22: ["bold", "faint"], 23: ["italic"], 24: ["underline"], 27: ["reverse"], 29: ["struck"], 55: ["overline"] };

/** Pieces [text, style] of a line; style is null, or has `flags` (a Set), `fore` and `back`: numbers below 16 are the
 * page's own colours, texts are CSS colours. */
export function pieces(line) {
  if (!line.includes("\x1b")) return [[line, null]];
  const found = [];
  let style = null;
  let at = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    if (match.index > at) found.push([line.slice(at, match.index), style]);
    at = match.index + match[0].length;
    style = after(style, match[1]);
  }
  if (at < line.length) found.push([line.slice(at), style]);
  return found;
}

/** A line without its colours. */
export const plain = (line) => (line.includes("\x1b") ? line.replace(SEQUENCE, "") : line);

function after(style, parameters) {
  const codes = parameters.split(";").map((word) => Number(word || 0));
  let { flags, fore, back } = style ?? { flags: new Set(), fore: null, back: null };
  flags = new Set(flags);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) {
      flags.clear();
      fore = back = null;
    } else if (FLAGS[code]) flags.add(FLAGS[code]);
    else if (ENDS[code]) ENDS[code].forEach((flag) => flags.delete(flag));
    else if (code >= 30 && code <= 37) fore = code - 30;
    else if (code >= 90 && code <= 97) fore = code - 82;
    else if (code === 39) fore = null;
    else if (code >= 40 && code <= 47) back = code - 40;
    else if (code >= 100 && code <= 107) back = code - 92;
    else if (code === 49) back = null;
    else if (code === 38 || code === 48) {
      const colour = codes[at + 1] === 5 ? indexed(codes[at + 2]) : codes[at + 1] === 2 ? rgb(codes.slice(at + 2, at + 5)) : null;
      at += codes[at + 1] === 5 ? 2 : codes[at + 1] === 2 ? 4 : 0;
      if (code === 38) fore = colour;
      else back = colour;
    }
  }
  return flags.size || fore !== null || back !== null ? { flags, fore, back } : null;
}

const byte = (value) => Math.min(Math.max(Math.trunc(value) || 0, 0), 255);

const rgb = (parts) => `rgb(${[0, 1, 2].map((at) => byte(parts[at])).join(" ")})`;

/** A colour of xterm's 256. */
function indexed(number) {
  number = byte(number);
  if (number < 16) return number;
  if (number >= 232) return rgb(Array(3).fill(8 + 10 * (number - 232)));
  const level = (step) => (step ? 55 + 40 * step : 0);
  const at = number - 16;
  return rgb([level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6)]);
}

/** Gives an element the style's classes and colours. */
export function dress(node, style) {
  for (const flag of style.flags) node.classList.add(flag);
  if (typeof style.fore === "number") node.classList.add(`fore${style.fore}`);
  else if (style.fore) node.style.color = style.fore;
  if (typeof style.back === "number") node.classList.add(`back${style.back}`);
  else if (style.back) node.style.backgroundColor = style.back;
}

/** Elements for pieces of text with styles, and marks where the hits are. */
export function marked(styled, hits) {
  const nodes = [];
  let at = 0;
  let hit = 0;
  for (const [text, style] of styled) {
    let begin = 0;
    while (begin < text.length) {
      while (hit < hits.length && hits[hit][1] <= at + begin) hit += 1;
      const next = hits[hit] ?? [Infinity, Infinity];
      const inside = next[0] <= at + begin;
      const end = Math.min(text.length, (inside ? next[1] : next[0]) - at);
      const part = text.slice(begin, end);
      const node = inside ? el("mark", {}, part) : style ? el("span", {}, part) : visible(part);
      if (style) dress(node, style);
      nodes.push(node);
      begin = end;
    }
    at += text.length;
  }
  return nodes;
}
