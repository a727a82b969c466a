/**
 * Keeps a page up to date, and says how that goes. `data-live` of the main part says what it shows:
 * `pass` (what the last pass decided), `jobs` (any of them), `job` (the one in `data-job`), `others` (nodes, the policy),
 * `standing` (what is out of order), `map`. On others of those, or on none, it stays as it is.
 */

import { follow } from "./live-connection.js";
import { isInUse, update } from "./page-part.js";

/** Two updates are so far apart, and twenty times as far as one takes: a server that is busy is asked less. */
const APART_MS = 3_000;
const SHARE = 20;
const AGAIN_MS = 10_000;
const IN_USE_MS = 1_000;

/** @template {HTMLElement} T @param {string} id @returns {T} */
const get = (id) => /** @type {T} */ (document.getElementById(id));
const main = get("main");
const [told, signIn, button] = [get("live"), get("live-sign-in"), get("live-pause")];
const topics = new Set((main.dataset.live ?? "").split(" "));

/** @typedef {{started?: () => void, jobs?: (names: string[] | null) => void, map?: (change: any) => void, resumed?: () => void}} Listener */
/** @type {Listener[]} */
const listeners = [];
/** @type {import("./live-connection.js").Fare} */
let fare = { state: "connecting", message: "" };
/** @type {import("./live-connection.js").Standing | null} */
let standing = null;
let isPaused = localStorage.getItem("paused") === "yes";
let isStale = false;
let waits = false;
let problem = "";
let earliestMs = 0;
let timer = 0;

/** For modules with parts of their own. `jobs` null: more than are named. @param {Listener} listener */
export function listen(listener) {
  listeners.push(listener);
}

/** Whether nothing on the page is to change: it is paused, or nobody sees it. `resumed` says when that is over. */
export function isResting() {
  return isPaused || document.hidden;
}

// What is said.

function words() {
  const { state, message } = fare;
  if (state === "over") return `Your session is over: ${message}.`;
  if (state === "refused") return `${message}.`;
  if (state === "lost") return `Not up to date: ${message}. Trying again.`;
  if (state === "connecting") return "";
  if (isPaused) return isStale ? "Paused. There are changes." : "Paused.";
  if (standing && !standing.isLeading) return standingWords(standing);
  if (problem) return `Not up to date: ${problem}.`;
  if (waits) return "Live. Changes wait until you are done here.";
  return message ? `Live: ${message}.` : "Live";
}

/** @param {import("./live-connection.js").Standing} of */
function standingWords({ condition, message }) {
  const what = condition === "standing-by" ? "This server stands by" : `No rounds are decided here (${condition})`;
  return `${what}${message ? `: ${message.replace(/\.$/, "")}` : ""}.`;
}

/** Only what is new is said: a screen reader reads each time. */
function say() {
  const text = words();
  if (told.textContent !== text) told.textContent = text;
  document.documentElement.dataset.fare = isPaused && fare.state === "live" ? "paused" : fare.state;
  signIn.hidden = fare.state !== "over";
  signIn.setAttribute("href", `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  button.setAttribute("aria-pressed", String(isPaused));
}

// What is done.

function changed() {
  isStale = true;
  plan();
}

/** @param {number} afterMs */
function plan(afterMs = 0) {
  say();
  if (!isStale || timer || isResting() || fare.state === "over") return;
  timer = setTimeout(run, Math.max(afterMs, earliestMs - performance.now()));
}

async function run() {
  timer = 0;
  if (isResting()) return;
  if ((waits = isInUse(main))) return plan(IN_USE_MS);
  isStale = false;
  const beganMs = performance.now();
  timer = -1;
  try {
    await update(main);
    problem = "";
  } catch (error) {
    problem = error instanceof Error ? error.message : "the page can't be read";
    isStale = true;
  }
  timer = 0;
  main.dataset.updates = String(Number(main.dataset.updates ?? 0) + 1);
  earliestMs = performance.now() + Math.max(problem ? AGAIN_MS : APART_MS, SHARE * (performance.now() - beganMs));
  plan();
}

/** @param {import("./live-connection.js").Change} change */
function concerns(change) {
  const someJob = change.moreJobs || change.jobs;
  return (
    (topics.has("pass") && change.lastPass) ||
    (topics.has("jobs") && someJob) ||
    (topics.has("job") && (change.moreJobs || change.jobs?.includes(main.dataset.job ?? ""))) ||
    (topics.has("others") && change.others) ||
    (topics.has("standing") && change.standing)
  );
}

function rested() {
  say();
  if (isResting()) return;
  for (const each of listeners) each.resumed?.();
  plan();
}

button.addEventListener("click", () => {
  isPaused = !isPaused;
  localStorage.setItem("paused", isPaused ? "yes" : "no");
  rested();
});
// Another tab was paused.
addEventListener("storage", ({ key, newValue }) => {
  if (key !== "paused") return;
  isPaused = newValue === "yes";
  rested();
});
document.addEventListener("visibilitychange", rested);
say();
follow(
  {
    fares: (now) => {
      fare = now;
      say();
    },
    started: (start) => {
      ({ standing } = start);
      for (const each of listeners) each.started?.();
      if (topics.size > Number(topics.has("")) + Number(topics.has("map"))) changed();
      say();
    },
    changed: (change) => {
      standing = change.standing ?? standing;
      for (const each of listeners) if (change.moreJobs || change.jobs) each.jobs?.(change.moreJobs ? null : (change.jobs ?? []));
      if (concerns(change)) changed();
      say();
    },
    mapChanged: (change) => {
      for (const each of listeners) each.map?.(change);
    },
  },
  topics.has("map"),
);
