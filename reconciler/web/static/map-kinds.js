/**
 * What GPUs count as under each way to colour them. A kind is the name of a colour, or `j` and the number of a job.
 * Pure: no page is needed to try it.
 */

import { FREE, IN_PARTS, STATES } from "./map-layout.js";

/** @typedef {import("./map-layout.js").World} World */
/** @typedef {"queue" | "job" | "class" | "type" | "state"} Choice */
/** @typedef {Map<string, number>} Sums Thousandths of GPUs, by kind. */

/** Colours that are told apart by all eyes. */
const COLOURS = 8;
/** Hues of jobs when each has its own, and how light they are: what eyes that see fewer hues tell apart. */
const HUES = 18;
const LIGHTNESS = [0.52, 0.66, 0.8];
const CHROMA = 0.13;
/** What a job can't begin on, of what no job holds. */
const UNUSABLE = new Set(["closed", "ill"]);
/** What a job may begin on. */
const OPEN = new Set(["free", "parts", "rest", "promised", "reserved", "suspect"]);
const CLOSING = new Set(["cordoned", "not ready", "changing"]);

/** @type {[string, string][]} */
const COMMON = [
  ["other", "other"],
  ["held", "held"],
  ["leaving", "held, leaves"],
  ["promised", "promised"],
  ["reserved", "reserved"],
  ["free", "free"],
  ["parts", "free in parts"],
  ["rest", "left over"],
  ["suspect", "free, suspect"],
  ["closed", "closed to new jobs"],
  ["ill", "not well"],
];

/** What a kind is to whoever looks for room. @param {string} kind @returns {"held" | "free" | "unusable"} */
export function useOf(kind) {
  if (UNUSABLE.has(kind)) return "unusable";
  return OPEN.has(kind) ? "free" : "held";
}

/** The number of the job that a kind stands for; -1: it stands for others, too. @param {string} kind */
export function jobOf(kind) {
  return kind[0] === "j" ? Number(kind.slice(1)) : -1;
}

/** The tone of a job among others, as red, green and blue: the same as long as its name is. @param {string} name @returns {number[]} */
export function toneOf(name) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  // The low bits of such a hash follow the last letter alone.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  hash = (hash ^ (hash >>> 13)) >>> 0;
  return TONES[hash % TONES.length];
}

const TONES = LIGHTNESS.flatMap((light) => Array.from({ length: HUES }, (_, hue) => oklch(light, CHROMA, (2 * Math.PI * hue) / HUES)));

/** Equal steps of it look equal: Ottosson's Oklab (CSS Color Module 4). @param {number} light @param {number} chroma @param {number} hue */
function oklch(light, chroma, hue) {
  const [a, b] = [chroma * Math.cos(hue), chroma * Math.sin(hue)];
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const known = Math.max(0, Math.min(1, value));
    return Math.round(255 * (known <= 0.0031308 ? 12.92 * known : 1.055 * known ** (1 / 2.4) - 0.055));
  });
}

/** Kinds of a map under one choice, counted. */
export class Kinds {
  /** @param {World} world @param {Choice} choice */
  constructor(world, choice) {
    this.world = world;
    this.choice = choice;
    const [named, kindOfJob] = this.#told();
    /** What each kind is called; jobs go by their own names. */
    this.names = new Map([...named, ...COMMON]);
    /** @type {(job: number) => string} */
    this.ofJob = kindOfJob;
    /** @type {string[]} Of the GPU as a whole; of one in parts, that of the first that is held. */
    this.ofGpu = new Array(world.node.length);
    /** @type {Sums} */
    this.sums = new Map();
    /** @type {Sums[]} */
    this.ofRack = world.racks.map(() => new Map());
    for (let gpu = 0; gpu < world.node.length; gpu++) this.add(gpu);
  }

  /** @param {number} gpu */
  add(gpu) {
    this.ofGpu[gpu] = this.#kindOf(gpu);
    this.#count(gpu, 1);
  }

  /** Before it becomes another. @param {number} gpu */
  drop(gpu) {
    this.#count(gpu, -1);
  }

  /** The kinds of a rack, each with its part of it. @param {number} rack @returns {[string, number][]} */
  sharesOf(rack) {
    const sums = [...this.ofRack[rack]].sort();
    const all = sums.reduce((sum, [, size]) => sum + size, 0);
    return sums.map(([kind, size]) => [kind, size / all]);
  }

  /** What a part of a GPU is, an instance that no job holds too. @param {number} gpu @param {import("./map-layout.js").Part} part */
  ofPart(gpu, part) {
    return part.job === FREE ? this.#unheld(gpu, "parts") : this.#held(gpu, part.job, part.leaves);
  }

  /** What is so with a GPU in parts beside these parts. @param {number} gpu */
  ofRest(gpu) {
    const isInInstances = this.world.parts.get(gpu)?.some((part) => part.profile !== FREE);
    return this.#unheld(gpu, isInInstances ? "rest" : "parts");
  }

  /** @returns {[Map<string, string>, (job: number) => string]} */
  #told() {
    const { world } = this;
    switch (this.choice) {
      case "queue":
        return this.#byQueue();
      case "class":
        return [named(world.priorityClasses, "no class"), (job) => numbered(world.jobs.priorityClass[job])];
      case "type":
        return [named(world.types, ""), () => "held"];
      case "job":
        return [new Map(), (job) => `j${job}`];
      case "state":
        return [new Map(), () => "held"];
    }
  }

  /** Colours are for the deepest level for which there are enough; queues below one have its colour. @returns {[Map<string, string>, (job: number) => string]} */
  #byQueue() {
    const { world } = this;
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
      return at >= 0 ? numbered(at) : "other";
    });
    return [named(shown.map((queue) => world.queues[queue]), ""), (job) => kinds[world.jobs.queue[job]] ?? "other"];
  }

  /** @param {number} gpu */
  #kindOf(gpu) {
    const { world } = this;
    const job = world.held[gpu];
    if (job === IN_PARTS) {
      const held = world.parts.get(gpu)?.find((part) => part.job !== FREE);
      return held ? this.ofPart(gpu, held) : this.#unheld(gpu, "parts");
    }
    return job === FREE ? this.#unheld(gpu, "free") : this.#held(gpu, job, world.leaves[gpu]);
  }

  /** What a job holds has its colour, on a closed node too. @param {number} gpu @param {number} job @param {number} leaves */
  #held(gpu, job, leaves) {
    if (this.choice === "type") return numbered(this.world.nodeType[this.world.node[gpu]]);
    return this.choice === "state" && leaves ? "leaving" : this.ofJob(job);
  }

  /** What no job holds is not usable, or free: as what, is told apart by state alone. @param {number} gpu @param {string} open */
  #unheld(gpu, open) {
    const state = STATES[this.world.state[gpu]];
    if (state === "not well") return "ill";
    if (CLOSING.has(state)) return "closed";
    if (this.choice !== "state") return "free";
    if (open === "rest") return open;
    if (this.world.kept[gpu]) return this.world.kept[gpu] === 1 ? "reserved" : "promised";
    return state === "suspect" ? "suspect" : open;
  }

  /** @param {number} gpu @param {1 | -1} sign */
  #count(gpu, sign) {
    const own = this.ofRack[this.world.nodeRack[this.world.node[gpu]]];
    const add = (/** @type {string} */ kind, /** @type {number} */ size) => {
      for (const sums of [own, this.sums]) {
        const sum = (sums.get(kind) ?? 0) + sign * size;
        if (sum) sums.set(kind, sum);
        else sums.delete(kind);
      }
    };
    if (this.world.held[gpu] !== IN_PARTS) return add(this.ofGpu[gpu], 1000);
    let left = 1000;
    for (const part of this.world.parts.get(gpu) ?? []) {
      add(this.ofPart(gpu, part), part.size);
      left -= part.size;
    }
    if (left) add(this.ofRest(gpu), left);
  }
}

/** @param {number} at */
function numbered(at) {
  return at < COLOURS ? `c${at}` : "other";
}

/** @param {string[]} names @param {string} unnamed */
function named(names, unnamed) {
  return new Map(names.slice(0, COLOURS).map((name, i) => /** @type {[string, string]} */ ([`c${i}`, name || unnamed])));
}
