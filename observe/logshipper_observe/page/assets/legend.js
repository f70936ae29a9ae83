// A graph's legend: a click shows one series only (again: all), with Ctrl or Cmd it toggles the series.

import { colourOf, dashesOf, themeOf } from "./paint.js";

/** Returns the shown series after a click on an entry. @param {boolean[]} shown @param {number} at @param {boolean} toggles */
export function afterClick(shown, at, toggles) {
  if (toggles) {
    const next = shown.map((one, number) => (number === at ? !one : one));
    return next.includes(true) ? next : shown.map(() => true);
  }
  const alone = shown.every((one, number) => one === (number === at));
  return shown.map((_, number) => alone || number === at);
}

export class Legend {
  /** @param {HTMLElement} host @param {import("./chart.js").Chart} chart */
  constructor(host, chart) {
    this.host = host;
    this.chart = chart;
    host.classList.add("legend");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Series: a press shows only one, with Control it switches one on or off");
    /** @type {HTMLButtonElement[]} */
    this.entries = [];
    host.addEventListener("click", (event) => this.#press(event, event.ctrlKey || event.metaKey));
    host.addEventListener("keydown", (event) => {
      if ((event.key === "Enter" || event.key === " ") && (event.ctrlKey || event.metaKey)) {
        event.preventDefault(); // browsers create no click event
        this.#press(event, true);
      }
    });
  }

  #press(event, toggles) {
    const entry = event.target.closest("button");
    const at = this.entries.indexOf(entry);
    if (at < 0) return;
    this.chart.setShown(afterClick(this.chart.shown, at, toggles));
    this.show();
  }

  /** Shows the chart's present series, unless it has only one. */
  show() {
    const { series, shown } = this.chart;
    this.host.hidden = series.length < 2;
    if (this.entries.length !== series.length) {
      this.entries = series.map((one, number) => entry(this.chart.colourNumber(number), one.weight));
      this.host.replaceChildren(...this.entries);
    }
    const theme = themeOf(this.host);
    series.forEach((one, at) => {
      const button = this.entries[at];
      const name = button.lastElementChild;
      if (name.textContent !== one.label) name.textContent = one.label;
      button.title = `${one.label}\nClick: only this one. Ctrl+click: on or off`;
      button.setAttribute("aria-pressed", String(shown[at]));
      button.firstElementChild.style.setProperty("--swatch", colourOf(theme, this.chart.colourNumber(at)));
    });
  }
}

function entry(number, weight = "") {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "legend-entry";
  const swatch = document.createElement("span");
  swatch.className = dashesOf(number).length ? "swatch dashed" : `swatch ${weight}`;
  const name = document.createElement("bdi");
  button.append(swatch, name);
  return button;
}
