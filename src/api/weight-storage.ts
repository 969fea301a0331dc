/** Ways in which checkpoints store weights other than as one float tensor; open to users. */
import { InvalidArgumentError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { WeightSlot } from "../model/decoder.ts";
import type { Weight } from "../ops/weight.ts";

export interface WeightStorage {
  /** For messages: "AQLM". */
  readonly name: string;
  /**
   * The weight of a slot when the checkpoint stores it this way, else null. Only headers are read here; errors name
   * the tensor.
   */
  find(checkpoint: Checkpoint, slot: WeightSlot): Weight | null;
}

const storages: WeightStorage[] = [];

/** Adds a storage; InvalidArgumentError when its name is taken. */
export function registerWeightStorage(storage: WeightStorage): void {
  if (storages.some(({ name }) => name === storage.name))
    throw new InvalidArgumentError(`weight storage ${storage.name} is registered already`);
  storages.push(storage);
}

/** The weight of a slot in the first storage that has it; null when it is a plain tensor. */
export function findStoredWeight(checkpoint: Checkpoint, slot: WeightSlot): Weight | null {
  for (const storage of storages) {
    const weight = storage.find(checkpoint, slot);
    if (weight) return weight;
  }
  return null;
}
