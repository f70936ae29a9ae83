// Panels of graphs. Only those in view request data, since there may be hundreds.

import { el } from "./dom.js";

/** @typedef {import("./graph_panel.js").GraphPanel} GraphPanel */

const SCROLL_MS = 60; // scrolling shows many at once

export class PanelGrid {
  /** @param {HTMLElement} host @param {(name: string | symbol) => GraphPanel} make
   * @param {() => void} came called for new panels in view */
  constructor(host, make, came) {
    this.host = host;
    this.make = make;
    this.came = came;
    /** @type {Map<string, HTMLElement>} */
    this.headings = new Map(); // by text
    /** @type {Map<string | symbol, GraphPanel>} */
    this.panels = new Map();
    this.names = new WeakMap(); // by the panels' elements
    this.inView = new Set();
    this.stale = new Set(); // panels with outdated numbers
    this.watcher = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: "300px" });
  }

  close() {
    clearTimeout(this.scrolling);
    this.watcher.disconnect();
    for (const panel of this.panels.values()) panel.close();
  }

  /** @param {(panel: GraphPanel) => void} call */
  each(call) {
    for (const panel of this.panels.values()) call(panel);
  }

  /** Marks all panels as outdated. */
  outdate() {
    this.stale = new Set(this.panels.keys());
  }

  /** Shows these panels in this order; keeps existing ones.
   * @param {(string | symbol)[]} names @param {(name: string | symbol) => string} headingOf the heading of a panel's section,
   * "" without one; panels of a section follow each other */
  layOut(names, headingOf = () => "") {
    const wanted = new Set(names);
    for (const [name, panel] of this.panels) {
      if (wanted.has(name)) continue;
      this.watcher.unobserve(panel.root);
      panel.close();
      panel.root.remove();
      this.panels.delete(name);
      this.inView.delete(name);
      this.stale.delete(name);
    }
    for (const name of names) if (!this.panels.has(name)) this.#add(name);
    const roots = [];
    let section = "";
    for (const name of names) {
      const heading = headingOf(name);
      if (heading !== section && heading) roots.push(this.#heading(heading));
      section = heading;
      roots.push(this.panels.get(name).root);
    }
    for (const heading of this.headings.values()) if (!roots.includes(heading)) heading.remove();
    roots.forEach((root, at) => {
      if (this.host.children[at] !== root) this.host.insertBefore(root, this.host.children[at] || null);
    });
  }

  #heading(text) {
    if (!this.headings.has(text)) this.headings.set(text, el("h2", { class: "section" }, el("bdi", {}, text)));
    return this.headings.get(text);
  }

  /** Returns the panels in view; newOnly: only those without up-to-date numbers. @returns {(string | symbol)[]} */
  wanted(newOnly) {
    const lacks = (name) => !this.panels.get(name).chart || this.stale.has(name);
    return [...this.panels.keys()].filter((name) => this.inView.has(name) && (!newOnly || lacks(name)));
  }

  #add(name) {
    const panel = this.make(name);
    this.panels.set(name, panel);
    this.names.set(panel.root, name);
    this.watcher.observe(panel.root);
  }

  #seen(entries) {
    for (const entry of entries) {
      const name = this.names.get(entry.target);
      if (entry.isIntersecting) this.inView.add(name);
      else this.inView.delete(name);
    }
    if (!this.wanted(true).length) return;
    clearTimeout(this.scrolling);
    this.scrolling = setTimeout(this.came, SCROLL_MS);
  }
}
