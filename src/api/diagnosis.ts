/** Which CPU, kernels and memory this machine runs models with, and what would make it faster. */
import { cpus } from "node:os";
import { hostCpu } from "../kernels/cpu.ts";
import { missingAddon, nativeAddon } from "../kernels/native/addon.ts";
import { readBandwidth } from "../kernels/native/read-bandwidth.ts";
import { defaultThreads } from "../kernels/plan.ts";
import { totalMemory } from "../node-memory.ts";
import { version } from "../version.ts";
import { kernelTable } from "./kernel-table.ts";

/** What `diagnose` finds: CPU, kernels, threads, memory and advice. */
export interface Diagnosis {
  /** Version of lowbit. */
  readonly version: string;
  /** Version of the runtime, such as "Node 22.11.0, linux x64". */
  readonly runtime: string;
  /** Name of the CPU, as the system gives it. */
  readonly cpu: string;
  /** Cores of the machine. */
  readonly cores: number;
  /** Features of the CPU that kernels use. */
  readonly features: readonly string[];
  /** Where kernels come from: the native addon, WebAssembly, or the reference in TypeScript. */
  readonly backend: "native" | "wasm" | "reference";
  /** Names of the kernels that multiply 4-bit weights: in decode, and in prefill. */
  readonly kernels: readonly string[];
  /** Threads that kernels run on, unless a program is loaded with another number. */
  readonly threads: number;
  /** Bytes of memory that this process may use, and those of them that are free now. */
  readonly memory: { readonly totalBytes: number; readonly freeBytes: number };
  /**
   * Memory bandwidth in bytes a second, all threads reading; null without native code. Decoding reads all weights for each
   * token, so tokens a second are at most this divided by the model's bytes.
   */
  readonly readBytesPerSecond: number | null;
  /** Advice that makes models faster on this machine, in sentences; empty where there is none. */
  readonly advice: readonly string[];
}

/** Bytes that are read to measure bandwidth: more than CPU caches hold. */
const READ_BYTES = 256e6;
/** Tokens of a prompt for which the kernel of prefill is looked up. */
const PREFILL_TOKENS = 64;

/** Looks at this machine: CPU, kernels, threads and memory. Takes about a second. */
export function diagnose(): Diagnosis {
  const cpu = hostCpu();
  const addon = nativeAddon();
  const table = kernelTable(cpu);
  const backend = cpu.features.has("simd128") ? "wasm" : addon && cpu.features.size > 0 ? "native" : "reference";
  const threads = defaultThreads();
  const { node, bun, deno } = process.versions;
  const runtime = bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`;
  const four = table.choices.find(
    ({ operator, bits, packed }) => /8bit_block_act/.test(operator) && bits?.includes(4) && packed === true,
  );
  const at = (rows: number) => four?.serving.findLast(({ m }) => m <= rows)?.kernel ?? null;
  const cores = cpus().length;
  return {
    version,
    runtime: `${runtime}, ${process.platform} ${process.arch}`,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores,
    features: [...cpu.features],
    backend,
    kernels: [...new Set([at(1), at(PREFILL_TOKENS)].filter((name) => name !== null))],
    threads,
    memory: {
      totalBytes: totalMemory(),
      freeBytes: process.availableMemory(),
    },
    readBytesPerSecond: backend === "native" ? readSpeed(threads) : null,
    advice: adviceFor({ backend, threads, cores, unserved: table.unserved }),
  };
}

interface Situation {
  readonly backend: Diagnosis["backend"];
  readonly threads: number;
  readonly cores: number;
  readonly unserved: readonly string[];
}

/** Sentences on what would be faster, and how to have it. */
export function adviceFor({ backend, threads, cores, unserved }: Situation): string[] {
  const advice: string[] = [];
  if (backend !== "native")
    advice.push(
      `Native kernels would be several times as fast, but there are none here: ${missingAddon() || "this CPU has no AVX2"}.`,
    );
  if (unserved.length > 0)
    advice.push(
      `This CPU has ${unserved.join(", ")}, which the addon was built without: \`node scripts/native/build.js\` adds those kernels.`,
    );
  if (threads === 1 && cores > 1)
    advice.push(
      `One of ${cores} cores is used: a quota of the container, an affinity, or one fast core among slow ones leaves no more; --threads sets another number.`,
    );
  for (const name of ["LOWBIT_BACKEND", "LOWBIT_CPU"])
    if (process.env[name])
      advice.push(`The environment variable ${name} is ${process.env[name]}, which leaves kernels out.`);
  return advice;
}

/** Memory bandwidth of `threads` in bytes a second; null where too little memory is free to measure. */
function readSpeed(threads: number): number | null {
  if (process.availableMemory() < 2 * READ_BYTES) return null;
  const buffer = nativeAddon()?.allocate(READ_BYTES);
  return buffer ? readBandwidth([new Uint8Array(buffer).fill(1)], threads) : null;
}
