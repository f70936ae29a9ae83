// Makes all elements: inserts text as text, never as HTML.

/**
 * Makes an element. attributes: `class`, `on` (listeners by event), `data` (dataset), booleans. children: elements, texts,
 * numbers, lists of these. Both skip null and false.
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Replaces a node's content. */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
}

/** Makes an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else node.setAttribute(name, String(value));
  }
  append(node, children);
  return node;
}

// control characters, and characters that reverse or hide text (Unicode: bidirectional controls, zero width, line separators, tags)
const HIDDEN = /[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
const SOME_HIDDEN = new RegExp(HIDDEN.source, "u");

/** Makes an invisible character visible: as a control picture, or by its number. */
function shownAs(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/** Makes all invisible characters of a text visible. */
export function visible(text) {
  return SOME_HIDDEN.test(text) ? text.replace(HIDDEN, shownAs) : text;
}

/** Whether a key event belongs to a field for typing. */
export function isTyping(event) {
  const target = event.target;
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
