/** Finds tensors of a checkpoint that its model does not read. */
import type { Checkpoint } from "../formats/contract.ts";
import { moduleOf, type Network, type WeightSlot } from "../model/decoder.ts";

/** Names of tensors that follow from the config: attention masks and RoPE frequencies. */
const derived =
  /\.(?:inv_freq|position_ids|cos_cached|sin_cached|masked_bias)$|^rope(?:\.freqs|_freqs\.weight|_factors_(?:long|short)\.weight)$/;

/**
 * Names of the tensors that no slot reads, except for derived ones. All tensors in the module of a slot with a storage
 * (`isStored`) count as read, except the bias.
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
