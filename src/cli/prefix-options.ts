/** Options of the prefix cache on disk. */
import type { Command } from "commander";
import { InvalidFileError } from "../index.ts";
import { PrefixCache } from "../tools/index.ts";
import type { Terminal } from "./terminal.ts";
import { byteCount } from "./values.ts";

export interface PrefixOptions {
  readonly cacheDir?: string;
  /** False for `--no-cache-disk`. */
  readonly cacheDisk?: number | false;
}

export function addPrefixOptions(command: Command): Command {
  return command
    .option(
      "--cache-dir <folder>",
      "where computed prompts are kept for the next time (default: prefixes, in the folder of LOWBIT_CACHE)",
    )
    .option(
      "--cache-disk <n>",
      "most disk for that, such as 20g (default: 20g, and a tenth of what is free at most)",
      byteCount,
    )
    .option("--no-cache-disk", "keep nothing of prompts on disk");
}

/** Opens the prefix cache on disk; null where it is turned off, or where the default folder cannot be written to. */
export async function openPrefixes({ cacheDir, cacheDisk }: PrefixOptions, terminal: Terminal) {
  if (cacheDisk === false || cacheDisk === 0) return null;
  try {
    return await PrefixCache.open({ folder: cacheDir, bytes: cacheDisk });
  } catch (error) {
    if (cacheDir !== undefined || !(error instanceof InvalidFileError)) throw error;
    terminal.note(`lowbit: computed prompts are not kept: ${error.message}`);
    return null;
  }
}
