// Reading the values of protobuf JSON: enum names, durations, timestamps.

/** `bare("TOOL_STATUS_COMPLETED", "TOOL_STATUS_")` is `"completed"`; anything else is lower-cased as it stands. */
export function bare(name, prefix) {
  const text = typeof name === "string" ? name : "";
  return (text.startsWith(prefix) ? text.slice(prefix.length) : text).toLowerCase();
}

/** Seconds of a duration (`"1.5s"`), or null when there is none. */
export function seconds(duration) {
  if (typeof duration === "number") return Number.isFinite(duration) ? duration : null;
  if (typeof duration !== "string" || duration === "") return null;
  const value = Number.parseFloat(duration);
  return Number.isFinite(value) ? value : null;
}

/** Milliseconds since 1970 of an RFC 3339 timestamp, or null. */
export function millis(timestamp) {
  const value = typeof timestamp === "string" ? Date.parse(timestamp) : Number.NaN;
  return Number.isNaN(value) ? null : value;
}

/** An integer that may have been sent as a string, as protobuf JSON does for 64 bits. */
export function integer(value) {
  const number = Number(value ?? 0);
  return Number.isFinite(number) ? number : 0;
}

/** Embedded JSON, or a string that holds it; undefined when it is absent or broken. */
export function embedded(value) {
  if (typeof value !== "string") return value ?? undefined;
  if (value === "") return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
