/** Whether a config has more layers than its checkpoint: what is made for each layer must not follow a number alone. */
import { InvalidFileError } from "../errors.ts";
import type { Checkpoint } from "../formats/contract.ts";

const LAYER = /(?:^|\.)layers\.(\d+)\./;

/** InvalidFileError for layers beyond the last one that has a tensor, where any has. */
export function checkLayers({ configFile, config, tensors }: Checkpoint): void {
  const { num_hidden_layers: count } = config;
  const present = tensors.names.reduce((most, name) => Math.max(most, Number(LAYER.exec(name)?.[1] ?? -1) + 1), 0);
  if (typeof count === "number" && present > 0 && count > present)
    throw new InvalidFileError(
      configFile,
      `num_hidden_layers: expected at most ${present}, the layers that have tensors, but found ${count}`,
    );
}
