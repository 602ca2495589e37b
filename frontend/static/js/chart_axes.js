// Axes and the words on them: numbers with as many digits as they deserve, times in the viewer's zone.
// It draws no series.
/* global uPlot */
import { colour } from "./chart_tones.js";
import { pitch } from "./chart_paths.js";

const FONT_PX = 12;
const DAY_S = 86400;
// Between two words on an axis of days: never a part of one.
const DAYS_BETWEEN = [1, 2, 3, 4, 5, 7, 10, 14, 28, 56, 91, 182, 365];
const TICK_PX = 4;
const LABEL_GAP_PX = 8;
const ROW_PX = 44;

const two = (n) => String(n).padStart(2, "0");

export const dateIn = (zone) => (seconds) => {
  const date = new Date(seconds * 1000);
  return zone === null ? date : uPlot.tzDate(date, zone);
};

const day = (date) => `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;

/** Years and months when ticks are so far apart; a day at midnight; else the time of day. */
const tickOfTime = (date, step_s) => {
  if (step_s >= 28 * DAY_S) return `${date.getFullYear()}-${two(date.getMonth() + 1)}`;
  return step_s >= DAY_S || clock(date) === "00:00" ? day(date) : clock(date);
};

/** The same number of digits for all values of a chart, so that columns stand still. */
export const digitsFor = (greatest) => (greatest >= 1000 ? 0 : greatest >= 20 ? 1 : greatest >= 1 ? 2 : 3);

export const number = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** What stands at `at` on the x axis, in full. */
export const nameOfX = (data, at) => {
  if (data.xKind === "category") return data.categories[at];
  if (data.xKind === "number") return number(data.x[at], 0);
  const date = dateIn(data.zone)(data.x[at]);
  return data.byDay ? `${date.getFullYear()}-${day(date)}` : `${date.getFullYear()}-${day(date)} ${clock(date)}`;
};

/** From the first to the last x, with room for half a bar; a single point stands in the middle. */
export const rangeOfX = (data) => {
  const hasBars = data.series.some((series) => series.draw === "bars");
  const [first, last] = data.xRange ?? [data.x[0], data.x[data.x.length - 1]];
  const half = hasBars ? pitch(data) / 2 : 0;
  if (data.xKind === "number") return [0, Math.max(last * 1.03, 1)];
  if (last > first) return [first - half, last + half];
  const alone = Math.max(half, data.byDay ? DAY_S / 2 : data.xKind === "time" ? 1800 : 0.5);
  return [first - alone, last + alone];
};

const STEPS = [1, 2, 2.5, 5, 10];

/** The least round step of which `count` reach `greatest`: 1, 2, 2.5 or 5 times a power of ten. */
const stepFor = (greatest, count) => {
  const power = 10 ** Math.floor(Math.log10(greatest / count));
  // A hair less, so that 0.3 / 3 is not above 0.1.
  return power * STEPS.find((step) => step * power * count >= greatest * (1 - 1e-9));
};

/**
 * Ticks from zero (half a chart must not look like a fall to nothing) to the first that nothing rises above: two steps
 * at least, and as many as have room in `height` px.
 */
export const ticksOfY = (greatest, height) => {
  if (!(greatest > 0)) return [0, 1];
  const count = Math.max(2, Math.floor(height / ROW_PX));
  const step = stepFor(greatest, count);
  const used = Math.max(2, Math.ceil((greatest / step) * (1 - 1e-9)));
  return Array.from({ length: used + 1 }, (_, at) => at * step);
};

/** Decimals with which all multiples of `step` are written as what they are: 2.5 has one, 0.025 three. */
export const digitsOfStep = (step) => {
  let digits = Math.max(0, -Math.floor(Math.log10(step)));
  if (Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
  return digits;
};

const widthOf = (u, texts) => {
  u.ctx.font = u.axes[1].font[0];
  return Math.max(0, ...texts.map((text) => u.ctx.measureText(text).width / devicePixelRatio));
};

/** Categories that have room beside one another: every one, every second, every third, …, and the last: it is today. */
const categorySplits = (holder) => (u) => {
  const { categories } = holder.data;
  const room = u.bbox.width / devicePixelRatio / categories.length;
  const step = Math.max(1, Math.ceil((widthOf(u, categories) + LABEL_GAP_PX) / Math.max(room, 1)));
  return categories.map((_, at) => at).filter((at) => (categories.length - 1 - at) % step === 0);
};

export const axesFor = (holder, family) => {
  const calm = {
    font: `${FONT_PX}px ${family}`,
    stroke: () => colour("muted"),
    ticks: { stroke: () => colour("c-axis"), width: 1, size: TICK_PX },
    border: { show: true, stroke: () => colour("c-axis"), width: 1 },
    gap: 4,
  };
  const { xKind } = holder.data;
  const x = { ...calm, grid: { show: false }, size: 28, space: xKind === "time" ? 64 : 72 };
  if (xKind === "category") {
    x.splits = categorySplits(holder);
    x.values = (u, splits) => splits.map((at) => holder.data.categories[at] ?? "");
  } else if (xKind === "number") {
    x.values = (u, splits) => splits.map((value) => number(value, 0));
  } else {
    if (holder.data.byDay) x.incrs = DAYS_BETWEEN.map((days) => days * DAY_S);
    x.values = (u, splits, axis, space, step_s) =>
      splits.map((at) => tickOfTime(dateIn(holder.data.zone)(at), step_s));
  }
  const y = {
    ...calm,
    border: { show: false },
    ticks: { show: false },
    grid: { stroke: () => colour("c-grid"), width: 1 },
    splits: () => holder.ticks,
    size: (u, values) => (values === null ? 40 : Math.ceil(widthOf(u, values)) + 12),
    values: (u, splits) => splits.map((value) => number(value, digitsOfStep(splits[1]))),
  };
  return [x, y];
};
