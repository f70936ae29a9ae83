// The heights of rows that wrap, in pixels: of those that were measured, a limited number.

const MAX_ROWS = 20_000;

export class RowHeights {
  /** @param {number} least of any row; one that isn't measured yet counts as such */
  constructor(least) {
    this.least = least;
    this.clear();
  }

  clear() {
    this.heights = new Map(); // by row; the one that was measured last stands last
    this.sum = 0;
  }

  of(row) {
    return this.heights.get(row) ?? this.least;
  }

  /** Of the rows that were measured. */
  get mean() {
    return this.heights.size ? this.sum / this.heights.size : this.least;
  }

  /** Notes what was measured; whether the row is of another height than it counted as. */
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
