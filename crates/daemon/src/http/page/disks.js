// Disks: what they were promised, and what they receive.

import { bytes, micros, number, read, seconds } from "./api.js";
import { at, facts, make, say, Table } from "./dom.js";
import { Graph, Series } from "./graphs.js";
import { WhatIf } from "./what-if.js";

/** So many rows at first, and more at each request. */
const ROWS = 100;

let most = ROWS;
let items = [];
let chosen = null;

/** Every disk of a live view, with where it is. */
export function disksOf(top) {
  return top.datastores.flatMap((store) =>
    store.disks.map((disk) => ({ ...disk, datastore: store.name, key: `${store.name}/${disk.name}` })));
}

/** What is wrong with a disk, in a few words. */
function trouble(disk) {
  if (disk.state !== "serving") return `not in service (${disk.state})`;
  if (disk.trouble) return `storage: ${disk.trouble.error}`;
  if (disk.reservation_missed) return "reservation missed";
  if (disk.latency && disk.latency.verdict !== "met") return "latency target missed";
  if (disk.needed_depth) return `needs ${disk.needed_depth} requests outstanding`;
  return "";
}

/** The worst first, then who waits most. */
const rank = (disk) => (trouble(disk) ? 1e12 : 0) + disk.queued;

function received(disk) {
  const rate = number(disk.load.normalised_iops);
  const reserved = disk.policy.reservation;
  if (!reserved) return rate;
  const part = Math.min(1, disk.reservation_achieved ?? disk.load.normalised_iops / reserved);
  const level = Math.round(part * 20) * 5;
  const fill = make("i");
  fill.style.width = `${level}%`;
  const meter = make("span", { class: disk.reservation_missed ? "meter short" : "meter", "aria-hidden": "true" }, fill);
  const cell = make("span", {}, rate, meter);
  cell.dataset.is = `${rate} ${level} ${disk.reservation_missed}`;
  return cell;
}

function name(disk) {
  const open = () => {
    choose(disk.key);
    at("detail").scrollIntoView({ block: "nearest" });
  };
  const button = make("button", { type: "button", on: { click: open } }, disk.name);
  button.dataset.is = disk.key;
  return button;
}

function told(disk) {
  const text = trouble(disk);
  const cell = make("span", { class: text ? "bad" : "" }, text || (disk.clients ? "in use" : "no client"));
  cell.dataset.is = cell.textContent;
  return cell;
}

const CAUSES = {
  limit: "its limit", window: "the window", own: "its own requests", device: "the device",
  held: "storage in trouble",
};

/** Where the time of requests went, the largest part first: pairs of who and a part. */
function waitsFor(blame) {
  if (!blame) return [];
  const named = blame.neighbours.reduce((sum, one) => sum + one.part, 0);
  const parts = Object.entries(CAUSES).map(([cause, words]) => [words, blame.causes[cause]]);
  parts.push(["other neighbours", blame.causes.neighbours - named]);
  parts.push(...blame.neighbours.map((one) => [one.copy ? `a copy of ${one.disk}` : one.disk, one.part]));
  return parts.filter(([, part]) => part >= 0.01).sort((a, b) => b[1] - a[1]);
}

const inWords = (parts) => parts.map(([who, part]) => `${who} ${Math.round(part * 100)} %`).join(", ");

const columns = [
  { title: "Disk", cell: name, by: (disk) => disk.name },
  { title: "Machine", class: "wide", cell: (disk) => disk.vm ?? "–", by: (disk) => disk.vm ?? "" },
  { title: "Datastore", class: "wide", cell: (disk) => disk.datastore, by: (disk) => disk.datastore },
  { title: "Promised", class: "number", cell: (disk) => number(disk.policy.reservation), by: (disk) => disk.policy.reservation ?? 0, down: true },
  { title: "Received", class: "number", cell: received, by: (disk) => disk.load.normalised_iops, down: true },
  { title: "Limit", class: "number wide", cell: (disk) => number(disk.policy.limit), by: (disk) => disk.policy.limit ?? 0, down: true },
  { title: "Shares", class: "number wide", cell: (disk) => number(disk.policy.shares), by: (disk) => disk.policy.shares, down: true },
  { title: "Waiting", class: "number", cell: (disk) => number(disk.queued), by: rank, down: true },
  { title: "Waits for", class: "wide", cell: (disk) => inWords(waitsFor(disk.blame).slice(0, 2)) },
  { title: "p99", class: "number wide", cell: (disk) => micros((disk.load.queue_micros?.p99 ?? 0) + (disk.load.device_micros?.p99 ?? 0) || null), by: (disk) => (disk.load.queue_micros?.p99 ?? 0) + (disk.load.device_micros?.p99 ?? 0), down: true },
  { title: "State", cell: told, by: trouble, down: true },
];

let table = null;

function fill() {
  const words = at("filter").value.trim().toLowerCase();
  const found = items.filter((disk) =>
    [disk.name, disk.vm ?? "", disk.datastore].some((text) => text.toLowerCase().includes(words)));
  table ??= new Table(at("disk-table"), columns, {
    caption: "Disks, in IOs per second",
    sort: { column: "Waiting", down: true },
    empty: "There is no such disk.",
  });
  table.empty = items.length === 0 ? "There is no disk yet: 'headgate disk create' makes one." : "No disk is called so.";
  const shown = table.fill(found, most);
  say(at("count"), `${shown} of ${items.length} disks`);
  at("more").hidden = found.length <= most;
  say(at("more"), `Show ${Math.min(ROWS, found.length - most)} more`);
}

at("filter").addEventListener("input", () => {
  most = ROWS;
  fill();
});
at("more").addEventListener("click", () => {
  most += ROWS;
  fill();
});

/** What the daemon has kept of a disk: how far back, in seconds, and in which words. */
const SPANS = [[3_600, "hour"], [86_400, "day"], [30 * 86_400, "30 days"]];

class Past {
  constructor(name) {
    this.name = name;
    this.buttons = SPANS.map(([span, words]) =>
      make("button", { type: "button", on: { click: () => this.show(span) } }, `Last ${words}`));
    this.facts = make("ul", { class: "facts", id: "past-facts" });
    this.graphs = make("div", { class: "graphs" });
    this.drawn = [];
    this.element = make("div", { id: "past" }, make("div", { class: "bar" }, ...this.buttons), this.facts, this.graphs);
  }

  async show(span) {
    SPANS.forEach(([each], n) => this.buttons[n].setAttribute("aria-pressed", `${each === span}`));
    const now = Math.floor(Date.now() / 1000);
    let periods;
    try {
      periods = await read(`/v1/disks/${encodeURIComponent(this.name)}/history?since=${now - span}`);
    } catch (error) {
      facts(this.facts, [["No history", error.message]]);
      return;
    }
    const rates = new Series(2, periods.length);
    const times = new Series(1, periods.length);
    const sum = { demanded: 0, short: 0, waits: new Map() };
    for (const period of periods) {
      const { promise } = period;
      const length = Math.max(period.seen_seconds, 1);
      const reserved = promise.reserved_ios / length;
      rates.push(period.begin, [promise.received_ios / length, reserved > 0 ? reserved : null]);
      times.push(period.begin, [period.total_micros?.p99]);
      sum.demanded += promise.demanded_seconds;
      sum.short += promise.short_seconds;
      for (const [who, part] of waitsFor(period.blame)) {
        const waited = part * period.blame.waiting * period.blame.seconds;
        sum.waits.set(who, (sum.waits.get(who) ?? 0) + waited);
      }
    }
    const whole = [...sum.waits.values()].reduce((a, b) => a + b, 0);
    const parts = [...sum.waits].map(([who, waited]) => [who, waited / whole]).sort((a, b) => b[1] - a[1]);
    facts(this.facts, [
      ["Reservation demanded for", seconds(sum.demanded)],
      ["Short for", seconds(sum.short)],
      ["Kept", sum.demanded > 0 ? `${(100 * (1 - sum.short / sum.demanded)).toFixed(2)} % of that time` : null],
      ["Waited for", inWords(parts.slice(0, 6)) || "nothing"],
    ]);
    this.end();
    this.drawn = [
      new Graph("IOs per second", [
        { label: "received", color: "blue" },
        { label: "promised", color: "orange", dash: true },
      ], rates, number),
      new Graph("99th percentile, from arrival to completion", [{ label: "p99", color: "blue" }], times, micros),
    ];
    this.graphs.replaceChildren(...this.drawn.map((graph) => graph.element));
    this.drawn.forEach((graph) => graph.draw());
  }

  end() {
    this.drawn.forEach((graph) => graph.end());
  }
}

/** One disk with its graphs. */
class Detail {
  constructor(disk) {
    this.key = disk.key;
    this.rates = new Series(3);
    this.times = new Series(2);
    this.facts = make("ul", { class: "facts" });
    this.graphs = [
      new Graph("IOs per second", [
        { label: "received", color: "blue" },
        { label: "promised", color: "orange", dash: true },
        { label: "limit", color: "grey", dash: true },
      ], this.rates, number),
      new Graph("99th percentile", [
        { label: "waiting in the scheduler", color: "orange" },
        { label: "at the device", color: "blue" },
      ], this.times, micros),
    ];
    this.past = new Past(disk.name);
    this.whatIf = new WhatIf(disk.name);
    const close = make("button", { type: "button", on: { click: () => choose(null) } }, "Close");
    at("detail").replaceChildren(make("h2", {}, disk.name), this.facts,
      make("div", { class: "graphs" }, ...this.graphs.map((graph) => graph.element)),
      this.past.element, this.whatIf.element, close);
  }

  end() {
    this.graphs.forEach((graph) => graph.end());
    this.past.end();
  }

  see(time, disk) {
    const { policy, load } = disk;
    this.rates.push(time, [load.normalised_iops, policy.reservation, policy.limit]);
    this.times.push(time, [load.queue_micros?.p99, load.device_micros?.p99]);
    facts(this.facts, [
      ["Machine", disk.vm ?? "none"],
      ["Datastore", disk.datastore],
      ["Throughput", `${bytes(load.bytes_per_sec)}/s`],
      ["Reads", load.read_fraction === null ? null : `${Math.round(load.read_fraction * 100)} %`],
      ["Outstanding", number(load.outstanding)],
      ["Of its share", disk.share_achieved === null ? null : `${Math.round(disk.share_achieved * 100)} %`],
      ["Waits for", inWords(waitsFor(disk.blame)) || null],
      ["State", trouble(disk) || "in order"],
    ]);
  }
}

function choose(key) {
  chosen?.end();
  const disk = items.find((one) => one.key === key);
  chosen = disk ? new Detail(disk) : null;
  at("detail").hidden = !chosen;
  if (chosen) {
    chosen.see(Date.now() / 1000, disk);
    chosen.graphs.forEach((graph) => graph.draw());
  }
}

/** Notes what was seen. */
export function see(time, top) {
  items = disksOf(top);
  if (!chosen) return;
  const disk = items.find((one) => one.key === chosen.key);
  if (disk) chosen.see(time, disk);
  else choose(null);
}

/** Shows all. */
export function show() {
  fill();
}
