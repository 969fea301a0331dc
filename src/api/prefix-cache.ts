/** Prefix cache on disk: pages of the KV cache that programs have computed of prompts, kept for other processes. */
import { createHash } from "node:crypto";
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { checkInstance, checkOptions } from "../arguments.ts";
import { takeTurn } from "../event-loop.ts";
import { HEADER_BYTES, packedLength } from "../kernels/layout/header.ts";
import { LanguageModel } from "../language/language-model.ts";
import { makeFolder } from "../node-file.ts";
import { type LoadedProgram, storeOf } from "../runtime/program.ts";
import type { PageArchive } from "../sequences/archive.ts";
import type { SequenceLayout } from "../sequences/layout.ts";
import { version } from "../version.ts";
import { type BlobFolder, openBlobFolder, ownedName } from "./blob-folder.ts";
import { programCache } from "./program-cache.ts";

/** Options of the prefix cache on disk, a folder that any number of processes share. */
export interface PrefixCacheOptions {
  /** The folder. Default: `prefixes` within `programCache()`. */
  readonly folder?: string | undefined;
  /**
   * Most bytes of the folder's files; the least recently used are removed. Default: 20 GiB, or a tenth of the disk's free
   * space if that is less.
   */
  readonly bytes?: number | undefined;
}

/** Prefix cache on disk: pages of the KV cache of any models in one folder. */
export class PrefixCache {
  readonly #blobs: BlobFolder;

  private constructor(blobs: BlobFolder) {
    this.#blobs = blobs;
  }

  /** Opens or makes the folder. InvalidFileError for a folder that cannot be written to. */
  static async open(options: PrefixCacheOptions = {}): Promise<PrefixCache> {
    checkOptions(options);
    const { folder = join(programCache(), "prefixes"), bytes } = options;
    await makeFolder(folder);
    return new PrefixCache(await openBlobFolder(folder, bytes ?? (await defaultBytes(folder))));
  }

  /**
   * Makes a model write the pages that it computes of prompts to the folder, and look there for prefixes of later prompts.
   * Prefixes are found by tokens, program, CPU, type of the KV cache and version of this package. Does nothing for a
   * program with a contiguous KV cache, such as one for ExecuTorch.
   */
  async keepFor(model: LanguageModel): Promise<void> {
    checkInstance("model", model, LanguageModel, "one of loadProgram()");
    const store = storeOf(model.program);
    if (!store) return;
    store.archive = archiveIn(this.#blobs, await identityOf(model.program, store.layout));
  }

  /** Resolves when all pages computed so far are written. */
  async flush(): Promise<void> {
    await this.#blobs.flush();
  }
}

const BYTES_DEFAULT = 20 * 2 ** 30;
/** Default limit as a share of the disk's free space. */
const FREE_SHARE = 1 / 10;

async function defaultBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return Math.max(1, Math.floor(Math.min(BYTES_DEFAULT, bavail * bsize * FREE_SHARE)));
}

/** Bytes of a plain constant whose CRC-32 is computed at a time. */
const SUMMED_BYTES = 1 << 20;

/**
 * A key that differs wherever programs would compute other keys and values: constants, calls, layout of pages, and kernels.
 */
async function identityOf(program: LoadedProgram, layout: SequenceLayout): Promise<string> {
  const { kinds, type, pagePositions, shape } = layout;
  const { name, features } = program.cpu;
  const facts = {
    version,
    cpu: [process.arch, name, ...[...features].sort()],
    pages: { type, pagePositions, kinds, stateBytes: shape.stateBytes },
    metadata: [...program.metadata].sort(([a], [b]) => (a < b ? -1 : 1)),
    methods: program.methods,
  };
  const isPlain = (value: unknown) => (typeof value === "bigint" ? `${value}n` : value);
  const hash = createHash("sha256").update(JSON.stringify(facts, (_, value) => isPlain(value)));
  for (const constant of program.constants) {
    hash.update(`${constant.length}:`);
    for (let at = 0; at < constant.length; ) {
      // Headers of packed weights have checksums, so the weights themselves need not be read at the start.
      const packed = packedLength(constant.subarray(at));
      if (packed !== null) hash.update(constant.subarray(at, at + HEADER_BYTES));
      // A hash of CRC-32 sums takes half the time of a hash of all bytes.
      else hash.update(`${crc32(constant.subarray(at, at + SUMMED_BYTES))},`);
      at += packed ?? SUMMED_BYTES;
      await takeTurn();
    }
  }
  return hash.digest("hex");
}

function archiveIn(blobs: BlobFolder, identity: string): PageArchive {
  return {
    rootKey: (branch) =>
      createHash("sha256")
        .update(JSON.stringify([identity, branch]))
        .digest("hex"),
    keyOf(previous, ids, salt) {
      const hash = createHash("sha256").update(JSON.stringify([previous, salt]));
      return ownedName(salt, identity, hash.update(Uint32Array.from(ids)).digest("hex"));
    },
    limit: (salt, bytes) => blobs.limit(salt, identity, bytes),
    has: (name) => blobs.has(name),
    read: (name, target) => blobs.read(name, target),
    write: (name, bytes) => blobs.write(name, bytes),
    touch: (names) => blobs.touch(names),
    flush: () => blobs.flush(),
  };
}
