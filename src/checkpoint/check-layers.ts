/**
 * Checks that a checkpoint has the layers of its config, so that a wrong number cannot make the loader build endless
 * layers.
 */
import { InvalidFileError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";

const LAYER = /(?:^|\.)layers\.(\d+)\./;

/** InvalidFileError where the config has more layers than the last one with a tensor. */
export function checkLayers({ configFile, config, tensors }: Checkpoint): void {
  const { num_hidden_layers: count } = config;
  const present = tensors.names.reduce((most, name) => Math.max(most, Number(LAYER.exec(name)?.[1] ?? -1) + 1), 0);
  if (typeof count === "number" && present > 0 && count > present)
    throw new InvalidFileError(
      configFile,
      `num_hidden_layers: expected at most ${present}, the layers that have tensors, but found ${count}`,
    );
}
