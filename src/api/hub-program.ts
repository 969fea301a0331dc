/** Models of the hub as programs: downloaded, quantized once, and kept. */
import { basename } from "node:path";
import { checkOptions, checkString } from "../arguments.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import type { Model } from "../checkpoint/model.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { weightOrigins } from "../checkpoint/weight-origins.ts";
import { UnsupportedError } from "../errors.ts";
import type { HubSettings } from "../hub/settings.ts";
import { type PullPlan, pullModel } from "../hub/snapshot.ts";
import { freeDisk } from "../node-file.ts";
import { totalMemory } from "../node-memory.ts";
import type { WaitOptions } from "../path-claim.ts";
import { embedding, int8DynamicActivationIntxWeight, sharedEmbedding } from "../quantize/config.ts";
import { searched } from "../quantize/qmode.ts";
import { exportProgram } from "./export-program.ts";
import { cachedOrMade, hubName, keepCached, programCache } from "./program-cache.ts";

/**
 * What downloading and quantizing a model will take, told before it begins. Sizes of programs are estimated from those of
 * files.
 */
export interface DownloadPlan {
  /** Name of the model. */
  readonly model: string;
  /** Bytes that will be downloaded. */
  readonly downloadBytes: number;
  /** Bytes that the program will take on disk, estimated. */
  readonly programBytes: number;
  /** Bytes that are free on the disk that download and program go to. */
  readonly freeDiskBytes: number;
  /** Bytes of memory that running it takes, estimated: its weights, and the KV cache of some thousand tokens. */
  readonly memoryBytes: number;
  /** Bytes of memory of this machine, or of its container. */
  readonly totalMemoryBytes: number;
}

/**
 * Options of `hubProgram`: how it gets and quantizes a model. `onWait` is called while another process makes the same
 * program.
 */
export interface HubProgramOptions extends WaitOptions {
  /** Address, cache and token of the hub. Default: those in the environment. */
  readonly settings?: HubSettings | undefined;
  /** Folder of cached programs. Default: `programCache()`. */
  readonly cache?: string | undefined;
  /** A quantization to apply instead of `quantizeByDefault`, and a name for it, which is a part of the cache's key. */
  readonly quantization?: { readonly name: string; readonly apply: (model: Model) => unknown } | undefined;
  /** Ends the work; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Called before a download. An error that it throws ends the work before anything is downloaded. */
  readonly onPlan?: ((plan: DownloadPlan) => void) | undefined;
  /** Called with the model after it was opened, before it is quantized. */
  readonly onOpen?: ((model: Model) => void) | undefined;
  /** Called as files arrive, and as the program is written, with bytes done and bytes in all. */
  readonly onProgress?:
    | ((what: "downloading" | "quantizing", doneBytes: number, totalBytes: number) => void)
    | undefined;
}

/** The name of what `quantizeByDefault` does. */
export const DEFAULT_QUANTIZATION = "4 bits of a codebook, groups of 16 with scales of 8 bits";
const DEFAULT_WEIGHTS = searched({ bits: 4 });

/** Bytes of a 4-bit program with scales, as a share of those of a 16-bit checkpoint. */
const DEFAULT_SHARE = 4.5625 / 16;
/** Bytes of KV cache and activations in the estimate of memory. */
const RUN_BYTES = 300e6;

/**
 * Sets the default quantization: all matrices to 4-bit codebook indices, in groups of 16 with 8-bit scales, for 8-bit
 * activations; a tied embedding and head in one buffer. A model with weights that are low-bit already stays as it is.
 */
export function quantizeByDefault(model: Model): void {
  if (!weightOrigins(model).every(({ treatment }) => treatment === "float")) return;
  const isTied = model.network.slots.some(({ tiedTo }) => tiedTo !== null);
  quantize(model, [
    int8DynamicActivationIntxWeight(DEFAULT_WEIGHTS),
    isTied ? sharedEmbedding(DEFAULT_WEIGHTS) : embedding(DEFAULT_WEIGHTS),
  ]);
}

/**
 * Gives the path of the program of a hub model ("hf:org/name[@revision]"). The first call downloads, quantizes and writes
 * it; later calls take the program from the cache without asking the hub. HubError when the hub does not have the model,
 * UnsupportedError when the disk has no room for it, before anything is downloaded.
 */
export async function hubProgram(model: string, options: HubProgramOptions = {}): Promise<string> {
  checkString("model", model);
  checkOptions(options);
  const { cache = programCache(), quantization, signal, onWait } = options;
  const key = { model, quantization: quantization?.name ?? DEFAULT_QUANTIZATION };
  const make = async (path: string) => keepCached(key, await makeProgram(model, path, options), cache);
  return (await cachedOrMade(key, cache, { signal, onWait }, make)).path;
}

/** Writes the program; gives the commit of the repository that it is made of. */
async function makeProgram(model: string, path: string, options: HubProgramOptions): Promise<string> {
  const { quantization, settings, signal, onWait, onProgress } = options;
  const snapshot = await pullModel(model, {
    settings,
    signal,
    onWait,
    onPlan: async (plan) => {
      const found = await planOf(hubName(model), plan, quantization ? 1 : DEFAULT_SHARE);
      checkRoom(found);
      options.onPlan?.(found);
    },
    onProgress: (done, total) => onProgress?.("downloading", done, total),
  });
  const opened = await loadCheckpoint(snapshot, { signal });
  try {
    options.onOpen?.(opened);
    await (quantization?.apply ?? quantizeByDefault)(opened);
    await exportProgram(opened, path, {
      signal,
      resume: true,
      onWait,
      onProgress: (done, total) => onProgress?.("quantizing", done, total),
    });
    return basename(snapshot);
  } finally {
    await opened.close();
  }
}

/** `share`: bytes of the program as a share of those of the float weights. */
async function planOf(model: string, { files, bytes, folder }: PullPlan, share: number): Promise<DownloadPlan> {
  const isWeights = /\.(safetensors|bin|pth|gguf)$/;
  const weightBytes = files
    .filter(({ name }) => isWeights.test(name))
    .reduce((sum, file) => sum + file.bytes * (file.name.endsWith(".gguf") ? 1 : share), 0);
  const programBytes = Math.round(weightBytes);
  return {
    model,
    downloadBytes: bytes,
    programBytes,
    freeDiskBytes: await freeDisk(folder),
    memoryBytes: programBytes + RUN_BYTES,
    totalMemoryBytes: totalMemory(),
  };
}

function checkRoom({ model, downloadBytes, programBytes, freeDiskBytes }: DownloadPlan): void {
  const needed = downloadBytes + programBytes;
  if (needed <= freeDiskBytes) return;
  const mb = (bytes: number) => `${Math.ceil(bytes / 1e6)} MB`;
  throw new UnsupportedError(
    `${model}: expected ${mb(needed)} of free disk, ${mb(downloadBytes)} for the download and about ${mb(programBytes)} for the program, but found ${mb(freeDiskBytes)}`,
  );
}
