// Requests to the server that newer ones replace; aborted requests are no errors. The polling interval grows with the
// duration of answers.

const LEAST_SECS = 1; // the shortest interval
const COST = 15; // the interval is at least this multiple of the answer time

export class Asking {
  /** @param {(error: Error) => void} failed handles errors */
  constructor(failed) {
    this.failed = failed;
    this.secs = LEAST_SECS; // the interval
    this.controller = new AbortController();
  }

  /** The signal of new requests. */
  get signal() {
    return this.controller.signal;
  }

  /** Aborts running requests. */
  anew() {
    this.controller.abort();
    this.controller = new AbortController();
  }

  close() {
    this.controller.abort();
  }

  /** @param {Promise<void>} turn */
  async quietly(turn) {
    try {
      await turn;
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
  }

  /** @param {number} secs the answer time */
  took(secs) {
    this.secs = Math.max(LEAST_SECS, COST * secs);
  }
}
