// The server's answers. Paths are relative: the page lies below a path that only this browser knows.

export class Failure extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

const known = new Map(); // by path: the ETag and the document that it stands for
const MAX_KNOWN = 32;

/** The path of an API call. pieces: of the path; words: of the query, without those that are null or "". */
export function path(pieces, words = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(words)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `api/${pieces.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Asks for JSON. Numbers beyond a double's are given by the server as texts where they matter. Throws Failure. */
export async function get(pieces, words = {}, signal = undefined) {
  return (await look(pieces, words, signal)).document;
}

/** As `get`, with whether it has changed since this path was asked last. */
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
    throw new Failure(response.status, "the answer was cut off");
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

/** Calls `turn` again and again, `secs()` apart, less often while the page isn't seen, until `stop` is called. */
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
