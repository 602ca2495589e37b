// What tells the series of a chart apart: a colour of the style sheet, and without colour a dash, a shape or a texture.
// It draws no chart.

const TONES = {
  generating: { dash: [], shape: "circle", texture: "solid" },
  prefilling: { dash: [7, 4], shape: "square", texture: "hatch" },
  cached: { dash: [2, 3], shape: "diamond", texture: "light" },
  waiting: { dash: [9, 3, 2, 3], shape: "triangle", texture: "cross" },
  neutral: { dash: [4, 4], shape: "cross", texture: "outline" },
  one: { dash: [], shape: "circle", texture: "solid" },
  two: { dash: [7, 4], shape: "square", texture: "hatch" },
  three: { dash: [2, 3], shape: "triangle", texture: "cross" },
  four: { dash: [9, 3, 2, 3], shape: "diamond", texture: "light" },
};
const TILE_PX = 7;

// Custom properties come unresolved from a style; a colour that is in use does not.
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

const colours = new Map();
const fills = new Map();

export const toneOf = (series) => TONES[series.tone];

export const colour = (name) => {
  if (!colours.has(name)) {
    probe.style.color = `var(--${name})`;
    colours.set(name, getComputedStyle(probe).color);
  }
  return colours.get(name);
};

export const toneColour = (series) => colour(`c-${series.tone}`);

/** What the area of a bar is filled with. */
export const toneFill = (series) => {
  const key = `${series.tone} ${devicePixelRatio}`;
  if (!fills.has(key)) fills.set(key, fillOf(toneOf(series).texture, toneColour(series)));
  return fills.get(key);
};

const withAlpha = (rgb, alpha) => rgb.replace(/^rgb\((.*)\)$/, (_, channels) => `rgba(${channels}, ${alpha})`);

/** Points of a crowd lie above one another: where many are, it is darker. */
export const pointColour = (series, inCrowd) => withAlpha(toneColour(series), inCrowd ? 0.4 : 1);

const fillOf = (texture, rgb) => {
  if (texture === "solid") return withAlpha(rgb, 0.82);
  if (texture === "light") return withAlpha(rgb, 0.3);
  if (texture === "outline") return "transparent";
  const size = Math.round(TILE_PX * devicePixelRatio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const context = tile.getContext("2d");
  context.fillStyle = withAlpha(rgb, 0.16);
  context.fillRect(0, 0, size, size);
  context.strokeStyle = rgb;
  context.lineWidth = devicePixelRatio * 1.2;
  // Three lines, so that the tile goes on where the next begins.
  for (const shift of [-size, 0, size]) {
    line(context, shift, size, shift + size, 0);
    if (texture === "cross") line(context, shift, 0, shift + size, size);
  }
  return context.createPattern(tile, "repeat");
};

const line = (context, x0, y0, x1, y1) => {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
};

/** `changed` is called when the colours of the page are others. */
export const onThemeChange = (changed) => {
  const forget = () => {
    colours.clear();
    fills.clear();
    changed();
  };
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", forget);
  }
  new MutationObserver(forget).observe(document.documentElement, { attributeFilter: ["data-theme"] });
};
