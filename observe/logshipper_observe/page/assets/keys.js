// Keys of the present page: one table defines their actions and the help of `?`.

import { el, isTyping } from "./dom.js";

/** @typedef {{keys: string[], words: string, call?: (event: KeyboardEvent) => boolean | void}} Key
 * keys: names of events; call: returns false to ignore the key; without call, a field or graph handles it */

/** @type {Set<{title: string, rows: Key[]}>} */
const tables = new Set();
const NAMES = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→" };

/** Listens to keys until `close`. @param {string} title @param {Key[]} rows */
export function listen(title, rows) {
  const table = { title, rows };
  const calls = new Map(rows.flatMap(({ keys, call }) => (call ? keys.map((key) => [key, call]) : [])));
  const press = (event) => {
    const isTyped = isTyping(event) && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey || isTyped || document.querySelector("dialog[open]")) return;
    const call = calls.get(event.key);
    if (call && call(event) !== false) event.preventDefault();
  };
  tables.add(table);
  document.addEventListener("keydown", press);
  return {
    close() {
      tables.delete(table);
      document.removeEventListener("keydown", press);
    },
  };
}

/** Shows the present keys. */
export function showKeys() {
  const shown = [...tables].reverse().map(({ title, rows }) => el("section", {}, el("h3", {}, title),
    el("dl", {}, rows.map(({ keys, words }) => el("div", {},
      el("dt", {}, keys.map((key) => el("kbd", {}, NAMES[key] ?? key))), el("dd", {}, words))))));
  const dialog = el("dialog", { class: "keys", "aria-label": "Keys of this page", on: { close: () => dialog.remove() } },
    el("header", {}, el("h2", {}, "Keys of this page"), el("button", { type: "button", on: { click: () => dialog.close() } }, "Close")),
    shown);
  document.body.append(dialog);
  dialog.showModal(); // Escape closes it and restores the focus
}
