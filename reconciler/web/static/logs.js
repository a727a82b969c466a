/** Follows a log: what is written is put behind what is there, over gaps and, where no attempt was asked for, into the next attempt. */

import { isResting, listen } from "./live.js";

const QUICK_MS = 1_000;
const SLOW_MS = 4_000;
const LOST_MS = 8_000;
/** Of a long log, the older lines go: the page stays as quick as it was. */
const KEPT_MAX = 1_000_000;
const PIECE = 50_000;
const OVER = new Set(["succeeded", "failed", "cancelled"]);

/** @template {HTMLElement} T @param {string} id @returns {T} */
const get = (id) => /** @type {T} */ (document.getElementById(id));
const name = /** @type {string} */ (get("main").dataset.job);
const [log, state, toEnd, attemptShown] = [get("log"), get("log-state"), get("to-end"), get("attempt")];
const aloud = /** @type {HTMLInputElement} */ (get("aloud"));
const pre = /** @type {HTMLElement} */ (log.querySelector("pre"));
const { group, index } = log.dataset;
const followsAttempts = "newest" in log.dataset;
const path = `/v1/jobs/${encodeURIComponent(name)}`;

let attempt = Number(log.dataset.attempt);
let offset = Number(log.dataset.offset);
let decoder = new TextDecoder();
let kept = pre.textContent?.length ?? 0;
let isReading = false;
/** Whether something became of the job, or may have, since its log was at its end. */
let isStale = true;
let isOver = false;
let timer = 0;

/** @param {string} text */
function append(text) {
  if (!text) return;
  const wasAtEnd = isAtEnd();
  const last = pre.lastChild;
  // Each piece in a node of its own: what is read aloud is what is new.
  if (last instanceof Text && last.length < PIECE && !aloud.checked) last.appendData(text);
  else pre.append(text);
  kept += text.length;
  while (kept > KEPT_MAX && pre.firstChild !== pre.lastChild) {
    const first = /** @type {Text} */ (pre.firstChild);
    kept -= first.length;
    first.remove();
  }
  if (wasAtEnd) log.scrollTop = log.scrollHeight;
  tellEnd();
}

function isAtEnd() {
  return log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
}

function tellEnd() {
  toEnd.hidden = isAtEnd();
}

/** Read on until its end so far. Raises Error with what is wrong. */
async function readOn() {
  for (;;) {
    const asked = new URLSearchParams({ group: group ?? "", index: index ?? "0", attempt: String(attempt), offset: String(offset) });
    const answer = await fetch(`${path}/logs?${asked}`, { cache: "no-store" });
    if (answer.status === 404) return false;
    if (!answer.ok) throw new Error(answer.status === 401 ? "your session is over" : `the server answers ${answer.status}`);
    const piece = new Uint8Array(await answer.arrayBuffer());
    const following = Number(answer.headers.get("Quorate-Next-Offset"));
    if (!piece.length) return true;
    if (isResting()) return true;
    if (following !== offset + piece.length) {
      // It stands in place of what is not kept.
      append(`${decoder.decode()}\n[${new TextDecoder().decode(piece)}]\n`);
      decoder = new TextDecoder();
    } else append(decoder.decode(piece, { stream: true }));
    offset = following;
  }
}

/** Whether there is another attempt, which is read from now on. */
async function goOn() {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status === 401 ? "your session is over" : `the server answers ${answer.status}`);
  const job = await answer.json();
  isOver = OVER.has(job.state);
  if (!followsAttempts || !(job.attempt > attempt)) return false;
  if (attempt) append(`${decoder.decode()}\n[attempt ${job.attempt} begins]\n`);
  [attempt, offset, decoder] = [job.attempt, 0, new TextDecoder()];
  attemptShown.textContent = String(attempt);
  return true;
}

async function look() {
  timer = 0;
  if (isReading || isResting()) return;
  isReading = true;
  let afterMs = SLOW_MS;
  try {
    const before = offset;
    const isThere = attempt > 0 && (await readOn());
    const wasStale = isStale;
    isStale = false;
    // What came of the job is asked after its log was read: nothing is written to that of an attempt that has ended.
    if (wasStale && (await goOn())) isStale = true;
    else if (wasStale && isThere && isOver) await readOn();
    if (isStale || offset !== before) afterMs = QUICK_MS;
    state.textContent = isThere ? (isOver ? "The job has ended: this is all." : kept ? "" : "It has written nothing yet.") : "There is no such log: it has not started yet, or none is kept any more.";
  } catch (error) {
    isStale = true;
    afterMs = LOST_MS;
    state.textContent = `Not up to date: ${error instanceof TypeError ? "the server does not answer" : /** @type {Error} */ (error).message}.`;
  }
  isReading = false;
  log.dataset.read = String(offset);
  if (!isOver || isStale) plan(afterMs);
}

/** @param {number} ms */
function plan(ms) {
  clearTimeout(timer);
  timer = setTimeout(look, ms);
}

function hurry() {
  isStale = true;
  plan(0);
}

aloud.addEventListener("change", () => log.setAttribute("aria-live", aloud.checked ? "polite" : "off"));
toEnd.addEventListener("click", () => {
  log.scrollTop = log.scrollHeight;
  log.focus();
  tellEnd();
});
log.addEventListener("scroll", tellEnd);
listen({
  started: hurry,
  resumed: hurry,
  jobs: (names) => {
    if (!names || names.includes(name)) hurry();
  },
});
log.scrollTop = log.scrollHeight;
tellEnd();
hurry();
