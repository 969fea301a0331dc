/** Storages: ways in which checkpoints store weights other than as one float tensor. Users can add some. */
import { InvalidArgumentError, InvalidFileError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { describe, isObject } from "../../formats/json.ts";
import type { WeightSlot } from "../../model/decoder.ts";
import type { Weight } from "../../ops/weight.ts";

/** A way in which checkpoints store weights; `registerWeightStorage` adds it to those of `loadCheckpoint`. */
export interface WeightStorage {
  /** Name for messages, such as "AQLM", which is also the `quant_method` in config.json (`isSameMethod`). */
  readonly name: string;
  /**
   * The weight of a slot when the checkpoint stores it this way, else null. Only headers are read; errors name the tensor.
   */
  find(checkpoint: Checkpoint, slot: WeightSlot): StoredWeight | null;
}

/** A weight that a storage gives. */
export interface StoredWeight extends Weight {
  /** Reads and checks the weight's small tensors when the checkpoint is opened; errors name the tensor with bad values. */
  verify?(): Promise<void>;
}

const storages: WeightStorage[] = [];

/** Adds a storage. InvalidArgumentError when its name is taken. */
export function registerWeightStorage(storage: WeightStorage): void {
  if (storages.some(({ name }) => name === storage.name))
    throw new InvalidArgumentError(`weight storage ${storage.name} is registered already`);
  storages.push(storage);
}

/** Names of the storages, which are names of quantization methods. */
export function storageNames(): readonly string[] {
  return storages.map(({ name }) => name);
}

/** The weight of a slot in the first storage that finds it; null when it is a plain tensor. */
export function findStoredWeight(checkpoint: Checkpoint, slot: WeightSlot): StoredWeight | null {
  for (const storage of storages) {
    const weight = storage.find(checkpoint, slot);
    if (weight) return weight;
  }
  return null;
}

/** The quantization method in config.json; null without one. InvalidFileError for a value that is no string. */
export function quantMethod({ config, configFile }: Checkpoint): string | null {
  const found = config.quantization_config ?? {};
  if (!isObject(found))
    throw new InvalidFileError(configFile, `quantization_config: expected an object but found ${describe(found)}`);
  const method = found.quant_method ?? null;
  if (method === null || typeof method === "string") return method;
  throw new InvalidFileError(
    configFile,
    `quantization_config.quant_method: expected a name but found ${describe(method)}`,
  );
}

/** Whether two names are of one method, ignoring case. */
export function isSameMethod(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}
