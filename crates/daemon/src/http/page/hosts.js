// All hosts that meet in one etcd, and those of their disks that matter most.

import { bytes, micros, number, seconds } from "./api.js";
import { at, facts, make, say, Table } from "./dom.js";

const ago = (age) => `${seconds(age)} ago`;

function state(host) {
  const last = new Date(host.last_seen * 1000).toISOString().replace("T", " ").slice(0, 16);
  const text = host.state === "running" ? "running" : `${host.state}, last seen ${last} UTC`;
  const cell = make("span", { class: host.state === "running" ? "" : "bad" }, text);
  cell.dataset.is = text;
  return cell;
}

const hostColumns = [
  { title: "Host", cell: (host) => host.label, by: (host) => host.label },
  { title: "State", cell: state, by: (host) => host.state },
  { title: "Said", class: "number", cell: (host) => ago(host.age_seconds), by: (host) => host.age_seconds, down: true },
  { title: "Datastores", class: "number wide", cell: (host) => number(host.datastores), by: (host) => host.datastores, down: true },
  { title: "Disks", class: "number", cell: (host) => number(host.disks), by: (host) => host.disks, down: true },
  { title: "Short", class: "number", cell: (host) => number(host.missed), by: (host) => host.missed, down: true },
  { title: "Failed", class: "number", cell: (host) => number(host.failed), by: (host) => host.failed, down: true },
  { title: "Received", class: "number", cell: (host) => number(host.iops), by: (host) => host.iops, down: true },
  { title: "Throughput", class: "number wide", cell: (host) => `${bytes(host.bytes_per_sec)}/s`, by: (host) => host.bytes_per_sec, down: true },
  { title: "API", class: "wide", cell: (host) => host.api ?? "–" },
];

/** What is wrong with a disk, in a few words. */
function trouble(disk) {
  if (disk.host_state !== "running") return `its host is ${disk.host_state}`;
  if (disk.state !== "serving") return `not in service (${disk.state})`;
  return disk.reservation_missed ? "reservation missed" : "";
}

function told(disk) {
  const text = trouble(disk);
  const cell = make("span", { class: text ? "bad" : "" }, text || "–");
  cell.dataset.is = text;
  return cell;
}

/** Whom a disk waits for, with the part that this one took; another cause, where that took more. */
function waits(disk) {
  if (!disk.waits) return "–";
  const { cause, part, behind, behind_part: taken } = disk.waits;
  const parts = behind && taken >= 0.01 ? [[behind, taken]] : [];
  if (parts.length === 0 || cause !== "neighbours") parts.unshift([cause, part]);
  return parts.map(([who, of]) => `${who} ${Math.round(of * 100)} %`).join(", ");
}

const diskColumns = [
  { title: "Host", cell: (disk) => disk.host },
  { title: "Disk", cell: (disk) => disk.name },
  { title: "Machine", class: "wide", cell: (disk) => disk.vm ?? "–" },
  { title: "Datastore", class: "wide", cell: (disk) => disk.datastore },
  { title: "Promised", class: "number", cell: (disk) => number(disk.reservation) },
  { title: "Received", class: "number", cell: (disk) => number(disk.iops) },
  { title: "Waiting", class: "number", cell: (disk) => number(disk.queued) },
  { title: "p99", class: "number wide", cell: (disk) => micros(disk.latency_micros) },
  { title: "Waits for", class: "wide", cell: waits },
  { title: "Said", class: "number", cell: (disk) => ago(disk.age_seconds) },
  { title: "State", cell: told },
];

let hostTable = null;
let diskTable = null;

/** What is wrong with the view. */
function remarks(view) {
  const age = view.age_seconds === null ? "never" : ago(view.age_seconds);
  return [
    view.source === "alone" ? "This host alone: it has no etcd to meet others in." : null,
    view.error ? `Other hosts were last heard: ${age}. ${view.error}` : null,
    view.unreadable > 0 ? `${number(view.unreadable)} keys in etcd hold no summary of a host.` : null,
    view.left_out > 0 ? `There was no room for ${number(view.left_out)} parts of what hosts said.` : null,
  ].filter(Boolean).join(" ");
}

/** Shows all. */
export function show(hosts, disks) {
  hostTable ??= new Table(at("host-table"), hostColumns, {
    caption: "Hosts, in IOs per second",
    sort: { column: "Host", down: false },
    empty: "No host is known.",
  });
  hostTable.fill(hosts.hosts.map((host) => ({ ...host, key: host.id })));
  const text = remarks(hosts.view);
  at("fleet-trouble").hidden = text === "";
  say(at("fleet-trouble"), text);
  facts(at("fleet-facts"), [
    ["Hosts", number(hosts.hosts.length)],
    ["Disks", number(hosts.hosts.reduce((sum, host) => sum + host.disks, 0))],
    ["Shown below", disks ? `${number(disks.disks.length)} of ${number(disks.total)} disks` : null],
  ]);
  if (!disks) return;
  diskTable ??= new Table(at("fleet-disk-table"), diskColumns, {
    caption: "Disks of all hosts, those first that are short",
    empty: "No host has a disk.",
  });
  diskTable.fill(disks.disks.map((disk) => ({ ...disk, key: `${disk.host_id}/${disk.name}` })));
}
