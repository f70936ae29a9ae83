// Questions to the server that newer ones replace: what is given up for one is no fault. How often there are more of
// them depends on how long the answers take.

const LEAST_SECS = 2; // between two looks at what runs
const COST = 15; // times as long as the server took, at least

export class Asking {
  /** @param {(error: Error) => void} failed is told of all other faults */
  constructor(failed) {
    this.failed = failed;
    this.secs = LEAST_SECS; // until the next look
    this.controller = new AbortController();
  }

  /** Of what is asked from now on. */
  get signal() {
    return this.controller.signal;
  }

  /** Gives up what is under way. */
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

  /** @param {number} secs that the server took */
  took(secs) {
    this.secs = Math.max(LEAST_SECS, COST * secs);
  }
}
