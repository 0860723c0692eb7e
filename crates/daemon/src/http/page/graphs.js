// What was seen since the page was opened, and graphs of it (uPlot).

import { make, say } from "./dom.js";

/** So many instants are kept: ten minutes at one in two seconds. */
const KEPT = 300;

/** Instants and values of several series. A gap is a null. */
export class Series {
  constructor(count, kept = KEPT) {
    this.kept = kept;
    this.columns = Array.from({ length: count + 1 }, () => []);
  }

  push(time, values) {
    [time, ...values].forEach((value, n) => {
      this.columns[n].push(value ?? null);
      if (this.columns[n].length > this.kept) this.columns[n].shift();
    });
  }
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Instants on an axis: the time of the day, and the day where it spans some. */
function instants(_, all) {
  const span = all.at(-1) - all[0];
  return all.map((seconds) => {
    const time = new Date(seconds * 1000);
    const clock = time.toTimeString();
    if (span < 900) return clock.slice(0, 8);
    const day = `${time.getDate()}.${time.getMonth() + 1}.`;
    return span < 86_400 ? clock.slice(0, 5) : span < 3 * 86_400 ? `${day} ${clock.slice(0, 5)}` : day;
  });
}

const graphs = new Set();

/** A graph in a box of its own: lines are a label, a colour, and maybe `dash`. */
export class Graph {
  constructor(title, lines, series, format) {
    Object.assign(this, { lines, series, format });
    this.place = make("div");
    const marks = lines.map(({ label }) => {
      const mark = make("i");
      const value = make("span");
      return { mark, value, item: make("li", {}, mark, `${label} `, value) };
    });
    this.marks = marks;
    this.element = make("div", { class: "graph", role: "group", "aria-label": title },
      make("h3", {}, title), this.place, make("ul", {}, ...marks.map(({ item }) => item)));
    graphs.add(this);
  }

  /** Draws what is there now. */
  draw() {
    const width = this.place.clientWidth;
    if (width === 0) return;
    if (!this.plot || this.plot.width !== width) this.begin(width);
    this.plot.setData(this.series.columns);
    this.marks.forEach(({ value }, n) => {
      const last = this.series.columns[n + 1].at(-1);
      say(value, last === null || last === undefined ? "–" : this.format(last));
    });
  }

  begin(width) {
    this.plot?.destroy();
    this.marks.forEach(({ mark }, n) => { mark.style.background = color(this.lines[n].color); });
    const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false } };
    const options = {
      width, height: 150, legend: { show: false }, cursor: { y: false }, padding: [8, 4, 0, 0],
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [{ ...axis, space: 70, values: instants }, { ...axis, size: 62, space: 34, values: (_, all) => all.map(this.format) }],
      series: [{}, ...this.lines.map((line) => ({
        label: line.label, stroke: color(line.color), width: 1.6, dash: line.dash ? [6, 5] : undefined,
        points: { show: false }, spanGaps: false,
      }))],
    };
    this.plot = new uPlot(options, this.series.columns, this.place);
  }

  /** Is not drawn any more. */
  end() {
    this.plot?.destroy();
    graphs.delete(this);
  }
}

/** Draws all that can be seen, from the beginning where colours or widths may be others. */
export function drawAll(anew = false) {
  for (const graph of graphs) {
    if (!graph.element.isConnected) continue;
    if (anew) {
      graph.plot?.destroy();
      graph.plot = null;
    }
    graph.draw();
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
addEventListener("resize", () => drawAll());
