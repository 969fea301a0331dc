/** Checkpoints of a decoder without its head, as transformers' base models save them: names lack the prefix "model.". */
import type { Checkpoint } from "../formats/contract.ts";
import { renamedTensors } from "../formats/renamed-tensors.ts";
import type { Decoder } from "../model/decoder.ts";

const PREFIX = "model.";

/** The checkpoint with the prefix before its names where its decoder expects it and no tensor has it. */
export function withModelPrefix(checkpoint: Checkpoint, { slots }: Decoder): Checkpoint {
  const { tensors } = checkpoint;
  if (tensors.names.some((name) => name.startsWith(PREFIX))) return checkpoint;
  const prefixed = slots.filter(({ name }) => name.startsWith(PREFIX));
  if (!prefixed.some(({ name }) => tensors.has(name.slice(PREFIX.length)))) return checkpoint;
  const isHead = (name: string) => name.startsWith("lm_head.");
  return { ...checkpoint, tensors: renamedTensors(tensors, (name) => (isHead(name) ? name : `${PREFIX}${name}`)) };
}
