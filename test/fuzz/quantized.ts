/** Modules of quantized checkpoints with other settings, shapes and bytes: each is opened, and its weight read in every form. */
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { damage, MODULE, storedModules, unpack, writeModule } from "../support/quantized-modules.ts";
import type { Fuzzer } from "./child.ts";

export const fuzzQuantized: Fuzzer = async (keep) => {
  const goldens = Object.values(storedModules());
  const folder = await mkdtemp(join(tmpdir(), "lowbit-fuzz-"));
  return async (random, seed) => {
    const { tensors, settings } = unpack(random.pick(goldens));
    for (let change = random.integer(1, 4); change > 0; change--) damage(tensors, settings, random);
    await rm(folder, { recursive: true, force: true });
    await writeModule(folder, tensors, settings);
    if (keep !== null) await cp(folder, join(keep, `quantized-${seed}`), { recursive: true });
    const checkpoint = await openCheckpoint(folder);
    try {
      const { tensors: source } = checkpoint;
      const name = `${MODULE}.weight`;
      if (!source.has(name)) return;
      await source.read(name);
      const low = source.lowBit?.(name);
      if (!low) return;
      await low.rows(0, low.spec.n);
      await low.minima?.rows(0, low.spec.n);
    } finally {
      await checkpoint.close();
    }
  };
};
