/** Draws the map: racks as bars from afar, a texel for each GPU in between, cells with parts, marks and names from near. */

import { jobOf, toneOf } from "./map-kinds.js";
import { FREE, GPU_COLUMNS, IN_PARTS, NODE_WIDE, STATES, placeOf } from "./map-layout.js";
import { heldBy } from "./map-words.js";

/** @typedef {import("./map-layout.js").World} World */
/** @typedef {import("./map-layout.js").Layout} Layout */
/** @typedef {import("./map-kinds.js").Kinds} Kinds */
/** @typedef {number[]} Colour Red, green and blue. */
/** @typedef {{scale: number, x: number, y: number, ratio: number}} View `scale`: device pixels of a unit. */

/**
 * @typedef {object} Paint How GPUs look.
 * @property {Kinds} kinds
 * @property {Record<string, Colour>} colours
 * @property {string} only The kind that is seen alone; "": all are.
 * @property {import("./map-words.js").Found | null} found The job that is lit up: what is not of it is dimmed.
 */

const CELLS_FROM = 9;
const TEXELS_FROM = 1;
const NAMES_FROM = 18;
/** Pixels of a GPU from which on islands are outlined. */
const ISLANDS_FROM = 4;
const SHADE = 14;
/** What is left of a colour that is dimmed. */
const DIMMED = 0.22;
const NAMED = [
  ...["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "other", "held", "leaving", "promised", "reserved", "free", "parts", "rest"],
  ...["suspect", "closed", "ill", "rack", "edge", "ink", "soft", "page", "focus"],
];

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

/** @param {Colour} colour @param {Colour} ground */
function dimmed(colour, ground) {
  return colour.map((value, i) => Math.round(value * DIMMED + ground[i] * (1 - DIMMED)));
}

/** Jobs of one colour that lie beside each other differ. @param {number} job */
function shadeOf(job) {
  return job >= 0 ? (job % 3) - 1 : 0;
}

/**
 * @param {World} world @param {Paint} paint @param {string} kind @param {number} shade @param {boolean} isLit
 * @returns {Colour}
 */
function colourOf(world, paint, kind, shade, isLit) {
  if (paint.only && paint.only !== kind) return paint.colours.rack;
  const job = jobOf(kind);
  const own = job >= 0 ? toneOf(world.jobs.name[job]) : paint.colours[kind];
  const colour = /^c\d|^held/.test(kind) ? shaded(own, shade * SHADE) : own;
  return isLit ? colour : dimmed(colour, paint.colours.rack);
}

/** The colour that a job has among jobs, as the style sheet takes it. @param {World} world @param {Paint} paint @param {number} job */
export function toneOfJob(world, paint, job) {
  return css(colourOf(world, { ...paint, only: "" }, `j${job}`, 0, true));
}

/** Whether a GPU is of the job that is lit up, or none is. @param {World} world @param {Paint} paint @param {number} gpu */
function isLit(world, { found }, gpu) {
  return !found || world.keeper[gpu] === found.job || heldBy(world, gpu, found.job) > 0;
}

/** @param {World} world @param {Paint} paint @param {number} gpu */
function colourOfGpu(world, paint, gpu) {
  return colourOf(world, paint, paint.kinds.ofGpu[gpu], shadeOf(world.held[gpu]), isLit(world, paint, gpu));
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
    const [kind, shade, lit] = [paint.kinds.ofGpu[gpu], shadeOf(world.held[gpu]), isLit(world, paint, gpu)];
    const key = `${kind} ${shade} ${lit}`;
    let value = known.get(key);
    if (value === undefined) known.set(key, (value = word(colourOf(world, paint, kind, shade, lit))));
    const [x, y] = placeOf(world, layout, gpu);
    texels[y * canvas.width + x] = value;
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
    context.fillStyle = css(colourOfGpu(world, paint, gpu));
    context.fillRect(...placeOf(world, layout, gpu), 1, 1);
  }
}

/**
 * One frame.
 * @param {CanvasRenderingContext2D} context
 * @param {{world: World, layout: Layout, paint: Paint, view: View, texels: OffscreenCanvas, shares: [string, number][][], cursor: number, pointed: number}} scene
 * `cursor`: a rack, `pointed`: a GPU, -1: none.
 */
export function draw(context, scene) {
  const { view, paint, layout, texels } = scene;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = css(paint.colours.page);
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  context.setTransform(view.scale, 0, 0, view.scale, -view.x * view.scale, -view.y * view.scale);
  const size = view.scale / view.ratio;
  const racks = racksInSight(context, scene);
  // Of thousands of jobs bars would be thousands of slivers.
  if (size < TEXELS_FROM && paint.kinds.choice !== "job") {
    for (const rack of racks) drawBars(context, scene, rack);
  } else if (size < CELLS_FROM) {
    context.imageSmoothingEnabled = false;
    context.drawImage(texels, 0, 0);
  } else {
    for (const rack of racks) drawCells(context, scene, rack, size);
  }
  if (size >= ISLANDS_FROM) for (const rack of racks) drawIslands(context, scene, rack);
  drawNames(context, scene);
  if (paint.found) for (const rack of paint.found.racks.keys()) outline(context, scene, rack, "ink", 1.5);
  if (scene.cursor >= 0) outline(context, scene, scene.cursor, "focus", 2.5);
  if (scene.pointed >= 0) {
    for (const [colour, pixels] of /** @type {const} */ ([["page", 6], ["focus", 3]])) {
      context.strokeStyle = css(paint.colours[colour]);
      context.lineWidth = (pixels * view.ratio) / view.scale;
      context.strokeRect(...placeOf(scene.world, layout, scene.pointed), 1, 1);
    }
  }
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene @param {number} rack @param {string} colour @param {number} pixels */
function outline(context, { layout, paint, view }, rack, colour, pixels) {
  context.strokeStyle = css(paint.colours[colour]);
  context.lineWidth = (pixels * view.ratio) / view.scale;
  context.strokeRect(layout.rackX[rack] - 1, layout.rackY[rack] - 1, layout.rackWide[rack] + 2, layout.rackTall[rack] + 2);
}

/** A line around the nodes of each island. @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene @param {number} rack */
function drawIslands(context, { world, layout, paint, view }, rack) {
  const nodes = world.nodesOf[rack];
  const [across, high, inset, above] = [layout.across[rack], layout.nodeTall[rack], 0.1, 0.22];
  context.strokeStyle = css(paint.colours.edge);
  context.lineWidth = (1.25 * view.ratio) / view.scale;
  context.beginPath();
  nodes.forEach((n, i) => {
    const island = world.nodeIsland[n];
    if (island === FREE) return;
    const isSame = (/** @type {number} */ j) => j >= 0 && j < nodes.length && world.nodeIsland[nodes[j]] === island;
    const column = i % across;
    const [hasLeft, hasRight] = [column > 0 && isSame(i - 1), column < across - 1 && isSame(i + 1)];
    const [hasAbove, hasBelow] = [isSame(i - across), isSame(i + across)];
    const left = layout.nodeX[n] - 0.5 + (hasLeft ? 0 : inset);
    const right = layout.nodeX[n] - 0.5 + NODE_WIDE - (hasRight ? 0 : inset);
    // Below it there is the node's name.
    const top = layout.nodeY[n] - above + (hasAbove ? 0 : inset / 2);
    const bottom = layout.nodeY[n] - above + high - (hasBelow ? 0 : inset / 2);
    for (const [isOpen, fromX, fromY, toX, toY] of /** @type {const} */ ([
      [hasLeft, left, top, left, bottom],
      [hasRight, right, top, right, bottom],
      [hasAbove, left, top, right, top],
      [hasBelow, left, bottom, right, bottom],
    ])) {
      if (isOpen) continue;
      context.moveTo(fromX, fromY);
      context.lineTo(toX, toY);
    }
  });
  context.stroke();
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
function drawBars(context, { world, layout, paint, shares }, rack) {
  const [x, wide, tall] = [layout.rackX[rack], layout.rackWide[rack], layout.rackTall[rack]];
  let at = layout.rackY[rack];
  for (const [kind, share] of shares[rack]) {
    context.fillStyle = css(colourOf(world, paint, kind, 0, !paint.found));
    context.fillRect(x, at, wide, share * tall);
    at += share * tall;
  }
  const found = paint.found?.racks.get(rack);
  if (!found || !paint.found) return;
  const gpus = world.nodesOf[rack].reduce((sum, n) => sum + world.first[n + 1] - world.first[n], 0);
  context.fillStyle = css(paint.colours.ink);
  context.fillRect(x, layout.rackY[rack], wide, (found / gpus / 1000) * tall);
}

/** @param {CanvasRenderingContext2D} context @param {Parameters<typeof draw>[1]} scene @param {number} rack @param {number} size */
function drawCells(context, { world, layout, paint }, rack, size) {
  const gap = 1 / size;
  context.fillStyle = css(paint.colours.rack);
  context.fillRect(layout.rackX[rack], layout.rackY[rack], layout.rackWide[rack], layout.rackTall[rack]);
  for (const n of world.nodesOf[rack]) {
    for (let gpu = world.first[n]; gpu < world.first[n + 1]; gpu++) {
      const [x, y] = placeOf(world, layout, gpu);
      drawCell(context, world, paint, gpu, x + gap / 2, y + gap / 2, gap);
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
  const parts = world.held[gpu] === IN_PARTS ? (world.parts.get(gpu) ?? []) : [];
  context.fillStyle = css(
    parts.length ? colourOf(world, paint, paint.kinds.ofRest(gpu), 0, isLit(world, paint, gpu)) : colourOfGpu(world, paint, gpu),
  );
  context.fillRect(x, y, side, side);
  for (const part of parts) {
    const lit = !paint.found || paint.found.job === part.job;
    context.fillStyle = css(colourOf(world, paint, paint.kinds.ofPart(gpu, part), shadeOf(part.job), lit));
    context.fillRect(x, y + (side * part.start) / 1000, side, Math.max((side * part.size) / 1000 - gap * 0.7, gap));
    // Instances are seen where no job holds them, too.
    context.fillStyle = css(paint.colours.rack);
    context.fillRect(x, y + (side * (part.start + part.size)) / 1000 - gap * 0.7, side, gap * 0.7);
  }
  const leaves = world.leaves[gpu] || parts.some((part) => part.leaves);
  const ink = isLit(world, paint, gpu) ? paint.colours.ink : dimmed(paint.colours.ink, paint.colours.rack);
  if (world.state[gpu] || leaves) drawMarks(context, STATES[world.state[gpu]], Boolean(leaves), x, y, side, ink, paint.colours.page);
  if (world.kept[gpu]) {
    context.strokeStyle = css(ink);
    context.lineWidth = 1.5 * gap;
    context.setLineDash(world.kept[gpu] === 1 ? [3 * gap, 2 * gap] : []);
    context.strokeRect(x + gap, y + gap, side - 2 * gap, side - 2 * gap);
    context.setLineDash([]);
  }
}

/**
 * A line: closed to new jobs; a cross: not well; a dot: suspect; without a corner: what holds it leaves.
 * @param {CanvasRenderingContext2D} context @param {typeof STATES[number]} state @param {boolean} leaves
 * @param {number} x @param {number} y @param {number} side @param {Colour} ink @param {Colour} page
 */
function drawMarks(context, state, leaves, x, y, side, ink, page) {
  const ground = css(page);
  if (leaves) {
    context.fillStyle = ground;
    context.beginPath();
    context.moveTo(x + side * 0.5, y);
    context.lineTo(x + side, y);
    context.lineTo(x + side, y + side * 0.5);
    context.fill();
  }
  if (state === "well") return;
  context.strokeStyle = ground;
  context.fillStyle = css(ink);
  context.lineWidth = side * 0.1;
  context.beginPath();
  if (state === "suspect") {
    context.arc(x + side / 2, y + side / 2, side * 0.17, 0, 2 * Math.PI);
    context.fill();
  } else {
    context.moveTo(x, y + side);
    context.lineTo(x + side, y);
    if (state === "not well") {
      context.moveTo(x, y);
      context.lineTo(x + side, y + side);
    }
  }
  context.stroke();
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
