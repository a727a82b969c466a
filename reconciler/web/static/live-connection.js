/**
 * What the server tells, once for all tabs of a browser: the tab that has a lock follows the stream, and passes on what comes.
 * Browsers open six connections to a server of HTTP/1.1, so that a stream for each tab would leave none for pages.
 *
 * @typedef {"connecting" | "live" | "lost" | "refused" | "over"} State `over`: one has to sign in again.
 * @typedef {{state: State, message: string}} Fare
 * @typedef {{condition: string, message: string, isLeading: boolean, troubles: number, tag: string}} Standing
 * @typedef {{server: string, standing: Standing | null, lastPass: {time: string, revision: string} | null}} Start
 * @typedef {{jobs?: string[], moreJobs?: boolean, others?: boolean, lastPass?: object, standing?: Standing}} Change
 *
 * @typedef {object} Hearer
 * @property {(fare: Fare) => void} fares
 * @property {(start: Start) => void} started Whatever is shown may be old.
 * @property {(change: Change) => void} changed
 * @property {(change: any) => void} mapChanged
 */

const NAME = "quorate-live";
/** The server says something every 15 seconds. */
const SILENT_MS = 40_000;
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

/** @type {Hearer} */
let hearer;
let wantsMap = false;
let streamHasMap = false;
let isHolder = false;
let isQueued = false;
/** @type {Fare} */
let fare = { state: "connecting", message: "" };
/** @type {Start | null} */
let start = null;
/** @type {BroadcastChannel} */
let channel;
/** @type {AbortController} Ends when the page does. */
let stay;
/** @type {AbortController} Of the stream that is open. */
let stream = new AbortController();
let wake = () => {};

/** @param {Hearer} by @param {boolean} withMap */
export function follow(by, withMap) {
  [hearer, wantsMap, streamHasMap] = [by, withMap, withMap];
  begin();
  addEventListener("pagehide", () => {
    stay.abort();
    stream.abort();
    channel.close();
    wake();
  });
  addEventListener("pageshow", (event) => event.persisted && begin());
  addEventListener("online", () => wake());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    wake();
    // One may have signed in again in another tab.
    queue();
  });
}

function begin() {
  stay = new AbortController();
  [isHolder, isQueued] = [false, false];
  channel = new BroadcastChannel(NAME);
  channel.onmessage = ({ data: { kind, content } }) => {
    if (kind === "hello") answer(content);
    else if (kind === "who") channel.postMessage({ kind: "hello", content: { map: wantsMap } });
    else if (kind === "now") isHolder || fare.state === "live" || now(content);
    else if (!isHolder) hear(kind, content);
  };
  channel.postMessage({ kind: "hello", content: { map: wantsMap } });
  queue();
}

/** A tab has come. @param {{map: boolean}} wants */
function answer(wants) {
  if (!isHolder) return;
  if (wants.map && !streamHasMap) {
    streamHasMap = true;
    stream.abort("again");
  } else channel.postMessage({ kind: "now", content: { fare, start } });
}

/** @param {{fare: Fare, start: Start | null}} known */
function now(known) {
  hear("fare", known.fare);
  if (known.fare.state === "live" && known.start) hear("start", known.start);
}

/** @param {string} kind @param {any} content */
function tell(kind, content) {
  hear(kind, content);
  channel.postMessage({ kind, content });
}

/** @param {string} kind @param {any} content */
function hear(kind, content) {
  if (kind === "fare") hearer.fares((fare = content));
  else if (kind === "start") {
    start = content;
    hearer.started(content);
    queue();
  } else if (kind === "change") {
    if (content.standing && start) start.standing = content.standing;
    hearer.changed(content);
  } else if (kind === "map") hearer.mapChanged(content);
}

/** Wait for the lock, and follow while this tab has it. */
function queue() {
  if (isQueued || stay.signal.aborted) return;
  isQueued = true;
  const { signal } = stay;
  const held = navigator.locks ? navigator.locks.request(NAME, { signal }, () => hold(signal)) : hold(signal);
  held
    .catch((error) => {
      if (!signal.aborted) throw error;
    })
    .finally(() => {
      if (stay.signal === signal) isQueued = false;
    });
}

/** @param {AbortSignal} signal */
async function hold(signal) {
  isHolder = true;
  channel.postMessage({ kind: "who" });
  for (let failures = 0; !signal.aborted; ) {
    stream = new AbortController();
    /** @type {Fare} */
    let came;
    try {
      came = await followed(() => (failures = 0));
    } catch {
      came = { state: "lost", message: "the server does not answer" };
    }
    if (signal.aborted) break;
    if (stream.signal.reason === "again") continue;
    tell("fare", came);
    if (came.state === "over") break;
    await pause(PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)]);
  }
  isHolder = false;
}

/** @param {number} ms Or until the network is there again, or somebody looks. */
function pause(ms) {
  // Browsers that lost a server do not all come back at once.
  const all = ms * (0.75 + Math.random() / 2);
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, all);
    wake = () => {
      clearTimeout(timer);
      resolve(undefined);
    };
  });
}

/** How a stream ended. @param {() => void} begun @returns {Promise<Fare>} */
async function followed(begun) {
  const came = await fetch(`/live${streamHasMap ? "?map=1" : ""}`, { signal: stream.signal, cache: "no-store" });
  if (!came.ok || !came.body) return refusal(came.status, await came.json());
  for await (const { kind, content } of messages(came.body)) {
    if (kind === "end") return ended(content);
    if (kind === "start") {
      begun();
      tell("fare", { state: "live", message: start && start.server !== content.server ? "the server was started again" : "" });
    }
    tell(kind, content);
  }
  return { state: "lost", message: "the connection is lost" };
}

/** @param {number} status @param {{code: string, detail: string, fix: string}} problem @returns {Fare} */
function refusal(status, problem) {
  if (status === 401 && problem.code !== "session-over") return { state: "over", message: "you are not signed in any more" };
  const message = `${problem.detail} ${problem.fix}`.trim().replace(/\.$/, "");
  return { state: status === 401 ? "over" : status === 403 ? "refused" : "lost", message };
}

/** @param {{reason: string, message: string}} end @returns {Fare} */
function ended({ reason, message }) {
  const state = reason === "session-over" ? "over" : reason === "not-allowed" ? "refused" : "lost";
  return { state, message: message.replace(/\.$/, "") };
}

/**
 * Server-sent events, each with one line of JSON. Ends, too, where the server is silent for too long.
 * @param {ReadableStream<BufferSource>} body
 */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const own = stream;
  for (let rest = ""; ; ) {
    const timer = setTimeout(() => own.abort("silent"), SILENT_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const [kind, data] = ["event: ", "data: "].map((name) => block.split("\n").find((line) => line.startsWith(name))?.slice(name.length));
      if (kind && data) yield { kind, content: JSON.parse(data) };
    }
  }
}
