/** What there is to say of a GPU, a rack and a job of the map, as text. */

import { FREE, IN_PARTS, STATES } from "./map-layout.js";
import { localTime } from "./times.js";

/** @typedef {import("./map-layout.js").World} World */

const DOCUMENT = "reservation:";
const STATE_WORDS = {
  ...{ well: "", cordoned: "closed to new jobs: its node is cordoned", "not well": "not well, closed to new jobs" },
  ...{ suspect: "suspect, and takes work all the same", "not ready": "closed to new jobs: its node is not ready" },
  changing: "being partitioned anew, until then closed to new jobs",
};
/** @type {Record<string, string>} */
const LEAVES = {
  ...{ end: "is being ended", cull: "is being ended, since it was idle", stuck: "is being ended, since it makes no progress" },
  ...{ evict: "is being evicted", suspend: "is being suspended", requeue: "is being requeued", shrink: "gives up this task" },
};
const figure = new Intl.NumberFormat("en").format;

/** GPUs, of thousandths. @param {number} milli */
export function gpus(milli) {
  return figure(Math.round(milli) / 1000);
}

/** @param {number} count @param {string} one */
export function counted(count, one) {
  return `${figure(count)} ${one}${count === 1 ? "" : "s"}`;
}

/** A rack as the list of nodes names it. @param {World} world @param {number} rack */
export function rackName(world, rack) {
  const block = world.blocks[world.rackBlock[rack]];
  return block === "no block" ? world.racks[rack] : `${block} / ${world.racks[rack]}`;
}

/** The job whose page says more of a GPU; "": there is none. @param {World} world @param {number} gpu */
export function jobAt(world, gpu) {
  const held = world.held[gpu] === IN_PARTS ? world.parts.get(gpu)?.find((part) => part.job !== FREE)?.job : world.held[gpu];
  const job = held === undefined || held < 0 ? world.keeper[gpu] : held;
  return job >= 0 && !world.jobs.name[job].startsWith(DOCUMENT) ? job : -1;
}

/** Line by line. @param {World} world @param {number} gpu */
export function aboutGpu(world, gpu) {
  const n = world.node[gpu];
  const rack = world.nodeRack[n];
  const island = world.nodeIsland[n] === FREE ? "" : `, island ${world.islands[world.nodeIsland[n]]}`;
  return [
    `${world.nodes[n]}, GPU ${gpu - world.first[n]} · ${world.types[world.nodeType[n]]}`,
    `${world.racks[rack]}, ${world.blocks[world.rackBlock[rack]]}${island}`,
    STATE_WORDS[STATES[world.state[gpu]]],
    ...keptWords(world, gpu),
    ...heldWords(world, gpu),
  ].filter(Boolean);
}

/** @param {World} world @param {number} gpu */
function keptWords(world, gpu) {
  const [kept, keeper] = [world.kept[gpu], world.keeper[gpu]];
  if (!kept || keeper === FREE) return [];
  const { name, since, until } = world.jobs;
  const isDocument = name[keeper].startsWith(DOCUMENT);
  const whose = isDocument ? `by the Reservation ${name[keeper].slice(DOCUMENT.length)}` : `${kept === 1 ? "for" : "to"} ${owned(world, keeper)}`;
  if (kept === 2) return [`promised ${whose}`];
  return [`reserved ${whose}${since[keeper] ? `, from ${localTime(since[keeper])}` : ""}${until[keeper] ? ` until ${localTime(until[keeper])}` : ""}`];
}

/** @param {World} world @param {number} gpu */
function heldWords(world, gpu) {
  if (world.held[gpu] === FREE) return ["held by no job"];
  if (world.held[gpu] !== IN_PARTS) return holderWords(world, world.held[gpu], world.leaves[gpu]);
  const parts = world.parts.get(gpu) ?? [];
  const left = parts.reduce((sum, part) => sum - part.size, 1000);
  const isInInstances = parts.some((part) => part.profile !== FREE);
  const words = parts.map((part) => {
    const what = part.profile === FREE ? `${part.size / 1000} of it` : `${world.profiles[part.profile]} (${part.size / 1000})`;
    // Seven of them are to be taken in at once: what each job asks for is left out.
    return `${what}: ${part.job === FREE ? "held by no job" : holderWords(world, part.job, part.leaves).slice(0, 3).join(", ")}`;
  });
  if (left > 0) words.push(`${left / 1000} of it: ${isInInstances ? "left over by its instances" : "free for other shares"}`);
  return words;
}

/** @param {World} world @param {number} job @param {number} leaves */
function holderWords(world, job, leaves) {
  const { jobs } = world;
  const rank = world.priorityClasses[jobs.priorityClass[job]];
  return [
    `${owned(world, job)}${leaves ? `, ${LEAVES[world.purposes[leaves - 1]]}` : ""}`,
    `${queueOf(world, job)}${rank ? ` · ${rank}` : ""}`,
    jobs.since[job] ? `since ${localTime(jobs.since[job])}${jobs.until[job] ? `, at the latest until ${localTime(jobs.until[job])}` : ""}` : "about to run",
    ...(jobs.place[job] ? [`asks to be ${jobs.place[job]}`] : []),
  ];
}

/** @param {World} world @param {number} job */
function queueOf(world, job) {
  return world.queues[world.jobs.queue[job]] ?? "a queue that is no more";
}

/** @param {World} world @param {number} job */
function owned(world, job) {
  return `${world.jobs.name[job]} of ${world.jobs.user[job] || "nobody"}`;
}

/**
 * @typedef {object} Found Where a job is.
 * @property {number} job
 * @property {number} held Thousandths of GPUs.
 * @property {number} kept GPUs that are promised to it or reserved for it.
 * @property {Set<number>} nodes
 * @property {Map<number, number>} racks Thousandths of GPUs that it holds, or is kept, in each.
 */

/** @param {World} world @param {number} job @returns {Found} */
export function whereIs(world, job) {
  /** @type {Found} */
  const found = { job, held: 0, kept: 0, nodes: new Set(), racks: new Map() };
  for (let gpu = 0; gpu < world.node.length; gpu++) {
    const held = heldBy(world, gpu, job);
    const kept = world.keeper[gpu] === job;
    if (!held && !kept) continue;
    found.held += held;
    if (kept) found.kept++;
    const n = world.node[gpu];
    found.nodes.add(n);
    found.racks.set(world.nodeRack[n], (found.racks.get(world.nodeRack[n]) ?? 0) + Math.max(held, kept ? 1000 : 0));
  }
  return found;
}

/** Thousandths of a GPU that a job holds. @param {World} world @param {number} gpu @param {number} job */
export function heldBy(world, gpu, job) {
  if (world.held[gpu] !== IN_PARTS) return world.held[gpu] === job ? 1000 : 0;
  return (world.parts.get(gpu) ?? []).reduce((sum, part) => sum + (part.job === job ? part.size : 0), 0);
}

/** @param {World} world @param {Found} found */
export function foundWords(world, found) {
  const racks = [...found.racks.keys()].map((rack) => rackName(world, rack));
  const some = racks.length > 3 ? `${racks.slice(0, 3).join(", ")} and ${counted(racks.length - 3, "more rack")}` : racks.join(", ");
  const kept = found.kept ? `${counted(found.kept, "GPU")} kept for it` : "";
  const holds = found.held ? `${gpus(found.held)} GPU${found.held === 1000 ? "" : "s"} held` : "";
  const { jobs } = world;
  const isDocument = jobs.name[found.job].startsWith(DOCUMENT);
  const whose = isDocument ? `The Reservation ${jobs.name[found.job].slice(DOCUMENT.length)}` : `${owned(world, found.job)}, ${queueOf(world, found.job)}`;
  return `${whose}: ${[holds, kept].filter(Boolean).join(", ")} on ${counted(found.nodes.size, "node")} of ${some}.`;
}
