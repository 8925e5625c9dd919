// Numbers and times for people. Numbers of 64 bits come as text and are never turned into rounded numbers for display.

/** Group the digits of an integer: a number, or decimal text of any size. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${String(value) === "1" ? one : many}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A size for a glance; exact ones belong into a title. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export function perSecond(value, unit = "") {
  if (value === null || value === undefined) return "–";
  const digits = value >= 100 || value === 0 ? 0 : value >= 1 ? 1 : 2;
  return `${count(value.toFixed(digits))}${unit ? ` ${unit}` : ""}/s`;
}

export function bytesPerSecond(value) {
  return value === null || value === undefined ? "–" : `${bytes(value)}/s`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1000 ? duration(value) : `${value >= 100 ? value.toFixed(0) : value.toFixed(value >= 1 ? 1 : 2)} ms`;
}

/** How long something takes or took: 3 s, 5 min, 2 h 10 min, 4 d. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const size = Math.abs(Number(ms));
  if (size < 1000) return `${Math.round(size)} ms`;
  const seconds = size / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

export function relative(ms, nowMs) {
  const difference = nowMs - ms;
  if (Math.abs(difference) < 2000) return "just now";
  const text = Math.abs(difference) < 60_000 ? `${Math.floor(Math.abs(difference) / 1000)} s` : duration(difference);
  return difference > 0 ? `${text} ago` : `in ${text}`;
}

const LAST_DATE = 8.64e15;

/** Return a time as a number that Date knows, or null: -1 means that there is none, and clients send any number. */
export function asDate(value) {
  if (value === null || value === undefined) return null;
  const ms = Number(value);
  return ms >= 0 && ms <= LAST_DATE ? ms : null;
}

function two(number) {
  return String(number).padStart(2, "0");
}

/** 2026-11-17 12:58:03.120, in the zone of the user or in UTC. */
export function absolute(ms, zone, { hasMs = false } = {}) {
  const date = new Date(ms);
  const [year, month, day, hour, minute, second, milli] =
    zone === "UTC"
      ? [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds(), date.getUTCMilliseconds()]
      : [date.getFullYear(), date.getMonth(), date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds(), date.getMilliseconds()];
  const text = `${year}-${two(month + 1)}-${two(day)} ${two(hour)}:${two(minute)}:${two(second)}`;
  return hasMs ? `${text}.${String(milli).padStart(3, "0")}` : text;
}

export function zoneName(zone) {
  if (zone === "UTC") return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  const sign = minutes < 0 ? "-" : "+";
  return `UTC${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

/** Add decimal texts of any size; null if one of them is not known. */
export function sum(values) {
  let total = 0n;
  for (const value of values) {
    if (value === null || value === undefined) return null;
    total += BigInt(value);
  }
  return total.toString();
}

/** The share of a part in a whole, both decimal text, as a number from 0 to 1. */
export function share(part, whole) {
  if (part === null || whole === null || part === undefined || whole === undefined || BigInt(whole) <= 0n) return null;
  return Number((BigInt(part) * 10_000n) / BigInt(whole)) / 10_000;
}
