// Series of points: smoothing, extents, the point that is nearest, gaps where there is no number. Pure.

/** @typedef {{label: string, xs: ArrayLike<number>, ys: ArrayLike<number>, seen?: number,
 *   smooth?: {xs: ArrayLike<number>, ys: ArrayLike<number>} | null, isTreated?: boolean, spread?: Spread, dots?: boolean, weight?: "thin" | "thick", isTested?: boolean, colour?: number, isPart?: boolean, gaps?: Gap[],
 *   source?: import("./graph_data.js").Source | null}} Series
 * isTreated: smoothed already; spread: of means; seen: the points there were before thinning; smooth: what the server smoothed; dots: points without a line; weight: of the line; isTested: of validation or test data;
 * colour: its number, where it isn't the series' own; isPart: whether there are more points than these; gaps: where the
 * value is no number; source: where its points' lines are, null of what isn't printed, such as means */
/** @typedef {{deviations: ArrayLike<number>, counts: ArrayLike<number>}} Spread at each point: the deviation of what it is
 * the mean of, NaN of one value; and of how many values */
/** @typedef {{value: string, from: number, to: number, count: number, is_last: boolean}} Gap neighbouring records whose value
 * is NaN, say; is_last: no number came after them */

/** s = w*prev + (1-w)*v, seeded with the first number; debiased: the sum of w^k*v over that of w^k, k numbers ago.
 * Gaps stay gaps. @param {ArrayLike<number>} ys @param {number} w 0 (none) to below 1 @returns {Float64Array} */
export function smoothed(ys, w, debias = false) {
  const out = new Float64Array(ys.length);
  let last = NaN;
  let sum = 0; // of the weights
  for (let at = 0; at < ys.length; at += 1) {
    const value = ys[at];
    if (!Number.isFinite(value)) {
      out[at] = NaN;
      continue;
    }
    sum = w * sum + 1;
    if (Number.isNaN(last)) last = value;
    else last = debias ? last + (value - last) / sum : w * last + (1 - w) * value;
    out[at] = last;
  }
  return out;
}

/** Whether values never fall. @param {ArrayLike<number>} xs */
export function isSorted(xs) {
  for (let at = 1; at < xs.length; at += 1) if (xs[at] < xs[at - 1]) return false;
  return true;
}

/** Lowest and highest finite value; above: only those greater than it. [Infinity, -Infinity] where there is none.
 * @param {ArrayLike<number>} values @param {number} above @returns {[number, number]} */
export function extent(values, above = -Infinity) {
  let low = Infinity;
  let high = -Infinity;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at];
    if (!Number.isFinite(value) || value <= above) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** The band that deviations make around means: its lower and its upper edge. @param {Series} series
 * @returns {{low: Float64Array, high: Float64Array}} */
export function bandOf({ ys, spread }) {
  const width = (at) => (Number.isFinite(spread.deviations[at]) ? spread.deviations[at] : 0);
  return { low: Float64Array.from(ys, (y, at) => y - width(at)), high: Float64Array.from(ys, (y, at) => y + width(at)) };
}

/** The first place in a sorted list whose value is at least this. @param {ArrayLike<number>} xs @param {number} x */
export function firstFrom(xs, x) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The point with a number whose X is nearest; -1 where there is none. distance: of a point's X from where one looks.
 * @param {ArrayLike<number>} xs @param {ArrayLike<number>} ys @param {number} x
 * @param {(at: number) => number} distance @param {boolean} sorted */
export function nearest(xs, ys, x, distance, sorted) {
  let begin = 0;
  let end = xs.length;
  if (sorted) {
    const at = firstFrom(xs, x);
    begin = at;
    while (begin > 0 && !(begin < at && Number.isFinite(ys[begin]))) begin -= 1;
    end = at;
    while (end < xs.length && !Number.isFinite(ys[end])) end += 1;
    end = Math.min(end + 1, xs.length);
  }
  let best = -1;
  let least = Infinity;
  for (let at = begin; at < end; at += 1) {
    if (!Number.isFinite(ys[at])) continue;
    const far = distance(at);
    if (far < least) {
      best = at;
      least = far;
    }
  }
  return best;
}

/** Count, lowest, highest and last number of a series; last: a text where that is none. @param {Series} series */
export function summaryOf(series) {
  const [low, high] = extent(series.ys);
  let last = NaN;
  for (let at = series.ys.length - 1; at >= 0 && Number.isNaN(last); at -= 1) {
    if (Number.isFinite(series.ys[at])) last = series.ys[at];
  }
  const gap = series.gaps?.at(-1);
  return { seen: series.seen ?? series.ys.length, low, high, last: gap?.is_last ? gap.value : last };
}
