// A part of the page that fills the window, in a dialog. Escape ends it.

import { el, isTyping } from "./dom.js";

export class FullScreen {
  /** @param {HTMLElement} root its place on the page @param {HTMLElement} content
   * @param {string} title */
  constructor(root, content, title) {
    this.root = root;
    this.content = content;
    this.button = el("button", { type: "button", "aria-pressed": "false", "aria-label": `Full screen of ${title}`,
      title: "Key f; Escape leaves it", on: { click: () => this.toggle() } }, "Full screen");
    // before the graph's keys, where Escape resets the zoom
    this.dialog = el("dialog", { class: "full-screen", "aria-label": title, on: { close: () => this.#left() } });
    this.dialog.addEventListener("keydown", (event) => this.#escape(event), { capture: true });
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  toggle() {
    if (this.dialog.open) this.dialog.close();
    else this.#enter();
  }

  #enter() {
    const focused = this.#focused();
    this.root.style.minHeight = `${this.root.offsetHeight}px`; // keeps the place of the content below
    this.dialog.append(this.content);
    this.root.append(this.dialog);
    this.dialog.showModal();
    this.button.setAttribute("aria-pressed", "true");
    focused.focus();
  }

  #left() {
    const focused = this.#focused();
    this.root.append(this.content);
    this.dialog.remove();
    this.root.style.minHeight = "";
    this.button.setAttribute("aria-pressed", "false");
    focused.focus();
  }

  /** The focused element, which gets the focus again after the move. */
  #focused() {
    const { activeElement } = document;
    return this.content.contains(activeElement) ? activeElement : this.button;
  }

  #escape(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    this.dialog.close();
  }

  #key(event) {
    if (event.key !== "f" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    event.preventDefault();
    event.stopPropagation();
    this.toggle();
  }
}
