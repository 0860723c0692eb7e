// What the daemon is asked, and how numbers are said. Nothing here knows the page.

/** The token that the operator gave, for this tab only. */
const TOKEN = "headgate-token";

/** Keeps a token. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Whether a token is to be asked for. Over TLS the browser may have a certificate to show. */
export function needsToken() {
  return location.protocol === "http:" && sessionStorage.getItem(TOKEN) === null;
}

/** Why there is no answer: `status` is 0 where nobody answered. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Reads a path of the API. Throws `Refused`. */
export const read = (path) => request(path, {}, 10_000);

/** Asks what takes a body, and changes nothing. Throws `Refused`. */
export const ask = (path, body) => request(path, {
  method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
}, 40_000);

async function request(path, { headers, ...rest }, patience) {
  const token = sessionStorage.getItem(TOKEN);
  const all = { ...headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...rest, headers: all, cache: "no-store", signal: AbortSignal.timeout(patience) });
  } catch {
    throw new Refused(0, "The daemon does not answer.");
  }
  let body;
  try {
    body = await answer.json();
  } catch {
    // It began in time and did not end in time, or the daemon went away: nobody knows what it is.
    if (answer.ok) throw new Refused(0, "The daemon's answer broke off.");
    body = {};
  }
  // Health that is bad is an answer.
  if (!answer.ok && path !== "/healthz") {
    const text = [body.error, body.expected && `Expected: ${body.expected}`, body.hint];
    throw new Refused(answer.status, text.filter(Boolean).join("\n") || `${answer.status}`);
  }
  if (answer.status === 401 || answer.status === 403) {
    throw new Refused(answer.status, body.error || `${answer.status}`);
  }
  return body;
}

/** A number with three digits at least, such as `1,234` or `0.25`. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const digits = value >= 100 || value === 0 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/** A size in bytes. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${number(value)} ${units[at]}`;
}

/** A time in microseconds. */
export function micros(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${number(value / 1e6)} s`;
  return value >= 1e3 ? `${number(value / 1e3)} ms` : `${number(value)} µs`;
}

/** A time in seconds, roughly. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [each, unit] = units.find(([each]) => value >= 2 * each) ?? [1, "s"];
  return `${Math.round(value / each)} ${unit}`;
}
