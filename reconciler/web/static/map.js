/** The map on its page: what is sent is fetched, coloured and drawn; pointer and keys move the view. Names come in as text alone. */

import { isResting, listen } from "./live.js";
import { FREE, IN_PARTS, apply, gpuAt, placed, read } from "./map-layout.js";
import { draw, palette, retouch, texture } from "./map-paint.js";

const AGAIN_MS = 10_000;
const COLOURS = 8;

/** @template {HTMLElement} T @param {string} id @returns {T} */
const get = (id) => /** @type {T} */ (document.getElementById(id));
const canvas = /** @type {HTMLCanvasElement} */ (get("map"));
const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
const choice = /** @type {HTMLSelectElement} */ (get("colour-by"));
const [tip, said, legend, asOf] = [get("tip"), get("said"), get("legend"), get("as-of")];
const figure = new Intl.NumberFormat("en").format;

const view = { scale: 1, x: 0, y: 0, ratio: 1 };
const paint = {
  kinds: /** @type {string[]} */ ([]),
  shade: new Int8Array(),
  colours: palette(),
  only: "",
  kindOfJob: (/** @type {number} */ job) => kindOfJob[job],
};
/** @type {import("./map-layout.js").World} */
let world;
/** @type {import("./map-layout.js").Layout} */
let layout;
/** @type {OffscreenCanvas} */
let texels;
/** @type {[string, number][][]} */
let shares = [];
/** @type {string[]} */
let kindOfJob = [];
/** @type {(job: number) => string} */
let ofJob;
/** @type {Map<string, string>} */
let names;
/** @type {Map<string, number>} Thousandths of GPUs, by kind. */
let counts;
/** @type {Map<string, number>[]} The same of each rack. */
let perRack = [];
let tag = "";
let cursor = -1;
let isDue = false;
let fits = true;
/** The tip stays where it was clicked for, with a link in it. */
let pinned = false;
/** Pixels that a press has moved by. */
let dragged = 0;

// Colours.

/** Names of the kinds that a choice tells apart, and the kind of a job. */
function kindsOf() {
  const { jobs } = world;
  if (choice.value === "class") return byColumn(world.priorityClasses, jobs.priorityClass, "no class");
  if (choice.value === "queue") return byQueue();
  return { names: new Map([["c0", "held"]]), ofJob: () => "c0" };
}

/** @param {string[]} names @param {number[]} column @param {string} unnamed */
function byColumn(names, column, unnamed) {
  const shown = names.slice(0, COLOURS).map((name, i) => /** @type {[string, string]} */ ([`c${i}`, name || unnamed]));
  return { names: new Map(shown), ofJob: (/** @type {number} */ job) => (column[job] < COLOURS ? `c${column[job]}` : "other") };
}

/** Colours are for the deepest level for which there are enough; queues below one have its colour. */
function byQueue() {
  const depth = world.parents.map((parent) => {
    let steps = 0;
    for (let above = parent; above >= 0; above = world.parents[above]) steps++;
    return steps;
  });
  let level = 0;
  for (let deeper = 1; deeper <= Math.max(0, ...depth); deeper++) {
    if (depth.filter((each) => each === deeper).length <= COLOURS) level = deeper;
    else break;
  }
  const shown = world.queues.map((_, queue) => queue).filter((queue) => depth[queue] === level);
  const kinds = world.queues.map((_, queue) => {
    let above = queue;
    while (depth[above] > level) above = world.parents[above];
    const at = shown.indexOf(above);
    return at >= 0 && at < COLOURS ? `c${at}` : "other";
  });
  const names = shown.slice(0, COLOURS).map((queue, i) => /** @type {[string, string]} */ ([`c${i}`, world.queues[queue]]));
  return { names: new Map(names), ofJob: (/** @type {number} */ job) => kinds[world.jobs.queue[job]] ?? "other" };
}

/** All of it anew. */
function colour() {
  ({ names, ofJob } = kindsOf());
  for (const [kind, name] of [["other", "other"], ["free", "free"], ["closed", "closed to new jobs"], ["ill", "not well"]]) names.set(kind, name);
  kindOfJob = world.jobs.name.map((_, job) => ofJob(job));
  const gpus = world.node.length;
  paint.kinds = new Array(gpus);
  paint.shade = new Int8Array(gpus);
  counts = new Map();
  perRack = world.racks.map(() => new Map());
  for (let gpu = 0; gpu < gpus; gpu++) colourGpu(gpu);
  shares = perRack.map(sharesOf);
  tell(names, counts);
  texels = texture(world, layout, paint);
  canvas.dataset.coloured = String(gpus);
}

/** What a pass changed. @param {any} change */
function recolour(change) {
  for (const gpu of change.gpu) count(gpu, -1);
  const { told, isOther } = apply(world, change);
  if (isOther) return colour();
  for (const job of told) kindOfJob[job] = ofJob(job);
  for (const gpu of change.gpu) colourGpu(gpu);
  for (const rack of new Set(change.gpu.map((/** @type {number} */ gpu) => world.nodeRack[world.node[gpu]]))) {
    shares[rack] = sharesOf(perRack[rack]);
  }
  tell(names, counts);
  retouch(texels, world, layout, paint, change.gpu);
  canvas.dataset.coloured = String(change.gpu.length);
}

/** @param {number} gpu */
function colourGpu(gpu) {
  paint.kinds[gpu] = kindOf(gpu);
  paint.shade[gpu] = world.held[gpu] >= 0 ? (world.held[gpu] % 3) - 1 : 0;
  count(gpu, 1);
}

/** Add what a GPU is in its colours, or take it away. @param {number} gpu @param {1 | -1} sign */
function count(gpu, sign) {
  const own = perRack[world.nodeRack[world.node[gpu]]];
  const add = (/** @type {string} */ kind, /** @type {number} */ size) => {
    for (const sums of [own, counts]) {
      const sum = (sums.get(kind) ?? 0) + sign * size;
      if (sum) sums.set(kind, sum);
      else sums.delete(kind);
    }
  };
  const kind = paint.kinds[gpu];
  if (world.held[gpu] !== IN_PARTS || kind === "closed" || kind === "ill") return add(kind, 1000);
  let left = 1000;
  for (const part of world.parts.get(gpu) ?? []) {
    add(kindOfJob[part.job], part.size);
    left -= part.size;
  }
  if (left) add("free", left);
}

/** @param {Map<string, number>} own @returns {[string, number][]} */
function sharesOf(own) {
  const all = [...own.values()].reduce((sum, size) => sum + size, 0);
  return [...own].sort().map(([kind, size]) => [kind, size / all]);
}

/** What is not held is free, or unusable; what a job holds has its colour, on a closed node too. @param {number} gpu */
function kindOf(gpu) {
  if (world.state[gpu] === 2) return "ill";
  const job = world.held[gpu];
  if (job === IN_PARTS) return kindOfJob[(world.parts.get(gpu) ?? [])[0]?.job] ?? "free";
  if (job !== FREE) return choice.value === "type" ? typeKind(gpu) : kindOfJob[job];
  return world.state[gpu] === 1 ? "closed" : "free";
}

/** @param {number} gpu */
function typeKind(gpu) {
  const type = world.nodeType[world.node[gpu]];
  return type < COLOURS ? `c${type}` : "other";
}

/**
 * The legend. Its buttons stay, so that whoever is on one stays there.
 * @param {Map<string, string>} names @param {Map<string, number>} counts
 */
function tell(names, counts) {
  if (choice.value === "type") world.types.slice(0, COLOURS).forEach((type, i) => names.set(`c${i}`, type));
  const wanted = [...names].filter(([kind]) => counts.has(kind));
  const there = [...legend.querySelectorAll("button")];
  if (there.map((button) => button.dataset.kind).join() !== wanted.map(([kind]) => kind).join()) {
    legend.replaceChildren(...wanted.map(([kind]) => legendItem(kind)));
  }
  for (const [kind, name] of wanted) {
    const button = /** @type {HTMLElement} */ (legend.querySelector(`button[data-kind="${kind}"]`));
    button.setAttribute("aria-pressed", String(paint.only === kind));
    /** @type {HTMLElement} */ (button.querySelector(".name")).textContent = name;
    /** @type {HTMLElement} */ (button.querySelector("small")).textContent = figure(Math.round(counts.get(kind) ?? 0) / 1000);
  }
}

/** @param {string} kind */
function legendItem(kind) {
  const [item, button, key] = [document.createElement("li"), document.createElement("button"), document.createElement("span")];
  const [name, many] = [document.createElement("span"), document.createElement("small")];
  button.dataset.kind = kind;
  key.className = `key k-${kind}`;
  name.className = "name";
  button.append(key, name, many);
  button.addEventListener("click", () => {
    paint.only = paint.only === kind ? "" : kind;
    colour();
    show();
  });
  item.append(button);
  return item;
}

// The view.

function show() {
  if (isDue || !layout) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw(context, { world, layout, paint, view, texels, shares, cursor });
    canvas.dataset.drawn = tag;
  });
}

function fit() {
  view.scale = Math.min(canvas.width / layout.wide, canvas.height / layout.tall);
  view.x = (layout.wide - canvas.width / view.scale) / 2;
  view.y = (layout.tall - canvas.height / view.scale) / 2;
  fits = true;
  history.replaceState(null, "", location.pathname);
  show();
}

/** @param {number} factor @param {number} x @param {number} y Device pixels of the place that stays where it is. */
function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const scale = Math.max(0.2, Math.min(90 * view.ratio, view.scale * factor));
  view.x += x / view.scale - x / scale;
  view.y += y / view.scale - y / scale;
  view.scale = scale;
  fits = false;
  show();
}

function resize() {
  view.ratio = devicePixelRatio;
  canvas.width = Math.round(canvas.clientWidth * view.ratio);
  canvas.height = Math.round(canvas.clientHeight * view.ratio);
  if (!world) return;
  if (fits) {
    layout = placed(world, canvas.width / canvas.height);
    texels = texture(world, layout, paint);
    fit();
  }
  show();
}

/** A rack as large as the picture, and in the address, so that it can be sent. @param {number} rack */
function enter(rack) {
  view.scale = Math.min(canvas.width / (layout.rackWide[rack] + 4), canvas.height / (layout.rackTall[rack] + 4));
  view.x = layout.rackX[rack] + layout.rackWide[rack] / 2 - canvas.width / view.scale / 2;
  view.y = layout.rackY[rack] + layout.rackTall[rack] / 2 - canvas.height / view.scale / 2;
  fits = false;
  history.replaceState(null, "", `#rack=${encodeURIComponent(world.racks[rack])}`);
  point(rack);
}

/** @param {number} rack */
function point(rack) {
  cursor = rack;
  let [held, free, unusable] = [0, 0, 0];
  for (const [kind, share] of shares[rack]) {
    if (kind === "free") free += share;
    else if (kind === "closed" || kind === "ill") unusable += share;
    else held += share;
  }
  const gpus = world.nodesOf[rack].reduce((sum, n) => sum + world.first[n + 1] - world.first[n], 0);
  const [of, block] = [(/** @type {number} */ share) => figure(Math.round(share * gpus * 1000) / 1000), world.blocks[world.rackBlock[rack]]];
  said.textContent = `Rack ${world.racks[rack]} of ${block}: ${figure(gpus)} GPUs, ${of(held)} held, ${of(free)} free, ${of(unusable)} not usable. `;
  said.append(linkTo(`/nodes?rack=${encodeURIComponent(label(rack))}`, "Its nodes"));
  show();
}

/** A rack as the list of nodes names it. @param {number} rack */
function label(rack) {
  const block = world.blocks[world.rackBlock[rack]];
  return block === "no block" ? world.racks[rack] : `${block} / ${world.racks[rack]}`;
}

/** @param {string} place @param {string} text */
function linkTo(place, text) {
  const link = document.createElement("a");
  link.href = place;
  link.textContent = text;
  return link;
}

/** To the nearest rack in a direction. @param {number} right @param {number} down */
function step(right, down) {
  if (cursor < 0) return point(0);
  let [best, least] = [-1, Infinity];
  for (let rack = 0; rack < world.racks.length; rack++) {
    const [x, y] = [layout.rackX[rack] - layout.rackX[cursor], layout.rackY[rack] - layout.rackY[cursor]];
    const [along, aside] = [x * right + y * down, Math.abs(x * down) + Math.abs(y * right)];
    if (along > 0 && along + 3 * aside < least) [best, least] = [rack, along + 3 * aside];
  }
  if (best >= 0) point(best);
}

/** What there is to say of a GPU. @param {number} gpu */
function about(gpu) {
  const n = world.node[gpu];
  const rack = world.nodeRack[n];
  const lines = [
    `${world.nodes[n]}, GPU ${gpu - world.first[n]} · ${world.types[world.nodeType[n]]}`,
    `${world.racks[rack]}, ${world.blocks[world.rackBlock[rack]]}`,
  ];
  if (world.state[gpu] === 1) lines.push("closed to new jobs");
  if (world.state[gpu] === 2) lines.push("not well");
  if (world.kept[gpu]) lines.push(world.kept[gpu] === 1 ? "reserved" : "promised to a job that waits");
  if (world.held[gpu] === IN_PARTS) {
    for (const part of world.parts.get(gpu) ?? []) lines.push(`${part.size / 1000} of it: ${holder(part.job)}`);
  } else if (world.held[gpu] === FREE) lines.push("held by no job");
  else lines.push(holder(world.held[gpu]));
  return lines.join("\n");
}

/** @param {number} job */
function holder(job) {
  const { jobs } = world;
  const leaves = jobs.leaving.includes(job) ? ", leaves" : "";
  const until = jobs.until[job] ? `, at the latest until ${jobs.until[job]}` : "";
  const since = jobs.since[job] ? `\nsince ${jobs.since[job]}${until}` : "\nabout to run";
  const queue = world.queues[jobs.queue[job]] ?? "a queue that is no more";
  const rank = world.priorityClasses[jobs.priorityClass[job]];
  return `${jobs.name[job]} of ${jobs.user[job] || "nobody"}${leaves}\n${queue}${rank ? ` · ${rank}` : ""}${since}`;
}

/** What is so under the pointer, beside it. @param {PointerEvent} event @param {boolean} stays */
function tellUnder(event, stays) {
  const [x, y] = [view.x + (event.offsetX * view.ratio) / view.scale, view.y + (event.offsetY * view.ratio) / view.scale];
  const gpu = gpuAt(world, layout, x, y);
  pinned = stays && gpu >= 0;
  tip.classList.toggle("pinned", pinned);
  tip.hidden = gpu < 0;
  if (gpu < 0) return;
  const node = world.nodes[world.node[gpu]];
  tip.textContent = about(gpu);
  if (stays) tip.append("\n", linkTo(`/nodes/${encodeURIComponent(node)}`, `Open ${node}`));
  const left = Math.max(0, Math.min(event.offsetX + 14, canvas.clientWidth - tip.offsetWidth));
  tip.style.transform = `translate(${left}px, ${event.offsetY + 14}px)`;
}

// What moves it.

/** @type {Record<string, () => void>} */
const KEYS = {
  ArrowRight: () => step(1, 0),
  ArrowLeft: () => step(-1, 0),
  ArrowDown: () => step(0, 1),
  ArrowUp: () => step(0, -1),
  Enter: () => cursor >= 0 && enter(cursor),
  Escape: () => {
    [pinned, tip.hidden] = [false, true];
    fit();
  },
  "+": () => zoom(1.5),
  "-": () => zoom(1 / 1.5),
};

canvas.addEventListener("keydown", (event) => {
  if (!world || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    if (world) zoom(Math.exp(-event.deltaY / 400), event.offsetX * view.ratio, event.offsetY * view.ratio);
  },
  { passive: false },
);
/** @type {PointerEvent | null} */
let from = null;
canvas.addEventListener("pointerdown", (event) => {
  [from, dragged] = [event, 0];
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", (event) => {
  from = null;
  if (world && dragged < 4) tellUnder(event, true);
});
canvas.addEventListener("pointerleave", () => (tip.hidden = !pinned));
canvas.addEventListener("pointermove", (event) => {
  if (!world) return;
  if (from) {
    view.x -= ((event.clientX - from.clientX) * view.ratio) / view.scale;
    view.y -= ((event.clientY - from.clientY) * view.ratio) / view.scale;
    dragged += Math.abs(event.clientX - from.clientX) + Math.abs(event.clientY - from.clientY);
    [from, fits, tip.hidden, pinned] = [event, false, true, false];
    show();
    return;
  }
  if (!pinned) tellUnder(event, false);
});
get("zoom-in").addEventListener("click", () => zoom(1.6));
get("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
get("zoom-fit").addEventListener("click", fit);
choice.addEventListener("change", () => {
  paint.only = "";
  colour();
  show();
});
function repaint() {
  paint.colours = palette();
  if (!world) return;
  texels = texture(world, layout, paint);
  show();
}
get("theme").addEventListener("change", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new ResizeObserver(resize).observe(canvas);

// What is sent.

const asked = location.hash.replace(/^#rack=/, "");
let isFetching = false;
let isStale = true;

/** Fetch all of it, where it is not what the server has. */
async function refresh() {
  const answer = await fetch("/map.json", { headers: tag ? { "If-None-Match": tag } : {} });
  if (answer.status === 304) return;
  if (answer.redirected || !answer.ok) throw new Error(answer.redirected ? "your session is over" : `the server answers ${answer.status}`);
  const isFirst = !world;
  tag = answer.headers.get("ETag") ?? "";
  world = read(await answer.json());
  layout = placed(world, canvas.width / canvas.height);
  colour();
  if (isFirst || fits) fit();
  if (isFirst) {
    const rack = world.racks.indexOf(decodeURIComponent(asked));
    if (rack >= 0) enter(rack);
  }
  tellTime();
}

function tellTime() {
  asOf.textContent = `as of ${world.time}`;
  show();
}

/** Some time after it was fetched, it may be another again. */
async function fetchAll() {
  isStale = true;
  if (isFetching || (isResting() && world)) return;
  isFetching = true;
  try {
    while (isStale) {
      isStale = false;
      await refresh();
    }
  } catch (error) {
    isStale = true;
    asOf.textContent = `not up to date: ${error instanceof Error ? error.message : "the connection is lost"}`;
    setTimeout(fetchAll, AGAIN_MS);
  }
  isFetching = false;
}

/** @param {any} change */
function take(change) {
  if (change.after === tag) return;
  if (isResting() || isFetching || !world || change.before !== tag) {
    void fetchAll();
    return;
  }
  recolour(change);
  tag = change.after;
  tellTime();
}

resize();
listen({ started: fetchAll, map: take, resumed: () => isStale && fetchAll() });
void fetchAll();
