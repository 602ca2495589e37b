// The paths of bars and of points; lines are uPlot's own. It knows no colours.
/* global uPlot */
import { toneOf } from "./chart_tones.js";

// Of the room of one category: the rest is the gap to the next.
const BARS_SHARE = 0.7;
const WIDEST_BAR_PX = 56;
const CROWD_RADIUS_PX = 2;
const LONE_RADIUS_PX = 3.5;
const FEWEST_IN_A_LINE = 4;
// Fewer don't lie above one another: each is drawn as large as a lone value, and in its full colour.
const CROWD = 60;

/** The least distance of two neighbours on the x axis: the room of one bar, or of one group. */
export const pitch = (data) => {
  if (data.xKind === "category" || data.x.length < 2) return data.xKind === "time" ? 3600 : 1;
  let least = Infinity;
  for (let at = 1; at < data.x.length; at += 1) least = Math.min(least, data.x[at] - data.x[at - 1]);
  return least > 0 ? least : 1;
};

/** The values as they are drawn: stacked ones stand on those before them. */
export const drawn = (data) => {
  if (!data.stacked) return data.series.map((series) => series.values);
  const heights = data.x.map(() => 0);
  return data.series.map((series) =>
    series.values.map((value, at) => (value === null ? null : (heights[at] += value))),
  );
};

const bars = (holder, number) => (u, seriesIdx) => {
  const data = holder.data;
  const path = new Path2D();
  const groups = data.series.map((each, at) => (each.draw === "bars" ? at : -1)).filter((at) => at >= 0);
  const count = data.stacked ? 1 : groups.length;
  const step = pitch(data);
  const room = (u.valToPos(data.x[0] + step, "x", true) - u.valToPos(data.x[0], "x", true)) * BARS_SHARE;
  const group = Math.max(count, Math.min(room, WIDEST_BAR_PX * devicePixelRatio * count));
  const gap = count > 1 ? devicePixelRatio * 2 : 0;
  const width = Math.max(1, group / count - gap);
  const values = u.data[seriesIdx];
  const floor = u.valToPos(0, "y", true);
  for (let at = 0; at < values.length; at += 1) {
    if (values[at] === null) continue;
    const own = data.series[number].values[at];
    const bottom = data.stacked ? u.valToPos(values[at] - own, "y", true) : floor;
    const top = u.valToPos(values[at], "y", true);
    // Those that are there stand together above their label, whatever is missing.
    const beside = data.stacked ? [number] : groups.filter((each) => data.series[each].values[at] !== null);
    const shift = (beside.indexOf(number) - beside.length / 2) * (group / count);
    const left = u.valToPos(data.x[at], "x", true) + shift + gap / 2;
    path.rect(left, top, width, Math.max(0, bottom - top));
  }
  return { stroke: path, fill: path };
};

const SHAPES = {
  circle: (path, x, y, r) => path.arc(x, y, r, 0, 2 * Math.PI),
  square: (path, x, y, r) => path.rect(x - r, y - r, 2 * r, 2 * r),
  diamond: (path, x, y, r) => corners(path, [x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]),
  triangle: (path, x, y, r) => corners(path, [x, y - 1.2 * r], [x + 1.2 * r, y + r], [x - 1.2 * r, y + r]),
  cross: (path, x, y, r) => {
    corners(path, [x - r, y - r], [x + r, y + r]);
    corners(path, [x - r, y + r], [x + r, y - r]);
  },
};

const corners = (path, first, ...others) => {
  path.moveTo(...first);
  others.forEach((corner) => path.lineTo(...corner));
  path.closePath();
};

export const isCrowd = (data) => data.x.length >= CROWD;

const points = (holder, number) => (u, seriesIdx) => {
  const path = new Path2D();
  const radius = (isCrowd(holder.data) ? CROWD_RADIUS_PX : LONE_RADIUS_PX) * devicePixelRatio;
  const draw = SHAPES[toneOf(holder.data.series[number]).shape];
  u.data[seriesIdx].forEach((value, at) => {
    if (value === null) return;
    const x = u.valToPos(u.data[0][at], "x", true);
    const y = u.valToPos(value, "y", true);
    path.moveTo(x + radius, y);
    draw(path, x, y, radius);
  });
  return { stroke: path, fill: path };
};

/** Where values with few neighbours are: a line needs two, and one of two or three is a dash that nobody sees. */
export const lonely = (values) => {
  const found = [];
  let run = [];
  [...values, null].forEach((value, at) => {
    if (value !== null) return run.push(at);
    if (run.length < FEWEST_IN_A_LINE) found.push(...run);
    run = [];
  });
  return found;
};

export const lonePoints = (u, series, seriesIdx) => {
  const path = new Path2D();
  const radius = LONE_RADIUS_PX * devicePixelRatio;
  for (const at of lonely(u.data[seriesIdx])) {
    const x = u.valToPos(u.data[0][at], "x", true);
    const y = u.valToPos(u.data[seriesIdx][at], "y", true);
    path.moveTo(x + radius, y);
    SHAPES[toneOf(series).shape](path, x, y, radius);
  }
  return path;
};

/** `holder.data` is looked up at each drawing: new data need no new paths. */
export const pathsOf = (holder, number) => {
  const { draw } = holder.data.series[number];
  if (draw === "bars") return bars(holder, number);
  return draw === "points" ? points(holder, number) : uPlot.paths.linear();
};
