// Panels of graphs, of which only those in view are asked for and drawn: there may be hundreds.

/** @typedef {import("./graph_panel.js").GraphPanel} GraphPanel */

const SCROLL_MS = 60; // many come into view while one scrolls

export class PanelGrid {
  /** @param {HTMLElement} host @param {(name: string | symbol) => GraphPanel} make
   * @param {() => void} came called when panels have come into view */
  constructor(host, make, came) {
    this.host = host;
    this.make = make;
    this.came = came;
    /** @type {Map<string | symbol, GraphPanel>} */
    this.panels = new Map();
    this.names = new WeakMap(); // of the panels' elements
    this.inView = new Set();
    this.stale = new Set(); // those whose numbers were asked for in another way
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

  /** All panels need other numbers than they show. */
  outdate() {
    this.stale = new Set(this.panels.keys());
  }

  /** The panels that are there, in this order; those that are there already stay as they are.
   * @param {(string | symbol)[]} names */
  layOut(names) {
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
    names.forEach((name, at) => {
      if (!this.panels.has(name)) this.#add(name);
      const { root } = this.panels.get(name);
      if (this.host.children[at] !== root) this.host.insertBefore(root, this.host.children[at] || null);
    });
  }

  /** Those in view; newOnly: of them those whose numbers aren't there yet. @returns {(string | symbol)[]} */
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
