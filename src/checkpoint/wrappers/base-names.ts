/** Checkpoints of transformers' base models (a decoder without its head), whose tensor names lack the prefix "model.". */
import type { Checkpoint } from "../../formats/contract.ts";
import { renamedTensors } from "../../formats/renamed-tensors.ts";
import { moduleOf, type Network } from "../../model/decoder.ts";

const PREFIX = "model.";

/** Adds the prefix to names where the network expects it and no tensor has it. */
export function withModelPrefix(checkpoint: Checkpoint, { slots }: Network): Checkpoint {
  const { tensors } = checkpoint;
  if (tensors.names.some((name) => name.startsWith(PREFIX))) return checkpoint;
  const prefixed = slots.filter(({ name }) => name.startsWith(PREFIX));
  if (!prefixed.some(({ name }) => tensors.has(name.slice(PREFIX.length)))) return checkpoint;
  const others = slots.filter(({ name }) => !name.startsWith(PREFIX)).map(({ name }) => `${moduleOf(name)}.`);
  const isOther = (name: string) => ["lm_head.", ...others].some((module) => name.startsWith(module));
  return { ...checkpoint, tensors: renamedTensors(tensors, (name) => (isOther(name) ? name : `${PREFIX}${name}`)) };
}
