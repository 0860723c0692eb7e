// What the daemon has kept of a datastore, by the hour.

import { bytes, micros, number, read } from "./api.js";
import { facts, make } from "./dom.js";
import { Graph, Series } from "./graphs.js";

/** How far back, as the API takes it, and in which words. */
const SPANS = [["1d", "day"], ["30d", "30 days"]];

/** The past of a datastore, which is asked for when somebody wants it. */
export class StorePast {
  constructor(name) {
    this.name = name;
    this.buttons = SPANS.map(([span, words]) =>
      make("button", { type: "button", on: { click: () => this.show(span) } }, `Last ${words}`));
    this.facts = make("ul", { class: "facts" });
    this.graphs = make("div", { class: "graphs" });
    this.drawn = [];
    this.element = make("div", { class: "store-past" },
      make("div", { class: "bar" }, ...this.buttons), this.facts, this.graphs);
  }

  async show(span) {
    SPANS.forEach(([each], n) => this.buttons[n].setAttribute("aria-pressed", `${each === span}`));
    let hours;
    try {
      hours = await read(`/v1/datastores/${encodeURIComponent(this.name)}/history?window=${span}`);
    } catch (error) {
      facts(this.facts, [["No history", error.message]]);
      return;
    }
    const rates = new Series(1, 3 * hours.length);
    const flows = new Series(1, 3 * hours.length);
    const times = new Series(2, 3 * hours.length);
    const depths = new Series(2, 3 * hours.length);
    const now = Date.now() / 1000;
    let last = null;
    for (const hour of hours) {
      // Nobody saw what was in between.
      if (last !== null && hour.begin - last > 3_600) {
        for (const [series, count] of [[rates, 1], [flows, 1], [times, 2], [depths, 2]]) {
          series.push(last + 3_600, Array(count).fill(null));
        }
      }
      last = hour.begin;
      // A line from its first second to its last: one hour alone would be a point.
      for (const at of [hour.begin, Math.min(hour.begin + 3_599, Math.max(now, hour.begin + 1))]) {
        rates.push(at, [hour.iops]);
        flows.push(at, [hour.bytes_per_sec]);
        times.push(at, [hour.total_micros?.p99, hour.device_micros?.p99]);
        depths.push(at, [hour.outstanding, hour.outstanding_peak]);
      }
    }
    const sum = (of) => hours.reduce((all, hour) => all + of(hour), 0);
    facts(this.facts, [
      ["Hours seen", number(sum((hour) => hour.seen_seconds) / 3_600)],
      ["Reads", number(sum((hour) => hour.reads))],
      ["Writes", number(sum((hour) => hour.writes))],
      ["Failed", number(sum((hour) => hour.errors))],
    ]);
    this.end();
    this.drawn = [
      new Graph("Reads and writes per second", [{ label: "served", color: "blue" }], rates, number),
      new Graph("Throughput", [{ label: "bytes per second", color: "blue" }], flows, bytes),
      new Graph("99th percentile, by the hour", [
        { label: "from arrival", color: "orange" },
        { label: "at the device", color: "blue" },
      ], times, micros),
      new Graph("Requests outstanding", [
        { label: "mean", color: "blue" },
        { label: "peak", color: "orange" },
      ], depths, number),
    ];
    this.graphs.replaceChildren(...this.drawn.map((graph) => graph.element));
    this.drawn.forEach((graph) => graph.draw());
  }

  /** Is not shown any more. */
  end() {
    this.drawn.forEach((graph) => graph.end());
  }
}
