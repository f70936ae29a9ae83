// The page's frame: the view of an address, colours, and the state of the connection.
//
//   #/                      all jobs
//   #/job/ID[/TAB]          one job: console, graphs, metadata
//   #/compare/ID,ID         jobs side by side
//
// A view is a module with `show(root, context)`, which returns an object with `close()`. context: see `contextOf`.

import { el, fill } from "./dom.js";
import { listen, showKeys } from "./keys.js";
import * as job from "./job.js";
import * as jobs from "./jobs.js";
import { keep, kept } from "./storage.js";

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const connection = document.getElementById("connection");
let current = null;

/** Splits an address into its parts and its query. */
function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, words: new URLSearchParams(query) };
}

function viewOf(parts) {
  if (parts[0] === "job" && parts[1]) return job;
  if (parts[0] === "compare" && parts[1]) return import("./compare.js"); // loaded on demand
  return jobs;
}

/** Makes the context of a view. parts, words: path and query of the address; go: opens another address; crumbs: shows the
 * place; answered, failed: show the state of the connection. */
function contextOf({ parts, words }) {
  return {
    parts,
    words,
    go: (address) => { location.hash = address; },
    crumbs: (...names) => {
      fill(crumbs, names);
      const title = names.map((name) => (name instanceof Node ? name.textContent : name)).join("");
      document.title = title ? `${title} · logshipper` : "logshipper";
    },
    answered: () => fill(connection),
    failed: (error) => fill(connection, el("span", { class: "failure" }, error.message)),
  };
}

let routes = 0;

async function route() {
  const place = parse(location.hash);
  routes += 1;
  const number = routes;
  let view = viewOf(place.parts);
  if (view instanceof Promise) {
    try {
      view = await view;
    } catch (error) {
      contextOf(place).failed(error);
      return;
    }
    if (number !== routes) return; // the address has changed meanwhile
  }
  // a view may take another address without a restart
  if (current?.view === view && current.shown.move?.(contextOf(place))) return;
  current?.shown.close();
  main.replaceChildren();
  main.className = "";
  fill(connection);
  current = { view, shown: view.show(main, contextOf(place)) };
}

// ---- light or dark

const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[name];
  button.setAttribute("aria-label", `Colours: ${name}. Change`);
  document.dispatchEvent(new CustomEvent("theme"));
}

function savedTheme() {
  const name = kept("theme", "auto");
  return themes.includes(name) ? name : "auto";
}

button.addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
  keep("theme", next);
  setTheme(next);
});
setTheme(savedTheme());

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("keys").addEventListener("click", showKeys);
listen("Every page", [
  { keys: ["?"], words: "these keys", call: showKeys },
  { keys: ["Tab", "Shift+Tab"], words: "next and previous button, field or link" },
]);
window.addEventListener("hashchange", route);
route();
