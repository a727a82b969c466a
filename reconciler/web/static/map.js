/** The map on its page: what is sent is fetched, coloured and drawn; pointer and keys move the view. Names come in as text alone. */

import { isResting, listen } from "./live.js";
import { Kinds, jobOf, useOf } from "./map-kinds.js";
import { FREE, apply, gpuAt, nearest, placeOf, placed, read } from "./map-layout.js";
import { draw, palette, retouch, texture, toneOfJob } from "./map-paint.js";
import { aboutGpu, counted, foundWords, gpus, jobAt, rackName, whereIs } from "./map-words.js";
import { localTime } from "./times.js";

const AGAIN_MS = 10_000;
/** Jobs with an entry of their own in the legend, the largest. */
const JOBS_NAMED = 10;

/** @template {HTMLElement} T @param {string} id @returns {T} */
const get = (id) => /** @type {T} */ (document.getElementById(id));
const canvas = /** @type {HTMLCanvasElement} */ (get("map"));
const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
const choice = /** @type {HTMLSelectElement} */ (get("colour-by"));
const find = /** @type {HTMLFormElement} */ (get("find"));
const field = /** @type {HTMLInputElement} */ (get("find-job"));
const [tip, said, legend, asOf, where] = [get("tip"), get("said"), get("legend"), get("as-of"), get("found")];
/** The queues whose jobs the user may look at; null: all. @type {Set<string> | null} */
const seen = canvas.dataset.queues ? new Set(JSON.parse(canvas.dataset.queues)) : null;

const view = { scale: 1, x: 0, y: 0, ratio: 1 };
/** @type {import("./map-paint.js").Paint} */
const paint = { kinds: /** @type {any} */ (null), colours: palette(), only: "", found: null };
/** @type {import("./map-layout.js").World} */
let world;
/** @type {import("./map-layout.js").Layout} */
let layout;
/** @type {OffscreenCanvas} */
let texels;
/** @type {[string, number][][]} */
let shares = [];
let tag = "";
/** The job that is looked for, as the address and the field have it. */
let wanted = "";
/** A rack, and a GPU of it; -1: none. */
let [cursor, pointed] = [-1, -1];
/** Arrows go from GPU to GPU of the rack. */
let isInside = false;
let isDue = false;
let fits = true;
/** The tip stays where it was clicked for, with a link in it. */
let pinned = false;
/** Pixels that a press has moved by. */
let dragged = 0;

// The address, which can be sent.

/** As it is now. @param {string} hash */
function keepAddress(hash = location.hash) {
  const query = new URLSearchParams();
  if (choice.value !== "queue") query.set("by", choice.value);
  if (wanted) query.set("job", wanted);
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${hash}`);
}

{
  const query = new URLSearchParams(location.search);
  wanted = field.value = query.get("job") ?? "";
  choice.value = query.get("by") ?? "queue";
  if (!choice.value) choice.value = "queue";
}

// Colours.

/** All of it anew. */
function colour() {
  paint.kinds = new Kinds(world, /** @type {import("./map-kinds.js").Choice} */ (choice.value));
  shares = world.racks.map((_, rack) => paint.kinds.sharesOf(rack));
  light();
  tell();
  texels = texture(world, layout, paint);
  canvas.dataset.coloured = String(world.node.length);
}

/** What a pass changed. @param {any} change */
function recolour(change) {
  for (const gpu of change.gpu) paint.kinds.drop(gpu);
  const before = paint.found?.job ?? FREE;
  const { isOther } = apply(world, change);
  if (isOther) return colour();
  for (const gpu of change.gpu) paint.kinds.add(gpu);
  for (const rack of new Set(change.gpu.map((/** @type {number} */ gpu) => world.nodeRack[world.node[gpu]]))) {
    shares[rack] = paint.kinds.sharesOf(rack);
  }
  light();
  tell();
  // What was dimmed for a job that is gone is so no more.
  if (before === (paint.found?.job ?? FREE)) retouch(texels, world, layout, paint, change.gpu);
  else texels = texture(world, layout, paint);
  canvas.dataset.coloured = String(change.gpu.length);
}

/** The legend. Its buttons stay, so that whoever is on one stays there. */
function tell() {
  const { sums, names } = paint.kinds;
  const jobs = [...sums].filter(([kind]) => jobOf(kind) >= 0).sort(([, one], [, other]) => other - one);
  const largest = jobs.slice(0, JOBS_NAMED).map(([kind]) => kind);
  const shown = [...largest, ...[...names.keys()].filter((kind) => sums.has(kind))];
  const there = [...legend.querySelectorAll("button")].map((button) => button.dataset.kind);
  if (there.join() !== shown.join()) {
    const focused = legend.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.kind : "";
    legend.replaceChildren(...shown.map(legendItem));
    if (focused) /** @type {HTMLElement | null} */ (legend.querySelector(`button[data-kind="${focused}"]`))?.focus();
  }
  for (const kind of shown) {
    const button = /** @type {HTMLElement} */ (legend.querySelector(`button[data-kind="${kind}"]`));
    const job = jobOf(kind);
    button.setAttribute("aria-pressed", String(job >= 0 ? paint.found?.job === job : paint.only === kind));
    /** @type {HTMLElement} */ (button.querySelector(".name")).textContent = job >= 0 ? world.jobs.name[job] : names.get(kind) ?? "";
    /** @type {HTMLElement} */ (button.querySelector("small")).textContent = gpus(sums.get(kind) ?? 0);
    if (job >= 0) /** @type {HTMLElement} */ (button.querySelector(".key")).style.backgroundColor = toneOfJob(world, paint, job);
  }
  const others = jobs.slice(JOBS_NAMED);
  const more = legend.querySelector(".more") ?? document.createElement("li");
  more.className = "more";
  more.textContent = `${counted(others.length, "more job")}: ${gpus(others.reduce((sum, [, size]) => sum + size, 0))}`;
  if (others.length) legend.append(more);
  else more.remove();
}

/** @param {string} kind */
function legendItem(kind) {
  const [item, button, key] = [document.createElement("li"), document.createElement("button"), document.createElement("span")];
  const [name, many] = [document.createElement("span"), document.createElement("small")];
  button.type = "button";
  button.dataset.kind = kind;
  key.className = `key k-${kind}`;
  name.className = "name";
  button.append(key, name, many);
  button.addEventListener("click", () => pressed(kind));
  item.append(button);
  return item;
}

/** To see it alone, or all again. @param {string} kind */
function pressed(kind) {
  const job = jobOf(kind);
  if (job >= 0) return look(paint.found?.job === job ? "" : world.jobs.name[job]);
  paint.only = paint.only === kind ? "" : kind;
  tell();
  texels = texture(world, layout, paint);
  show();
}

// A job that is looked for.

/** @param {string} name "": none any more. */
function look(name) {
  wanted = field.value = name;
  light();
  tell();
  texels = texture(world, layout, paint);
  keepAddress();
  show();
}

/** Find the job that is wanted, and say where it is. */
function light() {
  const named = wanted ? matching(wanted) : [];
  paint.found = named.length === 1 ? whereIs(world, named[0]) : null;
  canvas.dataset.found = paint.found ? String(paint.found.held / 1000 + paint.found.kept) : "";
  if (!wanted) return where.replaceChildren();
  if (paint.found) return say(where, foundWords(world, paint.found), maySee(named[0]) ? [jobLink(named[0])] : []);
  const some = named.slice(0, 3).map((job) => world.jobs.name[job]);
  const none = `No job called ${wanted} holds GPUs of the map, and none are kept for one. `;
  const told = named.length ? `${counted(named.length, "job")} of the map have ${wanted} in their names: ${some.join(", ")}${named.length > 3 ? ", …" : ""} ` : none;
  say(where, told, [linkTo(`/jobs?text=${encodeURIComponent(wanted)}`, "Look among all jobs")]);
}

/** The job of a name, or those that have it in theirs. @param {string} text */
function matching(text) {
  const exact = world.numberOf.get(text);
  if (exact !== undefined) return [exact];
  const low = text.toLowerCase();
  return [...world.numberOf].filter(([name]) => name.toLowerCase().includes(low)).map(([, job]) => job);
}

/** All of its racks fill the picture. */
function reveal() {
  if (!paint.found) return;
  const racks = [...paint.found.racks.keys()];
  const [left, top] = [Math.min(...racks.map((rack) => layout.rackX[rack])), Math.min(...racks.map((rack) => layout.rackY[rack]))];
  const right = Math.max(...racks.map((rack) => layout.rackX[rack] + layout.rackWide[rack]));
  const bottom = Math.max(...racks.map((rack) => layout.rackY[rack] + layout.rackTall[rack]));
  frame(left, top, right - left, bottom - top);
  keepAddress("");
}

/** Only what is new is said: a screen reader reads each time. @param {HTMLElement} place @param {string} text @param {HTMLElement[]} links */
function say(place, text, links) {
  const told = [text, ...links.map((link) => link.textContent)].join(" ");
  if (place.textContent === told) return;
  place.replaceChildren(text, ...links.flatMap((link) => [" ", link]));
}

/** @param {number} job */
function maySee(job) {
  const { name, user, queue } = world.jobs;
  if (name[job].includes(":")) return false;
  return !seen || user[job] === canvas.dataset.user || seen.has(world.queues[queue[job]]);
}

/** @param {number} job */
function jobLink(job) {
  const name = world.jobs.name[job];
  return linkTo(`/jobs/${encodeURIComponent(name)}`, `Open ${name}`);
}

// The view.

function show() {
  if (isDue || !layout) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw(context, { world, layout, paint, view, texels, shares, cursor, pointed });
    canvas.dataset.drawn = tag;
  });
}

function fit() {
  view.scale = Math.min(canvas.width / layout.wide, canvas.height / layout.tall);
  view.x = (layout.wide - canvas.width / view.scale) / 2;
  view.y = (layout.tall - canvas.height / view.scale) / 2;
  [fits, isInside, pointed] = [true, false, -1];
  keepAddress("");
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

/** A part of the map as large as the picture, in units. @param {number} x @param {number} y @param {number} wide @param {number} tall */
function frame(x, y, wide, tall) {
  view.scale = Math.min(canvas.width / (wide + 4), canvas.height / (tall + 4), 90 * view.ratio);
  view.x = x + wide / 2 - canvas.width / view.scale / 2;
  view.y = y + tall / 2 - canvas.height / view.scale / 2;
  fits = false;
  show();
}

/** A rack as large as the picture, and in the address, so that it can be sent. @param {number} rack */
function enter(rack) {
  frame(layout.rackX[rack], layout.rackY[rack], layout.rackWide[rack], layout.rackTall[rack]);
  keepAddress(`#rack=${encodeURIComponent(world.racks[rack])}`);
  point(rack);
  isInside = true;
}

/** @param {number} rack */
function point(rack) {
  [cursor, pointed] = [rack, -1];
  const use = { held: 0, free: 0, unusable: 0 };
  for (const [kind, milli] of paint.kinds.ofRack[rack]) use[useOf(kind)] += milli;
  const nodes = world.nodesOf[rack];
  const all = nodes.reduce((sum, n) => sum + world.first[n + 1] - world.first[n], 0);
  const islands = new Set(nodes.map((n) => world.nodeIsland[n]).filter((island) => island !== FREE)).size;
  const inIslands = islands ? ` in ${counted(islands, "island")}` : "";
  const text = `Rack ${world.racks[rack]} of ${world.blocks[world.rackBlock[rack]]}: ${counted(all, "GPU")}${inIslands}, ${gpus(use.held)} held, ${gpus(use.free)} free, ${gpus(use.unusable)} not usable.`;
  say(said, text, [linkTo(`/nodes?rack=${encodeURIComponent(rackName(world, rack))}`, "Its nodes")]);
  show();
}

/** @param {number} gpu */
function pointAt(gpu) {
  pointed = gpu;
  say(said, `${aboutGpu(world, gpu).join(" · ")}.`, linksOf(gpu));
  show();
}

/** Where there is more to read of a GPU. @param {number} gpu */
function linksOf(gpu) {
  const [node, job] = [world.nodes[world.node[gpu]], jobAt(world, gpu)];
  const links = [linkTo(`/nodes/${encodeURIComponent(node)}`, `Open ${node}`)];
  return job >= 0 && maySee(job) ? [...links, jobLink(job)] : links;
}

/** @param {string} place @param {string} text */
function linkTo(place, text) {
  const link = document.createElement("a");
  link.href = place;
  link.textContent = text;
  return link;
}

/** To the nearest rack in a direction, or GPU of a rack. @param {number} right @param {number} down */
function step(right, down) {
  if (cursor < 0) return point(0);
  if (!isInside) {
    const places = world.racks.map((_, rack) => [layout.rackX[rack], layout.rackY[rack]]);
    const rack = nearest(places, places[cursor], right, down);
    return rack >= 0 ? point(rack) : undefined;
  }
  const own = world.nodesOf[cursor].flatMap((n) => Array.from({ length: world.first[n + 1] - world.first[n] }, (_, i) => world.first[n] + i));
  if (pointed < 0) return pointAt(own[0]);
  const places = own.map((gpu) => placeOf(world, layout, gpu));
  const next = nearest(places, placeOf(world, layout, pointed), right, down);
  if (next >= 0) pointAt(own[next]);
}

/** What is so under the pointer, beside it. @param {PointerEvent} event @param {boolean} stays */
function tellUnder(event, stays) {
  const [x, y] = [view.x + (event.offsetX * view.ratio) / view.scale, view.y + (event.offsetY * view.ratio) / view.scale];
  const gpu = gpuAt(world, layout, x, y);
  pinned = stays && gpu >= 0;
  tip.classList.toggle("pinned", pinned);
  tip.hidden = gpu < 0;
  if (gpu < 0) return;
  tip.textContent = aboutGpu(world, gpu).join("\n");
  if (stays) for (const link of linksOf(gpu)) tip.append("\n", link);
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
  Enter: () => cursor >= 0 && pointed < 0 && enter(cursor),
  Escape: () => {
    [pinned, tip.hidden] = [false, true];
    if (pointed >= 0) point(cursor);
    else fit();
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
  keepAddress();
  if (!world) return;
  colour();
  show();
});
find.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!world) return;
  look(field.value.trim());
  if (paint.found) reveal();
});
// Its cross was pressed.
field.addEventListener("search", () => world && !field.value && look(""));
function repaint() {
  paint.colours = palette();
  if (!world) return;
  tell();
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
  const nodes = world?.nodes.join();
  world = read(await answer.json());
  if (nodes !== world.nodes.join()) [cursor, pointed, isInside] = [-1, -1, false];
  layout = placed(world, canvas.width / canvas.height);
  colour();
  if (isFirst || fits) fit();
  if (isFirst) {
    const rack = world.racks.indexOf(decodeURIComponent(asked));
    if (rack >= 0) enter(rack);
    else reveal();
  }
  tellTime();
}

function tellTime() {
  asOf.textContent = `as of ${localTime(world.time)}`;
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
