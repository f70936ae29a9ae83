// Requests to the server. Paths are relative, because the page lies below a secret path.

export class Failure extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

const known = new Map(); // by path: ETag and document
const MAX_KNOWN = 32;

/** Makes the path of an API call. words: parameters of the query; skips null and "". */
export function path(pieces, words = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(words)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `api/${pieces.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Requests JSON. Exact numbers beyond doubles arrive as texts. Throws Failure. */
export async function get(pieces, words = {}, signal = undefined) {
  return (await look(pieces, words, signal)).document;
}

/** As `get`, and whether the document has changed since the last request of this path. */
export async function look(pieces, words = {}, signal = undefined) {
  const url = path(pieces, words);
  const had = known.get(url);
  let response;
  try {
    response = await fetch(url, { signal, cache: "no-store", headers: had ? { "If-None-Match": had.etag } : {} });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "logshipper doesn't answer: has the command that serves this page ended?");
  }
  if (response.status === 304 && had) return { document: had.document, changed: false };
  let document;
  try {
    document = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(response.status, "the server's answer is incomplete: reload the page");
  }
  if (!response.ok) throw new Failure(response.status, document.error);
  const etag = response.headers.get("ETag");
  if (etag) {
    known.delete(url);
    known.set(url, { etag, document });
    if (known.size > MAX_KNOWN) known.delete(known.keys().next().value);
  }
  return { document, changed: true };
}

/** Calls `turn` every `secs()` seconds, less often while the page is hidden, until `stop`. */
export function repeat(turn, secs) {
  const stopping = new AbortController();
  let timer = null;
  let running = false;
  async function run() {
    timer = null;
    if (running) return;
    running = true;
    try {
      await turn(stopping.signal);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      running = false;
      if (!stopping.signal.aborted) timer = setTimeout(run, 1000 * secs() * (document.hidden ? 5 : 1));
    }
  }
  function shown() {
    if (!document.hidden && timer !== null) {
      clearTimeout(timer);
      run();
    }
  }
  document.addEventListener("visibilitychange", shown);
  const done = run();
  return {
    first: done,
    stop() {
      stopping.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    },
  };
}
