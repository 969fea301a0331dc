/** Options of a paged KV cache, chosen when a program is loaded: context, type and memory. */
import { checkWhole, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { type KvCacheType, kvCacheTypes, type SequenceUse } from "../kernels/sequence-table.ts";
import { logInfo } from "../log.ts";
import { nodeBuiltin } from "../node-builtin.ts";
import type { OperatorRegistry } from "../ops/operator-registry.ts";
import { qualifiedName } from "../ops/schema.ts";
import type { Method } from "../program/program.ts";
import { bytesForSequence, positionsWithin, type SequenceOptions, sequenceLayout } from "../sequences/layout.ts";
import { plannedArguments } from "./calls/call-values.ts";

/** How many sequences a program serves at once, how long they may be, and type and memory of the KV cache. */
export interface SequenceLoadOptions {
  /** Most tokens of a sequence. Default: the model's context length, as far as `cacheBytes` hold it. */
  readonly contextLength?: number | undefined;
  /**
   * Type of the KV cache. Each decoded token reads all of it; f16 takes half of f32's bytes, int8 a quarter, int4 a
   * seventh. Default: f32 while a whole context takes at most 32 MiB, which stays in processor caches; else f16.
   */
  readonly kvCache?: KvCacheType | undefined;
  /** Most sequences of a step; further ones wait for their turn. Default: 32. */
  readonly sequences?: number | undefined;
  /**
   * Most bytes of the KV cache of all sequences, prefix cache included; memory is taken as tokens come. Default: a quarter
   * of the free memory, or what one whole context takes, where that is at most half of it.
   */
  readonly cacheBytes?: number | undefined;
}

const SEQUENCES_DEFAULT = 32;
const SEQUENCES_MAX = 1024;
const F32_CONTEXT_BYTES_MAX = 32 * 2 ** 20;
/** Bytes taken as free where nothing tells, as in web pages. */
const FREE_BYTES_UNKNOWN = 2 ** 31;
/** Limit for WebAssembly, whose memory is made for the most that may be needed; up to 4 GiB it has the faster code. */
export const WASM_CACHE_BYTES_MAX = 2 ** 30;

/** What the methods' calls keep for each sequence; empty for programs without a paged KV cache. */
export function sequenceUses(methods: readonly Method[], registry: OperatorRegistry): SequenceUse[] {
  return methods.flatMap((method) =>
    method.instructions.flatMap((step) => {
      if (step.kind !== "kernel") return [];
      const operator = registry.find(qualifiedName(method.operators[step.operator]!));
      if (!operator?.keepsSequences) return [];
      return operator.sequenceUse(plannedArguments(method, step.args, operator.schema)) ?? [];
    }),
  );
}

/** Gives the type back. InvalidArgumentError for an unknown type of KV cache. */
export function checkKvCache(type: KvCacheType): KvCacheType {
  if (!kvCacheTypes.includes(type))
    throw new InvalidArgumentError(`kvCache: expected ${kvCacheTypes.join(" or ")} but found ${shown(type)}`);
  return type;
}

/** Chooses context length, type and memory of the KV cache from the options, the model and this machine's memory. */
export function chooseSequences(
  uses: readonly SequenceUse[],
  model: { readonly contextLength: number; readonly stepTokens: number },
  options: SequenceLoadOptions,
  cacheBytesMax = Number.POSITIVE_INFINITY,
): SequenceOptions {
  const { stepTokens } = model;
  const sequences = checkWhole("sequences", options.sequences ?? SEQUENCES_DEFAULT, 1, SEQUENCES_MAX);
  const wanted = checkWhole("contextLength", options.contextLength ?? model.contextLength, 1, model.contextLength);
  const type = checkKvCache(options.kvCache ?? defaultType(uses, wanted, stepTokens));
  const layout = sequenceLayout(uses, { type, contextLength: wanted, sequences });
  const one = bytesForSequence(layout, wanted, Math.min(stepTokens, wanted));
  const cacheBytes = options.cacheBytes ?? defaultBytes(one, sequences, cacheBytesMax);
  if (!(cacheBytes > 0 && cacheBytes < Number.POSITIVE_INFINITY))
    throw new InvalidArgumentError(`cacheBytes: expected a number of bytes but found ${shown(cacheBytes)}`);
  const chosen = { type, sequences, cacheBytes, stepTokens: Math.min(stepTokens, wanted) };
  if (one <= cacheBytes) return { ...chosen, contextLength: wanted };
  const contextLength = positionsWithin(layout, cacheBytes, wanted, stepTokens);
  if (options.contextLength !== undefined || contextLength < 1) {
    const least = options.contextLength ?? 1;
    const needed = bytesForSequence(layout, least, Math.min(stepTokens, least));
    throw new InvalidArgumentError(
      `cacheBytes: expected at least ${needed}, for ${least === 1 ? "a token" : `${least} tokens`} of one sequence in ${type}, but found ${cacheBytes}`,
    );
  }
  logInfo(
    () =>
      `contexts are cut to ${contextLength} of the model's ${wanted} tokens: the keys and values of one would take ` +
      `${one} bytes in ${type}, and cacheBytes is ${cacheBytes}`,
  );
  return { ...chosen, contextLength, stepTokens: Math.min(stepTokens, contextLength) };
}

/** InvalidArgumentError for options of a paged KV cache where the program has a contiguous one. */
export function checkNoSequences(options: SequenceLoadOptions): void {
  for (const name of ["contextLength", "kvCache", "sequences", "cacheBytes"] as const)
    if (options[name] !== undefined)
      throw new InvalidArgumentError(
        `${name}: expected a program that takes it when it is loaded, but this one has states of fixed sizes; export it without --target executorch`,
      );
}

function defaultType(uses: readonly SequenceUse[], contextLength: number, stepTokens: number): KvCacheType {
  const layout = sequenceLayout(uses, { type: "f32", contextLength, sequences: 1 });
  const bytes = bytesForSequence(layout, contextLength, Math.min(stepTokens, contextLength));
  return bytes <= F32_CONTEXT_BYTES_MAX ? "f32" : "f16";
}

function defaultBytes(one: number, sequences: number, most: number): number {
  const free = freeBytes();
  const share = Math.min(most, Math.max(free / 4, Math.min(one, free / 2)));
  return Math.floor(Math.min(share, sequences * one));
}

/** Bytes of memory that this process may still allocate. */
function freeBytes(): number {
  const os = nodeBuiltin<typeof import("node:os")>("node:os");
  if (!os) return FREE_BYTES_UNKNOWN;
  const limit = process.constrainedMemory?.() ?? 0;
  const free = os.freemem();
  return limit > 0 && limit < os.totalmem() ? Math.min(free, Math.max(0, limit - process.memoryUsage.rss())) : free;
}
