/** Ways in which checkpoints store weights other than as one float tensor; open to users. */
import { InvalidArgumentError, InvalidFileError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { describe, isObject } from "../../formats/json.ts";
import type { WeightSlot } from "../../model/decoder.ts";
import type { Weight } from "../../ops/weight.ts";

/** A way in which checkpoints store weights; `registerWeightStorage` makes it known to `loadCheckpoint`. */
export interface WeightStorage {
  /** Name for messages, such as "AQLM", which `quant_method` of config.json says, too (`isSameMethod`). */
  readonly name: string;
  /**
   * The weight of a slot when the checkpoint stores it this way, else null. Only headers are read here; errors name
   * the tensor.
   */
  find(checkpoint: Checkpoint, slot: WeightSlot): StoredWeight | null;
}

/** A weight of a storage. */
export interface StoredWeight extends Weight {
  /** Reads the small parts of the weight when the checkpoint is opened; errors name the tensor whose values are bad. */
  verify?(): Promise<void>;
}

const storages: WeightStorage[] = [];

/** Adds a storage; InvalidArgumentError when its name is taken. */
export function registerWeightStorage(storage: WeightStorage): void {
  if (storages.some(({ name }) => name === storage.name))
    throw new InvalidArgumentError(`weight storage ${storage.name} is registered already`);
  storages.push(storage);
}

/** The names of the storages, which are those of quantization methods. */
export function storageNames(): readonly string[] {
  return storages.map(({ name }) => name);
}

/** The weight of a slot in the first storage that has it; null when it is a plain tensor. */
export function findStoredWeight(checkpoint: Checkpoint, slot: WeightSlot): StoredWeight | null {
  for (const storage of storages) {
    const weight = storage.find(checkpoint, slot);
    if (weight) return weight;
  }
  return null;
}

/** The method that config.json says weights were quantized by; null when it says none. InvalidFileError for what is no text. */
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

/** Whether two names are of one method: config.json has them in any case. */
export function isSameMethod(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}
