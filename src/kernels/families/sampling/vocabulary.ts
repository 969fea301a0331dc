/**
 * The sampler's passes over logits: memory for one row of logits, and kernels that find the largest logit of each block and
 * compute weights. All kernels give the same bits.
 */
import { UnsupportedError } from "../../../errors.ts";
import { warn } from "../../../log.ts";
import type { Cpu, Kernel } from "../../contract.ts";
import { hostCpu, scalarCpu } from "../../cpu.ts";
import { zeroedBytes } from "../../plan.ts";
import { selectKernel } from "../../select.ts";
import { WasmEngine } from "../../wasm/engine/engine.ts";
import { noSequences } from "../../wasm/kernel.ts";
import { BLOCK_TOKENS } from "./fields.ts";
import { vocabularyMaxima, vocabularyWeights } from "./kernels.ts";

const query = { layout: null, bits: null, m: 1 };
const noScratch = new Uint8Array(0);
/** Bytes of all arrays per block of logits. */
const BLOCK_BYTES = 4 * (2 * BLOCK_TOKENS + BLOCK_TOKENS / 32 + 2);
const SPARE_BYTES = 1 << 13;
const SCALE_MIN = 2 ** -126;
const SCALE_MAX = 2 ** 127;

/** A row of logits in the kernels' memory, with the results of the passes. The next row overwrites all arrays. */
export class VocabularyPasses {
  /** Number of logits. */
  readonly length: number;
  /** Logits [length], and -Infinity up to a whole block. */
  readonly logits: Float32Array;
  /** The largest logit of each block, NaN if one is NaN, as `findMaxima` sets it. */
  readonly maxima: Float32Array;
  /** Weights of logits, as `weigh` sets them, in blocks with a sum other than 0. */
  readonly weights: Float32Array;
  /** Sum of the weights of each block. */
  readonly sums: Float32Array;
  readonly #allowed: Uint32Array;
  /** The largest logit, the scale, and the least logit with a weight. */
  readonly #settings: Float32Array;
  readonly #findMaxima: () => void;
  readonly #weigh: () => void;
  #isOpen = false;

  /** Passes for rows of `length` logits, with kernels for a CPU. */
  constructor(length: number, cpu: Cpu) {
    const blocks = Math.ceil(length / BLOCK_TOKENS);
    const maximaKernel = selectKernel(vocabularyMaxima, query, cpu);
    const weightsKernel = selectKernel(vocabularyWeights, query, cpu);
    const place = maximaKernel.target === "wasm" ? wasmPlace(blocks) : processPlace;
    const floats = (count: number) => {
      const { buffer, byteOffset } = place.allocate(4 * count);
      return new Float32Array(buffer, byteOffset, count);
    };
    this.length = length;
    this.logits = floats(blocks * BLOCK_TOKENS).fill(Number.NEGATIVE_INFINITY);
    this.maxima = floats(blocks);
    this.weights = floats(blocks * BLOCK_TOKENS);
    this.sums = floats(blocks);
    this.#settings = floats(3);
    const { buffer, byteOffset, length: words } = floats((blocks * BLOCK_TOKENS) / 32);
    this.#allowed = new Uint32Array(buffer, byteOffset, words);
    const x = this.logits;
    this.#findMaxima = place.ready(maximaKernel, { x, allowed: this.#allowed, maxima: this.maxima });
    this.#weigh = place.ready(weightsKernel, {
      ...{ x, maxima: this.maxima, settings: this.#settings, weights: this.weights, sums: this.sums },
    });
  }

  /**
   * Sets `maxima` from `logits`. Logits whose bit (i % 32 of word i / 32) is not set in `allowed` [length / 32, rounded up]
   * become -Infinity first; null allows all.
   */
  findMaxima(allowed: Uint32Array | null): void {
    if (allowed) this.#allowed.set(allowed);
    else if (!this.#isOpen) this.#allowed.fill(0xffffffff);
    this.#isOpen = allowed === null;
    this.#findMaxima();
  }

  /**
   * Sets `weights` to e^((logit - largest) / temperature) for logits of at least `least` and 0 for others, in blocks that have
   * such a logit, and sets `sums`. `maxima` must be set, and `largest` finite.
   */
  weigh(largest: number, temperature: number, least = Number.NEGATIVE_INFINITY): void {
    const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, Math.LOG2E / temperature));
    this.#settings[0] = largest;
    this.#settings[1] = scale;
    this.#settings[2] = least;
    this.#weigh();
  }
}

/** Allocates the arrays, and prepares calls on them for this thread. */
interface Place {
  allocate(byteLength: number): Uint8Array;
  ready<A>(kernel: Kernel<A>, args: A): () => void;
}

const processPlace: Place = {
  allocate: zeroedBytes,
  ready: (kernel, args) => kernel.bind(args, noScratch, 1),
};

/** A WebAssembly memory of its own, since a program's memory may be in use by other threads. */
function wasmPlace(blocks: number): Place {
  const engine = new WasmEngine({ bytes: SPARE_BYTES + blocks * BLOCK_BYTES, threads: 1, isShared: false });
  const at = ({ byteOffset }: ArrayBufferView) => byteOffset;
  return {
    allocate: (byteLength) => engine.allocate(byteLength),
    ready(kernel, args) {
      const call = kernel.encode!(args, noScratch);
      if (call.target !== "wasm") return kernel.bind(args, noScratch, 1);
      return engine.readyNow(call.prepare({ read: at, write: at, ...noSequences, scratch: 0, threads: 1 }));
    },
  };
}

/** Number of cached passes, by length and CPU. */
const KEPT_MAX = 4;
const kept = new Map<string, VocabularyPasses>();

/** Creates passes; with reference kernels, which give the same bits, if there is no memory for WebAssembly. */
function passesOn(length: number, cpu: Cpu): VocabularyPasses {
  try {
    return new VocabularyPasses(length, cpu);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    warn(`tokens are chosen by plain loops: ${error.message}`);
    return new VocabularyPasses(length, scalarCpu);
  }
}

/** Passes for rows of `length` logits. All callers share their memory and use it one after the other. */
export function vocabularyPasses(length: number, cpu: Cpu = hostCpu()): VocabularyPasses {
  const key = `${length} ${cpu.name}`;
  let passes = kept.get(key);
  if (!passes) {
    passes = passesOn(length, cpu);
    const [oldest] = kept.keys();
    if (kept.size >= KEPT_MAX && oldest !== undefined) kept.delete(oldest);
    kept.set(key, passes);
  }
  return passes;
}
