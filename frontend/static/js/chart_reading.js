// Reading a chart: the line above it that names the series and says their values at the cursor, and the keys that move
// the cursor. It announces nothing: who can't see the chart has the table.
import { digitsFor, nameOfX, number } from "./chart_axes.js";
import { lonely } from "./chart_paths.js";
import { toneOf } from "./chart_tones.js";

const SVG = "http://www.w3.org/2000/svg";
const UNKNOWN = "—";
// With Page Up and Page Down.
const PAGES = 10;

const element = (name, className, parent) => {
  const made = document.createElement(name);
  made.className = className;
  parent.append(made);
  return made;
};

const drawnIn = (svg, name, attributes) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  svg.append(made);
};

const MARKS = {
  circle: ["circle", { cx: 11, cy: 6, r: 3.4 }],
  square: ["rect", { x: 8, y: 3, width: 6, height: 6 }],
  diamond: ["path", { d: "M11 1.8 15.2 6 11 10.2 6.8 6Z" }],
  triangle: ["path", { d: "M11 1.8 15 9.6H7Z" }],
  cross: ["path", { d: "M7.6 2.6 14.4 9.4M7.6 9.4 14.4 2.6" }],
};

/** The sample that stands before a series' name: as it is drawn in the chart. A line's mark is shown by `has-lone`. */
const swatch = (series, parent) => {
  const tone = toneOf(series);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `plot-swatch c-${series.tone} ${series.draw} ${tone.texture}`);
  svg.setAttribute("viewBox", "0 0 22 12");
  svg.setAttribute("aria-hidden", "true");
  parent.append(svg);
  if (series.draw === "line") {
    drawnIn(svg, "path", { d: "M0 6H22", "stroke-dasharray": tone.dash.join(" ") || "none" });
    const [name, attributes] = MARKS[tone.shape];
    drawnIn(svg, name, { ...attributes, class: "mark" });
  } else if (series.draw === "points") {
    drawnIn(svg, ...MARKS[tone.shape]);
  } else {
    drawnIn(svg, "rect", { class: "area", x: 1, y: 1, width: 20, height: 10 });
    if (tone.texture === "hatch" || tone.texture === "cross") drawnIn(svg, "path", { d: "M1 9 9 1M5 11 15 1M13 11 21 3" });
    if (tone.texture === "cross") drawnIn(svg, "path", { d: "M1 3 9 11M7 1 17 11M13 1 21 9" });
  }
  return svg;
};

export class Reading {
  /** Builds the lines around the canvas inside `box`; `canvas` is where the chart goes. */
  constructor(box, data) {
    box.replaceChildren();
    const line = element("div", "plot-reading", box);
    this.unit = element("span", "plot-unit", line);
    this.swatches = [];
    this.values = data.series.map((series) => {
      const item = element("span", "plot-series", line);
      this.swatches.push(swatch(series, item));
      element("span", "plot-label", item).textContent = series.label;
      return element("span", "plot-value num", item);
    });
    this.canvas = element("div", "plot-canvas", box);
    const foot = element("div", "plot-foot", box);
    this.where = element("span", "plot-where num", foot);
    this.xLabel = element("span", "plot-x", foot);
    this.take(data);
  }

  take(data) {
    this.data = data;
    const known = data.series.flatMap((series) => series.values.filter((value) => value !== null));
    const greatest = known.reduce((most, value) => Math.max(most, value), 0);
    this.digits = digitsFor(greatest);
    // As wide as the longest value: names stand still while values come and go.
    for (const value of this.values) value.style.minWidth = `${number(greatest, this.digits).length}ch`;
    data.series.forEach((series, n) => this.swatches[n].classList.toggle("has-lone", lonely(series.values).length > 0));
    this.unit.textContent = data.yUnit;
    this.xLabel.textContent = data.xLabel;
  }

  /** The values at `at`; null: the cursor is nowhere. */
  show(at) {
    const { data, digits } = this;
    this.where.textContent = at === null ? "" : nameOfX(data, at);
    data.series.forEach((series, n) => {
      const value = at === null ? undefined : series.values[at];
      this.values[n].textContent =
        value === undefined ? "" : value === null ? UNKNOWN : number(value, digits);
    });
  }
}

/** Where a key moves the cursor to from `at` (null: nowhere yet) among `length` values; undefined: not our key. */
export const moved = (key, at, length) => {
  const page = Math.max(1, Math.round(length / PAGES));
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page };
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  if (key === "Escape") return at === null ? undefined : null;
  if (steps[key] === undefined) return undefined;
  if (at === null) return steps[key] > 0 ? 0 : length - 1;
  return Math.max(0, Math.min(length - 1, at + steps[key]));
};
