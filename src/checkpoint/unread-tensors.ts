/** Tensors of a checkpoint that its model has no place for. */
import type { Checkpoint } from "../formats/contract.ts";
import { moduleOf, type Network, type WeightSlot } from "../model/decoder.ts";

/** Tables that follow from the config: masks of attention, and frequencies of rotary embeddings. */
const derived =
  /\.(?:inv_freq|position_ids|cos_cached|sin_cached|masked_bias)$|^rope(?:\.freqs|_freqs\.weight|_factors_(?:long|short)\.weight)$/;

/**
 * Names of the tensors that no slot reads, but for those that say nothing new. What lies in the module of a slot that a
 * storage has (`isStored`) is its own, but for the bias.
 */
export function findUnread(
  { tensors }: Checkpoint,
  { slots, unused = [] }: Pick<Network, "slots" | "unused">,
  isStored: (slot: WeightSlot) => boolean,
): readonly string[] {
  const left = new Set(unused);
  const read = new Set(slots.map(({ name }) => name));
  const modules = new Set(slots.filter(isStored).map(({ name }) => moduleOf(name)));
  return tensors.names.filter((name) => {
    if (read.has(name) || derived.test(name) || left.has(moduleOf(name))) return false;
    return name.endsWith(".bias") || !modules.has(moduleOf(name));
  });
}
