// Axes: which ticks, where, and how numbers on them are written. Pure.

/** @typedef {{low: number, high: number, log: boolean}} Scale a range of values; log: both ends above 0 */
/** @typedef {{at: number, label: string}} Tick */

const STEPS = [1, 2, 2.5, 5, 10];
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;
const SECOND_STEPS = [
  1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR,
  3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
];

/** A range that can be drawn: a single value gets room on both sides.
 * @param {number} low @param {number} high @param {boolean} log @returns {Scale} */
export function scaleOf(low, high, log) {
  if (!(low <= high)) return { low: log ? 0.1 : 0, high: 1, log };
  if (high - low > 1e-12 * Math.max(Math.abs(low), Math.abs(high))) return { low, high, log };
  if (log) return { low: low / 2, high: high * 2, log };
  const room = Math.abs(low) * 0.1 || 1;
  return { low: low - room, high: high + room, log };
}

/** The scale with a little room at both ends, so that no line touches the frame. @param {Scale} scale */
export function padded(scale, share) {
  if (scale.log) {
    const factor = (scale.high / scale.low) ** share;
    return { low: scale.low / factor, high: scale.high * factor, log: true };
  }
  const room = (scale.high - scale.low) * share;
  return { low: scale.low - room, high: scale.high + room, log: false };
}

/** Where a value lies: 0 at the low end, 1 at the high one. @param {Scale} scale @param {number} value */
export function place(scale, value) {
  if (!scale.log) return (value - scale.low) / (scale.high - scale.low);
  return Math.log(value / scale.low) / Math.log(scale.high / scale.low);
}

/** The value at a place, as `place` counts. @param {Scale} scale @param {number} share */
export function valueAt(scale, share) {
  if (!scale.log) return scale.low + share * (scale.high - scale.low);
  return scale.low * (scale.high / scale.low) ** share;
}

/** Ticks of an axis. kind: "number", "integer" (no ticks between) or "elapsed" (seconds).
 * @param {Scale} scale @param {number} most @param {string} kind @returns {Tick[]} */
export function ticksOf(scale, most, kind) {
  if (scale.log) return logTicks(scale, most);
  if (kind === "elapsed") return elapsedTicks(scale, most);
  const step = numberStep(scale.high - scale.low, most, kind === "integer");
  return distinct(multiples(scale, step).map((at) => ({ at, label: numberLabel(at, step) })));
}

function numberStep(span, most, integer) {
  const power = 10 ** Math.floor(Math.log10(span / Math.max(most, 2)));
  let step = power;
  for (const factor of STEPS) {
    step = factor * power;
    if (span / step <= most && !(integer && step % 1)) return step;
  }
  return integer ? Math.max(1, Math.ceil(step)) : step;
}

function multiples(scale, step) {
  const first = Math.ceil(scale.low / step - 1e-9);
  const last = Math.floor(scale.high / step + 1e-9);
  const found = [];
  for (let number = first; number <= last && found.length < 100; number += 1) found.push(number * step);
  return found;
}

function elapsedTicks(scale, most) {
  const span = scale.high - scale.low;
  const step = span < 2 * most && span / most < 1
    ? numberStep(span, most, false)
    : SECOND_STEPS.find((secs) => span / secs <= most) || numberStep(span / DAY, most, true) * DAY;
  return distinct(multiples(scale, step).map((at) => ({ at, label: elapsedLabel(at, step) })));
}

/** Ticks without those that read as the one before: their numbers are closer than a double's digits. */
function distinct(ticks) {
  return ticks.filter((tick, number) => tick.label !== ticks[number - 1]?.label);
}

function logTicks(scale, most) {
  const first = Math.floor(Math.log10(scale.low));
  const last = Math.ceil(Math.log10(scale.high));
  const every = Math.max(1, Math.ceil((last - first) / most));
  const factors = last - first <= 1 ? [1, 2, 3, 5, 7] : last - first <= most / 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every) {
    for (const factor of every > 1 ? [1] : factors) {
      const at = Number(`${factor}e${power}`);
      if (at >= scale.low * 0.999999 && at <= scale.high * 1.000001) found.push({ at, label: shortNumber(at) });
    }
  }
  if (found.length >= 2) return found;
  return ticksOf({ ...scale, log: false }, most, "number").filter((tick) => tick.at > 0);
}

/** @param {number} value @param {number} step the distance between ticks */
function numberLabel(value, step) {
  if (Math.abs(value) < step * 1e-9) return "0";
  if (Math.abs(value) >= 1e6 || step < 1e-5) {
    const digits = Math.max(0, Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(step) + 1e-9));
    return value.toExponential(Math.min(digits + (isRound(step) ? 0 : 1), 15)).replace("e+", "e");
  }
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return value.toFixed(Math.min(decimals + (isRound(step) || step >= 10 ? 0 : 1), 20));
}

function isRound(step) {
  const first = step / 10 ** Math.floor(Math.log10(step) + 1e-9);
  return Math.abs(first - Math.round(first)) < 1e-6;
}

function shortNumber(value) {
  return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential().replace("e+", "e") : String(value);
}

/** Seconds as `12s`, `4m05s`, `2h03m`, `3d04h`; where ticks are closer, `2h03m10s`.
 * @param {number} secs @param {number} step the distance between ticks */
export function elapsedLabel(secs, step) {
  if (secs < 0) return `-${elapsedLabel(-secs, step)}`;
  if (step < 1) return `${numberLabel(secs, step)}s`;
  const whole = Math.round(secs);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < MINUTE) return `${whole}s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)}m${whole % MINUTE ? `${two(whole % MINUTE)}s` : ""}`;
  if (whole < DAY) {
    return `${Math.floor(whole / HOUR)}h${withinHour(whole, step)}`;
  }
  const hours = Math.floor((whole % DAY) / HOUR);
  const rest = step < HOUR ? withinHour(whole, step) : "";
  return `${Math.floor(whole / DAY)}d${hours || rest ? `${two(hours)}h` : ""}${rest}`;
}

/** Minutes, and seconds where the step is less than a minute; nothing on the hour. */
function withinHour(whole, step) {
  const two = (number) => String(number).padStart(2, "0");
  const seconds = step < MINUTE && whole % MINUTE ? `${two(whole % MINUTE)}s` : "";
  const minutes = Math.floor((whole % HOUR) / MINUTE);
  return minutes || seconds ? `${two(minutes)}m${seconds}` : "";
}
