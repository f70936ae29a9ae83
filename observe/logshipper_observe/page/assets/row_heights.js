// Measured heights of wrapping rows, in pixels. Keeps a limited number.

const MAX_ROWS = 20_000;

export class RowHeights {
  /** @param {number} least the height of unmeasured rows */
  constructor(least) {
    this.least = least;
    this.clear();
  }

  clear() {
    this.heights = new Map(); // by row, in order of measurement
    this.sum = 0;
  }

  of(row) {
    return this.heights.get(row) ?? this.least;
  }

  /** The mean of measured rows. */
  get mean() {
    return this.heights.size ? this.sum / this.heights.size : this.least;
  }

  /** Notes a measurement. Returns whether the height differs from the previous one. */
  note(row, height) {
    const isOther = this.of(row) !== height;
    this.#drop(row);
    if (this.heights.size === MAX_ROWS) this.#drop(this.heights.keys().next().value);
    this.heights.set(row, height);
    this.sum += height;
    return isOther;
  }

  #drop(row) {
    this.sum -= this.heights.get(row) ?? 0;
    this.heights.delete(row);
  }
}
