/** Draws the map: racks as bars from afar, a texel for each GPU in between, cells with parts and names from near. */

import { GPU_COLUMNS, IN_PARTS } from "./map-layout.js";

/** @typedef {import("./map-layout.js").World} World */
/** @typedef {import("./map-layout.js").Layout} Layout */
/** @typedef {number[]} Colour Red, green and blue. */
/** @typedef {{scale: number, x: number, y: number, ratio: number}} View `scale`: device pixels of a unit. */

/**
 * @typedef {object} Paint How GPUs look.
 * @property {string[]} kinds The kind of each GPU, by name of a colour.
 * @property {Int8Array} shade Of each GPU, so that jobs of one kind differ.
 * @property {Record<string, Colour>} colours
 * @property {string} only The kind that is seen alone; "": all are.
 * @property {(job: number) => string} kindOfJob
 */

const CELLS_FROM = 9;
const TEXELS_FROM = 1;
const NAMES_FROM = 18;
const SHADE = 14;
const NAMED = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "other", "free", "closed", "ill", "rack", "ink", "soft", "page", "focus"];

/** The colours of the theme in force, as the style sheet has them. */
export function palette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colours = /** @type {Record<string, Colour>} */ ({});
  for (const name of NAMED) {
    probe.style.color = `var(--${name})`;
    colours[name] = (getComputedStyle(probe).color.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
  }
  probe.remove();
  return colours;
}

/** @param {Colour} colour @param {number} by */
function shaded(colour, by) {
  return colour.map((value) => Math.max(0, Math.min(255, value + by)));
}

/** @param {Colour} colour */
function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

/** @param {Paint} paint @param {string} kind @param {number} shade @returns {Colour} */
function colourOf(paint, kind, shade) {
  if (paint.only && paint.only !== kind) return paint.colours.rack;
  return kind.startsWith("c") && kind !== "closed" ? shaded(paint.colours[kind], shade * SHADE) : paint.colours[kind];
}

/**
 * The whole map, one texel for each GPU.
 * @param {World} world @param {Layout} layout @param {Paint} paint
 */
export function texture(world, layout, paint) {
  const canvas = new OffscreenCanvas(Math.ceil(layout.wide), Math.ceil(layout.tall));
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const texels = new Uint32Array(image.data.buffer);
  const word = (/** @type {Colour} */ [red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const rackWord = word(paint.colours.rack);
  for (let rack = 0; rack < world.racks.length; rack++) {
    for (let y = 0; y < layout.rackTall[rack]; y++) {
      const at = (layout.rackY[rack] + y) * canvas.width + layout.rackX[rack];
      texels.fill(rackWord, at, at + layout.rackWide[rack]);
    }
  }
  /** @type {Map<string, number>} */
  const known = new Map();
  for (let gpu = 0; gpu < world.node.length; gpu++) {
    const key = paint.kinds[gpu] + paint.shade[gpu];
    let value = known.get(key);
    if (value === undefined) known.set(key, (value = word(colourOf(paint, paint.kinds[gpu], paint.shade[gpu]))));
    const n = world.node[gpu];
    const i = gpu - world.first[n];
    texels[(layout.nodeY[n] + Math.floor(i / GPU_COLUMNS)) * canvas.width + layout.nodeX[n] + (i % GPU_COLUMNS)] = value;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * The same, with some GPUs as they are now.
 * @param {OffscreenCanvas} canvas @param {World} world @param {Layout} layout @param {Paint} paint @param {number[]} gpus
 */
export function retouch(canvas, world, layout, paint, gpus) {
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  for (const gpu of gpus) {
    const n = world.node[gpu];
    const i = gpu - world.first[n];
    context.fillStyle = css(colourOf(paint, paint.kinds[gpu], paint.shade[gpu]));
    context.fillRect(layout.nodeX[n] + (i % GPU_COLUMNS), layout.nodeY[n] + Math.floor(i / GPU_COLUMNS), 1, 1);
  }
}

/**
 * One frame.
 * @param {CanvasRenderingContext2D} context
 * @param {{world: World, layout: Layout, paint: Paint, view: View, texels: OffscreenCanvas, shares: [string, number][][], cursor: number}} scene
 */
export function draw(context, scene) {
  const { view, paint, layout, texels } = scene;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = css(paint.colours.page);
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  context.setTransform(view.scale, 0, 0, view.scale, -view.x * view.scale, -view.y * view.scale);
  const size = view.scale / view.ratio;
  const racks = racksInSight(context, scene);
  if (size < TEXELS_FROM) {
    for (const rack of racks) drawBars(context, scene, rack);
  } else if (size < CELLS_FROM) {
    context.imageSmoothingEnabled = false;
    context.drawImage(texels, 0, 0);
  } else {
    for (const rack of racks) drawCells(context, scene, rack, size);
  }
  drawNames(context, scene);
  if (scene.cursor >= 0) {
    context.strokeStyle = css(paint.colours.focus);
    context.lineWidth = (2.5 * view.ratio) / view.scale;
    const [x, y] = [layout.rackX[scene.cursor], layout.rackY[scene.cursor]];
    context.strokeRect(x - 1, y - 1, layout.rackWide[scene.cursor] + 2, layout.rackTall[scene.cursor] + 2);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene */
function racksInSight(context, { world, layout, view }) {
  const [right, bottom] = [view.x + context.canvas.width / view.scale, view.y + context.canvas.height / view.scale];
  const seen = [];
  for (let rack = 0; rack < world.racks.length; rack++) {
    const [x, y] = [layout.rackX[rack], layout.rackY[rack]];
    if (x < right && x + layout.rackWide[rack] > view.x && y < bottom && y + layout.rackTall[rack] > view.y) seen.push(rack);
  }
  return seen;
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene @param {number} rack */
function drawBars(context, { layout, paint, shares }, rack) {
  let at = layout.rackY[rack];
  for (const [kind, share] of shares[rack]) {
    context.fillStyle = css(colourOf(paint, kind, 0));
    context.fillRect(layout.rackX[rack], at, layout.rackWide[rack], share * layout.rackTall[rack]);
    at += share * layout.rackTall[rack];
  }
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene @param {number} rack @param {number} size */
function drawCells(context, { world, layout, paint }, rack, size) {
  const gap = 1 / size;
  context.fillStyle = css(paint.colours.rack);
  context.fillRect(layout.rackX[rack], layout.rackY[rack], layout.rackWide[rack], layout.rackTall[rack]);
  for (const n of world.nodesOf[rack]) {
    for (let gpu = world.first[n]; gpu < world.first[n + 1]; gpu++) {
      const i = gpu - world.first[n];
      const [x, y] = [layout.nodeX[n] + (i % GPU_COLUMNS) + gap / 2, layout.nodeY[n] + Math.floor(i / GPU_COLUMNS) + gap / 2];
      drawCell(context, world, paint, gpu, x, y, gap);
    }
    if (size >= NAMES_FROM) {
      context.fillStyle = css(paint.colours.soft);
      context.font = `${Math.min(0.55, 11 * gap)}px system-ui, sans-serif`;
      context.textBaseline = "top";
      const rows = Math.ceil((world.first[n + 1] - world.first[n]) / GPU_COLUMNS);
      context.fillText(world.nodes[n], layout.nodeX[n], layout.nodeY[n] + rows + gap * 2, GPU_COLUMNS);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} context @param {World} world @param {Paint} paint
 * @param {number} gpu @param {number} x @param {number} y @param {number} gap A pixel.
 */
function drawCell(context, world, paint, gpu, x, y, gap) {
  const side = 1 - gap;
  const kind = paint.kinds[gpu];
  const parts = world.held[gpu] === IN_PARTS && kind !== "ill" && kind !== "closed" ? (world.parts.get(gpu) ?? []) : [];
  context.fillStyle = css(parts.length ? paint.colours.free : colourOf(paint, kind, paint.shade[gpu]));
  context.fillRect(x, y, side, side);
  for (const part of parts) {
    context.fillStyle = css(colourOf(paint, paint.kindOfJob(part.job), (part.job % 3) - 1));
    context.fillRect(x, y + (side * part.start) / 1000, side, Math.max((side * part.size) / 1000 - gap * 0.7, gap));
  }
  if (kind === "closed" || kind === "ill") {
    context.strokeStyle = css(paint.colours.page);
    context.lineWidth = 1.5 * gap;
    context.beginPath();
    context.moveTo(x, y + side);
    context.lineTo(x + side, y);
    if (kind === "ill") {
      context.moveTo(x, y);
      context.lineTo(x + side, y + side);
    }
    context.stroke();
  }
  if (world.kept[gpu]) {
    context.strokeStyle = css(paint.colours.ink);
    context.lineWidth = 1.5 * gap;
    context.setLineDash(world.kept[gpu] === 1 ? [3 * gap, 2 * gap] : []);
    context.strokeRect(x + gap, y + gap, side - 2 * gap, side - 2 * gap);
    context.setLineDash([]);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene */
function drawNames(context, { world, layout, paint, view }) {
  const pixel = view.ratio / view.scale;
  context.font = `${11 * pixel}px system-ui, sans-serif`;
  context.textBaseline = "bottom";
  context.fillStyle = css(paint.colours.soft);
  // Where the letters would reach into the racks, there are none.
  if (11 * pixel > 7) return;
  world.blocks.forEach((name, block) => {
    const { x, y, wide } = layout.blocks[block];
    if (wide / pixel > 40) context.fillText(name, x + 1, y + 4.6, wide - 2);
  });
}
