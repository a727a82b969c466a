/**
 * Where everything lies on the map, in units: a GPU is one wide and one high. Pure: no page is needed to try it.
 *
 * @typedef {object} World What the server sends, unrolled.
 * @property {string} time
 * @property {string[]} blocks
 * @property {string[]} racks
 * @property {number[]} rackBlock The block of each rack.
 * @property {string[]} types
 * @property {string[]} queues
 * @property {number[]} parents The parent of each queue, -1 for none.
 * @property {string[]} priorityClasses
 * @property {string[]} nodes
 * @property {string[]} islands
 * @property {string[]} profiles Of MIG instances.
 * @property {string[]} purposes Why a task leaves, from 1 on.
 * @property {Int32Array} nodeRack
 * @property {Int32Array} nodeIsland Of each node; FREE: none.
 * @property {Int32Array} nodeType
 * @property {Int32Array} first The first GPU of each node, and one more: how many there are.
 * @property {Int32Array} node The node of each GPU.
 * @property {number[][]} nodesOf The nodes of each rack.
 * @property {Int32Array} state Of each GPU, as STATES has them.
 * @property {Int32Array} kept Of each GPU: 0 for no job, 1 reserved, 2 promised.
 * @property {Int32Array} keeper Of each GPU: the job that it is kept for, or FREE.
 * @property {Int32Array} leaves Of each GPU: why what holds it leaves; 0: it stays.
 * @property {Int32Array} held Of each GPU: a job, FREE or IN_PARTS.
 * @property {Map<number, Part[]>} parts By GPU.
 * @property {Jobs} jobs
 * @property {Map<string, number>} numberOf Each job by its name.
 * @property {number[]} unused Numbers of jobs that hold nothing any more, and are kept nothing.
 *
 * @typedef {{start: number, size: number, job: number, profile: number, leaves: number}} Part Start and size are thousandths of a GPU.
 * `job` FREE: an instance that no job holds; `profile` FREE: a share.
 * @typedef {{name: string[], queue: number[], priorityClass: number[], user: string[], since: string[], until: string[], place: string[], waits: Set<number>}} Jobs
 *
 * @typedef {object} Layout
 * @property {number} wide
 * @property {number} tall
 * @property {number[]} rackX
 * @property {number[]} rackY
 * @property {number[]} rackWide
 * @property {number[]} rackTall
 * @property {number[]} across Nodes in a row of each rack.
 * @property {number[]} nodeTall How far rows of nodes are apart in each rack.
 * @property {Int32Array} nodeX
 * @property {Int32Array} nodeY
 * @property {{x: number, y: number, wide: number, tall: number}[]} blocks
 */

export const FREE = -1;
export const IN_PARTS = -2;
/** What each number in `state` stands for. */
export const STATES = /** @type {const} */ (["well", "cordoned", "not well", "suspect", "not ready", "changing"]);
/** Columns with a value for each GPU. */
const OF_GPUS = /** @type {const} */ (["state", "kept", "keeper", "leaves", "held"]);
const OF_JOBS = /** @type {const} */ (["name", "queue", "priorityClass", "user", "since", "until", "place"]);
/** So many numbers are a part. */
const PART = 6;
/** GPUs beside each other in a node. */
export const GPU_COLUMNS = 4;

export const NODE_WIDE = GPU_COLUMNS + 1;
const GAP = 2;
const BLOCK_GAP = 3;
const LABEL = 4;
const NODES_ACROSS_MIN = 4;
const RACKS_ACROSS_MAX = 16;

/**
 * Value, how often, value, how often.
 * @param {number[]} runs
 * @param {number} length
 */
export function unrolled(runs, length) {
  const values = new Int32Array(length);
  for (let run = 0, at = 0; run < runs.length; run += 2) {
    values.fill(runs[run], at, at + runs[run + 1]);
    at += runs[run + 1];
  }
  return values;
}

/**
 * @param {any} columns As the server sends them.
 * @returns {World}
 */
export function read(columns) {
  const many = columns.nodes.length;
  const nodeRack = unrolled(columns.nodeRack, many);
  const counts = unrolled(columns.nodeGpus, many);
  const first = new Int32Array(many + 1);
  for (let n = 0; n < many; n++) first[n + 1] = first[n] + counts[n];
  const gpus = first[many];
  const node = new Int32Array(gpus);
  for (let n = 0; n < many; n++) node.fill(n, first[n], first[n + 1]);
  /** @type {number[][]} */
  const nodesOf = columns.racks.map(() => []);
  nodeRack.forEach((rack, n) => nodesOf[rack].push(n));
  const ofGpus = Object.fromEntries(OF_GPUS.map((column) => [column, unrolled(columns[column], gpus)]));
  return {
    ...columns,
    ...{ nodeRack, nodeIsland: unrolled(columns.nodeIsland, many), nodeType: unrolled(columns.nodeType, many), first, node, nodesOf },
    ...ofGpus,
    parts: partsByGpu(columns.parts),
    jobs: { ...columns.jobs, waits: new Set(columns.jobs.waits) },
    numberOf: new Map(columns.jobs.name.map((/** @type {string} */ name, /** @type {number} */ job) => [name, job])),
    unused: [],
  };
}

/**
 * Brings a map to what a pass left. Returns the jobs that were told of, and whether one that was known has another queue or class.
 * @param {World} world
 * @param {any} change As the server sends it.
 */
export function apply(world, change) {
  const { jobs, numberOf, unused } = world;
  let isOther = false;
  /** @type {number[]} */
  const told = change.jobs.name.map((/** @type {string} */ name, /** @type {number} */ i) => {
    const known = numberOf.get(name);
    const job = known ?? unused.pop() ?? jobs.name.length;
    for (const column of /** @type {const} */ (["queue", "priorityClass"])) {
      if (known !== undefined && jobs[column][job] !== change.jobs[column][i]) isOther = true;
    }
    numberOf.set(name, job);
    for (const column of OF_JOBS) jobs[column][job] = change.jobs[column][i];
    jobs.waits.delete(job);
    return job;
  });
  for (const i of change.jobs.waits) jobs.waits.add(told[i]);
  const named = (/** @type {number} */ i) => (i >= 0 ? told[i] : i);
  change.gpu.forEach((/** @type {number} */ gpu, /** @type {number} */ i) => {
    for (const column of OF_GPUS) world[column][gpu] = change[column][i];
    [world.keeper[gpu], world.held[gpu]] = [named(change.keeper[i]), named(change.held[i])];
    world.parts.delete(gpu);
  });
  for (const [gpu, parts] of partsByGpu(change.parts)) {
    world.parts.set(gpu, parts.map((part) => ({ ...part, job: named(part.job) })));
  }
  for (const name of change.gone) {
    const job = /** @type {number} */ (numberOf.get(name));
    numberOf.delete(name);
    unused.push(job);
    jobs.waits.delete(job);
  }
  world.time = change.time;
  return { told, isOther };
}

/** @param {number[]} flat */
function partsByGpu(flat) {
  /** @type {Map<number, Part[]>} */
  const parts = new Map();
  for (let at = 0; at < flat.length; at += PART) {
    const [gpu, start, size, job, profile, leaves] = flat.slice(at, at + PART);
    const known = parts.get(gpu) ?? [];
    known.push({ start, size, job, profile, leaves });
    parts.set(gpu, known);
  }
  return parts;
}

/**
 * Blocks in rows that fill a picture of this shape, racks in rows within a block, nodes in rows within a rack.
 * @param {World} world
 * @param {number} aspect Wide by tall.
 * @returns {Layout}
 */
export function placed(world, aspect) {
  const shapes = world.nodesOf.map((nodes) => rackShape(world, nodes));
  /** @type {number[][]} */
  const racksOf = world.blocks.map(() => []);
  world.rackBlock.forEach((block, rack) => racksOf[block].push(rack));
  const cells = racksOf.map((racks) => ({
    wide: Math.max(...racks.map((rack) => shapes[rack].wide)) + GAP,
    tall: Math.max(...racks.map((rack) => shapes[rack].tall)) + GAP,
  }));
  const best = bestArrangement(racksOf, cells, aspect);
  const layout = {
    ...{ wide: Math.max(best.wide, 1), tall: Math.max(best.tall, 1) },
    ...{ rackX: /** @type {number[]} */ ([]), rackY: /** @type {number[]} */ ([]) },
    ...{ rackWide: shapes.map((shape) => shape.wide), rackTall: shapes.map((shape) => shape.tall) },
    ...{ across: shapes.map((shape) => shape.across), nodeTall: shapes.map((shape) => shape.nodeTall) },
    ...{ nodeX: new Int32Array(world.nodes.length), nodeY: new Int32Array(world.nodes.length), blocks: best.blocks },
  };
  racksOf.forEach((racks, block) => {
    racks.forEach((rack, i) => {
      layout.rackX[rack] = best.blocks[block].x + 1 + (i % best.across) * cells[block].wide;
      layout.rackY[rack] = best.blocks[block].y + LABEL + 1 + Math.floor(i / best.across) * cells[block].tall;
      world.nodesOf[rack].forEach((n, j) => {
        layout.nodeX[n] = layout.rackX[rack] + (j % shapes[rack].across) * NODE_WIDE;
        layout.nodeY[n] = layout.rackY[rack] + Math.floor(j / shapes[rack].across) * shapes[rack].nodeTall;
      });
    });
  });
  return layout;
}

/**
 * @param {World} world
 * @param {number[]} nodes
 */
function rackShape(world, nodes) {
  const most = Math.max(...nodes.map((n) => world.first[n + 1] - world.first[n]));
  const nodeTall = Math.ceil(most / GPU_COLUMNS) + 1;
  // A rack of a thousand nodes is nearly square; usual ones are four nodes wide.
  const square = Math.ceil(Math.sqrt((nodes.length * nodeTall) / NODE_WIDE / 4));
  const across = Math.min(nodes.length, Math.max(NODES_ACROSS_MIN, square));
  return { across, nodeTall, wide: across * NODE_WIDE - 1, tall: Math.ceil(nodes.length / across) * nodeTall - 1 };
}

/**
 * The numbers of racks and blocks in a row with which GPUs are largest.
 * @param {number[][]} racksOf
 * @param {{wide: number, tall: number}[]} cells
 * @param {number} aspect
 */
function bestArrangement(racksOf, cells, aspect) {
  let best = arranged(racksOf, cells, 1, 1);
  let scale = 0;
  for (let across = 1; across <= RACKS_ACROSS_MAX; across++) {
    for (let inRow = 1; inRow <= racksOf.length; inRow++) {
      const tried = arranged(racksOf, cells, across, inRow);
      const reached = Math.min(aspect / tried.wide, 1 / tried.tall);
      if (reached > scale) [best, scale] = [tried, reached];
    }
  }
  return best;
}

/**
 * @param {number[][]} racksOf
 * @param {{wide: number, tall: number}[]} cells
 * @param {number} across Racks in a row of a block.
 * @param {number} inRow Blocks in a row.
 */
function arranged(racksOf, cells, across, inRow) {
  let x = 0;
  let y = 0;
  let high = 0;
  let widest = 0;
  const blocks = racksOf.map((racks, block) => {
    if (block && block % inRow === 0) [x, y, high] = [0, y + high, 0];
    const wide = Math.min(across, racks.length) * cells[block].wide + BLOCK_GAP;
    const tall = LABEL + 1 + Math.ceil(racks.length / across) * cells[block].tall + BLOCK_GAP;
    const place = { x, y, wide, tall };
    x += wide;
    high = Math.max(high, tall);
    widest = Math.max(widest, x);
    return place;
  });
  return { across, blocks, wide: widest, tall: y + high };
}

/**
 * The GPU at a place, in units; -1: none.
 * @param {World} world
 * @param {Layout} layout
 * @param {number} x
 * @param {number} y
 */
export function gpuAt(world, layout, x, y) {
  for (let rack = 0; rack < world.racks.length; rack++) {
    const [dx, dy] = [x - layout.rackX[rack], y - layout.rackY[rack]];
    if (dx < 0 || dy < 0 || dx > layout.rackWide[rack] || dy > layout.rackTall[rack]) continue;
    for (const n of world.nodesOf[rack]) {
      const [column, row] = [Math.floor(x - layout.nodeX[n]), Math.floor(y - layout.nodeY[n])];
      const gpu = world.first[n] + row * GPU_COLUMNS + column;
      if (column >= 0 && column < GPU_COLUMNS && row >= 0 && gpu < world.first[n + 1]) return gpu;
    }
  }
  return -1;
}

/**
 * Where a GPU lies: its left upper corner.
 * @param {World} world
 * @param {Layout} layout
 * @param {number} gpu
 * @returns {[number, number]}
 */
export function placeOf(world, layout, gpu) {
  const n = world.node[gpu];
  const i = gpu - world.first[n];
  return [layout.nodeX[n] + (i % GPU_COLUMNS), layout.nodeY[n] + Math.floor(i / GPU_COLUMNS)];
}

/**
 * The nearest of some places in a direction; -1: there is none.
 * @param {number[][]} places
 * @param {number[]} from
 * @param {number} right
 * @param {number} down
 */
export function nearest(places, [fromX, fromY], right, down) {
  let [best, least] = [-1, Infinity];
  places.forEach(([placeX, placeY], i) => {
    const [x, y] = [placeX - fromX, placeY - fromY];
    const [along, aside] = [x * right + y * down, Math.abs(x * down) + Math.abs(y * right)];
    if (along > 0 && along + 3 * aside < least) [best, least] = [i, along + 3 * aside];
  });
  return best;
}
