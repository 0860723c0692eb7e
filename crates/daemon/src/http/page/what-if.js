// What a change of a disk's policy would have done, on the load that was recorded.

import { ask, micros, number } from "./api.js";
import { make, say, Table } from "./dom.js";

/** How far back, in seconds, and in which words. */
const SPANS = [[600, "last 10 minutes"], [3_600, "last hour"], [6 * 3_600, "last 6 hours"], [86_400, "last day"]];

const FIELDS = [["reservation", "Reservation"], ["limit", "Limit"], ["shares", "Shares"]];

const missed = ({ demanded_seconds: demanded, short_seconds: short }) => short > 0.01 * demanded;

function short(received) {
  if (received.demanded_seconds === 0) return "–";
  return `${Math.round(received.short_seconds)} of ${Math.round(received.demanded_seconds)} s`;
}

function cell(text, isBad) {
  const element = make("span", { class: isBad ? "bad" : "" }, text);
  element.dataset.is = `${text} ${isBad}`;
  return element;
}

/** Three columns of one figure: as recorded, as simulated before and after the change. */
const columnsOf = (title, show, isBad = () => false) =>
  ["recorded", "before", "after"].map((which) => ({
    title: which === "recorded" ? title : which,
    class: "number",
    cell: (disk) => cell(show(disk[which]), isBad(disk[which])),
  }));

const columns = [
  { title: "Disk", cell: (disk) => disk.disk },
  ...columnsOf("IOs per second, recorded", (one) => number(one.iops)),
  ...columnsOf("p99, recorded", (one) => micros(one.total_micros?.p99)),
  ...columnsOf("Short, recorded", short, missed),
];

/** The form of one disk, and what was answered. */
export class WhatIf {
  constructor(name) {
    this.name = name;
    this.inputs = FIELDS.map(([field]) =>
      make("input", { type: "text", inputmode: "numeric", name: field, autocomplete: "off", placeholder: "as it is" }));
    this.span = make("select", { name: "span" }, ...SPANS.map(([each, words]) => make("option", { value: each }, words)));
    this.send = make("button", { type: "submit" }, "Simulate");
    const labels = FIELDS.map(([, title], n) => make("label", {}, title, this.inputs[n]));
    const form = make("form", { on: { submit: (event) => { event.preventDefault(); this.ask(); } } },
      ...labels, make("label", {}, "On the load of the", this.span), this.send);
    this.said = make("p", { role: "status" });
    this.table = make("table", {});
    this.scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What would have been", hidden: true }, this.table);
    this.notes = make("ul", { class: "notes" });
    this.element = make("section", { id: "what-if", "aria-label": "What if" },
      make("h3", {}, "What if I set this?"), form,
      make("div", { id: "what-if-answer" }, this.said, this.scroll, this.notes));
  }

  /** What was typed, or null where that is no change. */
  change() {
    const change = {};
    FIELDS.forEach(([field], n) => {
      const text = this.inputs[n].value.trim();
      if (text === "") return;
      change[field] = text === "none" ? null : /^[0-9]+$/.test(text) ? Number(text) : text;
    });
    return Object.keys(change).length > 0 ? change : null;
  }

  clear(words, isBad) {
    this.said.className = isBad ? "bad" : "";
    say(this.said, words);
    this.scroll.hidden = true;
    this.notes.replaceChildren();
  }

  async ask() {
    const change = this.change();
    if (!change) return this.clear("Type a number of IOs per second, or of shares; or 'none'.", true);
    this.send.disabled = true;
    this.clear("Simulating…", false);
    const now = Math.floor(Date.now() / 1000);
    try {
      const since = now - Number(this.span.value);
      this.show(await ask("/v1/what-if", { disk: this.name, change, since, until: now }));
    } catch (error) {
      this.clear(error.message, true);
    } finally {
      this.send.disabled = false;
    }
  }

  show(answer) {
    const { deviation } = answer;
    const late = deviation.p99_percent === null ? "" : `, 99th percentiles by ${Math.round(deviation.p99_percent)} %`;
    this.said.className = deviation.trust === "poor" ? "bad" : "";
    say(this.said, `Trust in rates: ${deviation.trust}. Simulated as it was, rates differ from the record by ` +
      `${deviation.iops_percent.toFixed(1)} %${late}.`);
    const table = new Table(this.table, columns, { caption: "What would have been", empty: "Nothing was recorded." });
    table.fill(answer.disks.map((disk) => ({ ...disk, key: disk.disk })));
    this.notes.replaceChildren(...answer.notes.map((note) => make("li", {}, note)));
    this.scroll.hidden = false;
  }
}
