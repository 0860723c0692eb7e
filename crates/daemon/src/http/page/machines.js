// Virtual machines: what their disks were promised and receive together.

import { bytes, number } from "./api.js";
import { at, Table } from "./dom.js";
import { disksOf } from "./disks.js";

function machinesOf(top) {
  const machines = new Map();
  for (const disk of disksOf(top)) {
    const key = disk.vm ?? "";
    const one = machines.get(key) ?? { key, disks: 0, reserved: 0, received: 0, bytes: 0, waiting: 0, short: 0 };
    one.disks += 1;
    one.reserved += disk.policy.reservation ?? 0;
    one.received += disk.load.normalised_iops;
    one.bytes += disk.load.bytes_per_sec;
    one.waiting += disk.queued;
    one.short += disk.reservation_missed ? 1 : 0;
    machines.set(key, one);
  }
  return [...machines.values()];
}

const columns = [
  { title: "Machine", cell: (one) => one.key || "(none)", by: (one) => one.key },
  { title: "Disks", class: "number", cell: (one) => number(one.disks), by: (one) => one.disks, down: true },
  { title: "Promised", class: "number", cell: (one) => number(one.reserved), by: (one) => one.reserved, down: true },
  { title: "Received", class: "number", cell: (one) => number(one.received), by: (one) => one.received, down: true },
  { title: "Throughput", class: "number wide", cell: (one) => `${bytes(one.bytes)}/s`, by: (one) => one.bytes, down: true },
  { title: "Waiting", class: "number", cell: (one) => number(one.waiting), by: (one) => one.waiting, down: true },
  { title: "Short", class: "number", cell: (one) => number(one.short), by: (one) => one.short, down: true },
];

let table = null;

/** Shows all. */
export function show(top) {
  table ??= new Table(at("machine-table"), columns, {
    caption: "Virtual machines, in IOs per second",
    sort: { column: "Received", down: true },
    empty: "There is no disk yet.",
  });
  table.fill(machinesOf(top));
}
