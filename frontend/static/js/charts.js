// Draws every `.plot[data-chart]` with uPlot, and keeps it true: to new data, to the theme, to the size of its box.
// It computes nothing: what is drawn comes with the page, and stands in a table beside the chart, too.
// htmx leaves the inside of a plot alone (hx-morph-skip-children), so the canvas outlives each refresh.
/* global htmx, uPlot */
import { axesFor, dateIn, rangeOfX, ticksOfY } from "./chart_axes.js";
import { drawn, isCrowd, lonePoints, pathsOf } from "./chart_paths.js";
import { Reading, moved } from "./chart_reading.js";
import { colour, onThemeChange, pointColour, toneColour, toneFill, toneOf } from "./chart_tones.js";

const LINE_PX = 1.75;
// Of the x axis and the padding above.
const AXIS_PX = 34;

/** What can't change in a chart that is there: anything else is only new data. */
const shapeOf = (data) =>
  JSON.stringify([data.xKind, data.stacked, data.series.map(({ label, draw, tone }) => [label, draw, tone])]);

class LiveChart {
  constructor(box) {
    this.box = box;
    this.source = box.dataset.chart;
    this.data = JSON.parse(this.source);
    this.shape = shapeOf(this.data);
    // `at`: what is being read; `wanted`: where keys have put it, null while the mouse does.
    this.at = null;
    this.wanted = null;
    this.reading = new Reading(box, this.data);
    this.plot = new uPlot(this.options(), [this.data.x, ...drawn(this.data)], this.reading.canvas);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.reading.canvas);
    this.ended = new AbortController();
    const { signal } = this.ended;
    box.addEventListener("keydown", (event) => this.press(event), { signal });
    box.addEventListener("blur", () => this.wanted !== null && this.move(null), { signal });
    box.addEventListener("mousemove", () => (this.wanted = null), { signal, capture: true });
  }

  /** False when the new data need another chart. */
  take(source) {
    const data = JSON.parse(source);
    if (shapeOf(data) !== this.shape) return false;
    const seen = this.wanted === null ? null : this.data.x[this.wanted];
    this.source = source;
    this.data = data;
    this.reading.take(data);
    if (seen !== null) this.wanted = this.nearest(seen);
    this.plot.setData([data.x, ...drawn(data)]);
    if (this.wanted !== null) this.move(this.wanted);
    else this.reading.show(this.at);
    return true;
  }

  fit() {
    const { width, height } = this.size();
    if (width > 0 && height > 0 && (width !== this.plot.width || height !== this.plot.height)) {
      this.plot.setSize({ width, height });
      // Another height has room for other ticks.
      this.plot.setData(this.plot.data);
    }
  }

  size() {
    const { clientWidth, clientHeight } = this.reading.canvas;
    return { width: clientWidth, height: clientHeight };
  }

  end() {
    this.ended.abort();
    this.sizes.disconnect();
    this.plot.destroy();
  }

  press(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = moved(event.key, this.at, this.data.x.length);
    if (at === undefined) return;
    event.preventDefault();
    this.move(at);
  }

  move(at) {
    this.wanted = at;
    const left = at === null ? -10 : this.plot.valToPos(this.data.x[at], "x");
    this.plot.setCursor({ left, top: at === null ? -10 : 0 });
  }

  nearest(x) {
    const distance = (at) => Math.abs(this.data.x[at] - x);
    return this.data.x.reduce((best, _, at) => (distance(at) < distance(best) ? at : best), 0);
  }

  /** Of points, the one that is closest in both directions: many may stand above one another. */
  under(left, top) {
    const u = this.plot;
    const cloud = this.data.series.findIndex((series) => series.draw === "points");
    if (cloud < 0) return this.nearest(u.posToVal(left, "x"));
    let best = null;
    let least = Infinity;
    this.data.series[cloud].values.forEach((value, at) => {
      if (value === null) return;
      const away = Math.hypot(u.valToPos(this.data.x[at], "x") - left, u.valToPos(value, "y") - top);
      if (away < least) [best, least] = [at, away];
    });
    return best;
  }

  /** The cursor stands where values are. */
  snap(left, top) {
    this.at = left < 0 || this.data.x.length === 0 ? null : (this.wanted ?? this.under(left, top));
    return this.at === null ? [-10, -10] : [this.plot.valToPos(this.data.x[this.at], "x"), top];
  }

  options() {
    const family = getComputedStyle(this.box).fontFamily;
    const isTime = this.data.xKind === "time";
    const scales = {
      x: { time: isTime, range: () => rangeOfX(this.data) },
      y: { range: (u, low, high) => this.rangeOfY(u, high ?? 0) },
    };
    const cursor = {
      y: false,
      drag: { x: false, y: false, setScale: false },
      move: (u, left, top) => this.snap(left, top),
      dataIdx: () => this.at,
      points: {
        size: 9,
        show: (u, n) => (n > 0 && this.data.series[n - 1].draw !== "bars" ? dot() : undefined),
        stroke: () => colour("panel"),
        fill: (u, n) => toneColour(this.data.series[n - 1]),
      },
    };
    return {
      ...this.size(),
      tzDate: (seconds) => dateIn(this.data.zone)(seconds),
      legend: { show: false },
      padding: [6, 24, 0, 0],
      scales,
      cursor,
      axes: axesFor(this, family),
      series: [{}, ...this.data.series.map((_, n) => this.seriesOptions(n))],
      hooks: { setCursor: [() => this.reading.show(this.at)], drawSeries: [(u, n) => this.drawLone(u, n - 1)] },
    };
  }

  /** From the first tick to the last; the axis draws them where they are kept. */
  rangeOfY(u, greatest) {
    this.ticks = ticksOfY(greatest, u.height - AXIS_PX);
    return [0, this.ticks.at(-1)];
  }

  seriesOptions(n) {
    const series = () => this.data.series[n];
    const { draw } = series();
    const isLine = draw === "line";
    const point = () => pointColour(series(), isCrowd(this.data));
    return {
      stroke: () => (draw === "points" ? point() : toneColour(series())),
      fill: draw === "bars" ? () => toneFill(series()) : draw === "points" ? point : undefined,
      width: isLine ? LINE_PX : 1,
      dash: isLine ? toneOf(series()).dash : undefined,
      paths: pathsOf(this, n),
      points: { show: false },
    };
  }

  /** A value without neighbours has no line: it is shown as a mark, in the form of its series. */
  drawLone(u, n) {
    const series = this.data.series[n];
    if (series.draw !== "line") return;
    u.ctx.save();
    u.ctx.fillStyle = u.ctx.strokeStyle = toneColour(series);
    u.ctx.lineWidth = LINE_PX * devicePixelRatio;
    u.ctx.setLineDash([]);
    const path = lonePoints(u, series, n + 1);
    u.ctx.fill(path);
    u.ctx.stroke(path);
    u.ctx.restore();
  }
}

const dot = () => document.createElement("div");

const charts = new Map();

const drawAll = () => {
  for (const [box, chart] of charts) {
    if (box.isConnected && (chart.source === box.dataset.chart || chart.take(box.dataset.chart))) continue;
    chart.end();
    charts.delete(box);
  }
  for (const box of document.querySelectorAll(".plot[data-chart]")) {
    if (!charts.has(box)) charts.set(box, new LiveChart(box));
  }
};

document.addEventListener("htmx:after:swap", drawAll);
onThemeChange(() => charts.forEach((chart) => chart.plot.redraw(false)));
// The server doesn't know which tables are open, so a refresh must not close them. htmx is loaded after us.
document.addEventListener("DOMContentLoaded", () => htmx.config.morphIgnore.push("open"));
drawAll();
