// A chart: one column for each step of time, series on top of each other. By default it is of rates, with a column a second.
import { el, svg, fill, name, count, say } from "./dom.js";

export const seconds = 120; // columns

// ceiling is the next round number: the top of the chart.
function ceiling(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map(n => n * power).find(n => n >= most);
}

const rates = {
  columns: seconds, times: ["2 min ago", "1 min", "now"], about: "Decisions a second",
  when: ago => ago === null ? "In the last second:" : `${ago} s ago:`,
};

// Chart draws samples: maps from a series to its rate, or null for a second without an answer. kind is what the columns are: how many, the words
// below them, the words for the one under the pointer (so many columns ago; null for none), and what the chart is about.
export class Chart {
  constructor(root, kind = rates) {
    this.kind = kind;
    this.samples = [];
    this.at = null; // the column under the pointer
    this.drawing = svg("svg", { viewBox: `0 0 ${kind.columns} 100`, preserveAspectRatio: "none", role: "img" });
    this.top = el("span");
    this.middle = el("span");
    this.when = el("p", { class: "quiet when" });
    this.legend = el("ul", { class: "legend" });
    const plot = el("div", { class: "plot" }, this.drawing);
    const axis = el("div", { class: "axis", "aria-hidden": "true" }, this.top, this.middle, el("span", {}, "0"));
    const times = el("div", { class: "times quiet", "aria-hidden": "true" }, ...kind.times.map(text => el("span", {}, text)));
    root.append(el("div", { class: "chart" }, axis, plot, times), this.when, this.legend);
    plot.addEventListener("pointermove", e => this.point(e, plot));
    plot.addEventListener("pointerleave", () => { this.at = null; this.numbers(); });
  }

  point(event, plot) {
    const box = plot.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * this.kind.columns);
    this.at = Math.min(Math.max(column, 0), this.kind.columns - 1);
    this.numbers();
  }

  // draw draws the samples, the last of which is of now. A series is { id, label, mark }, from the bottom up; mark is the class of its colour.
  draw(samples, series) {
    this.samples = samples;
    this.series = series;
    const first = this.kind.columns - this.samples.length;
    const total = sample => series.reduce((sum, one) => sum + (sample?.get(one.id) || 0), 0);
    const scale = ceiling(Math.max(1, ...this.samples.map(total)));
    say(this.top, count(scale));
    say(this.middle, count(scale / 2));
    const base = new Float64Array(this.samples.length);
    const paths = series.map(one => {
      let d = "";
      this.samples.forEach((sample, i) => {
        const rate = sample?.get(one.id) || 0;
        if (!rate) return;
        const low = 100 - base[i] / scale * 100, high = 100 - (base[i] + rate) / scale * 100;
        base[i] += rate;
        d += `M${first + i} ${low.toFixed(2)}V${high.toFixed(2)}h1V${low.toFixed(2)}z`;
      });
      return svg("path", { d, class: one.mark });
    });
    const lines = [50, 100].map(y => svg("line", { x1: 0, x2: this.kind.columns, y1: 100 - y, y2: 100 - y, class: "grid" }));
    this.cursor = svg("rect", { y: 0, width: 1, height: 100, class: "cursor" });
    fill(this.drawing, ...lines, ...paths, this.cursor);
    this.numbers();
  }

  // numbers shows the rates of the last second, or of the one under the pointer.
  numbers() {
    const last = this.kind.columns - 1, at = this.at === null ? last : this.at;
    const sample = this.samples[at - (this.kind.columns - this.samples.length)];
    this.cursor?.setAttribute("visibility", this.at === null ? "hidden" : "visible");
    this.cursor?.setAttribute("x", at);
    say(this.when, this.kind.when(this.at === null ? null : last - at));
    const shown = (this.series || []).map(one => [one, sample?.get(one.id) || 0]);
    fill(this.legend, ...shown.map(([one, rate]) => el("li", { class: one.mark }, el("i", { "aria-hidden": "true" }), name(one.label), el("b", {}, sample ? count(rate) : "–"))));
    this.drawing.setAttribute("aria-label", `${this.kind.about}: ` + (shown.map(([one, rate]) => `${one.label} ${count(rate)}`).join(", ") || "none"));
  }
}
