/** Ways in which checkpoints store weights other than as one float tensor; open to users. */
import { InvalidArgumentError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { WeightSlot } from "../model/decoder.ts";
import type { Weight } from "../ops/weight.ts";

export interface WeightStorage {
  /** "AQLM": for messages, and what `quant_method` of config.json says, but for case. */
  readonly name: string;
  /**
   * The weight of a slot when the checkpoint stores it this way, else null. Only headers are read here; errors name
   * the tensor.
   */
  find(checkpoint: Checkpoint, slot: WeightSlot): Weight | null;
  /** Reads what is small of the weight of a slot that `find` found; errors name the tensor whose values are bad. */
  verify?(checkpoint: Checkpoint, slot: WeightSlot): Promise<void>;
}

const storages: WeightStorage[] = [];

/** Adds a storage; InvalidArgumentError when its name is taken. */
export function registerWeightStorage(storage: WeightStorage): void {
  if (storages.some(({ name }) => name === storage.name))
    throw new InvalidArgumentError(`weight storage ${storage.name} is registered already`);
  storages.push(storage);
}

/** The names of the storages, as `quant_method` of config.json has them but for case. */
export function storageNames(): readonly string[] {
  return storages.map(({ name }) => name);
}

/** The weight of a slot in the first storage that has it; null when it is a plain tensor. */
export function findStoredWeight(checkpoint: Checkpoint, slot: WeightSlot): Weight | null {
  for (const storage of storages) {
    const weight = storage.find(checkpoint, slot);
    if (weight) return weight;
  }
  return null;
}

/** Reads what storages can check of a checkpoint's weights without reading them whole. */
export async function verifyStoredWeights(checkpoint: Checkpoint, slots: readonly WeightSlot[]): Promise<void> {
  for (const slot of slots.filter(({ tiedTo }) => tiedTo === null)) {
    const storage = storages.find((candidate) => candidate.find(checkpoint, slot) !== null);
    await storage?.verify?.(checkpoint, slot);
  }
}
