/** Runs one input after the other as scripts/stress/fuzz.js says, and tells it of each: which begins, and how it ended. */
import { LowbitError } from "../../src/errors.ts";
import { Random } from "../support/random.ts";
import { fuzzConfigs } from "./configs.ts";
import { fuzzKernels } from "./kernels.ts";
import { fuzzPrograms } from "./programs.ts";
import { fuzzQuantized } from "./quantized.ts";
import { fuzzTemplates } from "./templates.ts";
import { fuzzTokenizers } from "./tokenizers.ts";

/** A way to make inputs of a kind: what is made once, and an input by its numbers. A kept input is written to a folder. */
export type Fuzzer = (
  keep: string | null,
  kind: Job["kind"],
) => Promise<(random: Random, seed: number) => Promise<void>>;

/** Something that no file may do, although it ended in no error. */
export class Misbehaviour extends Error {}

interface Job {
  readonly kind: "programs" | "layers" | "kernels" | "tokenizers" | "templates" | "configs" | "quantized";
  /** These, or else `count` from `first` on until a time of `Date.now()`. */
  readonly seeds: readonly number[] | null;
  readonly first: number;
  readonly count: number;
  readonly until: number;
  readonly keep: string | null;
}

const fuzzers: Record<Job["kind"], Fuzzer> = {
  programs: fuzzPrograms,
  layers: fuzzPrograms,
  kernels: fuzzKernels,
  tokenizers: fuzzTokenizers,
  templates: fuzzTemplates,
  configs: fuzzConfigs,
  quantized: fuzzQuantized,
};

const send = (message: object) => new Promise<void>((resolve) => process.send!(message, () => resolve()));

async function runJob({ kind, seeds, first, count, until, keep }: Job): Promise<void> {
  const run = await fuzzers[kind](keep, kind);
  for (let i = 0; i < (seeds?.length ?? count); i++) {
    if (Date.now() > until) break;
    const seed = seeds?.[i] ?? first + i;
    await send({ start: seed });
    try {
      await run(new Random(seed), seed);
      await send({ outcome: "ran" });
    } catch (error) {
      if (error instanceof LowbitError) await send({ outcome: "refused", reason: error.message });
      else await send({ problem: (error instanceof Error && error.stack) || String(error) });
    }
  }
}

process.once("message", (job) => void runJob(job as Job).then(() => process.exit(0)));
