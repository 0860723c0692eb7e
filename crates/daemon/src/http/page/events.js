// The latest events: who changed what, and what the daemon noticed.

import { at, make, Table } from "./dom.js";

function by(event) {
  const who = event.by;
  if (typeof who === "string") return who;
  if (who.name) return who.name;
  if (who.user !== undefined) return `uid ${who.user}`;
  return who.kind ?? who.address ?? "the daemon";
}

const time = (event) => new Date(event.at_ms).toISOString().replace("T", " ").slice(0, 19);

function result(event) {
  const isBad = event.result === "refused" || event.result === "failed";
  const cell = make("span", { class: isBad ? "bad" : "" }, event.result);
  cell.dataset.is = event.result;
  return cell;
}

const columns = [
  { title: "Time (UTC)", cell: time },
  { title: "What", cell: (event) => event.operation },
  { title: "Of", cell: (event) => (event.object ? `${event.object.kind} ${event.object.name}` : "–") },
  { title: "By", class: "wide", cell: by },
  { title: "Result", cell: result },
  { title: "Why", class: "text", cell: (event) => event.why ?? "" },
];

let table = null;

/** Shows events, the newest first. */
export function show(page) {
  table ??= new Table(at("event-table"), columns, {
    caption: "Events of the last day, the newest first",
    empty: "Nothing happened in the last day.",
  });
  table.fill([...page].reverse().map((event) => ({ ...event, key: event.id })), 200);
}
