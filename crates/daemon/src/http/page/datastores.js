// Each datastore: what it is, and what it did since the page was opened.

import { bytes, micros, number, seconds } from "./api.js";
import { at, facts, make, say } from "./dom.js";
import { Graph, Series } from "./graphs.js";
import { StorePast } from "./store-past.js";

const cards = new Map();

class Card {
  constructor(name) {
    this.rates = new Series(3);
    this.times = new Series(2);
    this.slots = new Series(3);
    this.title = make("h2", {}, name);
    this.facts = make("ul", { class: "facts" });
    this.trouble = make("p", { class: "bad", hidden: true });
    const graphs = [
      new Graph("IOs per second", [
        { label: "served", color: "blue" },
        { label: "reserved", color: "orange", dash: true },
        { label: "capacity", color: "grey", dash: true },
      ], this.rates, number),
      new Graph("99th percentile", [
        { label: "waiting in the scheduler", color: "orange" },
        { label: "at the device", color: "blue" },
      ], this.times, micros),
      new Graph("Requests", [
        { label: "window", color: "grey", dash: true },
        { label: "at the device", color: "blue" },
        { label: "waiting", color: "orange" },
      ], this.slots, number),
    ];
    this.graphs = graphs;
    this.past = new StorePast(name);
    this.element = make("article", { class: "card", "data-datastore": name },
      this.title, this.facts, this.trouble,
      make("div", { class: "graphs" }, ...graphs.map((graph) => graph.element)), this.past.element);
  }

  end() {
    this.graphs.forEach((graph) => graph.end());
    this.past.end();
  }

  see(time, store) {
    const { load } = store;
    this.rates.push(time, [load.normalised_iops, store.reserved_iops, store.capacity_iops]);
    this.times.push(time, [load.queue_micros?.p99, load.device_micros?.p99]);
    this.slots.push(time, [store.window, store.in_flight, store.queued]);
  }

  say(store, record) {
    const space = record?.file_system;
    const control = store.control;
    facts(this.facts, [
      ["Scheduler", store.scheduler],
      ["Disks", `${store.disks.length}`],
      ["Throughput", `${bytes(load(store).bytes_per_sec)}/s`],
      ["Reserved", store.capacity_iops ? `${number(store.reserved_iops)} of ${number(store.capacity_iops)} IOPS` : `${number(store.reserved_iops)} IOPS`],
      ["Free", space ? `${bytes(space.free)} of ${bytes(space.size)}` : null],
      ["Promised space", space?.overcommit ? `${number(space.overcommit)} times the room` : null],
      ["Hosts", control ? `${control.hosts_counted}` : null],
    ]);
    const wrong = [
      store.state === "serving" ? null : `Not in service: ${record?.reason ?? store.state}.`,
      record?.hung_since ? `It has not answered for ${seconds(Date.now() / 1000 - record.hung_since)}.` : null,
      store.overbooked_iops > 0 ? `${number(store.overbooked_iops)} IOPS are promised beyond what it can keep.` : null,
      store.narrowed ? `The window is narrowed for disk ${store.narrowed.disk}.` : null,
      control?.unmanaged_load ? "Something else loads this storage." : null,
      space && space.used_percent >= 80 ? `${space.used_percent} % of its space are used.` : null,
    ].filter(Boolean);
    this.trouble.hidden = wrong.length === 0;
    say(this.trouble, wrong.join(" "));
  }
}

const load = (store) => store.load;

/** Notes what was seen: no load is a gap. */
export function see(time, top) {
  for (const store of top.datastores) {
    if (!cards.has(store.name)) cards.set(store.name, new Card(store.name));
    cards.get(store.name).see(time, store);
  }
}

/** Notes that nobody answered. */
export function gap(time) {
  for (const card of cards.values()) {
    card.rates.push(time, [null, null, null]);
    card.times.push(time, [null, null]);
    card.slots.push(time, [null, null, null]);
  }
}

/** Shows all. */
export function show(top, records) {
  const place = at("datastores");
  const names = new Set(top.datastores.map((store) => store.name));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    card.end();
    cards.delete(name);
  }
  const elements = top.datastores.map((store) => {
    const card = cards.get(store.name);
    card.say(store, records.get(store.name));
    return card.element;
  });
  if (elements.length === 0) {
    elements.push(make("p", { class: "nothing" }, "There is no datastore yet: 'headgate datastore add' makes one."));
  }
  const same = elements.length === place.children.length && elements.every((one, n) => one === place.children[n]);
  if (!same) place.replaceChildren(...elements);
}
