// Numbers, times and sizes in words, as the command line writes them.

export const grouped = (number) => Number(number).toLocaleString("en-US");

export const plural = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;

/** `0.35s`, `12.3s`, `4m05s`, `2h03m`, `3d04h`. */
export function duration(secs) {
  secs = Math.max(secs, 0);
  if (secs < 59.95) return secs < 9.995 ? `${secs.toFixed(2)}s` : `${secs.toFixed(1)}s`;
  const whole = Math.round(secs);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two((whole % 3600) / 60)}m`;
  return `${Math.floor(whole / 86400)}d${two((whole % 86400) / 3600)}h`;
}

/** `812 B`, `45.2 kB`, `1.23 GB`. */
export function size(octets) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = octets;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${octets} B` : `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${units[unit]}`;
}

const DIGITS = 6;
const LONG_FRACTION = /^-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?$/;

/** A number to read: whole ones as they are, others with 6 significant digits at most. @param {number} value */
export const short = (value) => (Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : String(Number(value.toPrecision(DIGITS))));

/** A text to read: of a fraction 6 significant digits. @param {string} text */
export function shortText(text) {
  if (!/[.eE]/.test(text) || !LONG_FRACTION.test(text)) return text;
  const digits = text.split(/[eE]/)[0].replace(".", "").replace(/^[-0]+/, "");
  return digits.length > DIGITS ? short(Number(text)) : text;
}

const two = (value) => String(value).padStart(2, "0");

/** The browser's local time, sortable: `2026-05-01 09:30:00`. ms: since 1970. */
export function local(ms, millis = false) {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(ms, millis)}`;
}

export function clock(ms, millis = false) {
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return millis ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

/** How long ago where that is within a day, otherwise the local day and minute. */
export function when(ms, now) {
  const secs = (now - ms) / 1000;
  if (secs < 5) return "just now";
  if (secs < 60) return `${Math.floor(secs)} s ago`;
  if (secs < 3600) return `${Math.floor(secs / 60)} min ago`;
  if (secs < 86400) return `${Math.floor(secs / 3600)} h ago`;
  return secs < 300 * 86400 ? local(ms).slice(5, 16) : local(ms).slice(0, 10);
}

/** The done part of a bar, from 0 to 1: `45%`, or `16/938` rather than `epoch 3/4`; null without one. @param {string} text */
export function fractionOf(text) {
  const percent = text.match(/(\d{1,3}(?:\.\d+)?) ?%/);
  if (percent) return Math.min(Number(percent[1]) / 100, 1);
  const counts = [...text.matchAll(/(?<![\d./])(\d+) ?\/ ?(\d+)(?![\d./])/g)].map(([, done, total]) => [Number(done), Number(total)]);
  const [done, total] = counts.reduce((one, other) => (other[1] > one[1] ? other : one), [0, 0]);
  return total > 0 ? Math.min(done / total, 1) : null;
}

/** The running bars of a job, a text each. @param {{live_status: object}} job of `api/jobs/ID` */
export const barsOf = (job) => Object.values(job.live_status).flatMap(({ text }) => text.split("\n")).filter(Boolean);

const NOT_FAILED = new Set(["COMPLETED", "QUEUED", "RUNNING", "UNRESPONSIVE", "REQUEUED", "UNKNOWN"]);

export const isFailed = (state) => !NOT_FAILED.has(state);

export const isRunning = (state) => state === "RUNNING" || state === "UNRESPONSIVE";
