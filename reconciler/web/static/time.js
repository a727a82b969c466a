/**
 * A picture of time moves with the pointer and with keys. Each window has its address, which goes into the history of the browser;
 * what is in it comes from the server, as whatever follows a pass does. Without this module its links do the same.
 */

import { update } from "./page-part.js";

const MINUTE_MS = 60_000;
const SHORTEST_MS = 5 * MINUTE_MS;
/** So many pixels are a drag; fewer are a click. */
const DRAG_PX = 5;
const KEY_PART = 0.25;

/** @param {string} id */
const get = (id) => document.getElementById(id);
const main = /** @type {HTMLElement} */ (get("main"));

/** From when to when the picture is, in milliseconds. */
function shown() {
  const { from = "", to = "" } = get("gantt")?.dataset ?? {};
  return { from: Date.parse(from), to: Date.parse(to) };
}

// Windows.

/** @param {number} atMs */
const written = (atMs) => new Date(Math.max(0, Math.round(atMs / MINUTE_MS) * MINUTE_MS)).toISOString().replace(/(:00)?\.000Z$/, "Z");

/** @param {number} from @param {number} to */
function show(from, to) {
  const address = new URL(location.href);
  address.searchParams.set("from", written(from));
  address.searchParams.set("to", written(to));
  history.pushState(null, "", address);
  return bring();
}

/** What the address says now. */
async function bring() {
  search = location.search;
  try {
    await update(main);
  } catch {
    // The server says in words what it does not like, or that the session is over.
    location.reload();
    return;
  }
  tell();
}

/** The form, and what a screen reader reads. */
function tell() {
  const { from, to } = shown();
  const asked = new URL(location.href).searchParams;
  for (const name of ["from", "to"]) {
    const field = /** @type {HTMLInputElement | null} */ (get(name));
    const value = asked.get(name);
    if (field && value && document.activeElement !== field) field.value = value;
  }
  const said = get("said");
  if (said) said.textContent = `${new Date(from).toLocaleString()} to ${new Date(to).toLocaleString()}`;
}

/** @param {number} part Of its length. */
function move(part) {
  const { from, to } = shown();
  show(from + part * (to - from), to + part * (to - from));
}

/** @param {number} factor */
function zoom(factor) {
  const { from, to } = shown();
  const half = Math.max(SHORTEST_MS, (to - from) * factor) / 2;
  const middle = (from + to) / 2;
  show(middle - half, middle + half);
}

let search = location.search;
addEventListener("popstate", () => {
  // A place within the page is no other window.
  if (search !== location.search) bring();
});

// Keys.

main.addEventListener("keydown", (event) => {
  const picture = get("gantt");
  if (event.target !== picture || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = /** @type {Record<string, () => void>} */ ({
    ArrowLeft: () => move(-KEY_PART),
    ArrowRight: () => move(KEY_PART),
    "+": () => zoom(0.5),
    "-": () => zoom(2),
    Home: () => get("around-now")?.click(),
  });
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// Dragging.

/** @type {{x: number, width: number, pointer: number} | null} */
let held = null;
let movedPx = 0;

/** @param {number} byPx */
function shift(byPx) {
  for (const each of document.querySelectorAll("#gantt .moves")) each.setAttribute("transform", `translate(${byPx} 0)`);
}

main.addEventListener("pointerdown", (event) => {
  const cell = event.target instanceof Element ? event.target.closest("#gantt .when") : null;
  movedPx = 0;
  if (!cell || event.button !== 0) return;
  held = { x: event.clientX, width: cell.getBoundingClientRect().width, pointer: event.pointerId };
});
addEventListener("pointermove", (event) => {
  if (!held || event.pointerId !== held.pointer) return;
  movedPx = event.clientX - held.x;
  if (Math.abs(movedPx) >= DRAG_PX) shift(movedPx);
});
addEventListener("pointerup", (event) => {
  if (!held || event.pointerId !== held.pointer) return;
  const { width } = held;
  held = null;
  if (Math.abs(movedPx) >= DRAG_PX) move(-movedPx / width);
});
addEventListener("pointercancel", () => {
  held = null;
  shift(0);
});
// What was dragged by was not clicked on; and a link is not to be taken elsewhere.
main.addEventListener("click", (event) => {
  if (Math.abs(movedPx) >= DRAG_PX && event.target instanceof Element && event.target.closest("#gantt")) event.preventDefault();
}, true);
main.addEventListener("dragstart", (event) => {
  if (event.target instanceof Element && event.target.closest("#gantt")) event.preventDefault();
});
